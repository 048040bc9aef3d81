"""
Two classes of device: the slowest type and all others, and what a stage takes on either and on both.

Patterns of a stage are all fast, all slow, and mixed (``taut.formulations.partition``, (4) and (5)).
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate


def slowest_type(problem: PlanningProblem, candidate: Candidate) -> int:
    """The device type that takes longest for the whole model; it makes the slow class."""
    return int(np.argmax(problem.tables(candidate).seconds[:, 0, 0, -1]))


def classes_of(
    problem: PlanningProblem, seconds: Floats, budget: Ints, candidate: Candidate
) -> tuple[Floats, Floats, Ints, tuple[int, int]]:
    """Seconds (fastest and slowest class present) and budgets by pattern, and fewest and most slow blocks."""
    if len(budget) == 1:
        return seconds, seconds, budget, (0, 0)
    slowest = slowest_type(problem, candidate)
    others = np.arange(len(budget)) != slowest
    fast, slow = seconds[others].min(axis=0), seconds[slowest]
    high = np.stack([fast, slow, np.maximum(fast, slow)])
    low = high if candidate.pp == 1 else np.stack([fast, slow, np.minimum(fast, slow)])
    most = budget[others].max()
    budgets = np.array([most, budget[slowest], min(most, budget[slowest])])
    return low, high, budgets, _slow_blocks(problem, candidate.width, slowest)


def _slow_blocks(problem: PlanningProblem, width: int, slowest: int) -> tuple[int, int]:
    """Fewest and most blocks of so many devices that hold a device of the slowest type."""
    sizes = problem.links.gpus_per_node[problem.type_of_node == slowest]
    if width <= problem.links.gpus_per_node.max():
        blocks = int(sizes.sum()) // width
        return blocks, blocks
    return -(-int(sizes.sum()) // width), min(len(sizes), int(problem.links.gpus_per_node.sum()) // width)


def of_classes(problem: PlanningProblem, forward: Floats, candidate: Candidate) -> Floats:
    """Forward seconds on the fastest class present, by pattern as in ``classes_of``."""
    if len(forward) == 1:
        return forward
    slowest = slowest_type(problem, candidate)
    fast, slow = forward[np.arange(len(forward)) != slowest].min(axis=0), forward[slowest]
    return np.stack([fast, slow, np.minimum(fast, slow)])
