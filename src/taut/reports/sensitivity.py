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
"""

import math
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from taut.planning.proof import band_of
from taut.reports.plan_details import candidate_name, nearest
from taut.sensitivity import GAP, WINS, BoxRegret, Row
from taut.words import percent

if TYPE_CHECKING:
    from taut.solver.certificate.document import PlanDocument

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


def sensitivity(plan: "PlanDocument") -> Sensitivity:
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


def regret(plan: "PlanDocument", below: float, above: float) -> Regret:
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


def _band(plan: "PlanDocument") -> Regret | None:
    """The regret within the calibration's 80 % band, (4)."""
    if (found := band_of(plan)) is None:
        return None
    low, high = (seconds / plan.predicted.step_time_s for seconds in found)
    return regret(plan, max(1 - low, 0.0), max(high - 1, 0.0))


def sensitivity_text(plan: "PlanDocument", *, width: int) -> str:
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
