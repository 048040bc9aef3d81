"""
The strategy program solved by the CBC that PuLP brings along.

CBC computes in floating point and prunes within tolerances, while the program's prices span nine orders of
magnitude. What keeps its answers exact as far as that can be:

- the objective stays in nanoseconds, so that CBC's least step between incumbents, 1e-5, is far below one of them,
  and makespans are continuous: an optimum needs no more, and branching on them misled CBC;
- whatever CBC answers, it is asked again without its presolve for anything half a nanosecond cheaper than the choice
  in hand, until it says that there is nothing.

Guaranteed is that a choice satisfies the program and costs what is reported, in integers. That nothing is cheaper or
nothing feasible, and every bound, is CBC's claim, made twice in different ways, and not a proof in integers.

CBC runs as a process that ends in time. It asks the clock in its branch and bound, and hardly in preprocessing and
cuts, which take minutes on large programs. PuLP waits for it whatever it takes, so here PuLP writes the program and
reads the solution, and in between

(1) CBC has a limit of ``OWN_SHARE`` of the seconds left, by the wall clock, at which it writes its best solution;
(2) where the seconds are over and it runs on, its process is ended, and what it has found by then is lost.
"""

import re
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from math import floor, inf, isfinite
from pathlib import Path

import pulp

from taut.data.units import NANOSECONDS_PER_SECOND
from taut.errors import SolverError
from taut.formulations.program.program import Row, StrategyProgram
from taut.solver.branch_and_bound.stop import Listener, Progress
from taut.solver.program.checked import ProgramResult, checked_result
from taut.solver.result import Status

OWN_SHARE = 0.9
"""Of the seconds left, those that CBC is told of: it takes some more to come to its end and write."""


def run_cbc(problem: pulp.LpProblem, options: list[str], left: Callable[[], float]) -> tuple[bool, str]:
    """Solve a problem, whose columns then hold CBC's values: whether CBC came to its end in time, and its log."""
    solver = pulp.PULP_CBC_CMD(msg=False)
    with tempfile.TemporaryDirectory() as folder:
        stated, solution, log = (Path(folder) / name for name in ("program.mps", "solution", "log"))
        columns, names, rows, _ = problem.writeMPS(str(stated), rename=True)
        if (seconds := left()) <= 0.0:
            return False, ""
        asked = [*_limit(seconds), "ratio 0", "allow 0", *options]
        words = [solver.path, str(stated), *(word for option in asked for word in f"-{option}".split())]
        words += ["-solve", "-printingOptions", "all", "-solution", str(solution)]
        ended = _ends(words, log, seconds)
        said = log.read_text(encoding="utf-8")
        if not ended:
            return False, said
        if not solution.exists():
            raise SolverError(f"cbc: ended without an answer: {said[-200:].strip() or 'no word'}")
        status, values, _, _, _, found = solver.readsol_MPS(str(solution), problem, columns, names, rows)
        problem.assignVarsVals(values)
        problem.assignStatus(status, found)
        return True, said


def _limit(seconds: float) -> list[str]:
    """CBC's own limit, (1)."""
    return [f"sec {OWN_SHARE * seconds}", "timeMode elapsed"] if isfinite(seconds) else []


def _ends(words: list[str], log: Path, seconds: float) -> bool:
    """Whether a command ends by itself; one that has not after so many seconds is ended, (2)."""
    with log.open("w") as out, subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process:
        try:
            code = process.wait(seconds if isfinite(seconds) else None)
        except subprocess.TimeoutExpired:
            return False
        finally:
            process.kill()
    if code != 0:
        raise SolverError(f"cbc: ended with code {code}, expected 0")
    return True


SOLVER = f"cbc via pulp {'.'.join(pulp.__version__.split('.')[:2])}"
FOUND = (Status.OPTIMAL, Status.FEASIBLE)
PROVEN = (Status.OPTIMAL, Status.INFEASIBLE)
LARGEST = 10**13
"""PuLP hands numbers over with 13 digits."""


def solve_cbc(
    program: StrategyProgram,
    *,
    time_limit: float | None = None,
    workers: int = 1,
    seed: int = 0,
    progress: Listener | None = None,
) -> ProgramResult:
    """Best choice within ``time_limit`` seconds, and CBC's bound; several workers are not deterministic."""
    started = time.perf_counter()
    with quiet():
        problem, columns = _model(program)
    options = [f"randomS {seed + 1}", f"randomC {seed + 1}", f"threads {workers if workers > 1 else 0}"]

    def left() -> float:
        return inf if time_limit is None else time_limit - (time.perf_counter() - started)

    def ask(*more: str) -> ProgramResult:
        with quiet():
            ended, log = run_cbc(problem, [*options, *more], left)
        status = status_of(problem) if ended else Status.UNKNOWN
        values = [column.value() or 0.0 for column in columns] if status in FOUND else None
        return _answer(program, status, values, log)

    best = answer = ask()
    cheaper = True
    while cheaper and answer.status in PROVEN:
        if progress and best.objective_ns is not None:
            progress(Progress(time.perf_counter() - started, best.objective_ns / NANOSECONDS_PER_SECOND, -inf, SOLVER))
        cutoff = [] if best.objective_ns is None else [f"cutoff {best.objective_ns - 0.5}"]
        answer = ask("preprocess off", "presolve off", *cutoff)
        cheaper = _cost(answer) < _cost(best)
        best = answer if cheaper else best
    return _concluded(best, answer)


def _cost(result: ProgramResult) -> float:
    return inf if result.objective_ns is None else result.objective_ns


def _concluded(best: ProgramResult, last: ProgramResult) -> ProgramResult:
    """The best choice, proven if the last run came to its end, and else with that run's bound."""
    if last.status in PROVEN:
        status = Status.INFEASIBLE if best.choice is None else Status.OPTIMAL
        return replace(best, status=status, lower_bound_ns=best.objective_ns)
    bounds = [bound for bound in (last.lower_bound_ns, best.objective_ns) if bound is not None]
    return replace(
        best,
        status=Status.UNKNOWN if best.choice is None else Status.FEASIBLE,
        lower_bound_ns=None if last.lower_bound_ns is None else min(bounds),
    )


def _answer(program: StrategyProgram, status: Status, values: list[float] | None, log: str) -> ProgramResult:
    """One run's answer after the check; its bound is claimed only where it stopped early."""
    bound = None if status in PROVEN else _figure("Lower bound", log)
    return checked_result(
        program,
        status,
        values,
        claimed_ns=_figure("Objective value", log),
        # A cost is an integer, and CBC sums it in floats.
        tolerance_ns=0.5,
        lower_bound_ns=None if bound is None else floor(bound),
        solver=SOLVER,
    )


def _figure(name: str, log: str) -> float | None:
    """A finite number that CBC prints when it ends."""
    found = re.search(rf"^{name}:\s+(\S+)$", log, flags=re.MULTILINE)
    return float(found[1]) if found and abs(float(found[1])) < LARGEST else None


def quiet() -> AbstractContextManager[None]:
    """PuLP 3.3 announces what PuLP 4 will do otherwise, at every variable; it is no concern of whoever plans."""
    return warnings.catch_warnings(action="ignore", category=DeprecationWarning)


def status_of(problem: pulp.LpProblem) -> Status:
    """How CBC ended, in our words."""
    if problem.status == pulp.LpStatusInfeasible:
        return Status.INFEASIBLE
    if problem.status == pulp.LpStatusNotSolved:
        return Status.UNKNOWN
    if problem.status == pulp.LpStatusOptimal:
        return Status.OPTIMAL if problem.sol_status == pulp.LpSolutionOptimal else Status.FEASIBLE
    raise SolverError(f"{SOLVER}: ended as {pulp.LpStatus[problem.status]}, expected a choice or none")


def _model(program: StrategyProgram) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    """The program's columns, rows and objective."""
    numbers = [program.objective, program.upper, *(row.coefficients for row in program.rows)]
    largest = max(int(abs(part).max()) for part in numbers)
    if largest >= LARGEST:
        raise SolverError(f"{SOLVER}: the program holds {largest}, expected less than {LARGEST}")
    kinds = [pulp.LpInteger if binary else pulp.LpContinuous for binary in program.binary.tolist()]
    bounds = zip(program.upper.tolist(), kinds, strict=True)
    columns = [pulp.LpVariable(f"x{n}", 0, upper, kind) for n, (upper, kind) in enumerate(bounds)]
    problem = pulp.LpProblem("strategy", pulp.LpMinimize)
    problem.setObjective(pulp.LpAffineExpression(zip(columns, program.objective.tolist(), strict=True)))
    for row in program.rows:
        for constraint in _constraints(columns, row):
            problem.addConstraint(constraint)
    return problem, columns


def _constraints(columns: list[pulp.LpVariable], row: Row) -> Iterator[pulp.LpConstraint]:
    """The sides of a row; two equal ones are one equation."""
    terms = zip([columns[column] for column in row.columns.tolist()], row.coefficients.tolist(), strict=True)
    expression = pulp.LpAffineExpression(terms)
    if row.lower == row.upper:
        yield pulp.LpConstraint(expression, pulp.LpConstraintEQ, rhs=row.lower)
        return
    if row.lower is not None:
        yield pulp.LpConstraint(expression, pulp.LpConstraintGE, rhs=row.lower)
    if row.upper is not None:
        yield pulp.LpConstraint(expression, pulp.LpConstraintLE, rhs=row.upper)
