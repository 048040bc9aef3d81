r"""
The space that a stack runs: what a plan searches where its user takes nothing away.

A stack states what its framework can do (``taut.data.stack``). The rest follows from model and cluster:

(1) a tensor group has at most as many ranks as the largest node has devices;
(2) if the stack has context ranks, each has ``LEAST_TOKENS`` tokens of the shortest sequence at least;
(3) if the stack has expert ranks, there are at most as many as the layer with the fewest experts has experts;
(4) a device has any number of equal chunks, at most one chunk a layer of the model;
(5) hybrid sharding takes part if all nodes and links are alike, and a choice of some stacks as its field says
    (``taut.formulations.fields``), such as uneven batches if there are several types of device.

A paper's latency model (``mechanisms`` is False) prices fewer mechanisms. Its space has the schedules ``CLOSED_FORM``,
the ZeRO stages ``CLOSED_ZERO``, no ranks of (2) and (3), no empty ends, no uneven batches, and no recompute by module.
"""

from taut.data.analytic.recompute_modules import usual_modules
from taut.data.cluster import ClusterSpec
from taut.data.costs import Module
from taut.data.layers.experts import USUAL_DISPATCH
from taut.data.model import ModelSpec
from taut.data.stack import SCHEDULES, Schedule, Stack
from taut.formulations.space import SEARCHED, StrategySpace

WHOLE_SPACE = "any"
"""The stack that leaves nothing out. A space of this stack states an empty name."""
LEAST_TOKENS = 4096
"""Tokens of a sequence that a context rank has at least, as in NVIDIA's recipes with context ranks."""
CLOSED_FORM: tuple[Schedule, ...] = ("1f1b", "gpipe")
"""Schedules of the papers' spaces, of memory networks, and of configurations that do not state a schedule."""
CLOSED_ZERO = 0, 1
"""ZeRO stages of the papers' spaces."""


def stack_space(
    stack: Stack,
    model: ModelSpec,
    cluster: ClusterSpec,
    global_batch: int,
    *,
    mechanisms: bool = True,
    orders: bool = True,
    measured: bool = False,
) -> StrategySpace:
    """The space that a stack runs, (1) to (5); the schedules of ``CLOSED_FORM`` without ``orders``."""
    by_order = orders and mechanisms
    return StrategySpace(
        global_batch=global_batch,
        max_tp=max(group.gpus_per_node for group in cluster.nodes),
        max_cp=most_contexts(model) if mechanisms and stack.context_parallel else 1,
        max_ep=min(model.expert_counts, default=1) if mechanisms and stack.expert_parallel else 1,
        cp_comm=stack.cp_comm,
        overlap_context=stack.overlap_context,
        max_even_vpp=len(model.blocks),
        schedules=[kind for kind in SCHEDULES if kind in stack.schedules and (by_order or kind in CLOSED_FORM)],
        zero=list(stack.zero) if mechanisms else [*CLOSED_ZERO],
        pipeline_zero=stack.pipeline_zero,
        expert_zero=stack.expert_zero if model.has_experts else None,
        expert_tensor=stack.expert_tensor or not model.has_experts,
        replicated_kv=stack.replicated_kv or not _has_groups(model),
        mixer_contexts=stack.mixer_contexts or not any(layer.mixers for layer in model.kinds.values()),
        tied_pipelines=stack.tied_pipelines or not model.tied_embedding,
        sequence_parallel=stack.sequence_parallel,
        # Elsewhere the bounds of hybrid sharding are some per cent loose, so that a user has to ask for it, (5).
        hybrid_sharding=cluster.is_uniform,
        recompute=stack.recompute,
        recompute_modules=[] if measured else named_modules(model, stack, mechanisms=mechanisms),
        dispatch=stack.dispatch if model.has_experts else USUAL_DISPATCH,
        recompute_by_stage=stack.recompute_by_stage,
        divisions=stack.divisions,
        stack="" if stack.name == WHOLE_SPACE else stack.name,
        **{name: mechanisms and getattr(stack, name) and on(model, cluster) for name, on in SEARCHED.items()},
    )


def _has_groups(model: ModelSpec) -> bool:
    """Whether some layer has fewer key-value heads than heads."""
    return any(layer.key_value_heads < layer.heads for layer in model.kinds.values())


def most_contexts(model: ModelSpec) -> int:
    """The most context ranks of a sequence, (2)."""
    return max(min(layer.seq for layer in model.kinds.values()) // LEAST_TOKENS, 1)


def named_modules(model: ModelSpec, stack: Stack, *, mechanisms: bool) -> list[Module]:
    """Modules that selective recompute usually has in models with experts, where the stack can name modules."""
    if not (stack.recompute_modules and mechanisms and model.has_experts):
        return []
    usual = usual_modules(any(layer.latent for layer in model.kinds.values()), model.has_experts)
    return [module for module in usual if module in stack.recompute_modules]
