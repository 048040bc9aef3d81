r"""
Figures of bound ``node-slots``: seconds and bytes of a stage on a vector of slots, and of a cut between two.

A vector u takes :math:`u_n` slots of node n. Seconds of a stage depend on the types and links of its nodes alone, so
they are kept for every set of different ones. Between two vectors

(1) a hop is at least the least from a node of one to a node of the other;
(2) where all nodes are alike, the mean over the replicas is at least that of :math:`\min(u_n, u'_n)` of them that may
    stay on node n and others that take its least hop to another node of u'.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import least_bytes, tied_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_seconds
from taut.formulations.space import Candidate
from taut.formulations.tables.block_links import BlockLink, blocks_of_nodes
from taut.formulations.tables.block_traffic import block_seconds
from taut.solver.bounds.communication import fixed_seconds
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.placement.exact.slot_labels import Figures


def slot_figures(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, vectors: Ints, *, margin: bool
) -> Figures:
    """
    Figures of a candidate.

    ``vectors``: slots that a stage may take on every node, (V, N).
    """
    tables, memory = problem.tables(candidate), problem.stage_memory(candidate, margin=margin)
    used = vectors > 0
    sets, kinds = _sets_of_nodes(problem, candidate, used)
    seconds, forward = _seconds_on_nodes(problem, candidate)
    high, budget = np.stack([seconds[nodes].max(axis=0) for nodes in sets]), memory.budget[problem.type_of_node]
    messages, message = np.unique(tables.message, return_inverse=True)
    alike = len(sets) == 1
    hop, before = _hops(problem, candidate, vectors, messages, alike=alike)
    ring, latency = _rings(problem, candidate, vectors)
    message_tied = tied_bytes(problem, candidate)
    apart = best.between(2, 2) if problem.links.num_nodes > 1 else np.inf
    return Figures(
        low=high if candidate.pp == 1 else np.stack([seconds[nodes].min(axis=0) for nodes in sets]),
        high=high,
        forward=np.stack([forward[nodes].min(axis=0) for nodes in sets]),
        budget=np.array([budget[nodes].min() for nodes in sets]),
        kinds=kinds,
        fixed=memory.fixed,
        activation=memory.activation,
        in_flight=memory.in_flight,
        update=np.zeros_like(memory.fixed[0]) if memory.update is None else memory.update,
        hop=hop,
        before=before,
        message=message.ravel(),
        ring=ring,
        ring_latency=latency,
        exchanged=least_bytes(problem, candidate),
        tied=message_tied * min(best.inside_inverse, apart) if message_tied else 0.0,
        tail=fixed_seconds(problem, candidate),
        waits=problem.latency.waits,
        ends=np.ones(len(vectors), dtype=bool),
    )


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
