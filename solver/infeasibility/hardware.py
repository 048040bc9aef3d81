r"""
How much more hardware makes a plan fit: the fewest nodes, and the least memory of a device.

(1) Nodes of the same kind, or whole multiples of the cluster where nodes are of several kinds, at the network's stated
    rate. Not every larger number fits, since it must divide into stages and replicas; so the next 64 numbers are all
    tried, and further ones by doubling and bisection over those that have candidates, whose next lower one does not
    fit. Fixed values are dropped only where they prevent every number.
(2) Devices of the same speed with the least tenth of a GiB that leaves, beside the margin, what the best division of
    the leanest candidate needs.
(3) Where hosts have activations, the least memory of each for which the leanest candidate fits, in whole GiB for a node
    (5).

Hosts may lack memory too. Layers whose activations a host does not hold take ``HOST_FULL`` bytes of a device
(``taut.formulations.mechanisms.offload`` (6)), so the bytes that lack there say nothing of the host.

(4) Hosts are full where the candidate that lacks least lacks as much as that.
(5) Whether a candidate fits never changes from yes to no with more room for each GPU, so its least room is found by
    bisection over KiB; the nearest candidate is the one with the least. Of candidates that differ in micro-batch and
    schedule alone one is asked (``taut.solver.infeasibility.feasibility`` (3)), which has the least in flight too.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from taut.data.cluster import MOST_NODES, ClusterSpec
from taut.data.units import GIB, KIB, MOST_GIB
from taut.formulations.candidates import candidates
from taut.formulations.degrees import divisors
from taut.formulations.mechanisms.offload import exceeds_hosts, has_activations_on_hosts, host_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.infeasibility.changes import Remedy, Stop, without_margin
from taut.solver.infeasibility.feasibility import Fit, StageNeeds, best_fit, fits, leanest

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
    """Whether hosts are full with what lacks least, (4)."""
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
    The least room on hosts with which a candidate fits, (5); None where none does, or ``stop`` says so before.

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


NUMBERS_TRIED = 64
"""Next larger numbers of nodes that are all tried, since few of them may divide into stages and replicas."""
MOST_TIMES_NODES = 64
"""Largest multiple of the cluster that is tried."""
MOST_PRICED_NODES = 512
"""Matrices between more nodes take too long to bound what would run on them."""


def more_hardware(problem: PlanningProblem, needed: int | None, stop: Stop) -> Iterator[Remedy]:
    """
    More nodes and larger devices, where either makes a plan fit.

    ``needed``: bytes that suffice on every device, beside the margin; None where devices lack nothing; ``stop``: as its
    type says.
    """
    devices = None if needed is None else _larger_devices(problem, needed, stop)
    for remedy in (_more_nodes(problem, stop), devices):
        if remedy is not None:
            yield remedy


def larger_hosts(problem: PlanningProblem, hosts: HostShortfall, stop: Stop) -> Iterator[Remedy]:
    """Hosts with enough memory, (3)."""
    changed = with_room(problem, hosts.needed_bytes // KIB, whole=True)
    sizes = ({group.host_memory_gib or 0.0 for group in each.cluster.nodes} for each in (changed, problem))
    needed, own = (" or ".join(f"{size:g}" for size in sorted(every)) for every in sizes)
    detail = f"host_memory_gib {needed} instead of {own}"
    if remedy := _remedy("host_memory", detail, changed, best_fit(changed, stop=stop)):
        yield remedy


def without_memory_limits(problem: PlanningProblem) -> PlanningProblem:
    """The same problem on devices with as much memory as any may have, and no margin."""
    return without_margin(replace(problem, cluster=_with_memory(problem.cluster, MOST_GIB)))


def _more_nodes(problem: PlanningProblem, stop: Stop) -> Remedy | None:
    """The fewest nodes on which a plan fits, (1)."""
    fixed = problem.space.fixed
    free = replace(problem, space=problem.space.model_copy(update={"fixed": {}}))
    dropped = ", without --fix " + ",".join(f"{name}={value}" for name, value in fixed.items())
    for given, words in ((problem, ""), (free, dropped)) if fixed else ((problem, ""),):
        count = _fewest_nodes(given, stop)
        if count is not None:
            detail = f"{count} such nodes instead of {problem.cluster.num_nodes}{words}"
            grown = replace(given, cluster=_with_nodes(given.cluster, count))
            known = count <= MOST_PRICED_NODES and given.cluster.network.bandwidth_gbps is not None
            return _remedy("nodes", detail, grown, best_fit(grown, stop=stop) if known else _some_fit(grown))
    return None


def _remedy(change: str, detail: str, problem: PlanningProblem, fit: Fit | None) -> Remedy | None:
    if fit is None:
        return None
    return Remedy(
        change=change,
        detail=detail,
        problem=problem,
        candidate=fit.candidate,
        lower_bound=fit.lower_bound,
        hardware=True,
    )


def _some_fit(problem: PlanningProblem) -> Fit | None:
    """Some candidate that fits, without a bound: the links are unknown or too many."""
    found = (Fit(candidate=lean) for lean in leanest(problem.candidates) if fits(problem, lean))
    return next(found, None)


def _fewest_nodes(problem: PlanningProblem, stop: Stop) -> int | None:
    """The fewest nodes that hold the model, (1)."""
    now = problem.cluster.num_nodes
    step = 1 if _alike(problem.cluster) else now
    most = min(MOST_TIMES_NODES * now, MOST_NODES) // step
    near = min(now // step + NUMBERS_TRIED, most)
    for count in range(now // step + 1, near + 1):
        if _holds(problem, count * step, stop):
            return count * step
    fewest = _by_bisection(problem, near, most + 1, step, stop)
    return None if fewest is None or stop() else fewest * step


def _by_bisection(problem: PlanningProblem, low: int, end: int, step: int, stop: Stop) -> int | None:
    """The fewest steps in (low, end) that hold the model: doubling, then bisection."""
    fewest = None
    while fewest is None:
        probe = min(2 * low, end - 1)
        if probe <= low:
            return None
        count = _next_count(problem, probe, end, step, stop)
        if count is None:
            end = probe
        elif _holds(problem, count * step, stop):
            fewest = end = count
        else:
            low = count
    while end - low > 1:
        middle = (low + end) // 2
        count = _next_count(problem, middle, end, step, stop)
        if count is not None and not _holds(problem, count * step, stop):
            low = count
        else:
            fewest, end = count or fewest, middle
    return fewest


def _next_count(problem: PlanningProblem, first: int, end: int, step: int, stop: Stop) -> int | None:
    """The least number of steps in [first, end) with candidates."""
    return next((count for count in range(first, end) if not stop() and _lean(problem, count * step)), None)


def _holds(problem: PlanningProblem, nodes: int, stop: Stop) -> bool:
    """Whether a candidate fits on so many nodes."""
    # With one type of device memory does not depend on the links, and those of the given cluster are at hand.
    one_type = len(problem.device_types) == 1
    grown = problem if one_type else replace(problem, cluster=_with_nodes(problem.cluster, nodes))
    return any(not stop() and fits(grown, lean) for lean in _lean(problem, nodes))


def _lean(problem: PlanningProblem, nodes: int) -> list[Candidate]:
    """The candidates on so many nodes that need least memory: 1F1B with the smallest micro-batch that has a price."""
    space, cluster = problem.space, _with_nodes(problem.cluster, nodes)
    quick = {"schedules": ["1f1b"]} if "1f1b" in space.schedules and "schedule" not in space.fixed else {}
    for micro_batch in divisors(space.global_batch):
        fixed = {"micro_batch": micro_batch, **space.fixed}
        found = candidates(space.model_copy(update={**quick, "fixed": fixed}), problem.model, cluster, problem.costs)
        if found or "micro_batch" in space.fixed:
            return list(leanest(found))
    return []


def _alike(cluster: ClusterSpec) -> bool:
    """Whether all nodes are of one kind."""
    return all(
        group.model_copy(update={"count": 1}) == cluster.nodes[0].model_copy(update={"count": 1})
        for group in cluster.nodes
    )


def _with_nodes(cluster: ClusterSpec, nodes: int) -> ClusterSpec:
    """The cluster with so many nodes, without measured matrices and racks."""
    plain = cluster.scaled(1)
    if _alike(cluster):
        groups = [cluster.nodes[0].model_copy(update={"count": nodes})]
    else:
        factor = nodes // cluster.num_nodes
        groups = [group.model_copy(update={"count": group.count * factor}) for group in cluster.nodes]
    return plain.model_copy(update={"nodes": groups, "name": f"{cluster.name} with {nodes} nodes"})


def _larger_devices(problem: PlanningProblem, needed: int, stop: Stop) -> Remedy | None:
    """The same devices with enough memory, (2)."""
    low, high = 0, 10 * MOST_GIB
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _room(problem, middle / 10) >= needed else (middle, high)
    if _room(problem, high / 10) < needed:
        return None
    changed = replace(problem, cluster=_with_memory(problem.cluster, high / 10))
    small = sorted({device.memory_gib for device in problem.cluster.devices.values() if 10 * device.memory_gib < high})
    detail = f"devices with {high / 10:.1f} GiB instead of {' or '.join(f'{size:g}' for size in small)} GiB"
    return _remedy("device_memory", detail, changed, best_fit(changed, stop=stop))


def _room(problem: PlanningProblem, gib: float) -> int:
    """Bytes beside the margin on a device of so many GiB."""
    cluster = _with_memory(problem.cluster, gib, exactly=True)
    return int(replace(problem, cluster=cluster).stage_memory(problem.candidates[0]).budget.min())


def _with_memory(cluster: ClusterSpec, gib: float, *, exactly: bool = False) -> ClusterSpec:
    """The cluster with at least so much memory on every device, or exactly so much."""
    groups = []
    for group in cluster.nodes:
        size = gib if exactly else max(gib, group.device.memory_gib)
        groups.append(group.model_copy(update={"device": group.device.model_copy(update={"memory_gib": size})}))
    return cluster.model_copy(update={"nodes": groups})
