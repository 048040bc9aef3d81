r"""
Branch and bound on quadratic assignment, with the bounds of Hahn and Grant and with symmetries.

The problem is held in the form of ``taut.solver.qap.hahn_grant``, scaled by S. A node fixes some items at locations;
its costs are those its parent was left with by the dual ascent, so that nothing gained is lost, raised by a few more
rounds. A permutation of interest is better than the incumbent of cost z,

.. math:: \text{its scaled cost is at most } U = S (z - s) \text{ on the grid of step s of costs}, \qquad
    U = S (z - \epsilon) - 1 \text{ without a grid}, \tag{1}

with :math:`\epsilon = 10^{-9} |z|`, or twice the rounding where that is more. A node whose bound exceeds U is done. The
others branch by (5). Of assignments that a symmetry takes into each other, only
one is followed: if an item is to be placed, one location in each orbit of the automorphisms of the distances that leave
all taken locations where they are; if a location is to be filled, one item in each orbit of those of the flow (2). The
sets that are left out have the same least cost as the one that is followed, at every node anew.

The open nodes of least bound come next, (3), some for each processor, which bounds them at the same time; where the
open nodes hold too many arrays, all that comes out of one is worked off depth first before the next. Small nodes are
solved in one call. At any time

.. math:: \min\{ U / S, \; \min_{\text{open}} c / S \} \tag{4}

bounds all permutations; raised to the grid, U means z itself.

Small problems are solved in one compiled call, depth first. A node is bounded by a few rounds of
``taut.solver.qap.hahn_grant``; if its bound c does not exceed the cutoff U, it branches on the row (item) or column
(location) that the reduced costs l of single assignments favour,

.. math:: \max \; \sum_k \min\{ \tfrac{\ell_{ik}}{U - c}, 1 \}
    \quad \text{over rows } i \text{ and, likewise, columns,} \tag{5}

where an assignment that a symmetry makes needless counts as one. Only assignments with :math:`c + \ell_{ik} \le U`
are followed, in ascending order. Each permutation that is found lowers U below its cost.

Symmetries are automorphisms of a matrix, for orbit pruning [1]_: permutations of rows and columns that leave it.
A permutation g is an automorphism of a if

.. math:: a_{g(i) g(j)} = a_{ij} \quad \text{for all } i, j. \tag{6}

Applied to the locations of any placement, an automorphism of the distances leaves the cost as it is, and so does one of
the flow applied to the items. Where some indices must stay, those automorphisms that fix each of them form a group, and
of the other indices only one in each orbit of it need be tried.

Indices whose exchange leaves the matrix as it is are twins. The group consists of all exchanges of twins and of the
automorphisms that keep the order within every class of twins, (7); only the latter are listed.

References
----------
.. [1] Margot, F. (2002). Pruning by isomorphism in branch-and-cut. Mathematical Programming 94: 71-90.
"""

import heapq
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import numpy as np

from taut.data.arrays import Bits, Flags, Floats, Ints
from taut.formulations.assignment import CostGrid, QuadraticAssignment, cost_grid
from taut.formulations.compiled import jit, jit_inside
from taut.solver.qap.hahn_grant import LawlerForm, ascend, fix, rounding
from taut.solver.qap.swap_neighbourhood import twins


@jit
def branches(
    constant: float, linear: Floats, cutoff: float, item_needed: Flags, location_needed: Flags
) -> tuple[Ints, Ints, Floats]:
    """Items, locations and ascending bounds of the children by (5), without what symmetries make needless (m,)."""
    size, slack = len(linear), max(cutoff - constant, 1.0)
    best, line, by_item = -1.0, 0, True
    for i in range(size):
        row, column = 0.0, 0.0
        for k in range(size):
            row += min(linear[i, k] / slack, 1.0) if location_needed[k] else 1.0
            column += min(linear[k, i] / slack, 1.0) if item_needed[k] else 1.0
        if row > best:
            best, line, by_item = row, i, True
        if column > best:
            best, line, by_item = column, i, False
    items, locations, bounds = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64), np.empty(size)
    count = 0
    for k in range(size):
        price = linear[line, k] if by_item else linear[k, line]
        if (location_needed[k] if by_item else item_needed[k]) and constant + price <= cutoff:
            items[count], locations[count] = (line, k) if by_item else (k, line)
            bounds[count] = constant + price
            count += 1
    order = np.argsort(bounds[:count])
    return items[order], locations[order], bounds[order]


@jit
def complete(
    constant: float, linear: Floats, quadratic: Floats, cutoff: float, rounds: int, patience: float, bits: Bits
) -> tuple[float, Ints]:
    """The least cost up to the cutoff and every item's location, of about ten items; infinity and -1 where none is."""
    size = len(linear)
    least, best = np.inf, np.full(size, -1)
    every = np.ones(size, dtype=np.bool_)
    offsets = np.zeros(size + 1, dtype=np.int64)
    for depth in range(size):
        offsets[depth + 1] = offsets[depth] + (size - depth) ** 4
    singles, pairs = np.zeros((size, size * size)), np.zeros(offsets[size])
    constants, children, turn = np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    items, locations = np.zeros((size, size), dtype=np.int64), np.zeros((size, size), dtype=np.int64)
    bounds = np.zeros((size, size))
    # Slices that arrays are assigned to take seconds to compile, for the words of their errors.
    for i in range(size):
        for k in range(size):
            singles[0, i * size + k] = linear[i, k]
    for i in range(size * size):
        for k in range(size * size):
            pairs[i * size * size + k] = quadratic[i, k]
    constants[0] = constant
    depth, fresh = 0, True
    while depth >= 0:
        left = size - depth
        own = singles[depth, : left * left].reshape(left, left)
        both = pairs[offsets[depth] : offsets[depth + 1]].reshape(left * left, left * left)
        if fresh:
            constants[depth] = ascend(constants[depth], own, both, cutoff, rounds, patience, bits)
            children[depth], turn[depth], fresh = 0, 0, False
            if constants[depth] <= cutoff and left == 1:
                least, cutoff = constants[depth], constants[depth] - 1
                items[depth, 0], locations[depth, 0] = 0, 0
                best = _unwind(items, locations, turn, size)
            elif constants[depth] <= cutoff:
                rows, columns, values = branches(constants[depth], own, cutoff, every[:left], every[:left])
                children[depth] = len(rows)
                for k in range(len(rows)):
                    items[depth, k], locations[depth, k], bounds[depth, k] = rows[k], columns[k], values[k]
        elif turn[depth] < children[depth] and bounds[depth, turn[depth]] <= cutoff:
            which, less = turn[depth], left - 1
            fix(
                own,
                both,
                items[depth, which],
                locations[depth, which],
                singles[depth + 1, : less * less].reshape(less, less),
                pairs[offsets[depth + 1] : offsets[depth + 2]].reshape(less * less, less * less),
            )
            constants[depth + 1] = bounds[depth, which]
            depth, fresh = depth + 1, True
        else:
            depth -= 1
            if depth >= 0:
                turn[depth] += 1
    return least, best


@jit_inside
def _unwind(items: Ints, locations: Ints, turn: Ints, size: int) -> Ints:
    """Permutation at the end of a path of choices, each counted among what earlier ones left."""
    left_items, left_locations = np.arange(size), np.arange(size)
    permutation = np.empty(size, dtype=np.int64)
    for depth in range(size):
        i, k = items[depth, turn[depth]], locations[depth, turn[depth]]
        permutation[left_items[i]] = left_locations[k]
        left_items = np.concatenate((left_items[:i], left_items[i + 1 :]))
        left_locations = np.concatenate((left_locations[:k], left_locations[k + 1 :]))
    return permutation


PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Threads that bound nodes at the same time."""

# Nodes for each thread up to some n, so that one that takes longer holds none up; beyond, a step takes long enough.
_AT_ONCE, _LARGE = 8, 20
_SMALL = 8  # Nodes with as many free items take some hundred microseconds.
_ROUNDS = 10  # Fewer make more nodes, more make dearer ones; from 8 to 50 the time changes little.
_PATIENCE = 300.0
_MOST_BYTES = 1 << 29


@dataclass(slots=True, eq=False)
class _Parent:
    """A node that has branched: its costs, its free items and locations, who sits where, how many children are open."""

    costs: LawlerForm
    items: Ints
    locations: Ints
    placed: tuple[tuple[int, int], ...]
    waiting: int = 0


_Open = tuple[float, int, int, _Parent, int, int]


class BranchAndBound:
    """A search from scaled costs after some ascent, an incumbent ``best`` and a scaled lower ``bound``."""

    def __init__(
        self, problem: QuadraticAssignment, costs: LawlerForm, scale: float, best: Ints, bound: float, seed: int
    ) -> None:
        self.best, self.objective, self.nodes = best, problem.cost(best), 0
        self._problem, self._scale, self._grid = problem, scale, cost_grid(problem)
        self._cutoff = cutoff(problem, self._grid, scale, self.objective)
        self._bound = max(bound, costs.constant)
        at_once = PROCESSORS * max(1, min(_AT_ONCE, round(_AT_ONCE * (_LARGE / problem.size) ** 4)))
        self._bits = np.random.default_rng(seed).integers(1, 2**63, (at_once, 1), dtype=np.uint64)
        self._flow, self._distance = AutomorphismGroup(problem.flow), AutomorphismGroup(problem.distance)
        self._open: list[_Open] = []
        self._stack: list[_Open] = []
        self._counter, self._bytes = count(), 0
        # The compiled loops run at the same time.
        self._pool = ThreadPoolExecutor(max_workers=PROCESSORS)
        if costs.constant <= self._cutoff:
            every = np.arange(problem.size)
            self._push(_Parent(costs, every, every, ()), self._open)

    @property
    def bound(self) -> float:
        """Lower bound on all permutations (4), in the unit of flow times distance, not raised to the grid."""
        return min(self._bound, self._cutoff + 1) / self._scale

    @property
    def done(self) -> bool:
        """Whether no permutation of interest is left."""
        return not self._open and not self._stack

    def step(self) -> None:
        """Bound some nodes, and branch or solve them; a node takes below a second for up to some thirty items."""
        nested = bool(self._stack) or self._bytes > _MOST_BYTES
        nodes = [self._stack.pop() if self._stack else heapq.heappop(self._open)]
        while self._open and not nested and len(nodes) < len(self._bits):
            nodes.append(heapq.heappop(self._open))
        for node, child in zip(nodes, self._pool.map(self._bounded, nodes, self._bits), strict=True):
            self._take(node, child, self._stack if nested else self._open)
        if not self._stack:
            self._bound = max(self._bound, self._open[0][0] if self._open else math.inf)

    def _bounded(self, node: _Open, bits: Bits) -> _Parent | Ints | None:
        """A node with its costs after some rounds, or its best permutation; None if it is done."""
        bound, _, _, parent, item, location = node
        if bound > self._cutoff:
            return None
        size = len(parent.items) - 1
        costs = LawlerForm(bound, np.empty((size, size)), np.empty((size * size, size * size)))
        fix(parent.costs.linear, parent.costs.quadratic, item, location, costs.linear, costs.quadratic)
        placed = (*parent.placed, (int(parent.items[item]), int(parent.locations[location])))
        child = _Parent(costs, np.delete(parent.items, item), np.delete(parent.locations, location), placed)
        if size <= _SMALL:
            least, places = complete(*costs, self._cutoff, _ROUNDS, _PATIENCE, bits)
            return _completed(child, places) if least <= self._cutoff else None
        constant = ascend(*costs, self._cutoff, _ROUNDS, _PATIENCE, bits)
        child.costs = costs._replace(constant=constant)
        return child if constant <= self._cutoff else None

    def _take(self, node: _Open, child: _Parent | Ints | None, into: list[_Open]) -> None:
        """Put the children of a node where they belong, or take a better permutation."""
        parent = node[3]
        parent.waiting -= 1
        self._bytes -= parent.costs.quadratic.nbytes if parent.waiting == 0 else 0
        self.nodes += 1
        if isinstance(child, _Parent):
            self._push(child, into)
        elif child is not None:
            self._improve(child)

    def _push(self, node: _Parent, into: list[_Open]) -> None:
        """Branch (2), and keep the children."""
        placed = np.array(node.placed, dtype=np.int64).reshape(-1, 2)
        needed = (
            self._flow.orbit_representatives(placed[:, 0])[node.items],
            self._distance.orbit_representatives(placed[:, 1])[node.locations],
        )
        children = list(zip(*branches(node.costs.constant, node.costs.linear, self._cutoff, *needed), strict=True))
        depth, node.waiting = len(node.placed), len(children)
        self._bytes += node.costs.quadratic.nbytes if children else 0
        for item, location, bound in reversed(children):
            entry = (float(bound), -depth, next(self._counter), node, int(item), int(location))
            if into is self._stack:
                into.append(entry)
            else:
                heapq.heappush(into, entry)

    def _improve(self, best: Ints) -> None:
        """Take a better permutation as the incumbent."""
        cost = self._problem.cost(best)
        if cost < self.objective:
            # The cutoff first: an interrupt in between leaves a bound that is low, never one that is high.
            self._cutoff = cutoff(self._problem, self._grid, self._scale, cost)
            self.best, self.objective = best, cost


def _completed(node: _Parent, places: Ints) -> Ints:
    """Locations (n,) of all items: those of the node, and of its free items those that are given."""
    best = np.empty(len(node.placed) + len(node.items), dtype=np.int64)
    for item, location in node.placed:
        best[item] = location
    best[node.items] = node.locations[places]
    return best


def cutoff(problem: QuadraticAssignment, grid: CostGrid, scale: float, objective: float) -> float:
    """U, a whole number: the scaled cost that a permutation better than an incumbent of cost z cannot exceed, (1)."""
    if grid.step is not None and scale >= 1:
        return scale * (objective - grid.step)
    margin = max(1e-9 * abs(objective), 2 * rounding(problem, scale) / scale)
    return math.floor(scale * (objective - margin)) - 1.0


_MOST_LISTED = 4096
"""Automorphisms that are listed: each node of the tree goes through all of them."""
_MOST_TRIED = 2_000_000
"""Steps of the search for them, a fraction of a second."""


class AutomorphismGroup:
    """The automorphisms of a matrix (n, n), as far as they are few enough to be listed."""

    def __init__(self, matrix: Floats) -> None:
        size = len(matrix)
        self._kind = twins(np.hstack((matrix, matrix.T)), matrix.diagonal().copy())
        turn = np.array([int(np.sum(self._kind[:i] == self._kind[i])) for i in range(size)])
        listed = _list_automorphisms(np.array(matrix, order="C"), self._kind, turn, _MOST_LISTED, _MOST_TRIED)
        # A part of a group is no group; without the list, exchanges of twins remain.
        self._listed = listed if len(listed) else np.arange(size)[None, :]
        self._rigid = len(self._listed) == 1 and not turn.any()

    @property
    def listed(self) -> int:
        """Number of automorphisms (7)."""
        return len(self._listed)

    def orbit_representatives(self, fixed: Ints) -> Flags:
        """Whether an index (n,) is the first of its orbit by the automorphisms that leave the fixed ones."""
        size = len(self._kind)
        if self._rigid:
            chosen = np.ones(size, dtype=np.bool_)
            chosen[fixed] = False
            return chosen
        first = np.full(size, size)
        free = np.setdiff1d(np.arange(size), fixed)
        np.minimum.at(first, self._kind[free], free)
        staying = self._listed[np.all(self._listed[:, fixed] == fixed, axis=1)]
        chosen = np.zeros(size, dtype=np.bool_)
        chosen[free] = first[self._kind[staying[:, free]]].min(axis=0) == free
        return chosen


@jit
def _list_automorphisms(matrix: Floats, kind: Ints, turn: Ints, most: int, tries: int) -> Ints:
    """All automorphisms (7), one a row; no row if there are too many or the search takes too long."""
    size = len(matrix)
    found = np.empty((most, size), dtype=np.int64)
    count, depth = 0, 0
    image, taken = np.full(size, -1), np.zeros(size, dtype=np.bool_)
    while depth >= 0:
        if depth == size:
            if count == most:
                return found[:0]
            for index in range(size):
                found[count, index] = image[index]
            count += 1
            depth -= 1
            continue
        if image[depth] >= 0:
            taken[image[depth]] = False
        image[depth] += 1
        while image[depth] < size:
            tries -= 1
            if tries < 0:
                return found[:0]
            if not taken[image[depth]] and _fits(matrix, kind, turn, image, depth):
                break
            image[depth] += 1
        if image[depth] == size:
            image[depth] = -1
            depth -= 1
            continue
        taken[image[depth]] = True
        depth += 1
    return found[:count]


@jit
def _fits(matrix: Floats, kind: Ints, turn: Ints, image: Ints, index: int) -> bool:
    """Whether the image of an index agrees with (6) and (7) as far as the images before it go."""
    there = image[index]
    if matrix[index, index] != matrix[there, there] or turn[index] != turn[there]:
        return False
    if turn[index] > 0 and kind[there] != image[kind[index]]:
        return False
    for other in range(index):
        at = image[other]
        if matrix[index, other] != matrix[there, at] or matrix[other, index] != matrix[at, there]:
            return False
    return True
