r"""
Why no plan fits, by how much, and the remedies: each computed, none guessed.

The nearest candidate is the one whose best division of layers exceeds memory least; every stage of that division that
does not fit is named with its device and the bytes that are missing (``taut.solver.infeasibility.feasibility``), or,
where the hosts' memory is full, what lacks of that. Remedies that need no more hardware come first, by their lower
bound, then more nodes and larger devices. Bounds are compared with that of the same problem on devices of unlimited
memory. Ctrl-C leaves what was found by then. More hardware is tried first, for at most half of the seconds, since
changes have far more candidates and would leave it none.

A change frees what the space or its fixed values forbid, and keeps every other constraint: recompute, ZeRO stages, a
smaller micro-batch, more pipeline stages, a larger tensor degree, another schedule, sequence parallelism, a share of
the optimizer states on hosts, another one of the activations where some are there, no margin. Pipeline stages and
tensor ranks are had at the cost of replicas, so ``dp`` is freed with either.

(1) Each change is tried alone; a changed problem is searched (``taut.solver.infeasibility.feasibility`` (4)).
(2) Where none is enough alone but all together are, the sets of two are tried, then those of three, and so on, until
    some are enough.
(3) Nodes of the same kind, or whole multiples of the cluster where nodes are of several kinds, at the network's stated
    rate. Not every larger number fits, since it must divide into stages and replicas; so the next 64 numbers are all
    tried, after a doubled one that is at hand if time is over. Further ones are tried by doubling and bisection over
    those that have candidates, whose next lower one does not fit. Fixed values are dropped only where they prevent
    every number.
(4) Devices of the same speed with the least tenth of a GiB that leaves, beside the margin, what the best division of
    the leanest candidate needs.
(5) Where hosts have activations, the least memory of each for which the leanest candidate fits, in whole GiB for a node
    (7).

Hosts may lack memory too. Layers whose activations a host does not hold take ``HOST_FULL`` bytes of a device
(``taut.formulations.mechanisms.offload`` (6)), so the bytes that lack there say nothing of the host.

(6) Hosts are full where the candidate that lacks least lacks as much as that.
(7) Whether a candidate fits never changes from yes to no with more room for each GPU, so its least room is found by
    bisection over KiB; the nearest candidate is the one with the least. Of candidates that differ in micro-batch and
    schedule alone one is asked (``taut.solver.infeasibility.feasibility`` (3)), which has the least in flight too.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from itertools import combinations
from operator import attrgetter
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np

from taut.data.cluster import MOST_NODES, ClusterSpec
from taut.data.costs import RECOMPUTE, CostTable
from taut.data.units import GIB, KIB, MOST_GIB
from taut.formulations.candidates import candidates
from taut.formulations.degrees import divisors, tensor_degrees
from taut.formulations.mechanisms.offload import (
    OTHER_SHARES,
    OtherShares,
    exceeds_hosts,
    has_activations_on_hosts,
    host_bytes,
)
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import FIXES, Candidate, StrategySpace
from taut.formulations.tables.memory import stage_memory
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.infeasibility.feasibility import (
    Fit,
    best_division,
    best_fit,
    fits,
    leanest,
    least_bytes,
    least_need,
    least_share,
    nearest_division,
)
from taut.solver.placement.exact.memory_assignment import StageNeeds, least_missing
from taut.solver.result import CandidateBound, SearchResult, State

Stop = Callable[[], bool]
"""Tells whether to stop; asked before everything that takes long."""
Pricing = Callable[[int], CostTable]
"""Costs for tensor degrees up to the given one."""
Change = Callable[[PlanningProblem, Pricing], PlanningProblem | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that makes a plan fit: the problem after it, a candidate there, and a bound (None: not computed)."""

    change: str
    detail: str
    problem: PlanningProblem = field(repr=False, compare=False)
    candidate: Candidate
    lower_bound: float | None
    hardware: bool = False


def changes(problem: PlanningProblem, pricing: Pricing, stop: Stop) -> list[Remedy]:
    """Every change without more hardware that makes a plan fit, by lower bound."""
    names = [name for name, change in CHANGES.items() if not stop() and change(problem, pricing)]
    found = _enough(problem, ((name,) for name in names), pricing, stop)
    if not found and best_fit(_changed(problem, names, pricing), stop=stop):
        sizes = (combinations(names, size) for size in range(2, len(names) + 1))
        found = next(filter(None, (_enough(problem, several, pricing, stop) for several in sizes)), [])
    return sorted(found, key=lambda remedy: math.inf if remedy.lower_bound is None else remedy.lower_bound)


def _enough(problem: PlanningProblem, several: Iterable[tuple[str, ...]], pricing: Pricing, stop: Stop) -> list[Remedy]:
    """The sets of changes that make a plan fit; of those that come to the same, the first one."""
    found: dict[str, Remedy] = {}
    for names in several:
        if stop():
            break
        changed = _changed(problem, names, pricing)
        if fit := best_fit(changed, stop=stop):
            remedy = _remedy("+".join(names), problem, changed, fit)
            found.setdefault(remedy.detail, remedy)
    return list(found.values())


def _changed(problem: PlanningProblem, names: Iterable[str], pricing: Pricing) -> PlanningProblem:
    for name in names:
        problem = CHANGES[name](problem, pricing) or problem
    return problem


def _tensor_degree(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    """Any tensor degree, beyond the nodes too where they are of one size."""
    degrees = tensor_degrees(problem.model, problem.cluster, problem.cluster.num_devices)
    largest = max(degrees, default=1)
    if largest <= problem.space.max_tp:
        return _freed(problem, "tp", "dp")
    changed = _freed(problem, "tp", "dp", max_tp=largest)
    return changed and replace(changed, costs=pricing(largest))


def _frees(*fields: str, beyond: Mapping[str, object] = MappingProxyType({}), **space: object) -> Change:
    """A change that fixes some fields no longer and widens the space, ``beyond`` only where no framework is named."""
    return lambda problem, pricing: _freed(problem, *fields, **space, **({} if problem.space.stack else beyond))


def _on_hosts(ways: OtherShares) -> Change:
    """Other shares on hosts."""
    return lambda problem, pricing: ways.more(problem)


def _no_margin(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    changed = without_margin(problem)
    return None if changed.memory == problem.memory else changed


def without_margin(problem: PlanningProblem) -> PlanningProblem:
    """The problem with no memory kept free."""
    return replace(problem, memory=problem.memory.model_copy(update={"margin": 0.0, "margin_gib": 0.0}))


CHANGES: dict[str, Change] = {
    "recompute": _frees(recompute=list(RECOMPUTE)),
    "zero": _frees("zero", "dp_shard", beyond={"zero": [0, 1, 2, 3]}),
    "micro_batch": _frees("micro_batch"),
    "pipeline_stages": _frees("pp", "dp"),
    "tensor_degree": _tensor_degree,
    "schedule": _frees("schedule", beyond={"schedules": ["1f1b", "gpipe"]}),
    "sequence_parallel": _frees("sequence_parallel", sequence_parallel=[False, True]),
    **{shares.field: _on_hosts(shares) for shares in OTHER_SHARES},
    "margin": _no_margin,
}
"""Among equal bounds, and where several are needed, the first ones are preferred."""


def _freed(problem: PlanningProblem, *fields: str, **space: object) -> PlanningProblem | None:
    """The problem with these fields no longer fixed and a wider space; None if that is what it was."""
    fixed = {name: value for name, value in problem.space.fixed.items() if name not in fields}
    wider = {name: values for name, values in space.items() if _more(values, getattr(problem.space, name))}
    if not wider and fixed == problem.space.fixed:
        return None
    return replace(problem, space=problem.space.model_copy(update={"fixed": fixed, **wider}))


def _more(values: object, before: object) -> bool:
    """Whether lists hold other values, in whatever order, or numbers differ."""
    if isinstance(values, list) and isinstance(before, list):
        return len(values) != len(before) or any(value not in before for value in values)
    return values != before


def _remedy(name: str, problem: PlanningProblem, changed: PlanningProblem, fit: Fit) -> Remedy:
    parts = [_contradictions(problem.space, fit.candidate)]
    if changed.space.recompute != problem.space.recompute:
        parts.append(f"recompute {_or(changed.space.recompute)} instead of {_or(problem.space.recompute)}")
    parts += [_shares_in_words(shares, problem, changed, fit.candidate) for shares in OTHER_SHARES]
    if (changed.memory.margin, changed.memory.margin_gib) != (problem.memory.margin, problem.memory.margin_gib):
        margin = problem.memory.margin_kib(max(problem.capacity_kib)) * KIB / GIB
        parts.append(f"no memory margin instead of {margin:.3g} GiB")
    words = " and ".join(filter(None, parts))
    return Remedy(change=name, detail=words, problem=changed, candidate=fit.candidate, lower_bound=fit.lower_bound)


def _shares_in_words(
    shares: OtherShares, problem: PlanningProblem, changed: PlanningProblem, candidate: Candidate
) -> str:
    """The share on hosts that a candidate has, and those of the space before; empty where these are the same."""
    if getattr(changed.space, shares.field) == getattr(problem.space, shares.field):
        return ""
    share_of: Callable[[Candidate], float] = attrgetter(shares.field)
    share = share_of(candidate)
    least = least_share(changed, share_of) if shares.least else share
    less = f" ({least:g} fits too)" if least < share else ""
    return f"{shares.option} {share:g} instead of {shares.before(problem)}{less}"


def _contradictions(space: StrategySpace, candidate: Candidate) -> str:
    """What a candidate has that the space does not allow, and what the space allows instead."""
    # One stage, replica or tensor rank has no choice of these.
    allowed: dict[str, list[object]] = {
        "schedule": list(space.schedules) if candidate.pp > 1 else [],
        "zero": list(space.zero) if candidate.dp > 1 else [],
        "sequence_parallel": list(space.sequence_parallel) if candidate.tp > 1 else [],
    }
    allowed |= {name: [value] for name, value in space.fixed.items()}
    has = {name: getattr(candidate, name) for name in FIXES} | {"dp_shard": candidate.shards}
    old = {name: f"{name}={_or(allowed[name])}" for name in has if allowed.get(name) and has[name] not in allowed[name]}
    if candidate.tp > space.max_tp:
        old.setdefault("tp", f"tp of at most {space.max_tp}")
    new = " ".join(f"{name}={has[name]}" for name in old)
    return f"{new} instead of {' '.join(old.values())}" if old else ""


def _or(values: Iterable[object]) -> str:
    return " or ".join(map(str, values))


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

    def as_dict(self) -> dict[str, int]:
        """Plain values, for JSON."""
        sizes = {"needed_bytes": self.needed_bytes, "room_bytes": self.room_bytes}
        return sizes | {"missing_bytes": self.missing_bytes}

    def __str__(self) -> str:
        sizes = self.missing_bytes, self.needed_bytes, self.room_bytes
        missing, needed, room = (f"{count / GIB:.2f} GiB" for count in sizes)
        lacks = f"{missing} ({self.missing_bytes} bytes) of the hosts' memory for each GPU"
        return f"{lacks}, of which it takes {needed} and has {room}"


def is_full(needs: StageNeeds) -> bool:
    """Whether hosts are full with what lacks least, (6)."""
    return exceeds_hosts(max(needs.needed))


def with_room(problem: PlanningProblem, kib: int, *, whole: bool = False) -> PlanningProblem:
    """The problem with at least so many KiB of its hosts' memory for each GPU, or nodes with whole GiB of that."""
    groups = []
    for group in problem.cluster.nodes:
        size = kib * KIB * group.gpus_per_node / GIB
        most = max(math.ceil(size) if whole else size, group.host_memory_gib or 0.0)
        groups.append(group.model_copy(update={"host_memory_gib": float(most)}))
    return replace(problem, cluster=problem.cluster.model_copy(update={"nodes": groups}))


def _fits_in(candidate: Candidate, problem: PlanningProblem, kib: int) -> bool:
    return fits(with_room(problem, kib), candidate)


def least_host_room(problem: PlanningProblem, stop: Callable[[], bool]) -> HostShortfall | None:
    """The least room on hosts with which a candidate fits, (7); None where none does, or ``stop`` says so before."""
    high, nearest, far = MOST_KIB, None, with_room(problem, MOST_KIB)
    for candidate in leanest(filter(has_activations_on_hosts, problem.candidates)):
        if stop():
            break
        if not fits(far, candidate):
            continue
        low, nearest = host_bytes(problem.cluster) // KIB, candidate
        fitting = partial(_fits_in, candidate, problem)
        high = bisect_left(range(high), True, lo=low + 1, key=fitting)
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


def more_hardware(
    problem: PlanningProblem, needed: int | None, stop: Stop, stop_devices: Stop | None = None
) -> Iterator[Remedy]:
    """More nodes, then larger devices where ``needed`` bytes beside the margin suffice, if either makes a plan fit."""
    if (nodes := _more_nodes(problem, stop)) is not None:
        yield nodes
    if needed is not None and (devices := _larger_devices(problem, needed, stop_devices or stop)) is not None:
        yield devices


def larger_hosts(problem: PlanningProblem, hosts: HostShortfall, stop: Stop) -> Iterator[Remedy]:
    """Hosts with enough memory, (5)."""
    changed = with_room(problem, hosts.needed_bytes // KIB, whole=True)
    sizes = ({group.host_memory_gib or 0.0 for group in each.cluster.nodes} for each in (changed, problem))
    needed, own = (" or ".join(f"{size:g}" for size in sorted(every)) for every in sizes)
    detail = f"host_memory_gib {needed} instead of {own}"
    if remedy := _more_of("host_memory", detail, changed, best_fit(changed, stop=stop)):
        yield remedy


def without_memory_limits(problem: PlanningProblem) -> PlanningProblem:
    """The same problem on devices with as much memory as any may have, and no margin."""
    return without_margin(replace(problem, cluster=_with_memory(problem.cluster, MOST_GIB)))


def _more_nodes(problem: PlanningProblem, stop: Stop) -> Remedy | None:
    """The fewest nodes on which a plan fits, (3)."""
    fixed = problem.space.fixed
    free = replace(problem, space=problem.space.model_copy(update={"fixed": {}}))
    dropped = ", without --fix " + ",".join(f"{name}={value}" for name, value in fixed.items())
    for given, words in ((problem, ""), (free, dropped)) if fixed else ((problem, ""),):
        if (found := _fewest_nodes(given, stop)) is not None:
            count, is_least = found
            fewer = "" if is_least else " (not all smaller numbers were tried)"
            detail = f"{count} such nodes{fewer} instead of {problem.cluster.num_nodes}{words}"
            grown = replace(given, cluster=_with_nodes(given.cluster, count))
            known = count <= MOST_PRICED_NODES and given.cluster.network.bandwidth_gbps is not None
            return _more_of("nodes", detail, grown, (best_fit(grown, stop=stop) if known else None) or _some_fit(grown))
    return None


def _more_of(change: str, detail: str, problem: PlanningProblem, fit: Fit | None) -> Remedy | None:
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
    """Some candidate that fits, without a bound: the links are unknown or too many, or the time is over."""
    each = sorted(leanest(problem.candidates), key=lambda lean: lean.is_order_priced)
    return next((Fit(candidate=lean) for lean in each if fits(problem, lean)), None)


def _fewest_nodes(problem: PlanningProblem, stop: Stop) -> tuple[int, bool] | None:
    """The fewest nodes that hold the model, (3), or some that do, and whether they are the fewest."""
    now = problem.cluster.num_nodes
    step = 1 if _alike(problem.cluster) else now
    first, most = now // step, min(MOST_TIMES_NODES * now, MOST_NODES) // step
    near = min(first + NUMBERS_TRIED, most)
    # A doubled number that holds them is at hand where the time is over before all numbers are tried.
    doubled = (first << k for k in range(1, MOST_TIMES_NODES.bit_length()))
    tried = (count for count in doubled if count <= most and _holds(problem, count * step, stop, likely=True))
    found = next(tried, None)
    for count in range(first + 1, near + 1 if found is None else min(found, near + 1)):
        if _holds(problem, count * step, stop):
            return count * step, True
    if found is not None and (found <= near or stop()):
        return found * step, found == first + 1 or not stop()
    fewest = _by_bisection(problem, near, most + 1, step, stop)
    if fewest is None or stop():
        return None if found is None else (found * step, False)
    return fewest * step, True


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


def _holds(problem: PlanningProblem, nodes: int, stop: Stop, *, likely: bool = False) -> bool:
    """Whether a candidate fits on so many nodes, of the ``likely`` ones that keep least for the backward pass."""
    # With one type of device memory does not depend on the links, and those of the given cluster are at hand.
    one_type = len(problem.device_types) == 1
    grown = problem if one_type else replace(problem, cluster=_with_nodes(problem.cluster, nodes))
    every = _lean(problem, nodes)
    if likely:
        every = [each for each in every if each.uniform_recompute in ("", "full")]
        every = [each for each in every if each.sequence_parallel == (each.tp > 1)] or every
    return any(not stop() and fits(grown, lean) for lean in sorted(every, key=lambda lean: -lean.width * lean.pp))


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
    """The same devices with enough memory, (4)."""
    high = bisect_left(range(10 * MOST_GIB), needed, lo=1, key=lambda tenths: _room(problem, tenths / 10))
    if _room(problem, high / 10) < needed:
        return None
    changed = replace(problem, cluster=_with_memory(problem.cluster, high / 10))
    small = sorted({device.memory_gib for device in problem.cluster.devices.values() if 10 * device.memory_gib < high})
    detail = f"devices with {high / 10:.1f} GiB instead of {' or '.join(f'{size:g}' for size in small)} GiB"
    fit = None if stop() else best_fit(changed, stop=stop) or _some_fit(changed)
    return _more_of("device_memory", detail, changed, fit)


def _room(problem: PlanningProblem, gib: float) -> int:
    """Bytes beside the margin on a device of so many GiB."""
    cluster = _with_memory(problem.cluster, gib, exactly=True)
    return int(stage_memory(replace(problem, cluster=cluster), problem.candidates[0]).budget.min())


def _with_memory(cluster: ClusterSpec, gib: float, *, exactly: bool = False) -> ClusterSpec:
    """The cluster with at least so much memory on every device, or exactly so much."""
    groups = []
    for group in cluster.nodes:
        size = gib if exactly else max(gib, group.device.memory_gib)
        groups.append(group.model_copy(update={"device": group.device.model_copy(update={"memory_gib": size})}))
    return cluster.model_copy(update={"nodes": groups})


MOST_NAMED = 3
"""Stages that the sentence names beside the worst one, and remedies without more hardware beside the nearest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A stage that does not fit, alike on ``devices`` of them: the first device in node order, and bytes."""

    stage: int
    device: int
    device_type: str
    devices: int
    missing_bytes: int
    capacity_bytes: int
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasibility:
    """
    The nearest division, the stages that do not fit, and the remedies, the cheapest first.

    ``unlimited_bound`` are seconds that no plan would beat if memory were unlimited; ``complete`` is false where Ctrl-C
    or the time limit came before all remedies were tried. Where hosts are full, ``hosts`` says what lacks there, and
    ``nearest`` is the division that would fit.
    """

    nearest: StageNeeds
    shortfalls: tuple[Shortfall, ...]
    remedies: tuple[Remedy, ...]
    unlimited_bound: float | None
    complete: bool
    hosts: HostShortfall | None = None

    def slowdown(self, remedy: Remedy) -> float | None:
        """Bound of a remedy relative to that without memory limits, less 1; below 0 with more hardware."""
        if not self.unlimited_bound or remedy.lower_bound is None:
            return None
        return remedy.lower_bound / self.unlimited_bound - 1

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        strategy = self.nearest.strategy
        return {
            "status": "infeasible",
            "candidate": {
                **strategy.candidate.as_dict(),
                "stages": [list(stage) for stage in strategy.layer_stages],
                "recompute": list(strategy.recompute),
            },
            "devices": [asdict(shortfall) for shortfall in self.shortfalls],
            **({"hosts": self.hosts.as_dict()} if self.hosts else {}),
            "unlimited_memory_lower_bound_s": self.unlimited_bound,
            "ways_out": [
                {
                    "change": remedy.change,
                    "detail": remedy.detail,
                    "step_time_lower_bound_s": remedy.lower_bound,
                    "slowdown": self.slowdown(remedy),
                    "candidate": remedy.candidate.as_dict(),
                }
                for remedy in self.remedies
            ],
            "complete": self.complete,
        }

    def __str__(self) -> str:
        """One sentence."""
        lacks = str(self.hosts) if self.hosts else _missing(self.shortfalls)
        return (
            f"no plan fits: the nearest, {self.nearest.strategy.candidate}, even with the best stages and "
            f"recompute lacks {lacks}; {self._remedies()}"
        )

    def _remedies(self) -> str:
        tried = "" if self.complete else "; stopped before all were tried, which a longer --time-limit does"
        if not self.remedies:
            return f"no way out found{tried}"
        nearest, *others = self.remedies
        kept = [remedy for remedy in others if not remedy.hardware][:MOST_NAMED] + [
            remedy for remedy in others if remedy.hardware
        ]
        words = [self._priced(remedy) for remedy in kept]
        words += [f"{len(others) - len(kept)} more"] if len(others) > len(kept) else []
        also = "; or: " + ", ".join(words) if words else ""
        limit = f" against {self.unlimited_bound:.3g} s with unlimited memory" if self.unlimited_bound else ""
        return f"nearest way out: {self._priced(nearest, limit)}{also}{tried}"

    def _priced(self, remedy: Remedy, limit: str = "") -> str:
        if remedy.lower_bound is None:
            return remedy.detail
        slowdown = self.slowdown(remedy)
        relative = "" if slowdown is None else f", {round(100 * slowdown):+d} %{limit}"
        return f"{remedy.detail} (at least {remedy.lower_bound:.3g} s a step{relative})"


def diagnose(
    problem: PlanningProblem,
    result: SearchResult,
    *,
    pricing: Callable[[int], CostTable] | None = None,
    seconds: float | None = None,
) -> Infeasibility:
    """Which devices lack memory, how much, and what would make a plan fit, tried for so many ``seconds`` at most."""
    began = perf_counter()
    refused = [bound for bound in result.bounds if bound.state is State.INFEASIBLE]
    # Of order-priced candidates the least missing bytes are known less closely.
    quickest = min((bound.candidate.effort for bound in refused), default=0)
    refused = [bound for bound in refused if bound.candidate.effort == quickest]
    nearest = nearest_division(problem, [(_lacking(problem, bound), bound.candidate) for bound in refused])
    with interrupt_requested() as interrupted:

        def stop(share: float = 1.0) -> bool:
            return interrupted() or (seconds is not None and perf_counter() - began > share * seconds)

        hosts, given = least_host_room(problem, stop), problem
        if is_full(nearest):
            given = with_room(problem, MOST_KIB)
            nearest = _on_larger_hosts(problem, given, hosts)
        needed = _sufficient(given, nearest) if any(nearest.missing) else None
        hardware = list(more_hardware(problem, needed, partial(stop, 0.3), partial(stop, 0.5)))
        cut = stop(0.5)
        remedies = changes(problem, cache(pricing or (lambda largest: problem.costs)), stop)
        remedies += [] if hosts is None else larger_hosts(problem, hosts, stop)
        remedies += hardware
        unlimited = best_fit(without_memory_limits(given), stop=stop)
        return Infeasibility(
            nearest=nearest,
            shortfalls=_shortfalls(problem, nearest),
            remedies=tuple(remedies),
            unlimited_bound=None if unlimited is None else unlimited.lower_bound,
            complete=not (cut or stop()),
            hosts=None if any(nearest.missing) else hosts,
        )


def _on_larger_hosts(problem: PlanningProblem, unlimited: PlanningProblem, hosts: HostShortfall | None) -> StageNeeds:
    """The division that fits with enough of the hosts' memory, or else the nearest on ``unlimited`` hosts."""
    if hosts is not None:
        return best_division(with_room(problem, hosts.needed_bytes // KIB), hosts.candidate)
    close, least = list[tuple[int, Candidate]](), math.inf
    for bound, candidate in sorted((least_bytes(unlimited, each)[0], each) for each in leanest(unlimited.candidates)):
        if bound >= least + KIB:
            break
        needed = least_need(unlimited, candidate)
        least = min(least, needed)
        close.append((max(needed - int(stage_memory(unlimited, candidate).budget.max()), 0), candidate))
    return nearest_division(unlimited, close)


def _lacking(problem: PlanningProblem, bound: CandidateBound) -> int:
    """Bytes that a candidate lacks: those of its proof, or of its best assignment where a proof names none."""
    if "missing_kib" in bound.witness:
        return int(bound.witness["missing_kib"]) * KIB
    found = least_missing(problem, bound.candidate)
    return 0 if found is None else max(found.missing)


def _sufficient(problem: PlanningProblem, nearest: StageNeeds) -> int:
    """Bytes that every device must have beside its margin for the leanest candidate."""
    if len(problem.device_types) == 1:
        return max(nearest.needed)
    return min(least_need(problem, candidate) for candidate in problem.candidates)


def _shortfalls(problem: PlanningProblem, nearest: StageNeeds) -> tuple[Shortfall, ...]:
    """The stages that do not fit, the worst first; stages take the devices of a type in node order."""
    of_device = problem.type_of_node[problem.links.node_of]
    kinds, each = nearest.device_types, nearest.strategy.candidate.pipelines * nearest.strategy.candidate.width
    found = []
    for x, (kind, missing) in enumerate(zip(kinds, nearest.missing, strict=True)):
        if missing:
            devices = np.flatnonzero(of_device == kind)
            found.append(
                Shortfall(
                    stage=x,
                    device=int(devices[min(kinds[:x].count(kind) * each, len(devices) - 1)]),
                    device_type=problem.device_types[kind],
                    devices=each,
                    missing_bytes=missing,
                    capacity_bytes=problem.capacity_kib[kind] * KIB,
                    needed_bytes=nearest.needed[x],
                )
            )
    return tuple(sorted(found, key=lambda shortfall: -shortfall.missing_bytes))


def _missing(shortfalls: tuple[Shortfall, ...]) -> str:
    """The worst stage in full, the next ones in short."""
    worst, *others = shortfalls
    margin = worst.capacity_bytes - worst.needed_bytes + worst.missing_bytes
    words = [
        f"{_gib(worst.missing_bytes)} ({worst.missing_bytes} bytes) on device {worst.device} ({worst.device_type}, "
        f"stage {worst.stage}), which has {worst.capacity_bytes / GIB:g} GiB less {_gib(margin)} of margin"
    ]
    words += [f"{_gib(one.missing_bytes)} on device {one.device} (stage {one.stage})" for one in others[:MOST_NAMED]]
    if len(others) > MOST_NAMED:
        words.append(f"up to {_gib(others[MOST_NAMED].missing_bytes)} on {len(others) - MOST_NAMED} more stages")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
