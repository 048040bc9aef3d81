"""``taut pareto``: the command line of the memory/throughput frontier."""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.errors import DataError, InfeasibleError

if TYPE_CHECKING:
    from taut.frontier.frontier import Frontier

FORMATS = (".png", ".pdf", ".svg")


def pareto_command(
    model: Annotated[str, typer.Argument(help="Catalog name, our YAML file, or a Hugging Face config.json.")],
    cluster: Annotated[str, typer.Argument(help="Catalog name, NAME:NODES, or our YAML file.")],
    global_batch: Annotated[int, typer.Option(help="Sequences per step.")],
    limits: Annotated[str | None, typer.Option(help="GiB that a device may have, such as 20,40,80.")] = None,
    points: Annotated[
        str | None,
        typer.Option(help="How many limits, evenly from the least that holds a plan; all: every plan. Default: 8."),
    ] = None,
    seq: Annotated[int | None, typer.Option(help="Sequence length in tokens, if not the model's.")] = None,
    profile: Annotated[str | None, typer.Option(help="Measured layer costs: catalog name or CSV file.")] = None,
    memory_model: Annotated[str | None, typer.Option(help="YAML file of the memory model.")] = None,
    latency_model: Annotated[str, typer.Option(help="pipette, pipette-printed or amp.")] = "pipette",
    calibration: Annotated[str | None, typer.Option(help="Fitted coefficients: catalog name or YAML file.")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.")] = None,
    fix: Annotated[str, typer.Option(help="Values that must hold, such as tp=8,pp=4,schedule=1f1b.")] = "",
    max_tp: Annotated[int | None, typer.Option(help="Largest tensor degree; default: the node size.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds to search each limit.")] = None,
    work_limit: Annotated[int | None, typer.Option(help="Refinements to make at each limit.")] = None,
    gap: Annotated[float, typer.Option(help="Relative gap that is good enough, such as 0.01.")] = 1e-6,
    seed: Annotated[int, typer.Option(help="Seed of the annealing.")] = 0,
    workers: Annotated[int, typer.Option(help="Threads; the plans do not depend on them.")] = 2,
    out: Annotated[Path | None, typer.Option(help="CSV to write: one row per limit.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to write: .png, .pdf or .svg.")] = None,
    out_plans: Annotated[Path | None, typer.Option(help="Folder for the plans, each for taut verify.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Step time against the memory limit of a device, each point with its bound. Ctrl-C keeps the points so far."""
    from taut.commands.options import check_folder, check_limits, check_plans, check_seed, parse_fix
    from taut.commands.progress import progress_lines
    from taut.files import write_atomically
    from taut.frontier.epsilon_constraint import pareto

    check_limits(time_limit, work_limit, gap, workers, max_tp)
    check_seed(seed)
    for path in (out, plot):
        check_folder(path)
    check_plans(out_plans)
    _check_plot(plot)
    memory_limits, count = _limits(limits, points)
    try:
        with progress_lines(quiet) as progress:
            found = pareto(
                model,
                cluster,
                global_batch=global_batch,
                limits=memory_limits,
                points=count,
                seq=seq,
                profile=profile,
                memory_model=memory_model,
                latency_model=latency_model,
                calibration=calibration,
                precision=precision,
                fix=parse_fix(fix),
                max_tp=max_tp,
                time_limit=time_limit,
                work_limit=work_limit,
                gap=gap,
                seed=seed,
                workers=workers,
                progress=progress,
            )
    except InfeasibleError as error:
        if as_json:
            typer.echo(json.dumps(error.report))
        raise
    if out is not None:
        write_atomically(out, found.csv())
    if out_plans is not None:
        found.write_plans(out_plans)
    if plot is not None:
        _draw(found, plot)
    typer.echo(json.dumps(found.as_dict()) if as_json else str(found))


def _limits(limits: str | None, points: str | None) -> tuple[list[float] | None, int | None]:
    """Limits in GiB, or how many are wanted; None for all."""
    from taut.frontier.epsilon_constraint import POINTS

    if limits is not None and points is not None:
        raise DataError(f"--points {points}: given beside --limits, expected one of them")
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


def _check_plot(path: Path | None) -> None:
    """Refuse before the search a picture that could not be drawn after it."""
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"--plot {path}: expected a name that ends in {', '.join(FORMATS)}")
    try:
        import_module("matplotlib.figure")
    except ImportError:
        raise DataError(f"--plot {path}: plots need matplotlib: pip install 'taut[plot]'") from None


def _draw(found: "Frontier", path: Path) -> None:
    """Write the picture; the figure belongs to no window, so that no display is needed."""
    from matplotlib.figure import Figure

    from taut.plots.frontier import plot_frontier

    figure = Figure(figsize=(9.0, 5.4), layout="compressed")
    plot_frontier(found, figure.subplots())
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}), expected a writable file name") from None
