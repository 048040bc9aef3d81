r"""
Compiled price of one stage's data-parallel ring: ``taut.solver.placement.annealing.prices`` (3).

Members of one ring are counted by site, sites by node; with their slowest links and shares of the cards the
hierarchical all-reduce of ``taut.formulations.rings`` (2) and (3) follows, or AMP's flat ring.
"""

from typing import NamedTuple

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.rings import inside_factor, ring_factor, ring_steps
from taut.solver.placement.annealing.prices import Prices


class Scratch(NamedTuple):
    """Scratch of (3): distinct sites of one ring, replicas on each, slowest link inside; and each site's number."""

    members: Ints
    replicas: Ints
    inside: Floats
    where: Ints


@jit
def ring_seconds(prices: Prices, scratch: Scratch, pos: Ints, x: int) -> float:
    """
    Price one stage's data-parallel ring, (3), that of its slowest tensor rank.

    Parameters
    ----------
    prices
        Arrays of the placement problem.
    scratch
        Scratch for one ring.
    pos
        Sites of every position, (pp * dp, R).
    x
        The stage.

    Returns
    -------
    float
        Seconds.
    """
    message, slowest = prices.gradients[x], 0.0
    if message == 0.0:
        return 0.0
    dp = len(pos) // prices.pp
    for y in range(pos.shape[1]):
        distinct = _distinct(scratch, pos, x, y, prices.pp)
        inside, between, steps, touched = _slowest_links(prices, scratch, distinct)
        if prices.flat:
            link = max(between, scratch.inside[:distinct].max())
            seconds = ring_factor(dp) * message * link + prices.flat_latency * ring_steps(dp) * steps
        else:
            seconds = message * (inside + ring_factor(touched) * between)
        slowest = max(slowest, seconds)
    return slowest


@jit
def _distinct(scratch: Scratch, pos: Ints, x: int, y: int, pp: int) -> int:
    """List the distinct sites of tensor rank y of stage x with their replicas; returns how many."""
    members, replicas, where = scratch.members, scratch.replicas, scratch.where
    distinct = 0
    for z in range(len(pos) // pp):
        site = pos[z * pp + x, y]
        if where[site] < 0:
            where[site] = distinct
            members[distinct] = site
            replicas[distinct] = 0
            distinct += 1
        replicas[where[site]] += 1
    for a in range(distinct):
        where[members[a]] = -1
    return distinct


@jit
def _slowest_links(prices: Prices, scratch: Scratch, distinct: int) -> tuple[float, float, float, float]:
    """Largest 4 (g-1)/g / B inside a node, slowest link between nodes, latency, and nodes touched."""
    members, replicas, slowest = scratch.members, scratch.replicas, scratch.inside
    (block_of, inverse, own_inverse), (_, latency, own_latency) = prices.data_inverse, prices.latency
    nodes = prices.node_of_site
    inside, between, cards, steps, touched = 0.0, 0.0, 0.0, 0.0, 0.0
    for a in range(distinct):
        site, own = members[a], 0.0
        k = block_of[site]
        if replicas[a] > 1:
            own = own_inverse[k]
            steps = max(steps, own_latency[k])
        for b in range(distinct):
            other = members[b]
            if b != a:
                j = block_of[other]
                steps = max(steps, latency[k, j])
                if nodes[other] == nodes[site]:
                    own = max(own, inverse[k, j])
                else:
                    between = max(between, inverse[k, j])
        slowest[a] = own
    for a in range(distinct):
        # A node's slowest link is the slowest over its members, and its replicas are theirs together.
        own, together = 0.0, 0
        for b in range(distinct):
            if nodes[members[b]] == nodes[members[a]]:
                own = max(own, slowest[b])
                together += replicas[b]
        inside = max(inside, inside_factor(together) * own)
        touched += replicas[a] / together
        cards = max(cards, prices.card[nodes[members[a]]] / together)
    return inside, max(between, cards), steps, touched
