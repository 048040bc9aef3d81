r"""
A bound on the regret of a plan while the prices of links, layers and memory lie in a box.

P is the plan. T(q; k, l) are the seconds of plan q of the space when everything that is computed takes k times and
every link l times as long as stated: layers, optimizer, hosts' memory and the constant of a calibration are scaled
together by k, all rates and latencies together by l. Y is the factor of what devices have for a plan, and V(k, l, y)
the least seconds of the plans that fit then. What is not known is (k, l, y) in a box

.. math:: k \in [k_1, k_2], \quad l \in [l_1, l_2], \quad y \in [y_1, y_2]. \tag{1}

Hypotheses. T is a sum and maximum of prices; scaling all of them scales it:

.. math:: T(q; c k, c l) = c \, T(q; k, l). \tag{2}

T falls with neither factor alone,

.. math:: T(q; 1, x) \le T(q; 1, x'), \quad T(q; k, 1) \le T(q; k', 1), \qquad x \le x', \; k \le k'. \tag{3}

In (3) differences of prices need an argument. In ``step`` stage i > 0 ends before stage 0 by backward passes and hops
back, and its reduction counts only where it takes longer by at least as much; that excess is a price of links times x
less other prices that do not outgrow it, so it rises with x. A wait for a gather is max(0, ring - computation) beside
that computation, so that their sum is a maximum. With overlap a reduction loses the slowest replica's backward pass,
which with devices of one type the stage's own time contains; with several types the second half of (3) may fail, and
(6) then does without it.

By (2) the ratio of T(P) and T(q) depends on x = l / k alone, so the box of (k, l) is an interval of x,

.. math:: x \in [l_1 / k_2, \; l_2 / k_1]. \tag{4}

More memory lets more plans fit, so V falls with y, and bounds at y_2 hold in the whole box; P itself has to fit.
With LB(x) a bound at links x and memory y_2, for x in [a, b] by (3), and by (2) and (3) for T(q; 1, x) / x =
T(q; 1 / x, 1), which falls with x,

.. math:: V(x) \ge \max\left( LB(a), \; \tfrac{x}{b} LB(b) \right), \qquad
    T(P; x) \le \min\left( T(P; b), \; \tfrac{x}{a} T(P; a) \right), \tag{5}

.. math:: \frac{T(P; x)}{V(x)} - 1
    \le \min\left( \frac{T(P; b)}{LB(a)}, \; \frac{b}{a} \frac{T(P; a)}{LB(b)} \right) - 1 =: R[a, b]. \tag{6}

The regret in the box is at most the largest R of intervals that cover (4). It is at least T(P; x) / U(x) - 1 at each
point x where a plan of U(x) seconds was found. The interval with the largest R is halved until the two differ by less
than a tolerance or no search is left.
"""

import math
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.sensitivity.points import Point, Points

TOLERANCE = 2e-3
"""Regret that intervals may add to that of their ends: a fifth of a per cent, the spread of a good run."""
MOST_POINTS = 9
"""Searches in a box without result within the tolerance; intervals of three halvings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Errors of each term either way, as shares: seconds of links and layers, and bytes of memory."""

    links: float = 0.0
    layers: float = 0.0
    memory: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if not 0 <= (error := getattr(self, each.name)) < 1:
                raise FieldError("within", f"{each.name}={error:g}", "expected a share from 0 to below 1")

    @classmethod
    def stated(cls, text: str) -> "Box":
        """
        Errors as a command line states them, such as ``links=0.2,layers=0.05``.

        Raises ``FieldError`` if a name is none of a term, or its error no share.
        """
        found: dict[str, float] = {}
        for part in text.split(","):
            name, _, error = part.strip().partition("=")
            known = [each.name for each in fields(cls)]
            if name not in known:
                raise FieldError("within", part, f"expected {one_of(name, known)}, with a share such as {known[0]}=0.2")
            try:
                found[name] = float(error)
            except ValueError:
                raise FieldError("within", part, "expected a share such as 0.2") from None
        return cls(**found)

    @property
    def slowdown(self) -> tuple[float, float]:
        """Interval (4) of links against layers."""
        return (1 - self.links) / (1 + self.layers), (1 + self.links) / (1 - self.layers)

    @property
    def room(self) -> float:
        """The factor y_2 of memory: bytes are at least 1 - e of what is predicted."""
        return 1 / (1 - self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxRegret:
    """
    The regret in a box: at most (6), None where nothing is proven, and at least that of a plan that was found.

    ``better`` is that plan's candidate, empty where none is faster; ``slowdown`` the interval (4).
    """

    box: Box
    slowdown: tuple[float, float]
    at_most: float | None
    at_least: float
    better: str
    searches: int


def regret(
    plan: "Plan | str | Path",
    *,
    links: float = 0.0,
    layers: float = 0.0,
    memory: float = 0.0,
    time_limit: float | None = None,
) -> BoxRegret:
    """
    Bound how much slower than the best a plan is where links, layers and memory are wrong by up to some shares.

    Parameters
    ----------
    plan
        A plan, or the file of one.
    links, layers, memory
        Errors either way of the seconds of links, of those of layers, and of bytes, from 0 to below 1.
    time_limit
        Seconds of each search; without it until its gap is small.

    Raises
    ------
    DataError
        If an error is no such share, or the file no plan.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "micro_batch": 4})
    >>> found = taut.regret(plan, links=0.2)
    >>> found.at_least <= found.at_most < 0.2
    True
    """
    read = plan if isinstance(plan, Plan) else Plan.read(plan)
    return box_regret(Points.of(read.typed, read.source, time_limit), Box(links=links, layers=layers, memory=memory))


def box_regret(points: Points, box: Box) -> BoxRegret:
    """
    Bound the regret of a plan in a box of errors.

    ``points``: the plan at other prices; ``box``: errors of every term.
    """
    low, high = box.slowdown
    ends = [low, 1.0, high] if low < 1.0 < high else sorted({low, high})
    found = halved(points, [points.at(x, box.room) for x in ends], MOST_POINTS - len(ends))
    at_most, worst = most(points, found), max(found, key=lambda point: point.seconds / point.best)
    return BoxRegret(
        box=box,
        slowdown=box.slowdown,
        at_most=at_most if math.isfinite(at_most) else None,
        at_least=at_least(found),
        better=worst.candidate if worst.seconds > worst.best * (1 + 1e-9) else "",
        searches=len(found),
    )


def halved(points: Points, found: list[Point], searches: int) -> list[Point]:
    """The points with further ones between them, where R is largest, until it is within the tolerance."""
    for _ in range(searches if len(found) > 1 else 0):
        before, after = max(pairwise(found), key=lambda pair: interval_regret(points.problem, *pair))
        if interval_regret(points.problem, before, after) <= at_least(found) + TOLERANCE:
            break
        middle = points.at(math.sqrt(before.links * after.links), before.memory)
        found = sorted([*found, middle], key=lambda point: point.links)
    return found


def most(points: Points, found: list[Point]) -> float:
    """The largest R of the intervals between points in order, and of the points alone."""
    alone = [_ratio(point.seconds, point.bound) - 1 for point in found]
    return max([0.0, *alone, *(interval_regret(points.problem, *pair) for pair in pairwise(found))])


def at_least(found: list[Point]) -> float:
    """The largest regret that a plan found at one of the points shows."""
    return max([0.0, *(point.seconds / point.best - 1 for point in found)])


def interval_regret(problem: PlanningProblem, before: Point, after: Point) -> float:
    """R[a, b] of (6), infinite where nothing is proven."""
    rising = _ratio(after.seconds, before.bound)
    if before.links == after.links:
        return rising - 1
    if problem.overlap_grad_reduce and len(problem.device_types) > 1:
        return rising - 1
    return min(rising, _ratio(after.links / before.links * before.seconds, after.bound)) - 1


def _ratio(seconds: float, bound: float) -> float:
    return seconds / bound if bound > 0 else math.inf
