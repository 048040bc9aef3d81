"""
A model's shape in Megatron-LM's flags.

What a plan does not know is left to the user: tokenizer, position embedding, normalization's constants, dropout.

Expert ranks exchange tokens by a dispatcher. A plan's ``flex`` dispatcher is Megatron-LM's with
the backend that the plan's nodes ask for: DeepEP in nodes of up to eight GPUs, HybridEP in NVLink domains of more,
which no other backend spans, and NCCL EP where rows are dispatched in fp8, which it alone can, in the fused products of
mxfp8. A single expert rank exchanges nothing, and has a dispatcher that every installation has. A command line that
names none has Megatron-LM's default, a gather of all tokens. The format of the router's scores is written where the
plan states one. Source: megatron/core/transformer/transformer_config.py of August 2026.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from taut.data.layers.experts import DISPATCHERS
from taut.data.layers.layer import LayerSpec
from taut.errors import DataError
from taut.exports.job import Job

TYPE, BACKEND = "--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend"
DEEPEP = "--moe-enable-deepep"
"""The switch of DeepEP before there were other backends."""
FORMAT, NARROW = "--moe-dispatch-fwd-dtype", "mxfp8"
SCORES = "--moe-router-dtype"
FUSED = "--use-transformer-engine-op-fuser"
OVERLAP = "--overlap-moe-expert-parallel-comm"
NODE = 8
"""GPUs of a node that DeepEP spans."""
UNSAID = "allgather"
"""The dispatcher of a command line that names none."""


def dispatcher_of(job: Job) -> tuple[str, str]:
    """The dispatcher of a plan and the backend of ``flex``, else empty; refuses what Megatron-LM has not."""
    dispatch, fp8, precision = job.dispatch, job.dispatch.fp8 and job.strategy.ep > 1, job.memory.precision
    narrow = (
        f"dispatch in fp8 by {dispatch.dispatcher} in {precision}, which Megatron-LM has for flex in {NARROW} alone"
    )
    hidden, way, further = "exchanges of experts are hidden", f"plan without {OVERLAP}", job.model.mtp_layers
    tokens = f"{hidden} with {further} layers of further tokens, of which Megatron-LM has one then; {way}"
    job.refuse(
        {
            f"{narrow}; plan without --fp8-dispatch": fp8 and (dispatch.dispatcher != "flex" or precision != NARROW),
            f"{hidden} in fp32, which Megatron-LM refuses; {way}": job.hides_exchange and precision == "fp32",
            tokens: job.hides_exchange and further > 1,
        }
    )
    if dispatch.dispatcher != "flex":
        return dispatch.dispatcher, ""
    if job.strategy.ep == 1:
        return "alltoall", ""
    wide = max(node.gpus_per_node for node in job.cluster.nodes) > NODE
    return "flex", "ncclep" if fp8 else "hybridep" if wide else "deepep"


def dispatch_flags(job: Job) -> Iterator[tuple[str, str | None]]:
    """The plan's dispatcher, its format, and overlap with another micro-batch where the plan counts on it."""
    kind, backend = dispatcher_of(job)
    yield TYPE, kind
    if backend:
        yield BACKEND, backend
    if backend == "ncclep":
        yield FORMAT, NARROW
        yield FUSED, None
    if job.dispatch.router_dtype:
        yield SCORES, job.dispatch.router_dtype
    if job.hides_exchange:
        yield OVERLAP, None


def dispatch_settings(job: Job) -> dict[str, Any]:
    """The same as settings of Megatron-Bridge, which has shared experts beside exchanges by default."""
    kind, backend = dispatcher_of(job)
    found: dict[str, Any] = {"model.moe_token_dispatcher_type": kind}
    if kind != "alltoall":
        found["model.moe_shared_expert_overlap"] = False
    if backend:
        found["model.moe_flex_dispatcher_backend"] = backend
    if backend == "ncclep":
        found |= {"model.moe_dispatch_fwd_dtype": NARROW, "model.use_transformer_engine_op_fuser": True}
    if job.dispatch.router_dtype:
        found["model.moe_router_dtype"] = job.dispatch.router_dtype
    if job.hides_exchange:
        found |= {"model.moe_shared_expert_overlap": False, "comm_overlap.overlap_moe_expert_parallel_comm": True}
    return found


def stated_dispatch(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """What a command line says of exchanges, as options of ``taut.plan``."""
    kind = flags.get(TYPE, UNSAID)
    if kind not in DISPATCHERS:
        raise DataError(f"{TYPE} {kind or ''}: expected one of {', '.join(DISPATCHERS)}, which are priced")
    found: dict[str, Any] = {"moe_token_dispatcher": kind}
    if scores := flags.get(SCORES):
        found["moe_router_dtype"] = scores
    if flags.get(FORMAT) == NARROW:
        found["fp8_dispatch"] = True
    if OVERLAP in flags:
        found["overlap_moe_expert_parallel_comm"] = True
    return found


Flags = dict[str, str | None]
"""Values by flag, None for a switch."""
FEATURES: dict[str, Flags] = {
    "whole-step-graphs": {
        "--cuda-graph-impl": "full_iteration",
        "--te-rng-tracker": None,
        "--moe-expert-rank-capacity-factor": "1.5",
        "--moe-paged-stash": None,
    },
    "part-graphs": {
        "--cuda-graph-impl": "transformer_engine",
        "--cuda-graph-modules": "attn moe_router moe_preprocess",
        "--te-rng-tracker": None,
    },
    "fused-activation": {FUSED: None},
    "fused-router": {"--moe-router-fusion": None},
    "fused-permutation": {"--moe-permute-fusion": None},
    "tp-comm-overlap": {"--tp-comm-overlap": None},
}
"""
Flags of what made releases faster, by the name that a calibration states; as NVIDIA's recipes of August 2026 set it.

Grouped products and the backend of HybridEP are the plan's own choices.
"""
GROUPS = {"router_num_groups": "--moe-router-num-groups", "router_group_topk": "--moe-router-group-topk"}
"""Flags of the groups of experts that a router keeps to, by field of ``ExpertsSpec``."""


def architecture_flags(job: Job) -> Flags:
    """The flags of a model."""
    job.plain_layers("Megatron-LM")
    model, layer = job.model, job.model.blocks[-1]
    flags: Flags = {
        "--num-layers": str(len(model.blocks)),
        "--hidden-size": str(layer.hidden),
        "--ffn-hidden-size": str(layer.ffn),
        "--num-attention-heads": str(layer.heads),
        "--seq-length": str(job.sequence),
        "--max-position-embeddings": str(job.sequence),
    }
    flags |= dict(_attention(job, layer))
    for feature in job.features:
        flags |= FEATURES.get(feature, {})
    if layer.gated_mlp:
        flags |= {"--swiglu": None, "--disable-bias-linear": None, "--normalization": "RMSNorm"}
    if not model.tied_embedding:
        flags["--untie-embeddings-and-output-weights"] = None
    if model.mtp_layers:
        # Learned positions, Megatron-LM's default, do not go with the prediction of further tokens.
        flags |= {"--mtp-num-layers": str(model.mtp_layers), "--position-embedding-type": "rope"}
    return flags | dict(_experts(job, layer))


def _attention(job: Job, layer: LayerSpec) -> Iterator[tuple[str, str | None]]:
    if latent := layer.latent:
        yield "--multi-latent-attention", None
        if latent.q_lora_rank:
            yield "--q-lora-rank", str(latent.q_lora_rank)
        yield "--kv-lora-rank", str(latent.kv_lora_rank)
        yield "--qk-head-dim", str(latent.qk_nope_head_dim)
        yield "--qk-pos-emb-head-dim", str(latent.qk_rope_head_dim)
        yield "--v-head-dim", str(latent.v_head_dim)
        return
    if layer.key_value_heads != layer.heads:
        yield "--group-query-attention", None
        yield "--num-query-groups", str(layer.key_value_heads)
    if layer.query_hidden != layer.hidden:
        yield "--kv-channels", str(layer.query_hidden // layer.heads)
    if window := job.model.attention_window:
        yield "--window-size", f"({window - 1},0)"
        if job.model.full_attention_period:
            yield "--window-attn-skip-freq", str(job.model.full_attention_period)


def _experts(job: Job, layer: LayerSpec) -> Iterator[tuple[str, str | None]]:
    experts = layer.experts
    if experts is None:
        job.refuse({"the last layer has no experts, expected them there for Megatron-LM": job.model.has_experts})
        return
    yield "--num-experts", str(experts.num_experts)
    yield "--moe-router-topk", str(experts.experts_per_token)
    if experts.router_group_topk < experts.router_num_groups:
        yield from ((flag, str(getattr(experts, name))) for name, flag in GROUPS.items())
    yield "--moe-ffn-hidden-size", str(experts.expert_ffn_hidden)
    if experts.shared_ffn_hidden:
        yield "--moe-shared-expert-intermediate-size", str(experts.shared_ffn_hidden)
    pattern = [int(block.experts is not None) for block in job.model.blocks]
    # Megatron-LM has no biases of experts that several tensor ranks share, and the plan counts none.
    yield "--disable-bias-linear", None
    if not all(pattern):
        yield "--moe-layer-freq", "([" + ",".join(map(str, pattern)) + "])"
    # Products of all experts of a rank in one kernel, as they are priced and as recompute of moe_act asks for.
    yield "--moe-grouped-gemm", None
    yield from dispatch_flags(job)
    # Megatron-LM takes the tensor degree where no other is given; it is written so that a change of default is seen.
    yield "--expert-tensor-parallel-size", str(job.strategy.etp or job.strategy.tp)
    yield "--expert-model-parallel-size", str(job.strategy.ep)
