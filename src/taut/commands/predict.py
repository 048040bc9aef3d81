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
) -> None:
    """Step time with its band, memory and fit of given configurations; a wrong row gets an error text."""
    from taut.data.load import load_calibration
    from taut.files import write_atomically
    from taut.prediction.records import predict_file

    text, errors = predict_file(rows, None if calibration is None else load_calibration(calibration))
    wrong = [error for error in errors if error]
    if wrong and len(wrong) == len(errors):
        raise DataError(f"{rows}: all {len(errors)} rows are wrong, the first: {wrong[0]}")
    write_atomically(out, text)
    found = f", {len(wrong)} wrong: first {wrong[0]}" if wrong else ", all predicted"
    typer.echo(f"{out}: {len(errors)} rows{found}", err=True)
