r"""
Good divisions of the layers into the chunks of an order-priced candidate by local search, never bounds.

A division that fits is sought by annealing, then by first improvement over single steps. Of the given divisions, those
whose larger chunks lie in a row (1), those that annealing finds, (2) to (4), and neighbours, the best is sought by the
least pair (bytes beyond the budget on the worst device, makespan) in lexicographic order, with the exact memory of
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

Simulated annealing changes ends and recompute of the chunks. Its objective is (1) or (1') of
``taut.formulations.order_division`` at the best links, plus a penalty for bytes beyond the budgets of the devices,
which count the workspace and the buffers that (2) there leaves out. Moves to a neighbour:

(2) one to three layers leave a chunk for a neighbour or for any other one, and all cuts between shift;
(3) a chunk changes its recompute, alone or with (2).

(4) A worse neighbour by :math:`\Delta` seconds is accepted with probability :math:`e^{-\Delta / T}`; the temperature T
    falls geometrically, since whole layers are worth some per cent of a step and cuts between them a small part of it.

A run may be made in parts (``DivisionAnnealing``), so that a search can stop between them.

Reference: Kirkpatrick, Gelatt and Vecchi (1983), Optimization by simulated annealing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.spec import LEAST
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.order_division import ChunkProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.recurrence import WEIGHT_GRADIENT, execute
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.formulations.tables.memory import DeviceMemory, device_memory
from taut.solver.layer_division.divide import Partition
from taut.solver.order_priced.master_rows import least_makespan, least_makespans
from taut.solver.order_priced.staircases import ends_of_paths, is_interleaved
from taut.solver.order_priced.stated import by_busiest

HOT, COLD = 2e-2, 2e-5
"""First and last temperature as shares of the ideal step: about half a layer of one device at 24 layers each, and less
than any cut between two chunks."""
PENALTY = 1.0
"""Penalty in ideal steps for lacking a whole budget: recompute that frees a tenth of it costs less than a tenth."""
EXACT = 1 << 14
"""Bytes kept free for the rounding of the exact memory, which rounds every term up."""
ROUNDED = 1 - 1e-12
"""Share of a sum that is left of it in another order of its terms."""
LIMITS_OF_KINDS = 0.25, 0.6, 0.2
"""Chance of a change of recompute alone, of that or a move between neighbours, and of a recompute with a move."""


class Figures(NamedTuple):
    """
    Arrays of ``ChunkProblem``, bytes of the workspace and buffers, and what the objective is made of.

    ``kind`` is the class of every chunk's device (C,), of which ``passes`` has the seconds. The last five are the ends
    of staircases (``taut.solver.order_priced.staircases``), none under other orders.
    """

    rows: Ints
    first: Ints
    device: Ints
    away: Flags
    micro_batches: int
    kind: Ints
    passes: Floats
    edge: Floats
    loads: Floats
    held: Floats
    once: Floats
    activation: Floats
    counts: Floats
    first_count: Ints
    allowed: Ints
    room: float
    ring: float
    optimizer: float
    waits_for_all: bool
    penalty: float
    forward: Floats
    backward: Floats
    transfers: Floats
    after: Ints
    leaves: Flags


class DivisionAnnealing:
    """
    An annealing run in ``parts`` of so many ``moves``, each of which goes on from where the last one ended.

    It begins at ``start``, which need not fit, ``hot`` a share of the ideal step.
    """

    def __init__(
        self,
        problem: PlanningProblem,
        candidate: Candidate,
        given: ChunkProblem,
        start: Division,
        *,
        moves: int,
        parts: int = 1,
        hot: float = HOT,
        seed: int = 0,
    ) -> None:
        self._figures, self._ideal = _figures(problem, candidate, given), _ideal(given)
        self._moves, self._parts, self._hot, self._seed, self._done = moves, parts, hot, seed, 0
        self._state = start.ends.astype(np.int64), start.recompute_index.astype(np.int64)
        self._best, self._seconds = (self._state[0].copy(), self._state[1].copy()), np.inf

    @property
    def division(self) -> Division | None:
        """The best division so far whose bytes, to a rounding, fit the largest device; None where none was met."""
        return Division.of_ends(*self._best) if np.isfinite(self._seconds) else None

    def advance(self) -> bool:
        """Anneal one part; returns whether there is another."""
        falls = (COLD / self._hot) ** (1.0 / self._parts)
        hot = self._hot * falls**self._done * self._ideal
        seed = self._seed + self._done * 1_000_003
        temperatures = hot, hot * falls
        self._seconds = _run(
            self._figures, *self._state, *self._best, self._seconds, self._moves, seed % (1 << 32), *temperatures
        )
        self._done += 1
        return self._done < self._parts


def _ideal(given: ChunkProblem) -> float:
    """Seconds of all layers, spread evenly over the devices, without recompute if that is allowed."""
    every = given.passes.sum(axis=0)[:, 0, -1]
    ideal = float(every[np.isfinite(every)].min()) * given.micro_batches / len(given.counts)
    # Passes that take no time leave nothing to accept by; any temperature above 0 will do.
    return max(ideal, LEAST)


def _figures(problem: PlanningProblem, candidate: Candidate, given: ChunkProblem) -> Figures:
    tables, memory, order = problem.tables(candidate), problem.memory_of(candidate), given.order
    buffers = memory.coefficient("buffers") * tables.buffers
    # Stand-ins are as many as the largest chunk has of each kind. Gradients that pass are of one chunk, and beside
    # logits only what they are more than these.
    stand_ins = memory.coefficient("gradients") * memory.held_parameter_bytes.weight * tables.cached.sum(axis=0)
    passing = memory.coefficient("workspace") * tables.backward - memory.coefficient("logits") * tables.logits
    once = memory.coefficient("workspace") * tables.workspace + buffers + stand_ins + np.maximum(passing, 0.0)
    return Figures(
        rows=order.passes,
        first=order.first,
        device=order.device,
        away=given.away,
        micro_batches=given.micro_batches,
        kind=np.array(given.patterns)[order.device],
        passes=given.passes[None] if given.slower is None else np.stack((given.passes, given.slower.passes)),
        edge=given.edge,
        loads=given.loads,
        held=given.beside,
        once=np.asarray(once, dtype=float),
        activation=given.activation,
        counts=np.concatenate(given.counts).astype(float),
        first_count=np.cumsum([0, *map(len, given.counts)]),
        allowed=np.flatnonzero(np.isfinite(given.passes[0, :, 0, -1])),
        room=given.budget - given.always + given.passing - EXACT,
        ring=given.ring,
        optimizer=given.optimizer,
        waits_for_all=given.waits_for_all,
        penalty=PENALTY * _ideal(given) / given.budget,
        **_staircases(given),
    )


def _staircases(given: ChunkProblem) -> dict[str, Any]:
    """What paths (n,) do outside the rounds of staircases: numbers by chunk, the device that ends, whether Z counts."""
    chunks, devices = given.num_chunks, len(given.counts)
    if not is_interleaved(given.order, given.micro_batches):
        numbers = {name: np.zeros((0, chunks)) for name in ("forward", "backward", "transfers")}
        return numbers | {"after": np.zeros(0, np.int64), "leaves": np.zeros(0, np.bool_)}
    ends = ends_of_paths(devices, chunks, given.micro_batches)
    numbers = {name: getattr(ends, name).reshape(ends.after.size, -1).astype(float) for name in ends._fields[:3]}
    return numbers | {"after": ends.after.ravel(), "leaves": np.broadcast_to(ends.leaves, ends.after.shape).ravel()}


@jit
def _run(
    figures: Figures,
    ends: Ints,
    recompute: Ints,
    best_ends: Ints,
    best_recompute: Ints,
    best: float,
    moves: int,
    seed: int,
    hot: float,
    cold: float,
) -> float:
    """Anneal a division in place, and keep the best one that fits; returns its seconds, infinite where none was met."""
    np.random.seed(seed)
    temperature, cooling = hot, (cold / hot) ** (1.0 / max(moves, 1))
    kept_ends, kept, current = ends.copy(), recompute.copy(), np.inf
    for move in range(moves + 1):
        temperature *= cooling
        if move > 0 and not _move(figures, ends, recompute):
            continue
        over, least = _excess(figures, ends, recompute), _least_seconds(figures, ends, recompute)
        chance, least_value = -1.0, least + figures.penalty * over
        if least_value > current and (over > 0.0 or least >= best):
            # Drawn as it would be behind the order's run, which most divisions that are refused need not make.
            chance = np.random.random()
            if chance >= np.exp((current - least_value) / temperature):
                _copy(kept_ends, kept, ends, recompute)
                continue
        value = _seconds(figures, ends, recompute)
        if over == 0.0 and value < best:
            best = value
            _copy(ends, recompute, best_ends, best_recompute)
        value += figures.penalty * over
        if value > current and chance < 0.0:
            chance = np.random.random()
        if value <= current or chance < np.exp((current - value) / temperature):
            current = value
            _copy(ends, recompute, kept_ends, kept)
        else:
            _copy(kept_ends, kept, ends, recompute)
    return best


@jit_inside
def _copy(ends: Ints, recompute: Ints, to_ends: Ints, to_recompute: Ints) -> None:
    """Write one division into another; assigning whole arrays would compile numba's formatting of text."""
    for c in range(len(ends)):
        to_ends[c], to_recompute[c] = ends[c], recompute[c]


@jit_inside
def _move(figures: Figures, ends: Ints, recompute: Ints) -> bool:
    """Moves (2) and (3); returns whether anything changed."""
    chunks, kinds = len(ends), len(figures.allowed)
    alone, near, beside = LIMITS_OF_KINDS
    kind, a = np.random.random(), np.random.randint(chunks)
    if kind < alone and kinds > 1:
        before = recompute[a]
        recompute[a] = figures.allowed[np.random.randint(kinds)]
        return bool(recompute[a] != before)
    b = a + 2 * np.random.randint(2) - 1 if kind < near else np.random.randint(chunks)
    moved = 1 + (np.random.randint(3) if np.random.random() < 0.3 else 0)
    own = ends[a] - (ends[a - 1] if a > 0 else 0)
    if b < 0 or b >= chunks or a == b or own <= moved:
        return False
    for c in range(min(a, b), max(a, b)):
        ends[c] += moved if b < a else -moved
    if kinds > 1 and np.random.random() < beside:
        recompute[b if np.random.random() < 0.5 else a] = figures.allowed[np.random.randint(kinds)]
    return True


@jit_inside
def _excess(figures: Figures, ends: Ints, recompute: Ints) -> float:
    """Bytes beyond the room of all devices together, since of the worst one alone a change elsewhere would not tell."""
    device, held, once, activation = figures.device, figures.held, figures.once, figures.activation
    counts, first, over = figures.counts, figures.first_count, 0.0
    for d in range(len(first) - 1):
        whole, largest, most = 0.0, 0.0, 0.0
        for c in range(len(ends)):
            if device[c] == d:
                i = ends[c - 1] if c > 0 else 0
                whole += held[i, ends[c]]
                largest = max(largest, once[recompute[c], i, ends[c]])
        for q in range(first[d], first[d + 1]):
            k, in_flight = 0, 0.0
            for c in range(len(ends)):
                if device[c] == d:
                    in_flight += counts[q, k] * activation[recompute[c], ends[c - 1] if c > 0 else 0, ends[c]]
                    k += 1
            most = max(most, in_flight)
        over += max(whole + largest + most - figures.room, 0.0)
    return over


@jit_inside
def _durations(figures: Figures, ends: Ints, recompute: Ints) -> tuple[Floats, Floats, Floats]:
    """Seconds of passes by kind and chunk (4, C) and of transfers (C - 1,), and loads of devices."""
    chunks, devices = len(ends), len(figures.first) - 1
    passes, edge, away, table = figures.passes, figures.edge, figures.away, figures.loads
    seconds, hops, loads = np.zeros((4, chunks)), np.zeros(chunks - 1), np.zeros(devices)
    for c in range(chunks):
        i, j, r = ends[c - 1] if c > 0 else 0, ends[c], recompute[c]
        for k in range(3):
            seconds[k, c] = passes[figures.kind[c], k, r, i, j]
        seconds[3, c] = seconds[1, c] + seconds[2, c]
        loads[figures.device[c]] += table[i, j]
        if c < chunks - 1 and away[c]:
            hops[c] = edge[j]
    return seconds, hops, loads


@jit_inside
def _least_seconds(figures: Figures, ends: Ints, recompute: Ints) -> float:
    """The least that the objective may be, up to rounding: each device's passes in a row, and every staircase."""
    seconds, hops, loads = _durations(figures, ends, recompute)
    chunks, devices = len(ends), len(figures.first) - 1
    busy, before, after = np.zeros(devices), np.zeros(chunks), np.zeros(chunks)
    for c in range(chunks):
        busy[figures.device[c]] += seconds[0, c] + seconds[3, c]
        if c < chunks - 1:
            before[c + 1] = before[c] + seconds[0, c] + hops[c]
            after[c + 1] = after[c] + seconds[1, c] + hops[c]
    last, reduced, most = 0.0, 0.0, 0.0
    for d in range(devices):
        first, final = figures.rows[figures.first[d]], figures.rows[figures.first[d + 1] - 1]
        ended = figures.micro_batches * busy[d] + before[first[1]]
        through = ended + (after[final[1]] if final[0] != WEIGHT_GRADIENT else 0.0)
        last = max(last, through)
        reduced = max(reduced, ended + figures.ring * loads[d], through + figures.ring * loads[figures.device[0]])
        most = max(most, loads[d])
    if len(figures.after):
        enter, leave = np.zeros(chunks), np.zeros(chunks)
        for c in range(1, chunks):
            enter[c] = enter[c - 1] + seconds[0, c - 1] + hops[c - 1]
            leave[c] = leave[c - 1] + seconds[3, c - 1] + hops[c - 1]
            if c >= devices:
                enter[c] = max(enter[c], enter[c - devices] + devices * seconds[0, c - devices])
                leave[c] = max(leave[c], leave[c - devices] + devices * seconds[3, c - devices])
        each = len(figures.after) // devices
        for path in range(len(figures.after)):
            at = chunks - devices + path // each
            through = enter[at] + (leave[at] if figures.leaves[path] else 0.0)
            for c in range(chunks):
                through += figures.forward[path, c] * seconds[0, c] + figures.backward[path, c] * seconds[3, c]
                if c < chunks - 1:
                    through += figures.transfers[path, c] * hops[c]
            last = max(last, through)
            reduced = max(reduced, through + figures.ring * loads[figures.after[path]])
    if not figures.waits_for_all:
        return float(last + (figures.ring + figures.optimizer) * loads[0]) * ROUNDED
    return float(reduced + figures.optimizer * most) * ROUNDED


@jit_inside
def _seconds(figures: Figures, ends: Ints, recompute: Ints) -> float:
    """Objective without the constant and the penalty."""
    seconds, hops, loads = _durations(figures, ends, recompute)
    devices = len(loads)
    start, end = np.zeros(len(figures.rows)), np.zeros(len(figures.rows))
    execute(figures.rows, figures.first, seconds, hops, figures.micro_batches, start, end)
    last, reduced, most = 0.0, 0.0, 0.0
    for d in range(devices):
        ended = end[figures.first[d + 1] - 1]
        last, reduced = max(last, ended), max(reduced, ended + figures.ring * loads[d])
        most = max(most, loads[d])
    if not figures.waits_for_all:
        return float(last + (figures.ring + figures.optimizer) * loads[0])
    return float(reduced + figures.optimizer * most)


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
