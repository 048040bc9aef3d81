"""
What several commands share: their options, files and pictures to write, and how a result is printed.

The options of a ``PlanRequest`` are those of a command by their records (``taut.planning.options``). ``takes_request``
replaces the parameter ``request`` of a command by all of them, ``takes_options`` the parameter ``options`` by those
that a verb has, none of which must be given.

Options without an effect beside others are refused by name, by one rule for all verbs. An option that does nothing
would let its user believe in a figure that nobody computed. What has its default is not given, so it is never refused.
"""

import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from taut.errors import DataError, FieldError, InfeasibleError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
PICTURES = {".png": "matplotlib", ".pdf": "matplotlib", ".svg": "matplotlib"}
PAGES = {**PICTURES, ".html": "plotly"}
"""Formats of pictures, and of pictures or pages, with what draws them."""
WIDEST = 110
"""Columns of a report where the terminal has more, or where there is none."""
Command = Callable[..., None]
KEYWORD, MUST = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty


class Result(Protocol):
    """What a verb returns: words as text, plain values for machines."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""


def echo(found: Result, as_json: bool) -> None:
    """Print a result in words, or as JSON."""
    typer.echo(json.dumps(found.as_dict()) if as_json else str(found))


def text_width() -> int:
    """Columns of a report: the terminal's, or those that ``COLUMNS`` names."""
    return min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)


def flag(name: str) -> str:
    """A field as it stands on the command line."""
    return "--" + name.replace("_", "-")


def refuse_idle(given: Mapping[str, tuple[object, object]], beside: str) -> None:
    """Refuse the first option, value and default by name, that is given beside what takes its effect away."""
    for name, (value, usual) in given.items():
        if value != usual:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            raise FieldError(name, shown, f"has no effect with {beside}, expected none")


def refuse_together(names: Iterable[str], what: str, expected: str) -> None:
    """Refuse the first name of options that are given together with what they do not go with."""
    if stated := next(iter(names), None):
        raise DataError(f"{flag(stated)}: given together with {what}, expected {expected}")


@contextmanager
def printed_if_infeasible(as_json: bool) -> Iterator[None]:
    """Print why nothing fits as JSON, where JSON was asked for, before the error ends the command."""
    try:
        yield
    except InfeasibleError as error:
        if as_json:
            typer.echo(json.dumps(error.report))
        raise


def check_file(*paths: Path | None) -> None:
    """Refuse, before the search, files that could not be written after it. A device or a pipe is accepted."""
    from taut.files import is_special

    for out in paths:
        if out is None or is_special(out):
            continue
        if not out.parent.is_dir():
            raise DataError(f"{out}: there is no folder {out.parent}, expected a writable file name")
        if out.is_dir():
            raise DataError(f"{out}: is a folder, expected a writable file name")
        if not os.access(out.parent, os.W_OK):
            raise DataError(f"{out}: the folder {out.parent} cannot be written, expected a writable file name")


def check_plot(path: Path | None, formats: Mapping[str, str] = PICTURES, option: str = "--plot") -> None:
    """Refuse before the search a picture or page that could not be drawn or written after it."""
    check_file(path)
    if path is None:
        return
    if path.suffix.lower() not in formats:
        raise DataError(f"{option} {path}: expected a name that ends in {', '.join(formats)}")
    needed = formats[path.suffix.lower()]
    try:
        import_module("matplotlib.figure" if needed == "matplotlib" else needed)
    except ImportError:
        raise DataError(f"{option} {path}: plots need {needed}: pip install 'taut[plot]'") from None


def write_figure(path: Path, figure: "Figure") -> None:
    """Write a picture in the format that its name says."""
    from taut.files import write_atomically

    file = BytesIO()
    figure.savefig(file, format=path.suffix.lower()[1:], dpi=150)
    write_atomically(path, file.getvalue())


def write_picture(path: Path, inches: tuple[float, float], draw: Callable[["Figure"], object]) -> None:
    """Draw on a figure of some inches that belongs to no window, so that no display is needed, and write it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, layout="compressed")
    draw(figure)
    write_figure(path, figure)


def parse_seconds(text: str | float) -> float | None:
    """Seconds from a text, None for ``none``."""
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} expected a number of seconds, or none") from None


def seconds_option(help_text: str) -> Any:
    """An option of seconds that may be none."""
    return typer.Option(help=help_text, parser=parse_seconds, metavar="SECONDS|none")


def whole_numbers(option: str, text: str, expected: str = "above 0", most: int = 9_999_999) -> list[int]:
    """Whole numbers above 0 from ``1,2,4``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 and 0 < int(part) <= most for part in parts):
        raise DataError(f"{option} {text}: expected whole numbers {expected}, such as 1,2,4")
    return [int(part) for part in parts]


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


def options_of(verb: str | None = None) -> list[inspect.Parameter]:
    """The options of a request as parameters of Typer: all, or those that a verb of the command line takes."""
    from taut.planning.options import DEFAULTS, OPTIONS, type_of

    return [
        parameter(name, list[str] | None if name == "fix" else type_of(name), option.help, DEFAULTS.get(name, MUST))
        for name, option in OPTIONS.items()
        if verb is None or verb in option.verbs
    ]


def parameter(name: str, kind: Any, help_text: str, default: Any) -> inspect.Parameter:
    """A parameter of Typer; a truth value is a flag without a ``--no-`` of its own."""
    flags = [flag(name)] if kind is bool else []
    option = seconds_option(help_text) if name == "time_limit" else typer.Option(*flags, help=help_text)
    return inspect.Parameter(name, KEYWORD, default=default, annotation=Annotated[kind, option])


def request_parameters() -> list[inspect.Parameter]:
    """Model, cluster and all options of a request as parameters of Typer."""
    model = typer.Argument(metavar="MODEL", help="Catalog name, our YAML file, or a Hugging Face config.json.")
    cluster = typer.Argument(metavar="CLUSTER", help="Catalog name, NAME:NODES, or our YAML file.")
    return [
        inspect.Parameter("model", KEYWORD, annotation=Annotated[str, model]),
        inspect.Parameter("cluster", KEYWORD, annotation=Annotated[str, cluster]),
        *options_of(),
    ]


def takes_request(command: Command) -> Command:
    """Give a command the options of a request in place of its parameter ``request``, which it takes first."""
    shared = request_parameters()

    def run(**given: Any) -> None:
        from taut.planning.request import PlanRequest

        values = {each.name: given.pop(each.name) for each in shared}
        command(PlanRequest(**values | {"fix": parse_fix(values["fix"])}), **given)

    return _with_parameters(run, command, "request", shared)


def takes_options(verb: str) -> Callable[[Command], Command]:
    """Give a verb its options of a request, all optional, as ``options``: the values that were given by name."""
    optional = [each.replace(default=None) if each.default is MUST else each for each in options_of(verb)]

    def decorate(command: Command) -> Command:
        def run(**given: Any) -> None:
            values = {each.name: (given.pop(each.name), each.default) for each in optional}
            options = {name: value for name, (value, default) in values.items() if value != default}
            if "fix" in options:
                options["fix"] = parse_fix(options["fix"])
            command(options=options, **given)

        return _with_parameters(run, command, "options", optional)

    return decorate


def _with_parameters(run: Command, command: Command, place: str, shared: list[inspect.Parameter]) -> Command:
    """A function with a command's name, text and parameters, one of them replaced by those that it shares."""
    own = list(inspect.signature(command).parameters.values())
    at = [each.name for each in own].index(place)
    run.__name__ = command.__name__
    return with_signature(run, command.__doc__, [*own[:at], *shared, *own[at + 1 :]])


def with_signature(run: Command, text: str | None, parameters: Sequence[inspect.Parameter]) -> Command:
    """A function with a text and parameters for Typer."""
    run.__doc__ = text
    # Typer reads the options off this attribute, which stands for a function's own signature.
    run.__dict__["__signature__"] = inspect.Signature([each.replace(kind=KEYWORD) for each in parameters])
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
