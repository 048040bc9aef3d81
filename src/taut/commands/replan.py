"""``taut replan``: what to run when nodes fail or are slow; ``taut spares``: how many nodes to keep in reserve."""

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from taut.commands.options import JsonFlag, QuietFlag, check_file, echo, seconds_option
from taut.commands.show import host_names


def replan_command(
    path: Annotated[Path, typer.Argument(metavar="PLAN.json", help="The plan that ran, written by taut.")],
    without: Annotated[
        list[str] | None, typer.Option(help="A node that is lost, such as node-17; once for each.")
    ] = None,
    slow: Annotated[
        list[str] | None, typer.Option(help="A node and the share of its speed that is left, such as node-4=0.8.")
    ] = None,
    spares: Annotated[int, typer.Option(min=0, help="Empty nodes, like the cluster's, that may take part.")] = 0,
    batch_share: Annotated[float, typer.Option(help="Share of the global batch that a new plan may leave out.")] = 0.05,
    hosts: Annotated[
        Path | None, typer.Option(help="Names of the cluster's nodes in its order, one a line; else node-0 and so on.")
    ] = None,
    time_limit: Annotated[float | None, seconds_option("Seconds of the whole command.")] = 10.0,
    gap: Annotated[float, typer.Option(help="Relative gap that is good enough.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Seed of annealing.")] = 0,
    workers: Annotated[int, typer.Option(help="Threads that anneal.")] = 2,
    out: Annotated[Path | None, typer.Option(help="File to write the best plan to.")] = None,
    out_kept: Annotated[Path | None, typer.Option(help="File to write the plan that moves no weights to.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plan on what is left when nodes fail or are slow: with and without moving weights, and what moving costs."""
    began = perf_counter()
    from taut.commands.progress import progress_lines
    from taut.errors import DataError
    from taut.planning.plan import load_plan
    from taut.planning.request import check_search
    from taut.replanning.replan import replan

    check_file(out, out_kept)
    check_search(time_limit=time_limit, gap=gap, seed=seed, workers=workers)
    plan, names = load_plan(path), [] if hosts is None else host_names(hosts)
    left = None if time_limit is None else max(time_limit - (perf_counter() - began), 0.1)
    with progress_lines(quiet) as progress:
        found = replan(
            plan,
            without=without or [],
            slow=slow or [],
            spares=spares,
            batch_share=batch_share,
            names=names,
            time_limit=left,
            gap=gap,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    if out_kept is not None and found.kept is None:
        raise DataError(f"--out-kept {out_kept}: {found.why_none}, expected a plan that keeps its weights")
    for file, answer in ((out, found.best), (out_kept, found.kept)):
        if file is not None and answer is not None:
            answer.plan.write(file)
    echo(found, as_json)


def spares_command(
    path: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan on equal nodes, written by taut.")],
    node_days: Annotated[
        float | None, typer.Option(help="Days between failures of a node; default: Llama 3's, by GPUs of a node.")
    ] = None,
    repair_hours: Annotated[float, typer.Option(help="Hours until a node is back.")] = 24.0,
    lost_minutes: Annotated[
        float | None, typer.Option(help="Minutes that a failure stops the job; default: 16.7, at least Llama 3's mean.")
    ] = None,
    goal: Annotated[float | None, typer.Option(help="Share of the plan's speed that is to be reached.")] = None,
    rigid: Annotated[bool, typer.Option("--rigid", help="The job waits until all its nodes are up.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """How many spare nodes to keep: expected speed by spare nodes, while nodes fail and are repaired."""
    from taut.planning.plan import load_plan
    from taut.replanning.spares import LOST_MINUTES, spare_nodes

    lost = LOST_MINUTES if lost_minutes is None else lost_minutes
    plan = load_plan(path)
    found = spare_nodes(plan, node_days=node_days, repair_hours=repair_hours, lost_minutes=lost, goal=goal, rigid=rigid)
    echo(found, as_json)
