"""``taut plan``: the command line of the main job."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.commands.options import JsonFlag, QuietFlag, check_file, printed_if_infeasible, text_width
from taut.commands.request_options import takes_request

if TYPE_CHECKING:
    from taut.planning.request import PlanRequest


@takes_request
def plan_command(
    request: "PlanRequest",
    method: Annotated[
        str,
        typer.Option(
            help="branch-and-bound; simulated (its best candidates, scored by simulating); cp-sat or cbc (integer "
            "program); or a baseline: megatron, amp, pipette, hethub, varuna, fsdp, random."
        ),
    ] = "branch-and-bound",
    out: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    stack_price: Annotated[
        bool, typer.Option("--stack-price", help="Bound the whole space too: what the stack's limits cost at most.")
    ] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Find the best strategy and placement, with a proven gap. Ctrl-C keeps the best plan so far."""
    from taut.commands.progress import progress_lines
    from taut.planning.solve import plan
    from taut.planning.stack_price import stack_price as price_of
    from taut.reports.plan import summary

    check_file(out)
    with printed_if_infeasible(as_json), progress_lines(quiet) as progress:
        found = plan(request, method=method, progress=progress)
        price = price_of(request, found, progress=progress) if stack_price else None
    if out is not None:
        found.write(out)
    if as_json:
        beside = {} if price is None else {"stack_price": {**asdict(price), "at_most": price.at_most}}
        typer.echo(json.dumps(found.document | beside))
    else:
        typer.echo(summary(found.typed, width=text_width()) + ("" if price is None else f"\n{price}"))
