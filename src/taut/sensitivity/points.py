r"""
A plan and the best one at one point of the prices: the search runs again, with the plan as its first incumbent.

Its bound holds for the problem at these prices, however early it was stopped.

Prices are scaled by term:

(1) Links: every rate divided by x, cards and links to hosts included, and every latency times x, so that all
    communication takes x times as long alone. Nothing else changes.
(2) Memory: what a device has for a plan, its capacity less the margin, times y. With a margin of a share m of capacity
    C and g bytes beside it, :math:`y (C (1 - m) - g)` is the same of capacity y C and y g bytes; capacities are rounded
    up to whole KiB and one more, so that no plan is lost by rounding.
(3) Imbalance: the load of the fullest rank's experts over the mean, times z: its products, its exchanges, and what they
    keep in memory. Layers are priced anew, which analytic costs allow and measured ones do not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec
from taut.data.units import GIB, KIB
from taut.errors import DataError, TautError
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
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
    """The problem with links x times as slow, (1), y times the memory, (2), and z times the imbalance, (3)."""
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
    """Whether layers can be priced anew at another imbalance: those of experts, by the analytic model, (3)."""
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
