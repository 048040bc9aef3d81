r"""
The price of ring collectives: the one home of their factors.

Data: n members; M bytes that each member holds; B bytes/s and :math:`\lambda` seconds of the slowest link of the ring.

(1) An all-reduce on one ring is a reduce-scatter and an all-gather of n - 1 steps each, with M / n bytes a step:

    .. math:: ring(M, n) = 2 \frac{n - 1}{n} \frac{M}{B} + 2 (n - 1) \lambda.

(2) The hierarchical all-reduce of replicas on k nodes, the fullest of which holds g of them, has two rings inside every
    node (one before, one after) and one ring between the nodes:

    .. math:: T_{DP} = \max_v 4 \frac{g_v - 1}{g_v} \frac{M}{B_v} + 2 \frac{k - 1}{k} \frac{M}{B_{between}}.

(3) A node's cards of :math:`N_v` bytes/s serve :math:`G_v` devices. A ring with g members on a node crosses its cards
    once, and :math:`G_v / g` rings do so together, so between nodes a ring gets

    .. math:: \frac{1}{B_{between}} = \max \Big( \max_{ij} \frac{1}{B_{ij}}, \; \max_v \frac{G_v}{N_v g_v} \Big)

    over its pairs of members in different nodes. The papers' latency models give every member :math:`N_v / G_v`.

Compiled loops call the same functions: a module with a kernel passes them to ``numba.extending.register_jitable``.

References
----------
Patarasuk and Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations: (1).
Yim et al. (2024), Pipette, eq. 6: (2).
"""

from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from taut.data.arrays import Floats, Ints
from taut.formulations.links import Links


@overload
def ring_factor(members: float) -> float: ...
@overload
def ring_factor(members: Floats | Ints) -> Floats: ...
def ring_factor(members: float | Floats | Ints) -> float | NDArray[np.floating]:
    """
    Share of the message that crosses each link of one ring, 2 (n - 1) / n of (1); also the ring between nodes of (2).

    Parameters
    ----------
    members
        n members of a flat ring, or k nodes; at least 1, a number or an array of any shape.

    Returns
    -------
    float or array
        The factor of M / B, of the shape of ``members``.
    """
    return 2.0 * (members - 1) / members


@overload
def inside_factor(members: float) -> float: ...
@overload
def inside_factor(members: Floats | Ints) -> Floats: ...
def inside_factor(members: float | Floats | Ints) -> float | NDArray[np.floating]:
    """
    Share of the message that crosses each link inside a node in the two rings there, 4 (g - 1) / g of (2).

    Parameters
    ----------
    members
        g replicas on the node; at least 1, a number or an array of any shape.

    Returns
    -------
    float or array
        The factor of M / B, of the shape of ``members``.
    """
    return 4.0 * (members - 1) / members


@overload
def ring_steps(members: int) -> int: ...
@overload
def ring_steps(members: Ints) -> Ints: ...
def ring_steps(members: int | Ints) -> int | Ints:
    """
    Steps of one ring, each of which takes the latency of a link, 2 (n - 1) of (1).

    Parameters
    ----------
    members
        n members; a number or an array of any shape.

    Returns
    -------
    int or array
        Steps, of the shape of ``members``.
    """
    return 2 * (members - 1)


@dataclass(frozen=True, eq=False)
class RingRates:
    """
    What the links and cards give to data-parallel rings, (3).

    Parameters
    ----------
    inverse
        Seconds per byte between sites in the slower direction, (S, S), symmetric.
    card
        Seconds per byte of a node's cards for a ring with one member there, G / N, (nodes,); zero where cards are not
        stated, or counted in ``inverse``.
    """

    inverse: Floats
    card: Floats


def ring_rates(links: Links, *, by_members: bool) -> RingRates:
    """
    Rates of data-parallel rings.

    Parameters
    ----------
    links
        Bandwidth between sites, and cards.
    by_members
        Whether a ring's share of the cards grows with its members on the node, (3); otherwise every member has an equal
        share, as in the papers.

    Returns
    -------
    RingRates
        Inverse rates of links and cards.
    """
    if not by_members:
        return RingRates(links.ring_inverse, np.zeros(links.num_nodes))
    inverse = 1.0 / links.rate
    return RingRates(np.maximum(inverse, inverse.T), links.gpus_per_node / links.cards)


def ring_by_byte(rates: RingRates, sites: Ints, nodes: Ints) -> Floats:
    """
    Seconds per byte of hierarchical all-reduces, (2) and (3).

    Parameters
    ----------
    rates
        Inverse rates of links and cards.
    sites, nodes
        Site and node of every member, (..., dp).

    Returns
    -------
    array
        Seconds per byte, (...).
    """
    pair = rates.inverse[sites[..., :, None], sites[..., None, :]]
    same = nodes[..., :, None] == nodes[..., None, :]
    members = same.sum(axis=-1)
    own = np.where(same & ~np.eye(sites.shape[-1], dtype=bool), pair, 0.0).max(axis=-1)
    inside = (inside_factor(members) * own).max(axis=-1)
    touched = (1.0 / members).sum(axis=-1)
    between = np.where(same, 0.0, pair).max(axis=(-1, -2))
    cards = (rates.card[nodes] / members).max(axis=-1)
    return np.asarray(inside + ring_factor(touched) * np.maximum(between, cards))
