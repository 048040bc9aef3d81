r"""
Branch and bound over divisions: the least bound of any branch bounds all divisions.

Sets: branches, each the divisions with :math:`a_c` to :math:`b_c` layers in chunk c and :math:`A_d` to :math:`B_d`
layers on device d.

(1) A branch is bounded by the Lagrangian dual over the options of its devices
    (``taut.solver.order_priced.dual_ascent``, with the pricing problem of ``taut.solver.order_priced.device_options``)
    or by how many layers they take (``taut.solver.order_priced.capacity``), whichever is larger.
(2) Branching: the divisions of a branch are those with at most n layers on device d and those with more, or the same of
    a chunk c. So the least bound over the leaves of the tree bounds all divisions.
(3) Selection: the leaf with the least bound is branched on (best first), of equal ones the deepest.
(4) The device is the one whose layers vary most over the columns of the leaf's last master solution, with their
    weights; n is the mean there, rounded down. A whole layer more on a device is worth some per cent of a step, which a
    mixture hides; where the columns agree on all devices, the chunk is chosen so.

The witness names the figures whose critical paths are rows, and the tree with multipliers or seconds at its leaves.
Source: Land and Doig (1960), An automatic method of solving discrete programming problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.strategy import Division
from taut.solver.order_priced.capacity import capacity_bound
from taut.solver.order_priced.device_options import DeviceChain
from taut.solver.order_priced.dual_ascent import DualSolution, maximise_dual
from taut.solver.order_priced.master_rows import MasterRows, least_makespan

MOST_LEAVES = 256
"""No branching beyond so many leaves, since each is a bound of its own that a witness states and a check derives."""
MOST_DEEP = 40
"""Branchings one below another at most: files are nested in 64 levels at most (``taut.data.read``), a tree in each."""
MOST_IDLE_SPLITS = 20
"""Branchings in a row that raised no bound after which the candidate is left."""
TIE = 1 + 1e-9
"""Factor within which bounds count as equal, above the rounding of their sums."""
INTEGRAL = 1e-9
"""Variance of a chunk's layers up to which the columns agree, above the tolerance of the solver's weights."""


@dataclass
class _Node:
    """A branch, its bound in seconds and the proof, and at which device or chunk it was branched into two children."""

    devices: DeviceChain
    rows: MasterRows
    proof: DualSolution
    seconds: float
    by_capacity: bool
    depth: int = 0
    place: str = ""
    number: int = -1
    layers: int = 0
    children: "tuple[_Node, _Node] | None" = None

    def leaves(self) -> "list[_Node]":
        """Branches without children."""
        return [self] if self.children is None else [leaf for child in self.children for leaf in child.leaves()]


class BranchAndBound:
    """
    The tree of branches of one candidate: its ``devices``, whose limit is that of the bound, and ``divisions`` so far.

    ``incumbent`` has the least makespan in seconds of the divisions found, and its division; it fits memory by least
    figures alone.
    """

    def __init__(self, devices: DeviceChain, divisions: Sequence[Division]) -> None:
        self.given, self.limit = devices.given, devices.limit
        self.incumbent: tuple[float, Division | None] = (np.inf, None)
        self._root = self._node(devices, MasterRows(devices.given, with_memory=False), divisions)
        self._idle = 0

    def _node(
        self, devices: DeviceChain, rows: MasterRows, divisions: Sequence[Division], start: Floats | None = None
    ) -> _Node:
        mine = [division for division in divisions if devices.contains(division)]
        capacity, constant = capacity_bound(devices), self.given.constant
        if capacity >= self.limit:
            proof = DualSolution(-np.inf, np.zeros(0), np.zeros(0), tuple(mine), np.zeros(0))
        else:
            proof = maximise_dual(rows, mine, devices.least_division, self.limit - constant, start)
        self._note(proof.divisions[len(mine) :])
        by_weights = proof.value + constant
        return _Node(devices, rows, proof, max(by_weights, capacity), by_capacity=capacity > by_weights)

    def _child(self, devices: DeviceChain, parent: _Node) -> _Node:
        """A part of a branch: it begins with the paths and the divisions that had a weight there."""
        proof = parent.proof
        weights = np.pad(proof.column_weights, (0, len(proof.divisions) - len(proof.column_weights)), constant_values=1)
        used = [proof.divisions[k] for k in np.flatnonzero(weights > 0)]
        rows = parent.rows.kept(proof.path_weights)
        child = self._node(devices, rows, used, rows.weights_of(parent.rows, proof.path_weights))
        child.depth = parent.depth + 1
        return child

    def _note(self, answers: Sequence[Division]) -> None:
        """Keep the new division of least makespan."""
        for answer in answers:
            self.incumbent = min(self.incumbent, (least_makespan(self.given, answer), answer), key=lambda one: one[0])

    @property
    def is_branched(self) -> bool:
        """Whether there are branches."""
        return self._root.children is not None

    @property
    def divisions(self) -> tuple[Division, ...]:
        """Divisions found in all leaves."""
        return tuple(division for leaf in self._root.leaves() for division in leaf.proof.divisions)

    @property
    def seconds(self) -> float:
        """The bound in seconds, at most the limit, without an allowance for rounding."""
        return min(*(leaf.seconds for leaf in self._root.leaves()), self.limit)

    def branch(self) -> bool:
        """Branch on the leaf with the least bound, (3) and (4); returns whether that was possible."""
        leaves = self._root.leaves()
        least = min(leaf.seconds for leaf in leaves)
        # Of equal leaves the deepest goes first, since it may take several branchings in one place to raise a bound.
        leaf = max((one for one in leaves if one.seconds <= least * TIE), key=lambda one: one.depth)
        if least >= self.limit or len(leaves) >= MOST_LEAVES or self._idle >= MOST_IDLE_SPLITS:
            return False
        if leaf.depth >= MOST_DEEP or not self._choose(leaf):
            return False
        split = leaf.devices.split_device if leaf.place == "device" else leaf.devices.split
        few, many = split(leaf.number, leaf.layers)
        leaf.children = self._child(few, leaf), self._child(many, leaf)
        self._idle = 0 if max(child.seconds for child in leaf.children) > least * TIE else self._idle + 1
        return True

    def learn(self, division: Division) -> None:
        """Take a division that was found elsewhere as a column."""
        for leaf in self._root.leaves():
            if leaf.devices.contains(division):
                leaf.proof = replace(leaf.proof, divisions=(*leaf.proof.divisions, division))

    def _choose(self, leaf: _Node) -> bool:
        """Choose where a leaf is split, (4); returns whether there is such a place."""
        weights, device = leaf.proof.column_weights, self.given.order.device
        if not len(weights):
            return False
        chunks = np.array([division.layers for division in leaf.proof.divisions[: len(weights)]])
        devices = np.array([np.bincount(device, one, minlength=len(self.given.counts)) for one in chunks])
        for place, layers in (("device", devices), ("chunk", chunks)):
            mean = weights @ layers
            variance = weights @ (layers - mean) ** 2
            number = int(variance.argmax())
            if variance[number] > INTEGRAL:
                of_place = leaf.devices.device_split_range if place == "device" else leaf.devices.split_range
                leaf.place, leaf.number = place, number
                leaf.layers = int(np.clip(np.floor(mean[number]), *of_place(number)))
                return True
        return False

    def witness(self) -> dict[str, Any]:
        """Limit, figures whose critical paths have a weight at some leaf, and the tree with a proof at each leaf."""
        every = MasterRows(self.given, with_memory=False)
        for leaf in self._root.leaves():
            for figures in leaf.rows.kept(leaf.proof.path_weights).critical_for if not leaf.by_capacity else ():
                if figures is not None:
                    every.add(figures)
        return {
            "limit_s": self.limit,
            "critical": [figures.plain() for figures in every.critical_for if figures is not None],
            "tree": self._plain(self._root, every),
        }

    def _plain(self, node: _Node, every: MasterRows) -> dict[str, Any]:
        if node.children is not None:
            few, many = (self._plain(child, every) for child in node.children)
            return {node.place: node.number, "layers": node.layers, "few": few, "many": many}
        if node.by_capacity:
            return {"seconds": node.seconds}
        return {"shares": every.weights_of(node.rows, node.proof.path_weights).tolist()}
