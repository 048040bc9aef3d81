r"""
The price of ring collectives: the one home of their factors.

Data: n members; M bytes that each member holds; B bytes/s and :math:`\lambda` seconds of the slowest link of the ring.

(1) An all-reduce on one ring is a reduce-scatter and an all-gather of n - 1 steps each, with M / n bytes a step:

    .. math:: ring(M, n) = 2 \frac{n - 1}{n} \frac{M}{B} + 2 (n - 1) \lambda.

(2) The hierarchical all-reduce of replicas on k nodes, the fullest of which holds g of them, has two rings inside every
    node (one before, one after) and one ring between the nodes:

    .. math:: T_{DP} = \max_v 4 \frac{g_v - 1}{g_v} \frac{M}{B_v} + 2 \frac{k - 1}{k} \frac{M}{B_{between}}.

(3) A node's cards of :math:`N_v` bytes/s serve :math:`G_v` devices. A ring with g members on a node runs through the
    cards of all of them at once, and :math:`G_v / g` such rings share the cards. A member's card is as fast as the
    node's fastest link to another node, :math:`b_v`, and has :math:`N_v / G_v` at the most, so between nodes a ring
    gets

    .. math:: \frac{1}{B_{between}} = \max \Big( \max_{ij} \frac{1}{B_{ij}}, \;
        \max_v \frac{1}{g_v} \max \big( \frac{G_v}{N_v}, \frac{1}{b_v} \big) \Big)

    over its pairs of members in different nodes that are slower than the cards of both, :math:`B_{ij} <
    \min(b_i, b_j)`; what slows these lies between the nodes, and is taken to be shared. Where a node states no cards,
    all pairs count. The papers' latency models give every member :math:`N_v / G_v`.
(4) A flat ring is (1) over the slowest link between any two of the replicas, wherever they lie.

Compiled loops call the same functions.

References
----------
Patarasuk and Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations: (1).
Yim et al. (2024), Pipette, eq. 6: (2). Li et al. (2022), AMP, eq. 3: (4).
"""

from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import Warming, called_inside, jit, jit_inside
from taut.formulations.links import Links, PairTable, slower_direction

MOST_IN_PYTHON = 20_000
"""Members of rings, times the blocks that they meet, that Python prices in one process: below a tenth of a second."""


@overload
def ring_factor(members: float) -> float: ...
@overload
def ring_factor(members: Floats | Ints) -> Floats: ...
@called_inside
def ring_factor(members: float | Floats | Ints) -> float | NDArray[np.floating]:
    """Share of the message that crosses each link of one ring of so many members, 2 (n - 1) / n of (1)."""
    return 2.0 * (members - 1) / members


@overload
def inside_factor(members: float) -> float: ...
@overload
def inside_factor(members: Floats | Ints) -> Floats: ...
@called_inside
def inside_factor(members: float | Floats | Ints) -> float | NDArray[np.floating]:
    """Share of the message that crosses each link of the rings of g replicas in a node, 4 (g - 1) / g of (2)."""
    return 4.0 * (members - 1) / members


@overload
def ring_steps(members: int) -> int: ...
@overload
def ring_steps(members: Ints) -> Ints: ...
@called_inside
def ring_steps(members: int | Ints) -> int | Ints:
    """Steps of one ring of so many members, each of which takes the latency of a link, 2 (n - 1) of (1)."""
    return 2 * (members - 1)


@dataclass(frozen=True, eq=False)
class RingRates:
    """
    What the links and cards give to data-parallel rings, (3).

    ``inverse`` are seconds per byte between sites in the slower direction, of pairs as fast as their cards those of all
    cards of a node; ``card`` (nodes,) those of a node's cards for a ring with one member there, zero where they are not
    stated or counted in ``inverse``; ``latency`` seconds of flat rings, (4), None where rings are hierarchical, (2).
    """

    inverse: PairTable
    card: Floats
    latency: PairTable | None = None


def ring_rates(links: Links, *, by_members: bool, flat: bool = False) -> RingRates:
    """Rates of rings whose share of cards grows with their members (3) or is equal for each, or flat ones (4)."""
    if not by_members:
        return RingRates(links.ring_inverse, np.zeros(links.num_nodes), links.latency if flat else None)
    inverse, stated = slower_direction(1.0 / links.rate), np.isfinite(links.cards)
    fastest, whole = _fastest_by_node(links, inverse), 1.0 / links.cards
    card = np.where(stated, np.maximum(links.gpus_per_node / links.cards, fastest), 0.0)
    nodes = links.node_of_site[inverse.blocks.first]
    of_cards = np.maximum.outer(fastest[nodes], fastest[nodes])
    covered = np.logical_and.outer(stated[nodes], stated[nodes]) & (inverse.apart <= of_cards) & ~links.same_node.apart
    apart = np.where(covered, np.maximum.outer(whole[nodes], whole[nodes]), inverse.apart)
    return RingRates(PairTable(inverse.blocks, apart, inverse.own), card)


def _fastest_by_node(links: Links, inverse: PairTable) -> Floats:
    """Seconds per byte of the fastest link from every node to another, (nodes,); zero for a node alone."""
    blocks, found = inverse.blocks, np.full(links.num_nodes, np.inf)
    others = blocks.pairs & ~links.same_node.apart
    np.minimum.at(found, links.node_of_site, np.where(others, inverse.apart, np.inf).min(axis=1)[blocks.of])
    return np.where(np.isfinite(found), found, 0.0)


def ring_by_byte(rates: RingRates, sites: Ints, nodes: Ints) -> Floats:
    """Seconds per byte (...) of hierarchical all-reduces of members by site and node, (..., dp), (2) and (3)."""
    table, dp = rates.inverse, sites.shape[-1]
    figures = _Figures(table.blocks.of, table.apart, table.own, np.asarray(rates.card, dtype=np.float64))
    each = np.ascontiguousarray(sites).reshape(-1, dp), np.ascontiguousarray(nodes).reshape(-1, dp)
    return np.asarray(_price_rings(sites.size * min(dp, len(table.own)), figures, *each).reshape(sites.shape[:-1]))


def ring_seconds(rates: RingRates, sites: Ints, nodes: Ints) -> tuple[Floats, Floats]:
    """Seconds per byte, and of latency on top, (...) each, of rings (2) or (4) by site and node, (..., dp)."""
    if rates.latency is None:
        return ring_by_byte(rates, sites, nodes), np.zeros(sites.shape[:-1])
    n = sites.shape[-1]
    pairs, apart = (sites[..., :, None], sites[..., None, :]), ~np.eye(n, dtype=bool)
    inverse, latency = (
        np.where(apart, table[pairs], 0.0).max(axis=(-1, -2)) for table in (rates.inverse, rates.latency)
    )
    return ring_factor(n) * inverse, ring_steps(n) * latency


class _Figures(NamedTuple):
    """Blocks of sites (S,), inverse rates of two sites and of one by block, and cards by node."""

    block_of: Ints
    apart: Floats
    own: Floats
    card: Floats


class _Ring(NamedTuple):
    """One ring: members by site and node, sites by block, its blocks, a node of each, slowest links inside nodes."""

    at_site: Ints
    at_node: Ints
    in_block: Ints
    blocks: Ints
    node_of_block: Ints
    slowest: Floats


@jit
def _rings(figures: _Figures, sites: Ints, nodes: Ints) -> Floats:
    """Seconds per byte of rings with members (rings, dp), (2) and (3)."""
    many_sites, many_nodes, many_blocks = len(figures.block_of), len(figures.card), len(figures.own)
    ring = _Ring(
        np.zeros(many_sites, np.int64),
        np.zeros(many_nodes, np.int64),
        np.zeros(many_blocks, np.int64),
        np.zeros(many_blocks, np.int64),
        np.zeros(many_blocks, np.int64),
        np.zeros(many_nodes),
    )
    found = np.zeros(len(sites))
    for r in range(len(sites)):
        blocks, touched = _counted(figures, ring, sites[r], nodes[r])
        between = _slowest_between(figures, ring, blocks)
        inside, cards = _slowest_inside(figures, ring, sites[r], nodes[r])
        found[r] = inside + ring_factor(touched) * max(between, cards)
    return found


@jit_inside
def _counted(figures: _Figures, ring: _Ring, sites: Ints, nodes: Ints) -> tuple[int, int]:
    """Count the members of a ring; returns how many blocks and nodes it touches."""
    blocks, touched = 0, 0
    for z in range(len(sites)):
        site, node = sites[z], nodes[z]
        block = figures.block_of[site]
        if ring.at_site[site] == 0:
            if ring.in_block[block] == 0:
                ring.blocks[blocks] = block
                ring.node_of_block[block] = node
                blocks += 1
            ring.in_block[block] += 1
        touched += ring.at_node[node] == 0
        ring.at_site[site] += 1
        ring.at_node[node] += 1
    return blocks, touched


@jit_inside
def _slowest_between(figures: _Figures, ring: _Ring, blocks: int) -> float:
    """Slowest link between nodes; links between devices of a node are noted for the node."""
    apart, in_block, node_of_block, slowest = figures.apart, ring.in_block, ring.node_of_block, ring.slowest
    between = 0.0
    for i in range(blocks):
        b = ring.blocks[i]
        if in_block[b] > 1:
            between = max(between, apart[b, b])
        for j in range(i):
            c = ring.blocks[j]
            # Sites of one block are nodes: only devices that were measured one by one may share a node.
            if in_block[b] == 1 and in_block[c] == 1 and node_of_block[b] == node_of_block[c]:
                slowest[node_of_block[b]] = max(slowest[node_of_block[b]], apart[b, c])
            else:
                between = max(between, apart[b, c])
    return float(between)


@jit_inside
def _slowest_inside(figures: _Figures, ring: _Ring, sites: Ints, nodes: Ints) -> tuple[float, float]:
    """Largest 4 (g - 1) / g / B inside a node and G / (N g) of a node; the counts are set back to zero."""
    inside, cards = 0.0, 0.0
    for z in range(len(sites)):
        if ring.at_site[sites[z]] > 1:
            ring.slowest[nodes[z]] = max(ring.slowest[nodes[z]], figures.own[figures.block_of[sites[z]]])
    for z in range(len(sites)):
        node, block = nodes[z], figures.block_of[sites[z]]
        if ring.at_node[node] > 0:
            inside = max(inside, inside_factor(ring.at_node[node]) * ring.slowest[node])
            cards = max(cards, figures.card[node] / ring.at_node[node])
        ring.at_site[sites[z]], ring.at_node[node], ring.in_block[block], ring.slowest[node] = 0, 0, 0, 0.0
    return inside, cards


_price_rings = Warming(_rings, MOST_IN_PYTHON)
