r"""
A ReLU network embedded in an integer program; (1) to (4) are those of ``taut.formulations.program.relu``.

Variables
    Candidates :math:`u_c \in \{0, 1\}`, of which one is chosen; features :math:`X_f \ge 0`; of every hidden unit k its
    activation :math:`H_k \ge 0` and a flag :math:`\delta_k \in \{0, 1\}`. A unit with :math:`Z_{max} < S` is always 0
    and has no column; one with :math:`Z_{min} \ge 0` has no flag, it is always on.

Constraints, with :math:`Z = V H^{l-1} + D`
    (5) :math:`X_f = \sum_c X_{cf} u_c`;
    (6) :math:`S H_k \ge Z_k - (S - 1)`;
    (7) :math:`S H_k \le Z_k - Z_{min,k} (1 - \delta_k)`;
    (8) :math:`H_k \le \lfloor Z_{max,k} / S \rfloor \, \delta_k`;
    (9) :math:`V^n H^{n-1} \le (Y - D^n) \sum_c u_c`.

In integers :math:`\delta = 1` leaves :math:`H = \lfloor Z / S \rfloor`, and :math:`\delta = 0` leaves :math:`H = 0` and
only if :math:`Z < S`: (5) to (8) hold for (2) and nothing else. :math:`- Z_{min}` and :math:`\lfloor Z_{max} / S
\rfloor` are the big M. Where H may be continuous, it is less than 1 below :math:`Z / S`, which is all that (3) says of
the floor.

With :math:`Y = \lfloor S^2 (y + e^n) \rfloor + 1` every candidate whose output is at most y satisfies the rows, and
none whose output exceeds y by more than :math:`2 e^n + 2 / S^2`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.formulations.program.program import Row
from taut.formulations.program.relu import IntegerNetwork


class Columns(NamedTuple):
    """Columns that a program gets, with upper bounds and which are binary, (n,), and the rows that they stand in."""

    upper: Ints
    binary: Flags
    rows: tuple[Row, ...]


class _Units(NamedTuple):
    """What can be above 0 in a layer: columns (k,), and their numbers among all of the layer."""

    columns: Ints
    numbers: Ints


def embedded_columns(network: IntegerNetwork, before: int, limit: int) -> Columns:
    """
    The network as columns and rows.

    ``network``: what is embedded; candidate c is column c of the program; ``before``: how many columns the program has;
    ``limit``: Y of (9), as ``IntegerNetwork.limit`` gives it.
    """
    count = network.features.shape[1]
    units = _Units(before + np.arange(count), np.arange(count))
    features = tuple(_feature_rows(network, units))
    parts = [Columns(network.features.max(axis=0), np.zeros(count, dtype=np.bool_), features)]
    for layer in range(len(network.most)):
        before, inputs = before + len(parts[-1].upper), units
        kept = np.flatnonzero(network.most[layer])
        units = _Units(before + np.arange(len(kept)), kept)
        parts.append(_layer(network, layer, inputs, units, before + len(kept)))
    return Columns(
        np.concatenate([part.upper for part in parts]),
        np.concatenate([part.binary for part in parts]),
        (*(row for part in parts for row in part.rows), _limit_row(network, units, limit)),
    )


def _feature_rows(network: IntegerNetwork, features: _Units) -> Iterator[Row]:
    """(5), one row for every feature."""
    for column, values in zip(features.columns, network.features.T, strict=True):
        having = np.flatnonzero(values)
        yield Row(np.append(having, column), np.append(-values[having], 1), 0, 0)


def _layer(network: IntegerNetwork, layer: int, inputs: _Units, units: _Units, flags: int) -> Columns:
    """Columns of a hidden layer, first the activations and from ``flags`` on the flags, with (6) to (8)."""
    most, flagged = network.most[layer][units.numbers], network.lower[layer][units.numbers] < 0
    rows: list[Row] = []
    for place, (unit, column) in enumerate(zip(units.numbers.tolist(), units.columns.tolist(), strict=True)):
        flag = flags + int(flagged[:place].sum()) if flagged[place] else None
        rows += _unit_rows(network, layer, unit, inputs, column, flag)
    upper = np.append(most, np.ones(int(flagged.sum()), dtype=np.int64))
    return Columns(upper, np.arange(len(upper)) >= len(most), tuple(rows))


def _unit_rows(
    network: IntegerNetwork, layer: int, unit: int, inputs: _Units, column: int, flag: int | None
) -> Iterator[Row]:
    """(6) to (8) of one unit; without a flag (6) and (7) are the two sides of one row."""
    scale, bias, lower = 2**network.bits, int(network.biases[layer][unit]), int(network.lower[layer][unit])
    columns = np.append(inputs.columns, column)
    coefficients = np.append(-network.weights[layer][unit, inputs.numbers], scale)
    if flag is None:
        yield Row(columns, coefficients, bias - scale + 1, bias)
        return
    yield Row(columns, coefficients, bias - scale + 1, None)
    yield Row(np.append(columns, flag), np.append(coefficients, -lower), None, bias - lower)
    yield Row(np.array([column, flag]), np.array([1, -int(network.most[layer][unit])]), None, 0)


def _limit_row(network: IntegerNetwork, units: _Units, limit: int) -> Row:
    """(9)."""
    candidates = np.arange(len(network.features))
    spare = np.full(len(candidates), int(network.biases[-1][0]) - limit)
    return Row(np.append(candidates, units.columns), np.append(spare, network.weights[-1][0, units.numbers]), None, 0)
