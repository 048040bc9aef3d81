"""
Threads: results keep their order, and what runs is told to end.

Ctrl-C or SIGTERM as a request: blocks are told, nested ones too, and a second one raises.

The watch stands still while loops are compiled.
"""

import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from taut.data.arrays import Flags
from taut.solver.branch_and_bound.stop import Stopwatch, interrupt_requested, run_in_threads
from taut.solver.placement.annealing.anneal import anneal, anneal_restarts, best_start
from tests.solver.placement.annealing.test_anneal import random_placement


def test_results_keep_the_order_of_the_items() -> None:
    """The item that takes longest comes first, and stays first."""

    def work(item: int, stop: Flags) -> int:
        time.sleep(0.02 * item)
        return item

    assert run_in_threads(work, [3, 1, 2], workers=3) == [3, 1, 2]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_flag_is_raised_once_work_is_to_end(workers: int) -> None:
    """Work without an end of its own ends, also the items that wait for a thread."""
    asked = 0

    def stopping() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    def work(item: int, stop: Flags) -> int:
        while not stop[0]:
            time.sleep(0.01)
        return item

    assert run_in_threads(work, range(4), workers=workers, stopping=stopping) == [0, 1, 2, 3]


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    """What one item raises is raised, after all have ended."""

    def work(item: int, stop: Flags) -> float:
        return 1.0 / item

    with pytest.raises(ZeroDivisionError):
        run_in_threads(work, [1, 0], workers=2)


@pytest.mark.proof
def test_annealing_that_is_stopped_returns_what_it_has() -> None:
    """A raised flag leaves the start; stopped restarts are never worse than it."""
    made = random_placement(5)
    assert made is not None
    given, found = made
    start = best_start(given, found.patterns)
    stopped = anneal(given, start, moves=10_000, seed=1, stop=np.ones(1, dtype=np.bool_))
    assert stopped.seconds == start.seconds
    assert np.array_equal(stopped.positions, start.positions)
    assert anneal_restarts(given, start, seed=1, workers=2, stopping=lambda: True).seconds <= start.seconds


def press(number: signal.Signals = signal.SIGINT) -> None:
    """Ctrl-C, as the terminal sends it, or another signal."""
    signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_every_nested_block_is_told(number: signal.Signals) -> None:
    """What runs inside stops, and so does what called it; afterwards the signal is as it was."""
    before = signal.getsignal(number)
    with interrupt_requested() as outer:
        with interrupt_requested() as inner:
            assert not inner()
            press(number)
            assert inner()
        assert outer()
    assert signal.getsignal(number) is before


def test_a_block_that_is_over_is_told_nothing() -> None:
    """Ctrl-C after the inner block reaches the outer one alone."""
    with interrupt_requested() as outer:
        with interrupt_requested() as inner:
            pass
        press()
        assert outer()
        assert not inner()


def test_a_second_one_raises() -> None:
    """Who presses twice does not want to wait."""
    with interrupt_requested(), pytest.raises(KeyboardInterrupt):
        press()
        press()


COMPILATION = SimpleNamespace()
"""An event of numba, of which the watch reads nothing."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that shows what the test says."""
    shown = [0.0]
    monkeypatch.setattr("taut.solver.branch_and_bound.stop.perf_counter", lambda: shown[0])
    yield shown


def test_seconds_of_compiling_are_left_out(clock: list[float]) -> None:
    """One second before, one between and one after; what takes ten seconds, another inside it, does not count."""
    with Stopwatch() as watch:
        clock[0] = 1.0
        watch.on_start(COMPILATION)
        clock[0] = 3.0
        watch.on_start(COMPILATION)
        assert watch.seconds == 1.0
        clock[0] = 5.0
        watch.on_end(COMPILATION)
        assert watch.seconds == 1.0
        clock[0] = 11.0
        watch.on_end(COMPILATION)
        clock[0] = 12.0
        assert watch.seconds == 2.0
        watch.on_start(COMPILATION)
        watch.on_end(COMPILATION)
        clock[0] = 13.0
        assert watch.seconds == 3.0
