r"""
Quadratic assignment of sparse flow: a Lagrangian bound, and a constraint program on what it leaves.

With the trees and the costs W of (6), the least W over the places of every root, plus
the least cost of every pair outside the forest, minus the sum of u, is a lower bound for any u, (1). It is concave in
u, and (number of items at k) - 1 is a supergradient, (2): u rises where items crowd, by subgradient steps with
momentum [1]_ [2]_. If every location has one item, no u gives a better bound, and where no pair is outside the places
are a best permutation, (3).

The least total with the grandparent at h, the parent at k and i at l follows from the roots down, (4); where it exceeds
what a better permutation costs, the three places do not occur together.

Trees are solved exactly where items may share locations. The flow is written as a spanning forest T and the pairs
outside it. In a tree every item i but the root has a parent p. With :math:`c_i(k, l) = f_{pi} d_{kl} + f_{ip} d_{lk}`
for p at k and i at l, and multipliers :math:`u_k` of any sign, every permutation costs

.. math:: z(\pi) = \sum_{i} (f_{ii} d_{\pi_i \pi_i} + u_{\pi_i}) + \sum_{i \in T} c_i(\pi_p, \pi_i)
    + \sum_{\text{pairs outside } T} (\cdot) - \sum_k u_k. \tag{5}

Let items share locations, but for an item, its parent and the parent of that. Then the least cost of a tree comes from
its leaves [3]_: with i at k and its parent at h, the subtree of i costs

.. math:: W_i(h, k) = f_{ii} d_{kk} + u_k + \sum_{j \text{ child of } i} \min_{l \ne h, k}
    \left( c_j(k, l) + W_j(k, l) \right), \tag{6}

where a root has no h.

Costs are scaled by S and rounded down to integers, and so is u, so that sums of floats are exact and bounds on them are
bounds on z, as in ``taut.solver.qap.hahn_grant``.

CP-SAT solves a program on the slacks that a bound L leaves, (4), with U the scaled cost that no permutation of interest
exceeds:

Variables
    :math:`p_i`: location of item i; :math:`w_i \ge 0`: what it costs above L.

Constraints
    .. math:: p \text{ is a permutation}, \tag{7}
    .. math:: (p_g, p_h, p_i, w_i) \in \text{table of } i, \text{ with its parent h and the parent g of that}, \tag{8}
    .. math:: \textstyle\sum_i w_i \le U - L. \tag{9}

    A table lists the places whose slack is finite; those of a root and of its children have one and two places, those
    of a pair outside the forest have its two places and its cost above the least.

Objective
    .. math:: \min \textstyle\sum_i w_i. \tag{10}

A permutation of scaled cost z has :math:`\sum_i w_i = z - L`, all numbers are whole, and so no permutation costs less
than the lesser of U + 1 and L plus the solver's bound on (10), (11). Of locations that a symmetry of the distances
takes into each other, one is enough for one root, (12).

References
----------
.. [1] Held, M., Wolfe, P. and Crowder, H.P. (1974). Validation of subgradient optimization. Mathematical Programming 6:
       62-88.
.. [2] Camerini, P.M., Fratta, L. and Maffioli, F. (1975). On improving relaxation methods by modified gradient
       techniques. Mathematical Programming Study 3: 26-34.
.. [3] Christofides, N. and Benavent, E. (1989). An exact algorithm for the quadratic assignment problem on a tree.
       Operations Research 37: 760-768.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree, shortest_path

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.compiled import jit
from taut.solver.cp_sat import running
from taut.solver.qap.hahn_grant import is_exact, scale_of

_SHORT = 2.0**-12  # Integers this much smaller still tell multipliers apart, and are easier to solve with.


class Forest(NamedTuple):
    """
    A sparse flow as a spanning forest and the pairs outside it, scaled and rounded down.

    ``order`` (n,) lists parents before children, ``parent`` (n,) is -1 at roots. ``single`` (n, n) is the cost of item
    i at location k, ``paired`` (n, n, n) that of i at l with its parent at k, ``outside`` has (i, j, cost (n, n) of i
    at k and j at l) for each other pair. Entries of one location taken twice are infinite.
    """

    scale: float
    order: Ints
    parent: Ints
    linear: Floats
    quadratic: Floats
    outside: tuple[tuple[int, int, Floats], ...]

    @property
    def least_outside(self) -> float:
        """Least scaled cost of the pairs outside the forest."""
        return float(sum(cost.min() for _, _, cost in self.outside))


def is_sparse(problem: QuadraticAssignment) -> bool:
    """Whether at most n pairs of items have a flow, so that most of it is in the forest."""
    return int(np.count_nonzero(_between(problem))) <= problem.size


def _between(problem: QuadraticAssignment) -> Floats:
    """The larger flow between each pair of items, whatever its sign, once (n, n)."""
    larger: Floats = np.triu(np.maximum(np.abs(problem.flow), np.abs(problem.flow.T)), 1)
    return larger


def forest_of(problem: QuadraticAssignment) -> Forest:
    """A problem as (5), with a spanning forest of greatest flow, the largest tree first and each from a centre."""
    size, flow = problem.size, _between(problem)
    order, parent = _trees(flow)
    scale = scale_of(problem)
    scale = max(1.0, _SHORT * scale) if is_exact(problem, scale) else scale
    linear = np.outer(problem.flow.diagonal(), problem.distance.diagonal())
    linear = np.floor(scale * linear) - (0.0 if is_exact(problem, scale) else 1.0)
    quadratic = np.zeros((size, size, size))
    for i in order[parent[order] >= 0]:
        quadratic[i] = _pair(problem, scale, parent[i], i)
    others = [(i, j) for i, j in np.argwhere(flow).tolist() if parent[i] != j and parent[j] != i]
    return Forest(
        scale, order, parent, linear, quadratic, tuple((i, j, _pair(problem, scale, i, j)) for i, j in others)
    )


def _trees(flow: Floats) -> tuple[Ints, Ints]:
    """Order and parent of every item in a spanning forest of greatest flow."""
    trees, parent = abs(minimum_spanning_tree(csr_array(-flow))), np.full(len(flow), -1)
    hops = shortest_path(trees, directed=False, unweighted=True)
    far = np.where(np.isfinite(hops), hops, 0.0).max(axis=1)
    tree_of, order = connected_components(trees, directed=False)[1], []
    for tree in np.argsort(-np.bincount(tree_of), kind="stable"):
        items = np.flatnonzero(tree_of == tree)
        found, above = breadth_first_order(trees, items[far[items].argmin()], directed=False)
        parent[found[1:]] = above[found[1:]]
        order.append(found)
    return np.concatenate(order).astype(np.int64), parent


def _pair(problem: QuadraticAssignment, scale: float, first: int, second: int) -> Floats:
    """Scaled cost (n, n) of two items, the first at k and the second at l; infinite for k = l."""
    less = 0.0 if is_exact(problem, scale) else 1.0
    there, back = scale * problem.flow[first, second], scale * problem.flow[second, first]
    cost: Floats = np.floor(there * problem.distance) + np.floor(back * problem.distance.T) - 2 * less
    np.fill_diagonal(cost, np.inf)
    return cost


@jit
def least_places(
    order: Ints, parent: Ints, linear: Floats, quadratic: Floats, multipliers: Floats
) -> tuple[Floats, float, Ints]:
    """W (n, n, n) of (6) by item, parent's and own location, the least sum of all trees, and its places (n,)."""
    size = len(order)
    subtrees, chosen = np.zeros((size, size, size)), np.zeros((size, size, 2), np.int64)
    for i in range(size):
        for k in range(size):
            for place in range(size):
                subtrees[i, k, place] = linear[i, place] + multipliers[place]
    for i in order[::-1]:
        above = parent[i]
        if above < 0:
            continue
        for k in range(size):
            best, second = np.inf, np.inf
            for place in range(size):
                cost = quadratic[i, k, place] + subtrees[i, k, place]
                if cost < best:
                    best, second, chosen[i, k, 1], chosen[i, k, 0] = cost, best, chosen[i, k, 0], place
                elif cost < second:
                    second, chosen[i, k, 1] = cost, place
            for h in range(size):
                subtrees[above, h, k] += second if h == chosen[i, k, 0] else best
    total, places = 0.0, np.zeros(size, np.int64)
    for k in range(size):
        total -= multipliers[k]
    for i in order:
        above = parent[i]
        if above < 0:
            for k in range(size):
                if subtrees[i, k, k] < subtrees[i, places[i], places[i]]:
                    places[i] = k
            total += subtrees[i, places[i], places[i]]
            continue
        k = places[above]
        h = places[parent[above]] if parent[above] >= 0 else k
        places[i] = chosen[i, k, 1 if chosen[i, k, 0] == h else 0]
    return subtrees, total, places


_STEPS = 50
"""Steps between two results, so that a caller gets its turn within milliseconds to tenths of a second."""
_MOMENTUM = 0.3
"""Share of the last direction that the next one keeps, which damps zigzags."""
_PATIENCE, _LESS, _LEAST = 30, 0.7, 1e-3
"""Steps without gain after which the pace shrinks, by which factor, and the pace at which the ascent ends."""
_LARGEST = 2.0**44  # Of a multiplier: sums of 64 of them and of as many costs are exact.
_WORTH = 1e-4  # Part of what is missing that a step must gain to count.


class Bounded(NamedTuple):
    """A scaled bound (1), the multipliers (n,) that give it, and places (n,) of least cost under them."""

    bound: float
    multipliers: Floats
    places: Ints

    @property
    def permutation(self) -> Ints | None:
        """The places where every location has one item, (3)."""
        return self.places if len(np.unique(self.places)) == len(self.places) else None


def forest_bounds(forest: Forest, most: float) -> Iterator[Bounded]:
    """The best of (2) after every fifty steps towards ``most`` (scaled), until (3) holds or steps gain little."""
    size = len(forest.order)
    at, best = np.zeros(size), Bounded(-np.inf, np.zeros(size), np.zeros(size, np.int64))
    direction, pace, since, mark = np.zeros(size), 1.0, 0, -np.inf
    tables, outside = (forest.order, forest.parent, forest.linear, forest.quadratic), forest.least_outside
    while pace > _LEAST and best.bound <= most and best.permutation is None:
        for _ in range(_STEPS):
            _, bound, places = least_places(*tables, at)
            bound += outside
            crowd = np.bincount(places, minlength=size) - 1.0
            missing = max(most - bound, 1e-3 * abs(most), 1.0)
            since += 1
            if bound > best.bound or not crowd.any():
                best = Bounded(bound, at, places)
            if bound > mark + _WORTH * missing:
                mark, since = bound, 0
            if not crowd.any() or best.bound > most:
                break
            if since > _PATIENCE:
                at, pace, since = best.multipliers, pace * _LESS, 0
                continue
            direction = _MOMENTUM * direction + crowd
            step = pace * missing / max(float(direction @ direction), 1.0)
            at = np.rint(at + step * direction).clip(-_LARGEST, _LARGEST)
        yield best


class Slack(NamedTuple):
    """What places cost above the bound (1): of a root (n,), of others [grandparent, parent, own] (n, n, n)."""

    bound: float
    places: dict[int, Floats]


def slack_of(forest: Forest, multipliers: Floats, most: float) -> Slack:
    """What a choice of places costs above the bound, up to ``most``, (4); infinite where they do not occur together."""
    subtrees, trees, _ = least_places(forest.order, forest.parent, forest.linear, forest.quadratic, multipliers)
    bound, same = trees + forest.least_outside, np.eye(len(forest.order), dtype=bool)
    places: dict[int, Floats] = {}
    # The least of all else with an item's parent at h and the item at k, so that the total is rest + W.
    rest: dict[int, Floats] = {}
    for i in forest.order.tolist():
        above = forest.parent[i]
        if above < 0:
            slack = subtrees[i].diagonal() - subtrees[i].diagonal().min()
            places[i] = np.where(bound + slack <= most, slack, np.inf)
            rest[i] = np.where(same, bound - subtrees[i].diagonal().min(), np.inf)
            continue
        cost = forest.quadratic[i] + subtrees[i]
        least = _least_elsewhere(cost)
        # A root's parent has no place, so that h = k excludes nothing there.
        shut = same[:, None, :] if forest.parent[above] >= 0 else np.zeros((1, 1, 1), bool)
        others = np.where(shut, np.inf, (rest[above] + subtrees[above] - least)[:, :, None])
        places[i] = np.where(others + cost <= most, cost - least[:, :, None], np.inf)
        rest[i] = others.min(0) + forest.quadratic[i]
    return Slack(bound, places)


def _least_elsewhere(cost: Floats) -> Floats:
    """Least cost (n, n) of an item that is not at h, its parent at k; 0 where no place is left, and all is infinite."""
    two = np.partition(cost, 1, axis=1)[:, :2]
    here = cost.argmin(axis=1) == np.arange(len(cost))[:, None]
    least = np.where(here, two[:, 1], two[:, 0])
    return np.where(np.isinf(least), 0.0, least)


MOST_CHOICES = 300_000
"""Rows of all tables, beyond which loading the model takes seconds."""
_PAUSE = 0.0005


class Found(NamedTuple):
    """Lower bound (11), scaled, and the locations (n,) of the best permutation; None if there is none so far."""

    bound: float
    places: Ints | None


@dataclass
class _Model:
    """The constraint program, its locations and its objective."""

    program: cp_model.CpModel
    places: list[cp_model.IntVar]
    costs: list[cp_model.IntVar]

    def table(self, items: list[int], cost: Floats) -> None:
        """Let the places of items cost what an array says, if it is finite, (8)."""
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
    """Number of rows of all tables (8)."""
    return sum(int(np.isfinite(cost).sum()) for cost in slack.places.values())


def solutions(forest: Forest, slack: Slack, most: float, first: Flags, seed: int) -> Iterator[Found]:
    """What CP-SAT knows, several times a second, where the root of the first tree is at ``first`` (n,) alone, (12)."""
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
    """The program (7) to (10)."""
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
