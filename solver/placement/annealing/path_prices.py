r"""
Prices of paths on a slot graph (``taut.solver.placement.slots``): their hops, and the rings over slots of one stage.

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
    these and of the rings (``taut.solver.placement.annealing.path_waits``).
"""

from numba.extending import register_jitable

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.rings import inside_factor, ring_factor

register_jitable(inside_factor)
register_jitable(ring_factor)


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
