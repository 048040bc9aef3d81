"""Threads: results keep their order, and what runs is told to end."""

import time

import numpy as np
import pytest

from taut.data.arrays import Flags
from taut.solver.placement.annealing.anneal import anneal, anneal_restarts, best_start
from taut.solver.threads import run_in_threads
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
