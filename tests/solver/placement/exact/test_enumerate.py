"""Bounds on clusters that were measured device by device: all placements, one by one, against enumeration."""

import copy
import json
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.formulations.links import Links
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import relaxation_bound
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.placement.exact.enumerate import (
    count_placements,
    ends_of,
    has_enumeration,
    least_by_first,
    placements,
    solve_by_enumeration,
    thresholds_of,
)
from taut.solver.placement.exact.joint import Kept, has_joint, solve_joint
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate
from tests.support.small import candidate, cluster, problem

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9


@pytest.mark.parametrize("block", blocks(8))
def test_bounds_of_measured_devices_are_valid_and_mostly_exact(block: int) -> None:
    """
    160 instances: no bound exceeds the optimum.

    With one pipeline or stage and equal messages it is the optimum where stage 0 alone is waited for.
    """
    closed = 0
    for seed in range(block * 20, block * 20 + 20):
        given = random_problem(seed, measured=True)
        best, kept = BestLinks(given.links, given.rings), Kept()
        for choice in given.candidates[seed % 4 :: 4]:
            optimum = enumerate_candidate(given, choice).seconds
            comm = communication(given, choice, best)
            bounds = [relaxation_bound(given, choice, comm), partition_bound(given, choice, comm)[0]]
            if has_enumeration(given, choice):
                bounds.append(solve_by_enumeration(given, choice, best, kept).lower_bound)
            if has_joint(given, choice, kept):
                bounds.append(solve_joint(given, choice, best, kept).lower_bound)
            assert max(bounds) <= optimum * TOLERANCE, (seed, choice)
            alone = min(choice.pp, choice.dp) == 1 or not has_enumeration(given, choice)
            alone &= given.latency_model != "step" or choice.pp == 1
            equal = choice.pp == 1 or given.tables(choice).equal_messages
            if len(bounds) > 2 and alone and equal and np.isfinite(optimum):
                assert max(bounds) == pytest.approx(optimum, rel=1e-9), (seed, choice)
                closed += 1
    assert closed >= 4


def measured_links(nodes: int, gpus: int) -> Links:
    rows = np.random.default_rng(nodes).uniform(0.1, 1, (nodes * gpus, nodes * gpus))
    return problem(cluster(nodes, gpus, rows=rows.tolist())).links


def alike(devices: Ints) -> frozenset[bytes]:
    """All placements (dp, pp, tp) that differ from this one by the order of replicas and of tensor ranks alone."""
    dp, _, tp = devices.shape
    orders = [(z, y) for z in permutations(range(dp)) for y in permutations(range(tp))]
    return frozenset(devices[list(z)][..., list(y)].tobytes() for z, y in orders)


@pytest.mark.parametrize(
    ("nodes", "gpus", "choice"),
    [
        (1, 4, candidate(2, 2, 1)),
        (2, 2, candidate(1, 2, 2)),
        (1, 4, candidate(1, 2, 2)),
        (1, 6, candidate(1, 3, 2)),
        (1, 6, candidate(1, 2, 3)),
        (2, 2, candidate(2, 1, 2)),
        (1, 4, candidate(1, 4, 1)),
    ],
)
def test_every_placement_is_listed_once(nodes: int, gpus: int, choice: Candidate) -> None:
    """The list has as many as are counted, all in classes of their own, and the classes hold all placements."""
    links = measured_links(nodes, gpus)
    listed = placements(links, choice)
    assert len(listed) == count_placements(links, choice)
    classes = {alike(devices) for devices in listed}
    assert len(classes) == len(listed)
    shape = (choice.dp, choice.pp, choice.tp)
    orders = [np.array(order).reshape(shape) for order in permutations(range(nodes * gpus))]
    allowed = {order.tobytes() for order in orders if (np.ptp(links.node_of[order], axis=-1) == 0).all()}
    assert set().union(*classes) == allowed


def test_placements_of_interchangeable_devices_are_listed() -> None:
    """Two nodes with two groups each, two stages of two replicas: both in a node, or stage by stage, or crossed."""
    links = problem(cluster(2, 4)).links
    listed = placements(links, candidate(2, 2, 2))[..., 0]
    assert count_placements(links, candidate(2, 2, 2)) == 6
    wanted = [[[0, 0], [1, 1]], [[0, 1], [0, 1]], [[0, 1], [1, 0]], [[1, 0], [1, 0]]]
    assert sorted(listed.tolist()) == wanted


@pytest.mark.parametrize("seed", range(12))
def test_pipelines_of_unlike_stages_are_divided_exactly(seed: int) -> None:
    """The least seconds by the end of the first stage are those of all divisions, and the ends attain them."""
    rng = np.random.default_rng(seed)
    pp, layers, m = int(rng.integers(1, 5)), int(rng.integers(5, 8)), int(rng.integers(1, 6))
    seconds = np.where(rng.random((pp, layers + 1, layers + 1)) < 0.15, np.inf, rng.integers(1, 9, (pp, layers + 1, 1)))
    seconds = seconds + np.arange(layers + 1) * rng.uniform(0, 1, (pp, 1, 1))
    seconds[:, np.tri(layers + 1, dtype=bool)] = np.inf
    edge = rng.uniform(0, 2, layers + 1)

    def value(ends: tuple[int, ...]) -> float:
        stages = [seconds[x, i, j] for x, (i, j) in enumerate(zip((0, *ends), (*ends, layers), strict=True))]
        return float(sum(stages) + max(stages) * (m - 1) + edge[list(ends)].sum()) if max(stages) < np.inf else np.inf

    found, thresholds = least_by_first(seconds, edge, m, thresholds_of(seconds), np.full(layers + 1, np.inf))
    divisions = list(combinations(range(1, layers), pp - 1))
    for j in range(1, layers + 1):
        wanted = min((value(ends) for ends in divisions if (*ends, layers)[0] == j), default=np.inf)
        assert found[j] == pytest.approx(wanted, rel=1e-12), j
        if np.isfinite(wanted):
            assert value(tuple(ends_of(seconds, edge, thresholds[j], j)[:-1])) == pytest.approx(wanted, rel=1e-12)


def measured_plan() -> dict[str, Any]:
    """The document of a plan on four devices of one node with different links."""
    rows = np.random.default_rng(5).uniform(1e-5, 4e-4, (4, 4)).tolist()
    given = problem(cluster(1, 4, rows=rows), fixed={"tp": 2})
    limits = Limits(workers=1)
    made: dict[str, Any] = json.loads(json.dumps(plan_document(given, search(given, limits), limits)))
    return made


def test_bounds_over_every_placement_are_derived_again() -> None:
    """A plan whose bounds rest on every placement holds; one of them altered does not."""
    document = measured_plan()
    assert document["status"] == "optimal"
    assert verify_document(document).holds
    altered = copy.deepcopy(document)
    entries = [e for e in altered["certificate"]["candidates"] if e["source"] == "every-placement"]
    entries[0]["lower_bound_s"] *= 1.0001
    assert not verify_document(altered).holds
