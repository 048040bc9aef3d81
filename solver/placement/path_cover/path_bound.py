r"""
Destructive lower bound on the longest path, by column generation with dual stabilisation.

With the sets, routes, prices and certificate of ``taut.solver.placement.path_cover.certificate``, a threshold
:math:`T_R` between the proven seconds and a goal is tested:

(1) a certificate for the threshold exists exactly if the linear program over all routes that consume fewer than R units
    and all node patterns is infeasible. Its restricted master problem (``taut.solver.placement.path_cover.master``)
    yields dual prices; routes and patterns (``taut.solver.placement.path_cover.pricing``) that violate them join it,
    until the prices are a certificate or the program is feasible.
(2) Prices oscillate from one program to the next. With :math:`\pi` the program's prices and :math:`\bar \pi` the best
    so far (the stability centre, those with the least ratio of Z to :math:`\Gamma`), routes are priced at
    :math:`\alpha \bar \pi + (1 - \alpha) \pi`, and at :math:`\pi` where that yields no new column (mis-pricing).
(3) Where the program is feasible, the cuts that its fractional solution violates are added, and the test goes on.
(4) The next threshold halves what lies between the proven seconds and the goal.

The cut pool says which rounded capacity and mixed-integer-rounding cuts are tried. Cuts are separated by enumeration
over the clusters of near nodes (``taut.solver.placement.slots``), and over those clusters without the start nodes of
the branch at hand. A cut that one branch violated is likely to matter to the others, so all branches of a search share
one pool.

References
----------
Klein and Scholl (1999), Computing lower bounds by destructive improvement: (4).
Wentges (1997), Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming; Pessoa, Sadykov, Uchoa and
Vanderbeck (2018), Automation and combination of linear-programming based stabilization techniques in column
generation: (2).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from taut.data.arrays import Flags, Floats, Ints, Ints32
from taut.solver.placement.path_cover.cases import PathProof
from taut.solver.placement.path_cover.certificate import (
    MAX_RESOURCE,
    Cut,
    DualCertificate,
    DualPrices,
    resource_consumption,
)
from taut.solver.placement.path_cover.pricing import UNREACHED
from taut.solver.placement.path_cover.racks import crosses
from taut.solver.placement.slots import SlotGraph, clusters


class CutPool:
    """Cuts on clusters of near nodes; ``violated`` are those that some fractional solution has violated, in order."""

    def __init__(self, graph: SlotGraph) -> None:
        self._graph, self.violated = graph, dict[Cut, None]()
        self._clusters = clusters(graph.hops)

    def candidates(self, starts: Flags) -> tuple[Cut, ...]:
        """Cuts that fractional solutions may violate: on the clusters, and on the clusters without ``starts`` (N,)."""
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
        # With SciPy's sparse matrices, that checks of a bound do without.
        from taut.solver.placement.path_cover.master import RestrictedMaster

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
        """
        Test the next threshold between the proven seconds and a goal or the ceiling, (4).

        ``goal``: seconds beyond which nothing needs to be proven; ``rounds``: rounds of column generation. A test that
        they do not decide is taken up again by the next call, up to ``MAX_ROUNDS`` in all. Returns whether anything was
        proven.
        """
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
        self.evidence = PathProof(nodes=nodes, required=required, touched=self._touched, by=by)
        if priced.total > 0.0:
            self._centre = self._normal(priced)
