"""``taut schedule``: the command line of pipeline schedules."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.commands.options import PAGES, JsonFlag, QuietFlag, check_file, check_plot, flag, refuse_idle, write_picture
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.formulations.schedules.stages import Stages
    from taut.schedules.found import FoundSchedule

GAP = 1e-6
"""Relative gap that is good enough."""


def schedule_command(
    stages: Annotated[int | None, typer.Option(help="Pipeline stages: as many devices, one share each.")] = None,
    micro_batches: Annotated[int | None, typer.Option(help="Micro-batches of a step.")] = None,
    forward: Annotated[
        str | None,
        typer.Option(
            help="Time of a stage's forward pass, in any unit: one number for all, one for each stage, or one for "
            "each half stage. With two chunks a device, each takes half a stage."
        ),
    ] = None,
    backward: Annotated[str | None, typer.Option(help="Time of a stage's gradient by the input; likewise.")] = None,
    weight: Annotated[str | None, typer.Option(help="Time of a stage's gradient by the weights; likewise.")] = None,
    comm: Annotated[
        str | None, typer.Option(help="Time of a transfer: one number, or one for each link; default: 0.")
    ] = None,
    chunks: Annotated[int | None, typer.Option(help="Chunks of a device: 1, 2 or more; default: 1 and 2.")] = None,
    placement: Annotated[
        str | None, typer.Option(help="sequential, v or round-robin; default: the best of them.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Build this kind, such as zb-v, and do not improve it.")] = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="Activation memory relative to 1F1B's peak: one number, or one for each device.")
    ] = None,
    activation: Annotated[
        str | None, typer.Option(help="Activation memory of a stage, in any unit, likewise; default: all alike.")
    ] = None,
    kept_for_weight: Annotated[
        float, typer.Option(help="Share of it that the gradient by the input leaves for that by the weights.")
    ] = 1.0,
    read: Annotated[
        Path | None,
        typer.Option(
            help="Price these orders, build none: our JSON, a plan's, or PyTorch's CSV with the figures as options."
        ),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds to search and prove; default: 60, of given orders or a kind 1.")
    ] = None,
    gap: Annotated[float, typer.Option(help="Relative gap that is good enough, such as 0.01.")] = GAP,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    workers: Annotated[int, typer.Option(help="Threads.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Write the schedule as JSON.")] = None,
    torch_csv: Annotated[Path | None, typer.Option(help="Write it for torch.distributed.pipelining.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .png, .svg, .pdf, or .html to zoom into.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Best pipeline schedule under a memory limit, with its bound. Ctrl-C keeps the best so far."""
    from taut.commands.progress import progress_lines
    from taut.planning.request import check_search
    from taut.schedules.found import summary
    from taut.schedules.portfolio import ScheduleSearch, best_schedule, bounded, published_schedule
    from taut.schedules.reading import given_csv, given_json

    check_search(time_limit=time_limit, gap=gap, seed=seed, workers=workers)
    check_file(out, torch_csv)
    check_plot(plot, PAGES)
    counts = {"stages": stages, "micro_batches": micro_batches}
    times = {"forward": forward, "backward": backward, "weight": weight}
    optional = {"comm": comm, "activation": activation, "memory_limit": memory_limit}
    if kind is not None or read is not None:
        beside = "kind" if kind is not None else "read"
        refuse_idle({"gap": (gap, GAP), "seed": (seed, 0), "workers": (workers, 2)}, f"--{beside}, which searches none")
    began = time.perf_counter()
    with progress_lines(quiet) as progress:
        search = ScheduleSearch(time_limit=time_limit, gap=gap, seed=seed, workers=workers, progress=progress)
        if read is not None and read.suffix.lower() != ".csv":
            _refuse_figures({**counts, **times, **optional, "kind": kind, "placement": placement, "chunks": chunks})
            found = bounded(given_json(read), search)
        else:
            pipeline = _pipeline(counts, times, optional, kept_for_weight)
            if read is not None:
                found = bounded(given_csv(read, pipeline), search)
            elif kind is not None:
                found = published_schedule(pipeline, kind, search, placement=placement, chunks=chunks)
            else:
                found = best_schedule(pipeline, search, placement=placement, chunks=chunks)
    wall = time.perf_counter() - began
    found = replace(found, provenance={"seed": seed, "time_limit": time_limit, "wall_s": wall})
    _write(found, out, torch_csv, plot)
    typer.echo(json.dumps(found.document, allow_nan=False) if as_json else summary(found))


def _refuse_figures(given: Mapping[str, object]) -> None:
    """Refuse figures beside a file that holds its own."""
    for name, value in given.items():
        if value is not None:
            raise DataError(f"{flag(name)} {value}: expected none with --read of a JSON file, which holds its own")


def _pipeline(
    counts: Mapping[str, int | None], times: Mapping[str, str | None], optional: Mapping[str, str | None], kept: float
) -> "Stages":
    """Build the pipeline of the options."""
    from taut.formulations.schedules.stages import Stages

    missing = [flag(name) for name, value in {**counts, **times}.items() if value is None]
    if missing:
        raise DataError(f"{' '.join(missing)}: missing, expected a value")
    whole = {name: value for name, value in counts.items() if value is not None}
    figures: dict[str, Sequence[float]] = {
        name: _numbers(name, text) for name, text in {**times, **optional}.items() if text is not None
    }
    return Stages(
        stages=whole["stages"],
        micro_batches=whole["micro_batches"],
        forward=figures["forward"],
        backward=figures["backward"],
        weight=figures["weight"],
        comm=figures.get("comm", Stages.comm),
        activation=figures.get("activation", Stages.activation),
        kept_for_weight=kept,
        memory_limit=figures.get("memory_limit", Stages.memory_limit),
    )


def _numbers(name: str, text: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise DataError(f"{flag(name)} {text}: expected a number, or numbers between commas") from None


def _write(found: "FoundSchedule", out: Path | None, torch_csv: Path | None, plot: Path | None) -> None:
    """Write what is asked for, each file whole or not at all."""
    from taut.files import write_atomically
    from taut.plots.schedule import figure_size, plot_schedule
    from taut.plots.schedule_page import schedule_page
    from taut.schedules.reading import torch_csv as text_of

    if out is not None:
        write_atomically(out, json.dumps(found.document, allow_nan=False) + "\n")
    if torch_csv is not None:
        write_atomically(torch_csv, text_of(found.problem, found.schedule))
    if plot is not None:
        if plot.suffix.lower() == ".html":
            write_atomically(plot, schedule_page(found))
        else:
            write_picture(plot, figure_size(found), lambda figure: plot_schedule(found, figure.subplots()))
