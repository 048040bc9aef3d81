r"""
Memory limits: the problem that a limit makes, the limit that a plan needs, and the least that any plan fits.

Data: capacity :math:`c_k` of device type k and a limit M, in KiB; the margin's share :math:`\mu < 1` and its fixed part
:math:`\nu` KiB.

(1) a limit lowers capacities to :math:`c = \min(c_k, M)`, of which the margin :math:`\lceil \mu c \rceil + \nu` stays
    free: its share is of the lowered capacity;
(2) b bytes fit from the least c with :math:`c - \lceil \mu c \rceil - \nu \ge \lceil b/1024 \rceil` on, as the left
    side does not fall when c grows;
(3) the leanest plan has :math:`b^* = \min` over candidates, divisions into stages and recompute of the fullest stage's
    bytes, exact by dynamic programming, or a lower bound on them (``taut.solver.infeasibility.feasibility`` (5)). A
    limit below that of :math:`b^*` holds no plan; with mixed devices, where stages and types must match as well,
    neither may one above.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from taut.data.memory import MemoryModel
from taut.data.spec import shorten
from taut.data.units import GIB, KIB, MOST_GIB
from taut.errors import FieldError
from taut.formulations.problem import PlanningProblem
from taut.solver.infeasibility.feasibility import least_bytes

MOST_POINTS = 10_000
MOST_KIB = 2**50


def kib_of(gib: float) -> int:
    """Whole KiB of so many GiB."""
    return int(gib * GIB) // KIB


def gib_of(kib: int) -> float:
    """GiB of so many KiB, exactly."""
    return kib * KIB / GIB


def rounded_down(gib: float) -> str:
    """Two digits: what fits the printed limit fits the true one."""
    return f"{math.floor(gib * 100) / 100:.2f}"


def rounded_up(gib: float) -> str:
    """Two digits: the printed memory suffices for what needs the true one."""
    return f"{math.ceil(gib * 100) / 100:.2f}"


def lowered(problem: PlanningProblem, limit_gib: float) -> PlanningProblem:
    """The problem within a limit, (1); the same prices, and a cluster named after the limit."""
    cluster = problem.cluster
    groups = [
        group.model_copy(
            update={"device": group.device.model_copy(update={"memory_gib": min(group.device.memory_gib, limit_gib)})}
        )
        for group in cluster.nodes
    ]
    name = cluster.name if groups == cluster.nodes else f"{cluster.name} with at most {limit_gib:.4g} GiB"
    return replace(problem, cluster=cluster.model_copy(update={"name": name, "nodes": groups}))


def limit_for(memory: MemoryModel, need_kib: int) -> int:
    """The least limit in KiB that leaves so much beside its margin, (2)."""
    return bisect_left(range(MOST_KIB), need_kib, key=lambda kib: kib - memory.margin_kib(kib))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLimit:
    """The least limit that may hold a plan, (3): KiB that the leanest one needs, the limit, and which it is."""

    need_kib: int
    limit_kib: int
    leanest: str

    def missing_kib(self, memory: MemoryModel, kib: int) -> int:
        """KiB that a device with so many lacks for the leanest plan."""
        return max(self.need_kib - (kib - memory.margin_kib(kib)), 0)


def least_limit(problem: PlanningProblem) -> LeastLimit:
    """The least limit that holds a plan, by the bytes of every candidate, (3)."""
    (need, exact), candidate = min((least_bytes(problem, candidate), candidate) for candidate in problem.candidates)
    need_kib = -(-need // KIB)
    limit = limit_for(problem.memory, need_kib)
    how = "" if exact else ", by a bound"
    return LeastLimit(need_kib=need_kib, limit_kib=limit, leanest=f"{candidate}{how}")


def checked_limits(limits: Iterable[float]) -> list[float]:
    """Limits in ascending order, each once."""
    expected = f"expected GiB above 0 and at most {MOST_GIB}, such as 20,40,80"
    try:
        found = sorted({float(limit) for limit in limits})
    except (TypeError, ValueError):
        raise FieldError("limits", shorten(limits), expected) from None
    wrong = [limit for limit in found if not (0 < limit <= MOST_GIB and kib_of(limit) > 0)]
    if wrong or not found:
        raise FieldError("limits", f"{wrong[0]:g}" if wrong else "none given", expected)
    return found


def spaced_limits(least_kib: int, capacity_kib: int, points: int) -> list[float]:
    """So many limits evenly from the least that holds a plan to the capacity, in hundredths of GiB, rounded up."""
    if isinstance(points, bool) or not isinstance(points, int) or not 0 < points <= MOST_POINTS:
        raise FieldError("points", str(points), f"expected a number from 1 to {MOST_POINTS}, or all")
    most = gib_of(capacity_kib)
    if points == 1 or least_kib >= capacity_kib:
        return [most]
    even = np.linspace(gib_of(least_kib), most, points).tolist()
    return sorted({min(math.ceil(limit * 100) / 100, most) for limit in even})
