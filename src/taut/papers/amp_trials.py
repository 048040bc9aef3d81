"""
AMP's real trials as rows of a CSV file.

The columns are those of AMP's logs: ``mbs,tmp,dp,pp,ds_partition,amp_predicted_s,measured_s`` (others are left alone).
``ds_partition`` holds the cuts between stages, from 0 to the number of entries, parted by spaces. Seconds that are
blank, ``nan`` or ``inf`` were not recorded: out of memory, a hang and a crash are not told apart.
"""

import csv
import math
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from taut.data.read import read_text
from taut.errors import DataError

COLUMNS = ("mbs", "tmp", "dp", "pp", "ds_partition", "amp_predicted_s", "measured_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: micro-batch, degrees, cuts of AMP's layers; seconds are infinite where none were recorded."""

    micro_batch: int
    tp: int
    dp: int
    pp: int
    cuts: tuple[int, ...]
    amp_s: float
    measured_s: float


def read_trials(path: Path) -> list[Trial]:
    """
    Read trials.

    Raises ``DataError`` if the file cannot be read, lacks a column, or a row is no trial.
    """
    try:
        text = read_text(path, "AMP's trials").splitlines()
        lines = csv.DictReader(line for line in text if not line.startswith("#"))
        for column in COLUMNS:
            if column not in (lines.fieldnames or []):
                raise DataError(f"{path}: column {column} is missing, expected {','.join(COLUMNS)}")
        trials = [_trial(cells, f"{path} row {number}") for number, cells in enumerate(lines, start=1)]
    except csv.Error as error:
        raise DataError(f"{path}: {error}, expected AMP's trials") from None
    if not trials:
        raise DataError(f"{path}: has no rows, expected the columns {','.join(COLUMNS)}")
    return trials


def _trial(cells: dict[str, str | None], where: str) -> Trial:
    known = {column: (cells[column] or "").strip() for column in COLUMNS}
    micro_batch, tp, dp, pp = (_count(known[column], f"{where}: {column}") for column in COLUMNS[:4])
    return Trial(
        micro_batch=micro_batch,
        tp=tp,
        dp=dp,
        pp=pp,
        cuts=_cuts(known["ds_partition"], pp, f"{where}: ds_partition"),
        amp_s=_seconds(known["amp_predicted_s"], f"{where}: amp_predicted_s"),
        measured_s=_seconds(known["measured_s"], f"{where}: measured_s"),
    )


def _count(text: str, where: str) -> int:
    if not (re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0):
        raise DataError(f"{where} is {text!r}, expected a whole number above 0")
    return int(text)


def _cuts(text: str, pp: int, where: str) -> tuple[int, ...]:
    cuts = tuple(map(int, re.findall(r"\d{1,6}", text)))
    rising = all(before < after for before, after in pairwise(cuts))
    if not re.fullmatch(r"[\d\s,;\[\]]*", text) or len(cuts) != pp + 1 or cuts[0] != 0 or not rising:
        raise DataError(f"{where} is {text!r}, expected {pp + 1} rising cuts from 0")
    return cuts


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(text or "inf")
    except ValueError:
        raise DataError(f"{where} is {text!r}, expected seconds, inf or nothing") from None
    if seconds <= 0:
        raise DataError(f"{where} is {text!r}, expected seconds above 0")
    return seconds if math.isfinite(seconds) else math.inf
