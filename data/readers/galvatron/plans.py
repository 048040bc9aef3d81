"""
A plan that Galvatron's search wrote: ``galvatron_config_MODEL_Nnodes_Ggpus_per_node_MGB_PRECISION*.json``.

The name states model, devices and the memory that the search was given. By layer and separated by commas are
``tp_sizes_enc`` (devices over which a layer is split), ``use_sp`` (1: the sequence is split instead of weights, with
all-to-all), ``dp_types_enc`` (1: weights are sharded over replicas, ZeRO-3) and ``checkpoint`` (1: recomputed);
``vtp``, ``vsp`` and ``embed_sdp`` are the same of embedding and head. ``pp_deg``, ``pp_division`` (layers by stage),
``chunks`` (micro-batches), ``global_bsz`` and ``default_dp_type`` (what is not ZeRO-3) are of the whole.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field

from taut.data.read import read_json
from taut.data.spec import Spec
from taut.errors import DataError

_NAME = re.compile(
    r"galvatron_config_(.+)_([1-9]\d{0,4})nodes_([1-9]\d{0,4})gpus_per_node_([1-9]\d{0,4})GB_(bf16|fp16).*\.json"
)
_FLAG = {"0": False, "1": True}

Count = Annotated[int, Field(ge=1, le=2**20)]


class Split(NamedTuple):
    """
    How a layer, or embedding and head, are spread: over ``ways`` devices, and sharded over replicas or not.

    ``sequence`` says that the ways split the sequence, not weights; ``recompute`` that a layer is recomputed.
    """

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
