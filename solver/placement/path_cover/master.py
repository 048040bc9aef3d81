r"""
The restricted master problem of ``taut.solver.placement.path_cover.path_bound`` (3).

Variables: gains of first and later runs by node and length; :math:`\Phi_v, \Phi'_v` the least gain of a node untouched
and touched; :math:`\lambda, \mu, \sigma_v` for the choice of touched nodes; Z; gains :math:`\pi \ge 0` by those rules
of visits (``taut.solver.placement.path_cover.capacity_cuts``) that a fractional solution has broken. A walk is a row:
its runs and counts gain at most Z. A filling is a row: its runs gain at least :math:`\Phi_v`, or :math:`\Phi'_v`. Where
every node has one slot and none is required to be touched, first and later runs gain alike, since a walk says whether
it begins in a node.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, vstack

from taut.data.arrays import Flags, Floats, Ints
from taut.solver.placement.path_cover.capacity_cuts import Rule, RuleBook, rules_of
from taut.solver.placement.path_cover.certificate import Gains
from taut.solver.placement.path_cover.node_patterns import cheapest_fillings
from taut.solver.placement.path_cover.pricing import MOST_SUM
from taut.solver.placement.slots import Slots

LARGEST = 20.0
"""Gains by slot are at most so many times their mean, and by a rule so many times that of a path."""
LEAST_SHARE = 1e-9
"""Paths on a walk that count as any."""
MOST_RULES = 4
"""Rules that are taken up after one solution."""
BROKEN = 0.01
"""Visits, or visits that begin a path, by which paths must at least fall short of a rule that is taken up."""


class Master:
    """
    The program for one start set; fillings that matter are added by ``widened``, rules by ``take_up_rules``.

    Gains are flat: those of runs (2, N, c + 1), first and later by node and length, zero for length zero, then those by
    the rules so far. ``begun`` says how many paths begin in each node in the last solution. The programs of all start
    sets share one book of rules.
    """

    def __init__(self, given: Slots, starts: Flags, required: Flags, touched: tuple[int, int], book: RuleBook) -> None:
        self._given, self._starts, self._required, self._touched = given, starts, required, touched
        self.begun = np.zeros(len(given.hops))
        n, self._longest = len(given.hops), int(given.capacity.max())
        table = np.arange(n * self._longest).reshape(n, self._longest)
        alike = self._longest == 1 and not required.any()
        self._column = np.stack([table, table if alike else table + table.size])
        runs = self._column.max() + 1
        self._untouched, self._when_touched = runs + np.arange(n), runs + n + np.arange(n)
        self._spared = runs + 2 * n + np.arange(n)
        self._least, self._most, self._z = runs + 3 * n + np.arange(3)
        self.rules: tuple[Rule, ...] = ()
        self._possible, self._counted = book.possible(starts), rules_of(given, ())
        self._book, self._seen = book, 0
        self._walks, self._shares = np.zeros((0, given.pp), np.int64), np.zeros(0)
        self._known: set[tuple[int, int, bytes]] = set()
        self._rows = csr_matrix((0, self._size))
        self.widened(self.even())

    @property
    def _size(self) -> int:
        """Number of variables."""
        return int(self._z) + 1 + len(self.rules)

    @property
    def longest_walk(self) -> float:
        """Seconds of the longest walk in the last fractional solution."""
        used = self._walks[self._shares > LEAST_SHARE]
        return float(self._given.hops[used[:, :-1], used[:, 1:]].sum(axis=1).max(initial=0.0))

    def even(self) -> Floats:
        """A gain of one for every slot."""
        runs = np.tile(np.arange(self._longest + 1.0), 2 * len(self._given.hops))
        return np.concatenate([runs, np.zeros(len(self.rules))])

    def whole(self, gains: Floats, unit: float) -> Gains:
        """Gains in whole units, or in larger ones where walks would gain too much."""
        rounded = np.rint(gains * unit)
        first, later = self._by_run(rounded).astype(np.int64)
        by_rule = rounded[first.size + later.size :].astype(np.int64)
        whole = Gains(first=first, later=later, rules=self._counted, by_rule=by_rule)
        reach = whole.largest * self._given.pp
        return whole if reach < MOST_SUM else self.whole(gains, unit * MOST_SUM / (2.0 * reach))

    def flat(self, gains: Gains) -> Floats:
        """Gains as the program has them."""
        return np.concatenate([gains.first.ravel(), gains.later.ravel(), gains.by_rule]).astype(np.float64)

    def _by_run(self, gains: Floats) -> Floats:
        """Gains of runs, (2, N, c + 1)."""
        shape = (2, len(self._given.hops), self._longest + 1)
        return gains[: 2 * shape[1] * shape[2]].reshape(shape)

    def gained(self, gains: Floats, walks: Ints) -> Floats:
        """What every walk gains."""
        walk, column = self._runs(walks)
        runs = np.zeros(int(self._column.max()) + 1)
        runs[self._column] = self._by_run(gains)[:, :, 1:]
        sums = self._counted.counts(walks) @ gains[len(gains) - len(self.rules) :]
        np.add.at(sums, walk, runs[column])
        return np.asarray(sums)

    def widened(self, gains: Floats) -> int:
        """Add the cheapest filling of every node for some gains; returns how many are new."""
        first, later = self._by_run(gains)
        _, counts = cheapest_fillings(first, later, self._given.capacity)
        new = []
        for v in range(len(counts)):
            for touched in range(2 if self._starts[v] else 1):
                filling = (v, touched, counts[v, touched].tobytes())
                if filling not in self._known:
                    self._known.add(filling)
                    new.append((v, touched))
        if new:
            nodes, when = np.array(new).T
            self._rows = vstack([self._rows, self._fillings(nodes, when, counts[nodes, when])], format="csr")
        return len(new)

    def take_up_rules(self) -> int:
        """Take up the rules that the last solution breaks most; returns how many."""
        possible = rules_of(self._given, self._possible)
        counts = self._shares @ possible.counts(self._walks)
        short = (possible.least - counts) / np.maximum(possible.visit, 1)
        worst = [int(index) for index in np.argsort(-short, kind="stable")[:MOST_RULES] if short[index] > BROKEN]
        return self._take_up([self._possible[index] for index in worst])

    def take_up_broken(self) -> None:
        """Take up the rules that solutions for other start sets broke, without this one's start set."""
        known = list(self._book.broken)[self._seen :]
        self._seen = len(self._book.broken)
        new = []
        for rule in known:
            outside = tuple(v for v in rule.nodes if not self._starts[v])
            new += [kind for kind in (replace(rule, nodes=outside), rule) if kind in self._possible][:1]
        self._take_up(new)

    def _take_up(self, new: Sequence[Rule]) -> int:
        """Let some rules count; returns how many."""
        new = list(dict.fromkeys(new))
        self._book.broken.update(dict.fromkeys(new))
        self.rules += tuple(new)
        self._possible = tuple(rule for rule in self._possible if rule not in new)
        self._counted = rules_of(self._given, self.rules)
        self._rows.resize((self._rows.shape[0], self._size))
        return len(new)

    def _fillings(self, nodes: Ints, touched: Ints, counts: Ints) -> csr_matrix:
        """Rows: least gain of the node <= gains of the filling's runs."""
        least = np.where(touched == 1, self._when_touched[nodes], self._untouched[nodes])
        row, kind, length = np.nonzero(counts)
        columns = np.r_[least, self._column[kind, nodes[row], length - 1]]
        entries = np.r_[np.ones(len(nodes)), -counts[row, kind, length].astype(float)]
        return csr_matrix((entries, (np.r_[np.arange(len(nodes)), row], columns)), (len(nodes), self._size))

    def _runs(self, walks: Ints) -> tuple[Ints, Ints]:
        """Walk and column of every run of every walk."""
        begins = np.ones(walks.shape, dtype=bool)
        begins[:, 1:] = walks[:, 1:] != walks[:, :-1]
        walk, place = np.nonzero(begins)
        position = walk * walks.shape[1] + place
        length = np.diff(np.r_[position, walks.size])
        return walk, self._column[np.minimum(place, 1), walks[walk, place], length - 1]

    def solve(self, walks: Ints) -> tuple[float, Floats] | None:
        """Least Z and the gains for which no walk of the pool gains more than Z; even gains without any walk."""
        if not len(walks):
            return 0.0, self.even()
        given = self._given
        matrix = vstack([self._gained(walks), self._rows, self._choice()], format="csr")
        objective, total = np.zeros(self._size), np.zeros(self._size)
        objective[self._z] = 1.0
        total[np.where(self._required, self._when_touched, self._untouched)] = 1.0
        further = np.array(self._touched) - self._required.sum()
        total[self._least], total[self._most] = max(further[0], 0), -further[1]
        total[self._spared[self._starts & ~self._required]] = -1.0
        total[int(self._z) + 1 :] = self._counted.least
        solution = linprog(
            objective,
            A_ub=matrix,
            b_ub=np.zeros(matrix.shape[0]),
            A_eq=csr_matrix(total[None, :]),
            b_eq=[float(given.slots)],
            bounds=self._bounds(),
            method="highs",
        )
        if not solution.success:
            return None
        self._walks, self._shares = walks, -given.paths * solution.ineqlin.marginals[: len(walks)]
        self.begun = np.bincount(walks[:, 0], self._shares, len(given.hops)).astype(np.float64)
        gains = self.even()
        self._by_run(gains)[:, :, 1:] = solution.x[self._column]
        gains[len(gains) - len(self.rules) :] = solution.x[int(self._z) + 1 :]
        return float(solution.fun), gains

    def _gained(self, walks: Ints) -> csr_matrix:
        """Rows: what a walk gains by runs and counts <= Z."""
        walk, column = self._runs(walks)
        counts = self._counted.counts(walks)
        by, rule = np.nonzero(counts)
        entries = np.r_[np.ones(len(walk)), counts[by, rule], -np.ones(len(walks))]
        columns = np.r_[column, int(self._z) + 1 + rule, np.full(len(walks), self._z)]
        return csr_matrix((entries, (np.r_[walk, by, np.arange(len(walks))], columns)), (len(walks), self._size))

    def _choice(self) -> csr_matrix:
        """Rows: lambda - mu - sigma_v <= gain of v touched - untouched."""
        inside = np.flatnonzero(self._starts & ~self._required)
        rows, ones = np.arange(len(inside)), np.ones(len(inside))
        columns = [self._untouched[inside], self._when_touched[inside], self._spared[inside]]
        columns += [np.full(len(inside), self._least), np.full(len(inside), self._most)]
        entries = np.concatenate([ones, -ones, -ones, ones, -ones])
        return csr_matrix((entries, (np.tile(rows, 5), np.concatenate(columns))), (len(inside), self._size))

    def _bounds(self) -> Floats:
        bounds = np.full((self._size, 2), np.inf)
        bounds[:, 0] = -np.inf
        bounds[self._spared, 0] = 0.0
        bounds[[self._least, self._most], 0] = 0.0
        bounds[int(self._z) + 1 :, 0] = 0.0
        bounds[int(self._z) + 1 :, 1] = LARGEST * self._given.pp / np.maximum(self._counted.visit, 1)
        slots = np.arange(1.0, self._longest + 1)
        bounds[self._column] = LARGEST * slots[None, None, :, None] * np.array([-1.0, 1.0])
        return bounds
