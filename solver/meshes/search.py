r"""
The best plan of meshes: a branch and bound over their choices.

(1) Choices wait in the order of their bounds (``taut.solver.meshes.bound`` (5), then (4), then (1)), those that take as
    many sequences at once together until they are enumerated (6). What has the least bound is refined: choices together
    are enumerated, a choice is bounded by its next bound, and in the end by plans; then it is done. The search ends
    where nothing that is not done has a bound below the incumbent; the global bound is the least of the incumbent and
    all bounds. A refinement is a unit of work. Until there is an incumbent, a choice is refined to its end.
(2) Plans of a choice have devices in the two orders of ranks that FlagScale has, over the nodes of a type in the
    cluster's order: ``tp-cp-ep-dp-pp``, stage by stage, and ``tp-pp-dp``, replica by replica. The division is the one
    that attains the bound, and others that are reached from it by steepest descent over one layer moved between
    neighbouring stages, each stage with its cheapest recompute that fits. Exchanges of nodes follow
    (``taut.solver.meshes.exchange``).

(3) Limits end an enumeration as well. Choices together then keep the bound of all of them, which is valid, and how many
    choices there are is not known.

The bound holds for any placement and division; the plans are only those of (2).
"""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.degrees import divisors
from taut.formulations.meshes.choice import MeshChoice, choices_at
from taut.formulations.meshes.step_time import MeshPlan, mesh_step
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Division
from taut.solver.interrupt import interrupt_requested
from taut.solver.meshes.bound import MeshBounds, Stage
from taut.solver.meshes.exchange import exchangeable, with_exchanges
from taut.solver.result import SOLVED, Limits, Progress, Status, StoppedBy, relative_gap
from taut.solver.stopwatch import Stopwatch

ORDERS = ("tp-cp-ep-dp-pp", "tp-pp-dp")
"""Orders of ranks inside a mesh, (2); the second one is FlagScale's ``use_tp_pp_dp_mapping``."""
FLOOR, QUICK, EXACT = 0, 1, 2
"""The last bound of a choice that waits, (1)."""


@dataclass(frozen=True, eq=False)
class MeshIncumbent:
    """The best plan found, the order of its ranks, and its seconds."""

    plan: MeshPlan
    order: str
    seconds: float


@dataclass(frozen=True, eq=False)
class MeshSearch:
    """
    Outcome: incumbent and global bound, how many choices there are, None if unknown, and why it ended.

    ``examined`` are the choices with plans, in the order of their bounds: choice, bound, seconds of its best plan.
    """

    status: Status
    stopped_by: StoppedBy
    incumbent: MeshIncumbent | None
    lower_bound: float
    choices: int | None
    examined: tuple[tuple[MeshChoice, float, float], ...]
    work: int
    wall_s: float


def search_meshes(problem: PlanningProblem, limits: Limits, progress: Progress | None = None) -> MeshSearch:
    """
    Search all choices of a problem, (1).

    ``problem``: what is planned, on devices of several types; ``limits``: time, work, and the gap that is good enough;
    ``progress``: called with elapsed seconds, incumbent, bound and what was just done.
    """
    with Stopwatch() as watch, interrupt_requested() as asked:
        run = _Run(problem)

        def late() -> StoppedBy | None:
            if asked():
                return StoppedBy.INTERRUPT
            out_of_time = limits.time_limit is not None and watch.seconds >= limits.time_limit
            return StoppedBy.TIME if out_of_time else None

        stopped = None
        while stopped is None and run.waiting and not run.is_done:
            gap = relative_gap(run.seconds, run.lower_bound)
            if gap is not None and gap <= limits.gap:
                stopped = StoppedBy.GAP
            elif limits.work_limit is not None and run.work >= limits.work_limit:
                stopped = StoppedBy.WORK
            elif (stopped := late()) is None:
                found = run.refine(late)
                if progress is not None and found is not None:
                    progress(watch.seconds, run.seconds, run.lower_bound, found.words(problem.device_types))
        return run.outcome(stopped or StoppedBy.EXHAUSTED, watch.seconds)


class _Run:
    """Choices in the order of their bounds, and what is known of those that are done."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._problem, self._bounds, self._count = problem, MeshBounds(problem), 0
        self._number, self.work, self._pairs = count(), 0, exchangeable(problem)
        self.incumbent: MeshIncumbent | None = None
        self.done: list[tuple[MeshChoice, float, float]] = []
        self.waiting: list[tuple[float, int, int, MeshChoice | int]] = []
        for together in divisors(problem.space.global_batch):
            self._wait(self._bounds.of_all(together), FLOOR, together)

    def _wait(self, bound: float, level: int, choice: MeshChoice | int) -> None:
        """Let a choice wait, or all that take so many sequences at once, unless none of them fits."""
        if math.isfinite(bound):
            heapq.heappush(self.waiting, (bound, next(self._number), level, choice))

    @property
    def seconds(self) -> float:
        """Of the incumbent; infinite without one."""
        return math.inf if self.incumbent is None else self.incumbent.seconds

    @property
    def is_done(self) -> bool:
        """Whether no choice that waits may be better than the incumbent."""
        return self.waiting[0][0] >= self.seconds * (1 - SOLVED)

    @property
    def lower_bound(self) -> float:
        """The least of the incumbent and all bounds, (1)."""
        done = min((bound for _, bound, _ in self.done), default=math.inf)
        return min(self.seconds, done, self.waiting[0][0] if self.waiting else math.inf)

    def refine(self, late: Callable[[], StoppedBy | None]) -> MeshChoice | None:
        """Refine what has the least bound; a choice is returned where it has a better plan, (1)."""
        bound, _, level, choice = heapq.heappop(self.waiting)
        self.work += 1
        if isinstance(choice, int):
            self._enumerate(bound, choice, late)
            return None
        if level == FLOOR:
            bound = max(bound, self._bounds.quick(choice))
        if math.isinf(bound) or (level == FLOOR and self.incumbent is not None):
            self._wait(bound, QUICK, choice)
            return None
        exact, ends = self._bounds.exact(choice)
        exact = max(bound, exact)
        if level == QUICK and self.incumbent is not None and self.waiting and exact > self.waiting[0][0]:
            self._wait(exact, EXACT, choice)
            return None
        if not ends:
            return None
        plans = _plans(self._problem, choice, self._bounds.stages(choice), ends)
        first = min(plans, key=lambda plan: plan.seconds)
        best = replace(first, **with_exchanges(self._problem, first.plan, self._pairs, self.seconds, late)._asdict())
        self.done.append((choice, min(exact, best.seconds), best.seconds))
        if best.seconds < self.seconds:
            self.incumbent = best
            return choice
        return None

    def _enumerate(self, bound: float, together: int, late: Callable[[], StoppedBy | None]) -> None:
        """Let all choices wait that take so many sequences at once, (1) and (3)."""
        found = list[tuple[MeshChoice, float]]()
        for alike in choices_at(self._problem, together):
            found += [(choice, self._bounds.floor(choice)) for choice in alike]
            if late() is not None:
                self._wait(bound, FLOOR, together)
                return
        self._count += len(found)
        for choice, floor in sorted(found):
            self._wait(max(bound, floor), FLOOR, choice)

    def _number_of_choices(self) -> int:
        """How many there are, with those that are not enumerated since their bounds are too high."""
        left = [choice for _, _, _, choice in self.waiting if isinstance(choice, int)]
        return self._count + sum(len(alike) for each in left for alike in choices_at(self._problem, each))

    def outcome(self, stopped: StoppedBy, wall_s: float) -> MeshSearch:
        """What the search ends with."""
        bound, gap = self.lower_bound, relative_gap(self.seconds, self.lower_bound)
        if self.incumbent is None:
            status = Status.UNKNOWN if self.waiting else Status.INFEASIBLE
        else:
            status = Status.OPTIMAL if gap is not None and gap <= SOLVED else Status.FEASIBLE
        examined = tuple(sorted(self.done, key=lambda entry: entry[1]))
        known = stopped in (StoppedBy.EXHAUSTED, StoppedBy.GAP)
        choices = self._number_of_choices() if known else None
        return MeshSearch(status, stopped, self.incumbent, bound, choices, examined, self.work, wall_s)


def ranked_devices(problem: PlanningProblem, choice: MeshChoice, order: str) -> tuple[Ints, ...]:
    """Devices of every mesh (pp, dp, tp) in an order of ranks, over the nodes of each type in the cluster's order."""
    type_of, found = problem.type_of_node[problem.links.node_of], list[Ints]()
    for mesh in choice.meshes:
        devices = np.flatnonzero(type_of == mesh.kind)
        if order == ORDERS[0]:
            found.append(devices.reshape(mesh.pp, mesh.dp, mesh.tp))
        else:
            found.append(devices.reshape(mesh.dp, mesh.pp, mesh.tp).swapaxes(0, 1))
    return tuple(found)


def _plans(
    problem: PlanningProblem, choice: MeshChoice, stages: list[Stage], starts: list[Ints]
) -> Iterator[MeshIncumbent]:
    """The best plan in each order of ranks, from each of some divisions, (2)."""
    seconds = np.stack([stage.seconds for stage in stages])
    recompute = np.stack([stage.recompute for stage in stages])
    for order in ORDERS:
        devices, known = ranked_devices(problem, choice, order), dict[bytes, MeshIncumbent]()

        def priced(
            ends: Ints,
            devices: tuple[Ints, ...] = devices,
            order: str = order,
            known: dict[bytes, MeshIncumbent] = known,
        ) -> MeshIncumbent:
            if ends.tobytes() not in known:
                plan = MeshPlan(choice, _division(recompute, ends), devices)
                known[ends.tobytes()] = MeshIncumbent(plan, order, mesh_step(problem, plan).total)
            return known[ends.tobytes()]

        best, better = None, min(map(priced, starts), key=lambda plan: plan.seconds)
        while best is None or better.seconds < best.seconds:
            best = better
            moved = map(priced, _moved(best.plan.division.ends, seconds))
            better = min(moved, key=lambda plan: plan.seconds, default=best)
        yield best


def _division(recompute: Ints, ends: Ints) -> Division:
    """A division with the cheapest recompute that fits every stage, of those by stage and range (P, L+1, L+1)."""
    starts = np.concatenate([[0], ends[:-1]])
    return Division.of_ends(ends, recompute[np.arange(len(ends)), starts, ends])


def _moved(ends: Ints, seconds: Floats) -> Iterator[Ints]:
    """Divisions that fit with one layer moved between neighbouring stages."""
    for x in range(len(ends) - 1):
        for step in (-1, 1):
            moved = ends.copy()
            moved[x] += step
            starts = np.concatenate([[0], moved[:-1]])
            if (moved > starts).all() and np.isfinite(seconds[np.arange(len(ends)), starts, moved]).all():
                yield moved
