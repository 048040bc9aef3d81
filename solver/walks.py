r"""
Longest pipeline: a bound on how short the longest of dp node-disjoint paths can be.

Sets: N = pp dp nodes, to be divided among dp paths of pp nodes each; every path starts in the set P.
Data: symmetric hop seconds W[a, b].

(1) Let w be the least hop and q a quantum. Hops weigh :math:`l_{ab} = \lfloor (W_{ab} - w) / q \rfloor` levels, so a
    path of R levels or more takes at least :math:`T_R = (pp - 1) w + R q` seconds.
(2) Let integers u[v] be gains, and Z the largest sum of gains over all walks of pp nodes that start in P, never
    return at once to the node they left, and take fewer than R levels. If dp paths shorter than :math:`T_R` covered
    every node once, each would be such a walk, and :math:`\sum_v u_v \le dp\, Z`. Hence

    .. math:: \sum_v u_v > dp\, Z \;\Rightarrow\; T \ge T_R.

(3) Gains that prove it exist exactly if no fractional combination of such walks covers every node once. They are found
    by cutting planes: minimise Z over gains of sum N subject to the walks met so far.

Z is found by dynamic programming over (nodes so far, last node, levels), with the best and the second best last step,
all in integers: checking (2) takes one pass. P = everything, u = 1 on one node and 0 elsewhere is the bound by the
hardest node to visit; gains from the average path are covered too.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Flags = NDArray[np.bool_]
NEVER = -(1 << 29)
MOST_SUM = 1 << 28
"""Gains of a walk sum to less, so that no walk is taken for none."""
UNIT = 1 << 15
"""Gains are integers of mean about one unit."""
SMOOTHING = 0.7
"""Share of the best gains so far in the gains that are priced next."""
MOST_WALKS = 6000
MOST_LEVELS = 512
MOST_ROUNDS = 80
"""Cutting-plane rounds after which an undecided attempt counts as failed."""


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
    least, levels = _levels(hops, proof.quantum, proof.levels)
    gains = np.array(proof.gains, dtype=np.int32)
    best = _price(levels, gains, starts, pp, proof.levels)[0]
    if int(best.max()) * (n // pp) >= sum(proof.gains):
        return -np.inf
    return (pp - 1) * least + proof.levels * proof.quantum


def _levels(hops: Floats, quantum: float, most: int) -> tuple[float, Small]:
    """Least hop, and hops in levels by (1), never more than ``most``; none leads from a node to itself."""
    apart = ~np.eye(len(hops), dtype=bool)
    least = float(hops[apart].min())
    # Rounding in the quotient must not lift a hop to the next level.
    exact = np.floor((hops - least) / quantum * (1 - 1e-12))
    return least, np.where(apart, np.clip(exact, 0, most), most).astype(np.int32)


@njit(cache=True, nogil=True)
def _price(levels: Small, gains: Small, starts: Flags, pp: int, most: int) -> tuple[Ints, Small]:
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


class LongestPath:
    """
    Bounds on the longest path for one start set, raised step by step.

    ``seconds`` is proven by ``proof``; ``ceiling`` is a length that (2) cannot prove to be exceeded.
    """

    def __init__(
        self, hops: Floats, starts: Flags, pp: int, *, floor: float, ceiling: float, levels: int = 256
    ) -> None:
        self.seconds, self.ceiling = floor, ceiling
        self.proof: Refutation | None = None
        self.rounds = 0
        self._spent = 0
        self._hops, self._starts, self._pp, self._levels = hops, starts, pp, levels
        self._least = float(hops[~np.eye(len(hops), dtype=bool)].min())
        self._gains = np.ones(len(hops))
        self._walks = np.zeros((0, pp), np.int64)

    @property
    def starts(self) -> Flags:
        """The start set P."""
        return self._starts

    def offer(self, walks: Ints) -> None:
        """Walks (any number, pp) that are likely to matter, such as the pipelines of a good placement."""
        self._walks = np.vstack([self._walks, walks[self._starts[walks[:, 0]]]])

    def raise_towards(self, goal: float, *, rounds: int) -> bool:
        """
        Halve what lies between the proven seconds and the goal or ceiling; returns whether anything was proven.

        An attempt that ``rounds`` do not decide is taken up again by the next call, up to ``MOST_ROUNDS`` in all.
        """
        middle = 0.5 * (self.seconds + min(goal, self.ceiling))
        before = self.rounds
        outcome = self.attempt(middle, rounds=rounds)
        self._spent = 0 if outcome is not None else self._spent + max(self.rounds - before, 1)
        if self._spent >= MOST_ROUNDS or (outcome is None and self.rounds - before < rounds):
            self.ceiling, self._spent = min(self.ceiling, middle), 0
        return bool(outcome)

    def attempt(self, seconds: float, *, rounds: int) -> bool | None:
        """
        Try to prove that the longest path takes at least ``seconds``.

        Returns True with a proof kept, False if no gains prove it, None if ``rounds`` did not decide.
        """
        n, pp, dp = len(self._hops), self._pp, len(self._hops) // self._pp
        budget = seconds - (pp - 1) * self._least
        if budget <= 0.0:
            return None
        quantum = budget / self._levels
        levels = _levels(self._hops, quantum, self._levels)[1]
        pool = self._walks[levels[self._walks[:, :-1], self._walks[:, 1:]].sum(axis=1) < self._levels]
        center, least, most = self._gains, np.inf, (MOST_SUM - 1) // pp
        for _ in range(rounds):
            self.rounds += 1
            solved = _master(pool, n) if len(pool) else (0.0, np.ones(n))
            if solved is None:
                return None
            value, gains = solved
            if value >= pp * (1 - 1e-9):
                self.ceiling = min(self.ceiling, seconds)
                return False
            found = 0
            for share in (SMOOTHING, 0.0):
                priced = np.rint((share * center + (1 - share) * gains) * UNIT).clip(-most, most)
                whole = priced.astype(np.int32)
                best, walks = _price(levels, whole, self._starts, pp, self._levels)
                total, top = int(whole.sum()), int(best.max())
                if top * dp < total:
                    self._keep(seconds, quantum, whole)
                    return True
                if top * n / max(total, 1) < least:
                    least, center = top * n / max(total, 1), whole / (total / n)
                walks = walks[best > NEVER].astype(np.int64)
                cuts = gains[walks].sum(axis=1) > value + 1e-7
                found = int(cuts.sum())
                pool = np.vstack([pool, walks[cuts]])
                if found:
                    break
            if not found:
                return None
            self._gains = center
            self._walks = np.unique(np.vstack([self._walks, pool[-found:]]), axis=0)
            if len(pool) > MOST_WALKS:
                slack = value - gains[pool].sum(axis=1)
                pool = pool[np.argsort(slack, kind="stable")[: MOST_WALKS // 2]]
        return None

    def _keep(self, seconds: float, quantum: float, gains: Small) -> None:
        self.seconds = seconds
        self.proof = Refutation(quantum=quantum, levels=self._levels, gains=tuple(gains.tolist()))
        self._gains = gains / gains.mean()


def _master(walks: Ints, n: int) -> tuple[float, Floats] | None:
    """Least Z and the gains of sum n for which no walk of the pool gains more, (3)."""
    rows = np.repeat(np.arange(len(walks)), walks.shape[1])
    ones = np.ones(len(rows))
    matrix = csr_matrix(
        (
            np.r_[ones, -np.ones(len(walks))],
            (np.r_[rows, np.arange(len(walks))], np.r_[walks.ravel(), np.full(len(walks), n)]),
        ),
        shape=(len(walks), n + 1),
    )
    total = csr_matrix(np.r_[np.ones(n), 0.0][None, :])
    solution = linprog(
        np.r_[np.zeros(n), 1.0],
        A_ub=matrix,
        b_ub=np.zeros(len(walks)),
        A_eq=total,
        b_eq=[float(n)],
        bounds=[(-20.0, 20.0)] * n + [(None, None)],
        method="highs",
    )
    return (float(solution.fun), solution.x[:n]) if solution.success else None
