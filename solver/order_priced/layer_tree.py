r"""
Branch and bound over the layers of chunks under interleaved 1F1B, by linear programs.

Where layers are alike and recompute is one kind, a chunk's figures are linear in its layers. Then divisions are the
whole points of a polytope, and their bound needs no column generation.

Sets: chunks c on devices d(c); critical paths k that were added; memory rows r
(``taut.solver.order_priced.master_rows`` (2)).
Data: seconds of a chunk's passes and its parameters, each a value for no layer and one for a layer; a branch with
bounds :math:`a_c \le x_c \le b_c` on chunks and :math:`A_d \le \sum_{c \in d} x_c \le B_d` on devices.
Variables: layers :math:`x_c`, starts :math:`E_c`, rests :math:`Z_c`, seconds T.

(1) Minimise T over layers of the branch that sum to L and fit memory, so that T is at least the seconds of every
    staircase (``taut.solver.order_priced.staircases`` (1) to (3)) with the reduction of its last device, and of every
    critical path that was added.
(2) Between a solution and a center, the point of least makespan so far, the critical path is added and (1) is solved
    again, until the makespan of the center is T: at a solution itself, far from even rounds, critical paths say little
    (in-out separation).
(3) The duals of (1) are a mixture of paths and prices of memory. Whatever they are, the least seconds of that mixture
    over the branch are a lower bound on it. They are those of a greedy choice: a device's cheapest chunks take its
    layers, and the devices that ask least for their next layer take the model's.
(4) Within a limit a device takes no more layers than its own passes leave time for, which bounds :math:`B_d` at the
    root.
(5) Branching: a device whose layers in (1) are furthest from a whole number, or where there is none, such a chunk. The
    leaf with the least bound goes first, and the least over the leaves bounds all divisions.

The optimizer counts with the mean of the devices' parameters, which is a constant.

References
----------
Ben-Ameur and Neto (2007), Acceleration of cutting-plane and column generation algorithms: applications to network
design, Networks 49 (in-out). Federgruen and Groenevelt (1986), The greedy procedure for resource allocation problems,
Operations Research 34.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ChunkProblem
from taut.formulations.order_times import pipeline_ends
from taut.formulations.strategy import Division
from taut.solver.linear_program import LinearSolution, linear_program
from taut.solver.order_priced.master_rows import MasterRows, least_makespan
from taut.solver.order_priced.staircases import WAYS_IN, WAYS_OUT, ends_of_paths, is_interleaved, mix

ALIKE = 1e-12
"""Relative difference up to which a range's figures are the sum of its layers'."""
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
PRECISION = 1e-6
"""Relative distance between refuted seconds and ones that (4) does not refute."""
WHOLE = 1e-6
"""Distance from a whole number up to which layers count as whole."""


class Lines(NamedTuple):
    """
    Figures of chunks that are linear in their layers.

    ``seconds`` (3, C) of F, I and W for no layer and ``of_layer`` (3,) for each, ``parameters`` (C,) and ``parameter``
    likewise, ``activation`` (C,) and ``each`` in bytes of a micro-batch, and ``cut``, the seconds of a transfer.
    """

    seconds: Floats
    of_layer: Floats
    parameters: Floats
    parameter: float
    activation: Floats
    each: float
    cut: float


def linear_figures(given: ChunkProblem) -> Lines | None:
    """The figures of a division problem as lines; None where they are none, or the order is not interleaved 1F1B."""
    recomputes, size = given.recomputes, given.num_layers
    if not given.waits_for_all or given.stated is not None or len(recomputes) != 1 or given.lead != 1 or size < 3:
        return None
    if not is_interleaved(given.order, given.micro_batches):
        return None
    tables = np.stack((*given.passes[:, recomputes[0]], given.parameters, given.activation[recomputes[0]]))
    layers = np.arange(size)
    single = tables[:, layers, layers + 1]
    until = np.concatenate((np.zeros((5, 1)), single.cumsum(axis=1)), axis=1)
    i, j = np.triu_indices(size + 1, 1)
    within = ALIKE * until[:, -1:]
    if (np.abs(tables[:, i, j] - (until[:, j] - until[:, i])) > within).any():
        return None
    none, one = np.zeros((5, given.num_chunks)), single[:, 1]
    none[:, 0], none[:, -1] = single[:, 0] - one, single[:, -1] - one
    return Lines(none[:3], one[:3], none[3], float(one[3]), none[4], float(one[4]), float(given.edge[1:-1].min()))


@dataclass(frozen=True)
class Branch:
    """Bounds on the layers of chunks, ``lower`` and ``upper`` (C,), and of devices, ``least`` and ``most`` (p,)."""

    lower: Ints
    upper: Ints
    least: Ints
    most: Ints

    def split(self, place: str, number: int, layers: int) -> "tuple[Branch, Branch]":
        """Two branches: at most so many layers on a device or in a chunk, and more."""
        low, high = ("least", "most") if place == "device" else ("lower", "upper")
        many, few = getattr(self, low).copy(), getattr(self, high).copy()
        few[number], many[number] = min(few[number], layers), max(many[number], layers + 1)
        return replace(self, **{high: few}), replace(self, **{low: many})


def least_value(slope: Floats, constant: float, branch: Branch, device: Ints, layers: int) -> float:
    """Least of a linear function of the layers of chunks over a branch, (3); infinite where it has no division."""
    spare = branch.upper - branch.lower
    if (spare < 0).any():
        return np.inf
    value, taken, offers = constant + float(slope @ branch.lower), int(branch.lower.sum()), list[tuple[float, int]]()
    for d in range(len(branch.least)):
        chunks = np.flatnonzero(device == d)
        chunks = chunks[np.argsort(slope[chunks], kind="stable")]
        least, most = (int(bound[d]) - int(branch.lower[chunks].sum()) for bound in (branch.least, branch.most))
        if most < max(least, 0) or int(spare[chunks].sum()) < least:
            return np.inf
        for price, room in zip(slope[chunks].tolist(), spare[chunks].tolist(), strict=True):
            must = min(max(least, 0), room)
            may = min(most - must, room - must)
            value, taken = value + must * price, taken + must
            least, most = least - must, most - must - may
            offers.append((price, may))
    left = layers - taken
    for price, may in sorted(offers):
        more = min(may, max(left, 0))
        value, left = value + more * price, left - more
    return value if left == 0 else np.inf


Weight = Annotated[float, Field(ge=0, le=1)]
Price = Annotated[float, Field(ge=0, le=1e30)]


class Leaf(BaseModel):
    """
    What proves the bound of a leaf, (3).

    ``ends`` are weights of the staircases' ends (p, 2, 3), ``rounds_in`` and ``rounds_out`` shares by whole rounds
    (C,), ``shares`` weights of the rows' paths, and ``prices`` seconds for a byte of every memory row.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    ends: list[list[list[Weight]]]
    rounds_in: list[Weight]
    rounds_out: list[Weight]
    shares: list[Weight]
    prices: list[Price]


class Split(BaseModel):
    """Where a branch is split into few layers and many: a device or a chunk, and the most layers of the few."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    place: Literal["device", "chunk"]
    number: Annotated[int, Field(ge=0, le=2**31)]
    layers: Annotated[int, Field(ge=0, le=2**31)]
    few: "Split | Leaf"
    many: "Split | Leaf"


class LayerPaths:
    """
    Paths of a division problem as linear functions of the layers of its chunks.

    ``rows`` are its critical paths and memory rows, and ``lines`` its linear figures.
    """

    def __init__(self, given: ChunkProblem, lines: Lines) -> None:
        self.given, self.lines = given, lines
        self.ends = ends_of_paths(len(given.counts), given.num_chunks, given.micro_batches)
        self.rows = MasterRows(given)
        every = float(lines.parameters.sum()) + lines.parameter * given.num_layers
        self._constant = given.constant + given.optimizer * every / len(given.counts)
        self._paths = np.zeros((0, given.num_chunks + 1))

    def root(self, limit: float) -> Branch:
        """The branch of all divisions within so many seconds, (4)."""
        given, lower = self.given, np.ones(self.given.num_chunks, np.int64)
        most = np.zeros(len(given.counts), np.int64)
        for d, path in enumerate(self.paths()[: len(most)]):
            hosted, room = given.hosted(d), limit - float(path[:-1] @ lower) - float(path[-1])
            more = max(room, 0.0) / max(float(path[hosted].min()), 1e-300)
            most[d] = len(hosted) + int(min(more * (1 + 1e-9) + 1e-9, given.num_layers))
        return Branch(lower, np.full_like(lower, given.num_layers), np.zeros_like(most), most)

    def refuted(self, limit: float) -> float:
        """The most seconds up to a limit, nearly, within which devices take too few layers, (4)."""

        def takes_too_few(seconds: float) -> bool:
            return int(self.root(seconds).most.sum()) < self.given.num_layers

        low, high = 0.0, limit
        if takes_too_few(high):
            return high
        while high - low > PRECISION * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if takes_too_few(middle) else (low, middle)
        return low

    def paths(self) -> Floats:
        """Seconds of the rows' paths by layers of chunks, and of no layer, (paths, C + 1)."""
        for k in range(len(self._paths), len(self.rows.paths)):
            path = self.rows.paths[k]
            line = self._line(path.passes, path.transfers, self.rows.tails[k], self.given.constant)
            self._paths = np.vstack((self._paths, line))
        return self._paths

    def _line(self, passes: Floats | Ints, transfers: Floats | Ints, after: Floats, constant: float) -> Floats:
        """A path's seconds, of its passes (C, 3), transfers (C - 1,), and seconds for a parameter of devices (p,)."""
        lines, device = self.lines, self.given.order.device
        slope = passes @ lines.of_layer + after[device] * lines.parameter
        none = float((passes.T * lines.seconds).sum() + after[device] @ lines.parameters)
        return np.append(slope, none + float(transfers[self.given.away].sum()) * lines.cut + constant)

    def _staircases(self, forward: Any, backward: Any, transfers: Any, after: Floats, weight: float) -> Floats:
        passes = np.column_stack((forward, backward, backward))
        return self._line(passes, transfers, self.given.ring * after, weight * self._constant)

    @cached_property
    def ends_seconds(self) -> Floats:
        """Seconds of the ends of staircases, without E and Z, by layers of chunks and of no layer, (p 2 3, C + 1)."""
        ends, last = self.ends, np.eye(len(self.given.counts))
        every = np.ndindex(ends.after.shape)
        return np.array(
            [
                self._staircases(ends.forward[at], ends.backward[at], ends.transfers[at], last[ends.after[at]], 1.0)
                for at in every
            ]
        )

    @cached_property
    def memory(self) -> Floats:
        """Bytes beyond the budget of the memory rows by layers of chunks, and of no layer, (rows, C + 1)."""
        given, lines, device = self.given, self.lines, self.given.order.device
        found = np.zeros((len(self.rows.memory_rows), given.num_chunks + 1))
        for row, (d, counts) in zip(found, self.rows.memory_rows, strict=True):
            hosted = given.hosted(d)
            row[hosted] = given.held * lines.parameter + counts * lines.each
            none = given.held * lines.parameters[hosted] + counts * lines.activation[hosted]
            # Bytes beside are left out, as every device may do without them but that of the model's end.
            beside = float(given.beside[-2, -1]) if device[-1] == d else 0.0
            row[-1] = float(none.sum()) + beside - (given.budget - given.always)
        return found

    def mixture(self, leaf: Leaf) -> Floats:
        """Seconds of a leaf's mixture of paths, memory priced, by layers of chunks and of no layer (C + 1,)."""
        weights = np.array(leaf.ends)
        mean = mix(self.ends, weights, np.array(leaf.rounds_in), np.array(leaf.rounds_out))
        found = self._staircases(*mean, float(weights.sum()))
        return np.asarray(found + np.array(leaf.shares) @ self.paths()[: len(leaf.shares)] + leaf.prices @ self.memory)

    def bound(self, leaf: Leaf, branch: Branch) -> float:
        """Lower bound in seconds on a branch by a leaf's mixture, (3)."""
        line = self.mixture(leaf)
        return least_value(line[:-1], float(line[-1]), branch, self.given.order.device, self.given.num_layers)

    def is_proof(self, leaf: Leaf) -> bool:
        """Whether a leaf has as many numbers as there are, and weights that sum to one."""
        devices, chunks = len(self.given.counts), self.given.num_chunks
        ways = [way for each in leaf.ends for way in each]
        lengths = [len(leaf.ends), *map(len, leaf.ends), *map(len, ways)]
        others = [len(leaf.rounds_in), len(leaf.rounds_out), len(leaf.shares), len(leaf.prices)]
        if lengths != [devices, *[WAYS_IN] * devices, *[WAYS_OUT] * (WAYS_IN * devices)]:
            return False
        if others != [chunks, chunks, len(self.rows.paths), len(self.rows.memory_rows)]:
            return False
        return abs(float(np.sum(leaf.ends) + np.sum(leaf.shares)) - 1) <= 1e-12

    def separate(self, layers: Floats) -> float:
        """Add the critical path of layers of chunks (C,), whole or not; returns their makespan in seconds."""
        given, lines = self.given, self.lines
        passes = (lines.seconds + lines.of_layer[:, None] * layers).ravel()
        cuts = np.where(given.away, lines.cut, 0.0)
        parameters = np.bincount(given.order.device, lines.parameters + lines.parameter * layers).astype(float)
        self.rows.separate_mean(np.concatenate((passes, cuts, parameters)), 0.0)
        ends = pipeline_ends(given.order, passes[None], cuts[None], given.micro_batches)
        return given.seconds(ends[0], parameters)


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
        """The bound in seconds, at most the limit, without an allowance for rounding; at first what (4) refutes."""
        proven = max(self._least, min((leaf.seconds for leaf in self._leaves), default=-np.inf))
        return min(proven, self.limit)

    def learn(self, division: Division) -> None:
        """Take a division that was found elsewhere."""
        if division not in self.divisions:
            self.divisions = (*self.divisions, division)
            found = least_makespan(self.given, division), division
            self.incumbent = min(self.incumbent, found, key=lambda one: one[0])

    def branch(self) -> bool:
        """Bound the root, or branch on the leaf with the least bound, (5); returns whether that was possible."""
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
        """Choose where a leaf is split, (5); returns whether there is such a place."""
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


def least_of_leaves(given: ChunkProblem, limit: float, add: Callable[[MasterRows], bool], tree: Split | Leaf) -> float:
    """
    The least bound of the leaves of a stated tree, in seconds; minus infinity where it proves nothing.

    ``add`` adds the critical paths that come with the tree to the rows, and says whether they are ones of its order.
    """
    lines = linear_figures(given)
    paths = None if lines is None else LayerPaths(given, lines)
    if paths is None or not add(paths.rows):
        return -np.inf
    least, parts = np.inf, [(paths.root(limit), tree)]
    sizes = {"chunk": given.num_chunks, "device": len(given.counts)}
    while parts:
        branch, node = parts.pop()
        if isinstance(node, Leaf):
            least = min(least, paths.bound(node, branch) if paths.is_proof(node) else -np.inf)
        elif node.number >= sizes[node.place]:
            return -np.inf
        else:
            few, many = branch.split(node.place, node.number, node.layers)
            parts += [(few, node.few), (many, node.many)]
    return least


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
