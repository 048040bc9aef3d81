"""
Which operators a stage recomputes: the choice behind a figure of a cautious table.

``taut.formulations.aceso.stage_table`` has the least seconds of every kind of stage. Here one stage is solved in the
same way, and the options of its pieces and whole layers are traced back to its operators. It fits by the formula, as
cautious lists save no more than they say.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.readers.aceso.operators import Operators
from taut.formulations.aceso.option_lists import OptionLists, option_lists, unit_bytes, whole_layers
from taut.formulations.aceso.stage_needs import local_figures, needs
from taut.formulations.aceso.stage_table import TOLERANCE, least_recomputation


def recomputed_at_best(
    operators: Operators, layers: int, where: tuple[int, int, int], limit: float, most_layers: int
) -> Flags:
    """
    Which operators of a stage are recomputed; none where nothing helps it to fit.

    Parameters
    ----------
    operators
        At the stage's micro-batch and tensor degree.
    layers
        Layers of the model.
    where
        Its first operator, the one behind its last, and the number of stages behind it.
    limit
        Bytes that a device may have.
    most_layers
        Whole layers that the table was made for, on which its units depend.
    """
    first, end, behind = where
    begins, whole, x, y = kind_of_stage(operators.layer, layers, first, end)
    if y == 0:
        return np.zeros(1, dtype=bool)
    need = needs(local_figures(operators), begins, whole, x, y, limit)
    unit = unit_bytes(operators, most_layers)
    lists = option_lists(operators, unit, cautious=True)
    saved, offsets = whole_layers(lists, whole)
    opens = begins if 0 < begins < operators.layer else -1
    parts = opens, whole, operators.layer + (operators.layer + operators.tail) * x + y - 1
    share = np.array([behind + 1.0, unit, TOLERANCE])
    seconds, cluster, front, last, missing = least_recomputation(lists, saved, offsets, parts, need, share)
    if not np.isfinite(seconds):
        return np.zeros(end - first, dtype=bool)
    bits = [*_bits(lists.bits[front], operators.layer - opens)] if opens > 0 else [False] * (begins == operators.layer)
    for choice in _layer_choices(lists, saved[cluster], offsets, cluster, whole, missing):
        bits += _bits(lists.bits[choice], operators.layer)
    return np.array([*bits, *_bits(lists.bits[last], y - x)])


def kind_of_stage(layer: int, layers: int, first: int, end: int) -> tuple[int, int, int, int]:
    """
    How the stage [first, end) begins, its whole layers, and the piece [x, y) that ends it; y is 0 for the head alone.

    It begins with 0 at the start of a layer, with x inside one, with the number of operators in a layer at the head.
    """
    if end == 1:
        return layer, 0, 0, 0
    last_layer = min((end - 2) // layer, layers - 1)
    y = end - 1 - last_layer * layer
    if first == 0:
        return layer, last_layer, 0, y
    first_layer = min((first - 1) // layer, layers - 1)
    x = first - 1 - first_layer * layer
    if x == 0:
        return 0, last_layer - first_layer, 0, y
    if first_layer == last_layer:
        return 0, 0, x, y
    return x, last_layer - first_layer - 1, 0, y


def _layer_choices(
    lists: OptionLists, saved: Floats, offsets: Ints, cluster: int, layers: int, missing: int
) -> list[int]:
    """Options of the whole layers that together save the units in the least seconds."""
    choices = []
    for k in range(layers, 0, -1):
        places = np.arange(lists.start[cluster, 0], lists.start[cluster, 1])
        left = np.maximum(0, missing - lists.units[places])
        reach = left < offsets[k] - offsets[k - 1]
        took = np.where(reach, lists.seconds[places] + saved[offsets[k - 1] + np.where(reach, left, 0)], np.inf)
        best = int(took.argmin())
        choices.append(int(places[best]))
        missing = int(left[best])
    return choices


def _bits(pattern: int, count: int) -> list[bool]:
    return [bool(pattern >> place & 1) for place in range(count)]
