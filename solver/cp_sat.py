"""
CP-SAT runs that end when asked to.

Python tells of Ctrl-C only while its main thread runs Python, and CP-SAT by default takes the signal for itself: the
run that it hits would end, and nobody else would hear of it. Here CP-SAT leaves the signal alone and runs in a thread
of its own, while the calling one asks now and then whether to stop.
"""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait

# OR-Tools before 9.15 has the name of CpSolverStatus in another module: types that name it are text.
from ortools.sat.python import cp_model

SECONDS_BETWEEN = 0.05
"""Between two questions whether to stop."""


def running(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    told: cp_model.CpSolverSolutionCallback | None = None,
    seconds_between: float = SECONDS_BETWEEN,
) -> "Generator[None, None, cp_model.CpSolverStatus]":
    """Solve a model, yielding every so many seconds; solutions are ``told`` in a thread; leaving ends the run."""
    solver.parameters.catch_sigint_signal = False
    # OR-Tools issue 5293: in 9.15 this step adds coefficients in 32 bits, and so loses choices whose rows sum to more.
    solver.parameters.presolve_inclusion_work_limit = 0
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(solver.solve, model, told)
        try:
            while not wait([future], timeout=seconds_between).done:
                yield
        finally:
            # A run that has not begun yet does not hear of it, and is told again.
            while not future.done():
                solver.stop_search()
                wait([future], timeout=SECONDS_BETWEEN)
        return future.result()


def run(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    stop: Callable[[], bool],
    told: cp_model.CpSolverSolutionCallback | None = None,
) -> "cp_model.CpSolverStatus":
    """Solve a model, unless ``stop`` says so, which the calling thread asks often; returns how it ended."""
    looking = running(solver, model, told)
    while True:
        try:
            next(looking)
        except StopIteration as end:
            status: cp_model.CpSolverStatus = end.value
            return status
        if stop():
            solver.stop_search()
