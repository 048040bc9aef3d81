"""The watch stands still while loops are compiled, and says what is compiled."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from numba import njit

from taut.solver.stopwatch import Stopwatch


def _twice(x: int) -> int:
    return 2 * x


def _thrice(x: int) -> int:
    return 3 * x


COMPILATION = SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=_twice)})
"""An event of numba with the little that the watch reads."""


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


def test_compiling_is_announced_and_kept_code_is_not() -> None:
    """The first call of a loop tells its name, the second nothing; the watch hears nothing after its end."""
    told: list[str] = []
    loops = [cast("Any", njit(function)) for function in (_twice, _thrice)]
    with Stopwatch(told.append):
        assert loops[0](2) == 4
        assert loops[0](3) == 6
    assert loops[1](2) == 6
    assert len(told) == 1
    assert "_twice" in told[0]
