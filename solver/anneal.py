r"""
Placement by simulated annealing: good placements fast, never a bound.

The state is the string of positions :math:`p = z \cdot pp + x`, as in ``taut.formulations.placement``. Moves:

(1) swap two positions; (2) migrate one position to another place of the string, shifting those between; (3) reverse a
substring (the three moves of Yim et al., Pipette, section IV); (4) exchange the ends of two pipelines from one stage
on; (5) where single sites can move, swap two of them, inside a node if a tensor group must lie in one.

A worse neighbour by :math:`\Delta` seconds is accepted with probability :math:`e^{-\Delta / T}`; the temperature T
falls geometrically from :math:`T_0` to :math:`T_1`. The objective is the step time plus a small share of the mean
pipeline time, which leads across the plateaus that a maximum leaves. Only replicas and rings that a move touches are
priced again.

Starts are placements that are best on uniform networks: chunks of g replicas fill the nodes stage by stage, which
trades rings inside nodes (large g) against hops inside nodes (small g).
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from taut.formulations.placement import PlacementProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PLATEAU = 1e-3
"""Weight of the mean pipeline time beside the step time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annealed:
    """A placement: seconds (optimizer excluded) and the sites of every position, (pp * dp, R)."""

    seconds: float
    positions: Ints


def best_start(problem: PlacementProblem, patterns: tuple[int, ...]) -> Annealed:
    """The best of the constructed placements; ``patterns`` says which class of device each stage wants."""
    built = [_anneal(problem, positions, moves=0, seed=0) for positions in starts(problem, patterns)]
    return min(built, key=lambda start: start.seconds)


def anneal(problem: PlacementProblem, start: Annealed, *, moves: int, seed: int) -> Annealed:
    """
    Improve a placement by ``moves`` annealing moves.

    The same seed, start and number of moves give the same placement. Never worse than ``start``.
    """
    if problem.candidate.pp * problem.candidate.dp * problem.ranks < 2:
        return start
    return _anneal(problem, start.positions, moves=moves, seed=seed)


def _anneal(problem: PlacementProblem, positions: Ints, *, moves: int, seed: int) -> Annealed:
    links, candidate = problem.links, problem.candidate
    inverse, latency = 1.0 / links.rate, links.latency.copy()
    if not links.by_node:
        np.fill_diagonal(inverse, 0.0)
        np.fill_diagonal(latency, 0.0)
    ring = 1.0 / links.data_rate
    amp = problem.problem.latency_model == "amp"
    seconds, found = _run(
        positions.copy(),
        candidate.pp,
        candidate.num_micro_batches,
        problem.problem.transfer_weight(candidate),
        problem.stage_seconds,
        problem.problem.type_of_node,
        problem.ring_bytes,
        problem.ring_steps,
        inverse,
        latency,
        problem.hop_latency,
        problem.hop_inverse,
        problem.messages,
        links.node_of_site,
        np.maximum(ring, ring.T),
        problem.gradients,
        amp,
        links.by_node,
        moves,
        seed,
    )
    return Annealed(seconds=float(seconds), positions=found)


def starts(problem: PlacementProblem, patterns: tuple[int, ...]) -> list[Ints]:
    """Constructed placements, (pp * dp, R) sites each, by chunk size."""
    candidate = problem.candidate
    pp, dp = candidate.pp, candidate.dp
    _, per_node = np.unique(problem.links.node_of_site[problem.slots[:, 0]], return_counts=True)
    most = int(per_node.max())
    chunks = sorted({g for g in range(1, min(dp, most) + 1) if most % g == 0} | {dp})
    built = [_filled(problem, _chunked(pp, dp, g), patterns) for g in chunks]
    if len(set(per_node.tolist())) == 1 and len(set(patterns)) == 1:
        built += [_runs(problem, most, g) for g in range(1, min(dp, most) + 1) if -(-dp // g) <= len(per_node)]
    return built


def _chunked(pp: int, dp: int, g: int) -> list[int]:
    """Positions in the order in which they take slots: g replicas at a time, stage by stage."""
    return [
        z * pp + x for low in range(0, dp, g) for x in range(pp) for z in range(low, min(low + g, dp))
    ]


def _filled(problem: PlacementProblem, order: list[int], patterns: tuple[int, ...]) -> Ints:
    """Sites by position: slots are taken in order, those of the slow class by the stages that want it."""
    slow = _slow_slots(problem)
    queues = {0: problem.slots[~slow].tolist()[::-1], 1: problem.slots[slow].tolist()[::-1]}
    mixed = sum(patterns[position % problem.candidate.pp] == 2 for position in order)
    spare = len(queues[1]) - sum(patterns[position % problem.candidate.pp] == 1 for position in order)
    positions = np.zeros((len(order), problem.ranks), dtype=np.int64)
    for position in order:
        wanted = patterns[position % problem.candidate.pp]
        if wanted == 2:
            # Mixed stages share what the slow stages leave, evenly over their replicas.
            wanted = 1 if spare * 2 >= mixed and spare > 0 else 0
            mixed, spare = mixed - 1, spare - wanted
        queue = queues[wanted] or queues[1 - wanted]
        positions[position] = queue.pop()
    return positions


def _slow_slots(problem: PlacementProblem) -> NDArray[np.bool_]:
    """Slots on the device type that is slowest on the whole model; none where there is one type."""
    whole = problem.problem.tables(problem.candidate).seconds[:, 0, 0, -1]
    types = problem.problem.type_of_node[problem.links.node_of_site[problem.slots[:, 0]]]
    return np.asarray((types == int(np.argmax(whole))) & (len(whole) > 1))


def _runs(problem: PlacementProblem, size: int, g: int) -> Ints:
    """
    Sites by position where nodes hold ``size`` slots: g replicas share the node of their first run of stages.

    Later runs fill whole nodes, and what is left of a pipeline goes, longest first, where there is room.
    """
    pp, dp = problem.candidate.pp, problem.candidate.dp
    first = min(size // g, pp)
    room = np.full(len(problem.slots) // size, size)
    node_of = np.full(pp * dp, -1)
    node = -1
    for z in range(dp):
        node += z % g == 0
        node_of[z * pp : z * pp + first] = node
        room[node] -= first
    pieces = [(z, x, min(x + size, pp)) for z in range(dp) for x in range(first, pp, size)]
    for z, low, end in sorted(pieces, key=lambda piece: (piece[1] - piece[2], piece)):
        for x in range(low, end):
            fits = np.flatnonzero(room >= end - x)
            target = node_of[z * pp + x - 1] if x > low and room[node_of[z * pp + x - 1]] > 0 else -1
            if target < 0:
                target = int(fits[np.argmin(room[fits])]) if len(fits) else int(np.argmax(room))
            node_of[z * pp + x] = target
            room[target] -= 1
    order = np.argsort(node_of, kind="stable")
    positions = np.zeros((pp * dp, problem.ranks), dtype=np.int64)
    positions[order] = problem.slots
    return positions


@njit(cache=True, nogil=True)
def _pipeline(pos, z, pp, m, h, stage_seconds, type_of_node, node_of_site, ring_bytes, ring_steps, inverse,
              latency, hop_latency, hop_inverse, messages, wide):
    """Seconds of replica z: sum of stages, straggler and trip."""
    ranks = pos.shape[1]
    total, worst = 0.0, 0.0
    for x in range(pp):
        p = z * pp + x
        seconds = 0.0
        for y in range(ranks):
            seconds = max(seconds, stage_seconds[x, type_of_node[node_of_site[pos[p, y]]]])
        if ring_bytes[x] > 0.0:
            rate, steps = 0.0, 0.0
            for y in range(ranks):
                if wide:
                    rate = max(rate, inverse[pos[p, y], pos[p, y]])
                    steps = max(steps, latency[pos[p, y], pos[p, y]])
                for w in range(ranks):
                    if w != y:
                        rate = max(rate, inverse[pos[p, y], pos[p, w]])
                        steps = max(steps, latency[pos[p, y], pos[p, w]])
            seconds += ring_bytes[x] * rate + ring_steps[x] * steps
        total += seconds
        worst = max(worst, seconds)
    trip = 0.0
    for y in range(ranks):
        hops = 0.0
        for x in range(pp - 1):
            a, b = pos[z * pp + x, y], pos[z * pp + x + 1, y]
            hops += hop_latency[a, b] + messages[x] * hop_inverse[a, b]
        trip = max(trip, hops)
    return total + (m - 1) * worst + h * trip


@njit(cache=True, nogil=True)
def _ring(pos, x, pp, message, ring, latency, node_of_site, amp, wide, members, count, where, inside):
    """Data-parallel seconds of stage x; the last four arguments are scratch."""
    if message == 0.0:
        return 0.0
    dp, slowest = len(pos) // pp, 0.0
    for y in range(pos.shape[1]):
        distinct = 0
        for z in range(dp):
            site = pos[z * pp + x, y]
            if where[site] < 0:
                where[site] = distinct
                members[distinct] = site
                count[distinct] = 0
                distinct += 1
            count[where[site]] += 1
        between, steps, most_inside, nodes = 0.0, 0.0, 0.0, 0.0
        for a in range(distinct):
            site = members[a]
            replicas = count[a]
            own = ring[site, site] if count[a] > 1 else 0.0
            if count[a] > 1:
                steps = max(steps, latency[site, site])
            for b in range(distinct):
                if b == a:
                    continue
                other = members[b]
                steps = max(steps, latency[site, other])
                if node_of_site[other] == node_of_site[site]:
                    replicas += count[b]
                    own = max(own, ring[site, other])
                else:
                    between = max(between, ring[site, other])
            inside[a] = own
            nodes += count[a] / replicas
            most_inside = max(most_inside, 4.0 * (replicas - 1) / replicas * own)
        if not wide:
            # A node's slowest link is the slowest over its members, each with its own number of replicas.
            most_inside = 0.0
            for a in range(distinct):
                own, replicas = inside[a], 0
                for b in range(distinct):
                    if node_of_site[members[b]] == node_of_site[members[a]]:
                        replicas += count[b]
                        own = max(own, inside[b])
                most_inside = max(most_inside, 4.0 * (replicas - 1) / replicas * own)
        if amp:
            link = between
            for a in range(distinct):
                link = max(link, inside[a])
            seconds = 2.0 * (dp - 1) / dp * message * link + 2 * (dp - 1) * steps
        else:
            seconds = message * (most_inside + 2.0 * (nodes - 1) / nodes * between)
        slowest = max(slowest, seconds)
        for a in range(distinct):
            where[members[a]] = -1
    return slowest


@njit(cache=True, nogil=True)
def _run(pos, pp, m, h, stage_seconds, type_of_node, ring_bytes, ring_steps, inverse, latency, hop_latency,
         hop_inverse, messages, node_of_site, ring, gradients, amp, wide, moves, seed):
    """Anneal the positions in place; returns the best seconds and positions."""
    np.random.seed(seed)
    size, ranks, dp = pos.shape[0], pos.shape[1], pos.shape[0] // pp
    sites = len(node_of_site)
    members, count, inside = np.zeros(dp, np.int64), np.zeros(dp, np.int64), np.zeros(dp)
    where = np.full(sites, -1, np.int64)
    pipes, rings = np.zeros(dp), np.zeros(pp)
    for z in range(dp):
        pipes[z] = _pipeline(pos, z, pp, m, h, stage_seconds, type_of_node, node_of_site, ring_bytes, ring_steps,
                             inverse, latency, hop_latency, hop_inverse, messages, wide)
    for x in range(pp):
        rings[x] = _ring(pos, x, pp, gradients[x], ring, latency, node_of_site, amp, wide, members, count, where,
                         inside)
    value = pipes.max() + rings.max()
    soft = value + PLATEAU * pipes.mean()
    best, best_pos = value, pos.copy()
    old, old_pipes, old_rings = pos.copy(), pipes.copy(), rings.copy()
    spread = pipes.max() - pipes.min() + rings.max() + h * messages.sum() * hop_inverse.max()
    hot, cold = 0.05 * spread + 1e-300, 1e-5 * spread + 1e-300
    cooling = (cold / hot) ** (1.0 / max(moves, 1))
    temperature = hot
    free = ranks > 1
    for _ in range(moves):
        temperature *= cooling
        kind = np.random.random()
        a, b = np.random.randint(size), np.random.randint(size)
        low, high, pair = min(a, b), max(a, b), False
        if free and kind < 0.3:  # (5)
            y, w = np.random.randint(ranks), np.random.randint(ranks)
            if not wide and node_of_site[pos[a, y]] != node_of_site[pos[b, w]]:
                continue
            pair = True
            pos[a, y], pos[b, w] = pos[b, w], pos[a, y]
        elif a == b:
            continue
        elif kind < 0.75:  # (1)
            pair = True
            for y in range(ranks):
                pos[a, y], pos[b, y] = pos[b, y], pos[a, y]
        elif kind < 0.83 and high - low <= 4 * pp:  # (2)
            for y in range(ranks):
                if a < b:
                    moved = pos[a, y]
                    for p in range(a, b):
                        pos[p, y] = pos[p + 1, y]
                else:
                    moved = pos[a, y]
                    for p in range(a, b, -1):
                        pos[p, y] = pos[p - 1, y]
                pos[b, y] = moved
        elif kind < 0.91 and high - low <= 4 * pp:  # (3)
            for y in range(ranks):
                i, j = low, high
                while i < j:
                    pos[i, y], pos[j, y] = pos[j, y], pos[i, y]
                    i += 1
                    j -= 1
        else:  # (4)
            za, zb, x = a // pp, b // pp, b % pp
            if za == zb:
                continue
            for s in range(x, pp):
                for y in range(ranks):
                    pos[za * pp + s, y], pos[zb * pp + s, y] = pos[zb * pp + s, y], pos[za * pp + s, y]
            low, high, pair = za * pp + x, zb * pp + x, True
        first, last = low // pp, high // pp
        if pair:
            first, last = min(low // pp, high // pp), max(low // pp, high // pp)
        step = max(last - first, 1) if pair else 1
        for z in range(first, last + 1, step):
            pipes[z] = _pipeline(pos, z, pp, m, h, stage_seconds, type_of_node, node_of_site, ring_bytes,
                                 ring_steps, inverse, latency, hop_latency, hop_inverse, messages, wide)
        for x in range(pp):
            if gradients[x] == 0.0:
                continue
            touched = False
            for z in range(first, last + 1, step):
                for y in range(ranks):
                    touched = touched or pos[z * pp + x, y] != old[z * pp + x, y]
            if touched:
                rings[x] = _ring(pos, x, pp, gradients[x], ring, latency, node_of_site, amp, wide, members, count,
                                 where, inside)
        value = pipes.max() + rings.max()
        new_soft = value + PLATEAU * pipes.mean()
        if new_soft <= soft or np.random.random() < np.exp((soft - new_soft) / temperature):
            soft = new_soft
            for z in range(first, last + 1, step):
                old_pipes[z] = pipes[z]
                old[z * pp : (z + 1) * pp] = pos[z * pp : (z + 1) * pp]
            old_rings[:] = rings
            if value < best:
                best = value
                best_pos[:] = pos
        else:
            for z in range(first, last + 1, step):
                pipes[z] = old_pipes[z]
                pos[z * pp : (z + 1) * pp] = old[z * pp : (z + 1) * pp]
            rings[:] = old_rings
    return best, best_pos
