"""
CP-SAT runs that end when asked to.

Python tells of Ctrl-C only while its main thread runs Python, and CP-SAT by default takes the signal for itself: the
run that it hits would end, and nobody else would hear of it. Here CP-SAT leaves the signal alone and runs in a thread
of its own, while the calling one asks now and then whether to stop.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from ortools.sat.python import cp_model

SECONDS_BETWEEN = 0.05
"""Between two questions whether to stop."""


def run(solver: cp_model.CpSolver, model: cp_model.CpModel, stop: Callable[[], bool]) -> cp_model.CpSolverStatus:
    """
    Solve a model.

    Parameters
    ----------
    solver, model
        With all parameters but one set.
    stop
        Asked in the calling thread, several times a second; if true, the run ends.

    Returns
    -------
    CpSolverStatus
        How it ended.
    """
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(solver.solve, model)
        while not wait([running], timeout=SECONDS_BETWEEN).done:
            if stop():
                solver.stop_search()
        return running.result()
