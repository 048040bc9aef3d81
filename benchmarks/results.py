"""
Renew the figures of the result pages: ``python -m benchmarks.results [NAME ...] [--data DIR] [--check]``.

Pages include the files of ``docs/results/data``, so a change of prices changes these files and no page. NAME is a
folder, which has the name of its page, or a file in it; without NAME all files are renewed. Each file says the command
that prints it:

- ``NAME.txt`` has lines ``$ COMMAND``, each followed by its output; ``...`` stands for lines that are left out;
- ``NAME.md`` has a table, notes, and the line ``Printed by `COMMAND`.``. The command prints a table with the same head.
  Lines that the command prints below the table are the notes. A file with the line ``Collected from `COMMAND`.`` was
  put together by hand from the output of the command, and is only named.

``DIR`` in a command is the folder of ``--data``, with tables of other projects. ``--check`` writes nothing, and prints
the differences.
"""

import argparse
import difflib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from tests.support.pages import renewed as shortened

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "results" / "data"
PRINTED, COLLECTED = "Printed by", "Collected from"
LINE = re.compile(rf"^(?P<how>{PRINTED}|{COLLECTED}) `(?P<command>[^`]+)`(?P<inputs>.*)$", re.MULTILINE)


def commands(path: Path) -> list[str]:
    """The commands that print a data file, or from whose output it was collected."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return [line["command"] for line in LINE.finditer(text)]


def is_collected(path: Path) -> bool:
    """Whether a file was put together by hand."""
    line = LINE.search(path.read_text(encoding="utf-8"))
    return path.suffix == ".md" and line is not None and line["how"] == COLLECTED


def renew_text(text: str, outputs: list[str]) -> str:
    """A ``.txt`` file with the new output of each of its commands."""
    old = re.split(r"^(?=\$ )", text, flags=re.MULTILINE)[1:]
    return "".join(_renew_part(part, output) for part, output in zip(old, outputs, strict=True))


def _renew_part(part: str, output: str) -> str:
    command, *expected = part.rstrip("\n").split("\n")
    actual = [line.rstrip() for line in output.rstrip("\n").split("\n")]
    return "\n".join([command, *shortened(expected, actual)]) + "\n"


def renew_table(text: str, output: str) -> str:
    """A ``.md`` file with the table of the same head from the new output, and the lines below that table as notes."""
    head, line = text.split("\n", 1)[0], LINE.search(text)
    lines = [printed.rstrip() for printed in output.splitlines()]
    if line is None or head not in lines:
        raise SystemExit(f"no table in the output begins with {head}")
    below = lines[lines.index(head) :]
    table = list(takewhile(lambda printed: printed.startswith("|"), below))
    notes = [f"- {note}" for note in takewhile(lambda note: note and not note.startswith("|"), below[len(table) :])]
    return "\n".join([*table, "", *notes, *([""] if notes else []), line.group()]) + "\n"


@lru_cache
def output_of(command: str) -> str:
    """What a command prints."""
    print(command, file=sys.stderr, flush=True)
    interpreter = re.sub(r"^(python|taut)\b", lambda word: INTERPRETERS[word.group()], command)
    return subprocess.run(interpreter, shell=True, capture_output=True, text=True, check=True, cwd=ROOT).stdout


INTERPRETERS = {"python": sys.executable, "taut": f"{sys.executable} -m taut"}


def files(names: list[str]) -> Iterator[Path]:
    """Data files of pages or with names, or all of them."""
    for name in names or [folder.name for folder in sorted(FIGURES.iterdir())]:
        path = FIGURES / name
        if not path.exists():
            raise SystemExit(f"{name}: no page or file of {FIGURES}")
        yield from sorted(path.iterdir()) if path.is_dir() else [path]


def main() -> None:
    """Renew the files that are named."""
    parser = argparse.ArgumentParser(description="Renew the figures of the result pages.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path, default=Path("DIR"))
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    for path in files(given.names):
        here, old = path.relative_to(FIGURES), path.read_text(encoding="utf-8")
        words = [command.replace("DIR", str(given.data.absolute())) for command in commands(path)]
        if is_collected(path):
            print(f"{here}: by hand, from {words[0]}")
            continue
        outputs = [output_of(command) for command in words]
        new = renew_text(old, outputs) if path.suffix == ".txt" else renew_table(old, outputs[0])
        if given.check:
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(here), "now"))
        else:
            path.write_text(new, encoding="utf-8")
        print(f"{here}: {'as it was' if new == old else 'changed'}")


if __name__ == "__main__":
    main()
