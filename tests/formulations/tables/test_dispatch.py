"""Exchanges of expert ranks by dispatcher, format and imbalance, and what another micro-batch hides of them."""

import copy
from typing import Any

import numpy as np
import pytest

import taut
from taut.data.costs import RECOMPUTE
from taut.errors import FieldError
from taut.formulations.latency import memory_bytes
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.tables.block_traffic import BlockLink, best_block
from taut.formulations.tables.memory import stage_memory
from taut.solver.certificate.verify import verify_document

EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 512}
MANY = {"experts": EXPERTS | {"num_experts": 16}}
MODEL = {"name": "m", "layers": 8, "hidden": 512, "heads": 8, "seq": 512, "gated_mlp": True, "experts": EXPERTS}


def problem(
    nodes: int = 2, fix: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **options: Any
) -> PlanningProblem:
    """Eight alike layers on H100 nodes of eight, one expert rank for each expert."""
    fixed = {"ep": 8, "tp": 1, "micro_batch": 1, **(fix or {})}
    spec = taut.ModelSpec.parse(MODEL | (model or {}), "m")
    return taut.planning_problem(taut.PlanRequest(spec, f"dgx-h100:{nodes}", global_batch=32, fix=fixed, **options))


def chosen(given: PlanningProblem, **wanted: Any) -> Candidate:
    return next(c for c in given.candidates if all(getattr(c, k) == v for k, v in wanted.items()))


def test_an_all_to_all_sends_every_row() -> None:
    """Of 2 rows to 8 ranks of a node 2 * 7 / 8 leave a GPU, and a flex dispatcher sends fewer: some share a GPU."""
    rows, once = (problem(moe_token_dispatcher=name) for name in ("alltoall", "flex"))
    near = [each.traffic(chosen(each, pp=1))[1].near_bytes[0, 1] for each in (rows, once)]
    # Twice forward, 512 tokens of 512 numbers of 2 bytes, at the calibration's coefficient.
    unit = 2 * 512 * 512 * 2 * rows.coefficient("exchange")
    # One of 8 GPUs has 1 of 8 experts, which takes a token with probability 2 / 8: 8 * 7 / 8 of these.
    assert near == pytest.approx([unit * 2 * 7 / 8, unit * 7 * 0.25])


@pytest.mark.parametrize("kind", ["flex", "alltoall", "allgather"])
def test_groups_of_a_router_take_copies_from_a_flex_dispatcher_alone(kind: str) -> None:
    """Two nodes of two of four groups each: a token of one group goes to the other half the time, not in 23 of 30."""
    groups = {"router_num_groups": 4, "router_group_topk": 1}
    models = MANY, {"experts": MANY["experts"] | groups}
    free, kept = (problem(fix={"ep": 16}, model=model, moe_token_dispatcher=kind) for model in models)
    far, near = (
        [getattr(each.traffic(chosen(each, pp=1))[1], name)[0, 1] for each in (free, kept)]
        for name in ("far_bytes", "near_bytes")
    )
    if kind == "flex":
        # Two of 16 experts miss the eight of a node with probability 8 * 7 / (16 * 15).
        assert far[1] / far[0] == pytest.approx(0.5 / (1 - 56 / 240), rel=1e-12)
        # One expert of 16 on a device is one of two, of four in the one group of four, or of all.
        assert near[1] / near[0] == pytest.approx(1.0, rel=1e-12)
    else:
        assert (far[1], near[1]) == (far[0], near[0])


@pytest.mark.parametrize("chosen_experts", [1, 2, 6])
def test_a_gather_sends_all_tokens_whatever_experts_they_chose(chosen_experts: int) -> None:
    """Eight ranks of a node gather 7 shares of tokens each with the scores of 8 experts, and hold all 8."""
    experts = {"experts": EXPERTS | {"experts_per_token": chosen_experts}}
    given = problem(moe_token_dispatcher="allgather", imbalance=1.5, model=experts)
    candidate = chosen(given, pp=1)
    both, forward = given.traffic(candidate)
    # 512 tokens of 512 numbers of 2 bytes with 8 scores of 2 and 8 choices of 1 byte, and 512 numbers back; backward
    # 512 numbers, and as many with 8 scores back.
    there, back = 512 * (1024 + 8 * 3 + 1024), 512 * (1024 + 1024 + 8 * 2)
    exchange = given.coefficient("exchange")
    assert forward.near_bytes[0, 1] == pytest.approx(7 * there * exchange, rel=1e-12)
    # Three gathers and a sum forward; a gather and two sums backward; 7 steps each.
    assert forward.expert_steps[0, 1] == pytest.approx(4 * 7 * exchange)
    np.testing.assert_allclose(both.expert_steps[:, 0, 1], np.array([7, 7, 11]) * 7 * exchange)
    sent = 7 * exchange * np.array([there + back, there + back, 2 * there + back])
    np.testing.assert_allclose(both.near_bytes[:, 0, 1], sent, rtol=1e-12)
    assert not both.far_bytes[:, 0, 8].any()
    plain = problem(moe_token_dispatcher="alltoall", imbalance=1.5, model=experts)
    buffers = [each.tables(chosen(each, pp=1)).buffers[0, 8] for each in (given, plain)]
    assert buffers[0] - buffers[1] == 8 * 512 * (2 * 1024 + 8 * 3)
    kept = [each.tables(chosen(each, pp=1)).activation[:, 0, 8] for each in (given, plain)]
    np.testing.assert_array_equal(kept[0], kept[1])


@pytest.mark.parametrize(("router", "score"), [("fp32", 4), ("fp64", 8)])
def test_outputs_are_summed_in_the_format_of_scores(router: str, score: int) -> None:
    """Outputs go back in it, and their gradients come in it; other dispatchers send as many bytes as without."""
    usual, wide = (problem(moe_token_dispatcher="allgather", moe_router_dtype=kind) for kind in (None, router))
    more = [each.traffic(chosen(each, pp=1))[0].near_bytes[0, 0, 1] for each in (usual, wide)]
    # Of a token 512 numbers twice and 8 scores twice, each score - 2 bytes more.
    expected = 7 * 512 * (score - 2) * (2 * 512 + 2 * 8) * usual.coefficient("exchange")
    assert more[1] - more[0] == pytest.approx(expected, rel=1e-12)
    buffers = [each.tables(chosen(each, pp=1)).buffers[0, 8] for each in (usual, wide)]
    # A third copy of 512 numbers in the wide format.
    assert buffers[1] - buffers[0] == 8 * 512 * (512 * score + 8 * (score - 2))
    for kind in ("flex", "alltoall"):
        plain = problem(moe_token_dispatcher=kind)
        with pytest.warns(UserWarning, match=f"moe_router_dtype: format {router} of a router's scores changes nothing"):
            same = problem(moe_token_dispatcher=kind, moe_router_dtype=router)
        sent = [each.traffic(chosen(each, pp=1))[0].near_bytes for each in (plain, same)]
        np.testing.assert_array_equal(sent[0], sent[1])


@pytest.mark.parametrize(
    ("fix", "near", "far", "group", "steps"),
    [
        # 16 ranks on two nodes: 14 of 16 shares come from the node, and one of each 8 of the other node.
        ({"ep": 16}, 16 * 7 / 8, 1, 0, 15),
        # 4 ranks of two tensor ranks each: 3 shares of peers, and half of 4 times 2 shares from the tensor rank beside.
        ({"ep": 4, "tp": 2, "etp": 2}, 3, 0, 4, 7),
        ({"ep": 8, "tp": 2, "etp": 2}, 8 * 3 / 4, 1, 8, 15),
        # The same 8 devices, but each expert whole on one: 7 shares of the 8.
        ({"ep": 8, "tp": 2, "etp": 1}, 7, 0, 0, 7),
    ],
    ids=["two-nodes", "tensor-ranks", "both", "one-tensor-rank"],
)
def test_a_gather_is_a_ring_of_the_whole_group(
    fix: dict[str, int], near: float, far: float, group: float, steps: int
) -> None:
    """What a device gathers of an expert group of n is n - 1 shares, or of g on each node g n' - g shares over g."""
    given, dense = (problem(fix=fix, moe_token_dispatcher=kind, model=MANY) for kind in ("allgather", "alltoall"))
    forward, other = (each.traffic(chosen(each, pp=1, **fix))[1] for each in (given, dense))
    exchange, tp = given.coefficient("exchange"), fix.get("tp", 1)
    # There with 16 scores of 2 and 16 choices of 1 byte, and back without.
    both_ways, share = 512 * (1024 + 16 * 3 + 1024) / tp, 512 * 1024 / tp
    assert forward.near_bytes[0, 1] == pytest.approx(near * both_ways * exchange, rel=1e-12)
    assert forward.far_bytes[0, 1] == pytest.approx(far * both_ways * exchange, rel=1e-12)
    assert forward.expert_steps[0, 1] == pytest.approx(4 * steps * exchange)
    # Beside an all-to-all tensor ranks gather two rows of each token of theirs, half of 2 tp shares, in a ring's steps.
    rows = 2 * tp / 2 * (fix.get("etp", 1) > 1)
    more = (group * both_ways - 2 * rows * share) * exchange
    assert forward.group_bytes[0, 1] - other.group_bytes[0, 1] == pytest.approx(more, rel=1e-12)
    gathered = (fix.get("etp", 1) > 1) * 2 * exchange
    assert other.group_steps[0, 1] - forward.group_steps[0, 1] == pytest.approx(gathered)


@pytest.mark.parametrize("dispatcher", ["flex", "alltoall", "allgather"])
@pytest.mark.parametrize("tp", [2, 8])
def test_figures_of_places_hold_exchanges(tp: int, dispatcher: str) -> None:
    """Expert ranks on the tensor ranks alone, or more: bytes and steps over a node's link are the block's seconds."""
    given = problem(fix={"tp": tp, "etp": 1}, moe_token_dispatcher=dispatcher)
    candidate = chosen(given, pp=1)
    forward, link = given.traffic(candidate)[1].at(0, 8), best_block(given.links, np.ones(2, bool), candidate.block)
    anywhere, moved, steps = forward.by_place(given.links, candidate.block)
    assert forward.near_bytes > 0
    assert anywhere + moved * link.inverse + steps * link.latency == pytest.approx(forward.seconds(link))


def test_a_gather_is_neither_hidden_nor_in_fp8() -> None:
    """No framework has either, so that both are refused by name; a stack without such a dispatcher refuses it."""
    several: list[dict[str, Any]] = [{"overlap_moe_expert_parallel_comm": True}, {"fp8_dispatch": True}]
    for options in several:
        with pytest.raises(FieldError, match="moe_token_dispatcher: allgather, which"):
            problem(moe_token_dispatcher="allgather", **options)
    with pytest.raises(FieldError, match="is not in torchtitan, expected alltoall or flex"):
        problem(moe_token_dispatcher="allgather", stack="torchtitan")


def test_a_certificate_with_another_dispatcher_is_refused() -> None:
    """What is gathered is priced again from the document, which holds, and says so."""
    fix: dict[str, Any] = {"ep": 4, "etp": 2, "pp": 2, "tp": 2, "schedule": "1f1b", "zero": 1, "micro_batch": 1}
    model = taut.ModelSpec.parse(MODEL, "m")
    plan = taut.plan(model, "dgx-h100:2", global_batch=32, fix=fix, moe_token_dispatcher="allgather")
    assert plan.verify().holds
    document = plan.document
    for dispatch in ({"dispatcher": "alltoall"}, {}, {"dispatcher": "allgather", "router_dtype": "fp32"}):
        changed = copy.deepcopy(document)
        changed["certificate"]["space"]["dispatch"] = dispatch
        assert not verify_document(changed).holds


def test_format_and_imbalance_multiply_bytes() -> None:
    """Of four exchanges one is a dispatch forward, at 132 bytes instead of 256; a factor of 1.5 multiplies all."""
    plain, narrow, uneven = problem(), problem(fp8_dispatch=True), problem(imbalance=1.5)
    both = [each.traffic(chosen(each, pp=1))[0].near_bytes[0, 0, 1] for each in (plain, narrow, uneven)]
    assert both[1] / both[0] == pytest.approx((3 + 132 / 256) / 4)
    assert both[2] / both[0] == pytest.approx(1.5)
    kept = [each.tables(chosen(each, pp=1)).activation[0, 0, 1] for each in (plain, uneven)]
    assert kept[1] > kept[0]


def test_hidden_exchanges_take_what_computation_does_not_hide() -> None:
    """Nothing on quick links; on slow ones what is beyond both passes of a layer, half of it forward."""
    given = problem(overlap_moe_expert_parallel_comm=True)
    candidate = chosen(given, pp=1)
    both, forward = given.traffic(candidate)
    layer = given.tables(candidate).seconds[0, 0, 1, 2]
    quick, slow = (BlockLink(0.0, 0.0, 0.0, 0.0, near, 0.0, 0.0) for near in (1e-15, 1.0))
    assert both.seconds(quick)[0, 1, 2] == 0.0
    assert both.seconds(slow)[0, 1, 2] == pytest.approx(both.near_bytes[0, 1, 2] - layer)
    assert both.seconds(slow)[0, 1, 2] == pytest.approx(2 * forward.seconds(slow)[1, 2])
    np.testing.assert_allclose(both.seconds(slow)[0, 0, 8], 8 * both.seconds(slow)[0, 1, 2], rtol=1e-9)


def test_a_single_stage_with_hidden_exchanges_holds_one_more_layer() -> None:
    """Of eight layers alike beside head and embedding: an eighth of what they keep, weighed, by table and by list."""
    plain, hidden = (problem(overlap_moe_expert_parallel_comm=overlap) for overlap in (False, True))
    for wanted in ({"uniform_recompute": "none"}, {"uniform_recompute": "selective"}):
        candidate = chosen(hidden, pp=1, **wanted)
        assert hides_exchange(hidden.space, hidden.model, candidate)
        strategy = Strategy(candidate=candidate, division=Division(((0, 8),), (candidate.uniform_recompute,)))
        few, more = (memory_bytes(given, strategy)[0] for given in (plain, hidden))
        recompute = RECOMPUTE.index(candidate.uniform_recompute)
        assert more - few == hidden.tables(candidate).activation[recompute, 1, 2] > 0
        assert stage_memory(hidden, candidate).bytes_of(0, 0, 8, recompute) == more


def test_overlap_goes_with_alternating_passes_alone() -> None:
    """One stage of several micro-batches, and interleaved 1F1B; not 1F1B of several stages, nor whole recompute."""
    given = problem(overlap_moe_expert_parallel_comm=True, schedules=["1f1b", "interleaved-1f1b"])
    for candidate in given.candidates:
        hides = candidate.schedule == "interleaved-1f1b" or (candidate.pp == 1 and candidate.num_micro_batches > 1)
        assert hides_exchange(given.space, given.model, candidate) == hides
        assert ("full" not in given.recompute_of(candidate)) or not hides
    assert {candidate.uniform_recompute for candidate in given.candidates} == {"none", "selective", "full"}


@pytest.mark.parametrize(
    "options", [{"overlap_moe_expert_parallel_comm": True}, {"imbalance": 1.2}, {"moe_token_dispatcher": "alltoall"}]
)
def test_dense_models_have_no_exchanges(options: dict[str, Any]) -> None:
    """What is asked of expert ranks is refused for a model that can have none."""
    with pytest.raises(FieldError, match="is of expert ranks, which megatron-core has not for gpt2-345m in step"):
        taut.planning_problem(taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, **options))


@pytest.mark.proof
def test_a_plan_with_hidden_exchanges_holds() -> None:
    """Its certificate is derived again, and says what was counted on; it is no slower than one without."""
    fix: dict[str, Any] = {"ep": 8, "schedule": "interleaved-1f1b", "vpp": 2, "pp": 2, "tp": 1}
    model = taut.ModelSpec.parse(MODEL, "m")
    plain, hidden = (
        taut.plan(model, "dgx-h100:2", global_batch=32, fix=fix, overlap_moe_expert_parallel_comm=overlap)
        for overlap in (False, True)
    )
    assert hidden.step_time_s <= plain.step_time_s
    assert hidden.verify().holds
    assert hidden.certificate.space["dispatch"]["overlap"]
