r"""
Two stages: the second one has all slots that the first one leaves.

Sets: start sets S of dp slots for stage 0, so that stage 1 lies on the other dp slots S'. Layers j at which stage 0
ends.

(1) In the latency model ``step``, with the terms of ``taut.formulations.partition`` (1'), stage 1 waits for

    .. math:: U_1 = \sum_x low(x) - backward_0 + h T - b + R_1(S'),

    b the way back of the longest pipeline's only hop, at most a share :math:`\kappa` of :math:`h T`. So beyond the
    layers a step takes :math:`\max(h T + G \rho(S), (1 - \kappa) h T + R_1(S') - backward_0 - edge_j)` seconds at
    least, with the longest backward pass of any recompute. The further bytes of the cut, for which stage 1 need not
    wait, are taken off; they add no less to the hop than to its way back, so that the smallest message counts.
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

    ``start_sets``: slots of stage 0, (sets, dp). Returns all others, (sets, dp).
    """
    sets, dp = start_sets.shape
    left = np.ones((sets, 2 * dp), dtype=bool)
    np.put_along_axis(left, start_sets, False, axis=1)
    return np.asarray(np.nonzero(left)[1].reshape(sets, dp))


def kept_share(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    r"""
    Bound the share of a weighted hop that is left without its way back from below, :math:`1 - \kappa`.

    ``problem``, ``candidate``: what is bounded, one tensor rank to a hop. Returns the share.
    """
    links, tp, message = problem.links, candidate.tp, float(problem.tables(candidate).message[1:-1].min())
    back: PairTable = problem.coefficient("pipeline") * (links.latency + message / links.pipeline_rate(tp))
    hop: PairTable = problem.transfer_weight(candidate) * links.hop_seconds(tp, message, both_ways=True)
    with np.errstate(invalid="ignore"):  # A node of one device has no hop inside.
        share = -(back / hop)
    return 1.0 + min(best.least_inside(share), best.least_apart(share))


def waited_for(stages: PartitionProblem, later: LaterStages, end: int, rings: Floats) -> Floats:
    """
    Seconds that stage 1 waits for beyond layers and its hop, (1) without the cut.

    ``stages``: seconds of ranges, of one device type; ``later``: bytes of reductions; ``rings``: seconds per byte of
    stage 1 for every start set, (sets,). Returns seconds, negative where stage 1 ends long before stage 0, (sets,).
    """
    last = stages.num_layers
    waited = rings * later.exchanged[end, last]
    if later.overlap:
        waited = np.maximum(waited - _backward(stages, end, last), rings * later.unhidden[end, last])
    return np.asarray(waited - _backward(stages, 0, end))


def _backward(stages: PartitionProblem, first: int, end: int) -> float:
    """Seconds of the longest backward pass of a range, of any recompute that is allowed."""
    low = stages.low[0, :, first, end]
    forward = 0.0 if stages.forward is None else float(stages.forward[0, first, end])
    return float(low[np.isfinite(low)].max(initial=forward)) - forward
