r"""
Compiled ends of stages, and the price of a placement from its parts: ``taut.solver.placement.annealing.prices`` (4).

In the latency model ``step`` stage x of a replica ends before its pipeline by its lag: the backward passes and gradient
hops of the stages before it (``taut.formulations.placement`` (2)). In the papers' models lags are zero.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.placement.annealing.gather_prices import exposed_seconds
from taut.solver.placement.annealing.prices import Prices, slowest_link


class Ends(NamedTuple):
    """Seconds by replica: ``lags`` and ``backward`` passes of the priced stages (dp, priced), and ``ties`` (dp,)."""

    lags: Floats
    backward: Floats
    ties: Floats


@jit
def new_ends(prices: Prices, dp: int) -> Ends:
    """Zeros for so many replicas."""
    return Ends(np.zeros((dp, prices.priced)), np.zeros((dp, prices.priced)), np.zeros(dp))


@jit
def find_ends(prices: Prices, pos: Ints, z: int, gathers: Floats, ends: Ends) -> None:
    """
    Fill what one replica adds to the ends of stages, (4).

    ``prices``: arrays of the placement problem, of ``step``; ``pos``: sites of every position, (pp * dp, R);
    ``gathers``: seconds per byte of gathers by stage and replica, (pp, dp); read where there are gathers; ``ends``: its
    rows are filled.
    """
    site_backward, messages, pp, ranks = prices.site_backward, prices.messages, prices.pp, pos.shape[1]
    (block_of, latency, own_latency), (_, inverse, own_inverse) = prices.back_latency, prices.back_inverse
    has_ring, has_gathers, lag = prices.ring_bytes[0] > 0.0, prices.gathers.replicas > 0, 0.0
    for x in range(prices.priced):
        seconds, hop, rate, steps = 0.0, 0.0, 0.0, 0.0
        if has_ring:
            rate, steps = slowest_link(prices, pos, z * pp + x)
        for y in range(ranks):
            a = pos[z * pp + x, y]
            own = site_backward[x, a]
            if has_gathers:
                own += exposed_seconds(prices.gathers, 1, x, a, gathers[x, z], rate, steps)
            seconds = max(seconds, own)
            if x + 1 < pp:
                b = pos[z * pp + x + 1, y]
                i, j = block_of[b], block_of[a]
                if a == b:
                    hop = max(hop, own_latency[i] + messages[x] * own_inverse[i])
                else:
                    hop = max(hop, latency[i, j] + messages[x] * inverse[i, j])
        if has_ring:
            seconds += prices.backward_bytes[x] * rate + prices.backward_steps[x] * steps
        ends.lags[z, x], ends.backward[z, x] = lag, seconds
        lag += seconds + hop
    ends.ties[z] = 0.0
    for y in range(ranks if prices.tied > 0.0 else 0):
        ends.ties[z] = max(ends.ties[z], prices.tied * _exchange(prices, pos[z * pp, y], pos[z * pp + pp - 1, y]))


@jit
def _exchange(prices: Prices, a: int, b: int) -> float:
    """Seconds per byte in which two sites exchange a tied embedding."""
    (block_of, inverse, own_inverse), nodes = prices.data_inverse, prices.node_of_site
    if a == b:
        return float(own_inverse[block_of[a]])
    link = inverse[block_of[a], block_of[b]]
    if nodes[a] == nodes[b]:
        return float(link)
    return float(max(link, prices.card[nodes[a]], prices.card[nodes[b]]))


@jit
def placement_seconds(prices: Prices, pipes: Floats, rings: Floats, ends: Ends) -> float:
    """
    Price a placement by its parts, (4).

    ``pipes``, ``rings``: seconds of the replicas' pipelines (dp,) and of the stages' rings (pp,); ``ends``: as filled
    by ``find_ends``; zeros in the papers' models. Returns seconds.
    """
    lags, backward, unhidden = ends.lags, ends.backward, prices.unhidden
    worst = pipes.max() + ends.ties.max()
    for x in range(prices.priced):
        end, hidden, wait = -np.inf, 0.0, rings[x]
        for z in range(len(pipes)):
            end = max(end, pipes[z] - lags[z, x])
            hidden = max(hidden, backward[z, x])
        if prices.overlap:
            wait = max(wait * unhidden[x], wait - hidden)
        worst = max(worst, end + wait)
    return float(worst)
