r"""
Bound on the divisions that a framework states, one by one, of a candidate that is priced by its order.

Sets: the divisions k of ``ChunkProblem.stated``, each with the one recompute that all chunks share. Data: those of
``taut.formulations.order_division``. With :math:`T_k` its seconds (1) or (1'), and m micro-batches,

(1) a device takes m times the passes of its chunks, so :math:`T_k \ge b_k = m \max_d \sum_{c \in d} t_c +
    \text{constant}`;
(2) no placement of a division that fits is faster than :math:`T_k`, and one fits only if it violates no row (2) there,
    beyond rounding. Over these the least :math:`T_k` is a lower bound. They are taken by ascending :math:`b_k`, until
    that is no better than the least found, or ``MOST_PASSES`` were priced: the least of both is a bound still;
(3) where none fits, every division lacks the most bytes of its rows at least, and the least of these is missing.

It is exact but for what (2) leaves out of memory and for links that are not the best.
"""

from collections.abc import Iterator

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.master_rows import MasterRows, least_makespan
from taut.solver.order_priced.pricing import ROUNDING

MOST_PASSES = 20_000_000
"""Passes that are priced at most, over all divisions: some tenths of a second."""


def is_listed(given: ChunkProblem) -> bool:
    """Whether the bound applies: divisions are listed, and chunks share one recompute."""
    return given.stated is not None and len(given.recomputes) == 1


def by_busiest(given: ChunkProblem, recompute: int) -> Iterator[tuple[float, Division]]:
    """Stated divisions with one recompute by ascending seconds (1) of the busiest device, with those."""
    assert given.stated is not None
    ends = given.stated.cumsum(axis=1)
    each = given.passes.sum(axis=0)[recompute, ends - given.stated, ends]
    devices = np.stack([each[:, given.hosted(d)].sum(axis=1) for d in range(len(given.counts))], axis=1)
    seconds = given.micro_batches * devices.max(axis=1) * (1 - ROUNDING) + given.constant
    kinds = np.full(given.num_chunks, recompute)
    for k in np.argsort(seconds, kind="stable").tolist():
        yield float(seconds[k]), Division.of_ends(ends[k], kinds)


def stated_seconds(given: ChunkProblem) -> tuple[float, tuple[Division, ...]]:
    """Bound (2) in seconds, infinite where nothing fits, and the divisions that were priced, the best first."""
    rows, best, left = MasterRows(given), np.inf, MOST_PASSES
    priced: list[tuple[float, Division]] = []
    for busiest, division in by_busiest(given, int(given.recomputes[0])):
        if busiest >= best:
            break
        if _lacking(rows, division) > 0:
            continue
        if left <= 0:
            best = busiest
            break
        left -= len(given.order.passes)
        priced.append((least_makespan(given, division), division))
        best = min(best, priced[-1][0])
    priced.sort(key=lambda each: each[0])
    return best * (1 - ROUNDING), tuple(division for _, division in priced)


def stated_missing(given: ChunkProblem) -> float:
    """Bytes (3) that every stated division lacks; 0 where one fits."""
    rows = MasterRows(given)
    every = (_lacking(rows, division) for _, division in by_busiest(given, int(given.recomputes[0])))
    return float(min(every, default=0.0))


def _lacking(rows: MasterRows, division: Division) -> float:
    """Bytes beyond the budget of the worst row, 0 within rounding."""
    worst = float(rows.excess(division).max())
    return worst if worst > ROUNDING * max(rows.given.budget, 1.0) else 0.0
