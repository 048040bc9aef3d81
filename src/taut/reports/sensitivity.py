r"""
How wrong the prices may be before another plan is better: a regret bound from a plan's own certificate.

P is the plan, J its predicted seconds, LB(c) the proven bound of candidate c, LB the global one, and T(q) the predicted
seconds of any plan q of the space. The true seconds M(q) of every plan lie in a box around its prediction,

.. math:: (1 - a) \, T(q) \le M(q) \le (1 + b) \, T(q), \qquad 0 \le a < 1, \; b \ge 0. \tag{1}

Every plan is one of the space, so T(q) >= LB, and T(q) >= LB(c) if q is in c. With (1) for P from above and for q
from below,

.. math:: \frac{M(P)}{M(q)} - 1 \le \frac{(1 + b) J}{(1 - a) \, LB} - 1 =: R, \tag{2}

so P is at most R slower than the best plan, whatever the errors in the box are. A plan of candidate c can be truly
faster than P only if :math:`(1 - a) LB(c) < (1 + b) J`, that is if the errors of two plans differ by more than

.. math:: \frac{1 + b}{1 - a} > r_c = \frac{LB(c)}{J}. \tag{3}

Both are claims about errors of whole predictions, and need (1) of P and of q alone; no property of the latency model
enters. An error that scales every price, such as a slow clock, cancels in (2).

Errors of single prices imply (1) where T rises with each price and is homogeneous of degree 1 in all of them (sums and
maxima of prices with weights >= 0): if every price is within [1 - a, 1 + b] times itself, then by monotonicity
T(prices (1 - a)) <= M <= T(prices (1 + b)), and by homogeneity the ends are (1 - a) T and (1 + b) T. That holds for
``pipette``, ``pipette-printed`` and ``amp`` with schedules whose order is given (makespans are maxima over paths). In
``step`` a reduction starts at the end of the last backward pass of its own stage, a difference of prices, which a rise
of single prices can make smaller: there (1) is the assumption itself, not implied.

A calibration's band gives (1) with quantiles of prediction / measurement - 1: an error e puts the true seconds at
T / (1 + e), so with the quantiles :math:`e_{10} \le e_{90}` of 80 % of runs,

.. math:: 1 + b = \max(1, 1 / (1 + e_{10})), \qquad 1 - a = \min(1, 1 / (1 + e_{90})). \tag{4}

Memory: a device of stage x has :math:`capacity_x - used_x` bytes left, so P fits as long as its memory is predicted too
low by at most :math:`\min_x capacity_x / used_x - 1`. If every plan could use the margin too, none would be faster than
the bound without a margin. (5)

A plan beside its first real run says how wrong the prices were. With M the measured seconds (the median of the run's
steps),

(6) the error is :math:`e = J / M - 1`, as a calibration counts it. With its quantiles of 80 % of runs,
    :math:`J / (1 + e_{90}) \le M \le J / (1 + e_{10})` is expected; outside, the prices do not speak for the machine;
(7) one run tells one number. If it is an error that all plans share, seconds and bound of every plan change by
    M / J, and the choice and its gap stay;
(8) if every other plan takes at least as long as predicted, each of them takes LB or more, so this plan is at most
    :math:`\max(M / LB - 1, 0)` slower than the best, and only a candidate with a bound below M can be faster:
    (2) and (3) with a = 0 and b = M / J - 1;
(9) between (7) and (8) decide runs of other plans: five of them, of different degrees, make a calibration;
(10) memory: the fullest device's measured bytes against those predicted, with and without the margin, and its capacity.

A run is a CSV file, a row a step, with ``measured_s`` and perhaps ``measured_bytes``; or what Megatron-LM printed, with
``elapsed time per iteration (ms)`` in every line of its log and, of some ranks, memory in MiB (``memory (MB)``). There
the most that PyTorch's allocator reserved counts, as others on the device cannot have it, or the most that it allocated
where that is not printed.
"""

import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any

from taut.data.read import positive_number, read_text, rows_of
from taut.data.spec import shorten
from taut.data.suggest import one_of
from taut.data.units import GIB, MIB
from taut.errors import DataError
from taut.planning.proof import band_of
from taut.reports.plan_details import candidate_name, nearest
from taut.sensitivity import GAP, WINS, BoxRegret, Row
from taut.solver.certificate.document import PlanDocument
from taut.words import percent, text_table

ERRORS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Errors either way for which the regret is listed: from better than any published calibration to a first guess."""
RIVALS = 3
"""Nearest candidates whose break-even error is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """A box of errors (1), the regret in it (2), and the candidates that can win in it (3)."""

    below: float
    above: float
    at_most: float | None
    rivals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """A candidate, and the error either way up to which nothing in it is faster, 0 if something may be already."""

    candidate: str
    lower_bound_s: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Regret bounds of a plan: in the calibration's band (4), in ``boxes``, and the two figures of memory (5)."""

    band: Regret | None
    boxes: tuple[Regret, ...]
    nearest: tuple[BreakEven, ...]
    memory_error: float | None
    no_margin: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def sensitivity(plan: PlanDocument) -> Sensitivity:
    """Bound what wrong prices can cost, from the certificate alone, which ``taut verify`` derives again."""
    predicted, certificate = plan.predicted, plan.certificate
    objective, free = certificate.objective_s, certificate.lower_bound_no_margin_s
    pairs = zip(predicted.memory_bytes, predicted.capacity_bytes, strict=True)
    near = [(candidate_name(entry), entry.lower_bound_s or 0.0) for entry in nearest(plan, RIVALS)]
    return Sensitivity(
        band=_band(plan),
        boxes=tuple(regret(plan, error, error) for error in ERRORS),
        nearest=tuple(
            BreakEven(candidate=name, lower_bound_s=bound, error=break_even(bound, objective)) for name, bound in near
        ),
        memory_error=min((capacity / used - 1 for used, capacity in pairs if used), default=None),
        no_margin=None if free is None or not objective else max(1 - free / objective, 0.0),
    )


def regret(plan: PlanDocument, below: float, above: float) -> Regret:
    """The regret in a box of errors, (2), None where no bound is proven, and how many candidates can win in it, (3)."""
    certificate = plan.certificate
    objective, bound = certificate.objective_s, certificate.lower_bound_s
    worst, share = (1 + above) * objective, 1 - below
    others = nearest(plan, len(certificate.candidates))
    return Regret(
        below=below,
        above=above,
        at_most=max(worst / (share * bound) - 1, 0.0) if bound is not None and bound > 0 else None,
        rivals=sum(share * (entry.lower_bound_s or 0.0) < worst for entry in others),
    )


def break_even(bound: float, objective: float) -> float:
    """The largest error either way, a = b, up to which (3) excludes a candidate: (1 + a) / (1 - a) = r."""
    ratio = bound / objective if objective else 0.0
    return max((ratio - 1) / (ratio + 1), 0.0)


def _band(plan: PlanDocument) -> Regret | None:
    """The regret within the calibration's 80 % band, (4)."""
    if (found := band_of(plan)) is None:
        return None
    low, high = (seconds / plan.predicted.step_time_s for seconds in found)
    return regret(plan, max(1 - low, 0.0), max(high - 1, 0.0))


def sensitivity_text(plan: PlanDocument, *, width: int) -> str:
    """The sensitivity of a plan in words, in so many columns."""
    found, lines = sensitivity(plan), ["if the prices are wrong"]
    if found.band is None:
        lines += wrap("The errors of these prices are not known: no calibration with errors on unseen runs.", width)
    else:
        band = found.band
        lines += wrap(
            f"Within the prices' 80 % band ({_signed(-band.below)} to {_signed(band.above)} of the predicted seconds) "
            f"this plan is at most {percent(band.at_most)} slower than the best; {band.rivals} others may win.",
            width,
        )
    lines += ["", f"{'error of any plan':<20}{'at most slower than the best':<31}candidates that may win"]
    for box in found.boxes:
        error = f"+-{100 * box.above:g} %"
        lines.append(f"{error:<20}{percent(box.at_most):<31}{box.rivals}")
    lines += ["", *wrap("nothing in a candidate is faster while no error of a plan exceeds", width)]
    for rival in found.nearest:
        error = f"{100 * rival.error:.3g}" if rival.error > 1e-5 else "0"
        lines += wrap(f"+-{error} %  {rival.candidate}", width, subsequent_indent="    ")
    room = "any" if found.memory_error is None else f"{found.memory_error:.1%}"
    words = f"Memory may be predicted {room} too low before the plan does not fit."
    if found.no_margin is not None:
        words += f" Using the memory margin saves at most {percent(found.no_margin)} of the step."
    return "\n".join([*lines, "", *wrap(words, width)])


def _signed(share: float) -> str:
    return f"{100 * share:+.3g} %"


def box_text(found: BoxRegret, *, width: int) -> str:
    """A box's regret in a paragraph of so many columns."""
    box, (low, high) = found.box, found.slowdown
    terms = {"seconds of links": box.links, "of layers": box.layers, "bytes of memory": box.memory}
    given = ", ".join(f"{name} within {100 * error:g} %" for name, error in terms.items() if error)
    words = f"With {given} of what the plan states (links {low:.3g} to {high:.3g} times as slow beside layers), "
    if found.at_most is None:
        words += "nothing is proven about the best plan: give the searches more time."
    else:
        words += f"this plan is at most {percent(found.at_most)} slower than the best."
    if found.better:
        words += f" At some of these prices it is {percent(found.at_least)} slower than {found.better}."
    return "\n".join(["if several terms are wrong", *wrap(words, width), f"({found.searches} searches)"])


def break_even_text(rows: list[Row], *, width: int) -> str:
    """A line for every factor of every term, and what wins at the ends."""
    head = f"{'term':<16}{'times':>7}{'this plan':>12}{'best found':>12}{'slower by at most':>19}"
    lines = ["if one term is wrong", head]
    for row in rows:
        term = {"links": "links' seconds", "memory": "memory", "imbalance": "fullest rank"}[row.term]
        own = f"{row.seconds:.4g} s" if math.isfinite(row.seconds) else "too full"
        best = f"{row.best_s:.4g} s" if math.isfinite(row.best_s) else "none"
        figures = f"{own:>12}{best:>12}{percent(row.at_most):>19}"
        lines.append(f"{term:<16}{row.factor:>7.3g}{figures}")
        if row.winner:
            lines += wrap(f"here {row.winner} wins", width, initial_indent="    ", subsequent_indent="    ")
    note = (
        f"Slower by at most: at any factor from 1 to this one. Links {1.25:g} times as slow are as layers {1.25:g} "
        f"times as fast. A plan wins by more than {100 * WINS:g} %; searches stop at a gap of {100 * GAP:g} %."
    )
    if any(row.term == "imbalance" for row in rows):
        note += " Fullest rank: the load of the fullest rank's experts."
    return "\n".join([*lines, "", *wrap(note, width)])


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
    """Memory of the stage whose prediction with its margin is largest, (10), None of a run that measured none."""

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
    """Predicted against measured: the error (6), where M was expected (None: not known), and the figures of (8)."""

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


def first_run(plan: PlanDocument, run: MeasuredRun) -> FirstRun:
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


def _fullest(plan: PlanDocument, measured: float | None) -> Stage | None:
    if measured is None:
        return None
    said = plan.predicted
    used, margin, capacity = max(
        zip(said.memory_bytes, said.margin_bytes, said.capacity_bytes, strict=True), key=lambda one: one[0] + one[1]
    )
    return Stage(memory_bytes=used, margin_bytes=margin, capacity_bytes=capacity, measured_bytes=measured)


def first_run_text(plan: PlanDocument, run: MeasuredRun, source: Path, *, width: int) -> str:
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
