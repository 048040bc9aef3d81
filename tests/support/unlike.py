"""Random small problems on two or three types of device whose nodes differ in size, or whose blocks span nodes."""

from dataclasses import replace
from typing import Any

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.formulations.problem import PlanningProblem
from tests.support.instances import random_costs, random_device, random_network, random_problem, tightened

SIZES = [(1, 2, 3), (2, 4), (1, 1, 2), (1, 2, 2), (3, 1), (4, 1, 1), (1, 1, 1, 3), (2, 1, 2, 1), (1, 5), (2, 2, 1)]
"""Devices of every node where nodes differ."""
ALIKE = [(2, 2, 2), (1, 1, 1, 1, 1, 1), (1, 1, 1, 1), (2, 2), (3, 3)]
"""Devices of every node where they do not, so that blocks may span several."""
FILLING = [(2, 2, 2), (2, 2), (3, 3), (2, 1, 2, 1), (2, 2, 1)]
"""Devices of nodes that the blocks of a stage may fill."""
LARGE = [(2, 2, 4), (4, 2, 2), (2, 2, 2, 2), (4, 4), (2, 6)]


def unlike_problem(seed: int, *, large: bool = False) -> PlanningProblem:
    """
    A random problem of two or three types in a random order of the nodes, up to 6 devices (8 if ``large``).

    In half of them the memory of every type is near what some even division needs.
    """
    rng = np.random.default_rng((seed, 11))
    given = random_problem(seed)
    kinds = LARGE if large else (SIZES if seed % 2 else ALIKE)
    cluster = unlike_cluster(rng, kinds[rng.integers(len(kinds))])
    space = given.space.model_copy(update={"max_tp": cluster.num_devices, "max_cp": 1})
    costs = random_costs(rng, given.model, cluster, space)
    found = replace(given, cluster=cluster, space=space, costs=costs)
    if rng.random() < 0.5 or not found.candidates:
        return found
    return replace(found, cluster=tightened(rng, found))


def filling_problem(seed: int, sizes: tuple[int, ...] = ()) -> PlanningProblem:
    """A random problem on nodes of these devices, or of some kind, that stages may fill, with ZeRO and contexts."""
    rng = np.random.default_rng((seed, 31))
    given = random_problem(seed, experts=seed % 7 == 0)
    cluster = unlike_cluster(rng, sizes or FILLING[rng.integers(len(FILLING))])
    changes = {
        "max_tp": cluster.num_devices,
        "max_cp": 1 if seed % 3 else 2,
        "zero": [[0, 1], [1, 2, 3]][seed % 5 == 0],
    }
    space = given.space.model_copy(update=changes)
    given = replace(given, cluster=cluster, space=space, costs=random_costs(rng, given.model, cluster, space))
    if rng.random() < 0.4 and given.candidates:
        given = replace(given, cluster=tightened(rng, given))
    return slow_between_types(given, seed) if rng.random() < 0.6 else given


def slow_between_types(given: PlanningProblem, seed: int) -> PlanningProblem:
    """The same problem with links between types of device some 3 to 30 times as slow as those within."""
    rng, types = np.random.default_rng((seed, 5)), given.type_of_node
    fast = float(rng.uniform(0.5, 2))
    racks = [
        {"nodes": np.flatnonzero(types == kind).tolist(), "bandwidth_gbps": fast} for kind in range(types.max() + 1)
    ]
    values = {
        "name": "unlike",
        "nodes": [group.model_dump() for group in given.cluster.nodes],
        "network": {"bandwidth_gbps": fast / float(rng.uniform(3, 30)), "racks": racks},
    }
    return replace(given, cluster=ClusterSpec.parse(values, "unlike"))


def unlike_cluster(rng: np.random.Generator, sizes: tuple[int, ...]) -> ClusterSpec:
    """Nodes of these sizes, each of a random type, at least two types; links by level, by node or by device."""
    types = int(rng.integers(2, min(len(sizes), 3) + 1))
    chosen = rng.permutation(np.concatenate([np.arange(types), rng.integers(types, size=len(sizes) - types)]))
    groups = [
        {
            "count": 1,
            "device": random_device(f"d{kind}", 1.0),
            "gpus_per_node": size,
            "intra_bandwidth_gbps": float(rng.uniform(0.5, 5)),
            "intra_latency_us": float(rng.choice([0, 20])),
        }
        for size, kind in zip(sizes, chosen.tolist(), strict=True)
    ]
    values: dict[str, Any] = {"name": "unlike", "nodes": groups, "network": random_network(rng, len(sizes))}
    ends = [0, len(sizes), sum(sizes)][rng.integers(3)]
    if ends:
        values["bandwidth_matrix"] = {"unit": "Gb/s", "rows": rng.uniform(0.1, 2, (ends, ends)).tolist()}
    return ClusterSpec.parse(values, "unlike")
