"""
Building the staircase that bounds the communication of any number of nodes.

The staircase and what it proves are those of ``taut.solver.staircase``, (1) to (3). It is refined where it is least
for one G: the proof of a set is tightened, by a forest (``taut.solver.forest``) or by gains (``taut.solver.walks``), or
the box is split, at a threshold or by the number of touched nodes, or its sets are divided into branches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from taut.solver.branches import Split, Tree, divided, reduced
from taut.solver.cliques import least_slowest_link
from taut.solver.forest import Potentials, climb
from taut.solver.slots import Slots, Span
from taut.solver.staircase import Box, CoverBound, Part, PathProof, Staircase, proven, start_sets
from taut.solver.walks import LongestPath

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Key = tuple[int, int, bytes, bytes]
"""Fewest and most touched nodes, start set and required nodes."""
CLIMB_ROUNDS = 600
MOST_SETS = 4
MOST_GROWTH = 1.34
"""Start sets are joined while there are more, or while the union is at most so much larger than the larger one."""
SMALLER = 0.75
"""A step is split where its largest start set falls to this share."""
NARROW = 2e-3
"""Relative distance between proven and unprovable seconds below which a proof is left as it is."""
MOST_BRANCHES = 400
"""Splits of start sets in one staircase, so that every search ends."""
LEVELS = ((96, 256), (192, 128), (1 << 30, 48))
"""Levels R of the proofs that are sought, up to so many nodes."""


@dataclass(slots=True)
class _Branch:
    """A branch under construction: split at ``nodes``, bounded by the path of ``key``, or empty."""

    allowed: Flags
    required: Flags
    key: Key | None = None
    nodes: tuple[int, ...] = ()
    children: tuple["_Branch", ...] = ()

    def leaves(self) -> Iterator["_Branch"]:
        """All branches below that are neither split nor empty."""
        if self.key is not None:
            yield self
        for child in self.children:
            yield from child.leaves()


@dataclass(slots=True)
class _Open:
    """A box under construction, its start sets, and whether those are no longer split."""

    span: Span
    parts: list[_Branch]
    whole: bool = False

    def leaves(self) -> list[_Branch]:
        """All branches that are neither split nor empty."""
        return [leaf for part in self.parts for leaf in part.leaves()]


@dataclass
class Cover:
    """
    A staircase under construction.

    ``gradients`` are the bytes, divided by the trip's weight, for which the staircase is made good; ``value`` is then
    the bound in seconds of hops, and ``target`` that of a known placement, whose longest path takes ``longest``.
    """

    given: Slots
    gradients: float
    target: float
    longest: float
    rounds: int = 0
    _branched: int = 0
    _sets: dict[Key, LongestPath] = field(default_factory=dict)
    _inherited: dict[Key, PathProof] = field(default_factory=dict)
    _boxes: list[_Open] = field(default_factory=list)
    _known_parts: dict[tuple[int, int, float], list[Flags]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given, n = self.given, len(self.given.hops)
        nobody = np.zeros(n, dtype=bool)
        self._pipelines = np.zeros((0, given.pp), np.int64)
        self._rates = np.unique(given.inverse[~np.eye(n, dtype=bool)])
        self._base, self._first = proven(given, ~nobody, nobody, self._everywhere(None)), self._everywhere(None)
        if (given.capacity == 1).all():
            average, potentials = climb(given, longest=self.longest, rounds=CLIMB_ROUNDS)
            if average > self._base:
                self._base, self._first = average, self._everywhere(potentials)
        for fewest, most in _doublings(given.fewest, given.most):
            span = Span(fewest=fewest, most=most, low=self._fastest(fewest), high=np.inf)
            self._boxes.append(_Open(span, [self._leaf(span, nodes, nobody) for nodes in self._parts(span)]))

    def _everywhere(self, by: Potentials | None) -> PathProof:
        touched = (self.given.fewest, self.given.most)
        return PathProof(nodes=tuple(range(len(self.given.hops))), touched=touched, by=by)

    def _fastest(self, fewest: int) -> float:
        """Inverse rate below which no ``fewest`` nodes are linked."""
        return 0.0 if fewest == 1 else least_slowest_link(self.given.inverse, fewest)

    def offer(self, walks: Ints) -> None:
        """Pipelines of a good placement, (any number, pp) nodes."""
        self._pipelines = np.vstack([self._pipelines, walks])
        for path in self._sets.values():
            path.offer(walks)

    def _leaf(self, span: Span, allowed: Flags, required: Flags, parent: Key | None = None) -> _Branch:
        """A branch with its path bound, from what is proven for one that holds it; or an empty one."""
        left = reduced(self.given, span, allowed, required)
        if left is None:
            return _Branch(allowed, required)
        seconds, proof = (self._base, self._first) if parent is None else self._known(parent)
        key = (span.fewest, span.most, left.tobytes(), required.tobytes())
        if key not in self._sets:
            touched = (span.fewest, span.most)
            path = LongestPath(self.given, left, touched, required=required, floor=seconds, levels=self.levels)
            self._sets[key], self._inherited[key] = path, proof
            path.offer(self._pipelines)
        elif self._sets[key].seconds < seconds:
            self._sets[key].seconds, self._sets[key].proof = seconds, None
            self._inherited[key] = proof
        return _Branch(left, required, key)

    def _known(self, key: Key) -> tuple[float, PathProof]:
        """What is proven for a branch, and how."""
        path = self._sets[key]
        if path.proof is None:
            return path.seconds, self._inherited[key]
        nodes, required = (tuple(np.flatnonzero(flags).tolist()) for flags in (path.starts, path.required))
        return path.seconds, PathProof(nodes=nodes, required=required, touched=path.touched, by=path.proof)

    def _divided(self, span: Span, branch: _Branch, allowed: Flags, required: Flags) -> _Branch:
        """The part of a branch with fewer nodes allowed, divided and proven as the branch is."""
        if not branch.children:
            return self._leaf(span, allowed, required, branch.key)
        left = reduced(self.given, span, allowed, required)
        if left is None:
            return _Branch(allowed, required)
        halves = zip(branch.children, divided(span, left, required, branch.nodes), strict=True)
        children = tuple(self._divided(span, child, *half) for child, half in halves)
        return _Branch(left, required, None, branch.nodes, children)

    def _seconds(self, box: _Open) -> float:
        return min((self._sets[leaf.key].seconds for leaf in box.leaves() if leaf.key is not None), default=np.inf)

    def _ring(self, span: Span, slowest: float | None = None) -> float:
        """Seconds of the ring in a box, or with a slowest link, in seconds of hops."""
        return self.gradients * self.given.ring(span, slowest)

    def _value(self, box: _Open) -> float:
        return self._seconds(box) + self._ring(box.span)

    @property
    def levels(self) -> int:
        """Levels R of the proofs that are sought."""
        return next(levels for nodes, levels in LEVELS if len(self.given.hops) < nodes)

    @property
    def value(self) -> float:
        """Bound on hops plus ring, in seconds of hops."""
        return min(map(self._value, self._boxes), default=np.inf)

    def refine(self, *, rounds: int = 20) -> bool:
        """
        Refine once where the staircase is least; returns whether anything is left to refine.

        A box is first split where its start sets become smaller, then more is proven of its sets. Where no more can
        be, the box is split by touched nodes or by what the ring costs, and at last its weakest set into branches.
        """
        index = min(range(len(self._boxes)), key=lambda i: self._value(self._boxes[i]))
        box = self._boxes[index]
        if self._value(box) >= self.target * (1 - 1e-9):
            return False
        if not box.whole:
            self._split_by_sets(index)
            return True
        leaf = min(box.leaves(), key=lambda leaf: self._path(leaf).seconds)
        path = self._path(leaf)
        goal = min(path.ceiling, self.target - self._ring(box.span))
        if goal <= path.seconds * (1 + NARROW):
            return self._split_by_touched(index) or self._split_by_ring(index) or self._branch(box.span, leaf)
        before = path.rounds
        path.raise_towards(goal, rounds=rounds)
        self.rounds += path.rounds - before
        return True

    def _path(self, leaf: _Branch) -> LongestPath:
        assert leaf.key is not None
        return self._sets[leaf.key]

    def _inside(self, span: Span) -> Floats:
        """Rates strictly inside a box, at which it can be split."""
        rates = self._rates
        return rates[(rates > span.low) & (rates < span.high)] if span.most > 1 else rates[:0]

    def _split_by_sets(self, index: int) -> None:
        """Divide a box at the largest threshold below which its largest start set is much smaller, if there is one."""
        box = self._boxes[index]
        box.whole = True
        largest = max(int(part.allowed.sum()) for part in box.parts)
        inside = self._inside(box.span)
        low, high = 0, len(inside)
        while low < high:
            middle = (low + high) // 2
            sizes = [int(part.sum()) for part in self._parts(replace(box.span, high=float(inside[middle])))]
            low, high = (middle + 1, high) if max(sizes, default=0) <= SMALLER * largest else (low, middle)
        if low > 0:
            self._divide(index, float(inside[low - 1]), whole=False)

    def _split_by_touched(self, index: int) -> bool:
        """Divide a box in the middle of its numbers of touched nodes; False for a single one."""
        box = self._boxes[index]
        span = box.span
        if span.fewest == span.most:
            return False
        middle = (span.fewest + span.most) // 2
        halves = []
        for fewest, most in ((span.fewest, middle), (middle + 1, span.most)):
            half = Span(fewest=fewest, most=most, low=max(span.low, self._fastest(fewest)), high=span.high)
            if half.low < half.high:
                halves.append(_Open(half, self._parts_of(box, half)))
        self._boxes[index : index + 1] = [half for half in halves if half.parts]
        return True

    def _split_by_ring(self, index: int) -> bool:
        """Divide a box where the ring closes its upper part, or in the middle; False if it is narrow."""
        box = self._boxes[index]
        span, inside = box.span, self._inside(box.span)
        if not len(inside) or self._ring(span, inside[-1]) - self._ring(span) < NARROW * self.target:
            return False
        closing = self._seconds(box) + np.array([self._ring(span, low) for low in inside]) >= self.target
        halfway = np.searchsorted(inside, 0.5 * (span.low + inside[-1]))
        first = int(np.argmax(closing)) if closing.any() else len(inside)
        # Where the ring closes almost everything the rest is halved, so that start sets become smaller.
        self._divide(index, float(inside[min(first, max(int(halfway), 0), len(inside) - 1)]), whole=True)
        return True

    def _divide(self, index: int, middle: float, *, whole: bool) -> None:
        box = self._boxes[index]
        below = replace(box.span, high=middle)
        parts = self._parts_of(box, below)
        lower = [_Open(below, parts, whole)] if any(True for part in parts for _ in part.leaves()) else []
        self._boxes[index : index + 1] = [*lower, _Open(replace(box.span, low=middle), box.parts, True)]

    def _parts_of(self, box: _Open, span: Span) -> list[_Branch]:
        """Start sets for a part of a box, each with the best that is proven for a set of the box that holds it."""
        nobody = np.zeros(len(self.given.hops), dtype=bool)
        parts = []
        for nodes in self._parts(span):
            left = reduced(self.given, span, nodes, nobody)
            holders = [part for part in box.parts if left is not None and (left <= part.allowed).all()]
            holders = [part for part in holders if any(True for _ in part.leaves())]
            if not holders:
                parts.append(self._leaf(span, nodes, nobody))
            else:
                best = max(holders, key=lambda part: min(self._path(leaf).seconds for leaf in part.leaves()))
                parts.append(self._divided(span, best, nodes, nobody))
        return parts

    def _branch(self, span: Span, leaf: _Branch) -> bool:
        """Split a branch at a node that stage 0 may or may not touch; False if that is settled or was done enough."""
        open_nodes = np.flatnonzero(leaf.allowed & ~leaf.required)
        settled = len(open_nodes) <= (1 if span.most == 1 else 0)
        if settled or self.given.paths != self.given.replicas or self._branched >= MOST_BRANCHES:
            return False
        self._branched += 1
        leaf.nodes = self._undecided(span, leaf, open_nodes)
        halves = divided(span, leaf.allowed, leaf.required, leaf.nodes)
        key, leaf.key = leaf.key, None
        leaf.children = tuple(self._leaf(span, *half, key) for half in halves)
        return True

    def _undecided(self, span: Span, leaf: _Branch, nodes: Ints) -> tuple[int, ...]:
        """Half of the nodes where one is touched; else the one about which the fractional solution says least."""
        begun = self._path(leaf).begun[nodes]
        if span.most == 1:
            return tuple(nodes[np.argsort(-begun, kind="stable")[: len(nodes) // 2]].tolist())
        linked = (self.given.inverse < span.high)[np.ix_(nodes, nodes)].sum(axis=1)
        full = self.given.replicas / span.most
        doubt = np.abs(np.minimum(begun / full, 1.0) - 0.5)
        return (int(nodes[np.lexsort((linked, np.round(doubt, 3)))[0]]),)

    def _parts(self, span: Span) -> list[Flags]:
        """Start sets of a box: the clique sets, joined where they are alike or too many."""
        key = (span.fewest, min(span.most, 2), span.high)
        if key not in self._known_parts:
            self._known_parts[key] = _joined(start_sets(self.given, span))
        return self._known_parts[key]

    def bound(self) -> CoverBound:
        """What is proven so far, as ``bound_of`` derives it from the staircase."""
        rings = np.array([self.given.ring(box.span) for box in self._boxes])
        seconds = np.array([self._seconds(box) for box in self._boxes])
        kept = np.isfinite(seconds)
        return CoverBound(rings=rings[kept], longest=seconds[kept])

    def staircase(self) -> Staircase:
        """The witness as it stands; boxes in which no stage 0 lies fill the gaps."""
        proofs: dict[PathProof, int] = {}
        boxes = []
        for box in self._boxes:
            parts = [Part(nodes=_nodes(part.allowed), tree=self._tree(part, proofs)) for part in box.parts]
            boxes.append(Box(span=box.span, parts=tuple(parts)))
        gaps = tuple(Box(span=span, parts=()) for span in _gaps(self.given, [box.span for box in boxes]))
        return Staircase(proofs=tuple(proofs), boxes=tuple(boxes) + gaps)

    def _tree(self, branch: _Branch, proofs: dict[PathProof, int]) -> Tree:
        if branch.key is not None:
            return proofs.setdefault(self._known(branch.key)[1], len(proofs))
        if not branch.children:
            return None
        some, none = (self._tree(child, proofs) for child in branch.children)
        return Split(nodes=branch.nodes, some=some, none=none)


def _nodes(flags: Flags) -> tuple[int, ...]:
    return tuple(np.flatnonzero(flags).tolist())


def _doublings(fewest: int, most: int) -> list[tuple[int, int]]:
    """Ranges of touched nodes: the fewest alone, then each range twice as long as the one before."""
    ranges, first, length = [], fewest, 1
    while first <= most:
        ranges.append((first, min(first + length - 1, most)))
        first, length = first + length, 2 * length
    return ranges


def _gaps(given: Slots, spans: list[Span]) -> Iterator[Span]:
    """What the spans leave out."""
    for k in range(given.fewest, given.most + 1):
        end = 0.0
        for low, high in sorted((span.low, span.high) for span in spans if span.fewest <= k <= span.most):
            if low > end:
                yield Span(fewest=k, most=k, low=end, high=low)
            end = high
        if end < np.inf:
            yield Span(fewest=k, most=k, low=end, high=np.inf)


def _joined(sets: Flags) -> list[Flags]:
    """Fewer sets that hold the given ones: the two with the smallest union are joined while that adds little."""
    joined = _without_parts(sets)
    while len(joined) > 1:
        table = np.array(joined, dtype=np.int64)
        sizes = table.sum(axis=1)
        unions = sizes[:, None] + sizes[None, :] - table @ table.T
        growth = unions / np.maximum(sizes[:, None], sizes[None, :]) + 9.0 * np.eye(len(joined))
        a, b = np.unravel_index(int(np.argmin(growth)), growth.shape)
        if growth[a, b] > MOST_GROWTH and len(joined) <= MOST_SETS:
            break
        union = joined[a] | joined[b]
        joined = [part for part in joined if not (part <= union).all()] + [union]
    return joined


def _without_parts(sets: Flags) -> list[Flags]:
    """The sets that are in no other, largest first."""
    kept: list[Flags] = []
    for part in sorted(sets, key=lambda s: (-int(s.sum()), s.tobytes())):
        if not any((part <= other).all() for other in kept):
            kept.append(part)
    return kept
