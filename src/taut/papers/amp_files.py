r"""
AMP's profile: seconds of every layer, forward, at micro-batch 1.

The file has a row for each layer of each series, ``file,layer,seconds``; a series is a model, an AWS instance (G4 is
g4dn with T4, P3 is p3 with V100) and a tensor degree, such as ``gpt2_G4_2``. One process waited for its device after
each layer; the all-reduces of the tensor group are inside. For a layer with :math:`t` seconds at degree :math:`n`,
:math:`M` bytes of output of one sequence and bandwidth :math:`B` inside a node,

(1) equal layers have one cost, their mean: the series of one T4 rises by a fifth over 24 equal layers;
(2) :math:`w`, what grows with the micro-batch b (``taut.data.analytic.micro_batch_scaling``, (1) and (2)), is the
    analytic work of one sequence with an unfused attention core, plus the two all-reduces,
    :math:`2 \cdot 2 (n - 1)/n \cdot M / (0.8 B)`, as NCCL's rings reach 0.76 to 0.89 of nominal link rates (vTrain's
    public tables for A100 and V100); the rest of t is launches, :math:`l = t - w`;
(3) forward :math:`l + b w`, backward :math:`l + 2 b w`, half of it each gradient's. What grows is done twice, as AMP
    assumes; launches are done once: where a layer takes no longer than its launches, backward passes were measured to
    take 0.8 to 1.2 times as long as forward ones (Sailor's profiles of OPT-350M on four A100 and on four GH200);
(4) the loss is not in the series. Unfused, it passes over the fp32 logits: bytes over the device's memory bandwidth at
    its stated efficiency, in the head's seconds.

GPT-2's series have 30 entries: embedding and a transposition, 24 blocks, then another, final norm, head, and the logits
made fp32. TransGAN's have 56, of which 24 are blocks; what upsamples between the two widths is priced with the last
wide block. Source: AMP (Li et al., arXiv 2210.07297), known_cost.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from taut.data.analytic.device_rates import ELEMENT_BYTES
from taut.data.analytic.layer_costs import analytic_costs
from taut.data.analytic.micro_batch_scaling import LAW, growing, sequence_seconds
from taut.data.calibration import RING_EFFICIENCY
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostRow, CostTable, Key
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.data.read import positive_number, read_text, rows_of
from taut.data.units import GIGABIT
from taut.errors import DataError

COLUMNS = ("file", "layer", "seconds")
INSTANCES = {"t4-16gb": "G4", "v100-16gb": "P3"}
PRECISION: Precision = "fp16"
"""Number format of the runs."""
DEGREES = (1, 2, 4)
LOSS_BYTES = (32, 8)
"""Per fp32 logit. Forward: maximum, difference, exponential, sum and quotient read it, and all but maximum and sum
write it; backward: it is scaled in place."""


@dataclass(frozen=True, slots=True)
class AmpLayers:
    """
    Which entries of a model's series are which layers, in order: (kind, first, end, layers), end exclusive.

    As many equal ``layers`` share the entries; where they are fewer, the first entries are the layers, and what follows
    is priced with them.
    """

    length: int
    parts: tuple[tuple[str, int, int, int], ...]

    def blocks_before(self, entry: int) -> int:
        """Blocks among the entries before ``entry``."""
        blocks = [(first, layers) for kind, first, _, layers in self.parts if kind not in (EMBEDDING, HEAD)]
        return sum(min(max(entry - first, 0), layers) for first, layers in blocks)

    @property
    def alike(self) -> set[str]:
        """Kinds of blocks that nothing else is priced with."""
        return {kind for kind, first, end, layers in self.parts if end - first == layers}


AMP_LAYERS = {
    "gpt2": AmpLayers(30, ((EMBEDDING, 0, 2, 1), ("block", 2, 26, 24), (HEAD, 26, 30, 1))),
    "transgan": AmpLayers(56, (("wide", 3, 14, 11), ("upsampling", 14, 41, 1), ("narrow", 41, 53, 12))),
}


def read_amp_profile(path: Path) -> dict[str, list[float]]:
    """Seconds of every layer in order, by series such as ``gpt2_G4_2``."""
    _, lines = rows_of(read_text(path, "AMP's profile"), path, "AMP's profile")
    series: dict[str, list[float]] = {}
    for number, line in enumerate(lines, start=1):
        name, layer, seconds = (line.get(column) for column in COLUMNS)
        if name is None or layer is None or seconds is None:
            raise DataError(f"{path} row {number}: lacks a cell, expected the columns {','.join(COLUMNS)}")
        found = series.setdefault(name, [])
        if layer.strip() != str(len(found)):
            raise DataError(f"{path} row {number}: layer of {name} is {layer!r}, expected {len(found)}")
        found.append(positive_number(seconds, f"{path} row {number}: seconds"))
    if not series:
        raise DataError(f"{path}: has no rows, expected the columns {','.join(COLUMNS)}")
    return series


def amp_costs(
    path: Path,
    name: str,
    model: ModelSpec,
    cluster: ClusterSpec,
    *,
    micro_batches: Iterable[int] = (1,),
    devices: Mapping[str, DeviceSpec] | None = None,
) -> CostTable:
    """Cost table from AMP's profile with all-reduces of tensor groups, (1) to (4); ``devices`` state other rates."""
    series, batches = read_amp_profile(path), sorted(set(micro_batches))
    specs = {**cluster.devices, **(devices or {})}
    rates = {group.device.name: RING_EFFICIENCY * group.intra_bandwidth_gbps * GIGABIT for group in cluster.nodes}
    measured = {key: seconds for device in specs for key, seconds in _measured(series, name, model, device, path)}
    degrees = [tp for tp in DEGREES if all(any(k.tp == tp and k.device == d for k in measured) for d in specs)]
    if not degrees:
        raise DataError(f"{path}: has no tensor degree of {name} on all of {', '.join(specs)}, expected one")
    added = sequence_seconds(model, specs.values(), precision=PRECISION, tensor_degrees=degrees, fused_attention=False)
    kept = analytic_costs(
        model,
        specs.values(),
        precision=PRECISION,
        tensor_degrees=degrees,
        micro_batches=batches,
        fused_attention=False,
    )
    rows = []
    for row in kept.rows:
        if row.recompute == "none":
            key = row.key._replace(micro_batch=1)
            work = added[key].forward + _reductions(model, key) / rates[key.device]
            growth = growing(measured[key], work, _least(measured, model, key, AMP_LAYERS[name]))
            loss = _loss(model, specs[key.device], key)
            rows.append(_row(row, measured[key] - growth, growth, loss))
    basis = f"AMP's profile {path.name}, {name}, with the all-reduces of tensor groups; {LAW}"
    return CostTable(name=path.stem, basis=basis, rows=rows)


def _measured(
    series: Mapping[str, list[float]], name: str, model: ModelSpec, device: str, path: Path
) -> Iterator[tuple[Key, float]]:
    """Seconds of every kind on a device, by key, (1)."""
    layers = AMP_LAYERS[name]
    seq = {EMBEDDING: model.blocks[0].seq, HEAD: model.blocks[-1].seq, **{k: s.seq for k, s in model.kinds.items()}}
    for tp in DEGREES:
        entries = series.get(f"{name}_{INSTANCES.get(device, device)}_{tp}")
        if entries is None:
            continue
        if len(entries) != layers.length:
            raise DataError(f"{path}: {name} on {device} has {len(entries)} layers, expected {layers.length}")
        for kind, first, end, equal in layers.parts:
            yield Key(device, kind, tp, 1, seq[kind], "none"), sum(entries[first:end]) / equal


def _reductions(model: ModelSpec, key: Key) -> float:
    """Bytes that the two forward all-reduces of one sequence put on each link, (2)."""
    if key.kind not in model.kinds or key.tp == 1:
        return 0.0
    message = ELEMENT_BYTES[PRECISION] * model.kinds[key.kind].output_elements
    return 2 * 2 * (key.tp - 1) / key.tp * message


def _least(measured: Mapping[Key, float], model: ModelSpec, key: Key, layers: AmpLayers) -> float:
    """The least seconds of a block on the same device at the same degree; a layer's own unless it is a block alone."""
    if key.kind not in layers.alike:
        return measured[key]
    return min(measured[key._replace(kind=kind, seq=model.kinds[kind].seq)] for kind in layers.alike)


def _loss(model: ModelSpec, device: DeviceSpec, key: Key) -> tuple[float, float]:
    """Seconds of the loss of one sequence, forward and backward, (4); none but the head's."""
    if key.kind != HEAD:
        return 0.0, 0.0
    logits = key.seq * model.padded_vocab(key.tp) / key.tp
    rate = device.memory_efficiency * device.memory_bandwidth
    forward, backward = LOSS_BYTES
    return forward * logits / rate, backward * logits / rate


def _row(row: CostRow, launches: float, growth: float, loss: tuple[float, float]) -> CostRow:
    """The row's seconds, (3) and (4)."""
    b, (forward, backward) = row.micro_batch, loss
    seconds = {
        "forward_s": launches + b * (growth + forward),
        "input_grad_s": launches / 2 + b * (growth + backward),
        "weight_grad_s": launches / 2 + b * growth,
    }
    return row.model_copy(update=seconds)
