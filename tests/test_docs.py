"""README and site: every block of commands or Python runs, and prints what the page shows."""

import re
from pathlib import Path

import pytest

from tests.support.pages import BLOCK, PAGES, ROOT, Page, agrees, shown

EXPLAINED = [page for page in PAGES if page.parent in {ROOT / "docs/dev", ROOT / "docs/explanation"}]
"""Pages about the code itself."""
FOLDERS = "data", "formulations", "solver", "src/taut", "tests", "benchmarks"
LINKED = {ROOT / "src/taut" / name for name in ("data", "formulations", "solver")}
FILES = [
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.is_file() and path.suffix != ".pyc" and LINKED.isdisjoint(path.parents)
]
MODULES = {
    re.sub(r"^(?!tests|benchmarks)", "taut.", ".".join(path.with_suffix("").parts).removeprefix("src.taut."))
    .removesuffix(".__init__")
    .replace("taut.__init__", "taut"): (ROOT / path).read_text(encoding="utf-8")
    for path in FILES
    if path.suffix == ".py"
}
"""Text of every module, by its dotted name."""


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


def test_developer_pages_name_what_exists() -> None:
    """A short path in backquotes ends a file or folder of ours, and ``module.name`` is a name in a module."""
    whole = {f"/{folder}" for path in FILES for folder in (str(path), f"{path.parent}/")}
    faults, named = [], 0
    for page in EXPLAINED:
        for each in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            is_path = re.fullmatch(r"[\w/]+\.(?:py|yaml|json)|(?!docs/)[\w/]+/", each)
            is_name = re.fullmatch(r"[a-z_]+\.(?!py\b|yaml|json|toml|csv|md\b)[a-z]\w+", each)
            named += bool(is_path or is_name)
            if is_path and not each.startswith("megatron/") and not any(path.endswith(f"/{each}") for path in whole):
                faults.append((page.name, each))
            if is_name and not _is_named(each):
                faults.append((page.name, each))
    assert named >= 100
    assert faults == []


def _is_named(dotted: str) -> bool:
    """Whether some module whose path ends like this, but for the last name, has the name."""
    module, _, name = dotted.rpartition(".")
    found = (text for known, text in MODULES.items() if f".{known}".endswith(f".{module}"))
    return any(re.search(rf"\b{name}\b", text) for text in found)


def test_homes_of_prices_lie_in_the_folders_of_their_columns() -> None:
    """Modules and functions in the table of homes are found where the page says that they are."""
    text = (ROOT / "docs/explanation/step-time.md").read_text(encoding="utf-8")
    table = text.partition("## Where each part is computed")[2].partition("\n## ")[0]
    rows = [line.split("|")[2:7] for line in table.splitlines() if line.startswith("| ")][1:]
    copies = "formulations/batch", "solver/placement/annealing", "formulations/simulation"
    columns = "formulations", *copies, "solver/certificate/reference"
    assert len(rows) == 8
    for row in rows:
        for folder, cell in zip(columns, row, strict=True):
            texts = "".join(
                text for name, text in MODULES.items() if name.startswith(f"taut.{folder.replace('/', '.')}.")
            )
            for each in re.findall(r"`([^`]+)`", cell):
                there = (ROOT / folder / each).exists() if each.endswith(".py") else f"\ndef {each}(" in texts
                assert there, (folder, each)


def test_docstrings_name_modules_that_exist() -> None:
    """A dotted name of ours in double backquotes is a module, or a name in one."""
    named = [(module, each) for module, text in MODULES.items() for each in re.findall(r"``(taut(?:\.\w+)+)", text)]
    assert len(named) >= 500
    assert [(module, each) for module, each in named if each not in MODULES and not _is_ours(each)] == []


def _is_ours(dotted: str) -> bool:
    """Whether a dotted name is that of a module and a name, or two, in it."""
    parts = dotted.split(".")
    heads = [".".join(parts[:end]) for end in (len(parts) - 1, len(parts) - 2) if end]
    return any(head in MODULES and re.search(rf"\b{parts[-1]}\b", MODULES[head]) for head in heads)


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
