r"""
Schedules that fit given times and memory limits, on any device map.

List schedules (:mod:`taut.solver.schedules.construct.parameters`) are drawn at random, then by changing one choice of
one of the best. Orders that are known by formula or by repeating a block compete where they keep the limit. The best
few are improved along their critical paths, the best quarter of them again, and so on. Work is counted and the random
bits come from the seed: the same problem and seed give the same schedule, unless it is asked to stop.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Ints
from taut.errors import InfeasibleError
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable, violations
from taut.solver.schedules.chains import numbers, schedule_of
from taut.solver.schedules.construct.parameters import Choice, Lister
from taut.solver.schedules.improve.critical_path import improve

_STEADY = 4
"""Micro-batches beyond warm-up and cool-down in which choices are tried."""


@dataclass(frozen=True)
class Effort:
    """How many list schedules, how many of each kind of times are improved, and how many trials that takes in all."""

    lists: int
    kept: int
    trials: int


def effort(problem: ScheduleProblem) -> Effort:
    """Effort of about a second, whatever the size."""
    passes = 3 * problem.num_chunks * problem.num_micro_batches
    few = min(1.0, (2 * problem.num_devices + _STEADY) / problem.num_micro_batches)
    share = min(1.0, 6000 / passes) / passes
    kept = 24 if passes < 2000 else 6
    lists = int(np.clip(3e6 / (few * passes), 80, 1200))
    return Effort(lists, kept, int(np.clip(3e8 * share, 2000, 1_000_000)))


@dataclass(frozen=True, eq=False)
class _Found:
    """An order, its makespan, and the schedule that it is if one was known."""

    length: float
    order: Ints
    known: Schedule | None = None


def adapt(
    problem: ScheduleProblem,
    *,
    kind: str = "blocks",
    known: Sequence[Schedule] = (),
    work: Effort | None = None,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Schedule:
    """
    Order the passes of a pipeline for its times and memory limits.

    Parameters
    ----------
    problem
        The pipeline.
    kind
        What to call a schedule that is not one of the known ones.
    known
        Schedules to start from as well; those that break a limit are left out.
    work
        How much to try; by default about a second's worth.
    seed
        Of the choices tried.
    stop
        Asked between trials; if true, the best schedule so far is returned.

    Returns
    -------
    Schedule
        A feasible schedule, no longer than any known one that is feasible; that one itself if nothing is shorter.

    Raises
    ------
    InfeasibleError
        If a device cannot hold one micro-batch of all its chunks.
    """
    require_memory(problem)
    work = work or effort(problem)
    lister = Lister(problem)
    found = list(_feasible(problem, known))
    if not (found and stop()):
        found += _lists(lister, work, np.random.default_rng(seed), stop)
    best = _improved(lister, found, work, seed, stop)
    return best.known or schedule_of(problem, best.order, kind)


def _feasible(problem: ScheduleProblem, known: Sequence[Schedule]) -> Iterator[_Found]:
    """Known schedules that break no limit; with whole backward passes they are longer than their split order."""
    for schedule in known:
        if not violations(problem, schedule):
            yield _Found(timetable(problem, schedule).makespan, numbers(problem, schedule), schedule)


def require_memory(problem: ScheduleProblem) -> None:
    """
    Refuse a pipeline that no schedule fits: all chunks of a device hold a micro-batch before its first gradient.

    Raises
    ------
    InfeasibleError
        With the device that lacks memory, and how much.
    """
    needed = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
    for d in np.flatnonzero(needed > problem.allowed):
        limit = problem.memory_limit[d]
        raise InfeasibleError(f"device {d} needs {needed[d]:g} for one micro-batch, more than its limit {limit:g}")


def _lists(lister: Lister, work: Effort, generator: np.random.Generator, stop: Callable[[], bool]) -> list[_Found]:
    """Best list schedules of each kind of times, by choices that were tried on a pipeline of fewer micro-batches."""
    problem = lister.problem
    few = min(problem.num_micro_batches, 2 * problem.num_devices + _STEADY)
    short = Lister(replace(problem, num_micro_batches=few))
    every: list[tuple[_Found, int]] = []
    for choice in _ranked(short, work, generator, stop):
        if every and stop():
            break
        every.append((_Found(*lister.schedule(choice)), choice.times))
    found: list[_Found] = []
    for times in range(lister.sizes[-1]):
        unlike = {one.length: one for one, seen in every if seen == times}
        found += sorted(unlike.values(), key=lambda one: one.length)[: work.kept]
    return found


def _ranked(lister: Lister, work: Effort, generator: np.random.Generator, stop: Callable[[], bool]) -> list[Choice]:
    """Choices of the shortest list schedules: half of all are drawn, the others are next to one of the best three."""
    kinds = lister.sizes[-1]
    best: list[dict[float, tuple[int, ...]]] = [{} for _ in range(kinds)]
    for trial in range(work.lists):
        if trial and stop():
            break
        values = [int(generator.integers(size)) for size in lister.sizes]
        times = values[-1] = trial % kinds
        if 2 * trial >= work.lists and best[times]:
            lengths = sorted(best[times])[:3]
            near = list(best[times][lengths[int(generator.integers(len(lengths)))]])
            place = int(generator.integers(len(values) - 1))
            near[place] = values[place]
            values = near
        length, _ = lister.schedule(Choice(*values))
        best[times].setdefault(length, tuple(values))
        if len(best[times]) > work.kept:
            del best[times][max(best[times])]
    return [Choice(*values) for each in best for values in each.values()]


def _improved(lister: Lister, found: list[_Found], work: Effort, seed: int, stop: Callable[[], bool]) -> _Found:
    """Improve all, then the best quarter, and so on, each round with the same number of trials; the best of all."""
    least = float(lister.problem.busy.max())
    found = sorted(found, key=lambda one: one.length)
    rounds = 1 + math.ceil(math.log(len(found), 4))
    for turn in range(rounds):
        trials = work.trials // (rounds * len(found))
        found = [one if stop() else _better(lister, one, trials, seed + turn, least) for one in found]
        found = sorted(found, key=lambda one: one.length)[: max(1, len(found) // 4)]
    return found[0]


def _better(lister: Lister, one: _Found, trials: int, seed: int, least: float) -> _Found:
    length, order = improve(lister.chains, one.order, trials, seed=seed, target=least)
    return _Found(length, order) if length < one.length else one
