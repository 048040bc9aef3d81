r"""
Bound by enumerating the divisions of unlike layers chunk by chunk, front to back.

Sets: chunks c = 0..C-1, cuts j = 0..L, rows k: paths and memory rows (``taut.solver.order_priced.master_rows``).
Data: figures of ranges, which are the sums of their layers'; :math:`u_{kc}`, what row k counts of the figures of chunk
c; the limit T; the room :math:`b_k` of row k, T less its constant seconds, or the bytes beyond which nothing fits.
Variables: ends :math:`0 = e_{-1} < e_0 < \dots < e_{C-1} = L`.

(1) With :math:`S_{kc}(j)` the figures of the layers up to cut j under :math:`u_{kc}`, row k of a division is
    :math:`\sum_c S_{kc}(e_c) - S_{kc}(e_{c-1})`. A division takes at least T, or does not fit, if a row is no less than
    its room.
(2) A *prefix* is the ends of the first chunks. Row k of all divisions that begin so is at least
    :math:`a_k + R_{kc}(e_{c-1})`: what the prefix takes, and the least of the chunks from c on,
    :math:`R_{kc}(i) = \min_{j > i} S_{kc}(j) - S_{kc}(i) + R_{k,c+1}(j)`, :math:`R_{kC}(L) = 0`. A prefix with a row so
    large has no division of interest.
(3) The tree of prefixes is searched depth first. A division that no row refutes is priced, and its critical path
    becomes a row: combinatorial Benders cuts. Where it takes less than T it is the best one so far, and T falls to it.
    When all prefixes are refuted T is a lower bound, and the least makespan of the divisions if T fell.
(4) What refutes one prefix refutes others. Of a prefix of c chunks that was refuted let :math:`r_k` be the smallest
    :math:`a_k` that suffices for all refutations by row k of the prefixes beyond it: the largest room less what they
    count after chunk c - 1. Then a prefix of c chunks with the same end is refuted if :math:`a_k \ge r_k` for
    all rows k that refuted anything there.
(5) Sums are differences of sums up to cuts. A path counts a layer at most as often as there are micro-batches, so that
    sums up to cuts are at most p T, and each chunk is off by at most :math:`2 (L + 3) u p T` with u the rounding of one
    operation. For :math:`(L + 3) p \le 8192` this is within what ranges may differ from the sums of their layers
    (``taut.solver.order_priced.layer_bounds``, ``ALIKE``), twice for each chunk.

(4) is a nogood of constraint programming. A witness states the figures whose critical paths are rows. The check
searches all prefixes again with these rows, and prices nothing: a division that no row refutes is no proof.

References
----------
Codato and Fischetti (2006), Combinatorial Benders' cuts for mixed-integer linear programming, Operations Research 54.
Dechter (1990), Enhancement schemes for constraint processing: backjumping, learning, and cutset decomposition,
Artificial Intelligence 41.
"""

from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints, Ints32
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.order_division import NO_SLOW_LINKS, ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.layer_bounds import (
    ACTIVATION,
    BESIDE,
    FIGURES,
    LOADS,
    linear_layers,
    linear_tables,
    sums_of_layers,
)
from taut.solver.order_priced.master_rows import MasterRows, least_makespan
from taut.solver.order_priced.pricing import room

MOST_SUMS = 8192
"""Layers times devices of (5)."""

AT_ONCE, MOST_VISITED = 200_000, 200_000_000
"""Prefixes that a step visits, some hundredths of a second, and a search, twenty seconds: of 48 layers in 32 chunks the
candidates of least bound take 25 and 150 million."""

MOST_CHECKED = 2 * MOST_VISITED
"""Prefixes that a check visits at most: other rows lead to other requirements, mostly to fewer prefixes."""

KEPT, MOST_ROWS, LEAST_VISITED = 64, 40, 16
"""Requirements (4) that are kept of prefixes with as many chunks and layers, the last ones; their rows at most; and
prefixes that each spares at least. Of 48 layers in 32 chunks they leave a 17th of the prefixes, 256 of them a 25th in
twice the time."""

MOST_CELLS = 6000
"""Chunks times cuts of a search: what it keeps of each takes 30 kB, so 180 MB at most."""

EXACT = 1e-12
"""Relative allowance between a limit and the rows that reach it, above the rounding of sums in another order."""

NONE = -1e300
"""A row of which nothing is required."""

DONE, DIVISION, PAUSED = 0, 1, 2


class _Rows(NamedTuple):
    """Figures up to cuts (C, L+1, K) and the least of further chunks (C+1, L+1, K), (1), (2); ``room`` (K,)."""

    until: Floats
    rest: Floats
    room: Floats


class _Walk(NamedTuple):
    """
    Where the search stands: ``ends`` (C,), of which the first ``at`` (1,) are a prefix that was not refuted.

    By chunks of a prefix: ``taken`` by rows (C+1, K), what is required (4) of them (C+1, K), and prefixes ``visited``
    beyond it (C+1,). ``order`` (K,): rows, those first that refuted something of late.
    """

    ends: Ints
    at: Ints
    taken: Floats
    required: Floats
    visited: Ints
    order: Ints


class _Kept(NamedTuple):
    """Requirements (4) by chunks and cut: their number, the next place, their lengths, rows and least values."""

    number: Ints
    place: Ints
    length: Ints
    rows: Ints32
    least: Floats


class Prefixes:
    """
    The prefixes of a problem's divisions below ``limit`` seconds, searched step by step.

    ``incumbent`` has the least makespan in seconds of the divisions found, and its division; it may not fit memory.
    """

    def __init__(self, given: ChunkProblem, limit: float) -> None:
        self.given, self.limit, self.visited = given, limit, 0
        self.rows = MasterRows(given)
        self.incumbent: tuple[float, Division | None] = (np.inf, None)
        tables = linear_tables(given)
        assert tables is not None
        self._single, self._cut = np.diagonal(tables, 1, 1, 2), float(given.edge[1:-1].min(initial=np.inf))
        self._state, self._number, self._paths_at = PAUSED, 0, list[int]()
        chunks, size, memory = given.num_chunks, given.num_layers + 1, len(self.rows.memory_rows)
        self._rows = _Rows(np.zeros((chunks, size, 0)), np.zeros((chunks + 1, size, 0)), np.zeros(0))
        grid = chunks + 1, size
        self._walk = _Walk(
            np.zeros(chunks, np.int64),
            np.zeros(1, np.int64),
            np.zeros((chunks + 1, 0)),
            np.zeros((chunks + 1, 0)),
            np.zeros(chunks + 1, np.int64),
            np.zeros(0, np.int64),
        )
        self._kept = _Kept(
            np.zeros(grid, np.int64),
            np.zeros(grid, np.int64),
            np.zeros((*grid, KEPT), np.int64),
            np.zeros((*grid, KEPT, MOST_ROWS), np.int32),
            np.zeros((*grid, KEPT, MOST_ROWS)),
        )
        weights = np.zeros((memory, chunks, FIGURES))
        for weight, (d, counts) in zip(weights, self.rows.memory_rows, strict=True):
            weight[given.hosted(d), ACTIVATION], weight[given.hosted(d), BESIDE] = counts, 1.0
        for weight in weights:
            self._append(weight, room(given))
        self.take_paths()

    def take_paths(self) -> None:
        """Take the paths that the rows have, those that are new."""
        given = self.given
        new = slice(len(self._paths_at), None)
        for path, tail in zip(self.rows.paths[new], self.rows.tails[new], strict=True):
            weight = np.zeros((given.num_chunks, FIGURES))
            weight[:, :LOADS], weight[:, LOADS] = path.passes, tail[given.order.device]
            constant = given.constant + float(path.transfers[given.away].sum()) * self._cut
            self._paths_at.append(self._append(weight, self.limit - constant))

    def _append(self, weight: Floats, most: float) -> int:
        """Add a row by how often it counts figures (C, 6), and its room; returns its number."""
        if self._number == len(self._rows.room):
            self._grow()
        number, walk = self._number, self._walk
        until = np.concatenate((np.zeros((len(weight), 1)), (weight @ self._single).cumsum(axis=1)), axis=1)
        self._rows.until[..., number], self._rows.rest[..., number] = until, _rest(until)
        self._rows.room[number] = most
        self._number += 1
        chunks = np.arange(int(walk.at[0]))
        before = np.append(0, walk.ends)[chunks]
        walk.taken[1 : len(chunks) + 1, number] = (until[chunks, walk.ends[chunks]] - until[chunks, before]).cumsum()
        walk.order[number], walk.order[0] = walk.order[0], number
        return number

    def _grow(self) -> None:
        """Room for twice as many rows."""
        more = max(self._number, 64)
        self._rows = _Rows(*(np.concatenate((each, np.zeros((*each.shape[:-1], more))), -1) for each in self._rows))
        walk, wide = self._walk, np.zeros((len(self._walk.taken), more))
        self._walk = walk._replace(
            taken=np.hstack((walk.taken, wide)),
            required=np.hstack((walk.required, wide + NONE)),
            order=np.append(walk.order, np.zeros(more, np.int64)),
        )

    @property
    def has_ended(self) -> bool:
        """Whether all prefixes are refuted."""
        return self._state == DONE

    @property
    def is_left(self) -> bool:
        """Whether there is a further step: the search has not ended, and may visit more prefixes."""
        return self._state != DONE and self.visited < MOST_VISITED

    @property
    def seconds(self) -> float:
        """The bound in seconds, which the check reaches too; minus infinity before the end."""
        return self.limit * (1 - EXACT) if self.has_ended else -np.inf

    def lower(self, limit: float) -> None:
        """Take a lower limit: what was refuted stays so."""
        if limit < self.limit:
            self._rows.room[self._paths_at] -= self.limit - limit
            self.limit = limit

    def step(self, most: int = AT_ONCE) -> None:
        """Visit so many further prefixes."""
        while most > 0 and self._state != DONE:
            visited, self._state = _search(self._rows, self._number, self._walk, self._kept, most)
            self.visited, most = self.visited + visited, most - visited
            if self._state == DIVISION:
                self._price()

    def refutes(self) -> bool:
        """Whether the rows refute all divisions, within ``MOST_CHECKED`` prefixes; a signal ends it between steps."""
        visited, state = 0, PAUSED
        while state == PAUSED and (most := min(10 * AT_ONCE, MOST_CHECKED - visited)) > 0:
            more, state = _search(self._rows, self._number, self._walk, self._kept, most)
            visited += more
        return state == DONE

    def _price(self) -> None:
        """Price the division at hand and take its critical path, (3)."""
        given = self.given
        division = Division.of_ends(self._walk.ends.copy(), np.full(given.num_chunks, given.recomputes[0]))
        self.incumbent = min(self.incumbent, (least_makespan(given, division), division), key=lambda one: one[0])
        number = self.rows.critical_row(self.rows.figures(division))
        self.take_paths()
        # Paths of rounded figures may be a little shorter than the makespan.
        row, ends = self._paths_at[number], self._walk.ends
        each, chunks, before = (
            self._rows.until[..., row],
            np.arange(given.num_chunks),
            np.append(0, self._walk.ends[:-1]),
        )
        taken = float((each[chunks, ends] - each[chunks, before]).sum())
        if (less := float(self._rows.room[row]) - taken) > -EXACT * self.limit:
            self.lower(self.limit - less - 2 * EXACT * self.limit)
        # The division is looked at again, with its row.
        ends[-1] -= 1

    def witness(self) -> dict[str, Any]:
        """The limit, and the figures whose critical paths are rows."""
        critical = [figures.plain() for figures in self.rows.critical_for if figures is not None]
        return {"limit_s": self.seconds, "critical": critical, "prefixes": self.visited}


def prefixes_of(given: ChunkProblem, limit: float) -> Prefixes | None:
    """The prefixes of a problem whose layers differ, and whose ranges are the sums of their layers; None of others."""
    tables = linear_tables(given)
    if tables is None or given.slower is not None or given.slow != NO_SLOW_LINKS or given.num_chunks < 2:
        return None
    if (given.num_layers + 3) * len(given.counts) > MOST_SUMS or given.num_layers < given.num_chunks:
        return None
    if (given.num_chunks + 1) * (given.num_layers + 1) > MOST_CELLS:
        return None
    return Prefixes(given, limit) if sums_of_layers(tables) is not None and linear_layers(tables) is None else None


@jit
def _rest(until: Floats) -> Floats:
    """The least of the chunks from one on, by the cut before it (C+1, L+1), (2)."""
    chunks, size = until.shape
    rest = np.full((chunks + 1, size), np.inf)
    rest[chunks, size - 1] = 0.0
    for c in range(chunks - 1, -1, -1):
        best = np.inf
        for i in range(size - 2, -1, -1):
            best = min(best, until[c, i + 1] + rest[c + 1, i + 1])
            rest[c, i] = best - until[c, i]
    return rest


@jit
def _search(rows: _Rows, number: int, walk: _Walk, kept: _Kept, most: int) -> tuple[int, int]:
    """Search (3) from where it stands; returns prefixes visited and why it stopped."""
    until, ends, taken, required = rows.until, walk.ends, walk.taken, walk.required
    chunks, layers, visited = until.shape[0], until.shape[1] - 1, 0
    c = walk.at[0]
    while True:
        if ends[c] >= layers - (chunks - 1 - c):
            if c == 0:
                return visited, DONE
            _keep(rows, number, walk, kept, c)
            c -= 1
            continue
        if visited >= most:
            walk.at[0] = c
            return visited, PAUSED
        start = ends[c - 1] if c > 0 else 0
        ends[c] += 1
        end = ends[c]
        visited += 1
        walk.visited[c] += 1
        if _refuted(rows, number, walk, c, start, end):
            continue
        if c == chunks - 1:
            walk.at[0] = c
            return visited, DIVISION
        for k in range(number):
            taken[c + 1, k] = taken[c, k] + (until[c, end, k] - until[c, start, k])
        if _is_known(until, walk, kept, c, start, end):
            continue
        c += 1
        ends[c] = end if c < chunks - 1 else layers - 1
        walk.visited[c] = 0
        for k in range(number):
            required[c, k] = NONE


@jit_inside
def _refuted(rows: _Rows, number: int, walk: _Walk, c: int, start: int, end: int) -> bool:
    """Whether a row refutes a prefix by (2), which is then required of the prefix before."""
    until, order = rows.until, walk.order
    for q in range(number):
        k = order[q]
        chunk = until[c, end, k] - until[c, start, k]
        rest = rows.rest[c + 1, end, k]
        if walk.taken[c, k] + chunk + rest >= rows.room[k]:
            walk.required[c, k] = max(walk.required[c, k], rows.room[k] - rest - chunk)
            order[q], order[q // 2] = order[q // 2], k
            return True
    return False


@jit_inside
def _is_known(until: Floats, walk: _Walk, kept: _Kept, c: int, start: int, end: int) -> bool:
    """Whether a prefix of c + 1 chunks is refuted by what refuted another one, (4)."""
    taken, required, rows, least = walk.taken[c + 1], walk.required[c], kept.rows[c + 1, end], kept.least[c + 1, end]
    length = kept.length[c + 1, end]
    for g in range(kept.number[c + 1, end]):
        holds = True
        for n in range(length[g]):
            if taken[rows[g, n]] < least[g, n]:
                holds = False
                # What fails goes before others.
                rows[g, n], rows[g, 0] = rows[g, 0], rows[g, n]
                least[g, n], least[g, 0] = least[g, 0], least[g, n]
                break
        if holds:
            for n in range(length[g]):
                k = rows[g, n]
                required[k] = max(required[k], least[g, n] - (until[c, end, k] - until[c, start, k]))
            # What held goes before others.
            for n in range(max(length[g], length[g // 2])):
                rows[g, n], rows[g // 2, n] = rows[g // 2, n], rows[g, n]
                least[g, n], least[g // 2, n] = least[g // 2, n], least[g, n]
            length[g], length[g // 2] = length[g // 2], length[g]
            return True
    return False


@jit_inside
def _keep(rows: _Rows, number: int, walk: _Walk, kept: _Kept, c: int) -> None:
    """Keep what is required (4) of a prefix of c chunks that is refuted, and require it of the one before."""
    end, start = walk.ends[c - 1], walk.ends[c - 2] if c > 1 else 0
    required, before, until = walk.required[c], walk.required[c - 1], rows.until
    used = 0
    for k in range(number):
        if required[k] > NONE:
            used += 1
            before[k] = max(before[k], required[k] - (until[c - 1, end, k] - until[c - 1, start, k]))
    walk.visited[c - 1] += walk.visited[c]
    if walk.visited[c] < LEAST_VISITED or used > kept.rows.shape[3]:
        return
    g, n = kept.place[c, end], 0
    for k in range(number):
        if required[k] > NONE:
            kept.rows[c, end, g, n], kept.least[c, end, g, n] = k, required[k]
            n += 1
    kept.length[c, end, g] = used
    kept.place[c, end] = (g + 1) % kept.rows.shape[2]
    kept.number[c, end] = min(kept.number[c, end] + 1, kept.rows.shape[2])
