r"""
Schedules by name of their policy, and the best that is found within a time.

Policies of ``taut.solver.jobs.simulate`` know what has arrived and nothing of what will. First come, first served: jobs
start in order of arrival and keep what they have to the end. Where none of a job's sizes fits what is free, everyone
behind it waits. Shortest remaining time first: at every event jobs in order of the seconds that they still need at
their knee. A job whose own configuration still fits keeps it, which saves a restart. Jobs without room rest.

(1) Of configurations with at least ``EFFICIENT`` of the best rate a device, the knee is the one with the largest rate.
(2) Of those that fit what is free, the largest rate up to the knee's.

Max-min fair shares by Gavel's linear program and its rounds [1]_. Shares of time are what Gavel divides; a job of ours
also divides its devices, since its configurations differ in size. With :math:`X_c` the share of time that a job spends
in configuration c,

(3) maximise :math:`\min_j \frac{1}{w_j} \sum_{c \in j} X_c r_c / \bar{r}_j`, where :math:`\bar{r}_j` is the job's best
    rate alone, so that :math:`\sum_{c \in j} X_c \le 1` and :math:`\sum_c g_c X_c \le N_p G_p`;
(4) every ``ROUND_S`` seconds, and when jobs come or go, configurations are handed out in order of
    :math:`X_c / f_c`, with :math:`f_c` the share of time that the job has spent in c since (3) was solved, while they
    fit and their job has none.

ElasticFlow: admission by minimum satisfactory shares, the rest by marginal return [2]_. A job's sizes are its
configurations by devices, each faster than those below. Jobs without a deadline take part in (7) alone, after their
smallest size in order of arrival. On several pools a job takes its shares on the first pool on which it has one. A
restart counts where the size changes.

(5) Minimum satisfactory share: the smallest size g at which the job, holding :math:`\min(g, \text{what is free})` at
    every moment from now on, is complete by its deadline. What is free are the devices that jobs with earlier
    deadlines leave (progressive filling).
(6) Admission: a job that arrives is taken if, in order of deadlines, all that were taken before and it have such a
    share; otherwise it is dropped for good. An admitted job that falls behind keeps what it can get.
(7) What is left goes, one size at a time, to the job with the least additional device-seconds for each device that it
    gains, :math:`(g' \ell / r' - g \ell / r) / (g' - g)` with :math:`\ell` the work left.

Rolling horizon: at every event the integer program of what has arrived, of which the first interval is carried out.

(8) The jobs that wait, with the work that they have left, are planned from now on by list schedules of constructed
    orders; running jobs keep their configuration there.
(9) On a grid of ``INTERVALS`` intervals up to the end of that schedule, each ``GROWTH`` times as long as the one
    before, the integer program (``taut.formulations.jobs.program``) is solved within ``WORK`` of CP-SAT's deterministic
    time, if it has at most ``MOST_PLANNED`` columns. Going on with a configuration is no start. One seed gives one
    schedule.
(10) Who holds what at the beginning of the better schedule holds it now, until the next event or until that schedule
     changes. What is left goes to the others in order of arrival.

Names of policies and methods are

===============================================================  =======================================================
``elasticflow``, ``fair-share``, ``first-come``,                 the event simulator under a policy that knows what has
``shortest-first``, ``rolling``                                  arrived, (1) to (10)
``annealing``                                                    annealed list schedules, knowing all arrivals
``cp-sat``, ``cbc``                                              the same, and then the integer program on a grid up to
                                                                 the end of the best schedule, where it is small enough;
                                                                 of these and all policies the best is taken
===============================================================  =======================================================

Every schedule is judged by ``taut.formulations.jobs.problem``, none is trusted.

References
----------
.. [1] Narayanan et al. (2020), Heterogeneity-aware cluster scheduling policies for deep learning workloads, OSDI,
       sections 4.1 and 5.
.. [2] Gu et al. (2023), ElasticFlow, ASPLOS, section 4.
"""

import time
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import NothingFoundError, SolverError
from taut.formulations.jobs.problem import JobsProblem, Measures, Objective, Schedule, measures, trimmed, violations
from taut.formulations.jobs.program import grid_program
from taut.solver.jobs.anneal import anneal
from taut.solver.jobs.bounds import subproblem
from taut.solver.jobs.program import solve_grid
from taut.solver.jobs.simulate import Failures, Policy, View, simulate
from taut.solver.linear_program import linear_program
from taut.solver.signals import cut_short

EFFICIENT = 0.5
"""Share of the best rate a device: half, the usual rule for the knee of a speedup curve (Eager et al., 1989)."""


def knee(problem: JobsProblem, job: int) -> int | None:
    """The configuration (1), or None where none fits its pool."""
    own = [c for c in problem.columns(job) if problem.fits[c]]
    if not own:
        return None
    best = max(float(problem.rate[c] / problem.gpus[c]) for c in own)
    return max((c for c in own if problem.rate[c] / problem.gpus[c] >= EFFICIENT * best), key=lambda c: problem.rate[c])


class _Hands:
    """What jobs are to hold, and the devices (P,) that are free beside it."""

    def __init__(self, view: View, held: Mapping[int, int] | None = None) -> None:
        self.view, self.held, self.free = view, dict[int, int](), view.capacity.copy()
        for job, column in (held or {}).items():
            self.give(job, column)

    def has_room(self, column: int) -> bool:
        """Whether a configuration fits what is free."""
        return bool(self.view.problem.gpus[column] <= self.free[self.view.problem.pool[column]])

    def give(self, job: int, column: int) -> None:
        """Let a job hold a configuration, in place of what it was to hold."""
        problem = self.view.problem
        if job in self.held:
            self.free[problem.pool[self.held[job]]] += problem.gpus[self.held[job]]
        self.held[job] = column
        self.free[problem.pool[column]] -= problem.gpus[column]

    def kept(self, job: int) -> int | None:
        """The configuration that a job holds already, if it fits."""
        column = int(self.view.held[job])
        return column if column >= 0 and self.has_room(column) else None

    def fitting(self, job: int) -> int | None:
        """The configuration (2), or None where none fits what is free."""
        problem, most = self.view.problem, knee(self.view.problem, job)
        if most is None:
            return None
        own = [c for c in problem.columns(job) if self.has_room(c) and problem.rate[c] <= problem.rate[most]]
        return max(own, key=lambda c: problem.rate[c], default=None)

    def give_any(self, job: int) -> None:
        """Let a job keep its configuration, else hold (2), if there is room."""
        column = self.kept(job)
        column = self.fitting(job) if column is None else column
        if column is not None:
            self.give(job, column)


class FirstCome:
    """The policy."""

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Keep who runs, and start the next ones while they fit."""
        hands = _Hands(view)
        for job in view.waiting:
            if (column := hands.kept(job)) is not None:
                hands.give(job, column)
        for job in [job for job in view.waiting if job not in hands.held]:
            if (column := hands.fitting(job)) is None:
                break
            hands.give(job, column)
        return hands.held, inf


class ShortestFirst:
    """The policy."""

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Fill the cluster, the shortest job first."""
        hands = _Hands(view)
        for job in sorted(view.waiting, key=lambda job: (_seconds(view, job), job)):
            hands.give_any(job)
        return hands.held, inf


def _seconds(view: View, job: int) -> float:
    column = knee(view.problem, job)
    return inf if column is None else float(view.left[job] / view.problem.rate[column])


ROUND_S = 360.0
"""Seconds of a round: Gavel's own, six minutes."""
LITTLE = 1e-6
"""Shares below are none; and a configuration that has had no time counts as having had so much."""


class FairShare:
    """The policy."""

    def __init__(self) -> None:
        self._jobs: tuple[int, ...] = ()
        self._shares: dict[int, float] = {}
        self._spent: dict[int, float] = {}
        self._solved = self._last = 0.0

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Solve (3) where jobs have come or gone, and hand out a round (4)."""
        for column in view.held[view.held >= 0].tolist():
            self._spent[column] = self._spent.get(column, 0.0) + view.now - self._last
        self._last = view.now
        if view.waiting != self._jobs:
            self._jobs, self._solved, self._spent = view.waiting, view.now, {}
            self._shares = shares(view.problem, view.waiting)
        passed = max(view.now - self._solved, LITTLE)
        hands = _Hands(view)
        order = sorted(self._shares, key=lambda c: (-self._shares[c] / max(self._spent.get(c, 0) / passed, LITTLE), c))
        for column in order:
            job = int(view.problem.job[column])
            if job not in hands.held and hands.has_room(column):
                hands.give(job, column)
        return hands.held, view.now + ROUND_S if view.waiting else inf


def shares(problem: JobsProblem, jobs: tuple[int, ...]) -> dict[int, float]:
    """The shares (3) of some jobs by configuration, without those that are nothing."""
    columns = [c for job in jobs for c in problem.columns(job) if problem.fits[c]]
    if not columns:
        return {}
    row = {job: number for number, job in enumerate(jobs)}
    owner = np.array([row[int(problem.job[c])] for c in columns])
    count, pools = len(columns), len(problem.pools)
    rates = _normalised(problem, columns, jobs, owner)
    matrix = np.zeros((2 * len(jobs) + pools, count + 1))
    # The fairness rows of jobs that fit nowhere would hold everyone at 0.
    runs = np.isin(np.arange(len(jobs)), owner)
    matrix[owner, np.arange(count)] = rates
    matrix[: len(jobs), count] = -1.0 * runs
    matrix[len(jobs) + owner, np.arange(count)] = 1.0
    matrix[2 * len(jobs) + problem.pool[columns], np.arange(count)] = problem.gpus[columns]
    least = np.concatenate([np.zeros(len(jobs)), np.full(len(jobs) + pools, -inf)])
    most = np.concatenate([np.full(len(jobs), inf), np.ones(len(jobs)), problem.capacity])
    program = linear_program("highs")
    # A little for everyone's rate: what is left over after the least share is handed out as well.
    cost = np.append(-LITTLE * rates, -1.0)
    program.add_columns(cost, np.zeros(count + 1), np.append(np.ones(count), inf), np.zeros((0, count + 1)))
    program.add_rows(matrix, least, most)
    solution = program.solve()
    values = np.zeros(count) if solution is None else solution.primal[:count]
    return {column: value for column, value in zip(columns, values.tolist(), strict=True) if value > LITTLE}


def _normalised(problem: JobsProblem, columns: list[int], jobs: tuple[int, ...], owner: np.ndarray) -> Floats:
    """Rates over the job's best and its weight."""
    best = np.zeros(len(jobs))
    np.maximum.at(best, owner, problem.rate[columns])
    return np.asarray(problem.rate[columns] / best[owner] / problem.weight[np.array(jobs)][owner])


Plan = list[tuple[float, float, int]]
"""From, to, configuration."""


class ElasticFlow:
    """The policy."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._dropped: set[int] = set()
        self._sizes: dict[tuple[int, int], list[int]] = {}

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Admit who has arrived, hand out the shares, and then the rest."""
        for job in (job for job in view.waiting if job not in self._seen):
            self._seen.add(job)
            if view.problem.deadline[job] < inf and not self._admits(view, job):
                self._dropped.add(job)
        hands = _Hands(view, self._shares(view))
        self._give_smallest(hands)
        self._grow(hands)
        return hands.held, inf

    def sizes(self, problem: JobsProblem, job: int, pool: int) -> list[int]:
        """Configurations of a job on a pool by devices, each faster than those below."""
        if (job, pool) not in self._sizes:
            kept: list[int] = []
            own = (c for c in problem.columns(job) if problem.pool[c] == pool and problem.fits[c])
            for column in sorted(own, key=lambda c: (int(problem.gpus[c]), -float(problem.rate[c]))):
                if not kept or problem.rate[column] > problem.rate[kept[-1]]:
                    kept.append(column)
            self._sizes[job, pool] = kept
        return self._sizes[job, pool]

    def _admits(self, view: View, job: int) -> bool:
        """Test (6)."""
        taken = [other for other in self._due(view) if other in self._seen]
        profiles, without = _profiles(view), _profiles(view)
        behind = {other for other in taken if other != job and self._reserve(view, other, without) is None}
        return all(self._reserve(view, other, profiles) is not None or other in behind for other in taken)

    def _due(self, view: View) -> list[int]:
        """Admitted jobs in order of deadlines."""
        own = [job for job in view.waiting if view.problem.deadline[job] < inf and job not in self._dropped]
        return sorted(own, key=lambda job: (float(view.problem.deadline[job]), job))

    def _shares(self, view: View) -> dict[int, int]:
        """What admitted jobs hold now by their shares (5); those behind take the largest size that is free."""
        profiles, held, behind = _profiles(view), dict[int, int](), list[int]()
        for job in self._due(view):
            plan = self._reserve(view, job, profiles)
            if plan is None:
                behind.append(job)
            elif plan[0][0] <= view.now:
                held[job] = plan[0][2]
        free = [profile.levels[0] for profile in profiles]
        for job in behind:
            own = [c for pool in range(len(free)) for c in self.sizes(view.problem, job, pool)]
            own = [c for c in own if view.problem.gpus[c] <= free[view.problem.pool[c]]]
            if own:
                held[job] = max(own, key=lambda c: float(view.problem.rate[c]))
                free[view.problem.pool[held[job]]] -= int(view.problem.gpus[held[job]])
        return held

    def _reserve(self, view: View, job: int, profiles: list["_Profile"]) -> Plan | None:
        """The plan of the minimum satisfactory share (5), taken from the profile of its pool."""
        for pool, profile in enumerate(profiles):
            sizes = self.sizes(view.problem, job, pool)
            for count in range(1, len(sizes) + 1):
                plan = _filled(view, job, profile, sizes[:count])
                if plan is not None:
                    for first, until, column in plan:
                        profile.take(first, until, int(view.problem.gpus[column]))
                    return plan
        return None

    def _give_smallest(self, hands: _Hands) -> None:
        """Give jobs without a deadline their smallest size."""
        view = hands.view
        for job in view.waiting:
            if job in hands.held or job in self._dropped or view.problem.deadline[job] < inf:
                continue
            smallest = [sizes[0] for pool in range(len(hands.free)) if (sizes := self.sizes(view.problem, job, pool))]
            if (column := next(filter(hands.has_room, smallest), None)) is not None:
                hands.give(job, column)

    def _grow(self, hands: _Hands) -> None:
        """Hand out what is left (7); admitted jobs whose share begins later may begin now."""
        problem, options = hands.view.problem, list[tuple[float, int, int]]()
        for job in [*hands.held, *(job for job in self._due(hands.view) if job not in hands.held)]:
            self._offer(hands, job, options)
        while options:
            _, job, column = options.pop(0)
            before = problem.gpus[hands.held[job]] if job in hands.held else 0
            if problem.gpus[column] - before <= hands.free[problem.pool[column]]:
                hands.give(job, column)
                self._offer(hands, job, options)

    def _offer(self, hands: _Hands, job: int, options: list[tuple[float, int, int]]) -> None:
        """Add the job's next size, by its price (7)."""
        view, before = hands.view, hands.held.get(job)
        problem = view.problem
        pools = range(len(problem.pools)) if before is None else [int(problem.pool[before])]
        for pool in pools:
            sizes = self.sizes(problem, job, pool)
            larger = sizes if before is None else sizes[sizes.index(before) + 1 :]
            if larger:
                column = larger[0]
                now, gpus = (0.0, 0) if before is None else (_area(view, before), int(problem.gpus[before]))
                price = (_area(view, column) - now) / (int(problem.gpus[column]) - gpus)
                insort(options, (price, job, column))
                return


def _area(view: View, column: int) -> float:
    """Device-seconds of what is left of a job in a configuration."""
    left = float(view.left[view.problem.job[column]])
    return float(view.problem.gpus[column]) * left / float(view.problem.rate[column])


def _filled(view: View, job: int, profile: "_Profile", sizes: list[int]) -> Plan | None:
    """Progressive filling (5) with a largest size, or None where the deadline is missed."""
    problem, left, held = view.problem, float(view.left[job]), int(view.held[job])
    due = float(problem.deadline[job])
    plan: Plan = []
    waits = float(view.starting[job])
    for first, until, level in profile.pieces():
        if first >= due:
            return None
        column = next((c for c in reversed(sizes) if problem.gpus[c] <= level), None)
        if column is None:
            held = -1
            continue
        waits = waits if column == held else problem.restart_s
        rate = float(problem.rate[column])
        end = first + waits + left / rate
        if end <= until:
            return [*plan, (first, end, column)] if end <= due else None
        worked = max(0.0, until - first - waits)
        waits = max(0.0, waits - (until - first))
        left, held = left - rate * worked, column
        plan.append((first, until, column))
    return None


class _Profile:
    """Devices that are free from a moment on, piece by piece."""

    def __init__(self, now: float, devices: int) -> None:
        self.times, self.levels = [now], [devices]

    def pieces(self) -> list[tuple[float, float, int]]:
        """From, to, free."""
        return list(zip(self.times, [*self.times[1:], inf], self.levels, strict=True))

    def take(self, first: float, until: float, devices: int) -> None:
        """Hold devices for a while."""
        start, end = self._cut(first), self._cut(until)
        for piece in range(start, end):
            self.levels[piece] -= devices

    def _cut(self, moment: float) -> int:
        piece = bisect_right(self.times, moment) - 1
        if self.times[piece] == moment:
            return piece
        self.times.insert(piece + 1, moment)
        self.levels.insert(piece + 1, self.levels[piece])
        return piece + 1


def _profiles(view: View) -> list[_Profile]:
    """What is free on every pool from now on."""
    return [_Profile(view.now, int(devices)) for devices in view.capacity]


INTERVALS, GROWTH = 6, 1.5
WORK, MOST_PLANNED = 0.3, 3_000
"""A decision takes about a third of a second at most; larger programs find nothing in it."""


class RollingHorizon:
    """The policy for an objective."""

    def __init__(self, objective: Objective, seed: int = 0) -> None:
        self._objective, self._seed = objective, seed

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Plan what waits, and carry out the beginning."""
        jobs = np.array(sorted(view.waiting), dtype=np.int64)
        if not len(jobs):
            return {}, inf
        columns = np.flatnonzero(np.isin(view.problem.job, jobs))
        schedule = self._planned(view, jobs, columns)
        held = {int(jobs[each.job]): int(columns[each.column]) for each in schedule if each.start <= 0}
        ends = [moment for each in schedule for moment in (each.start, each.end) if moment > 0]
        hands = _Hands(view, held)
        for job in view.waiting:
            if job not in hands.held:
                hands.give_any(job)
        return hands.held, view.now + min(ends, default=inf)

    def _planned(self, view: View, jobs: Ints, columns: Ints) -> Schedule:
        """The better of list schedule (8) and program (9) of jobs that wait, with their configurations."""
        problem = _remaining(view, jobs)
        kept, numbers = _kept(view, problem, columns)
        listed = anneal(kept, self._objective, seed=self._seed, rounds=0)
        best = tuple(segment._replace(column=int(numbers[segment.column])) for segment in listed)
        grid = self._grid(problem, best)
        if grid is None or len(problem.job) * INTERVALS > MOST_PLANNED:
            return best
        held = view.held[jobs]
        going = np.where(held >= 0, np.searchsorted(columns, held), -1)
        program = grid_program(problem, self._objective, grid, going)
        found = solve_grid(program, work_limit=WORK, seed=self._seed)
        values = [measures(problem, each).value(self._objective) for each in (best, found.schedule)]
        return found.schedule if found.value is not None and values[1] < values[0] else best

    def _grid(self, problem: JobsProblem, schedule: Schedule) -> Floats | None:
        due = problem.deadline[np.isfinite(problem.deadline)]
        last = max((segment.end for segment in schedule), default=0.0)
        if self._objective == "deadlines":
            last = max(last, float(due.max(initial=0.0)))
        lengths = GROWTH ** np.arange(INTERVALS)
        grid = np.concatenate([[0.0], np.cumsum(lengths)]) * last / lengths.sum()
        return grid if grid[1] > problem.restart_s else None


def _remaining(view: View, jobs: np.ndarray) -> JobsProblem:
    """What is left of the jobs that wait, from now on, on the devices that are up."""
    problem = subproblem(view.problem, jobs)
    pools = tuple(
        pool._replace(nodes=int(up) // pool.gpus_per_node)
        for pool, up in zip(problem.pools, view.capacity, strict=True)
    )
    return replace(
        problem,
        pools=pools,
        arrival=np.zeros(len(jobs)),
        work=np.maximum(view.left[jobs], 1e-9 * problem.work),
        deadline=problem.deadline - view.now,
    )


def _kept(view: View, problem: JobsProblem, columns: Ints) -> tuple[JobsProblem, Ints]:
    """The problem in which running jobs have their own configuration alone, with the numbers that those left have."""
    own = view.held[view.problem.job[columns]]
    stays = (own < 0) | (own == columns)
    rows = {name: getattr(problem, name)[stays] for name in ("job", "pool", "gpus", "rate")}
    return replace(problem, **rows), np.flatnonzero(stays)


POLICIES: dict[str, Callable[[], Policy]] = {
    "elasticflow": ElasticFlow,
    "first-come": FirstCome,
    "shortest-first": ShortestFirst,
    "fair-share": FairShare,
}


ANNEALING, PROGRAMS = "annealing", ("cp-sat", "cbc")
ROLLING = "rolling"
ONLINE = (*POLICIES, ROLLING)
"""Policies that know what has arrived alone."""
NAMES = (*ONLINE, ANNEALING, *PROGRAMS)
MOST_HELD = 12_000
"""Columns z of a program that is solved; beyond, CP-SAT finds nothing better than annealing within a minute."""
FEW_INTERVALS, MANY_INTERVALS = 6, 24
ANNEALED = 0.6
"""Share of the time that is for annealing where a program follows."""
ANNEALED_S = 60.0
"""Seconds of it where there is no limit."""
ONLINE_JOBS = 300
"""Jobs up to which policies are run beside annealing; each takes seconds there."""

Told = Callable[[float, str], None]
"""Called with the value of a better schedule, and what found it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A valid schedule, what it achieves, and what found it."""

    schedule: Schedule
    measures: Measures
    by: str


def solve_jobs(
    problem: JobsProblem,
    objective: Objective,
    policy: str,
    *,
    time_limit: float | None = 60.0,
    seed: int = 0,
    workers: int = 1,
    rounds: int | None = None,
    failures: Failures | None = None,
    target: float = 0.0,
    stop: Callable[[], bool] = bool,
    told: Told | None = None,
) -> Found:
    """The schedule of a policy of ``NAMES``, within ``rounds`` or ``time_limit`` seconds, or until ``target``."""
    solving = _Solving(problem, objective, seed, inf if time_limit is None else time_limit, target, stop, told)
    with cut_short():
        if policy in ONLINE:
            return solving.simulate(policy, failures)
        solving.solve(policy, rounds, workers)
    if solving.best is None:
        raise NothingFoundError("interrupted before there was a schedule")
    return solving.best


@dataclass
class _Solving:
    """The best schedule so far, and what is left of the time."""

    problem: JobsProblem
    objective: Objective
    seed: int
    time_limit: float
    target: float
    asked: Callable[[], bool]
    told: Told | None
    best: Found | None = None
    began: float = field(default_factory=time.perf_counter)

    def simulate(self, policy: str, failures: Failures | None = None) -> Found:
        """What a policy makes that knows what has arrived."""
        made = RollingHorizon(self.objective, self.seed) if policy == ROLLING else POLICIES[policy]()
        return self._take(simulate(self.problem, made, failures), policy)

    def solve(self, policy: str, rounds: int | None, workers: int) -> None:
        """Anneal, knowing all arrivals; with one of ``PROGRAMS`` after the policies, and before the program."""
        is_program, intervals = policy in PROGRAMS, self._intervals()
        if is_program and self.problem.num_jobs <= ONLINE_JOBS:
            for name in POLICIES:
                if not self._is_over(ANNEALED):
                    self.simulate(name)
        ends = partial(self._is_over, ANNEALED if is_program and intervals else 1.0)
        if self.best is None or not self._stops():
            listed = anneal(self.problem, self.objective, seed=self.seed, rounds=rounds, target=self.target, stop=ends)
            self._take(listed, ANNEALING)
        left = self.time_limit - (time.perf_counter() - self.began)
        grid = self._grid(intervals) if is_program and intervals and left > 0 and not self._stops() else None
        if grid is not None:
            found = solve_grid(
                grid_program(self.problem, self.objective, grid),
                backend="cbc" if policy == "cbc" else "cp-sat",
                time_limit=None if left == inf else left,
                workers=workers,
                seed=self.seed,
                stop=self._stops,
            )
            if found.value is not None:
                self._take(found.schedule, policy)

    def _stops(self) -> bool:
        """Whether the caller wants no more, or has what it asked for."""
        return self.asked() or (self.best is not None and self.best.measures.value(self.objective) <= self.target)

    def _is_over(self, share: float) -> bool:
        """Whether a share of the time is over too."""
        # Without a limit the program would wait for ever.
        seconds = ANNEALED_S if share < 1 and self.time_limit == inf else share * self.time_limit
        return self._stops() or time.perf_counter() - self.began > seconds

    def _take(self, schedule: Schedule, by: str) -> Found:
        """Judge a schedule, and keep it if it is the best; of equal values the smaller mean completion."""
        cut = trimmed(self.problem, schedule)
        if faults := violations(self.problem, cut):
            raise SolverError(f"jobs: {by} made a schedule that is not valid: {faults[0]}")
        found = Found(schedule=cut, measures=measures(self.problem, cut), by=by)
        if self.best is None or self._rank(found) < self._rank(self.best):
            self.best = found
            if self.told is not None:
                self.told(found.measures.value(self.objective), by)
        return found

    def _rank(self, found: Found) -> tuple[float, float]:
        return found.measures.value(self.objective), found.measures.mean_completion_s

    def _intervals(self) -> int:
        """Intervals of a grid on which the program is small enough; 0 where none is."""
        count = MOST_HELD // max(len(self.problem.job), 1)
        return min(count, MANY_INTERVALS) if count >= FEW_INTERVALS else 0

    def _grid(self, intervals: int) -> Floats | None:
        """Even intervals from the first arrival to the end of the best schedule, or to the last deadline."""
        assert self.best is not None
        due = self.problem.deadline[np.isfinite(self.problem.deadline)]
        ends = [segment.end for segment in self.best.schedule]
        last = float(due.max()) if self.objective == "deadlines" and len(due) else max(ends, default=0.0)
        first = float(self.problem.arrival.min())
        if not first < last < inf or (last - first) / intervals <= self.problem.restart_s:
            return None
        return np.linspace(first, last, intervals + 1)
