r"""
Bound ``partition`` by the members that rings have on their nodes: branch and bound over stages.

Sets: stages x; nodes of at most c tensor groups each, like devices.
Data: G / N seconds per byte of a node's cards for a ring with one member there (``taut.formulations.rings`` (3)).
Variables: :math:`g_x`, the fewest members that the ring of stage x has on any node that it touches.

(1) A ring with at least :math:`g_x` members on each of its k nodes, and exactly so many on one of them, satisfies
    :math:`k g_x \le dp \le g_x + (k - 1) c`. The node with :math:`g_x` members gives the ring :math:`g_x` shares of its
    cards. With :math:`g = \lceil dp / k \rceil` the ring takes per byte at least
    :math:`\min_k 4 \frac{g - 1}{g} / B_{inside} + 2 \frac{k - 1}{k} \max(1 / B_k, G / (N g_x))`.
(2) The stages of a pipeline on one node, next to each other or not, have their rings there, so
    :math:`\sum g_x \le c` over these stages. Fill runs of consecutive stages one after the other: their number less one
    is the least number of hops between nodes. If messages are equal, the hops are a walk that stops at d nodes, with
    :math:`d \ge \lceil \sum g_x / c \rceil` and :math:`d \ge |\{x : g_x > c / (j + 1)\}| / j` for every j, and the
    least such walk bounds them (``taut.solver.bounds.racks``).
(3) Give stages 0..s-1 their :math:`g_x`. Let later stages have the fewest members in (2), and the best number in (1).
    The exact division with rings (1) and hops (2) is a lower bound. A branch gives stage s its :math:`g_s`. A leaf is
    reached if the bound stays the same with the fewest members in (1) too for all later stages.

Few members make rings slow, and many members make hops. A wide ring of stage 0 leaves stage 1 a slow ring, although
stage 1 ends little earlier. Later stages have slack, so the first few stages decide.

References
----------
Land and Doig (1960), An automatic method of solving discrete programming problems.
"""

import heapq
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.gradient_reductions import least_bytes
from taut.formulations.mechanisms.shards import holders
from taut.formulations.partition import PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate
from taut.formulations.terms import in_one_ring
from taut.solver.bounds.communication import Communication, fixed_seconds
from taut.solver.bounds.least_hops import hops_before, least_edges
from taut.solver.bounds.least_rings import groups_of_node, spreads, spreads_of_first, tied_exchange
from taut.solver.bounds.link_bounds import BestLinks, Walks
from taut.solver.layer_division.divide import Partition, solve_partition

MOST_NODES = 64
"""Nodes of the tree, since each is an exact partition; then the least bound of the open ones counts."""
EQUAL = 1 + 1e-12
"""Factor within which two bounds are equal, beyond the rounding of their sums."""


def has_members(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether the rings of several stages, of all replicas each, may differ by their members on nodes."""
    return (
        problem.latency.shares_cards_by_members
        and candidate.dp > 1
        and in_one_ring(problem.terms(candidate))
        and candidate.of_tensor_groups
        and candidate.pp > 1
        and len(problem.device_types) == 1
        and candidate.tp < problem.links.gpus_per_node.max()
        and candidate.tp <= problem.links.gpus_per_node.min()
    )


class MemberBound:
    """The bound of one candidate: its problem, best links, partition problem and least communication."""

    def __init__(
        self,
        problem: PlanningProblem,
        candidate: Candidate,
        best: BestLinks,
        stages: PartitionProblem,
        comm: Communication,
    ) -> None:
        self._stages, self._comm, self._candidate = stages, comm, candidate
        self._capacity = groups_of_node(problem, candidate.width)
        self._weight = problem.transfer_weight(candidate)
        self._bytes, self._fixed = least_bytes(problem, candidate)[0], fixed_seconds(problem, candidate)
        _, self._between = least_edges(problem, candidate, best)
        _, self._further_before = hops_before(problem, candidate, best)
        self._walks = _walks(problem, candidate, best)
        self._spreads = spreads(problem, holders(candidate))
        self._levels = [g for g in range(1, candidate.dp + 1) if g <= self._capacity and self._touched(g)]
        self._fewest = min(self._levels)
        tied, dp = tied_exchange(problem, candidate, best), candidate.dp
        first = {g: spreads_of_first(tied, dp, self._touched(g), best) for g in self._levels}
        self._first = {g: [(each, self._ring(g, each.k, best)) for each in numbers] for g, numbers in first.items()}
        self._rings = {g: min(ring for _, ring in rings) for g, rings in self._first.items()}

    def _touched(self, g: int) -> range:
        """Numbers of nodes that a ring can touch with so many members on each, and no more."""
        dp, fewest = self._candidate.dp, -(-(self._candidate.dp - g) // self._capacity) + 1
        return range(max(self._spreads.start, fewest), min(self._spreads.stop, dp // g + 1))

    def _ring(self, g: int, k: int, best: BestLinks) -> float:
        """Seconds per byte of a ring on k nodes with g members at least, (1)."""
        fullest = -(-self._candidate.dp // k)
        inside = inside_factor(fullest) * best.inside_inverse if fullest > 1 else 0.0
        return inside + (ring_factor(k) * max(best.core(k), best.card / g) if k > 1 else 0.0)

    def least(self, limit: float) -> Partition:
        """The least bound over all members, or a bound beyond the limit, (3)."""
        best = self._solved((), np.inf, whole=True)
        open_nodes = [_Node(self._solved((), np.inf, whole=False).seconds, ())]
        for _ in range(MOST_NODES):
            node = heapq.heappop(open_nodes)
            if node.seconds * EQUAL >= min(best.seconds, limit) or len(node.members) == self._candidate.pp:
                return replace(best, seconds=min(best.seconds, node.seconds))
            for g in self._levels:
                members = (*node.members, g)
                within = min(best.seconds, limit) * EQUAL
                relaxed = self._solved(members, within, whole=False)
                heapq.heappush(open_nodes, _Node(max(relaxed.seconds, node.seconds), members))
                if relaxed.seconds < within:
                    best = min(best, self._solved(members, within, whole=True), key=lambda found: found.seconds)
        return replace(best, seconds=min(best.seconds, open_nodes[0].seconds))

    def _solved(self, members: tuple[int, ...], limit: float, *, whole: bool) -> Partition:
        """The exact partition with given members of the first stages; of others the fewest, or the best in (1)."""
        comm, later = self._comm, self._comm.later
        assert later is not None
        assumed = self._fewest if whole else min(self._rings, key=lambda g: self._rings[g])
        rings = np.array([self._rings[g] for g in (*members, *[assumed] * (self._candidate.pp - len(members)))])
        hops, stops = self._hops(members), self._stops(members)
        first = self._first_stage(members[0] if members else (self._fewest if whole else None), hops, stops)
        others = max(later.others, self._later_wait(hops, stops))
        more = replace(later, ring=np.maximum(rings, later.ring), others=others)
        return solve_partition(self._stages, comm.edge, np.maximum(comm.tail, first), later=more, limit=limit)

    def _hops(self, members: tuple[int, ...]) -> int:
        """Hops between nodes that every pipeline makes at least, (2)."""
        runs, room = 1, self._capacity
        for g in (*members, *[self._fewest] * (self._candidate.pp - len(members))):
            if g > room:
                runs, room = runs + 1, self._capacity
            room -= g
        return runs - 1

    def _stops(self, members: tuple[int, ...]) -> int:
        """Nodes at which every pipeline stops at least, (2)."""
        every = np.array([*members, *[self._fewest] * (self._candidate.pp - len(members))])
        shared = range(1, self._capacity + 1)
        by_size = [-(-int((every * (j + 1) > self._capacity).sum()) // j) for j in shared]
        return min(max(-(-int(every.sum()) // self._capacity), *by_size), len(self._walks.whole) - 1)

    def _first_stage(self, g: int | None, hops: int, stops: int) -> Floats:
        """Seconds that stage 0 waits for with g members, or the best number, by its end (L+1,)."""
        choices = self._levels if g is None else [g]
        waits = [
            max(self._weight * self._between(spread.k, max(hops, spread.hops)), self._walks.whole[stops])
            + np.maximum(ring * self._bytes, spread.tied)
            for one in choices
            for spread, ring in self._first[one]
        ]
        return np.asarray(np.min(waits, axis=0) + self._fixed)

    def _later_wait(self, hops: int, stops: int) -> float:
        """Seconds beyond rings that later stages wait for."""
        return max(hops * self._further_before, float(self._walks.without_back[stops])) + float(self._fixed[-1])


def _walks(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Walks:
    """What hops of a pipeline add by the nodes at which it stops; where messages differ nothing is known."""
    tables, tp = problem.tables(candidate), candidate.tp
    if not tables.equal_messages or problem.links.num_nodes == 1 or problem.transfer_weight(candidate) == 0.0:
        nothing = np.zeros(candidate.pp + 1)
        return Walks(nothing, nothing)
    weights = problem.transfer_weight(candidate), problem.coefficient("pipeline")
    single, inside = tp == 1 or problem.links.by_node, groups_of_node(problem, candidate.width) > 1
    return best.walks(tp, float(tables.message[1]), *weights, single=single, inside=inside)


@dataclass(order=True)
class _Node:
    seconds: float
    members: tuple[int, ...]
