"""
The schedule of least makespan by CP-SAT, or the best order of a part of its passes.

The constraint program is that of ``taut.solver.schedules.improve.constraint_model``, in whole numbers. Rounding moves
a makespan by at most r units of 1 / scale seconds, so where all passes are free

    makespan >= (bound of the model - r) / scale  (1)

is what the solver claims of every schedule. Its own schedule is priced by the evaluator again, and the known one is
returned where that is not longer (2).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from taut.data.arrays import Flags
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable, violations
from taut.solver.cp_sat import run
from taut.solver.schedules.canonical import canonical_schedule
from taut.solver.schedules.improve.constraint_model import Model


@dataclass(frozen=True)
class Solved:
    """
    Outcome of a solve.

    Parameters
    ----------
    schedule, makespan
        The best schedule, and its makespan in seconds.
    claimed_bound
        What the solver claims as a lower bound in seconds, -inf if it claims none.
    is_complete
        Whether it claims that no schedule is better.
    """

    schedule: Schedule
    makespan: float
    claimed_bound: float
    is_complete: bool


def solve(
    problem: ScheduleProblem,
    known: Schedule,
    *,
    free: Flags | None = None,
    lower_bound: float = 0.0,
    time_limit: float = 60.0,
    work_limit: float | None = None,
    seed: int = 0,
    workers: int = 1,
    stop: Callable[[], bool] = lambda: False,
) -> Solved:
    """
    Improve a schedule, or prove it best.

    ``known``: a feasible schedule: the hint, and what stays where passes are not free; ``free``: passes of the part, by
    kind F, I, W, chunk and micro-batch (3, C, m); all by default; ``lower_bound``: seconds that no schedule is shorter
    than; ``time_limit``, ``work_limit``: seconds, and the solver's own measure of work, at which to stop; ``seed``,
    ``workers``: of the solver. With one worker and a work limit alone the answer does not vary; ``stop``: asked several
    times a second; if true, the search ends. Returns a schedule that is not longer than the known one.
    """
    table = timetable(problem, canonical_schedule(problem, known))
    if table.makespan <= 0:
        return Solved(known, table.makespan, table.makespan, True)
    model = Model(problem, known, table.makespan, free, lower_bound)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    # Linear relaxations say little of disjunctions, and cost most of the time.
    solver.parameters.linearization_level = 0
    solver.parameters.max_time_in_seconds = time_limit
    if work_limit is not None:
        solver.parameters.max_deterministic_time = work_limit
    status = run(solver, model.model, stop)
    claimed = -np.inf
    if free is None:
        claimed = (solver.best_objective_bound - model.rounding) / model.scale
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solved(known, table.makespan, claimed, False)
    found = model.schedule(solver)
    # Passes of no duration may change memory in an order that starts do not tell.
    sound = not violations(problem, found)
    makespan = timetable(problem, found).makespan if sound else np.inf
    if makespan >= table.makespan:
        found, makespan = known, table.makespan
    return Solved(found, makespan, claimed, sound and status == cp_model.OPTIMAL)
