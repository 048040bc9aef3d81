r"""
Lagrangian bound on quadratic assignment of sparse flow, and reduced costs of locations above it.

With the trees and the costs W of ``taut.solver.qap.forest_flow``, the least W over the places of every root, plus
the least cost of every pair outside the forest, minus the sum of u, is a lower bound for any u, (1). It is concave in
u, and (number of items at k) - 1 is a supergradient, (2): u rises where items crowd, by subgradient steps with
momentum [1]_ [2]_. If every location has one item, no u gives a better bound, and where no pair is outside the places
are a best permutation, (3).

The least total with the grandparent at h, the parent at k and i at l follows from the roots down, (4); where it exceeds
what a better permutation costs, the three places do not occur together.

References
----------
.. [1] Held, M., Wolfe, P. and Crowder, H.P. (1974). Validation of subgradient optimization. Mathematical Programming 6:
       62-88.
.. [2] Camerini, P.M., Fratta, L. and Maffioli, F. (1975). On improving relaxation methods by modified gradient
       techniques. Mathematical Programming Study 3: 26-34.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.solver.qap.forest_flow import Forest, least_places

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
    """
    Ascend along (2).

    ``most``: scaled cost of interest: the steps aim at it, and a bound above it ends them. Yields the best so far,
    after every fifty steps, until it is above ``most``, (3) holds or steps gain little.
    """
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
    """
    Share what a choice of places costs above the bound over the items, without choices that exceed ``most``, (4).

    ``multipliers``: u (n,), integers; ``most``: scaled cost that no permutation of interest exceeds. Returns not
    negative; infinite for places that do not occur together. Over all items they sum to what the trees cost above the
    bound.
    """
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
