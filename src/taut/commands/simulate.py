"""``taut simulate``: one configuration, event by event; ``taut pack``: a plan's step with packed sequences."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import (
    JsonFlag,
    check_file,
    check_plot,
    echo,
    refuse_together,
    takes_options,
    text_width,
    write_picture,
)
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.simulation import MeshSimulation, Simulation


@takes_options("simulate")
def simulate_command(
    model: Annotated[str, typer.Argument(metavar="MODEL|PLAN.json", help="The model, as for plan; or a plan, alone.")],
    options: dict[str, Any],
    cluster: Annotated[str | None, typer.Argument(metavar="[CLUSTER]", help="The cluster, as for plan.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write what ran when, for ui.perfetto.dev and chrome://tracing (.json).")
    ] = None,
    share_links: Annotated[
        bool, typer.Option("--share-links", help="Slow flows that meet on a node's network cards.")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw the timeline: .png, .svg or .pdf.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate one training step, event by event: time, bubble, exposed communication, memory over time."""
    from taut.plots.schedule import plot_timeline, timeline_size
    from taut.simulation import MeshSimulation, summary, write_trace

    check_file(trace)
    check_plot(picture, option="--picture")
    found = _simulated(model, cluster, options, share_links)
    if trace is not None:
        write_trace(found, trace)
    if picture is not None:
        if isinstance(found, MeshSimulation):
            raise DataError(f"--picture: {model} is a plan of meshes, expected a plan of one degree for all stages")
        step = found
        write_picture(picture, timeline_size(step), lambda figure: plot_timeline(step, figure.subplots()))
    typer.echo(json.dumps(found.as_dict()) if as_json else summary(found, width=text_width()))


def _simulated(
    model: str, cluster: str | None, options: dict[str, Any], share_links: bool
) -> "Simulation | MeshSimulation":
    """The step of a plan, or of stated values."""
    from taut.planning.request import PlanRequest
    from taut.simulation import simulate

    if cluster is None:
        refuse_together(sorted(options), "a plan", "a model and a cluster, or a plan alone")
        if not Path(model).exists() and Path(model).suffix != ".json":
            raise DataError("CLUSTER: missing, expected a model and a cluster, or the file of a plan alone")
        return simulate(model, share_links=share_links)
    return simulate(PlanRequest(model, cluster, **options), share_links=share_links)


def pack_command(
    path: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan written by taut.")],
    lengths: Annotated[
        str,
        typer.Option(
            help="Lengths of sequences: a file with one a line or length,count; or chat-sft, recipe-sft, "
            "longalign-10k, long-mix, wikipedia."
        ),
    ],
    draws: Annotated[int, typer.Option(help="Steps to draw.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    room: Annotated[
        int | None, typer.Option(help="Tokens of a micro-batch under balanced and two-level; default: the plan's.")
    ] = None,
    drop_longer: Annotated[
        bool, typer.Option("--drop-longer", help="Leave out sequences that are longer than the plan's.")
    ] = False,
    search: Annotated[
        float | None,
        typer.Option(help="Seconds to search the plan's space for a plan that suits the lengths, with a bound."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Plan to write that --search found, at the mean work of the lengths (.json).")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of the drawn steps: .png, .svg or .pdf.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """What a plan's step takes with packed sequences: first fit, sorted and balanced packing, with a bound."""
    from taut.files import write_atomically
    from taut.packing import pack, plot_packing

    check_plot(plot)
    check_file(out)
    if out is not None and search is None:
        raise DataError(f"--out {out}: has no effect without --search, expected none")
    found = pack(path, lengths, draws=draws, seed=seed, room=room, drop_longer=drop_longer, search=search)
    if out is not None and found.best is not None:
        write_atomically(out, json.dumps(found.best.document) + "\n")
    if plot is not None:
        write_picture(plot, (7.0, 4.0), lambda figure: plot_packing(found, figure.subplots()))
    echo(found, as_json)
