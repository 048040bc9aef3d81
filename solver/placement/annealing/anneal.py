r"""
Placement by simulated annealing: good placements fast, never a bound.

Sets: positions :math:`p = z \cdot pp + x` of replica z and stage x, as in ``taut.formulations.placement``.
Variables: the string of positions' sites. Objective: the step time without the optimizer, in seconds.

Moves to a neighbour:

(1) swap two positions;
(2) migrate one position to another place of the string, shifting those between;
(3) reverse a substring;
(4) exchange the ends of two pipelines from one stage on;
(5) where single sites can move, swap two of them, inside a node if a tensor group must lie in one;
(6) exchange two stages of all pipelines, since what a stage shares with others on its nodes no other move may keep.

(7) A worse neighbour by :math:`\Delta` seconds is accepted with probability :math:`e^{-\Delta / T}`; the temperature T
    falls geometrically. To the objective a small share of the mean pipeline time is added, which leads across the
    plateaus that a maximum leaves. Only the replicas and rings that a move touches are priced again.

References
----------
Kirkpatrick, Gelatt and Vecchi (1983), Optimization by simulated annealing: (7).
Yim et al. (2024), Pipette, section IV: moves (1) to (3).
"""

from functools import partial
from operator import itemgetter

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import Warming, jit, jit_inside
from taut.formulations.placement import FoundPlacement, PlacementProblem
from taut.formulations.terms import gathers_of, in_one_ring
from taut.solver.branch_and_bound.stop import Stopping, never, run_in_threads, unraised
from taut.solver.placement.annealing.prices import (
    Ends,
    Prices,
    Scratch,
    find_ends,
    find_gathers,
    new_ends,
    new_scratch,
    pipeline_seconds,
    placement_seconds,
    prices_of,
    ring_seconds,
)
from taut.solver.placement.annealing.starts import starts

LONGEST = 4
"""Pipelines that a migrated or reversed substring reaches over at most: a move's price grows with them."""


@jit_inside
def random_move(prices: Prices, pos: Ints) -> tuple[int, int, int]:
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
        _exchange_stages(pos, a % pp, b % pp, pp)
        return 0, size // pp - 1, 1
    first, last = min(a, b) // pp, max(a, b) // pp
    return first, last, max(last - first, 1)


@jit_inside
def _swap_sites(prices: Prices, pos: Ints, a: int, b: int) -> bool:
    """Move (5), unless it would take a device out of its group's node."""
    y, w = np.random.randint(pos.shape[1]), np.random.randint(pos.shape[1])
    if not prices.wide and prices.node_of_site[pos[a, y]] != prices.node_of_site[pos[b, w]]:
        return False
    pos[a, y], pos[b, w] = pos[b, w], pos[a, y]
    return True


@jit_inside
def _migrate(pos: Ints, a: int, b: int) -> None:
    """Move (2): take position a out and put it in at b."""
    towards = 1 if b > a else -1
    for y in range(pos.shape[1]):
        moved = pos[a, y]
        for p in range(a, b, towards):
            pos[p, y] = pos[p + towards, y]
        pos[b, y] = moved


@jit_inside
def _reverse(pos: Ints, low: int, high: int) -> None:
    """Move (3)."""
    while low < high:
        for y in range(pos.shape[1]):
            pos[low, y], pos[high, y] = pos[high, y], pos[low, y]
        low += 1
        high -= 1


@jit_inside
def _exchange_ends(pos: Ints, one: int, other: int, x: int, pp: int) -> None:
    """Move (4): exchange stages x.. of the pipelines that begin at two positions."""
    for s in range(x, pp):
        for y in range(pos.shape[1]):
            pos[one + s, y], pos[other + s, y] = pos[other + s, y], pos[one + s, y]


@jit_inside
def _exchange_stages(pos: Ints, one: int, other: int, pp: int) -> None:
    """Move (6)."""
    for p in range(0, pos.shape[0], pp):
        for y in range(pos.shape[1]):
            pos[p + one, y], pos[p + other, y] = pos[p + other, y], pos[p + one, y]


PLATEAU = 1e-3
"""Weight of the mean pipeline time beside the step time: enough to order equal maxima, too little to order others."""
HOT, COLD = 5e-2, 1e-5
"""First and last temperature as shares of the communication's size: early moves may cost some per cent of it, late ones
nothing that matters."""
RESTARTS = 4
"""Runs from one start: up to 64 nodes four of them find better placements than one of their length together."""
MOVES_PER_POSITION = 1500
"""Moves of a run by position, up to the limits below; the temperature falls over all of them."""
MAX_MOVES = 150_000
MAX_LOOK_UPS = 400_000_000
"""Moves and link look-ups of one annealing run, so that Ctrl-C is answered within a second or two."""
MOST_IN_PYTHON = 20_000
"""Sites of the positions that Python prices in one process: about a second, where to compile takes half a minute."""
GATHER_COST = 16
"""Times that a look-up of a candidate with gathers takes longer, which keeps its runs within about a second."""


def best_start(problem: PlacementProblem, patterns: tuple[int, ...]) -> FoundPlacement:
    """The fastest constructed placement; ``patterns``: the device that each stage wants: 0 fast, 1 slow, 2 both."""
    prices, stop = prices_of(problem), unraised()
    built = [
        (_price(len(positions) * problem.ranks, prices, positions, 0, 0, stop)[0], positions)
        for positions in starts(problem, patterns)
    ]
    seconds, positions = min(built, key=itemgetter(0))
    return FoundPlacement(seconds=float(seconds), positions=positions)


def anneal(
    problem: PlacementProblem, start: FoundPlacement, *, moves: int, seed: int, stop: Flags | None = None
) -> FoundPlacement:
    """The best placement of one run from ``start``, which the seed decides unless a flag ``stop`` (1,) is raised."""
    if len(start.positions) * problem.ranks < 2:
        return start
    return _improved(prices_of(problem), start.positions, moves, seed, unraised() if stop is None else stop)


def anneal_restarts(
    problem: PlacementProblem, start: FoundPlacement, *, seed: int, workers: int, stopping: Stopping = never
) -> FoundPlacement:
    """The best placement of ``RESTARTS`` runs from ``start``, whatever the number of ``workers`` (threads)."""
    alone = problem.candidate.pp == 1 and in_one_ring(problem.problem.terms(problem.candidate))
    if alone or len(start.positions) * problem.ranks < 2:
        # Replicas of a single stage are in one ring and are alike: whatever place each has, the price is the same.
        return start
    moves = min(MOVES_PER_POSITION * len(start.positions), MAX_MOVES, MAX_LOOK_UPS // move_cost(problem))
    seeds = [seed * RESTARTS + restart for restart in range(RESTARTS)]
    improved = partial(_improved, prices_of(problem), start.positions, moves)
    runs = run_in_threads(improved, seeds, workers=workers, stopping=stopping)
    return min(runs, key=lambda run: run.seconds)


def move_cost(problem: PlacementProblem) -> int:
    """Look-ups of links that one move takes, roughly, by which callers choose how many moves to make."""
    candidate = problem.candidate
    pipelines = 2 * candidate.pp * problem.ranks * (1 + problem.ranks)
    priced = problem.priced / candidate.pp if problem.gradients.any() else 0.0
    members, blocks = candidate.pipelines, len(problem.links.rate.blocks.size)
    ring = problem.ranks * (members + min(members, blocks) ** 2)
    if gathers := gathers_of(problem.problem.terms(candidate)):
        # A move changes the gathers of two groups, on two stages each, and the pipelines of all their replicas.
        return GATHER_COST * int(pipelines * gathers[0].rings[0].group.members + 2 * (priced + 2.0) * ring) + 1
    return int(pipelines + 2 * priced * ring) + 1


def _improved(prices: Prices, positions: Ints, moves: int, seed: int, stop: Flags) -> FoundPlacement:
    seconds, found = _run(prices, positions.copy(), moves, seed, stop)
    return FoundPlacement(seconds=float(seconds), positions=found)


@jit
def _run(prices: Prices, pos: Ints, moves: int, seed: int, stop: Flags) -> tuple[float, Ints]:
    """Anneal the positions in place until the flag is raised; returns the best seconds and positions."""
    if moves > 0:
        np.random.seed(seed)
    pp = prices.pp
    dp = len(pos) // pp
    scratch = new_scratch(prices, dp)
    pipes, rings, gathers, ends = _priced(prices, scratch, pos)
    size = prices.gathers.replicas
    best, best_pos = placement_seconds(prices, pipes, rings, ends), pos.copy()
    soft = best + PLATEAU * pipes.mean()
    old, old_pipes, old_rings, old_gathers = pos.copy(), pipes.copy(), rings.copy(), gathers.copy()
    old_ends = Ends(ends.lags.copy(), ends.backward.copy(), ends.ties.copy())
    gradients = prices.gradients
    temperature = HOT * _spread(prices, pipes, rings, gathers)
    cooling = (COLD / HOT) ** (1.0 / max(moves, 1))
    for _ in range(moves):
        if stop[0]:
            break
        temperature *= cooling
        first, last, step = random_move(prices, pos)
        if step == 0:
            continue
        if size > 0:
            first, last, step = first // size * size, last // size * size + size - 1, 1
            for x in range(pp):
                for z in range(first, last + 1, size):
                    if _stage_changed(pos, old, x, pp, z, z + size - 1, 1):
                        find_gathers(prices, scratch, pos, x, z, gathers)
        for z in range(first, last + 1, step):
            pipes[z] = pipeline_seconds(prices, pos, z, gathers)
            if prices.lags:
                find_ends(prices, pos, z, gathers, ends)
        for x in range(prices.priced):
            if gradients[x] > 0.0 and _stage_changed(pos, old, x, pp, first, last, step):
                rings[x] = ring_seconds(prices, scratch, pos, x)
        value = placement_seconds(prices, pipes, rings, ends)
        softened = value + PLATEAU * pipes.mean()
        if softened <= soft or np.random.random() < np.exp((soft - softened) / temperature):
            soft = softened
            _copy(pos, old, pipes, old_pipes, first, last, step)
            _copy_ends(prices, ends, old_ends, first, last, step)
            _copy_figures(rings, old_rings, gathers, old_gathers, size)
            if value < best:
                best = value
                _copy_positions(pos, best_pos, 0, len(pos))
        else:
            _copy(old, pos, old_pipes, pipes, first, last, step)
            _copy_ends(prices, old_ends, ends, first, last, step)
            _copy_figures(old_rings, rings, old_gathers, gathers, size)
    return best, best_pos


@jit
def _priced(prices: Prices, scratch: Scratch, pos: Ints) -> tuple[Floats, Floats, Floats, Ends]:
    """Seconds of the replicas (dp,), rings (pp,) and gathers (pp, dp) of positions, and what ends stages."""
    pp, size = prices.pp, prices.gathers.replicas
    dp = len(pos) // pp
    pipes, rings, gathers, ends = np.zeros(dp), np.zeros(pp), np.zeros((pp, dp)), new_ends(prices, dp)
    for x in range(pp if size > 0 else 0):
        for z in range(0, dp, size):
            find_gathers(prices, scratch, pos, x, z, gathers)
    for z in range(dp):
        pipes[z] = pipeline_seconds(prices, pos, z, gathers)
        if prices.lags:
            find_ends(prices, pos, z, gathers, ends)
    for x in range(prices.priced):
        rings[x] = ring_seconds(prices, scratch, pos, x)
    return pipes, rings, gathers, ends


@jit
def _spread(prices: Prices, pipes: Floats, rings: Floats, gathers: Floats) -> float:
    """Size of the communication, by which temperatures are measured."""
    spread = rings.max() + prices.weight * prices.messages.sum() * prices.slowest_hop + 1e-300
    if np.isfinite(pipes.max()):
        spread += pipes.max() - pipes.min()
    if prices.gathers.replicas > 0:
        spread += (gathers.max() * prices.gathers.sent).max()
    return float(spread)


@jit_inside
def _copy(pos: Ints, to: Ints, pipes: Floats, to_pipes: Floats, first: int, last: int, step: int) -> None:
    """Copy the touched replicas' positions and seconds."""
    pp = len(pos) // len(pipes)
    for z in range(first, last + 1, step):
        to_pipes[z] = pipes[z]
        _copy_positions(pos, to, z * pp, (z + 1) * pp)


@jit_inside
def _copy_positions(pos: Ints, to: Ints, first: int, end: int) -> None:
    """Copy the sites of some positions; an assignment of slices takes two seconds to compile."""
    for p in range(first, end):
        for y in range(pos.shape[1]):
            to[p, y] = pos[p, y]


@jit_inside
def _copy_figures(rings: Floats, to_rings: Floats, gathers: Floats, to_gathers: Floats, size: int) -> None:
    """Copy the seconds of rings, and of gathers where there are some."""
    for x in range(len(rings)):
        to_rings[x] = rings[x]
        for z in range(gathers.shape[1] if size > 0 else 0):
            to_gathers[x, z] = gathers[x, z]


@jit_inside
def _copy_ends(prices: Prices, ends: Ends, to: Ends, first: int, last: int, step: int) -> None:
    """Copy what the touched replicas add to the ends of stages."""
    if prices.lags:
        for z in range(first, last + 1, step):
            for x in range(prices.priced):
                to.lags[z, x], to.backward[z, x] = ends.lags[z, x], ends.backward[z, x]
            to.ties[z] = ends.ties[z]


@jit_inside
def _stage_changed(pos: Ints, old: Ints, x: int, pp: int, first: int, last: int, step: int) -> bool:
    for z in range(first, last + 1, step):
        for y in range(pos.shape[1]):
            if pos[z * pp + x, y] != old[z * pp + x, y]:
                return True
    return False


_price = Warming(_run, MOST_IN_PYTHON)
