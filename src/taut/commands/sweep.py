"""``taut sweep``: many plans, predictions or simulations, on all cores or many machines, as one table."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from taut.commands.options import JsonFlag, QuietFlag, check_file


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
