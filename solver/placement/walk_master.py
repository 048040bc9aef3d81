r"""
The linear program of ``taut.solver.placement.walks`` (3): gains for which no walk met so far gains much.

Variables: gains of first and later runs by node and length; :math:`\Phi_v, \Phi'_v` the least gain of a node untouched
and touched; :math:`\lambda, \mu, \sigma_v` for the choice of touched nodes; Z. A walk is a row: its runs gain at most
Z. A filling is a row: its runs gain at least :math:`\Phi_v`, or :math:`\Phi'_v`. Where every node has one slot and
none is required to be touched, first and later runs gain alike, since a walk says whether it begins in a node.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, vstack

from taut.solver.placement.fillings import cheapest_fillings, least_total
from taut.solver.placement.slots import Slots

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
LARGEST = 20.0
"""Gains by slot are at most so many times their mean."""


class Master:
    """
    The program for one start set; fillings that matter are added by ``widened``.

    Gains are arrays (2, N, c + 1): first and later runs by node and length, zero for length zero. ``begun`` says how
    many paths begin in each node in the last solution.
    """

    def __init__(self, given: Slots, starts: Flags, required: Flags, touched: tuple[int, int]) -> None:
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
        self._known: set[tuple[int, int, bytes]] = set()
        self._rows = csr_matrix((0, int(self._z) + 1))
        self.widened(self.even())

    def even(self) -> Floats:
        """A gain of one for every slot."""
        return np.broadcast_to(np.arange(self._longest + 1.0), (2, len(self._given.hops), self._longest + 1)).copy()

    def total(self, whole: Floats) -> float:
        """What all paths together gain at least."""
        least, _ = cheapest_fillings(whole[0], whole[1], self._given.capacity)
        return least_total(least, self._starts, self._required, *self._touched)

    def gained(self, gains: Floats, walks: Ints) -> Floats:
        """What every walk gains."""
        walk, column = self._runs(walks)
        sums = np.zeros(len(walks))
        np.add.at(sums, walk, self._flat(gains)[column])
        return sums

    def widened(self, gains: Floats) -> int:
        """Add the cheapest filling of every node for some gains; returns how many are new."""
        _, counts = cheapest_fillings(gains[0], gains[1], self._given.capacity)
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

    def _fillings(self, nodes: Ints, touched: Ints, counts: Ints) -> csr_matrix:
        """Rows: least gain of the node <= gains of the filling's runs."""
        least = np.where(touched == 1, self._when_touched[nodes], self._untouched[nodes])
        row, kind, length = np.nonzero(counts)
        columns = np.r_[least, self._column[kind, nodes[row], length - 1]]
        entries = np.r_[np.ones(len(nodes)), -counts[row, kind, length].astype(float)]
        return csr_matrix((entries, (np.r_[np.arange(len(nodes)), row], columns)), (len(nodes), int(self._z) + 1))

    def _flat(self, gains: Floats) -> Floats:
        """Gains by column."""
        flat = np.zeros(int(self._column.max()) + 1)
        flat[self._column] = gains[:, :, 1:]
        return flat

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
        given, size = self._given, int(self._z) + 1
        walk, column = self._runs(walks)
        every = np.arange(len(walks))
        entries = np.r_[np.ones(len(walk)), -np.ones(len(walks))]
        gained = csr_matrix(
            (entries, (np.r_[walk, every], np.r_[column, np.full(len(walks), self._z)])), (len(walks), size)
        )
        matrix = vstack([gained, self._rows, self._choice()], format="csr")
        objective, total = np.zeros(size), np.zeros(size)
        objective[self._z] = 1.0
        total[np.where(self._required, self._when_touched, self._untouched)] = 1.0
        further = np.array(self._touched) - self._required.sum()
        total[self._least], total[self._most] = max(further[0], 0), -further[1]
        total[self._spared[self._starts & ~self._required]] = -1.0
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
        shares = -given.paths * solution.ineqlin.marginals[: len(walks)]
        self.begun = np.bincount(walks[:, 0], shares, len(given.hops)).astype(np.float64)
        gains = np.zeros((2, len(given.hops), self._longest + 1))
        gains[:, :, 1:] = solution.x[self._column]
        return float(solution.fun), gains

    def _choice(self) -> csr_matrix:
        """Rows: lambda - mu - sigma_v <= gain of v touched - untouched."""
        inside = np.flatnonzero(self._starts & ~self._required)
        rows, ones = np.arange(len(inside)), np.ones(len(inside))
        columns = [self._untouched[inside], self._when_touched[inside], self._spared[inside]]
        columns += [np.full(len(inside), self._least), np.full(len(inside), self._most)]
        entries = np.concatenate([ones, -ones, -ones, ones, -ones])
        return csr_matrix((entries, (np.tile(rows, 5), np.concatenate(columns))), (len(inside), int(self._z) + 1))

    def _bounds(self) -> Floats:
        bounds = np.full((int(self._z) + 1, 2), np.inf)
        bounds[:, 0] = -np.inf
        bounds[self._spared, 0] = 0.0
        bounds[[self._least, self._most], 0] = 0.0
        slots = np.arange(1.0, self._longest + 1)
        bounds[self._column] = LARGEST * slots[None, None, :, None] * np.array([-1.0, 1.0])
        return bounds
