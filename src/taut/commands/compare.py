"""``taut compare``: what runs today beside the best plan, or two plans side by side."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import (
    JsonFlag,
    QuietFlag,
    check_plot,
    echo,
    flag,
    parse_fix,
    printed_if_infeasible,
    refuse_together,
    takes_options,
)
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.launchers.settings import Launch


@takes_options("compare")
def compare_command(
    model: Annotated[str, typer.Argument(metavar="MODEL|A.json", help="The model, as for plan; or a plan.")],
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER|B.json", help="The cluster, as for plan; or a plan.")],
    options: dict[str, Any],
    current: Annotated[
        str,
        typer.Option(
            help="What runs today: tp=8,pp=4,micro_batch=1 and so on, layers=7|8|8|9 or even; or a launcher's flags or "
            "overrides in quotes; or its start script, .toml, .yaml, .py or .json, and more values."
        ),
    ] = "",
    plot: Annotated[Path | None, typer.Option(help="Draw two plans on one page: .html.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare what you run today with the proven best, or two plans: time, memory, distance, what to change first."""
    if Path(model).suffix == ".json" and Path(cluster).suffix == ".json":
        _two_plans(model, cluster, {**options, **({"current": current} if current else {})}, plot, as_json=as_json)
        return
    if plot is not None:
        raise DataError(f"--plot {plot}: draws two plans, expected two files of plans instead of a model and a cluster")
    if not current:
        raise DataError("--current: missing, expected what runs today, such as tp=8,pp=4,micro_batch=1")
    values, stated, named, flags = _settings(current, model, cluster)
    stated |= {"global_batch": batch} if (batch := values.pop("global_batch", None)) is not None else {}
    for name in stated.keys() & options.keys():
        if stated[name] != options[name]:
            said = "what its optimizer keeps" if name == "memory_model" else stated[name]
            words = f"{flag(name)} {options[name]}: --current states {said}, {options[name]} is priced"
            named = (*named, words)
    options = stated | options
    for words in named:
        warnings.warn(f"--current: {words}", UserWarning, stacklevel=2)
    if options.get("global_batch") is None:
        raise DataError("--global-batch: missing, expected the sequences per step")
    from taut.commands.progress import progress_lines
    from taut.comparison.compare import compare
    from taut.planning.request import PlanRequest

    request = PlanRequest(model, cluster, **options)
    with printed_if_infeasible(as_json), progress_lines(quiet) as progress:
        found = compare(request, current=values, progress=progress)
    if absent := _absent(found.features, flags):
        words = (
            f"the prices are of runs with {', '.join(absent)}, which are not set: what runs today is slower than priced"
        )
        warnings.warn(f"--current: {words}", UserWarning, stacklevel=2)
    echo(found, as_json)


def _absent(features: tuple[str, ...], flags: frozenset[str] | None) -> list[str]:
    """Flags of features that prices count on, which what is told Megatron-LM or torchtitan has not."""
    if flags is None or not features:
        return []
    from taut.data.calibration import COMPILED
    from taut.exports.architecture import FEATURES
    from taut.launchers.torchtitan import COMPILE

    if not any(flag.startswith("--") for flag in flags):
        return [COMPILE] if COMPILED in features and COMPILE not in flags else []
    return [flag for one in features for flag in FEATURES.get(one, {}) if flag not in flags]


def _settings(current: str, model: str, cluster: str) -> "Launch":
    """What is said to run, by values as they are stated or by a launcher's words or file."""
    from taut.launchers.settings import Launch, Run

    first, _, more = current.partition(",")
    is_text = current.lstrip().startswith("-") or "--" in current or ("=" in first and " " in current.strip())
    if not is_text and ("=" in first or not (Path(first).suffix or Path(first).exists())):
        return Launch(parse_fix([current], "--current"))
    from taut.data.load import load_cluster, load_model
    from taut.launchers.read import launch_of_file, launch_of_text

    with warnings.catch_warnings():
        # The request that is priced loads both again, and warns.
        warnings.simplefilter("ignore")
        run = Run(load_model(model), load_cluster(cluster).num_devices)
    if is_text:
        return launch_of_text(current, run)
    beside = parse_fix([more], "--current")
    launch = launch_of_file(Path(first), run, beside)
    return launch._replace(values=launch.values | beside)


def _two_plans(one: str, other: str, options: dict[str, Any], plot: Path | None, *, as_json: bool) -> None:
    from taut.comparison.result import compare_plans
    from taut.files import write_atomically
    from taut.planning.plan import load_plan
    from taut.reports.page.page import pair_page
    from taut.words import text_table

    refuse_together(sorted(options), "two plans", "a model and a cluster, or two plans alone")
    check_plot(plot, {".html": "taut.reports.page.markup"})
    plans, names = (load_plan(Path(one)), load_plan(Path(other))), (Path(one).name, Path(other).name)
    rows = compare_plans(*plans)
    if plot is not None:
        write_atomically(plot, pair_page(*plans, names, rows))
    if as_json:
        typer.echo(json.dumps([dict(zip(("what", "one", "other"), row, strict=True)) for row in rows]))
        return
    typer.echo(text_table([("", *names), *rows]))
