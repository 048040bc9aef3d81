"""A file that taut has written in words, as a page, checked or exported, and what is built in (``taut catalog``)."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import JsonFlag, QuietFlag, check_file, text_width
from taut.errors import CertificateError, DataError

if TYPE_CHECKING:
    from taut.planning.plan import Plan
    from taut.reports.sensitivity import MeasuredRun
    from taut.sensitivity import Box


def show_command(
    path: Annotated[Path, typer.Argument(help="A plan written by taut.")],
    sensitive: Annotated[
        bool, typer.Option("--sensitivity", help="Add how wrong the prices may be before another plan is better.")
    ] = False,
    within: Annotated[
        str,
        typer.Option(help="Add how much slower than the best it is while terms err, such as links=0.2,memory=0.05."),
    ] = "",
    break_even: Annotated[
        bool, typer.Option("--break-even", help="Add at which factor of links, memory or imbalance another plan wins.")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds of each search of --within and --break-even.")
    ] = 10.0,
    run: Annotated[
        Path | None,
        typer.Option(
            "--calibrate-after",
            help="Add predicted against measured of the plan's run: CSV with measured_s, or a log of Megatron-LM.",
        ),
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Print a plan in words: where time and memory go, its timeline, the nearest alternatives, bound and gap."""
    from taut.planning.plan import load_plan
    from taut.planning.summary import summary
    from taut.reports.plan_details import details
    from taut.reports.sensitivity import read_run
    from taut.sensitivity import Box

    asked = {"--sensitivity": sensitive, "--within": within, "--break-even": break_even, "--calibrate-after": run}
    plan, box = load_plan(path), Box.stated(within) if within else None
    if plan.meshes and (given := [name for name, value in asked.items() if value]):
        raise DataError(f"{given[0]}: {path} is a plan of meshes, expected a plan of one degree for all stages")
    beside: dict[str, Any] = {}
    measured = None if run is None else read_run(run)
    try:
        more = details(plan, width=text_width())
        words = summary(plan.sections, width=text_width(), details=more, spaces=plan.spaces)
        parts = chain(
            _sensitivity(plan) if sensitive else (),
            _searched(plan, box, break_even, time_limit, quiet) if box is not None or break_even else (),
            _first_run(plan, measured, run) if run is not None and measured is not None else (),
        )
        for name, text, value in parts:
            words, beside[name] = f"{words}\n\n{text}", value
    except DataError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{path}: lacks or contradicts a figure ({error!r}), expected a plan written by taut") from None
    typer.echo(json.dumps(plan.document | beside) if as_json else words)


def _sensitivity(plan: "Plan") -> Iterator[tuple[str, str, Any]]:
    """Name, words and values of how wrong the prices may be before another plan is better."""
    from taut.reports.sensitivity import sensitivity, sensitivity_text

    yield "sensitivity", sensitivity_text(plan.typed, width=text_width()), sensitivity(plan.typed).as_dict()


def _first_run(plan: "Plan", measured: "MeasuredRun", run: Path) -> Iterator[tuple[str, str, Any]]:
    """Name, words and values of predicted against measured."""
    from taut.reports.sensitivity import first_run, first_run_text

    words = first_run_text(plan.typed, measured, run, width=text_width())
    yield "run", words, first_run(plan.typed, measured).as_dict()


def _searched(
    plan: "Plan", box: "Box | None", break_even: bool, time_limit: float | None, quiet: bool
) -> Iterator[tuple[str, str, Any]]:
    """Name, words and values of what searches at other prices say."""
    from taut.commands.progress import live_lines
    from taut.reports.sensitivity import box_text, break_even_text
    from taut.sensitivity import Points, box_regret, break_even_rows

    with live_lines(quiet) as say:
        points = Points.of(plan.typed, plan.source, time_limit, say)
        if box is not None:
            found = box_regret(points, box)
            yield "within", box_text(found, width=text_width()), asdict(found)
        if break_even:
            rows = break_even_rows(points)
            yield "break_even", break_even_text(rows, width=text_width()), [asdict(row) for row in rows]


def report_command(
    path: Annotated[Path, typer.Argument(help="A plan written by taut.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write a plan as one HTML page that opens without a network: figures, placement, every candidate, assumptions."""
    from taut.files import write_atomically
    from taut.planning.plan import load_plan
    from taut.reports.page.page import plan_page

    check_file(out)
    page = plan_page(load_plan(path))
    write_atomically(out, page)
    typer.echo(f"{out}: {len(page.encode()) / 1e6:.2f} MB")


def catalog_command(
    section: Annotated[
        str,
        typer.Argument(help="models, clusters, devices, stacks, calibrations, memory-models or profiles; all without."),
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """List what is built in: models, clusters, devices, stacks, calibrations, memory models and profiles."""
    from taut.reports.catalog import catalog_listing, catalog_text

    listing = catalog_listing(section)
    typer.echo(json.dumps(listing) if as_json else catalog_text(listing))


def verify_command(
    path: Annotated[Path, typer.Argument(help="A plan or schedule written by taut.")],
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check a certificate without trusting the search. Exit code 0 if it holds, 1 if not."""
    from taut.verification import checked

    del quiet  # Of the line that says that work goes on, which no command prints itself.
    outcome, words, report = checked(path)
    if as_json:
        typer.echo(json.dumps(report))
    elif outcome.holds:
        typer.echo("\n".join(f"{path}: {line}" for line in words))
    if not outcome.holds:
        raise CertificateError(f"{path}: does not hold: " + "; ".join(outcome.faults))


MOST_NAMES = 20
"""Files that are named when they are written."""
TARGETS = (
    "megatron, megatron-bridge, torchtitan, deepspeed, flagscale, primus, verl, torch-csv, torchrun, slurm, rankfile; "
    "or chakra"
)


def export_command(
    path: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan written by taut.")],
    to: Annotated[str, typer.Option(help=f"One framework, and any other targets, as a list: {TARGETS}.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    hosts: Annotated[
        Path | None, typer.Option(help="Names of the cluster's nodes in its order, one a line; else placeholders.")
    ] = None,
    plainer: Annotated[
        str, typer.Option(help="A plainer plan that the plan lists, such as even-stages, in its place.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace files in the folder.")] = False,
    quiet: QuietFlag = False,
) -> None:
    """Write the files that launch a plan: flags or a configuration, the place of every process, what to check first."""
    from taut.exports.export import export
    from taut.exports.job import ExportError
    from taut.planning.plan import load_plan

    plan = load_plan(path)
    plan = plan.plainer_plan(plainer) if plainer else plan
    targets = [name.strip() for name in to.split(",") if name.strip()]
    try:
        written = export(plan, targets, out, hosts=[] if hosts is None else host_names(hosts), force=force)
    except ExportError as error:
        raise ExportError(f"{error}{_nearest(plan, targets, quiet=quiet)}") from None
    names = [file.name for file in written]
    more = f", ... ({len(names) - MOST_NAMES} more)" if len(names) > MOST_NAMES else ""
    typer.echo(f"{out}: {', '.join(names[:MOST_NAMES])}{more}; read launch.md first")


def _nearest(plan: "Plan", targets: list[str], *, quiet: bool) -> str:
    """The nearest plan that the launcher can run, with its price; nothing where none is found within seconds."""
    from taut.commands.progress import progress_lines
    from taut.exports.nearest import STACKS, nearest_plan

    framework = next((name for name in targets if name in STACKS), "")
    if not framework:
        return ""
    with progress_lines(quiet or not sys.stderr.isatty()) as progress:
        found = nearest_plan(plan, framework, progress=progress)
    return "" if found is None else f"; {found}"


def host_names(path: Path) -> list[str]:
    """Host names: the first word of every line that is no comment."""
    from taut.data.read import read_text
    from taut.quoting import host_name

    lines = read_text(path, "a file of names, one a line").splitlines()
    named = ((number, line.split()) for number, line in enumerate(lines, start=1))
    return [host_name(words[0], f"{path} line {number}") for number, words in named if words and words[0][0] != "#"]
