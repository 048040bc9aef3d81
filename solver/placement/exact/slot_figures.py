r"""
Figures of bound ``node-slots``: seconds and bytes of a stage on a vector of slots, and of a cut between two.

A vector u takes :math:`u_n` slots of node n. Seconds of a stage depend on the types and links of its nodes alone, so
they are kept for every set of different ones. Between two vectors

(1) a hop is at least the least from a node of one to a node of the other;
(2) where all nodes are alike, the mean over the replicas is at least that of :math:`\min(u_n, u'_n)` of them that may
    stay on node n and others that take its least hop to another node of u'.

States say which slots a pipeline's stages take on every node. Sets: nodes n with :math:`c_n` slots, each of which holds
one block; stages x = 0..pp-1 of dp blocks.

(3) A stage takes a vector :math:`u \in \mathbb{Z}^N`, :math:`0 \le u_n \le c_n`, :math:`\sum_n u_n = dp`.
(4) A state of stage x is a pair (R, u): R the slots of the stages from x on, :math:`\sum_n R_n = (pp - x) dp`, and
    :math:`u \le R` those of stage x. It leads to the states :math:`(R - u, u')` of stage x + 1. Stage 0 has R = c.
(5) Nodes with the same figures towards all others can change places. Of states that are equal but for such a change
    one stands for all: its pairs :math:`(R_n, u_n)` ascend over the nodes of a class.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import least_bytes, tied_bytes
from taut.formulations.links import Links
from taut.formulations.mechanisms.latency_models import LatencyModel
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_seconds
from taut.formulations.space import Candidate
from taut.formulations.tables.block_traffic import BlockLink, block_seconds, blocks_of_nodes
from taut.formulations.tables.memory import stage_memory
from taut.solver.bounds.communication import fixed_seconds
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_division.labels import Bytes, Cuts, Ranges, Seconds, StateGraph, Waits

State = TypeVar("State", bound=Hashable)
MOST_STEPS = 400_000
"""Steps between states: 0.1 s for every threshold and 20 layers, a few seconds for all thresholds of a candidate."""
MOST_TOTALS = 10_000
"""Vectors R of slots in use, which are listed one by one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotStates:
    """
    States of all stages, numbered from zero on at every stage.

    ``vectors`` (V, N) are those of (3); ``first`` (pp + 1,) the number over all stages of the first state of a stage;
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
    """States of pp stages of dp blocks on slots (N,), stage 0 on ``start`` if given; None where they are too many."""
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


def number_states(
    starts: Iterable[State],
    pp: int,
    vector_of: Callable[[int, State], int],
    onward: Callable[[int, State], Iterable[tuple[State, int]]],
    most: int,
) -> dict[str, Ints] | None:
    """Arrays of ``SlotStates`` but the vectors, from the states of stage 0; None for more than ``most`` steps."""
    at = list(dict.fromkeys(starts))
    first, vector, begin, following, onto = [0], list[int](), [0], list[int](), list[int]()
    for x in range(pp):
        known: dict[State, int] = {}
        for state in at:
            vector.append(vector_of(x, state))
            for further, number in onward(x, state):
                following.append(known.setdefault(further, len(known)) if x < pp - 1 else 0)
                onto.append(number)
            begin.append(len(following))
        if len(following) > most:
            return None
        first.append(len(vector))
        at = list(known)
    arrays = {"first": first, "vector": vector, "begin": begin, "following": following, "onto": onto}
    return {name: np.array(each) for name, each in arrays.items()}


class _Listing:
    """Lists the states (4), up to changes (5) of nodes of a class."""

    def __init__(self, vectors: list[Vector], classes: list[list[int]]) -> None:
        self._vectors, self._classes = vectors, [nodes for nodes in classes if len(nodes) > 1]
        self._number = {vector: number for number, vector in enumerate(vectors)}

    def of(self, slots: Vector, pp: int, start: Vector | None) -> SlotStates | None:
        starts = [self._ordered(slots, u) for u in (self._within(slots) if start is None else [start])]

        def onward(x: int, state: tuple[Vector, Vector]) -> Iterator[tuple[tuple[Vector, Vector], int]]:
            left = tuple(a - b for a, b in zip(*state, strict=True))
            for further in self._within(left) if x < pp - 1 else [state[1]]:
                yield self._ordered(left, further), self._number[further]

        arrays = number_states(starts, pp, lambda _, state: self._number[state[1]], onward, MOST_STEPS)
        return None if arrays is None else SlotStates(vectors=np.array(self._vectors), **arrays)

    def _within(self, left: Vector) -> list[Vector]:
        return [u for u in self._vectors if all(a <= b for a, b in zip(u, left, strict=True))]

    def _ordered(self, total: Vector, u: Vector) -> tuple[Vector, Vector]:
        """The state that stands for all that are equal to it, (5)."""
        pairs = list(zip(total, u, strict=True))
        for nodes in self._classes:
            for node, pair in zip(nodes, sorted(pairs[node] for node in nodes), strict=True):
                pairs[node] = pair
        return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)


class Figures(NamedTuple):
    """
    Seconds and bytes by range of layers, by set of nodes q, and by vector of slots v.

    ``kinds`` (V,) is the q of every vector. ``hops`` (messages, V, V) are the least seconds of a cut between two
    vectors, in full and without the way back; ``message`` (L+1,) is the number of a cut's message. ``rings`` (V, 2) are
    seconds per byte of ``exchanged`` (L+1, L+1), and seconds; ``tied`` is what stage 0 waits for at least, ``tail``
    (L+1,) what comes after the reductions of a stage 0 that ends at layer j. By ``latency`` a step waits for every
    stage, for stage 0 alone, or for the slowest of flat rings. ``ends`` (V,) are the vectors that the last stage may
    take.
    """

    seconds: Seconds
    bytes: Bytes
    kinds: Ints
    hops: tuple[Floats, Floats]
    message: Ints
    rings: Floats
    exchanged: Floats
    tied: float
    tail: Floats
    latency: LatencyModel
    ends: Flags


def slot_figures(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, vectors: Ints, *, margin: bool
) -> Figures:
    """Figures of a candidate whose stages may take these vectors (V, N) of slots."""
    tables, memory = problem.tables(candidate), stage_memory(problem, candidate, margin=margin)
    used = vectors > 0
    sets, kinds = _sets_of_nodes(problem, candidate, used)
    seconds, forward = _seconds_on_nodes(problem, candidate)
    high, budget = np.stack([seconds[nodes].max(axis=0) for nodes in sets]), memory.budget[problem.type_of_node]
    messages, message = np.unique(tables.message, return_inverse=True)
    message_tied = tied_bytes(problem, candidate)
    apart = best.between(2, 2) if problem.links.num_nodes > 1 else np.inf
    low = high if candidate.pp == 1 else np.stack([seconds[nodes].min(axis=0) for nodes in sets])
    budgets = np.array([budget[nodes].min() for nodes in sets])
    if memory.update is not None:
        fits = memory.update <= budgets[:, None, None, None]
        low, high = np.where(fits, low, np.inf), np.where(fits, high, np.inf)
    return Figures(
        seconds=Seconds(low, high, np.stack([forward[nodes].min(axis=0) for nodes in sets])),
        bytes=Bytes(memory.fixed, memory.activation, memory.in_flight, budgets),
        kinds=kinds,
        hops=_hops(problem, candidate, vectors, messages, alike=len(sets) == 1),
        message=message.ravel(),
        rings=np.stack(_rings(problem, candidate, vectors), axis=1),
        exchanged=least_bytes(problem, candidate),
        tied=message_tied * min(best.inside_inverse, apart) if message_tied else 0.0,
        tail=fixed_seconds(problem, candidate),
        latency=problem.latency,
        ends=np.ones(len(vectors), dtype=bool),
    )


def ranges_of(figures: Figures) -> Ranges:
    """Figures as labels take them: the end of the pipeline on u is a hop of kind u, a hop to v of kind V + u V + v."""
    pp, layers, (ring, ring_latency) = len(figures.bytes.in_flight), len(figures.message) - 1, figures.rings.T
    every, flat, tail = figures.latency.waits_for_every_stage, figures.latency.rings_are_flat, figures.tail
    each = np.broadcast_to(ring_latency, (pp, len(ring))).copy()
    if not (every or flat):
        each[1:] = -np.inf
    rings = ring * figures.exchanged[0, 1:, None] + ring_latency
    ends = np.broadcast_to(np.where(figures.ends, 0.0, np.inf), (len(figures.hops[0]), len(ring)))
    whole, before = (np.concatenate((ends, hop.reshape(len(hop), -1)), axis=1) for hop in figures.hops)
    return Ranges(
        seconds=figures.seconds,
        bytes=figures.bytes,
        cuts=Cuts(whole, before, figures.message),
        waits=Waits(
            ring=np.broadcast_to(ring, (pp, len(ring))).copy(),
            each=each,
            exchanged=figures.exchanged,
            unhidden=figures.exchanged,
            overlap=False,
            in_full=flat,
            tail=figures.tied + tail if every else np.full(layers + 1, -np.inf),
            others=tail,
            least_wait=max(float(rings.min()), figures.tied) if every else -np.inf,
        ),
        kinds=figures.kinds,
        layers=np.array([[1, layers]] * pp),
        reach=np.full(layers + 1, layers),
        growing=False,
    )


def graph_of(states: SlotStates) -> StateGraph:
    """States of slots as labels take them: a step of a state's vector, and its hop to the vector behind it."""
    size, last = len(states.vectors), int(states.first[-2])
    vector = np.repeat(states.vector, np.diff(states.begin))
    hop = size + vector * size + states.onto
    hop[states.begin[last] :] = vector[states.begin[last] :]
    none = np.zeros_like(hop)
    steps = np.stack((states.following, vector, hop, none), axis=1)
    return StateGraph(states.first, states.begin, steps, np.zeros((1, 3)), np.zeros(1))


def _sets_of_nodes(problem: PlanningProblem, candidate: Candidate, used: Flags) -> tuple[list[Ints], Ints]:
    """Sets of nodes with different types or links that vectors are on, and the set of every vector."""
    links = blocks_of_nodes(problem.links, candidate.block)
    _, first, of_node = np.unique(
        np.vstack([problem.type_of_node, links]), axis=1, return_index=True, return_inverse=True
    )
    held = np.zeros((len(used), len(first)), dtype=bool)
    for node, kind in enumerate(of_node.ravel().tolist()):
        held[:, kind] |= used[:, node]
    every, of_vector = np.unique(held, axis=0, return_inverse=True)
    return [first[each] for each in every], of_vector.ravel()


def _seconds_on_nodes(problem: PlanningProblem, candidate: Candidate) -> tuple[Floats, Floats]:
    """Seconds of every range on a block of every node, (N, recompute, L+1, L+1), and of its forward pass."""
    tables, passes, types = problem.tables(candidate), problem.passes(candidate), problem.type_of_node
    seconds, forward = tables.seconds[types], passes.forward[types]
    if candidate.tp > 1:
        links = blocks_of_nodes(problem.links, candidate.block).T
        within = block_seconds(tables.traffic, tables.forward, (BlockLink(*each) for each in links.tolist()))
        seconds, forward = seconds + within.both, forward + within.forward
    allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
    return np.where(allowed[:, None, None], seconds, np.inf), forward.min(axis=1)


def _hops(
    problem: PlanningProblem, candidate: Candidate, vectors: Ints, messages: Floats, *, alike: bool
) -> tuple[Floats, Floats]:
    """Least seconds of a cut between two vectors, in full and without the way back, (messages, V, V)."""
    least = _mean_hop if alike else _least_hop
    weight, way_back = problem.transfer_weight(candidate), problem.coefficient("pipeline")
    whole, before = [], []
    for message in messages.tolist():
        there = problem.links.hop_seconds(candidate.width, message, both_ways=False).dense()
        hop = there + there.T if problem.latency.both_ways else there
        whole.append(least(weight * hop, vectors))
        before.append(least(weight * hop - way_back * there.T, vectors))
    return np.stack(whole), np.stack(before)


def _least_hop(seconds: Floats, vectors: Ints) -> Floats:
    """Least hop from a node of one vector to a node of another, (V, V), (1)."""
    used = vectors > 0
    onto = np.stack([seconds[nodes].min(axis=0) for nodes in used])
    return np.stack([onto[:, nodes].min(axis=1) for nodes in used], axis=1)


def _mean_hop(seconds: Floats, vectors: Ints) -> Floats:
    """Least mean of the hops from one vector to another, (V, V), (2)."""
    own, apart = np.diag(seconds), np.where(np.eye(len(seconds), dtype=bool), np.inf, seconds)
    columns = []
    for onto in vectors:
        away = apart[:, onto > 0].min(axis=1)
        stay = np.minimum(vectors, onto)
        leave = vectors - stay
        # Where nobody leaves a node, or stays, its hops may be infinite.
        staying = stay * np.where(stay > 0, np.minimum(own, away), 0.0)
        columns.append((staying + leave * np.where(leave > 0, away, 0.0)).sum(axis=1))
    return np.asarray(np.stack(columns, axis=1) / vectors.sum(axis=1)[:, None])


def _rings(problem: PlanningProblem, candidate: Candidate, vectors: Ints) -> tuple[Floats, Floats]:
    """Seconds per byte and of latency of a stage's ring on every vector, (V,) each."""
    none = np.zeros(len(vectors))
    if candidate.dp == 1:
        return none, none
    sites = np.stack([np.repeat(np.arange(vectors.shape[1]), vector) for vector in vectors])
    links = problem.links
    by_byte, latency = ring_seconds(problem.rings, sites, links.node_of_site[sites])
    return by_byte, problem.coefficient("data_parallel") * latency
