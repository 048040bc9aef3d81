"""
The command line: results on stdout, progress on stderr, one clear line for what is wrong.

Exit codes: 0 done; 1 a check failed; 2 bad usage or bad input; 3 proven infeasible; 4 nothing found within the limit.
"""

import gc
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, NoReturn, TextIO

import typer

from taut import __version__
from taut.commands.compare import compare_command
from taut.commands.files import mcp_command, new_command, schema_command
from taut.commands.importing import importer
from taut.commands.jobs import jobs_command
from taut.commands.options import flag
from taut.commands.place import place_command
from taut.commands.plan import pareto_command, plan_command
from taut.commands.predict import fitter, predict_command, sweep_command
from taut.commands.profile import profile_command
from taut.commands.replan import replan_command, spares_command
from taut.commands.reproduce import reproducer
from taut.commands.schedule import schedule_command
from taut.commands.show import catalog_command, export_command, report_command, show_command, verify_command
from taut.commands.simulate import pack_command, simulate_command
from taut.errors import CertificateError, FieldError, InfeasibleError, NothingFoundError, TautError

_signalled = threading.Event()
"""Whether a signal asked the command to end."""
INTERRUPTED = 130
"""What Typer makes of Ctrl-C."""
SILENT_S = 5.0
"""Seconds without a line on stderr after which a command says that it goes on."""
NARROW = 120
"""Columns below which Rich cuts the names of options; the plain help wraps instead."""
ARGUMENTS = {"model": "MODEL", "cluster": "CLUSTER"}
"""Fields that are arguments of a command; every other is an option of its own name."""

app = typer.Typer(
    help="Plans the training of large models on GPU clusters, and proves how good the plan is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if shutil.get_terminal_size().columns >= NARROW else None,
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"taut {__version__}")
        raise typer.Exit


COMMANDS: tuple[Callable[..., None], ...] = (
    plan_command, verify_command, compare_command, replan_command, spares_command, export_command, show_command,
    report_command, catalog_command, predict_command, pack_command, place_command, pareto_command, sweep_command,
    jobs_command, profile_command, schedule_command, simulate_command, schema_command, new_command, mcp_command,
)  # fmt: skip
"""Verbs in the order of the help, each named as its function."""
for command in COMMANDS:
    app.command(name=command.__name__.removesuffix("_command"))(command)
app.add_typer(importer, name="import")
app.add_typer(fitter, name="fit")
app.add_typer(reproducer, name="reproduce")


def main() -> None:
    """Run the command line; every error becomes one line and an exit code."""
    warnings.showwarning = _warn
    try:
        code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Who reads the output has seen enough.
        _drop_output()
        code = 0
    except OSError as error:
        _drop_output()
        _stop(f"standard output cannot be written ({error.strerror})", 2)
    _leave(code)


def _run() -> int:
    """Run the command; returns its exit code."""
    from taut.solver.signals import heard_again, interruptible_command, was_interrupted

    again = False
    _signalled.clear()
    try:
        with interruptible_command(), _heartbeat(quiet=not {"-q", "--quiet", "mcp"}.isdisjoint(sys.argv)):
            try:
                code = app(standalone_mode=False)
            finally:
                if was_interrupted():
                    _signalled.set()
                    again = heard_again()
    except TautError as error:
        _stop(_words(error), _exit_code(error))
    except SystemExit as stop:
        # Typer ends a command whose reader is gone with the exit code of a failed check.
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        raise
    except MemoryError:
        _stop("not enough memory for a problem of this size, expected a smaller one", 2)
    except ArithmeticError as error:
        # Every figure that is read lies within its limits; products and quotients of several may leave them.
        _stop(f"the given figures lead to one that cannot be computed ({error}), expected usual ones", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        # Typer keeps the base class of its usage errors to itself; all of them can word themselves.
        if not hasattr(error, "format_message"):
            if not _follows_interrupt(error):
                raise
            code = INTERRUPTED
        elif type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            _leave(2)
        else:
            _stop(error.format_message(), 2)
    if code == INTERRUPTED:
        dropped = "interrupted again before the result was written: it is dropped; one or two signals keep it"
        _stop(dropped if again else "interrupted before there was a result", 4)
    return code or 0


def _follows_interrupt(error: BaseException | None) -> bool:
    """Whether an error came of a signal, as that of a compiled library that was being loaded does."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


class _Heard:
    """A stream that knows when it was written to."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.last = stream, time.monotonic()

    def write(self, text: str) -> int:
        """Write, and note the time."""
        self.last = time.monotonic()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _heartbeat(*, quiet: bool) -> Iterator[None]:
    """Say on stderr that work goes on, after 1, 2, 4... ``SILENT_S`` without a line; not if ``quiet``."""
    stream, ended, began = sys.stderr, threading.Event(), time.monotonic()
    if quiet or stream is None:
        yield
        return
    heard: Any = _Heard(stream)

    def beat() -> None:
        silence, last = SILENT_S, heard.last
        # A line in between starts the silence anew, so no wait is longer than the shortest silence.
        while not ended.wait(min(SILENT_S, max(heard.last + silence - time.monotonic(), 0.0))):
            if heard.last != last:
                silence, last = SILENT_S, heard.last
            if time.monotonic() - last >= silence:
                fresh = "\r\x1b[2K" if stream.isatty() else ""
                print(f"{fresh}{time.monotonic() - began:7.1f}s  at work", file=stream, flush=True)
                silence *= 2.0

    sys.stderr = heard
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sys.stderr = stream


def _leave(code: int) -> NoReturn:
    """Exit; after a signal without waiting for threads whose work was cut short."""
    if _signalled.is_set() and threading.active_count() > 1:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)
    # Or Python looks for reference cycles among all that it frees next: half a second after a plan.
    gc.freeze()
    sys.exit(code)


def _words(error: TautError) -> str:
    """The message, with a field of a request under its name on the command line."""
    if not isinstance(error, FieldError):
        return str(error)
    name = ARGUMENTS.get(error.field) or flag(error.field)
    return f"{name}: {error.reason}" if error.value is None else f"{name} {error.value}: {error.reason}"


def _drop_output() -> None:
    """Let nothing more be written to an output that takes nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stop(message: str, code: int) -> NoReturn:
    """Print a message, if any, in one line, and exit."""
    if message:
        print(f"taut: {' '.join(message.split())}", file=sys.stderr)
    _leave(code)


@cache
def _warn_once(words: str) -> None:
    print(f"taut: warning: {words}", file=sys.stderr)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line on stderr for every warning, once; the signature is that of ``warnings.showwarning``."""
    _warn_once(str(message))


def _exit_code(error: TautError) -> int:
    if isinstance(error, InfeasibleError):
        return 3
    if isinstance(error, NothingFoundError):
        return 4
    return 1 if isinstance(error, CertificateError) else 2
