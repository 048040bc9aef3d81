"""Activations of candidates on hosts: what moves them, and the tables of those that a host holds."""

from dataclasses import replace

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.data.memory import MemoryModel
from taut.formulations.mechanisms.shards import held_bytes
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.tables.activation_offload import (
    HOST_FULL,
    ActivationsOnHosts,
    beyond_host,
    check_activation_hosts,
    host_bytes,
    host_links,
)
from taut.formulations.tables.memory import in_flight
from taut.formulations.tables.optimizer_offload import check_hosts
from taut.formulations.tables.stage_tables import StageTables


def check_all_hosts(cluster: ClusterSpec, memory: MemoryModel, space: StrategySpace) -> None:
    """
    Refuse states or activations on hosts that the cluster does not describe, or beside what a memory model keeps.

    Raises ``DataError``: with what is missing, or does not go with it.
    """
    check_hosts(cluster, memory, (each.fraction for each in space.optimizer_offload))
    check_activation_hosts(cluster, memory, (each.fraction for each in space.activation_offload))


def activations_on_hosts(cluster: ClusterSpec, space: StrategySpace, candidate: Candidate) -> ActivationsOnHosts | None:
    """What moves a candidate's share of activations; None where all stay."""
    share, modules = candidate.activation_offload, bool(space.offload_modules)
    return ActivationsOnHosts(share, candidate.sequence_parallel, host_links(cluster), modules) if share else None


def within_hosts(cluster: ClusterSpec, memory: MemoryModel, candidate: Candidate, tables: StageTables) -> StageTables:
    """
    Tables in which ranges that a host does not hold fit no device, ``activation_offload`` (3).

    ``cluster``: states the size of the hosts' memory; ``memory``: the memory model with the candidate's share of
    optimizer states on hosts; ``candidate``, ``tables``: degrees and schedule, and figures of every range.
    """
    if tables.moved is None:
        return tables
    each, fraction = memory.held_parameter_bytes, memory.optimizer_offload_fraction
    held = held_bytes(tables.parameters, tables.largest, each, candidate, tables.experts)
    states = np.ceil(fraction * held[2]).astype(np.int64)
    full = beyond_host(tables.moved, int(in_flight(candidate).max()), states, host_bytes(cluster) // candidate.vpp)
    return replace(tables, activation=np.where(full, HOST_FULL, tables.activation))
