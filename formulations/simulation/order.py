"""The order of the passes of any candidate: a formula's, a published one, or one that is given."""

from functools import lru_cache

import numpy as np

from taut.formulations.schedules.orders.classic import gpipe, one_forward_one_backward
from taut.formulations.schedules.pipeline import ScheduleProblem, sequential
from taut.formulations.schedules.plan_orders import Order, order_of
from taut.formulations.space import Candidate


def passes_of(candidate: Candidate) -> Order:
    """Passes of a candidate's devices in order (``taut.formulations.schedules``)."""
    if candidate.is_order_priced:
        return order_of(*candidate.order_key)
    return _classic(candidate.schedule, candidate.pp, candidate.num_micro_batches)


@lru_cache(maxsize=64)
def _classic(schedule: str, pp: int, num_micro_batches: int) -> Order:
    device, one = sequential(pp), np.ones(pp)
    pipeline = ScheduleProblem(
        device=device,
        forward=one,
        input_gradient=one,
        weight_gradient=one,
        transfer=one[1:],
        num_micro_batches=num_micro_batches,
        activation=one,
        kept_for_weight=one,
        memory_limit=np.full(pp, np.inf),
    )
    made = gpipe if schedule == "gpipe" else one_forward_one_backward
    return Order(*made(pipeline).flat, device)
