"""The bound of computation alone, which takes no communication, no memory and no table of ranges."""

import numpy as np
import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.ladder import Ladder, balance_bound, computation
from tests.solver.order_priced.test_bound import random_orders
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, costs, model, problem
from tests.support.unlike import unlike_problem

KINDS = "nodes", "measured", "experts", "orders", "unlike"


def instance(kind: str, seed: int) -> PlanningProblem:
    """A random problem: links by node, measured by device, with experts, of priced orders, or on several types."""
    if kind == "orders":
        return random_orders(seed, ["zb-h1", "zb-v", "v-min", "interleaved-1f1b"])
    if kind == "unlike":
        return unlike_problem(seed)
    return random_problem(seed, measured=kind == "measured", experts=kind == "experts")


@pytest.mark.parametrize("kind", KINDS)
def test_balance_is_never_above_the_relaxation(kind: str) -> None:
    """Communication, straggling stages and the optimizer only add to what is computed; a check derives it again."""
    for seed in range(12):
        ladder = Ladder(instance(kind, seed))
        for candidate in ladder.problem.candidates:
            seconds = ladder.balance(candidate)
            assert 0 < seconds <= ladder.relaxation(candidate) * (1 + 1e-15), (seed, candidate)
            assert derived_bound(ladder, candidate, "balance", {}) == seconds


@pytest.mark.parametrize("kind", KINDS)
def test_seconds_of_layers_are_those_of_ranges_of_one_layer(kind: str) -> None:
    """What single layers take without tables of ranges is what the tables say of ranges of one layer."""
    for seed in range(12):
        given = instance(kind, seed)
        for candidate in given.candidates[:5]:
            tables, layers = given.tables(candidate), np.arange(given.num_layers(candidate))
            found = given.priced_layers(candidate).seconds_of_layers()
            assert found == pytest.approx(tables.seconds[..., layers, layers + 1], rel=1e-14)


def test_balance_by_hand() -> None:
    """Two stages, m = 4, three layers of 0.1 s: 0.3 + 3 0.15 s; with one of two devices half as fast, 0.3 + 3 0.2 s."""
    spec, fixed = model(3), {"pp": 2, "tp": 1, "micro_batch": 1, "schedule": "1f1b", "zero": 0}
    table = costs(spec, seconds={"block": 1 / 30}, devices={"d": 1.0, "e": 2.0})
    for kinds, least in (("d", "d"), 0.75), (("d", "e"), 0.9), (("e", "d"), 0.9), (("e", "e"), 1.5):
        nodes = cluster(2, 1, devices=kinds)
        given = problem(nodes, spec, table=table, latency_model="step", fixed=fixed, global_batch=4, recompute=["none"])
        (candidate,) = given.candidates
        assert candidate.num_micro_batches == 4
        assert Ladder(given).balance(candidate) == pytest.approx(least, rel=1e-9)


def test_balance_decides_on_unlike_devices_and_is_at_most_every_plan() -> None:
    """On several types the bound is a per cent higher for a third of candidates, and never too high."""
    higher, compared = 0, 0
    for seed in range(24):
        given = unlike_problem(seed)
        ladder = Ladder(given)
        for candidate in given.candidates[::3]:
            least, layers = enumerate_candidate(given, candidate).seconds, computation(given, candidate)
            seconds, stages = ladder.balance(candidate), candidate.pp
            assert seconds <= least * (1 + 1e-12), (seed, candidate)
            alike = balance_bound(given, candidate, layers, max(layers.whole / stages, layers.longest))
            compared += not candidate.is_order_priced
            higher += not candidate.is_order_priced and seconds > 1.01 * alike
    assert compared > 100 and higher * 3 > compared


def test_candidates_with_common_tables_come_in_a_row() -> None:
    """Every candidate has one turn, those with the same prices of layers follow each other, the least bound first."""
    given = problem(cluster(2, 4), model(8), table=costs(model(8)), latency_model="step")
    ladder = Ladder(given)
    turns = [given.candidates[index] for index in ladder.turns(given.candidates)]
    assert sorted(turns) == given.candidates
    keys = [candidate.layers_key for candidate in turns]
    rows = [key for index, key in enumerate(keys) if index == 0 or keys[index - 1] != key]
    assert len(rows) == len(set(keys)) > 1
    least = [min(ladder.balance(c) for c in turns if c.layers_key == key) for key in rows]
    assert least == sorted(least)
