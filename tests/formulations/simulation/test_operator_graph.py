"""The sweep: every task starts when the last that it waits for has ended, and circles never run."""

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.formulations.simulation.operator_graph import children, run


def swept(seconds: list[float], waits: list[list[int]]) -> tuple[int, Floats]:
    """Tasks that ran and the starts of all."""
    first = np.cumsum([0, *map(len, waits)])
    dependency = np.array([u for each in waits for u in each], np.int32)
    start = np.zeros(len(seconds))
    return run(np.array(seconds), first, *children(first, dependency), start), start


def longest(seconds: Floats, waits: list[list[int]], order: Ints) -> Floats:
    """Starts by the longest path, task after task in a topological order."""
    start = np.zeros(len(seconds))
    for v in order:
        start[v] = max((start[u] + seconds[u] for u in waits[v]), default=0.0)
    return start


def test_a_task_starts_when_the_last_that_it_waits_for_has_ended() -> None:
    """Of 1 s and 3 s the longer counts, and what follows adds up."""
    ran, start = swept([1.0, 3.0, 2.0, 1.0], [[], [], [0, 1], [2]])
    assert (ran, start.tolist()) == (4, [0.0, 0.0, 3.0, 5.0])


def test_tasks_in_a_circle_never_run() -> None:
    """Two tasks that wait for each other are left out, and so is what waits for them."""
    ran, _ = swept([1.0, 1.0, 1.0, 1.0], [[], [2], [1], [2]])
    assert ran == 1


@pytest.mark.parametrize("seed", range(20))
def test_starts_are_longest_paths_in_whatever_order_tasks_lie(seed: int) -> None:
    """On random graphs whose tasks are shuffled the sweep gives the longest path to every task."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 60))
    order, seconds = rng.permutation(count), rng.random(count)
    waits: list[list[int]] = [[] for _ in range(count)]
    for k in range(1, count):
        before = rng.choice(order[:k], size=min(k, int(rng.integers(0, 4))), replace=False)
        waits[order[k]] = before.tolist()
    ran, start = swept(seconds.tolist(), waits)
    assert ran == count
    assert start == pytest.approx(longest(seconds, waits, order), rel=1e-12)
