r"""
Placement of a strategy as a quadratic assignment, and annealing by the step time from what it finds.

(1) The strategy's blocks and slots become a problem of Koopmans and Beckmann
    (``taut.formulations.placement``), whose permutation and bound come from ``taut.solver.qap``.
    Chains and rings of blocks have a bound of their own (``taut.solver.qap.node_content``), with which that begins.
(2) Where its tables are small enough CP-SAT solves a model of its own with that permutation as a hint and that bound,
    (4) to (7).
(3) The quadratic cost is a sum where the step time has maxima, so its optimum is only a start: annealing goes on from
    it and from the constructed placements, and the step time decides between them. Where the problem has more than
    ``MOST_POSITIONS`` positions, (3) is all there is.

A position whose block spans several nodes is priced by the first of them.

CP-SAT's own model has a hint and a bound.

Sets
    Positions p; sites s, each with room for :math:`c_s` positions (slots on one node are alike); of pairs of positions
    those with flow, :math:`p \to q`.

Data
    The flow and distance of ``taut.formulations.placement``; :math:`F_{pq} D_{st}` in whole units of
    the largest cost divided by ``UNITS``, rounded down; L, a lower bound in the same units; a hint.

Variables
    :math:`y_{ps} \in \{0, 1\}`: position p is on site s; :math:`w_{pq} \ge 0`: what a pair with flow costs.

Constraints
    (4) :math:`\sum_s y_{ps} = 1`, :math:`\sum_p y_{ps} = c_s`;
    (5) :math:`w_{pq} \ge F_{pq} D_{st}` where p is on s and q on t, by a table of all (s, t);
    (6) :math:`\sum w \ge L`.

Objective
    (7) :math:`\min \sum w`.

Rounding down keeps CP-SAT's bound valid after it is scaled back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from taut.data.arrays import Floats, Ints
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.placement import FoundPlacement, PlacementProblem, hop_flow, placement_assignment, replica_flow
from taut.solver.branch_and_bound.stop import Stopping, interrupt_requested, never
from taut.solver.cp_sat import run
from taut.solver.placement.annealing.anneal import anneal_restarts, best_start
from taut.solver.qap.node_content import ChainsAndRings, content_bound
from taut.solver.qap.quadratic import place
from taut.solver.result import Limits, relative_gap

UNITS = 10**6
"""Steps of a pair's cost: finer ones change no decision, coarser ones cost bound."""
MOST_ROWS = 200_000
"""Rows of all tables (5), beyond which loading the model takes seconds and CP-SAT proves nothing in minutes."""


class Assigned(NamedTuple):
    """Slots by position (n,), and a bound on (7) in the unit of flow times distance; -inf where none was proven."""

    slots: Ints
    lower_bound: float


def rows_of(problem: QuadraticAssignment, sites: Ints) -> int:
    """Rows of all tables (5) of a problem whose slots lie on these sites (n,)."""
    return int(np.count_nonzero(_paired(problem.flow))) * len(np.unique(sites)) ** 2


def solve_placement(
    problem: QuadraticAssignment, sites: Ints, hint: Ints, *, bound: float = 0.0, time_limit: float, seed: int = 0
) -> Assigned:
    """Place positions on slots of sites (n,), equal within a site, by CP-SAT from a hint (n,) and a lower bound."""
    model, names, first = cp_model.CpModel(), *np.unique(sites, return_index=True)
    number = np.searchsorted(names, sites)
    room = np.bincount(number, minlength=len(names))
    count, kinds = problem.size, len(names)
    places = [model.new_int_var(0, kinds - 1, "") for _ in range(count)]
    chosen = [[model.new_bool_var("") for _ in range(kinds)] for _ in range(count)]
    for p in range(count):
        model.add_exactly_one(chosen[p])
        model.add(places[p] == sum(s * chosen[p][s] for s in range(kinds)))
        model.add_hint(places[p], int(number[hint[p]]))
    for s in range(kinds):
        model.add(sum(chosen[p][s] for p in range(count)) == int(room[s]))
    flow = _paired(problem.flow)
    distance = problem.distance[np.ix_(first, first)].copy()
    second = np.array([np.flatnonzero(number == s)[min(1, room[s] - 1)] for s in range(kinds)])
    distance[np.arange(kinds), np.arange(kinds)] = problem.distance[first, second]
    # A pair counts both ways: its flow there and back over the distance there and back.
    back = distance.T
    unit = max(float(flow.max() * 2 * distance.max()), 1e-300) / UNITS
    costs = []
    for p, q in np.argwhere(flow > 0):
        pair = (problem.flow[p, q] * distance + problem.flow[q, p] * back) / unit
        costs.append(_table(model, (places[p], places[q]), np.floor(pair * (1 - 1e-12)).astype(np.int64), room))
    model.add(sum(costs) >= int(np.floor(bound / unit * (1 - 1e-9))) - len(costs))
    model.minimize(sum(costs))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1, seed % 2**31
    solver.parameters.max_time_in_seconds = time_limit
    with interrupt_requested() as asked:
        status = run(solver, model, asked)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    site = np.array([solver.value(place) for place in places]) if found else number[hint]
    proven = max(solver.response_proto.inner_objective_lower_bound, 0) if found or status == cp_model.UNKNOWN else 0
    return Assigned(_slots(site, number), float(proven) * unit * (1 - 1e-9))


def _paired(flow: Floats) -> Floats:
    """Flow of every pair both ways, above the diagonal."""
    return np.asarray(np.triu(flow + flow.T, 1))


def _table(
    model: cp_model.CpModel, places: tuple[cp_model.IntVar, cp_model.IntVar], cost: Ints, room: Ints
) -> cp_model.IntVar:
    """What a pair costs, (5); two positions share a site only where it has room for both."""
    allowed = np.ones(cost.shape, dtype=bool) & ~np.diag(room < 2)
    paid = model.new_int_var(0, int(cost.max()), "")
    rows = np.argwhere(allowed)
    model.add_allowed_assignments([*places, paid], np.column_stack([rows, cost[allowed]]).tolist())
    return paid


def _slots(site: Ints, number: Ints) -> Ints:
    """A slot for every position on its site, those of a site in order."""
    slots = np.empty(len(site), dtype=np.int64)
    slots[np.argsort(site, kind="stable")] = np.argsort(number, kind="stable")
    return slots


MOST_POSITIONS = 256
"""Positions up to which the assignment is posed: searches of two matrices with more take longer than annealing."""
SHARE = 0.5
"""Of the seconds for the quadratic assignment, those for ``taut.solver.qap``; the rest is CP-SAT's."""
MOST_CUTS = 2
"""Between segments of stages in (1): more of them are too many permutations for long pipelines."""
SEARCHED = "annealing and tabu search"
CP_SAT = "cp-sat of OR-Tools"
CONTENTS = "contents of nodes, with glop of OR-Tools"
"""Who found a permutation or proved a bound."""


@dataclass(frozen=True, slots=True)
class SolvedAssignment:
    """
    The quadratic assignment of a strategy by (1) and (2).

    ``slots`` is the slot of every position in the best permutation; ``cost`` and ``lower_bound`` are of the quadratic
    objective; ``permutation_by`` says who found the permutation, ``bound_by`` who proved the bound.
    """

    problem: QuadraticAssignment
    slots: Ints
    cost: float
    lower_bound: float
    permutation_by: str
    bound_by: str

    @property
    def gap(self) -> float | None:
        """Relative gap of the quadratic objective."""
        return relative_gap(self.cost, self.lower_bound)

    @property
    def figures(self) -> dict[str, Any]:
        """What a document says of the assignment: objective and bound in seconds of all transfers one by one."""
        return {
            "positions": self.problem.size,
            "objective": self.cost,
            "lower_bound": self.lower_bound if np.isfinite(self.lower_bound) else None,
            "gap": self.gap,
            "permutation_by": self.permutation_by,
            "bound_by": self.bound_by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticPlacement:
    """
    A placement by (1) to (3), with its quadratic assignment.

    ``seconds`` is the step time of the assignment's permutation, infinite where it breaks a rule; ``placed`` is the
    best placement by the step time.
    """

    assignment: SolvedAssignment
    seconds: float
    placed: FoundPlacement


def chains_and_rings(given: PlacementProblem) -> ChainsAndRings:
    """The flow of a strategy's assignment by stage."""
    return ChainsAndRings(given.candidate.pipelines, hop_flow(given), replica_flow(given))


def segmented_start(given: PlacementProblem, assignment: QuadraticAssignment) -> Ints:
    """The cheapest permutation (n,) that takes slots in order for segments of stages, each chain by chain."""
    pp, dp = given.candidate.pp, given.candidate.pipelines
    stage, chain = np.tile(np.arange(pp), dp), np.repeat(np.arange(dp), pp)
    cuts = [each for count in range(MOST_CUTS + 1) for each in combinations(range(1, pp), count)]
    segments = [np.searchsorted(np.array(each, dtype=int), stage, side="right") for each in cuts]
    orders = [np.lexsort((stage, chain, segment)) for segment in [*segments, stage]]
    return min((np.argsort(order) for order in orders), key=assignment.cost)


def anneal_from(
    given: PlacementProblem, starts: list[FoundPlacement], limits: Limits, stopping: Stopping = never
) -> FoundPlacement:
    """The best placement of annealing from several starts, (3), which ends early once ``stopping`` is true."""
    runs = [
        anneal_restarts(given, start, seed=limits.seed, workers=limits.workers, stopping=stopping) for start in starts
    ]
    return min(runs, key=lambda run: run.seconds)


def assign(given: PlacementProblem, limits: Limits, seconds: float) -> SolvedAssignment | None:
    """The quadratic assignment of a strategy, or None where there are too many positions, or only one."""
    if not 1 < len(given.slots) <= MOST_POSITIONS:
        return None
    problem, sites = placement_assignment(given), given.slots[:, 0]
    contents = content_bound(chains_and_rings(given), problem.distance, sites), CONTENTS
    start = segmented_start(given, problem)
    found = place(problem, seed=limits.seed, time_limit=SHARE * seconds, bound=contents, start=start)
    slots, permutation_by = np.array(found.permutation), SEARCHED
    bound, bound_by = found.lower_bound, found.bound_source
    if found.status != "optimal" and rows_of(problem, sites) <= MOST_ROWS:
        left = max((1 - SHARE) * seconds, 0.1)
        answer = solve_placement(problem, sites, slots, bound=max(bound, 0.0), time_limit=left, seed=limits.seed)
        if answer.lower_bound > bound:
            bound, bound_by = answer.lower_bound, CP_SAT
        if problem.cost(answer.slots) < problem.cost(slots):
            slots, permutation_by = answer.slots, CP_SAT
    return SolvedAssignment(problem, slots, problem.cost(slots), bound, permutation_by, bound_by)


def place_quadratic(
    given: PlacementProblem,
    patterns: tuple[int, ...],
    limits: Limits,
    seconds: float,
    known: Sequence[FoundPlacement] = (),
    stopping: Stopping = never,
) -> QuadraticPlacement | None:
    """A placement by (1) to (3) from ``known`` ones too, or None where there are too many positions, or only one."""
    assignment = assign(given, limits, seconds)
    if assignment is None:
        return None
    start, positions = best_start(given, patterns), given.slots[assignment.slots]
    allowed = not given.violations(positions)
    priced = FoundPlacement(seconds=given.cost(positions) if allowed else np.inf, positions=positions)
    starts = [start, *known, priced] if allowed else [start, *known]
    return QuadraticPlacement(
        assignment=assignment, seconds=priced.seconds, placed=anneal_from(given, starts, limits, stopping)
    )
