"""What a stage of each kind needs of a device's memory: ``taut.papers.aceso.stage_table`` (1)."""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.compiled import jit
from taut.papers.aceso.formula import BYTES_OF_WEIGHTS
from taut.papers.aceso.operators import Operators


class Local(NamedTuple):
    """Number of operators in a layer; of the head, a layer and the tail in this order inputs, weights and so on."""

    layer: int
    inputs: Floats
    weights: Floats
    activations: Floats
    reserved_forward: Floats
    reserved_backward: Floats


def local_figures(operators: Operators) -> Local:
    """The figures of operators that the memory depends on."""
    return Local(
        operators.layer,
        operators.inputs,
        operators.weights,
        operators.activations,
        operators.reserved_forward,
        operators.reserved_backward,
    )


@jit
def needs(local: Local, begins: int, layers: int, first: int, end: int, limit: float) -> tuple[float, float]:
    """
    A and M - 8 w - max(u, w) of a stage that ends with the piece [first, end).

    Before it stand the head if ``begins`` is the number of operators in a layer, the rest of a layer from ``begins`` on
    if that is above 0, and then whole ``layers``.
    """
    sums = np.zeros(4)
    opens = 1 + first
    if begins == local.layer:
        _add(local, sums, 0, 1, 1)
        opens = 0
    elif begins > 0:
        _add(local, sums, 1 + begins, 1 + local.layer, 1)
        opens = 1 + begins
    if layers > 0:
        _add(local, sums, 1, 1 + local.layer, layers)
    _add(local, sums, 1 + first, end, 1)
    weights = sums[0] + local.weights[end]
    held = sums[1] + local.activations[end] + local.inputs[opens]
    return held, limit - BYTES_OF_WEIGHTS * weights - max(sums[2] + sums[3], weights)


@jit
def _add(local: Local, sums: Floats, start: int, stop: int, times: int) -> None:
    """Add weights and activations of operators, so many times, and raise what the allocator holds."""
    for place in range(start, stop):
        sums[0] += times * local.weights[place]
        sums[1] += times * local.activations[place]
        sums[2] = max(sums[2], local.reserved_forward[place])
        sums[3] = max(sums[3], local.reserved_backward[place])
