"""Traffic within blocks by hand: all-reduces of tensor groups, keys and values of context ranks, and their links."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from taut.data.model import ModelSpec
from taut.data.stack import ContextKind
from taut.formulations.degrees import BlockShape
from taut.formulations.latency import step_time
from taut.formulations.links import links
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.block_traffic import BlockLink, Traffic, best_block, block_link
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


def told(traffic: Traffic) -> list[float]:
    """Bytes and steps of tensor groups and of rings of keys, where nothing else is sent and nothing hidden."""
    assert not any(float(figure.sum()) for figure in traffic[4:])
    return [float(figure.sum()) for figure in traffic[:4]]


def of_kind(kind: ContextKind, *, nodes: int, size: int, cp: int, overlap: bool = False) -> tuple[Traffic, BlockLink]:
    """Traffic of the small model's layers, all heads with keys of their own, and the links of a block of tp 1."""
    shape = {"name": "small", "layers": LAYERS, "hidden": 64, "heads": 4, "seq": 128}
    spec, base = ModelSpec.parse(shape, "s"), with_contexts(nodes=nodes, size=size, nic_gbps=16)
    table = costs(spec)
    table = table.model_copy(update={"rows": [row.model_copy(update={"cp": cp}) for row in table.rows]})
    more = {"cp_comm": [kind], "overlap_context": overlap, "max_cp": cp}
    given = replace(base, model=spec, costs=table, space=base.space.model_copy(update=more))
    choice = replace(candidate(1, 1, nodes * size // cp, m=4), cp=cp, cp_comm=kind)
    link = block_link(given.links, np.arange(nodes * size)[:cp], choice.block)
    return given.tables(choice).traffic.at(0, 0, LAYERS), link


def test_all_to_alls_send_a_share_to_every_rank() -> None:
    """Queries, keys, values and outputs of 32 tokens: a quarter stays, the same goes to each of three others."""
    # 4 ranks on two nodes of 2: 1 peer inside at 10 GB/s, 2 beyond at half of the cards' 2 GB/s for each device.
    traffic, link = of_kind("a2a", nodes=2, size=2, cp=4)
    moved = 2 * 32 * 4 * 64
    wanted = LAYERS * 2 * (moved / 4 / 10e9 + 2 * moved / 4 / 1e9)
    assert float(traffic.seconds(link)) == pytest.approx(wanted, rel=1e-12)


def test_a_ring_between_nodes_follows_all_to_alls_within_them() -> None:
    """Two ranks of a node exchange half of what they have; one step of 32 tokens' keys goes to the other node."""
    traffic, link = of_kind("a2a+p2p", nodes=2, size=2, cp=4)
    # Three turns, forward and twice backward, of 2 x 64 numbers of 2 bytes for each of 32 tokens at 1 GB/s.
    wanted = LAYERS * (2 * 2 * 32 * 4 * 64 / 2 / 10e9 + 3 * 2 * 32 * 128 / 1e9)
    assert float(traffic.seconds(link)) == pytest.approx(wanted, rel=1e-12)


def test_attention_hides_steps_of_a_ring() -> None:
    """Each of three steps shows what it takes beyond a quarter of the rank's forward attention; a gather all of it."""
    # A step: 2 x 32 x 128 bytes at 1 GB/s = 8.192 us. Attention of 32 tokens to 128: 4 x 32 x 128 x 64 FLOP at
    # 0.4 TFLOP/s, a quarter beside each step = 0.6554 us.
    hidden, link = of_kind("p2p", nodes=2, size=2, cp=4, overlap=True)
    step = 2 * 32 * 128 / 1e9
    beside = 4 * 32 * 128 * 64 / 0.4e12 / 4
    assert float(hidden.seconds(link)) == pytest.approx(LAYERS * 3 * 3 * (step - beside), rel=1e-12)
    gathered, link = of_kind("all_gather", nodes=2, size=2, cp=4, overlap=True)
    assert float(gathered.seconds(link)) == pytest.approx(LAYERS * 3 * 3 * step, rel=1e-12)


def test_a_layer_sends_outputs_and_keys_of_its_share_of_the_tokens() -> None:
    """Four all-reduces of half the tokens on two ranks, and three turns of one rank's keys and values."""
    tables = with_contexts(nodes=1, size=4).tables(two_contexts(1, 1, 8))
    plain, full = (tables.traffic.at(r, 0, LAYERS) for r in (0, 2))
    # 2 (2-1)/2 = 1 of the output crosses each link, in 2 (2-1) = 2 steps; cp - 1 = 1 step for keys and values.
    assert told(plain) == [8 * OUTPUT, 16, 6 * KEYS, 6]
    assert told(full) == [12 * OUTPUT, 24, 8 * KEYS, 8]
    assert told(tables.forward.at(0, LAYERS)) == [4 * OUTPUT, 8, 2 * KEYS, 2]


def test_selective_recompute_passes_keys_once_more_without_another_all_reduce() -> None:
    """Attention is computed again from the keys of all ranks."""
    tables = with_contexts(nodes=1, size=4).tables(two_contexts(1, 1, 8))
    assert told(tables.traffic.at(1, 0, 1)) == [4 * OUTPUT, 8, 4 * KEYS, 4]


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
