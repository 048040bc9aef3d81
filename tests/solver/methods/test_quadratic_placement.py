"""Placements as quadratic assignments, and annealing from their permutations."""

import numpy as np
import pytest

from taut.formulations.mechanisms.latency_models import LatencyName
from taut.formulations.placement import PlacementProblem, placement_problem
from taut.solver.methods.quadratic_placement import assign, place_quadratic
from taut.solver.placement.annealing.anneal import best_start
from taut.solver.result import Limits
from tests.support.small import candidate, cluster, problem, strategy

pytestmark = pytest.mark.proof


def random_placement(seed: int, pp: int = 3, dp: int = 2) -> PlacementProblem:
    """Six positions on three nodes of two devices, or on six single ones, with random links."""
    rng = np.random.default_rng(seed)
    gpus = int(rng.choice([1, 2]))
    nodes = pp * dp // gpus
    rows = rng.uniform(0.2, 2.0, (nodes, nodes)).tolist()
    given = problem(cluster(nodes, gpus, rows=rows), global_batch=16, latency_model="pipette")
    ends = (1, 2, 4) if pp == 3 else (*tuple(range(1, pp)), 4)
    return placement_problem(given, strategy(candidate(pp, 1, dp), *ends))


@pytest.mark.parametrize("latency_model", ["step", "pipette"])
def test_chains_and_rings_on_nodes_are_placed_and_bounded(latency_model: LatencyName) -> None:
    """Sixteen positions on four nodes of four: the permutation meets the bound of the nodes' contents."""
    given = problem(cluster(4, 4), global_batch=16, latency_model=latency_model)
    placement = placement_problem(given, strategy(candidate(4, 1, 4), 1, 2, 3, 4))
    found = assign(placement, Limits(), 2.0)
    assert found is not None and found.gap is not None and found.gap <= 1e-6
    assert found.figures["positions"] == 16 and found.figures["gap"] == found.gap


@pytest.mark.parametrize("seed", range(4))
def test_placement_is_no_worse_than_its_starts(seed: int) -> None:
    """Annealing from the assignment's permutation and from the constructed placements ends no worse than either."""
    given = random_placement(seed)
    found = place_quadratic(given, (0, 0, 0), Limits(), 2.0)
    assert found is not None
    assert found.assignment.lower_bound <= found.assignment.cost * (1 + 1e-9)
    assert found.placed.seconds <= found.seconds * (1 + 1e-12)
    assert found.placed.seconds <= best_start(given, (0, 0, 0)).seconds * (1 + 1e-12)
