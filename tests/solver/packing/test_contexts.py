"""Dynamic context degrees: degrees and rule by hand, full rows as the plan's, and the bound against all assignments."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.solver.packing import rules
from taut.solver.packing.rules import dynamic_step, greedy, has_contexts, least_degrees
from taut.solver.packing.step_graph import Packed, flow_shop


def one_stage(random: np.random.Generator, replicas: int = 2, ranks: int = 2) -> Packed:
    """Micro-batches of one sequence of 16 tokens on two ranks, with a ring and attention in proportion to squares."""
    slope, ring = random.uniform(0.2, 1.0, (1, 1, 1, 2)), random.uniform(0.0, 2.0, (2, 1, 1, 1, 1))
    figures = (each.repeat(replicas, axis=0) for each in (np.full((1, 1, 1), 0.1), slope, *ring))
    fixed, slope, sent, hidden = figures
    graph = flow_shop(2, fixed, slope, sent, hidden)
    return Packed(graph, 16, 16, ranks, lambda tokens: tokens[:, None] ** 2)


def test_degrees_are_the_least_that_hold_the_tokens() -> None:
    """At most 8 tokens a rank: 1 to 8 on one, 9 to 16 on two, 17 on four ranks."""
    assert least_degrees(np.array([1, 8, 9, 16, 17, 32, 33]), 8).tolist() == [1, 1, 2, 2, 4, 4, 8]


def test_wide_groups_go_first() -> None:
    """
    On four ranks: 3 s on two of them, 2 s on two, then 2 s and 1 s on one each.

    The pairs end at 3 and 2 s; 2 s goes behind the second pair and ends at 4 s, 1 s beside it.
    """
    seconds, degrees = np.array([1.0, 3.0, 2.0, 2.0]), np.array([1, 2, 1, 2])
    assert greedy(seconds, degrees, 4) == 4.0


def test_a_step_of_whole_sequences_is_the_plan() -> None:
    """Two replicas of two micro-batches with sequences of the plan's length take what the graph says."""
    packed = one_stage(np.random.default_rng(0))
    assert has_contexts(packed)
    found = dynamic_step(packed, np.full(4, 16))
    assert found.step_s == pytest.approx(float(packed.graph.steps(np.ones((2, 2, 2)))))
    assert found.bound_s <= found.step_s * (1 + 1e-12)


def test_short_sequences_have_no_ring() -> None:
    """Eight sequences of 8 tokens go to one rank each, and the ring's seconds do not matter."""
    packed = one_stage(np.random.default_rng(1))
    none = np.zeros((2, 1, 0))
    without = replace(packed, graph=replace(packed.graph, ring=none, cover=none))
    assert dynamic_step(packed, np.full(8, 8)).step_s == dynamic_step(without, np.full(8, 8)).step_s


def least_of_all(packed: Packed, tokens: Ints) -> float:
    """The least largest sum of a rank over all aligned groups that may hold each sequence."""
    pool = packed.graph.replicas * packed.contexts
    least, features = least_degrees(tokens, packed.budget // packed.contexts), packed.features(tokens)
    choices = []
    for i in range(len(tokens)):
        own = []
        for g in (g for g in (1, 2, 4) if g >= least[i]):
            seconds = float(rules._seconds(packed, features[i : i + 1], np.array([g]), False)[0])
            own += [np.where(np.arange(pool) // g == k, seconds, 0.0) for k in range(pool // g)]
        choices.append(own)
    return min(float(np.sum(each, axis=0).max()) for each in product(*choices)) + packed.graph.beside


@pytest.mark.proof
def test_no_assignment_is_below_the_bound() -> None:
    """A hundred draws of up to four sequences on four ranks; some meet the bound, and the rule is never below it."""
    gaps = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        packed, tokens = one_stage(random), random.integers(1, 17, random.integers(1, 5))
        found, best = dynamic_step(packed, tokens), least_of_all(packed, tokens)
        assert found.bound_s <= best * (1 + 1e-12), seed
        assert found.step_s >= best * (1 - 1e-12), seed
        gaps.append(best / found.bound_s - 1.0)
    assert min(gaps) < 1e-12
