"""Random problems whose context ranks share attention in every way."""

from dataclasses import replace

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.data.stack import CONTEXT_KINDS
from taut.formulations.problem import PlanningProblem


def all_context_kinds(given: PlanningProblem, seed: int) -> PlanningProblem:
    """The problem with every kind of context ranks, or the gather alone; in half, rings beside slow attention."""
    rng = np.random.default_rng((seed, 7))
    kinds = ["all_gather"] if rng.random() < 0.2 else list(CONTEXT_KINDS)
    update = {"cp_comm": kinds, "overlap_context": bool(rng.random() < 0.5)}
    cluster = given.cluster.model_dump()
    for node in cluster["nodes"]:
        # Links take some 10 to 100 microseconds for the keys of a layer, and attention of 2 to 60 kFLOP about as long.
        node["device"]["peak_tflops"] = {"bf16": 10 ** float(rng.uniform(-3.5, -2))}
    names = {node["device"]["name"] for node in cluster["nodes"]}
    for name in names:
        same = [node for node in cluster["nodes"] if node["device"]["name"] == name]
        for node in same:
            node["device"] = same[0]["device"]
    return replace(
        given, space=given.space.model_copy(update=update), cluster=ClusterSpec.parse(cluster, given.cluster.name)
    )
