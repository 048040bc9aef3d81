"""The order of the passes of any candidate: a formula's, a published one, or one that is given."""

from functools import lru_cache

from taut.formulations.schedules.orders.classic import gpipe, one_forward_one_backward
from taut.formulations.schedules.pipeline import sequential, unit_pipeline
from taut.formulations.schedules.plan_orders import Order, order_of
from taut.formulations.space import Candidate


def passes_of(candidate: Candidate) -> Order:
    """Passes of a candidate's devices in order (``taut.formulations.schedules``)."""
    if candidate.is_order_priced:
        return order_of(*candidate.order_key)
    return _classic(candidate.schedule, candidate.pp, candidate.num_micro_batches)


@lru_cache(maxsize=64)
def _classic(schedule: str, pp: int, num_micro_batches: int) -> Order:
    made = gpipe if schedule == "gpipe" else one_forward_one_backward
    pipeline = unit_pipeline(sequential(pp), num_micro_batches)
    return Order(*made(pipeline).flat, pipeline.device)
