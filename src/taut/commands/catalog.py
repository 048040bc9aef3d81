"""``taut catalog``: what is built in."""

import json
from typing import Annotated

import typer

from taut.commands.options import JsonFlag


def catalog_command(
    section: Annotated[
        str,
        typer.Argument(help="models, clusters, devices, stacks, calibrations, memory-models or profiles; all without."),
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """List what is built in: models, clusters, devices, stacks, calibrations, memory models and profiles."""
    from taut.reports.catalog import catalog_listing, catalog_text

    listing = catalog_listing(section)
    typer.echo(json.dumps(listing) if as_json else catalog_text(listing))
