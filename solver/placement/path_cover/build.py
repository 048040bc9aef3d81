"""
Search for a case distinction that bounds communication: best-first branch and bound on its weakest case.

Cases, proofs and the bound that they give are those of ``taut.solver.placement.path_cover.cases``, (1) to (3). For one
number of gradient bytes the bound is the least over cases, so only the case that attains it is refined: the threshold
of its longest path is raised (``taut.solver.placement.path_cover.path_bound``), or its box is divided, at an inverse
rate or by the number of touched nodes, or a start set is divided into branches. The search ends when the bound reaches
a known placement.

Branches under construction hold the path bound of each. Branches, their reduction and division are those of
``taut.solver.placement.path_cover.cases``, (4) and (5). Equal branches share one ``LongestPathBound``; a part of a
branch begins with what is proven for the whole. A branch is divided at the node about which the last fractional
solution says least, as branch and bound on a binary variable does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.solver.placement.path_cover.cases import (
    Case,
    CaseCertificate,
    CommunicationBound,
    PathProof,
    Split,
    StartSet,
    Tree,
    divided,
    proof_seconds,
    reduced,
    start_sets,
)
from taut.solver.placement.path_cover.certificate import NodeMultipliers, subgradient_ascent
from taut.solver.placement.path_cover.cliques import bottleneck_clique_bound, merged
from taut.solver.placement.path_cover.path_bound import CutPool, LongestPathBound
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
        """The branch as it stands in a certificate; its proofs are added to the numbered ``proofs``."""
        if self.path is not None:
            return proofs.setdefault(self.path.evidence, len(proofs))
        if not self.children:
            return None
        some, none = (child.tree(proofs) for child in self.children)
        return Split(touching=self.nodes, some=some, none=none)


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
        """A branch of P ``allowed`` and Q ``required`` (N,), P reduced; its proof begins with the ``parent``'s."""
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
        """A branch restricted to P and Q (N,) or a smaller box, divided and proven as it is."""
        if not branch.children:
            return self.leaf(box, allowed, required, branch.path)
        left = reduced(self._graph, box, allowed, required)
        if left is None:
            return Branch(allowed, required)
        halves = zip(branch.children, divided(box, left, required, branch.nodes), strict=True)
        children = tuple(self.restricted(box, child, *half) for child, half in halves)
        return Branch(left, required, None, branch.nodes, children)

    def split(self, box: Box, leaf: Branch) -> bool:
        """Divide a leaf at a node that stage 0 may or may not touch; False if settled, or after ``MAX_SPLITS``."""
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
    return PathProof.of(tuple(range(len(graph.hops))), (), (graph.min_touched, graph.max_touched), by)


SMALLER = 0.75
"""
A box is divided at a rate below which its largest start set has at most this share of its nodes: then routes have fewer
starts, and bounds of the two parts differ. Only the order of refinement depends on it.
"""
NARROW = 2e-3
"""
Relative distance below which nothing is refined further: between proven seconds and what can be proven without a
division, and between ring bounds at both ends of a box. Beyond it, a division pays more than another threshold.
"""


@dataclass(slots=True)
class _OpenCase:
    """A case under construction: its box, its start sets, and whether its box was divided by sets already."""

    box: Box
    start_sets: list[Branch]
    by_sets: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of the longest path that are proven in the case."""
        return min((start_set.seconds for start_set in self.start_sets), default=np.inf)

    @property
    def empty(self) -> bool:
        """Whether no stage 0 lies in the case."""
        return not any(True for start_set in self.start_sets for _ in start_set.leaves())

    def paths(self) -> Iterator[tuple[Branch, LongestPathBound]]:
        """Branches that are neither split nor empty, and their paths."""
        for start_set in self.start_sets:
            yield from ((leaf, leaf.path) for leaf in start_set.leaves() if leaf.path is not None)


class CaseSearch:
    """
    A case distinction under construction.

    ``gradients`` are the bytes, divided by the trip's weight, for which it is refined; ``value`` is then the bound in
    seconds of hops, and ``target`` that of a known placement, whose longest path takes ``longest`` seconds. What a
    later stage waits for is ``floor``, in seconds of hops too, so that shorter rings of stage 0 are of no use.
    """

    def __init__(self, *, graph: SlotGraph, gradients: float, target: float, longest: float) -> None:
        self.graph, self.gradients, self.target, self.floor = graph, gradients, target, 0.0
        self._branches = BranchPool(graph, longest)
        self._rates = np.unique(graph.inverse[~np.eye(len(graph.hops), dtype=bool)])
        self._sets: dict[tuple[int, int, float], list[Flags]] = {}
        self._cases = [self._opened(fewest, most) for fewest, most in _doublings(graph.min_touched, graph.max_touched)]

    @property
    def resource_limit(self) -> int:
        """Resource limit R of the certificates that are sought first."""
        return self._branches.resource_limit

    def add_routes(self, routes: Ints) -> None:
        """Add the pipelines of a good placement, (routes, pp) nodes, as initial columns."""
        self._branches.add_routes(routes)

    def _opened(self, fewest: int, most: int) -> _OpenCase:
        """The case of so many touched nodes with all links, from the fastest possible on."""
        box = Box(min_touched=fewest, max_touched=most, low=self._fastest(fewest), high=np.inf)
        nobody = np.zeros(len(self.graph.hops), dtype=bool)
        return _OpenCase(box, [self._branches.leaf(box, nodes, nobody) for nodes in self._start_sets(box)])

    def _fastest(self, fewest: int) -> float:
        """Inverse rate below which no ``fewest`` nodes are linked."""
        return 0.0 if fewest == 1 else bottleneck_clique_bound(self.graph.inverse, fewest)

    def _ring(self, box: Box, slowest: float | None = None) -> float:
        """Seconds of the ring in a case, or with a slowest link, in seconds of hops."""
        return max(self.gradients * self.graph.ring_bound(box, slowest), self.floor)

    def _value(self, case: _OpenCase) -> float:
        return case.seconds + self._ring(case.box)

    @property
    def value(self) -> float:
        """Bound on hops plus ring, in seconds of hops."""
        return min(map(self._value, self._cases), default=np.inf)

    def refine(self, *, rounds: int = 20) -> bool:
        """Refine the weakest case once: divide its box, raise thresholds, divide a branch; whether any is left."""
        index = min(range(len(self._cases)), key=lambda i: self._value(self._cases[i]))
        case = self._cases[index]
        if self._value(case) >= self.target * (1 - 1e-9):
            return False
        if not case.by_sets:
            self._split_by_sets(index)
            return True
        path = min((path for _, path in case.paths()), key=lambda path: path.seconds)
        reach, hardest, leaf = self._hardest()
        goal = min(self.target, reach) - self._ring(case.box)
        if goal > path.seconds * (1 + NARROW):
            path.raise_towards(goal, rounds=rounds)
            return True
        box = self._cases[hardest].box
        split = self._split_by_touched(hardest) or self._split_by_ring(hardest) or self._branches.split(box, leaf)
        return split or (leaf.path is not None and leaf.path.refine_resource())

    def _hardest(self) -> tuple[float, int, Branch]:
        """What the value cannot exceed without a split, and the case and the branch that hold it there."""
        ends = (
            (ring + max(path.ceiling, path.seconds), index, leaf)
            for index, (case, ring) in enumerate((case, self._ring(case.box)) for case in self._cases)
            for leaf, path in case.paths()
        )
        return min(ends, key=lambda end: end[0])

    def _inside(self, box: Box) -> Floats:
        """Inverse rates strictly inside a box, at which it can be divided."""
        rates = self._rates
        return rates[(rates > box.low) & (rates < box.high)] if box.max_touched > 1 else rates[:0]

    def _split_by_sets(self, index: int) -> None:
        """Divide a box at the largest rate below which its largest start set is much smaller, if there is one."""
        case = self._cases[index]
        case.by_sets = True
        largest = max(int(start_set.allowed.sum()) for start_set in case.start_sets)
        inside = self._inside(case.box)
        low, high = 0, len(inside)
        while low < high:
            middle = (low + high) // 2
            sizes = [int(nodes.sum()) for nodes in self._start_sets(replace(case.box, high=float(inside[middle])))]
            low, high = (middle + 1, high) if max(sizes, default=0) <= SMALLER * largest else (low, middle)
        if low > 0:
            self._divide(index, float(inside[low - 1]), by_sets=False)

    def _split_by_touched(self, index: int) -> bool:
        """Divide a box in the middle of its numbers of touched nodes; False for a single one."""
        case = self._cases[index]
        box = case.box
        if box.min_touched == box.max_touched:
            return False
        middle = (box.min_touched + box.max_touched) // 2
        halves = []
        for fewest, most in ((box.min_touched, middle), (middle + 1, box.max_touched)):
            half = Box(min_touched=fewest, max_touched=most, low=max(box.low, self._fastest(fewest)), high=box.high)
            if half.low < half.high:
                halves.append(_OpenCase(half, self._start_sets_within(case, half)))
        self._cases[index : index + 1] = [half for half in halves if half.start_sets]
        return True

    def _split_by_ring(self, index: int) -> bool:
        """Divide a box where the ring alone closes its upper part, or in the middle; False if it is narrow."""
        case = self._cases[index]
        box, inside = case.box, self._inside(case.box)
        if not len(inside) or self._ring(box, inside[-1]) - self._ring(box) < NARROW * self.target:
            return False
        closing = case.seconds + np.array([self._ring(box, low) for low in inside]) >= self.target
        halfway = np.searchsorted(inside, 0.5 * (box.low + inside[-1]))
        first = int(np.argmax(closing)) if closing.any() else len(inside)
        # Where the ring closes almost everything the rest is halved, so that start sets become smaller.
        self._divide(index, float(inside[min(first, max(int(halfway), 0), len(inside) - 1)]), by_sets=True)
        return True

    def _divide(self, index: int, middle: float, *, by_sets: bool) -> None:
        case = self._cases[index]
        below = replace(case.box, high=middle)
        lower = _OpenCase(below, self._start_sets_within(case, below), by_sets)
        upper = _OpenCase(replace(case.box, low=middle), case.start_sets, True)
        self._cases[index : index + 1] = [upper] if lower.empty else [lower, upper]

    def _start_sets_within(self, case: _OpenCase, box: Box) -> list[Branch]:
        """Start sets for a part of a case, each with the best that is proven for a set of the case that holds it."""
        nobody = np.zeros(len(self.graph.hops), dtype=bool)
        start_sets = []
        for nodes in self._start_sets(box):
            left = reduced(self.graph, box, nodes, nobody)
            holders = [part for part in case.start_sets if left is not None and (left <= part.allowed).all()]
            best = max(holders, key=lambda part: part.seconds, default=None)
            if best is None or not np.isfinite(best.seconds):
                start_sets.append(self._branches.leaf(box, nodes, nobody))
            else:
                start_sets.append(self._branches.restricted(box, best, nodes, nobody))
        return start_sets

    def _start_sets(self, box: Box) -> list[Flags]:
        """Start sets of a case: the clique sets, merged where they overlap or are too many."""
        key = (box.min_touched, min(box.max_touched, 2), box.high)
        if key not in self._sets:
            self._sets[key] = merged(start_sets(self.graph, box))
        return self._sets[key]

    def bound(self) -> CommunicationBound:
        """What is proven so far, as ``certified_bound`` derives it from the certificate."""
        rings = np.array([self.graph.ring_bound(case.box) for case in self._cases])
        seconds = np.array([case.seconds for case in self._cases])
        kept = np.isfinite(seconds)
        return CommunicationBound(rings=rings[kept], longest=seconds[kept])

    def certificate(self) -> CaseCertificate:
        """The certificate as it stands; cases in which no stage 0 lies fill the gaps between boxes."""
        proofs: dict[PathProof, int] = {}
        cases = []
        for case in self._cases:
            parts = (
                StartSet(nodes=tuple(np.flatnonzero(part.allowed).tolist()), proof=part.tree(proofs))
                for part in case.start_sets
            )
            cases.append(Case.of(case.box, tuple(parts)))
        gaps = [Case.of(box, ()) for box in _gaps(self.graph, [case.box for case in self._cases])]
        return CaseCertificate(proofs=tuple(proofs), boxes=(*cases, *gaps))


def _doublings(fewest: int, most: int) -> list[tuple[int, int]]:
    """Ranges of touched nodes: the fewest alone, then each range twice as long as the one before."""
    ranges, first, length = [], fewest, 1
    while first <= most:
        ranges.append((first, min(first + length - 1, most)))
        first, length = first + length, 2 * length
    return ranges


def _gaps(graph: SlotGraph, boxes: list[Box]) -> Iterator[Box]:
    """Boxes of what the given ones leave out."""
    for k in range(graph.min_touched, graph.max_touched + 1):
        end = 0.0
        for low, high in sorted((box.low, box.high) for box in boxes if box.min_touched <= k <= box.max_touched):
            if low > end:
                yield Box(min_touched=k, max_touched=k, low=end, high=low)
            end = high
        if end < np.inf:
            yield Box(min_touched=k, max_touched=k, low=end, high=np.inf)
