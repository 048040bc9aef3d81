"""Lines on stderr say how far a command is."""

import io
import itertools
import sys
import time
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from taut.commands.progress import COMPILING, live_lines, progress_lines
from taut.solver.branch_and_bound.stop import Progress


def _twice(x: int) -> int:
    return 2 * x


def _thrice(x: int) -> int:
    return 3 * x


@pytest.mark.parametrize(("quiet", "said"), [(False, 1), (True, 0)])
def test_compiling_is_announced_once_and_kept_code_is_not(
    quiet: bool, said: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first loop that is compiled is announced, another one and a second call are not; nor one after the end."""
    loops = [cast("Any", njit(function)) for function in (_twice, _thrice, _absolute)]
    with live_lines(quiet):
        assert [loops[0](2), loops[0](3), loops[1](2)] == [4, 6, 6]
    assert loops[2](-2) == 2
    assert capsys.readouterr().err.count(COMPILING) == said


def _absolute(x: int) -> int:
    return abs(x)


def _lines(moments: list[tuple[float, float, float]]) -> list[tuple[float, str]]:
    """Seconds and text of each line that a search prints, where it stands at each moment (seconds, plan, bound)."""
    now, printed = 0.0, list[tuple[float, str]]()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            printed.extend((now, line) for line in text.splitlines() if line)
            return len(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now)
        patch.setattr(sys, "stderr", Stream())
        with progress_lines(quiet=False) as report:
            assert report is not None
            for now, plan, bound in moments:
                report(Progress(now, plan, bound, "a candidate"))
    return printed


FIGURES = st.sampled_from([1.0, 1.5, 1.5 + 1e-9, 2.0])
MOMENTS = st.lists(st.tuples(st.sampled_from([0.0, 0.3, 0.9, 1.0, 2.5]), FIGURES, FIGURES), min_size=1, max_size=12)


@given(MOMENTS)
def test_a_line_is_printed_where_plan_or_bound_changed_as_shown(steps: list[tuple[float, float, float]]) -> None:
    """No line tells what the last one told, lines before the last are a second apart, the last state is told."""
    ends = [sum(step for step, _, _ in steps[: k + 1]) for k in range(len(steps))]
    moments = [(end, plan, bound) for end, (_, plan, bound) in zip(ends, steps, strict=True)]
    told = [line.split("s  ", 1)[1].split("  gap")[0] for _, line in _lines(moments)]
    _, plan, bound = moments[-1]
    assert told[-1] == f"plan {plan:.6g}  lower bound {bound:.6g}"
    assert all(one != other for one, other in itertools.pairwise(told))
    times = [0.0, *(seconds for seconds, _ in _lines(moments)[:-1])]
    assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(times))


@pytest.mark.parametrize(
    ("moments", "seconds"),
    [
        # Three moments tell one state, and the fourth another.
        ([(1.5, 2.0, 1.0), (3.0, 2.0, 1.0), (5.0, 2.0, 1.0 + 1e-9), (7.0, 2.0, 1.5)], [1.5, 7.0]),
        # What changes within a second waits for a call after it, and the last state for the end.
        ([(1.5, 2.0, 1.0), (1.9, 2.0, 1.5), (2.6, 2.0, 1.5), (2.7, 1.5, 1.5)], [1.5, 2.6, 2.7]),
        # A state that was there for less than a second, between two that are alike, is not told.
        ([(1.5, 2.0, 1.0), (1.9, 2.0, 1.5), (2.0, 2.0, 1.0)], [1.5]),
    ],
)
def test_when_lines_are_printed(moments: list[tuple[float, float, float]], seconds: list[float]) -> None:
    """A line where what it tells differs from the last one, at most one a second, and the last state at the end."""
    assert [when for when, _ in _lines(moments)] == seconds
