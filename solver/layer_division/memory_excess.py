r"""
Least excess of memory over divisions of the layers into stages: a bottleneck dynamic program.

Sets, data and variables are those of ``taut.formulations.partition``, the divisions of each family in turn; budgets
are the largest of any class of device.

(1) Minimise :math:`\max_x \max(\text{held} + \text{in\_flight}_x \text{activation}, \text{update}) - \text{budget}`
    over divisions of the layers into stages x with recompute. With E[x, i] the least worst excess of stages x..pp-1 on
    layers i..L-1,
    :math:`E[x, i] = \min_j \max(\text{excess of } [i, j), E[x + 1, j])` is found backwards over x in
    :math:`O(pp L^2 R)` steps.
(2) No division fits where (1) is positive; with one class of device one fits otherwise.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.formulations.partition import PartitionProblem


def least_excess(problem: PartitionProblem) -> tuple[int, int]:
    """
    Bytes by which the best division still exceeds memory, and the stage where it does; (0, -1) if one fits.

    The best division is the one whose worst stage exceeds its budget least; recompute is free to choose. With two
    classes of device every stage may take the larger budget, so the figure is a lower bound.

    ``problem``: seconds, which say what is allowed, and bytes of every range. Returns bytes, and number of the stage.
    """
    held = np.where(np.isfinite(problem.low.min(axis=0)), problem.held, np.iinfo(np.int64).max // 4)
    update = np.zeros_like(held[0]) if problem.update is None else problem.update
    # Of a schedule with several chunks a device, chunks take the place of stages here.
    free = np.array([[[1, problem.num_layers]] * len(problem.in_flight)])
    each = (
        _least_excess(held, problem.activation, update, problem.in_flight, problem.budget.max(), sizes)
        for sizes in (free if problem.families is None else problem.families)
    )
    excess, stage = min(each, key=lambda found: found[0])
    return (int(excess), int(stage)) if excess > 0 else (0, -1)


@jit
def _least_excess(
    held: Ints, activation: Ints, update: Ints, in_flight: Ints, budget: int, sizes: Ints
) -> tuple[int, int]:
    """Least worst excess (1) in bytes, and the stage that has it."""
    pp, size = len(in_flight), held.shape[1]
    big = np.iinfo(np.int64).max // 2
    worst = np.full((pp + 1, size), big)
    at = np.full((pp + 1, size), -1)
    worst[pp, size - 1] = -big
    for x in range(pp - 1, -1, -1):
        for i in range(size - 1):
            for j in range(i + sizes[x, 0], min(i + sizes[x, 1], size - 1) + 1):
                if worst[x + 1, j] == big:
                    continue
                least = big
                for r in range(held.shape[0]):
                    least = min(least, held[r, i, j] + in_flight[x] * activation[r, i, j] - budget)
                least = max(least, update[i, j] - budget)
                value = max(least, worst[x + 1, j])
                if value < worst[x, i]:
                    worst[x, i] = value
                    at[x, i] = x if least >= worst[x + 1, j] else at[x + 1, j]
    return worst[0, 0], at[0, 0]
