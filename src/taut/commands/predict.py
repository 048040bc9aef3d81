"""``taut predict``, ``taut fit`` and ``taut sweep``: many configurations, their runs, and many points."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import JsonFlag, QuietFlag, check_file
from taut.errors import DataError, NothingFoundError

if TYPE_CHECKING:
    from taut.data.spec import Spec


def predict_command(
    rows: Annotated[Path, typer.Argument(help="CSV of configurations, one a row.")],
    out: Annotated[Path, typer.Option(help="CSV to write: the rows with the predicted columns beside them.")],
    calibration: Annotated[
        str | None, typer.Option(help="Fitted coefficients for all rows: catalog name or YAML file.")
    ] = None,
    memory_model: Annotated[
        str | None, typer.Option(help="Memory model for all rows: catalog name, YAML file or a network's JSON file.")
    ] = None,
    quiet: QuietFlag = False,
) -> None:
    """Step time with its band, memory and fit of given configurations; a wrong row gets an error text."""
    from taut.commands.progress import live_lines
    from taut.files import write_atomically
    from taut.prediction.rows import predict_file

    check_file(out)
    with live_lines(quiet) as say:
        text, found = predict_file(rows, calibration, memory_model, lambda count: say(f"{count} rows"))
    if not found.rows:
        raise DataError(f"{rows}: has no rows, expected a configuration a row below the header")
    if found.wrong == found.rows:
        raise DataError(f"{rows}: all {found.rows} rows are wrong, the first: {found.first}")
    write_atomically(out, text)
    typer.echo(f"{out}: {found}", err=True)
    if found.was_cut:
        raise NothingFoundError(f"interrupted after {found.rows} rows, which {out} has")


fitter = typer.Typer(help="Calibrate from measured runs.", no_args_is_help=True)

SourceOption = Annotated[str, typer.Option(help="Where the samples come from, for the file.")]


@fitter.command()
def latency(
    samples: Annotated[Path, typer.Argument(help="CSV of configurations with a column measured_s.")],
    out: Annotated[Path, typer.Option(help="Calibration file to write.")],
    cluster: Annotated[str, typer.Option(help="Catalog cluster whose links the runs used.")] = "",
    source: SourceOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Fit the coefficients of the step time to measured runs of one device and software stack."""
    from taut.prediction.fitting import fit_latency

    found = fit_latency(samples, name=out.stem, source=source or samples.name, cluster=cluster)
    _write_yaml(found, out)
    words = f"{out}: {found.samples} samples, mean error on unseen runs {100 * (found.mape or 0.0):.1f} %"
    typer.echo(json.dumps(found.model_dump()) if as_json else words)


@fitter.command()
def memory(
    samples: Annotated[Path, typer.Argument(help="CSV of configurations with a column measured_bytes.")],
    out: Annotated[Path, typer.Option(help="Memory model file to write.")],
    level: Annotated[float, typer.Option(help="Chance that a run exceeds prediction and margin.")] = 0.05,
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="The runs used sequence parallelism.")
    ] = False,
    unfused_attention: Annotated[
        bool, typer.Option("--unfused-attention", help="The runs' attention scores went through memory.")
    ] = False,
    kind: Annotated[
        str, typer.Option(help="terms: the analytic model's, weighed; network: Pipette's, for even partitions (JSON).")
    ] = "terms",
    seed: Annotated[int, typer.Option(help="Seed of the network's training.")] = 0,
    source: SourceOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Fit a device's memory to measured runs of one software stack, with a margin."""
    from taut.planning.request import check_search
    from taut.prediction.fitting import fit_memory_samples

    check_search(seed=seed)
    if not 0 < level < 1:
        raise DataError(f"--level {level:g}: expected a chance between 0 and 1, such as 0.05")
    if kind not in ("terms", "network"):
        raise DataError(f"--kind {kind}: expected terms or network")
    if kind == "network":
        _network(samples, out, level, seed, source)
        return
    found = fit_memory_samples(
        samples,
        name=out.stem,
        source=source or samples.name,
        level=level,
        sequence_parallel=sequence_parallel,
        fused_attention=not unfused_attention,
    )
    _write_yaml(found, out)
    words = (
        f"{out}: {found.samples} samples, mean error on unseen runs {100 * (found.mape or 0.0):.1f} %, margin "
        f"{found.margin_gib:.2f} GiB, exceeded with a chance of {100 * (found.level or 0.0):.3g} %"
    )
    typer.echo(json.dumps(found.model_dump()) if as_json else words)


def _network(samples: Path, out: Path, level: float, seed: int, source: str) -> None:
    from taut.data.memory import network_json
    from taut.files import write_atomically
    from taut.prediction.fitting import fit_network_samples

    if out.suffix != ".json":
        raise DataError(f"--out {out}: expected a .json file for a network")
    found = fit_network_samples(samples, name=out.stem, source=source or samples.name, level=level, seed=seed)
    write_atomically(out, network_json(found))
    typer.echo(
        f"{out}: {found.samples} samples, mean error on unseen runs {100 * (found.mape or 0.0):.1f} %, margin "
        f"{100 * found.margin:.1f} % of the capacity, exceeded with a chance of {100 * (found.level or 0.0):.3g} %"
    )


def _write_yaml(found: "Spec", out: Path) -> None:
    import yaml

    from taut.files import write_atomically

    values = found.model_dump(mode="json", exclude={"name"})
    write_atomically(out, yaml.safe_dump(values, sort_keys=False))


def sweep_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="YAML file: fields with lists of values, or points.")],
    out: Annotated[Path, typer.Option(help="CSV or Parquet file to write; a run that was killed goes on from there.")],
    executor: Annotated[str, typer.Option(help="Where points run: local, dask or mpi.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="Address of Dask's scheduler.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes of this machine; default: one a core.", min=1)] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plan, predict or simulate many points, resumable; a wrong point is a row with its error."""
    from taut.commands.progress import live_lines
    from taut.sweeping.executors import named_executor
    from taut.sweeping.sweep import sweep

    check_file(out)
    errors = Counter[str]()
    with live_lines(quiet) as say, named_executor(executor, scheduler) as pool:

        def told(done: int, total: int, row: dict[str, Any] | None) -> None:
            errors.update([row["status"]] if row is not None and row["error"] else [])
            wrong = "".join(f", {count} {status}" for status, count in sorted(errors.items()))
            say(f"{done} of {total} points{wrong}")

        rows = sweep(spec, out=out, executor=pool, jobs=jobs, progress=told)
    counts = dict(sorted(Counter(row["status"] for row in rows).items()))
    first = next((f"; first error: {row['error']} (point {row['point']})" for row in rows if row["error"]), "")
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    found = {"out": str(out), "points": len(rows), "status": counts}
    typer.echo(json.dumps(found) if as_json else f"{out}: {len(rows)} points, {words}{first}")
