"""
A model's shape in Megatron-LM's flags.

What a plan does not know is left to the user: tokenizer, position embedding, normalization's constants, dropout.
"""

from collections.abc import Iterator

from taut.data.layers.layer import LayerSpec
from taut.exports.dispatch import dispatch_flags
from taut.exports.job import ExportError, Job

Flags = dict[str, str | None]
"""Values by flag, None for a switch."""
GROUPS = {"router_num_groups": "--moe-router-num-groups", "router_group_topk": "--moe-router-group-topk"}
"""Flags of the groups of experts that a router keeps to, by field of ``ExpertsSpec``."""


def architecture_flags(job: Job) -> Flags:
    """
    The flags of a model.

    Raises ``ExportError`` if its layers have shapes that no flag describes.
    """
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
        if job.model.has_experts:
            raise ExportError(f"{job.plan.source}: the last layer has no experts, expected them there for Megatron-LM")
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
