"""
What a user fixes or asks for, refused before anything is priced.

Values are refused where no candidate can have them, whatever else is chosen.
Mechanisms are refused where the latency model does not price them, a memory network does not know them, or the
framework of the plan has no part of them.
"""

from collections.abc import Callable, Mapping

from taut.data.cluster import ClusterSpec
from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.fields import Asked
from taut.formulations.mechanisms.context_ranks import check_contexts
from taut.formulations.mechanisms.empty_ends import check_ends
from taut.formulations.mechanisms.expert_ranks import check_experts
from taut.formulations.mechanisms.offload import OF_ALL_STAGES as OFFLOAD
from taut.formulations.mechanisms.recompute import OF_ALL_STAGES as RECOMPUTE
from taut.formulations.mechanisms.shards import check_copies, check_groups
from taut.formulations.mechanisms.unequal_replicas import check_uneven
from taut.formulations.schedules.plan_orders import ORDER_PRICED
from taut.formulations.space import FIXES

OF_ALL_STAGES = RECOMPUTE | OFFLOAD
"""What may be fixed beside fields of a candidate: the recompute of every stage, and modules of it and of offload."""
NAMES = FIXES | OF_ALL_STAGES
"""What may be fixed."""


def check_fixed(fixed: Mapping[str, object], global_batch: int, cluster: ClusterSpec) -> None:
    """
    Refuse fixed values that no candidate can have, whatever else is chosen.

    Raises ``FieldError``: of the field ``fix``: the name, its value, what was expected.
    """
    for name, value in fixed.items():
        if name not in NAMES:
            raise FieldError("fix", _shown(name, value), f"unknown name, expected {one_of(name, NAMES)}")
        if expected := NAMES[name].expected(value, global_batch, cluster.num_devices):
            raise FieldError("fix", _shown(name, value), f"expected {expected}")
    check_groups(fixed)


def _shown(name: str, value: object) -> str:
    """``name=value``; text in quotes where a number or a truth value was expected."""
    is_text = name in NAMES and NAMES[name].kind is str
    return f"{name}={value}" if is_text or not isinstance(value, str) else f"{name}={value!r}"


def _check_orders(asked: Asked) -> None:
    """Refuse schedules that are priced by their order where nothing prices them."""
    for schedule in [kind for kind in asked.schedules if kind in ORDER_PRICED][:1]:
        asked.check_order(schedule)


CHECKS: tuple[Callable[[Asked], None], ...] = (
    _check_orders,
    check_copies,
    check_experts,
    check_ends,
    check_uneven,
    check_contexts,
)
"""What each mechanism refuses, in the order in which refusals are told."""
