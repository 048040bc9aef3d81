"""
The integer program of jobs (``taut.formulations.jobs.program``) in CP-SAT and in CBC, from one statement.

Both get the same integers. CP-SAT computes in integers; CBC in floats, so its choice is checked against the rows, and
that it is optimal is CBC's claim. Bounds of either are bounds on schedules of the grid, and never reported for others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Literal

import numpy as np
import pulp
from ortools.sat.python import cp_model

from taut.data.arrays import Ints
from taut.errors import SolverError
from taut.formulations.jobs.problem import Schedule
from taut.formulations.jobs.program import GridProgram
from taut.solver.cp_sat import run
from taut.solver.program.cbc import FOUND, quiet, run_cbc, status_of
from taut.solver.result import Status

Backend = Literal["cp-sat", "cbc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridResult:
    """How a solver ended, with its schedule and the value of the program, None where nothing was found."""

    status: Status
    value: float | None
    schedule: Schedule


def solve_grid(
    program: GridProgram,
    *,
    backend: Backend = "cp-sat",
    time_limit: float | None = None,
    work_limit: float | None = None,
    workers: int = 1,
    seed: int = 0,
    stop: Callable[[], bool] = bool,
) -> GridResult:
    """The best schedule on the grid that a solver finds; ``work_limit`` is CP-SAT's time that repeats everywhere."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = workers, seed
    if time_limit is not None:
        solver.parameters.max_time_in_seconds = time_limit
    if work_limit is not None:
        solver.parameters.max_deterministic_time = work_limit
    status, choice = _cp_sat(program, solver, stop) if backend == "cp-sat" else _cbc(program, time_limit)
    if choice is None:
        return GridResult(status=status, value=None, schedule=())
    if not program.holds(choice):
        raise SolverError(f"jobs: {backend} returned a choice that breaks a row")
    value = program.constant + program.unit * program.value(choice)
    return GridResult(status=status, value=value, schedule=program.schedule(choice))


def _rows(program: GridProgram) -> list[tuple[list[int], list[int], int]]:
    """Columns, coefficients and right side of every row."""
    order = np.argsort(program.row, kind="stable")
    cuts = np.searchsorted(program.row[order], np.arange(len(program.least) + 1)).tolist()
    columns, values = program.column[order].tolist(), program.values[order].tolist()
    sides = zip(cuts[:-1], cuts[1:], program.least.tolist(), strict=True)
    return [(columns[first:end], values[first:end], least) for first, end, least in sides]


def _cp_sat(program: GridProgram, solver: cp_model.CpSolver, stop: Callable[[], bool]) -> tuple[Status, Ints | None]:
    model = cp_model.CpModel()
    columns = [model.new_bool_var("") for _ in program.objective]
    for places, values, least in _rows(program):
        expression = cp_model.LinearExpr.weighted_sum([columns[place] for place in places], values)
        model.add_linear_constraint(expression, least, cp_model.INT_MAX)
    model.minimize(cp_model.LinearExpr.weighted_sum(columns, program.objective.tolist()))
    name = solver.status_name(run(solver, model, stop)).lower()
    if name not in list(Status):
        raise SolverError(f"jobs: cp-sat: {name}: {model.validate() or 'no answer'}")
    status = Status(name)
    found = status in FOUND
    return status, np.array(solver.response_proto.solution, dtype=np.int64) if found else None


def _cbc(program: GridProgram, time_limit: float | None) -> tuple[Status, Ints | None]:
    end = inf if time_limit is None else perf_counter() + time_limit
    with quiet():
        problem = pulp.LpProblem("jobs", pulp.LpMinimize)
        columns = [pulp.LpVariable(f"x{n}", 0, 1, pulp.LpInteger) for n in range(len(program.objective))]
        problem.setObjective(pulp.LpAffineExpression(zip(columns, program.objective.tolist(), strict=True)))
        for places, values, least in _rows(program):
            terms = zip([columns[place] for place in places], values, strict=True)
            problem.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(terms), pulp.LpConstraintGE, rhs=least))
        ended, _ = run_cbc(problem, [], lambda: end - perf_counter())
    status = status_of(problem) if ended else Status.UNKNOWN
    if status not in FOUND:
        return status, None
    return status, np.array([round(column.value() or 0.0) for column in columns], dtype=np.int64)
