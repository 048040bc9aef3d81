r"""
Compiled price of one stage's data-parallel ring: ``taut.solver.placement.annealing.prices`` (3).

Sets: members of a ring; the sites, nodes and blocks of alike sites (``taut.formulations.links``) that they are on.

(1) Members are counted by site and by node, and sites by block, in one pass.
(2) Links depend on the blocks of their ends alone, so the slowest is found over pairs of blocks: :math:`O(n + B^2)` for
    n members in B blocks, where pairs of members would take :math:`O(n^2)`. Two sites of one block are two nodes.

With the slowest links and shares of the cards the hierarchical all-reduce of ``taut.formulations.rings`` (2) and (3)
follows, or AMP's flat ring.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.rings import inside_factor, ring_factor, ring_steps
from taut.solver.placement.annealing.prices import Prices


class Counts(NamedTuple):
    """Distinct things met, members of each, and by thing its number among them, -1 where it is not met."""

    distinct: Ints
    members: Ints
    number: Ints


class Scratch(NamedTuple):
    """Scratch of (1) and (2): what the members of one ring are on, and the slowest link inside each node."""

    sites: Counts
    nodes: Counts
    blocks: Counts
    inside: Floats


@jit
def new_scratch(prices: Prices, dp: int) -> Scratch:
    """Make the scratch that rings of a placement problem share."""
    return Scratch(
        _new_counts(dp, len(prices.node_of_site)),
        _new_counts(dp, len(prices.card)),
        _new_counts(dp, len(prices.data_inverse.own)),
        np.zeros(dp),
    )


@jit_inside
def _new_counts(most: int, things: int) -> Counts:
    return Counts(np.zeros(most, np.int64), np.zeros(most, np.int64), np.full(things, -1, np.int64))


@jit
def ring_seconds(prices: Prices, scratch: Scratch, pos: Ints, x: int) -> float:
    """Seconds of stage x's data-parallel ring at sites (pp dp, R), (3): that of its slowest tensor rank."""
    message, slowest = prices.gradients[x], 0.0
    if message == 0.0:
        return 0.0
    dp = len(pos) // prices.pp
    if not prices.flat:
        seconds: float = message * _reduction_rate(prices, scratch, pos, x)
        return seconds
    for y in range(pos.shape[1]):
        _, between, steps, touched = _slowest_links(prices, scratch, pos, x, y, 0, dp, 1)
        link = max(between, scratch.inside[:touched].max())
        seconds = ring_factor(dp) * message * link + prices.flat_latency * ring_steps(dp) * steps
        slowest = max(slowest, seconds)
    return float(slowest)


@jit_inside
def _reduction_rate(prices: Prices, scratch: Scratch, pos: Ints, x: int) -> float:
    """Seconds per byte of one stage's rings, one after another, each that of its slowest group and tensor rank."""
    groups, shares, dp, ranks = prices.ring_groups, prices.ring_shares, len(pos) // prices.pp, pos.shape[1]
    total = 0.0
    # One function: a call with all arrays counts a reference of each.
    for r in range(len(shares)):
        stride, slowest = groups[r, 1], 0.0
        count = groups[r, 0] * stride
        for first in range(0, dp, count):
            for place in range(first, first + stride):
                for y in range(ranks):
                    links = _slowest_links(prices, scratch, pos, x, y, place, first + count, stride)
                    slowest = max(slowest, links[0] + ring_factor(links[3]) * links[1])
        total += shares[r] * slowest
    return float(total)


@jit_inside
def find_gathers(prices: Prices, scratch: Scratch, pos: Ints, x: int, first: int, gathers: Floats) -> None:
    """Fill ``gathers`` (pp, dp) of stage x for the group of replicas from ``first`` on, in seconds per byte."""
    end = first + prices.gathers.replicas
    gathers[x, first:end] = prices.gathers.share * _by_byte(prices, scratch, pos, x, first, end, 1)


@jit_inside
def _by_byte(prices: Prices, scratch: Scratch, pos: Ints, x: int, first: int, end: int, step: int) -> float:
    """Seconds per byte of the ring of some replicas of a stage, that of its slowest tensor rank."""
    slowest = 0.0
    for y in range(pos.shape[1]):
        inside, between, _, touched = _slowest_links(prices, scratch, pos, x, y, first, end, step)
        slowest = max(slowest, inside + ring_factor(touched) * between)
    return float(slowest)


@jit_inside
def _slowest_links(
    prices: Prices, scratch: Scratch, pos: Ints, x: int, y: int, first: int, end: int, step: int
) -> tuple[float, float, float, int]:
    """Largest 4 (g-1)/g / B inside a node, slowest link between nodes, latency, and nodes touched."""
    sites, nodes, blocks = _count(prices, scratch, pos, x, y, first, end, step)
    on_nodes, slowest = scratch.nodes, scratch.inside
    steps = _own_links(prices, scratch, sites, nodes)
    between, apart = _links_of_blocks(prices, scratch, blocks)
    inside, cards = 0.0, 0.0
    for a in range(nodes):
        together = on_nodes.members[a]
        inside = max(inside, inside_factor(together) * slowest[a])
        cards = max(cards, prices.card[on_nodes.distinct[a]] / together)
    _forget(scratch.sites, sites)
    _forget(on_nodes, nodes)
    _forget(scratch.blocks, blocks)
    return inside, max(between, cards), max(steps, apart), nodes


@jit_inside
def _count(
    prices: Prices, scratch: Scratch, pos: Ints, x: int, y: int, first: int, end: int, step: int
) -> tuple[int, int, int]:
    """Count (1) the members of tensor rank y of stage x in some replicas; returns sites, nodes and blocks met."""
    node_of, block_of = prices.node_of_site, prices.data_inverse.block_of
    on_sites, on_nodes, on_blocks = scratch.sites, scratch.nodes, scratch.blocks
    number = on_sites.number
    sites, nodes, blocks = 0, 0, 0
    for z in range(first, end, step):
        site = pos[z * prices.pp + x, y]
        if number[site] < 0:
            blocks = _meet(on_blocks, block_of[site], blocks)
        sites = _meet(on_sites, site, sites)
        nodes = _meet(on_nodes, node_of[site], nodes)
    return sites, nodes, blocks


@jit_inside
def _meet(counts: Counts, thing: int, met: int) -> int:
    """Count one more on a thing; returns how many distinct things are met now."""
    distinct, members, number = counts
    if number[thing] < 0:
        number[thing] = met
        distinct[met] = thing
        members[met] = 0
        met += 1
    members[number[thing]] += 1
    return met


@jit_inside
def _forget(counts: Counts, met: int) -> None:
    """Leave no thing met."""
    distinct, _, number = counts
    for a in range(met):
        number[distinct[a]] = -1


@jit_inside
def _own_links(prices: Prices, scratch: Scratch, sites: int, nodes: int) -> float:
    """Begin the slowest links inside nodes with those of sites with several members; returns their latency."""
    (block_of, _, own_inverse), own_latency = prices.data_inverse, prices.latency.own
    (distinct, members, _), number, slowest = scratch.sites, scratch.nodes.number, scratch.inside
    slowest[:nodes] = 0.0
    steps = 0.0
    for a in range(sites):
        if members[a] > 1:
            k, node = block_of[distinct[a]], number[prices.node_of_site[distinct[a]]]
            slowest[node] = max(slowest[node], own_inverse[k])
            steps = max(steps, own_latency[k])
    return steps


@jit_inside
def _links_of_blocks(prices: Prices, scratch: Scratch, met: int) -> tuple[float, float]:
    """Slowest link between nodes and largest latency between sites, (2); links inside nodes go to the scratch."""
    _, inverse, _ = prices.data_inverse
    latency, slowest = prices.latency.apart, scratch.inside
    (blocks, sites, _), on = scratch.blocks, scratch.nodes.number
    between, steps = 0.0, 0.0
    for a in range(met):
        k = blocks[a]
        if sites[a] > 1:
            between, steps = max(between, inverse[k, k]), max(steps, latency[k, k])
        for b in range(a):
            j = blocks[b]
            link = max(inverse[k, j], inverse[j, k])
            steps = max(steps, max(latency[k, j], latency[j, k]))
            if prices.node_of_block[k] == prices.node_of_block[j]:
                node = on[prices.node_of_block[k]]
                slowest[node] = max(slowest[node], link)
            else:
                between = max(between, link)
    return between, steps
