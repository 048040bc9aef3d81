r"""
Simple plans: even divisions of the layers, workers in the order of the devices.

With L layers and C chunks (stages, times chunks of a device),

(1) every chunk has :math:`\lfloor L / C \rfloor` layers, and of the L mod C others the inner chunks have one each, from
    the second on, since the first and the last also have embedding and head; where a framework states other divisions
    alone, the most even of those takes its place;
(2) all chunks have one recompute, the quickest of those within memory unless it is given;
(3) rank order: tensor ranks fastest, then context ranks, replicas and stages, as Megatron-LM numbers them.

A search begins with some of them, (4): a good plan shortens the bounds of all candidates that are priced by their
order, which are of no use beyond it; where there are none of those, the first divisions come with plans of their own,
and simple ones are the last resort of a search that was stopped before. On mixed devices rank order says nothing of
which stage suits which, so that they are that last resort alone.

(4) Of the candidates with the least bounds the first ``MOST_TRIED`` whose layers may fit are divided, and the first
    plans that fit are priced: ``MOST_PRICED``, and of large clusters fewer.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import Any, TypeVar

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.divisions import families_of, is_stated
from taut.formulations.latency import memory_bytes, step_time, violations
from taut.formulations.mechanisms.recompute import in_part
from taut.formulations.mechanisms.shards import shard_memory
from taut.formulations.partition import stated_divisions
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import ON_V
from taut.formulations.space import Candidate, beside_chunks
from taut.formulations.strategy import Strategy, division_of_layers
from taut.formulations.tables.memory import weigh_kept
from taut.formulations.terms import bytes_of_moment
from taut.solver.branch_and_bound.stop import Stopping, never
from taut.solver.result import CandidateBound, Incumbent, Source


def even_chunks(layers: int, candidate: Candidate) -> Ints:
    """Layers of every chunk, (1)."""
    chunks = candidate.pp * candidate.vpp
    each, more = divmod(layers, chunks)
    found = np.full(chunks, each)
    found[(1 + np.arange(more)) % chunks] += 1
    return found


def _stated_chunks(problem: PlanningProblem, candidate: Candidate) -> Ints:
    """Layers of every chunk by (1), or of the most even division that the space states where that is none."""
    found, known = even_chunks(len(problem.model.blocks), candidate), stated_divisions(problem, candidate)
    if known is None or is_stated(found, families_of(problem, candidate)):
        return found
    return np.asarray(known[np.ptp(known, axis=1).argmin()])


def rank_order(candidate: Candidate) -> Ints:
    """Device of every worker, (pp, pipelines, width), by (3)."""
    shape = candidate.pp, candidate.pipelines, candidate.width
    return np.arange(int(np.prod(shape))).reshape(shape)


def even_strategy(problem: PlanningProblem, candidate: Candidate, recompute: str) -> Strategy:
    """The candidate with (1) and one recompute."""
    layers = _stated_chunks(problem, candidate)
    kinds = np.full(len(layers), RECOMPUTE.index(recompute))
    return Strategy(candidate=candidate, division=division_of_layers(candidate, layers.tolist(), kinds))


def fitting(
    problem: PlanningProblem, candidate: Candidate, devices: Ints | None = None, recompute: str | None = None
) -> Strategy | None:
    """The even strategy with the quickest recompute, or the given one, that breaks no rule; None where all do."""
    devices = rank_order(candidate) if devices is None else devices
    for name in problem.recompute_of(candidate):
        if recompute in (None, name):
            strategy = even_strategy(problem, candidate, name)
            if not violations(problem, strategy, devices):
                return strategy
    return None


def priced(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Incumbent | None:
    """The plan with its step time, or None if it breaks a rule."""
    if violations(problem, strategy, devices):
        return None
    seconds = float(step_time(problem, strategy, devices).total)
    return Incumbent(strategy=strategy, devices=devices, seconds=seconds)


def simple_plan(problem: PlanningProblem, candidate: Candidate, recompute: str | None = None) -> Incumbent | None:
    """The simple plan of a candidate, (1) to (3), None where it breaks a rule."""
    strategy = fitting(problem, candidate, recompute=recompute)
    return None if strategy is None else priced(problem, strategy, rank_order(candidate))


MOST_TRIED, MOST_PRICED = 1000, 24
"""Candidates whose memory is computed, and plans that are priced: of 576 devices together about a second."""
MOST_DEVICES = 20_000
"""Devices of all plans that are priced; one plan of 100,000 takes some tenths of a second."""
LEAST_HELD = 3
"""On the V an order holds at least one part in so many of what 1F1B holds (v-min)."""

Value = TypeVar("Value")
Plan = tuple[CandidateBound, Strategy, Ints]
"""A candidate's bound, its strategy, and the device of every worker."""


def kept(known: dict[Any, Value], key: Any, make: Callable[..., Value], *of: Any) -> Value:
    """What is kept by a key, made where it is not: a search asks several times, and several searches ask alike."""
    if key not in known:
        known[key] = make(*of)
    return known[key]


def first_plans(
    problem: PlanningProblem, bounds: Iterable[CandidateBound], stopping: Stopping = never, *, most: int = MOST_PRICED
) -> Iterator[Plan]:
    """At most so many simple plans to begin with, by ascending bound; none on mixed devices or without orders."""
    every = list(bounds)
    if len(problem.device_types) > 1 or len(problem.closed_forms) == len(problem.candidates):
        return iter(())
    return simplest_plans(problem, every, stopping, most=most)


def simplest_plans(
    problem: PlanningProblem, bounds: Iterable[CandidateBound], stopping: Stopping = never, *, most: int = MOST_PRICED
) -> Iterator[Plan]:
    """At most so many simple plans that break no rule, by ascending bound, candidates with ``balance`` alone later."""
    ordered = sorted(
        bounds, key=lambda bound: (in_part(bound.candidate), bound.source is Source.BALANCE, bound.lower_bound)
    )
    considered = takewhile(lambda bound: not stopping(), ordered)
    # A search asks several times, and searches of one problem ask for the same plans.
    plans = problem.kept("simple plans")
    tried = islice((bound for bound in considered if _may_fit(problem, bound.candidate)), MOST_TRIED)
    most = min(most, max(MOST_DEVICES // problem.cluster.num_devices, 1))
    found = ((bound, kept(plans, bound.candidate, _plan, problem, bound.candidate)) for bound in tried)
    return islice(((bound, *plan) for bound, plan in found if plan is not None), most)


def _may_fit(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether an even share of the layers, with about what the first stage keeps of them, fits some device."""
    if not problem.memory.is_sum_of_terms:
        return True
    # The number of chunks does not count.
    key = *beside_chunks(candidate), candidate.uniform_recompute, candidate.recompute_layers
    return bool(kept(problem.kept("simple ones fit"), key, _share_may_fit, problem, candidate))


def _share_may_fit(problem: PlanningProblem, candidate: Candidate) -> bool:
    tables, memory = problem.tables(candidate), problem.memory_of(candidate)
    share = tables.parameters[0, -1] // candidate.pp
    needed = bytes_of_moment(shard_memory(share, np.array(0), 0, memory, candidate), "always")
    layers = len(problem.model.blocks) // candidate.pp
    allowed = np.array([RECOMPUTE.index(name) for name in problem.recompute_of(candidate)])
    # Without the embedding.
    each = weigh_kept(memory, allowed, tables.activation[allowed, 1, layers])
    at_once = min(candidate.pp, candidate.num_micro_batches) / (LEAST_HELD if candidate.schedule in ON_V else 1)
    return bool(needed + at_once * max(int(each.min()), 0) <= problem.budget.max())


def _plan(problem: PlanningProblem, candidate: Candidate) -> tuple[Strategy, Ints] | None:
    """The simple plan with the quickest recompute that fits every device."""
    for name in problem.recompute_of(candidate):
        strategy = even_strategy(problem, candidate, name)
        # Memory first: the rules of placement take long to check on many devices.
        if max(memory_bytes(problem, strategy)) <= problem.budget.min():
            devices = rank_order(candidate)
            return None if violations(problem, strategy, devices) else (strategy, devices)
    return None
