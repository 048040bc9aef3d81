r"""
Longest pipeline: gains that prove how short the longest of dp node-disjoint paths cannot be.

With the sets, levels and gains of ``taut.solver.refutation`` (1) and (2),

(3) gains that prove :math:`T \ge T_R` exist exactly if no fractional combination of walks shorter than R levels covers
    every node once. They are found by cutting planes: minimise Z over gains of sum N subject to the walks met so far.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from taut.solver.refutation import MOST_SUM, NEVER, Refutation, dearest_walks, levels_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Flags = NDArray[np.bool_]
UNIT = 1 << 15
"""Gains are integers of mean about one unit."""
SMOOTHING = 0.7
"""Share of the best gains so far in the gains that are priced next."""
MOST_WALKS = 6000
MOST_ROUNDS = 80
"""Cutting-plane rounds after which an undecided attempt counts as failed."""


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
        levels = levels_of(self._hops, quantum, self._levels)[1]
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
                best, walks = dearest_walks(levels, whole, self._starts, pp, self._levels)
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
