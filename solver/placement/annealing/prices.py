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
from numba.extending import register_jitable

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.placement import PlacementProblem
from taut.formulations.rings import inside_factor, ring_factor, ring_steps

register_jitable(inside_factor)
register_jitable(ring_factor)
register_jitable(ring_steps)


class Prices(NamedTuple):
    """
    Arrays that price a placement; S sites.

    ``micro_batches`` m and ``weight`` h of (1); ``site_seconds`` (pp, S) of a stage on one site, which include the
    all-reduces where a site is a whole tensor group (``ring_bytes`` is then zero); ``node_of_site`` (S,);
    ``ring_bytes`` and ``ring_steps`` (pp,) of (2), on links of ``inverse`` (S, S) seconds per byte and ``latency``
    (S, S) seconds; hops of ``hop_latency`` (S, S) seconds and ``hop_inverse`` (S, S) seconds per byte for ``messages``
    (pp - 1,) bytes; ``data_inverse`` (S, S) seconds per byte of rings over ``gradients`` (pp,) bytes; ``flat`` for
    AMP's ring, whose latencies ``flat_latency`` multiplies; ``wide`` where a site is a whole node.
    """

    pp: int
    micro_batches: int
    weight: float
    site_seconds: Floats
    node_of_site: Ints
    ring_bytes: Floats
    ring_steps: Floats
    inverse: Floats
    latency: Floats
    hop_latency: Floats
    hop_inverse: Floats
    messages: Floats
    data_inverse: Floats
    gradients: Floats
    flat: bool
    flat_latency: float
    wide: bool


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
    inverse, latency = 1.0 / links.rate, links.latency.copy()
    if not links.by_node or problem.ranks == problem.candidate.tp > 1:
        # A site holds one device of a group: no link of the group lies inside it.
        np.fill_diagonal(inverse, 0.0)
        np.fill_diagonal(latency, 0.0)
    ring = 1.0 / links.data_rate
    seconds = problem.stage_seconds[:, planning.type_of_node[links.node_of_site]]
    ring_bytes = problem.ring_bytes
    if problem.ranks == 1:
        seconds = seconds + np.outer(ring_bytes, np.diag(inverse)) + np.outer(problem.ring_steps, np.diag(latency))
        ring_bytes = np.zeros_like(ring_bytes)
    return Prices(
        pp=problem.candidate.pp,
        micro_batches=problem.candidate.num_micro_batches,
        weight=planning.transfer_weight(problem.candidate),
        site_seconds=seconds,
        node_of_site=links.node_of_site,
        ring_bytes=ring_bytes,
        ring_steps=problem.ring_steps,
        inverse=inverse,
        latency=latency,
        hop_latency=problem.hop_latency,
        hop_inverse=problem.hop_inverse,
        messages=problem.messages,
        data_inverse=np.maximum(ring, ring.T),
        gradients=problem.gradients,
        flat=planning.latency_model == "amp",
        flat_latency=planning.coefficient("data_parallel"),
        wide=links.by_node,
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
    hop_latency, hop_inverse, messages = prices.hop_latency, prices.hop_inverse, prices.messages
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
            hops += hop_latency[a, b] + messages[x] * hop_inverse[a, b]
        trip = max(trip, hops)
    if prices.micro_batches > 1:
        total += (prices.micro_batches - 1) * worst
    return float(total + prices.weight * trip)


@jit
def _tensor_ring(prices: Prices, pos: Ints, p: int, x: int) -> float:
    """Tensor-parallel seconds of stage x on the group of sites at position p."""
    inverse, latency = prices.inverse, prices.latency
    rate, steps = 0.0, 0.0
    for y in range(pos.shape[1]):
        site = pos[p, y]
        if prices.wide:
            rate = max(rate, inverse[site, site])
            steps = max(steps, latency[site, site])
        for w in range(pos.shape[1]):
            if w != y:
                rate = max(rate, inverse[site, pos[p, w]])
                steps = max(steps, latency[site, pos[p, w]])
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
    inverse, latency, nodes = prices.data_inverse, prices.latency, prices.node_of_site
    inside, between, steps, touched = 0.0, 0.0, 0.0, 0.0
    for a in range(distinct):
        site, own = members[a], 0.0
        if replicas[a] > 1:
            own = inverse[site, site]
            steps = max(steps, latency[site, site])
        for b in range(distinct):
            other = members[b]
            if b != a:
                steps = max(steps, latency[site, other])
                if nodes[other] == nodes[site]:
                    own = max(own, inverse[site, other])
                else:
                    between = max(between, inverse[site, other])
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
