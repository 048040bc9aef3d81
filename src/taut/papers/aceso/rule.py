"""
Aceso's rule for what a stage recomputes (EuroSys 2024, section 4.3, as its program has it).

Operators of one kind form a group. While the stage is above the memory limit, the group with the largest activations
that is not done yet is recomputed, from its first member on and with no more members than the excess needs, each with
the operator behind it; the group of that operator counts as done too. The embedding, the output layer and the norm that
opens a layer are never chosen.
"""

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.papers.aceso.formula import stage_bytes
from taut.papers.aceso.operators import NEVER_CHOSEN, Operators


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
