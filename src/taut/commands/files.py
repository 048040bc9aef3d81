"""Schemas of files and commented files to fill in, and the tools of an agent over standard input and output."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from taut.errors import DataError

TEMPLATES = "cluster", "model"


def schema_command(
    kind: Annotated[str, typer.Argument(help="model, cluster, stack, calibration, memory-model, jobs, sweep or plan.")],
    by_name: Annotated[
        bool, typer.Option("--by-name", help="A file with several of them by name, as the catalog's files are.")
    ] = False,
) -> None:
    """Print the JSON Schema of a kind of file, by which an editor completes and checks it."""
    from taut.schemas import KINDS, schema

    _check(kind, KINDS)
    typer.echo(json.dumps(schema(kind, by_name=by_name), indent=2))


def new_command(
    kind: Annotated[str, typer.Argument(help="cluster or model.")],
    out: Annotated[Path | None, typer.Option(help="YAML file to write; default: print it.")] = None,
) -> None:
    """Write a commented cluster or model file to fill in."""
    from taut.files import template, write_atomically

    _check(kind, TEMPLATES)
    text = template(f"{kind}.yaml")
    if out is None:
        typer.echo(text, nl=False)
        return
    if out.exists():
        raise DataError(f"{out}: is there already, expected the name of a new file")
    write_atomically(out, text)


def _check(kind: str, known: Iterable[str]) -> None:
    """Refuse a kind of file that there is not, as the argument that it is: other verbs have an option of that name."""
    from taut.data.suggest import one_of

    names = list(known)
    if kind not in names:
        raise DataError(f"KIND {kind}: expected {one_of(kind, names)}")


def mcp_command(
    folder: Annotated[Path, typer.Option(help="Folder of the files that tools read and write.")] = Path("."),
) -> None:
    """Serve plan, compare, predict, explain and verify to an agent, by the Model Context Protocol."""
    from taut.agents import server

    if not folder.is_dir():
        raise DataError(f"--folder: {folder} is no folder, expected one that is there")
    server(folder).run("stdio")
