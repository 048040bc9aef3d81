r"""
Quadratic assignment: annealing and tabu search for cheap permutations, bounds and branch and bound for the proof.

With the cost z of an incumbent (``taut.formulations.assignment``), the bounds L of (4) to (7) and S seconds:

(1) up to n = 8 every permutation is priced, and L is the least cost;
(2) above, the bounds that need no incumbent come first, for at most S / 5; then the rounds of
    ``taut.solver.qap.swap_neighbourhood`` for a share of the time that is left, 0.05 and at most 0.5 s up to n = 16,
    0.1 and 2 s up to 24, 0.3 and 20 s up to 32, 0.7 up to 64, at most 1 s where flow is sparse; then the proof; above n
    = 64 the rounds get all of it;
(3) all ends where L is met, :math:`z \le L + 10^{-9} |L|`, for a sum of floats may miss the bound that it meets by
    units in the last place; the gap is :math:`(z - L) / |z|`.

Lower bounds come from the quickest to branch and bound. Each is raised to the grid of
``taut.formulations.assignment``, and the largest so far counts.

(4) The bounds of Gilmore and Lawler and of the convex program, (10), need no incumbent.
(5) From the incumbent on, ``taut.solver.qap.hahn_grant`` ascends, until 100 rounds gain less than a
    hundredth of what is missing to z; then ``taut.solver.qap.branch_and_bound`` branches, up to n = 32. Above n = 64
    the arrays of n^4 numbers are too large for both.
(6) At the same time ``taut.solver.qap.forest_bound`` bounds flow between at most n pairs. Where its bound L is not
    below those of (4), its constraint program looks for permutations that cost at most
    U = L + (z - L) / 8, L + (z - L) / 4, L + (z - L) / 2 and z: the nearer U is to L, the smaller its tables, and
    either a permutation is found, which then is a best one, or the bound rises to U.
(7) Where flow is sparse or n exceeds 24, and (5) will hardly end, more rounds of
    ``taut.solver.qap.swap_neighbourhood`` take three quarters of its time.

Where a matrix is symmetric, a convex quadratic program bounds z, after Anstreicher and Brixius. If one matrix is
symmetric, the other may be replaced by its mean with its transpose, so that both are. Without their diagonals, which go
into :math:`\ell_{ik} = f_{ii} d_{kk}`, call them F and D; X is the permutation matrix,

.. math:: z = \operatorname{tr} F X D X^T + \operatorname{tr} \ell X^T. \tag{8}

Let the columns of V be an orthonormal basis of the vectors whose entries sum to zero, and
:math:`V^T F V = W \operatorname{diag}(\alpha) W^T`, :math:`V^T D V = U \operatorname{diag}(\beta) U^T`,
:math:`\alpha` ascending, :math:`\beta` descending. Any s and t with

.. math:: s_i + t_j \le \alpha_i \beta_j \quad \text{for all } i, j \tag{9}

make :math:`q(X) = \operatorname{tr} F X D X^T - \operatorname{tr} S X X^T - \operatorname{tr} T X^T X` with
:math:`S = V W \operatorname{diag}(s) W^T V^T` and :math:`T = V U \operatorname{diag}(t) U^T V^T` convex on matrices
whose rows and columns sum to one [1]_. On permutations the last two terms are :math:`\sum s_i + \sum t_j`, so that

.. math:: z \ge \sum_i s_i + \sum_j t_j + \min_X \{ q(X) + \operatorname{tr} \ell X^T \}
    \ge \dots + q(Y) + \operatorname{tr} \ell Y^T + \min_X \langle G(Y), X - Y \rangle, \tag{10}

with the gradient G of the bracket at any doubly stochastic Y: a linear assignment problem. The largest sum of s and t
is the least scalar product of :math:`\alpha` and :math:`\beta`. Y comes from the method of Frank and Wolfe. The
projection bound [2]_ is what (10) gives with s and t for q; it never exceeds the minimum in (10).

References
----------
.. [1] Anstreicher, K.M. and Brixius, N.W. (2001). A new bound for the quadratic assignment problem based on convex
       quadratic programming. Mathematical Programming 89: 341-357.
.. [2] Hadley, S.W., Rendl, F. and Wolkowicz, H. (1992). A new lower bound via projection for the quadratic assignment
       problem. Mathematics of Operations Research 17: 727-739.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, permutations
from time import perf_counter
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError
from taut.formulations.assignment import CostGrid, QuadraticAssignment, cost_grid
from taut.solver.branch_and_bound.stop import Listener, Progress, Stopwatch, interrupt_requested
from taut.solver.qap.branch_and_bound import AutomorphismGroup, BranchAndBound, cutoff
from taut.solver.qap.forest_bound import MOST_CHOICES, choices, forest_bounds, forest_of, is_sparse, slack_of, solutions
from taut.solver.qap.hahn_grant import LawlerForm, ascent, gilmore_lawler, lawler_form, scale_of
from taut.solver.qap.swap_neighbourhood import search
from taut.solver.result import OPTIMALITY_GAP, relative_gap
from taut.solver.signals import cut_short

LARGEST_ASCENT = 64
"""Largest n of the dual ascent; it then takes 128 MiB."""
LARGEST_TREE = 32
"""Largest n of branch and bound; a node then takes 8 MiB."""

_WINDOW, _WORTH = 100, 0.01
"""Rounds of the ascent, and share of the missing rest that they must gain, or branching gains more, (5)."""
_PARTS = 0.125, 0.25, 0.5, 1.0
"""Shares of the way from L to z at which U stands in turn, (6): tables shrink fast with U, so each try is cheap."""
_SEARCHED, _ROUND_S, _SEARCH_TIMES = 24, 2.0, 3.0
"""Size n above which the search goes on beside the proof, (7); seconds of a round; its time relative to the proof's."""
_CONVEX_WINDOW, _CONVEX_WORTH = 50, 1e-5
"""Steps of Frank and Wolfe, and relative gain below which as many more would change no digit that is shown."""

_ENUMERATED = 8
"""Largest n whose permutations are all priced: 40,320 of them take some hundredths of a second."""
_ROOT_SHARE = 0.2
"""Share of the time for bounds that need no incumbent: they are weak, so most of it is left to the others."""
_SEARCH_S = 60.0
"""Seconds of the search where there is no limit."""
_SPARSE_S = 1.0
"""Most seconds of the first search on sparse flow, where it goes on beside the proof."""
_SEARCH_SHARES = ((16, 0.05, 0.5), (24, 0.1, 2.0), (LARGEST_TREE, 0.3, 20.0), (LARGEST_ASCENT, 0.7, math.inf))
"""Largest n, share and most seconds of (2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimalDual:
    """
    The best primal and dual bound known at some time.

    ``lower_bound``: no permutation costs less; -inf if nothing is known; ``source``: where the bound comes from:
    ``"gilmore-lawler"``, ``"convex-quadratic"``, ``"forest-flow"``, ``"hahn-grant"``, ``"branch-and-bound"``,
    ``"enumeration"``, ``"none"``, or ``"cp-sat (claimed)"`` if only CP-SAT says so; ``best``: location of every item
    (n,), the incumbent.
    """

    lower_bound: float
    source: str
    best: Ints


def root_bounds(problem: QuadraticAssignment, best: Ints) -> Iterator[PrimalDual]:
    """Bounds that need no incumbent, (4), after each of them and each step of the convex program while it gains."""
    grid = cost_grid(problem)
    proof = PrimalDual(lower_bound=grid.raised(gilmore_lawler(problem)), source="gilmore-lawler", best=best)
    yield proof
    values: list[float] = []
    for value in convex_bounds(problem):
        proof = _better(grid, proof, value, "convex-quadratic")
        yield proof
        values.append(value)
        if len(values) > _CONVEX_WINDOW and value - values[-_CONVEX_WINDOW] <= _CONVEX_WORTH * abs(value):
            return


def prove(problem: QuadraticAssignment, proof: PrimalDual, seed: int) -> Iterator[PrimalDual]:
    """Raise the bound and improve the incumbent, (5) to (7), n from 2 to 64; above 32 without end."""
    grid = cost_grid(problem)
    ways = _dense(problem, grid, proof, seed)
    if is_sparse(problem) or problem.size > _SEARCHED:
        ways = _shared(ways, _search_on(problem, proof, seed), _SEARCH_TIMES)
    if is_sparse(problem):
        ways = _beside(ways, _sparse(problem, grid, proof, seed))
    for known in ways:
        best = _cheaper(problem, proof.best, known.best)
        proof = replace(known if known.lower_bound > proof.lower_bound else proof, best=best)
        yield proof


def _shared(first: Iterator[PrimalDual], other: Iterator[PrimalDual], times: float) -> Iterator[PrimalDual]:
    """What two find, the other in so many times the time of the first, without that of compiling; ends with either."""
    spent = [0.0, 0.0]
    while True:
        which = int(spent[1] < times * spent[0])
        with Stopwatch() as watch:
            known = next((first, other)[which], None)
            spent[which] += watch.seconds
        if known is None:
            return
        yield known


def _beside(first: Iterator[PrimalDual], other: Iterator[PrimalDual]) -> Iterator[PrimalDual]:
    """What two find, turn by turn, the other as long as it goes on; ends with the first."""
    for known in first:
        yield known
        more = next(other, None)
        if more is not None:
            yield more


def _search_on(problem: QuadraticAssignment, proof: PrimalDual, seed: int) -> Iterator[PrimalDual]:
    """Search again and again, each time from other permutations, (7)."""
    for other in count(seed + 1):
        for _, best in search(problem, proof.best, other, _ROUND_S, -math.inf):
            yield replace(proof, best=best)


def _sparse(problem: QuadraticAssignment, grid: CostGrid, proof: PrimalDual, seed: int) -> Iterator[PrimalDual]:
    """Bound sparse flow, and solve what the bound leaves, (6)."""
    forest = forest_of(problem)
    most, before = cutoff(problem, grid, forest.scale, problem.cost(proof.best)), proof.lower_bound
    for bounded in forest_bounds(forest, most):
        proof = _better(grid, proof, min(bounded.bound, most + 1) / forest.scale, "forest-flow")
        yield replace(proof, best=_cheaper(problem, proof.best, bounded.permutation))
    if grid.raised(bounded.bound / forest.scale) < before:
        return
    orbits = AutomorphismGroup(problem.distance).orbit_representatives(np.arange(0))
    for part in _PARTS:
        below = math.floor(bounded.bound + part * (most - bounded.bound))
        slack = slack_of(forest, bounded.multipliers, below)
        if below < bounded.bound or choices(slack) > MOST_CHOICES:
            return
        for found in solutions(forest, slack, below, orbits, seed):
            proof = _better(grid, proof, found.bound / forest.scale, "cp-sat (claimed)")
            proof = replace(proof, best=_cheaper(problem, proof.best, found.places))
            yield proof
        if found.places is not None:
            return


def _cheaper(problem: QuadraticAssignment, best: Ints, other: Ints | None) -> Ints:
    """The cheaper of two permutations."""
    return best if other is None or problem.cost(other) >= problem.cost(best) else other


def _dense(problem: QuadraticAssignment, grid: CostGrid, proof: PrimalDual, seed: int) -> Iterator[PrimalDual]:
    """Ascend and branch, (5)."""
    scale = scale_of(problem)
    most = cutoff(problem, grid, scale, problem.cost(proof.best))
    costs = lawler_form(problem, scale)
    yield proof
    least = -math.inf
    for left, least in _ascent_values(costs, most, seed, forever=problem.size > LARGEST_TREE):
        costs = left
        proof = _better(grid, proof, min(least, most + 1) / scale, "hahn-grant")
        yield proof
    tree = BranchAndBound(problem, costs, scale, proof.best, least, seed)
    while not tree.done:
        tree.step()
        proof = replace(_better(grid, proof, tree.bound, "branch-and-bound"), best=tree.best)
        yield proof


def _ascent_values(costs: LawlerForm, most: float, seed: int, *, forever: bool) -> Iterator[tuple[LawlerForm, float]]:
    """Costs after each call of the ascent and the best bound, until it exceeds the cutoff or stalls, (5)."""
    best, marks = -math.inf, list[float]()
    for left in ascent(costs, most, seed):
        best = max(best, left.constant)
        marks.append(best)
        yield left, best
        missing = most - best
        stalls = len(marks) > _WINDOW and best - marks[-_WINDOW] <= _WORTH * missing
        # The tree begins where the ascent ends, which should not be where it has just taken something back.
        if missing < 0 or (stalls and not forever and best - left.constant <= max(2 * _WORTH * missing, 1.0)):
            return


def _better(grid: CostGrid, proof: PrimalDual, bound: float, source: str) -> PrimalDual:
    """The proof with a bound raised to the grid, if that is larger."""
    raised = grid.raised(bound)
    return replace(proof, lower_bound=raised, source=source) if raised > proof.lower_bound else proof


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentResult:
    """
    A permutation, and how far it can be from the best.

    Parameters
    ----------
    objective
        Cost of the permutation, in the unit of flow times distance.
    lower_bound
        No permutation costs less; -inf if no bound was finished.
    gap
        (objective - lower_bound) / abs(objective), 0 if both are equal, None if it is undefined.
    status
        ``"optimal"`` if the gap is at most 1e-6, else ``"feasible"``.
    permutation
        Location of every item, counted from zero.
    bound_source
        ``"enumeration"``, ``"gilmore-lawler"``, ``"convex-quadratic"``, ``"hahn-grant"``, ``"branch-and-bound"``,
        ``"forest-flow"``, ``"none"``, that of ``bound``, or ``"cp-sat (claimed)"`` if only CP-SAT says so.
    wall_s
        Seconds that all of it took.
    """

    objective: float
    lower_bound: float
    gap: float | None
    status: Literal["optimal", "feasible"]
    permutation: tuple[int, ...]
    bound_source: str
    wall_s: float


def place(
    problem: QuadraticAssignment,
    *,
    seed: int = 0,
    time_limit: float = 10.0,
    progress: Listener | None = None,
    bound: tuple[float, str] = (-math.inf, "none"),
    start: Ints | None = None,
) -> AssignmentResult:
    """
    Find a cheap permutation, and bound how much cheaper any other can be.

    Small problems are enumerated, (1); otherwise searches and bounds share the time, (2), until it is over or the
    permutation is proven to be the best. An interrupt (Ctrl-C) ends both with what is known by then.

    ``problem``: flow and distance (n, n); ``seed``: not negative. One seed gives one order of work; the time decides
    how much of it is done; ``time_limit``: seconds, the bound included, from when the compiled loops are loaded. One
    call of each kernel, below a second, is made in any case; ``progress``: called between kernel calls with the elapsed
    seconds, the best objective, the lower bound and its source; ``bound``: a lower bound that is known from elsewhere,
    with its source; ``start``: a permutation (n,) to begin with; every item at the location of its number without it.
    Returns the best permutation found and the bound.
    Raises ``FormulationError`` if the time limit is negative or not a number.
    """
    if not time_limit >= 0:
        raise FormulationError(f"time limit is {time_limit} s, expected at least 0")
    _load()
    begin = perf_counter()
    proof = PrimalDual(lower_bound=bound[0], source=bound[1], best=np.arange(problem.size) if start is None else start)
    with interrupt_requested() as asked, cut_short():
        for known in _proofs(problem, proof, seed, begin + time_limit):
            proof = known
            if progress:
                progress(Progress(perf_counter() - begin, problem.cost(proof.best), proof.lower_bound, proof.source))
            if asked():
                break
    objective = problem.cost(proof.best)
    gap = relative_gap(objective, proof.lower_bound)
    return AssignmentResult(
        objective=objective,
        lower_bound=proof.lower_bound,
        gap=gap,
        status="optimal" if gap is not None and gap <= OPTIMALITY_GAP else "feasible",
        permutation=tuple(proof.best.tolist()),
        bound_source=proof.source,
        wall_s=perf_counter() - begin,
    )


@cache
def _load() -> None:
    """Load the compiled loops, or compile them, on a small problem: a first run would spend its time limit on that."""
    rng = np.random.default_rng(0)
    flow, distance = (rng.integers(0, 9, (10, 10)).astype(np.float64) for _ in range(2))
    for table in (flow, distance):
        table += table.T
        np.fill_diagonal(table, 0.0)
    small = QuadraticAssignment(flow=flow, distance=distance)
    for _ in forest_bounds(forest_of(QuadraticAssignment(np.eye(10, k=1), small.distance)), 0.0):
        pass
    # Whatever compiling takes, each search makes one call of each kernel, and the proof runs to its end.
    *_, known = root_bounds(small, np.arange(small.size))
    *_, (_, best) = search(small, known.best, 0, 0.0, -math.inf)
    for _ in prove(small, replace(known, best=best), 0):
        pass


def _proofs(problem: QuadraticAssignment, proof: PrimalDual, seed: int, end: float) -> Iterator[PrimalDual]:
    """What is known after every kernel call, (1) and (2), until the time is over or the proof complete, (3)."""
    yield proof
    if problem.size <= _ENUMERATED:
        best = _enumerate(problem)
        yield PrimalDual(lower_bound=problem.cost(best), source="enumeration", best=best)
        return
    for stage in (_bound, _search, _prove):
        for known in stage(problem, proof, seed, end):
            weaker = known.lower_bound < proof.lower_bound
            proof = replace(proof, best=known.best) if weaker else known
            yield proof
        if _complete(problem, proof):
            return


def _bound(problem: QuadraticAssignment, proof: PrimalDual, _seed: int, end: float) -> Iterator[PrimalDual]:
    """First stage of (2): bounds that need no incumbent."""
    begin = perf_counter()
    for known in root_bounds(problem, proof.best):
        yield known
        if perf_counter() - begin >= _ROOT_SHARE * (end - begin):
            return


def _search(problem: QuadraticAssignment, proof: PrimalDual, seed: int, end: float) -> Iterator[PrimalDual]:
    """Second stage of (2): permutations."""
    share, most = next(((s, most) for n, s, most in _SEARCH_SHARES if problem.size <= n), (1.0, math.inf))
    # On sparse flow the search goes on beside the proof.
    most = min(most, _SPARSE_S) if problem.size <= LARGEST_ASCENT and is_sparse(problem) else most
    # Without a limit the proof would wait for ever.
    most = min(most, _SEARCH_S) if math.isinf(end) else most
    seconds = min(share * max(0.0, end - perf_counter()), most)
    target = proof.lower_bound + 1e-9 * abs(proof.lower_bound)
    for _, best in search(problem, proof.best, seed, seconds, target):
        yield replace(proof, best=best)


def _prove(problem: QuadraticAssignment, proof: PrimalDual, seed: int, end: float) -> Iterator[PrimalDual]:
    """Third stage of (2): bounds that use the incumbent."""
    if problem.size > LARGEST_ASCENT or perf_counter() >= end:
        return
    for known in prove(problem, proof, seed):
        yield known
        if perf_counter() >= end or _complete(problem, known):
            return


def _complete(problem: QuadraticAssignment, proof: PrimalDual) -> bool:
    """Whether the bound is met, (3)."""
    return problem.cost(proof.best) <= proof.lower_bound + 1e-9 * abs(proof.lower_bound)


def _enumerate(problem: QuadraticAssignment) -> Ints:
    """Best of all permutations, the first of them in lexicographic order if there are several."""
    every = np.array(list(permutations(range(problem.size))), dtype=np.int64)
    costs = np.tensordot(problem.distance[every[:, :, None], every[:, None, :]], problem.flow, axes=2)
    best: Ints = every[np.argmin(costs)]
    return best


def convex_bounds(problem: QuadraticAssignment, steps: int = 1000) -> Iterator[float]:
    """Bounds by (10) in the unit of flow times distance, the best so far after each step of :math:`O(n^3)`."""
    parts = _parts(problem)
    if parts is None:
        return
    flow, distance, loops = parts
    values, shift_rows, shift_columns = _shifts(flow, distance)
    size, best = len(flow), -math.inf
    margin = 64 * size**2 * float(np.finfo(np.float64).eps) * _scale(flow, distance, loops)
    point = np.full((size, size), 1 / size)
    for _ in range(steps):
        curved = flow @ point @ distance - shift_rows @ point - point @ shift_columns
        gradient = 2 * curved + loops
        rows, columns = linear_sum_assignment(gradient)
        value = float(np.sum((curved + loops) * point))
        descent = float(gradient[rows, columns].sum() - np.sum(gradient * point))
        best = max(best, values + value + descent - margin)
        yield best
        if descent >= 0:
            return
        toward = -point
        toward[rows, columns] += 1
        curvature = float(np.sum((flow @ toward @ distance - shift_rows @ toward - toward @ shift_columns) * toward))
        point += toward * (1.0 if 2 * curvature <= -descent else -descent / (2 * curvature))


def _parts(problem: QuadraticAssignment) -> tuple[Floats, Floats, Floats] | None:
    """Matrices F and D of (8), symmetric with zero diagonals, and l; None if there are none."""
    flow, distance = problem.flow, problem.distance
    if problem.size < 3 or not any(np.array_equal(matrix, matrix.T) for matrix in (flow, distance)):
        return None
    loops = np.outer(flow.diagonal(), distance.diagonal())
    flow, distance = (flow + flow.T) / 2, (distance + distance.T) / 2
    for matrix in (flow, distance):
        np.fill_diagonal(matrix, 0.0)
    return flow, distance, loops


def _shifts(flow: Floats, distance: Floats) -> tuple[float, Floats, Floats]:
    """Sum of s and t, and the matrices S and T."""
    size = len(flow)
    basis = np.linalg.qr(np.hstack((np.ones((size, 1)), np.eye(size)[:, : size - 1])))[0][:, 1:]
    alpha, w = np.linalg.eigh(basis.T @ flow @ basis)
    beta, u = np.linalg.eigh(basis.T @ distance @ basis)
    beta, u = beta[::-1], u[:, ::-1]
    # Between neighbours the mean of both differences that the products allow is feasible and tight; what rounding
    # leaves above (9) is taken off t.
    products = np.outer(alpha, beta)
    diagonal = products.diagonal()
    rises = (diagonal[1:] - np.diag(products, 1) + np.diag(products, -1) - diagonal[:-1]) / 2
    s = np.concatenate(([0.0], np.cumsum(rises)))
    t = (products - s[:, None]).min(axis=0)
    rows, columns = basis @ w, basis @ u
    return float(s.sum() + t.sum()), (rows * s) @ rows.T, (columns * t) @ columns.T


def _scale(flow: Floats, distance: Floats, loops: Floats) -> float:
    """Size of the numbers whose rounding counts: norms of both matrices, and l."""
    norms = float(np.linalg.norm(flow)) * float(np.linalg.norm(distance))
    return norms * math.sqrt(len(flow)) + float(np.abs(loops).sum())
