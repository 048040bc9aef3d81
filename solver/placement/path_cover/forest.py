r"""
Held-Karp bound on the mean path: a minimum spanning forest with Lagrangian multipliers of the nodes.

Sets: N nodes of one slot each; d paths of pp >= 2 nodes cover all N = pp d, so their hops are a forest of N - d edges.
Data: seconds :math:`W_{ab}` of hops. Inner nodes have degree 2, the d first and d last nodes degree 1.
Variables: the forest; :math:`\pi_v` multipliers of the degree constraints, free in sign.

(1) Relaxing the degrees, the sum of all hops is

    .. math:: \sum_{ab} (W_{ab} + \pi_a + \pi_b) - 2 \sum_v \pi_v + \sum_{\text{ends } v} \pi_v
        \ge \min_{|F| = N - d} \sum_{ab \in F} (W_{ab} + \pi_a + \pi_b) - 2 \sum_v \pi_v
        + \text{the } 2 d \text{ smallest } \pi_v,

    where the minimum is over forests, found by the greedy algorithm.
(2) The longest path takes at least the d-th part of (1), its mean.

The multipliers follow a subgradient of (1), 2 - degree. All numbers are whole quanta, so that (1) is exact for the
multipliers stated, however they were found.

References
----------
Held and Karp (1970, 1971), The traveling-salesman problem and minimum spanning trees, parts I and II: (1) for one tour,
and subgradient steps.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.placement.slots import SlotGraph

QUANTA = 1 << 40
"""Quanta in the longest hop: with multipliers up to 2^8 hops the sums of 2,048 nodes stay below 2^62, and rounding
costs less than 1e-12 of a hop."""
MOMENTUM, FRESH = 0.7, 0.3
"""Shares of the last direction and of the new subgradient in the next direction."""
STEP, PATIENCE, DECAY = 0.05, 20, 0.6
"""
Share of Polyak's step that is taken; steps without a better bound after which it is cut, and the share that is left.

All are of the usual size for subgradient ascent. Any multipliers are valid, so they decide how good the bound is and
not whether it holds.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMultipliers:
    """Certificate of (1): the multiplier of every node in quanta of 1 / ``QUANTA`` of the longest hop."""

    values: tuple[int, ...]


def forest_bound(graph: SlotGraph, proof: NodeMultipliers) -> float:
    """Seconds of the longest path at least, (2); minus infinity for several slots a node, or wrong multipliers."""
    values = proof.values
    if (graph.capacity > 1).any() or len(values) != len(graph.hops) or max(map(abs, values)) > QUANTA << 8:
        return -np.inf
    quantum, whole = _quantised(graph.hops)
    return _forest(whole, np.array(values, dtype=np.int64), graph.num_paths)[0] / graph.num_paths * quantum


def subgradient_ascent(graph: SlotGraph, *, longest: float, rounds: int) -> tuple[float, NodeMultipliers]:
    """A good bound (2) in seconds and its multipliers, by Polyak's steps towards the ``longest`` known path."""
    quantum, whole = _quantised(graph.hops)
    best, values = _subgradient_ascent(
        whole, graph.num_paths, int(min(longest / quantum, 1e15) * graph.num_paths), rounds
    )
    return best / graph.num_paths * quantum, NodeMultipliers(values=tuple(values.tolist()))


def _quantised(hops: Floats) -> tuple[float, Ints]:
    """Seconds of a quantum, and hops in quanta rounded down."""
    apart = ~np.eye(len(hops), dtype=bool)
    quantum = float(hops[apart].max()) / QUANTA
    if quantum <= 0.0:
        return 0.0, np.zeros(hops.shape, np.int64)
    return quantum, np.where(apart, np.floor(hops / quantum * (1 - 1e-12)), 0).astype(np.int64)


@jit
def _subgradient_ascent(hops: Ints, dp: int, target: int, rounds: int) -> tuple[int, Ints]:
    """
    Ascend towards the target; returns the best bound of (1) and its multipliers.

    A step has the length of Polyak's rule times a share that is cut after ``PATIENCE`` steps without a better bound;
    the ascent then goes on from the best multipliers. Its direction keeps a part of the one before (Camerini, Fratta
    and Maffioli 1975).
    """
    n = len(hops)
    values = np.zeros(n, np.int64)
    best, degrees = _forest(hops, values, dp)
    best_values, real = values.copy(), np.zeros(n)
    step, stale = 1.0, 0
    direction = np.zeros(n)
    for _ in range(rounds):
        direction = MOMENTUM * direction + FRESH * (degrees - 2.0)
        norm = (direction * direction).sum()
        if norm < 1e-9:
            break
        real = real + step * max(target - best, 1) * STEP / norm * direction
        values = np.rint(real).astype(np.int64)
        value, degrees = _forest(hops, values, dp)
        stale += 1
        if value > best:
            best, stale = value, 0
            best_values = values
        if stale >= PATIENCE:
            step, stale = step * DECAY, 0
            real = best_values.astype(np.float64)
    return best, best_values


@jit
def _forest(hops: Ints, values: Ints, dp: int) -> tuple[int, Ints]:
    """The right-hand side of (1), and every node's degree with ends counted as in (1)."""
    n = len(values)
    near = np.full(n, 1 << 62, np.int64)
    link = np.zeros(n, np.int64)
    done = np.zeros(n, np.bool_)
    edge, one, other = np.zeros(n - 1, np.int64), np.zeros(n - 1, np.int64), np.zeros(n - 1, np.int64)
    v = 0
    for k in range(n - 1):
        done[v] = True
        nearest = -1
        for u in range(n):
            if not done[u]:
                length = hops[v, u] + values[v] + values[u]
                if length < near[u]:
                    near[u], link[u] = length, v
                if nearest < 0 or near[u] < near[nearest]:
                    nearest = u
        edge[k], one[k], other[k] = near[nearest], nearest, link[nearest]
        v = nearest
    degrees = np.zeros(n, np.int64)
    total = np.int64(0)
    for k in np.argsort(edge, kind="mergesort")[: n - dp]:
        total += edge[k]
        degrees[one[k]] += 1
        degrees[other[k]] += 1
    for v in np.argsort(values, kind="mergesort")[: 2 * dp]:
        total += values[v]
        degrees[v] += 1
    return total - 2 * values.sum(), degrees
