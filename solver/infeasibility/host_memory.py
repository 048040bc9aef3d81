r"""
What hosts lack where their memory is full, and how much of it makes a plan fit.

Layers whose activations a host does not hold take ``HOST_FULL`` bytes of a device
(``taut.formulations.mechanisms.offload`` (6)), so the bytes that lack there say nothing of the host.

(1) Hosts are full where the candidate that lacks least lacks as much as that.
(2) Whether a candidate fits never changes from yes to no with more room for each GPU, so its least room is found by
    bisection over KiB; the nearest candidate is the one with the least. Of candidates that differ in micro-batch and
    schedule alone one is asked (``taut.solver.infeasibility.feasibility`` (3)), which has the least in flight too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from taut.data.units import GIB, KIB, MOST_GIB
from taut.formulations.mechanisms.offload import exceeds_hosts, has_activations_on_hosts, host_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.infeasibility.feasibility import StageNeeds, fits, leanest

MOST_KIB = MOST_GIB * GIB // KIB
"""KiB for a GPU beyond which no host is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShortfall:
    """The candidate that needs least of the hosts' memory, its bytes for each GPU, and those that are there."""

    candidate: Candidate
    needed_bytes: int
    room_bytes: int

    @property
    def missing_bytes(self) -> int:
        """Bytes that lack for each GPU."""
        return self.needed_bytes - self.room_bytes

    def __str__(self) -> str:
        sizes = self.missing_bytes, self.needed_bytes, self.room_bytes
        missing, needed, room = (f"{count / GIB:.2f} GiB" for count in sizes)
        lacks = f"{missing} ({self.missing_bytes} bytes) of the hosts' memory for each GPU"
        return f"{lacks}, of which it takes {needed} and has {room}"


def is_full(needs: StageNeeds) -> bool:
    """Whether hosts are full with what lacks least, (1)."""
    return exceeds_hosts(max(needs.needed))


def with_room(problem: PlanningProblem, kib: int, *, whole: bool = False) -> PlanningProblem:
    """The problem with at least so many KiB of its hosts' memory for each GPU, or nodes with whole GiB of that."""
    groups = []
    for group in problem.cluster.nodes:
        size = kib * KIB * group.gpus_per_node / GIB
        most = max(math.ceil(size) if whole else size, group.host_memory_gib or 0.0)
        groups.append(group.model_copy(update={"host_memory_gib": float(most)}))
    return replace(problem, cluster=problem.cluster.model_copy(update={"nodes": groups}))


def with_unlimited_hosts(problem: PlanningProblem) -> PlanningProblem:
    """The problem with hosts that are never full."""
    return with_room(problem, MOST_KIB)


def least_host_room(problem: PlanningProblem, stop: Callable[[], bool]) -> HostShortfall | None:
    """
    The least room on hosts with which a candidate fits, (2); None where none does, or ``stop`` says so before.

    ``stop``: asked before every candidate.
    """
    high, nearest, far = MOST_KIB, None, with_unlimited_hosts(problem)
    for candidate in leanest(filter(has_activations_on_hosts, problem.candidates)):
        if stop():
            break
        if not fits(far, candidate):
            continue
        low, nearest = host_bytes(problem.cluster) // KIB, candidate
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(with_room(problem, middle), candidate) else (middle, high)
        far = with_room(problem, high - 1)
    if nearest is None:
        return None
    return HostShortfall(candidate=nearest, needed_bytes=high * KIB, room_bytes=host_bytes(problem.cluster))
