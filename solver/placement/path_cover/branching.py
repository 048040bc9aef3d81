"""
Branching on touched nodes: branches under construction, with the path bound of each.

Branches, their reduction and division are those of ``taut.solver.placement.path_cover.branches``, (1) and (2). Equal
branches share one ``LongestPathBound``; a part of a branch begins with what is proven for the whole. A branch is
divided at the node about which the last fractional solution says least, as branch and bound on a binary variable does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.solver.placement.path_cover.branches import Split, Tree, divided, reduced
from taut.solver.placement.path_cover.cases import PathProof, proof_seconds
from taut.solver.placement.path_cover.cut_pool import CutPool
from taut.solver.placement.path_cover.forest import NodeMultipliers, subgradient_ascent
from taut.solver.placement.path_cover.path_bound import LongestPathBound
from taut.solver.placement.slots import Box, SlotGraph

ASCENT_ROUNDS = 600
"""Subgradient steps for the Held-Karp forest: under 0.1 s for 64 nodes. It is the first proof of every branch."""
MAX_SPLITS = 400
"""Divisions of branches in one case distinction, so that every search ends and witnesses stay short."""
RESOURCE_LIMITS = ((96, 256), (192, 128), (1 << 30, 48))
"""
Nodes below which a resource limit R is used. A pass of the pricing problem takes O(pp N^2 R), and rounding hops down to
resource units costs at most (pp - 1) / R of the seconds beyond the shortest hops: larger clusters get coarser units.
"""


@dataclass(slots=True)
class Branch:
    """A branch: bounded by its path, split at ``nodes`` into children, or empty."""

    allowed: Flags
    required: Flags
    path: LongestPathBound | None = None
    nodes: tuple[int, ...] = ()
    children: tuple["Branch", ...] = ()

    def leaves(self) -> Iterator["Branch"]:
        """All branches below that are neither split nor empty."""
        if self.path is not None:
            yield self
        for child in self.children:
            yield from child.leaves()

    @property
    def seconds(self) -> float:
        """Seconds of the longest path that are proven in all of it, infinite for an empty branch."""
        return min((leaf.path.seconds for leaf in self.leaves() if leaf.path is not None), default=np.inf)

    def tree(self, proofs: dict[PathProof, int]) -> Tree:
        """
        Write the branch as it stands in a certificate.

        ``proofs``: numbers of proofs so far; those of the branch are added. Returns a split, the number of a proof, or
        None for an empty branch.
        """
        if self.path is not None:
            return proofs.setdefault(self.path.evidence, len(proofs))
        if not self.children:
            return None
        some, none = (child.tree(proofs) for child in self.children)
        return Split(nodes=self.nodes, some=some, none=none)


class BranchPool:
    """All branches of one case distinction; ``longest`` is seconds of the longest path of a known placement."""

    def __init__(self, graph: SlotGraph, longest: float) -> None:
        self._graph, self._splits = graph, 0
        self._paths: dict[tuple[int, int, bytes, bytes], LongestPathBound] = {}
        self._pool = CutPool(graph)
        self._pipelines = np.zeros((0, graph.pp), np.int64)
        nobody = np.zeros(len(graph.hops), dtype=bool)
        self._everywhere = _everywhere(graph, None)
        self._seconds = proof_seconds(graph, ~nobody, nobody, self._everywhere)
        if (graph.capacity == 1).all():
            average, multipliers = subgradient_ascent(graph, longest=longest, rounds=ASCENT_ROUNDS)
            if average > self._seconds:
                self._seconds, self._everywhere = average, _everywhere(graph, multipliers)

    @property
    def resource_limit(self) -> int:
        """Resource limit R of the certificates that are sought first."""
        return next(limit for nodes, limit in RESOURCE_LIMITS if len(self._graph.hops) < nodes)

    def add_routes(self, routes: Ints) -> None:
        """Add the pipelines of a good placement, (routes, pp) nodes, as initial columns of every branch."""
        self._pipelines = np.vstack([self._pipelines, routes])
        for path in self._paths.values():
            path.add_routes(routes)

    def leaf(self, box: Box, allowed: Flags, required: Flags, parent: LongestPathBound | None = None) -> Branch:
        """
        Make a branch with its path bound, or an empty one.

        ``box``: touched nodes and inverse rates; ``allowed``, ``required``: P and Q, (N,); ``parent``: the path bound
        of a branch that holds this one, whose proof it begins with. Returns the branch, P reduced.
        """
        left = reduced(self._graph, box, allowed, required)
        if left is None:
            return Branch(allowed, required)
        seconds = self._seconds if parent is None else parent.seconds
        evidence = self._everywhere if parent is None else parent.evidence
        key = (box.min_touched, box.max_touched, left.tobytes(), required.tobytes())
        if key not in self._paths:
            touched = (box.min_touched, box.max_touched)
            path = LongestPathBound(
                self._graph, left, required, touched, seconds, evidence, limit=self.resource_limit, pool=self._pool
            )
            path.add_routes(self._pipelines)
            self._paths[key] = path
        self._paths[key].accept(seconds, evidence)
        return Branch(left, required, self._paths[key])

    def restricted(self, box: Box, branch: Branch, allowed: Flags, required: Flags) -> Branch:
        """
        Restrict a branch to fewer nodes or a smaller box, divided and proven as the branch is.

        ``branch``: a branch, divided or not; ``allowed``, ``required``: P and Q of the part, (N,). Returns the part.
        """
        if not branch.children:
            return self.leaf(box, allowed, required, branch.path)
        left = reduced(self._graph, box, allowed, required)
        if left is None:
            return Branch(allowed, required)
        halves = zip(branch.children, divided(box, left, required, branch.nodes), strict=True)
        children = tuple(self.restricted(box, child, *half) for child, half in halves)
        return Branch(left, required, None, branch.nodes, children)

    def split(self, box: Box, leaf: Branch) -> bool:
        """
        Divide a branch at a node that stage 0 may or may not touch.

        ``box``: touched nodes and inverse rates; ``leaf``: a branch that is not divided; it gets two children. Returns
        False if all touched nodes are settled, or ``MAX_SPLITS`` are used up.
        """
        nodes, path = np.flatnonzero(leaf.allowed & ~leaf.required), leaf.path
        settled = len(nodes) <= (1 if box.max_touched == 1 else 0)
        if path is None or settled or self._graph.num_paths != self._graph.replicas or self._splits >= MAX_SPLITS:
            return False
        self._splits += 1
        leaf.nodes, leaf.path = self._undecided(box, path, nodes), None
        halves = divided(box, leaf.allowed, leaf.required, leaf.nodes)
        leaf.children = tuple(self.leaf(box, *half, path) for half in halves)
        return True

    def _undecided(self, box: Box, path: LongestPathBound, nodes: Ints) -> tuple[int, ...]:
        """Half of the nodes where one is touched; else the one about which the fractional solution says least."""
        begun = path.begun[nodes]
        if box.max_touched == 1:
            return tuple(nodes[np.argsort(-begun, kind="stable")[: len(nodes) // 2]].tolist())
        linked = (self._graph.inverse < box.high)[np.ix_(nodes, nodes)].sum(axis=1)
        full = self._graph.replicas / box.max_touched
        doubt = np.abs(np.minimum(begun / full, 1.0) - 0.5)
        return (int(nodes[np.lexsort((linked, np.round(doubt, 3)))[0]]),)


def _everywhere(graph: SlotGraph, by: NodeMultipliers | None) -> PathProof:
    return PathProof(nodes=tuple(range(len(graph.hops))), touched=(graph.min_touched, graph.max_touched), by=by)
