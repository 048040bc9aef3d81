"""
What a strategy space leaves out of the default one.

A bound is a claim about its space alone. The default space holds every choice that ``taut plan`` considers without
options: GPipe and 1F1B, ZeRO-0 and 1, with and without sequence parallelism, every recompute, tensor groups up to the
largest node, chunks up to four a device, nothing fixed, and published schedules in their own order. More chunks that
cut the layers evenly, and context ranks, are beyond it. Where experts may have ranks of their own, no space has them
with some of a replica's tensor ranks alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.formulations.mechanisms import offload
from taut.formulations.space import StrategySpace

CHOICES = ("schedules", "zero", "sequence_parallel", "recompute")


def narrowed(space: Mapping[str, Any], cluster: ClusterSpec, *, experts: bool = False) -> Iterator[str]:
    """
    Name every choice that a space leaves out, one in words each.

    ``space``: fields of a ``StrategySpace`` as plain values; what is missing has its default; ``cluster``: the cluster,
    whose largest node is the default's largest tensor group; ``experts``: whether the model has experts.
    """
    default = StrategySpace(global_batch=1, max_tp=max(node.gpus_per_node for node in cluster.nodes))
    choices = list(_choices(space, default))
    if space.get("stack") and choices:
        yield f"what {space['stack']} runs: {'; '.join(choices)}"
    else:
        yield from choices
    if not space.get("hybrid_sharding", True) and not set(space.get("zero", [])) <= {0, 1}:
        yield "dp_shard: all replicas share one copy, unless it is fixed"
    for name in ("max_tp", "max_vpp"):
        most, usual = space.get(name, getattr(default, name)), getattr(default, name)
        if most < usual and (name == "max_tp" or "interleaved-1f1b" in space.get("schedules", [])):
            yield f"{name}: at most {most}, not {usual}"
    if experts:
        yield _of_experts(space)
    if space.get("fixed"):
        yield "fixed: " + ", ".join(f"{name}={_word(value)}" for name, value in space["fixed"].items())
    if adapted := len(space.get("orders", [])):
        yield f"orders: the schedules' own and {adapted} adapted, not every order"


def _of_experts(space: Mapping[str, Any]) -> str:
    """How experts are split over ranks, and how they are not."""
    if space.get("max_ep", 1) == 1:
        return "experts: split over tensor ranks, all on every replica (left out: expert parallelism, ep > 1)"
    named = space.get("expert_zero")
    lacking = [] if named is None else [f"ZeRO-{zero}" for zero in space.get("zero", []) if zero not in named]
    shared = "1 or tp" if space.get("expert_tensor", True) else "1"
    left_out = f"{', '.join(lacking)} beside ep > 1, other etp" if lacking else "other etp"
    return f"experts: ep > 1, etp {shared} (left out: {left_out})"


def _choices(space: Mapping[str, Any], default: StrategySpace) -> Iterator[str]:
    for name in CHOICES:
        every = getattr(default, name)
        kept = space.get(name, every)
        left_out = [_word(value) for value in every if value not in kept]
        if left_out:
            yield f"{name}: {', '.join(map(_word, kept)) or 'nothing'} (left out: {', '.join(left_out)})"
    forms = space.get("divisions", default.divisions)
    if not set(default.divisions) <= set(forms):
        yield f"divisions of the layers: {', '.join(forms)} (left out: all others)"
    if modules := space.get("recompute_modules"):
        yield f"selective recompute: of {', '.join(modules)} (left out: other modules)"
    if dispatch := space.get("dispatch"):
        yield f"exchanges of experts: {_dispatched(dispatch)}"
    if not space.get("recompute_by_stage", True):
        yield "recompute: one kind for all stages"
    yield from offload.left_out(space)
    if space.get("pipeline_zero") is not None and not set(space.get("zero", [])) <= set(space["pipeline_zero"]):
        yield f"zero in pipelines: {', '.join(map(_word, space['pipeline_zero']))}"


def _dispatched(dispatch: Mapping[str, Any]) -> str:
    """How tokens are dispatched, in words."""
    words = [str(dispatch.get("dispatcher", "flex"))]
    words += ["dispatched in fp8"] * bool(dispatch.get("fp8"))
    words += [f"scores in {dispatch.get('router_dtype')}"] * bool(dispatch.get("router_dtype"))
    factor = float(dispatch.get("imbalance", 1.0))
    words += [f"imbalance factor {factor:g}"] * (factor > 1)
    words += ["hidden behind another micro-batch where passes alternate"] * bool(dispatch.get("overlap"))
    return ", ".join(words)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
