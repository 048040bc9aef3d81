r"""
Longest path: a proof of how short the longest of the paths that take all slots cannot be, and its check.

Sets: nodes with :math:`c_v` slots (``taut.solver.placement.slots``), to be divided among paths of pp slots, every one
of which begins in the set P, so that at least k and at most k' nodes are touched, among them the set Q. A run is a
stretch of a path in one node.

(1) Let w be the least hop and q a quantum. Hops weigh :math:`l_{ab} = \lfloor (W_{ab} - w) / q \rfloor` levels, so a
    path of R levels or more takes at least :math:`T_R = (pp - 1) w + R q` seconds.
(2) Let runs have whole gains by node and length, first runs their own
    (``taut.solver.placement.path_cover.node_patterns``), and
    :math:`\Gamma` be the least that all paths together gain. Let Z be the largest gain of a walk of pp slots that
    begins in P, has runs of at most :math:`c_v` slots, never returns at once to the node it left if it had filled it,
    and takes fewer than R levels. If paths shorter than :math:`T_R` took every slot once, each would be such a walk.
    Hence

    .. math:: \Gamma > paths \cdot Z \;\Rightarrow\; T \ge T_R.

(3) A walk may also gain :math:`\pi \ge 0` for what it counts by a rule of
    ``taut.solver.placement.path_cover.capacity_cuts``; all paths together count at least so much that :math:`\Gamma`
    grows by :math:`\pi` times the least of the rule.

Z is found by dynamic programming over slots, nodes and levels (``taut.solver.placement.path_cover.pricing``), all in
integers: checking (2) takes one pass. A gain of one on every slot of one node and zero elsewhere is the bound by the
hardest node to visit; gains from the average path are covered too. ``taut.solver.placement.path_cover.path_bound``
finds gains.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut.data.arrays import Flags, Ints, Ints32
from taut.solver.placement.path_cover.capacity_cuts import Rule, Rules, rules_of
from taut.solver.placement.path_cover.node_patterns import cheapest_fillings, least_total
from taut.solver.placement.path_cover.pricing import MOST_SUM, dearest_walks
from taut.solver.placement.slots import Slots

MOST_LEVELS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Refutation:
    r"""
    Proof by (2) that some path takes at least ``seconds``.

    ``quantum`` seconds a level, ``levels`` = R; ``later`` and ``first`` gains by node and length from 1 on, ``first``
    where they differ; ``rules`` with their gains :math:`\pi`. Valid for paths that begin in the set it was made for, or
    in any part of it, for any part of the range of touched nodes, and with more required ones.
    """

    quantum: float
    levels: int
    later: tuple[tuple[int, ...], ...]
    first: tuple[tuple[int, ...], ...] | None = None
    rules: tuple[tuple[Rule, int], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Gains:
    """
    Whole gains of walks: of first and later runs (N, c + 1) by node and length, zero for length zero, and by rules.

    ``by_rule`` (rules,) is what a count of each rule gains.
    """

    first: Ints
    later: Ints
    rules: Rules
    by_rule: Ints

    def total(self, given: Slots, starts: Flags, required: Flags, touched: tuple[int, int]) -> float:
        """What all paths together gain at least, infinite where no nodes can be touched so."""
        least, _ = cheapest_fillings(self.first.astype(np.float64), self.later.astype(np.float64), given.capacity)
        return least_total(least, starts, required, *touched) + float(self.by_rule @ self.rules.least)

    def dearest(self, given: Slots, levels: Ints32, starts: Flags, most: int) -> tuple[Ints, Ints32] | None:
        """Largest gain of a walk of fewer than ``most`` levels by its last node, and that walk; None for huge gains."""
        if self.largest * given.pp >= MOST_SUM:
            return None
        first, hops = self._with_rules
        tables = first.astype(np.int32), self.later.astype(np.int32)
        return dearest_walks(levels, hops, *tables, given.capacity, starts, given.pp, most)

    @property
    def largest(self) -> int:
        """What a run and the hop to it gain together at most, or lose."""
        first, hops = self._with_rules
        return int(max(np.abs(first).max(), np.abs(self.later).max()) + hops.max())

    @cached_property
    def _with_rules(self) -> tuple[Ints, Ints]:
        """Gains of first runs, and of hops (N, N), with those by rules."""
        return self.first + self.rules.by_start(self.by_rule)[:, None], self.rules.by_hop(self.by_rule)


def refuted_seconds(given: Slots, starts: Flags, required: Flags, touched: tuple[int, int], proof: Refutation) -> float:
    """
    Seconds that the longest path takes at least, minus infinity where the proof does not hold.

    Parameters
    ----------
    given
        The slots.
    starts
        P, (N,).
    required
        Q, (N,).
    touched
        k and k', the fewest and most nodes that stage 0 touches.
    proof
        Gains and levels.
    """
    if not 0 < proof.levels <= MOST_LEVELS or not 0.0 < proof.quantum < np.inf:
        return -np.inf
    gains = _gains(given, proof)
    if gains is None:
        return -np.inf
    least, levels = levels_of(given, proof.quantum, proof.levels)
    found = gains.dearest(given, levels, starts, proof.levels)
    if found is None or not int(found[0].max()) * given.paths < gains.total(given, starts, required, touched) < np.inf:
        return -np.inf
    return (given.pp - 1) * least + proof.levels * proof.quantum


def _gains(given: Slots, proof: Refutation) -> Gains | None:
    """The gains of a proof; None where they are not by node and length, not of rules, or huge."""
    later = _table(given, proof.later)
    first = later if proof.first is None else _table(given, proof.first)
    sets = [set(rule.nodes) for rule, _ in proof.rules]
    known = all(len(nodes) == len(rule.nodes) for nodes, (rule, _) in zip(sets, proof.rules, strict=True))
    if later is None or first is None or not known or any(not nodes <= set(range(len(given.hops))) for nodes in sets):
        return None
    by_rule = [gain for _, gain in proof.rules]
    if any(not 0 <= gain < MOST_SUM for gain in by_rule):
        return None
    rules = rules_of(given, tuple(rule for rule, _ in proof.rules))
    return Gains(first=first, later=later, rules=rules, by_rule=np.array(by_rule, dtype=np.int64))


def _table(given: Slots, gains: tuple[tuple[int, ...], ...]) -> Ints | None:
    """Gains as an array (N, c + 1) with a column for no slots; None where they are not by node and length, or huge."""
    longest = int(given.capacity.max())
    if len(gains) != len(given.hops) or any(len(row) != longest for row in gains):
        return None
    if max(abs(gain) for row in gains for gain in row) >= MOST_SUM:
        return None
    return np.pad(np.array(gains, dtype=np.int64), ((0, 0), (1, 0)))


def levels_of(given: Slots, quantum: float, most: int) -> tuple[float, Ints32]:
    """Least hop, and hops in levels by (1), never more than ``most``; single slots have no hop inside."""
    least = given.least_hop()
    allowed = ~np.diag(given.capacity <= 1)
    # Rounding in the quotient must not lift a hop to the next level.
    exact = np.floor((np.where(allowed, given.hops, np.inf) - least) / quantum * (1 - 1e-12))
    return least, np.clip(exact, 0, most).astype(np.int32)
