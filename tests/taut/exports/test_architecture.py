"""Dispatchers of expert ranks in Megatron-LM's flags, and the same flags read back."""

import sys
import types
from typing import Any

import pytest

import taut
from taut.comparison.compare import compare, current_of, priced_as_is
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.layers.experts import DispatchSpec
from taut.data.load import load_calibration, load_memory_model, load_model
from taut.errors import DataError, FieldError
from taut.exports.architecture import FEATURES, _attention
from taut.exports.deepspeed import deepspeed_config
from taut.exports.export import environment, launch_notes
from taut.exports.flagscale import flagscale_config
from taut.exports.job import ExportError, Job
from taut.exports.megatron import FEATURES as SETTINGS
from taut.exports.megatron import bridge_files, bridge_settings, flags_text, megatron_flags
from taut.exports.nearest import nearest_plan
from taut.exports.torchtitan import torchtitan_files
from taut.files import template
from taut.launchers.megatron import flags_of, megatron_launch
from taut.launchers.read import launch_of_text
from taut.launchers.settings import Run
from taut.planning.proof import proof
from taut.planning.request import PlanRequest
from tests.support.launches import in_order, model_with_experts, small_cluster

TYPE, BACKEND = "--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend"
FIX = {"pp": 1, "tp": 1, "ep": 4, "etp": 1, "micro_batch": 1, "zero": 1, "recompute": "none"}
MODEL = model_with_experts(8)


def planned(cluster: ClusterSpec | None = None, precision: str = "bf16", **options: Any) -> Job:
    """A plan with four expert ranks unless ``fix`` says otherwise, its devices in order."""
    fix, memory = FIX | options.pop("fix", {}), options.pop("memory_model", {"precision": precision})
    given = {"fix": fix, "work_limit": 4, "memory_model": memory, "schedules": "all"} | options
    return in_order(Job(taut.plan(MODEL, cluster or small_cluster(), global_batch=16, **given)))


def racks() -> ClusterSpec:
    """One NVLink domain of 16 GPUs that compute in mxfp8 too."""
    described = small_cluster(nodes=1, gpus=16).model_dump()
    described["nodes"][0]["device"]["peak_tflops"]["mxfp8"] = 200
    return ClusterSpec.parse(described, "racks")


@pytest.mark.parametrize(
    ("cluster", "options", "kind", "backend"),
    [
        (small_cluster(), {}, "flex", "deepep"),
        (racks(), {}, "flex", "hybridep"),
        (racks(), {"precision": "mxfp8", "fp8_dispatch": True}, "flex", "ncclep"),
        (small_cluster(), {"moe_token_dispatcher": "alltoall"}, "alltoall", None),
        (small_cluster(), {"moe_token_dispatcher": "allgather"}, "allgather", None),
        (small_cluster(), {"moe_token_dispatcher": "allgather", "fix": {"ep": 1, "etp": 1}}, "allgather", None),
        (small_cluster(), {"fix": {"ep": 1, "etp": 1}}, "alltoall", None),
    ],
    ids=["node", "domain", "fp8", "alltoall", "allgather", "allgather-of-one-rank", "one-rank"],
)
def test_the_priced_dispatcher_is_exported(
    cluster: ClusterSpec, options: dict[str, Any], kind: str, backend: str | None
) -> None:
    """DeepEP in a node, HybridEP in an NVLink domain of more GPUs than eight, NCCL EP in fp8; none for one rank."""
    job = planned(cluster, **options)
    flags, settings = megatron_flags(job), bridge_settings(job)
    assert (flags[TYPE], flags.get(BACKEND)) == (kind, backend)
    assert (flags.get("--moe-dispatch-fwd-dtype") == "mxfp8") == (backend == "ncclep")
    assert settings["model.moe_token_dispatcher_type"] == kind
    assert settings.get("model.moe_flex_dispatcher_backend") == backend
    assert settings.get("model.moe_shared_expert_overlap", True) == (kind == "alltoall")
    assert "--moe-grouped-gemm" in flags and "--overlap-moe-expert-parallel-comm" not in flags


@pytest.mark.parametrize("fields", [{}, {"grad_precision": "bf16"}], ids=["fp32", "bf16"])
def test_formats_are_those_of_the_plan_whatever_the_recipe_has(
    fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """mxfp8 in one format for both passes; Bridge's set by name, and by field where gradients are not the set's."""
    module = types.ModuleType("megatron.bridge.training.mixed_precision")
    sets = {"bf16_with_mxfp8_mixed": types.SimpleNamespace(grad_reduce_in_fp32=True)}
    vars(module)["get_mixed_precision_config"] = sets.__getitem__
    for name in ("megatron", "megatron.bridge", "megatron.bridge.training"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    job = planned(racks(), memory_model={"precision": "mxfp8"} | fields)
    assert megatron_flags(job)["--fp8-format"] == "e4m3"
    files, names = bridge_files(job), dict[str, Any]()
    exec(files["taut_plan.py"], names)
    recipe = types.SimpleNamespace(
        **{name: types.SimpleNamespace() for name in ("model", "train", "ddp", "dataset")}, mixed_precision="bf16_mixed"
    )
    found = names["taut_plan"](recipe).mixed_precision
    said = {line for line in files["overrides.txt"].splitlines() if line.startswith("mixed_precision")}
    if fields:
        assert found.grad_reduce_in_fp32 is False and said == {"mixed_precision.grad_reduce_in_fp32=false"}
    else:
        assert found == "bf16_with_mxfp8_mixed" and said == {"mixed_precision=bf16_with_mxfp8_mixed"}


def test_graphs_of_whole_steps_look_for_no_nan() -> None:
    """Megatron-LM and Megatron-Bridge refuse the check within such graphs."""
    assert "--no-check-for-nan-in-loss-and-grad" in FEATURES["whole-step-graphs"]
    assert SETTINGS["whole-step-graphs"]["rerun_state_machine.check_for_nan_in_loss"] is False


def test_the_environment_is_that_of_nvidias_recipes() -> None:
    """Growing segments for all frameworks, NVIDIA's variables for its own, several connections from Blackwell on."""
    fix = {"tp": 2, "ep": 4}
    hopper, described = planned(fix=fix), small_cluster().model_dump()
    for node in described["nodes"]:
        node["device"]["peak_tflops"]["nvfp4"] = 400
    blackwell = planned(ClusterSpec.parse(described, "blackwell"), fix=fix)
    assert [environment(job)["CUDA_DEVICE_MAX_CONNECTIONS"] for job in (hopper, blackwell)] == ["1", "32"]
    ours, others = environment(hopper), environment(hopper, "torchtitan")
    assert ours["NCCL_NVLS_ENABLE"] == "0" and "NCCL_NVLS_ENABLE" not in others
    allocator = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "NCCL_GRAPH_REGISTER": "0"}
    assert ours.items() >= allocator.items() <= others.items()
    said = launch_notes(hopper, "megatron", ["megatron"])
    assert "assume even routing" in said and f"({MODEL.vocab} tokens are priced)" in said


def test_hybrid_ep_is_told_its_domain() -> None:
    """Ranks of an expert group in a domain; its size where it spans machines, which Slurm has to give together."""
    name = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"
    described = racks().model_dump()
    described["nodes"][0]["gpus_per_machine"] = 4
    spanning, alone = planned(ClusterSpec.parse(described, "spanning")), planned(racks())
    assert environment(spanning).items() >= {name: "4", "NVLINK_DOMAIN_SIZE": "16", "USE_MNNVL": "1"}.items()
    assert environment(alone)[name] == "4" and "USE_MNNVL" not in environment(alone)
    others = planned(), planned(racks(), moe_token_dispatcher="alltoall"), planned(racks(), fix={"ep": 1, "etp": 1})
    assert not any(name in environment(job) for job in others)
    assert "sbatch --segment=4" in launch_notes(spanning, "megatron", ["megatron", "slurm"])
    assert "--segment" not in launch_notes(spanning, "megatron", ["megatron", "torchrun"])
    assert "--segment" not in launch_notes(alone, "megatron", ["megatron", "slurm"])
    notes = [launch_notes(job, "megatron", ["megatron", "slurm"]) for job in (alone, others[1])]
    assert ["--moe-router-dtype fp32" in text for text in notes] == [True, False]


def test_deepep_in_place_of_hybrid_ep_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where runs behind the prices had HybridEP and the export has DeepEP, which nodes of eight GPUs get."""
    monkeypatch.setattr(Job, "features", ["hybrid-ep"])
    notes = [launch_notes(job, "megatron", ["megatron"]) for job in (planned(), planned(racks()))]
    assert ["exchanged tokens by HybridEP" in text for text in notes] == [True, False]


def test_the_format_of_scores_is_exported_and_read_back() -> None:
    """A stated one in the flag and the setting of its name, and back to the option; none where none is stated."""
    with pytest.warns(UserWarning, match="moe_router_dtype: format fp32 of a router's scores changes nothing"):
        stated = planned(moe_router_dtype="fp32")
    plain = planned()
    assert megatron_flags(stated)["--moe-router-dtype"] == "fp32"
    assert bridge_settings(stated)["model.moe_router_dtype"] == "fp32"
    assert launch_of_text(flags_text(megatron_flags(stated))).values["moe_router_dtype"] == "fp32"
    assert "--moe-router-dtype" not in megatron_flags(plain)
    assert "moe_router_dtype" not in launch_of_text(flags_text(megatron_flags(plain))).values
    with pytest.raises(FieldError, match="moe_router_dtype: bf16, expected one of fp32, fp64"):
        planned(moe_router_dtype="bf16")


def test_overlap_is_exported_where_the_plan_hides_exchanges() -> None:
    """In one stage it hides them and asks for several connections; in plain 1F1B of two stages it hides nothing."""
    one = planned(overlap_moe_expert_parallel_comm=True)
    two = planned(overlap_moe_expert_parallel_comm=True, fix={"pp": 2, "schedule": "1f1b"})
    assert "--overlap-moe-expert-parallel-comm" in megatron_flags(one)
    assert environment(one)["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    settings = bridge_settings(one)
    assert settings["comm_overlap.overlap_moe_expert_parallel_comm"] is True
    assert settings["model.moe_shared_expert_overlap"] is False
    assert "--overlap-moe-expert-parallel-comm" not in megatron_flags(two)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"moe_token_dispatcher": "alltoall"},
        {"overlap_moe_expert_parallel_comm": True},
        {"overlap_moe_expert_parallel_comm": True, "moe_token_dispatcher": "alltoall"},
        {"fix": {"pp": 2, "vpp": 2, "schedule": "interleaved-1f1b"}, "overlap_moe_expert_parallel_comm": True},
        {"fix": {"ep": 8, "tp": 2, "recompute": "full"}, "moe_token_dispatcher": "alltoall"},
        {"fix": {"ep": 4, "tp": 2, "etp": 2}, "moe_token_dispatcher": "allgather"},
    ],
    ids=["flex", "alltoall", "overlap", "both", "interleaved", "tensor-ranks", "allgather"],
)
def test_flags_are_read_as_the_plan_that_wrote_them(options: dict[str, Any]) -> None:
    """Exported flags, read back and priced as what runs today, cost what the plan says."""
    job = planned(**options)
    values = launch_of_text(flags_text(megatron_flags(job))).values
    wanted = {name: value for name, value in options.items() if name != "fix"}
    assert {name: values.get(name) for name in wanted} == wanted
    request = PlanRequest(
        MODEL, small_cluster(), global_batch=values.pop("global_batch"), memory_model={"precision": "bf16"}
    )
    stated = priced_as_is(request, current_of(values))
    assert stated.problem.space.dispatch == job.dispatch
    assert stated.seconds == pytest.approx(job.plan.step_time_s, rel=1e-12)


def test_groups_of_a_router_are_exported_and_read_back() -> None:
    """In Megatron-LM's flags, and back to the model's own; a model with others is refused by its own number."""
    experts = {**MODEL.model_dump()["experts"], "router_num_groups": 4, "router_group_topk": 2}
    model = taut.ModelSpec.parse(MODEL.model_dump() | {"name": "grouped", "experts": experts}, "grouped")
    fix: dict[str, Any] = dict(FIX)
    job = in_order(Job(taut.plan(model, small_cluster(), global_batch=16, fix=fix, work_limit=4)))
    flags = megatron_flags(job)
    assert (flags["--moe-router-num-groups"], flags["--moe-router-group-topk"]) == ("4", "2")
    assert "--moe-router-num-groups" not in megatron_flags(planned())
    values = launch_of_text(flags_text(flags)).values
    batch = values.pop("global_batch")
    requests = [PlanRequest(each, small_cluster(), global_batch=batch) for each in (model, MODEL)]
    assert priced_as_is(requests[0], current_of(values)).seconds == pytest.approx(job.plan.step_time_s, rel=1e-12)
    with pytest.raises(FieldError, match="current: router_num_groups=4, expected 1 as in routed, or a model file"):
        priced_as_is(requests[1], current_of(values))


def test_what_runs_and_the_best_plan_exchange_alike() -> None:
    """The dispatcher of what runs holds for both; another one beside it is refused; more expert ranks are a change."""
    current = FIX | {"ep": 2, "moe_token_dispatcher": "alltoall"}
    found = compare(MODEL, small_cluster(), global_batch=16, current=current, work_limit=4)
    assert found.best.certificate.space["dispatch"]["dispatcher"] == "alltoall"
    assert found.distance is not None and found.distance >= 0.0
    with pytest.raises(FieldError, match="moe_token_dispatcher=alltoall, expected flex"):
        compare(MODEL, small_cluster(), global_batch=16, current=current, moe_token_dispatcher="flex")


@pytest.mark.parametrize(
    ("precision", "dispatch", "words"),
    [
        ("bf16", {"fp8": True}, "in bf16"),
        ("mxfp8", {"fp8": True, "dispatcher": "alltoall"}, "by alltoall"),
        ("fp32", {"overlap": True}, "in fp32"),
    ],
)
def test_what_megatron_has_not_is_refused(precision: str, dispatch: dict[str, Any], words: str) -> None:
    """Rows in fp8 but by one backend in one precision, and overlap in single precision."""
    job = planned()
    object.__setattr__(job, "dispatch", DispatchSpec(**dispatch))
    object.__setattr__(job, "memory", job.memory.model_copy(update={"precision": precision}))
    with pytest.raises(ExportError, match=words):
        megatron_flags(job)


@pytest.mark.proof
@pytest.mark.parametrize("loss", ["none", "native", "te"])
def test_the_loss_that_is_priced_is_exported_and_read_back(loss: str) -> None:
    """In Megatron-LM's flags and Megatron-Bridge's settings; Transformer Engine's with a word on who refuses it."""
    fix = {"pp": 4, "tp": 1, "ep": 2, "micro_batch": 1}
    job = Job(taut.plan("gpt-oss-20b", "dgx-h100", global_batch=64, fix=fix, work_limit=2, fused_loss=loss))
    flags = megatron_flags(job)
    assert flags.get("--cross-entropy-fusion-impl", "none") == job.fused_loss == loss
    assert ("--cross-entropy-loss-fusion" in flags) == (loss != "none")
    assert ("refuses it" in launch_notes(job, "megatron", [])) == (loss == "te")
    words = [word for flag, value in flags.items() for word in (flag, value) if word is not None]
    assert megatron_launch(flags_of(words), Run()).options.get("fused_loss", "none") == loss
    settings = bridge_settings(job)
    assert settings["model.cross_entropy_loss_fusion"] == (loss != "none")
    assert settings.get("model.cross_entropy_fusion_impl", "none") == loss


def test_flagscale_has_deepep_alone() -> None:
    """Its Megatron-LM has a switch for it, and no other backend; a gather of all tokens is what it begins with."""
    assert flagscale_config(planned())["model"]["moe_enable_deepep"] is True
    gathering = flagscale_config(planned(moe_token_dispatcher="allgather"))["model"]
    assert gathering["moe_token_dispatcher_type"] == "allgather" and "moe_enable_deepep" not in gathering
    with pytest.raises(ExportError, match="hybridep"):
        flagscale_config(planned(racks()))


def test_torchtitan_gathers_no_tokens() -> None:
    """A plan whose expert ranks gather all tokens is refused by name, and layer costs tell no plan near it."""
    fix = {"zero": 3, "dp": 8}
    job = planned(moe_token_dispatcher="allgather", fix=fix)
    with pytest.raises(ExportError, match="by allgather, which torchtitan has not"):
        torchtitan_files(job)
    assert nearest_plan(job.plan, "torchtitan") is None
    alone = planned(moe_token_dispatcher="allgather", fix=fix | {"ep": 1})
    assert "moe_comm_backend" not in torchtitan_files(alone)["taut_plan.py"]


def test_what_a_line_does_not_say_of_the_dispatcher_is_megatrons_default() -> None:
    """A gather of all tokens where it names none; of others those that have no price are refused."""
    flags = "--micro-batch-size 1 --num-experts 8 --expert-model-parallel-size 2"
    assert launch_of_text(flags).values["moe_token_dispatcher"] == "allgather"
    assert "moe_token_dispatcher" not in launch_of_text("--micro-batch-size 1 --num-experts 8").values
    with pytest.raises(DataError, match="alltoall_seq: expected one of flex, alltoall, allgather"):
        launch_of_text(f"{flags} --moe-token-dispatcher-type alltoall_seq")


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_what_made_a_release_fast_is_switched_on(recompute: str) -> None:
    """Features of the calibration, but no CUDA graph beside full recompute; none without such a calibration."""
    features = ["part-graphs", "fused-router", "fused-permutation", "hybrid-ep"]
    known = load_calibration("megatron-experts-h100-bf16").model_copy(update={"device": "", "features": features})
    job = planned(calibration=known, fix={"recompute": recompute})
    flags, settings = megatron_flags(job), bridge_settings(job)
    graphs = recompute == "none"
    assert (flags.get("--cuda-graph-impl") == "transformer_engine") == graphs
    assert (settings.get("model.cuda_graph_impl") == "transformer_engine") == graphs
    assert "--moe-router-fusion" in flags and settings["model.moe_permute_fusion"]
    assert "--moe-router-fusion" not in megatron_flags(planned())


@pytest.mark.parametrize("tensor", [1, 2])
def test_communication_of_tensor_ranks_beside_products_is_switched_on_where_prices_assume_it(tensor: int) -> None:
    """Of models without experts too, by flag, setting and recipe, and the plan says so; not with one tensor rank."""
    known = load_calibration("nemo-h100-bf16").model_copy(update={"device": ""})
    dense = MODEL.model_copy(update={"experts": None})
    fix: dict[str, Any] = {"pp": 1, "tp": tensor, "micro_batch": 1, "sequence_parallel": tensor > 1}
    plan = taut.plan(dense, small_cluster(), global_batch=16, fix=fix, work_limit=4, calibration=known)
    job, assumed = in_order(Job(plan)), tensor > 1
    assert ("--tp-comm-overlap" in megatron_flags(job)) == assumed
    assert bridge_settings(job).get("comm_overlap.tp_comm_overlap", False) == assumed
    said = "tp-comm-overlap, dp-comm-overlap" if assumed else "dp-comm-overlap"
    assert f"its runs had {said}, which exports switch on" in "\n".join(proof(plan.typed))
    again = launch_of_text(flags_text(megatron_flags(job))).values
    assert (again["tp"], again["sequence_parallel"]) == (tensor, tensor > 1)
    assert "--tp-comm-overlap" not in megatron_flags(planned(fix={"tp": 2, "etp": 1}))


NONE = {"recompute": "none"}


def one_stage(precision: str, **options: Any) -> Job:
    """Llama 3 8B on eight B200 in one stage."""
    fix = {"pp": 1, "tp": 1, "cp": 1, "micro_batch": 2, **options.pop("fix", {})}
    return Job(taut.plan("llama3-8b", "dgx-b200", global_batch=64, precision=precision, fix=fix, **options))


@pytest.mark.parametrize(
    ("precision", "fix", "kind"),
    [
        ("bf16", {"zero": 1}, "full_iteration"),
        ("fp8", {"zero": 1}, "full_iteration"),
        ("nvfp4", {"zero": 1}, "transformer_engine"),
        ("fp8", {"zero": 3}, None),
        ("fp8", {"zero": 1, "recompute": "full"}, None),
    ],
)
def test_graphs_of_dense_models_are_switched_on_where_prices_assume_them(
    precision: str, fix: dict[str, Any], kind: str | None
) -> None:
    """In one stage with whole weights, by flag, setting and sentence; read back they are at the same price."""
    job = one_stage(precision, fix=fix)
    flags, settings, words = megatron_flags(job), bridge_settings(job), "\n".join(proof(job.plan.typed))
    assert flags.get("--cuda-graph-impl") == settings.get("model.cuda_graph_impl") == kind
    assert ("--te-rng-tracker" in flags) == (kind is not None) == ("-graph" in words)
    assert "--moe-paged-stash" not in flags
    assert ("--no-check-for-nan-in-loss-and-grad" in flags) == (kind == "full_iteration")
    assert ("fp8-param-gather" in words) == (precision == "fp8")
    values = launch_of_text(flags_text(flags)).values
    del values["global_batch"]
    options: dict[str, Any] = {"global_batch": 64, "precision": precision, "fix": {"pp": 1, "tp": 1, "cp": 1}}
    found = taut.compare("llama3-8b", "dgx-b200", current=values, **options)
    assert found.current.step_time_s == pytest.approx(job.plan.step_time_s)


def test_stacks_without_graphs_count_on_none() -> None:
    """FlagScale has the same calibrations, on an older Megatron-LM."""
    fix = {"zero": 1, "recompute": "none", "sequence_parallel": False}
    theirs, ours = one_stage("bf16", stack="flagscale", fix=fix), one_stage("bf16", fix=fix)
    assert "one-stage-graph" in ours.features and "one-stage-graph" not in theirs.features
    assert theirs.plan.step_time_s > ours.plan.step_time_s


def test_graphs_cost_memory_and_save_launches() -> None:
    """A plan that counts on them holds 3 GiB more, and takes less than launches of a borrowed calibration."""
    fix = {"pp": 1, "tp": 1, "cp": 1, "micro_batch": 2, "zero": 1, "recompute": "none"}
    known = load_calibration("megatron-bridge-fp8-b200")
    asked: dict[str, Any] = {"global_batch": 64, "precision": "fp8", "fix": fix}
    none = known.model_copy(update={"features": ["dp-comm-overlap"]})
    graphs, plain = (taut.plan("llama3-8b", "dgx-b200", calibration=each, **asked) for each in (known, none))
    assert graphs.predicted.memory_bytes[0] - plain.predicted.memory_bytes[0] == 3 * 2**30
    assert 0.9 < graphs.step_time_s / plain.step_time_s < 1


def test_a_space_with_full_recompute_counts_what_graphs_keep() -> None:
    """The same plan holds as much where its candidate might recompute whole layers; a stated figure counts."""
    fix, known = {"zero": 1}, "megatron-bridge-bf16-b200"
    named, free = (one_stage("bf16", stack="any", calibration=known, fix=fix | more).plan for more in (NONE, {}))
    assert named.strategy.recompute == free.strategy.recompute and named.step_time_s == free.step_time_s
    assert named.predicted.memory_bytes == free.predicted.memory_bytes
    given = load_memory_model("megatron-core").model_copy(update={"fp8_inputs": True, "graph_gib": 1.0})
    less = one_stage("bf16", stack="any", calibration=known, fix=fix | NONE, memory_model=given).plan
    assert less.typed.inputs["memory_model"].spec["graph_gib"] == 1.0


def test_measured_costs_without_graphs_count_on_none() -> None:
    """A profile beside a calibration whose runs had graphs has prices, bytes and flags without them."""
    options: dict[str, Any] = {"calibration": "megatron-bridge-bf16-b200", "fix": {"zero": 1} | NONE}
    job = one_stage("bf16", **options)
    spec = job.plan.typed.inputs["costs"].spec
    for recorded, graphs in ((True, 3.0), (False, 0.0)):
        profile = CostTable.parse(
            {**spec, "rows": [row for row in spec["rows"] if recorded or not row.get("recorded")]}, ""
        )
        found = one_stage("bf16", profile=profile, **options)
        assert found.plan.typed.inputs["memory_model"].spec.get("graph_gib", 0.0) == graphs
        assert ("--cuda-graph-impl" in megatron_flags(found)) == recorded


def test_gathers_in_fp8_are_priced_beside_overlap_alone() -> None:
    """A fitted coefficient holds what runs gathered; stated rates, beside overlap, do not; mxfp8 gathers bf16."""

    def format_of(precision: str, **options: Any) -> str:
        return str(one_stage(precision, **options).plan.typed.inputs["memory_model"].spec["param_gather"])

    assert format_of("fp8") == format_of("mxfp8", overlap_grad_reduce=True) == "weights"
    assert format_of("fp8", overlap_grad_reduce=True) == "fp8"
    given = load_memory_model("megatron-core").model_copy(
        update={"precision": "fp8", "fp8_inputs": True, "param_gather": "weights"}
    )
    assert format_of("fp8", overlap_grad_reduce=True, memory_model=given) == "weights"


@pytest.mark.parametrize(("pipeline", "zero"), [(1, 0), (1, 1), (4, 0)])
def test_communication_of_replicas_is_hidden_where_prices_assume_it(pipeline: int, zero: int) -> None:
    """Reductions of several replicas and gathers of sharded weights, by flag and setting; none with one replica."""
    known = load_calibration("nemo-h100-bf16").model_copy(update={"device": ""})
    dense = MODEL.model_copy(update={"experts": None})
    fix: dict[str, Any] = {"pp": pipeline, "tp": 2 if pipeline > 1 else 1, "cp": 1, "micro_batch": 1, "zero": zero}
    plan = taut.plan(dense, small_cluster(), global_batch=16, fix=fix, work_limit=4, calibration=known)
    job = in_order(Job(plan))
    flags, settings, several = megatron_flags(job), bridge_settings(job), pipeline == 1
    assert ("--overlap-grad-reduce" in flags) == settings["ddp.overlap_grad_reduce"] == several
    assert ("--overlap-param-gather" in flags) == settings["ddp.overlap_param_gather"] == (several and zero == 1)
    assert ("dp-comm-overlap" in "\n".join(proof(plan.typed))) == several
    assert launch_of_text(flags_text(flags)).values["zero"] == zero
    assert "--overlap-grad-reduce" not in megatron_flags(planned())


@pytest.mark.parametrize(("name", "normed"), [("llama3-8b", False), ("qwen3-30b-a3b", True), ("deepseek-v3", True)])
def test_norms_of_queries_and_keys_are_switched_on(name: str, normed: bool) -> None:
    """Of heads and of latent attention, whose parameters the plan counts."""
    model, given = load_model(name), in_order(Job(taut.plan("llama3-8b", "dgx-h100", global_batch=8, work_limit=1)))
    assert ("--qk-layernorm" in dict(_attention(given, model.blocks[-1]))) == normed


@pytest.mark.parametrize("gated", [False, True])
def test_dropout_is_off_where_the_plan_counts_no_masks(gated: bool) -> None:
    """A gated model keeps no masks, and Megatron-LM would drop a tenth of its elements unless told not to."""
    dense = MODEL.model_copy(update={"gated_mlp": gated, "experts": None})
    plan = taut.plan(dense, small_cluster(), global_batch=16, work_limit=4)
    flags = megatron_flags(in_order(Job(plan)))
    assert [flags.get(name) for name in ("--attention-dropout", "--hidden-dropout")] == ["0.0" if gated else None] * 2


def test_a_recipe_switches_it_on_in_a_configuration_without_overlap() -> None:
    """Where a recipe has no settings of overlap the function makes them with what the plan assumes."""
    made: list[bool] = []
    module = types.ModuleType("megatron.bridge.training.comm_overlap")

    def config(*, tp_comm_overlap: bool) -> types.SimpleNamespace:
        made.append(tp_comm_overlap)
        return types.SimpleNamespace(tp_comm_overlap=tp_comm_overlap)

    vars(module)["CommOverlapConfig"] = config
    settings = {"comm_overlap.tp_comm_overlap": True}
    names: dict[str, Any] = {}
    exec(template("megatron_bridge.py.txt").format(model=repr("m"), settings=repr(settings)), names)
    parents = ("megatron", "megatron.bridge", "megatron.bridge.training")
    given = {name: types.ModuleType(name) for name in parents} | {module.__name__: module}
    with pytest.MonkeyPatch.context() as patch:
        for name, each in given.items():
            patch.setitem(sys.modules, name, each)
        found = names["taut_plan"](types.SimpleNamespace(comm_overlap=None))
    assert made == [True] and found.comm_overlap.tp_comm_overlap is True


@pytest.mark.parametrize(
    ("precision", "kept", "flag"),
    [
        ("fp16", "fp16", None),
        ("fp16", "fp32", "--accumulate-allreduce-grads-in-fp32"),
        ("bf16", "bf16", "--grad-reduce-in-bf16"),
    ],
)
def test_formats_of_gradients_have_their_flags(precision: str, kept: str, flag: str | None) -> None:
    """Megatron-LM reads --grad-reduce-in-bf16 beside --bf16 alone (megatron/training/arguments.py)."""
    given = {"precision": precision, "grad_precision": kept}
    job = in_order(Job(taut.plan("gpt2-345m", "dgx-a100", global_batch=8, work_limit=1, memory_model=given)))
    assert {name for name in megatron_flags(job) if "grads-in" in name or "reduce-in" in name} == {flag} - {None}


def test_what_a_configuration_leaves_to_its_script_is_said() -> None:
    """Converters of formats below 16 bits in torchtitan, and tensor ranks in DeepSpeed."""
    options: dict[str, Any] = {"global_batch": 8, "work_limit": 1, "fix": {"tp": 2, "pp": 1}}
    plans = {
        (stack, precision): taut.plan("gpt2-345m", "dgx-h100", stack=stack, precision=precision, **options)
        for stack, precision in (("torchtitan", "fp8"), ("torchtitan", "bf16"), ("deepspeed", "bf16"))
    }
    notes = {each: launch_notes(in_order(Job(plan)), each[0], [each[0]]) for each, plan in plans.items()}
    told = "base() also has to convert linear layers for fp8"
    assert [told in notes[each] for each in plans] == [True, False, False]
    assert ["your script gives DeepSpeed its 2 tensor ranks" in notes[each] for each in plans] == [False, False, True]


def test_formats_that_deepspeed_lacks_are_refused_with_those_that_it_has() -> None:
    """Another stack would not help, as its plans keep the format."""
    plan = taut.plan("gpt2-345m", "dgx-h100", stack="deepspeed", precision="fp8", global_batch=8, work_limit=1)
    with pytest.raises(ExportError, match=r"precision fp8, .*; plan with --precision bf16, fp16 or fp32$"):
        deepspeed_config(in_order(Job(plan)))
