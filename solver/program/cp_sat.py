"""
The strategy program (``taut.formulations.program.program``) solved by CP-SAT of OR-Tools.

CP-SAT computes in integers, so its optimum and its bound are exact for the program as stated. With one worker the
search is deterministic: the same program and seed give the same choice, unless a time limit cuts it short.
"""

import time
from importlib.metadata import version

import numpy as np
from ortools.sat.python import cp_model

from taut.data.units import NANOSECONDS_PER_SECOND
from taut.errors import SolverError
from taut.formulations.program.program import StrategyProgram
from taut.solver.branch_and_bound.stop import Listener, Progress
from taut.solver.cp_sat import run
from taut.solver.program.checked import ProgramResult, checked_result
from taut.solver.result import Status
from taut.solver.signals import was_interrupted

SOLVER = f"cp-sat {'.'.join(version('ortools').split('.')[:2])}"
FOUND = (Status.OPTIMAL, Status.FEASIBLE)


class _Reporter(cp_model.CpSolverSolutionCallback):
    """Passes every better choice on."""

    def __init__(self, progress: Listener) -> None:
        super().__init__()
        self.progress = progress

    def on_solution_callback(self) -> None:
        seconds = self.objective_value / NANOSECONDS_PER_SECOND, self.best_objective_bound / NANOSECONDS_PER_SECOND
        self.progress(Progress(self.wall_time, *seconds, SOLVER))


def solve_cpsat(
    program: StrategyProgram,
    *,
    time_limit: float | None = None,
    workers: int = 1,
    seed: int = 0,
    progress: Listener | None = None,
) -> ProgramResult:
    """Best choice within ``time_limit`` seconds, and CP-SAT's bound; several workers are not deterministic."""
    started = time.perf_counter()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    # Probing every stage in turn is most of a run's time here and finds little.
    solver.parameters.cp_model_probing_level = 0
    model = _model(program)
    if time_limit is not None:
        # CP-SAT refuses a negative limit; at none it says that it does not know.
        solver.parameters.max_time_in_seconds = max(time_limit - (time.perf_counter() - started), 0.0)
    name = solver.status_name(run(solver, model, was_interrupted, _Reporter(progress) if progress else None))
    if name.lower() not in list(Status):
        raise SolverError(f"{SOLVER}: {name}: {model.validate() or 'no answer'}")
    status, answer = Status(name.lower()), solver.response_proto
    found = status in FOUND
    # Without a choice a bound of 0 is only where the search begins.
    bounded = found or (status is Status.UNKNOWN and answer.inner_objective_lower_bound > 0)
    return checked_result(
        program,
        status,
        list(answer.solution) if found else None,
        # CP-SAT states its objective as a float, which is off by more than rounding; its values are integers.
        claimed_ns=int(np.array(answer.solution) @ program.objective) if found else None,
        lower_bound_ns=int(answer.inner_objective_lower_bound) if bounded else None,
        solver=SOLVER,
    )


def _model(program: StrategyProgram) -> cp_model.CpModel:
    """The program's columns, rows and objective."""
    model = cp_model.CpModel()
    columns = [model.new_int_var(0, upper, "") for upper in program.upper.tolist()]
    for row in program.rows:
        terms = [columns[column] for column in row.columns.tolist()]
        model.add_linear_constraint(
            cp_model.LinearExpr.weighted_sum(terms, row.coefficients.tolist()),
            cp_model.INT_MIN if row.lower is None else row.lower,
            cp_model.INT_MAX if row.upper is None else row.upper,
        )
    model.minimize(cp_model.LinearExpr.weighted_sum(columns, program.objective.tolist()))
    return model
