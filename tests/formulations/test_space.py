"""What is a candidate and what is not."""

from dataclasses import replace
from typing import Any

from taut.data.model import ModelSpec
from taut.formulations.degrees import context_degrees, divisors, tensor_degrees
from taut.formulations.problem import PlanningProblem
from tests.support.small import cluster, costs, model, problem

SHAPE = {"name": "m", "layers": 2, "hidden": 64, "heads": 4}


def test_candidates_of_a_tiny_space_are_listed_by_hand() -> None:
    """Two nodes of one device, batch 2, two layers: five degrees and schedules."""
    # pp=1: dp=2, micro_batch 1, ZeRO 0 or 1. pp=2: dp=1, micro_batch 1 or 2, either schedule, ZeRO 0.
    found = {str(c) for c in problem(cluster(2, 1), model(2), global_batch=2, max_tp=1).candidates}
    assert found == {
        "pp=1 tp=1 dp=2 micro_batch=1 1f1b",
        "pp=1 tp=1 dp=2 micro_batch=1 1f1b zero=1",
        "pp=2 tp=1 dp=1 micro_batch=1 1f1b",
        "pp=2 tp=1 dp=1 micro_batch=2 1f1b",
        "pp=2 tp=1 dp=1 micro_batch=1 gpipe",
        "pp=2 tp=1 dp=1 micro_batch=2 gpipe",
    }


def test_every_candidate_uses_every_device_and_the_whole_batch() -> None:
    """The product pp tp dp is the number of devices, dp micro_batch m the global batch."""
    for choice in problem(cluster(2, 4), model(6), global_batch=8).candidates:
        assert choice.pp * choice.tp * choice.dp == 8
        assert choice.dp * choice.micro_batch * choice.num_micro_batches == 8
        assert choice.pp <= 6


def test_fixed_values_and_listed_choices_restrict_the_space() -> None:
    """Fixed fields hold in every candidate, unlisted schedules and ZeRO stages are absent."""
    given = problem(cluster(2, 4), global_batch=8, schedules=["gpipe"], zero=[1], fixed={"tp": 2})
    assert {c.tp for c in given.candidates} == {2}
    assert {c.schedule for c in given.candidates if c.pp > 1} == {"gpipe"}
    assert {c.zero for c in given.candidates if c.dp > 1} == {1}


def test_replicas_that_share_a_copy_are_all_or_fill_a_node() -> None:
    """Under ZeRO-2 and 3 with dp = 8 on nodes of four: one copy or two; with tp = 2 and dp = 4, too."""
    given = problem(cluster(2, 4), global_batch=8, latency_model="step", zero=[1, 2, 3])
    found = {(c.pp, c.tp, c.dp, c.zero, c.dp_shard) for c in given.candidates}
    assert {shard for pp, tp, dp, zero, shard in found if dp == 8 and zero >= 2} == {0, 4}
    assert {shard for pp, tp, dp, zero, shard in found if (tp, dp, zero) == (2, 4, 3)} == {0, 2}
    assert {shard for *_, zero, shard in found if zero < 2} == {0}


def test_a_fixed_number_of_replicas_to_a_copy_holds_in_every_candidate() -> None:
    """With two replicas to a copy dp is a multiple of two; where it is two, they are all."""
    given = problem(cluster(2, 4), global_batch=8, latency_model="step", zero=[1, 3], fixed={"dp_shard": 2})
    assert {(c.dp, c.dp_shard) for c in given.candidates} == {(2, 0), (4, 2), (8, 2)}
    assert {c.shards for c in given.candidates} == {2}
    assert {c.zero for c in given.candidates} == {3}


def test_copies_of_optimizer_states_are_asked_for() -> None:
    """Under ZeRO-1 with both fixed two replicas share the states, which are all where dp is two."""
    fixed: dict[str, int | str | bool] = {"zero": 1, "dp_shard": 2, "tp": 1}
    given = problem(cluster(2, 4), global_batch=8, latency_model="step", zero=[0, 1, 3], fixed=fixed)
    assert {(c.dp, c.dp_shard, c.zero) for c in given.candidates} == {(2, 0, 1), (4, 2, 1), (8, 2, 1)}


def test_several_copies_need_the_whole_step() -> None:
    """The papers' models price no sums between copies."""
    given = problem(cluster(2, 4), global_batch=8, latency_model="pipette", zero=[3])
    assert {c.dp_shard for c in given.candidates} == {0}


def test_tensor_degrees_divide_layers_and_nodes() -> None:
    """The tensor degree divides heads, key-value heads or is divided by them, the feed-forward width and the node."""
    wide = ModelSpec.parse(
        {"name": "m", "layers": 2, "hidden": 96, "heads": 12, "kv_heads": 2, "ffn_hidden": 256, "seq": 8}, "m"
    )
    assert tensor_degrees(wide, cluster(2, 8), 8) == [1, 2, 4]
    assert tensor_degrees(wide, cluster(2, 6), 6) == [1, 2]
    assert tensor_degrees(wide, cluster(4, 1), 4) == [1, 2, 4]


def test_what_is_not_priced_is_not_in_the_space() -> None:
    """Micro-batches beyond the cost table make no candidate."""
    given = problem(cluster(1, 1), table=costs(model()), global_batch=64)
    assert max(c.micro_batch for c in given.candidates) == 16


def test_divisors_are_complete() -> None:
    """Divisors of a square, a prime and one."""
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(13) == [1, 13]
    assert divisors(1) == [1]


def context_space(**space: Any) -> PlanningProblem:
    """Two nodes of four devices with up to eight context ranks, sequences of 64 tokens."""
    spec = model(4).model_copy(update={"seq": 64})
    table = costs(spec)
    rows = [row.model_copy(update={"cp": cp}) for row in table.rows for cp in (1, 2, 4, 8)]
    table = table.model_copy(update={"rows": rows})
    given = problem(cluster(2, 4), spec, table=table, latency_model="step", **{"max_cp": 8, **space})
    return replace(given, model=spec)


def test_context_ranks_share_the_devices_and_fit_the_nodes() -> None:
    """Pp tp cp dp is the number of devices; tensor groups lie in a node, blocks there or on whole nodes."""
    found = {(c.pp, c.tp, c.cp, c.dp) for c in context_space().candidates}
    assert all(pp * tp * cp * dp == 8 for pp, tp, cp, dp in found)
    assert {tp for _, tp, cp, _ in found if cp == 2} == {1, 2, 4}
    assert {tp for _, tp, cp, _ in found if cp == 8} == {1}
    assert max(cp for *_, cp, _ in found) == 8


def test_context_ranks_divide_every_sequence_in_two_pieces_each() -> None:
    """Of 64 tokens 32 pieces are two for each of at most 16 ranks; 24 tokens have two pieces for 4 ranks, not 8."""
    assert context_degrees(ModelSpec.parse({**SHAPE, "seq": 64}, "m"), cluster(2, 4), 1, 8) == [1, 2, 4, 8]
    assert context_degrees(ModelSpec.parse({**SHAPE, "seq": 24}, "m"), cluster(2, 4), 1, 8) == [1, 2, 4]
    assert context_degrees(ModelSpec.parse({**SHAPE, "seq": 63}, "m"), cluster(2, 4), 1, 8) == [1]


def test_context_ranks_need_the_whole_step_and_a_price() -> None:
    """The papers' models, and a table without rows for context ranks, have one."""
    assert {c.cp for c in replace(context_space(), latency_model="pipette").candidates} == {1}
    given = problem(cluster(2, 4), latency_model="step", max_cp=8)
    assert {c.cp for c in given.candidates} == {1}


def test_context_ranks_hold_the_same_weights_as_replicas() -> None:
    """One replica of two context ranks has ZeRO stages, shared by both, and no groups with a copy each."""
    given = context_space(zero=[0, 1, 2, 3], fixed={"cp": 2, "dp": 1, "tp": 1})
    assert {(c.zero, c.shards, c.dp_shard) for c in given.candidates} == {(z, 2, 0) for z in (0, 1, 2, 3)}
    several = context_space(zero=[3], fixed={"cp": 2, "dp": 4})
    assert {(c.dp_cp, c.dp_shard) for c in several.candidates} == {(8, 0)}


def test_many_chunks_are_considered_where_they_cut_the_layers_evenly() -> None:
    """Beyond two chunks a device: of 12 layers on 2 devices 3 and 6; of 14, 7, and 4 for 16 with embedding and head."""

    def chunks(layers: int, most: int) -> set[int]:
        space: dict[str, Any] = {"schedules": ["interleaved-1f1b"], "max_vpp": 2, "fixed": {"pp": 2}}
        nodes, spec = cluster(2, 1), model(layers)
        given = problem(nodes, spec, global_batch=4, latency_model="step", max_even_vpp=most, **space)
        return {choice.vpp for choice in given.candidates}

    assert chunks(12, 0) == {2}
    assert chunks(12, 12) == {2, 3, 6}
    assert chunks(14, 5) == {2, 4}
    assert chunks(14, 12) == {2, 4, 7}
    # A limit of any size counts no further than the layers.
    assert chunks(12, 10**15) == {2, 3, 6}
