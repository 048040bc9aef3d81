r"""
Lower bound on quadratic assignment whose flow is sparse: multipliers on locations, trees solved exactly.

The flow is written as a spanning forest T and the pairs outside it. In a tree every item i but the root has a parent
p. With :math:`c_i(k, l) = f_{pi} d_{kl} + f_{ip} d_{lk}` for p at k and i at l, and multipliers :math:`u_k` of any
sign, every permutation costs

.. math:: z(\pi) = \sum_{i} (f_{ii} d_{\pi_i \pi_i} + u_{\pi_i}) + \sum_{i \in T} c_i(\pi_p, \pi_i)
    + \sum_{\text{pairs outside } T} (\cdot) - \sum_k u_k. \tag{1}

Let items share locations, but for an item, its parent and the parent of that. Then the least cost of a tree comes from
its leaves [1]_: with i at k and its parent at h, the subtree of i costs

.. math:: W_i(h, k) = f_{ii} d_{kk} + u_k + \sum_{j \text{ child of } i} \min_{l \ne h, k}
    \left( c_j(k, l) + W_j(k, l) \right), \tag{2}

where a root has no h. The least of (2) over the places of every root, plus the least cost of every pair outside T,
minus the sum of u, is a lower bound for any u, (3). It is concave in u, and (number of items at k) - 1 is a
supergradient, (4): u rises where items crowd. If every location has one item, nothing was relaxed, and outside T
nothing is left: the places are a best permutation, (5).

The least total with the grandparent at h, the parent at k and i at l follows from the roots down, (6); where it exceeds
what a better permutation costs, the three places do not occur together.

Costs are scaled by S and rounded down to integers, and so is u, so that sums of floats are exact and bounds on them are
bounds on z, as in :mod:`taut.solver.qap.pair_costs`.

References
----------
.. [1] Christofides, N. and Benavent, E. (1989). An exact algorithm for the quadratic assignment problem on a tree.
       Operations Research 37: 760-768.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree, shortest_path

from taut.formulations.assignment import QuadraticAssignment
from taut.solver.qap.pair_costs import is_exact, scale_of

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_SHORT = 2.0**-12  # Integers this much smaller still tell multipliers apart, and are easier to solve with.
_STEPS = 50
_MOMENTUM, _PATIENCE, _LESS, _LEAST = 0.3, 30, 0.7, 1e-3


class Forest(NamedTuple):
    """
    A sparse flow as a spanning forest and the pairs outside it, scaled and rounded down.

    ``order`` (n,) lists parents before children, ``parent`` (n,) is -1 at roots. ``single`` (n, n) is the cost of item
    i at location k, ``paired`` (n, n, n) that of i at l with its parent at k, ``outside`` has (i, j, cost (n, n) of i
    at k and j at l) for each other pair. Entries of one location taken twice are infinite.
    """

    scale: float
    order: _Ints
    parent: _Ints
    single: _Floats
    paired: _Floats
    outside: tuple[tuple[int, int, _Floats], ...]

    @property
    def least_outside(self) -> float:
        """Least scaled cost of the pairs outside the forest."""
        return float(sum(cost.min() for _, _, cost in self.outside))


def forest_of(problem: QuadraticAssignment) -> Forest | None:
    """
    Write a problem as (1).

    Parameters
    ----------
    problem
        Flow and distance (n, n).

    Returns
    -------
    Forest
        With a spanning forest of greatest flow, the largest tree first and each from a centre; None where more than n
        pairs of items have a flow.
    """
    size, flow = problem.size, np.triu(np.maximum(np.abs(problem.flow), np.abs(problem.flow.T)), 1)
    if np.count_nonzero(flow) > size:
        return None
    order, parent = _trees(flow)
    scale = scale_of(problem)
    scale = max(1.0, _SHORT * scale) if is_exact(problem, scale) else scale
    single = np.outer(problem.flow.diagonal(), problem.distance.diagonal())
    single = np.floor(scale * single) - (0.0 if is_exact(problem, scale) else 1.0)
    paired = np.zeros((size, size, size))
    for i in order[parent[order] >= 0]:
        paired[i] = _pair(problem, scale, parent[i], i)
    others = [(i, j) for i, j in np.argwhere(flow).tolist() if parent[i] != j and parent[j] != i]
    return Forest(scale, order, parent, single, paired, tuple((i, j, _pair(problem, scale, i, j)) for i, j in others))


def _trees(flow: _Floats) -> tuple[_Ints, _Ints]:
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


def _pair(problem: QuadraticAssignment, scale: float, first: int, second: int) -> _Floats:
    """Scaled cost (n, n) of two items, the first at k and the second at l; infinite for k = l."""
    less = 0.0 if is_exact(problem, scale) else 1.0
    there, back = scale * problem.flow[first, second], scale * problem.flow[second, first]
    cost: _Floats = np.floor(there * problem.distance) + np.floor(back * problem.distance.T) - 2 * less
    np.fill_diagonal(cost, np.inf)
    return cost


class Bounded(NamedTuple):
    """A scaled bound (3), the multipliers (n,) that give it, and places (n,) of least cost under them."""

    bound: float
    multipliers: _Floats
    places: _Ints

    @property
    def permutation(self) -> _Ints | None:
        """The places where every location has one item, (5)."""
        return self.places if len(np.unique(self.places)) == len(self.places) else None


def forest_bounds(forest: Forest, most: float) -> Iterator[Bounded]:
    """
    Ascend along (4).

    Parameters
    ----------
    forest
        The problem.
    most
        Scaled cost of interest: the steps aim at it, and a bound above it ends them.

    Yields
    ------
    Bounded
        The best so far, after every fifty steps, until it is above ``most``, (5) holds or steps gain little.
    """
    size = len(forest.order)
    at, best = np.zeros(size), Bounded(-np.inf, np.zeros(size), np.zeros(size, np.int64))
    direction, pace, since = np.zeros(size), 1.0, 0
    tables, outside = (forest.order, forest.parent, forest.single, forest.paired), forest.least_outside
    while pace > _LEAST and best.bound <= most and best.permutation is None:
        for _ in range(_STEPS):
            _, bound, places = least_places(*tables, at)
            crowd = np.bincount(places, minlength=size) - 1.0
            since += 1
            if bound + outside > best.bound:
                best, since = Bounded(bound + outside, at, places), 0
            if not crowd.any() or best.bound > most:
                break
            if since > _PATIENCE:
                at, pace, since = best.multipliers, pace * _LESS, 0
                continue
            direction = _MOMENTUM * direction + crowd
            missing = max(most - bound - outside, 1e-3 * abs(most))
            at = np.rint(at + pace * missing / max(float(direction @ direction), 1.0) * direction)
        yield best


@njit(cache=True, nogil=True)
def least_places(
    order: _Ints, parent: _Ints, single: _Floats, paired: _Floats, multipliers: _Floats
) -> tuple[_Floats, float, _Ints]:
    """
    Solve the trees, (2).

    Returns
    -------
    tuple
        W (n, n, n) as [item, parent's location, own location], with the same location twice for a root; the least sum
        of all trees minus that of u; and the places (n,) that cost it.
    """
    size = len(order)
    subtrees, chosen = np.zeros((size, size, size)), np.zeros((size, size, 2), np.int64)
    for i in range(size):
        subtrees[i] = single[i] + multipliers
    for i in order[::-1]:
        above = parent[i]
        if above < 0:
            continue
        for k in range(size):
            best, second = np.inf, np.inf
            for place in range(size):
                cost = paired[i, k, place] + subtrees[i, k, place]
                if cost < best:
                    best, second, chosen[i, k, 1], chosen[i, k, 0] = cost, best, chosen[i, k, 0], place
                elif cost < second:
                    second, chosen[i, k, 1] = cost, place
            for h in range(size):
                subtrees[above, h, k] += second if h == chosen[i, k, 0] else best
    total, places = -multipliers.sum(), np.zeros(size, np.int64)
    for i in order:
        above = parent[i]
        if above < 0:
            roots = np.array([subtrees[i, k, k] for k in range(size)])
            places[i] = roots.argmin()
            total += roots[places[i]]
            continue
        k = places[above]
        h = places[parent[above]] if parent[above] >= 0 else k
        places[i] = chosen[i, k, 1 if chosen[i, k, 0] == h else 0]
    return subtrees, total, places


class Slack(NamedTuple):
    """What places cost above the bound (3): of a root (n,), of others [grandparent, parent, own] (n, n, n)."""

    bound: float
    places: dict[int, _Floats]


def slack_of(forest: Forest, multipliers: _Floats, most: float) -> Slack:
    """
    Share what a choice of places costs above the bound over the items, without choices that exceed ``most``, (6).

    Parameters
    ----------
    forest
        The problem.
    multipliers
        u (n,), integers.
    most
        Scaled cost that no permutation of interest exceeds.

    Returns
    -------
    Slack
        Not negative; infinite for places that do not occur together. Over all items they sum to what the trees cost
        above the bound.
    """
    size = len(forest.order)
    subtrees, trees, _ = least_places(*forest[1:5], multipliers)
    bound = trees + forest.least_outside
    same = np.eye(size, dtype=bool)
    places: dict[int, _Floats] = {}
    # The rest of all trees, with the item's parent at h and the item at k; then the total is rest + W.
    rest: dict[int, _Floats] = {}
    children: dict[int, list[int]] = {i: [] for i in forest.order}
    for i in forest.order:
        above = forest.parent[i]
        if above >= 0:
            children[above].append(i)
    for i in forest.order:
        if forest.parent[i] < 0:
            roots = subtrees[i].diagonal()
            places[i] = np.where(bound + roots - roots.min() <= most, roots - roots.min(), np.inf)
            rest[i] = np.where(same, bound - roots.min(), np.inf)
        total = rest[i] + subtrees[i]
        for j in children[i]:
            cost = forest.paired[j] + subtrees[j]
            two = np.partition(cost, 1, axis=1)[:, :2]
            least = np.where(cost.argmin(1)[None, :] == np.arange(size)[:, None], two[:, 1], two[:, 0])
            # A root's parent has no place, so that h = k excludes nothing there.
            shut = same[:, None, :] if forest.parent[i] >= 0 else np.zeros((1, 1, 1), bool)
            others = np.where(shut, np.inf, (total - least)[:, :, None])
            places[j] = np.where(others + cost <= most, cost - least[:, :, None], np.inf)
            rest[j] = others.min(0) + forest.paired[j]
    return Slack(bound, places)
