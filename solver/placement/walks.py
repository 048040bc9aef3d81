r"""
Longest path: gains that prove how short the longest of the paths that take all slots cannot be.

With the sets, levels and gains of ``taut.solver.placement.refutation`` (1) and (2),

(3) gains that prove :math:`T \ge T_R` exist exactly if no fractional combination of walks shorter than R levels fills
    every node by a fractional combination of its fillings with k to k' touched nodes, Q among them. They are found by
    cutting planes: minimise Z over gains with :math:`\Gamma` = slots, subject to the walks and fillings met so far,

    .. math:: \Gamma = \sum_{v \notin Q} \Phi_v + \sum_{v \in Q} \Phi'_v + (k - |Q|) \lambda - (k' - |Q|) \mu
              - \sum_{v \in P \setminus Q} \sigma_v, \quad
              \Phi'_v - \Phi_v \ge \lambda - \mu - \sigma_v, \quad \lambda, \mu, \sigma \ge 0,

    the dual of the choice of touched nodes.
"""

import numpy as np
from numpy.typing import NDArray

from taut.solver.placement.dearest import MOST_SUM, NEVER, dearest_walks
from taut.solver.placement.refutation import MOST_LEVELS, Refutation, levels_of
from taut.solver.placement.slots import Slots
from taut.solver.placement.staircase import PathProof
from taut.solver.placement.walk_master import Master

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
    Bounds on the longest path for one start set, required nodes and range of touched nodes, raised step by step.

    ``seconds`` is proven by ``evidence``; ``ceiling`` is a length that (2) cannot prove to be exceeded.
    """

    def __init__(
        self,
        given: Slots,
        starts: Flags,
        required: Flags,
        touched: tuple[int, int],
        seconds: float,
        evidence: PathProof,
        *,
        levels: int = 256,
    ) -> None:
        self.seconds, self.evidence, self.ceiling = seconds, evidence, np.inf
        self.rounds = 0
        self._spent = 0
        self._given, self._starts, self._required, self._touched = given, starts, required, touched
        self._levels = levels
        self._master = Master(given, starts, required, given.touched(*touched))
        self._center = self._master.even()
        self._walks = np.zeros((0, given.pp), np.int64)

    def accept(self, seconds: float, evidence: PathProof) -> None:
        """Take over what is proven elsewhere, if it is more."""
        if seconds > self.seconds:
            self.seconds, self.evidence = seconds, evidence

    @property
    def begun(self) -> Floats:
        """Paths that begin in each node in the last fractional solution."""
        return self._master.begun

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

    def sharpen(self) -> bool:
        """Double the levels, so that hops are rounded by less; False if there are as many as a proof may have."""
        if 2 * self._levels > MOST_LEVELS:
            return False
        self._levels, self.ceiling, self._spent = 2 * self._levels, np.inf, 0
        return True

    def attempt(self, seconds: float, *, rounds: int) -> bool | None:
        """
        Try to prove that the longest path takes at least ``seconds``.

        Returns True with a proof kept, False if no gains prove it, None if ``rounds`` did not decide.
        """
        given, master = self._given, self._master
        budget = seconds - (given.pp - 1) * given.least_hop()
        if budget <= 0.0:
            return None
        quantum = budget / self._levels
        levels = levels_of(given, quantum, self._levels)[1]
        pool = self._walks[levels[self._walks[:, :-1], self._walks[:, 1:]].sum(axis=1) < self._levels]
        center, least = self._center, np.inf
        for _ in range(rounds):
            self.rounds += 1
            solved = master.solve(pool)
            if solved is None:
                return None
            value, gains = solved
            if value >= given.pp * (1 - 1e-9):
                self.ceiling = min(self.ceiling, seconds)
                return False
            found = 0
            for share in (SMOOTHING, 0.0):
                whole, best, walks = self._priced(levels, share * center + (1 - share) * gains)
                total, top = master.total(whole), int(best.max())
                if top * given.paths < total < np.inf:
                    self._keep(seconds, quantum, whole, total)
                    return True
                if top * given.slots / max(total, 1.0) < least:
                    least, center = top * given.slots / max(total, 1.0), whole / (max(total, 1.0) / given.slots)
                new = walks[best > NEVER].astype(np.int64)
                cuts = master.gained(gains, new) > value + 1e-7
                found = int(cuts.sum()) + master.widened(gains)
                pool = np.vstack([pool, new[cuts]])
                self._walks = np.unique(np.vstack([self._walks, new[cuts]]), axis=0)
                if found:
                    break
            if not found:
                return None
            self._center = center
            if len(pool) > MOST_WALKS:
                pool = pool[np.argsort(-master.gained(gains, pool), kind="stable")[: MOST_WALKS // 2]]
        return None

    def _priced(self, levels: Small, gains: Floats) -> tuple[Floats, Ints, Small]:
        """Whole gains, and the dearest walks for them."""
        given, most = self._given, (MOST_SUM - 1) // self._given.pp
        whole = np.rint(gains * UNIT).clip(-most, most)
        first, later = whole.astype(np.int32)
        best, walks = dearest_walks(levels, first, later, given.capacity, self._starts, given.pp, self._levels)
        return whole, best, walks

    def _keep(self, seconds: float, quantum: float, whole: Floats, total: float) -> None:
        self.seconds = seconds
        first, later = (tuple(map(tuple, table[:, 1:].astype(int).tolist())) for table in whole)
        by = Refutation(quantum=quantum, levels=self._levels, later=later, first=None if first == later else first)
        nodes, required = (tuple(np.flatnonzero(flags).tolist()) for flags in (self._starts, self._required))
        self.evidence = PathProof(nodes=nodes, required=required, touched=self._touched, by=by)
        if total > 0.0:
            self._center = whole / (total / self._given.slots)
