"""``taut jobs``: many jobs on one cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import (
    PAGES,
    JsonFlag,
    QuietFlag,
    check_file,
    check_plot,
    echo,
    refuse_idle,
    seconds_option,
    takes_options,
    write_figure,
)
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.solver.jobs.simulate import Failures


@takes_options("jobs")
def jobs_command(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="YAML or CSV file: one entry or row a job.")],
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster, as for plan.")],
    options: dict[str, Any],
    policy: Annotated[
        str,
        typer.Option(
            help="cp-sat or cbc (best of all), annealing, rolling, elasticflow, fair-share, first-come, shortest-first."
        ),
    ] = "cp-sat",
    objective: Annotated[str, typer.Option(help="deadlines, completion, makespan or cost.")] = "deadlines",
    plans: Annotated[str, typer.Option(help="best; or data-parallel, at the least tp and pp that fit.")] = "best",
    prices: Annotated[str, typer.Option(help="Dollars of a GPU hour by device, such as a100-80gb=2.5.")] = "",
    restart: Annotated[
        float | None, typer.Option(help="Seconds of every start or resizing; default: the file's.")
    ] = None,
    time_limit: Annotated[float | None, seconds_option("Seconds of plans and search, which has half at least.")] = 60.0,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of annealing; the schedule then depends on the seed alone.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of annealing, solvers and failures.", min=0)] = 0,
    workers: Annotated[int, typer.Option(help="Threads of CP-SAT.", min=1)] = 1,
    processes: Annotated[int | None, typer.Option(help="Plans at the same time; default: one a core.", min=1)] = None,
    failures: Annotated[
        float | None, typer.Option(help="Mean hours between failures of a node, for policies that react.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV to write: one row a segment.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Gantt picture to write: .png, .pdf, .svg or .html.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Many jobs on one cluster: who gets how many GPUs, when, under which plan, with a bound."""
    from taut.commands.progress import live_lines, progress_lines
    from taut.data.jobs import load_jobs
    from taut.files import write_atomically
    from taut.plots.jobs import jobs_page, plot_jobs
    from taut.sharing.jobs import jobs as jobs_on

    check_file(out)
    check_plot(plot, PAGES)
    trace = load_jobs(jobs)
    _refuse_idle(policy, {"rounds": rounds, "workers": workers, "time_limit": time_limit, "seed": seed}, failures)
    if all(job.rates is not None for job in trace.jobs):
        unplanned = {name: (value, None) for name, value in options.items()} | {"plans": (plans, "best")}
        refuse_idle(unplanned | {"processes": (processes, None)}, "jobs that all state their rates")
    with live_lines(quiet) as say, progress_lines(quiet) as progress:
        found = jobs_on(
            trace,
            cluster,
            policy=policy,
            objective=objective,
            plans=plans,
            prices=_prices(prices),
            time_limit=time_limit,
            rounds=rounds,
            seed=seed,
            restart_s=restart,
            workers=workers,
            processes=processes,
            failures=_failures(failures, policy, seed),
            **options,
            progress=progress,
            told=say,
        )
    if out is not None:
        write_atomically(out, found.csv())
    if plot is not None:
        if plot.suffix.lower() == ".html":
            write_atomically(plot, jobs_page(found))
        else:
            write_figure(plot, plot_jobs(found))
    echo(found, as_json)


SEARCHED = {"rounds": None, "workers": 1, "time_limit": 60.0, "seed": 0}
"""Defaults of the options of a search."""


def _refuse_idle(policy: str, given: dict[str, Any], failures: float | None) -> None:
    """Refuse options of a search that the policy does not make."""
    from taut.solver.jobs.solve import ANNEALING, POLICIES, ROLLING

    idle: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(POLICIES, ("rounds", "workers", "time_limit", *(() if failures else ("seed",)))),
        ROLLING: ("rounds", "workers", "time_limit"),
        ANNEALING: ("workers",),
        "cbc": ("workers",),
    }
    refuse_idle({name: (given[name], SEARCHED[name]) for name in idle.get(policy, ())}, f"policy {policy}")


def _prices(text: str) -> dict[str, float]:
    """Dollars of a GPU hour from ``a100-80gb=2.5,h100-80gb=4``."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise DataError(f"--prices {part}: expected DEVICE=DOLLARS, such as a100-80gb=2.5") from None
        if not 0 <= found[name] < float("inf"):
            raise DataError(f"--prices {part}: expected dollars from 0 on")
    return found


def _failures(hours: float | None, policy: str, seed: int) -> "Failures | None":
    from taut.solver.jobs.simulate import Failures as Rates
    from taut.solver.jobs.solve import ONLINE

    if hours is None:
        return None
    if not 0 < hours < float("inf"):
        raise DataError(f"--failures {hours:g}: expected hours above 0")
    if policy not in ONLINE:
        raise DataError(f"--failures {hours:g}: expected a policy that reacts to events: {', '.join(ONLINE)}")
    return Rates(mean_seconds_between_failures=hours * 3600, seed=seed)
