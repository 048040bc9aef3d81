"""
What is known of one number of nodes: the best plan that uses all their GPUs, and a lower bound on every such plan.

The search of a number of nodes is that of a plan. It is run with a little work first and four times as much each time
that it is taken up again, so that numbers that cannot win cost little; bounds and plans of earlier runs are kept.
"""

import math
from dataclasses import dataclass, field, replace

from taut.data.cluster import ClusterSpec
from taut.errors import DataError, FieldError
from taut.formulations.problem import PlanningProblem
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.provisioning.goal import Goal
from taut.solver.result import Limits, SearchResult, Status, StoppedBy
from taut.solver.search.search import search

FIRST_WORK, MORE = 4, 4
"""Refinements of the first run, and how many times as many the next one has."""


@dataclass(slots=True)
class NodeCount:
    """
    One number of nodes.

    ``lower_bound_s`` holds for the step time of every plan, infinity where there is none; ``result`` is the search that
    found the best plan, ``bounding`` the one with the best bound; ``is_open`` says whether more work may change what is
    known.
    """

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
    """
    Refuse clusters of which some nodes are not like others; the error names a field and its value.

    Raises ``FieldError`` if nodes or links between them are of several kinds.
    """
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
