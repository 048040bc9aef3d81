r"""
Portfolio of lower bounds on quadratic assignment, from the quickest to branch and bound.

Sets, data and the cost are those of ``taut.formulations.assignment.assignment``; z is the cost of an incumbent.

(1) ``taut.solver.qap.lawler_form`` and ``taut.solver.qap.convex_bound`` need no incumbent.
(2) From the incumbent on, ``taut.solver.qap.hahn_grant`` ascends, until 100 rounds gain less than a
    hundredth of what is missing to z; then ``taut.solver.qap.branch_and_bound`` branches, up to n = 32. Above n = 64
    the arrays of n^4 numbers are too large for both.
(3) At the same time ``taut.solver.qap.forest_bound`` bounds flow between at most n pairs. Where its bound L is not
    below those of (1), ``taut.solver.qap.constraint_model`` looks for permutations that cost at most
    U = L + (z - L) / 8, L + (z - L) / 4, L + (z - L) / 2 and z: the nearer U is to L, the smaller its tables, and
    either a permutation is found, which then is a best one, or the bound rises to U.
(4) Where flow is sparse or n exceeds 24, and (2) will hardly end, more rounds of
    ``taut.solver.qap.swap_neighbourhood`` take three quarters of its time.

Every bound is raised to the grid of ``taut.formulations.assignment.assignment``, and the largest so far counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from time import perf_counter

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.assignment.assignment import CostGrid, QuadraticAssignment, cost_grid
from taut.solver.qap.automorphisms import AutomorphismGroup
from taut.solver.qap.branch_and_bound import BranchAndBound, cutoff
from taut.solver.qap.constraint_model import MOST_CHOICES, choices, solutions
from taut.solver.qap.convex_bound import convex_bounds
from taut.solver.qap.forest_bound import forest_bounds, forest_of, is_sparse, slack_of
from taut.solver.qap.hahn_grant import ascent
from taut.solver.qap.lawler_form import LawlerForm, gilmore_lawler, lawler_form, scale_of
from taut.solver.qap.swap_neighbourhood import search

LARGEST_ASCENT = 64
"""Largest n of the dual ascent; it then takes 128 MiB."""
LARGEST_TREE = 32
"""Largest n of branch and bound; a node then takes 8 MiB."""

_WINDOW, _WORTH = 100, 0.01
"""Rounds of the ascent, and share of the missing rest that they must gain, or branching gains more, (2)."""
_PARTS = 0.125, 0.25, 0.5, 1.0
"""Shares of the way from L to z at which U stands in turn, (3): tables shrink fast with U, so each try is cheap."""
_SEARCHED, _SEARCH_S, _SEARCH_TIMES = 24, 2.0, 3.0
"""Size n above which the search goes on beside the proof, (4); seconds of a round; its time relative to the proof's."""
_CONVEX_WINDOW, _CONVEX_WORTH = 50, 1e-5
"""Steps of Frank and Wolfe, and relative gain below which as many more would change no digit that is shown."""


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
    """Bounds that need no incumbent, (1), after each of them and each step of the convex program while it gains."""
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
    """Raise the bound and improve the incumbent, (2) to (4), n from 2 to 64; above 32 without end."""
    grid = cost_grid(problem)
    ways = _dense(problem, grid, proof, seed)
    if is_sparse(problem) or problem.size > _SEARCHED:
        ways = _shared(ways, _search(problem, proof, seed), _SEARCH_TIMES)
    if is_sparse(problem):
        ways = _beside(ways, _sparse(problem, grid, proof, seed))
    for known in ways:
        best = _cheaper(problem, proof.best, known.best)
        proof = replace(known if known.lower_bound > proof.lower_bound else proof, best=best)
        yield proof


def _shared(first: Iterator[PrimalDual], other: Iterator[PrimalDual], times: float) -> Iterator[PrimalDual]:
    """What two find, the other in so many times the time of the first; ends with either."""
    spent = [0.0, 0.0]
    while True:
        which = int(spent[1] < times * spent[0])
        begin, known = perf_counter(), next((first, other)[which], None)
        if known is None:
            return
        spent[which] += perf_counter() - begin
        yield known


def _beside(first: Iterator[PrimalDual], other: Iterator[PrimalDual]) -> Iterator[PrimalDual]:
    """What two find, turn by turn, the other as long as it goes on; ends with the first."""
    for known in first:
        yield known
        more = next(other, None)
        if more is not None:
            yield more


def _search(problem: QuadraticAssignment, proof: PrimalDual, seed: int) -> Iterator[PrimalDual]:
    """Search again and again, each time from other permutations, (4)."""
    for other in count(seed + 1):
        for _, best in search(problem, proof.best, other, _SEARCH_S, -math.inf):
            yield replace(proof, best=best)


def _sparse(problem: QuadraticAssignment, grid: CostGrid, proof: PrimalDual, seed: int) -> Iterator[PrimalDual]:
    """Bound sparse flow, and solve what the bound leaves, (3)."""
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
    """Ascend and branch, (2)."""
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
    """Costs after each call of the ascent and the best bound, until it exceeds the cutoff or stalls, (2)."""
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
