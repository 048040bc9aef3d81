r"""
Bound ``balance``: what a candidate computes, divided perfectly; for candidates that a limit leaves no more time for.

With :math:`w_l` the least seconds of both passes of layer l, on any type of device and under any recompute, and W their
sum, the slowest stage, or the busiest device, takes for a micro-batch at least

.. math:: u = \max(W / pp, \max_l w_l). \tag{1}

In closed form a step takes at least :math:`W + (m - 1) u`, and one that is priced by its order :math:`m u`, (2). What a
step has beside its computation is left out, so that the bound is never above ``relaxation``
(``taut.solver.bounds.relaxation`` (1) to (3)), and W and the largest :math:`w_l` serve all candidates whose layers have
the same prices.
"""

from typing import NamedTuple

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.order_priced.pricing import ROUNDING as ORDER_ROUNDING


class Computation(NamedTuple):
    """Least seconds W of both passes of all layers for a micro-batch, and of the layer that takes longest."""

    whole: float
    longest: float


def computation(problem: PlanningProblem, candidate: Candidate) -> Computation:
    """What the layers of a candidate compute."""
    least = problem.priced_layers(candidate).seconds_of_layers().min(axis=(0, 1))
    return Computation(float(least.sum()), float(np.max(least, initial=0.0)))


def balance_bound(problem: PlanningProblem, candidate: Candidate, layers: Computation) -> float:
    """Bound ``balance`` in seconds, (2)."""
    m, busiest = candidate.num_micro_batches, max(layers.whole / candidate.pp, layers.longest)
    if candidate.is_order_priced:
        return (m * busiest + problem.constant_seconds) * (1 - ORDER_ROUNDING)
    return (layers.whole + (m - 1) * busiest + problem.constant_seconds) * (1 - ROUNDING)
