r"""
Pipelines on nodes by simulated annealing: good placements of many nodes, never a bound.

A pipeline is a path on a slot graph (``taut.solver.placement.slots``), with prices of its hops, its rings, and what a
step takes. Data: hops (N, N) in seconds; inverse rates :math:`\beta` (N, N) and cards :math:`\gamma` (N,) in seconds
per byte.

(1) With :math:`g_v` slots of a stage in node v, k nodes touched and b the slowest inverse rate between touched nodes,
    the ring takes by byte

    .. math:: \rho = \max_v 4 \frac{g_v - 1}{g_v} \beta_{vv} + 2 \frac{k - 1}{k} \max \Big( b, \max_v
        \frac{\gamma_v}{g_v} \Big)

    (``taut.formulations.rings``).
(2) When two slots of the stage change nodes, b follows from their links alone, unless the slowest pair may have gone.
    The links of those that come bound b from below before anything else is known.
(3) First and last slot of a path exchange M bytes of a tied embedding after the longest path, for
    :math:`M \max ( \beta_{ab}, \gamma_a, \gamma_b )` seconds between two nodes; the step waits for the slowest of
    these and of the rings.
(4) A placement takes the longest path and then the wait for the slowest ring or exchange of a tied embedding.
(5) Slots of the leading stages are kept stage by stage, each with its slowest link and the wait for its ring, so that a
    move prices again the rings of the stages that it changes.

Once its paths have ended a step waits for reductions of gradients. Sets: leading stages x. Data: gradient bytes
:math:`G_t` and slack :math:`A_t` seconds of reductions t, each of a stage x(t); of a division, :math:`b_x` backward
seconds of a micro-batch on stage x and c of the shortest way back; h the weight of a trip.

(6) A stage ends :math:`A_t` before stage 0, so that the step waits :math:`\max_t G_t \rho_{x(t)} - A_t` for
    reductions; stage 0 has no slack, and the papers' latency models wait for it alone.
(7) First and last slot of a path may exchange a tied embedding as well ((3)).
(8) Stage x ends :math:`\sum_{y < x} (b_y + c)` before stage 0. In seconds of hops all is divided by h.
(9) With overlap (``taut.formulations.gradient_reductions`` (2)) a stage has two reductions: the bytes that no backward
    pass hides, and all of them with the further slack :math:`b_x`.
(10) A stage counts where its slowest ring would outlast the fastest of stage 0; slack grows by a backward pass a stage,
    so few do.

What is annealed are dp paths of pp slots. Variables: the node of every slot. Data: :math:`c_z` seconds of path z beyond
those of pp - 1 shortest hops; wait, seconds for the reductions of the leading stages, (6).

(11) Minimise :math:`(\sum_z c_z^8)^{1/8} + wait` in place of :math:`\max_z c_z + wait`: in the 8-norm every long path
    counts, so that no move is lost on the plateaus of a maximum. The best placement by the maximum is kept.
(12) A worse neighbour by :math:`\Delta` seconds is accepted with probability :math:`e^{-\Delta / T}`; the temperature T
    falls geometrically. Moves are (14) to (19).
(13) The random number is drawn first: with u of it a neighbour is accepted exactly up to the value less
    :math:`T \ln u`. Most are beyond that by their hops and the rings that stay as they are, and others once a slow
    link of one ring is known, so that few rings are priced in full.

A state is an array (dp, pp) of nodes, a path a row. A move does one of these:

(14) swaps two slots, of one or two paths;
(15) swaps a segment, a stretch of a path in one node, with as many slots of another path;
(16) exchanges the ends of two paths from one stage on;
(17) reverses a part of a path;
(18) takes a slot out of its path and puts it in elsewhere;
(19) exchanges all slots of two nodes.

Random bits are those of a xorshift generator (Marsaglia 2003, Xorshift RNGs), whose state is an array of one.

Annealing begins with runs in phases, short ones first. Pipelines that take near nodes are short; stages that take near
nodes have fast rings. Where stage 0 alone is waited for, the best runs begin with either, with nodes in random order,
or with stage 0 on a set of fast links. Where several stages are, a run that begins with stages across racks seldom
leaves them, so most begin with every stage on near nodes; without racks that a stage fits none is near, and those with
stage 0 alone on fast links come first. Few placements have fast rings on all of them and results vary, so more runs
follow from the starts that led farthest.

It is a core beside that of ``taut.solver.placement.annealing.anneal``, which moves sites of any kind, prices every term
and draws a random number after a price. Here states are nodes of a slot graph under the norm (11), with moves of whole
segments and nodes, and (13) bounds a neighbour before it is priced; both cores share acceptance (12) alone.

References
----------
Kirkpatrick, Gelatt and Vecchi (1983), Optimization by simulated annealing.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.gradient_reductions import least_bytes, overlaps, tied_bytes
from taut.formulations.partition import PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.bounds.racks import fast_clusters
from taut.solver.placement.slots import Box, SlotGraph, fast_link_sets, linkage_order

MOST_STAGES = 16
"""Leading stages whose rings are priced: each costs time in every move, and later ones end long before stage 0. With 4
of 8, annealed placements of 8 nodes of 8 devices took 0.4 % longer, as rings of later stages became the slowest."""


class Reductions(NamedTuple):
    """
    Reductions of the leading stages that the step may wait for, (6).

    ``gradients``: bytes, (stages, most of any), 0 where a stage has fewer; ``slack``: seconds that the stage ends
    before stage 0, of the same shape; ``tied``: bytes of a tied embedding that first and last stage exchange, (7).
    """

    gradients: Floats
    slack: Floats
    tied: float = 0.0


def first_stage(gradients: float) -> Reductions:
    """The reduction of stage 0 alone, of so many gradient bytes; none without gradients."""
    some = int(gradients > 0.0)
    return Reductions(np.full((some, 1), gradients), np.zeros((some, 1)))


@jit_inside
def stage_wait(waits: Reductions, x: int, ring: float) -> float:
    """Seconds after the end of stage 0 that the step waits for a stage's ring of so many seconds per byte, (6)."""
    longest = 0.0
    for t in range(waits.gradients.shape[1]):
        longest = max(longest, waits.gradients[x, t] * ring - waits.slack[x, t])
    return longest


def leading_reductions(
    problem: PlanningProblem, candidate: Candidate, graph: SlotGraph, stages: PartitionProblem, division: Division
) -> Reductions:
    """Reductions that a placement of a division may wait for, in seconds of hops: (10) by (8) and (9)."""
    first, end = np.array(division.stages[:MOST_STAGES]).T
    weight, unhidden = problem.transfer_weight(candidate), least_bytes(problem, candidate)[first, end]
    if not problem.latency.waits_for_every_stage or stages.forward is None:
        return first_stage(float(unhidden[0]) / weight)
    recompute = [RECOMPUTE.index(name) for name in division.recompute[:MOST_STAGES]]
    backward = stages.low[0, recompute, first, end] - stages.forward[0, first, end]
    back = problem.coefficient("pipeline") * graph.shortest_hop() / 2
    slack = np.concatenate([[0.0], (backward + back).cumsum()[:-1]])
    each, slack = unhidden[:, None], slack[:, None]
    if overlaps(problem, candidate):
        each = np.stack([unhidden, problem.gradient_bytes(candidate)[first, end]], axis=1)
        slack = np.concatenate([slack, slack + backward[:, None]], axis=1)
    least, most = _extremes(graph)
    waited = each * most - slack > least * unhidden[0]
    waited[0] = True
    waited &= each > 0.0
    count = np.flatnonzero(waited.any(axis=1)).max(initial=-1) + 1
    each, slack = (np.where(waited, figures, 0.0)[:count] / weight for figures in (each, slack))
    return Reductions(each, slack, tied_bytes(problem, candidate) / weight)


def _extremes(graph: SlotGraph) -> tuple[float, float]:
    """Seconds per byte of the fastest ring at least and of the slowest at most."""
    numbers = range(graph.min_touched, graph.max_touched + 1)
    boxes = [Box(min_touched=k, max_touched=k, low=0.0, high=np.inf) for k in numbers]
    apart = ~np.eye(len(graph.hops), dtype=bool)
    shared = graph.capacity > 1
    between = max(float(graph.inverse[apart].max(initial=0.0)), float(graph.card.max()))
    inside = float(np.diag(graph.inverse)[shared].max(initial=0.0))
    members = min(graph.replicas, int(graph.capacity.max()))
    slowest = inside_factor(members) * inside + ring_factor(graph.max_touched) * between
    return min(map(graph.ring_bound, boxes)), slowest


class Instance(NamedTuple):
    """
    What is annealed.

    Seconds of hops (N, N), inverse rates (N, N), cards (N,), reductions, seconds of pp - 1 shortest hops, slots (N,),
    whether any node has several, the least factor of a ring between nodes, and whether rings take that factor of their
    slowest link.
    """

    hops: Floats
    inverse: Floats
    card: Floats
    waits: Reductions
    base: float
    capacity: Ints
    shared: bool
    least: float
    by_links: bool


class Rings(NamedTuple):
    """Slots of the leading stages, (stages, dp); slowest links between them, and waits for them, (stages,)."""

    members: Ints
    slowest: Floats
    wait: Floats


@jit_inside
def path_length(hops: Floats, path: Ints) -> float:
    """Seconds of the hops of a path (pp,), of those between nodes (N, N)."""
    seconds = 0.0
    for x in range(len(path) - 1):
        seconds += hops[path[x], path[x + 1]]
    return seconds


@jit
def slowest_link(inverse: Floats, members: Ints, x: int) -> float:
    """The slowest inverse rate between different nodes of stage x, ``members`` (stages, dp); zero for one node."""
    slowest = 0.0
    for a in range(members.shape[1]):
        v = members[x, a]
        for b in range(a):
            if v != members[x, b]:
                slowest = max(slowest, inverse[v, members[x, b]])
    return slowest


@jit_inside
def slowest_link_of(inverse: Floats, members: Ints, x: int, pair: Ints) -> float:
    """The slowest inverse rate from either node of a ``pair`` (2,) to other nodes of stage x, (2)."""
    a, b, slowest = pair[0], pair[1], 0.0
    for z in range(members.shape[1]):
        v = members[x, z]
        if v != a:
            slowest = max(slowest, inverse[a, v])
        if v != b:
            slowest = max(slowest, inverse[b, v])
    return slowest


@jit
def ring_by_byte(inverse: Floats, card: Floats, members: Ints, x: int, slowest: float, count: Ints) -> float:
    """Seconds per byte of the ring of stage x, (1), with its slowest link; ``count`` (N,) is scratch by node."""
    dp = members.shape[1]
    for z in range(dp):
        count[members[x, z]] = 0
    for z in range(dp):
        count[members[x, z]] += 1
    inside, touched, between = 0.0, 0.0, slowest
    for z in range(dp):
        v = members[x, z]
        g = count[v]
        touched += 1.0 / g
        between = max(between, card[v] / g)
        if g > 1:
            inside = max(inside, inside_factor(g) * inverse[v, v])
    return inside + ring_factor(touched) * between


@jit
def exchange(inverse: Floats, card: Floats, path: Ints) -> float:
    """Seconds per byte of the exchange between first and last slot of a path (pp,), (3)."""
    a, b = path[0], path[-1]
    return float(inverse[a, b] if a == b else max(inverse[a, b], card[a], card[b]))


@jit_inside
def power(seconds: float, base: float, unit: float) -> float:
    """The eighth power of a path's seconds beyond ``base``, in a ``unit`` of seconds that keeps it from overflow."""
    x = max(seconds - base, 0.0) / unit
    x *= x
    x *= x
    return x * x


@jit
def rings_of(instance: Instance, paths: Ints, count: Ints) -> Rings:
    """Rings of the leading stages of paths (dp, pp), (5); ``count`` (N,) is scratch by node."""
    stages = len(instance.waits.slack)
    rings = Rings(np.ascontiguousarray(paths[:, :stages].T), np.zeros(stages), np.zeros(stages))
    for x in range(stages):
        _price_ring(instance, rings, count, x)
    return rings


@jit_inside
def _price_ring(instance: Instance, rings: Rings, count: Ints, x: int) -> None:
    """Price the ring of a stage anew."""
    slowest = slowest_link(instance.inverse, rings.members, x)
    ring = ring_by_byte(instance.inverse, instance.card, rings.members, x, slowest, count)
    rings.slowest[x], rings.wait[x] = slowest, stage_wait(instance.waits, x, ring)


@jit_inside
def longest_of(figures: Floats) -> float:
    """The largest of some figures, at least zero."""
    longest = 0.0
    for figure in figures:
        longest = max(longest, figure)
    return longest


@jit
def seconds_of(instance: Instance, paths: Ints) -> float:
    """Seconds of the hops of paths (dp, pp) and of the wait for reductions, (4)."""
    longest = 0.0
    for z in range(len(paths)):
        longest = max(longest, path_length(instance.hops, paths[z]))
    rings = rings_of(instance, paths, np.zeros(len(instance.hops), np.int64))
    return longest + max(longest_of(rings.wait), slowest_tie(instance, paths))


@jit_inside
def slowest_tie(instance: Instance, paths: Ints) -> float:
    """Seconds of the slowest exchange of a tied embedding between first and last slots of paths (dp, pp)."""
    slowest = 0.0
    if instance.waits.tied > 0.0:
        for z in range(len(paths)):
            slowest = max(slowest, exchange(instance.inverse, instance.card, paths[z]))
    return instance.waits.tied * slowest


@jit
def draw(state: Ints) -> int:
    """Draw 31 random bits; ``state`` (1,) changes."""
    x = state[0]
    x ^= x << 13
    x ^= (x >> 7) & 0x1FFFFFFFFFFFFFF
    x ^= x << 17
    state[0] = x
    return int((x >> 32) & 0x7FFFFFFF)


@jit
def share(state: Ints) -> float:
    """Draw a random number from 0 to below 1."""
    return draw(state) / 2147483648.0


@jit
def below(state: Ints, bound: int) -> int:
    """Draw a random number from 0 to below ``bound``, at most 2^31, without a division."""
    return (draw(state) * bound) >> 31


@jit
def move(state: Ints, paths: Ints, y: int, z: int, shared: bool) -> None:
    """Make one of the moves (14) to (18) on paths y and z, which may be one; (15) where any node has several slots."""
    pp = paths.shape[1]
    kind = share(state)
    i, j = below(state, pp), below(state, pp)
    if shared and kind < 0.4:
        swap_segments(state, paths, y, z, i, j)
        return
    if y != z:
        if kind < 0.6 or pp < 3:
            paths[y, i], paths[z, j] = paths[z, j], paths[y, i]
            return
        i = max(i, 1)
        for x in range(i, pp):
            paths[y, x], paths[z, x] = paths[z, x], paths[y, x]
        return
    low, high = min(i, j), max(i, j)
    if kind < 0.5:
        while low < high:
            paths[y, low], paths[y, high] = paths[y, high], paths[y, low]
            low += 1
            high -= 1
    else:
        moved, towards = paths[y, i], 1 if j > i else -1
        while i != j:
            paths[y, i] = paths[y, i + towards]
            i += towards
        paths[y, j] = moved


@jit_inside
def swap_segments(state: Ints, paths: Ints, y: int, z: int, i: int, j: int) -> None:
    """Swap the segment around slot i of path y, or part of it, with as many slots from the segment of z at j, (15)."""
    pp = paths.shape[1]
    low, high, there = i, i + 1, j
    while low > 0 and paths[y, low - 1] == paths[y, i]:
        low -= 1
    while high < pp and paths[y, high] == paths[y, i]:
        high += 1
    while there > 0 and paths[z, there - 1] == paths[z, j]:
        there -= 1
    if share(state) < 0.3:
        high = low + 1 + below(state, high - low)
    size = min(high - low, pp - there)
    if y == z and abs(low - there) < size:
        return
    for x in range(size):
        paths[y, low + x], paths[z, there + x] = paths[z, there + x], paths[y, low + x]


@jit_inside
def swap_nodes(paths: Ints, a: int, b: int) -> None:
    """Exchange all slots of nodes a and b, of equal size, in ``paths`` (dp, pp), (19)."""
    for z in range(paths.shape[0]):
        for x in range(paths.shape[1]):
            if paths[z, x] == a:
                paths[z, x] = b
            elif paths[z, x] == b:
                paths[z, x] = a


HOT, WARM, MILD, COLD = 0.3, 0.15, 0.05, 0.002
"""
First temperatures, the lower the more of the start is to be kept, and the last, in standard deviations of hops.

At the last a move that costs 1 % of a standard deviation is accepted once in 150 times. Plans depend on them, bounds do
not.
"""
WHOLE_NODES = 0.02
"""Share of moves that exchange two nodes of several slots: each prices all paths again, so few are affordable."""
CHUNK = 400_000
"""Moves of one call into compiled code, some tenths of a second, so that Ctrl-C is answered."""


class PathAnnealing:
    """One run of annealing, chunk by chunk: least seconds so far and its paths (dp, pp), at first as ``hot``."""

    def __init__(
        self, graph: SlotGraph, reductions: Reductions, paths: Ints, *, moves: int, seed: int, hot: float = HOT
    ) -> None:
        hops, apart = graph.hops, ~np.eye(len(graph.hops), dtype=bool)
        base = (graph.pp - 1) * graph.shortest_hop()
        capacity, alone = graph.capacity, bool((graph.capacity == 1).all())
        # Between k nodes a ring takes no less than between two, and where every node has one slot k is known.
        least = ring_factor(max(len(paths), 2) if alone else 2)
        by_links = alone and bool((graph.inverse >= np.maximum.outer(graph.card, graph.card))[apart].all())
        self._instance = Instance(
            hops, graph.inverse, graph.card, reductions, base, capacity, not alone, least, by_links
        )
        self._paths, self._seed = paths.copy(), seed
        self._chunks = max(-(-moves // CHUNK), 1)
        self._moves, self._done = -(-moves // self._chunks), 0
        self._hot = hot
        self._scale = max(float(hops[apart].std()), 1e-12 * float(hops[apart].max()), 1e-300)
        self.best, self.seconds = paths.copy(), seconds_of(self._instance, self._paths)

    @property
    def finished(self) -> bool:
        """Whether all moves were made."""
        return self._done >= self._chunks

    def advance(self, stop: Flags) -> None:
        """Make one chunk of moves, less where a flag (1,) is raised."""
        cooling = (COLD / self._hot) ** (1.0 / self._chunks)
        hot = self._hot * self._scale * cooling**self._done
        schedule = _Schedule(self._moves, hot, hot * cooling, (self._seed * 7919 + self._done) % 1000003)
        seconds, best = _anneal(self._instance, self._paths, schedule, stop)
        if seconds < self.seconds:
            self.seconds, self.best = seconds, best
        self._done += 1


class _Schedule(NamedTuple):
    """Moves, first and last temperature in seconds, and the seed."""

    moves: int
    hot: float
    cold: float
    seed: int


class _Current(NamedTuple):
    """The state: seconds and their eighth powers (dp,), rings; scratch by node (N,); best paths so far (dp, pp)."""

    lengths: Floats
    powers: Floats
    rings: Rings
    counts: Ints
    best_paths: Ints


class _Value(NamedTuple):
    """The objective (11), what first and last slots exchange, and the best maximum so far."""

    value: float
    tie: float
    best: float


@jit
def _anneal(instance: Instance, paths: Ints, schedule: _Schedule, stop: Flags) -> tuple[float, Ints]:
    """Anneal the paths in place from one temperature to another; returns the best seconds and paths."""
    # Arrays are bound once: each look-up through the tuple would count a reference.
    hops, inverse, card, waits, base, capacity, shared, least, by_links = instance
    state, (dp, pp) = _drawing(schedule.seed), paths.shape
    current, before = _priced(instance, paths)
    lengths, powers, rings, count, best_paths = current
    members, slowest, wait = rings
    value, tie, best = before
    unit, total, stages = max(lengths.max() - base, 1e-300), powers.sum(), len(slowest)
    removed, added, touched = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(stages, np.int64)
    old_y, old_z = np.zeros(pp, np.int64), np.zeros(pp, np.int64)
    slowest_then, wait_then = slowest.copy(), wait.copy()
    # The eighth root of a sum is at most so many times that of its largest term.
    spread = dp**-0.125
    temperature, cooling = schedule.hot, (schedule.cold / schedule.hot) ** (1.0 / schedule.moves)
    for _ in range(schedule.moves):
        if stop[0]:
            break
        temperature *= cooling
        if shared and share(state) < WHOLE_NODES:
            a, b = below(state, len(capacity)), below(state, len(capacity))
            if capacity[a] == capacity[b]:
                limit = value - temperature * np.log(1.0 - share(state))
                after = _swap(instance, paths, current, _Value(value, tie, best), unit, limit, a, b)
                value, tie, best = after
                total = powers.sum()
            continue
        y = below(state, dp)
        z = below(state, dp) if share(state) < 0.8 else y
        for x in range(pp):
            old_y[x], old_z[x] = paths[y, x], paths[z, x]
        move(state, paths, y, z, shared)
        limit = value - temperature * np.log(1.0 - share(state))
        long_y, long_z = path_length(hops, paths[y]), path_length(hops, paths[z])
        power_y, power_z = power(long_y, base, unit), power(long_z, base, unit)
        changed = total - powers[y] + power_y
        if y != z:
            changed += power_z - powers[z]
        length = unit * np.sqrt(np.sqrt(np.sqrt(max(changed, 0.0))))
        num_touched, waited, tied_then = 0, 0.0, tie
        for x in range(stages):
            if _same(old_y[x], old_z[x], paths[y, x], paths[z, x]):
                waited = max(waited, wait[x])
            else:
                touched[num_touched] = x
                num_touched += 1
        if waits.tied > 0.0 and _ends_differ(old_y, old_z, paths[y], paths[z]):
            tie = slowest_tie(instance, paths)
        waited, done = max(waited, tie), 0
        while done < num_touched and length + waited <= limit:
            x = touched[done]
            done += 1
            slowest_then[x], wait_then[x] = slowest[x], wait[x]
            removed[0], removed[1], added[0], added[1] = old_y[x], old_z[x], paths[y, x], paths[z, x]
            members[x, y], members[x, z] = added
            new = slowest_link_of(inverse, members, x, added)
            wait[x] = stage_wait(waits, x, least * new)
            if length + wait[x] <= limit:
                gone = slowest_link_of(inverse, members, x, removed)
                if removed[0] != removed[1]:
                    gone = max(gone, inverse[removed[0], removed[1]])
                slowest[x] = max(slowest[x], new) if gone < slowest[x] else slowest_link(inverse, members, x)
                ring = least * slowest[x]
                if not by_links:
                    ring = ring_by_byte(inverse, card, members, x, slowest[x], count)
                wait[x] = stage_wait(waits, x, ring)
            waited = max(waited, wait[x])
        if length + waited <= limit:
            value, total = length + waited, changed
            lengths[y], lengths[z], powers[y], powers[z] = long_y, long_z, power_y, power_z
            for x in range(stages):
                members[x, y], members[x, z] = paths[y, x], paths[z, x]
            if base + spread * length + waited < best and longest_of(lengths) + waited < best:
                best = longest_of(lengths) + waited
                _copy(best_paths, paths)
        else:
            tie = tied_then
            for k in range(done):
                x = touched[k]
                slowest[x], wait[x], members[x, y], members[x, z] = slowest_then[x], wait_then[x], old_y[x], old_z[x]
            for x in range(pp):
                paths[y, x], paths[z, x] = old_y[x], old_z[x]
    return best, best_paths


@jit_inside
def _drawing(seed: int) -> Ints:
    """The state of a generator after a few draws, so that seeds next to each other differ."""
    state = np.full(1, 88172645463325252 + 7046029254386353 * seed, np.int64)
    for _ in range(8):
        draw(state)
    return state


@jit
def _priced(instance: Instance, paths: Ints) -> tuple[_Current, _Value]:
    """The state and the objective of paths before the first move."""
    count = np.zeros(len(instance.hops), np.int64)
    lengths = np.array([path_length(instance.hops, paths[z]) for z in range(len(paths))])
    rings, tie = rings_of(instance, paths, count), slowest_tie(instance, paths)
    wait = max(longest_of(rings.wait), tie)
    unit = max(lengths.max() - instance.base, 1e-300)
    powers = np.array([power(seconds, instance.base, unit) for seconds in lengths])
    value = _Value(unit * powers.sum() ** 0.125 + wait, tie, lengths.max() + wait)
    return _Current(lengths, powers, rings, count, paths.copy()), value


@jit_inside
def _ends_differ(old_y: Ints, old_z: Ints, y: Ints, z: Ints) -> bool:
    """Whether first or last slots of two paths have changed."""
    return bool(old_y[0] != y[0] or old_z[0] != z[0] or old_y[-1] != y[-1] or old_z[-1] != z[-1])


@jit_inside
def _same(old_y: int, old_z: int, y: int, z: int) -> bool:
    """Whether two slots of a stage are in the same nodes as before, exchanged or not."""
    return bool(old_z == z) if old_y == y else bool(old_y == z and old_z == y)


@jit
def _swap(
    instance: Instance, paths: Ints, current: _Current, before: _Value, unit: float, limit: float, a: int, b: int
) -> _Value:
    """Exchange all slots of two nodes, and price all paths; undone where the value is beyond the limit."""
    lengths, powers, rings, counts, best_paths = current
    swap_nodes(paths, a, b)
    for k in range(len(paths)):
        lengths[k] = path_length(instance.hops, paths[k])
    total = 0.0
    for seconds in lengths:
        total += power(seconds, instance.base, unit)
    priced, tie = rings_of(instance, paths, counts), slowest_tie(instance, paths)
    wait = max(longest_of(priced.wait), tie)
    value = unit * np.sqrt(np.sqrt(np.sqrt(total))) + wait
    if value > limit:
        swap_nodes(paths, a, b)
        for k in range(len(paths)):
            lengths[k] = path_length(instance.hops, paths[k])
        return before
    for k in range(len(paths)):
        powers[k] = power(lengths[k], instance.base, unit)
    _copy(rings.members, priced.members)
    for x in range(len(priced.wait)):
        rings.slowest[x], rings.wait[x] = priced.slowest[x], priced.wait[x]
    longest = longest_of(lengths) + wait
    if longest < before.best:
        _copy(best_paths, paths)
    return _Value(value, tie, min(before.best, longest))


@jit_inside
def _copy(into: Ints, values: Ints) -> None:
    """Copy a table entry by entry: assigned as a whole, it would compile numba's formatting of text."""
    for i in range(into.shape[0]):
        for j in range(into.shape[1]):
            into[i, j] = values[i, j]


MAX_FAST_SETS = 8
"""Sets of fast links from which annealing begins, the first two at length: stage 0 of a good placement lies in one."""
MANY_NODES = 192
"""Nodes beyond which annealing always begins with near nodes together: its moves do not suffice to find them."""
FURTHER = 10
"""
Further pairs of runs where several stages are waited for, from the two starts that led to the best so far.

On clusters of 64 and 128 nodes the best of eight runs is 0.3 to 1.5 % of the communication below the median.
"""


@dataclass(frozen=True, slots=True)
class PathStart:
    """
    Start of an annealing run.

    ``near`` nodes together or in random order; slots of so many ``leading`` stages taken stage by stage before all
    others, which are taken path by path, or of as many as is best (None); first temperature ``hot``; ``share`` of the
    moves at length; ``first``, nodes with fast links that the first slots are to have.
    """

    near: bool
    leading: int | None
    hot: float
    share: float
    first: tuple[int, ...] | None = None

    def options(self, graph: SlotGraph, seed: int) -> list[Ints]:
        """Paths (paths, pp) of which the best are to be taken; ``seed`` orders nodes at random."""
        n = len(graph.hops)
        order = linkage_order(graph.hops) if self.near else np.random.default_rng(seed).permutation(n)
        if self.first is not None:
            order = np.concatenate([self.first, order[~np.isin(order, self.first)]])
        numbers = range(graph.pp) if self.leading is None else [self.leading]
        return [first_paths(graph, order, leading) for leading in numbers]


def first_paths(graph: SlotGraph, order: Ints, leading: int = 0) -> Ints:
    """Paths (paths, pp) that take the nodes' slots in order, those of leading stages stage by stage before all else."""
    taken, first = np.repeat(order, graph.capacity[order]), leading * graph.num_paths
    stages = taken[:first].reshape(leading, graph.num_paths).T
    return np.hstack([stages, taken[first:].reshape(graph.num_paths, -1)])


def phases(graph: SlotGraph) -> list[list[PathStart]]:
    """The starts of the runs of each phase where stage 0 alone is waited for."""
    if len(graph.capacity) > MANY_NODES:
        return [[PathStart(True, None, MILD, share), PathStart(True, 0, WARM, share)] for share in (0.1, 1.0)]
    if (graph.capacity == 1).all():
        brief = [PathStart(near, 0, HOT, 0.1) for near in (True, False)]
        random = [PathStart(False, 0, hot, 1.0) for hot in (HOT, WARM)]
        sets = [tuple(nodes) for nodes in fast_link_sets(graph.inverse, graph.num_paths)[:MAX_FAST_SETS].tolist()]
        tight = [PathStart(True, 1, MILD, 1.0 if place < 2 else 0.1, first) for place, first in enumerate(sets)]
        return [phase for phase in (brief, random, tight[:2], tight[2:]) if phase]
    return [
        [PathStart(True, None, MILD, 0.1), PathStart(True, 0, HOT, 0.1)],
        [PathStart(True, None, MILD, 1.0), PathStart(False, 0, WARM, 1.0)],
        [PathStart(False, None, MILD, 1.0), PathStart(False, 0, HOT, 1.0)],
    ]


def stagewise(graph: SlotGraph) -> list[list[PathStart]]:
    """The starts of the runs of each phase where several stages are waited for."""
    if (graph.capacity > 1).any():
        return phases(graph)
    every, sets = graph.pp, [tuple(v) for v in fast_link_sets(graph.inverse, graph.num_paths)[:2].tolist()]
    brief = [PathStart(True, every, WARM, 0.1), PathStart(True, every, WARM, 0.1, sets[0])]
    apart = [PathStart(True, 1, MILD, 1.0, sets[0]), PathStart(False, 0, WARM, 1.0)]
    whole = [PathStart(True, every, MILD, 1.0), *(PathStart(True, every, WARM, 1.0, first) for first in sets)]
    rack = fast_clusters(graph.inverse, graph.capacity)
    racked = rack is not None and int(np.bincount(rack).max()) >= graph.num_paths
    at_length = [whole[:2], apart] if racked else [apart, whole[:2]]
    return [brief, *at_length, [*whole[2:], PathStart(True, every, HOT, 1.0)]]
