r"""
Bound ``placement``: layer partition and exact placement together, where slots have few multisets.

Sets: layers j at which stage 0 ends; placements of the tensor groups on slots.
Data: stage tables, links. Variables: stages, recompute, placement. Objective: the step time in seconds.

Partition and placement meet in the gradient bytes of stage 0 alone, hence in j:

(1) LB = min over j of [partition with stage 0 ending at j] + V(j), V(j) = least communication for those gradients.
(2) V(j) is first bounded by links (``taut.solver.bounds.candidate_bounds``), then replaced by its exact value for the j
    that attains the minimum, until that j's V is exact: a cutting plane at a time, as in logic-based Benders
    decomposition.
(3) With different messages the trip is priced at the smallest message, and a cut adds its further bytes at the fastest
    link. The bound is the optimum with one device type, one group time, and one message size.
(4) In the latency model ``step`` that is a bound on what stage 0 waits for. Of two stages the other one's ring is known
    with it, (10), and the slower of both is minimised.

V(j) is an exact min-max path cover by dynamic programming over subsets of slots, or multisets where slots are of few
kinds.

Sets: slots, each a tensor group's place; slots of one kind, (11), can be exchanged without changing anything.
dp paths of pp slots take every slot once.
Data: W[u, v] seconds of a hop; ring(S) seconds for stage 0 on the start set S.
Variables: the start set S, the first slots of all paths, and the paths. Minimise the longest path plus ring(S).

For a multiset Q of slots (``taut.solver.bounds.multisets``),

(5) path[Q, c] = least length of a path that starts at kind c and visits all of Q;
(6) of start sets with equal kinds only the one on each kind's first slots is tried;
(7) for each S, cover[R] = least over ways to give R to the first starts of the longest of their paths;
(8) least(S) = max over v of the shortest path of pp slots from one of S that visits v, since every slot is visited, or
    from v if v is in S: a lower bound. S are tried by ascending least(S) + ring(S), until that is no better than the
    best found.

(9) A second price, a share of the longest path plus other(S), may be asked for as well, and the larger one is
    minimised. Both rise with the longest path, so (8) holds for either.

The value is exact, or after ``most_pairs`` of multisets the valid bound of (8) for the start sets not tried.

Of two stages the second one has all slots that the first one leaves: stage 0 lies on the dp slots of S, stage 1 on the
other dp slots S'. Stage 0 ends at layer j.

(10) In the latency model ``step``, with the terms of ``taut.formulations.partition`` (1'), stage 1 waits for

    .. math:: U_1 = \sum_x low(x) - backward_0 + h T - b + R_1(S'),

    b the way back of the longest pipeline's only hop, at most a share :math:`\kappa` of :math:`h T`. So beyond the
    layers a step takes :math:`\max(h T + G \rho(S), (1 - \kappa) h T + R_1(S') - backward_0 - edge_j)` seconds at
    least, with the longest backward pass of any recompute. The further bytes of the cut, for which stage 1 need not
    wait, are taken off; they add no less to the hop than to its way back, so that the smallest message counts.

Two slots are of one kind if exchanging them changes no link. Those of one node are, where the devices of a node are
interchangeable. Two that are alone in their nodes, or two devices of one node, are of one kind if for every table of
links M (latency, rate of pipeline transfers, rate of rings), their nodes' cards giving equal shares,

(11) :math:`M_{uw} = M_{vw}, \; M_{wu} = M_{wv}` for every other w, :math:`M_{uv} = M_{vu}, \; M_{uu} = M_{vv}`.

This is an equivalence (u and v are twins in every table), so a slot need only be compared with one of each kind.

References
----------
Hooker and Ottosson (2003), Logic-based Benders decomposition: (2).
Held and Karp (1962), A dynamic programming approach to sequencing problems: (5).
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import least_bytes
from taut.formulations.links import Links, PairTable
from taut.formulations.partition import LaterStages, PartitionProblem, partition_problem
from taut.formulations.placement import slot_sites
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import RingRates, ring_by_byte
from taut.formulations.space import Candidate
from taut.solver.bounds.communication import communication, fixed_seconds
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.multisets import least_cover, lengths_through, path_lengths, shortest_path, small_multisets
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.divide import Partition, solve_partition

Value = TypeVar("Value")

MAX_MULTISETS, MAX_LINKS = 1 << 21, 100_000_000
"""Multisets of all slots, which bound memory; and links between two slots of a start set over all start sets, which
bound the time to price their rings."""
MAX_PAIRS = 2_000_000_000
"""Pairs of multisets that one solution looks at, some seconds; what is left is bounded."""
SLACKS = (1.05, 1.25, 2.0)
"""Cutoffs of the first covers, as multiples of least(S): few paths are below a low one, so a cover is found sooner."""
CHUNK = 20_000
"""Start sets whose least(S) are taken from one array, which bounds memory."""


def few_multisets(kinds: Ints, pp: int) -> bool:
    """Whether slots of these kinds (n,) have few enough multisets, and their start sets few enough links."""
    counts, dp = np.bincount(kinds), len(kinds) // pp
    if float(np.prod(counts + 1.0)) > MAX_MULTISETS:
        return False
    ways = np.ones(1)
    for count in counts.tolist():
        ways = np.convolve(ways, np.ones(count + 1))
    return float(ways[dp]) * dp**2 <= MAX_LINKS


@dataclass(frozen=True, slots=True)
class SecondPrice:
    """The second price of (9): the ``share`` of the longest path, and ``other`` seconds of each start set."""

    share: float
    other: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetPlacement:
    """Least seconds found, a lower bound in seconds, and the slots of the best placement, (dp, pp)."""

    seconds: float
    lower_bound: float
    slots: Ints


class SubsetSolver:
    """Path lengths by hops (n, n) between slots of kinds (n,), and the exact placements that follow from them."""

    def __init__(self, hops: Floats, kinds: Ints, pp: int) -> None:
        self.pp, self.dp = pp, len(kinds) // pp
        self._slots = [np.flatnonzero(kinds == c) for c in range(int(kinds.max()) + 1)]
        self._counts = np.array([len(slots) for slots in self._slots], dtype=np.int64)
        first, last = (np.array([slots[end] for slots in self._slots]) for end in (0, -1))
        self._hops = hops[np.ix_(first, first)]
        np.fill_diagonal(self._hops, np.where(self._counts > 1, hops[first, last], np.inf))
        self._members, self._row = small_multisets(self._counts, pp)
        self._path = path_lengths(self._hops, self._counts, self._members, self._row)
        self._starts = np.array(list(_start_kinds(self._counts.tolist(), self.dp)), dtype=np.int64)
        via = lengths_through(self._path, self._members, pp)
        parts = np.array_split(self._starts, -(-len(self._starts) // CHUNK))
        self._least = np.concatenate([_least(via, starts) for starts in parts])

    @property
    def start_sets(self) -> Ints:
        """Start sets to be priced, (sets, dp), one of each class of equal ones."""
        rank = np.zeros(self._starts.shape, np.int64)
        for k in range(1, self.dp):
            rank[:, k] = np.where(self._starts[:, k] == self._starts[:, k - 1], rank[:, k - 1] + 1, 0)
        table = np.zeros((len(self._slots), int(self._counts.max())), np.int64)
        for c, slots in enumerate(self._slots):
            table[c, : len(slots)] = slots
        return table[self._starts, rank]

    def solve(self, ring: Floats, *, second: SecondPrice | None = None, most_pairs: int = MAX_PAIRS) -> SubsetPlacement:
        """The least longest path plus ``ring`` (sets,), or second price (9); exact within ``most_pairs``."""
        best, chosen, bound, looked = np.inf, (0, np.zeros(self.dp, np.int64)), np.inf, 0
        share, other = (1.0, ring) if second is None else (second.share, second.other)
        bounds = np.maximum(self._least + ring, share * self._least + other)
        for index in np.argsort(bounds, kind="stable").tolist():
            if bounds[index] >= best or looked > most_pairs:
                bound = bounds[index]
                break
            cutoff = min(best - ring[index], (best - other[index]) / share)
            longest, visited, pairs = self._cover(index, float(cutoff))
            looked += pairs
            price = max(longest + ring[index], share * longest + other[index])
            if price < best:
                best, chosen = float(price), (index, visited)
        return SubsetPlacement(seconds=best, lower_bound=float(min(best, bound)), slots=self._placed(*chosen))

    def _cover(self, index: int, cutoff: float) -> tuple[float, Ints, int]:
        """Cover (7) below the cutoff, and the pairs looked at; without a cutoff the ``SLACKS`` are tried first."""
        looked, least = 0, float(self._least[index])
        for slack in (*SLACKS, np.inf):
            below = slack * least if np.isinf(cutoff) and least > 0.0 else cutoff
            tables = self._path, self._row, self._counts, self._starts[index]
            longest, visited, pairs = least_cover(*tables, self.pp, below)
            looked += pairs
            if np.isfinite(longest) or below == cutoff:
                break
        return float(longest), visited, looked

    def _placed(self, index: int, visited: Ints) -> Ints:
        """Slots of each pipeline in stage order, from the kinds of its path."""
        starts, taken = self._starts[index].tolist(), np.zeros(len(self._slots), np.int64)
        order = np.empty((self.dp, self.pp), np.int64)
        tables = self._hops, self._path, self._members, self._row, self._counts
        for z, (start, number) in enumerate(zip(starts, visited.tolist(), strict=True)):
            order[z] = shortest_path(*tables, start, number)
        placed = np.empty_like(order)
        # First slots first: they are those that the ring was priced for.
        for at in np.ndindex(self.pp, self.dp):
            kind = order[at[::-1]]
            placed[at[::-1]] = self._slots[kind][taken[kind]]
            taken[kind] += 1
        return placed


def _least(via: Floats, starts: Ints) -> Floats:
    """Least seconds (8) of start sets, (sets,)."""
    through = via[starts].min(axis=1).max(axis=1)
    return np.asarray(np.maximum(through, np.diag(via)[starts].max(axis=1)))


def _start_kinds(counts: list[int], left: int) -> Iterator[tuple[int, ...]]:
    """Ascending kinds of so many slots, each way once."""
    room = np.cumsum([0, *counts[::-1]])[::-1].tolist()

    def further(c: int, left: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield ()
        elif c < len(counts):
            for number in range(min(counts[c], left), max(left - room[c + 1], 0) - 1, -1):
                yield from ((c,) * number + rest for rest in further(c + 1, left - number))

    return further(0, left)


def other_slots(start_sets: Ints) -> Ints:
    """The slots (sets, dp) that start sets (sets, dp) leave of twice as many."""
    sets, dp = start_sets.shape
    left = np.ones((sets, 2 * dp), dtype=bool)
    np.put_along_axis(left, start_sets, False, axis=1)
    return np.asarray(np.nonzero(left)[1].reshape(sets, dp))


def kept_share(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    r"""The share :math:`1 - \kappa` of a weighted hop that is left without its way back, at least."""
    links, tp, message = problem.links, candidate.tp, float(problem.tables(candidate).message[1:-1].min())
    back: PairTable = problem.coefficient("pipeline") * (links.latency + message / links.pipeline_rate(tp))
    hop: PairTable = problem.transfer_weight(candidate) * links.hop_seconds(tp, message, both_ways=True)
    with np.errstate(invalid="ignore"):  # A node of one device has no hop inside.
        share = -(back / hop)
    return 1.0 + min(best.least_inside(share), best.least_apart(share))


def waited_for(stages: PartitionProblem, later: LaterStages, end: int, rings: Floats) -> Floats:
    """Seconds (sets,) that stage 1 waits for beyond layers and hop by rings (sets,) in s/byte; (10) without the cut."""
    last = stages.num_layers
    waited = rings * later.exchanged[end, last]
    if later.overlap:
        waited = np.maximum(waited - _backward(stages, end, last), rings * later.unhidden[end, last])
    return np.asarray(waited - _backward(stages, 0, end))


def _backward(stages: PartitionProblem, first: int, end: int) -> float:
    """Seconds of the longest backward pass of a range, of any recompute that is allowed."""
    low = stages.low[0, :, first, end]
    forward = 0.0 if stages.forward is None else float(stages.forward[0, first, end])
    return float(low[np.isfinite(low)].max(initial=forward)) - forward


MAX_KINDS = 20
"""Kinds that are told apart: 20 slots of different kinds have a million multisets, near the most that are solved."""


def slot_kinds(links: Links, rings: RingRates, tp: int) -> Ints | None:
    """Kind of every slot (slots,), numbered from zero on; None where there are more than ``MAX_KINDS``."""
    sites, node = slot_sites(links, tp)[:, 0], links.node_of_site
    single = np.bincount(sites, minlength=links.num_sites) == 1
    # Devices of two nodes can change places only where each is all of its node.
    place = np.where(np.bincount(node)[node] == 1, -1, node)
    tables, card = (links.latency, links.pipeline_rate(tp), rings.inverse), rings.card[node]
    block_of, known = links.rate.blocks.of, np.full(len(links.rate.blocks.size), -1)
    first: list[int] = []
    kind_of = np.zeros(links.num_sites, np.int64)
    for v in range(links.num_sites):
        # Slots that are alone on nodes of one block are of one kind.
        kind = int(known[block_of[v]]) if single[v] else -1
        if kind < 0:
            alike = (
                c
                for c, u in enumerate(first)
                if single[u] and single[v] and place[u] == place[v] and card[u] == card[v]
            )
            kind = next((c for c in alike if _exchangeable(tables, first[c], v)), len(first))
        if kind == len(first):
            first.append(v)
        kind_of[v] = known[block_of[v]] = kind
        if len(first) > MAX_KINDS:
            return None
    return kind_of[sites]


def _exchangeable(tables: tuple[PairTable, ...], u: int, v: int) -> bool:
    """Whether two sites of different blocks can be exchanged, (11)."""
    for table in tables:
        b, c = table.blocks.of[[u, v]]
        apart = (table.apart[b] != table.apart[c]) | (table.apart[:, b] != table.apart[:, c])
        # Beside a site that is alone in its block there is no other one.
        apart[[b, c]] &= table.blocks.size[[b, c]] > 1
        if apart.any() or table.apart[b, c] != table.apart[c, b] or table.own[b] != table.own[c]:
            return False
    return True


RING_LINKS = 2_000_000
"""Links of start sets whose rings are priced in one array, which bounds memory."""


class Kept(dict[Hashable, Any]):
    """What candidates share that differ in compute alone, by a name and what it depends on."""

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made when it is asked for first."""
        if key not in self:
            self[key] = make()
        return cast("Value", self[key])


def _kinds_of(problem: PlanningProblem, tp: int, kept: Kept) -> Ints | None:
    """Kinds of the slots of tensor degree tp; None for too many."""
    return kept.once(("kinds", tp), lambda: slot_kinds(problem.links, problem.rings, tp))


def all_differ(problem: PlanningProblem, candidate: Candidate, kept: Kept) -> bool:
    """Whether every node holds one slot of a candidate, and every slot is of a kind of its own."""
    kinds, alone = _kinds_of(problem, candidate.tp, kept), problem.links.gpus_per_node == candidate.tp
    return kinds is not None and bool(alone.all()) and len(np.unique(kinds)) == len(kinds)


def _solver(problem: PlanningProblem, candidate: Candidate, message: float, kinds: Ints) -> SubsetSolver:
    """The solver of a candidate's slots of some kinds with hops at a message of so many bytes."""
    sites = slot_sites(problem.links, candidate.tp)[:, 0]
    hops = problem.links.hop_seconds(candidate.tp, message, both_ways=True)
    return SubsetSolver(hops[sites[:, None], sites[None, :]], kinds, candidate.pp)


def _rings(problem: PlanningProblem, candidate: Candidate, start_sets: Ints) -> Floats:
    """Seconds per byte of the rings of slots (sets, dp)."""
    links = problem.links
    sites = slot_sites(links, candidate.tp)[:, 0][start_sets]
    parts = np.array_split(sites, -(-sites.size * candidate.dp // RING_LINKS))
    return np.concatenate([ring_by_byte(problem.rings, few, links.node_of_site[few]) for few in parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """A bound in seconds over partitions and placements, and what attains it; ``exact`` if none was left out."""

    lower_bound: float = np.inf
    partition: Partition = field(default_factory=lambda: Partition(seconds=np.inf))
    positions: Ints = field(default_factory=lambda: np.zeros((0, 1), np.int64))
    exact: bool


def has_joint(problem: PlanningProblem, candidate: Candidate, kept: Kept) -> bool:
    """Whether the bound applies: few multisets of groups, each a device or in a node of interchangeable ones."""
    return (
        candidate.pp > 1
        and candidate.is_plain
        and len(problem.device_types) == 1
        and (problem.links.by_node or candidate.tp == 1)
        and candidate.tp <= problem.links.gpus_per_node.min()
        and not problem.latency.rings_are_flat
        and problem.transfer_weight(candidate) > 0.0
        and (kinds := _kinds_of(problem, candidate.tp, kept)) is not None
        and kept.once(("few", candidate.tp, candidate.pp), lambda: few_multisets(kinds, candidate.pp))
    )


def solve_joint(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, kept: Kept, *, margin: bool = True
) -> Joint:
    """Bound (1); infinite with an empty partition where nothing fits memory."""
    tables, weight = problem.tables(candidate), problem.transfer_weight(candidate)
    messages = tables.message[1:-1]
    smallest = float(messages.min())
    degrees, kinds, others = (candidate.tp, candidate.pp), _kinds_of(problem, candidate.tp, kept), None
    assert kinds is not None
    solver = kept.once(("solver", *degrees, smallest), lambda: _solver(problem, candidate, smallest, kinds))
    rings = kept.once(("rings", *degrees), lambda: _rings(problem, candidate, solver.start_sets))
    edge, tail, later = linked(problem, candidate, best, smallest)
    gather = least_gather(problem, candidate, best)
    stages = partition_problem(problem, candidate, margin=margin, gather=gather)
    gradients = least_bytes(problem, candidate)[0]
    fixed = fixed_seconds(problem, candidate)
    if later is not None and candidate.pp == 2:
        key = "rings of stage 1", *degrees
        others = kept.once(key, lambda: _rings(problem, candidate, other_slots(solver.start_sets)))
    share = kept_share(problem, candidate, best)
    found_slots: dict[int, Ints] = {}
    exact = True
    while True:
        found = solve_partition(stages, edge, tail, later=later)
        if not found.feasible or found.division.stages[0][1] in found_slots:
            break
        end = found.division.stages[0][1]
        price = None
        if others is not None and later is not None:
            price = SecondPrice(share, (waited_for(stages, later, end, others) - edge[end]) / weight)
        # The solver prices unweighted hops, so the ring is divided by the weight and the sum multiplied.
        placed = solver.solve(rings * gradients[end] / weight, second=price)
        tail[end] = max(tail[end], weight * placed.lower_bound + fixed[end])
        found_slots[end] = placed.slots
        exact &= placed.lower_bound == placed.seconds
    if not found.feasible:
        return Joint(exact=True)
    sites = slot_sites(problem.links, candidate.tp)
    positions = sites[found_slots[found.division.stages[0][1]].ravel()]
    return Joint(lower_bound=found.seconds * (1 - ROUNDING), partition=found, positions=positions, exact=exact)


def linked(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, smallest: float
) -> tuple[Floats, Floats, LaterStages | None]:
    """Cuts before layer j, their further bytes alone, and all else (L+1,) by (3), and what later stages wait for."""
    comm = communication(problem, candidate, best)
    least = float(comm.edge[1:-1].min())
    edge, tail = further_edge(problem, candidate, best, smallest), comm.tail + (candidate.pp - 1) * least
    if comm.later is None:
        return edge, tail, None
    others = comm.later.others + (candidate.pp - 1) * float(comm.later.edge[1:-1].min())
    return edge, tail, replace(comm.later, edge=np.zeros_like(edge), others=others)


def further_edge(problem: PlanningProblem, candidate: Candidate, best: BestLinks, smallest: float) -> Floats:
    """Seconds (L+1,) of a cut's bytes beyond the smallest message at the fastest link, (3)."""
    inverse = 1.0 / problem.links.pipeline_rate(candidate.tp)
    both_ways = inverse + inverse.T
    fastest = min(best.least_inside(both_ways), best.least_apart(both_ways))
    further = np.maximum(problem.tables(candidate).message - smallest, 0.0)
    return np.asarray(problem.transfer_weight(candidate) * further * fastest)
