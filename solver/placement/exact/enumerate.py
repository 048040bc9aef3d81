r"""
Bound ``every-placement``: enumeration of all placements of a small cluster (at most 25,000).

Where tensor groups differ in their links or device type, the time of a stage depends on where it is.

Sets: placements P, (4) to (6).
Data: P gives replica z a column :math:`c_z`, the type and slowest link of its group of each stage, and a trip
:math:`\tau_z` at the smallest message; it gives stage 0 a ring of :math:`\rho` seconds per byte of its :math:`g_j`
bytes and an optimizer of :math:`o_j` seconds, for a stage 0 that ends at layer j. h is the weight of the trip.

(1) A[c, j] = least seconds of a pipeline with column c and such a stage 0, without its trip: (7); a cut adds the bytes
    beyond the smallest message at the fastest link.
(2) LB(P) = min_j [max_z (A[c_z, j] + h tau_z) + rho g_j + o_j], and LB is the least over P.
(3) Placements are taken in order of (2) with the least of A over all columns, a lower bound, until that is no better
    than the least found.

Where a framework states some divisions alone, a stage has the layers that some of them give it
(``taut.formulations.divisions``).

It is the optimum where there is one pipeline and one message size, and where there is one stage and one choice of
recompute; several pipelines may want different divisions.

Placements are listed once each. A slot is a tensor group's place on R sites, as in ``taut.formulations.placement``:
R = 1 where the devices of a node are interchangeable, R = tp where they were measured one by one. Node n has
:math:`G_n` devices and :math:`S_n = G_n / tp` slots. Replicas may change places, and so may tensor ranks, of all groups
at once.

(4) Where devices are interchangeable, the placements number at most (some of them are equal)

    .. math:: \frac{(pp \cdot dp)!}{\prod_n S_n!},

(5) and otherwise

    .. math:: \frac{(pp \cdot dp)! \prod_n G_n!}{dp! \, tp! \prod_n S_n!}.

(6) Symmetry: of equal placements the one is listed whose first replica's first group has its ranks in order of their
    sites, and whose replicas are in order of the least site of their first groups.

One pipeline divides its layers for every end of stage 0. Sets: pp stages x, layers 0..L-1. Data: seconds[x, i, j] of
stage x on layers i..j-1, infinite where it does not fit; edge[j] seconds of a cut before layer j; m micro-batches.
Variables: the ends of the stages.

(7) A[j] = least over divisions with stage 0 ending at j of sum_x seconds + (m - 1) max_x seconds + sum of edges.
(8) For a threshold :math:`\theta` on every stage, let :math:`D_\theta[j]` be the least sum of stages that take at most
    :math:`\theta` each, found backwards over x; then :math:`A[j] = \min_\theta (m - 1) \theta + D_\theta[j]` over the
    distinct seconds.
(9) Thresholds ascend from the least at which anything fits until :math:`(m - 1) \theta + D_\infty[j]` is no better
    than what was found or than a cutoff, for every j. So what is not below its cutoff may be left above (7).

References
----------
Li et al. (2022), AMP: Finding model parallel strategies with heterogeneity awareness: the dynamic program over the
slowest stage, (8).
"""

from dataclasses import dataclass
from math import factorial, prod

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.compiled import jit
from taut.formulations.degrees import BlockShape
from taut.formulations.divisions import families_of, stated_ranges
from taut.formulations.gradient_reductions import least_bytes
from taut.formulations.links import Links
from taut.formulations.mechanisms.offload import optimizer_seconds
from taut.formulations.mechanisms.shards import optimizer_shards
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_by_byte
from taut.formulations.sharding import NO_GATHERS, GatherRates, exposed_by_range
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.formulations.tables.block_traffic import BlockLink, block_link, block_seconds
from taut.formulations.tables.memory import stage_memory
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.divide import Partition
from taut.solver.placement.exact.joint import Joint, Kept, further_edge


def thresholds_of(seconds: Floats) -> Floats:
    """Distinct finite entries of ``seconds``, of any shape, ascending: the thresholds of (8)."""
    return np.unique(seconds[np.isfinite(seconds)])


def ends_of(seconds: Floats, edge: Floats, threshold: float, first: int) -> list[int]:
    """Ends of the stages of a least division below a threshold, where stage 0 ends at ``first``."""
    value = _values(seconds, edge, threshold)
    ends = [first]
    for x in range(1, len(seconds)):
        one = seconds[x, ends[-1]]
        # The last stage has one end alone, so that there is no cut behind it does not matter.
        ends.append(int(np.argmin(np.where(one <= threshold, one + edge, np.inf) + value[x + 1])))
    return ends


@jit
def _values(seconds: Floats, edge: Floats, threshold: float) -> Floats:
    """Least seconds of stages x.. on layers i.., none above the threshold, (pp + 1, L + 1); row 0 by its end, (8)."""
    pp, size = seconds.shape[0], seconds.shape[1]
    value = np.full((pp + 1, size), np.inf)
    value[pp, size - 1] = 0.0
    for x in range(pp - 1, 0, -1):
        for i in range(x, size - pp + x):
            for j in range(i + 1, size):
                one = seconds[x, i, j]
                if one <= threshold and value[x + 1, j] < np.inf:
                    total = one + value[x + 1, j] + (edge[j] if x < pp - 1 else 0.0)
                    value[x, i] = min(value[x, i], total)
    for j in range(1, size):
        if seconds[0, 0, j] <= threshold:
            value[0, j] = seconds[0, 0, j] + value[1, j] + (edge[j] if pp > 1 else 0.0)
    return value


@jit
def least_by_first(seconds: Floats, edge: Floats, m: int, thresholds: Floats, cutoff: Floats) -> tuple[Floats, Floats]:
    """A[j] (L+1,) of (7) by (9), and the thresholds that attain it; infinite where nothing is below ``cutoff``."""
    size = seconds.shape[1]
    best, at = np.full(size, np.inf), np.full(size, np.inf)
    count = len(thresholds)
    if count == 0:
        return best, at
    least = _values(seconds, edge, thresholds[count - 1])[0]
    if least.min() == np.inf:
        return best, at
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if _values(seconds, edge, thresholds[middle])[0].min() < np.inf:
            high = middle
        else:
            low = middle + 1
    for t in range(low, count):
        straggler = (m - 1) * thresholds[t]
        if (straggler + least >= np.minimum(best, cutoff)).all():
            break
        value = straggler + _values(seconds, edge, thresholds[t])[0]
        for j in range(size):
            if value[j] < best[j]:
                best[j], at[j] = value[j], thresholds[t]
    return best, at


def count_placements(links: Links, candidate: Candidate) -> int:
    """The number of placements at most, (4) or (5)."""
    sizes = links.gpus_per_node.tolist()
    of_groups = factorial(candidate.pp * candidate.dp) // prod(factorial(size // candidate.tp) for size in sizes)
    if links.by_node:
        return of_groups
    return of_groups * prod(map(factorial, sizes)) // (factorial(candidate.dp) * factorial(candidate.tp))


def placements(links: Links, candidate: Candidate) -> Ints:
    """Sites (placements, dp, pp, R) of every placement, each once, (6)."""
    capacity = np.ones(links.num_sites, np.int64)
    if links.by_node:
        capacity = links.gpus_per_node // candidate.tp
    ranks, pp = 1 if links.by_node else candidate.tp, candidate.pp
    rows, left = np.zeros((1, 0), np.int64), capacity[None]
    for position in range(candidate.dp * pp):
        for rank in range(ranks):
            rows, left = _extended(links, rows, left, rank, ordered=position == 0)
        if position and position % pp == 0:
            first, before = (rows[:, p * ranks : (p + 1) * ranks].min(axis=1) for p in (position, position - pp))
            rows, left = rows[first >= before], left[first >= before]
    return rows.reshape(-1, candidate.dp, pp, ranks)


def _extended(links: Links, rows: Ints, left: Ints, rank: int, *, ordered: bool) -> tuple[Ints, Ints]:
    """The rows with every site that the next worker can take: in its group's node, and after the rank before it."""
    free = left > 0
    if rank > 0:
        free &= links.node_of_site[rows[:, -1]][:, None] == links.node_of_site
        if ordered:
            free &= rows[:, -1:] < np.arange(links.num_sites)
    row, site = np.nonzero(free)
    left = left[row]
    left[np.arange(len(row)), site] -= 1
    return np.column_stack((rows[row], site)), left


MAX_PLACEMENTS = 25_000
"""Placements that are enumerated: enough for eight devices of a node, measured one by one, in pairs (20,160)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Enumeration:
    """
    All placements with what does not depend on the messages.

    ``sites`` (placements, dp, pp, R); ``groups`` (placements, dp, pp) numbers of the distinct tensor groups, of which
    ``types``, ``inverse`` and ``latency`` say type and slowest link; ``rings`` (placements,) seconds per byte.
    """

    sites: Ints
    groups: Ints
    types: Ints
    inverse: Floats
    latency: Floats
    rings: Floats


def _listed(problem: PlanningProblem, candidate: Candidate) -> Enumeration:
    """All placements of a candidate."""
    links = problem.links
    sites = placements(links, candidate)
    first = np.swapaxes(sites[:, :, 0], -1, -2)
    types = problem.type_of_node[links.node_of_site[sites[..., 0]]]
    inverse, latency = _slowest_links(links, sites, candidate.tp)
    figures = np.stack((types.ravel(), inverse.ravel(), latency.ravel()), axis=1)
    kinds, groups = np.unique(figures, axis=0, return_inverse=True)
    return Enumeration(
        sites=sites,
        groups=groups.reshape(types.shape),
        types=kinds[:, 0].astype(np.int64),
        inverse=np.asarray(kinds[:, 1], dtype=np.float64),
        latency=np.asarray(kinds[:, 2], dtype=np.float64),
        rings=ring_by_byte(problem.rings, first, links.node_of_site[first]).max(axis=-1),
    )


def _slowest_links(links: Links, sites: Ints, tp: int) -> tuple[Floats, Floats]:
    """Seconds per byte and latency of the slowest link of every tensor group."""
    if tp == 1:
        return np.zeros(sites.shape[:-1]), np.zeros(sites.shape[:-1])
    if not links.by_node:
        link = block_link(links, sites, BlockShape(tp))
        return np.asarray(link.inverse), np.asarray(link.latency)
    return 1.0 / links.rate.by_site()[sites[..., 0]], links.latency.by_site()[sites[..., 0]]


def has_enumeration(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether the bound applies: groups differ, lie in one node each, and can be placed in few ways."""
    return (
        candidate.is_plain
        and not problem.latency.rings_are_flat
        and candidate.tp <= problem.links.gpus_per_node.min()
        and _different_groups(problem, candidate.tp)
        and count_placements(problem.links, candidate) <= MAX_PLACEMENTS
    )


def _different_groups(problem: PlanningProblem, tp: int) -> bool:
    """Whether tensor groups may differ in type or links."""
    links = problem.links
    if len(problem.device_types) > 1 or tp == 1:
        return len(problem.device_types) > 1
    return not links.by_node or bool(np.ptp(links.rate.own) or np.ptp(links.latency.own))


def solve_by_enumeration(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, kept: Kept, *, margin: bool = True
) -> Joint:
    """Bound (2) with what attains it; infinite and without partition if nothing fits."""
    listed = kept.once(("placements", candidate.tp, candidate.pp), lambda: _listed(problem, candidate))
    edge, trips = _transfers(problem, candidate, best, listed)
    gather = least_gather(problem, candidate, best)
    seconds, choice = _stage_seconds(problem, candidate, listed, gather, margin=margin)
    pipelines = _Pipelines(seconds, edge, candidate.num_micro_batches)
    value, index, slowest, end = _least(pipelines, listed.groups, trips, _tails(problem, candidate, listed))
    if not np.isfinite(value):
        return Joint(exact=True)
    column = tuple(listed.groups[index, slowest].tolist())
    ends = np.array(pipelines.ends(column, end))
    recompute = choice[np.arange(candidate.pp), column, np.append(0, ends[:-1]), ends]
    division = Division.of_ends(ends, recompute)
    partition = Partition(seconds=value, division=division, patterns=(0,) * candidate.pp)
    positions = listed.sites[index].reshape(candidate.dp * candidate.pp, -1)
    return Joint(lower_bound=value * (1 - ROUNDING), partition=partition, positions=positions, exact=True)


def _transfers(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, listed: Enumeration
) -> tuple[Floats, Floats]:
    """Seconds of a cut's bytes beyond the smallest message, and weighted trips of every placement and replica."""
    tables = problem.tables(candidate)
    if candidate.pp == 1:
        return np.zeros(tables.num_layers + 1), np.zeros(listed.groups.shape[:2])
    smallest = float(tables.message[1:-1].min())
    hops = problem.links.hop_seconds(candidate.tp, smallest, both_ways=True)
    trips = hops[listed.sites[:, :, :-1], listed.sites[:, :, 1:]].sum(axis=2).max(axis=-1)
    return further_edge(problem, candidate, best, smallest), problem.transfer_weight(candidate) * trips


def _stage_seconds(
    problem: PlanningProblem, candidate: Candidate, listed: Enumeration, gather: GatherRates, *, margin: bool
) -> tuple[Floats, Ints]:
    """Least seconds of every range as a stage on a group, (pp, groups, L+1, L+1), and the recompute that attains it."""
    tables, memory = problem.tables(candidate), stage_memory(problem, candidate, margin=margin)
    links = (BlockLink(*figures, 0.0, 0.0) for figures in zip(listed.inverse, listed.latency, strict=True))
    within = block_seconds(tables.traffic, tables.forward, links)
    seconds = tables.seconds[listed.types] + within.both
    if gather != NO_GATHERS:
        seconds = seconds + sum(exposed_by_range(problem, candidate, gather, within, listed.types))
    allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
    layers = np.arange(tables.num_layers + 1)
    possible = allowed[:, None, None] & (layers[:, None] < layers)
    stated = stated_ranges(families_of(problem, candidate), tables.num_layers)
    least = np.empty((candidate.pp, *seconds.shape[:1], *seconds.shape[2:]))
    choice = np.empty(least.shape, np.int64)
    for x in range(candidate.pp):
        need = memory.need(x)
        fits = possible & (need <= memory.budget[listed.types][:, None, None, None])
        priced = np.where(fits if stated is None else fits & stated[x], seconds, np.inf)
        least[x], choice[x] = priced.min(axis=1), priced.argmin(axis=1)
    return least, choice


def _tails(problem: PlanningProblem, candidate: Candidate, listed: Enumeration) -> Floats:
    """Ring, optimizer and constant of every placement by the end of stage 0, (placements, L+1)."""
    slowest = optimizer_seconds(problem, candidate)[listed.types[listed.groups[:, :, 0]]].max(axis=1)
    parameters = problem.tables(candidate).parameters[0] / optimizer_shards(candidate)
    gradients = least_bytes(problem, candidate)[0]
    return np.asarray(
        listed.rings[:, None] * gradients + slowest[:, None] * parameters + problem.least_constant(candidate)
    )


class _Pipelines:
    """A[c, j] of (1), computed when asked for and kept: exact below the cutoffs, which only ever fall."""

    def __init__(self, seconds: Floats, edge: Floats, micro_batches: int) -> None:
        self._seconds, self._edge, self._micro_batches = seconds, edge, micro_batches
        self._known: dict[tuple[int, ...], tuple[Floats, Floats]] = {}
        self._thresholds: dict[tuple[int, int], Floats] = {}

    def _of(self, column: tuple[int, ...]) -> Floats:
        return np.ascontiguousarray(self._seconds[np.arange(len(column)), list(column)])

    def _threshold(self, x: int, group: int) -> Floats:
        if (x, group) not in self._thresholds:
            self._thresholds[x, group] = thresholds_of(self._seconds[x, group])
        return self._thresholds[x, group]

    def floor(self) -> Floats:
        """A bound on A[c, j] of all columns."""
        fastest, anything = self._seconds.min(axis=1), np.full(len(self._edge), np.inf)
        return least_by_first(fastest, self._edge, self._micro_batches, thresholds_of(fastest), anything)[0]

    def least(self, column: tuple[int, ...], cutoff: Floats) -> tuple[Floats, Floats]:
        """A[c, j] of a column where it is below the cutoff, and the thresholds that attain it."""
        if column not in self._known:
            steps = np.unique(np.concatenate([self._threshold(x, group) for x, group in enumerate(column)]))
            found = least_by_first(self._of(column), self._edge, self._micro_batches, steps, cutoff)
            self._known[column] = found
        return self._known[column]

    def ends(self, column: tuple[int, ...], first: int) -> list[int]:
        """Ends of the stages that attain A[c, first] of a column that is known."""
        return ends_of(self._of(column), self._edge, float(self._known[column][1][first]), first)


def _least(pipelines: _Pipelines, groups: Ints, trips: Floats, tail: Floats) -> tuple[float, int, int, int]:
    """The least LB(P), its placement, its slowest replica and the end of its stage 0, (2)."""
    others = trips.max(axis=1)[:, None] + tail
    bounds = (pipelines.floor() + others).min(axis=1)
    beside = (trips.min(axis=1)[:, None] + tail).min(axis=0)
    least, at, slowest, end = np.inf, 0, 0, 0
    for index in np.argsort(bounds, kind="stable").tolist():
        if bounds[index] >= least:
            break
        columns = zip(groups[index].tolist(), trips[index].tolist(), strict=True)
        seconds = np.array([pipelines.least(tuple(column), least - beside)[0] + trip for column, trip in columns])
        by_end = seconds.max(axis=0) + tail[index]
        first = int(np.argmin(by_end))
        if by_end[first] < least:
            least, at, slowest, end = float(by_end[first]), index, int(np.argmax(seconds[:, first])), first
    return least, at, slowest, end
