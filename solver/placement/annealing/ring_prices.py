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
    if prices.shards.several:
        return float(message * _between_copies(prices, scratch, pos, x))
    for y in range(pos.shape[1]):
        distinct = _distinct(scratch, pos, x, y, prices.pp, 0, dp, 1)
        inside, between, steps, touched = _slowest_links(prices, scratch, distinct)
        if prices.flat:
            link = max(between, scratch.inside[:distinct].max())
            seconds = ring_factor(dp) * message * link + prices.flat_latency * ring_steps(dp) * steps
        else:
            seconds = message * (inside + ring_factor(touched) * between)
        slowest = max(slowest, seconds)
    return slowest


@jit
def _between_copies(prices: Prices, scratch: Scratch, pos: Ints, x: int) -> float:
    """Seconds for each byte that copies sum, and gather of it at the end: those of the slowest rings."""
    dp, size, share = len(pos) // prices.pp, prices.shards.replicas, prices.shards.share
    summed, gathered = 0.0, 0.0
    for place in range(size):
        summed = max(summed, _by_byte(prices, scratch, pos, x, place, dp, size))
    for first in range(0, dp if share > 0.0 else 0, size):
        gathered = max(gathered, _by_byte(prices, scratch, pos, x, first, first + size, 1))
    return float(summed + share * gathered)


@jit
def find_gathers(prices: Prices, scratch: Scratch, pos: Ints, x: int, first: int, gathers: Floats) -> None:
    """
    Fill the seconds per byte of a gather in the copy that begins with a replica, on one stage.

    Parameters
    ----------
    prices, scratch, pos, x
        As in ``ring_seconds``.
    first
        First replica of the copy.
    gathers
        Its replicas' entries are filled, (pp, dp).
    """
    end = first + prices.shards.replicas
    gathers[x, first:end] = prices.shards.half * _by_byte(prices, scratch, pos, x, first, end, 1)


@jit
def _by_byte(prices: Prices, scratch: Scratch, pos: Ints, x: int, first: int, end: int, step: int) -> float:
    """Seconds per byte of the ring of some replicas of a stage, that of its slowest tensor rank."""
    slowest = 0.0
    for y in range(pos.shape[1]):
        distinct = _distinct(scratch, pos, x, y, prices.pp, first, end, step)
        inside, between, _, touched = _slowest_links(prices, scratch, distinct)
        slowest = max(slowest, inside + ring_factor(touched) * between)
    return float(slowest)


@jit
def _distinct(scratch: Scratch, pos: Ints, x: int, y: int, pp: int, first: int, end: int, step: int) -> int:
    """List the distinct sites of tensor rank y of stage x in some replicas, with these; returns how many."""
    members, replicas, where = scratch.members, scratch.replicas, scratch.where
    distinct = 0
    for z in range(first, end, step):
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
