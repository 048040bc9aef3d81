r"""
Bounds on every schedule of a trace: the linear program, and what single jobs and all together need.

They hold for every schedule of ``taut.formulations.jobs.problem``: continuous time, any resizing at any moment, any
division of the work, knowledge of all arrivals. Of several bounds the best is taken:

(1) the linear program of ``taut.formulations.jobs.relaxation``, at the multipliers that the solver returns, whose value
    is computed anew by weak duality;
(2) each job alone: it takes ``least_seconds``, so deadlines before are missed, and means and makespans are no less;
(3) of completions, where all jobs weigh alike: one machine with all devices. A job needs at least
    :math:`W_j \min_c g_c / r_c` device-seconds from :math:`a_j + \rho` on, and all jobs together get no more than the
    devices give. Of every division of them the shortest remaining processing time first has the least sum of
    completions (Schrage 1968);
(4) the number of missed deadlines is whole: with weights that are multiples of one number, so is (4) of the problem.

The check of a schedule (``taut.formulations.jobs.problem``) forgives small errors of sums; deadlines are later and
values smaller by twice as much here, so that a schedule that passes it is never below a bound.

A job that fits nowhere is missed by every schedule, and makes every other objective infinite.
"""

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import ceil, inf

import numpy as np
from scipy.sparse import csr_matrix

from taut.data.arrays import Floats
from taut.formulations.jobs.problem import SECONDS, SHARE, JobsProblem, Objective
from taut.formulations.jobs.relaxation import Relaxation, boundaries, dual_value, relaxation
from taut.solver.linear_program import linear_program

MOST_INTERVALS = 256
"""Intervals of the linear program: 128 jobs with deadlines need no more, and beyond they are coarsened."""
MOST_PAIRS = 40_000
"""Pairs of job and interval: HiGHS takes about half a minute for twice as many."""
ROUNDING = 1e-6
"""Share of a whole number that a sum of floats may lack; such sums are exact to about 1e-9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsBound:
    """A lower bound, what it rests on, and the multipliers of the linear program that prove it, where it does."""

    value: float
    source: str
    program: Relaxation | None = None
    duals: Floats | None = None


def lower_bound(problem: JobsProblem, objective: Objective, *, horizon: float | None = None) -> JobsBound:
    """The best lower bound over all schedules; any ``horizon`` is valid, that of a known schedule is best."""
    problem = replace(problem, deadline=problem.deadline * (1 + 2 * SHARE) + 2 * SECONDS)
    if objective == "deadlines":
        return _missed(problem)
    if not np.all(np.isfinite(problem.least_seconds)):
        return JobsBound(value=inf, source="a job fits nowhere")
    alone = JobsBound(value=_alone(problem, objective), source="each job alone")
    found = _linear(problem, objective, horizon)
    bounds = [found, alone, *([_one_machine(problem)] if objective == "completion" else [])]
    best = max(bounds, key=lambda bound: bound.value)
    return replace(best, value=best.value * (1 - 2 * SHARE) if best.value < inf else inf)


def _alone(problem: JobsProblem, objective: Objective) -> float:
    """Bound (2)."""
    least = problem.least_seconds
    if objective == "completion":
        return float(problem.weight @ least / problem.weight.sum())
    if objective == "makespan":
        return float((problem.arrival + least).max() - problem.arrival.min())
    too_late = np.any(problem.arrival + least > problem.deadline)
    seconds = problem.work[problem.job] / problem.rate + problem.restart_s
    return inf if too_late else float(problem.least_of(problem.price * seconds).sum())


def _one_machine(problem: JobsProblem) -> JobsBound:
    """Bound (3); minus infinity where jobs do not weigh alike."""
    source = "one machine, shortest remaining time first"
    if np.any(problem.weight != problem.weight[0]):
        return JobsBound(value=-inf, source=source)
    needed = problem.least_of(problem.gpus * problem.work[problem.job] / problem.rate / float(problem.capacity.sum()))
    total = _shortest_remaining(problem.arrival + problem.restart_s, needed)
    return JobsBound(value=(total - float(problem.arrival.sum())) / problem.num_jobs, source=source)


def _shortest_remaining(released: Floats, needed: Floats) -> float:
    """Least sum of completions on one machine that may be taken from a job and given back."""
    waiting: list[float] = []
    now, total = 0.0, 0.0
    order = np.argsort(released, kind="stable")
    for place, job in enumerate(order.tolist()):
        now = max(now, float(released[job])) if not waiting else float(released[job])
        heappush(waiting, float(needed[job]))
        until = float(released[order[place + 1]]) if place + 1 < len(order) else inf
        while waiting and now < until:
            left = heappop(waiting)
            done = min(left, until - now)
            now += done
            if done < left:
                heappush(waiting, left - done)
            else:
                total += now
    return total


def _missed(problem: JobsProblem) -> JobsBound:
    """Weight of the deadlines that are missed: of jobs that cannot meet theirs, and by the linear program."""
    due = np.isfinite(problem.deadline)
    alone = problem.arrival + problem.least_seconds > problem.deadline
    hopeless = float(problem.weight[due & alone].sum())
    possible = np.flatnonzero(due & ~alone)
    if not len(possible):
        return JobsBound(value=hopeless, source="each job alone")
    found = _linear(subproblem(problem, possible), "deadlines", None)
    value = _whole(hopeless + max(found.value, 0.0), problem.weight[due])
    if value <= hopeless:
        return JobsBound(value=hopeless, source="each job alone")
    return replace(found, value=value)


def _whole(value: float, weights: Floats) -> float:
    """Bound (4)."""
    unit = float(weights.min())
    multiples = weights / unit
    if np.any(np.abs(multiples - multiples.round()) > 0):
        return value
    return unit * ceil(value / unit - ROUNDING)


def subproblem(problem: JobsProblem, jobs: np.ndarray) -> JobsProblem:
    """Some of the jobs, by ascending numbers, with their configurations."""
    kept = np.isin(problem.job, jobs)
    return replace(
        problem,
        arrival=problem.arrival[jobs],
        work=problem.work[jobs],
        deadline=problem.deadline[jobs],
        weight=problem.weight[jobs],
        job=np.searchsorted(jobs, problem.job[kept]),
        pool=problem.pool[kept],
        gpus=problem.gpus[kept],
        rate=problem.rate[kept],
    )


def _linear(problem: JobsProblem, objective: Objective, horizon: float | None) -> JobsBound:
    """Bound (1); minus infinity where the solver returns nothing, infinity where it proves that nothing fits."""
    source = "linear program"
    most = max(min(MOST_INTERVALS, MOST_PAIRS // problem.num_jobs), 2)
    program = relaxation(problem, objective, boundaries(problem, objective, most, horizon))
    duals = _duals(program)
    if duals is None:
        return JobsBound(value=-inf, source=source)
    return JobsBound(value=dual_value(program, duals), source=source, program=program, duals=duals)


def _duals(program: Relaxation) -> Floats | None:
    rows, columns = len(program.least), len(program.cost)
    matrix = csr_matrix((program.values, (program.row, program.column)), shape=(rows, columns))
    solver = linear_program("highs")
    solver.add_columns(program.cost, np.zeros(columns), program.upper, np.zeros((0, columns)))
    # HiGHS is not shown rows that hold nothing.
    holds = np.isfinite(program.least) | np.isfinite(program.most)
    solver.add_rows(matrix[holds], program.least[holds], program.most[holds])
    solution = solver.solve()
    if solution is None:
        return None
    duals = np.zeros(rows)
    duals[holds] = solution.duals
    return duals
