r"""
Least seconds of data-parallel rings, whatever the placement.

Sets: nodes that hold c tensor groups at most.

(1) k nodes whose slowest link has inverse rate :math:`\tau` form a clique of links no slower, so the
    :math:`(k-1)`-core of those links has k nodes: the least such :math:`\tau` bounds the ring between nodes;
(2) a ring of dp replicas on k nodes has :math:`g = \lceil dp / k \rceil` of them on the fullest, and takes
    :math:`T_{DP} \ge 4 \frac{g - 1}{g} M / B_{inside} + 2 \frac{k - 1}{k} M / B_{between}`, with the best link inside
    any node and (1) between;
(3) a single stage has all groups in its rings, :math:`c_n` of node n. The ring that holds a device takes one device of
    every group, so inside its node it is no faster than the device's :math:`(c_n - 1)`-th best link, and towards
    another node n than its :math:`c_n`-th best. With tp = 1 these are its slowest, and the one ring takes those of
    all devices: its exact time. So it is where the devices of a node are interchangeable.
(4) With cp context ranks the rings of (1) to (3) are those of dp cp members on tensor groups; what else their blocks
    ask for can only make them slower.
(5) Where every s replicas have a copy of weights and gradients (``taut.formulations.gradient_reductions`` (2)), a
    copy's ring of s members and a ring of dp / s members between copies take the least of (2), each over its nodes; of
    experts with ranks of their own likewise, and what they sum between copies counts as there. A ring between copies
    has its members in blocks of their own.
(6) With two classes of device (``taut.formulations.partition`` (4)) a stage of fast blocks touches none of the slow
    type's nodes, and one of slow blocks none but them, unless blocks span nodes: (2) over those nodes alone. A ring of
    a mixed stage has a member in every block, so one pair of them is of nodes of both classes: (2) with no less than
    the quickest of these links. With f fast blocks at most, of n in all, and slow nodes that hold c of them at most, it
    touches :math:`1 + \lceil (n - f) / c \rceil` nodes at least.
(7) Experts that fewer devices hold than the rest have rings of their own, as tensor groups of an expert group's devices
    would have: (1) to (3); so have gathers of their shards. With :math:`r` and :math:`r_e` seconds per byte of both, X
    bytes of experts and M others take :math:`r M + r_e X = r (M + X r_e / r)`, and every range at least the least mean
    of both that a layer has.
(8) A tied embedding is exchanged by the devices of stage 0 and of the last stage
    (``taut.formulations.gradient_reductions`` (3)), over the best link between nodes at least, unless every such pair
    lies in a node. Then stage 0 has as many tensor groups on each node as the last stage, at most
    :math:`\lfloor c / 2 \rfloor`, and touches :math:`\lceil dp / \lfloor c / 2 \rfloor \rceil` nodes at least; and a
    pipeline that no node holds comes back to the node of its first stage, so that it makes as many hops between nodes
    as it touches.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.formulations.device_classes import slowest_type
from taut.formulations.gradient_reductions import has_expert_rings, tied_bytes, weight_share
from taut.formulations.links import Links
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor, ring_steps
from taut.formulations.sharding import NO_GATHERS, GatherRates, half_ring, has_shards
from taut.formulations.space import Candidate
from taut.solver.bounds.link_bounds import BestLinks


class TiedExchange(NamedTuple):
    """
    Least seconds of a tied embedding's exchange inside nodes and between them, (8).

    Inside nodes stage 0 has ``most`` tensor groups on a node at the most, and every pipeline makes ``hops`` hops
    between nodes.
    """

    inside: float
    apart: float
    most: int
    hops: int


class Spread(NamedTuple):
    """Nodes k that stage 0 touches, hops between nodes at least, and seconds of a tied embedding's exchange."""

    k: int
    hops: int
    tied: float


def rings_of(candidate: Candidate) -> Candidate:
    """The candidate that has the holders of its weights as replicas, which its rings of gradients have as members."""
    return candidate if candidate.of_tensor_groups else replace(candidate, dp=candidate.dp_cp, cp=1, ep=1, etp=0)


def groups_of_node(problem: PlanningProblem, candidate: Candidate) -> int:
    """Most blocks that one node holds, c; one where a block fills a node or more. A ring's blocks are tensor groups."""
    return max(int(problem.links.gpus_per_node.max()) // candidate.width, 1)


def spreads(problem: PlanningProblem, candidate: Candidate, num_nodes: int | None = None) -> range:
    """Numbers of nodes that a stage's holders can touch, of all nodes or of so many."""
    candidate, nodes = rings_of(candidate), num_nodes or problem.links.num_nodes
    dp, groups = candidate.dp, groups_of_node(problem, candidate)
    if candidate.tp > problem.links.gpus_per_node.max():
        return range(dp, dp + 1)
    # Replicas that divide the batch unevenly are on every type, and so on a node of each.
    least = len(problem.device_types) if candidate.uneven_batch else 1
    return range(max(-(-dp // groups), least), min(dp, nodes) + 1)


def telling(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> list[int]:
    """Some of ``spreads``, of which one is the best."""
    return best.telling(candidate.dp_cp, spreads(problem, candidate, best.num_nodes))


def tied_exchange(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> TiedExchange:
    """What a tied embedding's exchange asks for at least, (8); nothing where none is exchanged."""
    message, links = tied_bytes(problem, candidate), problem.links
    room, held = int(links.gpus_per_node.max()), groups_of_node(problem, candidate)
    if message == 0.0:
        return TiedExchange(0.0, 0.0, room, 0)
    apart = message * best.between(2, 2) if links.num_nodes > 1 else np.inf
    inside = message * best.inside_inverse
    if candidate.width > room:
        return TiedExchange(min(inside, apart), apart, room, 0)
    pairs = room // candidate.tp // 2
    hops = -(-candidate.pp // held) if candidate.pp > held else 0
    return TiedExchange(inside if pairs else np.inf, apart, max(pairs, 1), hops)


def spreads_of_first(tied: TiedExchange, holders: int, spread: range, best: BestLinks) -> Iterator[Spread]:
    """
    Nodes that stage 0 may touch, of which one is the best, with a tied embedding exchanged between nodes or inside.

    ``tied``: what its exchange asks for; ``holders``: members of stage 0's ring; ``spread``: numbers of nodes that they
    may touch.
    """
    for k in best.telling(holders, spread):
        yield Spread(k, 0, tied.apart)
    if tied.inside < tied.apart:
        for k in best.telling(holders, range(max(spread.start, -(-holders // tied.most)), spread.stop)):
            yield Spread(k, tied.hops, tied.inside)


def ring_per_byte(dp: int, k: int, best: BestLinks, slowest: float = 0.0) -> float:
    """T_DP per gradient byte on k nodes at least, (2), with a link that takes so many seconds per byte at least."""
    g = -(-dp // k)
    inside = inside_factor(g) * best.inside_inverse if g > 1 else 0.0
    return inside + ring_factor(k) * max(best.between(dp, k), slowest)


def least_ring(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """T_DP per gradient byte at least, whatever nodes are touched, (2); of several copies (4)."""
    if candidate.dp_cp == 1:
        return 0.0
    if candidate.dp_shard:
        inside, between = _in_copies(problem, candidate, candidate.width, best)
        return weight_share(problem, candidate) * inside + between
    return min(ring_per_byte(candidate.dp_cp, k, best) for k in telling(problem, candidate, best))


def least_rings_by_class(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Floats:
    """T_DP per gradient byte of a stage of each pattern at least (3,), (6); zero where nothing more is known."""
    if len(problem.device_types) == 1:
        return np.zeros(3)
    slow = problem.type_of_node == slowest_type(problem, candidate)
    wide = candidate.width > problem.links.gpus_per_node.max()
    each = [_ring_on(problem, candidate, best, nodes) for nodes in (~slow, np.ones_like(slow) if wide else slow)]
    return np.array([*each, least_mixed_rings(problem, candidate, best)[-1]])


def _ring_on(problem: PlanningProblem, candidate: Candidate, best: BestLinks, nodes: Flags) -> float:
    """T_DP per gradient byte on some nodes; where they are too few for a stage, on any."""
    held = int((problem.links.gpus_per_node[nodes] // candidate.tp).sum())
    return least_ring(problem, candidate, best.of_nodes(nodes) if held >= candidate.dp_cp else best)


def least_mixed_rings(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Floats:
    """T_DP per gradient byte of a stage of both classes, by the most fast blocks that it has, (pipelines - 1,), (6)."""
    holders, most = candidate.dp_cp, candidate.pipelines - 1
    wide = candidate.width > problem.links.gpus_per_node.max()
    if len(problem.device_types) == 1 or most == 0 or wide or candidate.dp_shard:
        return np.zeros(1)
    slow, numbers = (
        problem.type_of_node == slowest_type(problem, candidate),
        spreads(problem, candidate, best.num_nodes),
    )
    held = int(problem.links.gpus_per_node[slow].max()) // candidate.width
    across = best.least_across(problem.rings.inverse, slow)
    rings = {}
    for fewest in {1 - (fast - most - 1) // held for fast in range(1, most + 1)}:
        several = best.telling(holders, range(max(numbers.start, fewest), numbers.stop))
        rings[fewest] = min((ring_per_byte(holders, k, best, across) for k in several), default=0.0)
    return np.array([rings[1 - (fast - most - 1) // held] for fast in range(1, most + 1)])


def least_expert_ring(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Seconds per gradient byte of the rings of experts at least, (7); of a single stage as in (3)."""
    if not has_expert_rings(candidate):
        return 0.0
    held = expert_groups(candidate)
    if candidate.dp_shard:
        inside, between = _in_copies(problem, held, candidate.width, best)
        return weight_share(problem, candidate) * inside + candidate.shards / candidate.expert_shards * between
    alone = candidate.pp == 1
    return every_device(problem.links, held, best) if alone else least_ring(problem, held, best)


def expert_groups(candidate: Candidate) -> Candidate:
    """The candidate whose tensor groups are the expert groups, as their rings have them, (7)."""
    dp_shard = candidate.expert_shards if candidate.dp_shard else 0
    return replace(candidate, tp=candidate.block.experts, dp=candidate.edp, dp_shard=dp_shard, cp=1, ep=1, etp=0)


def _in_copies(problem: PlanningProblem, candidate: Candidate, width: int, best: BestLinks) -> tuple[float, float]:
    """Seconds per byte of rings inside a copy and between copies, of blocks of some width, at least, (5)."""
    copy, others = replicas_of(candidate, candidate.dp_shard), one_of_each_copy(candidate, width)
    return least_ring(problem, copy, best), least_ring(problem, others, best)


def exchanged_bytes(problem: PlanningProblem, candidate: Candidate, ring: float, experts: float) -> Floats:
    """Gradient bytes of every range, those of experts as so many of the others as take as long, (L+1, L+1), (7)."""
    gradients = problem.gradient_bytes(candidate)
    if experts == 0.0:
        return gradients
    return np.asarray(gradients + experts / ring * problem.expert_gradient_bytes(candidate))


def least_mean_ring(problem: PlanningProblem, candidate: Candidate, best: BestLinks, known: float = 0.0) -> float:
    """Seconds of reductions for each byte of any gradients at least, experts or not, ``known`` of others, (7)."""
    ring, tables = max(least_ring(problem, candidate, best), known), problem.tables(candidate)
    if not tables.experts.any():
        return ring
    apart, every = (np.diagonal(figures, 1) for figures in (tables.experts, tables.parameters))
    return float(((ring * (every - apart) + least_expert_ring(problem, candidate, best) * apart) / every).min())


def replicas_of(candidate: Candidate, dp: int) -> Candidate:
    """The candidate with so many replicas in one ring."""
    return replace(candidate, dp=dp, dp_shard=0, ep=1, etp=0)


def one_of_each_copy(candidate: Candidate, width: int) -> Candidate:
    """The candidate that has a ring between copies as replicas, of which each is in a block of its own, (5)."""
    return replace(replicas_of(candidate, candidate.dp // candidate.dp_shard), tp=width)


def least_gather(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> GatherRates:
    """Least seconds per byte of a gather of sharded weights on any stage, (7), or on a single stage, (3)."""
    if not has_shards(problem, candidate):
        return NO_GATHERS
    if candidate.dp_shard:
        inside, of_experts = least_ring(problem, replicas_of(candidate, candidate.dp_shard), best), 0.0
        if has_expert_rings(candidate):
            of_experts = least_ring(problem, replicas_of(expert_groups(candidate), candidate.expert_shards), best)
        return _half(problem, inside, of_experts)
    alone = candidate.pp == 1
    ring = every_device(problem.links, candidate, best) if alone else least_ring(problem, candidate, best)
    return _half(problem, ring, least_expert_ring(problem, candidate, best))


def _half(problem: PlanningProblem, ring: float, experts: float = 0.0) -> GatherRates:
    """Rates of gathers in such rings."""
    return GatherRates(float(half_ring(problem, ring)), float(half_ring(problem, experts)))


def every_device(links: Links, candidate: Candidate, best: BestLinks, share: int = 1) -> float:
    """T_DP per gradient byte of a single stage, whose replicas take every slot or a ``share`` of them, (3)."""
    n, tp = links.num_nodes, candidate.tp
    if tp > links.gpus_per_node.max():
        return ring_per_byte(candidate.dp_cp, candidate.dp_cp, best)
    groups = links.gpus_per_node // (tp * share)
    cards = float((best.rings.card / groups).max()) if n > 1 else 0.0
    if links.by_node:
        between = best.between_nodes[np.isfinite(best.between_nodes)]
        inside, apart = best.inverse.by_site(), between.max(initial=0.0)
    else:
        inside, apart = best.ranked(groups)
    inside = np.where(groups > 1, inside_factor(groups), 0.0)[links.node_of_site] * inside
    apart = ring_factor(n) * np.maximum(apart, cards)
    # One ring holds all devices, or all nodes alike; of several, each device lies in one.
    return float(inside.max() + apart.max() if links.by_node or tp * share == 1 else (inside + apart).max())


def flat_ring(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> tuple[float, float]:
    """Seconds per byte and latency seconds of AMP's ring over the best links that dp replicas can get."""
    dp, groups = candidate.dp, groups_of_node(problem, candidate)
    if dp == 1:
        return 0.0, 0.0
    links = problem.links
    fewest = dp if candidate.tp > links.gpus_per_node.max() else max(-(-dp // groups), 2)
    options = [best.core(fewest)] if links.num_nodes > 1 else []
    if dp <= groups:
        options.append(best.inside_inverse)
    latency = min(best.least_inside(links.latency), best.least_apart(links.latency))
    steps = problem.coefficient("data_parallel") * ring_steps(dp)
    return ring_factor(dp) * min(options), steps * latency
