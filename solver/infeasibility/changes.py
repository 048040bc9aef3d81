r"""
Changes without more hardware that make a plan fit, each computed and its seconds bounded.

A change frees what the space or its fixed values forbid, and keeps every other constraint: recompute, ZeRO stages, a
smaller micro-batch, more pipeline stages, a larger tensor degree, another schedule, sequence parallelism, a share of
the optimizer states on hosts, another one of the activations where some are there, no margin.
Pipeline stages and tensor ranks are had at the cost of replicas, so ``dp`` is freed with either.

(1) Each change is tried alone; a changed problem is bounded by its candidates that fit
    (``taut.solver.infeasibility.feasibility``).
(2) Where none is enough alone but all together are, the sets of two are tried, then those of three, and so on, until
    some are enough.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import combinations
from operator import attrgetter

from taut.data.costs import RECOMPUTE, CostTable
from taut.data.units import GIB, KIB
from taut.formulations.degrees import tensor_degrees
from taut.formulations.mechanisms.offload import OTHER_SHARES, OtherShares
from taut.formulations.problem import MOST_KEPT, PlanningProblem, Recent
from taut.formulations.space import FIXES, Candidate, StrategySpace
from taut.solver.infeasibility.feasibility import Fit, any_fits, best_fit, least_share

Stop = Callable[[], bool]
"""Tells whether to stop; asked before everything that takes long."""
Pricing = Callable[[int], CostTable]
"""Costs for tensor degrees up to the given one."""
Change = Callable[[PlanningProblem, Pricing], PlanningProblem | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """
    A change that makes a plan fit.

    ``change`` names what is changed, ``detail`` says to what, ``problem`` is the problem after it, ``candidate`` one
    that fits there, and ``lower_bound`` are seconds that no plan of it beats, None where that was not computed.
    ``hardware`` says that it takes more of it.
    """

    change: str
    detail: str
    problem: PlanningProblem = field(repr=False, compare=False)
    candidate: Candidate
    lower_bound: float | None
    hardware: bool = False


def changes(problem: PlanningProblem, pricing: Pricing, stop: Stop) -> list[Remedy]:
    """
    Every change without more hardware that makes a plan fit, by lower bound.

    ``pricing``, ``stop``: as their types say.
    """
    names = [name for name, change in CHANGES.items() if not stop() and change(problem, pricing)]
    found = _enough(problem, ((name,) for name in names), pricing, stop)
    if not found and any_fits(_changed(problem, names, pricing), stop=stop):
        sizes = (combinations(names, size) for size in range(2, len(names) + 1))
        found = next(filter(None, (_enough(problem, several, pricing, stop) for several in sizes)), [])
    return sorted(found, key=lambda remedy: remedy.lower_bound or 0.0)


def _enough(problem: PlanningProblem, several: Iterable[tuple[str, ...]], pricing: Pricing, stop: Stop) -> list[Remedy]:
    """The sets of changes that make a plan fit; of those that come to the same, the first one."""
    found: dict[str, Remedy] = {}
    for names in several:
        changed = _changed(problem, names, pricing)
        if any_fits(changed, stop=stop) and (fit := _fit(problem, changed, stop)):
            remedy = _remedy("+".join(names), problem, changed, fit)
            found.setdefault(remedy.detail, remedy)
    return list(found.values())


def _fit(problem: PlanningProblem, changed: PlanningProblem, stop: Stop) -> Fit | None:
    """The best candidate that fits; those of the old space need no second look unless their memory changed."""
    same = changed.space.recompute == problem.space.recompute and changed.memory == problem.memory
    return best_fit(changed, refused=problem.candidates if same else (), stop=stop)


def _changed(problem: PlanningProblem, names: Iterable[str], pricing: Pricing) -> PlanningProblem:
    for name in names:
        problem = CHANGES[name](problem, pricing) or problem
    return problem


def _recompute(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, recompute=list(RECOMPUTE))


def _zero(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "zero", "dp_shard", **_beyond(problem, zero=[0, 1, 2, 3]))


def _micro_batch(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "micro_batch")


def _pipeline_stages(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "pp", "dp")


def _tensor_degree(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    """Any tensor degree, beyond the nodes too where they are of one size."""
    degrees = tensor_degrees(problem.model, problem.cluster, problem.cluster.num_devices)
    largest = max(degrees, default=1)
    if largest <= problem.space.max_tp:
        return _freed(problem, "tp", "dp")
    changed = _freed(problem, "tp", "dp", max_tp=largest)
    return changed and replace(changed, costs=pricing(largest), _shared=Recent(MOST_KEPT))


def _schedule(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "schedule", **_beyond(problem, schedules=["1f1b", "gpipe"]))


def _sequence_parallel(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    return _freed(problem, "sequence_parallel", sequence_parallel=[False, True])


def _other_shares(ways: OtherShares) -> Change:
    """Other shares on hosts."""
    return lambda problem, pricing: ways.more(problem)


def _margin(problem: PlanningProblem, pricing: Pricing) -> PlanningProblem | None:
    changed = without_margin(problem)
    return None if changed.memory == problem.memory else changed


def without_margin(problem: PlanningProblem) -> PlanningProblem:
    """The problem with no memory kept free."""
    return replace(problem, memory=problem.memory.model_copy(update={"margin": 0.0, "margin_gib": 0.0}))


CHANGES: dict[str, Change] = {
    "recompute": _recompute,
    "zero": _zero,
    "micro_batch": _micro_batch,
    "pipeline_stages": _pipeline_stages,
    "tensor_degree": _tensor_degree,
    "schedule": _schedule,
    "sequence_parallel": _sequence_parallel,
    **{shares.field: _other_shares(shares) for shares in OTHER_SHARES},
    "margin": _margin,
}
"""Among equal bounds, and where several are needed, the first ones are preferred."""


def _beyond(problem: PlanningProblem, **space: object) -> dict[str, object]:
    """A wider space, except where a framework is named, which runs no more than its own."""
    return {} if problem.space.stack else space


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
