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
    these and of the rings (``taut.solver.placement.annealing.path_reductions``).
(4) A placement takes the longest path and then the wait for the slowest ring or exchange of a tied embedding.
(5) Slots of the leading stages are kept stage by stage, each with its slowest link and the wait for its ring, so that a
    move prices again the rings of the stages that it changes.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.rings import inside_factor, ring_factor
from taut.solver.placement.annealing.path_reductions import Waits, stage_wait

register_jitable(inside_factor)
register_jitable(ring_factor)


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


@jit
def path_length(hops: Floats, path: Ints) -> float:
    """
    Sum the hops of a path.

    ``hops``: seconds between nodes, (N, N); ``path``: nodes of the path, (pp,). Returns seconds.
    """
    seconds = 0.0
    for x in range(len(path) - 1):
        seconds += hops[path[x], path[x + 1]]
    return seconds


@jit
def slowest_link(inverse: Floats, members: Ints, x: int) -> float:
    """
    Find the slowest link between slots of a stage.

    ``inverse``: seconds per byte between nodes, (N, N); ``members``: nodes of the slots of every leading stage,
    (stages, dp). Returns slowest inverse rate between its slots of different nodes, zero for one node.
    """
    slowest = 0.0
    for a in range(members.shape[1]):
        v = members[x, a]
        for b in range(a):
            if v != members[x, b]:
                slowest = max(slowest, inverse[v, members[x, b]])
    return slowest


@jit
def slowest_link_of(inverse: Floats, members: Ints, x: int, pair: Ints) -> float:
    """
    Find the slowest link between either of two nodes and the slots of a stage, (2).

    ``inverse``: seconds per byte between nodes, (N, N); ``members``: nodes of the slots of every leading stage,
    (stages, dp); ``pair``: the two nodes, of the stage or not, (2,). Returns slowest inverse rate of theirs to slots of
    other nodes, in seconds per byte.
    """
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
    """
    Price the data-parallel ring over the slots of a stage, (1).

    ``inverse``: seconds per byte between nodes, (N, N); ``card``: seconds per byte of a node's cards for a ring with
    one slot there, (N,); ``members``: nodes of the slots of every leading stage, (stages, dp); ``slowest``: slowest
    inverse rate between its slots of different nodes; ``count``: scratch by node, (N,). Returns seconds per byte.
    """
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
    """
    Price the exchange between first and last slot of a path, (3).

    ``inverse``, ``card``: seconds per byte, as above; ``path``: nodes of its slots, (pp,). Returns seconds per byte.
    """
    a, b = path[0], path[-1]
    return float(inverse[a, b] if a == b else max(inverse[a, b], card[a], card[b]))


@jit
def power(seconds: float, base: float, unit: float) -> float:
    """
    Raise what a path takes beyond the least to the eighth power.

    ``seconds``, ``base``: seconds of the path, and the least; ``unit``: seconds of a unit, so that powers do not
    overflow. Returns the eighth power, in units.
    """
    x = max(seconds - base, 0.0) / unit
    x *= x
    x *= x
    return x * x


@jit
def rings_of(instance: Instance, paths: Ints, count: Ints) -> Rings:
    """
    Price the rings of paths.

    ``paths``: nodes of every path, (dp, pp); ``count``: scratch by node, (N,). Returns those of the leading stages,
    (5).
    """
    stages = len(instance.waits.slack)
    rings = Rings(np.ascontiguousarray(paths[:, :stages].T), np.zeros(stages), np.zeros(stages))
    for x in range(stages):
        _price_ring(instance, rings, count, x)
    return rings


@jit
def _price_ring(instance: Instance, rings: Rings, count: Ints, x: int) -> None:
    """Price the ring of a stage anew."""
    slowest = slowest_link(instance.inverse, rings.members, x)
    ring = ring_by_byte(instance.inverse, instance.card, rings.members, x, slowest, count)
    rings.slowest[x], rings.wait[x] = slowest, stage_wait(instance.waits, x, ring)


@jit
def longest_of(figures: Floats) -> float:
    """
    Find the largest of some figures.

    ``figures``: of any number, which may be none. Returns the largest, at least zero.
    """
    longest = 0.0
    for figure in figures:
        longest = max(longest, figure)
    return longest


@jit
def seconds_of(instance: Instance, paths: Ints) -> float:
    """
    Price a placement, (4).

    ``instance``, ``paths``: as of ``rings_of``. Returns seconds of hops and of the wait for reductions.
    """
    longest = 0.0
    for z in range(len(paths)):
        longest = max(longest, path_length(instance.hops, paths[z]))
    rings = rings_of(instance, paths, np.zeros(len(instance.hops), np.int64))
    return longest + max(longest_of(rings.wait), slowest_tie(instance, paths))


@jit
def slowest_tie(instance: Instance, paths: Ints) -> float:
    """
    Price the exchange of a tied embedding between first and last slots.

    ``instance``, ``paths``: as of ``rings_of``. Returns seconds of the slowest exchange.
    """
    slowest = 0.0
    if instance.tied > 0.0:
        for z in range(len(paths)):
            slowest = max(slowest, exchange(instance.inverse, instance.card, paths[z]))
    return instance.tied * slowest
