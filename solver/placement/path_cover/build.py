"""
Building the staircase that bounds the communication of any number of nodes.

The staircase and what it proves are those of ``taut.solver.placement.path_cover.cases``, (1) to (3). It is refined
where it is least for one G: the proof of a set is tightened, by a forest (``taut.solver.placement.path_cover.forest``)
or by gains (``taut.solver.placement.path_cover.path_bound``), or the box is split, at a threshold or by the number of
touched nodes, or its sets are divided into branches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.solver.placement.path_cover.branches import reduced
from taut.solver.placement.path_cover.branching import Branch, Branching
from taut.solver.placement.path_cover.cases import Box, CoverBound, Part, PathProof, Staircase, start_sets
from taut.solver.placement.path_cover.cliques import joined, least_slowest_link
from taut.solver.placement.path_cover.path_bound import LongestPath
from taut.solver.placement.slots import Slots, Span

SMALLER = 0.75
"""A step is split where its largest start set falls to this share."""
NARROW = 2e-3
"""Relative distance between proven and unprovable seconds below which a proof is left as it is."""


@dataclass(slots=True)
class _Open:
    """A box under construction, its start sets, and whether those are no longer split."""

    span: Span
    parts: list[Branch]
    whole: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of the longest path that are proven in the box."""
        return min((part.seconds for part in self.parts), default=np.inf)

    @property
    def empty(self) -> bool:
        """Whether no stage 0 lies in the box."""
        return not any(True for part in self.parts for _ in part.leaves())

    def paths(self) -> Iterator[tuple[Branch, LongestPath]]:
        """Branches that are neither split nor empty, and their paths."""
        for part in self.parts:
            yield from ((leaf, leaf.path) for leaf in part.leaves() if leaf.path is not None)


class Cover:
    """
    A staircase under construction.

    ``gradients`` are the bytes, divided by the trip's weight, for which the staircase is made good; ``value`` is then
    the bound in seconds of hops, and ``target`` that of a known placement, whose longest path takes ``longest``.
    """

    def __init__(self, *, given: Slots, gradients: float, target: float, longest: float) -> None:
        self.given, self.gradients, self.target = given, gradients, target
        self._branching = Branching(given, longest)
        self._rates = np.unique(given.inverse[~np.eye(len(given.hops), dtype=bool)])
        self._sets: dict[tuple[int, int, float], list[Flags]] = {}
        self._boxes = [self._opened(fewest, most) for fewest, most in _doublings(given.fewest, given.most)]

    @property
    def levels(self) -> int:
        """Levels R of the proofs that are sought."""
        return self._branching.levels

    def offer(self, walks: Ints) -> None:
        """Pipelines of a good placement, (any number, pp) nodes."""
        self._branching.offer(walks)

    def _opened(self, fewest: int, most: int) -> _Open:
        """The box of all links from the fastest possible on."""
        span = Span(fewest=fewest, most=most, low=self._fastest(fewest), high=np.inf)
        nobody = np.zeros(len(self.given.hops), dtype=bool)
        return _Open(span, [self._branching.leaf(span, nodes, nobody) for nodes in self._start_sets(span)])

    def _fastest(self, fewest: int) -> float:
        """Inverse rate below which no ``fewest`` nodes are linked."""
        return 0.0 if fewest == 1 else least_slowest_link(self.given.inverse, fewest)

    def _ring(self, span: Span, slowest: float | None = None) -> float:
        """Seconds of the ring in a box, or with a slowest link, in seconds of hops."""
        return self.gradients * self.given.ring(span, slowest)

    def _value(self, box: _Open) -> float:
        return box.seconds + self._ring(box.span)

    @property
    def value(self) -> float:
        """Bound on hops plus ring, in seconds of hops."""
        return min(map(self._value, self._boxes), default=np.inf)

    def refine(self, *, rounds: int = 20) -> bool:
        """
        Refine once where the staircase is least; returns whether anything is left to refine.

        A box is first split where its start sets become smaller, then more is proven of its sets, up to the least that
        some set cannot be proven to exceed. There the box of that set is split by touched nodes or by what the ring
        costs, and at last the set into branches.
        """
        index = min(range(len(self._boxes)), key=lambda i: self._value(self._boxes[i]))
        box = self._boxes[index]
        if self._value(box) >= self.target * (1 - 1e-9):
            return False
        if not box.whole:
            self._split_by_sets(index)
            return True
        path = min((path for _, path in box.paths()), key=lambda path: path.seconds)
        reach, hardest, leaf = self._hardest()
        goal = min(self.target, reach) - self._ring(box.span)
        if goal > path.seconds * (1 + NARROW):
            path.raise_towards(goal, rounds=rounds)
            return True
        span = self._boxes[hardest].span
        split = self._split_by_touched(hardest) or self._split_by_ring(hardest) or self._branching.split(span, leaf)
        return split or (leaf.path is not None and leaf.path.sharpen())

    def _hardest(self) -> tuple[float, int, Branch]:
        """What the value cannot exceed without a split, and the box and the branch that hold it there."""
        ends = (
            (ring + max(path.ceiling, path.seconds), index, leaf)
            for index, (box, ring) in enumerate((box, self._ring(box.span)) for box in self._boxes)
            for leaf, path in box.paths()
        )
        return min(ends, key=lambda end: end[0])

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
            sizes = [int(part.sum()) for part in self._start_sets(replace(box.span, high=float(inside[middle])))]
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
        closing = box.seconds + np.array([self._ring(span, low) for low in inside]) >= self.target
        halfway = np.searchsorted(inside, 0.5 * (span.low + inside[-1]))
        first = int(np.argmax(closing)) if closing.any() else len(inside)
        # Where the ring closes almost everything the rest is halved, so that start sets become smaller.
        self._divide(index, float(inside[min(first, max(int(halfway), 0), len(inside) - 1)]), whole=True)
        return True

    def _divide(self, index: int, middle: float, *, whole: bool) -> None:
        box = self._boxes[index]
        below = replace(box.span, high=middle)
        lower = _Open(below, self._parts_of(box, below), whole)
        upper = _Open(replace(box.span, low=middle), box.parts, True)
        self._boxes[index : index + 1] = [upper] if lower.empty else [lower, upper]

    def _parts_of(self, box: _Open, span: Span) -> list[Branch]:
        """Start sets for a part of a box, each with the best that is proven for a set of the box that holds it."""
        nobody = np.zeros(len(self.given.hops), dtype=bool)
        parts = []
        for nodes in self._start_sets(span):
            left = reduced(self.given, span, nodes, nobody)
            holders = [part for part in box.parts if left is not None and (left <= part.allowed).all()]
            best = max(holders, key=lambda part: part.seconds, default=None)
            if best is None or not np.isfinite(best.seconds):
                parts.append(self._branching.leaf(span, nodes, nobody))
            else:
                parts.append(self._branching.part(span, best, nodes, nobody))
        return parts

    def _start_sets(self, span: Span) -> list[Flags]:
        """Start sets of a box: the clique sets, joined where they are alike or too many."""
        key = (span.fewest, min(span.most, 2), span.high)
        if key not in self._sets:
            self._sets[key] = joined(start_sets(self.given, span))
        return self._sets[key]

    def bound(self) -> CoverBound:
        """What is proven so far, as ``bound_of`` derives it from the staircase."""
        rings = np.array([self.given.ring(box.span) for box in self._boxes])
        seconds = np.array([box.seconds for box in self._boxes])
        kept = np.isfinite(seconds)
        return CoverBound(rings=rings[kept], longest=seconds[kept])

    def staircase(self) -> Staircase:
        """The witness as it stands; boxes in which no stage 0 lies fill the gaps."""
        proofs: dict[PathProof, int] = {}
        boxes = []
        for box in self._boxes:
            nodes = [tuple(np.flatnonzero(part.allowed).tolist()) for part in box.parts]
            parts = [Part(nodes=n, tree=part.tree(proofs)) for n, part in zip(nodes, box.parts, strict=True)]
            boxes.append(Box(span=box.span, parts=tuple(parts)))
        gaps = tuple(Box(span=span, parts=()) for span in _gaps(self.given, [box.span for box in boxes]))
        return Staircase(proofs=tuple(proofs), boxes=tuple(boxes) + gaps)


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
