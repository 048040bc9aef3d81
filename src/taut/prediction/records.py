"""
Predictions as records: rows of a CSV file, or dictionaries, with the predicted columns beside what was given.

A row that is wrong keeps its place and has an error text instead of figures (``taut.prediction.rows``).
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import islice
from os import PathLike
from pathlib import Path
from statistics import mean, median
from typing import Any

from taut.data.calibration import Calibration
from taut.data.load import load_calibration, load_memory_model
from taut.data.memory import MemoryModel
from taut.data.read import read_text
from taut.data.samples import EXPECTED, ConfigurationRow, SampleLine, read_samples, sample_lines
from taut.errors import DataError, FieldError
from taut.prediction.rows import Prediction, predict_rows
from taut.prediction.settings import Given

BLOCK = 20_000
"""Rows that are predicted at a time; those of one setting share its tables."""
RESULTS = ("step_time_s", "step_time_low_s", "step_time_high_s", "memory_bytes", "fits", "error")


def predict(
    rows: Iterable[Mapping[str, Any]] | str | PathLike[str],
    calibration: Calibration | str | None = None,
    memory_model: MemoryModel | str | None = None,
) -> list[dict[str, Any]]:
    """
    Predict step time and memory of given configurations.

    Parameters
    ----------
    rows
        Dictionaries, one a configuration, or the path of a CSV file. Names are the columns of ``taut predict``:
        ``gpu``, ``n_gpus``, ``hidden``, ``layers`` and ``global_batch`` must be there, others have defaults.
    calibration
        Coefficients for all rows, by catalog name, file or spec; without it each row's stack and device choose one of
        the catalog.
    memory_model
        Memory model for all rows, likewise.

    Returns
    -------
    list of dict
        What was given, with ``step_time_s``, its 80 % band ``step_time_low_s`` to ``step_time_high_s`` (None without
        a calibration), ``memory_bytes`` of the fullest device, whether it ``fits``, and ``error``, empty unless the
        row is wrong.

    Raises
    ------
    DataError
        If the file cannot be read or its header is wrong, or there is no such calibration.

    Examples
    --------
    >>> import taut
    >>> row = {"gpu": "A100", "n_gpus": 8, "hidden": 2048, "layers": 24, "dp": 8, "global_batch": 64}
    >>> right, wrong = taut.predict([row, row | {"dp": 3}])
    >>> right["fits"], 0.4 < right["step_time_s"] < 4
    (True, True)
    >>> wrong["error"]
    'row 2: n_gpus is 8, expected tp*pp*dp*cp = 3'
    """
    if isinstance(rows, str | PathLike):
        lines = read_samples(Path(rows))
        given: list[Mapping[str, Any]] = [line.cells for line in lines]
    elif isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise FieldError("rows", repr(rows)[:60], "expected several dictionaries, or a CSV file")
    else:
        given = list(rows)
        lines = [_line(row, number) for number, row in enumerate(given, start=1)]
    found = _predicted(lines, _given(calibration, memory_model))
    return [dict(row) | _record(prediction) for row, prediction in zip(given, found, strict=True)]


def _line(row: object, number: int) -> SampleLine:
    """A dictionary as a line of a file would be; None stands for an empty cell."""
    if not isinstance(row, Mapping):
        raise FieldError("rows", repr(row)[:60], "expected a dictionary for each configuration, or a CSV file")
    try:
        values = {name: value for name, value in row.items() if value is not None and value != ""}
        return SampleLine({}, ConfigurationRow.parse(values, f"row {number}"), "")
    except DataError as error:
        return SampleLine({}, None, str(error))


def _given(calibration: Calibration | str | None, memory_model: MemoryModel | str | None) -> Given:
    """What is given for all rows, names and files read."""
    known = load_calibration(calibration) if isinstance(calibration, str) else calibration
    memory = load_memory_model(memory_model) if isinstance(memory_model, str) else memory_model
    return Given(calibration=known, memory_model=memory)


def _predicted(lines: list[SampleLine], given: Given, first: int = 1) -> list[Prediction]:
    """A prediction for every line, numbered from ``first`` on, with the line's own error where it has one."""
    found = iter(predict_rows([line.row for line in lines if line.row is not None], given))
    return [
        _numbered(next(found), number) if line.row is not None else Prediction(error=line.error)
        for number, line in enumerate(lines, start=first)
    ]


def _numbered(found: Prediction, number: int) -> Prediction:
    """A prediction whose error names the row, as errors of single cells do."""
    return replace(found, error=f"row {number}: {found.error}") if found.error else found


def _record(found: Prediction) -> dict[str, Any]:
    low, high = found.band or (None, None)
    values = (found.step_time_s, low, high, found.memory_bytes, found.fits, found.error)
    return dict(zip(RESULTS, values, strict=True))


@dataclass
class Tally:
    """Rows, how many are wrong, the first error, seconds of steps, and how many fit."""

    rows: int = 0
    wrong: int = 0
    fit: int = 0
    first: str = ""
    steps: list[float] = field(default_factory=list)

    def add(self, found: Prediction) -> None:
        """Count a row."""
        self.rows += 1
        self.wrong += bool(found.error)
        self.fit += bool(found.fits)
        self.first = self.first or found.error
        if found.step_time_s is not None:
            self.steps.append(found.step_time_s)

    def __str__(self) -> str:
        """The counts, with mean and median seconds of a step, in one line."""
        words = [f"{self.rows} rows", f"{self.wrong} wrong: first {self.first}" if self.wrong else "all predicted"]
        if self.steps:
            words.append(f"step {mean(self.steps):.4g} s in the mean, median {median(self.steps):.4g} s")
            words.append(f"{self.fit} fit")
        return ", ".join(words)


def predict_file(
    path: Path,
    calibration: Calibration | str | None = None,
    memory_model: MemoryModel | str | None = None,
    told: Callable[[int], None] | None = None,
) -> tuple[str, Tally]:
    """The file's rows in blocks with the predicted columns as CSV text, and their tally; ``told`` hears of blocks."""
    columns, lines = sample_lines(read_text(path, EXPECTED), path)
    given, out, tally = _given(calibration, memory_model), StringIO(), Tally()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*columns, *RESULTS])
    while block := list(islice(lines, BLOCK)):
        for line, found in zip(block, _predicted(block, given, tally.rows + 1), strict=True):
            writer.writerow([*(line.cells.get(column, "") for column in columns), *_cells(found)])
            tally.add(found)
        if told is not None and len(block) == BLOCK:
            told(tally.rows)
    return out.getvalue(), tally


def _cells(found: Prediction) -> list[str]:
    if found.error or found.step_time_s is None:
        return ["", "", "", "", "", found.error]
    low, high = ("", "") if found.band is None else (f"{end:.6g}" for end in found.band)
    return [f"{found.step_time_s:.6g}", low, high, str(found.memory_bytes), str(found.fits).lower(), ""]
