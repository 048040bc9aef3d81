"""Lines on stderr say how far a command is."""

from typing import Any, cast

import pytest
from numba import njit

from taut.commands.progress import COMPILING, live_lines


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
