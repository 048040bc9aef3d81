r"""
Trees of the cases of racks of an order-priced candidate.

The cases are those of ``taut.solver.ladder.chunk_racks``. Each case has its own tree
(``taut.solver.order_priced.layer_tree``). In case j < J stage j is the first that spans racks, and the j stages before
it are confined. In case J the first J stages are confined, whatever the others do. A larger J makes more cases, and
case J bounds no less. Bisection looks for the least J whose case J bounds no less than the case in which as many stages
are confined as can be. It compares bounds after one branch, so J may be larger; any J is valid. The
candidate's bound is the least of its trees, of which the least is branched on.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.ladder.chunk_racks import ChunkRacks
from taut.solver.order_priced.layer_bounds import linear_paths
from taut.solver.order_priced.layer_tree import EARLY, LayerTree
from taut.solver.order_priced.master_rows import least_makespan

LITTLE = 1e-6
"""Relative difference of bounds that is not worth the trees of all cases: a gap of 0.1 % is a thousand times more."""


class RackTrees:
    """The ``trees`` of all cases of one candidate, 0 to J - 1 and case J, begun, with the problem of all of them."""

    def __init__(self, given: ChunkProblem, trees: Sequence[LayerTree]) -> None:
        self.given, self._trees = given, trees

    @property
    def _least(self) -> LayerTree:
        return min(self._trees, key=lambda tree: tree.seconds)

    @property
    def seconds(self) -> float:
        """The bound in seconds, at most the limit, without an allowance for rounding."""
        return self._least.seconds

    @property
    def limit(self) -> float:
        """Seconds beyond which a bound is of no use."""
        return self._trees[0].limit

    @property
    def is_exact(self) -> bool:
        """Whether figures of chunks are lines, with nothing beside them."""
        return self._trees[-1].is_exact

    @property
    def is_branched(self) -> bool:
        """Whether there are branches."""
        return True

    @property
    def divisions(self) -> tuple[Division, ...]:
        """Divisions that are known."""
        return self._trees[-1].divisions

    @property
    def incumbent(self) -> tuple[float, Division | None]:
        """Least makespan in seconds of the divisions found in a case, and its division; it may not fit memory."""
        return min((tree.incumbent for tree in self._trees), key=lambda one: one[0])

    def learn(self, division: Division) -> None:
        """Take a division that was found elsewhere."""
        for tree in self._trees:
            tree.learn(division)

    def branch(self) -> bool:
        """Branch on the tree with the least bound; returns whether that was possible."""
        return self._least.branch()

    def branch_early(self) -> None:
        """Branch a few times, until the bound reaches the limit."""
        for _ in range(EARLY):
            if not self.branch():
                return

    def lower(self, limit: float) -> None:
        """Take a lower limit."""
        for tree in self._trees:
            tree.lower(limit)

    def witness(self) -> dict[str, Any]:
        """The witnesses of all trees."""
        *spanning, rest = (tree.witness() for tree in self._trees)
        return {"racks": spanning, "rest": rest}


def rack_trees(
    racks: ChunkRacks | None, limit: float, divisions: Sequence[Division], beyond: float = 0.0
) -> RackTrees | None:
    """
    The trees of a candidate's cases; None where they say no more than seconds ``beyond`` which are known.

    The candidate's bound is the least of its cases. If the case of most confined stages, or any in which a stage spans
    racks, does not exceed ``beyond`` after one branch, the others are not asked: each takes a tree, and there may be
    one a stage. A trial of the bisection that does not only raises J.
    """
    if racks is None or not racks.crossings.any() or not linear_paths(racks.given):
        return None
    if limit == np.inf:
        # Programs need a unit of seconds.
        limit = 2 * min(least_makespan(racks.given, division) for division in divisions)

    def tree(confined: int, *, spans: bool) -> LayerTree | None:
        given = racks.case(confined, spans=spans)
        found = LayerTree(given, linear_paths(given), limit, divisions)
        found.branch()
        return found if found.seconds > beyond * (1 + LITTLE) else None

    if (rest := tree(racks.most, spans=False)) is None:
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
        if (found := tree(confined, spans=True)) is None:
            return None
        trees.append(found)
    return RackTrees(racks.given, [*trees, rest])
