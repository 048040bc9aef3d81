"""``taut meshes``: the command line of plans with degrees of their own on each type of device."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.commands.options import JsonFlag, QuietFlag, check_file, printed_if_infeasible
from taut.commands.request_options import takes_request

if TYPE_CHECKING:
    from taut.planning.request import PlanRequest


@takes_request
def meshes_command(
    request: "PlanRequest",
    out: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plan stages with degrees of their own on each type of device (FlagScale's meshes), with a proven bound."""
    from taut.commands.progress import progress_lines
    from taut.meshes.plan import planned_meshes

    check_file(out)
    with printed_if_infeasible(as_json), progress_lines(quiet) as progress:
        plan = planned_meshes(request, progress=progress)
    if out is not None:
        plan.write(out)
    typer.echo(json.dumps(plan.document) if as_json else str(plan))
