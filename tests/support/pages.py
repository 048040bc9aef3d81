"""
The code blocks of README and site, run as a reader would: ``python -m tests.support.pages`` writes their output anew.

A page's blocks run from top to bottom in one folder that is empty at first:

- a block with a title (```` ```yaml title="cluster.yaml" ````) is written to the file of that name;
- of a ``console`` block, every line that begins with ``$`` is a command; ``taut`` runs in this process, while what
  installs (``git``, ``cd``, ``pip``) and runs the tests is left to ``.ci/run``. The lines below a command are its
  output on stdout; a line ``...`` stands for any lines, and ``...`` within a line for any words;
- a ``python`` block is executed, in the names that the blocks before it left.

``text``, ``sh`` and ``json`` blocks are shapes, or need what a test has not, and are only shown.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from unittest import mock

from taut.commands import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPENING = r'^```(?P<language>\w*)(?: +title="(?P<title>[^"]+)")?\n'
BLOCK = re.compile(OPENING + r"(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LEFT_TO_CI = {"git", "cd", "pip", "python", "python3", "mkdocs", ".ci/run"}


@dataclass(frozen=True)
class Shown:
    """A command of a ``console`` block and the output that stands below it."""

    command: str
    output: list[str]


def shown(text: str) -> list[Shown]:
    """The commands of a ``console`` block; a backslash at the end of a line joins the next."""
    found: list[Shown] = []
    for line in text.replace("\\\n", "\\\0").splitlines():
        if line.startswith("$ "):
            found.append(Shown(line[2:].replace("\\\0", "\\\n"), []))
        else:
            found[-1].output.append(line)
    return found


def run_command(words: list[str]) -> str:
    """Standard output of a ``taut`` command, as wide as in a file; it has to end with exit code 0."""
    out, code = io.StringIO(), 0
    argv, environment = mock.patch.object(sys, "argv", words), mock.patch.dict(os.environ)
    with argv, environment, contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ.pop("COLUMNS", None)
        try:
            app.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    assert code == 0, f"{shlex.join(words)}: exit code {code}"
    return out.getvalue()


def outputs(command: str) -> Iterator[str]:
    """Standard output of every part of a command that is run here."""
    for part in command.replace("\\\n", " ").split("&&"):
        words = shlex.split(part, comments=True)
        if words[0] in LEFT_TO_CI:
            continue
        assert words[0] == "taut", f"{part.strip()}: no command of taut"
        yield run_command(
            [*words, "--quiet"] if words[1] in {"plan", "pareto", "schedule", "place", "sweep"} else words
        )


def agrees(expected: list[str], actual: list[str]) -> bool:
    """Whether output is as expected, where ``...`` stands for any lines or words, and spaces at the end for nothing."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(agrees(expected[1:], actual[skip:]) for skip in range(len(actual) + 1))
    return bool(actual) and _same_line(expected[0].rstrip(), actual[0].rstrip()) and agrees(expected[1:], actual[1:])


def _same_line(expected: str, actual: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in expected.split("...")), actual) is not None


def renewed(expected: list[str], actual: list[str]) -> list[str]:
    """The output that a page is to show: all of it, or where lines were left out, those nearest to the lines shown."""
    if "..." not in expected:
        return actual
    return [line if line == "..." else get_close_matches(line, actual, 1, 0)[0] for line in expected]


@dataclass
class Page:
    """A page whose blocks are run; ``faults`` tells commands whose output is another than the page shows."""

    path: Path
    faults: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def run(self) -> str:
        """Run every block in the folder that is current; the page with the output that there really is."""
        return BLOCK.sub(self._block, self.path.read_text(encoding="utf-8"))

    def _block(self, block: re.Match[str]) -> str:
        language, title, text = block.group("language", "title", "text")
        if title is not None:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(text, encoding="utf-8")
        elif language == "console":
            return block.group().replace(text, "".join(self._command(one) for one in shown(text)))
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(text, str(self.path), "exec"), self.names)
        return block.group()

    def _command(self, one: Shown) -> str:
        actual = "".join(outputs(one.command)).splitlines()
        if one.output and not agrees(one.output, actual):
            self.faults.append("\n".join([f"$ {one.command}", *actual]))
        kept = one.output if agrees(one.output, actual) or not one.output else renewed(one.output, actual)
        return "\n".join([f"$ {one.command}", *(line.rstrip() for line in kept)]) + "\n"


def main(paths: list[str]) -> None:
    """Run the blocks of the pages named, or of all, and write the output of their commands into them."""
    for path in [Path(name).resolve() for name in paths] or PAGES:
        here = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            text = Page(path).run()
            os.chdir(here)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
