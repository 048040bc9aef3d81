r"""
Swaps of two items in quadratic assignment: what they change, and the kernels of annealing and tabu search.

Sets and data are those of ``taut.formulations.assignment``. The state is a permutation :math:`\pi` with
the distances that it sees, :math:`b_{ij} = d_{\pi_i \pi_j}`, kept up to date. If both matrices are symmetric, with
:math:`F = f + f^T` and zeros on the diagonals of F and b, swapping the locations of items r and s changes the cost by

.. math:: \Delta_{rs} = \sum_k (F_{rk} - F_{sk}) (b_{sk} - b_{rk}) + 2 F_{rs} b_{rs}
    + (f_{rr} - f_{ss}) (b_{ss} - b_{rr}). \tag{1}

a product of contiguous rows. If one matrix is symmetric, only the sum of the two triangles of the other counts, and it
may be made symmetric. If neither is, the rows are :math:`(f_{r \cdot}, f_{\cdot r})` and :math:`(b_{r \cdot},
b_{\cdot r})`. A swap of u and v changes the other :math:`\Delta_{rs}` by what the rows of u and v say alone,

.. math:: \Delta_{rs} \leftarrow \Delta_{rs} + (x_r - x_s)(y_r - y_s), \qquad
    x = F_{u \cdot} - F_{v \cdot}, \quad y = b_{v \cdot} - b_{u \cdot} \text{ (after the swap)}. \tag{2}

Two items, or two locations, are alike if swapping them leaves the problem as it is; such swaps are not tried.
Annealing [1]_ tries the other pairs :math:`r < s` in lexicographic order, over and over. At temperature T, which falls
by the same factor at every trial, it accepts a swap with probability :math:`\min(1, e^{-\Delta_{rs} / T})`, (3).

Tabu search [2]_ makes the swap of least :math:`\Delta_{rs}`, be it a loss, that is not tabu: (4) a location that an
item leaves in step t is tabu for it up to step :math:`t + \lfloor 0.9 n \rfloor + U`, U uniform on :math:`0, \dots,
\lfloor n / 5 \rfloor + 1`, and so is a swap that takes both items to such locations. Swaps that lead below the best
cost so far, or were tabu for neither item during the last :math:`5 n^2` steps, come first, tabu or not.

Annealing and tabu search alternate for S seconds:

(5) rounds of growing length :math:`t_1 = \min(S / 20, 1), \; t_{m+1} = g \, t_m` fill the time, the last one
    stretched to its end; annealing from a random permutation gets the share a of each, and tabu search from where
    that ended the rest: :math:`(a, g) = (0.2, 3)` up to n = 45, (0.8, 8) above; a = 1 where n exceeds 1024;
(6) when a share w of its time is over, annealing is at the temperature
    :math:`T = 0.4 \, (0.01 / 0.4)^w \; \overline{|\Delta|}`, with the mean change of random swaps that change anything;
(7) a cost that is not above the target ends the search.

References
----------
.. [1] Connolly, D.T. (1990). An improved annealing scheme for the QAP. European J. of Operational Research 46: 93-100.
.. [2] Taillard, E. (1991). Robust taboo search for the quadratic assignment problem. Parallel Computing 17: 443-455.
"""

import math
from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Bits, Floats, Ints
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.compiled import jit, jit_inside, jit_with

_Pair = tuple[int, int]
_SUM = {"reassoc", "contract", "nsz"}  # Lets the compiler vectorise sums, but keeps infinities.


class State(NamedTuple):
    """What kernels read and change: rows and diagonals of (1), what is alike, permutations, random bits."""

    flow: Floats
    flow_loop: Floats
    flow_kind: Ints
    placed: Floats
    placed_loop: Floats
    placed_kind: Ints
    permutation: Ints
    best: Ints
    bits: Bits


def arrange(problem: QuadraticAssignment, permutation: Ints, generator: np.random.Generator) -> State:
    """Lay the data out for the kernels, at a permutation."""
    flow, distance = problem.flow.copy(), problem.distance[np.ix_(permutation, permutation)]
    loops = flow.diagonal().copy(), distance.diagonal().copy()
    for matrix in (flow, distance):
        np.fill_diagonal(matrix, 0.0)
    if np.array_equal(distance, distance.T):
        flow += flow.T
    elif np.array_equal(flow, flow.T):
        distance += distance.T
    else:
        flow, distance = np.hstack((flow, flow.T)), np.hstack((distance, distance.T))
    kinds = [twins(rows, loop) for rows, loop in zip((flow, distance), loops, strict=True)]
    bits = generator.integers(1, 2**63, 1, dtype=np.uint64)
    return State(flow, loops[0], kinds[0], distance, loops[1], kinds[1], permutation.copy(), permutation.copy(), bits)


@jit
def draw(bits: Bits) -> np.uint64:
    """Next 64 random bits, by xorshift."""
    word: np.uint64 = bits[0]
    word ^= word << np.uint64(13)
    word ^= word >> np.uint64(7)
    word ^= word << np.uint64(17)
    bits[0] = word
    return word


@jit
def draw_below(bits: Bits, end: int) -> int:
    """Random integer from 0 to end - 1."""
    return int(np.int64(((draw(bits) >> np.uint64(32)) * np.uint64(end)) >> np.uint64(32)))


@jit
def twins(rows: Floats, loops: Floats) -> Ints:
    """First index that each may be swapped with, leaving the rows of (1) as they are."""
    size, width = rows.shape
    first = np.arange(size)
    for i in range(size):
        for j in range(i):
            if first[j] != j or loops[i] != loops[j] or rows[i, j] != rows[j, i]:
                continue
            for k in range(width):
                if rows[i, k] != rows[j, k] and k % size != i and k % size != j:
                    break
            else:
                first[i] = j
                break
    return first


@jit_with(_SUM)
def _change(flow: Floats, placed: Floats, flow_loop: Floats, placed_loop: Floats, r: int, s: int) -> float:
    """Change of the cost (1) if items r and s swap locations."""
    size, width = flow.shape
    flow_r, flow_s, placed_r, placed_s = flow[r], flow[s], placed[r], placed[s]
    total = 0.0
    for k in range(width):
        total += (flow_r[k] - flow_s[k]) * (placed_s[k] - placed_r[k])
    back = s + width - size
    between = (flow_r[s] + flow_r[back]) * (placed_r[s] + placed_r[back])
    loops = (flow_loop[r] - flow_loop[s]) * (placed_loop[s] - placed_loop[r])
    return float(total + (between if width > size else 0.5 * between) + loops)


@jit
def _swap(placed: Floats, placed_loop: Floats, placed_kind: Ints, permutation: Ints, r: int, s: int) -> None:
    """Swap the locations of items r and s."""
    size, width = placed.shape
    permutation[r], permutation[s] = permutation[s], permutation[r]
    placed_kind[r], placed_kind[s] = placed_kind[s], placed_kind[r]
    placed_loop[r], placed_loop[s] = placed_loop[s], placed_loop[r]
    for k in range(width):
        placed[r, k], placed[s, k] = placed[s, k], placed[r, k]
    for shift in range(0, width, size):
        for k in range(size):
            placed[k, shift + r], placed[k, shift + s] = placed[k, shift + s], placed[k, shift + r]


@jit
def mean_change(state: State, draws: int) -> float:
    """Mean absolute change of random swaps, of those that change anything."""
    size, total, count = len(state.permutation), 0.0, 0
    for _ in range(draws):
        r, s = draw_below(state.bits, size), draw_below(state.bits, size)
        change = abs(_change(state.flow, state.placed, state.flow_loop, state.placed_loop, r, s)) if r != s else 0.0
        total += change
        count += change > 0
    return total / max(count, 1)


@jit
def anneal_moves(
    state: State, cost: float, least: float, last: _Pair, moves: int, heat: float, cooling: float, target: float
) -> _Pair:
    """Try swaps in the order of pairs after the last one, (3), and say which was the last."""
    # Handing the state as a whole to the inner functions would cost several times the work they do.
    flow, flow_loop, flow_kind, placed, placed_loop, placed_kind, permutation, best, bits = state
    size = len(permutation)
    r, s = last
    for _ in range(moves):
        s += 1
        if s == size:
            r = r + 1 if r + 2 < size else 0
            s = r + 1
        heat *= cooling
        if flow_kind[r] == flow_kind[s] or placed_kind[r] == placed_kind[s]:
            continue
        change = _change(flow, placed, flow_loop, placed_loop, r, s)
        # Beyond 30 times the heat one swap in 1e13 would be accepted.
        if change > 0 and (change >= 30 * heat or (draw(bits) >> np.uint64(11)) * 2.0**-53 >= math.exp(-change / heat)):
            continue
        _swap(placed, placed_loop, placed_kind, permutation, r, s)
        cost += change
        if cost < least:
            least = cost
            for k in range(size):
                best[k] = permutation[k]
            if least <= target:
                break
    return r, s


@jit_inside
def _choose(
    changes: Floats, until: Ints, permutation: Ints, flow_kind: Ints, placed_kind: Ints, now: int, gain: float
) -> _Pair:
    """Best swap that is not tabu, that beats the best cost, or that was not made for very long."""
    size = len(permutation)
    long_ago = now - 5 * size * size
    r, s, least, best_forced = -1, -1, np.inf, False
    for i in range(size):
        for j in range(i + 1, size):
            change = changes[i, j]
            there, back = until[i, permutation[j]], until[j, permutation[i]]
            forced = change < gain or (there < long_ago and back < long_ago)
            if forced < best_forced or (forced == best_forced and change >= least):
                continue
            idle = flow_kind[i] == flow_kind[j] or placed_kind[i] == placed_kind[j]
            if not idle and (forced or there < now or back < now):
                r, s, least, best_forced = i, j, change, forced
    return r, s


@jit_with(_SUM)
def _update(changes: Floats, flow: Floats, placed: Floats, u: int, v: int) -> None:
    """Bring the changes of all pairs without u and v up to date (2), after u and v have swapped locations."""
    size, width = flow.shape
    x, y = flow[u] - flow[v], placed[v] - placed[u]
    for shift in range(0, width, size):
        for i in range(size):
            row, x_i, y_i = changes[i], x[shift + i], y[shift + i]
            for j in range(i + 1, size):
                row[j] += (x_i - x[shift + j]) * (y_i - y[shift + j])


@jit
def tabu_moves(state: State, cost: float, least: float, until: Ints, begin: int, moves: int, target: float) -> None:
    """Make the best swap that is allowed, again and again; the locations left are tabu for a while, (4)."""
    flow, flow_loop, flow_kind, placed, placed_loop, placed_kind, permutation, best, bits = state
    size = len(permutation)
    changes = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1, size):
            changes[i, j] = _change(flow, placed, flow_loop, placed_loop, i, j)
    # Changes below this come from rounding.
    slack = 1e-9 * np.abs(changes).max()
    for now in range(begin, begin + moves):
        r, s = _choose(changes, until, permutation, flow_kind, placed_kind, now, least - cost - slack)
        if r < 0:
            continue
        for item in (r, s):
            until[item, permutation[item]] = now + int(0.9 * size) + draw_below(bits, size // 5 + 2)
        cost += changes[r, s]
        _swap(placed, placed_loop, placed_kind, permutation, r, s)
        if cost < least - slack:
            least = cost
            for k in range(size):
                best[k] = permutation[k]
            if least <= target:
                break
        _update(changes, flow, placed, r, s)
        for k in range(size):
            for fixed in (r, s):
                if k != fixed:
                    i, j = min(k, fixed), max(k, fixed)
                    changes[i, j] = _change(flow, placed, flow_loop, placed_loop, i, j)


_Found = tuple[float, Ints]
_TABU_FIRST = 45  # Up to this n tabu search beats annealing in the same time on QAPLIB, above it annealing leads.
_TABU_LAST = 1024  # Above this n the table of all changes takes longer to fill than a call may last.
_HOT, _COLD = 0.4, 0.01  # First and last temperature, relative to the mean change of a random swap.


def search(problem: QuadraticAssignment, first: Ints, seed: int, seconds: float, target: float) -> Iterator[_Found]:
    """Cost and locations of the best permutation so far after every kernel call, for so long or to a target, (7)."""
    best = (problem.cost(first), first)
    yield best
    if problem.size > 1 and best[0] > target:
        for found in _rounds(problem, np.random.default_rng(seed), seconds, target):
            best = found if found[0] < best[0] else best
            yield best
            if best[0] <= target:
                return


def _rounds(
    problem: QuadraticAssignment, generator: np.random.Generator, seconds: float, target: float
) -> Iterator[_Found]:
    """Permutations from annealing out of random starts, each followed by tabu search from where it ended."""
    share, growth = (0.2, 3) if problem.size <= _TABU_FIRST else (0.8, 8)
    share = share if problem.size <= _TABU_LAST else 1.0
    end, allotted = perf_counter() + seconds, min(seconds / 20, 1.0)
    # A short round first, for easy instances and early interrupts, then rounds as long as the time allows.
    while True:
        left = max(0.0, end - perf_counter())
        allotted = left if left < 2 * allotted else allotted
        for found in _annealing(problem, generator, share * allotted, target):
            yield found
        if share < 1:
            yield from _tabu_search(problem, found, generator, (1 - share) * allotted, target)
        if perf_counter() >= end:
            return
        allotted *= growth


def _annealing(
    problem: QuadraticAssignment, generator: np.random.Generator, seconds: float, target: float
) -> Iterator[_Found]:
    """Anneal once: as many moves as a modest machine makes in this time, fewer where the clock runs ahead."""
    state = arrange(problem, generator.permutation(problem.size), generator)
    size, width = state.flow.shape
    mean = mean_change(state, 1000)
    planned = max(1.0, seconds * 2e9 / (100 + width))
    moves = int(min(2e7 / width, max(planned / 20, 20.0 * size)))
    begin, done, least, at = perf_counter(), 0.0, problem.cost(state.best), (0, 0)
    while True:
        cost = problem.cost(state.permutation)
        heat = mean * _HOT * (_COLD / _HOT) ** done
        at = anneal_moves(state, cost, least, at, moves, heat, (_COLD / _HOT) ** (1 / planned), target)
        least = problem.cost(state.best)
        yield least, state.best.copy()
        if done >= 1 or least <= target:
            return
        elapsed = (perf_counter() - begin) / seconds if seconds else 1.0
        done = min(1.0, max(done + moves / planned, elapsed))


def _tabu_search(
    problem: QuadraticAssignment, first: _Found, generator: np.random.Generator, seconds: float, target: float
) -> Iterator[_Found]:
    """Search by tabu: as many swaps as a modest machine makes in this time, fewer where the clock runs ahead."""
    size, state = len(first[1]), arrange(problem, first[1], generator)
    until = -np.arange(size * size).reshape(size, size)
    planned, moves = int(seconds * 2e8 / size**2), int(max(10, 2e7 / (size * (size + 20))))
    begin, done, least = perf_counter(), 1, first[0]
    while True:
        tabu_moves(state, problem.cost(state.permutation), least, until, done, moves, target)
        least = problem.cost(state.best)
        yield least, state.best.copy()
        done += moves
        if least <= target or done > planned or perf_counter() - begin >= seconds:
            return
