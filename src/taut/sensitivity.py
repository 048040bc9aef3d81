r"""
A bound on the regret of a plan while prices lie in a box, and how far one may change before another plan wins.

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

How far may one term change before another plan wins? Factors of links, of memory, or of the imbalance of experts are
tried outward from 1, each by a search, until a plan is found that is faster than P by
more than a share e, or the last factor is reached. By (4) links that are x times as slow stand for layers that are x
times as fast.

(7) From 1 to a factor, no plan is faster by more than the largest R of the intervals between, halved where it is loose.
(8) At the factor at which a plan wins, it is named, with its gain 1 - U / T(P).

More memory lets other plans fit; with less than what P takes, the plan itself does not. Where routing is less even, no
plan is faster and none needs less memory, so that between two factors T(P; b) / LB(a) holds as for links.

At one point of the prices the search runs again, with the plan as its first incumbent. Its bound holds for the problem
at these prices, however early it was stopped. Prices are scaled by term:

(9) Links: every rate divided by x, cards and links to hosts included, and every latency times x, so that all
    communication takes x times as long alone. Nothing else changes.
(10) Memory: what a device has for a plan, its capacity less the margin, times y. With a margin of a share m of capacity
    C and g bytes beside it, :math:`y (C (1 - m) - g)` is the same of capacity y C and y g bytes; capacities are rounded
    up to whole KiB and one more, so that no plan is lost by rounding.
(11) Imbalance: the load of the fullest rank's experts over the mean, times z: its products, its exchanges, and what
    they keep in memory. Layers are priced anew, which analytic costs allow and measured ones do not.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec
from taut.data.suggest import one_of
from taut.data.units import GIB, KIB
from taut.errors import DataError, FieldError, TautError
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan
from taut.planning.resolve import wider_costs
from taut.solver.certificate.document import PlanDocument, devices_of, problem_of, strategy_of
from taut.solver.result import Limits
from taut.solver.search.search import search
from taut.solver.simple_plans import priced

RATES = ("intra_bandwidth_gbps", "nic_bandwidth_gbps", "bandwidth_gbps", "host_link_gbytes")
TIMES = ("intra_latency_us", "latency_us")


def at_prices(
    problem: PlanningProblem, *, links: float = 1.0, memory: float = 1.0, imbalance: float = 1.0
) -> PlanningProblem:
    """The problem with links x times as slow, (9), y times the memory, (10), and z times the imbalance, (11)."""
    if memory != 1.0 and not problem.memory.is_sum_of_terms:
        raise DataError("memory: predicted by a trained model, expected no factor of it")
    if imbalance != 1.0:
        problem = _less_even(problem, imbalance)
    cluster = _slower(problem.cluster, links) if links != 1.0 else problem.cluster
    if memory == 1.0:
        return replace(problem, cluster=cluster)
    kept = problem.memory.model_copy(update={"margin_gib": memory * problem.memory.margin_gib})
    return replace(problem, cluster=_larger(cluster, memory), memory=kept)


def prices_imbalance(problem: PlanningProblem) -> bool:
    """Whether layers can be priced anew at another imbalance: those of experts, by the analytic model, (11)."""
    if not problem.model.has_experts:
        return False
    try:
        return wider_costs(problem, None, problem.space.max_tp).digest() == problem.costs.digest()
    except TautError:
        return False


def _less_even(problem: PlanningProblem, factor: float) -> PlanningProblem:
    dispatch = problem.space.dispatch
    uneven = dispatch.model_copy(update={"imbalance": factor * dispatch.imbalance})
    space = problem.space.model_copy(update={"dispatch": uneven})
    asked = replace(problem, space=space)
    return asked.with_costs(wider_costs(asked, None, space.max_tp))


def _slower(cluster: ClusterSpec, factor: float) -> ClusterSpec:
    values = cluster.model_dump(mode="json")
    devices = [node["device"] for node in values["nodes"]]
    for described in (*values["nodes"], *devices, values["network"], *values["network"]["racks"]):
        for name in RATES:
            if described.get(name) is not None:
                described[name] /= factor
        for name in TIMES:
            if described.get(name) is not None:
                described[name] *= factor
    if (rates := values["bandwidth_matrix"]) is not None:
        rates["rows"] = [[entry / factor for entry in row] for row in rates["rows"]]
    if (times := values["latency_matrix"]) is not None:
        times["rows_us"] = [[entry * factor for entry in row] for row in times["rows_us"]]
    return ClusterSpec.parse(values, "links at another rate")


def _larger(cluster: ClusterSpec, factor: float) -> ClusterSpec:
    values = cluster.model_dump(mode="json")
    for node in values["nodes"]:
        kib = math.ceil(node["device"]["memory_gib"] * factor * GIB / KIB) + 1
        node["device"]["memory_gib"] = kib * KIB / GIB
    return ClusterSpec.parse(values, "another memory")


GAP = 1e-4
"""Gap at which a search stops: a hundredth of a per cent, a fifth of what the least published spread of runs is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """
    Seconds of the plan, the least proven and found ones, and whose these are, at factors of the terms.

    ``seconds`` are infinite where the plan does not fit, ``bound`` 0 where nothing is proven.
    """

    links: float
    memory: float
    imbalance: float
    seconds: float
    bound: float
    best: float
    candidate: str


@dataclass
class Points:
    """The points of a plan that were asked for, each searched once; ``tell`` hears what is searched next."""

    problem: PlanningProblem
    strategy: Strategy
    devices: Ints
    time_limit: float | None = None
    tell: Callable[[str], None] | None = None
    known: dict[tuple[float, float, float], Point] = field(default_factory=dict)

    @classmethod
    def of(
        cls, plan: PlanDocument, source: str, time_limit: float | None, tell: Callable[[str], None] | None = None
    ) -> "Points":
        """The points of a plan's document."""
        strategy, devices = strategy_of(plan.strategy, source), devices_of(plan, source)
        return cls(problem_of(plan, source), strategy, devices, time_limit, tell)

    def at(self, links: float = 1.0, memory: float = 1.0, imbalance: float = 1.0) -> Point:
        """The point at these factors."""
        key = (links, memory, imbalance)
        if key not in self.known:
            if self.tell is not None:
                uneven = f", {imbalance:.4g} times the imbalance" if imbalance != 1.0 else ""
                self.tell(f"searching with links {links:.4g} times as slow, {memory:.4g} times the memory{uneven}")
            self.known[key] = self._searched(links, memory, imbalance)
        return self.known[key]

    def _searched(self, links: float, memory: float, imbalance: float) -> Point:
        problem = at_prices(self.problem, links=links, memory=memory, imbalance=imbalance)
        own = priced(problem, self.strategy, self.devices)
        limits = Limits(time_limit=self.time_limit, gap=GAP)
        found = search(problem, limits, incumbent=own)
        best = found.incumbent
        return Point(
            links=links,
            memory=memory,
            imbalance=imbalance,
            seconds=math.inf if own is None else own.seconds,
            bound=max(found.lower_bound, 0.0),
            best=math.inf if best is None else best.seconds,
            candidate="" if best is None else str(best.strategy.candidate),
        )


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
        """Errors as a command line states them, such as ``links=0.2,layers=0.05``."""
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
    """The regret in a box: at most (6), None where nothing is proven, and at least that of the plan ``better``."""

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
    """Bound the regret of a plan in a box of errors."""
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
    """A factor of a term: seconds of the plan and the best, regret from 1 to here (None: no bound), and who wins."""

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
    """Factors of links either way, of memory and of imbalance upward, as far as until another plan wins."""
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
    """The regret from one factor to another, (7)."""
    if one.memory != other.memory:
        return most(points, [other])
    if one.imbalance != other.imbalance:
        return interval_regret(points.problem, one, other)
    ends = sorted((one, other), key=lambda point: point.links)
    return most(points, halved(points, ends, HALVINGS))
