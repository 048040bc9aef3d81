"""
Operator profiles of Aceso: ``gpt_SIZE_mbsB_tpT_algo0.csv``, with the rates between two devices beside them.

A file has one line an operator, at one micro-batch :math:`b` and tensor degree :math:`t`: ``forward-compute`` and
``backward-compute`` in microseconds, all-reduces of the tensor group included; ``input_size``, ``output_size``,
``weights``, ``activations``, ``fwd_reserved`` and ``bwd_reserved`` in MiB a device. Operators stand once: what comes
before ``enc-1st-layernorm`` is the head, what comes from ``final-layernorm`` on the tail, the rest one layer.
``p2p_intra_node.csv`` and ``p2p_inter_node.csv`` have, for messages of 1, 2, 4, ... MiB, gigabytes a second, of which
Aceso counts 1000 MiB as one. Of the dropout of the attention scores Aceso counts 1.5 times the activations, and of
their softmax none, as the runtime shares a buffer between them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from taut.data.arrays import Flags, Floats
from taut.data.read import read_text, rows_of
from taut.data.spec import NotNegative, Spec
from taut.data.units import MIB, MICROSECOND
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
    """
    Read all operators of a model.

    ``folder``: holds the files of a device; ``size``: the model's name in the names of the files, such as ``1_3B``.
    Returns operators at every micro-batch and tensor degree that was profiled. Raises ``DataError`` if there is no file
    of the model, a line is wrong, or the files have different operators.
    """
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
    """
    Read the operators of one file.

    Raises ``DataError`` if a line is wrong, or there is no layer.
    """
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
