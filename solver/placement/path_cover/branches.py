r"""
Branches: the start sets of a box, divided by whether stage 0 touches a node.

A branch holds the placements whose touched nodes lie in the set P and hold the set Q, with links below b.

(1) Nodes of P that are not linked with all of Q below b, or with fewer than k - 1 others of P, are dropped until none
    is left. The branch is empty if a node of Q was dropped, if P has fewer than k nodes or slots than replicas, if it
    can be coloured with fewer than k colours, linked nodes unlike, or if Q has more than k' nodes.
(2) A split at nodes A has a branch that touches none of them, P without A, and one that touches some: Q with A for a
    single node; for k' = 1 the part of P in A.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags
from taut.solver.placement.path_cover.cliques import colours, core
from taut.solver.placement.slots import Slots, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A split (2); a branch is a further split, the number of a proof, or nothing where it is empty."""

    nodes: tuple[int, ...]
    some: "Tree"
    none: "Tree"


Tree = Split | int | None


def reduced(given: Slots, span: Span, allowed: Flags, required: Flags) -> Flags | None:
    """P after (1), None for an empty branch."""
    left = allowed
    if span.most > 1:
        same = np.eye(len(allowed), dtype=bool)
        linked = (given.inverse < span.high) & ~same
        left = core(linked, allowed & (linked | same)[required].all(axis=0), span.fewest)
        if colours(linked, left) < span.fewest:
            return None
    enough = left.sum() >= span.fewest and given.capacity[left].sum() >= given.replicas
    return left if enough and required.sum() <= span.most and (required <= left).all() else None


def divided(span: Span, allowed: Flags, required: Flags, nodes: tuple[int, ...]) -> tuple[tuple[Flags, Flags], ...]:
    """P and Q of the branch that touches some of the nodes, and of the one that touches none, (2)."""
    chosen = np.zeros(len(allowed), dtype=bool)
    chosen[list(nodes)] = True
    some = (allowed & chosen, required) if span.most == 1 else (allowed, required | chosen)
    return some, (allowed & ~chosen, required)
