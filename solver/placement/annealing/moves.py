"""Moves of annealing from a placement to a neighbour: ``taut.solver.placement.annealing.anneal`` (1) to (5)."""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.solver.placement.annealing.prices import Prices

LONGEST = 4
"""Pipelines that a migrated or reversed substring reaches over at most: a move's price grows with them."""


@jit
def random_move(prices: Prices, pos: Ints) -> tuple[int, int, int]:
    """Make one random move; returns the touched replicas as a range with a step, step 0 for no move."""
    size, ranks, pp = pos.shape[0], pos.shape[1], prices.pp
    kind = np.random.random()
    a, b = np.random.randint(size), np.random.randint(size)
    if ranks > 1 and kind < 0.3:
        if not _swap_sites(prices, pos, a, b):
            return 0, 0, 0
    elif a == b:
        return 0, 0, 0
    elif kind < 0.75:
        for y in range(ranks):
            pos[a, y], pos[b, y] = pos[b, y], pos[a, y]
    elif kind < 0.91 and abs(a - b) <= LONGEST * pp:
        if kind < 0.83:
            _migrate(pos, a, b)
        else:
            _reverse(pos, min(a, b), max(a, b))
        return min(a, b) // pp, max(a, b) // pp, 1
    elif a // pp != b // pp:
        _exchange_ends(pos, a // pp * pp, b // pp * pp, b % pp, pp)
    else:
        return 0, 0, 0
    first, last = min(a, b) // pp, max(a, b) // pp
    return first, last, max(last - first, 1)


@jit
def _swap_sites(prices: Prices, pos: Ints, a: int, b: int) -> bool:
    """Move (5), unless it would take a device out of its group's node."""
    y, w = np.random.randint(pos.shape[1]), np.random.randint(pos.shape[1])
    if not prices.wide and prices.node_of_site[pos[a, y]] != prices.node_of_site[pos[b, w]]:
        return False
    pos[a, y], pos[b, w] = pos[b, w], pos[a, y]
    return True


@jit
def _migrate(pos: Ints, a: int, b: int) -> None:
    """Move (2): take position a out and put it in at b."""
    towards = 1 if b > a else -1
    for y in range(pos.shape[1]):
        moved = pos[a, y]
        for p in range(a, b, towards):
            pos[p, y] = pos[p + towards, y]
        pos[b, y] = moved


@jit
def _reverse(pos: Ints, low: int, high: int) -> None:
    """Move (3)."""
    while low < high:
        for y in range(pos.shape[1]):
            pos[low, y], pos[high, y] = pos[high, y], pos[low, y]
        low += 1
        high -= 1


@jit
def _exchange_ends(pos: Ints, one: int, other: int, x: int, pp: int) -> None:
    """Move (4): exchange stages x.. of the pipelines that begin at two positions."""
    for s in range(x, pp):
        for y in range(pos.shape[1]):
            pos[one + s, y], pos[other + s, y] = pos[other + s, y], pos[one + s, y]
