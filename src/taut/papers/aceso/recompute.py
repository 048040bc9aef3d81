"""
Which operators a stage recomputes: the choice behind a figure of a cautious table.

``taut.papers.aceso.stage_table`` has the least seconds of every kind of stage. Here one stage is solved in the
same way, and the options of its pieces and whole layers are traced back to its operators. It fits by the formula, as
cautious lists save no more than they say.

Aceso's own rule is another (EuroSys 2024, section 4.3, as its program has it). Operators of one kind form a group.
While the stage is above the memory limit, the group with the largest activations that is not done yet is recomputed,
from its first member on and with no more members than the excess needs, each with the operator behind it; the group of
that operator counts as done too. The embedding, the output layer and the norm that opens a layer are never chosen.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.papers.aceso.formula import stage_bytes
from taut.papers.aceso.operators import NEVER_CHOSEN, Operators
from taut.papers.aceso.option_lists import (
    OptionLists,
    end_piece,
    layer_offsets,
    option_lists,
    rest_piece,
    whole_layers,
)
from taut.papers.aceso.stage_table import least_recomputation, local_figures, needs


def recomputed_at_best(operators: Operators, layers: int, where: tuple[int, int, int], limit: float) -> Flags:
    """
    Which operators of a stage are recomputed; none where nothing helps it to fit.

    ``operators``: at the stage's micro-batch and tensor degree; ``layers``: layers of the model; ``where``: its first
    operator, the one behind its last, and the number of stages behind it; ``limit``: bytes that a device may have.
    """
    first, end, behind = where
    begins, whole, x, y = kind_of_stage(operators.layer, layers, first, end)
    if y == 0:
        return np.zeros(1, dtype=bool)
    need = needs(local_figures(operators), begins, whole, x, y, limit)
    lists = option_lists(operators, cautious=True)
    front = rest_piece(begins, 0) if 0 < begins < operators.layer else -1
    parts = front, whole, end_piece(operators.layer, operators.layer + operators.tail, x, y, 0)
    best: tuple[float, list[bool]] = (np.inf, [False] * (end - first))
    for cluster in range(len(lists.runs)):
        offsets = layer_offsets(lists, cluster, whole)
        saved = whole_layers(lists, cluster, offsets)
        found = least_recomputation(lists, cluster, saved, offsets, parts, need, behind + 1, best[0])
        seconds, chosen, last, missing, follows, opens = found
        if last >= 0:
            bits = _bits(lists.bits[chosen], operators.layer - begins) if front >= 0 else []
            bits += [False] * (begins == operators.layer)
            for choice in _layer_choices(lists, saved[follows], offsets, cluster, (whole, missing, opens)):
                bits += _bits(lists.bits[choice], operators.layer)
            best = seconds, bits + _bits(lists.bits[last], y - x)
    return np.array(best[1])


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
    lists: OptionLists, saved: Floats, offsets: Ints, cluster: int, state: tuple[int, int, int]
) -> list[int]:
    """Options of so many whole layers that together save the units, the first opening as told, in the least seconds."""
    layers, missing, opens = state
    choices = []
    for k in range(layers, 0, -1):
        options = []
        for follows in range(2):
            for place in range(*lists.start[cluster, 2 * opens + follows : 2 * opens + follows + 2]):
                left = max(0, missing - int(lists.units[place]))
                if left < offsets[k] - offsets[k - 1]:
                    took = float(lists.seconds[place] + saved[follows, offsets[k - 1] + left])
                    options.append((took, place, left, follows))
        _, place, missing, opens = min(options)
        choices.append(place)
    return choices


def _bits(pattern: int, count: int) -> list[bool]:
    return [bool(pattern >> place & 1) for place in range(count)]


def recomputed_by_rule(operators: Operators, kinds: Ints, behind: int, limit: float) -> Flags:
    """
    Which operators of a stage the rule recomputes.

    ``operators``: at the stage's micro-batch and tensor degree; ``kinds``: kinds of the stage's operators; ``behind``:
    number of stages behind it; ``limit``: bytes that it may have; where it has more even so, the rule has recomputed
    all that it can.
    """
    flags = np.zeros(len(kinds), dtype=bool)
    done: set[int] = set()
    while (excess := stage_bytes(operators, kinds, flags, behind) - limit) > 0:
        chosen = _largest_group(operators, kinds, done)
        if chosen is None:
            break
        members = np.flatnonzero(kinds == chosen)
        done.add(chosen)
        if members[0] + 1 >= len(kinds):
            break
        done.add(int(kinds[members[0] + 1]))
        sizes = (behind + 1) * operators.measured_activations[chosen] * np.arange(1, len(members) + 1)
        needed = len(members) if sizes[-1] < excess else int(np.searchsorted(sizes, excess, side="right")) + 1
        flags[members[:needed]] = True
        flags[np.minimum(members[:needed] + 1, len(kinds) - 1)] = True
    return flags


def _largest_group(operators: Operators, kinds: Ints, done: set[int]) -> int | None:
    """The kind with the largest activations in the stage, in the order of the stage where several have them."""
    best, size = None, 0.0
    for kind in dict.fromkeys(kinds.tolist()):
        total = float(operators.measured_activations[kind] * (kinds == kind).sum())
        if kind not in done and operators.names[kind] not in NEVER_CHOSEN and total > size:
            best, size = kind, total
    return best
