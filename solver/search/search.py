r"""
Best-first branch and bound over all candidates.

Every candidate c has a lower bound LB(c) over all its divisions, recomputes and placements.

(1) Every candidate begins with bound ``balance``. During half of the time limit candidates get bound ``relaxation``,
    those with the least ``balance`` first, as long as it is below the simple plans that are priced on the way. The
    other candidates get it when their turn comes.
(2) The candidate with the least bound is refined by one step (``taut.solver.search.refinement``), until no candidate
    with a bound below the incumbent, less the gap asked for, can be refined.
(3) Order-priced candidates come after all others, because a good incumbent refutes many of them. Simple plans are their
    first incumbents (``taut.solver.simple_plans`` (4)). First all of them get bounds, then divisions, the shortest
    first, and at last branches. A candidate with too many options to branch on waits until the incumbent cuts them.
(4) Before these branches, orders are adapted to the times of the best divisions, as long as an adapted order may lead
    to a better plan (``taut.solver.search.order_refinement``). Its candidates join the space.
(5) At any moment the global bound is the least of the incumbent's seconds and of LB(c) over all c that are not solved,
    up to 1e-9 of them. A limit or an interrupt returns the incumbent with this bound. Without an incumbent the next two
    steps look for one, or for a proof that there is none.
(6) Memory alone decides (``taut.solver.placement.exact.memory_assignment``): an open candidate has a plan that fits, or
    a proof that it has none, with the bytes that it lacks at least. Where all have such proofs nothing fits.
(7) Where a limit came first, simple plans are looked at, and then the first divisions of a few candidates, by bound.
(8) Where the workers of the best plan take no longer in the order of the devices, they are placed so.
(9) Bounds that are known already, of this problem or of one with more plans, take the place of the first ones in (1).

States of candidates and the status that a search ends with follow from its plan and bounds. Several processes may share
incumbent and bounds:

(10) The relaxations of all candidates are computed in parts, one a process, within half of the time limit.
(11) Candidates are searched in groups by ascending bound, those priced by their order last, a group a task.
    A task begins with the best plan so far, and returns its plan and its bounds.
(12) A group is sent out only while its least bound is below the incumbent. With b(c) the best bound returned so far of
    candidate c, a relaxation where it was not sent out, and J the incumbent, :math:`\min(J, \min_c b(c))` over the
    candidates that are neither solved nor infeasible bounds every plan at any moment, as in one process.
(13) So the search ends where that of one process does: when (12) has closed to the gap, or no candidate is below J.
    Where both prove their plan optimal their bounds are equal up to the gap; which of several equal plans is found, and
    bounds of candidates that a better incumbent would have cut short, depend on which task is done first.

The processes may be any ``concurrent.futures.Executor``. Each keeps the tables of the problem from task to task.
"""

import heapq
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from taut.data.units import KIB
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import GivenOrder
from taut.formulations.space import Candidate
from taut.solver.branch_and_bound.best_first import BestFirst
from taut.solver.branch_and_bound.stop import EndedError, Listener, Stopwatch
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import (
    OPTIMALITY_GAP,
    CandidateBound,
    Incumbent,
    Limits,
    Nearest,
    SearchResult,
    Source,
    State,
    Status,
    StoppedBy,
    relative_gap,
)
from taut.solver.search.refinement import Refining, load_loops
from taut.solver.search.standing import Best, Priority, turn
from taut.solver.signals import cut_short
from taut.solver.simple_plans import MOST_PRICED, first_plans, simplest_plans


def concluded(
    bounds: list[CandidateBound],
    incumbent: Incumbent | None,
    lower_bound: float,
    stopped: StoppedBy | None,
    **more: Any,
) -> SearchResult:
    """The result of a search that has ended, ``stopped`` for a reason or None; bounds above the plan are pruned."""
    seconds = math.inf if incumbent is None else incumbent.seconds
    for bound in bounds:
        if bound.state is State.OPEN and bound.lower_bound >= seconds:
            bound.state = State.PRUNED
    if incumbent is None:
        done = stopped is None and all(bound.state is State.INFEASIBLE for bound in bounds)
        status = Status.INFEASIBLE if done else Status.UNKNOWN
    else:
        gap = relative_gap(incumbent.seconds, lower_bound)
        status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    return SearchResult(
        status=status,
        stopped_by=stopped or StoppedBy.EXHAUSTED,
        incumbent=incumbent,
        lower_bound=lower_bound,
        bounds=sorted(bounds, key=lambda bound: bound.candidate),
        **more,
    )


def with_incumbent(result: SearchResult, incumbent: Incumbent) -> SearchResult:
    """The result with a better plan, which refutes no fewer candidates."""
    known = {each.name: getattr(result, each.name) for each in fields(SearchResult)}
    more = {name: known[name] for name in known.keys() - {"status", "stopped_by", "incumbent", "lower_bound", "bounds"}}
    least = min(result.lower_bound, incumbent.seconds)
    return concluded(result.bounds, incumbent, least, result.stopped_by, **more)


def as_result(result: SearchResult, incumbent: Incumbent, lower_bound: float) -> SearchResult:
    """The result of a search with another plan than it found; states follow from bounds."""
    for bound in result.bounds:
        if bound.state is not State.INFEASIBLE:
            bound.state = State.OPEN
    return with_incumbent(replace(result, lower_bound=min(lower_bound, incumbent.seconds)), incumbent)


class Bounds:
    """The bounds so far, by place of the candidate, for ``count`` of them at first; others may join."""

    def __init__(self, count: int) -> None:
        self.each: list[CandidateBound] = []
        self._unsolved = np.full(count, np.inf)
        self._least: float | None = None

    def make_room(self, more: int) -> None:
        """Room for so many further candidates."""
        self._unsolved = np.append(self._unsolved, np.full(more, np.inf))

    def add(self, bound: CandidateBound) -> int:
        """Take in a candidate with its first bound; returns its place."""
        self.each.append(bound)
        self.note(len(self.each) - 1)
        return len(self.each) - 1

    def note(self, index: int) -> None:
        """Look again at the bound of a candidate, after it changed."""
        bound = self.each[index]
        self._unsolved[index] = bound.lower_bound if bound.state in (State.OPEN, State.PRUNED) else math.inf
        self._least = None

    @property
    def least(self) -> float:
        """Least bound of a candidate that is not solved, infinite without one."""
        if self._least is None:
            self._least = float(self._unsolved.min(initial=math.inf))
        return self._least

    @property
    def left(self) -> list[int]:
        """Places of the open candidates."""
        return [index for index, bound in enumerate(self.each) if bound.state is State.OPEN]

    @property
    def all_infeasible(self) -> bool:
        """Whether no candidate has a plan that fits."""
        return all(bound.state is State.INFEASIBLE for bound in self.each)


Result = TypeVar("Result")

MOST_RESORTED = 200
"""Divisions that are tried once a limit came without a plan: a second or two, as each takes some milliseconds."""


def decide_by_memory(bounds: Bounds, refining: Refining, best: Best, loop: BestFirst) -> StoppedBy | None:
    """Find a plan of an open candidate, or the proof that none has any, (6); returns why to stop."""
    lacking: dict[int, int] = {}
    left = bounds.left
    for index in sorted(left, key=lambda i: bounds.each[i].lower_bound):
        if reason := loop.reason():
            return reason
        found = refining.decide(bounds.each[index])
        loop.report(str(bounds.each[index].candidate))
        if best.incumbent is not None:
            return None
        if found is not None and any(found.missing):
            lacking[index] = max(found.missing)
    if len(lacking) == len(left):
        for index, missing in lacking.items():
            bound = bounds.each[index]
            bound.state, bound.lower_bound, bound.source = State.INFEASIBLE, math.inf, Source.MEMORY
            bound.witness = {"missing_kib": -(-missing // KIB)}
            bounds.note(index)
    return None


def look_for_any(problem: PlanningProblem, bounds: Bounds, refining: Refining, best: Best) -> None:
    """Find a plan where a limit came before one, (7): ``best`` has it, and the bounds what was proven on the way."""
    for plan in simplest_plans(problem, [bounds.each[index] for index in bounds.left]):
        best.take(*plan)
    undivided = [index for index in bounds.left if refining.awaits_partition(bounds.each[index])]
    undivided.sort(key=lambda index: bounds.each[index].lower_bound)
    for index in undivided[:MOST_RESORTED]:
        if best.incumbent is not None:
            break
        refining.refine(bounds.each[index])
        bounds.note(index)


FIRST_DIVIDED = 8
"""One in so many of the first plans has its candidate divided at once, which takes some tenths of a second."""
RELAXING = 0.5
"""Share of the time limit after which candidates are refined: the least bound of any is known then, or soon after."""
FIRST_RELAXED = 2048
"""Candidates that are relaxed before the first simple plans are priced: a second. Before the next plans it is twice as
many, and so on."""
PRICED_BETWEEN = 8
"""Simple plans that are priced then: a tenth of a second, after which of 26,484 candidates a third may be left."""
RELAXED_AT_ONCE = 64
"""Bounds between two looks at limits: some hundredths of a second."""
NOTHING_KNOWN: Mapping[Candidate, CandidateBound] = MappingProxyType({})


def search(
    problem: PlanningProblem,
    limits: Limits,
    progress: Listener | None = None,
    *,
    incumbent: Incumbent | None = None,
    only: Sequence[Candidate] | None = None,
    known: Mapping[Candidate, CandidateBound] = NOTHING_KNOWN,
    adapts: bool = True,
    first: int = MOST_PRICED,
) -> SearchResult:
    """
    Find the best plan of a problem, with a bound on every candidate.

    Parameters
    ----------
    problem
        What is planned.
    limits
        When to stop. Compiling and loading loops does not count as time.
    progress
        Called after every refinement.
    incumbent
        A plan of the problem that is known already.
    only
        Candidates to search; by default all. Those of adapted orders join them.
    known
        Bounds that are known already, by candidate, (9).
    adapts
        Whether orders are adapted to their times, (4), so that candidates join, and cases of racks are told apart:
        neither is worth its time where some tenths of a per cent do not count.
    first
        Simple plans that are priced first at most, (3).

    Returns
    -------
    SearchResult
        Status, incumbent, global bound, and the bound of every candidate.
    """
    load_loops(problem)
    every = problem.candidates if only is None else only
    return _Search(problem, limits, progress, incumbent, every, known, adapts, first).run()


class _Search:
    """One run of the branch and bound: the heap and the bounds so far."""

    def __init__(
        self,
        problem: PlanningProblem,
        limits: Limits,
        progress: Listener | None,
        incumbent: Incumbent | None,
        every: Sequence[Candidate],
        known: Mapping[Candidate, CandidateBound],
        adapts: bool,
        first: int,
    ) -> None:
        self._problem, self._every, self._gap = problem, every, limits.gap
        self._known, self._adapts, self._first_plans = known, adapts, first
        self._bounds = Bounds(len(every))
        self._loop = BestFirst(self, limits, progress, self._bounds.each)
        self._best = Best(problem, incumbent)
        relaxed = {c: bound.lower_bound for c, bound in known.items() if bound.source is Source.RELAXATION}
        self._refining = Refining(problem, limits, self._best, self._loop.is_stopping, relaxed, apart=adapts)
        self._heap: list[tuple[Priority, float, bool, int]] = []
        self._orders, self._waiting = list[GivenOrder](), list[int]()

    def run(self) -> SearchResult:
        """Search until proven, stopped or interrupted."""
        stopped: StoppedBy | None = StoppedBy.INTERRUPT
        with self._loop.stop, cut_short(), suppress(EndedError):
            for candidate in self._every:
                self._bounds.add(self._first(candidate))
            stopped = self._searched()
        if len(self._bounds.each) < len(self._every):
            # Cut short before every candidate had a bound.
            raise KeyboardInterrupt
        return self._result(stopped)

    def _searched(self) -> StoppedBy | None:
        """Search candidates that have a bound; returns why the search stopped, None where nothing is left."""
        self._relax()
        for index in self._begun():
            # One that is within the gap of the incumbent decides nothing.
            if self._bounds.each[index].lower_bound < self._best.seconds * (1 - self._gap):
                self._push(index)
        self._loop.note()
        stopped = self._loop.run()
        if stopped is None and self.lower_bound < self._best.seconds * (1 - OPTIMALITY_GAP):
            # Nothing waits, since what is open is within the gap asked for: that is why the search ends.
            stopped = StoppedBy.GAP if self._loop.reason() is StoppedBy.GAP else None
        if stopped is None and self._best.incumbent is None:
            stopped = decide_by_memory(self._bounds, self._refining, self._best, self._loop)
        if stopped is not None and self._best.incumbent is None:
            look_for_any(self._problem, self._bounds, self._refining, self._best)
            self._loop.note()
            stopped = None if self._bounds.all_infeasible else stopped
        return stopped

    def _renew(self, index: int, change: Callable[[CandidateBound], Result]) -> Result:
        """What a change of a bound returns; where the change is cut short, the bound is what it was."""
        bound = self._bounds.each[index]
        before = bound.lower_bound, bound.source, bound.state, bound.witness
        try:
            return change(bound)
        except BaseException:
            bound.lower_bound, bound.source, bound.state, bound.witness = before
            raise
        finally:
            self._bounds.note(index)

    def _first(self, candidate: Candidate) -> CandidateBound:
        """A candidate with the bound that is known of it, (9), or with its first one."""
        if (bound := self._known.get(candidate)) is None:
            return self._refining.first(candidate)
        state = State.INFEASIBLE if math.isinf(bound.lower_bound) else State.OPEN
        return CandidateBound(
            candidate=candidate,
            state=state,
            lower_bound=bound.lower_bound,
            source=bound.source,
            witness=bound.witness,
        )

    def _begun(self) -> list[int]:
        """Take first plans, divide the candidates of the best ones; returns the candidates that are left."""
        offered = list[tuple[float, int]]()
        places = {id(bound): index for index, bound in enumerate(self._bounds.each)}
        stopping, most = self._loop.is_stopping, self._first_plans
        for bound, strategy, devices in first_plans(self._problem, self._bounds.each, stopping, most=most):
            seconds = self._best.take(bound, strategy, devices)
            if self._refining.standing(bound.candidate).by_order:
                offered.append((seconds, places[id(bound)]))
        left = {index: True for index in self._bounds.left}
        for _, index in sorted(offered)[: most // FIRST_DIVIDED]:
            # Uneven stages of an order are worth half a per cent and more, which the bounds of all others profit from.
            if index in left and not self._loop.is_stopping():
                # Its plan is priced, and it is divided whatever layers it can take.
                self._refining.standing(self._bounds.each[index].candidate).counted = True
                left[index] = self._renew(index, self._refining.refine)
        return [index for index, more in left.items() if more]

    def _relax(self) -> None:
        """Bound ``relaxation`` of the candidates that may beat simple plans, within half of the time limit, (1)."""
        half, bounds, done, size = self._loop.stop.share(RELAXING), self._bounds.each, 0, FIRST_RELAXED
        unknown = [index for index, candidate in enumerate(self._every) if candidate not in self._known]
        unknown.sort(key=lambda index: bounds[index].lower_bound)
        while unknown:
            part, unknown, size = unknown[:size], unknown[size:], 2 * size
            for place in self._refining.ladder.turns([self._every[index] for index in part]):
                if done % RELAXED_AT_ONCE == 0:
                    if half():
                        return
                    self._loop.tell(f"bounds of {done} of {done + len(part) + len(unknown)} candidates")
                self._renew(part[place], self._refining.relax)
                done += 1
            if unknown:
                relaxed = (bounds[index] for index in part)
                for plan in first_plans(self._problem, relaxed, self._loop.is_stopping, most=PRICED_BETWEEN):
                    self._best.take(*plan)
                # Candidates within the gap of the incumbent are skipped.
                enough = self._best.seconds * (1 - self._gap)
                unknown = [index for index in unknown if bounds[index].lower_bound < enough]

    @property
    def incumbent_value(self) -> float:
        """Seconds of the best plan."""
        return self._best.seconds

    @property
    def lower_bound(self) -> float:
        """Global bound, valid at any moment."""
        return min(self._best.seconds, self._bounds.least)

    @property
    def is_open(self) -> bool:
        """Whether a candidate or an order is left."""
        return bool(self._heap) or self._awaits_order

    @property
    def _awaits_order(self) -> bool:
        """Whether an order may be adapted, (4)."""
        return self._adapts and self._refining.orders.has_pending

    def _push(self, index: int) -> None:
        """Take a candidate up again."""
        bound = self._bounds.each[index]
        # Of equal bounds the one with sequence parallelism goes first, since it bounds the other.
        priority, key = turn(bound, self._refining.standing(bound.candidate), self._best.seconds)
        heapq.heappush(self._heap, (priority, key, not bound.candidate.sequence_parallel, index))

    def refine(self) -> str | None:
        """Adapt an order where that comes first, or refine the candidate with the least bound."""
        if (not self._heap or self._heap[0][0] is Priority.BRANCHING) and self._awaits_order:
            return self._adapt()
        priority, key, _, index = heapq.heappop(self._heap)
        bound = self._bounds.each[index]
        # A candidate whose bound is within the gap of the incumbent is skipped, and so are those behind it, unless they
        # come by the seconds of their divisions.
        if bound.lower_bound >= self._best.seconds * (1 - self._gap):
            if key == bound.lower_bound and priority is not Priority.DIVIDED:
                self._heap = [entry for entry in self._heap if entry[0] is not priority]
                heapq.heapify(self._heap)
            return None
        if bound.source is Source.BALANCE:
            self._renew(index, self._refining.relax)
            self._push(index)
            return None
        more = self._renew(index, self._refining.refine)
        if more:
            self._push(index)
        elif self._refining.awaits_plan(bound):
            self._waiting.append(index)
        self._take_up()
        return str(bound.candidate)

    def _take_up(self) -> None:
        """Take up again candidates that a better plan lets branch."""
        for index in [each for each in self._waiting if self._refining.has_lower_limit(self._bounds.each[each])]:
            self._waiting.remove(index)
            self._push(index)

    def _adapt(self) -> str:
        """Adapt an order to the most promising division; its candidates join the others."""
        order = self._refining.orders.adapt_next(self._loop.is_stopping)
        if order is not None:
            known = set(self._problem.candidates)
            self._problem = self._problem.with_orders([order])
            more = [candidate for candidate in self._problem.candidates if candidate not in known]
            self._refining.ladder.relax(more)
            joining = [self._refining.first(candidate) for candidate in more]
            self._bounds.make_room(len(more))
            places = [self._bounds.add(bound) for bound in joining]
            self._orders.append(order)
            for index in places:
                self._push(index)
        return "an order adapted to its times" if order else "no order found that is quicker"

    def _result(self, stopped: StoppedBy | None) -> SearchResult:
        self._refining.state_witnesses()
        self._best.settle()
        return concluded(
            self._bounds.each,
            self._best.incumbent,
            self.lower_bound,
            stopped,
            orders=tuple(self._orders),
            work=self._loop.work,
            wall_s=self._loop.stop.seconds,
            relaxations=self._refining.ladder.relaxations,
            history=self._loop.history.as_dicts(),
            nearest=self._best.nearest.plans,
        )


FIRST_GROUP, LARGEST_GROUP = 4, 64
"""Candidates of a group: few while every plan helps the others, more once most are refuted at their first bound."""
PARTS = 8
"""Parts of (10) for each process: candidates of large degrees take longer than others."""
FIRST = Source.BALANCE, Source.RELAXATION
"""What bounds rest on until a candidate was sent out."""
LOOK_S = 0.2
"""Seconds between two looks at limits while tasks run."""

_known: dict[bytes, PlanningProblem] = {}


def search_on(
    executor: Executor, processes: int, problem: PlanningProblem, limits: Limits, progress: Listener | None = None
) -> SearchResult:
    """Best plan, with a bound on every candidate, by ``processes``; a work limit is one of each group of candidates."""
    # Compiled here once, loaded there.
    load_loops(problem)
    return _Shared(executor, processes, problem, limits, progress).run()


class _Shared:
    def __init__(
        self, executor: Executor, processes: int, problem: PlanningProblem, limits: Limits, progress: Listener | None
    ) -> None:
        self._executor, self._processes, self._limits = executor, processes, limits
        # A work limit is each group's own.
        self._loop = BestFirst(self, replace(limits, work_limit=None), progress)
        self._problem, self._packed = problem, pickle.dumps(replace(problem))
        self._bounds: dict[Candidate, CandidateBound] = {}
        self._waiting: list[Candidate] = []
        self._incumbent: Incumbent | None = None
        self._nearest = Nearest()
        self._orders: list[GivenOrder] = []
        self._groups, self._running = 0, set[Future[SearchResult]]()

    def run(self) -> SearchResult:
        """Search until proven, stopped or interrupted."""
        stopped: StoppedBy | None = StoppedBy.INTERRUPT
        with self._loop.stop, cut_short():
            self._relax()
            stopped = self._loop.run() or self._loop.reason()
            while self._running:
                self._wait()
        if len(self._bounds) < len(self._problem.candidates):
            # As in a search by one process.
            raise KeyboardInterrupt
        relaxations = {c: b.lower_bound for c, b in self._bounds.items() if b.source is Source.RELAXATION}
        return concluded(
            list(self._bounds.values()),
            self._incumbent,
            self.lower_bound,
            stopped,
            orders=tuple(self._orders),
            work=self._loop.work,
            wall_s=self._loop.stop.seconds,
            relaxations=relaxations,
            history=self._loop.history.as_dicts(),
            nearest=self._nearest.plans,
        )

    def _relax(self) -> None:
        """Relaxations of all candidates, (10)."""
        every = self._problem.candidates
        count = min(PARTS * self._processes, len(every)) or 1
        parts = [every[k::count] for k in range(count)]
        limit = self._limits.time_limit
        each = math.inf if limit is None else RELAXING * limit * self._processes / count
        futures = [self._executor.submit(_relaxed, self._packed, part, each) for part in parts]
        for part, future in zip(parts, futures, strict=True):
            for candidate, (seconds, source) in zip(part, future.result(), strict=True):
                self._bounds[candidate] = CandidateBound(candidate=candidate, lower_bound=seconds, source=source)
        self._waiting = sorted(every, key=self._priority, reverse=True)
        self._loop.report("relaxations", work=0)

    def _priority(self, candidate: Candidate) -> tuple[int, float, bool]:
        """Order in which candidates are sent out, (11); of equal bounds that with sequence parallelism first."""
        return candidate.effort, self._bounds[candidate].lower_bound, not candidate.sequence_parallel

    @property
    def is_open(self) -> bool:
        """Whether tasks run, or candidates wait."""
        return bool(self._running or self._waiting)

    def refine(self) -> None:
        """Send out groups by ascending bound, (11) and (12), and take what is done."""
        while len(self._running) < self._processes and (group := self._next_group()):
            self._running.add(self._executor.submit(_searched, *self._task(group)))
        self._wait()

    def _wait(self) -> None:
        """Take the tasks that are done within a moment."""
        done, self._running = wait(self._running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        for future in done:
            self._take(future.result())

    def _next_group(self) -> list[Candidate]:
        """The next candidates below the incumbent; none where no candidate is."""
        size = min(FIRST_GROUP << (self._groups // self._processes), LARGEST_GROUP)
        group: list[Candidate] = []
        while self._waiting and len(group) < size:
            candidate = self._waiting.pop()
            if self._bounds[candidate].lower_bound < self.incumbent_value:
                group.append(candidate)
        self._groups += 1
        return group

    def _task(
        self, group: list[Candidate]
    ) -> tuple[bytes, list[Candidate], dict[Candidate, CandidateBound], Incumbent | None, Limits]:
        """What a process needs to search a group."""
        left = None if self._limits.time_limit is None else max(self._loop.stop.left, 0.0)
        known = {c: bound for c in group if (bound := self._bounds[c]).source is Source.RELAXATION}
        return self._packed, group, known, self._incumbent, replace(self._limits, time_limit=left, workers=1)

    def _take(self, found: SearchResult) -> None:
        """Keep a group's bounds, orders, and plan."""
        for bound in found.bounds:
            known = self._bounds.get(bound.candidate)
            if known is None or known.lower_bound <= bound.lower_bound:
                self._bounds[bound.candidate] = bound
        for plan in found.nearest:
            self._nearest.add(plan)
        self._orders += [order for order in found.orders if order not in self._orders]
        if found.incumbent is not None and found.incumbent.seconds < self.incumbent_value:
            self._incumbent = found.incumbent
        count = sum(bound.source not in FIRST for bound in self._bounds.values())
        self._loop.report(f"{count} candidates", found.work)

    @property
    def incumbent_value(self) -> float:
        """Seconds of the best plan."""
        return math.inf if self._incumbent is None else self._incumbent.seconds

    @property
    def lower_bound(self) -> float:
        """Global bound (12)."""
        left = (b.lower_bound for b in self._bounds.values() if b.state in (State.OPEN, State.PRUNED))
        return min(self.incumbent_value, min(left, default=math.inf))


def _unpacked(packed: bytes) -> PlanningProblem:
    """The problem, with the tables that earlier tasks of this process made."""
    if packed not in _known:
        _known.clear()
        _known[packed] = pickle.loads(packed)
    return _known[packed]


def _relaxed(packed: bytes, candidates: Sequence[Candidate], limit: float) -> list[tuple[float, Source]]:
    """Task: first bounds of some candidates, relaxations as far as the seconds go."""
    ladder = Ladder(_unpacked(packed))
    with Stopwatch() as watch:
        for index in ladder.turns(candidates):
            if watch.seconds >= limit:
                break
            ladder.relaxation(candidates[index])
    return [ladder.first(candidate) for candidate in candidates]


def _searched(
    packed: bytes,
    group: list[Candidate],
    known: dict[Candidate, CandidateBound],
    incumbent: Incumbent | None,
    limits: Limits,
) -> SearchResult:
    """Task: the search of a group."""
    return search(_unpacked(packed), limits, incumbent=incumbent, only=group, known=known)
