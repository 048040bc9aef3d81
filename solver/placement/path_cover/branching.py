"""
Branches under construction: start sets with what is proven of their longest path, and how they are split.

Branches, their reduction and their splits are those of ``taut.solver.placement.path_cover.branches``, (1) and (2).
Equal branches share one ``LongestPath``; a part of a branch begins with what is proven for the whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.solver.placement.path_cover.branches import Split, Tree, divided, reduced
from taut.solver.placement.path_cover.capacity_cuts import RuleBook
from taut.solver.placement.path_cover.cases import PathProof, proven
from taut.solver.placement.path_cover.forest import Potentials, climb
from taut.solver.placement.path_cover.path_bound import LongestPath
from taut.solver.placement.slots import Slots, Span

CLIMB_ROUNDS = 600
MOST_SPLITS = 400
"""Splits of start sets in one staircase, so that every search ends."""
LEVELS = ((96, 256), (192, 128), (1 << 30, 48))
"""Levels R of the proofs that are sought, up to so many nodes."""


@dataclass(slots=True)
class Branch:
    """A branch: bounded by its path, split at ``nodes`` into children, or empty."""

    allowed: Flags
    required: Flags
    path: LongestPath | None = None
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
        """The branch as a witness; its proofs are added to the numbered ones."""
        if self.path is not None:
            return proofs.setdefault(self.path.evidence, len(proofs))
        if not self.children:
            return None
        some, none = (child.tree(proofs) for child in self.children)
        return Split(nodes=self.nodes, some=some, none=none)


class Branching:
    """All branches of one staircase; ``longest`` is the longest path of a known placement."""

    def __init__(self, given: Slots, longest: float) -> None:
        self._given, self._splits = given, 0
        self._paths: dict[tuple[int, int, bytes, bytes], LongestPath] = {}
        self._book = RuleBook(given)
        self._pipelines = np.zeros((0, given.pp), np.int64)
        nobody = np.zeros(len(given.hops), dtype=bool)
        self._everywhere = _everywhere(given, None)
        self._seconds = proven(given, ~nobody, nobody, self._everywhere)
        if (given.capacity == 1).all():
            average, potentials = climb(given, longest=longest, rounds=CLIMB_ROUNDS)
            if average > self._seconds:
                self._seconds, self._everywhere = average, _everywhere(given, potentials)

    @property
    def levels(self) -> int:
        """Levels R of the proofs that are sought."""
        return next(levels for nodes, levels in LEVELS if len(self._given.hops) < nodes)

    def offer(self, walks: Ints) -> None:
        """Pipelines of a good placement, (any number, pp) nodes."""
        self._pipelines = np.vstack([self._pipelines, walks])
        for path in self._paths.values():
            path.offer(walks)

    def leaf(self, span: Span, allowed: Flags, required: Flags, parent: LongestPath | None = None) -> Branch:
        """A branch with its path bound, from what is proven for one that holds it; or an empty one."""
        left = reduced(self._given, span, allowed, required)
        if left is None:
            return Branch(allowed, required)
        seconds = self._seconds if parent is None else parent.seconds
        evidence = self._everywhere if parent is None else parent.evidence
        key = (span.fewest, span.most, left.tobytes(), required.tobytes())
        if key not in self._paths:
            touched = (span.fewest, span.most)
            path = LongestPath(
                self._given, left, required, touched, seconds, evidence, levels=self.levels, book=self._book
            )
            path.offer(self._pipelines)
            self._paths[key] = path
        self._paths[key].accept(seconds, evidence)
        return Branch(left, required, self._paths[key])

    def part(self, span: Span, branch: Branch, allowed: Flags, required: Flags) -> Branch:
        """The part of a branch with fewer nodes allowed, divided and proven as the branch is."""
        if not branch.children:
            return self.leaf(span, allowed, required, branch.path)
        left = reduced(self._given, span, allowed, required)
        if left is None:
            return Branch(allowed, required)
        halves = zip(branch.children, divided(span, left, required, branch.nodes), strict=True)
        children = tuple(self.part(span, child, *half) for child, half in halves)
        return Branch(left, required, None, branch.nodes, children)

    def split(self, span: Span, leaf: Branch) -> bool:
        """Split a branch at a node that stage 0 may or may not touch; False if that is settled or was done enough."""
        nodes, path = np.flatnonzero(leaf.allowed & ~leaf.required), leaf.path
        settled = len(nodes) <= (1 if span.most == 1 else 0)
        if path is None or settled or self._given.paths != self._given.replicas or self._splits >= MOST_SPLITS:
            return False
        self._splits += 1
        leaf.nodes, leaf.path = self._undecided(span, path, nodes), None
        halves = divided(span, leaf.allowed, leaf.required, leaf.nodes)
        leaf.children = tuple(self.leaf(span, *half, path) for half in halves)
        return True

    def _undecided(self, span: Span, path: LongestPath, nodes: Ints) -> tuple[int, ...]:
        """Half of the nodes where one is touched; else the one about which the fractional solution says least."""
        begun = path.begun[nodes]
        if span.most == 1:
            return tuple(nodes[np.argsort(-begun, kind="stable")[: len(nodes) // 2]].tolist())
        linked = (self._given.inverse < span.high)[np.ix_(nodes, nodes)].sum(axis=1)
        full = self._given.replicas / span.most
        doubt = np.abs(np.minimum(begun / full, 1.0) - 0.5)
        return (int(nodes[np.lexsort((linked, np.round(doubt, 3)))[0]]),)


def _everywhere(given: Slots, by: Potentials | None) -> PathProof:
    return PathProof(nodes=tuple(range(len(given.hops))), touched=(given.fewest, given.most), by=by)
