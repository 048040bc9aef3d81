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
(5) The rings of a term (``taut.formulations.terms`` (2)) take their shares of the least of (2), each over the nodes of
    its own group, whose members have a place each.
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

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.formulations.device_classes import slowest_type
from taut.formulations.gradient_reductions import tied_bytes
from taut.formulations.links import Links
from taut.formulations.mechanisms.shards import holders
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor, ring_steps
from taut.formulations.sharding import GatherRates, gather_rates
from taut.formulations.space import Candidate
from taut.formulations.terms import Group, in_one_ring, reductions_of
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


def groups_of_node(problem: PlanningProblem, width: int) -> int:
    """Most places of so many devices that one node holds, c; one where a place fills a node or more."""
    return max(int(problem.links.gpus_per_node.max()) // width, 1)


def spreads(problem: PlanningProblem, group: Group, num_nodes: int | None = None) -> range:
    """Numbers of nodes that the members of a group can touch, of all nodes or of so many."""
    members, nodes = group.members, num_nodes or problem.links.num_nodes
    if group.width > problem.links.gpus_per_node.max():
        return range(members, members + 1)
    least = len(problem.device_types) if group.every_type else 1
    return range(max(-(-members // groups_of_node(problem, group.width)), least), min(members, nodes) + 1)


def telling(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> list[int]:
    """Some of ``spreads`` of the holders of a stage, of which one is the best."""
    return best.telling(candidate.dp_cp, spreads(problem, holders(candidate), best.num_nodes))


def tied_exchange(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> TiedExchange:
    """What a tied embedding's exchange asks for at least, (8); nothing where none is exchanged."""
    message, links = tied_bytes(problem, candidate), problem.links
    room, held = int(links.gpus_per_node.max()), groups_of_node(problem, candidate.width)
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


def least_ring(problem: PlanningProblem, group: Group, best: BestLinks) -> float:
    """Seconds per byte of a group's rings at least, whatever nodes are touched, (2)."""
    if group.members == 1:
        return 0.0
    numbers = best.telling(group.members, spreads(problem, group, best.num_nodes))
    return min(ring_per_byte(group.members, k, best) for k in numbers)


def least_place(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Callable[[Group], float]:
    """Seconds per byte of a group's rings at least, by group: (3) for all holders of a single stage, or (2)."""

    def least(group: Group) -> float:
        if candidate.pp == 1 and group.kind in ("replicas", "experts"):
            return every_device(problem.links, group, best)
        return least_ring(problem, group, best)

    return least


def least_reduction(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Seconds of the reductions after the passes per gradient byte of what all hold, at least, (2) and (5)."""
    return reductions_of(problem.terms(candidate))[0].rate(lambda group: least_ring(problem, group, best))


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
    return least_reduction(problem, candidate, best.of_nodes(nodes) if held >= candidate.dp_cp else best)


def least_mixed_rings(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Floats:
    """T_DP per gradient byte of a stage of both classes, by the most fast blocks that it has, (pipelines - 1,), (6)."""
    members, most = candidate.dp_cp, candidate.pipelines - 1
    wide = candidate.width > problem.links.gpus_per_node.max()
    if len(problem.device_types) == 1 or most == 0 or wide or not in_one_ring(problem.terms(candidate)):
        return np.zeros(1)
    slow = problem.type_of_node == slowest_type(problem, candidate)
    numbers = spreads(problem, holders(candidate), best.num_nodes)
    held = int(problem.links.gpus_per_node[slow].max()) // candidate.width
    across = best.least_across(problem.rings.inverse, slow)
    rings = {}
    for fewest in {1 - (fast - most - 1) // held for fast in range(1, most + 1)}:
        several = best.telling(members, range(max(numbers.start, fewest), numbers.stop))
        rings[fewest] = min((ring_per_byte(members, k, best, across) for k in several), default=0.0)
    return np.array([rings[1 - (fast - most - 1) // held] for fast in range(1, most + 1)])


def least_expert_ring(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Seconds per gradient byte of the rings of experts at least, (7); of a single stage as in (3)."""
    least = least_place(problem, candidate, best)
    terms = reductions_of(problem.terms(candidate))
    return sum(term.rate(least) for term in terms if term.load == "experts")


def exchanged_bytes(problem: PlanningProblem, candidate: Candidate, ring: float, experts: float) -> Floats:
    """Gradient bytes of every range, those of experts as so many of the others as take as long, (L+1, L+1), (7)."""
    gradients = problem.gradient_bytes(candidate)
    if experts == 0.0:
        return gradients
    return np.asarray(gradients + experts / ring * problem.gradient_bytes(candidate, "experts"))


def least_mean_ring(problem: PlanningProblem, candidate: Candidate, best: BestLinks, known: float = 0.0) -> float:
    """Seconds of reductions for each byte of any gradients at least, experts or not, ``known`` of others, (7)."""
    ring, tables = max(least_reduction(problem, candidate, best), known), problem.tables(candidate)
    if not tables.experts.any():
        return ring
    apart, every = (np.diagonal(figures, 1) for figures in (tables.experts, tables.parameters))
    return float(((ring * (every - apart) + least_expert_ring(problem, candidate, best) * apart) / every).min())


def least_gather(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> GatherRates:
    """Least seconds per byte of a gather of sharded weights on any stage, (7), or on a single stage, (3)."""
    return gather_rates(problem.terms(candidate), least_place(problem, candidate, best))


def every_device(links: Links, group: Group, best: BestLinks, share: int = 1) -> float:
    """Seconds per byte of a group that takes every place of a single stage, or a ``share`` of them, (3)."""
    n, tp = links.num_nodes, group.width
    if tp > links.gpus_per_node.max():
        return ring_per_byte(group.members, group.members, best)
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
    dp, groups = candidate.dp, groups_of_node(problem, candidate.width)
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
