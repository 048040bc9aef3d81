r"""
Communication of any number of nodes: pipelines as a cover of all slots by paths, stage 0 as a clique.

Of a placement on slots (``taut.solver.placement.slots``), let T be the seconds of the longest path, k the nodes that
stage 0 touches and b the slowest inverse rate between them. Boxes :math:`[k_i, k_i'] \times [b_i, b_i')` hold all (k,
b).

(1) Sets of nodes that hold every clique of :math:`k_i` nodes or more with links below :math:`b_i'`
    (``taut.solver.placement.path_cover.cliques``) hold stage 0 of every placement in box i; with no such set the box is
    empty.
(2) Each set P may be divided into branches (``taut.solver.placement.path_cover.branches``), some with nodes Q that are
    touched for certain. In each, :math:`T \ge T(P, Q)` by a proof: the least hops or the shortest way through all nodes
    (``taut.solver.placement.path_cover.hamiltonian``), potentials (``taut.solver.placement.path_cover.forest``), or
    gains for paths that begin in P and touch :math:`k_i` to :math:`k_i'` nodes
    (``taut.solver.placement.path_cover.certificate``). A proof for a set holds for every part of it, for more required
    nodes, and for every part of the range.
(3) Every placement takes h T + G ring >= min over boxes of h min_P T(P) + G :math:`\rho(k_i, k_i', b_i)`, for every
    weight h of the trip and every number G of gradient bytes: one staircase serves all strategies with the same hops.

``bound_of`` derives (3) from the staircase alone, which is the witness; ``taut.solver.placement.path_cover.build``
builds it.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.solver.placement.path_cover.branches import Split, Tree, divided, reduced
from taut.solver.placement.path_cover.certificate import Refutation, refuted_seconds
from taut.solver.placement.path_cover.cliques import clique_sets
from taut.solver.placement.path_cover.forest import Potentials, forest_seconds
from taut.solver.placement.path_cover.hamiltonian import through_seconds
from taut.solver.placement.slots import Slots, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class PathProof:
    """A proof of (2) for the start set ``nodes``, ``required`` ones among them, and a range of ``touched`` nodes.

    Without ``by`` it is that of the least hops, or of the shortest way through all nodes.
    """

    nodes: tuple[int, ...]
    required: tuple[int, ...] = ()
    touched: tuple[int, int]
    by: Potentials | Refutation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One start set of a box, and how it is divided and proven."""

    nodes: tuple[int, ...]
    tree: Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One box of (1)."""

    span: Span
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staircase:
    """The whole witness: proofs, and boxes that hold every number of touched nodes and every slowest link."""

    proofs: tuple[PathProof, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverBound:
    """Derived staircase: ring seconds per byte, and seconds of the longest path, in each box that is not empty."""

    rings: Floats
    longest: Floats

    def seconds(self, weight: float, gradients: Floats) -> Floats:
        """Least communication (3) for each number of gradient bytes."""
        return np.asarray((weight * self.longest + np.multiply.outer(gradients, self.rings)).min(axis=-1))


def bound_of(given: Slots, staircase: Staircase) -> CoverBound | None:
    """Derive the staircase again; None where it does not prove what it claims."""
    n, boxes, proofs = len(given.hops), staircase.boxes, staircase.proofs
    sets = [proof.nodes for proof in proofs] + [proof.required for proof in proofs]
    sets += [part.nodes for box in boxes for part in box.parts]
    if not all(_is_set(nodes, n) for nodes in sets) or not _whole(given, [box.span for box in boxes]):
        return None
    known = [_Proven(given, proof) for proof in proofs]
    longest = [_box_seconds(given, box, known) for box in boxes]
    kept = np.isfinite(longest)
    if not kept.any() or np.isneginf(longest).any():
        return None
    rings = np.array([given.ring(box.span) for box in boxes])
    return CoverBound(rings=rings[kept], longest=np.array(longest)[kept])


class _Proven:
    """What a proof proves, for which branches."""

    def __init__(self, given: Slots, proof: PathProof) -> None:
        n = len(given.hops)
        self._starts, self._required = flags_of(proof.nodes, n), flags_of(proof.required, n)
        self._touched = proof.touched
        self._seconds = proven(given, self._starts, self._required, proof)

    def seconds(self, span: Span, allowed: Flags, required: Flags) -> float:
        """Seconds of the longest path in a branch, minus infinity where the proof does not reach."""
        ranges = self._touched[0] <= span.fewest and span.most <= self._touched[1]
        holds = ranges and (allowed <= self._starts).all() and (self._required <= required).all()
        return self._seconds if holds else -np.inf


def _box_seconds(given: Slots, box: Box, known: list[_Proven]) -> float:
    """Seconds of the longest path in a box, infinite for an empty one, minus infinity where something is unproven."""
    n, least = len(given.hops), np.inf
    parts = [(flags_of(part.nodes, n), part.tree) for part in box.parts]
    for start_set in start_sets(given, box.span):
        left = reduced(given, box.span, start_set, np.zeros_like(start_set))
        if left is None:
            continue
        if not any((left <= nodes).all() for nodes, _ in parts):
            return -np.inf
        least = min([least] + [_tree_seconds(given, box.span, *part, known) for part in parts])
    return least


def _tree_seconds(given: Slots, span: Span, allowed: Flags, tree: Tree, known: list[_Proven]) -> float:
    """Seconds of the longest path in all branches of a tree; ``allowed`` is that of its root."""
    least, branches = np.inf, [(allowed, np.zeros_like(allowed), tree)]
    while branches:
        allowed, required, tree = branches.pop()
        left = reduced(given, span, allowed, required)
        if left is None:
            continue
        if isinstance(tree, Split):
            single = span.most == 1 or len(tree.nodes) == 1
            if not single or not _is_set(tree.nodes, len(allowed)) or given.paths != given.replicas:
                return -np.inf
            some, none = divided(span, left, required, tree.nodes)
            branches += [(*some, tree.some), (*none, tree.none)]
        elif tree is None or not 0 <= tree < len(known):
            return -np.inf
        else:
            least = min(least, known[tree].seconds(span, left, required))
    return least


def _whole(given: Slots, spans: list[Span]) -> bool:
    """Whether the boxes hold every number of touched nodes that is possible and every rate from zero on."""
    if not all(span.fewest <= span.most and span.low < span.high for span in spans):
        return False
    for k in range(given.fewest, given.most + 1):
        ranges = sorted((span.low, span.high) for span in spans if span.fewest <= k <= span.most)
        if not ranges or ranges[0][0] != 0.0 or ranges[-1][1] != np.inf:
            return False
        if any(high != low for (_, high), (low, _) in pairwise(ranges)):
            return False
    return all(given.fewest <= span.fewest and span.most <= given.most for span in spans)


def _is_set(nodes: tuple[int, ...], n: int) -> bool:
    return len(set(nodes)) == len(nodes) and all(0 <= v < n for v in nodes)


def flags_of(nodes: tuple[int, ...], n: int) -> Flags:
    """A set of nodes as flags, (n,)."""
    flags = np.zeros(n, dtype=bool)
    flags[list(nodes)] = True
    return flags


def start_sets(given: Slots, span: Span) -> Flags:
    """The sets of (1), (sets, N)."""
    n = len(given.hops)
    if span.most == 1:
        fits = given.capacity >= given.replicas
        return fits[None, :] if fits.any() else np.zeros((0, n), dtype=bool)
    sets = clique_sets(given.inverse, span.high, span.fewest)
    # Groups that fill several nodes begin in as many cliques, which need not lie in one set.
    several = given.paths > given.replicas and len(sets) > 0
    return np.asarray(sets.any(axis=0, keepdims=True)) if several else sets


def proven(given: Slots, starts: Flags, required: Flags, proof: PathProof) -> float:
    """Seconds that a proof proves, minus infinity where it proves nothing."""
    if proof.by is None:
        return max((given.pp - 1) * given.least_hop(), through_seconds(given))
    if isinstance(proof.by, Potentials):
        return forest_seconds(given, proof.by)
    return refuted_seconds(given, starts, required, given.touched(*proof.touched), proof.by)
