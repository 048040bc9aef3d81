"""
The problem of many jobs on one cluster, from a trace, a cluster and columns.

Every kind of node of the cluster is a pool. A job's configurations are its columns on the pools of the device types
that it allows, at the numbers of GPUs that it allows; a job with measured ``rates`` has those, on every such pool.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from taut.data.cluster import ClusterSpec, NetworkSpec
from taut.data.jobs import JobSpec, JobTrace
from taut.data.load import load_model
from taut.data.model import ModelSpec
from taut.data.suggest import one_of
from taut.errors import DataError
from taut.formulations.jobs.problem import JobsProblem, Pool
from taut.sharing.columns import Kind, Plans, Told, columns, gpu_counts

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
    found = columns(wanted, plans=plans, pricing=pricing, processes=processes, told=told)
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
