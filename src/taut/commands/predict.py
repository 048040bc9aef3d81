"""``taut predict``: given configurations, one a row."""

from pathlib import Path
from typing import Annotated

import typer

from taut.commands.options import QuietFlag, check_file
from taut.errors import DataError


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
