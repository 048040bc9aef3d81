"""Reductions of experts count by their own ring in the bound of an order."""

import numpy as np
import pytest

from taut.formulations.latency import step_time
from taut.formulations.strategy import Division, Strategy
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.least_rings import least_weighted_ring
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.order_priced.master_rows import least_makespan

pytestmark = pytest.mark.proof


def test_no_division_takes_less_than_its_reduction_by_rings() -> None:
    """
    A division at the best links takes no longer than in a placement, and nearly as long in one that keeps stages whole.

    A weight a third too large is above the placed time of some of them.
    """
    given = planning_problem(PlanRequest(model="qwen3-30b-a3b", cluster="dgx-h100:4", global_batch=64, gap=0))
    best, rng = BestLinks(given.links, given.rings), np.random.default_rng(0)
    known = [each for each in given.candidates if each.is_order_priced and each.ep > 1 and each.zero == 1]
    weights, shares = list[float](), list[float]()
    for choice in [known[k] for k in rng.choice(len(known), 60, replace=False)]:
        division = chunked(given, choice, best)
        layers, chunks = division.num_layers, division.num_chunks
        ends = np.append(np.sort(1 + rng.choice(layers - 1, chunks - 1, replace=False)), layers)
        drawn = Division.of_ends(ends, np.full(chunks, division.recomputes[0]))
        devices = np.arange(given.cluster.num_devices).reshape(choice.pp, choice.pipelines, choice.width)
        placed = float(step_time(given, Strategy(candidate=choice, division=drawn), devices).total)
        share = least_makespan(division, drawn) / placed
        assert share <= 1 + 1e-9, choice
        shares.append(share)
        weights.append(least_weighted_ring(given, choice, best).weight)
    assert min(weights) == 0.0 and max(weights) > 1.5
    assert np.median([share for share, weight in zip(shares, weights, strict=True) if weight > 1]) > 0.99
