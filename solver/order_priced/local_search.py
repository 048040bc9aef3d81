r"""
Local search for a division that fits: first improvement over single steps.

Of the given divisions, and then of their neighbours, the best is sought by the least pair (bytes beyond the budget on
the worst device, makespan) in lexicographic order, with the exact memory of ``taut.formulations.memory`` and the
makespan at the best links (``taut.formulations.order_division`` (1)). A neighbour moves one cut by one layer or changes
one chunk's recompute; the first that improves is taken. The search ends in a local optimum, after a number of
neighbours, or where the makespan is too far beyond the limit for steps to come below it. The result fits; nothing is
claimed of how good it is.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.layer_partition import Partition
from taut.solver.order_priced.master_rows import least_makespan

MOST_PASSES = 1_500_000
"""Passes that are priced at most, over all neighbours: some tenths of a second."""
REACH = 0.03
"""Distance of the makespan beyond the limit, relative, up to which steps are tried."""


def improved_division(
    problem: PlanningProblem,
    candidate: Candidate,
    given: ChunkProblem,
    divisions: Sequence[Division],
    limit: float = np.inf,
) -> Partition | None:
    """
    A division that fits the largest device.

    Parameters
    ----------
    problem, candidate, given
        What is divided.
    divisions
        Divisions to begin with, at least one.
    limit
        Seconds beyond which a division is of no use.

    Returns
    -------
    Partition or None
        The division with its makespan at the best links in seconds; None where no division was found that fits.
    """
    memory, budget = problem.device_memory(candidate), int(given.budget)

    def excess(division: Division) -> int:
        return max(max(memory.bytes_of(*division.ranges)) - budget, 0)

    lacking = [excess(division) for division in divisions]
    least = [division for division, bytes_over in zip(divisions, lacking, strict=True) if bytes_over == min(lacking)]
    seconds = [least_makespan(given, division) for division in least]
    best, value = least[int(np.argmin(seconds))], (min(lacking), min(seconds))
    left = max(MOST_PASSES // len(given.order.passes), 4 * given.num_chunks)
    improving = True
    while improving and left > 0 and value[1] < limit * (1 + REACH):
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
    """Divisions one step away."""
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
