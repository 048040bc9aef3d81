"""
What a backend answers about a ``StrategyProgram``, and the check that every answer passes.

A backend's numbers are not taken on trust: the choice is read out of its values, held against every constraint of
the program, and priced again in integers. An answer that does not survive this raises ``SolverError``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from taut.errors import FormulationError, SolverError
from taut.formulations.program.program import StrategyChoice, StrategyProgram
from taut.solver.result import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """A backend's answer: the choice with its cost, if any, the bound rounded down, and the solver's version."""

    status: Status
    objective_ns: int | None
    lower_bound_ns: int | None
    choice: StrategyChoice | None
    solver: str


def checked_result(
    program: StrategyProgram,
    status: Status,
    values: Sequence[float] | None,
    *,
    claimed_ns: float | None,
    lower_bound_ns: int | None,
    solver: str,
    tolerance_ns: float = 0.0,
) -> ProgramResult:
    """A backend's answer; ``SolverError`` if the choice of ``values`` (n,), its cost or the bound does not hold."""
    choice, cost = (None, None) if values is None else _priced(program, values, solver)
    if cost is not None and claimed_ns is not None:
        excess = cost - claimed_ns
        if excess > tolerance_ns or (status is Status.OPTIMAL and excess < -tolerance_ns):
            raise SolverError(f"{solver}: claims {claimed_ns!r} ns for a choice that costs {cost} ns")
    if (
        cost is not None
        and lower_bound_ns is not None
        and not (lower_bound_ns == cost or (lower_bound_ns < cost and status is Status.FEASIBLE))
    ):
        raise SolverError(f"{solver}: claims a bound of {lower_bound_ns} ns, but a choice costs {cost} ns")
    return ProgramResult(status=status, objective_ns=cost, lower_bound_ns=lower_bound_ns, choice=choice, solver=solver)


def _priced(program: StrategyProgram, values: Sequence[float], solver: str) -> tuple[StrategyChoice, int]:
    """The choice that the values stand for, and its cost."""
    try:
        choice = program.decode(values)
        return choice, program.cost(choice)
    except FormulationError as error:
        raise SolverError(f"{solver}: the values are no candidate: {error}") from None
