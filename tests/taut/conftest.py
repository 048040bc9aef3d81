"""Calling the command line in this process."""

import sys
import warnings
from collections.abc import Callable
from typing import NamedTuple

import pytest

from taut.commands import app as cli


class Outcome(NamedTuple):
    """Exit code and the two streams of one call."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


def refused(outcome: Outcome, words: str, code: int = 2) -> None:
    """One line on stderr that begins with the command's name, and nothing on stdout."""
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err.startswith("taut: ")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    assert words in outcome.err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call ``main`` as the installed command does."""

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["taut", *map(str, words)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        # How long a command is silent depends on the machine.
        monkeypatch.setattr(cli, "SILENT_S", 3600.0)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return call
