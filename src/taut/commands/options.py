"""
What several commands share: common flags, files and pictures to write, fixed values as text, width of a report.

Options without an effect beside others are refused by name, by one rule for all verbs. An option that does nothing
would let its user believe in a figure that nobody computed. What has its default is not given, so it is never refused.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.errors import DataError, FieldError, InfeasibleError


def refuse_idle(given: Mapping[str, tuple[object, object]], beside: str) -> None:
    """Refuse the first option, value and default by name, that is given beside what takes its effect away."""
    for name, (value, usual) in given.items():
        if value != usual:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            raise FieldError(name, shown, f"has no effect with {beside}, expected none")


if TYPE_CHECKING:
    from matplotlib.figure import Figure

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
FORMATS = (".png", ".pdf", ".svg")
WIDEST = 110
"""Columns of a report where the terminal has more, or where there is none."""


def text_width() -> int:
    """Columns of a report: the terminal's, or those that ``COLUMNS`` names."""
    return min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)


@contextmanager
def printed_if_infeasible(as_json: bool) -> Iterator[None]:
    """Print why nothing fits as JSON, where JSON was asked for, before the error ends the command."""
    try:
        yield
    except InfeasibleError as error:
        if as_json:
            typer.echo(json.dumps(error.report))
        raise


def check_file(out: Path | None) -> None:
    """Refuse, before the search, a file that could not be written after it. A device or a pipe is accepted."""
    from taut.files import is_special

    if out is None or is_special(out):
        return
    if not out.parent.is_dir():
        raise DataError(f"{out}: there is no folder {out.parent}, expected a writable file name")
    if out.is_dir():
        raise DataError(f"{out}: is a folder, expected a writable file name")
    if not os.access(out.parent, os.W_OK):
        raise DataError(f"{out}: the folder {out.parent} cannot be written, expected a writable file name")


def check_plot(path: Path | None) -> None:
    """Refuse before the search a picture that could not be drawn after it."""
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"--plot {path}: expected a name that ends in {', '.join(FORMATS)}")
    try:
        import_module("matplotlib.figure")
    except ImportError:
        raise DataError(f"--plot {path}: plots need matplotlib: pip install 'taut[plot]'") from None


def write_picture(path: Path, inches: tuple[float, float], draw: Callable[["Figure"], object]) -> None:
    """Draw on a figure of some inches that belongs to no window, so that no display is needed, and write it."""
    from matplotlib.figure import Figure

    from taut.files import write_atomically

    figure, file = Figure(figsize=inches, layout="compressed"), BytesIO()
    draw(figure)
    figure.savefig(file, format=path.suffix.lower()[1:], dpi=150)
    write_atomically(path, file.getvalue())


def check_plans(folder: Path | None) -> None:
    """Refuse before the search a folder that could not be made or filled after it."""
    if folder is None:
        return
    if folder.is_dir():
        check_file(folder / "plan")
        return
    if folder.exists():
        raise DataError(f"{folder}: is a file, expected a folder")
    check_file(folder)


def parse_seconds(text: str | float) -> float | None:
    """Seconds from a text, None for ``none``."""
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number of seconds, and not none") from None


def parse_fix(texts: Sequence[str] | None, option: str = "--fix") -> dict[str, int | str | bool]:
    """Fixed values from texts such as ``tp=8,schedule=1f1b``, one for each time that an option was given."""
    fixed: dict[str, int | str | bool] = {}
    text = ",".join(texts or ())
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise DataError(f"{option} {part}: expected NAME=VALUE, such as tp=8")
        if name in fixed:
            raise DataError(f"{option} {text}: {name} stands twice, expected once")
        words: dict[str, bool] = {"true": True, "false": False}
        fixed[name] = words[value] if value in words else int(value) if value.removeprefix("-").isdecimal() else value
    return fixed
