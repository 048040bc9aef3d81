r"""
Placement by the spans of groups: how many leaf switches the replicas of a stage, and the stages of a pipeline, lie on.

Blocks (x, z), stage x of replica z, fill leaves k of :math:`c_k` blocks each. The replicas of stage x lie on
:math:`a_x` leaves, the stages of replica z on :math:`b_z`. With a weight w the objective is that of Arnold,

.. math:: \min w \max_x a_x + (1 - w) \max_z b_z. \tag{1}

Leaf k holds blocks of :math:`r_k \le pp` stages and :math:`q_k \le dp` replicas, so :math:`c_k \le r_k q_k`. Let Q(R)
be the least :math:`\sum q` over all r of sum at most R, by a dynamic program over the leaves. Since :math:`\sum_k r_k =
\sum_x a_x` and :math:`\sum_k q_k = \sum_z b_z`, largest spans a and b need

.. math:: Q(pp \, a) \le dp \, b. \tag{2}

The least (1) over the pairs that (2) allows is a lower bound.

CP-SAT finds the placement: each block on one leaf, each leaf full, and for each stage and replica the leaves that it
touches. It stops at the lower bound.

References
----------
Arnold: communication-aware placement of training jobs on leaf switches by mixed-integer programming (2025).
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from ortools.sat.python import cp_model

from taut.data.arrays import Ints
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.cp_sat import run

HUNDREDTHS = 100
"""Steps of the weight w, which CP-SAT takes as a whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Leaf of every block (pp, dp), the largest spans of stages and of pipelines, (1), and the bound on (1)."""

    leaf: Ints
    replicas: int
    stages: int
    objective: float
    lower_bound: float


def spans_of(leaf: Ints) -> tuple[int, int]:
    """Most leaves of the replicas of a stage, and of the stages of a replica, of leaves (pp, dp)."""
    return max(len(np.unique(row)) for row in leaf), max(len(np.unique(column)) for column in leaf.T)


def least_spans(pp: int, dp: int, room: Ints, weight: float) -> float:
    """The least (1) over the spans that (2) allows, for leaves of ``room`` blocks (leaves,), pp dp in all."""
    most = pp * len(room)
    least = np.full(most + 1, np.inf)
    least[0] = 0.0
    for count in room.tolist():
        after = np.full(most + 1, np.inf)
        for rows in range(-(-count // dp), min(pp, count) + 1):
            columns = -(-count // rows)
            after[rows:] = np.minimum(after[rows:], least[: most + 1 - rows] + columns)
        least = after
    least = np.minimum.accumulate(least)
    spans = range(1, len(room) + 1)
    allowed = (weight * a + (1 - weight) * b for a, b in product(spans, spans) if least[pp * a] <= dp * b)
    return float(min(allowed))


def place_by_spans(pp: int, dp: int, room: Ints, weight: float, *, time_limit: float, seed: int = 0) -> Spans:
    """Place blocks by (1) on leaves of ``room`` blocks (leaves,), pp dp in all; the search starts from rank order."""
    model, leaves = cp_model.CpModel(), range(len(room))
    share = round(HUNDREDTHS * weight)
    on = {key: model.new_bool_var("") for key in product(range(pp), range(dp), leaves)}
    rows = {key: model.new_bool_var("") for key in product(range(pp), leaves)}
    columns = {key: model.new_bool_var("") for key in product(range(dp), leaves)}
    start = _in_order(pp, dp, room)
    for (x, z, k), chosen in on.items():
        model.add_implication(chosen, rows[x, k])
        model.add_implication(chosen, columns[z, k])
        model.add_hint(chosen, int(start[x, z] == k))
    for x, z in product(range(pp), range(dp)):
        model.add_exactly_one(on[x, z, k] for k in leaves)
    for k in leaves:
        model.add(sum(on[x, z, k] for x, z in product(range(pp), range(dp))) == int(room[k]))
    widest, longest = (model.new_int_var(1, len(room), "") for _ in range(2))
    for x in range(pp):
        model.add(sum(rows[x, k] for k in leaves) <= widest)
    for z in range(dp):
        model.add(sum(columns[z, k] for k in leaves) <= longest)
    bound = least_spans(pp, dp, room, share / HUNDREDTHS)
    cost = share * widest + (HUNDREDTHS - share) * longest
    model.add(cost >= round(HUNDREDTHS * bound))
    model.minimize(cost)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1, seed % 2**31
    solver.parameters.max_time_in_seconds = time_limit
    with interrupt_requested() as asked:
        found = run(solver, model, asked) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    leaf = start
    if found:
        leaf = np.array([[next(k for k in leaves if solver.value(on[x, z, k])) for z in range(dp)] for x in range(pp)])
    leaf = min((leaf, start), key=lambda each: _objective(each, share / HUNDREDTHS))
    replicas, stages = spans_of(leaf)
    objective = _objective(leaf, share / HUNDREDTHS)
    return Spans(leaf=leaf, replicas=replicas, stages=stages, objective=objective, lower_bound=bound)


def _objective(leaf: Ints, weight: float) -> float:
    replicas, stages = spans_of(leaf)
    return weight * replicas + (1 - weight) * stages


def _in_order(pp: int, dp: int, room: Ints) -> Ints:
    """Leaves (pp, dp) in the order of ranks: replicas of a stage side by side."""
    return np.repeat(np.arange(len(room)), room).reshape(pp, dp)
