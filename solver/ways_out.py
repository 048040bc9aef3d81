r"""
What would make a plan fit: each change computed, its seconds bounded, the cheapest first.

Changes of two sorts are tried, every other constraint of the problem being kept:

(1) without more hardware: recompute, ZeRO stages, a smaller micro-batch, more pipeline stages, a larger tensor degree,
    another schedule, sequence parallelism, no margin. A change frees what the space or its fixed values forbid. Where
    none of them is enough alone, all are made at once and then taken back one by one while a plan still fits;
(2) with more: the fewest nodes of the same kind, by doubling and then bisection over the numbers of nodes that have
    candidates, and the smallest memory that every device must have, to a tenth of a GiB.

Each is a planning problem of its own, bounded by its candidates that fit (``taut.solver.fitting``). Changes without
more hardware are listed by bound, hardware after them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import ceil

from taut.data.cluster import MOST_NODES, ClusterSpec
from taut.data.costs import RECOMPUTE, CostTable
from taut.data.units import GIB, MOST_GIB
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import FIXABLE, Candidate, StrategySpace, divisors, tensor_degrees
from taut.solver.fitting import Fit, best_fit, fits, leanest

MOST_TIMES_NODES = 64
MOST_PRICED_NODES = 512
"""Matrices between more nodes take too long to bound what would run on them."""

Stop = Callable[[], bool]
Pricing = Callable[[StrategySpace], CostTable]
Change = Callable[[PlanningProblem, Pricing], PlanningProblem | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """
    A change that makes a plan fit.

    ``change`` names what is changed, ``detail`` says to what, ``problem`` is the problem after it, and ``lower_bound``
    are seconds that none of its plans beats, None where that was not computed.
    """

    change: str
    detail: str
    problem: PlanningProblem = field(repr=False, compare=False)
    candidate: Candidate
    lower_bound: float | None


def ways_out(problem: PlanningProblem, needed: int, *, pricing: Pricing | None = None, stop: Stop) -> list[WayOut]:
    """
    Every change that makes a plan fit, the cheapest first.

    Parameters
    ----------
    problem
        A problem in which no candidate fits.
    needed
        Bytes that suffice on every device.
    pricing
        Costs for a space with larger tensor degrees; the problem's own without it.
    stop
        Asked all the time; what was found by then is returned.
    """
    pricing = pricing or (lambda space: problem.costs)
    found = {way.detail: way for way in _single_changes(problem, pricing, stop)}
    if not found and (together := _together(problem, pricing, stop)):
        found[together.detail] = together
    ranked = sorted(found.values(), key=lambda way: way.lower_bound or 0.0)
    more = [_more_nodes(problem, stop), _larger_devices(problem, needed, stop)]
    return ranked + [way for way in more if way is not None]


def without_memory_limits(problem: PlanningProblem) -> PlanningProblem:
    """The same problem on devices with as much memory as any may have, and no margin."""
    memory = problem.memory.model_copy(update={"margin": 0.0})
    return replace(problem, cluster=_with_memory(problem.cluster, MOST_GIB), memory=memory)


def _single_changes(problem: PlanningProblem, pricing: Pricing, stop: Stop) -> Iterator[WayOut]:
    for name, change in CHANGES.items():
        changed = change(problem, pricing)
        if changed is not None and not stop() and (fit := _fit(problem, changed, stop)):
            yield _way(name, problem, changed, fit)


def _fit(problem: PlanningProblem, changed: PlanningProblem, stop: Stop) -> Fit | None:
    """The best candidate that fits; those of the old space need no second look unless their memory changed."""
    same = changed.space.recompute == problem.space.recompute and changed.memory == problem.memory
    return best_fit(changed, refused=problem.candidates if same else (), stop=stop)


def _together(problem: PlanningProblem, pricing: Pricing, stop: Stop) -> WayOut | None:
    """A set of changes of which none can be left out, or None if even all of them do not suffice."""
    names = list(CHANGES)
    if stop() or not _any_fits(_changed(problem, names, pricing), stop):
        return None
    for name in reversed(CHANGES):
        fewer = [kept for kept in names if kept != name]
        if _any_fits(_changed(problem, fewer, pricing), stop):
            names = fewer
    changed = _changed(problem, names, pricing)
    fit = _fit(problem, changed, stop)
    return None if fit is None else _way("+".join(names), problem, changed, fit)


def _changed(problem: PlanningProblem, names: Iterable[str], pricing: Pricing) -> PlanningProblem:
    for name in names:
        problem = CHANGES[name](problem, pricing) or problem
    return problem


def _any_fits(problem: PlanningProblem, stop: Stop) -> bool:
    return any(not stop() and fits(problem, lean) for lean in leanest(problem.candidates))


def _more_recompute(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    if len(problem.space.recompute) == len(RECOMPUTE):
        return None
    return _with_space(problem, recompute=list(RECOMPUTE))


def _sharded(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    """Every ZeRO stage."""
    return _freed(problem, "zero", zero=[0, 1, 2, 3])


def _smaller_micro_batch(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "micro_batch")


def _more_stages(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "pp", "dp")


def _more_ranks(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    """Larger tensor degrees, beyond nodes too where nodes are of one size."""
    degrees = tensor_degrees(problem.model, problem.cluster, problem.cluster.num_devices)
    if max(degrees, default=1) <= problem.space.max_tp:
        return _freed(problem, "tp", "dp")
    changed = _freed(problem, "tp", "dp", max_tp=max(degrees))
    return None if changed is None else replace(changed, costs=pricing(changed.space), _tables={})


def _other_schedule(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "schedule", schedules=["1f1b", "gpipe"])


def _sequence_parallel(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "sequence_parallel", sequence_parallel=[False, True])


def _no_margin(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    if problem.memory.margin == 0:
        return None
    return replace(problem, memory=problem.memory.model_copy(update={"margin": 0.0}))


CHANGES: dict[str, Change] = {
    "recompute": _more_recompute,
    "zero": _sharded,
    "micro_batch": _smaller_micro_batch,
    "pipeline_stages": _more_stages,
    "tensor_degree": _more_ranks,
    "schedule": _other_schedule,
    "sequence_parallel": _sequence_parallel,
    "margin": _no_margin,
}
"""Changes without more hardware; among equal bounds, and when several are needed, the first ones are preferred."""


def _freed(problem: PlanningProblem, *fields: str, **space: object) -> PlanningProblem | None:
    """The problem with these fields no longer fixed and a wider space; None if that is what it was."""
    fixed = {name: value for name, value in problem.space.fixed.items() if name not in fields}
    changed = _with_space(problem, fixed=fixed, **space)
    return None if changed.space == problem.space else changed


def _with_space(problem: PlanningProblem, **space: object) -> PlanningProblem:
    return replace(problem, space=problem.space.model_copy(update=space))


def _way(name: str, problem: PlanningProblem, changed: PlanningProblem, fit: Fit) -> WayOut:
    parts = [_contradictions(problem.space, fit.candidate)]
    if changed.space.recompute != problem.space.recompute:
        parts.append(f"recompute {' or '.join(changed.space.recompute)} instead of {_or(problem.space.recompute)}")
    if changed.memory.margin != problem.memory.margin:
        parts.append(f"no memory margin instead of {problem.memory.margin:.0%}")
    words = " and ".join(part for part in parts if part)
    return WayOut(change=name, detail=words, problem=changed, candidate=fit.candidate, lower_bound=fit.lower_bound)


def _contradictions(space: StrategySpace, candidate: Candidate) -> str:
    """What a candidate has that the space does not allow, and what it allows instead."""
    allowed: dict[str, list[int] | list[str] | list[bool]] = {
        "schedule": list(space.schedules),
        "zero": list(space.zero),
        "sequence_parallel": space.sequence_parallel,
    }
    new, old = [], []
    for name in FIXABLE:
        value = getattr(candidate, name)
        if name in space.fixed and value != space.fixed[name]:
            old.append(f"{name}={space.fixed[name]}")
        elif name in allowed and value not in allowed[name] and (value or name != "zero"):
            old.append(f"{name}={_or(allowed[name])}")
        elif name == "tp" and value > space.max_tp:
            old.append(f"tp of at most {space.max_tp}")
        else:
            continue
        new.append(f"{name}={value}")
    return f"{' '.join(new)} instead of {' '.join(old)}" if new else ""


def _or(values: Iterable[object]) -> str:
    return " or ".join(map(str, values))


def _larger_devices(problem: PlanningProblem, needed: int, stop: Stop) -> WayOut | None:
    """The same devices with the least tenth of a GiB that leaves the needed bytes beside the margin."""
    low, high = 0, 10 * MOST_GIB
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _room(problem, middle / 10) >= needed else (middle, high)
    if stop() or _room(problem, high / 10) < needed:
        return None
    changed = replace(problem, cluster=_with_memory(problem.cluster, high / 10))
    fit = best_fit(changed, stop=stop)
    if fit is None:
        return None
    sizes = sorted({device.memory_gib for device in problem.cluster.devices.values()})
    detail = f"devices with {high / 10:.1f} GiB instead of {' and '.join(f'{size:g}' for size in sizes)} GiB"
    return WayOut(
        change="device_memory", detail=detail, problem=changed, candidate=fit.candidate, lower_bound=fit.lower_bound
    )


def _room(problem: PlanningProblem, gib: float) -> int:
    """Bytes beside the margin on a device of so many GiB."""
    cluster = _with_memory(problem.cluster, gib, exactly=True)
    return int(replace(problem, cluster=cluster).stage_memory(problem.candidates[0]).budget.min())


def _with_memory(cluster: ClusterSpec, gib: float, *, exactly: bool = False) -> ClusterSpec:
    """The cluster with at least so much memory on every device."""
    groups = []
    for group in cluster.nodes:
        size = gib if exactly else max(gib, group.device.memory_gib)
        groups.append(group.model_copy(update={"device": group.device.model_copy(update={"memory_gib": size})}))
    return cluster.model_copy(update={"nodes": groups})


def _more_nodes(problem: PlanningProblem, stop: Stop) -> WayOut | None:
    """The fewest nodes on which the problem fits, without the fixed values only where they prevent it."""
    for fixed in {str(fixed): fixed for fixed in (problem.space.fixed, {})}.values():
        given = _with_space(problem, fixed=fixed)
        count = _fewest_nodes(given, stop)
        if count is None:
            continue
        grown = replace(given, cluster=_with_nodes(problem.cluster, count))
        fit = best_fit(grown, stop=stop) if count <= MOST_PRICED_NODES else None
        chosen = fit.candidate if fit else next(lean for lean in _lean(given, count) if fits(grown, lean))
        dropped = "" if fixed == problem.space.fixed else f", without {_settings(problem.space.fixed)}"
        return WayOut(
            change="nodes",
            detail=f"{count} such nodes instead of {problem.cluster.num_nodes}{dropped}",
            problem=grown,
            candidate=chosen,
            lower_bound=fit.lower_bound if fit else None,
        )
    return None


def _settings(fixed: dict[str, int | str | bool]) -> str:
    return "--fix " + ",".join(f"{name}={value}" for name, value in fixed.items())


def _fewest_nodes(problem: PlanningProblem, stop: Stop) -> int | None:
    """The fewest nodes that hold the model, by doubling and bisection over the numbers that have candidates."""
    step = 1 if _alike(problem.cluster) else problem.cluster.num_nodes
    most = min(MOST_TIMES_NODES * problem.cluster.num_nodes, MOST_NODES) // step
    low = problem.cluster.num_nodes // step
    high = min(2 * low, most)
    while not (fitting := _first_with_candidates(problem, low + 1, high, step)) or not _holds(problem, fitting * step):
        low = fitting or low
        if high == most or stop():
            return None
        high = min(2 * high, most)
    return None
