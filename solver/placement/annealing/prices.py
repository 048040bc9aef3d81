r"""
Compiled price of a placement, in parts that a small change touches.

Sets: positions :math:`p = z \cdot pp + x` with R sites each, as in ``taut.formulations.placement``.

(1) A replica's pipeline takes the sum of its stages, (m - 1) times the longest, and h times its slowest rank's trip.
(2) A tensor group's all-reduces run over its slowest link, where a site is less than the group.
(3) A stage's ring counts replicas by node, with the slowest link inside a node and between nodes
    (``taut.formulations.rings`` (2)), or is AMP's flat ring.
(4) A placement costs the largest (1) over replicas plus the largest (3) over stages. This is the evaluator's step time
    (``taut.formulations.latency``) without optimizer and constant, priced one replica or one ring at a time.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.links import slower_direction
from taut.formulations.pair_table import PairTable
from taut.formulations.placement import PlacementProblem
from taut.formulations.rings import inside_factor, ring_factor, ring_steps


class Pairs(NamedTuple):
    """
    Figures of pairs of sites in compiled loops (``taut.formulations.pair_table``).

    ``block_of`` (S,); ``apart`` (B, B) of two sites, ``own`` (B,) of a site with itself.
    """

    block_of: Ints
    apart: Floats
    own: Floats


def _pairs(table: PairTable) -> Pairs:
    return Pairs(table.blocks.of, np.ascontiguousarray(table.apart), np.ascontiguousarray(table.own))


class Prices(NamedTuple):
    """
    Arrays that price a placement; S sites.

    ``micro_batches`` m and ``weight`` h of (1); ``site_seconds`` (pp, S) of a stage on one site, which include the
    all-reduces where a site is a whole tensor group (``ring_bytes`` is then zero); ``node_of_site`` (S,);
    ``ring_bytes`` and ``ring_steps`` (pp,) of (2), on links of ``inverse`` seconds per byte and ``latency`` seconds;
    hops of ``hop_latency`` seconds and ``hop_inverse`` seconds per byte for ``messages`` (pp - 1,) bytes;
    ``data_inverse`` seconds per byte of rings over ``gradients`` (pp,) bytes; ``flat`` for AMP's ring, whose latencies
    ``flat_latency`` multiplies; ``wide`` where a site is a whole node; ``slowest_hop`` seconds per byte of any hop.
    """

    pp: int
    micro_batches: int
    weight: float
    site_seconds: Floats
    node_of_site: Ints
    ring_bytes: Floats
    ring_steps: Floats
    inverse: Pairs
    latency: Pairs
    hop_latency: Pairs
    hop_inverse: Pairs
    messages: Floats
    data_inverse: Pairs
    gradients: Floats
    flat: bool
    flat_latency: float
    wide: bool
    slowest_hop: float


class Scratch(NamedTuple):
    """Scratch of (3): distinct sites of one ring, replicas on each, slowest link inside; and each site's number."""

    members: Ints
    replicas: Ints
    inside: Floats
    where: Ints


def prices_of(problem: PlacementProblem) -> Prices:
    """
    Build the arrays of a placement problem.

    Parameters
    ----------
    problem
        The strategy to place.

    Returns
    -------
    Prices
        Its arrays; a site's own link is left out where no group has two devices in a site.
    """
    links, planning = problem.links, problem.problem
    inverse, latency = 1.0 / links.rate, links.latency
    if not links.by_node or problem.ranks == problem.candidate.tp > 1:
        # A site holds one device of a group: no link of the group lies inside it.
        inverse = PairTable(inverse.blocks, inverse.apart, 0.0 * latency.own)
        latency = PairTable(latency.blocks, latency.apart, 0.0 * latency.own)
    seconds = problem.stage_seconds[:, planning.type_of_node[links.node_of_site]]
    ring_bytes = problem.ring_bytes
    if problem.ranks == 1:
        seconds = seconds + np.outer(ring_bytes, inverse.by_site()) + np.outer(problem.ring_steps, latency.by_site())
        ring_bytes = np.zeros_like(ring_bytes)
    return Prices(
        pp=problem.candidate.pp,
        micro_batches=problem.candidate.num_micro_batches,
        weight=planning.transfer_weight(problem.candidate),
        site_seconds=seconds,
        node_of_site=links.node_of_site,
        ring_bytes=ring_bytes,
        ring_steps=problem.ring_steps,
        inverse=_pairs(inverse),
        latency=_pairs(latency),
        hop_latency=_pairs(problem.hop_latency),
        hop_inverse=_pairs(problem.hop_inverse),
        messages=problem.messages,
        data_inverse=_pairs(slower_direction(1.0 / links.data_rate)),
        gradients=problem.gradients,
        flat=planning.latency_model == "amp",
        flat_latency=planning.coefficient("data_parallel"),
        wide=links.by_node,
        slowest_hop=max(problem.hop_inverse.present().max(initial=0.0), problem.hop_inverse.own.max()),
    )


@jit
def pipeline_seconds(prices: Prices, pos: Ints, z: int) -> float:
    """
    Price one replica's pipeline, (1).

    Parameters
    ----------
    prices
        Arrays of the placement problem.
    pos
        Sites of every position, (pp * dp, R).
    z
        The replica.

    Returns
    -------
    float
        Seconds.
    """
    # Arrays are bound once: each look-up through the tuple would count a reference.
    site_seconds = prices.site_seconds
    (block_of, hop_latency, own_latency), messages = prices.hop_latency, prices.messages
    _, hop_inverse, own_inverse = prices.hop_inverse
    pp, ranks, has_ring = prices.pp, pos.shape[1], prices.ring_bytes[0] > 0.0
    total, worst = 0.0, 0.0
    for x in range(pp):
        seconds = 0.0
        for y in range(ranks):
            seconds = max(seconds, site_seconds[x, pos[z * pp + x, y]])
        if has_ring:
            seconds += _tensor_ring(prices, pos, z * pp + x, x)
        total += seconds
        worst = max(worst, seconds)
    trip = 0.0
    for y in range(ranks):
        hops = 0.0
        for x in range(pp - 1):
            a, b = pos[z * pp + x, y], pos[z * pp + x + 1, y]
            if a == b:
                k = block_of[a]
                hops += own_latency[k] + messages[x] * own_inverse[k]
            else:
                i, j = block_of[a], block_of[b]
                hops += hop_latency[i, j] + messages[x] * hop_inverse[i, j]
        trip = max(trip, hops)
    if prices.micro_batches > 1:
        total += (prices.micro_batches - 1) * worst
    return float(total + prices.weight * trip)


@jit
def _tensor_ring(prices: Prices, pos: Ints, p: int, x: int) -> float:
    """Tensor-parallel seconds of stage x on the group of sites at position p."""
    (block_of, inverse, own_inverse), (_, latency, own_latency) = prices.inverse, prices.latency
    rate, steps = 0.0, 0.0
    for y in range(pos.shape[1]):
        k = block_of[pos[p, y]]
        if prices.wide:
            rate = max(rate, own_inverse[k])
            steps = max(steps, own_latency[k])
        for w in range(pos.shape[1]):
            if w != y:
                j = block_of[pos[p, w]]
                rate = max(rate, inverse[k, j])
                steps = max(steps, latency[k, j])
    return float(prices.ring_bytes[x] * rate + prices.ring_steps[x] * steps)


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
    inside, between, steps, touched = 0.0, 0.0, 0.0, 0.0
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
    return inside, between, steps, touched
