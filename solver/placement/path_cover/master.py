r"""
Restricted master problem of the column generation for the longest path, solved in its dual form.

Sets: routes and node patterns generated so far (the columns of the set-partitioning problem (2) of
``taut.solver.placement.path_cover.certificate``), cuts separated so far; start nodes P, required nodes Q, k to k'
touched nodes.
Variables (the duals of its rows, all continuous): prices of first and later segments by node and length;
:math:`\Phi_v, \Phi'_v` the least worth of a pattern of node v, untouched and touched; :math:`\lambda, \mu, \sigma_v \ge
0` of the choice of touched nodes; :math:`\pi \ge 0` of cuts; Z, the largest dual value of a route.

(1) Minimise Z, where all patterns and cuts together are worth one a slot:

    .. math:: \Gamma = \sum_{v \notin Q} \Phi_v + \sum_{v \in Q} \Phi'_v + (k - |Q|) \lambda - (k' - |Q|) \mu
              - \sum_{v \in P \setminus Q} \sigma_v + \sum_c b_c \pi_c = slots;

(2) a row for every route: the prices of its segments, and of what it counts in cuts, sum to at most Z;
(3) a row for every pattern: the prices of its segments sum to at least :math:`\Phi_v`, or :math:`\Phi'_v` if touched;
(4) :math:`\Phi'_v - \Phi_v \ge \lambda - \mu - \sigma_v` for v in P without Q, the dual of choosing k to k' nodes;
(5) prices stay within a box (``LARGEST``), so that early programs with few rows are bounded.

Paths times Z < slots for all routes and patterns is the certificate (3) sought. The row duals of (2) are the fractional
solution: how many paths take each route. Where every node has one slot and none is required, first and later segments
share a price, since the route itself says where it begins.

References
----------
Desrochers, Desrosiers and Solomon (1992), A new optimization algorithm for the vehicle routing problem with time
windows. Kelley (1960), The cutting-plane method for solving convex programs: column generation seen from the dual.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix, vstack

from taut.data.arrays import Flags, Floats, Ints
from taut.solver.linear_program import linear_program
from taut.solver.placement.path_cover.certificate import Cut, DualPrices, cut_arrays
from taut.solver.placement.path_cover.path_bound import CutPool
from taut.solver.placement.path_cover.pricing import MAX_SUM, cheapest_patterns
from taut.solver.placement.slots import SlotGraph

LARGEST = 20.0
"""
Box (5): a price is at most so many times the mean price of its slots, that of a cut so many times a path's.

A smaller box may cut off optimal prices, which weakens the bound and keeps it valid.
"""
USED = 1e-9
"""Paths on a route from which it counts as used in a fractional solution, above the tolerance of the solver."""
MAX_CUTS_A_ROUND = 4
"""Cuts that are added after one solution: few at a time, since clusters are nested and one cut often mends several."""
VIOLATED = 0.01
"""Visits by which a fractional solution must fall short of a cut that is added, so that each addition matters."""


class RestrictedMaster:
    """
    The program (1) to (5) of one branch; patterns are added by ``add_patterns``, cuts by ``separate_cuts``.

    Prices are flat arrays: those of segments (2, N, c + 1), first and later by node and length, zero for length zero,
    then those of the cuts so far. ``begun`` (N,) is how many paths begin in each node in the last fractional solution.
    The programs of all branches share one pool of cuts.
    """

    def __init__(
        self, graph: SlotGraph, starts: Flags, required: Flags, touched: tuple[int, int], pool: CutPool
    ) -> None:
        self._graph, self._starts, self._required, self._touched = graph, starts, required, touched
        self.begun = np.zeros(len(graph.hops))
        n, self._longest = len(graph.hops), int(graph.capacity.max())
        table = np.arange(n * self._longest).reshape(n, self._longest)
        shared = self._longest == 1 and not required.any()
        self._column = np.stack([table, table if shared else table + table.size])
        segments = self._column.max() + 1
        self._untouched, self._when_touched = segments + np.arange(n), segments + n + np.arange(n)
        self._sigma = segments + 2 * n + np.arange(n)
        self._lambda, self._mu, self._z = segments + 3 * n + np.arange(3)
        self.cuts: tuple[Cut, ...] = ()
        self._candidates, self._arrays = pool.candidates(starts), cut_arrays(graph, ())
        self._pool, self._seen = pool, 0
        self._routes, self._paths_on = np.zeros((0, graph.pp), np.int64), np.zeros(0)
        self._known: set[tuple[int, int, bytes]] = set()
        self._pattern_rows = csr_matrix((0, self._size))
        self.add_patterns(self.uniform())

    @property
    def _size(self) -> int:
        """Number of variables."""
        return int(self._z) + 1 + len(self.cuts)

    @property
    def longest_route(self) -> float:
        """Seconds of the longest route in the last fractional solution."""
        used = self._routes[self._paths_on > USED]
        return float(self._graph.hops[used[:, :-1], used[:, 1:]].sum(axis=1).max(initial=0.0))

    def uniform(self) -> Floats:
        """Prices of one a slot, and zero for cuts."""
        segments = np.tile(np.arange(self._longest + 1.0), 2 * len(self._graph.hops))
        return np.concatenate([segments, np.zeros(len(self.cuts))])

    def rounded(self, duals: Floats, unit: float) -> DualPrices:
        """Prices as whole numbers, ``unit`` of them in a price of one, fewer where routes would be worth too much."""
        rounded = np.rint(duals * unit)
        first, later = self._by_segment(rounded).astype(np.int64)
        by_cut = rounded[first.size + later.size :].astype(np.int64)
        whole = DualPrices(first=first, later=later, cuts=self._arrays, by_cut=by_cut)
        reach = whole.largest * self._graph.pp
        return whole if reach < MAX_SUM else self.rounded(duals, unit * MAX_SUM / (2.0 * reach))

    def flat(self, duals: DualPrices) -> Floats:
        """Whole prices as a flat array."""
        return np.concatenate([duals.first.ravel(), duals.later.ravel(), duals.by_cut]).astype(np.float64)

    def _by_segment(self, duals: Floats) -> Floats:
        """Prices of segments, (2, N, c + 1)."""
        shape = (2, len(self._graph.hops), self._longest + 1)
        return duals[: 2 * shape[1] * shape[2]].reshape(shape)

    def dual_values(self, duals: Floats, routes: Ints) -> Floats:
        """Prices (routes,) that routes (routes, pp) collect; more than Z is negative reduced cost."""
        route, column = self._segments(routes)
        segments = np.zeros(int(self._column.max()) + 1)
        segments[self._column] = self._by_segment(duals)[:, :, 1:]
        sums = self._arrays.coefficients(routes) @ duals[len(duals) - len(self.cuts) :]
        np.add.at(sums, route, segments[column])
        return np.asarray(sums)

    def add_patterns(self, duals: Floats) -> int:
        """Price patterns: add the cheapest one of every node for flat prices, (3); returns how many are new."""
        first, later = self._by_segment(duals)
        _, counts = cheapest_patterns(first, later, self._graph.capacity)
        new = []
        for v, starts in enumerate(self._starts):
            for touched in range(2 if starts else 1):
                pattern = (v, touched, counts[v, touched].tobytes())
                if pattern not in self._known:
                    self._known.add(pattern)
                    new.append((v, touched))
        if new:
            nodes, when = np.array(new).T
            rows = self._rows_of_patterns(nodes, when, counts[nodes, when])
            self._pattern_rows = vstack([self._pattern_rows, rows], format="csr")
        return len(new)

    def separate_cuts(self) -> int:
        """Add the cuts that the last fractional solution violates most; returns how many."""
        candidates = cut_arrays(self._graph, self._candidates)
        counts = self._paths_on @ candidates.coefficients(self._routes)
        short = (candidates.least - counts) / np.maximum(candidates.visit, 1)
        worst = [int(i) for i in np.argsort(-short, kind="stable")[:MAX_CUTS_A_ROUND] if short[i] > VIOLATED]
        return self._add_cuts([self._candidates[i] for i in worst])

    def add_pool_cuts(self) -> None:
        """Add the cuts that other branches violated, for their sets without this branch's start nodes if possible."""
        known = list(self._pool.violated)[self._seen :]
        self._seen = len(self._pool.violated)
        new = []
        for cut in known:
            outside = tuple(v for v in cut.nodes if not self._starts[v])
            new += [kind for kind in (replace(cut, nodes=outside), cut) if kind in self._candidates][:1]
        self._add_cuts(new)

    def _add_cuts(self, new: Sequence[Cut]) -> int:
        """Add some cuts to the program and to the pool; returns how many."""
        new = list(dict.fromkeys(new))
        self._pool.violated.update(dict.fromkeys(new))
        self.cuts += tuple(new)
        self._candidates = tuple(cut for cut in self._candidates if cut not in new)
        self._arrays = cut_arrays(self._graph, self.cuts)
        self._pattern_rows.resize((self._pattern_rows.shape[0], self._size))
        return len(new)

    def solve(self, routes: Ints) -> tuple[float, Floats] | None:
        """The least Z over some routes and all patterns and cuts, and flat prices; None where the solver fails."""
        if not len(routes):
            return 0.0, self.uniform()
        graph = self._graph
        objective = np.zeros(self._size)
        objective[self._z] = 1.0
        matrix = vstack([self._rows_of_routes(routes), self._pattern_rows, self._choice()], format="csr")
        slots, (lower, upper) = np.full(1, float(graph.num_slots)), self._bounds().T
        program = linear_program("highs")
        program.add_columns(objective, lower, upper, np.zeros((0, self._size)))
        program.add_rows(matrix, np.full(matrix.shape[0], -np.inf), np.zeros(matrix.shape[0]))
        program.add_rows(self._total()[None, :], slots, slots)
        solution = program.solve()
        if solution is None:
            return None
        self._routes, self._paths_on = routes, -graph.num_paths * solution.duals[: len(routes)]
        self.begun = np.bincount(routes[:, 0], self._paths_on, len(graph.hops)).astype(np.float64)
        duals = self.uniform()
        self._by_segment(duals)[:, :, 1:] = solution.primal[self._column]
        duals[len(duals) - len(self.cuts) :] = solution.primal[int(self._z) + 1 :]
        return solution.value, duals

    def _total(self) -> Floats:
        """Coefficients of Gamma, (1)."""
        total = np.zeros(self._size)
        total[np.where(self._required, self._when_touched, self._untouched)] = 1.0
        further = np.array(self._touched) - self._required.sum()
        total[self._lambda], total[self._mu] = max(further[0], 0), -further[1]
        total[self._sigma[self._starts & ~self._required]] = -1.0
        total[int(self._z) + 1 :] = self._arrays.least
        return total

    def _rows_of_routes(self, routes: Ints) -> csr_matrix:
        """Rows (2)."""
        route, column = self._segments(routes)
        counts = self._arrays.coefficients(routes)
        by, cut = np.nonzero(counts)
        entries = np.r_[np.ones(len(route)), counts[by, cut], -np.ones(len(routes))]
        columns = np.r_[column, int(self._z) + 1 + cut, np.full(len(routes), self._z)]
        return csr_matrix((entries, (np.r_[route, by, np.arange(len(routes))], columns)), (len(routes), self._size))

    def _segments(self, routes: Ints) -> tuple[Ints, Ints]:
        """Route and column of every segment of every route."""
        begins = np.ones(routes.shape, dtype=bool)
        begins[:, 1:] = routes[:, 1:] != routes[:, :-1]
        route, place = np.nonzero(begins)
        position = route * routes.shape[1] + place
        length = np.diff(np.r_[position, routes.size])
        return route, self._column[np.minimum(place, 1), routes[route, place], length - 1]

    def _rows_of_patterns(self, nodes: Ints, touched: Ints, counts: Ints) -> csr_matrix:
        """Rows (3)."""
        least = np.where(touched == 1, self._when_touched[nodes], self._untouched[nodes])
        row, kind, length = np.nonzero(counts)
        columns = np.r_[least, self._column[kind, nodes[row], length - 1]]
        entries = np.r_[np.ones(len(nodes)), -counts[row, kind, length].astype(float)]
        return csr_matrix((entries, (np.r_[np.arange(len(nodes)), row], columns)), (len(nodes), self._size))

    def _choice(self) -> csr_matrix:
        """Rows (4)."""
        inside = np.flatnonzero(self._starts & ~self._required)
        rows, ones = np.arange(len(inside)), np.ones(len(inside))
        columns = [self._untouched[inside], self._when_touched[inside], self._sigma[inside]]
        columns += [np.full(len(inside), self._lambda), np.full(len(inside), self._mu)]
        entries = np.concatenate([ones, -ones, -ones, ones, -ones])
        return csr_matrix((entries, (np.tile(rows, 5), np.concatenate(columns))), (len(inside), self._size))

    def _bounds(self) -> Floats:
        """Least and largest value of every variable, (5)."""
        bounds = np.full((self._size, 2), np.inf)
        bounds[:, 0] = -np.inf
        bounds[self._sigma, 0] = 0.0
        bounds[[self._lambda, self._mu], 0] = 0.0
        bounds[int(self._z) + 1 :, 0] = 0.0
        bounds[int(self._z) + 1 :, 1] = LARGEST * self._graph.pp / np.maximum(self._arrays.visit, 1)
        slots = np.arange(1.0, self._longest + 1)
        bounds[self._column] = LARGEST * slots[None, None, :, None] * np.array([-1.0, 1.0])
        return bounds
