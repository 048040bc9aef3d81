"""
Copies: groups of replicas, each with a copy of what ZeRO shards.

(7) Under ZeRO-2 and 3 every ``dp_shard`` consecutive replicas share one copy of weights, gradients and optimizer
    states. All dp replicas share one copy; with ``hybrid_sharding`` the largest divisor of dp above 1 does as well
    whose tensor groups fit every node together. A fixed ``dp_shard`` is a further number, under ZeRO-1 (optimizer
    states) too where ZeRO-1 is fixed. Groups of fewer than dp replicas are priced by the latency model ``step`` alone,
    where memory is a sum of terms. Candidates with several context ranks have one copy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

from taut.errors import FieldError
from taut.formulations.degrees import BlockShape, divisors
from taut.formulations.fields import Columns, Compared, Field, Fix, Fixed, Words, divides_devices, named

if TYPE_CHECKING:
    from taut.formulations.space import Candidate, Workload

COPIES = "copies"
"""What launchers state: how many copies of what is sharded there are."""


def _shared(candidate: "Candidate", fixed: Fixed) -> int | None:
    """Devices that share a copy, None where nothing that copies may divide is shared."""
    return candidate.shards if candidate.zero in _sharing(fixed) else None


REPLICAS_OF_A_COPY = Field(
    meaning="Replicas that share one copy of what ZeRO shards; 0 stands for all of them.",
    seldom=True,
    grouped=True,
    fix=Fix(12, int, divides_devices, _shared),
    words=Words(12, named("dp_shard", 0), short=8),
    columns=Columns(sweep=6, pareto=True),
    compared=Compared(12, held=False, shown=False),
    rule=lambda space: "dp_shard devices share a copy under ZeRO-1 to 3: a divisor of dp, and dp*cp where cp > 1",
)


def check_groups(fixed: Mapping[str, Any]) -> None:
    """
    Refuse fixed copies that hold no whole group of fixed expert ranks (``taut.formulations.degrees`` (3)).

    Raises ``FieldError``: of the field ``fix``.
    """
    if not {"dp_shard", "ep", "tp"} <= fixed.keys():
        return
    shape = BlockShape(fixed["tp"], 1, fixed["ep"], fixed.get("etp", 1))
    if not shape.divides_copy(fixed["dp_shard"]):
        least = shape.experts // gcd(shape.experts, shape.tp)
        wanted = f"a multiple of {least}, whose devices hold whole groups of ep={shape.ep} beside tp={shape.tp}"
        raise FieldError("fix", f"dp_shard={fixed['dp_shard']}", f"expected {wanted}")


def fixed_copies(fixed: Mapping[str, Any], devices: int) -> dict[str, Any]:
    """
    Fixed values of which ``copies`` counts copies, as launchers do: with N copies 1 / N of the replicas share one.

    Raises ``FieldError``, of the field ``current``, if copies do not divide the replicas, or context ranks stand beside
    them.
    """
    degrees = {name: fixed.get(name, 1) for name in ("tp", "pp", "cp")}
    others = {name: value for name, value in fixed.items() if name != COPIES}
    if (copies := fixed.get(COPIES, 1)) == 1:
        return others
    shown, replicas = f"copies={copies}", devices // prod(degrees.values())
    if degrees["cp"] > 1:
        raise FieldError("current", shown, f"not priced with cp={degrees['cp']}, expected one copy or cp=1")
    if not isinstance(copies, int) or copies < 1 or replicas % copies:
        raise FieldError("current", shown, f"expected a divisor of the {replicas} replicas")
    # A copy for each replica is one without shards.
    return others | ({"dp_shard": replicas // copies} if copies < replicas else {"zero": 0})


def with_copies(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with one copy, and with each number of replicas to a copy, (7)."""
    yield candidate
    space, dp = workload.space, candidate.dp
    if candidate.zero not in _sharing(space.fixed) or candidate.cp > 1:
        return
    sizes = {int(space.fixed.get("dp_shard", 1))}
    if space.hybrid_sharding and candidate.zero >= 2:
        room = min(group.gpus_per_node for group in workload.cluster.nodes) // candidate.tp
        sizes.add(max((size for size in divisors(dp) if size <= room), default=1))
    for size in sizes:
        if 1 < size < dp and dp % size == 0:
            yield replace(candidate, dp_shard=size)


def _sharing(fixed: Fixed) -> tuple[int, ...]:
    """ZeRO stages that may have several copies: 1 where it is fixed, (7)."""
    return (1, 2, 3) if fixed.get("zero") == 1 else (2, 3)
