r"""
What is known of one number of nodes: the best plan that uses all their GPUs, and a lower bound on every such plan.

The search of a number of nodes is that of a plan. It is run with a little work first and four times as much each time
that it is taken up again, so that numbers that cannot win cost little; bounds and plans of earlier runs are kept.

The goal says what a step time is worth. Training takes S steps. With n GPUs, t seconds a
step and q dollars an hour of a GPU,

(1) days = S t / 86,400, dollars = q n S t / 3,600;
(2) a plan is in time if its days are at most the deadline's.

The value of a plan is its seconds a step, its dollars, or its GPUs. Each of them grows with t at a fixed n, or does not
change, so a lower bound on t gives one on the value; and where a lower bound on t is past the deadline, every plan is.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.data.suggest import one_of
from taut.errors import DataError, FieldError
from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.result import Limits, SearchResult, Status, StoppedBy, relative_gap
from taut.solver.search.search import search
from taut.words import percent, text_table

OBJECTIVES = ("time", "cost", "gpus")
SECONDS_A_DAY, SECONDS_AN_HOUR = 86_400.0, 3_600.0
ROUNDING = 1e-12
"""Days are sums of floats: so much over the deadline is in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is asked: ``time``, ``cost`` or ``gpus``, with steps, dollars an hour of a GPU, and days at most."""

    objective: str
    steps: int | None = None
    price: float | None = None
    deadline_days: float | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise FieldError("objective", self.objective, f"expected {one_of(self.objective, OBJECTIVES)}")
        for name in ("price", "deadline_days"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise FieldError(name, f"{value:g}", "expected a number above 0")
        if self.objective == "cost" and self.price is None:
            raise FieldError("price", None, "missing, expected dollars an hour of a GPU with objective cost")
        if self.objective == "gpus" and self.deadline_days is None:
            raise FieldError("deadline_days", None, "missing, expected days with objective gpus")
        if self.steps is None and (self.objective == "cost" or self.deadline_days is not None):
            raise FieldError("tokens", None, "missing, expected tokens or steps of the training")

    def days(self, step_s: float) -> float | None:
        """Days of the training, (1); None where its steps are not said."""
        return None if self.steps is None else self.steps * step_s / SECONDS_A_DAY

    def dollars(self, gpus: int, step_s: float) -> float | None:
        """Dollars of the training, (1); None where steps or price are not said."""
        if self.steps is None or self.price is None:
            return None
        return self.price * gpus * self.steps * step_s / SECONDS_AN_HOUR

    def in_time(self, step_s: float) -> bool:
        """Whether so many seconds a step are in time, (2)."""
        days = self.days(step_s)
        return self.deadline_days is None or days is None or days <= self.deadline_days * (1 + ROUNDING)

    def value(self, gpus: int, step_s: float) -> float:
        """What is to be small."""
        if self.objective == "cost":
            return self.dollars(gpus, step_s) or 0.0
        return float(gpus) if self.objective == "gpus" else step_s


def steps_of(tokens: float | None, steps: int | None, tokens_a_step: int) -> int | None:
    """Steps of a training, from its steps or its tokens."""
    if tokens is not None and steps is not None:
        raise FieldError("steps", str(steps), "given together with tokens, expected one of them")
    for name, value in (("tokens", tokens), ("steps", steps)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise FieldError(name, f"{value:g}", "expected a number above 0")
    return steps if tokens is None else math.ceil(tokens / tokens_a_step)


FIRST_WORK, MORE = 4, 4
"""Refinements of the first run, and how many times as many the next one has."""


@dataclass(slots=True)
class NodeCount:
    """One number of nodes: the search of the best plan and of the best bound (seconds), and whether work may help."""

    nodes: int
    gpus: int
    request: PlanRequest
    lower_bound_s: float = 0.0
    step_s: float = math.inf
    is_open: bool = True
    work: int = 0
    problem: PlanningProblem | None = None
    result: SearchResult | None = None
    bounding: SearchResult | None = None
    complaint: DataError | None = None
    limits: Limits = field(default_factory=Limits)

    def refine(self, time_left: float | None) -> StoppedBy | None:
        """Search once more, with more work; why the search stopped, None where there is nothing to search."""
        self.work = min(max(MORE * self.work, FIRST_WORK), self.request.work_limit or 10**9)
        self.pose()
        if self.problem is None:
            return None
        self.limits = replace(self.request.limits, work_limit=self.work, time_limit=time_left)
        found = search(self.problem, self.limits)
        self._take(found)
        return found.stopped_by

    def pose(self) -> None:
        """State the problem, unless that was done; where no candidate uses so many nodes, there is no plan."""
        if self.problem is not None or self.complaint is not None:
            return
        try:
            self.problem = planning_problem(self.request)
        except DataError as error:
            self.complaint, self.lower_bound_s, self.is_open = error, math.inf, False

    def _take(self, found: SearchResult) -> None:
        if self.bounding is None or found.lower_bound >= self.bounding.lower_bound:
            self.bounding = found
        self.lower_bound_s = max(self.lower_bound_s, found.lower_bound)
        if found.status is Status.INFEASIBLE:
            self.lower_bound_s = math.inf
        if found.incumbent is not None and found.incumbent.seconds < self.step_s:
            self.step_s, self.result = found.incumbent.seconds, found
        self.is_open = found.stopped_by is StoppedBy.WORK and self.work < (self.request.work_limit or 10**9)


def bound_of(count: NodeCount, goal: Goal) -> float:
    """Lower bound on the value of every plan in time on so many nodes; infinity where there is proven to be none."""
    if math.isinf(count.lower_bound_s) or not goal.in_time(count.lower_bound_s):
        return math.inf
    return goal.value(count.gpus, count.lower_bound_s)


def value_of(count: NodeCount, goal: Goal) -> float:
    """Value of the plan on so many nodes; infinity where there is none in time."""
    if math.isinf(count.step_s) or not goal.in_time(count.step_s):
        return math.inf
    return goal.value(count.gpus, count.step_s)


def check_alike(cluster: ClusterSpec, field: str, value: str) -> None:
    """Refuse clusters of which some nodes are not like others; the error names a field and its value."""
    measured = cluster.bandwidth_matrix is not None or cluster.latency_matrix is not None
    racks = cluster.network is not None and bool(cluster.network.racks)
    if len(cluster.nodes) != 1 or measured or racks:
        reason = f"chooses among equal nodes, and {cluster.name} has nodes, links or racks of several kinds"
        raise FieldError(field, value, f"{reason}, expected a cluster of one kind")


def counts_of(request: PlanRequest, cluster: ClusterSpec) -> list[NodeCount]:
    """One for each number of nodes of a cluster of equal nodes."""
    group = cluster.nodes[0]

    def with_nodes(nodes: int) -> PlanRequest:
        base = cluster.name.removesuffix(f":{cluster.num_nodes}")
        fewer = {"name": f"{base}:{nodes}", "nodes": [group.model_copy(update={"count": nodes})]}
        part = cluster.model_copy(update=fewer)
        return request.model_copy(update={"cluster": part if nodes < cluster.num_nodes else cluster})

    counts = range(1, cluster.num_nodes + 1)
    return [NodeCount(nodes, nodes * group.gpus_per_node, with_nodes(nodes)) for nodes in counts]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCountPoint:
    """
    One number of nodes.

    ``step_time_s`` is that of the plan, None where none was found; ``lower_bound_s`` holds for every plan on so many
    nodes, 0 where none was searched, None where there is proven to be no plan. ``state`` is ``in time``, ``too slow``
    or ``infeasible`` (both proven), ``no candidate``, ``unknown``, or ``not in time yet`` where the plan is too slow
    and its bound is not.
    """

    nodes: int
    gpus: int
    step_time_s: float | None
    lower_bound_s: float | None
    days: float | None
    dollars: float | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """
    The best number of nodes for a goal.

    ``value`` is seconds a step, dollars or GPUs of ``plan``; no plan in time on any number of the nodes has a value
    below ``lower_bound``.
    """

    goal: Goal
    value: float
    lower_bound: float
    plan: Plan
    points: tuple[NodeCountPoint, ...]

    @property
    def gap(self) -> float | None:
        """Relative distance of the value from the bound."""
        return relative_gap(self.value, self.lower_bound)

    @property
    def nodes(self) -> int:
        """Nodes of the plan."""
        return self.plan.cluster_spec.num_nodes

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the plan."""
        goal = self.goal
        asked = {name: getattr(goal, name) for name in ("objective", "steps", "price", "deadline_days")}
        found = {"nodes": self.nodes, "value": self.value, "lower_bound": self.lower_bound, "gap": self.gap}
        names = NodeCountPoint.__annotations__
        return asked | found | {"node_counts": [{name: getattr(each, name) for name in names} for each in self.points]}

    def __str__(self) -> str:
        """The goal, a line for each number of nodes that is best at something, and the best one."""
        best = next(point for point in self.points if point.nodes == self.nodes)
        goal, unit = self.goal, {"time": " s a step", "cost": " dollars", "gpus": " GPUs"}[self.goal.objective]
        wanted = f"objective   {goal.objective}" + ("" if goal.steps is None else f", {goal.steps:,} steps")
        wanted += "" if goal.price is None else f", $ {goal.price:g} an hour of a GPU"
        wanted += "" if goal.deadline_days is None else f", at most {goal.deadline_days:g} days"
        proven = f"{self.lower_bound:,.6g} on 1 to {len(self.points)} nodes"
        found = f"best        {best.nodes} nodes, {best.gpus} GPUs: {self.value:,.6g}{unit}"
        lines = [
            wanted,
            found,
            f"bound       {proven}, gap {percent(self.gap, places=2)}",
            "",
            text_table(self._lines()),
        ]
        return "\n".join(lines)

    def _lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = [("nodes", "GPUs", "seconds", "bound", "days", "dollars", "")]
        for each in self.points:
            seconds = [f"{value:.6g}" if value else "-" for value in (each.step_time_s, each.lower_bound_s)]
            days = "-" if each.days is None else f"{each.days:.2f}"
            dollars = "-" if each.dollars is None else f"{each.dollars:,.0f}"
            mark = "best" if each.nodes == self.nodes else each.state
            lines.append((str(each.nodes), str(each.gpus), *seconds, days, dollars, mark))
        return lines
