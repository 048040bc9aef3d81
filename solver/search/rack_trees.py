r"""
Trees of the cases of racks of an order-priced candidate.

The cases are those of ``taut.solver.ladder.chunk_racks``. Each case has its own tree
(``taut.solver.order_priced.layer_tree``). In case j < J stage j is the first that spans racks, and the j stages before
it are confined. In case J the first J stages are confined, whatever the others do. A larger J makes more cases, and
case J bounds no less. Bisection finds the least J whose case J bounds no less than the case in which as many stages are
confined as can be.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from taut.formulations.order_division import ROUNDING
from taut.formulations.strategy import Division
from taut.solver.ladder.chunk_racks import ChunkRacks
from taut.solver.order_priced.layer_bounds import linear_paths
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.order_priced.master_rows import least_makespan


class RackBound(NamedTuple):
    """A bound in seconds, and what proves it."""

    seconds: float
    witness: dict[str, Any]


def rack_bound(racks: ChunkRacks, limit: float, beyond: float, divisions: Sequence[Division]) -> RackBound | None:
    """
    Bound a candidate by its cases.

    ``limit``: seconds beyond which a bound is of no use, infinite where no plan is known; ``beyond``: seconds that are
    known already; ``divisions``: ones that are known, at least one. Returns None where the cases say no more.
    """
    if limit == np.inf:
        # Programs need a unit of seconds.
        limit = 2 * min(least_makespan(racks.given, division) for division in divisions)

    def tree(confined: int, *, spans: bool) -> LayerTree | None:
        given = racks.case(confined, spans=spans)
        found = LayerTree(given, linear_paths(given), limit, divisions)
        found.branch()
        if beyond < found.seconds * (1 - ROUNDING) < limit * (1 - ROUNDING):
            found.branch_early(limit)
        return found if found.seconds * (1 - ROUNDING) > beyond else None

    if not racks.crossings.any() or not linear_paths(racks.given) or (rest := tree(racks.most, spans=False)) is None:
        return None
    low, high = -1, racks.most
    while high - low > 1:
        middle = (low + high) // 2
        found = tree(middle, spans=False)
        if found is None or found.seconds < rest.seconds:
            low = middle
        else:
            high, rest = middle, found
    trees = list[LayerTree]()
    for confined in range(high):
        spanning = tree(confined, spans=True)
        if spanning is None:
            return None
        trees.append(spanning)
    seconds = min(each.seconds for each in (*trees, rest)) * (1 - ROUNDING)
    return RackBound(seconds, {"racks": [each.witness() for each in trees], "rest": rest.witness()})
