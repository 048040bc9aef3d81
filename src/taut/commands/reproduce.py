"""``taut reproduce``: a paper's figures beside ours. One command a paper."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Protocol

import typer

from taut.commands.options import JsonFlag, QuietFlag, Result, check_plot, echo, seconds_option, write_picture
from taut.errors import FieldError

OnlyOption = Annotated[str, typer.Option(help="Part of the names of the settings that are planned; all without it.")]


EachOption = Annotated[float, typer.Option(help="Seconds of each search at most.", min=0)]
WholeOption = Annotated[float | None, seconds_option("Seconds of the whole command, which its searches share.")]


def _told(each: float, whole: float | None, quiet: bool) -> Callable[[str], None]:
    """Return a way to say on stderr how far a reproduction is, and what the limits are of; it says nothing if quiet."""
    limits = f"each search of it up to {each:g} s" + ("" if whole is None else f", all within {whole:g} s")
    return lambda words: None if quiet else typer.echo(f"{words}, {limits}; Ctrl-C keeps the rows", err=True)


class _Found(Result, Protocol):
    """Tables of a paper, with figures by row of the paper."""

    @property
    def figures(self) -> dict[str, str]: ...


def _echo(paper: str, found: _Found, as_json: bool) -> None:
    """Print all rows of the paper, then the tables."""
    from taut.papers.published_rows import PAPERS

    rows = PAPERS[paper].with_figures(found.figures)
    typer.echo(json.dumps(found.as_dict() | {"paper": rows.as_dicts()}) if as_json else f"{rows}\n\n{found}")


reproducer = typer.Typer(help="Set a paper's published figures beside ours.", no_args_is_help=True)


@reproducer.command()
def amp(
    profile: Annotated[Path | None, typer.Option(help="AMP's layer costs: CSV with file,layer,seconds.")] = None,
    trials: Annotated[
        Path | None, typer.Option(help="AMP's trials: CSV with mbs,tmp,dp,pp,ds_partition,amp_predicted_s,measured_s.")
    ] = None,
    setting: Annotated[
        str | None, typer.Option(help="homogeneous, het_cluster or het_model; by default all, of trials homogeneous.")
    ] = None,
    each: EachOption = 60.0,
    time_limit: WholeOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Search AMP's three settings, at its profile if given; or, with its profile and trials, price its real trials."""
    if profile is not None and trials is not None:
        from taut.papers.amp import reproduce_amp

        priced = reproduce_amp(setting or "homogeneous", profile, trials)
        echo(priced, as_json)
        return
    if trials is not None:
        raise FieldError("profile", None, "expected a file with --trials: trials are priced by the profile")
    from taut.papers.amp_searches import reproduce_amp_searches
    from taut.solver.result import Limits

    told = _told(each, time_limit, quiet)
    found = reproduce_amp_searches(setting, Limits(time_limit=each), profile, within=time_limit, told=told)
    _echo("amp", found, as_json)


@reproducer.command()
def hethub(
    only: OnlyOption = "",
    table: Annotated[
        bool, typer.Option("--table", help="Llama 2 of 7 to 140 billion parameters on 96 to 768 devices instead.")
    ] = False,
    each: EachOption = 60.0,
    time_limit: WholeOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plan Llama 2 70B on five mixed clusters, beside HETHUB's shares of the throughput that the types have apart."""
    from taut.papers.hethub import reproduce_hethub, reproduce_hethub_table
    from taut.solver.result import Limits

    limits, told = Limits(time_limit=each), _told(each, time_limit, quiet)
    if table:
        echo(reproduce_hethub_table(limits, only=only, within=time_limit, told=told), as_json)
        return
    found = reproduce_hethub(limits, only=only, within=time_limit, told=told)
    _echo("hethub", found, as_json)


@reproducer.command()
def pipette(
    whole_step: Annotated[
        bool, typer.Option("--whole-step", help="Price by latency model step; by the paper's own without.")
    ] = False,
    only: OnlyOption = "",
    each: EachOption = 60.0,
    time_limit: WholeOption = None,
    seed: Annotated[int, typer.Option(help="Of the rates between nodes, which the paper does not publish.")] = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plan Pipette's four settings by the methods that it compares, beside its figures and under one bound."""
    from taut.papers.pipette import reproduce_pipette
    from taut.solver.result import Limits

    limits, told = Limits(time_limit=each), _told(each, time_limit, quiet)
    found = reproduce_pipette(limits, whole_step=whole_step, seed=seed, only=only, within=time_limit, told=told)
    _echo("pipette", found, as_json)


@reproducer.command()
def searches(
    data: Annotated[Path, typer.Option(help="Folder with some of the tables of docs/results/searches.md.")],
    only: Annotated[str, typer.Option(help="Part of the name of who published a plan, or of its model.")] = "",
    each: Annotated[float, typer.Option(help="Seconds of each of the two searches of a plan.", min=0)] = 60.0,
    time_limit: WholeOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Price published plans beside the best plan of the same space, with their distance from the lower bound."""
    from taut.papers.searches.table import reproduce_searches

    told = _told(each, time_limit, quiet)
    found = reproduce_searches(data, time_limit=each, only=only, within=time_limit, told=told)
    echo(found, as_json)


@reproducer.command("vtrain-jobs")
def vtrain_jobs(
    arrivals: Annotated[
        Path | None, typer.Option(help="CSV with submit_time, such as ElasticFlow's traces; generated without it.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="deadlines, completion or makespan; by default all.")] = None,
    traces: Annotated[int | None, typer.Option(help="Traces of each comparison at most.", min=1)] = None,
    each: Annotated[float, typer.Option(help="Seconds of each planned schedule at most.", min=0)] = 10.0,
    time_limit: Annotated[
        float, typer.Option(help="Seconds of the whole command: no trace begins after them.", min=0)
    ] = 1800.0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Share 1,024 A100 among jobs by ElasticFlow without and with our plans, beside vTrain's figures and a bound."""
    from taut.commands.progress import live_lines
    from taut.papers.vtrain.jobs import reproduce_vtrain_jobs

    with live_lines(quiet) as say:
        found = reproduce_vtrain_jobs(
            arrivals=arrivals, only=only, traces=traces, time_limit=each, within=time_limit, told=say
        )
    _echo("vtrain", found, as_json)


@reproducer.command()
def vtrain(
    price: Annotated[float, typer.Option(help="Dollars an hour of a GPU.", min=0)] = 5.0,
    only: Annotated[str | None, typer.Option(help="table-1, table-3, figure-9 or figure-10; all without it.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with vtrain_single.csv and vtrain_multi.csv, for figure 9.")
    ] = None,
    work_limit: Annotated[
        int | None, typer.Option(help="Refinements of each search for a best plan; default: 60, table-3 40.", min=1)
    ] = None,
    time_limit: WholeOption = None,
    jobs: Annotated[int | None, typer.Option(help="Processes that search; default: one a core.", min=1)] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of figure 10: .png, .pdf or .svg.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Price MT-NLG's plans, sizes and design space by vTrain's rules and by measured runs, with proven best plans."""
    from taut.commands.progress import live_lines
    from taut.papers.vtrain.study import reproduce_vtrain

    check_plot(plot)
    if plot is not None and only not in (None, "figure-10"):
        raise FieldError("plot", str(plot), "there is no picture of a table, expected --only figure-10, or none")
    with live_lines(quiet) as say:
        found = reproduce_vtrain(
            price=price,
            only=only,
            data=data,
            work_limit=work_limit,
            time_limit=time_limit,
            jobs=jobs,
            progress=lambda done, total, row: say(f"{done} of {total} searches for the best plan"),
        )
    if plot is not None and (space := found.space) is not None:
        from taut.papers.vtrain.study import SIZE, plot_design_space

        write_picture(plot, SIZE, lambda figure: plot_design_space(space, figure.subplots(1, 2)))
    _echo("vtrain", found, as_json)


@reproducer.command()
def vschedules(
    only: Annotated[str | None, typer.Option(help="grid or frontier; both without it.")] = None,
    time_limit: WholeOption = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of memory against bubble: .png, .pdf or .svg.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plan a 98.5B model at sequence 16384 on 40 GPUs under six schedules, beside the published grid search."""
    from taut.commands.progress import live_lines
    from taut.papers.vschedules import reproduce_vschedules

    check_plot(plot)
    if plot is not None and only == "grid":
        raise FieldError("plot", str(plot), "there is no picture of the grid, expected --only frontier, or none")
    with live_lines(quiet) as say:
        found = reproduce_vschedules(only=only, time_limit=time_limit, told=say)
    if plot is not None:
        from taut.papers.vschedules import SIZE, plot_memory_frontier

        write_picture(plot, SIZE, lambda figure: plot_memory_frontier(found.points, figure.subplots(1, 3, sharey=True)))
    _echo("vschedules", found, as_json)
