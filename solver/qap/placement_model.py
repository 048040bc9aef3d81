r"""
A placement's quadratic assignment as CP-SAT's own model, with a hint and a bound.

Sets
    Positions p; sites s, each with room for :math:`c_s` positions (slots on one node are alike); of pairs of positions
    those with flow, :math:`p \to q`.

Data
    The flow and distance of ``taut.formulations.assignment.placement_qap``; :math:`F_{pq} D_{st}` in whole units of
    the largest cost divided by ``UNITS``, rounded down; L, a lower bound in the same units; a hint.

Variables
    :math:`y_{ps} \in \{0, 1\}`: position p is on site s; :math:`w_{pq} \ge 0`: what a pair with flow costs.

Constraints
    (1) :math:`\sum_s y_{ps} = 1`, :math:`\sum_p y_{ps} = c_s`;
    (2) :math:`w_{pq} \ge F_{pq} D_{st}` where p is on s and q on t, by a table of all (s, t);
    (3) :math:`\sum w \ge L`.

Objective
    (4) :math:`\min \sum w`.

Rounding down keeps CP-SAT's bound valid after it is scaled back.
"""

from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from taut.data.arrays import Floats, Ints
from taut.formulations.assignment.assignment import QuadraticAssignment
from taut.solver.cp_sat import run
from taut.solver.interrupt import interrupt_requested

UNITS = 10**6
"""Steps of a pair's cost: finer ones change no decision, coarser ones cost bound."""
MOST_ROWS = 200_000
"""Rows of all tables (2), beyond which loading the model takes seconds and CP-SAT proves nothing in minutes."""


class Assigned(NamedTuple):
    """Slots by position (n,), and a bound on (4) in the unit of flow times distance; -inf where none was proven."""

    slots: Ints
    lower_bound: float


def rows_of(problem: QuadraticAssignment, sites: Ints) -> int:
    """Rows of all tables (2) of a problem whose slots lie on these sites (n,)."""
    return int(np.count_nonzero(_paired(problem.flow))) * len(np.unique(sites)) ** 2


def solve_placement(
    problem: QuadraticAssignment, sites: Ints, hint: Ints, *, bound: float = 0.0, time_limit: float, seed: int = 0
) -> Assigned:
    """
    Place positions on slots by CP-SAT.

    ``problem``: flow between positions, distance between slots; slots of one site must have equal distances; ``sites``:
    site of every slot (n,); ``hint``: slot of every position (n,) to begin with; ``bound``: a lower bound on the cost;
    ``time_limit``: seconds.
    """
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
    """What a pair costs, (2); two positions share a site only where it has room for both."""
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
