r"""
Bound by listing the divisions of a candidate that is priced by its order.

Sets: the divisions k that a framework allows (``ChunkProblem.stated``), or where it allows any all divisions if they
are at most ``MOST_LISTED``. All chunks share one recompute. Data: those of ``taut.formulations.order_division``, whose
(1) or (1') gives the seconds :math:`T_k` of a division. With m micro-batches,

(1) no placement of a division is faster than :math:`T_k`, and a division fits only if it keeps the memory constraint
    (2) there, up to rounding. Over the divisions that may fit the least :math:`T_k` is a lower bound;
(2) :math:`T_k` is at least the seconds of any path through the order (``taut.solver.order_priced.master_rows`` (1)).
    The critical path of the division with the least such bound raises the bounds of all, and the division is priced
    where its own bound stays below the best and the limit. The end is where no bound is below them. With
    ``MOST_PASSES`` run, the least of all is a bound still;
(3) where none fits, a division lacks at least its largest excess over the rows, and the least of these is missing.

It is exact but for what ``taut.formulations.order_division`` (2) leaves out of memory and for links that are not the
best.
"""

import math
from collections.abc import Iterator
from itertools import combinations
from operator import itemgetter

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ROUNDING, ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.master_rows import MasterRows, division_figures, least_makespan

MOST_PASSES = 20_000_000
"""Passes that are priced at most, over all divisions: some tenths of a second."""


MOST_LISTED = 8192
"""Divisions that are listed at most: 128 layers have about as many into 126 chunks, and into 3."""


def is_listed(given: ChunkProblem) -> bool:
    """Whether the bound applies without a search: a framework states the divisions, and chunks share one recompute."""
    return given.stated is not None and len(given.recomputes) == 1


def number_of(given: ChunkProblem) -> int:
    """Divisions that are listed where chunks share one recompute; 0 for too many."""
    if given.stated is not None or len(given.recomputes) != 1:
        return len(given.stated) if is_listed(given) and given.stated is not None else 0
    every = math.comb(given.num_layers - 1, given.num_chunks - 1)
    return every if every <= MOST_LISTED else 0


def _ends(given: ChunkProblem) -> Ints:
    """Ends of the chunks of all divisions that are listed (n, C)."""
    if given.stated is not None:
        return np.asarray(given.stated.cumsum(axis=1))
    layers, joined = given.num_layers, given.num_layers - given.num_chunks
    # Where there are hardly more layers than chunks, places without a cut are the fewer.
    places = np.array(list(combinations(range(1, layers), joined)), dtype=np.int64)
    places = places.reshape(math.comb(layers - 1, joined), joined)
    cut = np.ones((len(places), layers + 1), np.bool_)
    cut[:, 0] = False
    np.put_along_axis(cut, places, False, axis=1)
    return np.nonzero(cut)[1].reshape(len(places), given.num_chunks)


def by_busiest(given: ChunkProblem, recompute: int) -> Iterator[tuple[float, Division]]:
    """Stated divisions with one recompute by ascending seconds of the busiest device's passes, with those."""
    assert given.stated is not None
    ends, kinds = _ends(given), np.full(given.num_chunks, recompute)
    each = given.passes.sum(axis=0)[recompute, ends - given.stated, ends]
    devices = np.stack([each[:, given.hosted(d)].sum(axis=1) for d in range(len(given.counts))], axis=1)
    seconds = given.micro_batches * devices.max(axis=1) * (1 - ROUNDING) + given.constant
    for k in np.argsort(seconds, kind="stable").tolist():
        yield float(seconds[k]), Division.of_ends(ends[k], kinds)


def stated_seconds(given: ChunkProblem, limit: float = np.inf) -> tuple[float, tuple[Division, ...]]:
    """
    Bound (2) up to a limit in seconds, infinite where nothing fits, and divisions.

    They are the priced ones, the best first, or where all are beyond the limit the one with the least bound.
    """
    rows, ends = MasterRows(given), _ends(given)
    ends = ends[_lacking(rows, ends) <= 0]
    if not len(ends):
        return np.inf, ()
    every, kinds = division_figures(given, ends), np.full(given.num_chunks, given.recomputes[0])
    least = rows.seconds_of(every).max(axis=0) + given.constant
    best, left, priced, of_devices = np.inf, MOST_PASSES, list[tuple[float, Division]](), len(rows.paths)
    # Divisions that may still be the best: most are refuted by the first paths.
    alive, figures, bounds, refuted = np.arange(len(ends)), every, least.copy(), list[tuple[float, Division]]()
    while left > 0 and bounds.min(initial=np.inf) < min(best, limit):
        k, known, left = int(bounds.argmin()), len(rows.paths), left - len(given.order.passes)
        rows.critical_row(figures[k])
        if len(rows.paths) > known:
            bounds = np.maximum(bounds, rows.seconds_of(figures, known)[0] + given.constant)
        division = Division.of_ends(ends[alive[k]], kinds)
        if bounds[k] < min(best, limit):
            priced.append((least_makespan(given, division), division))
            best = min(best, priced[-1][0])
        else:
            refuted.append((float(bounds[k]), division))
        bounds[k] = np.inf
        least[alive] = bounds
        kept = bounds < min(best, limit)
        if 2 * kept.sum() < len(kept):
            alive, figures, bounds = alive[kept], figures[kept], bounds[kept]
    if least.min() < best and len(rows.paths) > of_devices:
        # The paths that came after a division was left out may raise its bound.
        least = np.maximum(least, rows.seconds_of(every, of_devices).max(axis=0) + given.constant)
    best, refuted = min(best, float(least.min())), sorted(refuted, key=itemgetter(0))
    for seconds, division in refuted:
        if seconds >= best:
            break
        # Beyond the limit a division's own path says as much as its price but for rounding.
        best = min(best, least_makespan(given, division))
    found = sorted(priced, key=itemgetter(0)) or refuted[:1]
    return best * (1 - ROUNDING), tuple(division for _, division in found)


def stated_missing(given: ChunkProblem) -> float:
    """Bytes (3) that every listed division lacks; 0 where one fits."""
    return float(_lacking(MasterRows(given), _ends(given)).min(initial=np.inf))


def _lacking(rows: MasterRows, ends: Ints) -> Floats:
    """Bytes beyond the budget of the worst row of divisions (n, C), 0 within rounding, (n,)."""
    worst = rows.excess_of(ends, int(rows.given.recomputes[0])).max(axis=1)
    return np.where(worst > ROUNDING * max(rows.given.budget, 1.0), worst, 0.0)
