"""The branch and bound on several processes finds what that of one does."""

import math
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import taut
from taut.errors import FieldError
from taut.formulations.problem import PlanningProblem
from taut.processes import local_executor
from taut.solver import signals
from taut.solver.result import Limits, SearchResult, State
from taut.solver.search.search import _searched, search, search_on
from taut.solver.signals import interruptible_command, was_interrupted
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.small import cluster, problem


def on_one_thread(given: PlanningProblem, limits: Limits) -> SearchResult:
    """Groups one after another, as if each had a process."""
    with ThreadPoolExecutor(1) as executor:
        return search_on(executor, 2, given, limits)


def compare(given: PlanningProblem, found: SearchResult) -> None:
    """Status, bound and plan are those of one process, and a bound stands for every candidate."""
    alone = search(given, Limits())
    assert found.status is alone.status
    assert found.lower_bound == pytest.approx(alone.lower_bound, rel=2e-6)
    whole = given.with_orders(found.orders)
    assert [bound.candidate for bound in found.bounds] == sorted(whole.candidates)
    if found.incumbent is not None and alone.incumbent is not None:
        assert found.incumbent.seconds == pytest.approx(alone.incumbent.seconds, rel=2e-6)
        for bound in found.bounds:
            if bound.state in (State.PRUNED, State.SOLVED):
                assert bound.lower_bound >= found.incumbent.seconds * (1 - 1e-9)


def test_a_small_problem_has_the_same_bound() -> None:
    """Eight devices in two nodes."""
    given = problem(cluster(2, 2))
    compare(given, on_one_thread(given, Limits()))


@pytest.mark.proof
@pytest.mark.parametrize("seed", blocks(12, first=6))
def test_random_problems_have_the_same_bound(seed: int) -> None:
    """Several device types, tight memory and problems without any plan included."""
    given = random_problem(seed)
    compare(given, on_one_thread(given, Limits()))


@pytest.mark.proof
def test_limits_leave_a_valid_bound() -> None:
    """A time that is over at once leaves relaxations, and a generous gap stops early."""
    given = problem(cluster(2, 2))
    best = search(given, Limits()).lower_bound
    stopped = on_one_thread(given, Limits(time_limit=1e-9))
    assert (stopped.stopped_by, stopped.incumbent) == ("time", None)
    assert -math.inf < stopped.lower_bound <= best * (1 + 1e-9)
    assert on_one_thread(given, Limits(gap=0.9)).lower_bound <= best * (1 + 1e-9)


@pytest.mark.proof
def test_two_processes_make_a_plan_that_holds() -> None:
    """From the planner's entry, with the certificate checked."""
    request = taut.PlanRequest("gpt2-345m", "dgx-a100:2", global_batch=64, fix={"tp": 1})
    found, alone = taut.plan(request, processes=2), taut.plan(request)
    assert found.lower_bound_s == pytest.approx(alone.lower_bound_s, rel=2e-6)
    assert found.verify().holds


class Slow(ThreadPoolExecutor):
    """An executor whose searches of groups never end, the first of which comes with a signal."""

    def submit(self, task: Callable[..., Any], /, *given: Any, **more: Any) -> Future[Any]:
        """Begin a task."""
        if task is not _searched:
            return super().submit(task, *given, **more)
        if not was_interrupted():
            signal.raise_signal(signal.SIGTERM)
        return Future()


def test_a_signal_ends_a_search_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they do: their groups keep the bounds that they had before."""
    monkeypatch.setattr(signals, "GRACE_S", 0.2)
    given, began = problem(cluster(2, 2)), time.monotonic()
    with interruptible_command(), Slow(1) as executor:
        found = search_on(executor, 2, given, Limits())
    assert time.monotonic() - began < 20
    assert found.stopped_by == "interrupt" and found.incumbent is None
    assert 0 < found.lower_bound <= search(given, Limits()).lower_bound * (1 + 1e-9)


@pytest.mark.parametrize(("processes", "method"), [(0, "branch-and-bound"), (2, "megatron")])
def test_wrong_numbers_of_processes_are_refused(processes: int, method: str) -> None:
    """None at all, and several for a method that has no candidates to share."""
    with pytest.raises(FieldError, match=f"processes: {processes}, expected a number above 0, and 1 with a method"):
        taut.plan("gpt2-345m", "dgx-a100", global_batch=8, processes=processes, method=method)


@pytest.mark.long
def test_sixteen_thousand_devices_have_the_same_bound_on_four_processes() -> None:
    """Llama 3 405B on 16,384 H100: four processes prove what one does."""
    given = taut.planning_problem(taut.PlanRequest("llama3-405b", "dgx-h100:2048", global_batch=2048))
    alone = search(given, Limits())
    with local_executor(4) as executor:
        found = search_on(executor, 4, given, Limits())
    assert found.incumbent is not None and alone.incumbent is not None
    assert np.isclose(found.lower_bound, alone.lower_bound, rtol=1e-6, atol=0)
    assert np.isclose(found.incumbent.seconds, alone.incumbent.seconds, rtol=1e-6, atol=0)
