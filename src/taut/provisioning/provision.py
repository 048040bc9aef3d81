r"""
The best number of nodes for a goal, with a bound over all of them.

Of a cluster of K equal nodes any k are alike, so that plans on k nodes are those of a smaller cluster. With v(k) the
least value of a plan in time on k nodes (``taut.provisioning.node_count``), LB(k) the search's bound on the step time
there, and w(k) the value that LB(k) has, infinity where LB(k) is past the deadline or there is proven to be no plan,

(1) :math:`w(k) \le v(k)`, so that
(2) :math:`\min_k w(k) \le \min_k v(k) \le V`, with V the value of the best plan in time so far.

The number of nodes with the least w(k) is searched further, the fewest first of equal ones, until none below V is left
to search, (2) has closed to the gap that is good enough, or a limit or an interrupt ends it. Plans use every GPU of
their nodes.
"""

import math
import time
from dataclasses import replace
from typing import Any, NoReturn

from taut.data.load import load_cluster
from taut.errors import InfeasibleError, NothingFoundError
from taut.planning.plan import Plan
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.provisioning.node_count import (
    Goal,
    NodeCount,
    NodeCountPoint,
    Provision,
    bound_of,
    check_alike,
    counts_of,
    steps_of,
    value_of,
)
from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.certificate.node_counts import NAME
from taut.solver.certificate.write import Searched, node_counts_section, plan_document
from taut.solver.result import StoppedBy, relative_gap


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
    spec = load_cluster(request.cluster) if isinstance(request.cluster, str) else request.cluster
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
    """Search numbers of nodes until (2) has closed, or a limit or an interrupt."""
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
    """V and the bound of (2), and the number of nodes to search next."""
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
    return "in time" if goal.in_time(count.step_s) else "not in time yet"
