"""The network that predicts memory: its arithmetic, its file, its ranges, and what it refuses."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.data.memory import (
    ALL_FEATURES,
    FEATURES,
    MemoryNetwork,
    network_json,
    read_memory_network,
)
from taut.data.samples import ConfigurationRow
from taut.data.units import MOST_BYTES
from taut.errors import DataError
from taut.prediction.rows import network_features

TINY: dict[str, Any] = {
    "format": "taut-memory-network/1",
    "name": "tiny",
    "precision": "bf16",
    "features": [
        {"name": "hidden", "log": True, "centre": 1.0, "scale": 0.5, "least": 2.0, "most": 9.0},
        {"name": "zero", "log": False, "centre": 1.0, "scale": 2.0, "least": 0.0, "most": 3.0},
    ],
    "target": {"centre": 20.0, "scale": 0.25},
    "layers": [
        {"weights": [[1.0, 2.0], [-1.0, 0.0]], "biases": [0.5, 1.0]},
        {"weights": [[2.0, 7.0]], "biases": [-1.0]},
    ],
    "margin": 0.1,
    "level": 0.05,
    "samples": 12,
    "mape": 0.03,
    "source": "made up",
}
LEAST_ROW = {"gpu": "a100-80gb", "n_gpus": 16, "hidden": 1024, "layers": 8, "global_batch": 64}


def changed(path: str, value: object) -> dict[str, Any]:
    """The tiny network with one value replaced."""
    values = copy.deepcopy(TINY)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    inner: Any = values
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return values


def test_prediction_is_the_hand_computed_one() -> None:
    """Two features, two hidden units of which one is cut at 0, one output."""
    # hidden e^2: (2 - 1) / 0.5 = 2; zero 3: (3 - 1) / 2 = 1. First layer: 2 + 2 + 0.5 = 4.5, and -2 + 1 = -1, cut to 0.
    # Second: 2 * 4.5 + 7 * 0 - 1 = 8. Logarithm of bytes: 20 + 0.25 * 8 = 22.
    # hidden e, zero 1: inputs 0 and 0, first layer 0.5 and 1, second 1 + 7 - 1 = 7, logarithm 20 + 1.75.
    network = MemoryNetwork.parse(TINY, "tiny")
    found = network.predict(np.array([[math.e**2, 3], [math.e, 1]]))
    assert found == pytest.approx(np.exp([22.0, 21.75]), rel=1e-12)


def test_last_layer_is_not_cut() -> None:
    """A network of one layer may give less than its centre."""
    # hidden e: (1 - 1) / 0.5 = 0; zero 1: 0. Output -3, logarithm 20 - 0.75.
    network = MemoryNetwork.parse({**TINY, "layers": [{"weights": [[1.0, 1.0]], "biases": [-3.0]}]}, "tiny")
    assert network.predict([[math.e, 1]]) == pytest.approx(np.exp([19.25]))


def test_no_prediction_exceeds_what_any_device_has() -> None:
    """Weights that lead to exp(20 + 0.25 * 1e6) give the most bytes there are, and no configurations give none."""
    network = MemoryNetwork.parse(changed("layers.1.biases", [1e6]), "tiny")
    assert network.predict([[4, 0]]) == pytest.approx([MOST_BYTES])
    assert network.predict(np.empty((0, 2))).shape == (0,)


def test_margin_is_rounded_up() -> None:
    """A tenth of 1001 KiB is 100.1, rounded up to 101."""
    assert MemoryNetwork.parse(TINY, "tiny").margin_kib(1001) == 101


def test_outside_names_what_the_samples_did_not_have() -> None:
    """Ends of the range are inside; one row is enough to be outside."""
    network = MemoryNetwork.parse(TINY, "tiny")
    assert network.outside([[2, 0], [9, 3]]) == []
    assert network.outside([[2, 0], [10, 3]]) == ["hidden"]
    assert network.outside([[1, 0], [9, 4]]) == ["hidden", "zero"]


def test_file_gives_the_same_network(tmp_path: Path) -> None:
    """Written and read, the network is equal to what it was, to the last bit."""
    network = MemoryNetwork.parse(changed("layers.0.biases", [1 / 3, -1e-17]), "tiny")
    path = tmp_path / "network.json"
    path.write_text(network_json(network))
    assert read_memory_network(path) == network


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", "taut-memory-network/2", "format: is 'taut-memory-network/2', expected"),
        ("precision", "int8", "precision: is 'int8', expected"),
        ("margin", 1.0, "margin: is 1.0, expected to be less than 1"),
        ("level", 0, "level: is 0, expected to be greater than 0"),
        ("colour", "red", "colour: unknown field"),
        ("features", [], "features: is .*at least 1 item"),
        ("features.0.name", "magic", "features.0.name: is 'magic', expected one of n_gpus"),
        ("features.1.name", "hidden", "features.0.name: hidden stands twice, expected once"),
        ("features.0.scale", 0, "features.0.scale: is 0, expected to be greater than 0"),
        ("features.0.least", 10, "features.0.least: is 10.0, expected at most 9.0"),
        ("target.scale", -1, "target.scale: is -1, expected to be greater than 0"),
        ("layers", [], "layers: is .*at least 1 item"),
        ("layers.0.biases", [], "layers.0.biases: none, expected at least one"),
        ("layers.0.biases", [1], r"layers.0: 2 rows of weights, expected 1 as of biases"),
        ("layers.0.weights.1", [1], r"layers.0.weights.1: 1 weights, expected 2 as of inputs"),
        ("layers.1.weights.0", [1, 2, 3], r"layers.1.weights.0: 3 weights, expected 2 as of inputs"),
        ("layers.0.weights.1.0", "x", r"layers.0.weights.1.0: is 'x', expected"),
        ("layers.0.weights.1.0", float("inf"), r"layers.0.weights.1.0: is inf, expected a finite number"),
        ("layers", [{"weights": [[1, 1], [1, 1]], "biases": [0, 0]}], "layers.0: 2 outputs, expected 1"),
    ],
)
def test_wrong_networks_are_refused(path: str, value: object, words: str) -> None:
    """The message is one line that names the field, what it is and what was expected."""
    with pytest.raises(DataError, match=f"^tiny.json: {words}") as refusal:
        MemoryNetwork.parse(changed(path, value), "tiny.json")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1"),
        ("[]", "holds list, expected a memory network file"),
        ('{"margin": NaN}', "holds NaN"),
        (json.dumps(changed("layers.1.biases", [0])).replace("[0]", "[1e999]"), "layers.1.biases.0: is inf"),
        ("{}", "features: missing"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """What is no JSON object, or no number, is refused with the file's name."""
    path = tmp_path / "network.json"
    path.write_text(text)
    with pytest.raises(DataError, match=f"network.json.*{words}"):
        read_memory_network(path)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ([[1, 2, 3]], r"features are \(1, 3\), expected \(configurations, 2\)"),
        ([1, 2], r"features are \(2,\), expected \(configurations, 2\)"),
        ([[4, 0], [0, 0]], "row 1: hidden is 0, expected above 0"),
        ([[4, float("nan")]], "row 0: zero is nan, expected a finite number"),
    ],
)
def test_wrong_features_are_refused(features: list[Any], words: str) -> None:
    """Another shape, no number, or a logarithm of 0 is no configuration."""
    network = MemoryNetwork.parse(TINY, "tiny")
    with pytest.raises(DataError, match=f"memory network tiny: {words}"):
        network.predict(features)
    with pytest.raises(DataError, match=words):
        network.outside(features)


def test_weights_beyond_numbers_are_refused() -> None:
    """Where a sum is infinity less infinity, there is no prediction."""
    values = changed("layers.0.weights", [[1e308, 0], [1e308, 0]])
    network = MemoryNetwork.parse(
        {**values, "layers": [values["layers"][0], {"weights": [[9, -9]], "biases": [0]}]}, "t"
    )
    with pytest.raises(DataError, match="row 1 gives no number"):
        network.predict(np.array([[math.e, 0], [9, 0]]))


def test_features_are_equation_seven() -> None:
    """Devices, shape, degrees, micro-batch, a replica's share 64 / 4 = 16 of the batch, the batch."""
    row = ConfigurationRow.parse({**LEAST_ROW, "heads": 16, "tp": 2, "pp": 2, "dp": 4, "micro_batch": 8}, "row")
    assert network_features([row]).tolist() == [[16, 8, 1024, 16, 2, 2, 4, 8, 16, 64]]
    assert len(FEATURES) == 10


def test_more_features_are_what_else_memory_depends_on() -> None:
    """Heads of 128 channels, four times the hidden size, GPT-2's vocabulary, and flags as 0 or 1."""
    rows = [
        ConfigurationRow.parse({**LEAST_ROW, "dp": 16, **more}, "row")
        for more in ({}, {"recompute": "full", "zero": 1})
    ]
    # kv_heads, ffn_hidden, seq, vocab, cp, vpp, gpipe, selective, full, zero
    plain = [8, 4096, 2048, 51200, 1, 1, 0, 0, 0, 0]
    assert network_features(rows, ALL_FEATURES)[:, 10:].tolist() == [plain, [*plain[:-2], 1, 1]]
    assert network_features([], ALL_FEATURES).shape == (0, 20)
