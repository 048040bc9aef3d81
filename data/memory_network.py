r"""
A network that predicts memory: the estimator of Pipette (Yim et al., DATE 2024, equation 7), evaluated with numpy.

Features x of a configuration, layers k = 1..K with weights :math:`W_k` and biases :math:`b_k`:

(1) :math:`z_0 = (f(x) - centre) / scale` by feature, f the logarithm or the identity;
(2) :math:`z_k = \max(0, W_k z_{k-1} + b_k)`, in the last layer without the maximum;
(3) bytes :math:`= \exp(centre + scale \, z_K)`, those of the fullest device;
(4) feasible: bytes + margin capacity <= capacity.

The ten features of the paper (``FEATURES``) say nothing of sequence, vocabulary, recompute or sharding, so they suit
samples that share those; samples that differ take ``MORE_FEATURES`` too. No feature names a stage: the network stands
for evenly divided layers only, and cannot tell what a stage of an uneven partition needs.

The file is JSON of names and numbers, ``{"format": "taut-memory-network/1", ...}``, and reading it runs nothing.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from taut.data.arrays import Floats
from taut.data.device import Precision
from taut.data.read import read_json
from taut.data.spec import NotNegative, Positive, Spec, shorten
from taut.data.units import MOST_BYTES
from taut.errors import DataError

FEATURES = (
    "n_gpus",
    "layers",
    "hidden",
    "heads",
    "tp",
    "pp",
    "dp",
    "micro_batch",
    "mini_batch",
    "global_batch",
)
"""Pipette's, in the order of its equation 7; ``mini_batch`` is a replica's share of the global batch (Algorithm 1)."""
MORE_FEATURES = ("kv_heads", "ffn_hidden", "seq", "vocab", "cp", "vpp", "gpipe", "selective", "full", "zero")
"""What else memory depends on; ``gpipe``, ``selective`` and ``full`` (recompute) are 0 or 1."""
ALL_FEATURES = FEATURES + MORE_FEATURES


class Scaling(Spec):
    """How a quantity enters or leaves the network: less ``centre``, over ``scale``."""

    centre: float
    scale: Positive


class Feature(Scaling):
    """A feature, whether its logarithm is scaled or itself, and the least and most that the samples had of it."""

    name: str
    log: bool
    least: float
    most: float

    def scaled(self, values: Floats) -> Floats:
        """Values as they enter the first layer, (1)."""
        return np.asarray(((np.log(values) if self.log else values) - self.centre) / self.scale)


class Layer(Spec):
    """Weights (outputs, inputs) and biases (outputs,)."""

    weights: list[list[float]]
    biases: list[float]


class MemoryNetwork(Spec):
    """
    A trained network, with what it says of itself.

    ``margin`` is the share of a device's memory that stays free because predictions err, ``level`` the chance that a
    new sample like the old ones needs more, and ``mape`` the mean relative error on samples that training did not see.
    """

    format: Literal["taut-memory-network/1"] = "taut-memory-network/1"
    name: str = "network"
    stack: str = ""
    device: str = ""
    precision: Precision | None = None
    features: Annotated[list[Feature], Field(min_length=1)]
    target: Scaling
    layers: Annotated[list[Layer], Field(min_length=1)]
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.05
    level: Annotated[float, Field(gt=0, lt=1)] | None = None
    samples: Annotated[int, Field(ge=0)] = 0
    mape: NotNegative | None = None
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> "MemoryNetwork":
        names = self.names
        for number, feature in enumerate(self.features):
            _check_feature(feature, f"features.{number}", names)
        inputs = len(names)
        for number, layer in enumerate(self.layers):
            _check_layer(layer, f"layers.{number}", inputs)
            inputs = len(layer.biases)
        if inputs != 1:
            raise ValueError(f"layers.{len(self.layers) - 1}: {inputs} outputs, expected 1")
        return self

    @property
    def names(self) -> list[str]:
        """Names of the features, in the order in which ``predict`` takes them."""
        return [feature.name for feature in self.features]

    def predict(self, features: ArrayLike) -> Floats:
        """
        Bytes of the fullest device, (configurations,), of evenly divided ones by feature as ``names``.

        Raises ``DataError`` for another shape, or an entry that is not finite, or not above 0 where its logarithm is
        taken.
        """
        values, last = self._checked(features), len(self._arrays) - 1
        with np.errstate(over="ignore", invalid="ignore"):
            columns = [feature.scaled(column) for feature, column in zip(self.features, values.T, strict=True)]
            inputs = np.column_stack(columns)
            for number, (weights, biases) in enumerate(self._arrays):
                inputs = inputs @ weights.T + biases
                inputs = inputs if number == last else np.maximum(inputs, 0.0)
            logarithm = self.target.centre + self.target.scale * inputs[:, 0]
        if np.isnan(logarithm).any():
            row = int(np.flatnonzero(np.isnan(logarithm))[0])
            raise DataError(f"memory network {self.name}: row {row} gives no number, expected smaller weights")
        # Far from the samples the network may say anything; no device has more than this.
        return np.asarray(np.exp(np.minimum(logarithm, np.log(MOST_BYTES))))

    def outside(self, features: ArrayLike) -> list[str]:
        """Names of the features that lie outside what the samples had, in any row; predictions there are guesses."""
        values = self._checked(features)
        bounds = np.array([(feature.least, feature.most) for feature in self.features])
        beyond = np.any((values < bounds[:, 0]) | (values > bounds[:, 1]), axis=0)
        return [self.names[column] for column in np.flatnonzero(beyond)]

    def margin_kib(self, capacity_kib: int) -> int:
        """KiB that stay free on a device with this capacity, rounded up, (4)."""
        return -int(-self.margin * capacity_kib // 1)

    @cached_property
    def _arrays(self) -> list[tuple[Floats, Floats]]:
        return [(np.array(layer.weights, dtype=float), np.array(layer.biases, dtype=float)) for layer in self.layers]

    def _checked(self, features: ArrayLike) -> Floats:
        values = np.asarray(features, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.features):
            wanted = f"(configurations, {len(self.features)})"
            raise DataError(f"memory network {self.name}: features are {values.shape}, expected {wanted}")
        logs = np.array([feature.log for feature in self.features])
        wrong = ~np.isfinite(values) | (logs & (values <= 0))
        if wrong.any():
            row, column = (int(index) for index in np.argwhere(wrong)[0])
            feature = self.features[column]
            wanted = "above 0" if feature.log else "a finite number"
            raise DataError(
                f"memory network {self.name}: row {row}: {feature.name} is {values[row, column]:g}, expected {wanted}"
            )
        return values


def _check_feature(feature: Feature, where: str, names: list[str]) -> None:
    if feature.name not in ALL_FEATURES:
        raise ValueError(f"{where}.name: is {shorten(feature.name)}, expected one of {', '.join(ALL_FEATURES)}")
    if names.count(feature.name) > 1:
        raise ValueError(f"{where}.name: {feature.name} stands twice, expected once")
    if feature.least > feature.most:
        raise ValueError(f"{where}.least: is {feature.least}, expected at most {feature.most}")


def _check_layer(layer: Layer, where: str, inputs: int) -> None:
    if not layer.biases:
        raise ValueError(f"{where}.biases: none, expected at least one")
    if len(layer.weights) != len(layer.biases):
        raise ValueError(f"{where}: {len(layer.weights)} rows of weights, expected {len(layer.biases)} as of biases")
    for number, row in enumerate(layer.weights):
        if len(row) != inputs:
            raise ValueError(f"{where}.weights.{number}: {len(row)} weights, expected {inputs} as of inputs")


def read_memory_network(path: Path) -> MemoryNetwork:
    """A network from its JSON file; ``DataError`` if it is not such JSON, or its shapes or figures are wrong."""
    return MemoryNetwork.parse(read_json(path, "a memory network file"), str(path))


def network_json(network: MemoryNetwork) -> str:
    """The network's JSON file in one line, from which ``read_memory_network`` makes the same network."""
    return json.dumps(network.model_dump(mode="json"), allow_nan=False) + "\n"
