r"""
States of the slots that a pipeline's stages take on every node.

Sets: nodes n with :math:`c_n` slots, each of which holds one block; stages x = 0..pp-1 of dp blocks.

(1) A stage takes a vector :math:`u \in \mathbb{Z}^N`, :math:`0 \le u_n \le c_n`, :math:`\sum_n u_n = dp`.
(2) A state of stage x is a pair (R, u): R the slots of the stages from x on, :math:`\sum_n R_n = (pp - x) dp`, and
    :math:`u \le R` those of stage x. It leads to the states :math:`(R - u, u')` of stage x + 1. Stage 0 has R = c.
(3) Nodes with the same figures towards all others can change places. Of states that are equal but for such a change
    one stands for all: its pairs :math:`(R_n, u_n)` ascend over the nodes of a class.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.links import Links

MOST_STEPS = 400_000
"""Steps between states: 0.1 s for every threshold and 20 layers, a few seconds for all thresholds of a candidate."""
MOST_TOTALS = 10_000
"""Vectors R of slots in use, which are listed one by one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotStates:
    """
    States of all stages, numbered from zero on at every stage.

    ``vectors`` (V, N) are those of (1); ``first`` (pp + 1,) the number over all stages of the first state of a stage;
    ``vector`` (S,) the vector of every state. State s leads to ``following[begin[s] : begin[s + 1]]``, numbers at the
    next stage, whose vectors are ``onto`` there before nodes change places; the last stage leads to state 0.
    """

    vectors: Ints
    first: Ints
    vector: Ints
    begin: Ints
    following: Ints
    onto: Ints


def slot_states(slots: Ints, kinds: Ints, pp: int, dp: int, start: Ints | None = None) -> SlotStates | None:
    """
    List the states of a pipeline.

    ``slots``: blocks that every node holds, (N,), pp dp in all; ``kinds``: class of interchangeable nodes of every
    node, (N,); ``pp``, ``dp``: stages, and blocks of each; ``start``: vector of stage 0, (N,); any without one. Returns
    or None where there are more than ``MOST_TOTALS`` totals or ``MOST_STEPS`` steps.
    """
    if float(np.prod(slots + 1.0)) > MOST_TOTALS:
        return None
    vectors = [each for each in product(*(range(min(count, dp) + 1) for count in slots)) if sum(each) == dp]
    listing = _Listing(vectors, [np.flatnonzero(kinds == kind).tolist() for kind in np.unique(kinds)])
    return listing.of(tuple(slots.tolist()), pp, None if start is None else tuple(start.tolist()))


def interchangeable(links: Links, type_of_node: Ints) -> Ints:
    """Class of every node, (N,): nodes of one block of links, one type of device, one size and one rate of cards."""
    figures = np.stack([links.rate.blocks.of, links.latency.blocks.of, type_of_node, links.gpus_per_node], axis=1)
    with_cards = np.column_stack([figures, np.unique(links.cards, return_inverse=True)[1]])
    return np.asarray(np.unique(with_cards, axis=0, return_inverse=True)[1]).ravel()


Vector = tuple[int, ...]


class _Listing:
    """Lists states stage by stage, from what stage 0 can take on."""

    def __init__(self, vectors: list[Vector], classes: list[list[int]]) -> None:
        self._vectors, self._classes = vectors, [nodes for nodes in classes if len(nodes) > 1]
        self._number = {vector: number for number, vector in enumerate(vectors)}

    def of(self, slots: Vector, pp: int, start: Vector | None) -> SlotStates | None:
        starts = self._within(slots) if start is None else [start]
        at = list(dict.fromkeys(self._ordered(slots, u) for u in starts))
        first, vector, begin, following, onto = [0], [], [0], [], []
        for x in range(pp):
            known: dict[tuple[Vector, Vector], int] = {}
            for total, u in at:
                vector.append(self._number[u])
                left = tuple(a - b for a, b in zip(total, u, strict=True))
                for further in self._within(left) if x < pp - 1 else [u]:
                    state = self._ordered(left, further)
                    following.append(known.setdefault(state, len(known)) if x < pp - 1 else 0)
                    onto.append(self._number[further])
                begin.append(len(following))
            if len(following) > MOST_STEPS:
                return None
            first.append(len(vector))
            at = list(known)
        arrays = {"first": first, "vector": vector, "begin": begin, "following": following, "onto": onto}
        return SlotStates(vectors=np.array(self._vectors), **{name: np.array(each) for name, each in arrays.items()})

    def _within(self, left: Vector) -> list[Vector]:
        return [u for u in self._vectors if all(a <= b for a, b in zip(u, left, strict=True))]

    def _ordered(self, total: Vector, u: Vector) -> tuple[Vector, Vector]:
        """The state that stands for all that are equal to it, (3)."""
        pairs = list(zip(total, u, strict=True))
        for nodes in self._classes:
            for node, pair in zip(nodes, sorted(pairs[node] for node in nodes), strict=True):
                pairs[node] = pair
        return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
