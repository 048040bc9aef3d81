r"""
Step time against the memory limit of a device: the frontier by epsilon constraints.

Sets: plans p of a planning problem. Data: step time :math:`T_p` in seconds, and :math:`u_p`, the least memory limit
in KiB that plan p fits (``taut.frontier.memory_limits``). For a limit M on every device,

(1) T(M) = min of T_p over the plans with u_p <= M.

T does not rise with M, and falls at some u_p alone; ``taut.frontier.limit_sweep`` searches limits with what that
implies for plans and bounds, and ``taut.frontier.frontier`` says what the searches tell of all limits between.

Source: Haimes, Lasdon, Wismer, On a bicriterion formulation of the problems of integrated system identification and
system optimization, IEEE Trans. Systems, Man, and Cybernetics 1 (1971).
"""

from collections.abc import Iterable
from typing import Any, Unpack, overload

from taut.data.units import GIB
from taut.errors import InfeasibleError, NothingFoundError, TautError
from taut.formulations.problem import PlanningProblem
from taut.frontier.frontier import Frontier, FrontierPoint
from taut.frontier.limit_sweep import Sweep
from taut.frontier.memory_limits import checked_limits, gib_of, least_limit, rounded_up, spaced_limits
from taut.planning.options import PlanOptions
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.planning.resolve import planning_problem
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.result import Limits, Status

POINTS = 8


@overload
def pareto(
    model: PlanRequest,
    /,
    *,
    limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Listener | None = None,
) -> Frontier: ...
@overload
def pareto(
    model: ModelInput,
    cluster: ClusterInput,
    *,
    limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Listener | None = None,
    **options: Unpack[PlanOptions],
) -> Frontier: ...
def pareto(
    model: ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Listener | None = None,
    **options: Any,
) -> Frontier:
    """
    Least step time, with its bound, at several memory limits.

    Parameters
    ----------
    model, cluster, **options
        As for ``taut.plan``, or a ``PlanRequest`` alone; when to stop holds for the search at each limit.
    limits
        GiB that a device may have; a device with less keeps what it has.
    points
        Without ``limits``: how many, evenly from the least that holds a plan to the capacity; None for the whole
        frontier, every plan on it.
    progress
        As for ``taut.plan``.

    Returns
    -------
    Frontier
        The points in ascending order of their limits, each with its plan and bound.

    Raises
    ------
    DataError
        If an input is wrong or no candidate exists.
    InfeasibleError
        If no plan fits any of the limits.
    NothingFoundError
        If the searches were stopped before the first plan.

    Examples
    --------
    >>> import taut
    >>> found = taut.pareto("gpt2-345m", "dgx-a100", global_batch=32, limits=[10, 80], fix={"pp": 1, "tp": 1})
    >>> [(point.limit_gib, point.plan.strategy.micro_batch) for point in found.points]
    [(10.0, 4), (80.0, 4)]
    """
    request = request_of(model, cluster, options)
    problem = planning_problem(request)
    return frontier_of(problem, request.limits, memory_limits=limits, points=points, progress=progress)


def frontier_of(
    problem: PlanningProblem,
    limits: Limits,
    *,
    memory_limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Listener | None = None,
) -> Frontier:
    """
    The frontier of a planning problem; ``limits`` stop each search, the rest is as for ``pareto``.

    Raises ``DataError`` if the memory limits or their number are out of range. Raises ``InfeasibleError,
    NothingFoundError``: as ``pareto`` does.
    """
    given = None if memory_limits is None else checked_limits(memory_limits)
    sweep = Sweep(problem, least_limit(problem), limits, progress)
    if given is None and points is not None:
        given = spaced_limits(sweep.least.limit_kib, max(problem.capacity_kib), points)
    found = sweep.run(given)
    if all(point.plan is None for point in found):
        raise _nothing(sweep, found)
    return _frontier(sweep, found)


def _frontier(sweep: Sweep, points: list[FrontierPoint]) -> Frontier:
    problem = sweep.problem
    return Frontier(
        model=problem.model.name,
        cluster=problem.cluster.name,
        global_batch=problem.space.global_batch,
        tokens_per_step=problem.space.global_batch * problem.model.tokens,
        latency_model=problem.latency_model,
        margin=problem.memory.margin,
        capacity_gib=gib_of(max(problem.capacity_kib)),
        least_gib=gib_of(sweep.least.limit_kib),
        leanest=sweep.least.leanest,
        points=tuple(points),
        interrupted=sweep.interrupted,
    )


def _nothing(sweep: Sweep, points: list[FrontierPoint]) -> TautError:
    """Why there is no plan at any limit: proven, or not found."""
    if not points or any(point.status is not Status.INFEASIBLE for point in points):
        return NothingFoundError("no plan found at any limit: the searches were stopped before the first one")
    largest, least = points[-1], gib_of(sweep.least.limit_kib)
    has = gib_of(max(sweep.problem.capacity_kib))
    needed = rounded_up(least)
    way = f"a limit of {needed} GiB" if least <= has else f"devices with {needed} GiB instead of {has:g} GiB"
    return InfeasibleError(
        f"no plan fits any limit: the largest, {largest.limit_gib:g} GiB, lacks {largest.missing_bytes / GIB:.2f} "
        f"GiB ({largest.missing_bytes} bytes) for the leanest, {sweep.least.leanest}; nearest way out: {way}",
        {
            "status": "infeasible",
            "least_gib": least,
            "leanest": sweep.least.leanest,
            "points": [point.as_dict() for point in points],
        },
    )
