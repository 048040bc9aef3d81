r"""
Local search for a division that fits: annealing, then first improvement over single steps.

Of the given divisions, those whose larger chunks lie in a row (1), those that annealing finds
(``taut.solver.order_priced.divisions.annealing``), and neighbours, the best is sought by the least pair (bytes beyond
the budget on the worst device, makespan) in lexicographic order, with the exact memory of
``taut.formulations.tables.memory`` and the makespan at the best links (``taut.formulations.order_division`` (1)). A
neighbour moves one cut by one layer or changes one chunk's recompute; the first that improves is taken. The search ends
in a local optimum, after a number of neighbours, or where the makespan is too far beyond the limit for steps to come
below it. The result fits; nothing is claimed of how good it is. Where divisions are listed (``ChunkProblem.stated``),
the quickest of them that fits takes the place of all this.

Divisions whose larger chunks lie in a row are good ones at once where layers do not divide evenly. With C chunks and
a, b = 0 or 1 layers fewer in the model's first and last chunk, beside which embedding and head are, let
:math:`L + a + b = q C + k`. Then

(1) :math:`k` consecutive chunks :math:`s, \dots, s + k - 1` have q + 1 layers and all others q, less a in the first
    chunk and b in the last.

A device waits in the beginning for the first chunks before its own, and at the end for their backward passes, so small
chunks at both ends keep the fullest devices busy; and chunks of a round that are alike do not wait for each other. Of
126 layers in 48 chunks on 12 devices the best (1) is quicker than what three long runs of annealing find.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.order_division import ChunkProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.formulations.tables.memory import DeviceMemory, device_memory
from taut.solver.layer_division.divide import Partition
from taut.solver.order_priced.divisions.annealing import DivisionAnnealing
from taut.solver.order_priced.master_rows import least_makespan, least_makespans
from taut.solver.order_priced.stated import by_busiest

EFFORTS = (3_000, np.inf, 2e-2), (15_000, 0.02, 1e-3), (25_000, 0.01, 5e-3), (25_000, 0.01, 1e-3)
"""Moves of annealing runs, the distance of the makespan beyond the limit, relative, up to which each is made, and first
temperatures: of eight devices with two to four chunks each, the first run ends within 1.7 % of the best division known,
and colder ones from there reach it in a third of the moves of hot ones."""
SHORT, LONG = range(1), range(1, 4)
"""The first of these runs, whose cost is like that of a bound, and the others."""
MOST_ANNEALED = 120_000_000
"""Passes that a run prices at most: one to two seconds."""
MOST_PASSES = 1_500_000
"""Passes that are priced at most, over all neighbours: some tenths of a second."""
REACH = 0.03
"""Distance of the makespan beyond the limit, relative, up to which steps are tried."""


def improved_division(
    problem: PlanningProblem,
    candidate: Candidate,
    given: ChunkProblem,
    divisions: Sequence[Division],
    limit: float = np.inf,
    *,
    turns: range = range(len(EFFORTS)),
) -> Partition | None:
    """A division that fits the largest device, with its makespan at the best links, or None, by ``turns``."""
    if given.stated is not None:
        return _best_stated(problem, candidate, given)
    trial = _Trial(given, device_memory(problem, candidate))
    # Later runs begin with what the first one began with.
    more = quickest_bands(given, trial.excess, limit * (1 + REACH)) if turns.start == 0 else ()
    best = trial.best([*divisions, *more])
    for seed in turns:
        moves, reach, hot = EFFORTS[seed]
        if reach < np.inf and (best.excess > 0 or best.seconds >= limit * (1 + reach)):
            break
        moves = min(moves, MOST_ANNEALED // len(given.order.passes))
        run = DivisionAnnealing(problem, candidate, given, best.division, moves=moves, hot=hot, seed=seed)
        run.advance()
        best = trial.best([best.division, run.division]) if run.division is not None else best
    best = _descended(trial, best, limit)
    if best.excess > 0:
        return None
    return Partition(seconds=best.seconds, division=best.division, patterns=given.patterns)


class _Tried(NamedTuple):
    """A division with the bytes that its fullest device lacks, and its makespan in seconds: the less the better."""

    excess: int
    seconds: float
    division: Division


@dataclass(frozen=True)
class _Trial:
    """What divisions are tried by: memory of the devices, and makespan."""

    given: ChunkProblem
    memory: DeviceMemory

    def excess(self, division: Division) -> int:
        """Bytes that the fullest device of a division lacks."""
        return max(max(self.memory.bytes_of(*division.ranges)) - int(self.given.budget), 0)

    def best(self, divisions: Sequence[Division]) -> _Tried:
        """The quickest of the divisions that lack least, the first of several."""
        lacking = [self.excess(division) for division in divisions]
        leanest = [division for division, over in zip(divisions, lacking, strict=True) if over == min(lacking)]
        seconds = [least_makespan(self.given, division) for division in leanest]
        return _Tried(min(lacking), min(seconds), leanest[int(np.argmin(seconds))])


def _descended(trial: _Trial, best: _Tried, limit: float) -> _Tried:
    """The division that first steps which are better lead to, as long as it is near the limit."""
    given = trial.given
    left = max(MOST_PASSES // len(given.order.passes), 4 * given.num_chunks)
    improving = True
    while improving and left > 0 and best.seconds < limit * (1 + REACH):
        improving = False
        for division in _neighbours(given, best.division):
            if (over := trial.excess(division)) > best.excess:
                continue
            left -= 1
            tried = _Tried(over, least_makespan(given, division), division)
            if tried[:2] < best[:2]:
                best, improving = tried, True
                break
    return best


def _best_stated(problem: PlanningProblem, candidate: Candidate, given: ChunkProblem) -> Partition | None:
    """The quickest division of those that are listed, with one recompute for all chunks, that fits."""
    trial = _Trial(given, device_memory(problem, candidate))
    best, seconds, left = None, np.inf, MOST_PASSES
    for busiest, division in merge(*(by_busiest(given, r) for r in given.recomputes.tolist()), key=itemgetter(0)):
        if busiest >= seconds or left <= 0:
            break
        if trial.excess(division) == 0:
            left -= len(given.order.passes)
            value = least_makespan(given, division)
            best, seconds = (division, value) if value < seconds else (best, seconds)
    return None if best is None else Partition(seconds=seconds, division=best, patterns=given.patterns)


def _neighbours(given: ChunkProblem, division: Division) -> Iterator[Division]:
    """Divisions one step away."""
    for c in range(given.num_chunks - 1):
        for step in (-1, 1):
            ends = division.ends.copy()
            ends[c] += step
            if division.starts[c] < ends[c] < division.ends[c + 1]:
                yield Division.of_ends(ends, division.recompute_index)
    allowed = np.flatnonzero(np.isfinite(given.passes[0, :, 0, -1]))
    for c in range(given.num_chunks if len(allowed) > 1 else 0):
        for r in allowed[allowed != division.recompute_index[c]]:
            recompute = division.recompute_index.copy()
            recompute[c] = r
            yield Division.of_ends(division.ends, recompute)


MOST_BAND_PASSES = 2_000_000
"""Passes that are priced at most for each recompute, of all (1) together: a tenth of a second."""


def bands(given: ChunkProblem) -> Ints:
    """Ends of divisions (1), (n, C), evenly thinned where there are many."""
    every = list(dict.fromkeys(_bands(given)))
    most = max(MOST_BAND_PASSES // len(given.order.passes), 1)
    layers = np.array(every[:: -(-len(every) // most)]).reshape(-1, given.num_chunks)
    layers[:, [0, -1]] += given.ends
    return np.asarray(layers.cumsum(axis=1))


def _bands(given: ChunkProblem) -> Iterator[tuple[int, ...]]:
    """Layers of every chunk of (1); none in the first or the last where these have embedding or head alone."""
    chunks, least = given.num_chunks, np.ones(given.num_chunks, dtype=np.int64)
    least[[0, -1]] -= given.ends
    for a, b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        each, more = divmod(given.num_layers - 2 * given.ends + a + b, chunks)
        for s in range(chunks - more + 1 if more else 1):
            layers = np.full(chunks, each)
            layers[s : s + more] += 1
            layers[0] -= a
            layers[-1] -= b
            if (layers >= least).all():
                yield tuple(layers.tolist())


def quickest_bands(given: ChunkProblem, excess: Callable[[Division], int], limit: float = np.inf) -> Iterator[Division]:
    """The quickest division (1) of each recompute that fits, below ``limit`` seconds; ``excess``: bytes lacking."""
    ends = bands(given)
    for recompute in given.recomputes.tolist():
        seconds, kinds = least_makespans(given, ends, recompute), np.full(given.num_chunks, recompute)
        useful = (
            Division.of_ends(ends[k], kinds) for k in np.argsort(seconds, kind="stable").tolist() if seconds[k] < limit
        )
        fitting = next((division for division in useful if excess(division) == 0), None)
        if fitting is not None:
            yield fitting
