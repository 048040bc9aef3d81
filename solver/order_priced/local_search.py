r"""
A good division into chunks that really fits, for a schedule that is priced by its order.

From the divisions that a bound came across, the best by (bytes beyond the budget on the worst device, least makespan)
is improved by single steps, first come first taken: a cut moved by one layer, a chunk's recompute changed. That ends
where the makespan is so far beyond the limit that no steps would bring it below. What is returned fits; nothing is
claimed of how good it is.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.layer_partition import Partition
from taut.solver.order_priced.rows import least_makespan

MOST_PASSES = 1_500_000
"""Passes to price at most, some tenths of a second's worth."""
WORTH = 0.03
"""Relative distance beyond the limit from which steps are tried."""


def polished(
    problem: PlanningProblem,
    candidate: Candidate,
    given: ChunkProblem,
    divisions: Sequence[Division],
    limit: float = np.inf,
) -> Partition | None:
    """
    A division that fits the largest device; its seconds are the least makespan.

    Parameters
    ----------
    problem, candidate, given
        What is divided.
    divisions
        Where to begin.
    limit
        Seconds beyond which a division is of no use.

    Returns
    -------
    Partition
        None where no division was found that fits.
    """
    memory, budget = problem.device_memory(candidate), int(given.budget)

    def excess(division: Division) -> int:
        return max(max(memory.bytes_of(*division.ranges)) - budget, 0)

    lacking = [excess(division) for division in divisions]
    lean = [division for division, bytes_over in zip(divisions, lacking, strict=True) if bytes_over == min(lacking)]
    seconds = [least_makespan(given, division) for division in lean]
    best, value = lean[int(np.argmin(seconds))], (min(lacking), min(seconds))
    left = max(MOST_PASSES // len(given.order.passes), 4 * given.num_chunks)
    improving = True
    while improving and left > 0 and value[1] < limit * (1 + WORTH):
        improving = False
        for division in _neighbours(given, best):
            if (over := excess(division)) > value[0]:
                continue
            left -= 1
            if (tried := (over, least_makespan(given, division))) < value:
                best, value, improving = division, tried, True
                break
    if value[0] > 0:
        return None
    return Partition(seconds=value[1], division=best, patterns=(0,) * candidate.pp)


def _neighbours(given: ChunkProblem, division: Division) -> Iterator[Division]:
    """Divisions that one step leads to."""
    for c in range(given.num_chunks - 1):
        for step in (-1, 1):
            ends = division.ends.copy()
            ends[c] += step
            if division.starts[c] < ends[c] < division.ends[c + 1]:
                yield Division.of_ends(ends, division.recompute_index)
    allowed = np.flatnonzero(np.isfinite(given.passes[0, :, 0, -1]))
    for c in range(given.num_chunks if len(allowed) > 1 else 0):
        for r in allowed[allowed != division.recompute_index[c]]:
            recompute = division.recompute_index.copy()
            recompute[c] = r
            yield Division.of_ends(division.ends, recompute)
