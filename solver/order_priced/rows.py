r"""
Rows of the bound on divisions: seconds of paths and bytes of counts, both linear in the figures of the chunks.

Of a division (``taut.solver.order_priced.division``) let :math:`x_c` be the seconds (3,) of F, I and W of chunk c,
:math:`y_c` those of its transfer to another device, :math:`P_c` its parameters, :math:`a_c` its activations.

(1) Path k through the order (``taut.solver.order_priced.critical_paths``) with :math:`u_{kc}` passes and :math:`v_{kc}`
    transfers takes :math:`\sum_c u_{kc} \cdot x_c + v_{kc} y_c + \text{tail}` seconds, the tail being ``per_parameter``
    times the parameters on device 0.
(2) With n of device d's micro-batches in flight, :math:`n_c` for its chunk c, it holds
    :math:`\sum_{c \in d} (\text{held}\, P_c + \text{logits}_c + n_c a_c) - (\text{budget} - \text{always})` bytes
    beyond its budget. Of all counts that a device goes through, those with most in all and most of each chunk are rows.
(3) Shares :math:`\lambda_k` of the paths and prices :math:`\mu_{dn}` of the counts weigh the figures of a chunk: its
    passes by :math:`\sum_k \lambda_k u_{kc}`, its activations by :math:`\sum_n \mu_{dn} n_c`, and so on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ChunkProblem
from taut.formulations.order_times import spans
from taut.formulations.strategy import Division
from taut.solver.order_priced.critical_paths import Path, critical_path, device_path
from taut.solver.order_priced.division import Weights


@dataclass
class Rows:
    """Paths, each with the division that it is critical for (None for those of devices), and counts of every device."""

    given: ChunkProblem
    priced: bool = True
    paths: list[Path] = field(default_factory=list)
    sources: list[Division | None] = field(default_factory=list)
    _added: set[Division] = field(default_factory=set)
    _numbers: list[Floats] = field(default_factory=list)
    _known: dict[Division, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for d in range(len(self.given.counts)):
            self.paths.append(device_path(self.given.order, d))
            self.sources.append(None)

    @cached_property
    def counts(self) -> list[tuple[int, Ints]]:
        """Devices with their counts of micro-batches in flight; none where memory has no price."""
        if not self.priced:
            return []
        return [(d, row) for d, counts in enumerate(self.given.counts) for row in _telling(counts)]

    def add(self, division: Division) -> bool:
        """Add the critical path of a division; whether it is new."""
        if division in self._added:
            return False
        self._added.add(division)
        path = critical_path(self.given.order, *durations(self.given, division), self.given.micro_batches)
        known = any((path.passes == p.passes).all() and (path.transfers == p.transfers).all() for p in self.paths)
        if not known:
            self.paths.append(path)
            self.sources.append(division)
        return not known

    def weights(self, shares: Floats, prices: Floats) -> Weights:
        """Weights (3) of the dynamic program for shares of paths and prices of counts."""
        given, chunks = self.given, self.given.num_chunks
        passes = np.zeros((chunks, 3))
        edge = np.zeros(chunks)
        for share, path in zip(shares.tolist(), self.paths, strict=False):
            if share == 0.0:
                continue
            passes += share * path.passes
            edge[:-1] += share * path.transfers * given.away
        parameters, activation, logits = np.zeros(chunks), np.zeros(chunks), np.zeros(chunks)
        parameters[given.hosted(0)] += shares.sum() * given.per_parameter
        parameters += prices @ self._members * given.held
        activation += prices @ self._spread
        logits += prices @ self._members
        return Weights(passes, edge, parameters, activation, logits)

    def seconds(self, divisions: Sequence[Division]) -> Floats:
        """Seconds (1) of every path (rows) in every division (columns)."""
        for path in self.paths[len(self._numbers) :]:
            self._numbers.append(np.concatenate((path.passes.T.ravel(), path.transfers, [1.0])))
        figures = np.array([self._figures(division) for division in divisions])
        return np.asarray(np.array(self._numbers) @ figures.T)

    def _figures(self, division: Division) -> Floats:
        """Seconds of F, I and W of every chunk, of the transfers and of the tail, as a path numbers them."""
        if division not in self._known:
            passes, transfers = durations(self.given, division)
            self._known[division] = np.concatenate((passes.ravel(), transfers, [_tail(self.given, division)]))
        return self._known[division]

    def excess(self, division: Division) -> Floats:
        """Bytes (2) beyond the budget by counts."""
        given, i, j = self.given, division.starts, division.ends
        held = given.held * given.parameters[i, j] + given.logits[i, j]
        kept = given.activation[division.recompute_index, i, j]
        return np.asarray(self._spread @ kept + self._members @ held) - (given.budget - given.always)

    @cached_property
    def _members(self) -> Floats:
        """Whether a chunk lies on the device of each count (counts, C)."""
        of_count = np.array([d for d, _ in self.counts], dtype=np.int64)
        return np.asarray(self.given.order.device == of_count[:, None], dtype=float)

    @cached_property
    def _spread(self) -> Floats:
        """Micro-batches in flight of every chunk by count (counts, C)."""
        table = np.zeros((len(self.counts), self.given.num_chunks))
        for row, (d, count) in zip(table, self.counts, strict=True):
            row[self.given.hosted(d)] = count
        return table


def _telling(counts: Ints) -> Ints:
    """Of the counts of a device the one with most in all, and for each chunk the one with most of it."""
    rows = {int(counts.sum(axis=1).argmax()), *(int(k) for k in counts.argmax(axis=0))}
    return counts[sorted(rows)]


def durations(given: ChunkProblem, division: Division) -> tuple[Floats, Floats]:
    """Least seconds of F, I, W (3, C), and of transfers (C - 1,), of a division."""
    i, j = division.starts, division.ends
    return given.passes[:, division.recompute_index, i, j], np.where(given.away, given.edge[j[:-1]], 0.0)


def least_makespan(given: ChunkProblem, division: Division) -> float:
    """Objective (1) of ``taut.formulations.order_division`` for a division."""
    passes, transfers = durations(given, division)
    whole = spans(given.order, passes.reshape(1, -1), transfers[None], given.micro_batches)
    return float(whole[0]) + _tail(given, division) + given.constant


def _tail(given: ChunkProblem, division: Division) -> float:
    """Seconds of the first device's ring and optimizer."""
    return float(given.per_parameter * given.parameters[division.starts, division.ends][given.hosted(0)].sum())
