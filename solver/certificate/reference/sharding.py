r"""
What a micro-batch waits for under ZeRO-2 and 3 in ``step``, beside what its passes compute.

A stage or chunk has layers a..b with p_l parameters each, w and g bytes of a weight and a gradient in them.

(1) Moving M bytes, to gather weights or to scatter sums of gradients, takes rate M seconds with rate half of the ring
    (``gradients`` (2)) of the replicas of its copy on its pipeline rank, the slowest tensor rank's. Experts that a
    group of devices has between them take half of the slowest ring over the devices at one place of every group of the
    copy, and follow the rest.
(2) Forward ZeRO-3 gathers every layer before it runs. Layer a comes first, with nothing beside it; the others come
    while a..b-1 compute: rate w p_a, and what rate w (p_{a+1} + ... + p_b) exceeds the computation of a..b-1.
(3) Backward ZeRO-3 gathers layer b first, and both scatter layer a last, with nothing beside them; the gathers of
    b-1..a and the scatters of b..a+1 go beside the whole backward pass. ZeRO-2 scatters alone. What goes beside
    computation slows it by the calibration's share of its own seconds, and at least that is waited for.
(4) Each device waits beside its own computation.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.solver.certificate.reference.figures import Figures
from taut.solver.certificate.reference.gradients import rings_of_copies, rings_of_experts
from taut.solver.certificate.reference.memory import parameter_bytes


def is_sharded(plan: Figures) -> bool:
    """Whether passes gather or scatter."""
    return plan.case.waits_for_all and plan.choice.zero >= 2 and plan.choice.holders > 1


def waits(plan: Figures, rank: Ints) -> Floats:
    """Seconds that every worker waits forward and backward, on pipeline ranks (C,): (2, n, C, dp, tp), (2) to (4)."""
    weight, gradient, _ = parameter_bytes(plan.case.memory)
    gathered = weight if plan.choice.zero == 3 else 0
    experts, dense = plan.layers.experts, plan.layers.parameters - plan.layers.experts
    a, b, every = (
        np.stack([dense[plan.first], experts[plan.first]]),
        np.stack([dense[plan.last], experts[plan.last]]),
        np.stack([plan.parameters - plan.experts, plan.experts]),
    )
    half = plan.case.coefficient("gather") / 2
    rates = half * rings_of_copies(plan), half * rings_of_experts(plan)

    def moved(weights: Ints, gradients: Ints) -> Floats:
        sent = (gathered * weights + gradient * gradients)[..., None]
        found = sum(rate[:, rank] * one for rate, one in zip(rates, sent, strict=True))
        return np.asarray(found)[..., None]

    forward, backward = _computed(plan, rank)
    slowed = 0.0 if plan.case.calibration is None else plan.case.calibration.gather_slowdown
    ahead, behind = moved(every - a, 0 * a), moved(every - b, every - a)
    return np.stack(
        [
            moved(a, 0 * a) + np.maximum(ahead - forward, slowed * ahead),
            moved(b, a) + np.maximum(behind - backward, slowed * behind),
        ]
    )


def _computed(plan: Figures, rank: Ints) -> tuple[Floats, Floats]:
    """Seconds of the forward pass without the last layer and of the backward pass, (n, C, dp, tp) each."""
    kinds, chunk = plan.kinds[:, rank], np.arange(len(rank))[:, None, None]
    but_last = plan.summed(np.where(plan.is_last, 0.0, plan.by_layer[0]))
    sent = plan.summed(np.where(plan.is_last, 0.0, plan.sent))
    forward = but_last[kinds, chunk] + plan.rings(sent, rank)[..., None]
    backward = plan.passes[1:].sum(axis=0)[kinds, chunk]
    return forward, backward + plan.rings(plan.every - plan.forward, rank)[..., None]
