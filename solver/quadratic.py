r"""
Quadratic assignment: rounds of annealing and tabu search, against a lower bound.

With the cost z of :mod:`taut.formulations.assignment`, the bound L of :mod:`taut.solver.gilmore_lawler`, the two
searches of :mod:`taut.solver.swaps` and S seconds:

(1) up to n = 8 every permutation is priced, and L is the least cost;
(2) above, rounds of growing length :math:`t_1 = \min(S / 20, 1), \; t_{m+1} = g \, t_m` fill the time, the last one
    stretched to its end; annealing from a random permutation gets the share a of each, and tabu search from where
    that ended the rest: :math:`(a, g) = (0.2, 3)` up to n = 45, (0.8, 8) above; a = 1 where n exceeds 1024 or
    annealing alone is asked for;
(3) when a share w of its time is over, annealing is at the temperature
    :math:`T = 0.4 \, (0.01 / 0.4)^w \; \overline{|\Delta|}`, with the mean change of random swaps that change anything;
(4) the search ends early where L is met, :math:`z \le L + 10^{-9} |L|`, for a sum of floats may miss the bound that it
    meets by units in the last place; the gap is :math:`(z - L) / |z|`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from time import perf_counter
from typing import Literal

import numpy as np
import numpy.typing as npt

from taut.errors import FormulationError
from taut.formulations.assignment import QuadraticAssignment
from taut.solver.gilmore_lawler import gilmore_lawler
from taut.solver.swaps import anneal_moves, arrange, mean_change, tabu_moves

Progress = Callable[[float, float, float], None]
"""Receives the elapsed seconds, the best objective and the lower bound."""

_Ints = npt.NDArray[np.int64]
_Found = tuple[float, _Ints]
_ENUMERATED = 8
_TABU_FIRST = 45  # Up to this n tabu search beats annealing in the same time on QAPLIB, above it annealing leads.
_TABU_LAST = 1024  # Above this n the table of all changes takes longer to fill than a call may last.
_HOT, _COLD = 0.4, 0.01  # First and last temperature, relative to the mean change of a random swap.


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

    Small problems are enumerated, (1); otherwise annealing and robust tabu search alternate, (2), until the time is
    over or the bound is met. An interrupt (Ctrl-C) ends the search with the best permutation so far.

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
        target = bound + 1e-9 * abs(bound)
        for cost, permutation in _search(problem, best, seed, _seconds_left(begin, time_limit), target, tabu=True):
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

    Cools as in (3), and starts again from random permutations. Parameters, errors and interrupts as for ``place``,
    but all of the time is used, and ``progress`` receives -inf for the bound that annealing does not give.

    Returns
    -------
    tuple
        Location of every item, counted from zero.
    """
    begin, best = perf_counter(), np.arange(problem.size)
    with suppress(KeyboardInterrupt):
        for cost, permutation in _search(problem, best, seed, _seconds_left(begin, time_limit), -math.inf, tabu=False):
            best = permutation
            if progress:
                progress(perf_counter() - begin, cost, -math.inf)
    return tuple(best.tolist())


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
