r"""
Longest pipeline on average: a minimum spanning forest with node potentials.

Where every node has one slot, d paths of pp >= 2 nodes that cover N = pp d nodes are a forest of N - d edges. Inner
nodes have degree 2, the d first and d last nodes degree 1. With potentials :math:`\pi_v` and hops :math:`W_{ab}`,

(1) sum of hops = sum over edges of (W_ab + pi_a + pi_b) - 2 sum_v pi_v + sum of pi over first and last nodes
    >= least forest of N - d edges - 2 sum_v pi_v + the 2 d smallest pi;
(2) the longest path takes at least the d-th part.

The potentials climb along the subgradient 2 - degree (Held and Karp). Everything is in whole quanta, so that (1) is
exact for the potentials stated, however they were found.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.placement.slots import Slots

QUANTA = 1 << 40
"""Quanta in the longest hop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Potentials:
    """Proof by (1): potentials in quanta of 1 / ``QUANTA`` of the longest hop, by node."""

    values: tuple[int, ...]


def forest_seconds(given: Slots, proof: Potentials) -> float:
    """Seconds that the longest path takes at least; minus infinity for nodes of several slots, or other numbers."""
    values = proof.values
    if (given.capacity > 1).any() or len(values) != len(given.hops) or max(map(abs, values)) > QUANTA << 8:
        return -np.inf
    quantum, whole = _quantised(given.hops)
    return _forest(whole, np.array(values, dtype=np.int64), given.paths)[0] / given.paths * quantum


def climb(given: Slots, *, longest: float, rounds: int) -> tuple[float, Potentials]:
    """
    Potentials with a good bound (2), and the bound.

    Parameters
    ----------
    given
        Nodes of one slot each.
    longest
        Seconds of the longest path of some placement, by which steps are measured.
    rounds
        Subgradient steps.
    """
    quantum, whole = _quantised(given.hops)
    best, values = _climb(whole, given.paths, int(min(longest / quantum, 1e15) * given.paths), rounds)
    return best / given.paths * quantum, Potentials(values=tuple(values.tolist()))


def _quantised(hops: Floats) -> tuple[float, Ints]:
    """Seconds of a quantum, and hops in quanta rounded down."""
    apart = ~np.eye(len(hops), dtype=bool)
    quantum = float(hops[apart].max()) / QUANTA
    if quantum <= 0.0:
        return 0.0, np.zeros(hops.shape, np.int64)
    return quantum, np.where(apart, np.floor(hops / quantum * (1 - 1e-12)), 0).astype(np.int64)


@jit
def _climb(hops: Ints, dp: int, target: int, rounds: int) -> tuple[int, Ints]:
    """Subgradient ascent towards the target; returns the best bound of (1) and its potentials."""
    n = len(hops)
    values = np.zeros(n, np.int64)
    best, degrees = _forest(hops, values, dp)
    best_values, real = values.copy(), np.zeros(n)
    step, stale = 1.0, 0
    direction = np.zeros(n)
    for _ in range(rounds):
        direction = 0.7 * direction + 0.3 * (degrees - 2.0)
        norm = (direction * direction).sum()
        if norm < 1e-9:
            break
        real = real + step * max(target - best, 1) * 0.05 / norm * direction
        values = np.rint(real).astype(np.int64)
        value, degrees = _forest(hops, values, dp)
        stale += 1
        if value > best:
            best, stale = value, 0
            best_values[:] = values
        if stale >= 20:
            step, stale = step * 0.6, 0
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
