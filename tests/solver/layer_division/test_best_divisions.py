"""Divisions in the order of their bounds: each of them once, the least first, by their own exact partition."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_division.divide import BestDivisions, solve_partition
from tests.support.small import cluster, costs, model, problem


def planned(layers: int) -> PlanningProblem:
    """Three stages of two replicas with layers that take 1 and 2 s, under the whole step."""
    spec = model(layers, unlike=True)
    table = costs(spec, seconds={"wide": 2.0, "narrow": 1.0})
    fixed = {"pp": 3, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    return problem(cluster(6, 1), spec, table=table, latency_model="step", global_batch=8, fixed=fixed)


@pytest.mark.parametrize("layers", [3, 5, 7])
def test_every_division_is_named_once_in_the_order_of_its_bound(layers: int) -> None:
    """Of 7 layers on 3 stages there are C(6, 2) = 15 divisions; each has the seconds of the partition of it alone."""
    given = planned(layers)
    (choice,) = given.candidates
    comm = communication(given, choice, BestLinks(given.links, given.rings))
    assert comm.later is not None
    stages = partition_problem(given, choice)
    expected = {}
    for ends in combinations(range(1, layers), 2):
        sizes = np.diff([0, *ends, layers])
        alone = replace(stages, families=np.stack((sizes, sizes), axis=1)[None])
        expected[tuple(sizes.tolist())] = solve_partition(alone, comm.edge, comm.tail, later=comm.later).seconds
    found, divisions = {}, BestDivisions(stages, comm.edge, comm.tail, comm.later)
    while (partition := divisions.next(np.inf)) is not None:
        found[tuple(partition.division.layers.tolist())] = partition.seconds
        assert divisions.least >= partition.seconds * (1 - 1e-12)
    assert found == pytest.approx(expected)
    assert list(found.values()) == sorted(found.values())


def test_divisions_beyond_a_limit_are_not_named() -> None:
    """With the second least seconds as the limit the least alone is named."""
    given = planned(6)
    (choice,) = given.candidates
    comm = communication(given, choice, BestLinks(given.links, given.rings))
    assert comm.later is not None
    divisions = BestDivisions(partition_problem(given, choice), comm.edge, comm.tail, comm.later)
    assert divisions.next(np.inf) is not None
    limit = divisions.least
    assert divisions.next(limit) is None
    assert divisions.next(np.nextafter(limit, np.inf)) is not None
