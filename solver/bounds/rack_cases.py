r"""
Bound ``partition`` by the first stage that spans racks, if every block fills a node or several.

Sets: racks r of :math:`n_r` nodes, which may be any division of the nodes; stages of M whole nodes each. A stage is
confined if all its nodes lie in one rack. Otherwise it spans racks.
Data: :math:`\hat\rho` seconds per byte of a ring on M nodes whose slowest link is no faster than the fastest between
racks; :math:`\Delta` seconds that a hop between racks takes at least beyond the least of all hops, weighted, and
:math:`\Delta' \le \Delta` beyond the least without its way back.

(1) For every J one of J + 1 cases holds: for some p < J stages 0..p-1 are confined and stage p spans racks, or stages
    0..J-1 are confined. J need not exceed pp, or the number of stages that the racks can confine.
(2) A device of every block hands its activations to a device of the next stage. Pipelines are therefore paths of pp
    slots: whole nodes if a block is one node, or else tensor groups, one in every stage. With p confined stages some
    path makes at least c hops between racks (``taut.solver.bounds.racks`` (5)). A trip takes as long
    as any path of its devices, so the longest trip takes at least :math:`c \Delta` beyond the least hops.
(3) If stage p spans racks, its ring takes :math:`\hat\rho` a byte. It begins after the longest trip, without the way
    back of the first p hops. The bound takes the cheapest order of the hops, in which hops between racks come first:

    .. math:: H_p = \min(p, c) \Delta' + \max(c - p, 0) \Delta .

    A stage before p loses fewer ways back, so its hops add no less. Stages after p wait for less than stage p; their
    own rings are left out.
(4) Each case is an exact division. Let :math:`v_p` be its value if stage p spans racks, and :math:`r_J` its value if J
    stages are confined. The bound is :math:`\max_J \min(\min_{p<J} v_p, r_J)`. :math:`r_J` rises with J, so the search
    ends once it is no less than the least :math:`v_p`.

Every stage is priced with its context rings on the best links. On links between racks they can only be slower.

Where c > 1 blocks fit each of N nodes, and a stage has n blocks, nodes are the racks:

(5) A stage is confined if it touches the fewest nodes that hold it, :math:`k_0 = \lceil n / c \rceil`. Otherwise it
    spans nodes, and every ring over all its blocks, of experts too, touches :math:`k_0 + 1` nodes at least:
    :math:`\hat\rho` is the least of such rings (``taut.solver.bounds.least_rings`` (2)). A stage with experts takes no
    less for a byte than the layer that has the least mean of both rings.
(6) If n < c, the hops between nodes are those of (2) with c slots a node and n a stage. If c divides n, a
    confined stage fills its nodes, so every pipeline leaves the first p stages at once, and then the node of every
    further run of c stages: :math:`p + \lceil (pp - p) / c \rceil - 1` hops, of pp - 1. In any case some pipeline makes
    :math:`I(k)` hops (``taut.solver.bounds.least_hops`` (1), with blocks for replicas), :math:`k = k_0` where stage 0
    is confined. If n > c, all stages may be confined.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import least_bytes
from taut.formulations.partition import PartitionProblem, waits_for_later_stages
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate
from taut.formulations.terms import Group, in_one_ring, reductions_of
from taut.solver.bounds.communication import Communication, fixed_seconds
from taut.solver.bounds.least_hops import hops_before, is_single, least_edges
from taut.solver.bounds.least_rings import exchanged_bytes, least_expert_ring, least_reduction, ring_per_byte
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.racks import fewest_crossings
from taut.solver.layer_division.divide import Partition, solve_partition


@dataclass(frozen=True, kw_only=True)
class RackCases:
    """
    What the cases (1) of a candidate rest on. Racks are nodes where blocks share nodes, (5).

    ``crossings``: hops between racks of some path at least by confined stages, (most + 1,), for as many as can be
    confined; ``whole``, ``before``: seconds that such a hop adds, in full and without its way back; ``ring``: seconds
    per byte of stage p where it spans racks, (pp,); ``confined``, ``spanning``: seconds that stage 0 waits for beyond
    its hops where it ends at layer j, by whether it spans racks, (L+1,); ``constant``: seconds of every step.
    """

    crossings: Ints
    whole: float
    before: float
    ring: Floats
    confined: Floats
    spanning: Floats
    constant: float

    def first(self, place: int, *, spans: bool) -> Floats:
        """Seconds that stage 0 waits for at least with so many confined stages, (2), (L+1,)."""
        alone = self.spanning if spans and place == 0 else self.confined
        return alone + self.whole * int(self.crossings[place])

    def before_ring(self, place: int) -> float:
        """Seconds that hops add before the ring of a stage that spans racks, (3)."""
        crossings = int(self.crossings[place])
        return min(place, crossings) * self.before + max(crossings - place, 0) * self.whole


class _Tails(TypedDict):
    """Figures of ``RackCases`` that rest on rings."""

    ring: Floats
    confined: Floats
    spanning: Floats


class _Hop(NamedTuple):
    """Seconds that a hop between racks adds at least, in full and without its way back."""

    whole: float
    before: float


def rack_cases(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> RackCases | None:
    """Racks of a candidate, or nodes of one with wider blocks; None where none are, or stage 0 alone is waited for."""
    if not waits_for_later_stages(problem, candidate):
        return None
    constant = problem.least_constant(candidate)
    # Blocks that are tensor groups have their nodes told apart by the members of rings.
    if not candidate.of_tensor_groups and len(problem.device_types) == 1 and share_nodes(problem, candidate):
        tails = _tails_on_nodes(problem, candidate, best)
        hop = _hop(problem, candidate, best, None)
        each = crossings_of_nodes(problem, candidate)
        return RackCases(crossings=each, whole=hop.whole, before=hop.before, constant=constant, **tails)
    rack = best.racks
    if rack is None or not rack.any() or not fill_nodes(problem, candidate):
        return None
    tails, hop = _tails(problem, candidate, best, rack), _hop(problem, candidate, best, rack)
    each = crossings_of_racks(problem, candidate, rack)
    return RackCases(crossings=each, whole=hop.whole, before=hop.before, constant=constant, **tails)


def fill_nodes(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether stages are whole nodes, two or more, of tensor groups that lie in one each, with one ring."""
    sizes = problem.links.gpus_per_node
    return (
        candidate.ep == 1
        and in_one_ring(problem.terms(candidate))
        and len(problem.device_types) == 1
        and bool((sizes == sizes[0]).all())
        and candidate.tp <= sizes[0]
        and candidate.width % int(sizes[0]) == 0
        and problem.links.num_nodes > candidate.pp
    )


def crossings_of_racks(problem: PlanningProblem, candidate: Candidate, rack: Ints) -> Ints:
    """Hops between racks that some path makes at least by confined stages, (2)."""
    size, members = int(problem.links.gpus_per_node[0]), problem.links.num_nodes // candidate.pp
    sizes, held = np.bincount(rack), 1 if candidate.width == size else size // candidate.tp
    most = min(int((sizes // members).sum()), candidate.pp)
    each = [fewest_crossings(sizes * held, members * held, p, candidate.pp) for p in range(most + 1)]
    return np.array(each, dtype=np.int64)


def share_nodes(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether several blocks of a pipeline fit every node, with rings over all blocks of a stage, (5)."""
    sizes, width = problem.links.gpus_per_node, candidate.width
    return (
        candidate.pp > 1
        and in_one_ring(problem.terms(candidate))
        and problem.links.num_nodes > 1
        and bool((sizes == sizes[0]).all())
        and sizes[0] >= 2 * width
        and int(sizes[0]) % width == 0
    )


def fills_nodes(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether a confined stage fills its nodes, where blocks share nodes, (6)."""
    return candidate.pipelines * candidate.width % int(problem.links.gpus_per_node[0]) == 0


def crossings_of_nodes(problem: PlanningProblem, candidate: Candidate) -> Ints:
    """Hops between nodes that some pipeline makes at least by confined stages, (6), where blocks share nodes."""
    nodes, held = problem.links.num_nodes, int(problem.links.gpus_per_node[0]) // candidate.width
    blocks, pp = candidate.pipelines, candidate.pp
    fewest, most = -(-blocks // held), min(blocks, nodes)

    def by_first(touched: int) -> int:
        """I(k)."""
        return max(-(-(pp - held // -(-blocks // touched)) // held), 0)

    if fills_nodes(problem, candidate):
        each = np.array([min(p + max(-(-(pp - p) // held) - 1, 0), pp - 1) for p in range(pp + 1)])
    elif blocks < held:
        stages = range(min(nodes * (held // blocks), pp) + 1)
        each = np.array([fewest_crossings(np.full(nodes, held), blocks, p, pp) for p in stages])
    else:
        each = np.zeros(pp + 1, np.int64)
    each = np.maximum(each, np.where(np.arange(len(each)) > 0, by_first(fewest), by_first(most)))
    # Where no stage can touch more nodes all are confined.
    return np.asarray(np.maximum.accumulate(each)[0 if most > fewest else -1 :], dtype=np.int64)


def rings_across_nodes(problem: PlanningProblem, candidate: Candidate, best: BestLinks, loads: Floats) -> Floats:
    """Seconds per byte of ``loads`` of layers (L,) that stage p takes at least on more nodes than it needs, (pp,)."""
    seconds = np.diagonal(_seconds_across(problem, candidate, best), 1)
    # Every stage before it has a layer.
    behind = np.minimum.accumulate((seconds / np.maximum(loads, 1e-300))[::-1])[::-1]
    return np.asarray(behind[: candidate.pp])


def _seconds_across(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Floats:
    """Least seconds of the rings of every range on more nodes than a stage needs, (L+1, L+1), (5)."""
    held = int(problem.links.gpus_per_node[0]) // candidate.width
    nodes = range(-(-candidate.pipelines // held) + 1, min(candidate.pipelines, problem.links.num_nodes) + 1)
    terms = reductions_of(problem.terms(candidate))

    def least(group: Group) -> float:
        numbers = best.telling(group.members, nodes)
        return min((ring_per_byte(group.members, k, best) for k in numbers), default=0.0)

    experts = sum(term.rate(least) for term in terms[:2] if term.load == "experts")
    common = terms[0].rate(least) * problem.gradient_bytes(candidate)
    return np.asarray(common + experts * problem.gradient_bytes(candidate, "experts"))


def _tails_on_nodes(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> "_Tails":
    """The same as ``_tails`` where blocks share nodes, (5)."""
    fixed, within = fixed_seconds(problem, candidate), least_reduction(problem, candidate, best)
    loads = exchanged_bytes(problem, candidate, within, least_expert_ring(problem, candidate, best))
    least = least_bytes(problem, candidate, loads)[0]
    rings = rings_across_nodes(problem, candidate, best, np.diagonal(loads, 1))
    across = least_bytes(problem, candidate, _seconds_across(problem, candidate, best))[0]
    return {"ring": rings, "confined": least * within + fixed, "spanning": np.maximum(across, least * within) + fixed}


def _tails(problem: PlanningProblem, candidate: Candidate, best: BestLinks, rack: Ints) -> "_Tails":
    """Seconds per byte of a stage that spans racks, and what stage 0 waits for beyond its hops."""
    nodes, fixed = problem.links.num_nodes // candidate.pp, fixed_seconds(problem, candidate)
    held, gradients = candidate.dp_cp // nodes, least_bytes(problem, candidate)[0]
    inside = inside_factor(held) * best.inside_inverse if held > 1 else 0.0
    least = best.between(candidate.dp_cp, nodes)
    slowest = max(least, best.least_between(problem.rings.inverse, rack))
    within, ring = (inside + ring_factor(nodes) * rate for rate in (least, slowest))
    rings = np.full(candidate.pp, ring)
    return {"ring": rings, "confined": gradients * within + fixed, "spanning": gradients * ring + fixed}


def _hop(problem: PlanningProblem, candidate: Candidate, best: BestLinks, rack: Ints | None) -> _Hop:
    """What a hop between racks, or nodes, adds at least to the least hop of its message."""
    links, width, tables = problem.links, candidate.width, problem.tables(candidate)
    weight, coefficient = problem.transfer_weight(candidate), problem.coefficient("pipeline")
    edge, edge_before = least_edges(problem, candidate, best)[0], hops_before(problem, candidate, best)[0]
    whole, before = np.inf, np.inf
    for message, cut in zip(*np.unique(tables.message[1:-1], return_index=True), strict=True):
        hop = links.hop_seconds(width, float(message), both_ways=True)
        first = best.seconds_before(width, float(message), weight, coefficient, single=is_single(links, width))
        whole = min(whole, weight * (best.least_between(hop, rack) - edge[cut + 1]))
        before = min(before, best.least_between(first, rack) - edge_before[cut + 1])
    return _Hop(max(whole, 0.0), max(min(whole, before), 0.0))


def least_of_cases(
    stages: PartitionProblem, comm: Communication, racks: RackCases, *, limit: float = np.inf
) -> Partition:
    """The least exact partition of the cases, (4), or a bound beyond the limit."""
    least = Partition(seconds=np.inf)
    for place in range(len(racks.crossings)):
        rest = solved_case(stages, comm, racks, place, spans=False, limit=limit)
        # Further stages add nothing where all can be confined without another hop.
        if rest.seconds >= min(least.seconds, limit) or racks.crossings[place] in racks.crossings[stages.pp :]:
            return min(least, rest, key=lambda found: found.seconds)
        spanning = solved_case(stages, comm, racks, place, spans=True, limit=limit)
        least = min(least, spanning, key=lambda found: found.seconds)
    return least


def solved_case(
    stages: PartitionProblem, comm: Communication, racks: RackCases, place: int, *, spans: bool, limit: float
) -> Partition:
    """The exact partition of one case, whose stage ``place`` spans racks or may lie anywhere."""
    later = comm.later
    assert later is not None
    if spans and place:
        ring = np.where(np.arange(stages.pp) > place, 0.0, later.ring)
        ring[place] = max(ring[place], racks.ring[place])
        others = max(later.others, racks.constant + racks.before_ring(place))
        later = replace(later, ring=ring, others=others)
    tail = np.maximum(comm.tail, racks.first(place, spans=spans))
    return solve_partition(stages, comm.edge, tail, later=later, limit=limit)
