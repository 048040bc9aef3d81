"""Cases of racks hold every placement, and what is proven of each is not above the least over its placements."""

from functools import cache
from itertools import permutations

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.solver.placement.path_cover.build import CaseSearch
from taut.solver.placement.path_cover.cases import certified_bound
from taut.solver.placement.path_cover.racks import (
    RackCase,
    Racks,
    crosses,
    crossing_bound,
    is_whole,
    known_racks,
    racks_of,
)
from taut.solver.placement.slots import SlotGraph, between_cards
from tests.support.blocks import blocks
from tests.support.rack_cases import holds

pytestmark = pytest.mark.proof

SHAPES = [(2, 2), (3, 2), (2, 3), (4, 2), (2, 4)]
"""Stages and replicas of up to eight nodes."""
ROUNDING = 1 + 1e-9


def racked(seed: int) -> tuple[SlotGraph, Ints] | None:
    """Nodes in racks of equal or any sizes with slow, hardly slower or equal links between them; None for one rack."""
    rng = np.random.default_rng(seed)
    pp, dp = SHAPES[seed % len(SHAPES)]
    n = pp * dp
    rack = rng.permutation(np.arange(n) // dp if seed % 3 == 0 else rng.integers(0, int(rng.integers(2, 4)), n))
    slower = [4.0, 1.5, 1.0, 10.0][seed // 5 % 4]
    rate = np.exp(rng.normal(0, 0.3, (n, n))) / np.where(np.equal.outer(rack, rack), 1.0, slower)
    one_way, inverse = 1.0 / rate, np.maximum(1.0 / rate, 1.0 / rate.T)
    card = np.zeros(n) if seed % 2 else rng.uniform(0.5, 3.0, n)
    graph = SlotGraph(
        hops=one_way + one_way.T,
        inverse=between_cards(inverse, card),
        capacity=np.ones(n, np.int64),
        pp=pp,
        replicas=dp,
        card=card,
    )
    return (graph, rack) if len(np.unique(rack)) > 1 else None


@cache
def orders(pp: int, dp: int) -> Ints:
    """All placements of one slot a node, (placements, dp, pp)."""
    every = np.array(list(permutations(range(pp * dp))), dtype=np.int64).reshape(-1, dp, pp)
    return every[(np.diff(every[:, :, 0], axis=1) > 0).all(axis=1)]


def slowest_links(graph: SlotGraph, placed: Ints) -> Floats:
    """Seconds per byte of the slowest link of every stage, (placements, pp)."""
    inverse = np.where(np.eye(len(graph.hops), dtype=bool), 0.0, graph.inverse)
    return np.asarray(inverse[placed[:, :, None], placed[:, None]].max(axis=(1, 2)))


def found(seed: int) -> tuple[Racks, Ints] | None:
    made = racked(seed)
    racks = None if made is None else known_racks(*made)
    return None if racks is None else (racks, orders(racks.graph.pp, racks.graph.replicas))


@pytest.mark.parametrize("block", blocks(10))
def test_cases_hold_every_placement_once(block: int) -> None:
    """For any number of stages told apart, every placement lies in one case, and stages confined are never more."""
    checked = 0
    for seed in range(100 * block, 100 * block + 100):
        given = found(seed)
        if given is None:
            continue
        racks, placed = given
        for count in range(racks.graph.pp + 3):
            cases = racks.cases(count)
            assert (np.sum([holds(case, racks.rack, placed) for case in cases], axis=0) == 1).all()
            assert is_whole(racks, cases) and is_whole(racks, cases[::-1])
            assert len(cases) == 1 or not is_whole(racks, cases[1:])
            assert all(case.confined + case.spanning <= racks.graph.pp for case in cases)
        # Fewer than no stages are no case: without links between racks its rings would be too slow.
        assert not is_whole(racks, (RackCase(confined=-1, spanning=False),))
        checked += 1
    assert checked > 30


@pytest.mark.parametrize("block", blocks(10))
def test_a_stage_that_spans_racks_is_as_slow_as_stated(block: int) -> None:
    """The ring of every stage that spans racks, in every placement, takes the stated seconds at least."""
    met = 0
    for seed in range(100 * block, 100 * block + 100):
        given = found(seed)
        if given is None:
            continue
        racks, placed = given
        dp = racks.graph.replicas
        spans = (racks.rack[placed] != racks.rack[placed][:, :1]).any(axis=1)
        card = racks.graph.card[placed].max(axis=1)
        ring = 2 * (dp - 1) / dp * np.maximum(slowest_links(racks.graph, placed), card)
        assert racks.ring <= ring[spans].min() * ROUNDING, seed
        met += racks.ring >= ring[spans].min() / ROUNDING
    assert met > 20


@pytest.mark.parametrize("block", blocks(40))
def test_no_bound_of_a_case_is_above_its_optimum(block: int) -> None:
    """Longest path, ring, crossings and refined cases: at most the least over the placements of the case."""
    shares = []
    for seed in range(10 * block, 10 * block + 10):
        given = found(seed)
        if given is None:
            continue
        racks, placed = given
        gradients = float(np.random.default_rng((seed, 1)).choice([0.0, 0.5, 3.0]))
        for case in {each for count in range(racks.graph.pp + 2) for each in racks.cases(count)}:
            among = placed[holds(case, racks.rack, placed)]
            if len(among):
                shares.append(check_case(racks, case, among, gradients))
    assert np.mean(np.array(shares) > 0.95) > 0.5


def check_case(racks: Racks, case: RackCase, among: Ints, gradients: float) -> float:
    graph, dp = racks.restricted(case), racks.graph.replicas
    longest = graph.hops[among[:, :, :-1], among[:, :, 1:]].sum(axis=2).max(axis=1)
    assert crosses(graph, among.reshape(-1, graph.pp)).all()
    assert crossing_bound(graph) <= longest.min() * ROUNDING
    slowest = slowest_links(racks.graph, among)[:, 0]
    ring = 2 * (dp - 1) / dp * np.maximum(slowest, racks.graph.card[among[:, :, 0]].max(axis=1))
    least = float((longest + gradients * ring).min())
    search = CaseSearch(graph=graph, gradients=gradients, target=least, longest=float(longest.max()))
    for _ in range(20):
        if not search.refine(rounds=10):
            break
    assert search.value <= least * ROUNDING, case
    derived = certified_bound(graph, search.certificate())
    assert derived is not None
    assert derived.seconds(1.0, np.array([gradients]))[0] == pytest.approx(search.value, rel=1e-12)
    return search.value / least


def test_racks_are_found_by_the_largest_step_between_rates() -> None:
    """Two racks of four nodes with links four times as slow between them, in any order; none where all are alike."""
    rack = np.random.default_rng(0).permutation(np.arange(8) // 4)
    inverse = np.where(np.equal.outer(rack, rack), 1.0, 4.0)
    graph = SlotGraph(hops=inverse, inverse=inverse, capacity=np.ones(8, np.int64), pp=4, replicas=2, card=np.zeros(8))
    racks = racks_of(graph)
    assert racks is not None
    assert np.array_equal(np.equal.outer(racks.rack, racks.rack), np.equal.outer(rack, rack))
    # A ring of two nodes: 2 x 1/2 x 4 s a byte.
    assert (racks.slowest, racks.ring, racks.most_confined) == (4.0, 4.0, 4)
    ones = np.ones((8, 8))
    assert (
        racks_of(SlotGraph(hops=ones, inverse=ones, capacity=graph.capacity, pp=4, replicas=2, card=graph.card)) is None
    )
