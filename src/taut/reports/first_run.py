r"""
A plan beside its first real run: how wrong the prices were, and what that says of the choice.

J is the plan's predicted seconds, M the measured ones (the median of the run's steps), LB the proven bound of the
space.

(1) The error is :math:`e = J / M - 1`, as a calibration counts it. With its quantiles of 80 % of runs,
    :math:`J / (1 + e_{90}) \le M \le J / (1 + e_{10})` is expected; outside, the prices do not speak for the machine.
(2) One run tells one number. If it is an error that all plans share, seconds and bound of every plan change by
    M / J, and the choice and its gap stay.
(3) If every other plan takes at least as long as predicted, each of them takes LB or more, so this plan is at most
    :math:`\max(M / LB - 1, 0)` slower than the best, and only a candidate with a bound below M can be faster:
    ``taut.reports.sensitivity`` (2) and (3) with a = 0 and b = M / J - 1.
(4) Between (2) and (3) decide runs of other plans: five of them, of different degrees, make a calibration.
(5) Memory: the fullest device's measured bytes against those predicted, with and without the margin, and its capacity.

A run is a CSV file, a row a step, with ``measured_s`` and perhaps ``measured_bytes``; or what Megatron-LM printed, with
``elapsed time per iteration (ms)`` in every line of its log and, of some ranks, memory in MiB (``memory (MB)``). There
the most that PyTorch's allocator reserved counts, as others on the device cannot have it, or the most that it allocated
where that is not printed.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from taut.data.read import positive_number, read_text, rows_of
from taut.data.spec import shorten
from taut.data.suggest import one_of
from taut.data.units import GIB, MIB
from taut.errors import DataError
from taut.planning.proof import band_of
from taut.reports.sensitivity import regret
from taut.words import percent, text_table

if TYPE_CHECKING:
    from taut.solver.certificate.document import PlanDocument


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Memory of the stage whose prediction with its margin is largest, (5), None of a run that measured none."""

    memory_bytes: int
    margin_bytes: int
    capacity_bytes: int
    measured_bytes: float

    @property
    def words(self) -> str:
        """Whether the measured bytes are as expected."""
        if self.measured_bytes <= self.memory_bytes:
            return "no more than predicted"
        if self.measured_bytes <= self.memory_bytes + self.margin_bytes:
            return "more than predicted, within the margin"
        return "more than predicted with the margin: raise it, or fit a memory model (taut fit memory)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """Predicted against measured: the error (1), where M was expected (None: not known), and the figures of (3)."""

    steps: int
    predicted_s: float
    measured_s: float
    error: float
    band: tuple[float, float] | None
    at_most: float | None
    rivals: int
    memory: Stage | None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def first_run(plan: "PlanDocument", run: MeasuredRun) -> FirstRun:
    """Set a plan beside its run."""
    predicted, measured = plan.certificate.objective_s, run.seconds
    found = regret(plan, 0.0, measured / predicted - 1)
    return FirstRun(
        steps=len(run.steps),
        predicted_s=predicted,
        measured_s=measured,
        error=predicted / measured - 1,
        band=band_of(plan),
        at_most=found.at_most,
        rivals=found.rivals,
        memory=_fullest(plan, run.memory_bytes),
    )


def _fullest(plan: "PlanDocument", measured: float | None) -> Stage | None:
    if measured is None:
        return None
    said = plan.predicted
    used, margin, capacity = max(
        zip(said.memory_bytes, said.margin_bytes, said.capacity_bytes, strict=True), key=lambda one: one[0] + one[1]
    )
    return Stage(memory_bytes=used, margin_bytes=margin, capacity_bytes=capacity, measured_bytes=measured)


def first_run_text(plan: "PlanDocument", run: MeasuredRun, source: Path, *, width: int) -> str:
    """Predicted against measured in words, in so many columns."""
    found = first_run(plan, run)
    rows = [("", "predicted", "measured", "error"), ("step, s", *_pair(found.predicted_s, found.measured_s))]
    if found.memory is not None:
        rows.append(("memory, GiB", *_pair(found.memory.memory_bytes / GIB, found.memory.measured_bytes / GIB)))
    lines = [f"the plan and its run: {source}, {found.steps} step{'s' * (found.steps > 1)}", text_table(rows)]
    words = [
        _band_words(found),
        "An error that all plans share leaves the choice and its gap as they are. If the other plans take no less than "
        f"predicted, this one is at most {percent(found.at_most)} slower than the best; {found.rivals} others may win.",
    ]
    if found.memory is not None:
        words.append(f"The fullest device takes {found.memory.words}.")
    return "\n".join([*lines, *(line for one in words for line in wrap(one, width))])


def _pair(predicted: float, measured: float) -> tuple[str, str, str]:
    return f"{predicted:.4g}", f"{measured:.4g}", f"{100 * (predicted / measured - 1):+.3g} %"


def _band_words(found: FirstRun) -> str:
    if found.band is None:
        return "The errors of these prices are not known: no calibration with errors on unseen runs."
    low, high = found.band
    if low <= found.measured_s <= high:
        return f"The run is within the 80 % band of the prices, {low:.4g} to {high:.4g} s."
    side, cause = ("below", "faster") if found.measured_s < low else ("above", "slower")
    return (
        f"The run is {side} the 80 % band of the prices, {low:.4g} to {high:.4g} s: this machine is {cause} than those "
        "of the calibration, or differs from the assumptions; fit one of your own (taut fit latency)."
    )
