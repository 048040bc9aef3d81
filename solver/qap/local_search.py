r"""
Rounds of annealing and tabu search on quadratic assignment.

With the cost z of ``taut.formulations.assignment.assignment``, the kernels of ``taut.solver.qap.swap_neighbourhood``
and S seconds:

(1) rounds of growing length :math:`t_1 = \min(S / 20, 1), \; t_{m+1} = g \, t_m` fill the time, the last one
    stretched to its end; annealing from a random permutation gets the share a of each, and tabu search from where
    that ended the rest: :math:`(a, g) = (0.2, 3)` up to n = 45, (0.8, 8) above; a = 1 where n exceeds 1024;
(2) when a share w of its time is over, annealing is at the temperature
    :math:`T = 0.4 \, (0.01 / 0.4)^w \; \overline{|\Delta|}`, with the mean change of random swaps that change anything;
(3) a cost that is not above the target ends the search.
"""

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.assignment.assignment import QuadraticAssignment
from taut.solver.qap.swap_neighbourhood import anneal_moves, arrange, mean_change, tabu_moves

_Found = tuple[float, Ints]
_TABU_FIRST = 45  # Up to this n tabu search beats annealing in the same time on QAPLIB, above it annealing leads.
_TABU_LAST = 1024  # Above this n the table of all changes takes longer to fill than a call may last.
_HOT, _COLD = 0.4, 0.01  # First and last temperature, relative to the mean change of a random swap.


def search(problem: QuadraticAssignment, first: Ints, seed: int, seconds: float, target: float) -> Iterator[_Found]:
    """
    Search for cheap permutations.

    ``problem``: flow and distance (n, n); ``first``: location of every item (n,), to begin with; ``seed``: one seed
    gives one order of work; ``seconds``: time; one call of each kernel is made in any case; ``target``: cost that ends
    the search, (3). Yields cost and locations of the best permutation so far, after every kernel call.
    """
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
