"""``taut predict``: given configurations, one a row."""

from pathlib import Path
from typing import Annotated

import typer

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
) -> None:
    """Step time with its band, memory and fit of given configurations; a wrong row gets an error text."""
    from taut.files import write_atomically
    from taut.prediction.records import predict_file, summary

    text, found = predict_file(rows, calibration, memory_model)
    if not found:
        raise DataError(f"{rows}: has no rows, expected a configuration a row below the header")
    wrong = [one.error for one in found if one.error]
    if wrong and len(wrong) == len(found):
        raise DataError(f"{rows}: all {len(found)} rows are wrong, the first: {wrong[0]}")
    write_atomically(out, text)
    typer.echo(f"{out}: {summary(found)}", err=True)
