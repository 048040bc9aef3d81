r"""
Bound ``node-slots``: exact division of the layers with the nodes that every stage takes, for few nodes of any types.

Its figures are seconds and bytes of a stage on a vector of slots, and of a cut between two. A vector u takes
:math:`u_n` slots of node n. Seconds of a stage depend on the types and links of its nodes alone, so they are kept for
every set of different ones. Between two vectors

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

The bound is over these states. Data: seconds t[n, r, i, j] of layers [i, j) with recompute r as a stage on a block of
node n, forward[n, i, j] of the forward pass, hop(n, n') and before(n, n') in full and without its way back,
:math:`\rho(u)` seconds per byte of a ring.

Some pipeline z meets the slowest stage of all. It passes each stage on one of the nodes of its u, so

(6) stage x takes it :math:`low(u) = \min_{n: u_n > 0} t_n` at least, the slowest takes :math:`\theta`, the largest
    :math:`\max_{n: u_n > 0} t_n`, and a hop the least of the nodes of both vectors. Every node of u must hold the
    stage.
(7) LB = :math:`\min_\theta (m - 1) \theta + D_\theta`, with :math:`D_\theta` the least sum of (6) and of what is waited
    for over all divisions and states within :math:`\theta`, found by the labels of
    ``taut.solver.layer_division.labels``. The ring of a stage is that of its u, exactly.
(8) In ``amp`` the slowest ring comes after the whole pipeline, so a stage waits in full. In ``pipette`` stage 0
    alone is waited for. In ``step`` the optimizer takes at least that of an even division.
(9) Where all nodes are alike every pipeline takes as long but for its hops, so the mean hop of all replicas counts,
    (2), or the hops of the pipeline that leaves its node most often, (12)
    to (14). A single stage is a whole pipeline on one node, so low(u) is the largest :math:`t_n` there.
(10) Where first and last stage exchange the gradient of a tied embedding, each vector of the first stage is a case, and
    so is what the exchange takes at least, (16).
(11) As :math:`D_\theta \ge D_\infty`, no :math:`\theta` with :math:`(m - 1) \theta + D_\infty` above the best is tried.

It applies where the devices of a node are interchangeable, and is the optimum where every vector is on one node or on
nodes alike, but for the optimizer in ``step`` and what overlaps. Dynamic programming over the capacity that is left is
that of the multidimensional knapsack problem.

Where all nodes are alike there are cases by what the cuts send, in which whole hops leave a node. Sets: cuts x =
0..pp-2 between stages x and x + 1, of vectors u and u' of slots; pipelines z, dp of them. Data: a hop with the message
of a cut takes :math:`o` seconds at least within a node, and :math:`e` more between nodes.

(12) At least :math:`b_x = dp - \sum_n \min(u_n, u'_n)` pipelines leave their node at cut x.
(13) Let a set of cuts S be left :math:`b_S = \sum_{x \in S} b_x` times. Some pipeline leaves its node at
    :math:`\lceil b_S / dp \rceil` of them, so its hops take the sum of as many of the smallest :math:`e_x` of S more,
    and the slowest takes no less than the mean :math:`\sum_{x \in S} b_x e_x / dp`.
(14) Where :math:`b_x = dp` every pipeline leaves, so :math:`e_x` comes on top of (13) of the other cuts.

Which message a cut sends depends on the layers, so every choice of a message for every cut is a case: there the
:math:`e_x` are known, and (13) and (14) depend on the numbers :math:`b_x` alone, which a state remembers.

For the exchange of a tied embedding's gradient between first and last stage let u be the vector of slots of the first
stage and v that of the last, and :math:`c_{nn'}` the seconds of the exchange between holders on nodes n and n'. Each
holder of one stage has one partner in the other, so

(15) a node n with :math:`u_n > 0` waits for :math:`\min_{n': v_{n'} > 0} c_{nn'}` at least, over :math:`n' \ne n` alone
    where :math:`u_n > v_n`, since then some holder has its partner elsewhere; likewise of v;
(16) :math:`\tau(u, v)` is the largest of (15), and the step takes no less than the longest pipeline and :math:`\tau`.

For every u the last stage's vectors are taken apart by :math:`\tau`: in each case it is a constant. States that are
equal but for a change of nodes that have the same figures and the same :math:`u_n` have the same :math:`\tau`, so one
still stands for all. If the cases have more steps than ``MOST_STEPS`` together, the least exchange of any two devices
is taken for all of them.

States name nodes up to their class, (5). In a placement every stage gets
nodes by their names, such that replicas stay on a node where it holds the next stage as well.

References
----------
Kellerer, Pferschy and Pisinger (2004), Knapsack problems, section 9.3.2: states of capacities.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple, TypeVar

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import least_bytes, tied_bytes
from taut.formulations.links import Links
from taut.formulations.mechanisms.latency_models import LatencyModel
from taut.formulations.partition import waits_for_later_stages
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_seconds
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.formulations.tables.block_traffic import BlockLink, block_seconds, blocks_of_nodes
from taut.formulations.tables.memory import stage_memory
from taut.formulations.terms import gathers_of
from taut.solver.bounds.communication import fixed_seconds, optimizer_per_parameter
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.divide import Partition
from taut.solver.layer_division.labels import (
    Bytes,
    Cuts,
    Ranges,
    Seconds,
    StateGraph,
    Waits,
    least_division,
    thresholds_of,
)
from taut.solver.placement.exact.joint import Joint, Kept

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
        hops=_slot_hops(problem, candidate, vectors, messages, alike=len(sets) == 1),
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


def _slot_hops(
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


def tied_cases(
    problem: PlanningProblem, candidate: Candidate, figures: Figures, listed: SlotStates, slots: Ints, kinds: Ints
) -> Iterator[tuple[Figures, SlotStates]]:
    """Cases with their figures and states; the given ones alone where nothing is tied, or the cases are too many."""
    own = _by_start(listed, slots, kinds, candidate) if figures.tied > 0.0 else None
    if own is None:
        yield figures, listed
        return
    seconds = _exchange(problem, candidate)
    for start, states in own:
        waits = np.array([least_wait(seconds, start, end) for end in listed.vectors])
        for wait in np.unique(waits):
            yield figures._replace(tied=max(float(wait), figures.tied), ends=waits == wait), states


def _by_start(
    listed: SlotStates, slots: Ints, kinds: Ints, candidate: Candidate
) -> list[tuple[Ints, SlotStates]] | None:
    """States by vector of the first stage; None where they are too many."""
    found, steps = [], 0
    for number in np.unique(listed.vector[: listed.first[1]]):
        start = listed.vectors[number]
        finer = np.unique(np.stack([kinds, start], axis=1), axis=0, return_inverse=True)[1].ravel()
        states = slot_states(slots, finer, candidate.pp, candidate.dp, start)
        steps += MOST_STEPS if states is None else len(states.following)
        if states is None or steps > MOST_STEPS:
            return None
        found.append((start, states))
    return found


def _exchange(problem: PlanningProblem, candidate: Candidate) -> Floats:
    """Seconds between holders on every two nodes, (N, N)."""
    card = problem.rings.card
    shared = np.where(np.eye(len(card), dtype=bool), 0.0, np.maximum(card[:, None], card))
    return np.asarray(tied_bytes(problem, candidate) * np.maximum(problem.rings.inverse.dense(), shared))


def least_wait(seconds: Floats, start: Ints, end: Ints) -> float:
    """The least exchange (16) by seconds (N, N) between nodes and the holders (N,) of first and last stage."""
    there, back = _of_one_side(seconds, start, end), _of_one_side(seconds.T, end, start)
    return max(there, back)


def _of_one_side(seconds: Floats, own: Ints, others: Ints) -> float:
    """The largest of (15) over the nodes of one stage."""
    left = np.where(others > 0, seconds, np.inf)
    more = np.flatnonzero(own > others)
    left[more, more] = np.inf
    return float(left[own > 0].min(axis=1).max())


def slot_positions(vectors: Ints, slots: Ints, kinds: Ints) -> Ints:
    """Node of every worker (dp pp, 1), from the slots (pp, N) of every stage as states name nodes of a class."""
    left, before = slots.copy(), np.zeros_like(slots)
    columns: list[Ints] = []
    for vector in vectors:
        before = _named(vector, left, before, kinds)
        left = left - before
        columns.append(_matched(np.repeat(np.arange(len(slots)), before), columns[-1] if columns else None))
    return np.stack(columns, axis=1).reshape(-1, 1)


def _named(vector: Ints, left: Ints, before: Ints, kinds: Ints) -> Ints:
    """A stage's slots by node: in a class they ascend with what is left, and then with those of the stage before."""
    named = np.zeros_like(vector)
    for kind in np.unique(kinds):
        nodes = np.flatnonzero(kinds == kind)
        named[nodes[np.lexsort((before[nodes], left[nodes]))]] = vector[nodes]
    return named


def _matched(nodes: Ints, before: Ints | None) -> Ints:
    """The nodes in an order in which as many replicas as possible stay where they were."""
    if before is None:
        return nodes
    free, column = np.bincount(nodes, minlength=int(max(nodes.max(), before.max())) + 1), np.full(len(nodes), -1)
    for replica, node in enumerate(before.tolist()):
        if free[node]:
            column[replica], free[node] = node, free[node] - 1
    column[column < 0] = np.repeat(np.arange(len(free)), free)
    return column


MOST_CASES = 64
"""Cases of a candidate, each of which takes one run of labels or a few."""
MOST_HOP_STEPS = 20_000
"""Steps between states of a case: a hundredth of a second for every threshold and 20 layers."""
Left = tuple[int, ...]
"""Numbers b of (12) of the cuts so far."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Hops:
    """Least seconds of a hop by message, within a node and beyond that between nodes, and the messages of cuts."""

    own: Floats
    more: Floats
    of_cuts: Ints


def hop_cases(
    problem: PlanningProblem, candidate: Candidate, figures: Figures, listed: SlotStates
) -> Iterator[tuple[Figures, SlotStates]]:
    """Cases with their figures and states; none where (13) says nothing, or where they are too many."""
    if problem.latency.both_ways or candidate.pp == 1 or len(figures.bytes.budget) > 1 or figures.tied > 0.0:
        return
    hops = _hops(problem, candidate)
    if len(hops.of_cuts) ** (candidate.pp - 1) > MOST_CASES or (found := _remembering(listed, candidate.dp)) is None:
        return
    states, base, left = found
    for messages in product(hops.of_cuts.tolist(), repeat=candidate.pp - 1):
        hop = _of_case(hops, messages, len(listed.vectors), left, candidate.dp)
        at = {name: getattr(figures, name)[base] for name in ("kinds", "rings", "ends")}
        yield figures._replace(hops=(hop, hop), **at), states


def most_hops(left: Left, more: list[float], dp: int) -> float:
    """Least seconds beyond hops within nodes of the slowest pipeline, (13) and (14), by how many leave at each cut."""
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
    """The states with the numbers (12) so far, vectors, and last numbers; None above ``MOST_HOP_STEPS`` steps."""
    pp, count, last = len(listed.first) - 1, len(listed.vectors), dict[tuple[int, Left], int]()
    leave = dp - np.minimum(listed.vectors[:, None], listed.vectors[None]).sum(axis=2)

    def numbered(x: int, vector: int, left: Left) -> int:
        return x * count + (vector if x < pp - 1 else last.setdefault((vector, left), len(last)))

    def vector_of(x: int, state: tuple[int, Left]) -> int:
        return numbered(x, int(listed.vector[listed.first[x] + state[0]]), state[1])

    def onward(x: int, state: tuple[int, Left]) -> Iterator[tuple[tuple[int, Left], int]]:
        number = int(listed.first[x]) + state[0]
        u, steps = int(listed.vector[number]), slice(*listed.begin[number : number + 2].tolist())
        for v, after in zip(listed.onto[steps].tolist(), listed.following[steps].tolist(), strict=True):
            further = (*state[1], int(leave[u, v]))
            yield (after, further), 0 if x == pp - 1 else numbered(x + 1, v, further)

    starts = [(state, Left()) for state in range(listed.first[1])]
    arrays = number_states(starts, pp, vector_of, onward, MOST_HOP_STEPS)
    if arrays is None:
        return None
    base = np.array([*np.tile(np.arange(count), pp - 1), *(vector for vector, _ in last)])
    return SlotStates(vectors=listed.vectors[base], **arrays), base, [left for _, left in last]


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


def _states(problem: PlanningProblem, candidate: Candidate, kept: Kept) -> SlotStates | None:
    """States of a candidate's slots; None for too many."""
    key = "slot states", candidate.tp, candidate.pp
    return kept.once(key, lambda: slot_states(*_slots(problem, candidate), candidate.pp, candidate.dp))


def _slots(problem: PlanningProblem, candidate: Candidate) -> tuple[Ints, Ints]:
    """Blocks that every node holds, and classes of nodes that can change places."""
    return problem.links.gpus_per_node // candidate.tp, interchangeable(problem.links, problem.type_of_node)


def has_node_slots(problem: PlanningProblem, candidate: Candidate, kept: Kept) -> bool:
    """Whether the bound applies: stages in closed form, on few nodes of several types or by AMP's model."""
    return (
        candidate.is_plain
        and (len(problem.device_types) > 1 or problem.latency.rings_are_flat)
        and problem.links.by_node
        and candidate.tp <= problem.links.gpus_per_node.min()
        and not gathers_of(problem.terms(candidate))
        and _states(problem, candidate, kept) is not None
    )


def solve_by_slots(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, kept: Kept, *, margin: bool = True
) -> Joint:
    """Bound (7) with a placement, which attains it where vectors are on nodes alike; infinite if nothing fits."""
    listed = _states(problem, candidate, kept)
    assert listed is not None
    figures = slot_figures(problem, candidate, best, listed.vectors, margin=margin)
    m, slots = candidate.num_micro_batches, _slots(problem, candidate)
    value, picks, states = _least_of_cases(tied_cases(problem, candidate, figures, listed, *slots), m)
    whole = _least_of_cases(hop_cases(problem, candidate, figures, listed), m)
    if states is not None and whole.states is not None and whole.seconds > value:
        value, picks, states = whole
    if states is None:
        return Joint(exact=False)
    value += _least_optimizer(problem, candidate)
    division = Division.of_ends(picks[:, 0], picks[:, 1])
    partition = Partition(seconds=value, division=division, patterns=(0,) * candidate.pp)
    positions = slot_positions(states.vectors[picks[:, 2]], *slots)
    return Joint(lower_bound=value * (1 - ROUNDING), partition=partition, positions=positions, exact=False)


class _Found(NamedTuple):
    """The least of some cases, with end, recompute and vector of every stage; without states where none fits."""

    seconds: float
    picks: Ints
    states: SlotStates | None


def _least_of_cases(cases: Iterable[tuple[Figures, SlotStates]], m: int) -> _Found:
    """The least of (7) over the cases, for m micro-batches."""
    found = _Found(np.inf, np.zeros((0, 3), np.int64), None)
    for figures, listed in cases:
        ranges = ranges_of(figures)
        seconds, picks = least_division(ranges, graph_of(listed), m, thresholds_of(ranges), found.seconds)
        if picks is not None and seconds < found.seconds:
            found = _Found(seconds, picks, listed)
    return found


def _least_optimizer(problem: PlanningProblem, candidate: Candidate) -> float:
    """Seconds of the optimizer of an even division, (8)."""
    if not waits_for_later_stages(problem, candidate):
        return 0.0
    return (
        optimizer_per_parameter(problem, candidate) * float(problem.tables(candidate).parameters[0, -1]) / candidate.pp
    )
