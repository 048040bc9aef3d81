"""What CP-SAT and CBC are told of a time limit: the seconds that stating the program leaves, and not more."""

import signal
import sys
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from ortools.sat.python import cp_model

from taut.errors import SolverError
from taut.formulations.program.program import StrategyProgram, strategy_program
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.program import cbc, cp_sat
from taut.solver.result import Status
from taut.solver.signals import interruptible_command
from tests.solver.program.test_backends import random_options


class Clock:
    """A clock that goes on where it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of both backends; stating a model takes 4 s."""
    clock = Clock()
    for backend in (cp_sat, cbc):
        stated = backend._model

        def slowly(program: StrategyProgram, stated: Callable[[StrategyProgram], object] = stated) -> object:
            clock.now += 4.0
            return stated(program)

        monkeypatch.setattr(backend, "time", clock)
        monkeypatch.setattr(backend, "_model", slowly)
    return clock


@pytest.mark.parametrize(("limit", "rest"), [(10.0, 6.0), (3.0, 0.0)])
def test_cp_sat_has_the_rest_of_the_limit(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, limit: float, rest: float
) -> None:
    """Of 10 s, 4 of which the model takes, CP-SAT is told 6; where nothing is left it is told 0 and knows nothing."""
    told: list[float] = []
    solve = cp_model.CpSolver.solve

    def noted(
        self: cp_model.CpSolver, model: cp_model.CpModel, reporter: cp_model.CpSolverSolutionCallback | None
    ) -> object:
        told.append(self.parameters.max_time_in_seconds)
        return solve(self, model, reporter)

    monkeypatch.setattr(cp_model.CpSolver, "solve", noted)
    found = cp_sat.solve_cpsat(strategy_program(random_options(0)), time_limit=limit)
    assert told == [rest]
    assert (found.status is Status.UNKNOWN) == (rest == 0.0)


def test_a_signal_ends_a_run_of_cp_sat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that would go on for 30 s, without a word of Python, is told to stop; what it has found so far counts."""
    stopped, solve = threading.Event(), cp_model.CpSolver.solve

    def waiting(self: cp_model.CpSolver, model: cp_model.CpModel, reporter: object) -> object:
        threading.Timer(0.1, signal.raise_signal, [signal.SIGTERM]).start()
        stopped.wait(30)
        self.parameters.max_time_in_seconds = 0.0
        return solve(self, model)

    monkeypatch.setattr(cp_model.CpSolver, "solve", waiting)
    monkeypatch.setattr(cp_model.CpSolver, "stop_search", lambda _: stopped.set())
    began = time.monotonic()
    with interruptible_command(), interrupt_requested():
        assert cp_sat.solve_cpsat(strategy_program(random_options(0))).status is Status.UNKNOWN
    assert time.monotonic() - began < 10


def test_cbc_has_the_rest_of_the_limit(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of CBC's two runs of 2 s is told what is left then, by the wall clock, and its process may last as long."""
    told: list[tuple[str, float]] = []
    ends = cbc._ends

    def noted(words: list[str], log: Path, seconds: float) -> bool:
        assert words[words.index("-timeMode") + 1] == "elapsed"
        told.append((words[words.index("-sec") + 1], seconds))
        clock.now += 2.0
        return ends(words, log, seconds)

    monkeypatch.setattr(cbc, "_ends", noted)
    found = cbc.solve_cbc(strategy_program(random_options(0)), time_limit=10.0)
    assert [seconds for _, seconds in told] == [6.0, 4.0]
    assert [float(own) for own, _ in told] == pytest.approx([cbc.OWN_SHARE * seconds for _, seconds in told])
    assert found.status is Status.OPTIMAL
    told.clear()
    late = cbc.solve_cbc(strategy_program(random_options(0)), time_limit=5.0)
    assert len(told) == 1
    assert (late.status, late.lower_bound_ns) == (Status.FEASIBLE, None)
    assert late.objective_ns == found.objective_ns
    told.clear()
    assert cbc.solve_cbc(strategy_program(random_options(0)), time_limit=3.0).status is Status.UNKNOWN
    assert told == []


def test_a_process_that_runs_on_is_ended(tmp_path: Path) -> None:
    """What has not ended at its limit is ended, what ends is waited for, and a failure is told."""
    log = tmp_path / "log"
    assert not cbc._ends([sys.executable, "-c", "import time; time.sleep(600)"], log, 0.2)
    assert cbc._ends([sys.executable, "-c", "print('done')"], log, inf)
    assert log.read_text().strip() == "done"
    with pytest.raises(SolverError, match="code 3"):
        cbc._ends([sys.executable, "-c", "raise SystemExit(3)"], log, inf)
