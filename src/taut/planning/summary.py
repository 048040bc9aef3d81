"""The plan in words: strategy, and where the time and the memory go, before its proof."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from taut.data.layers.encoder import EncoderSpec
from taut.data.units import GIB
from taut.formulations.space import strategy_sentence
from taut.planning.proof import proof
from taut.planning.tables import batch_words, described_cluster, device_ranges, nodes_of_expert_groups, stage_records
from taut.solver.certificate.document import AnyDocument, MeshDocument, MeshesSection, PlanDocument, StrategySection
from taut.words import broken, grid, report

if TYPE_CHECKING:
    from rich.table import Table

LABEL = 12
"""Columns of what a line of the report is about."""
PARTS = {
    "compute": "computation",
    "tensor_parallel": "tensor-parallel all-reduces",
    "pipeline_transfers": "pipeline transfers",
    "data_parallel": "data-parallel collectives",
    "optimizer": "optimizer",
    "constant": "constant of the calibration",
}
"""Parts of a step by their names in the document."""
MESH_PARTS = {
    "passes": "passes with tensor-parallel traffic",
    **{part: PARTS[part] for part in ("pipeline_transfers", "data_parallel", "optimizer", "constant")},
}
"""Parts of a step of meshes, whose passes are not told apart from their tensor-parallel traffic."""


def summary(plan: AnyDocument, *, width: int = 110, details: str = "", spaces: Sequence[str] = ()) -> str:
    """Text of a plan; ``details``: what stands before the proof; ``spaces``: lines of the status of several spaces."""
    tables = _time_table(plan), _stage_table(plan)
    proven = _wrapped(proof(plan, spaces), width)
    return report(_wrapped(_head(plan), width), *tables, *([details] if details else []), proven, width=width)


def _wrapped(lines: list[str], width: int) -> str:
    """Lines in so many columns; what follows a label of the first 12 columns stays behind them."""
    found: list[str] = []
    for line in lines:
        indent = " " * LABEL if line[:LABEL].endswith("  ") else ""
        found += wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(found)


def _head(plan: AnyDocument) -> list[str]:
    return [
        f"{plan.inputs['model'].name} on {plan.inputs['cluster'].name}: {described_cluster(plan).num_devices} devices, "
        f"global batch {plan.certificate.space['global_batch']}{_sequence_length(plan)}",
        f"{plan.certificate.priced_by}{_stack(plan)}",
        "",
        f"strategy    {strategy_words(plan)}",
        f"            {_batch(plan)}",
        *_expert_groups(plan),
        f"step time   {plan.predicted.step_time_s:.4g} s: {_throughput(plan)}",
        *_computing(plan),
        "",
    ]


def _batch(plan: AnyDocument) -> str:
    """Sequences of a micro-batch, and how many micro-batches there are."""
    if isinstance(plan, PlanDocument):
        return f"micro-batch {plan.strategy.micro_batch}, {batch_words(plan.strategy)}"
    sizes = " and ".join(str(mesh.micro_batch) for mesh in plan.strategy.meshes)
    count = f"{plan.strategy.num_micro_batches} of them a pipeline and step"
    return f"micro-batch {sizes}, {count}; ranks in the order {plan.strategy.rank_order}"


def _expert_groups(plan: AnyDocument) -> Iterator[str]:
    """Which links exchanges of expert ranks use, where there are several."""
    if isinstance(plan, PlanDocument) and (chosen := plan.strategy).ep > 1:
        nodes = nodes_of_expert_groups(plan)
        where = "within a node" if nodes == 1 else f"on {nodes} nodes, which their exchanges cross"
        yield f"            expert groups of {chosen.ep * max(chosen.etp, 1)} GPUs lie {where}"


def strategy_words(plan: AnyDocument) -> str:
    """Degrees, schedule and sharding of a plan in a line."""
    if isinstance(plan, MeshDocument):
        return _mesh_words(plan.strategy)
    return strategy_sentence(plan.strategy, plan.certificate.space)


def _mesh_words(strategy: MeshesSection) -> str:
    """Degrees by type of device, in the order of the stages."""
    degrees = [f"pipeline {m.pp} on {m.device}, tensor {m.tp}, data {m.dp}" for m in strategy.meshes]
    return f"{'; '.join(degrees)}; 1f1b, ZeRO-{strategy.zero}"


def _stack(plan: AnyDocument) -> str:
    """The framework that is to run the plan, where it is for one."""
    return f", stack {name}" if (name := plan.certificate.space.get("stack")) else ""


def _sequence_length(plan: AnyDocument) -> str:
    """Tokens of a sequence, the longest of the layers where they differ, and the most that the model takes."""
    spec = plan.inputs["model"].spec
    layers = spec["layers"] if isinstance(spec["layers"], list) else [spec]
    lengths = [layer["seq"] for layer in layers if layer.get("seq")]
    most = f" of at most {spec['max_seq']}" if spec.get("max_seq") else ""
    further = spec.get("mtp_layers")
    most += f", {further} further token{'s' * (further > 1)} predicted" if further else ""
    return f", sequence length {max(lengths)}{most}{_images(spec)}" if lengths else ""


def _images(spec: Mapping[str, Any]) -> str:
    """Images of a sample, and what of the encoder on the first stage is trained."""
    if not (given := spec.get("encoder")):
        return ""
    encoder = EncoderSpec.parse(given, "encoder")
    trained = {"all": "trained", "projector": "frozen but for its projector", "none": "frozen"}[encoder.trained]
    many = f"{encoder.images:g} images of {encoder.image_tokens} tokens a sample (at most {encoder.most_images})"
    return f", {many}, encoder {trained} on the first stage"


def _throughput(plan: AnyDocument) -> str:
    """Tokens a second and utilisation, which a step without duration does not have."""
    tokens = plan.predicted.tokens_per_s
    if isinstance(plan, MeshDocument) and tokens is not None:
        return f"{tokens:.4g} tokens/s"
    if isinstance(plan, MeshDocument) or tokens is None or plan.predicted.mfu is None:
        return "throughput unknown"
    return f"{tokens:.4g} tokens/s, model FLOP utilisation {plan.predicted.mfu:.1%}"


def _computing(plan: AnyDocument) -> list[str]:
    """Utilisation while devices compute, which files of earlier versions lack."""
    if isinstance(plan, MeshDocument) or plan.predicted.hfu is None:
        return []
    counted = "while devices compute, recompute counted, masked attention not"
    return [f"            hardware FLOP utilisation {plan.predicted.hfu:.1%} {counted}"]


def parts_of(plan: AnyDocument) -> dict[str, float]:
    """Seconds of the step by part, in words."""
    if isinstance(plan, MeshDocument):
        named = MESH_PARTS
    else:
        named = PARTS | ({"tensor_parallel": words} if (words := _traffic(plan.strategy)) else {})
    return {words: plan.predicted.breakdown_s[part] for part, words in named.items()}


def _time_table(plan: AnyDocument) -> "Table":
    table = grid("part", ">seconds", ">share", title="where the step's time goes")
    total = plan.predicted.step_time_s
    for words, seconds in parts_of(plan).items():
        if words == PARTS["constant"] and seconds == 0.0:
            continue
        table.add_row(words, f"{seconds:.4f}", f"{seconds / total:.1%}" if total else "")
        if words == PARTS["compute"] and (bubble := bubble_of(plan)) is not None:
            table.add_row("  of it pipeline bubble", f"{bubble:.4f}", f"{bubble / total:.1%}" if total else "")
    return table


def bubble_of(plan: AnyDocument) -> float | None:
    """Seconds that a device of several stages waits for passes of others, in the mean; None where it is not stated."""
    if not isinstance(plan, PlanDocument) or plan.strategy.pp == 1 or plan.predicted.busy_s is None:
        return None
    return plan.predicted.breakdown_s["compute"] - plan.predicted.busy_s


def _traffic(strategy: StrategySection) -> str:
    """Ranks whose traffic lies within blocks, where these are not tensor ranks alone."""
    more = [name for name, degree in (("context", strategy.cp), ("expert", strategy.ep)) if degree > 1]
    return f"traffic of {', '.join(['tensor', *more][:-1])} and {more[-1]} ranks" if more else ""


def _stage_table(plan: AnyDocument) -> "Table":
    """One row a stage; the kind of device where the cluster has several, and the degrees where those differ by it."""
    stages, meshed = stage_records(plan), isinstance(plan, MeshDocument)
    several = len({stage["device"] for stage in stages}) > 1
    kinds, degrees = ["device"] * several, [">tp", ">dp"] if meshed else []
    figures = *kinds, *degrees, ">memory GiB", ">margin", ">capacity"
    table = grid("stage", "layers", "recompute", *figures, "devices", title="\nstages", whole=("recompute", "devices"))
    devices = plan.devices if isinstance(plan, MeshDocument) else plan.placement.devices
    for stage in stages:
        table.add_row(
            str(stage["stage"]),
            f"{stage['layers']} ({stage['num_layers']})",
            broken(stage["recompute"], 28),
            *([stage["device"]] if several else []),
            *([str(stage["tp"]), str(stage["dp"])] if meshed else []),
            *(f"{stage[name] / GIB:.2f}" for name in ("memory_bytes", "margin_bytes", "capacity_bytes")),
            broken(device_ranges(device for group in devices[stage["stage"]] for device in group), 24),
        )
    return table
