"""No bound is above the enumerated optimum where nodes differ in size and in type, or blocks span unlike nodes."""

from dataclasses import replace

import pytest

from taut.formulations.problem import LATENCY_MODELS
from taut.solver.bounds.least_hops import crossing
from taut.solver.bounds.link_bounds import BestLinks
from tests.support.blocks import blocks
from tests.support.ladder import check_candidates
from tests.support.unlike import slow_between_types, unlike_problem

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(20, 1))
def test_no_bound_on_unlike_nodes_is_above_the_optimum(block: int) -> None:
    """Two thousand candidates, a hundred a block, of every latency model: unequal nodes, three types, wide blocks."""
    checked, unequal, three, wide, seed = 0, 0, 0, 0, 30_000 * block
    while checked < 100:
        given = unlike_problem(seed, large=seed % 17 == 0)
        given = replace(given, latency_model=("step", *LATENCY_MODELS)[seed // 2 % (1 + len(LATENCY_MODELS))])
        given = replace(given, overlap_grad_reduce=given.latency_model == "step" and seed % 5 == 0)
        sizes = given.links.gpus_per_node
        chosen = check_candidates(given, given.candidates, seed, 4)
        checked, unequal = checked + len(chosen), unequal + len(chosen) * (sizes.min() < sizes.max())
        three += len(chosen) * (len(given.device_types) == 3)
        wide += sum(candidate.width > sizes.max() for candidate in chosen)
        seed += 1
    assert unequal > 0 and three > 0 and wide > 0


@pytest.mark.parametrize("block", blocks(10, 1))
def test_no_bound_with_slow_links_between_types_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, a hundred a block, of at least two stages, where pipelines avoid hops between types."""
    checked, dearer, seed = 0, 0, 30_000 * block
    while checked < 100:
        given = slow_between_types(unlike_problem(seed, large=seed % 17 == 0), seed)
        models = ("step", "step", *LATENCY_MODELS)
        given = replace(given, latency_model=models[seed % len(models)], overlap_grad_reduce=seed % 10 == 0)
        staged = [candidate for candidate in given.candidates if candidate.pp > 1 and not candidate.is_order_priced]
        chosen = check_candidates(given, staged, seed, 4)
        links = BestLinks(given.links, given.rings)
        dearer += sum(crossing(given, candidate, links).whole > 0 for candidate in chosen)
        checked, seed = checked + len(chosen), seed + 1
    assert dearer > 50
