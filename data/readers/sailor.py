r"""
Cost table from Sailor's profiles and its measured memory.

The profiles are read by ``taut.data.readers.sailor_times``, the memory by ``taut.data.readers.sailor_memory``. Sailor
measures in fp32, without recomputation. Of its seconds

(1) the backward pass is split by the FLOP of its parts (``taut.data.readers.measured_layer``); that of the embedding is
    not there: its hook sees a few microseconds;
(2) a block's at :math:`t > 1` hold two all-reduces in each pass, which a cost table must not. The embedding's forward
    pass, of :math:`e_t` seconds, holds one of the same :math:`M` bytes and a lookup under a mask, so
    :math:`A_t = \max(0, e_t - e_1 - 8 M / W)` with :math:`W` the memory bandwidth, and a pass of :math:`x_t` seconds
    counts as :math:`\max(x_t - 2 A_t, y_s s / t)`, with :math:`y_s` that of the next lower degree :math:`s`: no split
    is better than even. Where tp 1 was not measured, its seconds are those of the largest smaller micro-batch in
    proportion, or none. Embedding and head keep their one all-reduce, as a plan adds none to them;
(3) the optimizer's, for embedding, two blocks and head together, are divided by their parameters; the median over the
    file is its price;
(4) the head's are not there at all where the model that was run has none (Sailor's GPT-Neo ends in a norm). On demand
    the head is estimated: what stands there, and its FLOP at the rate of the blocks.

With the 8 of (2) the links of Sailor's A100 and GH200 machines come out at 197 to 253 and at 124 GB/s where its own
network measurements have 243 to 249 and 125.
"""

from collections.abc import Collection
from pathlib import Path
from statistics import median

from taut.data.costs import CostRow, CostTable
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.data.readers.measured_layer import Pass, Profiled
from taut.data.readers.sailor_memory import LayerBytes, read_sailor_info
from taut.data.readers.sailor_times import Runs, SailorRun, read_sailor_runs
from taut.errors import DataError

PROFILED_BLOCKS = 2
MASKED_LOOKUP = 8
"""Bytes that the lookup of a split vocabulary moves beside a plain one, in units of its output, (2)."""


def read_sailor(
    path: Path,
    model: ModelSpec,
    device: DeviceSpec,
    *,
    info: Path | None = None,
    info_model: str = "",
    precision: Precision = "fp32",
    estimate_head: bool = False,
) -> CostTable:
    """
    Read a profile as a cost table.

    ``path``: A ``profile.json``; ``model``, ``device``: what was profiled, with the sequence length it was profiled at;
    the file names neither; ``info``, ``info_model``: Sailor's ``llm_info.json`` with measured activation bytes, and the
    model's name in it where its shape does not tell; without it, and for degrees that it lacks, bytes by formula;
    ``precision``: number format that was profiled; Sailor's scripts use fp32; ``estimate_head``: estimate the head,
    (4), where the file has none. Returns rows by micro-batch and tensor degree, with the optimizer's seconds for a
    parameter. Raises ``DataError`` if a file is not Sailor's, does not fit model and device, or its blocks are not
    alike.
    """
    profiled = Profiled(model=model, device=device, precision=precision, fused_attention=False)
    runs = read_sailor_runs(path, model)
    kept = {} if info is None else read_sailor_info(info, profiled.block, len(model.blocks), info_model)
    blocks = _blocks(runs, profiled)
    rows = [
        row
        for batch, by_tp in runs.items()
        for tp, run in by_tp.items()
        for row in _rows(profiled, tp, batch, run, blocks[batch][tp], kept.get(tp), estimate_head)
    ]
    return CostTable(
        name=path.stem,
        basis=_basis(path, profiled, rows, info, kept.keys(), estimate_head),
        rows=rows,
        optimizer_s_per_parameter=_optimizer(runs, profiled, estimate_head),
    )


def _blocks(runs: Runs, profiled: Profiled) -> dict[int, dict[int, Pass]]:
    """Seconds of a block without communication, by micro-batch and tensor degree, (2)."""
    lookup = MASKED_LOOKUP * profiled.output_bytes / profiled.device.memory_bandwidth
    embedding, block = 0.0, (0.0, 0.0)
    found = {}
    for batch, by_tp in runs.items():
        if 1 in by_tp:
            alone = by_tp[1]
            embedding, block = alone.embedding[0] / batch, (alone.block[0] / batch, alone.block[1] / batch)
        least = (batch * block[0], batch * block[1])
        found[batch] = _without_communication(by_tp, batch * (embedding + lookup), least)
    return found


def _without_communication(by_tp: dict[int, SailorRun], lookup: float, whole: Pass) -> dict[int, Pass]:
    """Seconds of a block by degree, given the seconds of a masked lookup and of a block that is not split, (2)."""
    clean: dict[int, Pass] = {}
    lower, least = 1, whole
    for tp, run in by_tp.items():
        reduce = 0.0 if tp == 1 else max(run.embedding[0] - lookup, 0.0)
        forward, backward = (
            max(part - 2 * reduce, floor * lower / tp) for part, floor in zip(run.block, least, strict=True)
        )
        if not (forward > 0 and backward > 0):
            raise DataError(
                f"{run.where}: two all-reduces of {reduce:.3g} s, as the embedding has one, leave nothing of a "
                f"block's {min(run.block):g} s, expected a smaller tensor degree beside"
            )
        clean[tp] = least = (forward, backward)
        lower = tp
    return clean


def _rows(
    profiled: Profiled,
    tp: int,
    micro_batch: int,
    run: SailorRun,
    block: Pass,
    kept: LayerBytes | None,
    estimate_head: bool,
) -> list[CostRow]:
    """Rows of embedding, block and head."""
    embedding_bytes, block_bytes, head_bytes = (None,) * 3 if kept is None else (micro_batch * part for part in kept)
    if profiled.reachable(HEAD, tp, micro_batch, run.head) == estimate_head:
        fault = "is long enough for" if estimate_head else "is too short for"
        expected = "no --estimate-head" if estimate_head else "--estimate-head for a profile without a head"
        raise DataError(f"{run.where}: {run.head[0]:.3g} s {fault} a head's forward pass, expected {expected}")
    head = _estimated(profiled, tp, micro_batch, run.head, block) if estimate_head else run.head
    head_bytes = None if estimate_head else head_bytes
    kind = profiled.block.kind
    return [
        profiled.row(EMBEDDING, tp, micro_batch, run.embedding, f"{run.where}: embedding", kept=embedding_bytes),
        profiled.row(kind, tp, micro_batch, block, f"{run.where}: block", kept=block_bytes, spread=run.spread),
        profiled.row(HEAD, tp, micro_batch, head, f"{run.where}: head", kept=head_bytes),
    ]


def _estimated(profiled: Profiled, tp: int, micro_batch: int, rest: Pass, block: Pass) -> Pass:
    """The head's passes at the rate of the blocks, (4)."""
    own, head = (profiled.flop(kind, tp, micro_batch).total for kind in (profiled.block.kind, HEAD))
    return rest[0] + block[0] * head / own, rest[1] + block[1] * head / own


def _optimizer(runs: Runs, profiled: Profiled, no_head: bool) -> dict[str, float]:
    """Seconds per parameter, (3); nothing where every step was rounded to zero."""
    model, rates = profiled.model, []
    for by_tp in runs.values():
        for tp, run in by_tp.items():
            head = 0 if no_head else model.head_parameters(tp)
            held = PROFILED_BLOCKS * profiled.block.parameters(tp) + model.embedding_parameters(tp) + head
            rates += [run.update / held] if run.update > 0 else []
    return {profiled.device.name: median(rates)} if rates else {}


def _basis(
    path: Path, profiled: Profiled, rows: list[CostRow], info: Path | None, kept: Collection[int], estimate_head: bool
) -> str:
    """Where the figures come from, a line each."""
    how = profiled.precision + (", products above its peak rate, so in TF32" if profiled.above_own_peak(rows) else "")
    lines = [
        f"Sailor {path.name}: {profiled.model.name} on {profiled.device.name}, measured in {how}",
        "backward split by FLOP; tensor-parallel all-reduces taken out of the blocks by those of the embedding",
    ]
    if info is None:
        lines.append("activation bytes by formula")
    else:
        formulas = sorted({row.tp for row in rows}.difference(kept))
        but = f", at tp {', '.join(map(str, formulas))} by formula" if formulas else ""
        lines.append(f"activation bytes of {info.name}{but}")
    if estimate_head:
        lines.append("head estimated at the rate of the blocks, as the profile has none")
    return ";\n".join(lines)
