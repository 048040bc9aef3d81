"""``taut pareto``: the command line of the memory/throughput frontier."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import (
    JsonFlag,
    QuietFlag,
    check_file,
    check_plot,
    echo,
    printed_if_infeasible,
    takes_request,
    write_picture,
)
from taut.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from taut.frontier.frontier import Frontier
    from taut.frontier.resources import ResourceFront
    from taut.planning.request import PlanRequest


@takes_request
def pareto_command(
    request: "PlanRequest",
    limits: Annotated[str | None, typer.Option(help="GiB that a device may have, such as 20,40,80.")] = None,
    points: Annotated[
        str | None,
        typer.Option(help="How many limits, evenly from the least that holds a plan; all: every plan. Default: 8."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV to write: one row per limit.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to write: .png, .pdf or .svg.")] = None,
    out_plans: Annotated[Path | None, typer.Option(help="Folder for the plans, each for taut verify.")] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            help="Numbers of nodes, such as 1,2,4, or usual (powers of two): GPUs and cost beside memory and time."
        ),
    ] = None,
    tokens: Annotated[float | None, typer.Option(help="With --nodes: tokens of the training, such as 270e9.")] = None,
    steps: Annotated[int | None, typer.Option(help="With --nodes: steps of the training, instead of tokens.")] = None,
    price: Annotated[float | None, typer.Option(help="With --nodes: dollars an hour of a GPU.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Step time against memory, or GPUs, cost and memory; each point has its bound. Ctrl-C keeps the points so far."""
    from taut.commands.progress import progress_lines
    from taut.files import write_atomically
    from taut.frontier.epsilon_constraint import pareto
    from taut.frontier.resources import resource_front

    check_file(out)
    _check_plans(out_plans)
    check_plot(plot)
    memory_limits, count = _limits(limits, points)
    asked: dict[str, Any] = {"tokens": tokens, "steps": steps, "price": price}
    found: Frontier | ResourceFront
    with printed_if_infeasible(as_json), progress_lines(quiet) as progress:
        if nodes is None:
            _check_alone(asked)
            found = pareto(request, limits=memory_limits, points=count, progress=progress)
        else:
            count, chosen = 1 if points is None else count, _nodes(nodes)
            found = resource_front(
                request, nodes=chosen, limits=memory_limits, points=count, progress=progress, **asked
            )
    if out is not None:
        write_atomically(out, found.csv())
    if out_plans is not None:
        found.write_plans(out_plans)
    if plot is not None:
        _draw(found, plot)
    echo(found, as_json)


def _check_plans(folder: Path | None) -> None:
    """Refuse before the search a folder that could not be made or filled after it."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file, expected a folder")
    check_file(folder / "plan" if folder is not None and folder.is_dir() else folder)


def _limits(limits: str | None, points: str | None) -> tuple[list[float] | None, int | None]:
    """Limits in GiB, or how many are wanted; None for all."""
    from taut.frontier.epsilon_constraint import POINTS

    if limits is not None and points is not None:
        raise DataError(f"--points {points}: given together with --limits, expected one of them")
    if limits is not None:
        return [_gib(part) for part in limits.split(",") if part.strip()], None
    if points == "all":
        return None, None
    if points is not None and not points.isdecimal():
        raise DataError(f"--points {points}: expected a number above 0, or all")
    return None, POINTS if points is None else int(points)


def _gib(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"--limits {text.strip()}: expected GiB above 0, such as 20,40,80") from None


def _check_alone(asked: dict[str, Any]) -> None:
    """Refuse what is of a number of nodes without one."""
    for name, value in asked.items():
        if value is not None:
            raise DataError(f"--{name} {value:g}: stands without --nodes, expected both")


def _nodes(text: str) -> list[int] | None:
    """Numbers of nodes; None for the usual ones."""
    if text == "usual":
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if wrong := [part for part in parts if not part.isdecimal()]:
        raise DataError(f"--nodes {wrong[0]}: expected numbers of nodes, such as 1,2,4, or usual")
    return [int(part) for part in parts]


def _draw(found: "Frontier | ResourceFront", path: Path) -> None:
    from taut.frontier.resources import ResourceFront
    from taut.plots.frontier import plot_frontier, plot_resources

    def draw(figure: "Figure") -> object:
        axes = figure.subplots()
        return plot_resources(found, axes) if isinstance(found, ResourceFront) else plot_frontier(found, axes)

    write_picture(path, (9.0, 5.4), draw)
