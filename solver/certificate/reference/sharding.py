r"""
What a micro-batch waits for under ZeRO-2 and 3 in ``step``, beyond the computation of its passes.

A stage or chunk has layers a..b with p_l parameters each, w and g bytes of a weight and a gradient in them.

(1) To gather M bytes of weights, or to scatter M bytes of gradients, takes rate M seconds. The rate is half of the ring
    (``gradients`` (2)) over the replicas of a copy, on the slowest tensor rank. If a group of devices shares the
    experts, their rate is half of the slowest ring over the devices at one place of every group of the copy. Experts
    follow the other parameters.
(2) Forward, ZeRO-3 gathers every layer before it runs. Layer a is gathered first, and nothing runs meanwhile. The other
    layers are gathered while a..b-1 compute. The pass waits for rate w p_a, and for the seconds by which
    rate w (p_{a+1} + ... + p_b) exceeds the computation of a..b-1.
(3) Backward, ZeRO-3 gathers layer b first, and ZeRO-2 and 3 scatter layer a last. Nothing runs during these two. The
    gathers of b-1..a and the scatters of b..a+1 run during the whole backward pass. ZeRO-2 only scatters. Collectives
    that run during computation slow it by the calibration's share of their own seconds. The pass waits for at least
    this share.
(4) Each device hides collectives during its own computation.
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
