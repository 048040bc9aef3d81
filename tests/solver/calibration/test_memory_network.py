"""Training the network: it learns, it is the same every time, its margin covers, and it stops when asked."""

import signal
import sys
from typing import Any

import numpy as np
import pytest
import torch

from taut.data.arrays import Floats
from taut.data.memory import MemoryNetwork
from taut.errors import DataError, FormulationError
from taut.solver.calibration.memory_network import fit_network

pytestmark = pytest.mark.proof

NAMES = ("hidden", "tp", "zero")
SMALL = (16, 16)
torch.set_num_threads(1)


def samples(seed: int, count: int, noise: float = 0.0) -> tuple[Floats, Floats]:
    """Bytes 1e6 hidden / tp, half of them under ZeRO-1, with log-normal noise."""
    rng = np.random.default_rng(seed)
    hidden, tp, zero = rng.uniform(1e3, 1e4, count), 2.0 ** rng.integers(0, 4, count), rng.integers(0, 2, count)
    return np.column_stack([hidden, tp, zero]), 1e6 * hidden / tp / (1 + zero) * np.exp(rng.normal(0, noise, count))


def trained(features: Floats, measured: Floats, **options: Any) -> MemoryNetwork:
    """A small network after few steps, unless the options say otherwise."""
    return fit_network(
        features, measured, about={"name": "n"}, names=NAMES, **{"hidden": SMALL, "steps": 400, **options}
    )


def test_a_simple_function_is_learned() -> None:
    """On fresh samples without noise the mean error is below 3 %, and the network says what it saw."""
    features, measured = samples(0, 500)
    network, (fresh, true) = trained(features, measured, steps=2000), samples(1, 500)
    assert np.abs(network.predict(fresh) / true - 1).mean() < 0.03
    assert (network.samples, network.names, network.level) == (500, list(NAMES), 0.05)
    assert [(one.least, one.most) for one in network.features] == list(
        zip(features.min(axis=0), features.max(axis=0), strict=True)
    )
    assert [one.log for one in network.features] == [True, True, False]


def test_same_seed_same_network() -> None:
    """Every weight and the margin repeat; another seed gives another network."""
    features, measured = samples(2, 200, 0.05)
    threads = torch.get_num_threads()
    assert trained(features, measured, steps=150) == trained(features, measured, steps=150)
    assert trained(features, measured, steps=150) != trained(features, measured, seed=1, steps=150)
    assert torch.get_num_threads() == threads


def test_numpy_computes_what_pytorch_does() -> None:
    """The prediction is that of the same layers in PyTorch, to eight digits."""
    features, measured = samples(3, 100)
    network = trained(features, measured, steps=100)
    values = np.column_stack([one.scaled(column) for one, column in zip(network.features, features.T, strict=True)])
    last = len(network.layers) - 1
    outputs = torch.tensor(values)
    for number, layer in enumerate(network.layers):
        weights, biases = (torch.tensor(array, dtype=torch.float64) for array in (layer.weights, layer.biases))
        outputs = torch.nn.functional.linear(outputs, weights, biases)
        outputs = outputs if number == last else torch.relu(outputs)
    logarithm = network.target.centre + network.target.scale * outputs[:, 0].numpy()
    assert network.predict(features) == pytest.approx(np.exp(logarithm), rel=1e-8)


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_margin_covers_fresh_samples(level: float) -> None:
    """Over five trainings, the share of fresh samples beyond prediction and margin is the level to 2.5 points."""
    beyond = []
    for seed in range(5):
        network, (fresh, true) = (
            trained(*samples(seed, 600, 0.1), seed=seed, level=level),
            samples(100 + seed, 2000, 0.1),
        )
        beyond.append((true > network.predict(fresh) / (1 - network.margin)).mean())
    assert level - 0.025 < np.mean(beyond) < level + 0.025


def test_few_samples_say_which_level_they_bear_out() -> None:
    """Of 20 samples 4 calibrate: the largest of 4 errors is exceeded with a chance of 1 / 5."""
    assert trained(*samples(4, 20), steps=100).level == pytest.approx(0.2)


def test_a_feature_that_never_differs_is_ignored() -> None:
    """Its weights are 0, so another value changes nothing, and the value is named as outside."""
    features, measured = samples(5, 100)
    features[:, 2] = 1
    network = trained(features, measured, steps=100)
    assert network.predict([[2e3, 2, 3]]) == pytest.approx(network.predict([[2e3, 2, 1]]), rel=1e-12)
    assert network.outside([[2e3, 2, 3]]) == ["zero"]


def test_a_feature_that_hardly_differs_does_not_decide() -> None:
    """Hidden sizes within 0.1 % of each other, which bytes do not follow, leave a prediction at twice the size sane."""
    features, measured = samples(9, 100, 0.05)
    features[:, 0] = np.linspace(4000, 4004, 100)
    measured /= np.exp(np.mean(np.log(measured)))
    network = trained(features, measured, steps=300)
    assert network.features[0].scale == 0.3
    near, far = network.predict([[4000, 2, 0], [8000, 2, 0]])
    assert 0.2 < far / near < 5


def test_interrupt_keeps_the_best_so_far() -> None:
    """Ctrl-C at the first report stops training within a step and gives a network with its margin."""
    reports: list[tuple[int, float]] = []

    def interrupt(step: int, error: float) -> None:
        reports.append((step, error))
        if len(reports) == 1:
            signal.raise_signal(signal.SIGINT)

    network = trained(*samples(6, 100), steps=5000, progress=interrupt)
    assert [step for step, _ in reports] == [100, 101]
    assert reports[1][1] <= reports[0][1]
    assert network.samples == 100 and network.mape is not None


def test_training_ends_when_nothing_improves(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a patience of one look, training of noise ends long before its last step."""
    monkeypatch.setattr("taut.solver.calibration.memory_network.PATIENCE", 100)
    steps: list[int] = []
    trained(*samples(7, 60, 1.0), steps=5000, progress=lambda step, error: steps.append(step))
    assert steps[-1] < 5000


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DataError, match=r"torch: not installed, .*pip install 'taut\[learn\]'"):
        trained(*samples(8, 50))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measured": np.ones(9), "features": np.ones((9, 3))}, "9 samples, expected at least 10"),
        ({"features": np.ones((20, 2))}, r"features are \(20, 2\), expected \(20, 3\)"),
        ({"measured": np.zeros(20)}, "bytes above 0"),
        ({"features": np.full((20, 3), np.nan)}, "finite features"),
        ({"level": 1.0}, "level 1.0 and 400 steps, expected"),
        ({"steps": 0}, "0 steps"),
    ],
)
def test_wrong_samples_are_refused(change: dict[str, Any], words: str) -> None:
    """Too few samples, another shape, figures that are none, and an impossible level are refused before training."""
    given: dict[str, Any] = {"features": np.ones((20, 3)), "measured": np.ones(20), **change}
    with pytest.raises(FormulationError, match=words):
        trained(**given)


def test_widths_must_be_positive() -> None:
    """A hidden layer has at least one unit."""
    with pytest.raises(FormulationError, match=r"widths of hidden layers are \(16, 0\)"):
        fit_network(np.ones((20, 3)), np.ones(20), about={}, names=NAMES, hidden=(16, 0))
