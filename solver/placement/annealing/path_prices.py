r"""
Prices of paths on a slot graph (``taut.solver.placement.slots``): their hops, their rings, and what a step takes.

Data: hops (N, N) in seconds; inverse rates :math:`\beta` (N, N) and cards :math:`\gamma` (N,) in seconds per byte.

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
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.gradient_reductions import least_bytes, overlaps, tied_bytes
from taut.formulations.partition import PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.placement.slots import Box, SlotGraph

MOST_STAGES = 16
"""Leading stages whose rings are priced: each costs time in every move, and later ones end long before stage 0. With 4
of 8, annealed placements of 8 nodes of 8 devices took 0.4 % longer, as rings of later stages became the slowest."""


class Reductions(NamedTuple):
    """
    Reductions of the leading stages that the step may wait for, (6).

    ``stages``: stage of every reduction, (reductions,); ``gradients``: bytes, (reductions,); ``slack``: seconds that
    the stage ends before stage 0, (reductions,); ``tied``: bytes of a tied embedding that first and last stage
    exchange, (7).
    """

    stages: Ints
    gradients: Floats
    slack: Floats
    tied: float = 0.0

    @property
    def num_stages(self) -> int:
        """Leading stages up to the last that has a reduction."""
        return int(self.stages.max(initial=-1)) + 1


def first_stage(gradients: float) -> Reductions:
    """The reduction of stage 0 alone, of so many gradient bytes; none without gradients."""
    some = int(gradients > 0.0)
    return Reductions(np.zeros(some, np.int64), np.full(some, gradients), np.zeros(some))


class Waits(NamedTuple):
    """Reductions by stage: bytes and slack of each, (stages, most of any); without a byte where there are fewer."""

    gradients: Floats
    slack: Floats


def by_stage(reductions: Reductions) -> Waits:
    """The reductions by ascending stage, where they may come in any order."""
    most = int(np.bincount(reductions.stages, minlength=1).max())
    waits = Waits(np.zeros((reductions.num_stages, most)), np.zeros((reductions.num_stages, most)))
    taken = np.zeros(reductions.num_stages, np.int64)
    for t, x in enumerate(reductions.stages.tolist()):
        waits.gradients[x, taken[x]], waits.slack[x, taken[x]] = reductions.gradients[t], reductions.slack[t]
        taken[x] += 1
    return waits


@jit_inside
def stage_wait(waits: Waits, x: int, ring: float) -> float:
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
    least, most = _extremes(graph)
    gradients = problem.gradient_bytes(candidate)[first, end]
    told = [(x, float(unhidden[x]), float(slack[x])) for x in range(len(first))]
    if overlaps(problem, candidate):
        told += [(x, float(gradients[x]), float(slack[x] + backward[x])) for x in range(len(first))]
    floor = least * unhidden[0]
    kept = [entry for entry in told if entry[0] == 0 or entry[1] * most - entry[2] > floor]
    kept = [entry for entry in kept if entry[1] > 0.0]
    columns: Floats = np.array(kept, dtype=np.float64).reshape(-1, 3)
    tied = tied_bytes(problem, candidate) / weight
    return Reductions(columns[:, 0].astype(np.int64), columns[:, 1] / weight, columns[:, 2] / weight, tied)


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

    Seconds of hops (N, N), inverse rates (N, N), cards (N,), reductions by stage, bytes of a tied embedding, seconds of
    pp - 1 shortest hops, slots (N,), whether any node has several, the least factor of a ring between nodes, and
    whether rings take that factor of their slowest link.
    """

    hops: Floats
    inverse: Floats
    card: Floats
    waits: Waits
    tied: float
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
    if instance.tied > 0.0:
        for z in range(len(paths)):
            slowest = max(slowest, exchange(instance.inverse, instance.card, paths[z]))
    return instance.tied * slowest
