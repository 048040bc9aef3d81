"""Muon: matrices of layers, who orthogonalises which, seconds and bytes by hand."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import taut
from taut.data.layers.layer import LayerSpec
from taut.formulations.degrees import BlockShape
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.mechanisms.muon import (
    Matrix,
    Rates,
    assign,
    assign_each,
    least_makespan,
    matrices_of,
)
from taut.formulations.strategy import Division, Strategy
from taut.solver.simple_plans import rank_order

LLAMA = {"hidden": 64, "heads": 4, "kv_heads": 2, "ffn_hidden": 96, "seq": 16, "gated_mlp": True}
GPU = {
    "name": "one",
    "memory_gib": 1.0,
    "peak_tflops": {"bf16": 0.001},
    "memory_bandwidth_gbytes": 30.0,
    "gemm_efficiency": 0.5,
    "launch_us": 0.0,
}


def layer(**more: object) -> LayerSpec:
    """A small Llama's layer."""
    return LayerSpec.parse({**LLAMA, **more}, "layer")


def test_a_plain_layer_has_four_matrices() -> None:
    """On two tensor ranks: rows of queries, keys and values and of the first product, columns of the others."""
    found = matrices_of(layer(), BlockShape(2))
    assert [(one.rows, one.columns, one.ranks) for one in found] == [(64, 64, 2), (64, 32, 2), (96, 64, 2), (64, 48, 2)]
    assert found[0].parts == ((64, 64), (32, 64), (32, 64))
    assert found[2].parts == ((192, 64),) and found[3].parts == ((64, 96),)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x22b", "qwen3-30b-a3b", "kimi-k2", "moonlight-16b-a3b"])
def test_matrices_have_the_matrix_parameters_of_a_layer(name: str) -> None:
    """Those of the catalog's models, dense or with experts, with plain or latent attention."""
    for kind, tp in product(taut.load_model(name).kinds.values(), (1, 2, 4)):
        assert sum(one.size * one.copies for one in matrices_of(kind, BlockShape(tp))) == kind.matrix_parameters(tp)


def test_experts_of_expert_ranks_are_apart() -> None:
    """Of 8 experts on 4 ranks each has 2 whole, beside a router that is whole."""
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 32, "shared_ffn_hidden": 16}
    found = matrices_of(layer(experts=experts), BlockShape(2, 1, 4, 1))
    assert Matrix(8, 64, ((8, 64),)) in found
    assert Matrix(64, 64, ((64, 64),), 1, 2, True) in found and Matrix(64, 32, ((64, 32),), 1, 2, True) in found


def test_flop_and_seconds_of_a_matrix() -> None:
    """
    32 by 96 on 2 ranks that split rows: 5 (4 32^2 96 + 2 32^3) = 2,293,760 FLOP.

    At 1e9 a second 2.29376 ms, the other half of 4 32 96 bytes at 1 MB/s 6.144 ms, 1,536 parameters at 1 us 1.536 ms.
    """
    one = Matrix(16, 96, ((32, 96),), 2)
    assert one.flop == 2_293_760 and one.order == 96 * 16**2
    assert Rates(1e-9, 0.0, 1e-6, 1e-6).seconds(one) == pytest.approx(2.29376e-3 + 6.144e-3 + 1.536e-3)
    assert Rates(1e-9, 5e-3, 0.0, 0.0).seconds(one) == 5e-3


def test_longest_first_by_hand() -> None:
    """
    Of 5, 4, 3, 3 and 3 on 2 ranks longest first makes 5 3 3 and 4 3, the best 5 4 and 3 3 3.

    With a cap of 1.3 times the mean 9 the first rank takes 11.
    """
    sizes = np.array([5, 4, 3])
    seconds, amount = sizes.astype(float), np.array([1, 1, 3])
    assert assign(sizes, sizes, seconds, amount, 2) == (10.0, 10.0)
    assert least_makespan(seconds, amount, 2) == 9.0
    assert least_makespan(seconds, np.array([1, 1, 0]), 4) == 5.0
    # 3 equal ones on 2 ranks: one rank has two.
    assert least_makespan(np.array([4.0]), np.array([3]), 2) == 8.0


def test_parameters_cap_a_rank() -> None:
    """
    One long matrix of 2 parameters and six short ones of 5: 32 on 2 ranks, at most 20.8 each.

    The long one takes rank 0; rank 1 has room for four of the short ones, and the others go to rank 0.
    """
    order, size, seconds = np.array([100, 1]), np.array([2, 5]), np.array([100.0, 1.0])
    assert assign(order, size, seconds, np.array([1, 6]), 2) == (102.0, 20.0)


def test_rounds_are_single_steps() -> None:
    """Whole rounds of equal matrices end as one by one."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        kinds, ranks = int(rng.integers(1, 4)), int(rng.integers(1, 6))
        order = np.sort(rng.integers(1, 50, kinds))[::-1].copy()
        size, seconds, amount = rng.integers(1, 9, kinds), rng.random(kinds), rng.integers(0, 30, kinds)
        load, held, taken = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
        cap = (size * amount).sum() / ranks * 1.3
        for kind in range(kinds):
            for _ in range(amount[kind]):
                room = held + size[kind] <= cap
                rank = np.where(room, load, np.inf).argmin() if room.any() else held.argmin()
                load[rank] += order[kind]
                held[rank] += size[kind]
                taken[rank] += seconds[kind]
        found = assign_each(order, size, seconds, amount, ranks)
        assert found == pytest.approx((taken.max(), held.max()))
        assert found[0] >= least_makespan(seconds, amount, ranks) * (1 - 1e-12)


def small(**options: Any) -> taut.PlanningProblem:
    """A model of two layers without vocabulary on a node of four devices."""
    model = taut.ModelSpec.parse({"name": "m", "layers": 2, **LLAMA}, "m")
    node = {"device": GPU, "gpus_per_node": 4, "intra_bandwidth_gbps": 8.0}
    cluster = taut.ClusterSpec.parse({"name": "c", "nodes": [node]}, "c")
    memory = {"overhead_gib": 0.0, "margin": 0.0}
    options = {"global_batch": 4, "stack": "any", "memory_model": memory, **options}
    return taut.planning_problem(taut.PlanRequest(model, cluster, optimizer="muon", **options))


def test_seconds_and_bytes_of_a_stage_by_hand() -> None:
    """
    Two layers on 4 replicas, ZeRO-1: 8 matrices, of which each rank takes 2.

    Sizes of a layer: 128 x 64 (queries, keys, values), 64 x 64, 192 x 64, 64 x 96. Sorted by longer x shorter^2:
    192 x 64 (786,432), 128 x 64 (524,288), 64 x 96 (393,216), 64 x 64 (262,144), two of each. Ranks 0 and 1 take the
    first, 2 and 3 the second and the third (8,192 + 6,144 parameters; the cap is 1.3 x 15,360 = 19,968). 64 x 64 goes
    to ranks 0 and 1, the least so far: 786,432 against 917,504. They have 12,288 + 4,096 = 16,384 parameters, the most.
    Rank 0 has 5 (4 64^2 192 + 2 64^3) + 5 (4 64^2 64 + 2 64^3) = 26,214,400 FLOP, rank 2 has 23,592,960: of
    queries 64 x 64 7,864,320 and of keys and values 32 x 64 each 1,638,400, and of 64 x 96 10,485,760 less. At 5e8 a
    second rank 0 takes 52.4288 ms. Norms: 2 x 128 over 4 ranks.
    """
    problem = small(fix={"tp": 1, "pp": 1, "cp": 1, "zero": 1, "micro_batch": 1})
    candidate = problem.candidates[0]
    tables = problem.tables(candidate).under_muon
    assert tables.held[0, 2] == 2 * 30_720 and tables.fullest[0, 2] == 16_384
    own = problem.costs.optimizer_s_per_parameter["one"]
    expected = 26_214_400 / 5e8 + (16_384 + 256 / 4) * own
    assert tables.seconds[0, 2] == pytest.approx(expected)
    strategy = Strategy(candidate=candidate, division=Division(((0, 2),), ("none",)))
    assert step_time(problem, strategy, rank_order(candidate)).optimizer == pytest.approx(expected)
    # Weights and gradients have 4 x 16,384 - 61,440 = 4,096 parameters more, 6 bytes each. States are 8 x 16,384 of
    # matrices and 12 x 256 / 4 of norms. In the optimizer's step 192 x 64 takes 6 bytes a parameter, which is more than
    # the passes keep here.
    states = 8 * 16_384 + 12 * 64
    assert memory_bytes(problem, strategy) == [6 * (61_440 + 256 + 4_096) + states + 6 * 192 * 64]
    # The padding is reduced as well: 3 / 4 x 2 x 3 bytes over links of 1 GB/s.
    ring = step_time(problem, strategy, rank_order(candidate)).data_parallel
    assert ring == pytest.approx((61_440 + 256 + 4_096) * 3 * 4 * (3 / 4) / 1e9)


def test_without_zero_every_replica_has_all() -> None:
    """Eight matrices one after another, and no padding."""
    problem = small(fix={"tp": 1, "pp": 1, "cp": 1, "zero": 0, "micro_batch": 1})
    (candidate, *_) = problem.candidates
    tables = problem.tables(candidate).under_muon
    assert tables.fullest[0, 2] == tables.held[0, 2] == 61_440
    one = 26_214_400 + 7_864_320 + 2 * 1_638_400 - 10_485_760
    assert tables.seconds[0, 2] > 2 * one / 5e8
    assert sum(map(np.max, tables.padding(candidate))) == 0


def test_tensor_ranks_gather() -> None:
    """On two tensor ranks each orthogonalises whole matrices and gathers the other half in single precision."""
    alone, pair = (small(fix={"tp": tp, "pp": 1, "cp": 1, "zero": 0, "micro_batch": 1}).candidates[0] for tp in (1, 2))
    problem = small(fix={"pp": 1, "cp": 1, "zero": 0, "micro_batch": 1})
    own = problem.costs.optimizer_s_per_parameter["one"]
    gathered = 4 * 61_440 / 2 / 1e9
    difference = problem.tables(pair).under_muon.seconds[0, 2] - problem.tables(alone).under_muon.seconds[0, 2]
    assert difference == pytest.approx(gathered - 61_440 / 2 * own)


def test_the_space_has_what_is_layer_wise() -> None:
    """No ZeRO-2 and 3, no copies, no shares on hosts."""
    found = small().candidates
    assert {each.zero for each in found} == {0, 1}
    assert not any(each.dp_shard or each.optimizer_offload or each.activation_offload for each in found)
