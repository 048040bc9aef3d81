r"""
Training the neural network of ``taut.data.memory`` with PyTorch, with a split-conformal margin.

Samples i with features :math:`x_i` and bytes :math:`y_i` are divided at random into training, stopping and calibration
samples, 70, 10 and 20 % of them:

(1) Minimise over weights and biases the mean of :math:`|z_K(x_i) - (\ln y_i - centre) / scale|` over training
    samples, by Adam (Kingma and Ba 2015) on mini-batches with cosine annealing of the rate (Loshchilov and Hutter
    2017).
(2) Early stopping: keep the weights whose mean :math:`|\ln(\hat y_i / y_i)|` over stopping samples is least, and stop
    after a number of steps without better ones.
(3) Margin: split-conformal (``taut.solver.calibration.memory``, equation 1) on the calibration samples, which neither
    training nor stopping saw: a new sample like these exceeds :math:`(1 + q) \hat y` with a probability of at most
    the level.

Logarithms, because memory is mostly products of features divided by degrees: these are linear in logarithms, a
difference of logarithms is a relative error, and the network goes on as a power law where samples end. In a trial on
synthetic samples like those of ``benchmarks/memory_extrapolation.py``, plain features gave a mean error of 52 % beyond
the training range where logarithms gave 13 %, and 5 % instead of 4 % inside. Centre and scale of a feature, and of
:math:`\ln y`, are mean and standard deviation over training samples, the scale of a feature at least 0.3; a feature
that never differs there gets weights of 0. The margin holds for samples like those given, not for larger clusters.

One thread trains: the batches are too small to divide, and the sums must not depend on the number of cores. The same
samples, seed and build of PyTorch give the same network.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.memory import FEATURES, Feature, Layer, MemoryNetwork, Scaling
from taut.errors import DataError, FormulationError, SolverError
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.calibration.memory import conformal_margin

if TYPE_CHECKING:
    from torch import Tensor

Report = Callable[[int, float], None]
HIDDEN = (200,) * 5
"""Pipette's five hidden layers."""
FEWEST = 10
"""Samples below which none is left for stopping or for the margin."""
STOPPING, CALIBRATION = 0.1, 0.2
STEPS, PATIENCE, LOOK_EVERY = 8000, 3000, 100
"""Most steps, steps without a better network after which training stops, and steps between looks at (2)."""
BATCH, RATE = 64, 1e-3
LEAST_SPREAD = 0.3
"""Least scale of a feature: one that hardly differed in training must not decide when it differs as usual."""
DECIMALS = 8
"""Weights are rounded to this many, more than single precision resolves, which halves the file."""


def fit_network(
    features: Floats,
    measured: Floats,
    *,
    about: Mapping[str, Any],
    names: Sequence[str] = FEATURES,
    level: float = 0.05,
    seed: int = 0,
    hidden: Sequence[int] = HIDDEN,
    steps: int = STEPS,
    progress: Report | None = None,
) -> MemoryNetwork:
    """A network that predicts memory, with margin (3) at ``level``; Ctrl-C keeps the best; ``about``: its fields."""
    _check(features, measured, names, hidden)
    if not 0 < level < 1 or steps < 1:
        raise FormulationError(
            f"level {level} and {steps} steps, expected a chance between 0 and 1, and at least 1 step"
        )
    training, stopping, calibration = _divided(len(measured), seed)
    described = [_feature(name, features[:, i], training) for i, name in enumerate(names)]
    logarithm = np.log(measured)
    target = Scaling(centre=float(logarithm[training].mean()), scale=_spread(logarithm[training]))
    inputs = np.column_stack([feature.scaled(column) for feature, column in zip(described, features.T, strict=True)])
    outputs = (logarithm - target.centre) / target.scale
    run = _Training(inputs, outputs, training, stopping, target.scale, seed, progress)
    layers = run.trained((len(names), *hidden, 1), steps)
    bare = MemoryNetwork.model_validate({**about, "features": described, "target": target, "layers": layers})
    return _with_margin(bare, features, measured, calibration, level)


def _check(features: Floats, measured: Floats, names: Sequence[str], hidden: Sequence[int]) -> None:
    if len(measured) < FEWEST:
        raise FormulationError(f"{len(measured)} samples, expected at least {FEWEST} to train a network and its margin")
    if features.shape != (len(measured), len(names)):
        raise FormulationError(f"features are {features.shape}, expected {(len(measured), len(names))}")
    if not (np.isfinite(features).all() and np.isfinite(measured).all() and (measured > 0).all()):
        raise FormulationError("samples need finite features and bytes above 0")
    if min(hidden, default=1) < 1:
        raise FormulationError(f"widths of hidden layers are {tuple(hidden)}, expected at least 1 each")


def _divided(samples: int, seed: int) -> tuple[Ints, Ints, Ints]:
    """Indices of training, stopping and calibration samples."""
    order = np.random.default_rng(seed).permutation(samples)
    first, second = round(CALIBRATION * samples), round((CALIBRATION + STOPPING) * samples)
    return order[second:], order[first:second], order[:first]


def _feature(name: str, values: Floats, training: Ints) -> Feature:
    """Scaling and range: the logarithm where all values are above 0 and training samples differ."""
    seen = values[training]
    log = bool((values > 0).all() and np.ptp(seen) > 0)
    seen = np.log(seen) if log else seen
    centre, least, most = float(seen.mean()), float(values.min()), float(values.max())
    scale = max(_spread(seen), LEAST_SPREAD)
    return Feature(name=name, log=log, centre=centre, scale=scale, least=least, most=most)


def _spread(values: Floats) -> float:
    """Standard deviation, or 1 where all values are equal."""
    return float(values.std()) if np.ptp(values) > 0 else 1.0


def _with_margin(
    network: MemoryNetwork, features: Floats, measured: Floats, calibration: Ints, level: float
) -> MemoryNetwork:
    """The network with margin and mean error from samples that it has not seen, (3)."""
    errors = network.predict(features[calibration]) / measured[calibration] - 1
    excess, guaranteed = conformal_margin(1 / (1 + errors) - 1, level)
    figures = {"margin": excess / (1 + excess), "level": guaranteed, "mape": float(np.abs(errors).mean())}
    return network.model_copy(update={**figures, "samples": len(measured)})


@dataclass
class _Training:
    """One training: scaled samples, their division, and the best weights so far."""

    inputs: Floats
    outputs: Floats
    training: Ints
    stopping: Ints
    spread: float
    seed: int
    progress: Report | None
    least: float = field(default=float("inf"), init=False)
    best: list[Layer] = field(default_factory=list, init=False)
    improved: int = field(default=0, init=False)

    def trained(self, sizes: Sequence[int], steps: int) -> list[Layer]:
        """Layers of the best network met, (1) and (2)."""
        torch, rng = _torch(), np.random.default_rng([self.seed, 1])
        parameters = [torch.tensor(array, requires_grad=True) for array in _first_weights(sizes, self._constant(), rng)]
        adam = torch.optim.Adam(parameters, lr=RATE)
        tensors = [torch.tensor(array, dtype=torch.float32) for array in (self.inputs, self.outputs)]
        with _one_thread(), interrupt_requested() as interrupted:
            for step in range(1, steps + 1):
                adam.param_groups[0]["lr"] = RATE * (1 + np.cos(np.pi * step / steps)) / 2
                self._descend(adam, parameters, tensors, rng)
                last = step == steps or interrupted()
                if last or step % LOOK_EVERY == 0:
                    self._look(parameters, tensors, step)
                if last or step - self.improved >= PATIENCE:
                    break
        if not self.best:
            raise SolverError("training the network gave no finite error, expected samples that differ less")
        return self.best

    def _descend(
        self, adam: Any, parameters: "list[Tensor]", tensors: "list[Tensor]", rng: np.random.Generator
    ) -> None:
        """One step on a batch, (1)."""
        torch, (inputs, outputs) = _torch(), tensors
        batch = torch.from_numpy(rng.choice(self.training, min(BATCH, len(self.training)), replace=False))
        loss = (_forward(parameters, inputs[batch]) - outputs[batch]).abs().mean()
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        adam.step()

    def _constant(self) -> Flags:
        return np.asarray(np.ptp(self.inputs[self.training], axis=0) == 0)

    def _look(self, parameters: "list[Tensor]", tensors: "list[Tensor]", step: int) -> None:
        """Keep the weights if they do best on the stopping samples, (2)."""
        torch, (inputs, outputs) = _torch(), tensors
        with torch.no_grad():
            error = (_forward(parameters, inputs[self.stopping]) - outputs[self.stopping]).abs().mean()
        found = self.spread * float(error)
        if found < self.least:
            self.least, self.improved, self.best = found, step, _layers(parameters)
        if self.progress is not None:
            self.progress(step, self.least)


def _first_weights(sizes: Sequence[int], constant: Flags, rng: np.random.Generator) -> list[Any]:
    """Weights and biases in turn, normal with variance 2 / inputs (He et al., arXiv 1502.01852), and 0 for biases."""
    arrays = []
    for inputs, outputs in pairwise(sizes):
        arrays += [rng.normal(0, np.sqrt(2 / inputs), (outputs, inputs)), np.zeros(outputs)]
    arrays[0][:, constant] = 0.0
    return [array.astype(np.float32) for array in arrays]


def _forward(parameters: "list[Tensor]", inputs: "Tensor") -> "Tensor":
    """The last layer's single output, (samples,)."""
    for weights, biases in zip(parameters[:-2:2], parameters[1:-1:2], strict=True):
        inputs = (inputs @ weights.T + biases).relu()
    return (inputs @ parameters[-2].T + parameters[-1])[:, 0]


def _layers(parameters: "list[Tensor]") -> list[Layer]:
    arrays = [np.round(parameter.detach().double().numpy(), DECIMALS).tolist() for parameter in parameters]
    return [Layer(weights=arrays[i], biases=arrays[i + 1]) for i in range(0, len(arrays), 2)]


@contextmanager
def _one_thread() -> Iterator[None]:
    torch = _torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise DataError("torch: not installed, expected it for training (pip install 'taut[learn]')") from None
    return torch
