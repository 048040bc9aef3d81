r"""
Visits: how often paths must come into a set of nodes.

Let a set B of nodes have b slots. A visit of B is a longest stretch of a path inside it. Of the v visits by all paths,
s begin a path. Such a visit takes at most pp slots of B, any other at most pp - 1, one being outside before it, so that

(1) :math:`(pp - 1) v + s \ge b, \; s \le v`.

Fractions of paths may solve (1) with parts of visits. With :math:`m = \lceil b / (pp - 1) \rceil` and
:math:`j = b \bmod (pp - 1)`, its whole solutions also satisfy, and with (1) their convex hull is given by,

(2) :math:`v \ge \lceil b / pp \rceil`,
(3) :math:`j v + s \ge j m`.

A rule is one of these for one set: a visit counts ``visit``, one that begins a path ``begin`` more, and all paths
together count at least ``least``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.solver.placement.path_cover.clusters import clusters
from taut.solver.placement.slots import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rule (2), or (3) where ``begun`` visits count apart, for a set of nodes."""

    nodes: tuple[int, ...]
    begun: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Rules:
    """Several rules as arrays: ``inside`` (rules, N) flags, the others (rules,) counts."""

    inside: Flags
    visit: Ints
    begin: Ints
    least: Ints

    def counts(self, walks: Ints) -> Ints:
        """What walks (any number, pp) count by every rule, (walks, rules)."""
        inside = self.inside[:, walks]
        entries = (inside[:, :, 1:] & ~inside[:, :, :-1]).sum(axis=2)
        counts = self.visit[:, None] * entries + (self.visit + self.begin)[:, None] * inside[:, :, 0]
        return np.asarray(counts.T, dtype=np.int64)

    def by_hop(self, gains: Ints) -> Ints:
        """What hops gain that enter sets, (N, N), where a count of every rule gains so much."""
        inside = self.inside.astype(np.int64)
        return (1 - inside).T @ ((gains * self.visit)[:, None] * inside)

    def by_start(self, gains: Ints) -> Ints:
        """What a path gains by beginning in a node, (N,)."""
        return np.asarray((gains * (self.visit + self.begin)) @ self.inside.astype(np.int64))


def rules_of(given: Slots, rules: tuple[Rule, ...]) -> Rules:
    """Rules as arrays."""
    inside = np.zeros((len(rules), len(given.hops)), dtype=bool)
    for flags, rule in zip(inside, rules, strict=True):
        flags[list(rule.nodes)] = True
    begun = np.array([rule.begun for rule in rules], dtype=bool)
    slots, later = inside @ given.capacity, given.pp - 1
    rest = slots % later
    return Rules(
        inside=inside,
        visit=np.where(begun, rest, 1),
        begin=np.where(begun, 1, 0),
        least=np.where(begun, rest * -(-slots // later), -(-slots // given.pp)),
    )


class RuleBook:
    """Rules for clusters of near nodes, and which of them solutions have broken so far, for all start sets together."""

    def __init__(self, given: Slots) -> None:
        self._given, self.broken = given, dict[Rule, None]()
        self._clusters = clusters(given.hops)

    def possible(self, starts: Flags) -> tuple[Rule, ...]:
        """Rules that fractions of paths may break: for clusters, and for them without ``starts``."""
        sets = {tuple(nodes.tolist()) for cluster in self._clusters for nodes in (cluster, cluster[~starts[cluster]])}
        return tuple(rule for nodes in sorted(sets) for rule in _uneven(self._given, nodes))


def _uneven(given: Slots, nodes: tuple[int, ...]) -> Iterator[Rule]:
    """Rules (2) and (3) of a set where they say more than (1)."""
    slots = int(given.capacity[list(nodes)].sum())
    if slots % given.pp:
        yield Rule(nodes=nodes, begun=False)
    if slots % (given.pp - 1):
        yield Rule(nodes=nodes, begun=True)
