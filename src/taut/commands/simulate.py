"""``taut simulate``: one configuration, event by event."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import (
    JsonFlag,
    check_file,
    check_plot,
    refuse_together,
    takes_options,
    text_width,
    write_picture,
)
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.simulation.result import MeshSimulation, Simulation


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
    from taut.plots.timeline import figure_size, plot_timeline
    from taut.simulation.result import MeshSimulation, summary, write_trace

    check_file(trace)
    check_plot(picture, option="--picture")
    found = _simulated(model, cluster, options, share_links)
    if trace is not None:
        write_trace(found, trace)
    if picture is not None:
        if isinstance(found, MeshSimulation):
            raise DataError(f"--picture: {model} is a plan of meshes, expected a plan of one degree for all stages")
        step = found
        write_picture(picture, figure_size(step), lambda figure: plot_timeline(step, figure.subplots()))
    typer.echo(json.dumps(found.as_dict()) if as_json else summary(found, width=text_width()))


def _simulated(
    model: str, cluster: str | None, options: dict[str, Any], share_links: bool
) -> "Simulation | MeshSimulation":
    """The step of a plan, or of stated values."""
    from taut.planning.request import PlanRequest
    from taut.simulation.simulate import simulate

    if cluster is None:
        refuse_together(sorted(options), "a plan", "a model and a cluster, or a plan alone")
        if not Path(model).exists() and Path(model).suffix != ".json":
            raise DataError("CLUSTER: missing, expected a model and a cluster, or the file of a plan alone")
        return simulate(model, share_links=share_links)
    return simulate(PlanRequest(model, cluster, **options), share_links=share_links)
