"""
What one run measured: seconds of its steps, and the most memory that a device took.

A run is a CSV file, a row a step, with ``measured_s`` and perhaps ``measured_bytes``; or what Megatron-LM printed, with
``elapsed time per iteration (ms)`` in every line of its log and, of some ranks, memory in MiB (``memory (MB)``). There
the most that PyTorch's allocator reserved counts, as others on the device cannot have it, or the most that it allocated
where that is not printed.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from taut.data.read import positive_number, read_text, rows_of
from taut.data.spec import shorten
from taut.data.suggest import one_of
from taut.data.units import MIB
from taut.errors import DataError

SECONDS, BYTES = "measured_s", "measured_bytes"
COLUMNS = ("step", SECONDS, BYTES)
EXPECTED = f"a CSV file with the column {SECONDS}, or a log of Megatron-LM"
_STEP = re.compile(r"elapsed time per iteration \(ms\): *([^ |]+)")
_RESERVED = re.compile(r"max reserved: *([^ |]+)")
_ALLOCATED = re.compile(r"max allocated: *([^ |]+)")


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Seconds of every step or logged interval, and the most bytes of a device, None where not measured."""

    steps: tuple[float, ...]
    memory_bytes: float | None

    @property
    def seconds(self) -> float:
        """The median, which does not see a warm-up of less than half the steps."""
        return median(self.steps)


def read_run(path: Path) -> MeasuredRun:
    """Read a run from its CSV file or log."""
    text = read_text(path, EXPECTED)
    return _of_rows(text, path) if path.suffix == ".csv" else _of_log(text, path)


def _of_rows(text: str, path: Path) -> MeasuredRun:
    columns, rows = rows_of(text, path, EXPECTED)
    if SECONDS not in columns:
        raise DataError(f"{path}: column {SECONDS} is missing, expected it, and {BYTES} where measured")
    for column in columns:
        if column not in COLUMNS:
            raise DataError(f"{path}: column {shorten(column)} is unknown, expected {one_of(column, COLUMNS)}")
    steps, taken = [], []
    for number, row in enumerate(rows, start=1):
        steps.append(positive_number(row.get(SECONDS, ""), f"{path} row {number}: {SECONDS}"))
        if cell := row.get(BYTES, "").strip():
            taken.append(positive_number(cell, f"{path} row {number}: {BYTES}"))
    return _run(steps, taken, path)


def _of_log(text: str, path: Path) -> MeasuredRun:
    def numbers(pattern: re.Pattern[str], name: str) -> list[float]:
        return [
            positive_number(found, f"{path} line {number}: {name}")
            for number, line in enumerate(text.splitlines(), start=1)
            for found in pattern.findall(line)
        ]

    steps = [milliseconds / 1000 for milliseconds in numbers(_STEP, "elapsed time per iteration")]
    taken = numbers(_RESERVED, "max reserved") or numbers(_ALLOCATED, "max allocated")
    return _run(steps, [mebibytes * MIB for mebibytes in taken], path)


def _run(steps: list[float], taken: list[float], path: Path) -> MeasuredRun:
    if not steps:
        raise DataError(f"{path}: holds no measured step, expected {EXPECTED}")
    return MeasuredRun(tuple(steps), max(taken, default=None))
