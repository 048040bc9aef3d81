r"""
What Galvatron's search works with, from its profiles of a model and of a node, in SI units, and plans that it wrote.

``computation_profiling_PRECISION_MODEL_all.json`` has milliseconds a sample of a layer's forward pass
(``layertype_0_bszB_seqS``) and of embedding and head together (``layertype_other_``). Over at least eight micro-batches
B the search fits, by least squares,

(1) seconds of B samples :math:`\approx \alpha B + \beta`.

``memory_profiling_PRECISION_MODEL_all.json`` has, in MiB and by sequence length, fp32 parameters of a layer, what a
sample keeps of it by the ways over which it is split, and recomputed; and states (four times the parameters) and
activations of embedding and head, together (``other_memory_pp_off_sp``) and apart (``_pp_on_first_sp``, ``_last_sp``).
A node's folder has GB/s of all-reduces over consecutive and other devices, GB/s between neighbour stages, milliseconds
of all-reduces and all-to-alls by MiB, with lines fitted as in (1), and by how much communication slows computation
down. Galvatron divides MiB by GB/s and counts thousandths of a second, so its gigabyte is 1000 MiB.

A plan is ``galvatron_config_MODEL_Nnodes_Ggpus_per_node_MGB_PRECISION*.json``, whose name states model, devices and the
memory that the search was given. By layer and separated by commas are ``tp_sizes_enc`` (devices over which a layer is
split), ``use_sp`` (1: the sequence is split instead of weights, with all-to-all), ``dp_types_enc`` (1: weights are
sharded over replicas, ZeRO-3) and ``checkpoint`` (1: recomputed); ``vtp``, ``vsp`` and ``embed_sdp`` are the same of
embedding and head. ``pp_deg``, ``pp_division`` (layers by stage), ``chunks`` (micro-batches), ``global_bsz`` and
``default_dp_type`` (what is not ZeRO-3) are of the whole.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field

from taut.data.read import read_json
from taut.data.spec import Spec, shorten
from taut.data.units import MIB, MILLISECOND
from taut.errors import DataError

LEAST_SIZES = 8
"""Sizes that the search asks for in a fit, (1)."""
MIB_IN_GIGABYTE = 1000
_ALL_REDUCE = re.compile(r"allreduce_size_([1-9]\d{0,4})_consec_([01])")
_MESSAGE = re.compile(r"(allreduce|all2all)_size_([1-9]\d{0,4})_([1-9]\d{0,5})MB_time")
_STAGES = re.compile(r"pp_size_([1-9]\d{0,4})")


class Line(NamedTuple):
    """Seconds by size: ``slope`` a unit, ``rest`` at none; sizes that were measured have their own."""

    slope: float
    rest: float
    measured: dict[float, float]

    def __call__(self, size: float) -> float:
        """Seconds at a size."""
        return self.measured.get(size, self.slope * size + self.rest)


class Ends(NamedTuple):
    """Bytes of embedding and head: states by tensor degree, and activations of a sample by ways."""

    states: dict[int, float]
    activations: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronProfile:
    """
    Profiles in seconds and bytes.

    Forward seconds are by samples; bytes of a layer's fp32 parameters, and of what it keeps of a sample by ways and if
    recomputed; ends on one stage, and on the first and last of several. Rates are bytes a second of all-reduces by
    devices and whether they are consecutive, and between stages by their number; seconds by bytes are of an all-gather
    by tensor degree and of an all-to-all by ways.
    """

    seq: int
    layer: Line
    vocabulary: Line
    parameters: float
    activations: dict[int, float]
    recomputed: float
    whole: Ends
    first: Ends
    last: Ends
    rates: dict[tuple[int, bool], float]
    stage_rates: dict[int, float]
    gather: dict[int, Line]
    exchange: dict[int, Line]
    overlap: float


def read_galvatron_profile(
    folder: Path, model: str, *, precision: str = "bf16", nodes: int = 1, gpus_per_node: int = 8
) -> GalvatronProfile:
    """Profiles of ``gpt_configs`` and ``hardware_configs`` at a sequence length; ``DataError`` for wrong entries."""
    named = f"{precision}_{model}_all.json"
    times = folder / "gpt_configs" / f"computation_profiling_{named}"
    memory = folder / "gpt_configs" / f"memory_profiling_{named}"
    node = folder / "hardware_configs"
    size = f"{nodes}nodes_{gpus_per_node}gpus_per_node.json"
    kept = read_json(memory, "a memory profile of Galvatron")
    seq = _sequence_length(memory, kept)
    layer = _entry(memory, kept, "layertype_0_sp", str(seq))
    by_ways = _entry(memory, layer, "tp_activation_per_bsz_dict")
    messages = read_json(node / f"sp_time_{size}", "message times of Galvatron")
    reductions = node / f"allreduce_bandwidth_{size}"
    overlap = node / "overlap_coefficient.json"
    return GalvatronProfile(
        seq=seq,
        layer=_samples(times, "layertype_0", seq),
        vocabulary=_samples(times, "layertype_other", seq),
        parameters=_number(memory, layer, "parameter_size") * MIB,
        activations=_by_ways(memory, {key: value for key, value in by_ways.items() if key != "checkpoint"}),
        recomputed=_number(memory, by_ways, "checkpoint") * MIB,
        whole=_ends(memory, kept, "other_memory_pp_off_sp", seq),
        first=_ends(memory, kept, "other_memory_pp_on_first_sp", seq),
        last=_ends(memory, kept, "other_memory_pp_on_last_sp", seq),
        rates=_rates(reductions, nodes * gpus_per_node),
        stage_rates=_stage_rates(node / f"p2p_bandwidth_{size}"),
        gather=_messages(node / f"sp_time_{size}", messages, "allreduce", 0.5),
        exchange=_messages(node / f"sp_time_{size}", messages, "all2all", 1.0),
        overlap=_number(overlap, read_json(overlap, "an overlap coefficient of Galvatron"), "overlap_coe"),
    )


def _sequence_length(path: Path, kept: dict[str, Any]) -> int:
    lengths = list(_entry(path, kept, "layertype_0_sp"))
    if len(lengths) != 1 or not re.fullmatch(r"[1-9]\d{0,7}", lengths[0]):
        raise DataError(f"{path}: layertype_0_sp: has {shorten(lengths)}, expected one sequence length")
    return int(lengths[0])


def _samples(path: Path, kind: str, seq: int) -> Line:
    """Forward seconds by samples, (1)."""
    file = read_json(path, "a computation profile of Galvatron")
    form = re.compile(rf"{kind}_bsz([1-9]\d{{0,5}})_seq{seq}")
    found = {int(match[1]): _number(path, file, key) for key in file if (match := form.fullmatch(key))}
    sizes = np.array(list(found), dtype=float)
    return _fitted(f"{path}: {kind}", sizes, sizes * np.array(list(found.values())) * MILLISECOND, {})


def _fitted(where: str, sizes: Any, seconds: Any, measured: dict[float, float]) -> Line:
    if len(sizes) < LEAST_SIZES:
        raise DataError(f"{where}: has {len(sizes)} sizes, expected {LEAST_SIZES} at least")
    slope, rest = np.polyfit(sizes, seconds, 1)
    return Line(float(slope), float(rest), measured)


def _messages(path: Path, file: dict[str, Any], kind: str, share: float) -> dict[int, Line]:
    """Seconds by bytes and devices; an all-gather takes half of an all-reduce."""
    found: dict[int, dict[float, float]] = {}
    for key in file:
        match = _MESSAGE.fullmatch(key)
        if match and match[1] == kind:
            seconds = share * _number(path, file, key) * MILLISECOND
            found.setdefault(int(match[2]), {})[float(int(match[3]) * MIB)] = seconds
    return {
        devices: _fitted(f"{path}: {kind} over {devices}", np.array(list(by)), np.array(list(by.values())), by)
        for devices, by in found.items()
    }


def _rates(path: Path, gpus: int) -> dict[tuple[int, bool], float]:
    file = read_json(path, "all-reduce rates of Galvatron")
    found = {
        (int(match[1]), match[2] == "1"): _number(path, file, key) * MIB_IN_GIGABYTE * MIB
        for key in file
        if (match := _ALL_REDUCE.fullmatch(key))
    }
    if (gpus, True) not in found:
        raise DataError(f"{path}: has no allreduce_size_{gpus}_consec_1, expected one")
    return {**found, (gpus, False): found[gpus, True]}


def _stage_rates(path: Path) -> dict[int, float]:
    file = read_json(path, "rates between stages of Galvatron")
    matches = {key: match for key in file if (match := _STAGES.fullmatch(key))}
    return {int(match[1]): _number(path, file, key) * MIB_IN_GIGABYTE * MIB for key, match in matches.items()}


def _ends(path: Path, kept: dict[str, Any], name: str, seq: int) -> Ends:
    entry = _entry(path, kept, name, str(seq))
    return Ends(*(_by_ways(path, _entry(path, entry, part)) for part in ("model_states", "activation")))


def _by_ways(path: Path, entry: dict[str, Any]) -> dict[int, float]:
    for key in entry:
        if not re.fullmatch(r"[1-9]\d{0,5}", key):
            raise DataError(f"{path}: has the key {shorten(key)}, expected a number of devices")
    return {int(key): _number(path, entry, key) * MIB for key in entry}


def _entry(path: Path, entry: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        found = entry.get(name)
        if not isinstance(found, dict):
            raise DataError(f"{path}: has no object {name}, expected one")
        entry = found
    return entry


def _number(path: Path, entry: dict[str, Any], name: str) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise DataError(f"{path}: {name}: is {shorten(value)}, expected a number above 0")
    return float(value)


_NAME = re.compile(
    r"galvatron_config_(.+)_([1-9]\d{0,4})nodes_([1-9]\d{0,4})gpus_per_node_([1-9]\d{0,4})GB_(bf16|fp16).*\.json"
)
_FLAG = {"0": False, "1": True}

Count = Annotated[int, Field(ge=1, le=2**20)]


class Split(NamedTuple):
    """How a layer, or embedding and head, are spread over devices, by sequence or weights, and over replicas."""

    ways: int = 1
    sequence: bool = False
    sharded: bool = False
    recompute: bool = False

    @property
    def tp(self) -> int:
        """Devices over which weights are split."""
        return 1 if self.sequence else self.ways

    @property
    def sp(self) -> int:
        """Devices over which the sequence is split with whole weights."""
        return self.ways if self.sequence else 1


class GalvatronPlan(NamedTuple):
    """A plan: layers in order with stages of ``division`` layers, embedding and head, and what the search was given."""

    model: str
    nodes: int
    gpus_per_node: int
    memory_gib: int
    precision: str
    global_batch: int
    chunks: int
    division: tuple[int, ...]
    layers: tuple[Split, ...]
    vocabulary: Split
    default: str


class _File(Spec):
    """The entries that are read, as they stand in the file; others are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    pp_deg: Count
    tp_sizes_enc: str
    use_sp: str
    dp_types_enc: str
    checkpoint: str
    pp_division: str
    global_bsz: Count
    chunks: Count
    default_dp_type: Literal["ddp", "zero2"]
    vtp: Count = 1
    vsp: Literal[0, 1] = 0
    embed_sdp: Literal[0, 1] = 0


def read_galvatron_plan(path: Path) -> GalvatronPlan:
    """Read a plan by its file's own name; ``DataError`` if name or entry is none of Galvatron's."""
    match = _NAME.fullmatch(path.name)
    if not match:
        raise DataError(f"{path}: expected a name such as galvatron_config_MODEL_1nodes_8gpus_per_node_36GB_bf16.json")
    file = _File.parse(read_json(path, "a plan of Galvatron"), str(path))
    division = tuple(_whole(path, "pp_division", file.pp_division))
    if len(division) != file.pp_deg:
        raise DataError(f"{path}: pp_division has {len(division)} stages, expected pp_deg, {file.pp_deg}")
    return GalvatronPlan(
        model=match[1],
        nodes=int(match[2]),
        gpus_per_node=int(match[3]),
        memory_gib=int(match[4]),
        precision=match[5],
        global_batch=file.global_bsz,
        chunks=file.chunks,
        division=division,
        layers=_layers(path, file, sum(division)),
        vocabulary=Split(file.vtp, bool(file.vsp) and file.vtp > 1, bool(file.embed_sdp)),
        default=file.default_dp_type,
    )


def _layers(path: Path, file: _File, count: int) -> tuple[Split, ...]:
    ways = _whole(path, "tp_sizes_enc", file.tp_sizes_enc)
    flags = [_flags(path, name, getattr(file, name)) for name in ("use_sp", "dp_types_enc", "checkpoint")]
    for name, found in zip(("tp_sizes_enc", "use_sp", "dp_types_enc", "checkpoint"), (ways, *flags), strict=True):
        if len(found) != count:
            raise DataError(f"{path}: {name} has {len(found)} layers, expected {count} as in pp_division")
    lines = zip(ways, *flags, strict=True)
    return tuple(Split(size, sequence and size > 1, sharded, again) for size, sequence, sharded, again in lines)


def _whole(path: Path, name: str, text: str) -> list[int]:
    cells = text.split(",")
    for cell in cells:
        if not re.fullmatch(r"[1-9]\d{0,5}", cell):
            raise DataError(f"{path}: {name}: has {cell!r}, expected whole numbers above 0, separated by commas")
    return [int(cell) for cell in cells]


def _flags(path: Path, name: str, text: str) -> list[Any]:
    for cell in text.split(","):
        if cell not in _FLAG:
            raise DataError(f"{path}: {name}: has {cell!r}, expected 0 and 1, separated by commas")
    return [_FLAG[cell] for cell in text.split(",")]
