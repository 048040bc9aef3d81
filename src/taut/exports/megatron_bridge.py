"""
Megatron-Bridge: a function that changes a recipe into the plan, and the same as overrides of its command line.

Names are those of ``ConfigContainer``: ``model``, ``train``, ``ddp``, ``dataset``. Source: Megatron-Bridge,
src/megatron/bridge/training/config.py and scripts/training/run_recipe.py of August 2026.
"""

from typing import Any

from taut.exports.architecture import dispatch_settings
from taut.exports.division import layout_of
from taut.exports.job import Job
from taut.exports.megatron import (
    FUSED,
    HIERARCHICAL,
    SHARDING,
    SINGLE,
    check_schedule,
    layers_on_hosts,
    modules_on_hosts,
    offloaded,
)
from taut.quoting import hydra_value, python_literal

RECIPE = '''\
"""A plan as a recipe of Megatron-Bridge."""

MODEL = {model}
SETTINGS = {settings}


def taut_plan(cfg):
    """Change a recipe of that model, such as what its pretrain_config() returns, into the plan."""
    for path, value in SETTINGS.items():
        section, name = path.split(".")
        if section == "comm_overlap" and cfg.comm_overlap is None:
            from megatron.bridge.training.comm_overlap import CommOverlapConfig

            tensor = SETTINGS.get("comm_overlap.tp_comm_overlap", False)
            cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=tensor)
        setattr(getattr(cfg, section), name, value)
    return cfg
'''


FEATURES: dict[str, dict[str, Any]] = {
    "whole-step-graphs": {
        "model.cuda_graph_impl": "full_iteration",
        "model.cuda_graph_scope": [],
        "model.use_te_rng_tracker": True,
        "rng.te_rng_tracker": True,
        "model.moe_expert_rank_capacity_factor": 1.5,
        "model.moe_paged_stash": True,
    },
    "part-graphs": {
        "model.cuda_graph_impl": "transformer_engine",
        "model.cuda_graph_scope": ["attn", "moe_router", "moe_preprocess"],
        "model.use_te_rng_tracker": True,
        "rng.te_rng_tracker": True,
    },
    "fused-activation": {"model.use_transformer_engine_op_fuser": True, "model.moe_mlp_glu_interleave_size": 32},
    "fused-router": {"model.moe_router_fusion": True},
    "fused-permutation": {"model.moe_permute_fusion": True},
    "grouped-products": {"model.moe_grouped_gemm": True},
    "tp-comm-overlap": {"comm_overlap.tp_comm_overlap": True},
}
"""Settings of what made releases faster, by the name that a calibration states."""


def bridge_settings(job: Job) -> dict[str, Any]:
    """Values by path, such as ``model.tensor_model_parallel_size``."""
    check_schedule(job)
    job.plain_layers("Megatron-Bridge")
    chosen, kind = job.strategy, job.recompute("Megatron-Bridge")
    uneven = chosen.pp * chosen.vpp > 1 and not job.is_even
    return {
        "model.tensor_model_parallel_size": chosen.tp,
        "model.pipeline_model_parallel_size": chosen.pp,
        "model.virtual_pipeline_model_parallel_size": chosen.vpp if chosen.vpp > 1 and not uneven else None,
        "model.pipeline_model_parallel_layout": layout_of(job.layers, job.model.mtp_layers) if uneven else None,
        **({"model.mtp_num_layers": job.model.mtp_layers} if job.model.mtp_layers else {}),
        "model.context_parallel_size": chosen.cp,
        **_contexts(job),
        "model.expert_model_parallel_size": chosen.ep,
        **({"model.expert_tensor_parallel_size": chosen.etp or chosen.tp} if job.model.has_experts else {}),
        **({path: value for one in job.features for path, value in FEATURES.get(one, {}).items()}),
        **(dispatch_settings(job) if job.model.has_experts else {}),
        "model.sequence_parallel": chosen.sequence_parallel,
        "model.seq_length": job.sequence,
        "dataset.seq_length": job.sequence,
        "model.recompute_granularity": None if kind == "none" else kind,
        **({"model.recompute_modules": job.recompute_modules} if kind == "selective" else {}),
        "model.recompute_method": "uniform" if kind == "full" else None,
        "model.recompute_num_layers": 1 if kind == "full" else None,
        "train.micro_batch_size": chosen.micro_batch,
        "train.global_batch_size": job.global_batch,
        **_sharding(job),
        **_formats(job),
    }


def _formats(job: Job) -> dict[str, Any]:
    """The loss's kernel, and formats of optimizer states where they are not the default."""
    found: dict[str, Any] = {}
    if job.fused_loss:
        found |= {"model.cross_entropy_loss_fusion": True, "model.cross_entropy_fusion_impl": "te"}
    if job.memory.weight_remainders or job.memory.half_moments:
        found["optimizer.use_precision_aware_optimizer"] = True
    if fraction := offloaded(job):
        found["optimizer.use_precision_aware_optimizer"] = True
        found["optimizer.optimizer_cpu_offload"] = True
        found["optimizer.optimizer_offload_fraction"] = fraction
    if count := layers_on_hosts(job):
        found |= {"model.cpu_offloading": True, "model.cpu_offloading_num_layers": count}
    if modules := modules_on_hosts(job):
        found |= {"model.fine_grained_activation_offloading": True, "model.offload_modules": modules}
        found |= {"model.activation_offload_fraction": job.activations_on_hosts}
        found |= {"model.use_transformer_engine_op_fuser": True} if FUSED in modules else {}
    return found


def _contexts(job: Job) -> dict[str, Any]:
    if job.strategy.cp == 1:
        return {}
    kind = {"model.cp_comm_type": job.strategy.cp_comm}
    several = job.strategy.cp_comm == HIERARCHICAL
    return kind | ({"model.hierarchical_context_parallel_sizes": list(job.context_sizes)} if several else {})


def _sharding(job: Job) -> dict[str, Any]:
    chosen = job.strategy
    found: dict[str, Any] = {
        "ddp.use_distributed_optimizer": chosen.zero > 0 or offloaded(job) > 0,
        "ddp.overlap_grad_reduce": job.plan.certificate.overlap_grad_reduce or chosen.zero >= 2,
        "ddp.grad_reduce_in_fp32": job.memory.parameter_bytes.gradient == SINGLE,
        "ddp.use_megatron_fsdp": chosen.zero >= 2,
    }
    if chosen.zero >= 2:
        found["ddp.data_parallel_sharding_strategy"] = SHARDING[chosen.zero]
    if job.copies > 1:
        found["ddp.num_distributed_optimizer_instances"] = job.copies
    return found


def bridge_files(job: Job) -> dict[str, str]:
    """The recipe function, and overrides for ``run_recipe.py``, one on each line."""
    settings = bridge_settings(job)
    given = {path: value for path, value in settings.items() if value is not None}
    overrides = "".join(f"{path}={hydra_value(value)}\n" for path, value in given.items())
    recipe = RECIPE.format(settings=python_literal(settings), model=python_literal(job.plan.model))
    return {"taut_plan.py": recipe, "overrides.txt": overrides}
