r"""
Quadratic assignment: annealing and tabu search for cheap permutations, bounds and branch and bound for the proof.

With the cost z of ``taut.formulations.assignment.assignment``, the bounds L of ``taut.solver.qap.bound_portfolio``
and S seconds:

(1) up to n = 8 every permutation is priced, and L is the least cost;
(2) above, the bounds that need no incumbent come first, for at most S / 5; then the rounds of
    ``taut.solver.qap.swap_neighbourhood`` for a share of the time that is left, 0.05 and at most 0.5 s up to n = 16,
    0.1 and 2 s up to 24, 0.3 and 20 s up to 32, 0.7 up to 64, at most 1 s where flow is sparse; then the proof; above n
    = 64 the rounds get all of it;
(3) all ends where L is met, :math:`z \le L + 10^{-9} |L|`, for a sum of floats may miss the bound that it meets by
    units in the last place; the gap is :math:`(z - L) / |z|`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from time import perf_counter
from typing import Literal

import numpy as np

from taut.data.arrays import Ints
from taut.errors import FormulationError
from taut.formulations.assignment.assignment import QuadraticAssignment
from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.qap.bound_portfolio import LARGEST_ASCENT, LARGEST_TREE, PrimalDual, prove, root_bounds
from taut.solver.qap.forest_bound import forest_bounds, forest_of, is_sparse
from taut.solver.qap.swap_neighbourhood import search
from taut.solver.result import OPTIMALITY_GAP, relative_gap

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
    limit = _seconds(time_limit)
    _load()
    begin = perf_counter()
    proof = PrimalDual(lower_bound=bound[0], source=bound[1], best=np.arange(problem.size) if start is None else start)
    end = begin + limit
    with interrupt_requested() as asked:
        for known in _proofs(problem, proof, seed, end):
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


def _seconds(time_limit: float) -> float:
    """A time limit that makes sense."""
    if not time_limit >= 0:
        raise FormulationError(f"time limit is {time_limit} s, expected at least 0")
    return time_limit
