r"""
Trees of the cases of racks of an order-priced candidate.

The cases are those of ``taut.solver.ladder.chunk_racks``. Each case has its own tree
(``taut.solver.order_priced.layer_tree``). In case j < J stage j is the first that spans racks, and the j stages before
it are confined. In case J the first J stages are confined, whatever the others do. A larger J makes more cases, and
case J bounds no less. Bisection looks for the least J whose case J bounds no less than the case in which as many stages
are confined as can be. It compares bounds after one branch, so J may be larger; any J is valid. The
candidate's bound is the least of its trees, of which the least is branched on.

Where stages are of two classes of device, each case of ``taut.solver.ladder.chunk_types`` begins with one tree. Its
racks are told apart once it has the least bound and has been branched on.

Where the tree of case J has no branch left, further stages are told apart, up to the first J' with more hops. Cases J
to J' take the place of the tree, if they bound as much within ``MOST_GROWN`` branchings each.
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

MOST_GROWN = 64
"""Branchings of a case within which its bound is that of the tree that it replaces."""


class RackTrees:
    """
    The trees of all cases of one candidate.

    ``rows``: of every case of classes the trees of the cases 0 to J - 1 of racks and of case J, begun; ``racks`` of the
    rows; ``untold``: rows with one tree that are not told apart yet.
    """

    def __init__(self, rows: list[list[LayerTree]], racks: Sequence[ChunkRacks], untold: Sequence[int] = ()) -> None:
        self.rows, self._racks, self._untold = rows, racks, {*untold}

    @property
    def _trees(self) -> list[LayerTree]:
        return [tree for row in self.rows for tree in row]

    @property
    def given(self) -> ChunkProblem:
        """The problem of the case in which the best division was found, with its classes, at the best links."""
        return next(racks.given for row, racks in zip(self.rows, self._racks, strict=True) if self._best in row)

    @property
    def _best(self) -> LayerTree:
        return min(self._trees, key=lambda tree: tree.incumbent[0])

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
        return self._best.incumbent

    def learn(self, division: Division) -> None:
        """Take a division that was found elsewhere."""
        for tree in self._trees:
            tree.learn(division)

    def branch(self) -> bool:
        """Branch on the tree with the least bound, or tell its racks apart; returns whether that was possible."""
        tree = self._least
        row = next(k for k, row in enumerate(self.rows) if tree in row)
        if tree.is_branched and row in self._untold:
            self._untold.remove(row)
            if found := rack_trees(self._racks[row], tree.limit, tree.divisions, tree.seconds):
                (self.rows[row],) = found.rows
                return True
        return tree.branch() or self._tell_apart(row, tree)

    def _tell_apart(self, row: int, tree: LayerTree) -> bool:
        """Replace the last tree of a row, which has no branch left, by its cases; returns whether they bound more."""
        racks, confined = self._racks[row], len(self.rows[row]) - 1
        more = next((p for p in range(confined, racks.most + 1) if racks.crossings[p] > racks.crossings[confined]), 0)
        if tree.seconds >= tree.limit or tree is not self.rows[row][-1] or more == 0:
            return False
        spanning = [racks.case(p, spans=True) for p in range(confined, more)]
        found = list[LayerTree]()
        for given in (*spanning, racks.case(more, spans=False)):
            found.append(LayerTree(given, linear_paths(given), tree.limit, tree.divisions))
            for _ in range(MOST_GROWN):
                if found[-1].seconds >= tree.seconds or not found[-1].branch():
                    break
            if found[-1].seconds < tree.seconds:
                return False
        self.rows[row][-1:] = found
        return True

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
        each = [[tree.witness() for tree in row] for row in self.rows]
        found = [{"racks": spanning, "rest": rest} for *spanning, rest in each]
        return found[0] if len(found) == 1 else {"classes": found}


def case_trees(
    cases: Sequence[ChunkRacks], limit: float, divisions: Sequence[Division], beyond: float
) -> RackTrees | None:
    """The trees of a candidate's cases; None where those of racks say no more than seconds ``beyond``."""
    if not cases or cases[0].given.slower is None:
        return rack_trees(cases[0], limit, divisions, beyond) if cases else None
    if limit == np.inf:
        limit = 2 * min(least_makespan(racks.given, division) for racks in cases for division in divisions)
    rows = list[list[LayerTree]]()
    for racks in cases:
        given = racks.case(0, spans=False)
        if not (paths := linear_paths(given)):
            return None
        rows.append([LayerTree(given, paths, limit, divisions)])
    return RackTrees(rows, cases, range(len(rows)))


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
    return RackTrees([[*trees, rest]], [racks])
