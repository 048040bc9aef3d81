r"""
Exact min-max path cover by dynamic programming over subsets of slots, or multisets where slots are of few kinds.

Sets: slots, each a tensor group's place; slots of one kind can be exchanged without changing anything
(``taut.solver.placement.exact.subset_cache``). dp paths of pp slots take every slot once.
Data: W[u, v] seconds of a hop; ring(S) seconds for stage 0 on the start set S.
Variables: the start set S, the first slots of all paths, and the paths. Minimise the longest path plus ring(S).

For a multiset Q of slots (``taut.solver.bounds.multisets``),

(1) path[Q, c] = least length of a path that starts at kind c and visits all of Q;
(2) of start sets with equal kinds only the one on each kind's first slots is tried;
(3) for each S, cover[R] = least over ways to give R to the first starts of the longest of their paths;
(4) least(S) = max over v of the shortest path of pp slots from one of S that visits v, since every slot is visited, or
    from v if v is in S: a lower bound. S are tried by ascending least(S) + ring(S), until that is no better than the
    best found.

(5) A second price, a share of the longest path plus other(S), may be asked for as well, and the larger one is
    minimised. Both rise with the longest path, so (4) holds for either.

The value is exact, or after ``most_pairs`` of multisets the valid bound of (4) for the start sets not tried.

Of two stages the second one has all slots that the first one leaves: stage 0 lies on the dp slots of S, stage 1 on the
other dp slots S'. Stage 0 ends at layer j.

(6) In the latency model ``step``, with the terms of ``taut.formulations.partition`` (1'), stage 1 waits for

    .. math:: U_1 = \sum_x low(x) - backward_0 + h T - b + R_1(S'),

    b the way back of the longest pipeline's only hop, at most a share :math:`\kappa` of :math:`h T`. So beyond the
    layers a step takes :math:`\max(h T + G \rho(S), (1 - \kappa) h T + R_1(S') - backward_0 - edge_j)` seconds at
    least, with the longest backward pass of any recompute. The further bytes of the cut, for which stage 1 need not
    wait, are taken off; they add no less to the hop than to its way back, so that the smallest message counts.

References
----------
Held and Karp (1962), A dynamic programming approach to sequencing problems: (1).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.links import PairTable
from taut.formulations.partition import LaterStages, PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.multisets import (
    least_cover,
    lengths_through,
    path_lengths,
    shortest_path,
    small_multisets,
)

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
    """The second price of (5): the ``share`` of the longest path, and ``other`` seconds of each start set."""

    share: float
    other: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetPlacement:
    """Least seconds found, a lower bound in seconds, and the slots of the best placement, (dp, pp)."""

    seconds: float
    lower_bound: float
    slots: Ints


class SubsetSolver:
    """
    Path lengths of one hop matrix, and the exact placements that follow from them.

    ``hops`` (n, n) seconds between slots, ``kinds`` (n,) their kinds, numbered from zero on, ``pp`` slots of a path.
    """

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
        """The least longest path plus ``ring`` (sets,), or second price (5); exact within ``most_pairs``."""
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
        """Cover (3) below the cutoff, and the pairs looked at; without a cutoff the ``SLACKS`` are tried first."""
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
    """Least seconds (4) of start sets, (sets,)."""
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
    """Seconds (sets,) that stage 1 waits for beyond layers and hop by rings (sets,) in s/byte; (6) without the cut."""
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
