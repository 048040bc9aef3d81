"""README and site: every block of commands or Python runs, and prints what the page shows."""

import re
from pathlib import Path

import pytest

from tests.support.pages import BLOCK, PAGES, ROOT, Page, agrees, shown


def has_code(path: Path) -> bool:
    return any(block["language"] in {"console", "python"} for block in BLOCK.finditer(path.read_text(encoding="utf-8")))


@pytest.mark.proof
@pytest.mark.parametrize(
    "path", [path for path in PAGES if has_code(path)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_blocks_run_and_print_what_the_page_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands end with exit code 0 and print the lines below them, and Python blocks raise nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("TAUT_CACHE", str(tmp_path / "cache"))
    page = Page(path)
    page.run()
    assert not page.faults, "\n\n".join(["other output than shown, see tests.support.pages", *page.faults])


def test_readme_is_short() -> None:
    """The README has at most 180 lines, none but commands longer than 120 characters."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 180
    assert [line for line in lines if len(line) > 120 and not line.startswith("$ ")] == []


def test_readme_links_lead_to_files() -> None:
    """What the README links to inside the project is there."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) >= 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_pages_name_files_that_exist() -> None:
    """A path of the repository in backquotes leads to a file or folder: a moved module takes the pages along."""
    path = re.compile(r"`((?:formulations|solver|src/taut|data|tests|benchmarks)/[\w/]*(?:\.\w+|/))`")
    named = [(page, each) for page in PAGES for each in path.findall(page.read_text(encoding="utf-8"))]
    assert len(named) >= 50
    assert [(str(page.relative_to(ROOT)), each) for page, each in named if not (ROOT / each).exists()] == []


def test_commands_are_told_from_their_output() -> None:
    """A command may go over several lines; what stands below it is its output."""
    first, second = shown("$ taut plan a b \\\n    --out c\none\ntwo\n$ taut show c\n")
    assert (first.command, first.output) == ("taut plan a b \\\n    --out c", ["one", "two"])
    assert (second.command, second.output) == ("taut show c", [])


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (["a", "b"], ["a ", "b"], True),
        (["a", "b"], ["a", "c"], False),
        (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["a", "...", "d"], ["a", "b", "c"], False),
        (["a"], ["a", "b"], False),
        (["7 of ..., all"], ["7 of 12, all"], True),
        (["7 of ..., all"], ["8 of 12, all"], False),
    ],
)
def test_output_is_compared_line_by_line(expected: list[str], actual: list[str], same: bool) -> None:
    """Any change of a line that is shown is noticed, and lines or words left out by ``...`` are not."""
    assert agrees(expected, actual) is same
