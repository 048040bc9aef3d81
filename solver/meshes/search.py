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
    neighbouring stages, each stage with its cheapest recompute that fits. Exchanges of nodes, (7) to (9), follow.

(3) Limits end an enumeration as well. Choices together then keep the bound of all of them, which is valid, and how many
    choices there are is not known.

The bound holds for any placement and division; the plans are only those of (2).

Exchanges of nodes are other places of the same ranks, by steepest descent. An order of ranks (2) goes over the nodes of
a type in some order, which a launcher's list of hosts states. Nodes of one type with as many devices may be exchanged
in it.

(7) Exchanges of two nodes whose sites have the same links to all others change nothing and are left out.
(8) Exchanges are tried in turn, and kept where the step takes less, until none does or ``MOST_PRICED`` were tried.
(9) No exchange helps a plan whose passes and optimizer alone take as long as the incumbent: it changes hops and
    reductions, and traffic inside nodes only where nodes of one type differ.

The bound does not depend on places, so it holds as before.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.degrees import divisors
from taut.formulations.meshes.choice import MeshChoice, choices_at
from taut.formulations.meshes.step_time import MeshPlan, mesh_step
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Division
from taut.solver.branch_and_bound.best_first import BestFirst, OpenItems
from taut.solver.branch_and_bound.stop import Listener
from taut.solver.meshes.bound import MeshBounds, Stage
from taut.solver.result import SOLVED, Limits, Status, StoppedBy, relative_gap
from taut.solver.signals import cut_short

MOST_PRICED = 400
"""Exchanges that are tried of one plan: half a second; all pairs of 28 nodes."""


class Placed(NamedTuple):
    """A plan and its seconds."""

    plan: MeshPlan
    seconds: float


def exchangeable(problem: PlanningProblem) -> list[tuple[int, int]]:
    """Pairs of nodes of one type and size whose exchange changes some link, (7)."""
    links, found = problem.links, list[tuple[int, int]]()
    blocks = links.rate.blocks.of, links.latency.blocks.of
    for a, b in combinations(range(links.num_nodes), 2):
        like = problem.type_of_node[a] == problem.type_of_node[b] and links.gpus_per_node[a] == links.gpus_per_node[b]
        same = links.by_node and all(of[a] == of[b] for of in blocks)
        if like and not same:
            found.append((a, b))
    return found


def with_exchanges(
    problem: PlanningProblem, plan: MeshPlan, pairs: list[tuple[int, int]], incumbent: float, late: Callable[[], object]
) -> Placed:
    """The best plan that exchanges of paired nodes come by, and its seconds, (8) and (9), unless it is ``late``."""
    step, tried = mesh_step(problem, plan), 0
    seconds, better = step.total, bool(pairs)
    if step.passes + step.optimizer + step.constant >= incumbent:
        return Placed(plan, seconds)
    while better:
        better = False
        for a, b in pairs:
            if tried >= MOST_PRICED or late():
                return Placed(plan, seconds)
            tried += 1
            other = _exchanged(problem, plan, a, b)
            if (found := mesh_step(problem, other).total) < seconds:
                plan, seconds, better = other, found, True
    return Placed(plan, seconds)


def _exchanged(problem: PlanningProblem, plan: MeshPlan, a: int, b: int) -> MeshPlan:
    """The plan with the devices of two nodes exchanged."""
    place = np.arange(len(problem.links.node_of))
    own, others = (np.flatnonzero(problem.links.node_of == node) for node in (a, b))
    place[own], place[others] = others, own
    return replace(plan, devices=tuple(place[devices] for devices in plan.devices))


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
    """Outcome: incumbent, bound, number of choices (None: unknown), why it ended, and choices ``examined`` by bound."""

    status: Status
    stopped_by: StoppedBy
    incumbent: MeshIncumbent | None
    lower_bound: float
    choices: int | None
    examined: tuple[tuple[MeshChoice, float, float], ...]
    work: int
    wall_s: float


def search_meshes(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> MeshSearch:
    """Search all choices of a problem on devices of several types, (1)."""
    return _Run(problem, limits, progress).run()


class _Run:
    """Choices in the order of their bounds, and what is known of those that are done."""

    def __init__(self, problem: PlanningProblem, limits: Limits, progress: Listener | None) -> None:
        self._problem, self._bounds, self._count = problem, MeshBounds(problem), 0
        self._pairs, self._loop = exchangeable(problem), BestFirst(self, limits, progress)
        self._incumbent: MeshIncumbent | None = None
        self._done, self._least_done = list[tuple[MeshChoice, float, float]](), math.inf
        self._waiting = OpenItems[tuple[int, MeshChoice | int]]()

    def run(self) -> MeshSearch:
        """Search until proven, stopped or interrupted."""
        stopped: StoppedBy | None = StoppedBy.INTERRUPT
        with self._loop.stop:
            for together in divisors(self._problem.space.global_batch):
                self._wait(self._bounds.of_all(together), FLOOR, together)
            with cut_short():
                stopped = self._loop.run()
            return self._outcome(stopped or StoppedBy.EXHAUSTED)

    def _wait(self, bound: float, level: int, choice: MeshChoice | int) -> None:
        """Let a choice wait, or all that take so many sequences at once, unless none of them fits."""
        if math.isfinite(bound):
            self._waiting.push(bound, (level, choice))

    @property
    def incumbent_value(self) -> float:
        """Seconds of the best plan."""
        return math.inf if self._incumbent is None else self._incumbent.seconds

    @property
    def lower_bound(self) -> float:
        """The least of the incumbent and all bounds, (1)."""
        return min(self.incumbent_value, self._least_done, self._waiting.least)

    @property
    def is_open(self) -> bool:
        """Whether a choice that waits may be better than the incumbent."""
        return len(self._waiting) > 0 and self._waiting.least < self.incumbent_value * (1 - SOLVED)

    def refine(self) -> str:
        """Refine what has the least bound; named in words where it has a better plan, (1)."""
        bound, (level, choice) = self._waiting.pop()
        try:
            return self._refined(bound, level, choice)
        except BaseException:
            self._waiting.push(bound, (level, choice))
            raise

    def _refined(self, bound: float, level: int, choice: MeshChoice | int) -> str:
        """The words of ``refine`` for one choice."""
        if isinstance(choice, int):
            self._enumerate(bound, choice)
            return ""
        if level == FLOOR:
            bound = max(bound, self._bounds.quick(choice))
        if math.isinf(bound) or (level == FLOOR and self._incumbent is not None):
            self._wait(bound, QUICK, choice)
            return ""
        exact, ends = self._bounds.exact(choice, self.incumbent_value)
        exact = max(bound, exact)
        if level == QUICK and self._incumbent is not None and self._waiting and exact > self._waiting.least:
            self._wait(exact, EXACT, choice)
            return ""
        if not ends:
            return ""
        plans = _plans(self._problem, choice, self._bounds.stages(choice), ends)
        first = min(plans, key=lambda plan: plan.seconds)
        known = self._pairs, self.incumbent_value, self._loop.stop
        best = replace(first, **with_exchanges(self._problem, first.plan, *known)._asdict())
        least = min(exact, best.seconds)
        self._done.append((choice, least, best.seconds))
        self._least_done = min(self._least_done, least)
        if best.seconds >= self.incumbent_value:
            return ""
        self._incumbent = best
        return choice.words(self._problem.device_types)

    def _enumerate(self, bound: float, together: int) -> None:
        """Let all choices wait that take so many sequences at once, (1) and (3)."""
        found = list[tuple[MeshChoice, float]]()
        for alike in choices_at(self._problem, together):
            found += [(choice, self._bounds.floor(choice)) for choice in alike]
            if self._loop.stop():
                self._wait(bound, FLOOR, together)
                return
        self._count += len(found)
        for choice, floor in sorted(found):
            self._wait(max(bound, floor), FLOOR, choice)

    def _number_of_choices(self) -> int:
        """How many there are, with those that are not enumerated since their bounds are too high."""
        left = [choice for _, choice in self._waiting if isinstance(choice, int)]
        return self._count + sum(len(alike) for each in left for alike in choices_at(self._problem, each))

    def _outcome(self, stopped: StoppedBy) -> MeshSearch:
        """What the search ends with."""
        bound, gap = self.lower_bound, relative_gap(self.incumbent_value, self.lower_bound)
        if self._incumbent is None:
            status = Status.UNKNOWN if self._waiting else Status.INFEASIBLE
        else:
            status = Status.OPTIMAL if gap is not None and gap <= SOLVED else Status.FEASIBLE
        examined = tuple(sorted(self._done, key=lambda entry: entry[1]))
        known = stopped in (StoppedBy.EXHAUSTED, StoppedBy.GAP)
        choices = self._number_of_choices() if known else None
        return MeshSearch(
            status, stopped, self._incumbent, bound, choices, examined, self._loop.work, self._loop.stop.seconds
        )


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
