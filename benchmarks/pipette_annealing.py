r"""
Pipette's annealing of a placement, as its paper states it (Yim et al., section IV and algorithm 1).

Stated: the mapping is a string that starts in identity order; a move migrates one element, swaps two, or reverses a
substring; one iteration (lines 9-15) makes one move and estimates the latency of the whole mapping; the temperature is
multiplied by :math:`\alpha = 0.999`; the best mapping of 10 seconds is kept.

Not stated, and read here:

(1) the three moves are equally likely and their places uniform;
(2) a worse mapping by :math:`\Delta` seconds is accepted with probability :math:`e^{-\Delta/T}`, equals always;
(3) T starts at the step time of the start, and falls once in an iteration: it is cold after some 15,000 of them, and
    what follows is a descent along equals;
(4) elements are tensor groups, not devices: a torn group would cost more than any order gains;
(5) identity order is that of the devices, pipeline by pipeline or stage by stage, whichever is faster.

Beside it, for the benefit of the doubt, the same with restarts: a chain that is frozen starts again, hot, from a random
order. Latencies are priced with the loops of ``taut.solver.placement.annealing.prices``, the fastest that we have.
"""

import time
from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

import numpy as np
from numba import njit

from taut.data.arrays import Floats, Ints
from taut.formulations.placement import PlacementProblem
from taut.solver.placement.annealing.prices import (
    Prices,
    Scratch,
    new_scratch,
    pipeline_seconds,
    prices_of,
    ring_seconds,
)

ALPHA = 0.999
MOVES = 2_000
"""Moves between two looks at the clock."""
FROZEN = 1e-6
"""Temperature, as a share of the first, below which a chain may be restarted."""
PATIENCE = 3
"""Moves without improvement, in squares of the string's length, after which it is."""
NOW, BEST, TEMPERATURE, STALE = range(4)


class Chain(NamedTuple):
    """Positions being tried, accepted and best; ``figures`` are seconds now and best, temperature, stale moves."""

    tried: Ints
    accepted: Ints
    best: Ints
    figures: Floats


def identity(given: PlacementProblem) -> Ints:
    """The faster of the two identity orders, (5)."""
    pp, dp = given.candidate.pp, given.candidate.dp
    by_stage = given.slots.reshape(pp, dp, -1).swapaxes(0, 1).reshape(pp * dp, -1)
    return min((given.slots, by_stage), key=given.cost).copy()


def pipette_annealing(
    given: PlacementProblem, seconds: Sequence[float], seed: int, *, restarting: bool = False, stop: Event | None = None
) -> list[float]:
    """
    Step seconds of the best placements that one run has found after each of some wall times.

    Parameters
    ----------
    given
        What is placed.
    seconds
        When to look, in any order; the run lasts as long as the last.
    seed
        Of the moves.
    restarting
        Whether frozen chains start again.
    stop
        Ends the run early where it is set.
    """
    prices = prices_of(given)
    scratch = new_scratch(prices, given.candidate.dp)
    rng, start = np.random.default_rng(seed), identity(given)
    chain = _chain(prices, scratch, start)
    best, found = (chain.figures[BEST], start), {}
    # The first call loads the compiled loop.
    _advance(prices, scratch, chain, *_drawn(rng, len(start), 0))
    began = time.perf_counter()
    for end in sorted(set(seconds)):
        while time.perf_counter() < began + end and not (stop and stop.is_set()):
            _advance(prices, scratch, chain, *_drawn(rng, len(start), MOVES))
            if chain.figures[BEST] < best[0]:
                best = (chain.figures[BEST], chain.best.copy())
            if restarting and _is_frozen(chain):
                chain = _chain(prices, scratch, rng.permutation(start))
        found[end] = given.cost(best[1])
    return [found[end] for end in seconds]


def _chain(prices: Prices, scratch: Scratch, start: Ints) -> Chain:
    """A hot chain, (3)."""
    seconds = _price(prices, scratch, start)
    return Chain(start.copy(), start.copy(), start.copy(), np.array([seconds, seconds, seconds, 0.0]))


def _is_frozen(chain: Chain) -> bool:
    figures = chain.figures
    cold = figures[TEMPERATURE] < FROZEN * figures[NOW]
    return bool(cold and figures[STALE] > PATIENCE * len(chain.best) ** 2)


def _drawn(rng: np.random.Generator, positions: int, count: int) -> tuple[Ints, Floats]:
    """Kind and two places of some moves, (1), and the chances by which worse ones are accepted."""
    return np.stack([rng.integers(top, size=count) for top in (3, positions, positions)], axis=1), rng.random(count)


@njit(cache=True, nogil=True)
def _price(prices: Prices, scratch: Scratch, pos: Ints) -> float:
    """Step seconds of a placement without its constant parts."""
    longest = 0.0
    for z in range(len(pos) // prices.pp):
        longest = max(longest, pipeline_seconds(prices, pos, z, np.zeros((1, 1))))
    return longest + ring_seconds(prices, scratch, pos, 0)


@njit(cache=True, nogil=True)
def _move(pos: Ints, kind: int, a: int, b: int) -> None:
    """Swap elements a and b, migrate a to b, or reverse all between them."""
    if kind == 0:
        pos[a], pos[b] = pos[b].copy(), pos[a].copy()
    elif kind == 1:
        moved = pos[a].copy()
        towards = 1 if b > a else -1
        for p in range(a, b, towards):
            pos[p] = pos[p + towards]
        pos[b] = moved
    else:
        low, high = min(a, b), max(a, b)
        pos[low : high + 1] = pos[low : high + 1][::-1].copy()


@njit(cache=True, nogil=True)
def _advance(prices: Prices, scratch: Scratch, chain: Chain, drawn: Ints, chances: Floats) -> None:
    """Make the drawn moves, one iteration each."""
    tried, accepted, figures = chain.tried, chain.accepted, chain.figures
    for move in range(len(drawn)):
        _move(tried, drawn[move, 0], drawn[move, 1], drawn[move, 2])
        seconds = _price(prices, scratch, tried)
        figures[TEMPERATURE] = max(figures[TEMPERATURE] * ALPHA, 1e-300)
        figures[STALE] += 1.0
        worse = seconds - figures[NOW]
        if worse <= 0.0 or chances[move] < np.exp(-worse / figures[TEMPERATURE]):
            figures[NOW] = seconds
            accepted[:] = tried
            if seconds < figures[BEST]:
                figures[BEST], figures[STALE] = seconds, 0.0
                chain.best[:] = tried
        else:
            tried[:] = accepted
