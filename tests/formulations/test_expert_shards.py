"""Sharded experts have groups of their own: gathers and bytes by hand, and the groups of the exported ranks."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.memory import ParameterBytes
from taut.data.model import ModelSpec
from taut.formulations.gradient_reductions import ring_rates
from taut.formulations.latency import step_time
from taut.formulations.mechanisms.shards import expert_holders, held_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.sharding import rates_by_worker
from taut.formulations.space import Candidate
from tests.support.rank_groups import rank_groups
from tests.support.small import candidate, cluster, costs, problem, strategy

LAYERS, SLOW = 4, 1e-5
"""Layers, and GB/s between two nodes of two devices with 10 GB/s inside."""
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 64}
INSIDE, BETWEEN = 1 / 10e9, 1 / 10e3


def routed(seconds: float = 1000.0, nodes: int = 2) -> PlanningProblem:
    """Nodes of two devices, layers of eight experts, of so many seconds forward and for either gradient."""
    spec = ModelSpec.parse(
        {"name": "routed", "layers": LAYERS, "hidden": 64, "heads": 4, "seq": 100, "experts": EXPERTS}, "s"
    )
    rows = costs(spec, devices={"d": seconds})
    table = rows.model_copy(
        update={"rows": [row.model_copy(update={"ep": ep, "etp": int(ep > 1)}) for row in rows.rows for ep in (1, 2)]}
    )
    rows_of_nodes = [[0.0 if i == j else SLOW for j in range(nodes)] for i in range(nodes)]
    return problem(
        cluster(nodes, 2, rows=rows_of_nodes), spec, table=table, latency_model="step", max_tp=1, max_ep=2, zero=[2, 3]
    )


def two_ranks(zero: int) -> Candidate:
    """Two expert ranks on each node, and two devices with the same experts."""
    return replace(candidate(1, 1, 4, m=2, zero=zero), ep=2, etp=1)


def parameters(given: PlanningProblem) -> tuple[int, int]:
    """Parameters of a layer on one device: of experts, and all others."""
    tables = given.tables(two_ranks(3))
    experts = int(tables.experts[0, 1])
    # Four of the eight experts with two matrices of 64 x 64.
    assert experts == 4 * 2 * 64 * 64
    return experts, int(tables.parameters[0, 1]) - experts


@pytest.mark.parametrize("zero", [2, 3])
def test_experts_and_the_rest_are_gathered_one_after_the_other_in_their_own_rings(zero: int) -> None:
    """Long layers hide all but the first gather and last scatter of a pass: of both parts, each at its own rate."""
    given = routed()
    experts, dense = parameters(given)
    # Half of a ring: 4 (2-1)/2 = 2 inside nodes and 2 (2-1)/2 = 1 between them, of experts between them alone.
    by_dense, by_expert = (2 * INSIDE + BETWEEN) / 2, BETWEEN / 2
    moved = by_dense * dense + by_expert * experts
    found = step_time(given, strategy(two_ranks(zero), LAYERS), np.arange(4).reshape(1, 2, 2))
    gathers = 2 * 2 if zero == 3 else 0
    # Two micro-batches; gradients have 4 bytes, of which ZeRO-2 leaves the updated weights of 2 to the end.
    assert float(found.sharding) == pytest.approx(2 * (gathers + 4) * moved, rel=1e-9)
    after = 0.0 if zero == 3 else LAYERS * 2 * moved
    assert float(found.data_parallel - found.sharding) == pytest.approx(after, rel=1e-9, abs=1e-9)


def test_both_parts_are_divided_by_their_own_devices() -> None:
    """Of 1,000 parameters 600 of experts that two of four devices share; two layers of 250 are gathered whole."""
    choice, each = two_ranks(3), ParameterBytes(2, 4, 12)
    found = held_bytes(np.array(1000), np.array(250), each, choice, np.array(600))
    shared = 400 // 4 + 600 // 2
    assert [int(figure) for figure in found] == [2 * shared + 2 * 250 * 2, 4 * shared, 12 * shared]
    weights, gradients, states = held_bytes(np.array(1000), np.array(250), each, two_ranks(2), np.array(600))
    assert [int(weights), int(gradients), int(states)] == [2 * 1000, 4 * shared, 12 * shared]


def test_shards_of_experts_lie_in_the_groups_of_the_exported_ranks() -> None:
    """A rank that exports put in one group of ``edp`` gathers its experts in a ring of that group alone."""
    given, choice = routed(), two_ranks(3)
    groups = rank_groups(choice)
    assert groups["edp"].tolist() == [[0, 2], [1, 3]]
    assert groups["dp_cp"].tolist() == [[0, 1, 2, 3]]
    devices = np.arange(4).reshape(1, 2, 2)
    # Both members of a group on one node: the ring of experts then stays inside it, that of the rest does not.
    apart = np.array([0, 2, 1, 3]).reshape(1, 2, 2)
    assert float(ring_rates(given, expert_holders(choice), devices)[0, 0]) == pytest.approx(BETWEEN)
    assert float(ring_rates(given, expert_holders(choice), apart)[0, 0]) == pytest.approx(2 * INSIDE)
    common, experts = rates_by_worker(given, choice, devices)
    assert common.shape == experts.shape == (1, 2)
    assert np.allclose(experts, 0.5 * BETWEEN) and (common > experts).all()


def two_copies(zero: int) -> Candidate:
    """Eight devices on four nodes in two copies of two nodes, two expert ranks on each node."""
    return replace(candidate(1, 1, 8, m=1, zero=zero, dp_shard=4), ep=2, etp=1)


@pytest.mark.parametrize("zero", [2, 3])
def test_copies_sum_their_shards_of_experts_and_of_all_else(zero: int) -> None:
    """Of dense gradients a quarter on each of four devices, of experts a half on each of two; two copies sum both."""
    given, choice = routed(nodes=4), two_copies(zero)
    assert choice in replace(given, space=given.space.model_copy(update={"fixed": {"dp_shard": 4}})).candidates
    experts, dense = parameters(given)
    found = step_time(given, strategy(choice, LAYERS), np.arange(8).reshape(1, 4, 2))
    # Within a copy a ring of all is 2 inside nodes and 1 between, one of experts between alone; half for a gather.
    moved = (2 * INSIDE + BETWEEN) / 2 * dense + BETWEEN / 2 * experts
    assert float(found.sharding) == pytest.approx(((2 * 2 if zero == 3 else 0) + 4) * moved, rel=1e-9)
    # Gradients of 4 bytes: rings of two devices on two nodes. ZeRO-2 gathers weights of 2 bytes within its copies.
    summed = LAYERS * BETWEEN * (4 / 4 * dense + 4 / 2 * experts)
    after = summed + (0.0 if zero == 3 else LAYERS * 2 * moved)
    assert float(found.data_parallel - found.sharding) == pytest.approx(after, rel=1e-9)


def test_each_part_is_divided_by_its_devices_of_a_copy() -> None:
    """Of 1,000 parameters 600 of experts, which two of eight devices share, the others four."""
    each, shared = ParameterBytes(2, 4, 12), 400 // 4 + 600 // 2
    found = held_bytes(np.array(1000), np.array(250), each, two_copies(2), np.array(600))
    assert [int(figure) for figure in found] == [2 * 1000, 4 * shared, 12 * shared]


def test_a_copy_without_whole_groups_of_experts_is_no_candidate() -> None:
    """Four expert ranks and two devices to a copy: Megatron-LM and torchtitan both refuse it."""
    given = routed(nodes=4)
    rows = [row.model_copy(update={"ep": 4}) for row in given.costs.rows if row.ep == 2]
    costs_of_four = given.costs.model_copy(update={"rows": [*given.costs.rows, *rows]})
    space = given.space.model_copy(update={"max_ep": 4, "fixed": {"dp_shard": 2}})
    found = replace(given, costs=costs_of_four, space=space).candidates
    assert {choice.ep for choice in found if choice.dp_shard} == {1, 2}
