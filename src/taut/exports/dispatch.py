"""
How expert ranks exchange tokens, in Megatron-LM's flags and back.

A plan's ``flex`` dispatcher is Megatron-LM's with the backend that the plan's nodes ask for: DeepEP in nodes of up to
eight GPUs, HybridEP in NVLink domains of more, which no other backend spans, and NCCL EP where rows are dispatched in
fp8, which it alone can, in the fused products of mxfp8. A single expert rank exchanges nothing, and has a dispatcher
that every installation has. A command line that names none has Megatron-LM's default, a gather of all tokens. The
format of the router's scores is written where the plan states one. Source:
megatron/core/transformer/transformer_config.py of August 2026.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from taut.data.layers.dispatch import DISPATCHERS
from taut.errors import DataError
from taut.exports.job import ExportError, Job

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
    """
    The dispatcher of a plan, and the backend of ``flex``, empty beside the others.

    Raises ``ExportError`` if Megatron-LM dispatches in fp8 otherwise than the plan, or cannot hide exchanges beside the
    plan's choices.
    """
    dispatch, fp8 = job.dispatch, job.dispatch.fp8 and job.strategy.ep > 1
    if fp8 and (dispatch.dispatcher != "flex" or job.memory.precision != NARROW):
        raise ExportError(
            f"{job.plan.source}: dispatch in fp8 by {dispatch.dispatcher} in {job.memory.precision}, which Megatron-LM "
            f"has for flex in {NARROW} alone; plan without --fp8-dispatch"
        )
    if job.hides_exchange and job.memory.precision == "fp32":
        raise ExportError(f"{job.plan.source}: exchanges of experts are hidden in fp32, which Megatron-LM refuses; "
                          "plan without --overlap-moe-expert-parallel-comm")  # fmt: skip
    if job.hides_exchange and job.model.mtp_layers > 1:
        raise ExportError(
            f"{job.plan.source}: exchanges of experts are hidden with {job.model.mtp_layers} layers of further "
            "tokens, of which Megatron-LM has one then; plan without --overlap-moe-expert-parallel-comm"
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
    """
    The same as settings of Megatron-Bridge.

    It has shared experts beside exchanges unless other work goes there, or all tokens are gathered.
    """
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
    """
    What a command line says of exchanges, as options of ``taut.plan``.

    Raises ``DataError`` if it names a dispatcher that nothing prices.
    """
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
