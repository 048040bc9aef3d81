r"""
A small ReLU network in integers, and how far that is from the network itself.

Sets
    Candidates c, features f, layers :math:`l = 1, \dots, n`.

Data
    Scaled features :math:`x_{cf}`, weights :math:`W^l` and biases :math:`b^l`. The network is

    (1) :math:`h^0 = x_c`, :math:`z^l = W^l h^{l-1} + b^l`, :math:`h^l = \max(0, z^l)` for :math:`l < n`; its output
        is :math:`z^n`, one number.

    With :math:`S = 2^{bits}` integers stand for it: :math:`X = \lfloor S x + 1/2 \rfloor - \omega` with
    :math:`\omega` the least over the candidates, so that :math:`X \ge 0`; V and D are :math:`S W` and
    :math:`S^2 b` rounded, and the first D has :math:`V \omega` added. Then

    (2) :math:`H^0 = X_c`, :math:`Z^l = V^l H^{l-1} + D^l`, :math:`H^l = \max(0, \lfloor Z^l / S \rfloor)` for
        :math:`l < n`.

Error
    :math:`|Z^n / S^2 - z^n| \le e^n` for every candidate, where :math:`e^0` is the largest error of rounding a
    feature and, with a the largest :math:`|H^{l-1}| / S` there is,

    (3) :math:`e^l = |W^l| e^{l-1} + |V^l / S - W^l| \, a + |D^l / S^2 - b^l|`, plus :math:`1 / S` for the floor where
        :math:`l < n`, plus what the sums of (1) lose in floating point.

Bounds
    (4) :math:`Z^1` is linear in the candidate's features, and bounded by its extremes over the candidates; beyond it
        :math:`V^- H_{max} + D \le Z^l \le V^+ H_{max} + D`, since every H lies between 0 and :math:`H_{max}`.

``taut.formulations.program.relu_rows`` states (2) as rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError

BITS = 16
"""Fractional bits of the integers unless others are asked for."""
MOST = 2.0**53
"""Beyond it not every integer is a float."""
EPSILON = 2.0**-52
"""Spacing of floats above 1."""
SUMS = 1.0 + 1e-9
"""More than adding up (3) itself can lose."""


class ReluNetwork(NamedTuple):
    """Weights (out, in) and biases (out,) of every layer, (1)."""

    weights: Sequence[Floats]
    biases: Sequence[Floats]

    def evaluate(self, features: Floats) -> Floats:
        """Outputs (...) at scaled features (..., F); a row gives the same alone as among others."""
        *hidden, last = zip(self.weights, self.biases, strict=True)
        values = features
        for weights, bias in hidden:
            values = np.maximum(_affine(weights, bias, values), 0.0)
        return np.asarray(_affine(*last, values)[..., 0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntegerNetwork:
    """
    A network in integers at a list of candidates, (2).

    ``features`` are X, (C, F); ``weights``, ``biases``, and ``lower`` and ``upper`` bounds of Z (4), are by layer.
    ``error`` is (3), in the unit of the output.
    """

    bits: int
    features: Ints
    weights: tuple[Ints, ...]
    biases: tuple[Ints, ...]
    lower: tuple[Ints, ...]
    upper: tuple[Ints, ...]
    error: float

    @property
    def most(self) -> tuple[Ints, ...]:
        """The largest activation H of every unit, by hidden layer."""
        return tuple(_activation(upper, self.bits) for upper in self.upper[:-1])

    @property
    def tolerance(self) -> float:
        """Outputs that exceed a limit by more than this exceed it in integers, too."""
        return 2 * self.error + 2 * 4.0**-self.bits

    def limit(self, output: float) -> int:
        """What Z of the last layer does not exceed wherever the network's output is at most ``output``."""
        return int(np.floor(4.0**self.bits * (output + self.error))) + 1

    def evaluate(self) -> list[Ints]:
        """Z of every layer at every candidate, (C, out)."""
        found, values = [], self.features
        for weights, bias in zip(self.weights, self.biases, strict=True):
            found.append(values @ weights.T + bias)
            values = _activation(found[-1], self.bits)
        return found


def integer_network(network: ReluNetwork, features: Floats, bits: int = BITS) -> IntegerNetwork:
    """
    The network in integers, with its bounds and its error.

    ``network``: weights and biases, all finite, with one output; ``features``: scaled features of every candidate, (C,
    F); ``bits``: binary digits behind the point of features, weights and activations; each halves the error. Raises
    ``FormulationError`` if dimensions disagree, a number is not finite, or a sum could exceed 53 bits.
    """
    _check(network, features, bits)
    scale = 2.0**bits
    rounded = np.floor(scale * features + 0.5).astype(np.int64)
    least = rounded.min(axis=0)
    weights = [np.rint(scale * real).astype(np.int64) for real in network.weights]
    biases = [np.rint(scale**2 * real).astype(np.int64) for real in network.biases]
    drifts = [np.abs(own / scale - real) for own, real in zip(weights, network.weights, strict=True)]
    offsets = [np.abs(own / scale**2 - real) for own, real in zip(biases, network.biases, strict=True)]
    biases[0] = biases[0] + weights[0] @ least
    bounds = _bounds(weights, biases, rounded - least, bits)
    largest = [np.abs(rounded).max(axis=0), *(_activation(upper, bits) for _, upper in bounds[:-1])]
    error = np.abs(rounded / scale - features).max(axis=0)
    for layer, parts in enumerate(zip(network.weights, network.biases, drifts, offsets, strict=True)):
        error = _error(*parts, largest[layer] / scale, error + (1 / scale if layer else 0.0))
    return IntegerNetwork(
        bits=bits,
        features=rounded - least,
        weights=tuple(weights),
        biases=tuple(biases),
        lower=tuple(lower for lower, _ in bounds),
        upper=tuple(upper for _, upper in bounds),
        error=float(error[0]) * SUMS,
    )


def interval_bounds(weights: Ints, bias: Ints, most: Ints) -> tuple[Ints, Ints]:
    """Least and largest weights @ h + bias (out,) over the box 0 <= h <= most, (4)."""
    return np.minimum(weights, 0) @ most + bias, np.maximum(weights, 0) @ most + bias


def _bounds(weights: list[Ints], biases: list[Ints], features: Ints, bits: int) -> list[tuple[Ints, Ints]]:
    """Bounds of Z of every layer, (4)."""
    sums = features @ weights[0].T + biases[0]
    found = [(sums.min(axis=0), sums.max(axis=0))]
    for matrix, bias in zip(weights[1:], biases[1:], strict=True):
        found.append(interval_bounds(matrix, bias, _activation(found[-1][1], bits)))
    return found


def _affine(weights: Floats, bias: Floats, values: Floats) -> Floats:
    """Products are summed row by row, since a matrix product may sum in another order for another number of rows."""
    return np.asarray((weights * values[..., None, :]).sum(axis=-1) + bias)


def _activation(sums: Ints, bits: int) -> Ints:
    """H of Z, (2); shifting rounds down."""
    return np.asarray(np.maximum(sums >> bits, 0))


def _error(real: Floats, offset: Floats, drift: Floats, moved: Floats, largest: Floats, error: Floats) -> Floats:
    """Error of z from that of its layer's inputs, (3) without the floor."""
    size = np.abs(real)
    lost = (len(largest) + 2) * EPSILON * (size @ (largest + error) + np.abs(offset))
    return np.asarray(size @ error + drift @ largest + moved + lost)


def _check(network: ReluNetwork, features: Floats, bits: int) -> None:
    """Refuse what could not be stated in integers."""
    if features.ndim != 2 or 0 in features.shape:
        raise FormulationError(f"network: features {features.shape}, expected candidates and features, at least one")
    if not network.weights or len(network.weights) != len(network.biases):
        counts = f"{len(network.weights)} weights and {len(network.biases)} biases"
        raise FormulationError(f"network: {counts}, expected one of each for every layer")
    scale, width = 2.0**bits, features.shape[1]
    reach = scale * np.abs(features).max(axis=0) + 1
    for layer, (weights, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        out = 1 if layer == len(network.weights) - 1 else len(bias)
        if weights.shape != (out, width) or bias.shape != (out,):
            shapes = f"weights {weights.shape} and biases {bias.shape}"
            raise FormulationError(f"network: layer {layer} has {shapes}, expected ({out}, {width}) and ({out},)")
        width = out
        # Features are shifted, by no more than their size.
        sums = (scale * np.abs(weights) + 1) @ (2 * reach if layer == 0 else reach) + scale**2 * np.abs(bias) + 1
        if not (sums < MOST).all():
            raise FormulationError(
                f"network: layer {layer} reaches {sums.max():.3g} at {bits} bits, expected below 2^53"
            )
        reach = sums / scale
