"""``taut show``, ``taut report`` and ``taut catalog``: a plan in words, as a page, and what is built in."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import JsonFlag, QuietFlag, check_file, text_width
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.planning.plan import Plan
    from taut.reports.first_run import MeasuredRun
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
    from taut.reports.first_run import read_run
    from taut.reports.plan_details import details
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
    from taut.reports.first_run import first_run, first_run_text

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
