"""``taut place``: the command line of quadratic assignment problems, and of a strategy's placement as one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import (
    JsonFlag,
    QuietFlag,
    check_file,
    check_plot,
    flag,
    parse_fix,
    refuse_together,
    seconds_option,
    write_picture,
)
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.assignment import StrategyPlacement
    from taut.solver.qap.quadratic import AssignmentResult


def place_command(
    instance: Annotated[
        Path | None, typer.Argument(help="A QAPLIB instance (.dat), or a plan (.json) whose strategy is placed.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Instead of a file: the model, as for plan.")] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster, as for plan.")] = None,
    global_batch: Annotated[int | None, typer.Option(help="Sequences per step.")] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="Values of the strategy, such as tp=8,pp=4,micro_batch=1.")
    ] = None,
    latency_model: Annotated[str, typer.Option(help="step, pipette, pipette-printed or amp.")] = "step",
    out: Annotated[Path | None, typer.Option(help="Write the instance in QAPLIB's format (.dat).")] = None,
    spans: Annotated[
        float | None,
        typer.Option(help="Place a plan by the leaf switches that its groups span: weight of the replicas, 0 to 1."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="With --spans: picture of spans and step time for five weights.")
    ] = None,
    time_limit: Annotated[float | None, seconds_option("Seconds to search.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Place a strategy as a quadratic assignment, or solve a QAPLIB instance: objective, bound, gap, permutation."""
    check_file(out)
    given = {"model": model, "cluster": cluster, "global_batch": global_batch}
    if spans is not None:
        _place_by_leaves(instance, spans, plot, time_limit, seed, as_json)
        return
    if plot is not None:
        raise DataError("--plot: there is a picture of spans alone, expected --spans with it")
    if instance is None or instance.suffix == ".json":
        _place_strategy(instance, given | {"fix": fix, "latency_model": latency_model}, out, time_limit, seed, as_json)
        return
    stated = [name for name, value in given.items() if value is not None]
    refuse_together(stated, "a QAPLIB instance", "one of the two")
    _solve(instance, out, time_limit, seed, as_json=as_json, quiet=quiet)


def _place_by_leaves(
    plan: Path | None, weight: float, plot: Path | None, time_limit: float | None, seed: int, as_json: bool
) -> None:
    """A plan by the spans of its groups."""
    check_plot(plot)
    from taut.assignment import place_by_leaves

    if plan is None or plan.suffix != ".json":
        raise DataError("--spans: expected a plan (.json) to place")
    limit = 1e9 if time_limit is None else time_limit
    found = place_by_leaves(plan, weight, time_limit=limit, seed=seed)
    if plot is not None:
        from taut.plots.plan import plot_spans

        every = [place_by_leaves(plan, each, time_limit=limit, seed=seed) for each in (0.0, 0.25, 0.5, 0.75, 1.0)]
        write_picture(plot, (5.4, 3.4), lambda figure: plot_spans(every, figure.subplots()))
    spans = found.spans
    words = (
        f"replicas of a stage on at most {spans.replicas} leaf switches, stages of a pipeline on {spans.stages}; "
        f"the plan's own placement has {found.known[0]} and {found.known[1]}\n"
        f"objective {spans.objective:g}, lower bound {spans.lower_bound:g}\n"
        f"step time {found.step_s:.6g} s, of the plan's own placement {found.known_s:.6g} s"
    )
    typer.echo(json.dumps(found.as_dict()) if as_json else words)


def _place_strategy(
    plan: Path | None, given: dict[str, Any], out: Path | None, time_limit: float | None, seed: int, as_json: bool
) -> None:
    """The strategy of a plan, or of stated values."""
    from taut.assignment import place_strategy
    from taut.planning.request import PlanRequest

    stated = [name for name in ("model", "cluster", "global_batch") if given[name] is not None]
    if plan is None:
        if missing := [name for name in ("model", "cluster", "global_batch") if given[name] is None]:
            raise DataError(f"{flag(missing[0])}: missing, expected a file, or a model, a cluster and a global batch")
        options = given | {"fix": parse_fix(given["fix"])}
        subject: PlanRequest | Path = PlanRequest(options.pop("model"), options.pop("cluster"), **options)
    else:
        refuse_together(stated, "a plan", "one of the two")
        subject = plan
    found = place_strategy(subject, time_limit=time_limit, seed=seed)
    if out is not None:
        found.write(out)
    typer.echo(json.dumps(found.as_dict()) if as_json else _words(found))


def _words(found: "StrategyPlacement") -> str:
    """A strategy's placement in words."""
    from taut.words import percent

    count, given = len(found.permutation), found.known_s
    before = "" if given is None else f"the plan's placement takes {given:.6g} s, "
    bound = f"{found.step_bound_s:.6g} s"
    return "\n".join(
        [
            f"{found.instance.name}: {found.strategy.candidate}, {count} blocks on {count} slots",
            f"quadratic assignment: objective {found.objective:.6g} s of transfers one after the other, "
            f"lower bound {found.lower_bound:.6g} s, gap {percent(found.gap)}, {found.status}",
            f"permutation by {found.solver}, bound by {found.bound_by}",
            f"step time: {before}the permutation {found.step_s:.6g} s, annealed {found.annealed_s:.6g} s; "
            f"no placement beats {bound}",
            f"permutation {' '.join(map(str, found.permutation))}",
        ]
    )


def _solve(
    instance: Path, out: Path | None, time_limit: float | None, seed: int, *, as_json: bool, quiet: bool
) -> None:
    """An instance of QAPLIB."""
    from taut.assignment import assignment_problem, place
    from taut.commands.progress import progress_lines
    from taut.data.readers.qaplib import qaplib_text
    from taut.files import write_atomically
    from taut.planning.request import check_search
    from taut.words import percent

    check_search(time_limit=time_limit, seed=seed)
    problem = assignment_problem(instance)
    if out is not None:
        write_atomically(out, qaplib_text(problem.flow, problem.distance))
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
