r"""
Branches: a start set divided by which nodes stage 0 touches.

A branch is a set of placements: those whose touched nodes lie in P, hold Q, and are linked faster than the box's upper
inverse rate b. The box has k to k' touched nodes (``taut.solver.placement.path_cover.cases``).

(1) Reduction. Nodes of P that are not linked with all of Q below b, or with fewer than k - 1 others of P, are dropped
    until none is left (a (k - 1)-core). The branch is empty if a node of Q was dropped, if P has fewer than k nodes or
    slots than replicas, if P can be coloured with fewer than k colours, linked nodes differently, or if Q has more
    than k' nodes.
(2) Division. A split at nodes A has a branch that touches none of them, P without A, and one that touches some: Q with
    A for a single node; for k' = 1 the part of P in A.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags
from taut.solver.placement.path_cover.cliques import core, num_greedy_colours
from taut.solver.placement.slots import Box, SlotGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A division (2) at ``nodes``; a branch is a further split, the number of a proof, or None where it is empty."""

    nodes: tuple[int, ...]
    some: "Tree"
    none: "Tree"


Tree = Split | int | None


def reduced(graph: SlotGraph, box: Box, allowed: Flags, required: Flags) -> Flags | None:
    """
    Reduce a branch, (1).

    ``box``: touched nodes and inverse rates; ``allowed``, ``required``: P and Q, (N,). Returns the nodes of P that are
    left, (N,); None for an empty branch.
    """
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
    """
    Divide a branch, (2).

    ``box``: touched nodes and inverse rates; ``allowed``, ``required``: P and Q, (N,); ``nodes``: A; a single node
    unless k' = 1. Returns P and Q of the branch that touches some of the nodes, and of the one that touches none.
    """
    chosen = np.zeros(len(allowed), dtype=bool)
    chosen[list(nodes)] = True
    some = (allowed & chosen, required) if box.max_touched == 1 else (allowed, required | chosen)
    return some, (allowed & ~chosen, required)
