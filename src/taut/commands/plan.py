"""``taut plan``: the command line of the main job."""

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import JsonFlag, QuietFlag, check_file, printed_if_infeasible, takes_request, text_width
from taut.errors import FieldError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from taut.planning.request import PlanRequest
    from taut.planning.stack_price import StackPrice
    from taut.solver.branch_and_bound.progress import Listener


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
        typer.Option(help="Search plainer plans too, such as the best with even stages, and say what each costs."),
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    stack_price: Annotated[
        bool, typer.Option("--stack-price", help="Bound the whole space too: what the stack's limits cost at most.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the search on a page of this machine, whose address is printed.")
    ] = False,
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
        _check_alone(method, stack_price, processes, watch)
        _provision(request, {"objective": objective, **given}, out, as_json, quiet)
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


def _check_alone(method: str, stack_price: bool, processes: int, watch: bool) -> None:
    """Refuse beside a choice of nodes what is of one number of them."""
    if method != "branch-and-bound":
        raise FieldError("method", method, "plans for all nodes, expected none with an objective or a deadline")
    if processes > 1:
        raise FieldError("processes", str(processes), "share the search of one plan, expected 1 with an objective")
    if watch:
        raise FieldError("watch", None, "shows the search of one plan, expected none with an objective or a deadline")
    if stack_price:
        raise FieldError(
            "stack_price", None, "bounds plans for all nodes, expected none with an objective or a deadline"
        )


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
