"""
The problem of many jobs on one cluster, from a trace, a cluster and columns.

Every kind of node of the cluster is a pool. A job's configurations are its columns on the pools of the device types
that it allows, at the numbers of GPUs that it allows; a job with measured ``rates`` has those, on every such pool.

A column is the best plan of a kind of job at a number of GPUs, computed once. A kind of job is a model with sequence
and global batch, on one kind of node. For each number of GPUs

(1) the best plan of ``taut.plan`` on that many GPUs of the kind, with its proven bound on the step time; or
(2) with plans ``data-parallel`` the best one with the least tensor and pipeline degrees, tensor first within a node, at
    which one replica fits, with ZeRO up to 1: what a scheduler that scales data parallelism alone has.

The rate is 1 / step time, and no plan of the space is faster than 1 / lower bound. What does not fit has no column.
Results are kept in the user's cache folder, ``TAUT_CACHE`` names another, so another run, or one after a kill, plans
only what is missing. A plan is kept by

(3) key = SHA-256(version of taut, fields of the request, digest of the planning problem),

where the problem holds what prices the plan: model, cluster, cost table, calibration, memory model and space. So a
calibration, a memory model or a stack that has changed, in a file or in the catalog, is planned anew. Plans that are
missing share the seconds that are left for them; a plan that such a limit ends is not kept.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from taut.data.cluster import ClusterSpec, NetworkSpec, NodeSpec
from taut.data.jobs import JobSpec, JobTrace
from taut.data.load import load_model
from taut.data.model import ModelSpec
from taut.data.spec import Spec, digest
from taut.data.suggest import one_of
from taut.errors import DataError, NothingFoundError
from taut.files import made_folder
from taut.formulations.jobs.problem import JobsProblem, Pool
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.processes import cores
from taut.solver.certificate.document import claim_of, inputs_of
from taut.sweeping.executors import LOST, Row, run_here
from taut.sweeping.point import LOADERS, Point
from taut.sweeping.sweep import Journal

Plans = Literal["best", "data-parallel"]
PLANS: tuple[Plans, ...] = ("best", "data-parallel")
GAP, SECONDS = 0.01, 60.0
"""A plan is good enough at a gap of 1 %, and searched for a minute at most."""
LEAST_SECONDS = 1.0
"""Of the search for a plan, however many share a limit."""
NO_CANDIDATE = "fix:"
"""How the error of fixed degrees begins that suit no candidate."""
Told = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of job on a kind of node, equal to another of the same content."""

    model: ModelSpec
    global_batch: int
    group: NodeSpec
    network: NetworkSpec

    @cached_property
    def key(self) -> str:
        """The content's name."""
        return digest([self.global_batch, *(part.digest() for part in (self.model, self.group, self.network))])

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and other.key == self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Steps per second of a kind on so many GPUs: of its plan, and of none in the space more than ``most``."""

    gpus: int
    rate: float
    most: float
    plan: str


def cache_folder() -> Path:
    """Where columns are kept: ``TAUT_CACHE``, or ``taut`` in the user's cache folder."""
    named = os.environ.get("TAUT_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "taut"


def gpu_counts(gpus_per_node: int, nodes: int) -> list[int]:
    """Halves of a node down to one GPU, then nodes by powers of two, and all of them."""
    counts = {gpus_per_node * nodes}
    counts |= {gpus_per_node << k for k in range(nodes.bit_length()) if 1 << k <= nodes}
    part = gpus_per_node
    while part > 1 and part % 2 == 0:
        part //= 2
        counts.add(part)
    return sorted(counts)


def columns(
    wanted: dict[Kind, list[int]],
    *,
    plans: Plans = "best",
    pricing: Mapping[str, Any] | None = None,
    processes: int | None = None,
    told: Told | None = None,
    time_limit: float | None = None,
) -> dict[Kind, list[Column]]:
    """The best plans of kinds of jobs at numbers of GPUs, (1) or (2), priced by options of ``taut.plan``."""
    priced = _loaded(pricing or {})
    with ExitStack() as stack:
        cache = _Cache(stack, processes or cores(), told, time_limit)
        if plans == "best":
            points = {(kind, gpus): _point(kind, gpus, priced) for kind, counts in wanted.items() for gpus in counts}
        else:
            least = _least_degrees(wanted, priced, cache)
            points = {
                (kind, gpus): _point(kind, gpus, priced, _scaled(least[kind], gpus))
                for kind, counts in wanted.items()
                for gpus in counts
                if kind in least and gpus % (least[kind]["tp"] * least[kind]["pp"]) == 0
            }
        cache.fill((kind, point) for (kind, _), point in points.items())
        found: dict[Kind, list[Column]] = {kind: [] for kind in wanted}
        for (kind, gpus), point in points.items():
            if (column := _column(gpus, cache.rows[point.key])) is not None:
                found[kind].append(column)
    return found


class _Cache:
    """Results of points, a journal for each kind of job."""

    def __init__(self, stack: ExitStack, processes: int, told: Told | None, time_limit: float | None) -> None:
        self.rows: dict[str, Row] = {}
        self._until = math.inf if time_limit is None else time.monotonic() + time_limit
        self._stack, self._processes, self._told = stack, processes, told
        self._journals: dict[str, Journal] = {}

    def fill(self, wanted: Iterable[tuple[Kind, Point]]) -> None:
        """Solve points that are not there yet."""
        points = {point.key: (kind, point) for kind, point in wanted}
        homes = {key: self._journal(kind) for key, (kind, _) in points.items()}
        self.rows |= {key: home.done[key] for key, home in homes.items() if key in home.done}
        left = [point for key, (_, point) in points.items() if key not in self.rows]
        jobs, seconds = min(self._processes, len(left)), self._seconds(len(left))
        limited = [replace(point, fields=point.fields | {"time_limit": seconds}) for point in left]
        whole = dict(zip((point.key for point in limited), (point.key for point in left), strict=True))

        def planned() -> str:
            return f"planned {sum(key in self.rows for key in points)} of {len(points)} columns"

        def tell() -> None:
            if self._told is not None:
                self._told(f"{planned()}, each within {seconds:.3g} s")

        def finished(point: Point, row: Row) -> None:
            key = whole[point.key]
            ended = (row["status"] == "feasible" and row["gap"] > GAP) or row["status"] == "unknown"
            if row["status"] != LOST and (seconds >= SECONDS or not ended):
                homes[key].add(key, row)
            self.rows[key] = row
            tell()

        if left:
            tell()
            try:
                run_here(limited, finished, jobs)
            except KeyboardInterrupt:
                raise NothingFoundError(f"interrupted: {planned()}; the same command goes on from there") from None

    def _seconds(self, number: int) -> float:
        """Seconds of each of so many plans: its share of what is left."""
        share = (self._until - time.monotonic()) * self._processes / max(number, 1)
        return max(min(share, SECONDS), LEAST_SECONDS)

    def _journal(self, kind: Kind) -> Journal:
        name = kind.key[:32]
        if name not in self._journals:
            folder = made_folder(cache_folder() / "columns", "TAUT_CACHE=FOLDER", parents=True)
            try:
                self._journals[name] = self._stack.enter_context(Journal(folder / f"{name}.journal"))
            except DataError as error:
                raise DataError(f"{error}; the folder is {folder}, TAUT_CACHE names another") from None
        return self._journals[name]


def _part(kind: Kind, gpus: int) -> ClusterSpec:
    """So many GPUs of a kind of node: whole nodes, or a part of one."""
    per_node = kind.group.gpus_per_node
    nodes, size = (gpus // per_node, per_node) if gpus >= per_node else (1, gpus)
    group = kind.group.model_copy(update={"count": nodes, "gpus_per_node": size})
    return ClusterSpec(name=f"{kind.group.device.name} x{gpus}", nodes=[group], network=kind.network)


def _loaded(pricing: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the specs that they name, so that what a key says of a file is what is planned with."""
    given = {name: value for name, value in pricing.items() if value is not None}
    return {name: value if isinstance(value, Spec) else LOADERS[name](value) for name, value in given.items()}


def _point(kind: Kind, gpus: int, pricing: dict[str, Any], fix: dict[str, Any] | None = None) -> Point:
    """The plan of a kind on so many GPUs, named by (3)."""
    fields = {
        "model": kind.model,
        "cluster": _part(kind, gpus),
        "global_batch": kind.global_batch,
        "gap": GAP,
        "time_limit": SECONDS,
        **pricing,
        **({"fix": fix} if fix else {}),
    }
    try:
        stated = planning_problem(PlanRequest(**fields))
        problem = str(claim_of(stated, inputs_of(stated))["problem_sha256"])
    except DataError as error:
        # Fixed degrees that suit no candidate make a row that says so; anything else is the caller's.
        if not str(error).startswith(NO_CANDIDATE):
            raise
        problem = str(error)
    return Point("plan", fields, fields, problem=problem)


def _column(gpus: int, row: Row) -> Column | None:
    """A column, or None where nothing fits; other errors are raised, as no bound is known then."""
    if row["status"] == "infeasible":
        return None
    if row["error"] or row["lower_bound_s"] is None:
        # A degree that does not divide the batch is no plan of the space.
        if str(row["error"]).startswith(NO_CANDIDATE):
            return None
        raise DataError(f"the plan on {gpus} GPUs: {row['error'] or 'has no bound'}")
    degrees = f"tp={row['tp']} pp={row['pp']} dp={row['dp']} micro_batch={row['micro_batch']} zero={row['zero']}"
    return Column(gpus=gpus, rate=1 / row["step_time_s"], most=1 / row["lower_bound_s"], plan=degrees)


def _scaled(least: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Least degrees on so many GPUs: with several replicas, each keeps a part of the optimizer's state."""
    return {**least, "zero": 1} if gpus > least["tp"] * least["pp"] else least


def _replicas(kind: Kind, most: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Sizes of one replica with their degrees: tensor ranks first, within a node, then stages; powers of two."""
    size = 1
    while size <= most:
        tp = min(size, kind.group.gpus_per_node)
        yield size, {"tp": tp, "pp": size // tp}
        size *= 2


def _least_degrees(wanted: dict[Kind, list[int]], pricing: dict[str, Any], cache: _Cache) -> dict[Kind, dict[str, Any]]:
    """The least degrees (2) at which one replica fits, by kind; kinds without any are left out."""
    found: dict[Kind, dict[str, Any]] = {}
    for kind, counts in wanted.items():
        for size, degrees in _replicas(kind, max(counts, default=0)):
            point = _point(kind, size, pricing, degrees)
            cache.fill([(kind, point)])
            if _column(size, cache.rows[point.key]) is not None:
                found[kind] = degrees
                break
    return found


HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Instance:
    """The problem with the words of its configurations, and the rates that no plan exceeds (C,)."""

    trace: JobTrace
    cluster: ClusterSpec
    problem: JobsProblem
    plans: tuple[str, ...]
    most: np.ndarray

    @cached_property
    def bounding(self) -> JobsProblem:
        """The problem at the rates of the plans' bounds: its bounds hold for every plan of the space."""
        return replace(self.problem, rate=np.maximum(self.most, self.problem.rate))


def instance(
    trace: JobTrace,
    cluster: ClusterSpec,
    *,
    plans: Plans = "best",
    prices: Mapping[str, float] | None = None,
    pricing: Mapping[str, Any] | None = None,
    processes: int | None = None,
    told: Told | None = None,
    time_limit: float | None = None,
) -> Instance:
    """State the problem of a trace on a cluster, at dollars of a GPU hour by device; plans what is not planned yet."""
    if cluster.bandwidth_matrix is not None or cluster.latency_matrix is not None:
        raise DataError(
            f"{cluster.name}: has a measured matrix, expected links by levels, equal for any nodes of a job"
        )
    for name in prices or {}:
        if name not in cluster.devices:
            raise DataError(f"price of {name}: expected {one_of(name, list(cluster.devices))}")
    groups = list(cluster.nodes)
    pools = tuple(
        Pool(each.device.name, each.count, each.gpus_per_node, (prices or {}).get(each.device.name, 0.0) / HOUR)
        for each in groups
    )
    wanted = _wanted(trace, cluster)
    found = columns(wanted, plans=plans, pricing=pricing, processes=processes, told=told, time_limit=time_limit)
    rows: list[tuple[int, int, int, float, float, str]] = []
    for number, job in enumerate(trace.jobs):
        for index, group in enumerate(groups):
            if not _allowed(job, group.device.name):
                continue
            if job.rates is not None:
                rows += [(number, index, gpus, rate, rate, "measured") for gpus, rate in sorted(job.rates.items())]
            else:
                own = _counts(job, pools[index])
                kind = _kind(job, cluster, index)
                kept = [column for column in found[kind] if column.gpus in own]
                rows += [(number, index, each.gpus, each.rate, each.most, each.plan) for each in kept]
    return _stated(trace, cluster, pools, rows)


def _stated(
    trace: JobTrace, cluster: ClusterSpec, pools: tuple[Pool, ...], rows: list[tuple[int, int, int, float, float, str]]
) -> Instance:
    job, pool, gpus, rate, most = (np.array([row[k] for row in rows], dtype=kind) for k, kind in enumerate("llldd"))
    work = [float(each.work(_model(each).seq if each.tokens is not None else None)) for each in trace.jobs]
    problem = JobsProblem(
        pools=pools,
        arrival=np.array([each.arrival_s for each in trace.jobs]),
        work=np.array(work),
        deadline=np.array([np.inf if each.deadline_s is None else each.deadline_s for each in trace.jobs]),
        weight=np.array([each.priority for each in trace.jobs]),
        job=job.astype(np.int64),
        pool=pool.astype(np.int64),
        gpus=gpus.astype(np.int64),
        rate=rate,
        restart_s=trace.restart_s,
    )
    return Instance(trace=trace, cluster=cluster, problem=problem, plans=tuple(row[5] for row in rows), most=most)


def _wanted(trace: JobTrace, cluster: ClusterSpec) -> dict[Kind, list[int]]:
    """Every kind of job with all numbers of GPUs that some job of it may have."""
    found: dict[Kind, list[int]] = {}
    for job in trace.jobs:
        for name in job.device_types or ():
            if name not in cluster.devices:
                raise DataError(
                    f"job {job.name}: device_types: {name!r}, expected {one_of(name, list(cluster.devices))}"
                )
        for index, group in enumerate(cluster.nodes):
            pool = Pool(group.device.name, group.count, group.gpus_per_node)
            if job.rates is not None:
                _check_counts(job, list(job.rates), pool)
            elif _allowed(job, group.device.name):
                kind = _kind(job, cluster, index)
                found[kind] = sorted({*found.get(kind, []), *_counts(job, pool)})
    return found


def _allowed(job: JobSpec, device: str) -> bool:
    return job.device_types is None or device in job.device_types


def _counts(job: JobSpec, pool: Pool) -> list[int]:
    if job.gpu_counts is None:
        return gpu_counts(pool.gpus_per_node, pool.nodes)
    _check_counts(job, list(job.gpu_counts), pool)
    return [gpus for gpus in job.gpu_counts if gpus <= pool.gpus]


def _check_counts(job: JobSpec, counts: list[int], pool: Pool) -> None:
    """Refuse numbers of GPUs that do not pack into nodes."""
    parts = gpu_counts(pool.gpus_per_node, 1)
    for gpus in counts:
        if gpus not in parts and gpus % pool.gpus_per_node:
            expected = f"{', '.join(map(str, parts))} or whole nodes of {pool.gpus_per_node}"
            raise DataError(f"job {job.name}: {gpus} GPUs on {pool.device}, expected {expected}")


@cache
def _named(model: str, seq: int | None) -> ModelSpec:
    return load_model(model, seq=seq)


def _model(job: JobSpec) -> ModelSpec:
    assert job.model is not None
    return _named(job.model, job.seq)


def _kind(job: JobSpec, cluster: ClusterSpec, index: int) -> Kind:
    assert job.global_batch is not None
    group = cluster.nodes[index].model_copy(update={"count": 1})
    return Kind(_model(job), job.global_batch, group, _network(cluster))


def _network(cluster: ClusterSpec) -> NetworkSpec:
    """Links between any two nodes: those between racks, or the slowest of a rack where none are stated."""
    network = cluster.network
    rates = [rack.bandwidth_gbps for rack in network.racks if rack.bandwidth_gbps is not None]
    rate = network.bandwidth_gbps or min(rates, default=None)
    return NetworkSpec(bandwidth_gbps=rate, latency_us=network.latency_us)
