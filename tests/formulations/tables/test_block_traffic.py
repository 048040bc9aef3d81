"""Traffic within blocks by hand: all-reduces of tensor groups, keys and values of context ranks, and their links."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from taut.data.model import ModelSpec
from taut.formulations.degrees import BlockShape
from taut.formulations.latency import step_time
from taut.formulations.links import links
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.block_links import best_block, block_link
from tests.support.small import candidate, cluster, costs, problem, strategy

LAYERS = 2
SPEC = ModelSpec.parse({"name": "small", "layers": LAYERS, "hidden": 64, "heads": 4, "kv_heads": 2, "seq": 100}, "s")
OUTPUT, KEYS = 2 * 50 * 64, 2 * 2 * 50 * 16
"""Bytes in bf16 of 50 of 100 tokens: of an output of 64, and of keys and values of one of two key-value heads of 16."""


def with_contexts(*, nodes: int, size: int, nic_gbps: float | None = None) -> PlanningProblem:
    """Nodes with 1 GB/s between them and 10 GB/s within, and costs at two context ranks as at one."""
    rows = [[float(i != j) for j in range(nodes)] for i in range(nodes)]
    table = costs(SPEC)
    both = [row.model_copy(update={"cp": cp}) for row in table.rows for cp in (1, 2)]
    table = table.model_copy(update={"rows": both})
    return problem(
        cluster(nodes, size, rows=rows, nic_gbps=nic_gbps), SPEC, table=table, latency_model="step", max_tp=2, max_cp=2
    )


def two_contexts(pp: int, dp: int, m: int) -> Candidate:
    return replace(candidate(pp, 2, dp, m=m), cp=2)


def test_a_layer_sends_outputs_and_keys_of_its_share_of_the_tokens() -> None:
    """Four all-reduces of half the tokens on two ranks, and three turns of one rank's keys and values."""
    tables = with_contexts(nodes=1, size=4).tables(two_contexts(1, 1, 8))
    plain, full = (tables.traffic.at(r, 0, LAYERS) for r in (0, 2))
    # 2 (2-1)/2 = 1 of the output crosses each link, in 2 (2-1) = 2 steps; cp - 1 = 1 step for keys and values.
    assert [float(figure) for figure in plain] == [8 * OUTPUT, 16, 6 * KEYS, 6, 0, 0, 0]
    assert [float(figure) for figure in full] == [12 * OUTPUT, 24, 8 * KEYS, 8, 0, 0, 0]
    assert [float(figure) for figure in tables.forward.at(0, LAYERS)] == [4 * OUTPUT, 8, 2 * KEYS, 2, 0, 0, 0]


def test_selective_recompute_passes_keys_once_more_without_another_all_reduce() -> None:
    """Attention is computed again from the keys of all ranks."""
    tables = with_contexts(nodes=1, size=4).tables(two_contexts(1, 1, 8))
    assert [float(figure) for figure in tables.traffic.at(1, 0, 1)] == [4 * OUTPUT, 8, 4 * KEYS, 4, 0, 0, 0]


def test_a_block_in_a_node_waits_for_both() -> None:
    """One stage in one node: computation, traffic at 10 GB/s, and a ring of two holders of the weights."""
    # t = 2 layers of 3 s; 4 micro-batches. Rings of two members in a node: 4 (2-1)/2 = 2 of the bytes.
    given, choice = with_contexts(nodes=1, size=4), two_contexts(1, 1, 4)
    found = step_time(given, strategy(choice, LAYERS), np.arange(4).reshape(1, 1, 4))
    within = (8 * OUTPUT + 6 * KEYS) / 10e9
    gradients = 2 * float(given.gradient_bytes(choice)[0, LAYERS]) / 10e9
    assert float(found.total) == pytest.approx(4 * (6 + within) + gradients, rel=1e-12)
    assert float(found.tensor_parallel) == pytest.approx(4 * within, rel=1e-12)


def test_a_block_of_two_nodes_passes_keys_between_them() -> None:
    """All-reduces stay within nodes at 10 GB/s; keys and values share the cards with the other tensor rank's."""
    # Cards of 8 Gb/s = 1 GB/s a node, of which each of two rings has half; so has each ring of gradients.
    given, choice = with_contexts(nodes=2, size=2, nic_gbps=8), two_contexts(1, 1, 4)
    found = step_time(given, strategy(choice, LAYERS), np.arange(4).reshape(1, 1, 4))
    within = 8 * OUTPUT / 10e9 + 6 * KEYS / 0.5e9
    gradients = float(given.gradient_bytes(choice)[0, LAYERS]) / 0.5e9
    assert float(found.total) == pytest.approx(4 * (6 + within) + gradients, rel=1e-12)


def test_the_hop_of_a_block_carries_a_share_of_the_tokens() -> None:
    """Two stages on two nodes: each of four ranks sends half of the tokens, over a quarter of the cards."""
    # Outputs of 6,400 B at 1/4 of 8 Gb/s: 25.6 us each way; two trips (m = 4, pp = 2).
    given, choice = with_contexts(nodes=2, size=4, nic_gbps=8), two_contexts(2, 1, 4)
    found = step_time(given, strategy(choice, 1, LAYERS), np.arange(8).reshape(2, 1, 4))
    assert float(found.pipeline_transfers) == pytest.approx(2 * 2 * OUTPUT / 0.25e9, rel=1e-12)


@pytest.mark.parametrize(
    ("size", "near", "far"),
    [
        # Of 8 experts 2 take a token. Of 4 ranks each reaches 1 - C(6,2)/C(8,2) = 13/28, 3 of them on other devices.
        (4, 3 * 13 / 28, 0.0),
        # Of 2 nodes each reaches 1 - C(4,2)/C(8,2) = 22/28; of the 2 devices of each the token is at one already.
        (2, 2 * 13 / 28, 22 / 28),
        # Of 4 nodes of one device the 3 others.
        (1, 0.0, 3 * 13 / 28),
    ],
)
def test_a_token_crosses_to_a_node_once(size: int, near: float, far: float) -> None:
    """Four exchanges of a layer's output between four expert ranks on nodes of 4, 2 and 1 devices."""
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 64}
    spec = ModelSpec.parse(
        {"name": "routed", "layers": LAYERS, "hidden": 64, "heads": 4, "seq": 100, "experts": experts}, "s"
    )
    rows = costs(spec)
    table = rows.model_copy(
        update={"rows": [row.model_copy(update={"ep": ep, "etp": int(ep > 1)}) for row in rows.rows for ep in (1, 4)]}
    )
    given = problem(cluster(4 // size, size), spec, table=table, latency_model="step", max_tp=1, max_ep=4)
    found = given.tables(replace(candidate(1, 1, 4, m=1), ep=4, etp=1)).traffic.at(0, 0, LAYERS)
    output = 2 * 100 * 64
    assert float(found.near_bytes) == pytest.approx(LAYERS * 4 * near * output, rel=1e-12)
    assert float(found.far_bytes) == pytest.approx(LAYERS * 4 * far * output, rel=1e-12)
    assert float(found.expert_steps) == LAYERS * 4


@pytest.mark.parametrize(("nodes", "size", "tp", "width"), [(1, 4, 2, 4), (2, 4, 1, 2), (2, 2, 2, 4), (2, 2, 1, 4)])
@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("by_device", [False, True])
def test_no_block_beats_the_best(nodes: int, size: int, tp: int, width: int, by_device: bool, experts: bool) -> None:
    """Of all blocks that keep their tensor groups in a node, none has a slowest link that is faster than the best."""
    block = BlockShape(tp, 1, width, 1) if experts else BlockShape(tp, width // tp)
    for seed in range(5):
        count = nodes * size if by_device else nodes
        rows = np.random.default_rng(seed).uniform(0.1, 20, (count, count)).tolist()
        given = links(cluster(nodes, size, rows=rows, nic_gbps=30 if seed % 2 else None))
        every = np.array(list(permutations(range(nodes * size), width)))
        groups = given.node_of[every].reshape(len(every), -1, tp)
        whole = (groups == groups[..., :1]).all(axis=(1, 2))
        spread = np.array([len(set(block)) for block in given.node_of[every].tolist()]) <= max(width // size, 1)
        found = block_link(given, every[whole & spread], block)
        best = best_block(given, np.ones(nodes, dtype=bool), block)
        for name, figure in found._asdict().items():
            assert getattr(best, name) <= np.min(figure), (seed, name)
