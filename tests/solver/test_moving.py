"""What moving costs: assignments against enumeration, bytes and seconds by hand, and held parts that tile a model."""

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Floats
from taut.data.memory import ParameterBytes
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.moving import (
    Held,
    exchanged_nodes,
    held_by_workers,
    lacking_bytes,
    least_total,
    price_move,
    unit_bytes,
)
from tests.support.instances import random_problem

EACH = ParameterBytes(2, 4, 12)


def strategy(layers: list[int], dp: int = 1, tp: int = 1, zero: int = 0, **more: Any) -> Strategy:
    """A strategy with so many layers a chunk, without recompute."""
    vpp = more.pop("vpp", 1)
    schedule = "interleaved-1f1b" if vpp > 1 else "1f1b"
    candidate = Candidate(len(layers) // vpp, tp, dp, vpp, 1, 4, schedule, zero, False, **more)
    ends = np.cumsum(layers)
    return Strategy(candidate=candidate, division=Division.of_ends(ends, np.zeros(len(layers), np.int64)))


def random_strategy(rng: np.random.Generator, layers: int, devices: int) -> Strategy:
    """Random degrees that use so many devices, with random stages."""
    pp = int(rng.choice([d for d in (1, 2, 3) if devices % d == 0 and d <= layers]))
    tp = int(rng.choice([d for d in (1, 2) if devices // pp % d == 0]))
    cuts = sorted(rng.choice(np.arange(1, layers), pp - 1, replace=False))
    stages = np.diff([0, *cuts, layers]).tolist()
    return strategy(stages, dp=devices // pp // tp, tp=tp, zero=int(rng.choice([0, 1, 3])))


def missing_by_cells(size: Floats, wanted: Held, present: Held) -> Floats:
    """Lacking bytes by a comparison of every 1/360 of every unit; shares are of 1, 2, 3, 4, 5, 6 or 10 parts."""
    middle = (np.arange(360) + 0.5) / 360
    found = np.zeros((len(wanted.units), len(present.units)))
    for w, d in np.ndindex(found.shape):
        for k in range(4):
            mine = (wanted.start[w, k] < middle) & (middle < wanted.end[w, k])
            own = (present.start[d, k] < middle) & (middle < present.end[d, k])
            for u in np.flatnonzero(wanted.units[w]):
                found[w, d] += size[k, u] * np.count_nonzero(mine & ~(own & present.units[d, u])) / 360
    return found


def test_shares_of_a_model_by_hand() -> None:
    """Two stages, two replicas, ZeRO-1: weights of the own stage, half of its states, ends with the end stages."""
    held = held_by_workers(strategy([1, 2], dp=2, zero=1), both_ends=False)
    assert held.units.tolist() == [[True, True, False, False, False]] * 2 + [[False, False, True, True, True]] * 2
    assert held.start[:, 0].tolist() == [0.0] * 4 and held.end[:, 0].tolist() == [1.0] * 4
    assert held.start[:, 1].tolist() == [0.0, 0.5, 0.0, 0.5] and held.end[:, 1].tolist() == [0.5, 1.0, 0.5, 1.0]


def test_chunks_of_a_device_go_round() -> None:
    """With two chunks a device, layers 0 and 2 are on the first device, 1 and 3 on the second, head on the second."""
    held = held_by_workers(strategy([1, 1, 1, 1], vpp=2), both_ends=False)
    assert held.units[:, 1:-1].tolist() == [[True, False, True, False], [False, True, False, True]]
    assert held.units[:, 0].tolist() == [True, False] and held.units[:, -1].tolist() == [False, True]


def test_experts_are_split_by_expert_ranks() -> None:
    """Two expert ranks of one tensor rank have a half of the experts each, and all of the rest."""
    held = held_by_workers(strategy([2], dp=2, zero=1, ep=2, etp=1), both_ends=False)
    assert held.start[:, 2].tolist() == [0.0, 0.5] and held.end[:, 2].tolist() == [0.5, 1.0]
    assert held.start[:, 3].tolist() == [0.0, 0.5] and held.end[:, 3].tolist() == [0.5, 1.0]


@pytest.mark.parametrize("seed", range(20))
def test_lacking_bytes_are_those_of_every_cell(seed: int) -> None:
    """The closed form agrees with a count of cells, for random strategies on both sides."""
    rng = np.random.default_rng(seed)
    size = rng.random((4, 6))
    held = [held_by_workers(random_strategy(rng, 4, int(rng.choice([2, 3, 4, 6]))), both_ends=False) for _ in range(2)]
    assert np.allclose(lacking_bytes(size, *held), missing_by_cells(size, *held))


def test_every_byte_of_a_model_is_held_once_by_a_replica() -> None:
    """Without sharding a replica holds the model once; parameters are those of the model."""
    problem = random_problem(4)
    size = unit_bytes(problem.model, EACH)
    layers = len(problem.model.blocks)
    held = held_by_workers(strategy([layers], tp=2), both_ends=False)
    width = held.end - held.start
    assert math.isclose(float((size.sum(axis=1) * width.sum(axis=0)).sum()), float(size.sum()))


def test_a_tied_embedding_is_held_once_by_a_device() -> None:
    """One stage has the table once, of two the second has it as well, and all can give it to the other."""
    model = random_problem(4).model.model_copy(update={"tied_embedding": True, "vocab": 1024, "position_rows": 8})
    size, layers = unit_bytes(model, EACH), len(model.blocks)
    assert math.isclose(float(size.sum()), 14.0 * model.parameters())
    whole = held_by_workers(strategy([layers]), both_ends=True)
    parts = held_by_workers(strategy([1, layers - 1]), both_ends=True)
    assert parts.units[:, [0, -1]].tolist() == [[True, False], [True, True]]
    beyond = size[:, 2 : layers + 1].sum() + size[:, -1].sum()
    assert np.allclose(lacking_bytes(size, whole, parts)[0, 0], beyond)
    assert not lacking_bytes(size, parts, whole).any()


def test_500_assignments_against_enumeration() -> None:
    """No placement of the workers lacks fewer bytes than the least assignment, which one of them reaches."""
    differ = 0
    for seed in range(500):
        rng = np.random.default_rng(seed)
        old, new = (random_strategy(rng, 4, int(n)) for n in (rng.choice([4, 5, 6]), rng.choice([2, 3, 4])))
        size = rng.random((4, 6))
        costs = lacking_bytes(size, held_by_workers(new, both_ends=False), held_by_workers(old, both_ends=False))
        rows = np.arange(len(costs))
        every = [costs[rows, list(way)].sum() for way in permutations(range(costs.shape[1]), len(rows))]
        least = least_total(costs)
        assert math.isclose(least, min(every), abs_tol=1e-9)
        differ += max(every) > least + 1e-9
    assert differ > 300


def test_100_exchanges_of_nodes_against_enumeration() -> None:
    """The best exchange of nodes and of devices in them is that of all permutations that keep nodes together."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        costs = rng.random((4, 6))
        new, old = [np.arange(2), np.arange(2, 4)], [np.arange(2), np.arange(2, 4), np.arange(4, 6)]
        kind = rng.integers(0, 2, 3)
        kind[:2] = rng.permutation(2) if kind[2] else [0, 0]
        ours = np.array([0, kind.max()])
        if np.bincount(ours, minlength=2)[0] > np.bincount(kind, minlength=2)[0]:
            continue
        found = exchanged_nodes(costs, new, ours, old, kind)
        totals = [
            min(costs[new[0], list(a)].sum() for a in permutations(old[i]))
            + min(costs[new[1], list(b)].sum() for b in permutations(old[j]))
            for i, j in permutations(range(3), 2)
            if kind[i] == ours[0] and kind[j] == ours[1]
        ]
        assert math.isclose(costs[np.arange(4), found].sum(), min(totals))


def test_a_move_by_hand() -> None:
    """
    Two stages of 100 bytes on nodes 0 and 1 (two equal devices each); node 1's stage goes to both devices of node 2.

    Node 2 lacks 200 bytes: 100 come over its cards of 10 bytes a second, 100 are passed on inside at 50.
    """
    size = np.zeros((4, 4))
    size[0] = [0, 100, 100, 0]
    present = held_by_workers(strategy([1, 1], dp=2), both_ends=False).at(np.array([0, 1, 2, 3, -1, -1]))
    wanted = held_by_workers(strategy([1, 1], dp=2), both_ends=False)
    place = np.array([0, 1, 4, 5])
    moved = price_move(
        size,
        wanted,
        present.at(place),
        present,
        node=place // 2,
        node_present=np.arange(6) // 2,
        card_rate=np.full(3, 10.0),
        inner_rate=np.full(3, 50.0),
        least=least_total(lacking_bytes(size, wanted, present)),
    )
    assert (moved.weights, moved.states, moved.least) == (200.0, 0.0, 0.0)
    assert (moved.inside, moved.between, moved.checkpoint) == (100.0, 100.0, 0.0)
    assert (moved.least_s, moved.most_s) == (10.0, 12.0)


def test_what_nobody_holds_comes_from_the_checkpoint() -> None:
    """Without node 1, its stage is lost: node 0 gets 100 bytes from the checkpoint."""
    size = np.zeros((4, 4))
    size[0] = [0, 100, 100, 0]
    present = held_by_workers(strategy([1, 1], dp=2), both_ends=False).at(np.array([0, 1]))
    moved = price_move(
        size,
        held_by_workers(strategy([2], dp=2), both_ends=False),
        present,
        present,
        node=np.zeros(2, np.int64),
        node_present=np.zeros(2, np.int64),
        card_rate=np.full(1, 10.0),
        inner_rate=np.full(1, 50.0),
        least=None,
    )
    assert (moved.inside, moved.between, moved.checkpoint) == (100.0, 0.0, 100.0)
    assert (moved.least_s, moved.most_s) == (10.0, 12.0)
