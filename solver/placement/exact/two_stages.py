r"""
Two stages: the second one has all slots that the first one leaves.

Sets: start sets S of dp slots for stage 0, so that stage 1 lies on the other dp slots S'. Layers j at which stage 0
ends.

(1) In the latency model ``step``, with the terms of ``taut.formulations.partition`` (1'), stage 1 waits for

    .. math:: U_1 = \sum_x low(x) - backward_0 + h T - b + R_1(S'),

    b the way back of the longest pipeline's only hop. So beyond layers and hops a step takes
    :math:`\max(G \rho(S), R_1(S') - backward_0 - b - edge_j)` seconds at least, with the slowest b of any hop, the
    longest backward pass of any recompute, and the further bytes of the cut, which stage 1 need not wait for, taken
    off.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.pair_table import PairTable
from taut.formulations.partition import LaterStages, PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.link_bounds import BestLinks


def other_slots(start_sets: Ints) -> Ints:
    """
    List the slots that start sets leave of twice as many.

    Parameters
    ----------
    start_sets
        Slots of stage 0, (sets, dp).

    Returns
    -------
    array
        All others, (sets, dp).
    """
    sets, dp = start_sets.shape
    left = np.ones((sets, 2 * dp), dtype=bool)
    np.put_along_axis(left, start_sets, False, axis=1)
    return np.asarray(np.nonzero(left)[1].reshape(sets, dp))


def slowest_back(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """
    Bound the way back of any hop from above, at the smallest message: a larger one adds no less to the hop.

    Parameters
    ----------
    problem, candidate
        What is bounded.
    best
        Best links of the cluster.

    Returns
    -------
    float
        Seconds.
    """
    message = float(problem.tables(candidate).message[1:-1].min())
    rate = problem.links.pipeline_rate(candidate.tp)
    back: PairTable = problem.coefficient("pipeline") * (problem.links.latency + message / rate)
    inside, apart = best.least_inside(-back), best.least_apart(-back)
    return -min(inside, apart)


def waited_for(stages: PartitionProblem, later: LaterStages, end: int, rings: Floats, back: float) -> Floats:
    """
    Seconds that stage 1 waits for beyond layers and hops, (1) without the cut.

    Parameters
    ----------
    stages
        Seconds of ranges, of one device type.
    later
        Bytes of reductions.
    end
        Layer j.
    rings
        Seconds per byte of stage 1 for every start set, (sets,).
    back
        Seconds of a way back at most.

    Returns
    -------
    array
        Seconds, negative where stage 1 ends long before stage 0, (sets,).
    """
    last = stages.num_layers
    waited = rings * later.exchanged[end, last]
    if later.overlap:
        waited = np.maximum(waited - _backward(stages, end, last), rings * later.unhidden[end, last])
    return np.asarray(waited - _backward(stages, 0, end) - back)


def _backward(stages: PartitionProblem, first: int, end: int) -> float:
    """Seconds of the longest backward pass of a range, of any recompute that is allowed."""
    low = stages.low[0, :, first, end]
    forward = 0.0 if stages.forward is None else float(stages.forward[0, first, end])
    return float(low[np.isfinite(low)].max(initial=forward)) - forward
