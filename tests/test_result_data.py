"""Figures of the result pages: each comes from a file that names the command which prints it."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks.results import FIGURES, commands, is_collected, renew_table, renew_text
from taut.commands.app import app
from tests.support.pages import PAGES, ROOT

FILES = sorted(path for path in FIGURES.rglob("*") if path.is_file())
INCLUDE = re.compile(r'^--8<-- "([^"]+)"$', re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(FIGURES))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_names_its_command(path: Path) -> None:
    """Every file of figures names a command that exists, and no commit, so that anyone can print it again."""
    group: Any = typer.main.get_command(app)
    verbs = group.commands
    assert commands(path) != []
    for command in commands(path):
        program, word, *rest = command.split()
        if program == "taut":
            assert word in verbs
        else:
            assert (program, word) == ("python", "-m")
            module = ROOT / rest[0].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()
    assert re.search(r"\b[0-9a-f]{8,40}\b", path.read_text(encoding="utf-8")) is None


def test_pages_include_every_file_once() -> None:
    """No file of figures is left over, and none is missing."""
    included = [name for page in PAGES for name in INCLUDE.findall(page.read_text(encoding="utf-8"))]
    assert sorted(included) == [named(path) for path in FILES]


def test_a_table_is_found_by_its_head() -> None:
    """Of a command that prints several tables the one with the same head is taken, with the lines below it as notes."""
    old = "| b |\n| - |\n| 1 |\n\nPrinted by `python -m benchmarks.x`. Two cores.\n"
    printed = "| a |\n| - |\n| 7 |\n\n| b |\n| - |\n| 2 |\nmean: 2\n\n| c |\n"
    new = "| b |\n| - |\n| 2 |\n\n- mean: 2\n\nPrinted by `python -m benchmarks.x`. Two cores.\n"
    assert renew_table(old, printed) == new
    assert renew_table(new, printed) == new
    with pytest.raises(SystemExit):
        renew_table(old, "| a |\n")


def test_outputs_keep_what_is_left_out() -> None:
    """A file of several commands gets the output of each, and lines that it leaves out stay left out."""
    old = "$ taut a\none 1\n...\nthree 3\n\n$ taut b\nfour 4\n"
    new = renew_text(old, ["one 1\ntwo 2\nthree 9\n", "four 5\n"])
    assert new == "$ taut a\none 1\n...\nthree 9\n$ taut b\nfour 5\n"


def test_collected_tables_say_so(tmp_path: Path) -> None:
    """A table that was put together by hand is told from one that a command prints."""
    path = tmp_path / "t.md"
    path.write_text("| a |\n| - |\n\nCollected from `taut plan`.\n", encoding="utf-8")
    assert is_collected(path)
    path.write_text("| a |\n| - |\n\nPrinted by `taut plan`.\n", encoding="utf-8")
    assert not is_collected(path)
