r"""
Branch and bound over the layers of chunks, by linear programs.

Sets, data, cases and branches are those of ``taut.solver.order_priced.layer_bounds``.
Variables: layers :math:`x_c`, seconds T; under interleaved 1F1B starts :math:`E_c` and rests :math:`Z_c`.

(1) Minimise T, and bytes beyond the budget at a price, over layers of the branch that sum to L, so that T is at least
    the seconds of every device's own path, of every staircase (``taut.solver.order_priced.staircases`` (1) to (3)) with
    the reduction of its last device, and of every critical path that was added.
(2) Between a solution and a center, the point of least makespan so far, the critical path is added and (1) is solved
    again, until the makespan of the center is T: at a solution itself, far from even rounds, critical paths say little
    (in-out separation).
(3) The duals of (1) are a mixture of paths and prices of memory, whose least over the branch bounds it, whatever a
    solver says.
(4) Branching: a device whose layers in (1) are furthest from a whole number, or where there is none, such a chunk. The
    leaf with the least bound goes first. Before that, let n be the largest number such that the devices take too few
    layers where none takes more than n but those that must. If (1) gives no other device n + 1, the one with most is
    asked whether it takes more than n: of 126 layers on 25 devices one takes six, which fractions share among all.
(5) A better plan lowers the limit of a tree that is grown: the devices of every branch take fewer layers then, and
    proofs of leaves, which stay, say no less.
(6) All branches of a case are bounds on the columns and rows of one program, which keeps its last basis. Of the paths
    that were added those stay that held a solution of late.

References
----------
Ben-Ameur and Neto (2007), Acceleration of cutting-plane and column generation algorithms: applications to network
design, Networks 49 (in-out).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.linear_program import LinearSolution, linear_program
from taut.solver.order_priced.branch_and_bound import MOST_DEEP
from taut.solver.order_priced.capacity import most_refuted
from taut.solver.order_priced.layer_bounds import Branch, LayerPaths, Leaf
from taut.solver.order_priced.master_rows import least_makespan

MOST_LEAVES = 1024
"""No branching beyond so many leaves, since a witness states each."""

EARLY = 8
"""Branchings that settle how many layers each of four devices has, in a second or two."""

MOST_PATHS = 150
"""Critical paths that a branch adds at most."""

STALLED, LITTLE = 6, 0.01
"""Solutions after which a branch is left where its bound rose by less than so large a part of what lacks to the limit:
what is left to gain takes further branches. On 63 chunks of nine devices ten seconds leave 0.25 % to the limit; with
0.03, and 40 paths, they left 0.42 %."""

MOST_UNUSED, UNUSED = 60, 4
"""Paths in a program that held no solution of so many last branches, up to which they stay: to build it anew takes as
long as one or two solutions."""

TOWARD = 0.3
"""Part of the way from the center to the solution at which (2) separates: on 48 chunks of twelve devices 13 branchings
take 640 solutions at 0.3, and 830 at 0.6 for a lower bound; on 40 chunks of four devices 0.6 is a quarter quicker."""

FURTHER = 1.5
"""Factor of that part where no new path was found, up to the solution itself."""

CONVERGED, EXACT = 3e-4, 3e-6
"""Relative distance between the makespan of the center and T up to which (1) is worth its time where layers are not
whole, since branching gains more; and where they are, since there is nothing to branch on."""

BEYOND = 1e3
"""What bytes beyond the budget cost, of limits for a budget: a branch that exceeds it by a thousandth is refuted, and
where nothing fits (1) has an optimum all the same, with prices that prove it."""

WHOLE = 1e-6
"""Distance from a whole number up to which layers count as whole."""


class _Proof(NamedTuple):
    """A leaf's proof: the weights of the paths ``used`` (k,), a few of thousands, and all else."""

    rest: Leaf
    used: Ints
    weights: Floats

    @classmethod
    def of(cls, leaf: Leaf) -> "_Proof":
        """The proof of a leaf, which takes a hundredth of its memory."""
        shares = np.array(leaf.shares)
        used = np.flatnonzero(shares)
        return cls(leaf.model_copy(update={"shares": []}), used, shares[used])

    def leaf(self) -> Leaf:
        """The leaf, with the weights of paths up to the last one that is used."""
        shares = np.zeros(self.used.max(initial=-1) + 1)
        shares[self.used] = self.weights
        return self.rest.model_copy(update={"shares": shares.tolist()})


@dataclass
class _Node:
    """A branch of a case, its proof and bound in seconds, the layers of chunks in (1), and where it was split."""

    case: "_Case"
    branch: Branch
    proof: _Proof
    seconds: float
    layers: Floats
    depth: int = 0
    place: str = ""
    number: int = -1
    at: int = 0
    children: "tuple[_Node, _Node] | None" = None

    def leaves(self) -> "list[_Node]":
        """Branches without children."""
        return [self] if self.children is None else [leaf for child in self.children for leaf in child.leaves()]


class LayerTree:
    """
    The trees of branches of one candidate, one for the ``paths`` of each of its ``cases``.

    ``incumbent`` has the least makespan in seconds of the divisions found, and its division; it may not fit memory.
    """

    def __init__(
        self, given: ChunkProblem, cases: Sequence[LayerPaths], limit: float, divisions: Sequence[Division]
    ) -> None:
        self.given, self.limit = given, limit
        self._paths, self.rows = cases, cases[0].rows
        self.divisions: tuple[Division, ...] = ()
        self.incumbent: tuple[float, Division | None] = (np.inf, None)
        for division in divisions:
            self.learn(division)
        self._least = most_refuted(lambda seconds: all(case.is_refuted(seconds) for case in cases), limit)
        self._roots: list[_Node] = []

    @property
    def is_exact(self) -> bool:
        """Whether figures of chunks are lines, with nothing beside them."""
        return all(paths.lines.beyond is None for paths in self._paths)

    @property
    def is_branched(self) -> bool:
        """Whether there are branches."""
        return bool(self._roots)

    @property
    def _leaves(self) -> "list[_Node]":
        return [leaf for root in self._roots for leaf in root.leaves()]

    @property
    def seconds(self) -> float:
        """The bound in seconds, at most the limit, without an allowance for rounding."""
        proven = max(self._least, min((leaf.seconds for leaf in self._leaves), default=-np.inf))
        return min(proven, self.limit)

    @property
    def least_of_parts(self) -> float:
        """Seconds of layers that a root found, whole or not, and that fit: no mixture of paths exceeds them."""
        cases = [root.case for root in self._roots if root.case.paths.fits(root.case.center)]
        return min((case.paths.separate(case.center)[0] for case in cases), default=np.inf)

    def learn(self, division: Division) -> None:
        """Take a division that was found elsewhere."""
        if division not in self.divisions:
            self.divisions = (*self.divisions, division)
            found = least_makespan(self.given, division), division
            self.incumbent = min(self.incumbent, found, key=lambda one: one[0])

    def branch(self) -> bool:
        """Bound the roots, or branch on the leaf with the least bound, (4); returns whether that was possible."""
        if self.seconds >= self.limit:
            return False
        if not self._roots:
            cases = [_Case(paths, self.limit) for paths in self._paths]
            for case in cases:
                case.add_known()
            self._roots = [self._node(case, case.paths.root(self.limit)) for case in cases]
            return True
        leaves = self._leaves
        leaf = min(leaves, key=lambda one: one.seconds)
        if len(leaves) >= MOST_LEAVES or leaf.depth >= MOST_DEEP or not self._choose(leaf):
            return False
        few, many = (self._node(leaf.case, part) for part in leaf.branch.split(leaf.place, leaf.number, leaf.at))
        leaf.children = few, many
        for child in leaf.children:
            child.depth = leaf.depth + 1
            # What bounds the whole bounds its parts.
            if child.seconds < leaf.seconds:
                child.seconds, child.proof = leaf.seconds, leaf.proof
        return True

    def lower(self, limit: float) -> None:
        """Take a lower limit, (5)."""
        self.limit = limit
        for leaf in self._leaves:
            paths = leaf.case.paths
            leaf.branch = replace(leaf.branch, most=np.minimum(leaf.branch.most, paths.root(limit).most))
            leaf.seconds = paths.bound(leaf.proof.leaf(), leaf.branch)

    def branch_early(self, limit: float) -> None:
        """Branch ``EARLY`` times, until the bound reaches so many seconds."""
        for _ in range(EARLY):
            if self.seconds >= limit or not self.branch():
                return

    def _choose(self, leaf: _Node) -> bool:
        """Choose where a leaf is split, (4); returns whether there is such a place."""
        devices = np.bincount(self.given.order.device, leaf.layers)
        least, most, every = leaf.branch.least, leaf.branch.most, np.arange(self.given.num_layers)[:, None]
        taken = np.where(least > every, most, np.minimum(most, every)).sum(axis=1)
        short = int(np.flatnonzero(taken < self.given.num_layers).max(initial=-1))
        asked = np.where((least <= short) & (most > short), devices, -1.0)
        if 0 <= asked.max() < short + 1 - WHOLE:
            leaf.place, leaf.number, leaf.at = "device", int(asked.argmax()), short
            return True
        for place, layers in (("device", devices), ("chunk", leaf.layers)):
            away = np.abs(layers - np.rint(layers))
            number = int(away.argmax())
            if away[number] > WHOLE:
                leaf.place, leaf.number, leaf.at = place, number, int(np.floor(layers[number]))
                return True
        if leaf.case.paths.lines.beyond is None:
            return False
        # Fewer cuts are left where a chunk has fewer layers to choose from.
        lower, upper, layers = leaf.branch.lower, leaf.branch.upper, np.rint(leaf.layers).astype(np.int64)
        room = np.minimum(upper, layers + 2) - np.maximum(lower, layers - 2)
        number = int(room.argmax())
        leaf.place, leaf.number, leaf.at = "chunk", number, int(min(layers[number], upper[number] - 1))
        return bool(room[number] > 0)

    def _node(self, case: "_Case", branch: Branch) -> _Node:
        """Bound a branch by (1) to (3)."""
        paths, longest, toward = case.paths, np.inf, TOWARD
        # Any mixture proves that a branch has no division.
        proof = _single(paths, 0)
        best, layers = paths.bound(proof, branch), case.center
        if best >= self.limit:
            return _Node(case, branch, _Proof.of(proof), best, layers)
        case.restrict(branch)
        center, history = case.nearest(branch), list[float]()
        for _ in range(MOST_PATHS):
            answer = case.solve()
            if answer is None:
                break
            leaf, layers = case.leaf(answer), answer.primal[: len(center)]
            seconds = paths.bound(leaf, branch)
            if seconds > best:
                best, proof = seconds, leaf
            whole = np.abs(layers - np.rint(layers)).max() <= WHOLE
            history.append(best)
            risen = best - history[-STALLED] if len(history) >= STALLED else np.inf
            if best >= self.limit or longest - best <= (EXACT if whole else CONVERGED) * best:
                # Of several optima the solution may be one that takes longer.
                layers = center if np.isfinite(longest) else layers
                break
            if risen < LITTLE * (self.limit - best) and not whole:
                break
            between = toward * layers + (1 - toward) * center
            makespan, row = paths.separate(between)
            if makespan < longest:
                longest, center = makespan, between
            if paths.lines.beyond is not None and (alone := paths.bound(_single(paths, row), branch)) > best:
                # (1) knows the line of a path alone.
                best, proof = alone, _single(paths, row)
            if not case.add(row):
                if toward == 1.0:
                    break
                toward = min(1.0, FURTHER * toward)
        case.center = center
        self._round(layers)
        return _Node(case, branch, _Proof.of(proof), best, layers)

    def _round(self, layers: Floats) -> None:
        """Learn the division that a solution of (1) rounds to, where every chunk has a layer."""
        until = np.rint(layers.cumsum()).astype(np.int64)
        if until[-1] == self.given.num_layers and (np.diff(until, prepend=0) >= 1).all():
            self.learn(Division.of_ends(until, np.full(len(until), self.given.recomputes[0], np.int64)))

    def witness(self) -> dict[str, Any]:
        """Limit, the figures whose critical paths have a weight at some leaf, and the trees with a proof at each."""
        if not self._roots or min(leaf.seconds for leaf in self._leaves) < self._least:
            return {"limit_s": self._least}
        rows, used = self.rows, {k for leaf in self._leaves for k in leaf.proof.used.tolist()}
        kept = [*range(rows.of_devices), *sorted(k for k in used if k >= rows.of_devices)]
        critical = [figures.plain() for k in kept if (figures := rows.critical_for[k]) is not None]
        trees = [self._plain(root, kept) for root in self._roots]
        return {
            "limit_s": self.limit,
            "critical": critical,
            "layers": trees[0] if len(trees) == 1 else {"cases": trees},
        }

    def _plain(self, node: _Node, kept: Sequence[int]) -> dict[str, Any]:
        if node.children is not None:
            few, many = (self._plain(child, kept) for child in node.children)
            return {"place": node.place, "number": node.number, "layers": node.at, "few": few, "many": many}
        shares = dict(zip(node.proof.used.tolist(), node.proof.weights.tolist(), strict=True))
        return {**node.proof.rest.model_dump(), "shares": [shares.get(k, 0.0) for k in kept]}


def _single(paths: LayerPaths, number: int) -> Leaf:
    """One of the rows' paths."""
    none = [0.0] * paths.given.num_chunks if paths.ends is not None else []
    ends: Any = [] if paths.ends is None else np.zeros(paths.ends.after.shape).tolist()
    shares = [float(k == number) for k in range(max(number + 1, paths.rows.of_devices))]
    return Leaf(ends=ends, rounds_in=none, rounds_out=none, shares=shares, prices=[0.0] * len(paths.rows.memory_rows))


class _Case:
    """Linear program (1) of a case, its seconds as shares of a limit and bytes as those of the budget, (6)."""

    def __init__(self, paths: LayerPaths, limit: float) -> None:
        given, chunks, devices = paths.given, paths.given.num_chunks, len(paths.given.counts)
        self.paths, self.center = paths, np.full(chunks, given.num_layers / chunks)
        self._limit, self._unit = limit, limit / given.budget
        # The last two are the most bytes beyond a budget, as a share of it, and T.
        self._columns = (3 * chunks if paths.ends is not None else chunks) + 2
        sums = np.zeros((1 + devices, self._columns))
        sums[0, :chunks], sums[1 + given.order.device, np.arange(chunks)] = 1, 1
        fixed, right = self._staircases() if paths.ends is not None else (np.zeros((0, self._columns)), np.zeros(0))
        bytes_ = paths.memory / given.budget
        rows = np.zeros((len(bytes_), self._columns))
        rows[:, :chunks], rows[:, -2] = bytes_[:, :-1], -1
        self._sums, self._fixed, self._held = (
            sums,
            (np.vstack((fixed, rows)), np.append(right, -bytes_[:, -1])),
            len(right),
        )
        self._nearest, self._branches = _Nearest(given), 0
        # Each path in the program, with the number of branches when it held a solution last.
        self._used = dict.fromkeys(range(paths.rows.of_devices), 0)
        self._begin()

    def _begin(self) -> None:
        """Build the program with the paths that were used of late."""
        program, chunks = linear_program("dual"), self.paths.given.num_chunks
        upper, cost = np.full(self._columns, np.inf), np.zeros(self._columns)
        if self.paths.ends is not None:
            # E and Z begin at no seconds.
            upper[[chunks, 2 * chunks]] = 0.0
        cost[-2:] = BEYOND, 1.0
        program.add_columns(cost, np.zeros(self._columns), upper, np.zeros((0, self._columns)))
        free, whole = np.full(len(self._sums) - 1, np.inf), [float(self.paths.given.num_layers)]
        program.add_rows(self._sums, np.append(whole, -free), np.append(whole, free))
        self._program = program
        self._add(*self._fixed)
        devices, since = self.paths.rows.of_devices, self._branches - UNUSED
        self._used = {k: branch for k, branch in self._used.items() if k < devices or branch >= since}
        self._add_paths(list(self._used))

    def _add(self, rows: Floats, right: Floats) -> None:
        self._program.add_rows(rows, np.full(len(right), -np.inf), right)

    def _add_paths(self, numbers: list[int]) -> None:
        found = self.paths.paths()[numbers] / self._limit
        rows = np.zeros((len(found), self._columns))
        rows[:, : found.shape[1] - 1], rows[:, -1] = found[:, :-1], -1
        self._add(rows, -found[:, -1])

    def add(self, number: int) -> bool:
        """Take a path into the program; returns whether it was not there."""
        if number in self._used:
            return False
        self._used[number] = self._branches
        self._add_paths([number])
        return True

    def add_known(self) -> None:
        """Take the paths that the rows have already."""
        for number in range(self.paths.rows.of_devices, len(self.paths.rows.paths)):
            self.add(number)

    def _staircases(self) -> tuple[Floats, Floats]:
        """Rows of (1) for E and Z and for the ends of staircases, and their right sides."""
        paths, limit = self.paths, self._limit
        assert paths.ends is not None
        given, lines, chunks = paths.given, paths.lines, paths.given.num_chunks
        devices = len(given.counts)
        cuts = paths.transfer
        passes = np.stack((lines.none[:3], lines.one[:3]))
        rows, right = list[Floats](), list[float]()
        for start, (still, each) in ((chunks, passes[:, 0]), (2 * chunks, passes[:, 1:].sum(axis=1))):
            for step, times in ((1, 1), (devices, devices)):
                for c in range(step, chunks):
                    row = np.zeros(self._columns)
                    row[c - step], row[start + c - step], row[start + c] = times * each[c - step] / limit, 1, -1
                    rows.append(row)
                    right.append(-(times * still[c - step] + (cuts[c - 1] if step == 1 else 0.0)) / limit)
        for at, line in zip(np.ndindex(paths.ends.after.shape), paths.ends_seconds, strict=True):
            row, last = np.zeros(self._columns), chunks - devices + at[0]
            row[:chunks], row[-1] = line[:-1] / limit, -1
            row[chunks + last], row[2 * chunks + last] = 1, paths.ends.leaves[at[2]]
            rows.append(row)
            right.append(-line[-1] / limit)
        return np.array(rows), np.array(right)

    def restrict(self, branch: Branch) -> None:
        """Take the bounds of a branch."""
        self._branches += 1
        if sum(branch < self._branches - UNUSED for branch in self._used.values()) > MOST_UNUSED:
            self._begin()
        self._program.hold_columns(branch.lower.astype(float), branch.upper.astype(float))
        self._program.hold_rows(branch.least.astype(float), branch.most.astype(float), first=1)

    def nearest(self, branch: Branch) -> Floats:
        """Layers of chunks of a branch with the least sum of distances from the center."""
        return self._nearest.of(self.center, branch)

    def solve(self) -> LinearSolution | None:
        """An optimum, if there is one."""
        return self._program.solve()

    def leaf(self, answer: LinearSolution) -> Leaf:
        """The mixture of paths and the prices that the duals are."""
        paths, chunks, devices = self.paths, self.paths.given.num_chunks, len(self.paths.given.counts)
        duals = np.maximum(-answer.duals[1 + devices :], 0.0)
        stairs, prices, shares = np.split(duals, [self._held, self._held + len(paths.memory)])
        rounds, ends = list[Floats](), stairs[:0]
        if paths.ends is not None:
            for _ in range(2):
                by_step, by_round = np.zeros((2, chunks))
                by_step[1:], by_round[devices:] = stairs[: chunks - 1], stairs[chunks - 1 : 2 * chunks - 1 - devices]
                through = by_step + by_round
                rounds.append(np.divide(by_round, through, out=np.zeros(chunks), where=through > 0))
                stairs = stairs[2 * chunks - 1 - devices :]
            ends = stairs.reshape(paths.ends.after.shape)
        if not (total := float(ends.sum() + shares.sum())):
            # No path has a weight: any one proves as much.
            return _single(paths, 0)
        weights_of = np.zeros(len(paths.rows.paths))
        weights_of[list(self._used)] = shares / total
        self._used |= {k: self._branches for k in np.flatnonzero(weights_of).tolist()}
        weights: Any = (ends / total).tolist()
        return Leaf.model_construct(
            ends=weights,
            rounds_in=rounds[0].tolist() if rounds else [],
            rounds_out=rounds[1].tolist() if rounds else [],
            shares=weights_of.tolist(),
            prices=(prices / total * self._unit).tolist(),
        )


class _Nearest:
    """The linear program of the least sum of distances from some layers of chunks."""

    def __init__(self, given: ChunkProblem) -> None:
        chunks, devices = given.num_chunks, len(given.counts)
        self._program, self._first = linear_program("dual"), 1 + devices
        free = np.full(2 * chunks, np.inf)
        self._program.add_columns(np.repeat([0.0, 1.0], chunks), np.zeros(2 * chunks), free, np.zeros((0, 2 * chunks)))
        sums = np.zeros((1 + devices, 2 * chunks))
        sums[0, :chunks], sums[1 + given.order.device, np.arange(chunks)] = 1, 1
        whole, most = [float(given.num_layers)], np.full(devices, np.inf)
        self._program.add_rows(sums, np.append(whole, -most), np.append(whole, most))
        one = np.eye(chunks)
        self._program.add_rows(np.concatenate((np.hstack((one, -one)), np.hstack((-one, -one)))), -free, free)

    def of(self, layers: Floats, branch: Branch) -> Floats:
        """Layers of chunks of a branch, whole or not, nearest to some (C,); these if it has none."""
        self._program.hold_columns(branch.lower.astype(float), branch.upper.astype(float))
        self._program.hold_rows(branch.least.astype(float), branch.most.astype(float), first=1)
        sides = np.concatenate((layers, -layers))
        self._program.hold_rows(np.full(len(sides), -np.inf), sides, first=self._first)
        answer = self._program.solve()
        return layers if answer is None else answer.primal[: len(layers)]
