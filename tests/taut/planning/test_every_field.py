"""
Every field of a model, cluster or stack file and every option of a request, changed in turn.

Each must change what is planned (the candidates, or seconds, bytes or violations of some of them), be refused, or be
named in a line. A field that is added to a file fails here until it has a change below.
"""

import copy
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

import taut
from taut.data.cluster import LatencySpec, MatrixSpec, NetworkSpec, NodeSpec, RackSpec
from taut.data.device import DeviceSpec
from taut.data.layers.encoder import EncoderSpec
from taut.data.layers.experts import DispatchSpec, ExpertsSpec
from taut.data.layers.layer import LatentSpec, LayerSpec, ProductSpec
from taut.data.layers.mixer import MixerSpec
from taut.data.spec import Spec
from taut.data.stack import Rule, Stack
from taut.errors import DataError
from taut.formulations.latency import memory_bytes, step_time, violations
from taut.formulations.space import Candidate
from taut.planning.options import OPTIONS
from taut.planning.resolve import resolved_problem
from taut.solver.simple_plans import even_strategy, rank_order

Values = dict[str, Any]
SHAPE: Values = {"hidden": 512, "heads": 8, "ffn_hidden": 2048, "seq": 512}
MODEL: Values = {"name": "m", "layers": 4, "vocab": 1024, **SHAPE}
EXPERTS: Values = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 512}
ROUTED: Values = MODEL | {"experts": EXPERTS}
LATENT: Values = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
MIXER: Values = {"key_dim": 32, "value_dim": 64, "made": 1600, "convolved": 512, "taps": 4, "chunk": 64}
PRODUCT: Values = {"sums": 512, "columns": 256}
IMAGES: Values = {
    "layers": 2, "hidden": 128, "heads": 4, "ffn_hidden": 256, "patches": 64, "patch_dim": 48, "merge": 4,
    "projector": [[512, 512]], "images": 1.0, "most_images": 2, "tensor_parallel": True,
}  # fmt: skip
MODELS: dict[str, Values] = {
    "plain": MODEL,
    "images": MODEL | {"encoder": IMAGES},
    "windowed": MODEL | {"attention_window": 64},
    "routed": ROUTED,
    "latent": MODEL | {"latent": LATENT | {"q_lora_rank": 96, "index_dim": 32, "index_heads": 2}},
    "listed": {"name": "m", "vocab": 1024, "layers": [
        {"kind": "a", "count": 2, **SHAPE, "adjoined": [PRODUCT]}, {"kind": "b", "count": 2, **SHAPE, "mixer": MIXER},
    ]},
    "further": ROUTED | {"dense_layers": 1, "mtp_layers": 2},
    "shared": {"name": "m", "vocab": 1024, "layers": [{"kind": "a", **SHAPE}, {"kind": "b", **SHAPE}]},
}  # fmt: skip
DEVICE: Values = {
    "name": "gpu", "memory_gib": 16, "peak_tflops": {"bf16": 100, "fp16": 100}, "memory_bandwidth_gbytes": 1000,
    "host_link_gbytes": 25,
}  # fmt: skip
NODE: Values = {
    "count": 2, "device": DEVICE, "gpus_per_node": 4, "intra_bandwidth_gbps": 2400, "intra_latency_us": 3,
    "nic_bandwidth_gbps": 200, "host_memory_gbytes": 200, "host_memory_gib": 64,
}  # fmt: skip
RACKS: list[Values] = [{"nodes": [0], "bandwidth_gbps": 90, "latency_us": 6}, {"nodes": [1]}]
CLUSTERS: dict[str, Values] = {
    "plain": {"name": "c", "nodes": [NODE], "network": {"bandwidth_gbps": 100, "latency_us": 5}},
    "racks": {"name": "c", "nodes": [NODE | {"count": 4, "gpus_per_node": 2}], "network": {
        "bandwidth_gbps": 50, "latency_us": 5, "racks": [
            {"nodes": [0, 1], "bandwidth_gbps": 90, "latency_us": 4}, {"nodes": [2, 3], "latency_us": 4}],
    }},
    "measured": {
        "name": "c", "nodes": [NODE], "network": {"latency_us": 5},
        "bandwidth_matrix": {"unit": "GB/s", "rows": [[0, 12], [11, 0]]},
        "latency_matrix": {"rows_us": [[0, 5], [6, 0]]},
    },
}  # fmt: skip
STACK: Values = {
    "name": "own", "description": "a stack of its own", "schedules": ["1f1b", "interleaved-1f1b"],
    "zero": [0, 1, 2, 3], "context_parallel": True, "expert_parallel": True, "recompute": ["none", "selective"],
    "recompute_modules": ["layernorm", "moe_act"], "offload_zero": [1], "offload_part_zero": [1],
    "offload_activations": ["none"],
}  # fmt: skip
LONG: Values = {"seq": 8192}
OFFLOADED: Values = {"optimizer_offload_fraction": 1.0, "fix": {"zero": 1}}
SWAPPED: Values = {"activation_offload_fraction": 0.5, "fix": {"pp": 1}}

Change = tuple[str, object] | tuple[str, object, Values]
"""The document that has the field, a value, and options of the request."""
TEXTS: dict[type[Spec], set[str]] = {
    taut.ModelSpec: {"name", "source"},
    taut.ClusterSpec: {"name", "source"},
    DeviceSpec: {"name", "source"},
    Stack: {"name", "description", "rules", "source"},
    LayerSpec: {"kind"},
    Rule: {"rule", "source"},
}
"""Names and sources, which documents repeat, and words of rules."""
ELSEWHERE = {
    (NodeSpec, "gpus_per_machine"): "files that launch a plan (tests/taut/exports/test_machines.py)",
    (ProductSpec, "mixes"): "the part of a layer that counts the product (tests/data/readers/test_transformers.py)",
    (Stack, "cuda_graphs"): "plans on Blackwell (tests/taut/exports/test_architecture.py)",
    (Stack, "process_meshes"): "plans with degrees by type of device (tests/taut/planning/test_meshes.py)",
}
OF_MODELS: dict[str, Change] = {
    "layers": ("plain", 5), "hidden": ("plain", 1024), "heads": ("plain", 2), "kv_heads": ("plain", 2),
    "head_dim": ("plain", 32), "ffn_hidden": ("plain", 1024), "seq": ("plain", 1024), "max_seq": ("plain", 256, LONG),
    "vocab": ("plain", 2048), "gated_mlp": ("plain", True), "dropout": ("plain", False),
    "attention_window": ("plain", 64), "full_attention_period": ("windowed", 2), "qk_norm": ("plain", True),
    "experts": ("plain", EXPERTS), "dense_layers": ("routed", 1), "expert_period": ("routed", 2),
    "latent": ("plain", LATENT), "attention_gate": ("plain", 512), "tied_embedding": ("plain", True),
    "position_rows": ("plain", 512), "further_embedding": ("plain", 100_000), "mtp_layers": ("plain", 1),
    "mtp_kinds": ("further", ["dense"]), "mtp_repeated": ("further", True), "encoder": ("plain", IMAGES),
}  # fmt: skip
OF_IMAGES: dict[str, Change] = {
    "layers": ("images", 3), "hidden": ("images", 256), "heads": ("images", 2), "ffn_hidden": ("images", 512),
    "gated_mlp": ("images", True), "patches": ("images", 128), "patch_dim": ("images", 64),
    "position_rows": ("images", 64), "window": ("images", 16), "full_layers": ("windowed images", 1),
    "merge": ("images", 2), "projector": ("images", [[512, 256], [256, 512]]), "projectors": ("images", 2),
    "images": ("images", 1.5), "most_images": ("images", 4), "trained": ("images", "projector"),
    "tensor_parallel": ("images", False), "recompute": ("images", True),
}  # fmt: skip
OF_LAYERS: dict[str, Change] = {
    "count": ("listed", 3), "hidden": ("listed", 1024), "heads": ("listed", 2), "kv_heads": ("listed", 2),
    "head_dim": ("listed", 32), "ffn_hidden": ("listed", 1024), "seq": ("listed", 256), "gated_mlp": ("listed", True),
    "dropout": ("listed", False), "attention_window": ("listed", 64), "qk_norm": ("listed", True),
    "experts": ("listed", EXPERTS), "latent": ("listed", LATENT), "attention_gate": ("listed", 512),
    "mixer": ("listed", MIXER | {"chunk": 0}), "only": ("listed", "attention"), "kv_matrices": ("listed", 1),
    "value_head_dim": ("listed", 32), "streams": ("listed", 2), "adjoined": ("listed", []),
    "beside": ("listed", {**SHAPE, "mixer": MIXER, "only": "attention"}), "reused": ("shared", True),
}  # fmt: skip
OF_LATENT: dict[str, Change] = {
    "q_lora_rank": ("latent", 64), "kv_lora_rank": ("latent", 32), "qk_nope_head_dim": ("latent", 16),
    "qk_rope_head_dim": ("latent", 32), "v_head_dim": ("latent", 16), "index_heads": ("latent", 4),
    "index_dim": ("latent", 16),
}  # fmt: skip
OF_MIXERS: dict[str, Change] = {
    "key_dim": ("listed", 64), "value_dim": ("listed", 32), "made": ("listed", 3200), "made_whole": ("listed", 64),
    "second_parameters": ("listed", 4096), "convolved": ("listed", 1024), "taps": ("listed", 8),
    "chunk": ("listed", 128), "delta_rule": ("listed", True),
    "scanned": ("listed", 16), "attends": ("listed", 128), "output": ("listed", False),
}  # fmt: skip
OF_PRODUCTS: dict[str, Change] = {
    "sums": ("listed", 256), "columns": ("listed", 512), "split": ("listed", True),
    "idle": ("listed", True),
}  # fmt: skip
OF_EXPERTS: dict[str, Change] = {
    "num_experts": ("routed", 16), "experts_per_token": ("routed", 4), "expert_ffn_hidden": ("routed", 256),
    "shared_ffn_hidden": ("routed", 512), "biased": ("routed", True), "router_num_groups": ("routed", 4),
    "router_group_topk": ("routed", 2), "latent_hidden": ("routed", 256),
}  # fmt: skip
OF_NODES: dict[str, Change] = {
    "count": ("plain", 4), "device": ("plain", DEVICE | {"memory_bandwidth_gbytes": 500}),
    "gpus_per_node": ("plain", 8), "intra_bandwidth_gbps": ("plain", 1200), "intra_latency_us": ("plain", 9),
    "nic_bandwidth_gbps": ("plain", 100), "host_memory_gbytes": ("plain", 100, OFFLOADED),
    "host_memory_efficiency": ("plain", 0.5, OFFLOADED), "host_memory_gib": ("plain", 0.01, SWAPPED),
}  # fmt: skip
OF_DEVICES: dict[str, Change] = {
    "memory_gib": ("plain", 0.75), "peak_tflops": ("plain", {"bf16": 50}), "memory_bandwidth_gbytes": ("plain", 500),
    "gemm_efficiency": ("plain", 0.5), "attention_efficiency": ("plain", 0.2), "memory_efficiency": ("plain", 0.5),
    "launch_us": ("plain", 1000), "host_link_gbytes": ("plain", 0.5, SWAPPED),
    "host_link_efficiency": ("plain", 0.01, SWAPPED),
}  # fmt: skip
OF_CLUSTERS: dict[str, Change] = {
    "nodes": ("plain", [NODE | {"count": 1}]), "network": ("plain", {"bandwidth_gbps": 50, "latency_us": 5}),
    "bandwidth_matrix": ("measured", {"unit": "GB/s", "rows": [[0, 6], [6, 0]]}),
    "latency_matrix": ("measured", {"rows_us": [[0, 50], [50, 0]]}),
}  # fmt: skip
OF_NETWORKS: dict[str, Change] = {
    "bandwidth_gbps": ("plain", 50), "latency_us": ("plain", 50), "racks": ("plain", RACKS),
}  # fmt: skip
OF_RACKS: dict[str, Change] = {
    "nodes": ("racks", [0]), "bandwidth_gbps": ("racks", 60), "latency_us": ("racks", 40),
}  # fmt: skip
OF_MATRICES: dict[str, Change] = {"unit": ("measured", "MB/s"), "rows": ("measured", [[0, 6], [6, 0]])}
OF_LATENCIES: dict[str, Change] = {"rows_us": ("measured", [[0, 50], [50, 0]])}
ROUTES: Values = {"model": "routed"}
OF_STACKS: dict[str, Change] = {
    "schedules": ("own", ["1f1b"]), "recompute": ("own", ["full"]), "recompute_modules": ("own", ["moe_act"], ROUTES),
    "recompute_by_stage": ("own", False), "block_recompute": ("own", True, {"block_recompute": True}),
    "zero": ("own", [0, 1]), "pipeline_zero": ("own", [0]),
    "offload_zero": ("own", [2], OFFLOADED),
    "offload_part_zero": ("own", [2], {"optimizer_offload_fraction": 0.5, "fix": {"zero": 1}}),
    "offload_activations": ("own", ["full"], SWAPPED),
    "offload_pipelines": ("own", True, {"activation_offload_fraction": 0.5}),
    "offload_shares": ("own", "all", SWAPPED), "offload_modules": ("own", ["core_attn"], {
        "activation_offload_fraction": 0.5, "fix": {"offload_modules": "core_attn"}}),
    "divisions": ("own", ["even"], {"model": "five"}), "empty_ends": ("own", True),
    "replicated_kv": ("own", False, {"model": "grouped"}),
    "mixer_contexts": ("own", False, {"model": "listed", "fix": {"cp": 2}}),
    "encoders": ("own", True, {"model": "images"}),
    "tied_pipelines": ("own", False, {"model": "tied"}), "uneven_batch": ("own", True, {"cluster": "types"}),
    "sequence_parallel": ("own", [False]), "context_parallel": ("own", False, LONG),
    "cp_comm": ("own", ["all_gather"], LONG), "overlap_context": ("own", True, LONG),
    "expert_parallel": ("own", False, ROUTES), "expert_zero": ("own", [0], ROUTES),
    "expert_tensor": ("own", False, ROUTES), "dispatch": ("own", {"imbalance": 2.0}, ROUTES),
    "dispatchers": ("own", ["flex"], ROUTES | {"moe_token_dispatcher": "alltoall"}),
    "grad_precision": ("own", ["bf16"], {"grad_precision": "fp32"}),
    "overlap_grad_reduce": ("own", True, {"model": "wide"}),
    "optimizers": ("own", ["adam", "muon"], {"optimizer": "muon"}),
    "overlap_in_pipelines": ("own", False, {"overlap_grad_reduce": True}), "fused_attention": ("own", False),
    "fused_loss": ("own", "te"), "calibrations": ("own", ["nemo-h100-bf16"]), "memory_models": ("own", ["torchtitan"]),
}  # fmt: skip
OF_DISPATCH: dict[str, Change] = {
    "dispatcher": ("own", "allgather", ROUTES), "fp8": ("own", True, ROUTES), "imbalance": ("own", 2.0, ROUTES),
    "overlap": ("own", True, ROUTES), "router_dtype": ("own", "fp64", ROUTES | {"moe_token_dispatcher": "allgather"}),
    "row_moves": ("own", 7.5, ROUTES),
}  # fmt: skip
PLACES: dict[type[Spec], tuple[str, tuple[Any, ...], dict[str, Change]]] = {
    taut.ModelSpec: ("model", (), OF_MODELS),
    EncoderSpec: ("model", ("encoder",), OF_IMAGES),
    LayerSpec: ("model", ("layers", 0), OF_LAYERS),
    LatentSpec: ("model", ("latent",), OF_LATENT),
    MixerSpec: ("model", ("layers", 1, "mixer"), OF_MIXERS),
    ProductSpec: ("model", ("layers", 0, "adjoined", 0), OF_PRODUCTS),
    ExpertsSpec: ("model", ("experts",), OF_EXPERTS),
    taut.ClusterSpec: ("cluster", (), OF_CLUSTERS),
    NodeSpec: ("cluster", ("nodes", 0), OF_NODES),
    DeviceSpec: ("cluster", ("nodes", 0, "device"), OF_DEVICES),
    NetworkSpec: ("cluster", ("network",), OF_NETWORKS),
    RackSpec: ("cluster", ("network", "racks", 0), OF_RACKS),
    MatrixSpec: ("cluster", ("bandwidth_matrix",), OF_MATRICES),
    LatencySpec: ("cluster", ("latency_matrix",), OF_LATENCIES),
    Stack: ("stack", (), OF_STACKS),
    DispatchSpec: ("stack", ("dispatch",), OF_DISPATCH),
}
"""Where each kind of record stands in a file, and a change of each field."""
MODELS |= {
    "windowed images": MODEL | {"encoder": IMAGES | {"window": 16}},
    "grouped": MODEL | {"kv_heads": 2}, "tied": MODEL | {"tied_embedding": True}, "five": MODEL | {"layers": 5},
    "wide": MODEL | {"hidden": 4096, "heads": 32, "ffn_hidden": 16384},
}  # fmt: skip
CLUSTERS |= {"types": CLUSTERS["plain"] | {"nodes": [NODE | {"count": 1}, NODE | {
    "count": 1, "device": DEVICE | {"name": "other", "memory_bandwidth_gbytes": 500}}]}}  # fmt: skip
OF_REQUESTS: dict[str, tuple[object, Values]] = {
    "global_batch": (16, {}), "seq": (256, {}), "mtp_layers": (1, {}), "profile": ("gpt2-345m-a100", {}),
    "memory_model": ("torchtitan", {}), "latency_model": ("pipette", {}),
    "overlap_grad_reduce": (True, {"model": "wide"}),
    "overlap_moe_expert_parallel_comm": (True, ROUTES), "moe_token_dispatcher": ("allgather", ROUTES),
    "fp8_dispatch": (True, ROUTES), "moe_router_dtype": ("fp64", ROUTES), "imbalance": (2.0, ROUTES),
    "calibration": ("nemo-h100-bf16", {}), "stack": ("torchtitan", {}), "precision": ("fp16", {}),
    "grad_precision": ("bf16", {}), "fused_loss": ("te", {}), "optimizer": ("muon", {}),
    "optimizer_offload_fraction": (0.5, {}),
    "activation_offload_fraction": (0.5, {}), "block_recompute": (True, {}),
    "fix": ({"tp": 2}, {}), "seen": (True, {}), "risk": (0.9, {}),
    "max_tp": (2, {}), "max_cp": (1, LONG), "max_ep": (1, ROUTES), "schedules": ("1f1b", {}),
}  # fmt: skip
ALLOWED = {"offload_pipelines", "offload_modules", "optimizers", "block_recompute", "encoders"}
"""Fields that allow what is refused without them."""
OF_SEARCHES: Values = {"time_limit": 7.0, "work_limit": 3, "gap": 0.1, "seed": 9, "workers": 1}
"""Options that end a search or seed it, which are its limits."""


def asked(model: Values, cluster: Values, stack: Values | str | None, options: Mapping[str, Any]) -> object:
    """What is planned: candidates, figures of some of them, and the lines on stderr; or the refusal."""
    stated: Values = {"global_batch": 8, "precision": "bf16"} | dict(options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            own: Values = {"stack": stack} if stack is not None and "stack" not in stated else {}
            request = taut.PlanRequest(
                taut.ModelSpec.parse(model, "m"), taut.ClusterSpec.parse(cluster, "c"), **stated, **own
            )
            problem = resolved_problem(request)
            figures: list[object] = []
            for candidate in sample(problem.candidates):
                kinds = problem.space.recompute
                usual = "selective" if "selective" in kinds and not candidate.activation_offload else kinds[0]
                strategy = even_strategy(problem, candidate, candidate.uniform_recompute or usual)
                devices = rank_order(candidate)
                figures += [str(each) for each in violations(problem, strategy, devices)]
                figures += [float(step_time(problem, strategy, devices).total), memory_bytes(problem, strategy)]
        except DataError as error:
            return str(error)
    figures.append(problem.model.parameters())
    return problem.candidates, figures, sorted(str(line.message) for line in said)


def sample(candidates: list[Candidate]) -> list[Candidate]:
    """The first and the last candidate, and the first with each of some parts."""
    parts = ("cp > 1", "ep > 1", "pp > 1 and each.tp > 1", "zero == 3", "vpp > 1", "uniform_recompute == 'selective'")
    found = [*candidates[:1], *candidates[-1:]]
    for part in parts:
        found += [each for each in candidates if eval(f"each.{part}", {"each": each})][:1]
    return found


@cache
def base(model: str, cluster: str, stack: str | None, options: tuple[tuple[str, str], ...]) -> object:
    """What is planned before a change; ``options`` as texts, since results of equal ones are kept."""
    values = {name: eval(text) for name, text in options}
    return asked(MODELS[model], CLUSTERS[cluster], STACK if stack else None, values)


def changed(values: Values, path: tuple[Any, ...], field: str, value: object) -> Values:
    """A document with another value in one place."""
    found = copy.deepcopy(values)
    inner: Any = found
    for step in path:
        if step == "dispatch":
            inner.setdefault(step, {"dispatcher": "alltoall"})
        inner = inner[step]
    inner[field] = value
    return found


def keyed(options: Values) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(value)) for name, value in options.items())


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
def test_every_field_has_a_change(kind: type[Spec]) -> None:
    """A new field of a file is tried, or is a name, or its effect is tested elsewhere."""
    known = {*PLACES[kind][2], *TEXTS.get(kind, ()), *(name for of, name in ELSEWHERE if of is kind)}
    assert known == set(kind.model_fields)


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, field) for kind, (_, _, changes) in PLACES.items() for field in changes],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_every_field_of_a_file_has_an_effect(kind: type[Spec], field: str) -> None:
    """Another result, a refusal or a line."""
    file, path, changes = PLACES[kind]
    name, value, *more = changes[field]
    options: Values = dict(more[0]) if more else {}
    model, cluster = options.pop("model", "plain"), options.pop("cluster", "plain")
    if file == "model":
        before = base(name, cluster, None, keyed(options))
        after = asked(changed(MODELS[name], path, field, value), CLUSTERS[cluster], None, options)
    elif file == "cluster":
        before = base(model, name, None, keyed(options))
        after = asked(MODELS[model], changed(CLUSTERS[name], path, field, value), None, options)
    else:
        before = base(model, cluster, "own", keyed(options))
        if path:
            before = asked(MODELS[model], CLUSTERS[cluster], STACK | {"dispatch": {"dispatcher": "alltoall"}}, options)
        after = asked(MODELS[model], CLUSTERS[cluster], changed(STACK, path, field, value), options)
    assert after != before and (not isinstance(before, str) or field in ALLOWED)


def test_every_option_has_a_change() -> None:
    assert {*OF_REQUESTS, *OF_SEARCHES} == set(OPTIONS)


@pytest.mark.parametrize("option", OF_REQUESTS)
def test_every_option_of_a_request_has_an_effect(option: str) -> None:
    """Another result, a refusal or a line."""
    value, more = OF_REQUESTS[option]
    options = dict(more)
    model = options.pop("model", "plain")
    after = asked(MODELS[model], CLUSTERS["plain"], None, options | {option: value})
    assert after != base(model, "plain", None, keyed(options))


@pytest.mark.parametrize("option", OF_SEARCHES)
def test_options_of_a_search_are_its_limits(option: str) -> None:
    """They end or seed a search; what is searched stays."""
    usual = taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=8)
    other = taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=8, **{option: OF_SEARCHES[option]})
    assert getattr(other.limits, option) == OF_SEARCHES[option] != getattr(usual.limits, option)
