"""``taut plan``, the command line of the main job, and ``taut pareto``, its frontier of memory and throughput."""

import json
import math
import time
from contextlib import nullcontext
from dataclasses import asdict
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
    text_width,
    write_picture,
)
from taut.errors import DataError, FieldError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from matplotlib.figure import Figure

    from taut.frontier.frontier import Frontier
    from taut.frontier.resources import ResourceFront
    from taut.planning.request import PlanRequest
    from taut.planning.stack_price import StackPrice
    from taut.solver.branch_and_bound.stop import Listener


@takes_request
def plan_command(
    request: "PlanRequest",
    method: Annotated[
        str,
        typer.Option(
            help="branch-and-bound; meshes (degrees by type of device alone); simulated (its best candidates, scored "
            "by simulating); cp-sat or cbc (integer program); or a baseline: megatron, amp, pipette, hethub, varuna, "
            "fsdp, random."
        ),
    ] = "branch-and-bound",
    processes: Annotated[
        int, typer.Option(help="Processes that share the candidates, incumbent and bounds.", min=1)
    ] = 1,
    plainer: Annotated[
        bool,
        typer.Option(help="Search plainer plans too, say what each costs, and take one that costs next to nothing."),
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    stack_price: Annotated[
        bool, typer.Option("--stack-price", help="Bound the whole space too: what the stack's limits cost at most.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the search on a page of this machine, whose address is printed.")
    ] = False,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Plan for packed sequences of these lengths, as taut pack --search: a file with one a line or "
            "length,count, or a name such as chat-sft. --out has the plan that packs best."
        ),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="time; or, over all numbers of nodes, cost (dollars) or gpus (the fewest).")
    ] = "time",
    deadline_days: Annotated[float | None, typer.Option(help="Days that the training may take.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Tokens of the training, such as 270e9.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the training, instead of tokens.")] = None,
    price: Annotated[float | None, typer.Option(help="Dollars an hour of a GPU.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Find the best strategy and placement, with a proven gap. Ctrl-C keeps the best plan so far."""
    given = {"tokens": tokens, "steps": steps, "price": price, "deadline_days": deadline_days}
    if objective != "time" or any(value is not None for value in given.values()):
        _check_alone(method, stack_price, processes, watch, lengths)
        _provision(request, {"objective": objective, **given}, out, as_json, quiet)
        return
    if lengths is not None:
        _check_alone(method, stack_price, processes, watch)
        _pack(request, lengths, out, as_json, quiet)
        return
    from taut.commands.progress import progress_lines
    from taut.planning.solve import plan_request
    from taut.planning.stack_price import stack_price as price_of
    from taut.planning.summary import summary

    check_file(out)
    costs: StackPrice | None = None
    with printed_if_infeasible(as_json), progress_lines(quiet) as lines:
        with _page(request, lines) if watch else nullcontext(lines) as progress:
            found = plan_request(request, method=method, processes=processes, plainer=plainer, progress=progress)
        if stack_price:
            costs = price_of(request, found, progress=lines)
    if out is not None:
        found.write(out)
    if as_json:
        beside = {} if costs is None else {"stack_price": {**asdict(costs), "at_most": costs.at_most}}
        typer.echo(json.dumps(found.document | beside))
    else:
        words = summary(found.sections, width=text_width(), spaces=found.spaces)
        typer.echo(words if costs is None else f"{words}\n{costs}")


def _page(request: "PlanRequest", lines: "Listener | None") -> "AbstractContextManager[Listener]":
    """The search of a request on a live page, whose address is printed on stderr."""
    from taut.reports.watch import watched

    names = (given if isinstance(given, str) else given.name for given in (request.model, request.cluster))
    return watched(" on ".join(names), lines, lambda words: typer.echo(words, err=True))


def _check_alone(method: str, stack_price: bool, processes: int, watch: bool, lengths: str | None = None) -> None:
    """Refuse beside a choice of nodes, or lengths of sequences, what is of one plan."""
    asked: dict[str, tuple[str | None, bool]] = {
        "method": (method, method != "branch-and-bound"),
        "processes": (str(processes), processes > 1),
        "watch": (None, watch),
        "stack_price": (None, stack_price),
        "lengths": (lengths, lengths is not None),
    }
    for name, (value, given) in asked.items():
        if given:
            raise FieldError(name, value, "is of one plan, expected none with an objective, a deadline or lengths")


def _pack(request: "PlanRequest", lengths: str, out: Path | None, as_json: bool, quiet: bool) -> None:
    """Plan with full sequences in half of the time, then for packed ones of these lengths in what is left."""
    from taut.commands.progress import progress_lines
    from taut.data.lengths import load_lengths
    from taut.files import write_atomically
    from taut.packing import pack
    from taut.planning.solve import plan_request

    check_file(out)
    given = load_lengths(lengths)
    began, limit = time.monotonic(), request.time_limit
    first = request if limit is None else request.model_copy(update={"time_limit": limit / 2})
    with printed_if_infeasible(as_json), progress_lines(quiet) as progress:
        plan = plan_request(first, plainer=False, progress=progress)
    left = math.inf if limit is None else max(limit - (time.monotonic() - began), 1.0)
    found = pack(plan, given, seed=request.seed, search=left)
    if out is not None and found.best is not None:
        write_atomically(out, json.dumps(plan.document if found.best.is_given else found.best.document) + "\n")
    echo(found, as_json)


def _provision(request: "PlanRequest", given: dict[str, Any], out: Path | None, as_json: bool, quiet: bool) -> None:
    """Choose the number of nodes, and print it with its plan."""
    from taut.commands.progress import progress_lines
    from taut.planning.summary import summary
    from taut.provisioning import provision

    check_file(out)
    with printed_if_infeasible(as_json), progress_lines(quiet) as progress:
        found = provision(request, progress=progress, **given)
    if out is not None:
        found.plan.write(out)
    if as_json:
        typer.echo(json.dumps(found.plan.document | {"objective": found.as_dict()}))
    else:
        typer.echo(f"{found}\n\n{summary(found.plan.typed, width=text_width())}")


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
    from taut.frontier.frontier import pareto
    from taut.frontier.resources import resource_front

    check_file(out)
    _check_plans(out_plans)
    check_plot(plot)
    memory_limits, count = _limits(limits, points)
    asked: dict[str, Any] = {"tokens": tokens, "steps": steps, "price": price}
    found: Frontier | ResourceFront
    with printed_if_infeasible(as_json), progress_lines(quiet) as progress:
        if nodes is None:
            _check_with_nodes(asked)
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
    from taut.frontier.frontier import POINTS

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


def _check_with_nodes(asked: dict[str, Any]) -> None:
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
