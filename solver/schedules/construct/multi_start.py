r"""
Multi-start construction of schedules for given times and memory limits, on any device map.

(1) *Sampling.* List schedules (``taut.solver.schedules.construct.priority_rules``) are sampled on a pipeline of fewer
    micro-batches: half of the rules uniformly, the others by changing one parameter of one of the best three [1]_. The
    best rules of each kind of times make list schedules of the whole pipeline.
(2) *Known orders.* Schedules by formula or from building blocks compete where they keep the memory limits.
(3) *Improvement by successive halving* [2]_. All are improved along their critical paths
    (``taut.solver.schedules.improve.critical_path``), the best quarter of them again, and so on, each round with the
    same number of trials in all.

Work is counted and the random bits come from the seed: the same problem and seed give the same schedule, unless the
search is asked to stop.

References
----------
.. [1] Kolisch, R. and Drexl, A. (1996). Adaptive search for solving hard project scheduling problems. Naval Research
       Logistics 43: 23-40.
.. [2] Karnin, Z., Koren, T. and Somekh, O. (2013). Almost optimal exploration in multi-armed bandits. ICML.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Ints
from taut.errors import InfeasibleError
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable, violations
from taut.solver.schedules.construct.priority_rules import ListScheduler, PriorityRule
from taut.solver.schedules.improve.critical_path import improve
from taut.solver.schedules.longest_path import flat_order, schedule_of

_STEADY = 4
"""Micro-batches beyond warm-up and cool-down on which rules are sampled: a few periods show the repeating part."""


@dataclass(frozen=True)
class Effort:
    """
    How much to try.

    ``lists``: list schedules to sample, (1); ``kept``: of those, how many of each kind of times are improved;
    ``trials``: moves along critical paths in all, (3).
    """

    lists: int
    kept: int
    trials: int


def effort(problem: ScheduleProblem) -> Effort:
    """Effort of about a second, whatever the size."""
    # A list schedule takes time linear in the passes, a move one that grows with their number up to some thousand, of
    # which it evaluates a part. The numerators make all of it about a second on one core; the ends of the ranges
    # leave large pipelines some starts, and end the search of small ones, where more finds nothing.
    passes = 3 * problem.num_chunks * problem.num_micro_batches
    few = min(1.0, (2 * problem.num_devices + _STEADY) / problem.num_micro_batches)
    share = min(1.0, 6000 / passes) / passes
    kept = 24 if passes < 2000 else 6
    lists = int(np.clip(3e6 / (few * passes), 80, 1200))
    return Effort(lists, kept, int(np.clip(3e8 * share, 2000, 1_000_000)))


@dataclass(frozen=True, eq=False)
class _Solution:
    """A flat order, its makespan in seconds, and the schedule that it is if one was known."""

    length: float
    order: Ints
    known: Schedule | None = None


def multi_start(
    problem: ScheduleProblem,
    *,
    kind: str = "blocks",
    known: Sequence[Schedule] = (),
    work: Effort | None = None,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Schedule:
    """
    Order the passes of a pipeline for its times and memory limits, (1) to (3).

    ``kind``: what to call a schedule that is not one of the known ones; ``known``: schedules to start from as well;
    those that break a limit are left out; ``work``: how much to try; by default about a second's worth; ``stop``: asked
    between trials; if true, the best schedule so far is returned. Returns a feasible schedule, no longer than any known
    one that is feasible; that one itself if nothing is shorter. Raises ``InfeasibleError`` if a device cannot hold one
    micro-batch of all its chunks.
    """
    require_memory(problem)
    work = work or effort(problem)
    scheduler = ListScheduler(problem)
    found = list(_feasible(problem, known))
    if not (found and stop()):
        found += _list_schedules(scheduler, work, np.random.default_rng(seed), stop)
    best = _improved(scheduler, found, work, seed, stop)
    return best.known or schedule_of(problem, best.order, kind)


def _feasible(problem: ScheduleProblem, known: Sequence[Schedule]) -> Iterator[_Solution]:
    """Known schedules that break no limit; with whole backward passes they are longer than their split order."""
    for schedule in known:
        if not violations(problem, schedule):
            yield _Solution(timetable(problem, schedule).makespan, flat_order(problem, schedule), schedule)


def require_memory(problem: ScheduleProblem) -> None:
    """
    Refuse a pipeline that no schedule fits: all chunks of a device hold a micro-batch before its first gradient.

    Raises ``InfeasibleError``: with the device that lacks memory, and how much.
    """
    needed = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
    for d in np.flatnonzero(needed > problem.allowed):
        limit = problem.memory_limit[d]
        raise InfeasibleError(f"device {d} needs {needed[d]:g} for one micro-batch, more than its limit {limit:g}")


def _list_schedules(
    scheduler: ListScheduler, work: Effort, generator: np.random.Generator, stop: Callable[[], bool]
) -> list[_Solution]:
    """Best list schedules of each kind of times, (1)."""
    problem = scheduler.problem
    few = min(problem.num_micro_batches, 2 * problem.num_devices + _STEADY)
    short = ListScheduler(replace(problem, num_micro_batches=few))
    every: list[tuple[_Solution, int]] = []
    for rule in _ranked(short, work, generator, stop):
        if every and stop():
            break
        every.append((_Solution(*scheduler.schedule(rule)), rule.times))
    found: list[_Solution] = []
    for times in range(scheduler.sizes[-1]):
        distinct = {one.length: one for one, seen in every if seen == times}
        found += sorted(distinct.values(), key=lambda one: one.length)[: work.kept]
    return found


def _ranked(
    scheduler: ListScheduler, work: Effort, generator: np.random.Generator, stop: Callable[[], bool]
) -> list[PriorityRule]:
    """Rules of the shortest list schedules, half of all drawn, the others next to one of the best three, (1)."""
    kinds = scheduler.sizes[-1]
    best: list[dict[float, tuple[int, ...]]] = [{} for _ in range(kinds)]
    for trial in range(work.lists):
        if trial and stop():
            break
        values = [int(generator.integers(size)) for size in scheduler.sizes]
        times = values[-1] = trial % kinds
        if 2 * trial >= work.lists and best[times]:
            lengths = sorted(best[times])[:3]
            near = list(best[times][lengths[int(generator.integers(len(lengths)))]])
            place = int(generator.integers(len(values) - 1))
            near[place] = values[place]
            values = near
        length, _ = scheduler.schedule(PriorityRule(*values))
        best[times].setdefault(length, tuple(values))
        if len(best[times]) > work.kept:
            del best[times][max(best[times])]
    return [PriorityRule(*values) for each in best for values in each.values()]


def _improved(
    scheduler: ListScheduler, found: list[_Solution], work: Effort, seed: int, stop: Callable[[], bool]
) -> _Solution:
    """The best after improvement of all, then of the best quarter, and so on, (3)."""
    least = float(scheduler.problem.busy.max())
    found = sorted(found, key=lambda one: one.length)
    rounds = 1 + math.ceil(math.log(len(found), 4))
    for turn in range(rounds):
        trials = work.trials // (rounds * len(found))
        found = [one if stop() else _better(scheduler, one, trials, seed + turn, least) for one in found]
        found = sorted(found, key=lambda one: one.length)[: max(1, len(found) // 4)]
    return found[0]


def _better(scheduler: ListScheduler, one: _Solution, trials: int, seed: int, least: float) -> _Solution:
    length, order = improve(scheduler.graph, one.order, trials, seed=seed, target=least)
    return _Solution(length, order) if length < one.length else one
