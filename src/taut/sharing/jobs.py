"""``taut.jobs``: many jobs on one cluster, with a bound on every schedule."""

import time
from collections.abc import Mapping
from math import inf
from typing import Any

from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.jobs import JobTrace, load_jobs
from taut.data.load import Name, load_cluster
from taut.data.memory import MemoryModel
from taut.data.stack import Stack
from taut.data.suggest import one_of
from taut.errors import FieldError, InfeasibleError
from taut.formulations.jobs.problem import OBJECTIVES, Objective
from taut.sharing.columns import PLANS, Told
from taut.sharing.instance import Instance, instance
from taut.sharing.result import JobsSchedule
from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.jobs.bounds import lower_bound
from taut.solver.jobs.simulate import Failures
from taut.solver.jobs.solve import NAMES, solve_jobs


def jobs(
    trace: Name | Mapping[str, Any] | JobTrace,
    cluster: Name | Mapping[str, Any] | ClusterSpec,
    *,
    policy: str = "cp-sat",
    objective: str = "deadlines",
    plans: str = "best",
    prices: Mapping[str, float] | None = None,
    stack: Name | Stack | None = None,
    calibration: Name | Calibration | None = None,
    memory_model: Name | MemoryModel | None = None,
    time_limit: float | None = 60.0,
    rounds: int | None = None,
    seed: int = 0,
    restart_s: float | None = None,
    workers: int = 1,
    processes: int | None = None,
    failures: Failures | None = None,
    progress: Listener | None = None,
    told: Told | None = None,
) -> JobsSchedule:
    """
    Schedule many jobs on one cluster.

    Parameters
    ----------
    trace
        A YAML or CSV file, or plain values (``taut.data.jobs``).
    cluster
        As for ``taut.plan``.
    policy
        ``cp-sat`` or ``cbc``, the best of everything; ``annealing``; or a cluster scheduler from its paper,
        ``elasticflow``, ``fair-share``, ``first-come`` or ``shortest-first``; or ``rolling``, the integer program of
        what has arrived at every event.
    objective
        ``deadlines``, ``completion``, ``makespan`` or ``cost``.
    plans
        ``best``, the best plan at every number of GPUs; or ``data-parallel``, the least tensor and pipeline degrees.
    prices
        Dollars of a GPU hour by device type.
    stack, calibration, memory_model
        By which plans are priced, as for ``taut.plan``.
    time_limit
        Seconds of the schedule, without those of plans, None for no limit; the bound comes on top, and takes less.
    rounds
        Rounds of annealing, after which it ends whatever the time; then the schedule depends on the seed alone.
    seed, workers
        Of random moves; threads of CP-SAT.
    restart_s
        Seconds of every start; those of the trace without it.
    processes
        Plans that are made at the same time; one a core by default.
    failures
        Failures of nodes, for policies from papers.
    progress, told
        Called with a ``Progress``, its ``incumbent`` the value; and with words while columns are planned.

    Raises
    ------
    DataError
        If an input is wrong.
    InfeasibleError
        If a job fits nowhere and all are to be completed.

    Examples
    --------
    >>> import taut
    >>> work = {"steps": 3600, "rates": {8: 1.0, 16: 1.8}}
    >>> trace = {"jobs": [{"name": "a", **work}, {"name": "b", **work}]}
    >>> found = taut.jobs(trace, "dgx-a100:2", objective="makespan", policy="first-come")
    >>> found.value, round(found.lower_bound)
    (4000.0, 3600)
    """
    kind = _checked(policy, objective, plans, time_limit)
    stated = instance(
        _trace(trace, restart_s),
        cluster if isinstance(cluster, ClusterSpec) else load_cluster(cluster),
        plans="best" if plans == "best" else "data-parallel",
        prices=prices,
        pricing={"stack": stack, "calibration": calibration, "memory_model": memory_model},
        processes=processes,
        told=told,
    )
    _check_feasible(stated, kind)
    began = time.perf_counter()

    def better(value: float, by: str) -> None:
        if progress is not None:
            progress(Progress(time.perf_counter() - began, value, -inf, by))

    with interrupt_requested() as interrupted:
        # The bound of completions needs to know when a schedule ends; of the others it ends the search early.
        first = None if kind == "completion" else lower_bound(stated.bounding, kind)
        found = solve_jobs(
            stated.problem,
            kind,
            policy,
            time_limit=time_limit,
            seed=seed,
            workers=workers,
            rounds=rounds,
            failures=failures,
            target=0.0 if first is None else first.value,
            stop=interrupted,
            told=better,
        )
        ends = [segment.end for segment in found.schedule]
        bound = first or lower_bound(stated.bounding, kind, horizon=max(ends, default=None))
    wall = time.perf_counter() - began
    return JobsSchedule(instance=stated, objective=kind, policy=policy, found=found, bound=bound, wall_s=wall)


def _checked(policy: str, objective: str, plans: str, time_limit: float | None) -> Objective:
    """Refuse wrong words."""
    if policy not in NAMES:
        raise FieldError("policy", policy, f"expected {one_of(policy, NAMES)}")
    if plans not in PLANS:
        raise FieldError("plans", plans, f"expected {one_of(plans, PLANS)}")
    if time_limit is not None and not time_limit > 0:
        raise FieldError("time_limit", f"{time_limit:g}", "expected a number above 0")
    for known in OBJECTIVES:
        if known == objective:
            return known
    raise FieldError("objective", objective, f"expected {one_of(objective, OBJECTIVES)}")


def _trace(trace: Name | Mapping[str, Any] | JobTrace, restart_s: float | None) -> JobTrace:
    """The trace, with the seconds of every start where they are given."""
    given = load_jobs(trace)
    if restart_s is None:
        return given
    return JobTrace.parse({**dict(given), "restart_s": float(restart_s)}, "restart_s")


def _check_feasible(stated: Instance, objective: Objective) -> None:
    """Refuse a job that fits nowhere where every job is to be completed."""
    for number, seconds in enumerate(stated.problem.least_seconds.tolist()):
        if seconds == inf and objective != "deadlines":
            name = stated.trace.jobs[number].name
            raise InfeasibleError(f"job {name}: has no plan on any number of GPUs of {stated.cluster.name}")
