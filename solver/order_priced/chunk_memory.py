r"""
A lower bound on the memory that some device lacks in every division, where layers are alike but for a few.

Sets, data and cases are those of ``taut.solver.order_priced.layer_bounds`` (1) to (5), of which only bytes count here.

(1) A row r is one set of micro-batches in flight by chunk, of the chunks of a device d. With the least layers
    :math:`\ell_c` of these chunks the row needs :math:`m_r` bytes beyond the budget, and at least :math:`u_r` more with
    each further layer. With E bytes more the device takes at most

    .. math:: B_d(E) = \min_r \Bigl( \sum_{c \in d} \ell_c + \lfloor (E - m_r) / u_r \rfloor \Bigr),

    and no layer where E is below some :math:`m_r`. Least layers and :math:`m_r` depend on the case.
(2) Where :math:`\sum_d B_d(E)` is below the number of layers in every case no division fits, and each lacks more than E
    bytes on some device.

It needs no prices, and it can only refute. Parameters count at slightly fewer bytes than they take
(``taut.formulations.tables.memory`` (11)), which is more than sums in floating point may be off.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.units import MOST_BYTES
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.order_division import chunk_bytes
from taut.formulations.partition import stated_divisions
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import ON_V, device_of_chunk
from taut.formulations.space import Candidate, OrderKey
from taut.formulations.tables.memory import held_counts
from taut.solver.order_priced.layer_bounds import beyond_one, cases_of, linear_layers
from taut.solver.order_priced.master_rows import extreme_counts

STEPS = 64
"""Points of a grid of amounts, and then between the two that bracket what is missing, which is known within a hundredth
of itself from a mebibyte on."""
SCALE = np.geomspace(1 << 20, MOST_BYTES, STEPS).round()
"""The first grid, from a mebibyte on, each amount about a third more than the one before."""


class CountRows(NamedTuple):
    """
    Counts of micro-batches that may ask for most of a device.

    ``device`` (rows,) ascending, ``first`` (p,) the first row of each device, ``hosts`` (rows, C) whether a chunk is
    the device's, ``counts`` (rows, C) micro-batches of each chunk, 0 of other devices', and ``fewest`` (rows,).
    """

    device: Ints
    first: Ints
    hosts: Floats
    counts: Floats
    fewest: Floats


class MemoryOfChunks(NamedTuple):
    """What the rows of all cases ask of devices, (1): bytes and ``further`` ones, and least layers, (cases, rows)."""

    rows: CountRows
    asked: Floats
    further: Floats
    least: Floats
    layers: int

    def refutes(self, more: Floats) -> list[bool]:
        """Whether no division fits with so many more bytes on every device (n,), (2)."""
        room = more[:, None, None] - self.asked
        further = np.minimum(np.maximum(room, 0.0) / self.further * (1 + 1e-9) + 1e-9, self.layers).astype(np.int64)
        # Without the least layers of each chunk there is no division.
        taken = np.where(room < 0, 0, self.least + further)
        most = np.minimum(np.minimum.reduceat(taken, self.rows.first, axis=2), self.layers).sum(axis=2)
        return [bool(each) for each in (most < self.layers).all(axis=1)]

    def lacks(self, missing: int) -> bool:
        """Whether some device lacks so many bytes in every division."""
        return self.refutes(np.array([float(missing - 1)]))[0]

    def missing(self) -> int:
        """Bytes that some device lacks in every division, within a part of ``STEPS`` of the most proven; 0 for none."""
        if not self.refutes(np.zeros(1))[0]:
            return 0
        passed = sum(self.refutes(SCALE))
        low, high = SCALE[passed - 1] if passed else 0.0, SCALE[min(passed, STEPS - 1)]
        between = (low + (high - low) / STEPS * np.arange(STEPS)).round()
        return int(between[sum(self.refutes(between)) - 1]) + 1


def memory_of_chunks(problem: PlanningProblem, candidate: Candidate, *, margin: bool) -> MemoryOfChunks | None:
    """What devices are asked for; None where bytes are not linear in the layers of chunks, or divisions are stated."""
    kinds = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
    device = device_of_chunk(*candidate.order_key[:3])
    if len(kinds) != 1 or candidate.schedule in ON_V or not problem.memory.is_sum_of_terms:
        return None
    if stated_divisions(problem, candidate) is not None:
        return None
    layers = problem.shared(candidate, "bytes of layers", lambda: _layers(problem, candidate, kinds[0]))
    if layers is None or layers[0].shape[1] < max(len(device), 3):
        return None
    rows = _rows(candidate.order_key, hides_exchange(problem.space, problem.model, candidate))
    asked = problem.shared(candidate, ("bytes of rows", candidate.order_key), lambda: _asked(*layers, rows))
    each = chunk_bytes(problem, candidate, device, margin=margin)
    weights = np.array([each.held, each.of_experts, each.logits, each.kept[kinds[0]]])
    return MemoryOfChunks(
        rows,
        np.tensordot(weights, asked.bytes_of, 1) - (each.budget - each.always),
        np.maximum(weights @ asked.further, 1e-300),
        asked.least,
        layers[0].shape[1],
    )


def _layers(problem: PlanningProblem, candidate: Candidate, recompute: int) -> tuple[Floats, int] | None:
    """
    Parameters, experts' ones, bytes of logits and of a micro-batch of layers (4, L), and the last that differs.

    None where those of ranges are not their sums, or many layers behind the first one differ.
    """
    tables = problem.tables(candidate)
    every = np.stack((tables.parameters, tables.experts, tables.logits, tables.activation[recompute]))
    return linear_layers(every.astype(float))


class _Asked(NamedTuple):
    """
    What rows ask for, by figure of layers, which a candidate's bytes of each figure weigh.

    ``bytes_of`` (4, cases, rows) with the least layers of their devices, ``further`` (4, rows) with each further layer,
    and ``least`` (cases, rows), these layers.
    """

    bytes_of: Floats
    further: Floats
    least: Floats


def _asked(figures: Floats, differing: int, rows: CountRows) -> _Asked:
    """The figures of rows in every case: those that a device holds once, and that of each micro-batch in flight."""
    one, chunks = figures[:, -2], rows.hosts.shape[1]
    cases = [_case(figures, case, chunks) for case in cases_of(differing, chunks)]
    every, least = np.stack([each for each, _ in cases], axis=1), np.stack([layers for _, layers in cases])
    bytes_of = np.concatenate((every[:-1] @ rows.hosts.T, every[-1:] @ rows.counts.T))
    further = np.concatenate((np.repeat(one[:-1, None], len(rows.fewest), axis=1), one[-1:, None] * rows.fewest))
    return _Asked(bytes_of, further, least @ rows.hosts.T)


def _case(figures: Floats, case: tuple[int, ...], chunks: int) -> tuple[Floats, Ints]:
    """Figures of chunks (4, C) with the least layers that a case leaves them, and these layers (C,)."""
    beyond, least = beyond_one(figures, case, chunks)
    return beyond + figures[:, -2:-1] * least, least


@lru_cache(maxsize=1024)
def _rows(key: OrderKey, ahead: bool) -> CountRows:
    """The rows of an order; ``ahead``: whether passes of two micro-batches run side by side."""
    device = device_of_chunk(*key[:3])
    found = [(d, row) for d, counts in enumerate(held_counts(key, ahead=ahead)) for row in extreme_counts(counts)]
    of_device = np.array([d for d, _ in found])
    hosts, counts = device == of_device[:, None], np.zeros((len(found), len(device)))
    for row, (mine, (_, count)) in zip(counts, zip(hosts, found, strict=True), strict=True):
        row[mine] = count
    fewest = np.where(hosts, counts, np.inf).min(axis=1)
    return CountRows(
        of_device, np.searchsorted(of_device, np.arange(device.max() + 1)), hosts.astype(float), counts, fewest
    )
