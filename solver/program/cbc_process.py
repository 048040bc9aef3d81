"""
CBC as a process that ends in time.

CBC asks the clock in its branch and bound, and hardly in preprocessing and cuts, which take minutes on large programs.
PuLP waits for it whatever it takes, so here PuLP writes the program and reads the solution, and in between

(1) CBC has a limit of ``OWN_SHARE`` of the seconds left, by the wall clock, at which it writes its best solution;
(2) where the seconds are over and it runs on, its process is ended, and what it has found by then is lost.
"""

import subprocess
import tempfile
from collections.abc import Callable
from math import isfinite
from pathlib import Path

import pulp

from taut.errors import SolverError

OWN_SHARE = 0.9
"""Of the seconds left, those that CBC is told of: it takes some more to come to its end and write."""


def run_cbc(problem: pulp.LpProblem, options: list[str], left: Callable[[], float]) -> tuple[bool, str]:
    """
    Solve a problem, whose columns then hold CBC's values.

    ``options``: of CBC's command line, each without its dash; ``left``: seconds that are left, infinite without a
    limit. Returns whether CBC came to its end in time, and its log. Raises ``SolverError`` if CBC fails.
    """
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
