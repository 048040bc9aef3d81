r"""
Cost table from Aceso's operator profiles: operators of a layer as one layer of ours.

At micro-batch :math:`b` and tensor degree :math:`t` a layer's forward and backward seconds are the sums over its
operators, and those of embedding and head what stands before and behind the layers. At :math:`t > 1` a layer's hold two
all-reduces each, of :math:`A_t` seconds for the layer's output in ``prim_gpt_SIZE_all_reduce_Tgpus.csv`` (MiB,
milliseconds), which a cost table must not hold:

(1) a pass of :math:`x_t` seconds counts as :math:`\max(x_t - 2 A_t, y_s s / t)`, with :math:`y_s` what is left of the
    next lower degree :math:`s`: no split is better than even. Embedding and head keep theirs; plans add none to them.

Activations are those that Aceso counts, all of them without recomputation; with ``selective`` those of the attention
core stay away, whose forward seconds are added to the input gradient; with ``full`` the layer's input stays alone. The
backward pass is split by FLOP (``taut.data.readers.measured_layer``), which also says what is above the device's peak
rate; a micro-batch and degree whose layer or head is stays out. Attention is not fused, in fp16. There is no figure of
the optimizer.
"""

from pathlib import Path

import numpy as np

from taut.data.arrays import Floats
from taut.data.costs import CostRow, CostTable
from taut.data.device import DeviceSpec
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.data.read import read_text, rows_of
from taut.data.readers.measured_layer import Pass, Profiled
from taut.data.spec import Positive, Spec
from taut.data.units import MIB, MILLISECOND
from taut.errors import DataError
from taut.papers.aceso.operators import Operators, read_operator_profile

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
    """
    Bytes, ascending, and seconds of all-reduces of so many GPUs of a node.

    Raises ``DataError`` if the file is missing or a line is wrong.
    """
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
    """
    Read the operators of a model as a cost table.

    ``folder``: holds the files of a device; ``size``: the model's name in the names of the files; ``model``,
    ``device``: what was profiled, with its sequence length; the files name neither. Returns rows by micro-batch, tensor
    degree and recomputation. Raises ``DataError`` if a file is missing, wrong, or does not fit model and device.
    """
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
