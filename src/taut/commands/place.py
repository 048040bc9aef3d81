"""``taut place``: the command line of quadratic assignment problems."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import JsonFlag, QuietFlag

if TYPE_CHECKING:
    from taut.solver.qap.quadratic import AssignmentResult


def place_command(
    instance: Annotated[Path, typer.Argument(help="A QAPLIB instance (.dat).")],
    time_limit: Annotated[float, typer.Option(help="Seconds to search.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Solve a quadratic assignment problem: objective, lower bound, gap, permutation."""
    from taut.assignment import place, problem_of
    from taut.commands.progress import progress_lines
    from taut.planning.request import check_search
    from taut.reports.plan import percent

    check_search(time_limit=time_limit, seed=seed)
    problem = problem_of(instance)
    with progress_lines(quiet) as progress:
        result = place(problem, seed=seed, time_limit=time_limit, progress=progress)
    if as_json:
        typer.echo(json.dumps(_report(result)))
        return
    typer.echo(
        f"{problem.name}: objective {result.objective:g}, lower bound {result.lower_bound:g} ({result.bound_source}), "
        f"gap {percent(result.gap)}, {result.status}\npermutation {' '.join(map(str, result.permutation))}"
    )


def _report(result: "AssignmentResult") -> dict[str, Any]:
    """The result as plain values."""
    return {
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "source": result.bound_source,
        "status": result.status,
        "permutation": list(result.permutation),
        "wall_s": result.wall_s,
    }
