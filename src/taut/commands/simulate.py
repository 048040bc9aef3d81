"""``taut simulate``: one configuration, event by event."""

import json
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import JsonFlag, check_file, text_width
from taut.commands.request_options import takes_options
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.simulation.result import MeshSimulation, Simulation

FORMATS = (".png", ".pdf", ".svg")


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
    from taut.files import write_atomically
    from taut.simulation.result import MeshSimulation, summary, write_trace

    check_file(trace)
    _check_picture(picture)
    found = _simulated(model, cluster, options, share_links)
    if trace is not None:
        write_trace(found, trace)
    if picture is not None:
        if isinstance(found, MeshSimulation):
            raise DataError(f"--picture: {model} is a plan of meshes, expected a plan of one degree for all stages")
        write_atomically(picture, _drawn(found, picture.suffix.lower()))
    typer.echo(json.dumps(found.as_dict()) if as_json else summary(found, width=text_width()))


def _simulated(
    model: str, cluster: str | None, options: dict[str, Any], share_links: bool
) -> "Simulation | MeshSimulation":
    """The step of a plan, or of stated values."""
    from taut.planning.request import PlanRequest
    from taut.simulation.simulate import simulate

    if cluster is None:
        if options:
            name = "--" + min(options).replace("_", "-")
            raise DataError(f"{name}: given together with a plan, expected a model and a cluster, or a plan alone")
        if not Path(model).exists() and Path(model).suffix != ".json":
            raise DataError("CLUSTER: missing, expected a model and a cluster, or the file of a plan alone")
        return simulate(model, share_links=share_links)
    return simulate(PlanRequest(model, cluster, **options), share_links=share_links)


def _check_picture(path: Path | None) -> None:
    """Refuse before the simulation a picture that could not be drawn after it."""
    check_file(path)
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"--picture {path}: expected a name that ends in {', '.join(FORMATS)}")
    try:
        import_module("matplotlib.figure")
    except ImportError:
        raise DataError(f"--picture {path}: needs matplotlib: pip install 'taut[plot]'") from None


def _drawn(found: "Simulation", suffix: str) -> bytes:
    """The picture; its figure belongs to no window, so that no display is needed."""
    from matplotlib.figure import Figure

    from taut.plots.timeline import figure_size, plot_timeline

    figure, file = Figure(figsize=figure_size(found), layout="compressed"), BytesIO()
    plot_timeline(found, figure.subplots())
    figure.savefig(file, format=suffix[1:], dpi=150)
    return file.getvalue()
