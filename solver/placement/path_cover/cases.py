r"""
Lower bound on communication of any number of nodes: a case distinction over where stage 0 lies.

Sets: slots of nodes, divided among paths (``taut.solver.placement.slots``); stage 0 is the first slots of all paths.
Data: h the weight of a trip, G gradient bytes of stage 0.
Variables, of one placement: T seconds of its longest path, k nodes that stage 0 touches, b the slowest inverse rate
between two of those.
Objective: h T + G ring.

Cases are boxes :math:`[k_i, k_i'] \times [b_i, b_i')` that together hold every (k, b).

(1) In case i, stage 0 lies in one of some start sets: sets of nodes that hold every clique of :math:`k_i` nodes with
    links below :math:`b_i'` (``taut.solver.placement.path_cover.cliques``). Without any, the case is empty.
(2) A start set P may be divided into branches, (4) and (5), some with nodes Q that are touched for certain. In each,
    :math:`T \ge T(P, Q)` by a proof: the shortest hops, a shortest Hamiltonian path (6), crossings between racks
    (``taut.solver.placement.path_cover.racks``), the Held-Karp forest
    (``taut.solver.placement.path_cover.certificate``), or a dual certificate for paths that begin in P and touch
    :math:`k_i` to :math:`k_i'` nodes (``taut.solver.placement.path_cover.certificate``). A proof for a set holds for
    every part of it, for more required nodes, and for every part of the range.
(3) With :math:`\rho_i` the ring bound of box i in seconds per byte, every placement takes

    .. math:: h T + G \, ring \ge \min_i \big( h \min_P T_i(P) + G \rho_i \big)

    for every h and G: one case distinction serves all strategies with the same hops.

``certified_bound`` derives (3) from the certificate alone; ``taut.solver.placement.path_cover.build`` searches for one.

A branch is a set of placements: their touched nodes lie in P, hold Q, and are linked faster than the box's upper
inverse rate b. The box has k to k' touched nodes.

(4) Reduction. Nodes of P that are not linked with all of Q below b, or with fewer than k - 1 others of P, are dropped
    until none is left (a (k - 1)-core). The branch is empty if a node of Q was dropped, if P has fewer than k nodes or
    slots than replicas, if P can be coloured with fewer than k colours, linked nodes differently, or if Q has more
    than k' nodes.
(5) Division. A split at nodes A has a branch that touches none of them, P without A, and one that touches some: Q with
    A for a single node; for k' = 1 the part of P in A.

A single path through all N nodes is bounded by a shortest Hamiltonian path. Let h be the shortest hop of all, and
:math:`d_{ab}` the shortest way from a to b whose steps cost :math:`W_{uv} - h`.

(6) The path makes pp - 1 hops, and those between nodes visit every node at least once, so that

    .. math:: T \ge (pp - 1) h + \min_{\text{orders}} \sum_{i < N} d_{v_i v_{i+1}}.

"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from taut.data.arrays import Flags, Floats
from taut.solver.bounds.multisets import path_lengths, small_multisets
from taut.solver.placement.path_cover.certificate import (
    Cut,
    DualCertificate,
    NodeMultipliers,
    certified_seconds,
    forest_bound,
)
from taut.solver.placement.path_cover.cliques import clique_sets, core, num_greedy_colours
from taut.solver.placement.path_cover.racks import crossing_bound
from taut.solver.placement.slots import Box, SlotGraph

MAX_NODES = 16
"""Nodes up to which (6) is solved by sets (``taut.solver.bounds.multisets``): 2^16 of them take 16 MB."""


class Section(BaseModel):
    """A part of a witness, as it stands in a file."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, defer_build=True)


class Split(Section):
    """A division (5) at nodes; a branch is a further split, the number of a proof, or None where it is empty."""

    touching: tuple[int, ...]
    some: "Split | int | None"
    none: "Split | int | None"


Tree = Split | int | None


def reduced(graph: SlotGraph, box: Box, allowed: Flags, required: Flags) -> Flags | None:
    """The nodes (N,) of P ``allowed`` that are left of a branch with Q ``required``, (4); None for an empty branch."""
    left = allowed
    if box.max_touched > 1:
        same = np.eye(len(allowed), dtype=bool)
        linked = (graph.inverse < box.high) & ~same
        left = core(linked, allowed & (linked | same)[required].all(axis=0), box.min_touched)
        if num_greedy_colours(linked, left) < box.min_touched:
            return None
    enough = left.sum() >= box.min_touched and graph.capacity[left].sum() >= graph.replicas
    return left if enough and required.sum() <= box.max_touched and (required <= left).all() else None


def divided(box: Box, allowed: Flags, required: Flags, nodes: tuple[int, ...]) -> tuple[tuple[Flags, Flags], ...]:
    """P and Q (N,) of the branch that touches some of the ``nodes`` A, and of the one that touches none, (5)."""
    chosen = np.zeros(len(allowed), dtype=bool)
    chosen[list(nodes)] = True
    some = (allowed & chosen, required) if box.max_touched == 1 else (allowed, required | chosen)
    return some, (allowed & ~chosen, required)


class Rule(Section):
    """A cut by its nodes, whether it is ``Cut.mir``, and its price."""

    nodes: tuple[int, ...]
    begun: bool
    gain: int


class PathProof(Section):
    """
    A proof of (2) for the start set ``nodes``, ``required`` ones among them, and a range [k, k'] of ``touched`` nodes.

    ``potentials`` are ``NodeMultipliers.values``; the rest are the figures of a ``DualCertificate``: ``quantum``,
    ``limit``, ``later``, ``first`` where it differs, and ``cuts``.
    """

    nodes: tuple[int, ...]
    required: tuple[int, ...] = ()
    touched: tuple[int, int]
    potentials: tuple[int, ...] | None = None
    quantum_s: float | None = None
    levels: int | None = None
    gains: tuple[tuple[int, ...], ...] | None = None
    first_gains: tuple[tuple[int, ...], ...] | None = None
    rules: tuple[Rule, ...] = ()

    @classmethod
    def of(
        cls,
        nodes: tuple[int, ...],
        required: tuple[int, ...],
        touched: tuple[int, int],
        by: NodeMultipliers | DualCertificate | None,
    ) -> "PathProof":
        """The proof by multipliers or a certificate, with the figures alone that there are."""
        figures: dict[str, Any] = {}
        if isinstance(by, NodeMultipliers):
            figures = {"potentials": by.values}
        elif by is not None:
            figures = {"quantum_s": float(by.quantum), "levels": by.limit, "gains": by.later}
            figures |= {} if by.first is None else {"first_gains": by.first}
            rules = tuple(Rule(nodes=cut.nodes, begun=cut.mir, gain=dual) for cut, dual in by.cuts)
            figures |= {"rules": rules} if rules else {}
        return cls(nodes=nodes, required=required, touched=touched, **figures)

    @property
    def by(self) -> NodeMultipliers | DualCertificate | None:
        """What proves it; None for the shortest hops, a shortest Hamiltonian path or the crossings between racks."""
        if self.potentials is not None:
            return NodeMultipliers(values=self.potentials)
        if self.quantum_s is None or self.levels is None or self.gains is None:
            return None
        cuts = tuple((Cut(nodes=rule.nodes, mir=rule.begun), rule.gain) for rule in self.rules)
        return DualCertificate(
            quantum=self.quantum_s, limit=self.levels, later=self.gains, first=self.first_gains, cuts=cuts
        )


class StartSet(Section):
    """One start set of a case, and how it is divided and proven."""

    nodes: tuple[int, ...]
    proof: Split | int | None


def start_sets(graph: SlotGraph, box: Box) -> Flags:
    """Flags (sets, N) of the start sets of a box, (1)."""
    n = len(graph.hops)
    if box.max_touched == 1:
        fits = graph.capacity >= graph.replicas
        return fits[None, :] if fits.any() else np.zeros((0, n), dtype=bool)
    sets = clique_sets(graph.inverse, box.high, box.min_touched)
    # Groups that fill several nodes begin in as many cliques, which need not lie in one set.
    several = graph.num_paths > graph.replicas and len(sets) > 0
    return np.asarray(sets.any(axis=0, keepdims=True)) if several else sets


class Case(Section):
    """One case: its box, up to infinity without ``below_s_per_byte``, and start sets that hold stage 0, (1)."""

    touched: tuple[int, int]
    from_s_per_byte: float
    below_s_per_byte: float | None
    parts: tuple[StartSet, ...]

    @classmethod
    def of(cls, box: Box, parts: tuple[StartSet, ...]) -> "Case":
        """The case of a box."""
        below, touched = float(box.high) if np.isfinite(box.high) else None, (box.min_touched, box.max_touched)
        return cls(touched=touched, from_s_per_byte=float(box.low), below_s_per_byte=below, parts=parts)

    @property
    def box(self) -> Box:
        """Numbers of touched nodes, and slowest inverse rates."""
        high = np.inf if self.below_s_per_byte is None else self.below_s_per_byte
        return Box(min_touched=self.touched[0], max_touched=self.touched[1], low=self.from_s_per_byte, high=high)


class CaseCertificate(Section):
    """The certificate of (3): numbered proofs, and cases whose ``boxes`` hold every (k, b)."""

    proofs: tuple[PathProof, ...]
    boxes: tuple[Case, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationBound:
    """What a certificate proves of its cases: rings in seconds per byte, longest paths in seconds, (cases,) each."""

    rings: Floats
    longest: Floats

    def seconds(self, weight: float, gradients: Floats) -> Floats:
        """Seconds of communication at least, (3), for gradient bytes G of any shape."""
        return np.asarray((weight * self.longest + np.multiply.outer(gradients, self.rings)).min(axis=-1))


def certified_bound(graph: SlotGraph, certificate: CaseCertificate) -> CommunicationBound | None:
    """The bound that a certificate from anyone proves; None where something is missing, unproven, or all is empty."""
    n, cases, proofs = len(graph.hops), certificate.boxes, certificate.proofs
    sets = [proof.nodes for proof in proofs] + [proof.required for proof in proofs]
    sets += [part.nodes for case in cases for part in case.parts]
    if not all(_is_set(nodes, n) for nodes in sets) or not _whole(graph, [case.box for case in cases]):
        return None
    known = [_CheckedProof(graph, proof) for proof in proofs]
    longest = [_case_seconds(graph, case, known) for case in cases]
    kept = np.isfinite(longest)
    if not kept.any() or np.isneginf(longest).any():
        return None
    rings = np.array([graph.ring_bound(case.box) for case in cases])
    return CommunicationBound(rings=rings[kept], longest=np.array(longest)[kept])


class _CheckedProof:
    """What a proof proves, for which branches."""

    def __init__(self, graph: SlotGraph, proof: PathProof) -> None:
        n = len(graph.hops)
        self._starts, self._required = flags_of(proof.nodes, n), flags_of(proof.required, n)
        self._touched = proof.touched
        self._seconds = proof_seconds(graph, self._starts, self._required, proof)

    def seconds(self, box: Box, allowed: Flags, required: Flags) -> float:
        """Seconds of the longest path in a branch, minus infinity where the proof does not reach."""
        ranges = self._touched[0] <= box.min_touched and box.max_touched <= self._touched[1]
        holds = ranges and (allowed <= self._starts).all() and (self._required <= required).all()
        return self._seconds if holds else -np.inf


def _case_seconds(graph: SlotGraph, case: Case, known: list[_CheckedProof]) -> float:
    """Seconds of the longest path in a case, infinite for an empty one, minus infinity where something is unproven."""
    n, box, least = len(graph.hops), case.box, np.inf
    stated = [(flags_of(part.nodes, n), part.proof) for part in case.parts]
    for start_set in start_sets(graph, box):
        left = reduced(graph, box, start_set, np.zeros_like(start_set))
        if left is None:
            continue
        if not any((left <= nodes).all() for nodes, _ in stated):
            return -np.inf
        least = min([least] + [_tree_seconds(graph, box, *entry, known) for entry in stated])
    return least


def _tree_seconds(graph: SlotGraph, box: Box, allowed: Flags, tree: Tree, known: list[_CheckedProof]) -> float:
    """Seconds of the longest path in all branches of a tree; ``allowed`` is that of its root."""
    least, branches = np.inf, [(allowed, np.zeros_like(allowed), tree)]
    while branches:
        allowed, required, tree = branches.pop()
        left = reduced(graph, box, allowed, required)
        if left is None:
            continue
        if isinstance(tree, Split):
            single = box.max_touched == 1 or len(tree.touching) == 1
            if not single or not _is_set(tree.touching, len(allowed)) or graph.num_paths != graph.replicas:
                return -np.inf
            some, none = divided(box, left, required, tree.touching)
            branches += [(*some, tree.some), (*none, tree.none)]
        elif tree is None or not 0 <= tree < len(known):
            return -np.inf
        else:
            least = min(least, known[tree].seconds(box, left, required))
    return least


def _whole(graph: SlotGraph, boxes: list[Box]) -> bool:
    """Whether the boxes hold every possible number of touched nodes and every inverse rate from zero on."""
    if not all(box.min_touched <= box.max_touched and box.low < box.high for box in boxes):
        return False
    for k in range(graph.min_touched, graph.max_touched + 1):
        ranges = sorted((box.low, box.high) for box in boxes if box.min_touched <= k <= box.max_touched)
        if not ranges or ranges[0][0] != 0.0 or ranges[-1][1] != np.inf:
            return False
        if any(high != low for (_, high), (low, _) in pairwise(ranges)):
            return False
    return all(graph.min_touched <= box.min_touched and box.max_touched <= graph.max_touched for box in boxes)


def _is_set(nodes: tuple[int, ...], n: int) -> bool:
    return len(set(nodes)) == len(nodes) and all(0 <= v < n for v in nodes)


def flags_of(nodes: tuple[int, ...], n: int) -> Flags:
    """Flags (n,) of a set of nodes."""
    flags = np.zeros(n, dtype=bool)
    flags[list(nodes)] = True
    return flags


def proof_seconds(graph: SlotGraph, starts: Flags, required: Flags, proof: PathProof) -> float:
    """Seconds of the longest path that a proof for P and Q (N,) proves, minus infinity where it proves nothing."""
    by = proof.by
    if by is None:
        return max((graph.pp - 1) * graph.shortest_hop(), _hamiltonian_path_bound(graph), crossing_bound(graph))
    if isinstance(by, NodeMultipliers):
        return forest_bound(graph, by)
    return certified_seconds(graph, starts, required, graph.touched_by_all(*proof.touched), by)


def _hamiltonian_path_bound(graph: SlotGraph) -> float:
    """Seconds of a single path at least, (6); minus infinity for several, one node, or over ``MAX_NODES``."""
    n = len(graph.hops)
    if graph.num_paths != 1 or not 1 < n <= MAX_NODES:
        return -np.inf
    inside = graph.shortest_hop()
    further = np.where(np.eye(n, dtype=bool), 0.0, graph.hops - inside)
    for via in range(n):
        further = np.minimum(further, further[:, via, None] + further[None, via])
    once = np.ones(n, np.int64)
    shortest = path_lengths(further, once, *small_multisets(once, n))[:, -1].min()
    return float((shortest + (graph.pp - 1) * inside) * (1 - 1e-12))
