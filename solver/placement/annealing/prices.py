r"""
Compiled price of a placement, in parts that a small change touches.

Sets: positions :math:`p = z \cdot pp + x` with R sites each, as in ``taut.formulations.placement``.

(1) A replica's pipeline takes the sum of its stages, (m - 1) times the longest, and h times its slowest rank's trip.
(2) A tensor group's all-reduces run over its slowest link, where a site is less than the group.
(3) A stage's ring counts replicas by node, with the slowest link inside a node and between nodes
    (``taut.formulations.rings`` (2)), or is AMP's flat ring.
(4) A placement costs the largest (1) over replicas plus the largest (3) over stages; in the latency model ``step`` a
    stage's replicas end earlier by its lag, and its ring may hide behind its backward pass
    (``taut.formulations.placement`` (2)). This is the evaluator's step time (``taut.formulations.latency``) without
    optimizer and constant, priced one replica or one ring at a time.
(5) A replica's passes wait for the ring of the replicas that it gathers from (``taut.formulations.sharding`` (2)), so a
    change of one of them changes the price of all.

In the latency model ``step`` stage x of a replica ends before its pipeline by its lag: the backward passes and gradient
hops of the stages before it (``taut.formulations.placement`` (2)). In the papers' models lags are zero.

The ring of (3) is priced by the sites, nodes and blocks of alike sites (``taut.formulations.links``) of its members:

(6) Members are counted by site and by node, and sites by block, in one pass.
(7) Links depend on the blocks of their ends alone, so the slowest is found over pairs of blocks: :math:`O(n + B^2)` for
    n members in B blocks, where pairs of members would take :math:`O(n^2)`. Two sites of one block are two nodes.

With the slowest links and shares of the cards the hierarchical all-reduce of ``taut.formulations.rings`` (2) and (3)
follows, or AMP's flat ring.
"""

from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.gradient_reductions import by_device_of
from taut.formulations.links import PairTable
from taut.formulations.placement import PlacementProblem
from taut.formulations.rings import inside_factor, ring_factor, ring_steps
from taut.formulations.sharding import gather_slowdown, sharded_passes
from taut.formulations.terms import gathers_of


class GatherPrices(NamedTuple):
    """
    Arrays of what passes gather and scatter; S sites.

    ``replicas`` that gather from each other, 0 without gathers; ``share`` of an all-reduce that a gather takes, times
    its coefficient; ``slowdown`` of kernels beside gathers; ``sent`` (4, pp) bytes forward alone and beside
    computation, backward alone and beside it; ``site_seconds`` (2, pp, S) of that computation, which include the
    all-reduces where a site is a whole tensor group, else ``ring_bytes`` and ``ring_steps`` (2, pp) are added.
    """

    replicas: int
    share: float
    slowdown: float
    sent: Floats
    site_seconds: Floats
    ring_bytes: Floats
    ring_steps: Floats


def gather_prices(problem: PlacementProblem, inverse: PairTable, latency: PairTable) -> GatherPrices:
    """The arrays of a placement problem, on links inside tensor groups; of several chunks a device they are sums."""
    planning, candidate, links = problem.problem, problem.candidate, problem.links
    gathers = gathers_of(planning.terms(candidate))
    if not gathers:
        none, sites = np.zeros((4, candidate.pp)), np.zeros((2, candidate.pp, links.num_sites))
        return GatherPrices(0, 0.0, 0.0, none, sites, none[:2], none[:2])
    of = sharded_passes(planning, problem.strategy)
    # All terms count in the ring of the first, whose members are blocks.
    anywhere, ring_bytes, steps, sent = (
        by_device_of(candidate, figures.T).T
        for figures in (*of.traffic.by_place(links, candidate.block), of.sent.sum(axis=0))
    )
    types = planning.type_of_node[links.node_of_site]
    seconds = np.stack([by_device_of(candidate, each.T)[:, types] for each in of.seconds]) + anywhere[..., None]
    if problem.ranks == 1:
        seconds = seconds + ring_bytes[..., None] * inverse.by_site() + steps[..., None] * latency.by_site()
        ring_bytes, steps = np.zeros_like(ring_bytes), np.zeros_like(steps)
    group, share = gathers[0].rings[0]
    return GatherPrices(
        replicas=group.in_blocks(candidate.width)[0],
        share=share,
        slowdown=gather_slowdown(planning),
        sent=np.ascontiguousarray(sent),
        site_seconds=np.ascontiguousarray(seconds),
        ring_bytes=np.ascontiguousarray(ring_bytes),
        ring_steps=np.ascontiguousarray(steps),
    )


@jit_inside
def exposed_seconds(
    gathers: GatherPrices, backward: int, x: int, site: int, rate: float, link: float, steps: float
) -> float:
    """Seconds that gathers of ``rate`` s/byte add to a pass of stage x on a site, whose slowest link is ``link``."""
    sent = gathers.sent
    seconds = gathers.site_seconds[backward, x, site]
    seconds += gathers.ring_bytes[backward, x] * link + gathers.ring_steps[backward, x] * steps
    beside = rate * sent[2 * backward + 1, x]
    return float(rate * sent[2 * backward, x] + max(beside - seconds, gathers.slowdown * beside))


class Pairs(NamedTuple):
    """Figures of two sites by block, ``apart`` (B, B) and a site's ``own`` (B,) (``taut.formulations.links``)."""

    block_of: Ints
    apart: Floats
    own: Floats


def _pairs(table: PairTable) -> Pairs:
    return Pairs(table.blocks.of, np.ascontiguousarray(table.apart), np.ascontiguousarray(table.own))


class Prices(NamedTuple):
    """
    Arrays that price a placement; S sites.

    ``micro_batches`` m and ``weight`` h of (1); ``site_seconds`` (pp, S) of a stage on one site, which include the
    all-reduces where a site is a whole tensor group (``ring_bytes`` is then zero); ``node_of_site`` (S,), and
    ``node_of_block`` (B,) of the first sites of blocks, of which those of several sites are of whole nodes;
    ``ring_bytes`` and ``ring_steps`` (pp,) of (2), on links of ``inverse`` seconds per byte and ``latency`` seconds;
    hops of ``hop_latency`` seconds and ``hop_inverse`` seconds per byte for ``messages`` (pp - 1,) bytes;
    ``data_inverse`` seconds per byte of rings over ``gradients`` (pp,) bytes, of which groups with members and stride
    ``ring_groups`` (n, 2) take ``ring_shares`` (n,) one after another; ``flat`` for AMP's ring, whose latencies
    ``flat_latency`` multiplies; ``wide`` where a site is a whole node; ``slowest_hop`` seconds per byte of any hop.

    ``card`` (nodes,) seconds per byte of a ring with one member there; rings of the first ``priced`` stages count. In
    ``step`` (``lags``) a stage's backward pass takes ``site_backward`` (pp, S), with ``backward_bytes`` and
    ``backward_steps`` (pp,) as in (2), its gradient's hop ``back_latency`` and ``back_inverse``; ``unhidden`` (pp,) of
    a reduction are left with ``overlap``; ``tied`` bytes are exchanged between first and last stage; ``gathers`` are
    those of (5).
    """

    pp: int
    micro_batches: int
    weight: float
    site_seconds: Floats
    node_of_site: Ints
    node_of_block: Ints
    ring_bytes: Floats
    ring_steps: Floats
    inverse: Pairs
    latency: Pairs
    hop_latency: Pairs
    hop_inverse: Pairs
    messages: Floats
    data_inverse: Pairs
    gradients: Floats
    ring_groups: Ints
    ring_shares: Floats
    flat: bool
    flat_latency: float
    wide: bool
    slowest_hop: float
    card: Floats
    priced: int
    lags: bool
    site_backward: Floats
    backward_bytes: Floats
    backward_steps: Floats
    back_latency: Pairs
    back_inverse: Pairs
    unhidden: Floats
    overlap: bool
    tied: float
    gathers: GatherPrices


def prices_of(problem: PlacementProblem) -> Prices:
    """The arrays of a placement problem, without a site's own link where no group has two devices in a site."""
    links, planning = problem.links, problem.problem
    inverse, latency = 1.0 / links.rate, links.latency
    if not links.by_node or problem.ranks == problem.candidate.width > 1:
        # A site holds one device of a group: no link of the group lies inside it.
        inverse = PairTable(inverse.blocks, inverse.apart, 0.0 * latency.own)
        latency = PairTable(latency.blocks, latency.apart, 0.0 * latency.own)
    # In order: another layout would compile every loop once more.
    seconds = np.ascontiguousarray(problem.stage_seconds[:, planning.type_of_node[links.node_of_site]])
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
        node_of_block=links.node_of_site[planning.rings.inverse.blocks.first],
        ring_bytes=ring_bytes,
        ring_steps=problem.ring_steps,
        inverse=_pairs(inverse),
        latency=_pairs(latency),
        hop_latency=_pairs(problem.hop_latency),
        hop_inverse=_pairs(problem.hop_inverse),
        messages=problem.messages,
        data_inverse=_pairs(planning.rings.inverse),
        gradients=problem.gradients,
        ring_groups=np.array([ring.group.in_blocks(problem.candidate.width) for ring in problem.rings]),
        ring_shares=np.array([ring.share for ring in problem.rings]),
        flat=planning.latency.rings_are_flat,
        flat_latency=planning.coefficient("data_parallel"),
        wide=links.by_node,
        slowest_hop=max(problem.hop_inverse.present().max(initial=0.0), problem.hop_inverse.own.max()),
        card=planning.rings.card,
        **_ends_of(problem, inverse, latency),
    )


def _ends_of(problem: PlacementProblem, inverse: PairTable, latency: PairTable) -> dict[str, Any]:
    """Arrays of ``step``; empty ones in the papers' models."""
    links, planning, ends, none = problem.links, problem.problem, problem.ends, np.zeros((1, 1))
    weight, back = planning.coefficient("pipeline"), 1.0 / links.pipeline_rate(problem.candidate.width)
    types = planning.type_of_node[links.node_of_site]
    seconds = none if ends is None else np.ascontiguousarray(ends.backward_seconds[:, types])
    ring_bytes = none[0] if ends is None else ends.ring_bytes
    if ends is not None and problem.ranks == 1:
        seconds = seconds + np.outer(ring_bytes, inverse.by_site()) + np.outer(ends.ring_steps, latency.by_site())
    return {
        "priced": problem.priced,
        "lags": ends is not None,
        "site_backward": seconds,
        "backward_bytes": ring_bytes,
        "backward_steps": none[0] if ends is None else ends.ring_steps,
        "back_latency": _pairs(weight * links.latency),
        "back_inverse": _pairs(weight * back),
        "unhidden": none[0] if ends is None else ends.unhidden,
        "overlap": ends is not None and ends.overlap,
        "tied": 0.0 if ends is None else ends.tied,
        "gathers": gather_prices(problem, inverse, latency),
    }


@jit
def pipeline_seconds(prices: Prices, pos: Ints, z: int, gathers: Floats) -> float:
    """Seconds of replica z's pipeline at sites (pp dp, R), (1) and (5), with ``gathers`` (pp, dp) in s/byte."""
    # Arrays are bound once: each look-up through the tuple would count a reference.
    site_seconds = prices.site_seconds
    (block_of, hop_latency, own_latency), messages = prices.hop_latency, prices.messages
    _, hop_inverse, own_inverse = prices.hop_inverse
    pp, ranks, has_ring = prices.pp, pos.shape[1], prices.ring_bytes[0] > 0.0
    has_gathers = prices.gathers.replicas > 0
    total, worst = 0.0, 0.0
    for x in range(pp):
        seconds, rate, steps = 0.0, 0.0, 0.0
        if has_ring:
            rate, steps = slowest_link(prices, pos, z * pp + x)
        for y in range(ranks):
            site = pos[z * pp + x, y]
            own = site_seconds[x, site]
            if has_gathers:
                own += exposed_seconds(prices.gathers, 0, x, site, gathers[x, z], rate, steps)
                own += exposed_seconds(prices.gathers, 1, x, site, gathers[x, z], rate, steps)
            seconds = max(seconds, own)
        if has_ring:
            seconds += prices.ring_bytes[x] * rate + prices.ring_steps[x] * steps
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
def slowest_link(prices: Prices, pos: Ints, p: int) -> tuple[float, float]:
    """Seconds per byte and latency of the slowest link of the group of sites at position p."""
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
    return rate, steps


class Ends(NamedTuple):
    """Seconds by replica: ``lags`` and ``backward`` passes of the priced stages (dp, priced), and ``ties`` (dp,)."""

    lags: Floats
    backward: Floats
    ties: Floats


@jit_inside
def new_ends(prices: Prices, dp: int) -> Ends:
    """Zeros for so many replicas."""
    return Ends(np.zeros((dp, prices.priced)), np.zeros((dp, prices.priced)), np.zeros(dp))


@jit_inside
def find_ends(prices: Prices, pos: Ints, z: int, gathers: Floats, ends: Ends) -> None:
    """Fill the row of ``ends`` with what replica z at sites (pp dp, R) adds to the ends of stages, (4)."""
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


@jit_inside
def _exchange(prices: Prices, a: int, b: int) -> float:
    """Seconds per byte in which two sites exchange a tied embedding."""
    (block_of, inverse, own_inverse), nodes = prices.data_inverse, prices.node_of_site
    if a == b:
        return float(own_inverse[block_of[a]])
    link = inverse[block_of[a], block_of[b]]
    if nodes[a] == nodes[b]:
        return float(link)
    return float(max(link, prices.card[nodes[a]], prices.card[nodes[b]]))


@jit_inside
def placement_seconds(prices: Prices, pipes: Floats, rings: Floats, ends: Ends) -> float:
    """Seconds of a placement by its pipelines (dp,), rings (pp,) and what ends its stages, (4)."""
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


class Counts(NamedTuple):
    """Distinct things met, members of each, and by thing its number among them, -1 where it is not met."""

    distinct: Ints
    members: Ints
    number: Ints


class Scratch(NamedTuple):
    """Scratch of (6) and (7): what the members of one ring are on, and the slowest link inside each node."""

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
    end, slowest = first + prices.gathers.replicas, 0.0
    for y in range(pos.shape[1]):
        inside, between, _, touched = _slowest_links(prices, scratch, pos, x, y, first, end, 1)
        slowest = max(slowest, inside + ring_factor(touched) * between)
    gathers[x, first:end] = prices.gathers.share * slowest


@jit_inside
def _slowest_links(
    prices: Prices, scratch: Scratch, pos: Ints, x: int, y: int, first: int, end: int, step: int
) -> tuple[float, float, float, int]:
    """Largest 4 (g-1)/g / B inside a node, slowest link between nodes, latency, and nodes touched, by members (6)."""
    node_of, block_of, slowest = prices.node_of_site, prices.data_inverse.block_of, scratch.inside
    on_sites, on_nodes, on_blocks = scratch.sites, scratch.nodes, scratch.blocks
    sites, nodes, blocks = 0, 0, 0
    for z in range(first, end, step):
        site = pos[z * prices.pp + x, y]
        if on_sites.number[site] < 0:
            blocks = _meet(on_blocks, block_of[site], blocks)
        sites = _meet(on_sites, site, sites)
        nodes = _meet(on_nodes, node_of[site], nodes)
    steps = _own_links(prices, scratch, sites, nodes)
    between, apart = _links_of_blocks(prices, scratch, blocks)
    inside, cards = 0.0, 0.0
    for a in range(nodes):
        together = on_nodes.members[a]
        inside = max(inside, inside_factor(together) * slowest[a])
        cards = max(cards, prices.card[on_nodes.distinct[a]] / together)
    _forget(on_sites, sites)
    _forget(on_nodes, nodes)
    _forget(on_blocks, blocks)
    return inside, max(between, cards), max(steps, apart), nodes


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
    """Slowest link between nodes and largest latency between sites, (7); links inside nodes go to the scratch."""
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
