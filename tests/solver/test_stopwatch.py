"""The watch stands still while loops are compiled."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from taut.solver.stopwatch import Stopwatch

COMPILATION = SimpleNamespace()
"""An event of numba, of which the watch reads nothing."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that shows what the test says."""
    shown = [0.0]
    monkeypatch.setattr("taut.solver.stopwatch.perf_counter", lambda: shown[0])
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
