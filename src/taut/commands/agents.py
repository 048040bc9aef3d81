"""``taut mcp``: the tools of an agent over standard input and output."""

from pathlib import Path
from typing import Annotated

import typer

from taut.errors import DataError


def mcp_command(
    folder: Annotated[Path, typer.Option(help="Folder of the files that tools read and write.")] = Path("."),
) -> None:
    """Serve plan, compare, predict, explain and verify to an agent, by the Model Context Protocol."""
    from taut.agents import server

    if not folder.is_dir():
        raise DataError(f"--folder: {folder} is no folder, expected one that is there")
    server(folder).run("stdio")
