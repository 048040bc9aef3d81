"""Measured matrices between nodes as CSV: a row for each, in the unit that whoever names the file states."""

import csv
from pathlib import Path

from taut.data.read import check_count, read_text
from taut.errors import DataError

MOST_ENTRIES = 4_000_000
"""As between 2,000 nodes."""


def read_matrix(path: Path) -> list[list[float]]:
    """Rows of a CSV matrix, without a header line and a column of names; ``DataError`` if an entry is no number."""
    text = read_text(path, "a CSV matrix")
    check_count(text, path, "a CSV matrix", MOST_ENTRIES)
    try:
        lines = [line for line in csv.reader(text.splitlines()) if line]
    except csv.Error as error:
        raise DataError(f"{path}: {error}, expected a CSV matrix") from None
    if lines and not all(_is_number(cell) for cell in lines[0]):
        lines = [line[1:] for line in lines[1:]]
    for number, line in enumerate(lines, start=1):
        for column, cell in enumerate(line, start=1):
            if not _is_number(cell):
                raise DataError(f"{path} row {number} column {column}: is {cell!r}, expected a bandwidth")
    return [[float(cell) for cell in line] for line in lines]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
