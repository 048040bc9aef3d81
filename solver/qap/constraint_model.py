r"""
Quadratic assignment of sparse flow as a constraint program, on what a bound has left.

With the forest of ``taut.solver.qap.forest_bound``, the bound L and the slacks of
``taut.solver.qap.forest_bound``, and U the scaled cost that no permutation of interest exceeds:

Variables
    :math:`p_i`: location of item i; :math:`w_i \ge 0`: what it costs above L.

Constraints
    .. math:: p \text{ is a permutation}, \tag{1}
    .. math:: (p_g, p_h, p_i, w_i) \in \text{table of } i, \text{ with its parent h and the parent g of that}, \tag{2}
    .. math:: \textstyle\sum_i w_i \le U - L. \tag{3}

    A table lists the places whose slack is finite; those of a root and of its children have one and two places, those
    of a pair outside the forest have its two places and its cost above the least.

Objective
    .. math:: \min \textstyle\sum_i w_i. \tag{4}

A permutation of scaled cost z has :math:`\sum_i w_i = z - L`, all numbers are whole, and so no permutation costs less
than the lesser of U + 1 and L plus the solver's bound on (4), (5). Of locations that a symmetry of the distances takes
into each other, one is enough for one root, (6).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from taut.data.arrays import Flags, Floats, Ints
from taut.solver.cp_sat import running
from taut.solver.qap.forest_bound import Forest, Slack

MOST_CHOICES = 300_000
"""Rows of all tables, beyond which loading the model takes seconds."""
_PAUSE = 0.0005


class Found(NamedTuple):
    """Lower bound (5), scaled, and the locations (n,) of the best permutation; None if there is none so far."""

    bound: float
    places: Ints | None


@dataclass
class _Model:
    """The constraint program, its locations and its objective."""

    program: cp_model.CpModel
    places: list[cp_model.IntVar]
    costs: list[cp_model.IntVar]

    def table(self, items: list[int], cost: Floats) -> None:
        """Let the places of items cost what an array says, if it is finite, (2)."""
        rows = np.argwhere(np.isfinite(cost))
        values = cost[np.isfinite(cost)].astype(np.int64)
        self.costs.append(self.program.new_int_var(0, int(values.max(initial=0)), ""))
        variables = [*(self.places[i] for i in items), self.costs[-1]]
        self.program.add_allowed_assignments(variables, np.column_stack([rows, values]).tolist())


class _Told(cp_model.CpSolverSolutionCallback):
    """Keeps the best permutation."""

    def __init__(self, places: list[cp_model.IntVar]) -> None:
        super().__init__()
        self._variables = places
        self.places: Ints | None = None

    def on_solution_callback(self) -> None:
        """Take over a better one."""
        self.places = np.array([self.value(place) for place in self._variables])


def choices(slack: Slack) -> int:
    """Number of rows of all tables (2)."""
    return sum(int(np.isfinite(cost).sum()) for cost in slack.places.values())


def solutions(forest: Forest, slack: Slack, most: float, first: Flags, seed: int) -> Iterator[Found]:
    """What CP-SAT knows, several times a second, where the root of the first tree is at ``first`` (n,) alone, (6)."""
    model = _model(forest, slack, most, first)
    solver, told, bounds = cp_model.CpSolver(), _Told(model.places), [slack.bound]
    solver.parameters.num_workers, solver.parameters.random_seed = 1, seed % 2**31
    solver.parameters.linearization_level = 2
    # CP-SAT states bounds as floats, which are off by more than rounding; the last one it also has as an integer.
    solver.best_bound_callback = lambda value: bounds.append(slack.bound + np.floor(value * (1 - 1e-9)))
    looking = running(solver, model.program, told, _PAUSE)
    while True:
        try:
            next(looking)
        except StopIteration as end:
            proven = solver.response_proto.inner_objective_lower_bound
            least = most + 1 if end.value == cp_model.INFEASIBLE else slack.bound + proven
            yield Found(min(max(least, *bounds), most + 1), told.places)
            return
        yield Found(min(max(bounds), most + 1), told.places)


def _model(forest: Forest, slack: Slack, most: float, first: Flags) -> _Model:
    """The program (1) to (4)."""
    program, size = cp_model.CpModel(), len(forest.order)
    model = _Model(program, [program.new_int_var(0, size - 1, "") for _ in range(size)], [])
    program.add_all_different(model.places)
    for i in forest.order.tolist():
        above, cost = forest.parent[i], slack.places[i]
        if above < 0:
            model.table([i], np.where(first, cost, np.inf) if i == forest.order[0] else cost)
        elif forest.parent[above] < 0:
            model.table([above, i], cost.min(0))
        else:
            model.table([forest.parent[above], above, i], cost)
    for i, j, cost in forest.outside:
        above_least = cost - cost.min()
        model.table([i, j], np.where(above_least <= most - slack.bound, above_least, np.inf))
    program.add(sum(model.costs) <= int(most - slack.bound))
    program.minimize(sum(model.costs))
    return model
