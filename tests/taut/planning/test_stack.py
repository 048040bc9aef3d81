"""A request's stack decides the space and the calibration."""

import json
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.data.calibration import RING_EFFICIENCY
from taut.data.catalog.builtin import catalog_calibrations
from taut.data.memory import MemoryModel
from taut.data.stack import SCHEDULES, fused
from taut.errors import DataError, FieldError
from taut.planning.stack import refuse_unlike_kept
from taut.planning.stack_price import stack_price
from taut.solver.certificate.document import problem_of


def problem(**options: Any) -> taut.PlanningProblem:
    """The problem of a small request, of a model with a head of its own, since torchtitan has no other in pipelines."""
    model = taut.load_model("gpt2-345m").model_copy(update={"tied_embedding": False})
    return taut.planning_problem(taut.PlanRequest(model, "dgx-a100:2", global_batch=32, max_tp=2, **options))


def space(**options: Any) -> taut.StrategySpace:
    """The space of a small request."""
    return problem(**options).space


def test_a_plan_is_for_megatron_core_unless_it_says_otherwise() -> None:
    """Its schedules and ZeRO stages, one recompute for all stages, and its calibration for the device."""
    given = problem()
    assert (given.space.stack, given.space.schedules) == ("megatron-core", ["1f1b", "interleaved-1f1b"])
    assert not given.space.recompute_by_stage and given.space.pipeline_zero == [0, 1]
    assert given.calibration is not None and given.calibration.name == "megatron-deepspeed-a100-many"
    assert {choice.zero for choice in given.candidates if choice.pp > 1} == {0, 1}
    assert {choice.zero for choice in given.candidates} == {0, 1, 2, 3}
    assert {choice.uniform_recompute for choice in given.candidates} == {"none", "selective", "full"}


def test_papers_models_and_profiles_have_the_whole_space_at_stated_costs() -> None:
    """A paper's model prices no framework, and measured layers need no coefficients."""
    printed = problem(latency_model="pipette")
    assert printed.space.stack == "" and printed.calibration is None and printed.space.recompute_by_stage
    assert printed.space.zero == [0, 1]


def test_schedules_beyond_the_stack_are_refused_with_what_it_runs() -> None:
    """The message names the schedule, the stack and what it runs."""
    with pytest.raises(FieldError, match="schedules: zb-v, not run by megatron-core, expected one of 1f1b"):
        space(schedules="1f1b,zb-v")
    with pytest.raises(FieldError, match="fix: schedule=gpipe, not run by megatron-core"):
        space(fix={"schedule": "gpipe"})
    assert space(schedules="all").schedules == ["1f1b", "interleaved-1f1b"]
    assert space(stack="any", schedules="all").schedules[-1] == "v-min"


def test_recompute_can_be_fixed() -> None:
    """Every stage has the recompute that is asked for; a kind that the stack lacks leaves nothing."""
    assert space(fix={"recompute": "full"}).recompute == ["full"]
    given = problem(stack="any", fix={"recompute": "full"})
    assert {kind for choice in given.candidates for kind in given.recompute_of(choice)} == {"full"}
    with pytest.raises(FieldError, match="fix: recompute=selective, not in deepspeed, expected one of none, full"):
        space(stack="deepspeed", fix={"recompute": "selective"})


def test_a_calibration_of_another_device_is_refused() -> None:
    """One fitted on H100 says nothing of A100."""
    with pytest.raises(FieldError, match="calibration: nemo-h100-bf16, is of h100-80gb, expected one of a100-80gb"):
        space(calibration="nemo-h100-bf16")


@pytest.mark.parametrize("stack", ["megatron-core", "torchtitan", "megatron-deepspeed", "any"])
def test_the_default_space_holds_all_that_its_stack_runs(stack: str) -> None:
    """Every schedule of the stack, with every number of equal chunks, and up to four unequal ones a device."""
    given = problem(stack=stack)
    runs = taut.load_stack(stack).schedules
    assert given.space.schedules == [kind for kind in SCHEDULES if kind in runs]
    assert {choice.schedule for choice in given.candidates} == set(runs)
    chunks = {choice.vpp for choice in given.candidates if choice.schedule == "interleaved-1f1b" and choice.pp == 2}
    assert chunks == ({2, 3, 4, 6, 12, 13} if "interleaved-1f1b" in runs else set())


@pytest.mark.parametrize(("model", "stack"), [("pipette", None), ("pipette-printed", None), ("pipette", "torchtitan")])
def test_the_papers_spaces_hold_closed_forms(model: str, stack: str | None) -> None:
    """What a paper's latency model prices in closed form, and what is fixed or asked for."""
    assert space(latency_model=model, stack=stack).schedules == ["1f1b", "gpipe"]
    asked = space(latency_model=model, stack=stack, schedules="1f1b")
    assert asked.schedules == ["1f1b"]


@pytest.mark.proof
def test_the_price_of_a_stack_is_a_bound_on_everything_it_cannot_run() -> None:
    """The whole space's bound is below the stack's plan and above nothing that the whole space has."""
    fix: dict[str, Any] = {"pp": 2, "tp": 1, "micro_batch": 2}
    request = taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=16, fix=fix, schedules="1f1b")
    found = taut.plan(request)
    price = stack_price(request, found)
    several, one = (catalog_calibrations()[name] for name in ("megatron-deepspeed-a100-many", "nemo-h100-bf16"))
    best = taut.plan(
        "gpt2-345m",
        "dgx-a100",
        global_batch=16,
        fix={"pp": 2, "tp": 1, "micro_batch": 2},
        stack="any",
        schedules="all",
        calibration=fused(several, [one]),
    )
    assert price.whole_space_bound_s <= best.step_time_s <= found.step_time_s
    assert price.at_most == found.step_time_s / price.whole_space_bound_s - 1
    assert "megatron-core's limits cost at most" in str(price)
    assert price.left_out == ("interleaved-1f1b",)
    assert str(price).endswith("the stack runs interleaved-1f1b as well, which --schedules leaves out")
    fixed = request.model_copy(update={"fix": {**request.fix, "schedule": "1f1b"}})
    assert stack_price(fixed, found).left_out == ()


@pytest.mark.proof
def test_the_price_of_a_stack_that_overlaps_overlaps_too(tmp_path: Path) -> None:
    """The whole space is bounded at the prices of the plan, reductions during the last backward pass among them."""
    ours = tmp_path / "ours.yaml"
    ours.write_text("{description: x, schedules: [1f1b], zero: [0], overlap_grad_reduce: true}\n", encoding="utf-8")
    fix: dict[str, Any] = {"pp": 1, "tp": 1, "micro_batch": 4, "zero": 0, "recompute": "none"}
    request = taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, fix=fix, stack=str(ours))
    found = taut.plan(request)
    assert stack_price(request, found).whole_space_bound_s <= found.step_time_s


def test_overlapped_reductions_are_not_hidden_twice() -> None:
    """A stack that overlaps reductions, or a request, prices rings at NCCL's share of the links, and says so."""
    ours = taut.Stack(
        name="ours",
        description="overlaps",
        schedules=["1f1b"],
        zero=[0, 1],
        calibrations=["nemo-h100-bf16"],
        overlap_grad_reduce=True,
    )
    for given in (
        taut.PlanRequest("gpt2-345m", "dgx-h100", global_batch=32, stack=ours),
        taut.PlanRequest("gpt2-345m", "dgx-h100", global_batch=32, overlap_grad_reduce=True),
    ):
        posed = taut.planning_problem(given)
        assert posed.overlap_grad_reduce and posed.coefficient("data_parallel") == 1 / RING_EFFICIENCY
        assert posed.calibration is not None and "as they overlap" in posed.calibration.source
    plain = taut.planning_problem(taut.PlanRequest("gpt2-345m", "dgx-h100", global_batch=32))
    assert not plain.overlap_grad_reduce and plain.coefficient("data_parallel") < 1.0


def test_context_ranks_join_where_each_keeps_enough_tokens() -> None:
    """Llama-3 8B has 8,192 tokens: two ranks with 4,096 each, in stacks that have contexts and in ``step`` alone."""

    def most(**options: Any) -> int:
        request = taut.PlanRequest("llama3-8b", "dgx-h100", global_batch=8, max_tp=1, **options)
        return max(choice.cp for choice in taut.planning_problem(request).candidates)

    assert most() == 2
    assert most(seq=4096) == most(stack="deepspeed") == most(latency_model="pipette") == 1
    assert most(max_cp=8) == most(fix={"cp": 8}) == 8
    assert most(max_cp=1) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fix": {"cp": 2}, "latency_model": "pipette"}, "latency_model: pipette, does not price context ranks"),
        ({"max_cp": 2, "stack": "deepspeed"}, "max_cp: 2, not in deepspeed, expected 1, or stack any"),
        ({"fix": {"cp": 2}, "stack": "deepspeed"}, "fix: cp=2, not in deepspeed, expected 1, or stack any"),
        ({"fix": {"cp": 3}}, "fix: cp=3, expected a divisor of the 16 devices"),
        ({"max_cp": 0}, "max_cp: 0, expected a whole number above 0"),
    ],
)
def test_context_ranks_that_nothing_prices_or_runs_are_refused(options: dict[str, Any], words: str) -> None:
    """One line: the field, its value, what was expected."""
    with pytest.raises(FieldError, match=words):
        problem(**options)


@pytest.mark.filterwarnings("ignore:.*layers without attention")
@pytest.mark.parametrize(("pattern", "name"), [("ME*E", "rack-mxfp8-gb200"), ("*E*E", "graphs-gb200")])
def test_layers_without_attention_have_no_whole_step_recorded(tmp_path: Path, pattern: str, name: str) -> None:
    """Models with a state space are priced by runs whose CUDA graphs recorded parts."""
    config = {
        **{"model_type": "nemotron_h", "hidden_size": 256, "num_hidden_layers": 4, "vocab_size": 1024},
        **{"hybrid_override_pattern": pattern, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64},
        **{"mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "n_routed_experts": 8},
        **{"num_experts_per_tok": 2, "moe_intermediate_size": 256, "max_position_embeddings": 1024},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    request = taut.PlanRequest(tmp_path / "config.json", "gb200-nvl64", global_batch=64, precision="mxfp8")
    calibration = taut.planning_problem(request).calibration
    assert calibration is not None and calibration.name == f"megatron-experts-{name}"


def test_expert_degrees_have_a_largest_one() -> None:
    """At most so many expert ranks, one under 1; a larger fixed degree and a model without experts are refused."""

    def most(**options: Any) -> int:
        request = taut.PlanRequest("gpt-oss-20b", "dgx-h100", global_batch=8, max_tp=1, max_cp=1, **options)
        return max(choice.ep for choice in taut.planning_problem(request).candidates)

    assert (most(), most(max_ep=4), most(max_ep=1)) == (8, 4, 1)
    with pytest.raises(FieldError, match="fix: ep=8, expected at most max_ep, 4"):
        most(max_ep=4, fix={"ep": 8})
    with pytest.raises(FieldError, match=r"max_ep: 2, .* has no experts, expected 1"):
        problem(max_ep=2)
    with pytest.raises(FieldError, match="max_ep: 2, not in deepspeed, expected 1, or stack any"):
        most(max_ep=2, stack="deepspeed")


def test_gradients_have_a_precision_of_their_own() -> None:
    """In bf16 they take half of fp32's bytes, in memory and on the links; a fitted memory model keeps its terms."""
    usual, halved = problem(), problem(grad_precision="bf16")
    assert usual.memory.parameter_bytes[:3] == (2, 4, 12)
    assert halved.memory.parameter_bytes[:3] == (2, 2, 12)
    choice = next(choice for choice in usual.candidates if choice.dp > 1 and choice.zero == 0)
    assert (2 * halved.gradient_bytes(choice) == usual.gradient_bytes(choice)).all()
    fitted = problem(stack="megatron-deepspeed", precision="fp32", grad_precision="bf16")
    assert fitted.memory.parameter_bytes[:3] == (4, 2, 8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"stack": "torchtitan", "grad_precision": "bf16"},
            "grad_precision: bf16, not in torchtitan, expected fp32, or stack any",
        ),
        (
            {"stack": "deepspeed", "overlap_grad_reduce": True},
            "overlap_grad_reduce: true, pipelines of deepspeed reduce gradients after the passes",
        ),
        (
            {"stack": "megatron-deepspeed", "overlap_grad_reduce": True, "fix": {"pp": 2}},
            "expected none, or pp fixed to 1",
        ),
    ],
)
def test_gradients_are_kept_and_reduced_as_the_stack_can(options: dict[str, Any], words: str) -> None:
    """Sums are in fp32 alone in torchtitan, and after the passes of a pipeline in DeepSpeed, with overlap elsewhere."""
    with pytest.raises(FieldError, match=words):
        problem(**options)
    assert problem(stack="torchtitan", grad_precision="fp32").candidates
    assert problem(stack="deepspeed", overlap_grad_reduce=True, fix={"pp": 1}).overlap_grad_reduce


@pytest.mark.proof
def test_a_plan_with_context_ranks_holds() -> None:
    """Four context ranks on two nodes: the plan says so in words and in its file, and its certificate holds."""
    found = taut.plan("llama3-8b", "dgx-h100:2", global_batch=8, seq=32768, fix={"cp": 4, "tp": 4}, time_limit=20)
    assert (found.strategy.cp, found.strategy.dp) == (4, 1)
    assert "tensor 4, context 4 (a ring of keys), data 1" in str(found)
    assert "traffic of tensor and context ranks" in str(found)
    assert [(worker["context_rank"], worker["tensor_rank"]) for worker in found.workers[3:6]] == [
        (0, 3),
        (1, 0),
        (1, 1),
    ]
    assert found.verify().holds


def test_a_memory_model_of_a_document_states_nothing_by_its_defaults() -> None:
    """A document leaves out later fields of their defaults, so a model read from one refuses no calibration."""
    plan = taut.plan("gpt2-345m", "dgx-h100", global_batch=32, work_limit=1, fused_loss="none")
    problem = problem_of(plan.typed, "plan")
    assert problem.memory.is_written_out and "fused_loss" not in problem.memory.model_fields_set
    assert problem.calibration is not None and problem.calibration.fp8_inputs and not problem.memory.fp8_inputs
    refuse_unlike_kept(problem.memory, problem.calibration)
    stated = MemoryModel.parse({"name": "mine", "fp8_inputs": False}, "mine")
    with pytest.raises(FieldError, match="fp8_inputs is false, calibration nemo-h100-bf16 has true, which counts"):
        refuse_unlike_kept(stated, problem.calibration)


def test_a_stage_of_zero_that_a_stack_lacks_is_named() -> None:
    """The stages that the stack has, of any pipeline degree."""
    with pytest.raises(DataError, match="torchtitan has ZeRO 0, 2, 3, not ZeRO-1"):
        taut.plan("gpt2-345m", "dgx-h100", global_batch=32, stack="torchtitan", fix={"zero": 1})
