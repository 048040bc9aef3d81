"""``taut compare``: what runs today beside the best plan, or two plans side by side."""

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from taut.commands.options import JsonFlag, QuietFlag, parse_fix, printed_if_infeasible
from taut.errors import DataError


def compare_command(
    model: Annotated[str, typer.Argument(metavar="MODEL|A.json", help="The model, as for plan; or a plan.")],
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER|B.json", help="The cluster, as for plan; or a plan.")],
    global_batch: Annotated[int | None, typer.Option(help="Sequences per step.")] = None,
    current: Annotated[
        str, typer.Option(help="What runs today: tp=8,pp=4,micro_batch=1 and so on, layers=7|8|8|9 or even.")
    ] = "",
    seq: Annotated[int | None, typer.Option(help="Sequence length in tokens, if not the model's.")] = None,
    profile: Annotated[str | None, typer.Option(help="Measured layer costs: catalog name or CSV file.")] = None,
    memory_model: Annotated[str | None, typer.Option(help="Catalog name, YAML file, or JSON of a network.")] = None,
    calibration: Annotated[str | None, typer.Option(help="Fitted coefficients: catalog name or YAML file.")] = None,
    stack: Annotated[
        str | None, typer.Option(help="Framework: catalog name or YAML file; default: megatron-core.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16, fp32, fp8, fp8-blockwise, mxfp8 or nvfp4.")] = None,
    grad_precision: Annotated[
        str | None, typer.Option(help="Of kept and summed gradients: bf16, fp16 or fp32; default: by precision.")
    ] = None,
    schedules: Annotated[str | None, typer.Option(help="all, or a list; default: 1f1b, gpipe and the current.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds of each search.")] = None,
    work_limit: Annotated[int | None, typer.Option(help="Refinements of each search: deterministic work.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare what you run today with the proven best, or two plans: time, memory, distance, what to change first."""
    options = {name: value for name, value in locals().items() if name in _OPTIONS and value is not None}
    if Path(model).suffix == ".json" and Path(cluster).suffix == ".json":
        _two_plans(model, cluster, {**options, **({"current": current} if current else {})}, as_json=as_json)
        return
    if global_batch is None:
        raise DataError("--global-batch: missing, expected the sequences per step")
    if not current:
        raise DataError("--current: missing, expected what runs today, such as tp=8,pp=4,micro_batch=1")
    from taut.commands.progress import progress_lines
    from taut.comparison.compare import compare
    from taut.planning.request import PlanRequest

    request = PlanRequest(model, cluster, **options)
    with printed_if_infeasible(as_json), progress_lines(quiet) as progress:
        found = compare(request, current=parse_fix(current, "--current"), progress=progress)
    typer.echo(json.dumps(found.as_dict()) if as_json else str(found))


_OPTIONS = set(inspect.signature(compare_command).parameters) - {"model", "cluster", "current", "quiet", "as_json"}


def _two_plans(one: str, other: str, options: dict[str, Any], *, as_json: bool) -> None:
    from taut.comparison.compare import compare_plans
    from taut.reports.text_table import text_table

    if options:
        name = "--" + min(options).replace("_", "-")
        raise DataError(f"{name}: stands beside two plans, expected a model and a cluster, or two plans alone")
    rows = compare_plans(one, other)
    if as_json:
        typer.echo(json.dumps([dict(zip(("what", "one", "other"), row, strict=True)) for row in rows]))
        return
    typer.echo(text_table([("", Path(one).name, Path(other).name), *rows]))
