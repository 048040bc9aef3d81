r"""
Bounds on the layers of chunks under interleaved 1F1B: mixtures of paths over branches.

Where layers are alike and recompute is one kind, a chunk's figures are linear in its layers. Then divisions are the
whole points of a polytope, and the least of a mixture of paths over them follows from a greedy choice.

Sets: chunks c on devices d(c); paths of the rows, memory rows r (``taut.solver.order_priced.master_rows``).
Data: seconds of a chunk's passes and its parameters, each a value for no layer and one for a layer; a branch with
bounds :math:`a_c \le x_c \le b_c` on chunks and :math:`A_d \le \sum_{c \in d} x_c \le B_d` on devices.
Variables: layers :math:`x_c` that sum to L.

(1) The step takes at least the seconds of every staircase (``taut.solver.order_priced.staircases`` (1) to (3)) with the
    reduction of its last device, and of every path of the rows. So it takes at least those of a mixture of them, plus
    bytes beyond the budget at prices that are not negative.
(2) Their least over a branch: a device's cheapest chunks take its layers, and the devices that ask least for their next
    layer take the model's.
(3) Within a limit a device takes no more layers than its own passes leave time for, which bounds :math:`B_d` at the
    root. A limit within which the devices take too few layers is a lower bound.
(4) The least over the leaves of a tree of branches bounds all divisions.

The optimizer counts with the mean of the devices' parameters, which is a constant.

References
----------
Federgruen and Groenevelt (1986), The greedy procedure for resource allocation problems, Operations Research 34.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ChunkProblem
from taut.formulations.order_times import pipeline_ends
from taut.solver.order_priced.master_rows import MasterRows
from taut.solver.order_priced.staircases import WAYS_IN, WAYS_OUT, ends_of_paths, is_interleaved, mix

ALIKE = 1e-12
"""Relative difference up to which a range's figures are the sum of its layers'."""

PRECISION = 1e-6
"""Relative distance between refuted seconds and ones that (3) does not refute."""


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
    """Least of a linear function of the layers of chunks over a branch, (2); infinite where it has no division."""
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
    What proves the bound of a leaf, (1).

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
        """The branch of all divisions within so many seconds, (3)."""
        given, lower = self.given, np.ones(self.given.num_chunks, np.int64)
        most = np.zeros(len(given.counts), np.int64)
        for d, path in enumerate(self.paths()[: len(most)]):
            hosted, room = given.hosted(d), limit - float(path[:-1] @ lower) - float(path[-1])
            more = max(room, 0.0) / max(float(path[hosted].min()), 1e-300)
            most[d] = len(hosted) + int(min(more * (1 + 1e-9) + 1e-9, given.num_layers))
        return Branch(lower, np.full_like(lower, given.num_layers), np.zeros_like(most), most)

    def refuted(self, limit: float) -> float:
        """The most seconds up to a limit, nearly, within which devices take too few layers, (3)."""

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
        """Lower bound in seconds on a branch by a leaf's mixture, (2)."""
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
