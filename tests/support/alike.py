"""Random small problems on nodes that are all alike, of which a stage may take several."""

from dataclasses import replace

import numpy as np

from taut.data.calibration import OPTIONAL, TERMS, Calibration
from taut.data.cluster import ClusterSpec
from taut.formulations.problem import PlanningProblem
from tests.support.instances import random_costs, random_device, random_problem

SHAPES = ((2, 3), (3, 2), (2, 3))
"""Nodes and devices of each."""


def alike_problem(seed: int, shape: tuple[int, int] | None = None) -> PlanningProblem:
    """A random problem by AMP's model on so many nodes of so many devices, or of some ``SHAPES``."""
    rng = np.random.default_rng((seed, 41))
    given, (nodes, devices) = random_problem(seed), shape or SHAPES[seed % len(SHAPES)]
    inside, between = rng.uniform(2, 9), rng.uniform(0.3, 3)
    node = {"count": nodes, "device": random_device("d", 1.0), "gpus_per_node": devices}
    node |= {"intra_bandwidth_gbps": float(inside), "intra_latency_us": 2.0}
    network = {"bandwidth_gbps": float(between), "latency_us": 9.0}
    cluster = ClusterSpec.parse({"name": "alike", "nodes": [node], "network": network}, "test")
    space = given.space.model_copy(update={"max_tp": 1 if seed % 3 else devices})
    costs = random_costs(rng, given.model, cluster, space)
    # Where hops take long beside reductions, stages share nodes, and not all replicas leave them at a cut.
    names = [term for term in TERMS if term not in OPTIONAL]
    heavy = dict.fromkeys(names, 1.0) | {"pipeline": 8.0, "data_parallel": 0.1}
    calibration = Calibration(name="heavy", coefficients=heavy) if seed % 2 else None
    return replace(given, cluster=cluster, space=space, costs=costs, latency_model="amp", calibration=calibration)
