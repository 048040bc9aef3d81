r"""
Longest path: gains that prove how short the longest of the paths that take all slots cannot be.

With the sets, levels and gains of ``taut.solver.placement.path_cover.certificate`` (1) and (2),

(3) gains that prove :math:`T \ge T_R` exist exactly if no fractional combination of walks shorter than R levels fills
    every node by a fractional combination of its fillings with k to k' touched nodes, Q among them. They are found by
    cutting planes: minimise Z over gains with :math:`\Gamma` = slots, subject to the walks and fillings met so far,

    .. math:: \Gamma = \sum_{v \notin Q} \Phi_v + \sum_{v \in Q} \Phi'_v + (k - |Q|) \lambda - (k' - |Q|) \mu
              - \sum_{v \in P \setminus Q} \sigma_v, \quad
              \Phi'_v - \Phi_v \ge \lambda - \mu - \sigma_v, \quad \lambda, \mu, \sigma \ge 0,

    the dual of the choice of touched nodes;
(4) where fractions fill every node, the rules of visits that they break
    (``taut.solver.placement.path_cover.capacity_cuts``) give further gains, and the attempt goes on.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Floats, Ints, Ints32
from taut.solver.placement.path_cover.capacity_cuts import RuleBook
from taut.solver.placement.path_cover.cases import PathProof
from taut.solver.placement.path_cover.certificate import MOST_LEVELS, Gains, Refutation, levels_of
from taut.solver.placement.path_cover.master import Master
from taut.solver.placement.path_cover.pricing import NEVER
from taut.solver.placement.slots import Slots

UNIT = 1 << 15
"""Gains are integers of mean about one unit."""
SMOOTHING = 0.7
"""Share of the best gains so far in the gains that are priced next."""
HALF, LONG_STRIDE = 0.5, 0.95
"""How much of what lies before the goal is attempted, and where known gains proved the last attempt."""
MOST_WALKS = 6000
MOST_ROUNDS = 80
"""Cutting-plane rounds after which an undecided attempt counts as failed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Priced:
    """Gains, what all paths have of them at least and one walk at most, and walks with much of them."""

    gains: Gains
    total: float
    top: int
    walks: Ints


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
        book: RuleBook | None = None,
    ) -> None:
        self.seconds, self.evidence, self.ceiling = seconds, evidence, np.inf
        self.rounds, self._spent, self._stride = 0, 0, HALF
        self._given, self._starts, self._required, self._touched = given, starts, required, touched
        self._levels = levels
        self._master = Master(given, starts, required, given.touched(*touched), book or RuleBook(given))
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

        Where gains that were known proved the last half, almost all of what is left is attempted. An attempt that
        ``rounds`` do not decide is taken up again by the next call, up to ``MOST_ROUNDS`` in all.
        """
        middle = self.seconds + self._stride * (min(goal, self.ceiling) - self.seconds)
        before = self.rounds
        outcome = self.attempt(middle, rounds=rounds)
        self._stride = LONG_STRIDE if outcome and self.rounds == before + 1 else HALF
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
        master.take_up_broken()
        quantum = budget / self._levels
        levels = levels_of(given, quantum, self._levels)[1]
        pool = self._walks[levels[self._walks[:, :-1], self._walks[:, 1:]].sum(axis=1) < self._levels]
        least = np.inf
        for _ in range(rounds):
            self.rounds += 1
            solved = master.solve(pool)
            if solved is None:
                return None
            value, gains = solved
            if value >= given.pp * (1 - 1e-9):
                if master.take_up_rules():
                    continue
                self.ceiling = min(self.ceiling, seconds, master.longest_walk)
                return False
            center, found = np.pad(self._center, (0, len(gains) - len(self._center))), 0
            for share in (SMOOTHING, 0.0):
                priced = self._priced(levels, share * center + (1 - share) * gains)
                if priced is None:
                    return None
                if priced.top * given.paths < priced.total < np.inf:
                    self._keep(seconds, quantum, priced)
                    return True
                # Gains of which all paths together have none do not say where better ones lie.
                if priced.total > 0.0 and priced.top / priced.total < least:
                    least, self._center = priced.top / priced.total, self._normal(priced)
                cuts = priced.walks[master.gained(gains, priced.walks) > value + 1e-7]
                found = len(cuts) + master.widened(gains)
                pool = np.vstack([pool, cuts])
                self._walks = np.unique(np.vstack([self._walks, cuts]), axis=0)
                if found:
                    break
            if not found:
                return None
            if len(pool) > MOST_WALKS:
                pool = pool[np.argsort(-master.gained(gains, pool), kind="stable")[: MOST_WALKS // 2]]
        return None

    def _priced(self, levels: Ints32, gains: Floats) -> _Priced | None:
        """Whole gains with the walks that gain most; None for gains that are too large."""
        given, whole = self._given, self._master.whole(gains, UNIT)
        found = whole.dearest(given, levels, self._starts, self._levels)
        if found is None:
            return None
        total = whole.total(given, self._starts, self._required, given.touched(*self._touched))
        walks = found[1][found[0] > NEVER].astype(np.int64)
        return _Priced(gains=whole, total=total, top=int(found[0].max()), walks=walks)

    def _normal(self, priced: _Priced) -> Floats:
        """Gains of which all paths have one by slot."""
        return self._master.flat(priced.gains) / (priced.total / self._given.slots)

    def _keep(self, seconds: float, quantum: float, priced: _Priced) -> None:
        gains, self.seconds = priced.gains, seconds
        first, later = (tuple(map(tuple, table[:, 1:].tolist())) for table in (gains.first, gains.later))
        by_rule = zip(self._master.rules, gains.by_rule.tolist(), strict=True)
        by = Refutation(
            quantum=quantum,
            levels=self._levels,
            later=later,
            first=None if first == later else first,
            rules=tuple((rule, gain) for rule, gain in by_rule if gain),
        )
        nodes, required = (tuple(np.flatnonzero(flags).tolist()) for flags in (self._starts, self._required))
        self.evidence = PathProof(nodes=nodes, required=required, touched=self._touched, by=by)
        if priced.total > 0.0:
            self._center = self._normal(priced)
