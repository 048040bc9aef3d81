r"""
How far one term may change before another plan wins.

Factors of links, of memory, or of the imbalance of experts are tried outward from 1, each by a search
(``taut.sensitivity.points``), until a plan is found that is faster than P by more than a share e, or the last factor is
reached. By ``taut.sensitivity.box`` (4) links that are x times as slow stand for layers that are x times as fast.

(1) From 1 to a factor, no plan is faster by more than the largest R of the intervals between, halved where it is loose.
(2) At the factor at which a plan wins, it is named, with its gain 1 - U / T(P).

More memory lets other plans fit; with less than what P takes, the plan itself does not. Where routing is less even, no
plan is faster and none needs less memory, so that between two factors T(P; b) / LB(a) holds as for links.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taut.planning.plan import Plan
from taut.sensitivity.box import halved, interval_regret, most
from taut.sensitivity.points import Point, Points, prices_imbalance

FACTORS = (1.1, 1.25, 1.5, 2.0, 4.0)
"""Factors either way: the errors of a good calibration, of a first guess, and of links that are shared or mistaken."""
ROOM = (1.05, 1.1, 1.25, 1.5)
"""Factors of memory: the margin of a plan, and what the next larger devices have."""
HALVINGS = 3
"""Further searches between two factors, where the bound is loose there."""
LOADS = (1.1, 1.25, 1.5, 2.0)
"""Factors of imbalance: of a balanced router, of an auxiliary loss, and of routing early in training."""
WINS = 2e-3
"""Gain from which another plan wins: below it, runs of one configuration differ as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """
    One factor of a term.

    Seconds of the plan and of the best plan found; ``at_most`` the regret from factor 1 to here, None without a bound;
    ``winner`` the candidate that wins, empty where none does by more than ``WINS``.
    """

    term: str
    factor: float
    seconds: float
    best_s: float
    at_most: float | None
    winner: str


def break_even(plan: "Plan | str | Path", *, time_limit: float | None = None) -> list[Row]:
    """
    Ask, term by term, at which factor another plan wins.

    Parameters
    ----------
    plan
        A plan, or the file of one.
    time_limit
        Seconds of each search; without it until its gap is small.

    Raises
    ------
    DataError
        If the file is no plan.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "micro_batch": 4})
    >>> {row.term for row in taut.break_even(plan)} == {"links", "memory"}
    True
    """
    read = plan if isinstance(plan, Plan) else Plan.read(plan)
    return break_even_rows(Points.of(read.typed, read.source, time_limit))


def break_even_rows(points: Points) -> list[Row]:
    """
    Factors of links either way, of memory and of imbalance upward, as far as until another plan wins.

    ``points``: the plan at other prices.
    """
    slower = _outward(points, "links", FACTORS)
    faster = _outward(points, "links", [1 / factor for factor in FACTORS])
    more = [] if points.problem.memory.network else _outward(points, "memory", ROOM)
    uneven = _outward(points, "imbalance", LOADS) if prices_imbalance(points.problem) else []
    return [*reversed(faster), *slower, *more, *uneven]


def _outward(points: Points, term: str, factors: Sequence[float]) -> list[Row]:
    rows: list[Row] = []
    last, worst = points.at(), 0.0
    for factor in factors:
        point = points.at(**{term: factor})
        worst = max(worst, _between(points, last, point))
        wins = point.best < point.seconds * (1 - WINS)
        rows.append(
            Row(
                term=term,
                factor=factor,
                seconds=point.seconds,
                best_s=point.best,
                at_most=worst if math.isfinite(worst) else None,
                winner=point.candidate if wins else "",
            )
        )
        if wins:
            break
        last = point
    return rows


def _between(points: Points, one: Point, other: Point) -> float:
    """The regret from one factor to another, (1)."""
    if one.memory != other.memory:
        return most(points, [other])
    if one.imbalance != other.imbalance:
        return interval_regret(points.problem, one, other)
    ends = sorted((one, other), key=lambda point: point.links)
    return most(points, halved(points, ends, HALVINGS))
