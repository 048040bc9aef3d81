r"""
Every kind of schedule by name, the fastest of several, and orders adapted to times and memory limits by many starts.

Orders are formulas of the papers that ``taut.formulations.schedules.orders`` cites, or are adapted:

======================  ===========================================  ==========================================
name                    chunks                                       order
======================  ===========================================  ==========================================
``gpipe``               any                                          formula
``1f1b``                one a device                                 formula
``interleaved-1f1b``    round the devices                            formula
``zb-h1``, ``zb-h2``    one a device                                 formula
``zb-auto``             one a device                                 adapted, under the memory limit
``zb-v``                the V                                        adapted, in the memory of ZB-V: 2p chunks
``v-half``, ``v-min``   the V                                        adapted, in the memory of their blocks
``dualpipe-v``          the V                                        formula
``blocks``              any                                          adapted, under the memory limit
======================  ===========================================  ==========================================

(1) *Sampling.* List schedules (``taut.solver.schedules.priority_rules``) are sampled on a pipeline of fewer
    micro-batches: half of the rules uniformly, the others by changing one parameter of one of the best three [1]_. The
    best rules of each kind of times make list schedules of the whole pipeline.
(2) *Known orders.* Schedules by formula or from building blocks compete where they keep the memory limits.
(3) *Improvement by successive halving* [2]_. All are improved along their critical paths
    (``taut.solver.schedules.disjunctive_graph``), the best quarter of them again, and so on, each round with the same
    number of trials in all.
(4) *Bound.* A schedule as short as a destructive bound (``taut.solver.schedules.lower_bound``) ends all three: nothing
    is shorter. It is computed once, for a search of the usual effort, with the best known order as its first target.

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

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError, InfeasibleError
from taut.formulations.schedules.orders import (
    Block,
    dualpipe_v,
    gpipe,
    interleaved,
    one_forward_one_backward,
    repeat,
    require,
    v_half,
    v_min,
    zb_h1,
    zb_h2,
    zb_v,
)
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, sequential, timetable, v_shape, violations
from taut.solver.result import SOLVED
from taut.solver.schedules.building_blocks import assembled_schedules
from taut.solver.schedules.disjunctive_graph import flat_order, improve, schedule_of
from taut.solver.schedules.lower_bound import lower_bound
from taut.solver.schedules.priority_rules import ListScheduler, PriorityRule

_STEADY = 4
"""Micro-batches beyond warm-up and cool-down on which rules are sampled: a few periods show the repeating part."""
_BOUND_WORK = 2_000_000
"""Values of labels that (4) extends at most: a twentieth of a second, where all else takes one."""


@dataclass(frozen=True)
class Effort:
    """How much to try: list schedules sampled, (1), those of each kind of times improved, and moves in all, (3)."""

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
    """Order the passes for times and memory limits, (1) to (3); no longer than any of ``known`` that fits."""
    require_memory(problem)
    scheduler = ListScheduler(problem)
    found = sorted(_feasible(problem, known), key=_length)
    least = float(problem.busy.max())
    if work is None:
        start = found[0].length if found else math.inf
        least = max(least, lower_bound(problem, incumbent=start, work_limit=_BOUND_WORK, stop=stop).lower_bound)
        work = effort(problem)
    least *= 1 + SOLVED
    if not (found and (stop() or found[0].length <= least)):
        found += _list_schedules(scheduler, work, np.random.default_rng(seed), stop)
    best = _improved(scheduler, found, work, seed, least, stop)
    return best.known or schedule_of(problem, best.order, kind)


def _length(one: _Solution) -> float:
    return one.length


def _feasible(problem: ScheduleProblem, known: Sequence[Schedule]) -> Iterator[_Solution]:
    """Known schedules that break no limit; with whole backward passes they are longer than their split order."""
    for schedule in known:
        if not violations(problem, schedule):
            yield _Solution(timetable(problem, schedule).makespan, flat_order(problem, schedule), schedule)


def require_memory(problem: ScheduleProblem) -> None:
    """Raise ``InfeasibleError`` where a device lacks memory for one micro-batch in all of its chunks."""
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
        found += sorted(distinct.values(), key=_length)[: work.kept]
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
    scheduler: ListScheduler, found: list[_Solution], work: Effort, seed: int, least: float, stop: Callable[[], bool]
) -> _Solution:
    """The best after improvement of all, then of the best quarter, and so on, (3), or the first as short as (4)."""
    found = sorted(found, key=_length)
    rounds = 1 + math.ceil(math.log(len(found), 4))
    for turn in range(rounds):
        trials = work.trials // (rounds * len(found))
        better: list[_Solution] = []
        for one in found:
            better.append(one if stop() else _better(scheduler, one, trials, seed + turn, least))
            if better[-1].length <= least:
                return better[-1]
        found = sorted(better, key=_length)[: max(1, len(found) // 4)]
    return found[0]


def _better(scheduler: ListScheduler, one: _Solution, trials: int, seed: int, least: float) -> _Solution:
    length, order = improve(scheduler.graph, one.order, trials, seed=seed, target=least)
    return _Solution(length, order) if length < one.length else one


_FORMULAS: dict[str, Callable[[ScheduleProblem], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved-1f1b": interleaved,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "dualpipe-v": dualpipe_v,
}
_BLOCKS: dict[str, Callable[[int], Block]] = {"v-half": v_half, "v-min": v_min}
_ASSEMBLED = 6
"""Assembled schedules to start from: the next ones differ little, and each start takes its share of the moves."""
KINDS = (*_FORMULAS, "zb-auto", "zb-v", *_BLOCKS, "blocks")
"""Names of all kinds."""


def build(
    kind: str,
    problem: ScheduleProblem,
    *,
    work: Effort | None = None,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Schedule:
    """Build a feasible schedule of one of ``KINDS``; ``InfeasibleError`` if it needs more memory than there is."""
    if kind not in KINDS:
        raise FormulationError(f"kind: {kind!r}, expected one of {', '.join(KINDS)}")
    if kind in _FORMULAS:
        return _checked(problem, _FORMULAS[kind](problem))
    if kind == "zb-auto":
        require(problem, sequential(problem.num_devices), kind, "one chunk a device, in order")
    elif kind != "blocks":
        problem = _within(problem, kind)
    return replace(multi_start(problem, kind=kind, known=_known(problem), work=work, seed=seed, stop=stop), kind=kind)


def fastest_kind(
    problem: ScheduleProblem,
    *,
    work: Effort | None = None,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Schedule:
    """The first of the shortest feasible schedules of all kinds; ``InfeasibleError`` if none is."""
    return multi_start(problem, known=_known(problem), work=work, seed=seed, stop=stop)


def _known(problem: ScheduleProblem) -> list[Schedule]:
    """Schedules by formula or from blocks that this pipeline allows; of some the memory is not looked at."""
    found = []
    for build_one in (*_FORMULAS.values(), zb_v):
        try:
            found.append(build_one(problem))
        except FormulationError:
            continue
    if np.array_equal(problem.device, v_shape(problem.num_devices)):
        found += [repeat(problem, block(problem.num_devices), kind) for kind, block in _BLOCKS.items()]
    return found + assembled_schedules(problem, _ASSEMBLED)


def _within(problem: ScheduleProblem, kind: str) -> ScheduleProblem:
    """The pipeline with the memory that a kind on the V may use."""
    require(problem, v_shape(problem.num_devices), kind, "two chunks a device, down and back up")
    memory = block_memory(problem, kind)
    for d in np.flatnonzero(memory > problem.allowed):
        limit = problem.memory_limit[d]
        raise InfeasibleError(f"{kind}: device {d} needs {memory[d]:g}, more than its limit {limit:g}")
    return replace(problem, memory_limit=memory)


def block_memory(problem: ScheduleProblem, kind: str) -> Floats:
    """Units by device (devices,) of a kind on the V: what repeating its block holds, and 2p chunks for ZB-V."""
    if kind in _BLOCKS:
        return timetable(problem, repeat(problem, _BLOCKS[kind](problem.num_devices), kind)).peak_memory
    whole = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
    return np.asarray(min(problem.num_devices, problem.num_micro_batches) * whole, dtype=np.float64)


def _checked(problem: ScheduleProblem, schedule: Schedule) -> Schedule:
    broken = violations(problem, schedule)
    if broken:
        raise InfeasibleError(f"{schedule.kind}: {broken[0]}")
    return schedule
