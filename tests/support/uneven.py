"""Random small problems whose replicas divide the batch unevenly, on two or three types of device."""

from dataclasses import replace

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from tests.support.instances import random_costs, random_problem, tightened
from tests.support.unlike import unlike_cluster

SIZES = [(1, 1), (2, 2), (1, 1, 1), (2, 1), (1, 1, 2), (2, 4), (2, 2, 2), (4, 2), (1, 1, 1, 1), (3, 3)]
"""Devices of every node."""
MOST_MICRO_BATCHES = 8
"""Of a step, so that all ways of dividing them are few."""


def uneven_problem(seed: int, *, fixed: bool = False) -> PlanningProblem | None:
    """
    A random problem in ``step`` with candidates whose batch is divided unevenly; None where there are none.

    In half of them the memory of every type is near what some even division needs. With ``fixed`` there are no others.
    """
    rng = np.random.default_rng((seed, 17))
    given = random_problem(seed)
    cluster = unlike_cluster(rng, SIZES[rng.integers(len(SIZES))])
    update = {"max_tp": cluster.num_devices, "schedules": ["1f1b"], "uneven_batch": True, "zero": [seed % 2]}
    update |= {"global_batch": int(rng.choice([4, 6, 8])), "fixed": {"uneven_batch": True} if fixed else {}}
    space = given.space.model_copy(update=update)
    costs = random_costs(rng, given.model, cluster, space.model_copy(update={"max_cp": 1}))
    found = replace(given, cluster=cluster, space=space, costs=costs, latency_model="step")
    found = replace(found, overlap_grad_reduce=seed % 3 == 0)
    if not uneven_candidates(found):
        return None
    return found if rng.random() < 0.5 else replace(found, cluster=tightened(rng, found))


def uneven_candidates(given: PlanningProblem) -> list[Candidate]:
    """Candidates whose batch is divided unevenly, in few ways."""
    every = (choice for choice in given.candidates if choice.uneven_batch)
    return [choice for choice in every if choice.dp * choice.num_micro_batches <= MOST_MICRO_BATCHES]
