r"""
Longest pipeline: a proof of how short the longest of dp node-disjoint paths cannot be, and its check.

Sets: N = pp dp nodes, to be divided among dp paths of pp nodes each; every path starts in the set P.
Data: symmetric hop seconds W[a, b].

(1) Let w be the least hop and q a quantum. Hops weigh :math:`l_{ab} = \lfloor (W_{ab} - w) / q \rfloor` levels, so a
    path of R levels or more takes at least :math:`T_R = (pp - 1) w + R q` seconds.
(2) Let integers u[v] be gains, and Z the largest sum of gains over all walks of pp nodes that start in P, never
    return at once to the node they left, and take fewer than R levels. If dp paths shorter than :math:`T_R` covered
    every node once, each would be such a walk, and :math:`\sum_v u_v \le dp\, Z`. Hence

    .. math:: \sum_v u_v > dp\, Z \;\Rightarrow\; T \ge T_R.

Z is found by dynamic programming over (nodes so far, last node, levels), with the best and the second best last step,
all in integers: checking (2) takes one pass. P = everything, u = 1 on one node and 0 elsewhere is the bound by the
hardest node to visit; gains from the average path are covered too. ``taut.solver.walks`` finds gains.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Flags = NDArray[np.bool_]
NEVER = -(1 << 29)
MOST_SUM = 1 << 28
"""Gains of a walk sum to less, so that no walk is taken for none."""
MOST_LEVELS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Refutation:
    """
    Proof by (2) that some path takes at least ``seconds``.

    ``quantum`` seconds a level, ``levels`` = R, ``gains`` by node; valid for paths that start in the set it was
    made for, or in any part of it.
    """

    quantum: float
    levels: int
    gains: tuple[int, ...]


def refuted_seconds(hops: Floats, starts: Flags, pp: int, proof: Refutation) -> float:
    """
    Seconds that the longest path takes at least, minus infinity where the proof does not hold.

    Parameters
    ----------
    hops
        Symmetric seconds between nodes, (N, N); the diagonal is ignored.
    starts
        P, (N,).
    pp
        Nodes of a path.
    proof
        Gains and levels.
    """
    n = len(hops)
    if len(proof.gains) != n or not 0 < proof.levels <= MOST_LEVELS or not 0.0 < proof.quantum < np.inf:
        return -np.inf
    if max(map(abs, proof.gains)) * pp >= MOST_SUM:
        return -np.inf
    least, levels = levels_of(hops, proof.quantum, proof.levels)
    gains = np.array(proof.gains, dtype=np.int32)
    best = dearest_walks(levels, gains, starts, pp, proof.levels)[0]
    if int(best.max()) * (n // pp) >= sum(proof.gains):
        return -np.inf
    return (pp - 1) * least + proof.levels * proof.quantum


def levels_of(hops: Floats, quantum: float, most: int) -> tuple[float, Small]:
    """Least hop, and hops in levels by (1), never more than ``most``; none leads from a node to itself."""
    apart = ~np.eye(len(hops), dtype=bool)
    least = float(hops[apart].min())
    # Rounding in the quotient must not lift a hop to the next level.
    exact = np.floor((hops - least) / quantum * (1 - 1e-12))
    return least, np.where(apart, np.clip(exact, 0, most), most).astype(np.int32)


@njit(cache=True, nogil=True)
def dearest_walks(levels: Small, gains: Small, starts: Flags, pp: int, most: int) -> tuple[Ints, Small]:
    """
    Largest gain of a walk by its last node, and that walk, (N, pp); ``NEVER`` and -1 where there is none.

    ``first`` and ``second`` are the best over the step before last and the best over all other steps, so that a walk
    that must not return to one node can be continued.
    """
    n = len(gains)
    first = np.full((pp, n, most), NEVER, np.int32)
    second = np.full((pp, n, most), NEVER, np.int32)
    came = np.full((pp, n, most), -1, np.int32)
    other = np.full((pp, n, most), -1, np.int32)
    for v in range(n):
        if starts[v]:
            first[0, v, 0] = gains[v]
    for k in range(1, pp):
        for v in range(n):
            best, next_best = first[k, v], second[k, v]
            by, next_by = came[k, v], other[k, v]
            gain = gains[v]
            for u in range(n):
                step = levels[u, v]
                if step >= most:
                    continue
                _extend(
                    first[k - 1, u, : most - step],
                    second[k - 1, u, : most - step],
                    came[k - 1, u, : most - step],
                    best[step:],
                    next_best[step:],
                    by[step:],
                    next_by[step:],
                    u,
                    v,
                    gain,
                )
    return _walks(levels, first[pp - 1], came, other, pp, most)


@njit(cache=True, nogil=True, inline="always")
def _extend(
    first: Small,
    second: Small,
    came: Small,
    best: Small,
    next_best: Small,
    by: Small,
    next_by: Small,
    u: int,
    v: int,
    gain: int,
) -> None:
    """Continue walks that end at u by v, level by level, in a form that compilers turn into vector instructions."""
    for level in range(len(first)):
        value = (second[level] if came[level] == v else first[level]) + gain
        one, two = best[level], next_best[level]
        better = value > one
        next_by[level] = by[level] if better else (u if value > two else next_by[level])
        by[level] = u if better else by[level]
        next_best[level] = max(two, min(one, value))
        best[level] = max(one, value)


@njit(cache=True, nogil=True)
def _walks(levels: Small, last: Small, came: Small, other: Small, pp: int, most: int) -> tuple[Ints, Small]:
    """The best walk to every last node, by way of the steps kept."""
    n = len(last)
    best = np.full(n, NEVER, np.int64)
    walks = np.full((n, pp), -1, np.int32)
    for end in range(n):
        level = 0
        for x in range(most):
            if last[end, x] > last[end, level]:
                level = x
        best[end] = last[end, level]
        if best[end] < NEVER // 2:
            best[end] = NEVER
            continue
        v, banned = end, -1
        walks[end, pp - 1] = v
        for k in range(pp - 1, 0, -1):
            u = came[k, v, level]
            if u == banned:
                u = other[k, v, level]
            level -= levels[u, v]
            banned, v = v, u
            walks[end, k - 1] = v
    return best, walks
