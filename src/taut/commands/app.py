"""
The command line: results on stdout, progress on stderr, one clear line for what is wrong.

Exit codes: 0 done; 1 a check failed; 2 bad usage or bad input; 3 proven infeasible; 4 nothing found within the limit.
"""

import json
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Annotated, NoReturn, TextIO

import typer

from taut import __version__
from taut.commands.fit import fitter
from taut.commands.import_costs import importer
from taut.commands.pareto import pareto_command
from taut.commands.place import place_command
from taut.commands.profile import profile_command
from taut.commands.reproduce import reproducer
from taut.commands.schedule import schedule_command
from taut.commands.verify import verify_command
from taut.errors import CertificateError, DataError, InfeasibleError, NothingFoundError, TautError

app = typer.Typer(
    help="Plans the training of large models on GPU clusters, and proves how good the plan is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(importer, name="import")
app.add_typer(fitter, name="fit")
app.add_typer(reproducer, name="reproduce")

INTERRUPTED = 130
"""What Typer makes of Ctrl-C."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"taut {__version__}")
        raise typer.Exit


@app.command(name="plan")
def plan_command(
    model: Annotated[str, typer.Argument(help="Catalog name, our YAML file, or a Hugging Face config.json.")],
    cluster: Annotated[str, typer.Argument(help="Catalog name, NAME:NODES, or our YAML file.")],
    global_batch: Annotated[int, typer.Option(help="Sequences per step.")],
    seq: Annotated[int | None, typer.Option(help="Sequence length in tokens, if not the model's.")] = None,
    profile: Annotated[str | None, typer.Option(help="Measured layer costs: catalog name or CSV file.")] = None,
    memory_model: Annotated[str | None, typer.Option(help="Catalog name, YAML file, or JSON of a network.")] = None,
    latency_model: Annotated[str, typer.Option(help="pipette, pipette-printed or amp.")] = "pipette",
    calibration: Annotated[str | None, typer.Option(help="Fitted coefficients: catalog name or YAML file.")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.")] = None,
    fix: Annotated[str, typer.Option(help="Values that must hold, such as tp=8,pp=4,schedule=1f1b.")] = "",
    max_tp: Annotated[int | None, typer.Option(help="Largest tensor degree; default: the node size.")] = None,
    schedules: Annotated[str | None, typer.Option(help="all, or a list; default: 1f1b,gpipe and any fixed.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds to search.")] = None,
    work_limit: Annotated[int | None, typer.Option(help="Refinements to make: deterministic work.")] = None,
    gap: Annotated[float, typer.Option(help="Relative gap that is good enough, such as 0.01.")] = 1e-6,
    seed: Annotated[int, typer.Option(help="Seed of the annealing.")] = 0,
    workers: Annotated[int, typer.Option(help="Threads; the plan does not depend on them.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Find the best strategy and placement, with a proven gap. Ctrl-C keeps the best plan so far."""
    from taut.commands.options import check_folder, check_limits, check_seed, parse_fix
    from taut.commands.progress import progress_lines
    from taut.planning import plan

    check_limits(time_limit, work_limit, gap, workers, max_tp)
    check_seed(seed)
    check_folder(out)
    try:
        with progress_lines(quiet) as progress:
            found = plan(
                model,
                cluster,
                global_batch=global_batch,
                seq=seq,
                profile=profile,
                memory_model=memory_model,
                latency_model=latency_model,
                calibration=calibration,
                precision=precision,
                fix=parse_fix(fix),
                max_tp=max_tp,
                schedules=schedules,
                time_limit=time_limit,
                work_limit=work_limit,
                gap=gap,
                seed=seed,
                workers=workers,
                progress=progress,
            )
    except InfeasibleError as error:
        if as_json:
            typer.echo(json.dumps(error.report))
        raise
    if out is not None:
        found.write(out)
    typer.echo(json.dumps(found.document) if as_json else str(found))


app.command(name="verify")(verify_command)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A plan written by taut.")],
    as_json: JsonFlag = False,
) -> None:
    """Print a plan in words: strategy, where time and memory go, bound and gap."""
    from taut.data.read import read_json
    from taut.reports.plan import summary
    from taut.solver.certificate.document import parse_document

    values = read_json(path, "a plan")
    parse_document(values, str(path))
    try:
        words = summary(values)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{path}: lacks or contradicts a figure ({error!r}), expected a plan written by taut") from None
    typer.echo(json.dumps(values) if as_json else words)


@app.command()
def catalog(
    section: Annotated[
        str, typer.Argument(help="models, clusters, devices, calibrations, memory-models or profiles; all without.")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """List the built-in models, clusters, devices, calibrations, memory models and profiles with their sources."""
    from taut.reports.catalog import catalog_listing, catalog_text

    listing = catalog_listing(section)
    typer.echo(json.dumps(listing) if as_json else catalog_text(listing))


@app.command()
def predict(
    rows: Annotated[Path, typer.Argument(help="CSV of configurations, one a row.")],
    out: Annotated[Path, typer.Option(help="CSV to write: the rows with the predicted columns beside them.")],
    calibration: Annotated[
        str | None, typer.Option(help="Fitted coefficients for all rows: catalog name or YAML file.")
    ] = None,
) -> None:
    """Step time with its band, memory and fit of given configurations; a wrong row gets an error text."""
    from taut.data.load import load_calibration
    from taut.files import write_atomically
    from taut.prediction import predict_file

    chosen = None if calibration is None else load_calibration(calibration)
    write_atomically(out, predict_file(rows, chosen))


app.command(name="place")(place_command)
app.command(name="pareto")(pareto_command)
app.command(name="profile")(profile_command)
app.command(name="schedule")(schedule_command)


def main() -> None:
    """Run the command line; every error becomes one line and an exit code."""
    warnings.showwarning = _warn
    try:
        code = app(standalone_mode=False)
    except TautError as error:
        _stop(str(error), _exit_code(error))
    except MemoryError:
        _stop("not enough memory for a problem of this size, expected a smaller one", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        # Typer keeps the base class of its usage errors to itself; all of them can word themselves.
        if not hasattr(error, "format_message"):
            raise
        _stop(error.format_message(), 2)
    if code == INTERRUPTED:
        _stop("interrupted before there was a plan", 4)
    sys.exit(code)


def _stop(message: str, code: int) -> NoReturn:
    """Print a message, if any, in one line, and exit."""
    if message:
        print(f"taut: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


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
