"""
The choice under a learned memory predictor, by either program of ``taut.formulations.program``.

The embedded network is a relaxation of the predictor by a small tolerance. So the predictor is asked again about every
choice that a backend returns; one that it refuses is forbidden, and the backend is asked again. Every round removes a
candidate, so the rounds come to an end, and what is left at the end is what the tabulated program gives. Bounds of any
round are bounds of the problem.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from taut.formulations.program.learned_memory import PredictedMemory, forbidden
from taut.formulations.program.program import StrategyProgram
from taut.solver.program.checked import ProgramResult
from taut.solver.result import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedResult:
    """A backend's last answer, and the candidates that the predictor refused on the way, in that order."""

    result: ProgramResult
    refused: tuple[int, ...]


def solve_predicted(
    program: StrategyProgram,
    memory: PredictedMemory,
    solve: Callable[..., ProgramResult],
    *,
    time_limit: float | None = None,
    workers: int = 1,
    seed: int = 0,
) -> PredictedResult:
    """
    Best choice that the predictor admits.

    Parameters
    ----------
    program
        What ``tabulated`` or ``embedded`` made of a program.
    memory
        The predictor that they were given.
    solve
        The backend, ``solve_cpsat`` or ``solve_cbc``.
    time_limit
        Seconds for all rounds together; None for none.
    workers, seed
        Threads, and the seed of the search.

    Raises
    ------
    SolverError
        If the backend raises it.
    """
    started, refused = time.perf_counter(), list[int]()
    while True:
        left = None if time_limit is None else max(time_limit - (time.perf_counter() - started), 0.1)
        result = solve(forbidden(program, refused), time_limit=left, workers=workers, seed=seed)
        if result.choice is None or memory.admits(result.choice.candidate):
            break
        refused.append(result.choice.candidate)
        if time_limit is not None and time.perf_counter() - started > time_limit:
            result = replace(result, status=Status.UNKNOWN, objective_ns=None, choice=None)
            break
    return PredictedResult(
        result=replace(result, runtime=time.perf_counter() - started),
        refused=tuple(refused),
    )
