r"""
Prices of paths on a slot graph (``taut.solver.placement.slots``): their hops, and the ring over their first slots.

Data: hops (N, N) in seconds; inverse rates :math:`\beta` (N, N) in seconds per byte.

(1) With :math:`g_v` first slots in node v, k nodes touched and b the slowest inverse rate between touched nodes, the
    ring takes by byte :math:`\max_v 4 \frac{g_v - 1}{g_v} \beta_{vv} + 2 \frac{k - 1}{k} b`
    (``taut.formulations.rings``).
(2) When two first slots change nodes, b follows from their links alone, unless the slowest pair may have gone.
"""

import numpy as np
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

    Parameters
    ----------
    hops
        Seconds between nodes, (N, N).
    path
        Nodes of the path, (pp,).

    Returns
    -------
    float
        Seconds.
    """
    seconds = 0.0
    for x in range(len(path) - 1):
        seconds += hops[path[x], path[x + 1]]
    return seconds


@jit
def slowest_link(inverse: Floats, paths: Ints) -> float:
    """
    Find the slowest link between first slots.

    Parameters
    ----------
    inverse
        Seconds per byte between nodes, (N, N).
    paths
        Nodes of every path, (dp, pp).

    Returns
    -------
    float
        Slowest inverse rate between first slots of different nodes, zero for one node.
    """
    slowest = 0.0
    for a in range(len(paths)):
        for b in range(a):
            if paths[a, 0] != paths[b, 0]:
                slowest = max(slowest, inverse[paths[a, 0], paths[b, 0]])
    return slowest


@jit
def slowest_link_after(inverse: Floats, paths: Ints, slowest: float, removed: Ints, added: Ints) -> float:
    """
    Update the slowest inverse rate when two first slots have changed nodes, (2).

    Parameters
    ----------
    inverse
        Seconds per byte between nodes, (N, N).
    paths
        Nodes of every path after the change, (dp, pp).
    slowest
        The slowest before.
    removed, added
        Nodes of the two first slots before and after, (2,).

    Returns
    -------
    float
        The slowest now, in seconds per byte.
    """
    gone, new = 0.0, 0.0
    if removed[0] != removed[1]:
        gone = inverse[removed[0], removed[1]]
    for z in range(len(paths)):
        v = paths[z, 0]
        for k in range(2):
            if v != removed[k]:
                gone = max(gone, inverse[v, removed[k]])
            if v != added[k]:
                new = max(new, inverse[v, added[k]])
    return max(slowest, new) if gone < slowest else slowest_link(inverse, paths)


@jit
def ring_by_byte(inverse: Floats, paths: Ints, slowest: float, count: Ints) -> float:
    """
    Price the data-parallel ring over the first slots, (1).

    Parameters
    ----------
    inverse
        Seconds per byte between nodes, (N, N).
    paths
        Nodes of every path, (dp, pp).
    slowest
        Slowest inverse rate between first slots of different nodes.
    count
        Scratch by node, (N,).

    Returns
    -------
    float
        Seconds per byte.
    """
    for z in range(len(paths)):
        count[paths[z, 0]] = 0
    for z in range(len(paths)):
        count[paths[z, 0]] += 1
    inside, touched = 0.0, 0.0
    for z in range(len(paths)):
        v = paths[z, 0]
        g = count[v]
        touched += 1.0 / g
        if g > 1:
            inside = max(inside, inside_factor(g) * inverse[v, v])
    return inside + ring_factor(touched) * slowest


@jit
def longest_and_ring(hops: Floats, inverse: Floats, gradients: float, paths: Ints) -> float:
    """
    Price a placement of paths.

    Parameters
    ----------
    hops, inverse
        Seconds, and seconds per byte, between nodes, (N, N).
    gradients
        Bytes that the ring reduces.
    paths
        Nodes of every path, (dp, pp).

    Returns
    -------
    float
        Seconds of the longest path and of the ring over all paths' first slots.
    """
    longest = 0.0
    for z in range(len(paths)):
        longest = max(longest, path_length(hops, paths[z]))
    count = np.zeros(len(hops), np.int64)
    return longest + gradients * ring_by_byte(inverse, paths, slowest_link(inverse, paths), count)


@jit
def power(seconds: float, base: float, unit: float) -> float:
    """
    Raise what a path takes beyond the least to the eighth power.

    Parameters
    ----------
    seconds, base
        Seconds of the path, and the least.
    unit
        Seconds of a unit, so that powers do not overflow.

    Returns
    -------
    float
        The eighth power, in units.
    """
    x = max(seconds - base, 0.0) / unit
    x *= x
    x *= x
    return x * x
