"""Rows with experts are priced as plans of the same degrees, and refused where no plan has them."""

from typing import Any

import pytest

import taut
from taut.comparison.compare import current_of, priced_as_is
from taut.data.samples import ConfigurationRow
from taut.planning.request import PlanRequest
from taut.prediction.experts import known_model

SHAPE = {"hidden": 1024, "layers": 6, "heads": 16, "ffn_hidden": 4096, "seq": 2048, "vocab": 32000}
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024, "shared_ffn_hidden": 1024}
ROW = {"gpu": "h100-80gb", "n_gpus": 16, "global_batch": 32, **SHAPE, **EXPERTS}


@pytest.mark.parametrize(
    "degrees",
    [
        {"tp": 2, "pp": 1, "dp": 8, "zero": 1, "ep": 8},
        {"tp": 2, "pp": 2, "dp": 4, "zero": 1, "ep": 4, "etp": 2},
        {"tp": 4, "pp": 2, "dp": 2, "zero": 0, "ep": 1},
        {"tp": 2, "pp": 1, "dp": 8, "zero": 3, "ep": 2, "etp": 1, "dp_shard": 4},
    ],
)
def test_a_row_is_priced_as_the_plan(degrees: dict[str, int]) -> None:
    """Seconds and bytes of the fullest device are those of the plan with the same degrees and division."""
    shape: dict[str, Any] = {"name": "row", "gated_mlp": True, "dense_layers": 1, "experts": EXPERTS, **SHAPE}
    fixed: dict[str, Any] = {"micro_batch": 1, "recompute": "none", "schedule": "1f1b", "sequence_parallel": True}
    found = taut.plan(taut.ModelSpec.parse(shape, "row"), "dgx-h100:2", global_batch=32, fix=fixed | degrees)
    stages = [end - first for first, end in found.strategy.stages]
    row = {**ROW, **degrees, "dense_layers": 1, "sequence_parallel": True, "stages": stages}
    (said,) = taut.predict([row])
    assert said["error"] == ""
    assert said["step_time_s"] == pytest.approx(found.step_time_s, rel=1e-9)
    assert said["memory_bytes"] == max(found.predicted.memory_bytes)
    assert said["fits"]


def test_a_row_exchanges_rows_as_its_stack() -> None:
    """Rows of torchtitan have its plain all-to-all and its kernels, which a row need not name."""
    degrees = {"tp": 1, "pp": 1, "dp": 16, "zero": 3, "ep": 4}
    shape: dict[str, Any] = {"name": "row", "gated_mlp": True, "dense_layers": 1, "experts": EXPERTS, **SHAPE}
    fixed: dict[str, Any] = {"micro_batch": 1, "recompute": "none", "schedule": "1f1b", **degrees}
    model = taut.ModelSpec.parse(shape, "row")
    found = taut.plan(model, "dgx-h100:2", global_batch=32, fix=fixed, stack="torchtitan", max_cp=1)
    usual = {**ROW, **degrees, "dense_layers": 1, "stack": "torchtitan"}
    said, flex = taut.predict([usual, {**usual, "moe_token_dispatcher": "flex"}])
    assert said["step_time_s"] == pytest.approx(found.step_time_s, rel=1e-9)
    assert flex["step_time_s"] < said["step_time_s"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"dp_shard": 2, "ep": 8},
            "dp_shard is 2, expected a divisor of dp = 8 from 2 on whose copies hold whole groups",
        ),
        ({"dp_shard": 3}, "dp_shard is 3, expected a divisor of dp = 8 from 2 on"),
        ({"dp_shard": 4, "zero": 0}, "dp_shard is 4 with zero 0, expected zero 1 to 3 and cp 1, or none"),
    ],
)
def test_copies_that_no_plan_has_are_refused(changes: dict[str, int], said: str) -> None:
    """A row says what is wrong with its copies, and others are priced."""
    usual = {**ROW, "tp": 2, "dp": 8, "zero": 3, "ep": 2}
    wrong, right = taut.predict([{**usual, **changes}, {**usual, "dp_shard": 4}])
    assert said in wrong["error"]
    assert right["error"] == ""


def test_copies_of_a_dense_row_are_priced_as_the_plan() -> None:
    """A row without experts, whose copies lie within nodes."""
    degrees = {"tp": 1, "pp": 1, "dp": 16, "zero": 3, "dp_shard": 8}
    model = taut.ModelSpec.parse({"name": "row", **SHAPE, "kv_heads": 16, "dropout": True}, "row")
    fixed: dict[str, Any] = {"micro_batch": 1, "recompute": "none", **degrees}
    found = taut.plan(model, "dgx-h100:2", global_batch=32, fix=fixed)
    (said,) = taut.predict([{**{name: ROW[name] for name in ("gpu", "n_gpus", "global_batch", *SHAPE)}, **degrees}])
    assert said["error"] == ""
    assert said["step_time_s"] == pytest.approx(found.step_time_s, rel=1e-9)


@pytest.mark.parametrize("dispatcher", ["flex", "alltoall", "allgather"])
def test_a_row_has_a_dispatcher(dispatcher: Any) -> None:
    """Seconds and bytes are those of a plan with this dispatcher, which one alone gathers in buffers."""
    degrees = {"tp": 2, "pp": 2, "dp": 4, "zero": 1, "ep": 4, "etp": 2}
    shape: dict[str, Any] = {"name": "row", "gated_mlp": True, "experts": EXPERTS, **SHAPE}
    fixed: dict[str, Any] = {"micro_batch": 1, "recompute": "none", "schedule": "1f1b", **degrees}
    model = taut.ModelSpec.parse(shape, "row")
    found = taut.plan(model, "dgx-h100:2", global_batch=32, fix=fixed, moe_token_dispatcher=dispatcher)
    row = {**ROW, **degrees, "stages": [end - first for first, end in found.strategy.stages]}
    said, usual = taut.predict([{**row, "moe_token_dispatcher": dispatcher}, row])
    assert said["error"] == ""
    assert said["step_time_s"] == pytest.approx(found.step_time_s, rel=1e-9)
    assert said["memory_bytes"] == max(found.predicted.memory_bytes)
    # Four shares of the tokens in a context rank's place and as many outputs, 8 scores of 2 and 8 choices of 1 byte.
    gathered = 4 * 2048 * (2 * 2 * 1024 + 8 * 3) * (dispatcher == "allgather")
    assert said["memory_bytes"] - usual["memory_bytes"] == gathered


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("layers", ["3|3", "0|2|4|0", "0|6"])
def test_a_row_is_priced_as_what_runs(layers: str, overlap: bool) -> None:
    """The embedding or the head alone at an end, and rings that overlap, which the coefficient hides no second time."""
    stages = [int(count) for count in layers.split("|")]
    degrees = {"tp": 2, "pp": len(stages), "dp": 8 // len(stages), "zero": 1, "ep": 2, "etp": 1, "micro_batch": 1}
    shape: dict[str, Any] = {"name": "row", "gated_mlp": True, "experts": EXPERTS, **SHAPE}
    row = {**ROW, **degrees, "sequence_parallel": True, "stages": stages, "overlap_grad_reduce": overlap}
    (said,) = taut.predict([row])
    if layers == "5|1|0|0":
        assert "stages is 5|1|0|0, expected layers, but at an end" in said["error"]
        return
    request = PlanRequest(
        taut.ModelSpec.parse(shape, "row"), "dgx-h100:2", global_batch=32, overlap_grad_reduce=overlap
    )
    fixed = {"recompute": "none", "schedule": "1f1b", "sequence_parallel": True}
    found = priced_as_is(request, current_of(degrees | fixed | {"layers": layers}))
    assert said["step_time_s"] == pytest.approx(found.seconds, rel=1e-9)


@pytest.mark.parametrize("modules", ["moe_act+layernorm", "moe", "mlp"])
def test_a_row_with_modules_is_priced_as_the_plan(modules: str) -> None:
    """Selective recompute of named modules in the column, as a plan has them fixed."""
    shape: dict[str, Any] = {"name": "row", "gated_mlp": True, "dense_layers": 1, "experts": EXPERTS, **SHAPE}
    degrees = {"tp": 2, "pp": 2, "dp": 4, "zero": 1, "ep": 4, "etp": 2}
    fixed: dict[str, Any] = {"micro_batch": 1, "schedule": "1f1b", "sequence_parallel": True, **degrees}
    fixed |= {"recompute": "selective", "recompute_modules": modules}
    found = taut.plan(taut.ModelSpec.parse(shape, "row"), "dgx-h100:2", global_batch=32, fix=fixed)
    stages = [end - first for first, end in found.strategy.stages]
    row = {**ROW, **degrees, "dense_layers": 1, "sequence_parallel": True, "stages": stages}
    (said,) = taut.predict([{**row, "recompute": f"selective:{modules}"}])
    assert said["step_time_s"] == pytest.approx(found.step_time_s, rel=1e-9)
    assert said["memory_bytes"] == max(found.predicted.memory_bytes)
    assert found.verify().holds


def test_dense_rows_have_modules_too() -> None:
    """The attention core by name is selective recompute; a dense part in addition keeps less and takes longer."""
    row = {"gpu": "h100", "n_gpus": 8, "tp": 2, "dp": 4, "global_batch": 64, **SHAPE}
    core, named, more = (
        taut.predict([{**row, "recompute": f"selective{modules}"}])[0]
        for modules in ("", ":core_attn", ":core_attn+mlp")
    )
    assert named["step_time_s"] == pytest.approx(core["step_time_s"], rel=1e-9)
    assert named["memory_bytes"] == core["memory_bytes"] > more["memory_bytes"]
    assert more["step_time_s"] > core["step_time_s"]


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_rows_with_states_on_hosts_are_priced_as_the_plan(fraction: float) -> None:
    """Seconds and bytes are those of a plan with the same share."""
    fixed: dict[str, Any] = {"tp": 2, "pp": 1, "dp": 4, "zero": 1, "micro_batch": 1, "recompute": "none"}
    shape = SHAPE | {"ffn_hidden": 2816}
    model = taut.ModelSpec.parse({"name": "row", "gated_mlp": True, **shape}, "row")
    fixed["sequence_parallel"] = True
    found = taut.plan(model, "dgx-h100", global_batch=32, fix=fixed, optimizer_offload_fraction=fraction)
    row = {"gpu": "h100", "n_gpus": 8, "tp": 2, "dp": 4, "zero": 1, "global_batch": 32, **shape}
    row |= {"sequence_parallel": True, "optimizer_offload_fraction": fraction}
    said, plain = taut.predict([row, {**row, "optimizer_offload_fraction": 0}])
    assert said["step_time_s"] == pytest.approx(found.step_time_s, rel=1e-9)
    assert said["memory_bytes"] == max(found.predicted.memory_bytes) < plain["memory_bytes"]
    assert said["step_time_s"] > plain["step_time_s"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"zero": 0}, "zero is 0, expected 1 beside optimizer_offload_fraction"),
        ({"stack": "torchtitan"}, "optimizer_offload_fraction is 1, not in torchtitan, expected 0"),
        ({"gpu": "rtx-4090"}, "device rtx-4090: host_link_gbytes: missing"),
        ({"optimizer_offload_fraction": 2}, "optimizer_offload_fraction"),
    ],
)
def test_rows_whose_states_cannot_be_on_hosts_have_an_error(changes: dict[str, Any], words: str) -> None:
    """One line in the row's place."""
    row = {"gpu": "h100", "n_gpus": 8, "tp": 2, "dp": 4, "zero": 1, "global_batch": 32, **SHAPE}
    (said,) = taut.predict([{**row, "optimizer_offload_fraction": 1, **changes}])
    assert words in said["error"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recompute": "selective:moe_act+norm"}, "is 'moe_act+norm', expected modules joined by +, one of"),
        ({"recompute": "full:moe"}, "recompute is full, expected selective with modules"),
        ({"num_experts": None}, "expected num_experts with it"),
        ({"experts_per_token": None}, "experts_per_token: missing, expected it with num_experts"),
        ({"ep": 3}, "ep is 3 and etp 1, expected a divisor of the 8 experts"),
        (
            {"ep": 8, "moe_token_dispatcher": "allgather", "overlap_moe_expert_parallel_comm": True},
            "moe_token_dispatcher is allgather, which hides no exchange, expected flex or alltoall",
        ),
        ({"ep": 8, "zero": 2, "overlap_moe_expert_parallel_comm": True}, "no plan has these degrees"),
    ],
)
def test_wrong_rows_have_an_error(changes: dict[str, Any], words: str) -> None:
    """One line in the row's place."""
    (said,) = taut.predict([{**ROW, "dp": 16, **changes}])
    assert words in said["error"]


def test_a_row_of_a_known_model_has_its_attention() -> None:
    """Hidden size, heads and experts of DeepSeek-V3 bring its latent attention, at the row's number of layers."""
    shape = {"hidden": 7168, "layers": 4, "heads": 128, "dense_layers": 1, "vocab": 129280, "seq": 4096}
    experts = {"num_experts": 256, "experts_per_token": 8, "expert_ffn_hidden": 2048, "shared_ffn_hidden": 2048}
    run = {"gpu": "h100", "n_gpus": 8, "dp": 8, "global_batch": 64, "micro_batch": 8}
    row = ConfigurationRow.parse({**run, **shape, **experts}, "row")
    known = known_model(row)
    assert known is not None
    assert known.name == "deepseek-v3"
    assert known_model(row.model_copy(update={"expert_ffn_hidden": 1024})) is None
    found, plain = taut.predict([row.model_dump(exclude_none=True), row.model_dump(exclude_none=True) | {"heads": 64}])
    assert found["step_time_s"] > plain["step_time_s"]


def test_a_row_may_state_the_groups_of_its_router() -> None:
    """Of a model of the catalog its own groups without, others where stated: fewer copies, and a shorter step."""
    shape = {"hidden": 7168, "layers": 4, "heads": 128, "dense_layers": 1, "vocab": 129280, "seq": 4096}
    experts = {"num_experts": 256, "experts_per_token": 8, "expert_ffn_hidden": 2048, "shared_ffn_hidden": 2048}
    run = {"gpu": "h100", "n_gpus": 64, "dp": 64, "ep": 64, "global_batch": 64, "zero": 1}
    row = {**run, **shape, **experts}
    free, own, kept, fewest = (
        taut.predict([row | {"router_num_groups": 8, "router_group_topk": each}])[0]["step_time_s"]
        for each in (8, 4, 3, 1)
    )
    assert free > own > kept > fewest
    assert taut.predict([row])[0]["step_time_s"] == own
    (said,) = taut.predict([row | {"router_num_groups": 7, "router_group_topk": 1}])
    assert "router_num_groups is 7, expected a divisor of num_experts (256)" in said["error"]
