"""
Values that a user fixes: what each may be.

They are refused where no candidate can have them whatever else is chosen; ``taut.formulations.space`` filters by them.
"""

from collections.abc import Mapping
from math import gcd
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.degrees import BlockShape
from taut.formulations.mechanisms import offload, recompute
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
    if {"dp_shard", "ep", "tp"} <= fixed.keys():
        _check_copies(fixed)


def _check_copies(fixed: Mapping[str, Any]) -> None:
    """Refuse copies that hold no whole group of expert ranks (``taut.formulations.degrees`` (3))."""
    shape = BlockShape(fixed["tp"], 1, fixed["ep"], fixed.get("etp", 1))
    if not shape.divides_copy(fixed["dp_shard"]):
        least = shape.experts // gcd(shape.experts, shape.tp)
        wanted = f"a multiple of {least}, whose devices hold whole groups of ep={shape.ep} beside tp={shape.tp}"
        raise FieldError("fix", f"dp_shard={fixed['dp_shard']}", f"expected {wanted}")


def _shown(name: str, value: object) -> str:
    """``name=value``; text in quotes where a number or a truth value was expected."""
    is_text = name in NAMES and NAMES[name].kind is str
    return f"{name}={value}" if is_text or not isinstance(value, str) else f"{name}={value!r}"
