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

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.units import MOST_BYTES
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.order_division import bytes_of_alike, summed_figures
from taut.formulations.partition import stated_divisions
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import ON_V, device_of_chunk
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
    """What the rows of all cases ask of n candidates, (1): bytes (n, cases, rows), ``further``, ``least`` layers."""

    rows: CountRows
    asked: Floats
    further: Floats
    least: Floats
    layers: int

    def refutes(self, more: Floats) -> Flags:
        """Whether no division fits with so many more bytes on every device, (n, amounts), (2)."""
        room = more[..., None, None] - self.asked[:, None]
        each = np.maximum(room, 0.0) / self.further[:, None, None]
        further = np.minimum(each * (1 + 1e-9) + 1e-9, self.layers).astype(np.int64)
        # Without the least layers of each chunk there is no division.
        taken = np.where(room < 0, 0, self.least[:, None] + further)
        most = np.minimum(np.minimum.reduceat(taken, self.rows.first, axis=-1), self.layers).sum(axis=-1)
        return np.asarray((most < self.layers).all(axis=-1))

    def lacks(self, missing: int) -> bool:
        """Whether some device of the first candidate lacks so many bytes in every division."""
        return bool(self.refutes(np.full((len(self.asked), 1), missing - 1.0))[0, 0])

    def missing(self) -> Ints:
        """Bytes that some device lacks in every division, within a part of ``STEPS`` of the most proven; 0 for none."""
        found = np.zeros(len(self.asked), dtype=np.int64)
        lacking = np.flatnonzero(self.refutes(np.zeros((len(found), 1)))[:, 0])
        if not len(lacking):
            return found
        given = self._replace(asked=self.asked[lacking], further=self.further[lacking], least=self.least[lacking])
        passed = given.refutes(np.tile(SCALE, (len(lacking), 1))).sum(axis=1)
        low, high = np.where(passed, SCALE[passed - 1], 0.0), SCALE[np.minimum(passed, STEPS - 1)]
        between = (low[:, None] + ((high - low) / STEPS)[:, None] * np.arange(STEPS)).round()
        found[lacking] = between[np.arange(len(lacking)), given.refutes(between).sum(axis=1) - 1] + 1
        return found


MOST_AT_ONCE = 64
"""Candidates whose rows are computed together, which takes some mebibytes."""


def missing_of_alike(problem: PlanningProblem, candidates: Sequence[Candidate], *, margin: bool) -> list[int]:
    """What each of some candidates of one order lacks (``MemoryOfChunks.missing``); 0 where that is not known."""
    missing, parts = [0] * len(candidates), dict[tuple[object, ...], list[int]]()
    for index, candidate in enumerate(candidates):
        if (layers := _layers(problem, candidate)) is not None:
            ahead = hides_exchange(problem.space, problem.model, candidate)
            parts.setdefault((ahead, layers[1], layers[0].shape, problem.recompute_of(candidate)), []).append(index)
    for part in parts.values():
        for some in (part[k : k + MOST_AT_ONCE] for k in range(0, len(part), MOST_AT_ONCE)):
            found = _of_alike(problem, [candidates[index] for index in some], margin).missing()
            for index, lacks in zip(some, found.tolist(), strict=True):
                missing[index] = lacks
    return missing


def memory_of_chunks(problem: PlanningProblem, candidate: Candidate, *, margin: bool) -> MemoryOfChunks | None:
    """What devices are asked for; None where bytes are not linear in the layers of chunks, or divisions are stated."""
    return None if _layers(problem, candidate) is None else _of_alike(problem, [candidate], margin)


def _of_alike(problem: PlanningProblem, candidates: Sequence[Candidate], margin: bool) -> MemoryOfChunks:
    """What devices are asked for by candidates of one order, recompute and case of layers that differ."""
    first = candidates[0]
    rows = _rows(first.order_key, hides_exchange(problem.space, problem.model, first))
    places, keys = dict[object, int](), [problem.shared_key(candidate) for candidate in candidates]
    of = [places.setdefault(key, len(places)) for key in keys]
    firsts = [candidates[of.index(place)] for place in range(len(places))]
    layers = [each for each in (_layers(problem, candidate) for candidate in firsts) if each is not None]
    asked = _asked(np.stack([figures for figures, _ in layers]), layers[0][1], rows)
    device, recompute = device_of_chunk(*first.order_key[:3]), RECOMPUTE.index(problem.recompute_of(first)[0])
    every = bytes_of_alike(problem, candidates, device, margin=margin)
    weights = np.array([(*each.held, each.kept[recompute]) for each in every])
    room = np.array([each.budget - each.always for each in every])
    return MemoryOfChunks(
        rows,
        np.einsum("nf,nfcr->ncr", weights, asked.bytes_of[of]) - room[:, None, None],
        np.maximum(np.einsum("nf,nfr->nr", weights, asked.further[of]), 1e-300),
        np.broadcast_to(asked.least, (len(of), *asked.least.shape)),
        layers[0][0].shape[1],
    )


def _layers(problem: PlanningProblem, candidate: Candidate) -> tuple[Floats, int] | None:
    """Figures (figures, L) of layers, the last that differs; None where many differ, or ranges are no such sums."""
    kinds = problem.recompute_of(candidate)
    if len(kinds) != 1 or candidate.schedule in ON_V or not problem.memory.is_sum_of_terms:
        return None
    if stated_divisions(problem, candidate) is not None:
        return None

    def make() -> tuple[Floats, int] | None:
        tables, kept = problem.tables(candidate), RECOMPUTE.index(kinds[0])
        every = np.concatenate((summed_figures(tables), tables.activation[kept][None]))
        return linear_layers(every.astype(float))

    found = problem.shared(candidate, "bytes of layers", make)
    return None if found is None or found[0].shape[1] < max(candidate.pp * candidate.vpp, 3) else found


class _Asked(NamedTuple):
    """
    What rows ask for, by figure of layers, which a candidate's bytes of each figure weigh, of n sets of figures.

    ``bytes_of`` (n, figures, cases, rows) with the least layers of their devices, ``further`` (n, figures, rows) with
    each further layer, and ``least`` (cases, rows), these layers.
    """

    bytes_of: Floats
    further: Floats
    least: Floats


def _asked(figures: Floats, differing: int, rows: CountRows) -> _Asked:
    """The figures (n, figures, L) of rows in every case: what a device holds once, and last of each micro-batch."""
    one, chunks = figures[..., -2], rows.hosts.shape[1]
    cases = [_case(figures, case, chunks) for case in cases_of(differing, chunks)]
    every, least = np.stack([each for each, _ in cases], axis=2), np.stack([layers for _, layers in cases])
    bytes_of = np.concatenate((every[:, :-1] @ rows.hosts.T, every[:, -1:] @ rows.counts.T), axis=1)
    last = np.arange(one.shape[-1])[:, None] == one.shape[-1] - 1
    further = one[..., None] * np.where(last, rows.fewest, 1.0)
    return _Asked(bytes_of, further, least @ rows.hosts.T)


def _case(figures: Floats, case: tuple[int, ...], chunks: int) -> tuple[Floats, Ints]:
    """Figures of chunks (n, figures, C) with the least layers that a case leaves them, and these layers (C,)."""
    beyond, least = beyond_one(figures, case, chunks)
    return beyond + figures[..., -2:-1] * least, least


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
