r"""
Quadratic assignment: a lower bound, annealing and tabu search.

Sets
    Items i, j and locations k, l, both :math:`0, \dots, n - 1`.

Data
    Flow :math:`f_{ij}` and distance :math:`d_{kl}`, of any sign, as in :mod:`taut.formulations.assignment`.

Variables
    Permutation :math:`\pi`: item i is at location :math:`\pi_i`.

Objective
    .. math:: z(\pi) = \sum_{i, j} f_{ij} \, d_{\pi_i \pi_j}. \tag{1}

Bound [1]_. An item i at location k pays at least the smallest scalar product of what leaves i with what
leaves k, which pairs one row in ascending with the other in descending order, whatever the signs:

.. math:: z(\pi) \ge \min_\sigma \sum_i \ell_{i \sigma_i}, \qquad
    \ell_{ik} = f_{ii} d_{kk} + \langle f_{i \cdot}, d_{k \cdot} \rangle_-. \tag{2}

Search. With :math:`b_{ij} = d_{\pi_i \pi_j}` kept up to date, :math:`F = f + f^T`, symmetric matrices and zeros
on the diagonals of :math:`F` and :math:`b`, swapping the locations of items r and s changes the cost by a product
of contiguous rows,

.. math:: \Delta_{rs} = \sum_k (F_{rk} - F_{sk}) (b_{sk} - b_{rk}) + 2 F_{rs} b_{rs}
    + (f_{rr} - f_{ss}) (b_{ss} - b_{rr}). \tag{3}

If one matrix is symmetric, only the sum of the two triangles of the other counts, and it may be made symmetric.
If neither is, the rows are :math:`(f_{r \cdot}, f_{\cdot r})` and :math:`(b_{r \cdot}, b_{\cdot r})`. A swap of u
and v changes the other :math:`\Delta_{rs}` by what the rows of u and v say alone,

.. math:: \Delta_{rs} \leftarrow \Delta_{rs} + (x_r - x_s)(y_r - y_s), \qquad
    x = F_{u \cdot} - F_{v \cdot}, \quad y = b_{v \cdot} - b_{u \cdot} \text{ (after the swap)}. \tag{4}

Two items, or two locations, are alike if swapping them leaves the problem as it is; such swaps are not tried.

References
----------
.. [1] Gilmore, P.C. (1962). Optimal and suboptimal algorithms for the quadratic assignment problem. Journal of
       SIAM 10: 305-313. Lawler, E.L. (1963). The quadratic assignment problem. Management Science 9: 586-599.
.. [2] Connolly, D.T. (1990). An improved annealing scheme for the QAP. European Journal of Operational Research
       46: 93-100.
.. [3] Taillard, E. (1991). Robust taboo search for the quadratic assignment problem. Parallel Computing
       17: 443-455.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from time import perf_counter
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.optimize import linear_sum_assignment

from taut.errors import FormulationError
from taut.formulations.assignment import QuadraticAssignment

Progress = Callable[[float, float, float], None]
"""Receives the elapsed seconds, the best objective and the lower bound."""

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_Found = tuple[float, _Ints]

_ENUMERATED = 8
_TABU_FIRST = 45  # Up to this n tabu search beats annealing in the same time on QAPLIB, above it annealing leads.
_TABU_LAST = 1024  # Above this n the table of all changes takes longer to fill than a call may last.
_HOT, _COLD = 0.4, 0.01  # First and last temperature, relative to the mean change of a random swap.
_SUM = {"reassoc", "contract", "nsz"}  # Lets the compiler vectorise sums, but keeps infinities.


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentResult:
    """
    A permutation, and how far it can be from the best.

    Parameters
    ----------
    objective
        Cost of the permutation, in the unit of flow times distance.
    lower_bound
        No permutation costs less; -inf if no bound was finished.
    gap
        (objective - lower_bound) / abs(objective), 0 if both are equal, None if it is undefined.
    status
        ``"optimal"`` if the gap is at most 1e-6, else ``"feasible"``.
    permutation
        Location of every item, counted from zero.
    bound_source
        ``"enumeration"``, ``"gilmore-lawler"`` or ``"none"``.
    wall_s
        Seconds that all of it took.
    """

    objective: float
    lower_bound: float
    gap: float | None
    status: Literal["optimal", "feasible"]
    permutation: tuple[int, ...]
    bound_source: str
    wall_s: float


def place(
    problem: QuadraticAssignment, *, seed: int = 0, time_limit: float = 10.0, progress: Progress | None = None
) -> AssignmentResult:
    """
    Find a cheap permutation, and bound how much cheaper any other can be.

    Up to n = 8 every permutation is priced. Above, annealing [2]_ and robust tabu search [3]_ alternate until
    the time is over or the bound (2) is met. An interrupt (Ctrl-C) ends the search with the best permutation so
    far.

    Parameters
    ----------
    problem
        Flow and distance (n, n).
    seed
        Not negative. One seed gives one order of work; the time decides how much of it is done.
    time_limit
        Seconds, the bound included. One call of each kernel, below a second, is made in any case.
    progress
        Called between kernel calls with the elapsed seconds, the best objective and the lower bound.

    Returns
    -------
    AssignmentResult
        The best permutation found and the bound.

    Raises
    ------
    FormulationError
        If the time limit is negative or not a number.
    """
    begin = perf_counter()
    best, bound, source = np.arange(problem.size), -math.inf, "none"
    with suppress(KeyboardInterrupt):
        if problem.size <= _ENUMERATED:
            best = _enumerate(problem)
            bound, source = problem.cost(best), "enumeration"
        else:
            bound, source = gilmore_lawler(problem), "gilmore-lawler"
        # A sum of floats may miss the bound that it meets by units in the last place.
        target = bound + 1e-9 * abs(bound)
        seconds = _seconds_left(begin, time_limit)
        for cost, permutation in _search(problem, best, seed, seconds, target, tabu=True):
            best = permutation
            if progress:
                progress(perf_counter() - begin, cost, bound)
    objective = problem.cost(best)
    gap = _gap(objective, bound)
    return AssignmentResult(
        objective=objective,
        lower_bound=bound,
        gap=gap,
        status="optimal" if gap is not None and gap <= 1e-6 else "feasible",
        permutation=tuple(best.tolist()),
        bound_source=source,
        wall_s=perf_counter() - begin,
    )


def anneal(
    problem: QuadraticAssignment, *, seed: int, time_limit: float, progress: Progress | None = None
) -> tuple[int, ...]:
    """
    Find a cheap permutation by simulated annealing alone.

    Tries the swaps in a fixed order of pairs [2]_, cooling geometrically, and starts again from random
    permutations. An interrupt (Ctrl-C) ends it with the best permutation so far.

    Parameters
    ----------
    problem
        Flow and distance (n, n).
    seed
        Not negative. One seed gives one order of work; the time decides how much of it is done.
    time_limit
        Seconds, all of which are used.
    progress
        Called between kernel calls with the elapsed seconds, the best objective and -inf, for annealing gives no
        bound.

    Returns
    -------
    tuple
        Location of every item, counted from zero.

    Raises
    ------
    FormulationError
        If the time limit is negative or not a number.
    """
    begin, best = perf_counter(), np.arange(problem.size)
    with suppress(KeyboardInterrupt):
        seconds = _seconds_left(begin, time_limit)
        for cost, permutation in _search(problem, best, seed, seconds, -math.inf, tabu=False):
            best = permutation
            if progress:
                progress(perf_counter() - begin, cost, -math.inf)
    return tuple(best.tolist())


def gilmore_lawler(problem: QuadraticAssignment) -> float:
    """
    Bound the cost of every permutation from below by the assignment problem (2).

    Parameters
    ----------
    problem
        Flow and distance (n, n), of any sign.

    Returns
    -------
    float
        Bound, in the unit of flow times distance. If all data are integers it is rounded up to an integer, and to
        an even one if both matrices are symmetric with zero diagonals. What rounding errors may add is taken off.

    Notes
    -----
    O(n^3). If no matrix is symmetric, (2) is taken over rows and over columns and the larger value counts. Weak
    where the flow is dense.
    """
    flow, distance = problem.flow, problem.distance
    symmetric = [np.array_equal(matrix, matrix.T) for matrix in (flow, distance)]
    if any(symmetric):
        bound = _row_bound((flow + flow.T) / 2, (distance + distance.T) / 2)
    else:
        bound = max(_row_bound(flow, distance), _row_bound(flow.T, distance.T))
    bound -= _rounding(problem)
    if problem.integral:
        step = 2 if all(symmetric) and not flow.diagonal().any() and not distance.diagonal().any() else 1
        bound = float(step * math.ceil((bound - 1e-6) / step))
    return max(bound, 0.0) if flow.min() >= 0 and distance.min() >= 0 else bound


def _row_bound(flow: _Floats, distance: _Floats) -> float:
    """Value of the assignment problem (2), up to rounding errors."""
    size = len(flow)
    others = ~np.eye(size, dtype=bool)
    rising = np.sort(flow[others].reshape(size, size - 1), axis=1)
    falling = np.sort(distance[others].reshape(size, size - 1), axis=1)[:, ::-1]
    least = rising @ falling.T + np.outer(flow.diagonal(), distance.diagonal())
    return float(least[linear_sum_assignment(least)].sum())


def _rounding(problem: QuadraticAssignment) -> float:
    """Most that rounding errors can add to (2): nothing on integers that floats hold exactly."""
    size, largest = problem.size, float(np.abs(problem.distance).max())
    scale = float(np.abs(problem.flow).sum(axis=1).max()) * largest
    if problem.integral and 4 * size**2 * scale < 2**52:
        return 0.0
    # The assignment comes from n augmentations, each of which adds up to n entries to each of 2 n dual values.
    return 8 * size**3 * float(np.finfo(np.float64).eps) * scale


def _gap(objective: float, bound: float) -> float | None:
    """Distance from bound to objective relative to the objective, where that means something."""
    if objective == bound:
        return 0.0
    if objective == 0 or math.isinf(bound):
        return None
    return (objective - bound) / abs(objective)


def _enumerate(problem: QuadraticAssignment) -> _Ints:
    """Best of all permutations, the first of them in lexicographic order if there are several."""
    every = np.array(list(permutations(range(problem.size))), dtype=np.int64)
    costs = np.tensordot(problem.distance[every[:, :, None], every[:, None, :]], problem.flow, axes=2)
    best: _Ints = every[np.argmin(costs)]
    return best


def _seconds_left(begin: float, time_limit: float) -> float:
    """Rest of the time limit."""
    if not time_limit >= 0:
        raise FormulationError(f"time limit is {time_limit} s, expected at least 0")
    return max(0.0, begin + time_limit - perf_counter())


def _search(
    problem: QuadraticAssignment, first: _Ints, seed: int, seconds: float, target: float, *, tabu: bool
) -> Iterator[_Found]:
    """Best permutation so far, after every kernel call, until the time is over or the target is met."""
    best = (problem.cost(first), first)
    yield best
    if problem.size > 1 and best[0] > target:
        for found in _rounds(problem, np.random.default_rng(seed), seconds, target, tabu=tabu):
            best = found if found[0] < best[0] else best
            yield best
            if best[0] <= target:
                return


def _rounds(
    problem: QuadraticAssignment, generator: np.random.Generator, seconds: float, target: float, *, tabu: bool
) -> Iterator[_Found]:
    """Permutations from annealing out of random starts, each followed by tabu search from where it ended."""
    share, growth = (0.2, 3) if problem.size <= _TABU_FIRST else (0.8, 8)
    share = share if tabu and problem.size <= _TABU_LAST else 1.0
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


class _State(NamedTuple):
    """What kernels read and change: rows and diagonals of (3), what is alike, permutations, random bits."""

    flow: _Floats
    flow_loop: _Floats
    flow_kind: _Ints
    placed: _Floats
    placed_loop: _Floats
    placed_kind: _Ints
    permutation: _Ints
    best: _Ints
    bits: npt.NDArray[np.uint64]


def _arrange(problem: QuadraticAssignment, permutation: _Ints, generator: np.random.Generator) -> _State:
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
    kinds = [_alike(rows, loop) for rows, loop in zip((flow, distance), loops, strict=True)]
    bits = generator.integers(1, 2**63, 1, dtype=np.uint64)
    return _State(flow, loops[0], kinds[0], distance, loops[1], kinds[1], permutation.copy(), permutation.copy(), bits)


def _annealing(
    problem: QuadraticAssignment, generator: np.random.Generator, seconds: float, target: float
) -> Iterator[_Found]:
    """Anneal once: as many moves as a modest machine makes in this time, fewer where the clock runs ahead."""
    state = _arrange(problem, generator.permutation(problem.size), generator)
    size, width = state.flow.shape
    mean = _mean_change(state, 1000)
    planned = max(1.0, seconds * 2e9 / (100 + width))
    moves = int(min(2e7 / width, max(planned / 20, 20.0 * size)))
    begin, done, least, at = perf_counter(), 0.0, problem.cost(state.best), (0, 0)
    while True:
        cost = problem.cost(state.permutation)
        heat = mean * _HOT * (_COLD / _HOT) ** done
        at = _anneal_moves(state, cost, least, at, moves, heat, (_COLD / _HOT) ** (1 / planned), target)
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
    size = len(first[1])
    state = _arrange(problem, first[1], generator)
    until = -np.arange(size * size).reshape(size, size)
    planned, moves = int(seconds * 2e8 / size**2), int(max(10, 2e7 / (size * (size + 20))))
    begin, done, least = perf_counter(), 1, first[0]
    while True:
        _tabu_moves(state, problem.cost(state.permutation), least, until, done, moves, target)
        least = problem.cost(state.best)
        yield least, state.best.copy()
        done += moves
        if least <= target or done > planned or perf_counter() - begin >= seconds:
            return


@njit(cache=True, nogil=True)
def _draw(bits: npt.NDArray[np.uint64]) -> np.uint64:
    """Next 64 random bits, by xorshift."""
    word: np.uint64 = bits[0]
    word ^= word << np.uint64(13)
    word ^= word >> np.uint64(7)
    word ^= word << np.uint64(17)
    bits[0] = word
    return word


@njit(cache=True, nogil=True)
def _draw_below(bits: npt.NDArray[np.uint64], end: int) -> int:
    """Random integer from 0 to end - 1."""
    return int(np.int64(((_draw(bits) >> np.uint64(32)) * np.uint64(end)) >> np.uint64(32)))


@njit(cache=True, nogil=True)
def _alike(rows: _Floats, loops: _Floats) -> _Ints:
    """First index that each may be swapped with, leaving the rows of (3) as they are."""
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


@njit(cache=True, nogil=True, fastmath=_SUM)
def _change(flow: _Floats, placed: _Floats, flow_loop: _Floats, placed_loop: _Floats, r: int, s: int) -> float:
    """Change of the cost (3) if items r and s swap locations."""
    size, width = flow.shape
    flow_r, flow_s, placed_r, placed_s = flow[r], flow[s], placed[r], placed[s]
    total = 0.0
    for k in range(width):
        total += (flow_r[k] - flow_s[k]) * (placed_s[k] - placed_r[k])
    back = s + width - size
    between = (flow_r[s] + flow_r[back]) * (placed_r[s] + placed_r[back])
    loops = (flow_loop[r] - flow_loop[s]) * (placed_loop[s] - placed_loop[r])
    return float(total + (between if width > size else 0.5 * between) + loops)


@njit(cache=True, nogil=True)
def _swap(placed: _Floats, placed_loop: _Floats, placed_kind: _Ints, permutation: _Ints, r: int, s: int) -> None:
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


@njit(cache=True, nogil=True)
def _mean_change(state: _State, draws: int) -> float:
    """Mean absolute change of random swaps, of those that change anything."""
    size, total, count = len(state.permutation), 0.0, 0
    for _ in range(draws):
        r, s = _draw_below(state.bits, size), _draw_below(state.bits, size)
        change = abs(_change(state.flow, state.placed, state.flow_loop, state.placed_loop, r, s)) if r != s else 0.0
        total += change
        count += change > 0
    return total / max(count, 1)


@njit(cache=True, nogil=True)
def _anneal_moves(
    state: _State,
    cost: float,
    least: float,
    last: tuple[int, int],
    moves: int,
    heat: float,
    cooling: float,
    target: float,
) -> tuple[int, int]:
    """Try swaps in the order of pairs after the last one, and say which was the last."""
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
        if change > 0 and (
            change >= 30 * heat or (_draw(bits) >> np.uint64(11)) * 2.0**-53 >= math.exp(-change / heat)
        ):
            continue
        _swap(placed, placed_loop, placed_kind, permutation, r, s)
        cost += change
        if cost < least:
            least = cost
            best[:] = permutation
            if least <= target:
                break
    return r, s


@njit(cache=True, nogil=True)
def _choose(
    changes: _Floats,
    until: _Ints,
    permutation: _Ints,
    flow_kind: _Ints,
    placed_kind: _Ints,
    now: int,
    gain: float,
) -> tuple[int, int]:
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


@njit(cache=True, nogil=True, fastmath=_SUM)
def _update(changes: _Floats, flow: _Floats, placed: _Floats, u: int, v: int) -> None:
    """Bring the changes of all pairs without u and v up to date (4), after u and v have swapped locations."""
    size, width = flow.shape
    x, y = flow[u] - flow[v], placed[v] - placed[u]
    for shift in range(0, width, size):
        for i in range(size):
            row, x_i, y_i = changes[i], x[shift + i], y[shift + i]
            for j in range(i + 1, size):
                row[j] += (x_i - x[shift + j]) * (y_i - y[shift + j])


@njit(cache=True, nogil=True)
def _tabu_moves(state: _State, cost: float, least: float, until: _Ints, begin: int, moves: int, target: float) -> None:
    """Make the best swap that is allowed, again and again; the locations left are tabu for about n swaps."""
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
            until[item, permutation[item]] = now + int(0.9 * size) + _draw_below(bits, size // 5 + 2)
        cost += changes[r, s]
        _swap(placed, placed_loop, placed_kind, permutation, r, s)
        if cost < least - slack:
            least = cost
            best[:] = permutation
            if least <= target:
                break
        _update(changes, flow, placed, r, s)
        for k in range(size):
            for fixed in (r, s):
                if k != fixed:
                    i, j = min(k, fixed), max(k, fixed)
                    changes[i, j] = _change(flow, placed, flow_loop, placed_loop, i, j)
