r"""
Branch and bound over the layers of chunks under interleaved 1F1B, by linear programs.

Sets, data and branches are those of ``taut.solver.order_priced.layer_bounds``.
Variables: layers :math:`x_c`, starts :math:`E_c`, rests :math:`Z_c`, seconds T.

(1) Minimise T over layers of the branch that sum to L and fit memory, so that T is at least the seconds of every
    staircase (``taut.solver.order_priced.staircases`` (1) to (3)) with the reduction of its last device, and of every
    critical path that was added.
(2) Between a solution and a center, the point of least makespan so far, the critical path is added and (1) is solved
    again, until the makespan of the center is T: at a solution itself, far from even rounds, critical paths say little
    (in-out separation).
(3) The duals of (1) are a mixture of paths and prices of memory, whose least over the branch bounds it, whatever a
    solver says.
(4) Branching: a device whose layers in (1) are furthest from a whole number, or where there is none, such a chunk. The
    leaf with the least bound goes first.

References
----------
Ben-Ameur and Neto (2007), Acceleration of cutting-plane and column generation algorithms: applications to network
design, Networks 49 (in-out).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.linear_program import LinearSolution, linear_program
from taut.solver.order_priced.layer_bounds import Branch, LayerPaths, Leaf, Lines, linear_figures
from taut.solver.order_priced.master_rows import least_makespan

MOST_LEAVES = 256
"""No branching beyond so many leaves, since a witness states each."""

EARLY = 8
"""Branchings that settle how many layers each of four devices has, in a second or two."""

MOST_PATHS = 40
"""Critical paths that a branch adds at most."""

TOWARD = 0.3
"""Part of the way from the center to the solution at which (2) separates: on 40 chunks of four devices a gap of 0.1 %
takes 23 branchings and 350 paths at 0.3, and 17 branchings and 650 paths, three times as long, at 0.6."""

FURTHER = 1.5
"""Factor of that part where no new path was found, up to the solution itself."""

CONVERGED, EXACT = 3e-4, 3e-6
"""Relative distance between the makespan of the center and T up to which (1) is worth its time where layers are not
whole, since branching gains more; and where they are, since there is nothing to branch on."""

WHOLE = 1e-6
"""Distance from a whole number up to which layers count as whole."""


@dataclass
class _Node:
    """A branch, its proof and bound in seconds, the layers of chunks in (1), and where it was split."""

    branch: Branch
    leaf: Leaf
    seconds: float
    layers: Floats
    place: str = ""
    number: int = -1
    at: int = 0
    children: "tuple[_Node, _Node] | None" = None

    def leaves(self) -> "list[_Node]":
        """Branches without children."""
        return [self] if self.children is None else [leaf for child in self.children for leaf in child.leaves()]


class LayerTree:
    """
    The tree of branches of one candidate.

    Parameters
    ----------
    given, lines
        The division problem and its linear figures.
    limit
        Seconds beyond which a bound is of no use.
    divisions
        Divisions that are known, at least one.

    Attributes
    ----------
    incumbent
        Least makespan in seconds of the divisions found, and its division; it may not fit memory.
    """

    def __init__(self, given: ChunkProblem, lines: Lines, limit: float, divisions: Sequence[Division]) -> None:
        self.given, self.limit = given, limit
        self._paths = LayerPaths(given, lines)
        self.divisions: tuple[Division, ...] = ()
        self.incumbent: tuple[float, Division | None] = (np.inf, None)
        for division in divisions:
            self.learn(division)
        self._center = np.full(given.num_chunks, given.num_layers / given.num_chunks)
        self._least = self._paths.refuted(limit)
        self._root: _Node | None = None

    @property
    def is_branched(self) -> bool:
        """Whether there are branches."""
        return self._root is not None

    @property
    def _leaves(self) -> "list[_Node]":
        return [] if self._root is None else self._root.leaves()

    @property
    def seconds(self) -> float:
        """The bound in seconds, at most the limit, without an allowance for rounding."""
        proven = max(self._least, min((leaf.seconds for leaf in self._leaves), default=-np.inf))
        return min(proven, self.limit)

    def learn(self, division: Division) -> None:
        """Take a division that was found elsewhere."""
        if division not in self.divisions:
            self.divisions = (*self.divisions, division)
            found = least_makespan(self.given, division), division
            self.incumbent = min(self.incumbent, found, key=lambda one: one[0])

    def branch(self) -> bool:
        """Bound the root, or branch on the leaf with the least bound, (4); returns whether that was possible."""
        if self.seconds >= self.limit:
            return False
        if self._root is None:
            self._root = self._node(self._paths.root(self.limit))
            return True
        leaves = self._leaves
        leaf = min(leaves, key=lambda one: one.seconds)
        if len(leaves) >= MOST_LEAVES or not self._choose(leaf):
            return False
        few, many = (self._node(part) for part in leaf.branch.split(leaf.place, leaf.number, leaf.at))
        leaf.children = few, many
        for child in leaf.children:
            # What bounds the whole bounds its parts.
            if child.seconds < leaf.seconds:
                child.seconds, child.leaf = leaf.seconds, leaf.leaf
        return True

    def branch_early(self, limit: float) -> None:
        """Branch ``EARLY`` times, until the bound reaches so many seconds."""
        for _ in range(EARLY):
            if self.seconds >= limit or not self.branch():
                return

    def _choose(self, leaf: _Node) -> bool:
        """Choose where a leaf is split, (4); returns whether there is such a place."""
        devices = np.bincount(self.given.order.device, leaf.layers)
        for place, layers in (("device", devices), ("chunk", leaf.layers)):
            away = np.abs(layers - np.rint(layers))
            number = int(away.argmax())
            if away[number] > WHOLE:
                leaf.place, leaf.number, leaf.at = place, number, int(np.floor(layers[number]))
                return True
        return False

    def _node(self, branch: Branch) -> _Node:
        """Bound a branch by (1) to (3)."""
        paths, longest, toward = self._paths, np.inf, TOWARD
        center = _nearest(self._center, branch, self.given)
        # Any mixture proves that a branch has no division.
        best, proof, layers = paths.bound(self._simplest, branch), self._simplest, center
        for _ in range(MOST_PATHS if best < self.limit else 0):
            program = _Program(paths, self._fixed_rows, branch, self.limit)
            answer = program.solve()
            if answer is None:
                break
            leaf, layers = program.leaf(answer), answer.primal[: len(center)]
            seconds, known = paths.bound(leaf, branch), len(paths.rows.paths)
            if seconds > best:
                best, proof = seconds, leaf
            whole = np.abs(layers - np.rint(layers)).max() <= WHOLE
            if best >= self.limit or longest - best <= (EXACT if whole else CONVERGED) * best:
                break
            between = toward * layers + (1 - toward) * center
            makespan = paths.separate(between)
            if makespan < longest:
                longest, center = makespan, between
            if len(paths.rows.paths) == known:
                if toward == 1.0:
                    break
                toward = min(1.0, FURTHER * toward)
        self._center = center
        self._round(layers)
        return _Node(branch, proof, best, layers)

    @cached_property
    def _fixed_rows(self) -> tuple[Floats, Floats]:
        return _staircase_rows(self._paths, self.limit)

    @cached_property
    def _simplest(self) -> Leaf:
        """The first device's own path."""
        chunks, paths = self.given.num_chunks, self._paths
        weights = np.zeros(paths.ends.after.shape)
        weights[0, 1, 1] = 1.0
        ends: Any = weights.tolist()
        rounds, prices = [0.0] * chunks, [0.0] * len(paths.rows.memory_rows)
        return Leaf(ends=ends, rounds_in=rounds, rounds_out=rounds, shares=[], prices=prices)

    @property
    def _simplest_of_rows(self) -> Leaf:
        """The same with weights of the devices' paths, which a witness states."""
        return self._simplest.model_copy(update={"shares": [0.0] * self._paths.rows.of_devices})

    def _round(self, layers: Floats) -> None:
        """Learn the division that a solution of (1) rounds to, where every chunk has a layer."""
        until = np.rint(layers.cumsum()).astype(np.int64)
        if until[-1] == self.given.num_layers and (np.diff(until, prepend=0) >= 1).all():
            self.learn(Division.of_ends(until, np.full(len(until), self.given.recomputes[0], np.int64)))

    def witness(self) -> dict[str, Any]:
        """Limit, the figures whose critical paths have a weight at some leaf, and the tree with a proof at each."""
        if self._root is None or min(leaf.seconds for leaf in self._leaves) < self._least:
            return {"limit_s": self._least, "critical": [], "layers": self._simplest_of_rows.model_dump()}
        rows, every = self._paths.rows, [leaf.leaf.shares for leaf in self._leaves]
        used = {k for shares in every for k in np.flatnonzero(shares).tolist()}
        kept = [*range(rows.of_devices), *sorted(k for k in used if k >= rows.of_devices)]
        critical = [figures.plain() for k in kept if (figures := rows.critical_for[k]) is not None]
        return {"limit_s": self.limit, "critical": critical, "layers": self._plain(self._root, kept)}

    def _plain(self, node: _Node, kept: Sequence[int]) -> dict[str, Any]:
        if node.children is not None:
            few, many = (self._plain(child, kept) for child in node.children)
            return {"place": node.place, "number": node.number, "layers": node.at, "few": few, "many": many}
        shares = node.leaf.shares
        return {**node.leaf.model_dump(), "shares": [shares[k] if k < len(shares) else 0.0 for k in kept]}


def layer_tree(given: ChunkProblem, limit: float, divisions: Sequence[Division]) -> LayerTree | None:
    """The tree of a division problem; None where figures are not linear, or the order is another."""
    lines = linear_figures(given)
    if lines is None or not divisions:
        return None
    return LayerTree(given, lines, limit, divisions)


def _staircase_rows(paths: LayerPaths, limit: float) -> tuple[Floats, Floats]:
    """Rows of (1) for E and Z and for the ends of staircases, seconds as shares of a limit, and their right sides."""
    given, lines, chunks = paths.given, paths.lines, paths.given.num_chunks
    devices, columns = len(given.counts), 3 * chunks + 1
    cuts = np.where(given.away, lines.cut, 0.0)
    passes = np.append(lines.seconds, lines.of_layer[:, None], axis=1)
    rows, right = list[Floats](), list[float]()
    for start, seconds in ((chunks, passes[0]), (2 * chunks, passes[1:].sum(axis=0))):
        for step, times in ((1, 1), (devices, devices)):
            for c in range(step, chunks):
                row = np.zeros(columns)
                row[c - step], row[start + c - step], row[start + c] = times * seconds[-1] / limit, 1, -1
                rows.append(row)
                right.append(-(times * seconds[c - step] + (cuts[c - 1] if step == 1 else 0.0)) / limit)
    for at, line in zip(np.ndindex(paths.ends.after.shape), paths.ends_seconds, strict=True):
        row, last = np.zeros(columns), chunks - devices + at[0]
        row[:chunks], row[-1] = line[:-1] / limit, -1
        row[chunks + last], row[2 * chunks + last] = 1, paths.ends.leaves[at[2]]
        rows.append(row)
        right.append(-line[-1] / limit)
    return np.array(rows), np.array(right)


def _nearest(layers: Floats, branch: Branch, given: ChunkProblem) -> Floats:
    """Layers of chunks of a branch, whole or not, with the least sum of distances from some; these if it has none."""
    chunks, devices = given.num_chunks, len(given.counts)
    program = linear_program("highs")
    lower = np.append(branch.lower.astype(float), np.zeros(chunks))
    upper = np.append(branch.upper.astype(float), np.full(chunks, np.inf))
    program.add_columns(np.repeat([0.0, 1.0], chunks), lower, upper, np.zeros((0, 2 * chunks)))
    sums = np.zeros((1 + devices, 2 * chunks))
    sums[0, :chunks], sums[1 + given.order.device, np.arange(chunks)] = 1, 1
    least, most = (np.append(given.num_layers, bound).astype(float) for bound in (branch.least, branch.most))
    program.add_rows(sums, least, most)
    one = np.eye(chunks)
    away = np.concatenate((np.hstack((one, -one)), np.hstack((-one, -one))))
    program.add_rows(away, np.full(2 * chunks, -np.inf), np.concatenate((layers, -layers)))
    answer = program.solve()
    return layers if answer is None else answer.primal[:chunks]


class _Program:
    """Linear program (1) of a branch, its seconds as shares of a limit and bytes as those of the budget."""

    def __init__(self, paths: LayerPaths, fixed: tuple[Floats, Floats], branch: Branch, limit: float) -> None:
        given, chunks, devices = paths.given, paths.given.num_chunks, len(paths.given.counts)
        self._paths, self._unit, columns = paths, limit / given.budget, 3 * chunks + 1
        self._program = linear_program("highs")
        lower = np.append(branch.lower.astype(float), np.zeros(2 * chunks + 1))
        upper = np.append(branch.upper.astype(float), np.full(2 * chunks + 1, np.inf))
        # E and Z begin at no seconds.
        upper[[chunks, 2 * chunks]] = 0.0
        self._program.add_columns(np.eye(columns)[-1], lower, upper, np.zeros((0, columns)))
        sums = np.zeros((1 + devices, columns))
        sums[0, :chunks], sums[1 + given.order.device, np.arange(chunks)] = 1, 1
        held = given.num_layers, *branch.least
        self._program.add_rows(sums, np.array(held, float), np.array((given.num_layers, *branch.most), float))
        found, bytes_ = paths.paths() / limit, paths.memory / given.budget
        rows = np.zeros((len(found) + len(bytes_), columns))
        rows[:, :chunks] = np.vstack((found[:, :-1], bytes_[:, :-1]))
        rows[: len(found), -1] = -1
        right = np.concatenate((fixed[1], -found[:, -1], -bytes_[:, -1]))
        self._program.add_rows(np.vstack((fixed[0], rows)), np.full(len(right), -np.inf), right)

    def solve(self) -> LinearSolution | None:
        """An optimum, if there is one."""
        return self._program.solve()

    def leaf(self, answer: LinearSolution) -> Leaf:
        """The mixture of paths and the prices that the duals are."""
        shape = self._paths.ends.after.shape
        chunks, devices, memory = self._paths.given.num_chunks, shape[0], len(self._paths.memory)
        duals = np.maximum(-answer.duals[1 + devices :], 0.0)
        rounds = []
        for _ in range(2):
            by_step, by_round = np.zeros((2, chunks))
            by_step[1:], by_round[devices:] = duals[: chunks - 1], duals[chunks - 1 : 2 * chunks - 1 - devices]
            through = by_step + by_round
            rounds.append(np.divide(by_round, through, out=np.zeros(chunks), where=through > 0))
            duals = duals[2 * chunks - 1 - devices :]
        weights, prices = duals[: len(duals) - memory], duals[len(duals) - memory :]
        total = float(weights.sum())
        weights = weights / total
        ends: Any = weights[: np.prod(shape)].reshape(shape).tolist()
        return Leaf(
            ends=ends,
            rounds_in=rounds[0].tolist(),
            rounds_out=rounds[1].tolist(),
            shares=weights[np.prod(shape) :].tolist(),
            prices=(prices / total * self._unit).tolist(),
        )
