"""
Values that a user fixes: what each may be.

They are refused where no candidate can have them whatever else is chosen; ``taut.formulations.space`` filters by them.
"""

from collections.abc import Mapping

from taut.data.cluster import ClusterSpec
from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.mechanisms import offload, recompute, shards
from taut.formulations.space import FIXES

OF_ALL_STAGES = recompute.OF_ALL_STAGES | offload.OF_ALL_STAGES
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
    shards.check_groups(fixed)


def _shown(name: str, value: object) -> str:
    """``name=value``; text in quotes where a number or a truth value was expected."""
    is_text = name in NAMES and NAMES[name].kind is str
    return f"{name}={value}" if is_text or not isinstance(value, str) else f"{name}={value!r}"
