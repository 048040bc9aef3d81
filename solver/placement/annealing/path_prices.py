r"""
What paths on nodes cost (``taut.solver.placement.slots``): their hops, and the ring over their first slots.

With :math:`g_v` first slots in node v, k nodes touched and b the slowest inverse rate between touched nodes, the ring
takes by byte

(1) :math:`\max_v 4 \frac{g_v - 1}{g_v} \beta_v + 2 \frac{k - 1}{k} b`.

When two first slots change nodes, b follows from their links alone, unless the slowest pair may have gone.
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
    """Seconds of one path's hops."""
    seconds = 0.0
    for x in range(len(path) - 1):
        seconds += hops[path[x], path[x + 1]]
    return seconds


@jit
def slowest_link(inverse: Floats, paths: Ints) -> float:
    """Slowest inverse rate between first slots of unlike nodes."""
    slowest = 0.0
    for a in range(len(paths)):
        for b in range(a):
            if paths[a, 0] != paths[b, 0]:
                slowest = max(slowest, inverse[paths[a, 0], paths[b, 0]])
    return slowest


@jit
def slowest_link_after(inverse: Floats, paths: Ints, slowest: float, removed: Ints, added: Ints) -> float:
    """The slowest when two first slots have changed nodes: all pairs only where the slowest may have gone."""
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
    """Seconds per byte of the data-parallel ring over the first slots; ``count`` is a scratch by node."""
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
    """Seconds of the longest path and of the ring over all paths' first slots, (1), with ``gradients`` bytes."""
    longest = 0.0
    for z in range(len(paths)):
        longest = max(longest, path_length(hops, paths[z]))
    count = np.zeros(len(hops), np.int64)
    return longest + gradients * ring_by_byte(inverse, paths, slowest_link(inverse, paths), count)


@jit
def power(seconds: float, base: float, unit: float) -> float:
    """The eighth power of what a path takes beyond ``base``, in ``unit``."""
    x = max(seconds - base, 0.0) / unit
    x *= x
    x *= x
    return x * x
