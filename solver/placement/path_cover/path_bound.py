r"""
Destructive lower bound on the longest path, by column generation with dual stabilisation.

With the sets, routes, prices and certificate of ``taut.solver.placement.path_cover.certificate``, a threshold
:math:`T_R` between the proven seconds and a goal is tested:

(1) a certificate for the threshold exists exactly if the linear program over all routes that consume fewer than R units
    and all node patterns is infeasible. Its restricted master problem, (5) to (9), yields dual prices; routes and
    patterns (``taut.solver.placement.path_cover.pricing``) that violate them join it, until the prices are a
    certificate or the program is feasible.
(2) Prices oscillate from one program to the next. With :math:`\pi` the program's prices and :math:`\bar \pi` the best
    so far (the stability centre, those with the least ratio of Z to :math:`\Gamma`), routes are priced at
    :math:`\alpha \bar \pi + (1 - \alpha) \pi`, and at :math:`\pi` where that yields no new column (mis-pricing).
(3) Where the program is feasible, the cuts that its fractional solution violates are added, and the test goes on.
(4) The next threshold halves what lies between the proven seconds and the goal.

The cut pool says which rounded capacity and mixed-integer-rounding cuts are tried. Cuts are separated by enumeration
over the clusters of near nodes (``taut.solver.placement.slots``), and over those clusters without the start nodes of
the branch at hand. A cut that one branch violated is likely to matter to the others, so all branches of a search share
one pool.

The restricted master problem of the column generation is solved in its dual form.

Sets: routes and node patterns generated so far (the columns of the set-partitioning problem (2) of
``taut.solver.placement.path_cover.certificate``), cuts separated so far; start nodes P, required nodes Q, k to k'
touched nodes.
Variables (the duals of its rows, all continuous): prices of first and later segments by node and length;
:math:`\Phi_v, \Phi'_v` the least worth of a pattern of node v, untouched and touched; :math:`\lambda, \mu, \sigma_v \ge
0` of the choice of touched nodes; :math:`\pi \ge 0` of cuts; Z, the largest dual value of a route.

(5) Minimise Z, where all patterns and cuts together are worth one a slot:

    .. math:: \Gamma = \sum_{v \notin Q} \Phi_v + \sum_{v \in Q} \Phi'_v + (k - |Q|) \lambda - (k' - |Q|) \mu
              - \sum_{v \in P \setminus Q} \sigma_v + \sum_c b_c \pi_c = slots;

(6) a row for every route: the prices of its segments, and of what it counts in cuts, sum to at most Z;
(7) a row for every pattern: the prices of its segments sum to at least :math:`\Phi_v`, or :math:`\Phi'_v` if touched;
(8) :math:`\Phi'_v - \Phi_v \ge \lambda - \mu - \sigma_v` for v in P without Q, the dual of choosing k to k' nodes;
(9) prices stay within a box (``LARGEST``), so that early programs with few rows are bounded.

Paths times Z < slots for all routes and patterns is the certificate sought. The row duals of (6) are the fractional
solution: how many paths take each route. Where every node has one slot and none is required, first and later segments
share a price, since the route itself says where it begins.

References
----------
Klein and Scholl (1999), Computing lower bounds by destructive improvement: (4).
Wentges (1997), Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming; Pessoa, Sadykov, Uchoa and
Vanderbeck (2018), Automation and combination of linear-programming based stabilization techniques in column
generation: (2).
Desrochers, Desrosiers and Solomon (1992), A new optimization algorithm for the vehicle routing problem with time
windows. Kelley (1960), The cutting-plane method for solving convex programs: column generation seen from the dual.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import scipy

from taut.data.arrays import Flags, Floats, Ints, Ints32
from taut.solver.linear_program import linear_program
from taut.solver.placement.path_cover.cases import PathProof
from taut.solver.placement.path_cover.certificate import (
    MAX_RESOURCE,
    Cut,
    DualCertificate,
    DualPrices,
    cut_arrays,
    resource_consumption,
)
from taut.solver.placement.path_cover.pricing import MAX_SUM, UNREACHED, cheapest_patterns
from taut.solver.placement.path_cover.racks import crosses
from taut.solver.placement.slots import SlotGraph, clusters


class CutPool:
    """Cuts on clusters of near nodes; ``violated`` are those that some fractional solution has violated, in order."""

    def __init__(self, graph: SlotGraph) -> None:
        self._graph, self.violated = graph, dict[Cut, None]()
        self._clusters = clusters(graph.hops)

    def candidates(self, starts: Flags) -> tuple[Cut, ...]:
        """Cuts that fractional solutions may violate: on the clusters, and on these without ``starts`` (N,)."""
        sets = {tuple(nodes.tolist()) for cluster in self._clusters for nodes in (cluster, cluster[~starts[cluster]])}
        return tuple(cut for nodes in sorted(sets) for cut in _stronger_cuts(self._graph, nodes))


def _stronger_cuts(graph: SlotGraph, nodes: tuple[int, ...]) -> Iterator[Cut]:
    """Cuts of a set where they say more than a capacity cut without rounding."""
    slots = int(graph.capacity[list(nodes)].sum())
    if slots % graph.pp:
        yield Cut(nodes=nodes, mir=False)
    if slots % (graph.pp - 1):
        yield Cut(nodes=nodes, mir=True)


UNIT = 1 << 15
"""Whole numbers in a mean price: rounding changes it by at most 1.5e-5, and routes stay below ``MAX_SUM``."""
SMOOTHING = 0.7
"""Weight alpha of the stability centre in (2), a common value; rounds depend on it, not the validity of proofs."""
HALF, LONG_STRIDE = 0.5, 0.95
"""Share of what lies before the goal that is tested next; the larger where known prices proved the last threshold."""
MAX_ROUTES = 6000
"""Routes in one restricted master problem; beyond, half as many of largest dual value are kept."""
MAX_ROUNDS = 80
"""Rounds of column generation after which an undecided test counts as failed: its threshold becomes the ceiling."""
REDUCED_COST = 1e-7
"""Dual value beyond Z from which a route joins, the feasibility tolerance of the solver."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Priced:
    """Whole prices, what all patterns and cuts are worth at least, the best route's dual value, and good routes."""

    duals: DualPrices
    total: float
    best: int
    routes: Ints


@dataclass(slots=True)
class _Trial:
    """A threshold under test: its seconds, those of a resource unit, units of hops, columns, least Z / Gamma so far."""

    threshold: float
    quantum: float
    consumption: Ints32
    columns: Ints
    least_ratio: float = np.inf


class _Outcome(Enum):
    """What a round of column generation led to."""

    CERTIFICATE = "certificate"
    NEW_COLUMNS = "new columns"
    STALLED = "no new columns, or prices too large"


class LongestPathBound:
    """
    Lower bound on the longest path of one branch, raised step by step.

    A branch is start nodes P, required nodes Q and a range of touched nodes. ``seconds`` are proven by ``evidence``;
    ``ceiling`` is a length that this relaxation cannot prove to be exceeded.
    """

    def __init__(
        self,
        graph: SlotGraph,
        starts: Flags,
        required: Flags,
        touched: tuple[int, int],
        seconds: float,
        evidence: PathProof,
        *,
        limit: int = 256,
        pool: CutPool | None = None,
    ) -> None:
        self.seconds, self.evidence, self.ceiling = seconds, evidence, np.inf
        self.rounds, self._spent, self._stride = 0, 0, HALF
        self._graph, self._starts, self._required, self._touched = graph, starts, required, touched
        self._limit = limit
        self._master = RestrictedMaster(graph, starts, required, graph.touched_by_all(*touched), pool or CutPool(graph))
        self._centre = self._master.uniform()
        self._routes = np.zeros((0, graph.pp), np.int64)

    def accept(self, seconds: float, evidence: PathProof) -> None:
        """Take over what is proven elsewhere, if it is more."""
        if seconds > self.seconds:
            self.seconds, self.evidence = seconds, evidence

    @property
    def begun(self) -> Floats:
        """Paths that begin in each node in the last fractional solution, (N,)."""
        return self._master.begun

    def add_routes(self, routes: Ints) -> None:
        """Add initial columns (routes, pp), but for those that begin outside P or do not cross as they must."""
        kept = self._starts[routes[:, 0]] & crosses(self._graph, routes)
        self._routes = np.vstack([self._routes, routes[kept]])

    def raise_towards(self, goal: float, *, rounds: int) -> bool:
        """Test the next threshold below a goal or the ceiling, (4), in up to ``MAX_ROUNDS``; whether it is proven."""
        threshold = self.seconds + self._stride * (min(goal, self.ceiling) - self.seconds)
        before = self.rounds
        outcome = self.test(threshold, rounds=rounds)
        self._stride = LONG_STRIDE if outcome and self.rounds == before + 1 else HALF
        self._spent = 0 if outcome is not None else self._spent + max(self.rounds - before, 1)
        if self._spent >= MAX_ROUNDS or (outcome is None and self.rounds - before < rounds):
            self.ceiling, self._spent = min(self.ceiling, threshold), 0
        return bool(outcome)

    def refine_resource(self) -> bool:
        """Double the resource limit, so that hops are rounded by less; False if it is the largest a proof may have."""
        if 2 * self._limit > MAX_RESOURCE:
            return False
        self._limit, self.ceiling, self._spent = 2 * self._limit, np.inf, 0
        return True

    def test(self, threshold: float, *, rounds: int) -> bool | None:
        """Prove that the longest path takes a threshold, (1) to (3); False if it is feasible, None if undecided."""
        trial = self._begin(threshold)
        if trial is None:
            return None
        for _ in range(rounds):
            self.rounds += 1
            solved = self._master.solve(trial.columns)
            if solved is None:
                return None
            if solved[0] >= self._graph.pp * (1 - 1e-9):
                if self._master.separate_cuts():
                    continue
                self.ceiling = min(self.ceiling, threshold, self._master.longest_route)
                return False
            outcome = self._generate(trial, *solved)
            if outcome is not _Outcome.NEW_COLUMNS:
                return True if outcome is _Outcome.CERTIFICATE else None
        return None

    def _begin(self, threshold: float) -> _Trial | None:
        """Set up the test of a threshold with the routes known so far; None for one that is proven by hops alone."""
        graph = self._graph
        budget = threshold - (graph.pp - 1) * graph.shortest_hop()
        if budget <= 0.0:
            return None
        self._master.add_pool_cuts()
        quantum = budget / self._limit
        consumption = resource_consumption(graph, quantum, self._limit)[1]
        feasible = consumption[self._routes[:, :-1], self._routes[:, 1:]].sum(axis=1) < self._limit
        return _Trial(threshold, quantum, consumption, self._routes[feasible])

    def _generate(self, trial: _Trial, value: float, duals: Floats) -> _Outcome:
        """Generate columns for a program's Z and prices, at stabilised prices first, (2)."""
        master, graph = self._master, self._graph
        centre, found = np.pad(self._centre, (0, len(duals) - len(self._centre))), 0
        for alpha in (SMOOTHING, 0.0):
            priced = self._priced(trial.consumption, alpha * centre + (1 - alpha) * duals)
            if priced is None:
                return _Outcome.STALLED
            if priced.best * graph.num_paths < priced.total < np.inf:
                self._keep(trial.threshold, trial.quantum, priced)
                return _Outcome.CERTIFICATE
            # Prices at which all patterns together are worth nothing do not say where better ones lie.
            if priced.total > 0.0 and priced.best / priced.total < trial.least_ratio:
                trial.least_ratio, self._centre = priced.best / priced.total, self._normal(priced)
            new = priced.routes[master.dual_values(duals, priced.routes) > value + REDUCED_COST]
            found = len(new) + master.add_patterns(duals)
            trial.columns = np.vstack([trial.columns, new])
            self._routes = np.unique(np.vstack([self._routes, new]), axis=0)
            if found:
                break
        if not found:
            return _Outcome.STALLED
        if len(trial.columns) > MAX_ROUTES:
            best_first = np.argsort(-master.dual_values(duals, trial.columns), kind="stable")
            trial.columns = trial.columns[best_first[: MAX_ROUTES // 2]]
        return _Outcome.NEW_COLUMNS

    def _priced(self, consumption: Ints32, duals: Floats) -> _Priced | None:
        """Whole prices with the best routes; None for prices that are too large."""
        graph, whole = self._graph, self._master.rounded(duals, UNIT)
        found = whole.best_routes(graph, consumption, self._starts, self._limit)
        if found is None:
            return None
        total = whole.least_total(graph, self._starts, self._required, graph.touched_by_all(*self._touched))
        routes = found[1][found[0] > UNREACHED].astype(np.int64)
        return _Priced(duals=whole, total=total, best=int(found[0].max()), routes=routes)

    def _normal(self, priced: _Priced) -> Floats:
        """Prices scaled so that all patterns and cuts are worth one a slot."""
        return self._master.flat(priced.duals) / (priced.total / self._graph.num_slots)

    def _keep(self, seconds: float, quantum: float, priced: _Priced) -> None:
        """Keep prices as the certificate of a threshold."""
        duals, self.seconds = priced.duals, seconds
        first, later = (tuple(map(tuple, table[:, 1:].tolist())) for table in (duals.first, duals.later))
        by_cut = zip(self._master.cuts, duals.by_cut.tolist(), strict=True)
        by = DualCertificate(
            quantum=quantum,
            limit=self._limit,
            later=later,
            first=None if first == later else first,
            cuts=tuple((cut, dual) for cut, dual in by_cut if dual),
        )
        nodes, required = (tuple(np.flatnonzero(flags).tolist()) for flags in (self._starts, self._required))
        self.evidence = PathProof.of(nodes, required, self._touched, by)
        if priced.total > 0.0:
            self._centre = self._normal(priced)


LARGEST = 20.0
"""
Box (9): a price is at most so many times the mean price of its slots, that of a cut so many times a path's.

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
    The program (5) to (9) of one branch; patterns are added by ``add_patterns``, cuts by ``separate_cuts``.

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
        self._pattern_rows = scipy.sparse.csr_matrix((0, self._size))
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
        """Price patterns: add the cheapest one of every node for flat prices, (7); returns how many are new."""
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
            self._pattern_rows = scipy.sparse.vstack([self._pattern_rows, rows], format="csr")
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
        matrix = scipy.sparse.vstack([self._rows_of_routes(routes), self._pattern_rows, self._choice()], format="csr")
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
        """Coefficients of Gamma, (5)."""
        total = np.zeros(self._size)
        total[np.where(self._required, self._when_touched, self._untouched)] = 1.0
        further = np.array(self._touched) - self._required.sum()
        total[self._lambda], total[self._mu] = max(further[0], 0), -further[1]
        total[self._sigma[self._starts & ~self._required]] = -1.0
        total[int(self._z) + 1 :] = self._arrays.least
        return total

    def _rows_of_routes(self, routes: Ints) -> "scipy.sparse.csr_matrix":
        """Rows (6)."""
        route, column = self._segments(routes)
        counts = self._arrays.coefficients(routes)
        by, cut = np.nonzero(counts)
        entries = np.r_[np.ones(len(route)), counts[by, cut], -np.ones(len(routes))]
        columns = np.r_[column, int(self._z) + 1 + cut, np.full(len(routes), self._z)]
        return scipy.sparse.csr_matrix(
            (entries, (np.r_[route, by, np.arange(len(routes))], columns)), (len(routes), self._size)
        )

    def _segments(self, routes: Ints) -> tuple[Ints, Ints]:
        """Route and column of every segment of every route."""
        begins = np.ones(routes.shape, dtype=bool)
        begins[:, 1:] = routes[:, 1:] != routes[:, :-1]
        route, place = np.nonzero(begins)
        position = route * routes.shape[1] + place
        length = np.diff(np.r_[position, routes.size])
        return route, self._column[np.minimum(place, 1), routes[route, place], length - 1]

    def _rows_of_patterns(self, nodes: Ints, touched: Ints, counts: Ints) -> "scipy.sparse.csr_matrix":
        """Rows (7)."""
        least = np.where(touched == 1, self._when_touched[nodes], self._untouched[nodes])
        row, kind, length = np.nonzero(counts)
        columns = np.r_[least, self._column[kind, nodes[row], length - 1]]
        entries = np.r_[np.ones(len(nodes)), -counts[row, kind, length].astype(float)]
        return scipy.sparse.csr_matrix(
            (entries, (np.r_[np.arange(len(nodes)), row], columns)), (len(nodes), self._size)
        )

    def _choice(self) -> "scipy.sparse.csr_matrix":
        """Rows (8)."""
        inside = np.flatnonzero(self._starts & ~self._required)
        rows, ones = np.arange(len(inside)), np.ones(len(inside))
        columns = [self._untouched[inside], self._when_touched[inside], self._sigma[inside]]
        columns += [np.full(len(inside), self._lambda), np.full(len(inside), self._mu)]
        entries = np.concatenate([ones, -ones, -ones, ones, -ones])
        return scipy.sparse.csr_matrix(
            (entries, (np.tile(rows, 5), np.concatenate(columns))), (len(inside), self._size)
        )

    def _bounds(self) -> Floats:
        """Least and largest value of every variable, (9)."""
        bounds = np.full((self._size, 2), np.inf)
        bounds[:, 0] = -np.inf
        bounds[self._sigma, 0] = 0.0
        bounds[[self._lambda, self._mu], 0] = 0.0
        bounds[int(self._z) + 1 :, 0] = 0.0
        bounds[int(self._z) + 1 :, 1] = LARGEST * self._graph.pp / np.maximum(self._arrays.visit, 1)
        slots = np.arange(1.0, self._longest + 1)
        bounds[self._column] = LARGEST * slots[None, None, :, None] * np.array([-1.0, 1.0])
        return bounds
