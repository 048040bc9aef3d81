r"""
How many nodes to train on: the cheapest, the fewest or the fastest, with a bound over all numbers of nodes.

``provision`` is the entry. The search of a number of nodes is that of a plan. It is run with a little work first and
four times as much each time that it is taken up again, so that numbers that cannot win cost little; bounds and plans of
earlier runs are kept.

The goal says what a step time is worth. Training takes S steps. With n GPUs, t seconds a step and q dollars an hour of
a GPU,

(1) days = S t / 86,400, dollars = q n S t / 3,600;
(2) a plan is in time if its days are at most the deadline's.

The value of a plan is its seconds a step, its dollars, or its GPUs. Each of them grows with t at a fixed n, or does not
change, so a lower bound on t gives one on the value; and where a lower bound on t is past the deadline, every plan is.

Of a cluster of K equal nodes any k are alike, so that plans on k nodes are those of a smaller cluster. With v(k) the
least value of a plan in time on k nodes, LB(k) the search's bound on the step time there, and w(k) the value that LB(k)
has, infinity where LB(k) is past the deadline or there is proven to be no plan,

(3) :math:`w(k) \le v(k)`, so that
(4) :math:`\min_k w(k) \le \min_k v(k) \le V`, with V the value of the best plan in time so far.

The number of nodes with the least w(k) is searched further, the fewest first of equal ones, until none below V is left
to search, (4) has closed to the gap that is good enough, or a limit or an interrupt ends it. Plans use every GPU of
their nodes.
"""

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from taut.data.cluster import ClusterSpec
from taut.data.suggest import one_of
from taut.errors import DataError, FieldError, InfeasibleError, NothingFoundError
from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.planning.resolve import planning_problem
from taut.solver.branch_and_bound.stop import Listener, Progress
from taut.solver.certificate.node_counts import NAME
from taut.solver.certificate.write import Searched, node_counts_section, plan_document
from taut.solver.result import Limits, SearchResult, Status, StoppedBy, relative_gap
from taut.solver.search.search import search
from taut.solver.signals import cut_short
from taut.words import percent, text_table

OBJECTIVES = ("time", "cost", "gpus")
SECONDS_A_DAY, SECONDS_AN_HOUR = 86_400.0, 3_600.0
ROUNDING = 1e-12
"""Days are sums of floats: so much over the deadline is in time."""
IN_TIME = "in time"


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
    is_open: bool = True
    work: int = 0
    problem: PlanningProblem | None = None
    result: SearchResult | None = None
    bounding: SearchResult | None = None
    complaint: DataError | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def step_s(self) -> float:
        """Seconds of the best plan, infinite without one."""
        return math.inf if self.result is None or self.result.incumbent is None else self.result.incumbent.seconds

    def refine(self, time_left: float | None) -> StoppedBy | None:
        """Search once more, with more work; why the search stopped, None where there is nothing to search."""
        self.work = min(max(MORE * self.work, FIRST_WORK), self.request.work_limit or 10**9)
        self.pose()
        if self.problem is None:
            return None
        self.limits = replace(self.request.limits, work_limit=self.work, time_limit=time_left)
        found = None
        with cut_short():
            found = search(self.problem, self.limits)
        if found is None:
            return StoppedBy.INTERRUPT
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
            self.result = found
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
        counts = f"1 to {len(self.points)} nodes" if len(self.points) > 1 else "1 node"
        proven = f"{self.lower_bound:,.6g} on {counts}"
        found = f"best        {best.nodes} node{'s' * (best.nodes > 1)}, {best.gpus} GPUs: {self.value:,.6g}{unit}"
        lines = [wanted, found, f"bound       {proven}, gap {percent(self.gap, places=2)}"]
        if not self.lower_bound:
            left = sum(point.lower_bound_s == 0 for point in self.points)
            lines.append(f"            {left} of these numbers were not searched; a longer --time-limit goes on")
        lines += ["", text_table(self._lines())]
        return "\n".join(lines)

    def _lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = [("nodes", "GPUs", "seconds", "bound", "days", "dollars", "")]
        for each in self.points:
            seconds = [f"{value:.6g}" if value else "-" for value in (each.step_time_s, each.lower_bound_s)]
            days = "-" if each.days is None else f"{each.days:.2f}"
            dollars = "-" if each.dollars is None else f"{each.dollars:,.0f}"
            idle = each.state == IN_TIME and self.goal.deadline_days is None
            mark = "best" if each.nodes == self.nodes else "" if idle else each.state
            lines.append((str(each.nodes), str(each.gpus), *seconds, days, dollars, mark))
        return lines


def provision(
    model: ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    objective: str = "cost",
    tokens: float | None = None,
    steps: int | None = None,
    price: float | None = None,
    deadline_days: float | None = None,
    progress: Listener | None = None,
    **options: Any,
) -> Provision:
    """
    Choose how many nodes of a cluster to train on.

    Parameters
    ----------
    model, cluster, **options
        As for ``taut.plan``, or a ``PlanRequest`` alone; the cluster's nodes are the most that may be used. The time
        limit holds for all numbers of nodes together, the work limit for each.
    objective
        ``cost``, the dollars of the training; ``gpus``, the fewest GPUs; or ``time``, seconds a step.
    tokens, steps
        Length of the training, one of the two.
    price
        Dollars an hour of a GPU.
    deadline_days
        Days that the training may take.
    progress
        Called with a ``Progress``: ``wall_s``, ``incumbent`` (the value), ``lower_bound``, and the nodes in ``doing``.

    Returns
    -------
    Provision
        The best plan of all, its value, a bound on it, and what is known of every number of nodes.

    Raises
    ------
    DataError
        If an input is wrong, or the cluster's nodes are not alike.
    InfeasibleError
        If no number of nodes has a plan in time.
    NothingFoundError
        If a limit or an interrupt came before the first plan in time.

    Examples
    --------
    >>> import taut
    >>> fix = {"tp": 1, "pp": 1, "micro_batch": 1}
    >>> found = taut.provision("gpt2-345m", "dgx-a100:2", global_batch=64, steps=1000, price=2, fix=fix)
    >>> found.nodes, found.gap < 1e-6
    (1, True)
    """
    request = request_of(model, cluster, options)
    spec = request.cluster_spec
    check_alike(spec, "objective", objective)
    counts = counts_of(request, spec)
    length = steps_of(tokens, steps, _tokens_a_step(counts))
    goal = Goal(objective=objective, steps=length, price=price, deadline_days=deadline_days)
    _search(counts, goal, request, progress)
    return _result(counts, goal, request)


def _tokens_a_step(counts: list[NodeCount]) -> int:
    """Sequences of a step times their tokens, from the first number of nodes that states a problem."""
    for count in reversed(counts):
        count.pose()
        if count.problem is not None:
            return count.request.global_batch * count.problem.model.blocks[0].seq
    raise counts[-1].complaint or InfeasibleError("no plan")


def _search(counts: list[NodeCount], goal: Goal, request: PlanRequest, progress: Listener | None) -> None:
    """Search numbers of nodes until (4) has closed, or a limit or an interrupt."""
    begin = time.monotonic()
    while True:
        best, bound, chosen = _standing(counts, goal)
        gap = relative_gap(best, bound)
        spent = time.monotonic() - begin
        left = None if request.time_limit is None else request.time_limit - spent
        if chosen is None or (gap is not None and gap <= request.limits.gap) or (left is not None and left <= 0):
            return
        stopped = chosen.refine(left)
        if progress is not None:
            best, bound, _ = _standing(counts, goal)
            progress(Progress(time.monotonic() - begin, best, bound, f"{chosen.nodes} nodes"))
        if stopped is StoppedBy.INTERRUPT:
            return


def _standing(counts: list[NodeCount], goal: Goal) -> tuple[float, float, NodeCount | None]:
    """V and the bound of (4), and the number of nodes to search next."""
    best = min(value_of(count, goal) for count in counts)
    bounds = {count.nodes: bound_of(count, goal) for count in counts}
    searched = [count for count in counts if count.is_open and bounds[count.nodes] < best]
    chosen = min(searched, key=lambda count: (bounds[count.nodes], count.nodes), default=None)
    return best, min(best, *bounds.values()), chosen


def _result(counts: list[NodeCount], goal: Goal, request: PlanRequest) -> Provision:
    best, bound, _ = _standing(counts, goal)
    if math.isinf(best):
        _refuse(counts, goal, bound)
    chosen = min(counts, key=lambda count: (value_of(count, goal), count.step_s))
    assert chosen.problem is not None and chosen.result is not None
    # The work of a turn is no limit of the user's.
    limits = replace(chosen.limits, work_limit=request.work_limit)
    document = plan_document(chosen.problem, chosen.result, limits)
    searched = [Searched(each.nodes, each.lower_bound_s, each.problem, each.bounding) for each in counts]
    asked = {name: getattr(goal, name) for name in ("objective", "steps", "price", "deadline_days")}
    plan = Plan(document | {NAME: node_counts_section(asked, document, chosen.nodes, searched)})
    points = tuple(_point(count, goal) for count in counts)
    return Provision(goal=goal, value=best, lower_bound=bound, plan=plan, points=points)


def _refuse(counts: list[NodeCount], goal: Goal, bound: float) -> NoReturn:
    """Say why there is no plan in time."""
    if math.isfinite(bound):
        raise NothingFoundError("no plan in time found on any number of nodes before the limit or the interrupt")
    least = min(count.lower_bound_s for count in counts)
    if math.isinf(least):
        raise InfeasibleError(f"no plan fits the memory on 1 to {counts[-1].nodes} nodes")
    fastest = min(counts, key=lambda count: count.lower_bound_s)
    days = f"{goal.days(fastest.lower_bound_s):.4g} days on {fastest.nodes} nodes"
    raise InfeasibleError(f"no plan ends in {goal.deadline_days:g} days: at best {days} are possible")


def _point(count: NodeCount, goal: Goal) -> NodeCountPoint:
    found, bounded = math.isfinite(count.step_s), math.isfinite(count.lower_bound_s)
    return NodeCountPoint(
        nodes=count.nodes,
        gpus=count.gpus,
        step_time_s=count.step_s if found else None,
        lower_bound_s=count.lower_bound_s if bounded else None,
        days=goal.days(count.step_s) if found else None,
        dollars=goal.dollars(count.gpus, count.step_s) if found else None,
        state=_state(count, goal),
    )


def _state(count: NodeCount, goal: Goal) -> str:
    if math.isinf(count.lower_bound_s):
        return "no candidate" if count.complaint is not None else "infeasible"
    if not goal.in_time(count.lower_bound_s):
        return "too slow"
    if math.isinf(count.step_s):
        return "unknown"
    return IN_TIME if goal.in_time(count.step_s) else "not in time yet"
