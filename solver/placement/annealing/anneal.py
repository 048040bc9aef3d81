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

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.placement import PlacementProblem
from taut.solver.placement.annealing.prices import Prices, Scratch, pipeline_seconds, prices_of, ring_seconds
from taut.solver.placement.annealing.starts import starts

PLATEAU = 1e-3
"""Weight of the mean pipeline time beside the step time."""
HOT, COLD = 5e-2, 1e-5
"""First and last temperature as shares of the communication's size."""
RESTARTS = 4
MOVES_PER_POSITION = 1500
MOST_MOVES = 150_000
MOST_LOOK_UPS = 400_000_000
"""Limits of one annealing run, so that Ctrl-C is answered within a second or two."""
LONGEST = 4
"""Migrated and reversed substrings reach over at most this many pipelines."""


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
    if len(start.positions) * problem.ranks < 2:
        return start
    return _anneal(problem, start.positions, moves=moves, seed=seed)


def anneal_restarts(problem: PlacementProblem, start: Annealed, *, seed: int, workers: int) -> Annealed:
    """The best of ``RESTARTS`` annealing runs from one placement; it does not depend on the number of threads."""
    moves = min(MOVES_PER_POSITION * len(start.positions), MOST_MOVES, MOST_LOOK_UPS // move_cost(problem))
    seeds = [seed * RESTARTS + restart for restart in range(RESTARTS)]
    with ThreadPoolExecutor(max_workers=max(workers, 1)) as pool:
        runs = pool.map(lambda number: anneal(problem, start, moves=moves, seed=number), seeds)
    return min(runs, key=lambda run: run.seconds)


def move_cost(problem: PlacementProblem) -> int:
    """Rough number of link look-ups that one move takes, by which callers choose how many to make."""
    candidate = problem.candidate
    pipelines = 2 * candidate.pp * problem.ranks * (1 + problem.ranks)
    priced = np.count_nonzero(problem.gradients) / candidate.pp
    ring = problem.ranks * min(candidate.dp, problem.links.num_sites) ** 2
    return int(pipelines + 2 * priced * ring) + 1


def _anneal(problem: PlacementProblem, positions: Ints, *, moves: int, seed: int) -> Annealed:
    seconds, found = _run(prices_of(problem), positions.copy(), moves, seed)
    return Annealed(seconds=float(seconds), positions=found)


@jit
def _run(prices: Prices, pos: Ints, moves: int, seed: int) -> tuple[float, Ints]:
    """Anneal the positions in place; returns the best seconds and positions."""
    np.random.seed(seed)
    pp = prices.pp
    dp = len(pos) // pp
    scratch = Scratch(
        np.zeros(dp, np.int64),
        np.zeros(dp, np.int64),
        np.zeros(dp),
        np.full(len(prices.node_of_site), -1, np.int64),
    )
    pipes, rings = np.zeros(dp), np.zeros(pp)
    for z in range(dp):
        pipes[z] = pipeline_seconds(prices, pos, z)
    for x in range(pp):
        rings[x] = ring_seconds(prices, scratch, pos, x)
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
            pipes[z] = pipeline_seconds(prices, pos, z)
        for x in range(ringed):
            if gradients[x] > 0.0 and _stage_changed(pos, old, x, pp, first, last, step):
                rings[x] = ring_seconds(prices, scratch, pos, x)
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


@jit
def _copy(pos: Ints, to: Ints, pipes: Floats, to_pipes: Floats, pp: int, first: int, last: int, step: int) -> None:
    """Copy the touched replicas' positions and seconds."""
    for z in range(first, last + 1, step):
        to_pipes[z] = pipes[z]
        to[z * pp : (z + 1) * pp] = pos[z * pp : (z + 1) * pp]


@jit
def _stage_changed(pos: Ints, old: Ints, x: int, pp: int, first: int, last: int, step: int) -> bool:
    for z in range(first, last + 1, step):
        for y in range(pos.shape[1]):
            if pos[z * pp + x, y] != old[z * pp + x, y]:
                return True
    return False


@jit
def _move(prices: Prices, pos: Ints) -> tuple[int, int, int]:
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


@jit
def _swap_sites(prices: Prices, pos: Ints, a: int, b: int) -> bool:
    """Move (5), unless it would take a device out of its group's node."""
    y, w = np.random.randint(pos.shape[1]), np.random.randint(pos.shape[1])
    if not prices.wide and prices.node_of_site[pos[a, y]] != prices.node_of_site[pos[b, w]]:
        return False
    pos[a, y], pos[b, w] = pos[b, w], pos[a, y]
    return True


@jit
def _migrate(pos: Ints, a: int, b: int) -> None:
    """Move (2): take position a out and put it in at b."""
    towards = 1 if b > a else -1
    for y in range(pos.shape[1]):
        moved = pos[a, y]
        for p in range(a, b, towards):
            pos[p, y] = pos[p + towards, y]
        pos[b, y] = moved


@jit
def _reverse(pos: Ints, low: int, high: int) -> None:
    """Move (3)."""
    while low < high:
        for y in range(pos.shape[1]):
            pos[low, y], pos[high, y] = pos[high, y], pos[low, y]
        low += 1
        high -= 1


@jit
def _exchange_ends(pos: Ints, one: int, other: int, x: int, pp: int) -> None:
    """Move (4): exchange stages x.. of the pipelines that begin at two positions."""
    for s in range(x, pp):
        for y in range(pos.shape[1]):
            pos[one + s, y], pos[other + s, y] = pos[other + s, y], pos[one + s, y]
