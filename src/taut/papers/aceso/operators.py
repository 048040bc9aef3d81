r"""
Operator profiles of Aceso: ``gpt_SIZE_mbsB_tpT_algo0.csv``, the rates between two devices, and a cost table from both.

A file has one line an operator, at one micro-batch :math:`b` and tensor degree :math:`t`: ``forward-compute`` and
``backward-compute`` in microseconds, all-reduces of the tensor group included; ``input_size``, ``output_size``,
``weights``, ``activations``, ``fwd_reserved`` and ``bwd_reserved`` in MiB a device. Operators stand once: what comes
before ``enc-1st-layernorm`` is the head, what comes from ``final-layernorm`` on the tail, the rest one layer.
``p2p_intra_node.csv`` and ``p2p_inter_node.csv`` have, for messages of 1, 2, 4, ... MiB, gigabytes a second, of which
Aceso counts 1000 MiB as one. Of the dropout of the attention scores Aceso counts 1.5 times the activations, and of
their softmax none, as the runtime shares a buffer between them.

In the cost table operators of a layer are one layer of ours. At micro-batch :math:`b` and tensor degree :math:`t` a
layer's forward and backward seconds are the sums over its operators, and those of embedding and head what stands before
and behind the layers. At :math:`t > 1` a layer's hold two all-reduces each, of :math:`A_t` seconds for the layer's
output in ``prim_gpt_SIZE_all_reduce_Tgpus.csv`` (MiB, milliseconds), which a cost table must not hold:

(1) a pass of :math:`x_t` seconds counts as :math:`\max(x_t - 2 A_t, y_s s / t)`, with :math:`y_s` what is left of the
    next lower degree :math:`s`: no split is better than even. Embedding and head keep theirs; plans add none to them.

Activations are those that Aceso counts, all of them without recomputation; with ``selective`` those of the attention
core stay away, whose forward seconds are added to the input gradient; with ``full`` the layer's input stays alone. The
backward pass is split by FLOP (``taut.data.readers.measured_layer``), which also says what is above the device's peak
rate; a micro-batch and degree whose layer or head is stays out. Attention is not fused, in fp16. There is no figure of
the optimizer.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from taut.data.arrays import Flags, Floats
from taut.data.costs import CostRow, CostTable
from taut.data.device import DeviceSpec
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.data.read import read_text, rows_of
from taut.data.readers.measured_layer import Pass, Profiled
from taut.data.spec import NotNegative, Positive, Spec
from taut.data.units import MIB, MICROSECOND, MILLISECOND
from taut.errors import DataError

OPENS, CLOSES = "enc-1st-layernorm", "final-layernorm"
SHARED = {"enc-attention-dropout": 1.5, "enc-attention-softmax": 0.0}
"""Activations that Aceso counts of operators that share a buffer, as a share of the measured ones."""
NEVER_CHOSEN = ("encoder-embedding", "gpt-post-process", OPENS)
"""Operators that Aceso's rule does not choose for recomputation, though it takes the one behind a chosen one along."""
MIB_IN_GIGABYTE = 1000.0


class Operator(Spec):
    """One line of a profile, in the units of the file."""

    op_name: str
    forward: NotNegative = Field(alias="forward-compute")
    backward: NotNegative = Field(alias="backward-compute")
    input_size: NotNegative
    output_size: NotNegative
    weights: NotNegative
    activations: NotNegative
    fwd_reserved: NotNegative
    bwd_reserved: NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """
    Operators at one micro-batch and tensor degree, each kind once: ``head`` operators, a layer's, and the tail's.

    Seconds ``forward`` and ``backward``; bytes ``inputs``, ``outputs``, ``weights``, ``measured_activations`` and
    ``activations``, as Aceso counts them, ``reserved_forward`` and ``reserved_backward``; ``shares`` an operator
    whose buffer is shared.
    """

    names: tuple[str, ...]
    head: int
    layer: int
    forward: Floats
    backward: Floats
    inputs: Floats
    outputs: Floats
    weights: Floats
    activations: Floats
    measured_activations: Floats
    reserved_forward: Floats
    reserved_backward: Floats
    shares: Flags

    @property
    def tail(self) -> int:
        """Operators behind the last layer."""
        return len(self.names) - self.head - self.layer


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """Operators by (micro-batch, tensor degree), and bytes a second by powers of two of MiB, in a node and between."""

    operators: dict[tuple[int, int], Operators]
    within_node: Floats
    between_nodes: Floats


def read_operator_profile(folder: Path, size: str) -> OperatorProfile:
    """All operators of a model in a device's folder, by micro-batch and tensor degree; ``size`` is such as ``1_3B``."""
    pattern = re.compile(rf"gpt_{re.escape(size)}_mbs([1-9]\d{{0,3}})_tp([1-9]\d{{0,3}})_algo0\.csv")
    named = [(found, path) for path in folder.glob("*.csv") if (found := pattern.fullmatch(path.name))]
    if not named:
        raise DataError(f"{folder}: no file gpt_{size}_mbsB_tpT_algo0.csv, expected operator profiles of Aceso")
    read = {(int(found[1]), int(found[2])): read_operators(path) for found, path in named}
    read = dict(sorted(read.items()))
    first = next(iter(read.values())).names
    if different := next((key for key, each in read.items() if each.names != first), None):
        raise DataError(f"{folder}: gpt_{size}_mbs{different[0]}_tp{different[1]}_algo0.csv has other operators")
    return OperatorProfile(read, _rates(folder / "p2p_intra_node.csv"), _rates(folder / "p2p_inter_node.csv"))


def read_operators(path: Path) -> Operators:
    """Read the operators of one file; a ``DataError`` if a line is wrong or there is no layer."""
    expected = "an operator profile of Aceso"
    _, rows = rows_of(read_text(path, expected), path, expected)
    lines = [Operator.parse_cells(row, f"{path} row {number}") for number, row in enumerate(rows, start=1)]
    names = tuple(line.op_name for line in lines)
    if OPENS not in names or CLOSES not in names or not 1 == names.index(OPENS) < names.index(CLOSES):
        raise DataError(f"{path}: has no layer, expected one operator, a layer from {OPENS} on, and {CLOSES} behind it")
    counted = [line.activations * SHARED.get(line.op_name, 1.0) for line in lines]
    head = names.index(OPENS)
    return Operators(
        names=names,
        head=head,
        layer=names.index(CLOSES) - head,
        forward=np.array([line.forward for line in lines]) * MICROSECOND,
        backward=np.array([line.backward for line in lines]) * MICROSECOND,
        inputs=np.array([line.input_size for line in lines]) * MIB,
        outputs=np.array([line.output_size for line in lines]) * MIB,
        weights=np.array([line.weights for line in lines]) * MIB,
        activations=np.array(counted) * MIB,
        measured_activations=np.array([line.activations for line in lines]) * MIB,
        reserved_forward=np.array([line.fwd_reserved for line in lines]) * MIB,
        reserved_backward=np.array([line.bwd_reserved for line in lines]) * MIB,
        shares=np.array([line.op_name in SHARED for line in lines]),
    )


def _rates(path: Path) -> Floats:
    """Bytes a second of messages of 1, 2, 4, ... MiB: the second line of a file whose first names the sizes."""
    expected = "rates between two devices: a line of sizes in MB, a line of GB/s"
    columns, rows = rows_of(read_text(path, expected), path, expected)
    try:
        rates = np.array([float(rows[0][column]) for column in columns])
    except (IndexError, KeyError, ValueError):
        raise DataError(f"{path}: expected {expected}") from None
    if not (np.isfinite(rates) & (rates > 0)).all():
        raise DataError(f"{path}: has a rate that is not above 0, expected {expected}")
    return rates * MIB_IN_GIGABYTE * MIB


PER_PASS = 2
"""All-reduces of a layer in a pass."""
CORE = "enc-attention-"
CORE_OPERATORS = tuple(CORE + name for name in ("score", "softmax", "dropout", "context"))
"""What ``selective`` recomputes."""
NOT_RUN_MS = 1e9
"""What stands for the time of an all-reduce that was not run."""


class _Reduction(Spec):
    """A line of a file of all-reduces."""

    size: Positive
    time: Positive


def read_all_reduces(folder: Path, size: str, gpus: int) -> tuple[Floats, Floats]:
    """Bytes, ascending, and seconds of all-reduces of so many GPUs of a node; a wrong file is a ``DataError``."""
    path, expected = folder / f"prim_gpt_{size}_all_reduce_{gpus}gpus.csv", "all-reduces: data_size(MB),time(ms)"
    columns, rows = rows_of(read_text(path, expected), path, expected)
    names = dict(zip(columns, ("size", "time"), strict=False))
    cells = [{names.get(name, name): text for name, text in row.items()} for row in rows]
    lines = [_Reduction.parse_cells(each, f"{path} row {number}") for number, each in enumerate(cells, start=1)]
    pairs = sorted((line.size * MIB, line.time * MILLISECOND) for line in lines if line.time < NOT_RUN_MS)
    if not pairs:
        raise DataError(f"{path}: has no rows, expected {expected}")
    return np.array([bytes_ for bytes_, _ in pairs]), np.array([seconds for _, seconds in pairs])


def read_operator_costs(folder: Path, size: str, model: ModelSpec, device: DeviceSpec) -> CostTable:
    """The operators of a model in a device's folder as a cost table; ``size`` names the model in file names."""
    profiled = Profiled(model=model, device=device, precision="fp16", fused_attention=False)
    rows: list[CostRow] = []
    lower: dict[int, tuple[int, Pass]] = {}
    left = []
    for (batch, tp), operators in read_operator_profile(folder, size).operators.items():
        block = _block(profiled, operators, folder, size, (batch, tp), lower.get(batch))
        head = _passes(operators, operators.head + operators.layer, len(operators.names))
        passes = {profiled.block.kind: block, HEAD: head}
        if all(profiled.reachable(kind, tp, batch, seconds) for kind, seconds in passes.items()):
            lower[batch] = tp, block
            rows += _rows(profiled, operators, batch, tp, block, f"{folder}: {size} at micro-batch {batch}, tp {tp}")
        else:
            left.append(f"micro-batch {batch} at tp {tp}")
    lines = [
        f"Aceso's operators of {size} in {folder.name}: {model.name} on {device.name}, measured in fp16",
        "all-reduces of tensor groups taken out as measured; backward split by FLOP; activations as Aceso counts them",
    ]
    lines += [f"left out, as above the peak rate: {', '.join(left)}"] if left else []
    return CostTable(name=f"aceso-{size}", basis=";\n".join(lines), rows=rows)


def _block(
    profiled: Profiled,
    operators: Operators,
    folder: Path,
    size: str,
    key: tuple[int, int],
    lower: tuple[int, Pass] | None,
) -> Pass:
    """Seconds of a layer without communication, (1)."""
    layer, (batch, tp) = slice(operators.head, operators.head + operators.layer), key
    whole = float(operators.forward[layer].sum()), float(operators.backward[layer].sum())
    if tp == 1:
        return whole
    reduced = PER_PASS * float(np.interp(batch * profiled.output_bytes, *read_all_reduces(folder, size, tp)))
    below, least = lower or (1, (0.0, 0.0))
    forward, backward = (max(x - reduced, y * below / tp) for x, y in zip(whole, least, strict=True))
    if not (forward > 0 and backward > 0):
        raise DataError(f"{folder}: {size} at micro-batch {batch}: two all-reduces leave nothing of a layer at tp {tp}")
    return forward, backward


def _rows(profiled: Profiled, operators: Operators, batch: int, tp: int, block: Pass, where: str) -> list[CostRow]:
    """Rows of embedding, layer by recomputation, and head."""
    first, end = operators.head, operators.head + operators.layer
    core = np.array([name in CORE_OPERATORS for name in operators.names])
    kept, kind = operators.activations, profiled.block.kind
    plain = profiled.row(kind, tp, batch, block, where, kept=round(kept[first:end].sum()))
    again = {
        "recompute": "selective",
        "input_grad_s": plain.input_grad_s + float(operators.forward[core].sum()),
        "activation_bytes": round(kept[first:end].sum() - kept[core].sum()),
    }
    inputs = round(operators.inputs[first])
    return [
        profiled.row(EMBEDDING, tp, batch, _passes(operators, 0, first), where, kept=round(kept[:first].sum())),
        plain,
        plain.model_copy(update=again),
        profiled.row(kind, tp, batch, block, where, kept=inputs, recompute="full"),
        profiled.row(HEAD, tp, batch, _passes(operators, end, len(kept)), where, kept=round(kept[end:].sum())),
    ]


def _passes(operators: Operators, first: int, end: int) -> Pass:
    return float(operators.forward[first:end].sum()), float(operators.backward[first:end].sum())
