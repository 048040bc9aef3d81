"""Random small problems whose optimizer is Muon."""

from dataclasses import replace

import numpy as np

from taut.formulations.problem import MOST_KEPT, PlanningProblem, Recent
from tests.support.expert_ranks import with_expert_ranks
from tests.support.instances import random_problem, tightened


def muon_problem(seed: int) -> PlanningProblem | None:
    """
    A random problem under Muon in ``step``, of one type of device; None where the draw has several.

    Half of them have experts on any number of ranks, one in three chunks, half tight memory; products are fast, slow,
    or as long as a launch.
    """
    given = random_problem(seed) if seed % 2 else with_expert_ranks(seed, orders=False)
    if len(given.cluster.devices) > 1:
        return None
    rng = np.random.default_rng((seed, 9))
    memory = {"optimizer": "muon", "half_moments": False, "weight_remainders": False}
    rates = {"launch_us": float(rng.choice([0.0, 1.0])), "peak_tflops": {"bf16": float(rng.choice([1e-3, 1e-2, 0.1]))}}
    nodes = [
        group.model_copy(update={"device": group.device.model_copy(update=rates)}) for group in given.cluster.nodes
    ]
    space = given.space.model_copy(
        update={
            "zero": [0, 1],
            "pipeline_zero": None,
            "schedules": ["1f1b", "gpipe"] if seed % 3 else ["1f1b", "interleaved-1f1b"],
            "max_vpp": 2,
        }
    )
    found = replace(
        given,
        memory=given.memory.model_copy(update=memory),
        cluster=given.cluster.model_copy(update={"nodes": nodes}),
        space=space,
        latency_model="step",
        overlap_grad_reduce=False,
        _shared=Recent(MOST_KEPT),
    )
    plain = replace(found, space=space.model_copy(update={"schedules": ["1f1b"]}), _shared=Recent(MOST_KEPT))
    if rng.random() < 0.5 and plain.candidates:
        found = replace(found, cluster=tightened(rng, plain), _shared=Recent(MOST_KEPT))
    return found if found.candidates else None
