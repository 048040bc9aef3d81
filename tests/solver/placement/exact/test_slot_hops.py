"""Cases of bound ``node-slots`` with whole hops: hand-computed values, enumeration, and AMP's unlike layers."""

from collections.abc import Iterator
from itertools import combinations, islice, product

import numpy as np
import pytest

import taut
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.placement.exact import node_slots
from taut.solver.placement.exact.node_slots import SlotCache, has_node_slots, solve_by_slots
from taut.solver.placement.exact.slot_hops import most_hops
from tests.support.alike import alike_problem
from tests.support.blocks import blocks
from tests.support.oracle import enumerate_candidate


def test_hops_of_four_pipelines_are_those_counted_by_hand() -> None:
    """All leave at the first cut, two of four at the second: one of them pays both, and the mean says half of it."""
    assert most_hops((4, 2, 0), [1.0, 3.0, 9.0], 4) == 4.0
    # Three of four at two cuts are six in all, so some pipeline leaves at both.
    assert most_hops((3, 3), [1.0, 2.0], 4) == 3.0
    # Of one and one nobody has to leave twice, so the dearer hop alone is sure.
    assert most_hops((1, 1), [1.0, 2.0], 4) == 2.0
    assert most_hops((0, 0), [1.0, 2.0], 4) == 0.0


def test_no_way_to_leave_takes_less_than_said() -> None:
    """Of two to four pipelines at one to three cuts, every way to say which leave where, for random seconds."""
    rng, attained = np.random.default_rng(5), 0
    for dp, cuts in product((2, 3, 4), (1, 2, 3)):
        for left in product(range(dp + 1), repeat=cuts):
            more = rng.uniform(0.1, 2.0, cuts).tolist()
            ways = product(*(combinations(range(dp), number) for number in left))
            least = min(_slowest(way, more, dp) for way in ways)
            found = most_hops(left, more, dp)
            assert found <= least * (1 + 1e-12)
            attained += found >= least * (1 - 1e-12)
    assert attained > 150


def _slowest(way: tuple[tuple[int, ...], ...], more: list[float], dp: int) -> float:
    return max(sum(each for each, leave in zip(more, way, strict=True) if z in leave) for z in range(dp))


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(10, 1))
def test_no_bound_by_whole_hops_is_above_the_optimum(block: int) -> None:
    """A hundred candidates a block on alike nodes by AMP's model; each bound is that without the cases, or more."""
    raised, exact = 0, 0
    for given, candidate, seed in islice(_candidates(block), 100):
        optimum = enumerate_candidate(given, candidate).seconds
        found = solve_by_slots(given, candidate, BestLinks(given.links, given.rings), SlotCache()).lower_bound
        assert found <= optimum * (1 + 1e-9), (seed, candidate)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node_slots, "hop_cases", lambda *given: iter(()))
            plain = solve_by_slots(given, candidate, BestLinks(given.links, given.rings), SlotCache()).lower_bound
        assert found >= plain * (1 - 1e-12), (seed, candidate)
        raised += np.isfinite(plain) and found > plain * (1 + 1e-9)
        exact += np.isfinite(optimum) and found >= optimum * (1 - 1e-9)
    assert raised >= 1 and exact >= 50


def _candidates(block: int) -> Iterator[tuple[PlanningProblem, Candidate, int]]:
    """Candidates of several stages and replicas of random problems on alike nodes."""
    seed = 60_000 * (block + 1)
    while True:
        seed += 1
        given = alike_problem(seed)
        for candidate in given.candidates:
            if candidate.pp > 1 and candidate.dp > 1 and has_node_slots(given, candidate, SlotCache()):
                yield given, candidate, seed


@pytest.mark.proof
def test_layers_of_unlike_sizes_are_solved() -> None:
    """AMP's generator on four nodes of four V100 (arXiv 2210.07297, section 4.5) has a gap of zero by AMP's model."""
    plan = taut.plan(
        "transgan-generator",
        "amp-unlike-layers",
        global_batch=64,
        latency_model="amp",
        stack="any",
        schedules=["1f1b"],
        max_tp=4,
        fix={"zero": 0, "recompute": "none", "sequence_parallel": False},
    )
    assert plan.gap is not None and plan.gap < 1e-6
    assert plan.verify().holds
