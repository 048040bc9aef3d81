r"""
Cases of bound ``node-slots`` by what the cuts send, in which whole hops leave a node, for nodes that are all alike.

Sets: cuts x = 0..pp-2 between stages x and x + 1, of vectors u and u' of slots; pipelines z, dp of them.
Data: a hop with the message of a cut takes :math:`o` seconds at least within a node, and :math:`e` more between nodes.

(1) At least :math:`b_x = dp - \sum_n \min(u_n, u'_n)` pipelines leave their node at cut x.
(2) Let a set of cuts S be left :math:`b_S = \sum_{x \in S} b_x` times. Some pipeline leaves its node at
    :math:`\lceil b_S / dp \rceil` of them, so its hops take the sum of as many of the smallest :math:`e_x` of S more,
    and the slowest takes no less than the mean :math:`\sum_{x \in S} b_x e_x / dp`.
(3) Where :math:`b_x = dp` every pipeline leaves, so :math:`e_x` comes on top of (2) of the other cuts.

Which message a cut sends depends on the layers, so every choice of a message for every cut is a case: there the
:math:`e_x` are known, and (2) and (3) depend on the numbers :math:`b_x` alone, which a state remembers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.placement.exact.slot_figures import Figures
from taut.solver.placement.exact.slot_states import SlotStates

MOST_CASES = 64
"""Cases of a candidate, each of which takes one run of labels or a few."""
MOST_STEPS = 20_000
"""Steps between states of a case: a hundredth of a second for every threshold and 20 layers."""
Left = tuple[int, ...]
"""Numbers b of (1) of the cuts so far."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Hops:
    """Least seconds of a hop by message, within a node and beyond that between nodes, and the messages of cuts."""

    own: Floats
    more: Floats
    of_cuts: Ints


def hop_cases(
    problem: PlanningProblem, candidate: Candidate, figures: Figures, listed: SlotStates
) -> Iterator[tuple[Figures, SlotStates]]:
    """
    Cases with their figures and states; none where (2) says nothing, or where they are too many.

    ``problem``, ``candidate``: what is bounded, where hops are priced one way and the pipeline with the longest ones
    is waited for; ``figures``, ``listed``: figures and states without the cases.
    """
    if problem.latency.both_ways or candidate.pp == 1 or len(figures.bytes.budget) > 1 or figures.tied > 0.0:
        return
    hops = _hops(problem, candidate)
    if len(hops.of_cuts) ** (candidate.pp - 1) > MOST_CASES or (found := _remembering(listed, candidate.dp)) is None:
        return
    states, base, left = found
    for messages in product(hops.of_cuts.tolist(), repeat=candidate.pp - 1):
        hop = _of_case(hops, messages, len(listed.vectors), left, candidate.dp)
        at = {name: getattr(figures, name)[base] for name in ("kinds", "ring", "ring_latency", "ends")}
        yield figures._replace(hop=hop, before=hop, **at), states


def most_hops(left: Left, more: list[float], dp: int) -> float:
    """
    Least seconds beyond hops within nodes of the slowest pipeline, (2) and (3).

    ``left``: pipelines that leave their node at every cut; ``more``: seconds that a hop between nodes takes more there,
    none negative.
    """
    some = [(seconds, number) for seconds, number in zip(more, left, strict=True) if 0 < number < dp]
    found = 0.0
    for size in range(1, len(some) + 1):
        for cuts in combinations(some, size):
            whole = -(-sum(number for _, number in cuts) // dp)
            found = max(found, sum(sorted(seconds for seconds, _ in cuts)[:whole]))
    mean = sum(seconds * number for seconds, number in some) / dp
    return max(found, mean) + sum(seconds for seconds, number in zip(more, left, strict=True) if number == dp)


def _hops(problem: PlanningProblem, candidate: Candidate) -> _Hops:
    """Hops by message, in the order of ``Figures.message``."""
    messages, message = np.unique(problem.tables(candidate).message, return_inverse=True)
    own, more = [], []
    for each in messages.tolist():
        seconds = problem.links.hop_seconds(candidate.width, each, both_ways=False).dense()
        seconds = problem.transfer_weight(candidate) * seconds
        inside, apart = np.diag(seconds).min(), seconds[~np.eye(len(seconds), dtype=bool)].min(initial=np.inf)
        own.append(min(inside, apart))
        more.append(apart - own[-1] if np.isfinite(apart) else 0.0)
    return _Hops(own=np.array(own), more=np.array(more), of_cuts=np.unique(message.ravel()[1:-1]))


def _remembering(listed: SlotStates, dp: int) -> tuple[SlotStates, Ints, list[Left]] | None:
    """
    The states with the numbers (1) so far, the vector of every numbered vector, and the numbers at the last stage.

    Vectors are numbered by stage, and at the last stage by (1) as well, so that a hop may depend on both. None where
    there are more than ``MOST_STEPS`` steps.
    """
    product_of = _Product(listed, dp)
    return (product_of.states(), product_of.base(), product_of.left()) if product_of.fits() else None


class _Product:
    """States of slots times the numbers (1) so far, stage by stage."""

    def __init__(self, listed: SlotStates, dp: int) -> None:
        self._listed, self._pp, self._count = listed, len(listed.first) - 1, len(listed.vectors)
        self._leave = dp - np.minimum(listed.vectors[:, None], listed.vectors[None]).sum(axis=2)
        self._last: dict[tuple[int, Left], int] = {}
        self._first, self._vector, self._begin = [0], list[int](), [0]
        self._following, self._onto = list[int](), list[int]()

    def fits(self) -> bool:
        """List the states, and say whether they have few steps."""
        at: list[tuple[int, Left]] = [(state, ()) for state in range(self._listed.first[1])]
        for x in range(self._pp):
            known: dict[tuple[int, Left], int] = {}
            for state, left in at:
                self._add(x, int(self._listed.first[x]) + state, left, known)
            if len(self._following) > MOST_STEPS:
                return False
            self._first.append(len(self._vector))
            at = list(known)
        return True

    def _add(self, x: int, state: int, left: Left, known: dict[tuple[int, Left], int]) -> None:
        """A state of stage x and its steps; the last stage leads to state 0."""
        u, steps = int(self._listed.vector[state]), slice(*self._listed.begin[state : state + 2].tolist())
        self._vector.append(self._number(x, u, left))
        for v, after in zip(self._listed.onto[steps].tolist(), self._listed.following[steps].tolist(), strict=True):
            further = (*left, int(self._leave[u, v]))
            last = x == self._pp - 1
            self._following.append(0 if last else known.setdefault((after, further), len(known)))
            self._onto.append(0 if last else self._number(x + 1, v, further))
        self._begin.append(len(self._following))

    def _number(self, x: int, vector: int, left: Left) -> int:
        if x < self._pp - 1:
            return x * self._count + vector
        return x * self._count + self._last.setdefault((vector, left), len(self._last))

    def base(self) -> Ints:
        """The vector of every numbered one."""
        return np.array([*np.tile(np.arange(self._count), self._pp - 1), *(vector for vector, _ in self._last)])

    def left(self) -> list[Left]:
        """The numbers (1) of those at the last stage."""
        return [left for _, left in self._last]

    def states(self) -> SlotStates:
        """All states."""
        names = ("first", "vector", "begin", "following", "onto")
        arrays = {name: np.array(getattr(self, f"_{name}")) for name in names}
        return SlotStates(vectors=self._listed.vectors[self.base()], **arrays)


def _of_case(hops: _Hops, messages: tuple[int, ...], count: int, left: list[Left], dp: int) -> Floats:
    """Seconds of a cut between two numbered vectors, (messages, V, V'); infinite for other messages."""
    cuts, more = len(messages), hops.more[list(messages)].tolist()
    hop = np.full((len(hops.own), cuts * count, cuts * count + len(left)), np.inf)
    for x, message in enumerate(messages):
        onto = slice((x + 1) * count, (x + 2) * count) if x < cuts - 1 else slice(cuts * count, None)
        hop[message, x * count : (x + 1) * count, onto] = hops.own[message]
    # All that hops take beyond those within nodes is counted at the last cut.
    hop[messages[-1], (cuts - 1) * count : cuts * count, cuts * count :] += [most_hops(each, more, dp) for each in left]
    return hop
