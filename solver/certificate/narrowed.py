"""
What a strategy space holds and leaves out, measured against what its stack runs.

A bound is a claim about its space alone. By default the space holds every strategy that the stack runs: its schedules,
ZeRO stages, kinds of recompute and divisions, tensor groups up to the largest node, and nothing is fixed. ``held`` says
so in a line. ``narrowed`` names what a user took away. ``unsearched`` names what no plan of a stack considers, such as
many unequal chunks a device. The papers' latency models have closed-form schedules and ZeRO stages 0 and 1. A stack
from a file of a user is not known here, so its space counts as what it runs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from taut.data.catalog.builtin import catalog_stack
from taut.data.catalog.devices import catalog_section
from taut.data.cluster import ClusterSpec
from taut.data.stack import ANY_DIVISION
from taut.formulations.mechanisms import offload
from taut.formulations.space import StrategySpace

CHOICES = ("schedules", "zero", "sequence_parallel", "recompute")
CHUNKED = "interleaved-1f1b"


def _run(space: Mapping[str, Any], *, mechanisms: bool) -> dict[str, list[Any]]:
    """The choices that the space's stack has, with mechanisms or at the prices of a paper, by their names."""
    default = StrategySpace(global_batch=1, max_tp=1)
    every = {name: list(getattr(default, name)) for name in CHOICES}
    name = space.get("stack") or "any"
    if name not in catalog_section("stacks"):
        return {choice: list(space.get(choice, every[choice])) for choice in CHOICES}
    stack = catalog_stack(name)
    known: dict[str, list[Any]] = {choice: list(getattr(stack, choice)) for choice in CHOICES}
    if mechanisms:
        return known
    closed = {choice: [value for value in every[choice] if value in known[choice]] for choice in ("schedules", "zero")}
    return {**known, **closed}


def held(space: Mapping[str, Any], *, mechanisms: bool = True) -> str:
    """
    The space before anything was taken away, in a line.

    ``space``: fields of a ``StrategySpace`` as plain values; what is missing has its default; ``mechanisms``: whether
    the prices are of what frameworks have, not those of a paper.
    """
    runs = _run(space, mechanisms=mechanisms)
    pipelines = space.get("pipeline_zero")
    in_pipelines = f" (in pipelines {_listed(pipelines)})" if pipelines is not None else ""
    recompute = _listed(runs["recompute"]) + ("" if space.get("recompute_by_stage", True) else ", one for all stages")
    parts = [
        f"schedules {_listed(runs['schedules'])}",
        f"ZeRO {_listed(runs['zero'])}{in_pipelines}",
        f"recompute {recompute}",
    ]
    if ANY_DIVISION not in (forms := space.get("divisions", [ANY_DIVISION])):
        parts.append(f"layers divided {_listed(forms)}")
    if not space.get("replicated_kv", True):
        parts.append("tensor degrees that divide the key-value heads")
    if dispatch := space.get("dispatch"):
        parts.append(f"exchanges of experts {_dispatched(dispatch)}")
    return f"the space is what {space.get('stack') or 'taut'} runs: {'; '.join(parts)}"


def narrowed(
    space: Mapping[str, Any], cluster: ClusterSpec, *, experts: bool = False, mechanisms: bool = True
) -> Iterator[str]:
    """
    Name every choice that a user took away from the space, one in words each.

    ``space``: fields of a ``StrategySpace`` as plain values; what is missing has its default; ``cluster``: the cluster,
    whose largest node is the default's largest tensor group; ``experts``: whether the model has experts;
    ``mechanisms``: whether the prices are of what frameworks have.
    """
    default = StrategySpace(global_batch=1, max_tp=max(node.gpus_per_node for node in cluster.nodes))
    for name, every in _run(space, mechanisms=mechanisms).items():
        kept = space.get(name, every)
        left_out = [_word(value) for value in every if value not in kept]
        if left_out:
            yield f"{name}: {', '.join(map(_word, kept)) or 'nothing'} (left out: {', '.join(left_out)})"
    for name in ("max_tp", "max_vpp"):
        most, usual = space.get(name, getattr(default, name)), getattr(default, name)
        if most < usual and (name == "max_tp" or CHUNKED in space.get("schedules", [])):
            yield f"{name}: at most {most}, not {usual}"
    if experts and space.get("max_ep", 1) == 1:
        yield "experts: split over tensor ranks, all on every replica (left out: expert parallelism, ep > 1)"
    if space.get("seen"):
        yield "seen: plans within all runs of the calibration (left out: what lies beyond them)"
    if space.get("fixed"):
        yield "fixed: " + ", ".join(f"{name}={_word(value)}" for name, value in space["fixed"].items())


def unsearched(space: Mapping[str, Any], *, layers: int, experts: bool = False) -> Iterator[str]:
    """
    Name every choice that is not searched though nobody took it away, one in words each.

    ``space``: fields of a ``StrategySpace`` as plain values; ``layers``: of the model; ``experts``: whether it has
    experts.
    """
    default = StrategySpace(global_batch=1, max_tp=1)
    if CHUNKED in space.get("schedules", default.schedules) and not {"vpp", "schedule"} & set(space.get("fixed", {})):
        most, even = space.get("max_vpp", default.max_vpp), space.get("max_even_vpp", 0)
        yield f"vpp above {max(most, even)}" if even < layers else f"vpp above {most} with unequal chunks"
    if not space.get("hybrid_sharding", True) and not set(space.get("zero", [])) <= {0, 1}:
        yield "dp_shard: all replicas share one copy, unless it is fixed"
    if modules := space.get("recompute_modules"):
        yield f"selective recompute: of {', '.join(modules)} (left out: other modules)"
    yield from offload.left_out(space)
    if experts and space.get("max_ep", 1) > 1:
        yield _of_expert_ranks(space)
    if adapted := len(space.get("orders", [])):
        yield f"orders: the schedules' own and {adapted} adapted, not every order"


def _of_expert_ranks(space: Mapping[str, Any]) -> str:
    """How experts are split over ranks of their own, and how they are not."""
    named = space.get("expert_zero")
    lacking = [] if named is None else [f"ZeRO-{zero}" for zero in space.get("zero", []) if zero not in named]
    shared = "1 or tp" if space.get("expert_tensor", True) else "1"
    left_out = f"{', '.join(lacking)} beside ep > 1, other etp" if lacking else "other etp"
    return f"experts: ep > 1, etp {shared} (left out: {left_out})"


def _dispatched(dispatch: Mapping[str, Any]) -> str:
    """How tokens are dispatched, in words."""
    words = [str(dispatch.get("dispatcher", "flex"))]
    words += ["dispatched in fp8"] * bool(dispatch.get("fp8"))
    words += [f"scores in {dispatch.get('router_dtype')}"] * bool(dispatch.get("router_dtype"))
    factor = float(dispatch.get("imbalance", 1.0))
    words += [f"imbalance factor {factor:g}"] * (factor > 1)
    words += ["hidden behind another micro-batch where passes alternate"] * bool(dispatch.get("overlap"))
    return ", ".join(words)


def _listed(values: object) -> str:
    return ", ".join(map(_word, values)) if isinstance(values, list) else str(values)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
