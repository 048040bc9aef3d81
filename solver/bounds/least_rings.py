r"""
Least seconds of data-parallel rings, whatever the placement.

Sets: nodes that hold c tensor groups at most.

(1) Let a ring touch k nodes, and let its slowest link between nodes have inverse rate :math:`\tau`. All links among
    these nodes are no slower, so the nodes form a clique, and the :math:`(k-1)`-core of the links up to :math:`\tau`
    has at least k nodes. The least :math:`\tau` with such a core bounds the ring between nodes.
(2) A ring of dp replicas on k nodes has at least :math:`g = \lceil dp / k \rceil` members on the fullest node. It takes
    :math:`T_{DP} \ge 4 \frac{g - 1}{g} M / B_{inside} + 2 \frac{k - 1}{k} M / B_{between}`, with the best link inside
    any node and (1) between nodes.
(3) A single stage has all groups of the cluster in its rings, :math:`c_n` on node n. The ring through a device takes
    one device of every group. Inside the node of the device the ring is no faster than the device's
    :math:`(c_n - 1)`-th best link. Towards another node n it is no faster than the device's :math:`c_n`-th best link.
    If tp = 1, one ring holds all devices, and (3) is its exact time. (3) is also exact if the devices of a node are
    interchangeable.
(4) With cp context ranks a ring has dp cp members, each on a tensor group. (1) to (3) hold for it. That the context
    ranks of a block lie together is left out, which can only lower the bound.
(5) A term (``taut.formulations.terms`` (2)) has several rings, each over its own group. Each takes its share of the
    least of (2), with a place for each member of the group.
(6) With two classes of device (``taut.formulations.partition`` (4)) and blocks inside nodes, a stage of fast blocks
    touches no node of the slow type, and a stage of slow blocks touches only such nodes: (2) over these nodes. A mixed
    stage has a ring with a member in every block, so some link of the ring joins the classes: (2) with a link between
    nodes no faster than the quickest link between the classes. If at most f of its n blocks are fast, and a slow node
    holds at most c blocks, the ring touches at least :math:`1 + \lceil (n - f) / c \rceil` nodes.
(7) If experts are held by fewer devices than other parameters, the gradients of experts have rings of their own, and so
    have the gathers of their shards. (1) to (3) hold for them with an expert group in the place of a tensor group. Let
    the rings take r seconds per byte for common parameters and :math:`r_e` for experts. M common bytes and X bytes of
    experts take :math:`r M + r_e X = r (M + X r_e / r)`. If a backward pass hides a
    part, a range of layers takes per byte at least the least mean of r and :math:`r_e` that a single layer has.
(8) The devices of stage 0 and of the last stage exchange a tied embedding
    (``taut.formulations.gradient_reductions`` (3)). Either some pair lies on two nodes, and the exchange takes at least
    the best link between nodes. Or every pair lies inside a node. In this case stage 0 has as many tensor groups on
    each node as the last stage, at most :math:`\lfloor c / 2 \rfloor` of the c that fit, so it touches at least
    :math:`\lceil dp / \lfloor c / 2 \rfloor \rceil` nodes. A pipeline that does not fit one node then returns to its
    first node, and makes as many hops between nodes as it touches nodes.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.formulations.gradient_reductions import overlaps, tied_bytes
from taut.formulations.links import Links
from taut.formulations.mechanisms.shards import holders, optimizer_shards
from taut.formulations.partition import slowest_type
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor, ring_steps
from taut.formulations.sharding import GatherRates, gather_rates
from taut.formulations.space import Candidate
from taut.formulations.terms import Group, in_one_ring, reductions_of
from taut.solver.bounds.link_bounds import BestLinks


class TiedExchange(NamedTuple):
    """
    Least seconds of a tied embedding's exchange by the two cases of (8): ``inside`` nodes, or ``apart``.

    In the case ``inside``, stage 0 has at most ``most`` tensor groups on a node, and every pipeline makes at least
    ``hops`` hops between nodes.
    """

    inside: float
    apart: float
    most: int
    hops: int


class Spread(NamedTuple):
    """A case of stage 0: it touches k nodes, every pipeline makes at least ``hops`` hops, ``tied`` takes seconds."""

    k: int
    hops: int
    tied: float


def groups_of_node(problem: PlanningProblem, width: int) -> int:
    """How many places of ``width`` devices fit the largest node, c; 1 if a place is wider than a node."""
    return max(int(problem.links.gpus_per_node.max()) // width, 1)


def spreads(problem: PlanningProblem, group: Group, num_nodes: int | None = None) -> range:
    """Every number of nodes that the members of a group may touch, out of ``num_nodes`` or of all nodes."""
    members, nodes = group.members, num_nodes or problem.links.num_nodes
    if group.width > problem.links.gpus_per_node.max():
        return range(members, members + 1)
    least = len(problem.device_types) if group.every_type else 1
    return range(max(-(-members // groups_of_node(problem, group.width)), least), min(members, nodes) + 1)


def telling(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> list[int]:
    """Numbers of nodes that the holders of a stage may touch, without the numbers that cannot be the best."""
    return best.telling(candidate.dp_cp, spreads(problem, holders(candidate), best.num_nodes))


def tied_exchange(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> TiedExchange:
    """Least seconds of a tied embedding's exchange in both cases of (8); 0 if nothing is exchanged."""
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
    """Yield the cases of stage 0, one of which is the best: by the nodes that it touches, and the two cases of (8)."""
    for k in best.telling(holders, spread):
        yield Spread(k, 0, tied.apart)
    if tied.inside < tied.apart:
        for k in best.telling(holders, range(max(spread.start, -(-holders // tied.most)), spread.stop)):
            yield Spread(k, tied.hops, tied.inside)


def ring_per_byte(dp: int, k: int, best: BestLinks, slowest: float = 0.0) -> float:
    """Least seconds per gradient byte of a ring of dp members on k nodes, (2), with a link of ``slowest`` or slower."""
    g = -(-dp // k)
    inside = inside_factor(g) * best.inside_inverse if g > 1 else 0.0
    return inside + ring_factor(k) * max(best.between(dp, k), slowest)


def least_ring(problem: PlanningProblem, group: Group, best: BestLinks) -> float:
    """Least seconds per byte of a group's rings, over all numbers of nodes, (2)."""
    if group.members == 1:
        return 0.0
    numbers = best.telling(group.members, spreads(problem, group, best.num_nodes))
    return min(ring_per_byte(group.members, k, best) for k in numbers)


def least_place(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Callable[[Group], float]:
    """A function from a group to the least seconds per byte of its rings: (3) for holders of a single stage, or (2)."""

    def least(group: Group) -> float:
        if candidate.pp == 1 and group.kind in ("replicas", "experts"):
            return every_device(problem.links, group, best)
        return least_ring(problem, group, best)

    return least


def least_reduction(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Least seconds of the first reduction per gradient byte of common parameters, (2) and (5)."""
    return reductions_of(problem.terms(candidate))[0].rate(lambda group: least_ring(problem, group, best))


def least_rings_by_class(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Floats:
    """Least seconds per gradient byte of a fast, a slow and a mixed stage (3,), (6); 0 with one device type."""
    if len(problem.device_types) == 1:
        return np.zeros(3)
    slow = problem.type_of_node == slowest_type(problem, candidate)
    wide = candidate.width > problem.links.gpus_per_node.max()
    each = [_ring_on(problem, candidate, best, nodes) for nodes in (~slow, np.ones_like(slow) if wide else slow)]
    return np.array([*each, least_mixed_rings(problem, candidate, best)[-1]])


def _ring_on(problem: PlanningProblem, candidate: Candidate, best: BestLinks, nodes: Flags) -> float:
    """Least seconds per gradient byte of a ring on ``nodes`` only, or on any nodes if these are too few for a stage."""
    held = int((problem.links.gpus_per_node[nodes] // candidate.tp).sum())
    return least_reduction(problem, candidate, best.of_nodes(nodes) if held >= candidate.dp_cp else best)


def least_mixed_rings(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Floats:
    """Least seconds per gradient byte of a mixed stage with at most 1, 2, ... fast blocks, (pipelines - 1,), (6)."""
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
    """Least seconds per gradient byte of the rings of experts, (7), for a single stage by (3); 0 without such rings."""
    least = least_place(problem, candidate, best)
    # Terms after the first two carry no gradients, and other bytes.
    terms = reductions_of(problem.terms(candidate))[:2]
    return sum(term.rate(least) for term in terms if term.load == "experts")


def exchanged_bytes(problem: PlanningProblem, candidate: Candidate, ring: float, experts: float) -> Floats:
    """Gradient bytes of every range, (L+1, L+1), with a byte of experts counted as r_e / r common bytes, (7)."""
    gradients = problem.gradient_bytes(candidate)
    if experts == 0.0:
        return gradients
    return np.asarray(gradients + experts / ring * problem.gradient_bytes(candidate, "experts"))


class WeightedRing(NamedTuple):
    """Least seconds of reductions per gradient byte, and how many such bytes a byte of experts counts as, (7)."""

    seconds: float
    weight: float


def least_weighted_ring(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, known: float = 0.0
) -> WeightedRing:
    """Least seconds of reductions, r ``known``, with the weight of experts, (7); with overlap of the least layer."""
    ring, tables = max(least_reduction(problem, candidate, best), known), problem.tables(candidate)
    if not tables.experts.any():
        return WeightedRing(ring, 1.0)
    of_experts = least_expert_ring(problem, candidate, best)
    if ring > 0.0 and not overlaps(problem, candidate):
        # A first stage that is waited for alone has one load for its reduction and its optimizer.
        alone = not problem.latency.waits_for_every_stage
        most = (optimizer_shards(candidate) / candidate.expert_shards if candidate.zero else 1.0) if alone else np.inf
        return WeightedRing(ring, min(of_experts / ring, most))
    apart, every = (np.diagonal(figures, 1) for figures in (tables.experts, tables.parameters))
    return WeightedRing(float(((ring * (every - apart) + of_experts * apart) / every).min()), 1.0)


def least_gather(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> GatherRates:
    """Least seconds per byte of a gather of sharded weights on any stage, (7), or on a single stage, (3)."""
    return gather_rates(problem.terms(candidate), least_place(problem, candidate, best))


def every_device(links: Links, group: Group, best: BestLinks, share: int = 1) -> float:
    """Seconds per byte of a ring over every place of a single stage, (3), or over one in ``share`` places of a node."""
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
    """Least seconds per byte, and least latency, of AMP's flat ring over dp replicas."""
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
