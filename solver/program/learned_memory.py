r"""
The strategy choice under a learned memory predictor: solve a relaxation, check, and cut off what fails.

(1) A backend solves a program of ``taut.formulations.program``; the embedded network relaxes the predictor by a small
    tolerance.
(2) The predictor itself is evaluated at the candidate that was chosen. If it refuses, the candidate is forbidden by a
    no-good cut, :math:`u_c = 0`, and (1) is solved again: a combinatorial Benders decomposition (Codato and Fischetti
    2006) whose subproblem is the evaluation of one candidate.

Every iteration removes a candidate, so (2) ends, with the optimum of the tabulated program. The bound of any iteration
is a bound of the problem.
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
    """A backend's last answer, and the candidates that were cut off, in that order."""

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

    ``program``: what ``tabulated`` or ``embedded`` made of a program; ``memory``: the predictor that they were given;
    ``solve``: the backend, ``solve_cpsat`` or ``solve_cbc``; ``time_limit``: seconds for all iterations together; None
    for none; ``workers``, ``seed``: threads, and the seed of the search. Returns the last answer and what was cut off;
    without a choice where the time ran out. Raises ``SolverError`` if the backend raises it.
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
    return PredictedResult(result=result, refused=tuple(refused))
