"""Random small problems on two or three types of device for plans of meshes, and every plan of a choice."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE
from taut.formulations.degrees import divisors
from taut.formulations.meshes.choice import MeshChoice, choices_at
from taut.formulations.meshes.step_time import MeshPlan, mesh_memory, mesh_step, mesh_violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Division
from taut.solver.meshes.search import ORDERS, ranked_devices
from tests.support.instances import random_costs, random_device, random_network, random_problem

NODES = [(2, 2), (2, 4), (4, 2), (4, 4), (2, 2, 4), (1, 2, 2), (2, 1, 1), (4, 2, 2), (2, 6)]
"""Devices of every node."""


def mesh_problem(seed: int) -> PlanningProblem:
    """
    A random problem of two or three types, up to 8 devices, priced in ``step``; links by level, by node or by device.

    In half of them the memory of every type is near what some plan needs.
    """
    rng, given = np.random.default_rng((seed, 21)), random_problem(seed)
    sizes = NODES[rng.integers(len(NODES))]
    cluster = _cluster(rng, sizes)
    space = given.space.model_copy(update={"max_tp": 4, "max_cp": 1, "zero": [[0], [1], [0, 1]][rng.integers(3)]})
    space = space.model_copy(update={"pipeline_zero": None, "recompute": space.recompute[: 1 + int(rng.integers(3))]})
    alike = ClusterSpec.parse({**cluster.model_dump(), **_alike(cluster)}, "alike")
    costs = random_costs(rng, given.model, alike, space)
    found = replace(given, cluster=cluster, space=space, costs=costs, latency_model="step")
    found = replace(found, overlap_grad_reduce=bool(rng.random() < 0.3))
    choices = mesh_choices(found)
    if rng.random() < 0.5 or not choices:
        return found
    return replace(found, cluster=_tightened(rng, found, choices))


def mesh_choices(problem: PlanningProblem) -> list[MeshChoice]:
    """Every choice of meshes, (1) to (6), in ascending order."""
    every = (alike for together in divisors(problem.space.global_batch) for alike in choices_at(problem, together))
    return sorted(choice for alike in every for choice in alike)


def _alike(cluster: ClusterSpec) -> dict[str, Any]:
    """Nodes of four devices each, without measured links, so that costs have every degree."""
    nodes = [group.model_dump() | {"gpus_per_node": 4} for group in cluster.nodes]
    return {"nodes": nodes, "bandwidth_matrix": None, "latency_matrix": None}


def _cluster(rng: np.random.Generator, sizes: tuple[int, ...]) -> ClusterSpec:
    """Nodes of these sizes, each of a random type, at least two types."""
    types = int(rng.integers(2, min(len(sizes), 3) + 1))
    chosen = rng.permutation(np.concatenate([np.arange(types), rng.integers(types, size=len(sizes) - types)]))
    groups = [
        {
            "count": 1,
            "device": random_device(f"d{kind}", 1.0),
            "gpus_per_node": size,
            "intra_bandwidth_gbps": float(rng.uniform(0.5, 5)),
            "intra_latency_us": float(rng.choice([0, 20])),
            **({"nic_bandwidth_gbps": float(rng.uniform(0.2, 2))} if rng.random() < 0.4 else {}),
        }
        for size, kind in zip(sizes, chosen.tolist(), strict=True)
    ]
    values: dict[str, Any] = {"name": "meshes", "nodes": groups, "network": random_network(rng, len(sizes))}
    ends = [0, len(sizes), sum(sizes)][rng.integers(3)]
    if ends:
        values["bandwidth_matrix"] = {"unit": "Gb/s", "rows": rng.uniform(0.1, 2, (ends, ends)).tolist()}
    return ClusterSpec.parse(values, "meshes")


def _tightened(rng: np.random.Generator, problem: PlanningProblem, choices: list[MeshChoice]) -> ClusterSpec:
    """The cluster with memories near what some division of some choice needs on every type."""
    choice = choices[rng.integers(len(choices))]
    plan = random_plan(rng, problem, choice)
    need, groups = mesh_memory(problem, plan), []
    for group in problem.cluster.nodes:
        kind = problem.device_types.index(group.device.name)
        of_kind = [n for n, k in zip(need, choice.mesh_of_stage, strict=True) if choice.meshes[k].kind == kind]
        factor = float(np.random.default_rng((kind, int(need[0]))).uniform(0.9, 1.3))
        memory = max(of_kind) / 2**30 * factor / (1 - problem.memory.margin)
        groups.append(group.model_copy(update={"device": group.device.model_copy(update={"memory_gib": memory})}))
    return problem.cluster.model_copy(update={"nodes": groups})


def random_plan(rng: np.random.Generator, problem: PlanningProblem, choice: MeshChoice) -> MeshPlan:
    """A random division on tensor groups in random places of their types' nodes."""
    layers, allowed = len(problem.model.blocks), problem.recompute_of(choice.candidate(0))
    inner = sorted(rng.choice(np.arange(1, layers), choice.pp - 1, replace=False).tolist())
    recompute = rng.choice([RECOMPUTE.index(name) for name in allowed], choice.pp)
    division = Division.of_ends(np.array([*inner, layers]), recompute)
    devices = []
    for mesh, own in zip(choice.meshes, ranked_devices(problem, choice, ORDERS[0]), strict=True):
        groups = np.concatenate(
            [
                rng.permutation(node).reshape(-1, mesh.tp)
                for node in np.split(own.ravel(), np.flatnonzero(np.diff(problem.links.node_of[own.ravel()])) + 1)
            ]
        )
        devices.append(rng.permutation(groups).reshape(own.shape))
    return MeshPlan(choice, division, tuple(devices))


def number_of_plans(problem: PlanningProblem, choice: MeshChoice) -> int:
    """How many divisions with recomputes a choice has."""
    kinds = len(problem.recompute_of(choice.candidate(0)))
    return comb(len(problem.model.blocks) - 1, choice.pp - 1) * int(kinds**choice.pp)


def every_plan(problem: PlanningProblem, choice: MeshChoice, order: str) -> Iterator[MeshPlan]:
    """All divisions with all recomputes of a choice, in one order of ranks."""
    layers, allowed = len(problem.model.blocks), problem.recompute_of(choice.candidate(0))
    devices, kinds = ranked_devices(problem, choice, order), [RECOMPUTE.index(name) for name in allowed]
    for inner in combinations(range(1, layers), choice.pp - 1):
        for recompute in product(kinds, repeat=choice.pp):
            division = Division.of_ends(np.array([*inner, layers]), np.array(recompute))
            yield MeshPlan(choice, division, devices)


def least_seconds(problem: PlanningProblem, choice: MeshChoice) -> float:
    """Step time of the best plan of a choice in either order of ranks; infinite where none fits."""
    fitting = (
        mesh_step(problem, plan).total
        for order in ORDERS
        for plan in every_plan(problem, choice, order)
        if not mesh_violations(problem, plan)
    )
    return min(fitting, default=np.inf)
