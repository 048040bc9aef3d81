r"""
Prices of paths on a slot graph (``taut.solver.placement.slots``): their hops, and the rings over slots of one stage.

Data: hops (N, N) in seconds; inverse rates :math:`\beta` (N, N) and cards :math:`\gamma` (N,) in seconds per byte;
gradient bytes :math:`G_t` and slack :math:`A_t` seconds of reductions t, each of a stage x(t).

(1) With :math:`g_v` slots of a stage in node v, k nodes touched and b the slowest inverse rate between touched nodes,
    the ring takes by byte

    .. math:: \rho = \max_v 4 \frac{g_v - 1}{g_v} \beta_{vv} + 2 \frac{k - 1}{k} \max \Big( b, \max_v
        \frac{\gamma_v}{g_v} \Big)

    (``taut.formulations.rings``).
(2) When two slots of the stage change nodes, b follows from their links alone, unless the slowest pair may have gone.
    The links of those that come bound b from below before anything else is known.
(3) A stage ends :math:`A_t` before stage 0, so that the step waits :math:`\max_t G_t \rho_{x(t)} - A_t` for
    reductions; stage 0 has no slack, and the papers' latency models wait for it alone.
(4) First and last slot of a path exchange M bytes of a tied embedding after the longest path, for
    :math:`M \max ( \beta_{ab}, \gamma_a, \gamma_b )` seconds between two nodes; the step waits for the slowest of
    these and of (3).
"""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.rings import inside_factor, ring_factor

register_jitable(inside_factor)
register_jitable(ring_factor)


class Reductions(NamedTuple):
    """
    Reductions of the leading stages that the step may wait for, (3).

    Parameters
    ----------
    stages
        Stage of every reduction, (reductions,).
    gradients
        Bytes, (reductions,).
    slack
        Seconds that the stage ends before stage 0, (reductions,).
    tied
        Bytes of a tied embedding that first and last stage exchange, (4).
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
    """
    Wait for stage 0 alone.

    Parameters
    ----------
    gradients
        Its gradient bytes.

    Returns
    -------
    Reductions
        Its reduction, or none without gradients.
    """
    some = int(gradients > 0.0)
    return Reductions(np.zeros(some, np.int64), np.full(some, gradients), np.zeros(some))


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
def slowest_link(inverse: Floats, members: Ints, x: int) -> float:
    """
    Find the slowest link between slots of a stage.

    Parameters
    ----------
    inverse
        Seconds per byte between nodes, (N, N).
    members
        Nodes of the slots of every leading stage, (stages, dp).
    x
        The stage.

    Returns
    -------
    float
        Slowest inverse rate between its slots of different nodes, zero for one node.
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

    Parameters
    ----------
    inverse
        Seconds per byte between nodes, (N, N).
    members
        Nodes of the slots of every leading stage, (stages, dp).
    x
        The stage.
    pair
        The two nodes, of the stage or not, (2,).

    Returns
    -------
    float
        Slowest inverse rate of theirs to slots of other nodes, in seconds per byte.
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

    Parameters
    ----------
    inverse
        Seconds per byte between nodes, (N, N).
    card
        Seconds per byte of a node's cards for a ring with one slot there, (N,).
    members
        Nodes of the slots of every leading stage, (stages, dp).
    x
        The stage.
    slowest
        Slowest inverse rate between its slots of different nodes.
    count
        Scratch by node, (N,).

    Returns
    -------
    float
        Seconds per byte.
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


class Waits(NamedTuple):
    """Reductions by stage: bytes and slack of each, (stages, most of any); without a byte where there are fewer."""

    gradients: Floats
    slack: Floats


def by_stage(reductions: Reductions) -> Waits:
    """
    List reductions by their stage.

    Parameters
    ----------
    reductions
        Bytes and slack, in any order.

    Returns
    -------
    Waits
        The same figures.
    """
    most = int(np.bincount(reductions.stages, minlength=1).max())
    waits = Waits(np.zeros((reductions.num_stages, most)), np.zeros((reductions.num_stages, most)))
    taken = np.zeros(reductions.num_stages, np.int64)
    for t, x in enumerate(reductions.stages.tolist()):
        waits.gradients[x, taken[x]], waits.slack[x, taken[x]] = reductions.gradients[t], reductions.slack[t]
        taken[x] += 1
    return waits


@jit
def stage_wait(waits: Waits, x: int, ring: float) -> float:
    """
    Find for how long the step waits for the reductions of one stage, (3).

    Parameters
    ----------
    waits
        Bytes and slack by stage.
    x
        The stage.
    ring
        Seconds per byte of its ring.

    Returns
    -------
    float
        Seconds after the end of stage 0, at least zero.
    """
    longest = 0.0
    for t in range(waits.gradients.shape[1]):
        longest = max(longest, waits.gradients[x, t] * ring - waits.slack[x, t])
    return longest


@jit
def exchange(inverse: Floats, card: Floats, path: Ints) -> float:
    """
    Price the exchange between first and last slot of a path, (4).

    Parameters
    ----------
    inverse, card
        Seconds per byte, as above.
    path
        Nodes of its slots, (pp,).

    Returns
    -------
    float
        Seconds per byte.
    """
    a, b = path[0], path[-1]
    return float(inverse[a, b] if a == b else max(inverse[a, b], card[a], card[b]))


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
