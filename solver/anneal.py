r"""
Placement by simulated annealing: good placements fast, never a bound.

The state is the string of positions :math:`p = z \cdot pp + x`, as in ``taut.formulations.placement``. Moves:

(1) swap two positions;
(2) migrate one position to another place of the string, shifting those between;
(3) reverse a substring (these are the three moves of Yim et al., Pipette, section IV);
(4) exchange the ends of two pipelines from one stage on;
(5) where single sites can move, swap two of them, inside a node if a tensor group must lie in one.

A worse neighbour by :math:`\Delta` seconds is accepted with probability :math:`e^{-\Delta / T}`; the temperature T
falls geometrically. The objective is the step time plus a small share of the mean pipeline time, which leads across
the plateaus that a maximum leaves. Only the replicas and rings that a move touches are priced again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from taut.formulations.placement import PlacementProblem
from taut.solver.starts import starts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PLATEAU = 1e-3
"""Weight of the mean pipeline time beside the step time."""
HOT, COLD = 5e-2, 1e-5
"""First and last temperature as shares of the communication's size."""
LONGEST = 4
"""Migrated and reversed substrings reach over at most this many pipelines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annealed:
    """A placement: seconds (optimizer excluded) and the sites of every position, (pp * dp, R)."""

    seconds: float
    positions: Ints


class _Prices(NamedTuple):
    """
    Arrays that price a placement; ``wide`` where a site is a whole node, ``flat`` for AMP's ring.

    ``site_seconds[x, site]`` is stage x on one site; where a site is a whole tensor group it holds the group's
    all-reduces, and ``ring_bytes`` is zero.
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
    wide: bool


class _Scratch(NamedTuple):
    """Room for the distinct sites of one ring."""

    members: Ints
    replicas: Ints
    inside: Floats
    where: Ints


def best_start(problem: PlacementProblem, patterns: tuple[int, ...]) -> Annealed:
    """The best of the constructed placements; ``patterns`` says which class of device each stage wants."""
    built = [_anneal(problem, positions, moves=0, seed=0) for positions in starts(problem, patterns)]
    return min(built, key=lambda start: start.seconds)


def anneal(problem: PlacementProblem, start: Annealed, *, moves: int, seed: int) -> Annealed:
    """
    Improve a placement by ``moves`` annealing moves.

    The same seed, start and number of moves give the same placement. Never worse than ``start``.
    """
    if len(start.positions) * problem.ranks < 2:
        return start
    return _anneal(problem, start.positions, moves=moves, seed=seed)


def move_cost(problem: PlacementProblem) -> int:
    """Rough number of link look-ups that one move takes, by which callers choose how many to make."""
    candidate = problem.candidate
    pipelines = 2 * candidate.pp * problem.ranks * (1 + problem.ranks)
    priced = np.count_nonzero(problem.gradients) / candidate.pp
    ring = problem.ranks * min(candidate.dp, problem.links.num_sites) ** 2
    return int(pipelines + 2 * priced * ring) + 1


def _anneal(problem: PlacementProblem, positions: Ints, *, moves: int, seed: int) -> Annealed:
    seconds, found = _run(_prices(problem), positions.copy(), moves, seed)
    return Annealed(seconds=float(seconds), positions=found)


def _prices(problem: PlacementProblem) -> _Prices:
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
    return _Prices(
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
        wide=links.by_node,
    )


@njit(cache=True, nogil=True)
def _run(prices: _Prices, pos: Ints, moves: int, seed: int) -> tuple[float, Ints]:
    """Anneal the positions in place; returns the best seconds and positions."""
    np.random.seed(seed)
    pp = prices.pp
    dp = len(pos) // pp
    scratch = _Scratch(
        np.zeros(dp, np.int64),
        np.zeros(dp, np.int64),
        np.zeros(dp),
        np.full(len(prices.node_of_site), -1, np.int64),
    )
    pipes, rings = np.zeros(dp), np.zeros(pp)
    for z in range(dp):
        pipes[z] = _pipeline(prices, pos, z)
    for x in range(pp):
        rings[x] = _ring(prices, scratch, pos, x)
    best, best_pos = pipes.max() + rings.max(), pos.copy()
    soft = best + PLATEAU * pipes.mean()
    old, old_pipes, old_rings = pos.copy(), pipes.copy(), rings.copy()
    spread = rings.max() + prices.weight * prices.messages.sum() * prices.hop_inverse.max() + 1e-300
    if np.isfinite(pipes.max()):
        spread += pipes.max() - pipes.min()
    gradients = prices.gradients
    # Rings are priced on stage 0 alone, except for AMP.
    ringed = pp if prices.flat else 1
    temperature = HOT * spread
    cooling = (COLD / HOT) ** (1.0 / max(moves, 1))
    for _ in range(moves):
        temperature *= cooling
        first, last, step = _move(prices, pos)
        if step == 0:
            continue
        for z in range(first, last + 1, step):
            pipes[z] = _pipeline(prices, pos, z)
        for x in range(ringed):
            if gradients[x] > 0.0 and _stage_changed(pos, old, x, pp, first, last, step):
                rings[x] = _ring(prices, scratch, pos, x)
        value = pipes.max() + rings.max()
        softened = value + PLATEAU * pipes.mean()
        if softened <= soft or np.random.random() < np.exp((soft - softened) / temperature):
            soft = softened
            _copy(pos, old, pipes, old_pipes, pp, first, last, step)
            old_rings[:] = rings
            if value < best:
                best = value
                best_pos[:] = pos
        else:
            _copy(old, pos, old_pipes, pipes, pp, first, last, step)
            rings[:] = old_rings
    return best, best_pos


@njit(cache=True, nogil=True)
def _copy(pos: Ints, to: Ints, pipes: Floats, to_pipes: Floats, pp: int, first: int, last: int, step: int) -> None:
    """Copy the touched replicas' positions and seconds."""
    for z in range(first, last + 1, step):
        to_pipes[z] = pipes[z]
        to[z * pp : (z + 1) * pp] = pos[z * pp : (z + 1) * pp]


@njit(cache=True, nogil=True)
def _stage_changed(pos: Ints, old: Ints, x: int, pp: int, first: int, last: int, step: int) -> bool:
    for z in range(first, last + 1, step):
        for y in range(pos.shape[1]):
            if pos[z * pp + x, y] != old[z * pp + x, y]:
                return True
    return False


@njit(cache=True, nogil=True)
def _move(prices: _Prices, pos: Ints) -> tuple[int, int, int]:
    """Make one random move; returns the touched replicas as a range with a step, step 0 for no move."""
    size, ranks, pp = pos.shape[0], pos.shape[1], prices.pp
    kind = np.random.random()
    a, b = np.random.randint(size), np.random.randint(size)
    if ranks > 1 and kind < 0.3:
        if not _swap_sites(prices, pos, a, b):
            return 0, 0, 0
    elif a == b:
        return 0, 0, 0
    elif kind < 0.75:
        for y in range(ranks):
            pos[a, y], pos[b, y] = pos[b, y], pos[a, y]
    elif kind < 0.91 and abs(a - b) <= LONGEST * pp:
        if kind < 0.83:
            _migrate(pos, a, b)
        else:
            _reverse(pos, min(a, b), max(a, b))
        return min(a, b) // pp, max(a, b) // pp, 1
    elif a // pp != b // pp:
        _exchange_ends(pos, a // pp * pp, b // pp * pp, b % pp, pp)
    else:
        return 0, 0, 0
    first, last = min(a, b) // pp, max(a, b) // pp
    return first, last, max(last - first, 1)


@njit(cache=True, nogil=True)
def _swap_sites(prices: _Prices, pos: Ints, a: int, b: int) -> bool:
    """Move (5), unless it would take a device out of its group's node."""
    y, w = np.random.randint(pos.shape[1]), np.random.randint(pos.shape[1])
    if not prices.wide and prices.node_of_site[pos[a, y]] != prices.node_of_site[pos[b, w]]:
        return False
    pos[a, y], pos[b, w] = pos[b, w], pos[a, y]
    return True


@njit(cache=True, nogil=True)
def _migrate(pos: Ints, a: int, b: int) -> None:
    """Move (2): take position a out and put it in at b."""
    towards = 1 if b > a else -1
    for y in range(pos.shape[1]):
        moved = pos[a, y]
        for p in range(a, b, towards):
            pos[p, y] = pos[p + towards, y]
        pos[b, y] = moved


@njit(cache=True, nogil=True)
def _reverse(pos: Ints, low: int, high: int) -> None:
    """Move (3)."""
    while low < high:
        for y in range(pos.shape[1]):
            pos[low, y], pos[high, y] = pos[high, y], pos[low, y]
        low += 1
        high -= 1


@njit(cache=True, nogil=True)
def _exchange_ends(pos: Ints, one: int, other: int, x: int, pp: int) -> None:
    """Move (4): exchange stages x.. of the pipelines that begin at two positions."""
    for s in range(x, pp):
        for y in range(pos.shape[1]):
            pos[one + s, y], pos[other + s, y] = pos[other + s, y], pos[one + s, y]


@njit(cache=True, nogil=True)
def _pipeline(prices: _Prices, pos: Ints, z: int) -> float:
    """Seconds of replica z: sum of stages, straggler and trip."""
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


@njit(cache=True, nogil=True)
def _tensor_ring(prices: _Prices, pos: Ints, p: int, x: int) -> float:
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


@njit(cache=True, nogil=True)
def _ring(prices: _Prices, scratch: _Scratch, pos: Ints, x: int) -> float:
    """Data-parallel seconds of stage x, the slowest tensor rank."""
    message, slowest = prices.gradients[x], 0.0
    if message == 0.0:
        return 0.0
    dp = len(pos) // prices.pp
    for y in range(pos.shape[1]):
        distinct = _distinct(scratch, pos, x, y, prices.pp)
        inside, between, steps, touched = _slowest_links(prices, scratch, distinct)
        if prices.flat:
            link = max(between, scratch.inside[:distinct].max())
            seconds = 2.0 * (dp - 1) / dp * message * link + 2 * (dp - 1) * steps
        else:
            seconds = message * (inside + 2.0 * (touched - 1) / touched * between)
        slowest = max(slowest, seconds)
    return slowest


@njit(cache=True, nogil=True)
def _distinct(scratch: _Scratch, pos: Ints, x: int, y: int, pp: int) -> int:
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


@njit(cache=True, nogil=True)
def _slowest_links(prices: _Prices, scratch: _Scratch, distinct: int) -> tuple[float, float, float, float]:
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
        inside = max(inside, 4.0 * (together - 1) / together * own)
        touched += replicas[a] / together
    return inside, between, steps, touched
