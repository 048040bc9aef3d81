r"""
Branch and bound over divisions: the least bound of any branch bounds all divisions.

Sets: branches, each the divisions with :math:`a_c` to :math:`b_c` layers in chunk c.

(1) A branch is bounded by the Lagrangian dual over the options of its devices
    (``taut.solver.order_priced.dual_ascent``, with the pricing problem of ``taut.solver.order_priced.device_chain``) or
    by how many layers they take (``taut.solver.order_priced.capacity``), whichever is larger.
(2) Branching: the divisions of a branch are those with at most n layers in chunk c and those with more. So the least
    bound over the leaves of the tree bounds all divisions.
(3) Selection: the leaf with the least bound is branched on (best first), of equal ones the deepest.
(4) The chunk is the one whose layers vary most over the columns of the leaf's last master solution, with their
    weights; n is the mean there, rounded down.

The witness names the divisions whose critical paths are rows, and the tree with multipliers or seconds at its leaves.
Source: Land and Doig (1960), An automatic method of solving discrete programming problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.formulations.strategy import Division
from taut.solver.order_priced.capacity import capacity_bound
from taut.solver.order_priced.device_chain import DeviceChain
from taut.solver.order_priced.dual_ascent import DualSolution, maximise_dual
from taut.solver.order_priced.master_rows import MasterRows

MOST_LEAVES = 256
"""No branching beyond so many leaves, since each is a bound of its own that a witness states and a check derives."""
MOST_IDLE_SPLITS = 20
"""Branchings in a row that raised no bound after which the candidate is left."""
TIE = 1 + 1e-9
"""Factor within which bounds count as equal, above the rounding of their sums."""
INTEGRAL = 1e-9
"""Variance of a chunk's layers up to which the columns agree, above the tolerance of the solver's weights."""


@dataclass
class _Node:
    """A branch, its bound in seconds and the proof, and where and into which two children it was branched."""

    devices: DeviceChain
    proof: DualSolution
    seconds: float
    by_capacity: bool
    depth: int = 0
    chunk: int = -1
    layers: int = 0
    children: "tuple[_Node, _Node] | None" = None

    def leaves(self) -> "list[_Node]":
        """Branches without children."""
        return [self] if self.children is None else [leaf for child in self.children for leaf in child.leaves()]


class BranchAndBound:
    """
    The tree of branches of one candidate.

    Parameters
    ----------
    devices
        The devices, all of whose divisions are bounded; their limit is that of the bound.
    divisions
        Columns to begin with.

    Attributes
    ----------
    incumbent
        Least makespan in seconds of the divisions found, and its division; it fits memory by the least figures alone.
    """

    def __init__(self, devices: DeviceChain, divisions: Sequence[Division]) -> None:
        self.given, self._limit = devices.given, devices.limit
        self._rows = MasterRows(devices.given, with_memory=False)
        self.incumbent: tuple[float, Division | None] = (np.inf, None)
        self._root = self._node(devices, divisions)
        self._idle = 0

    def _node(self, devices: DeviceChain, divisions: Sequence[Division]) -> _Node:
        mine = [division for division in divisions if devices.contains(division)]
        proof = maximise_dual(self._rows, mine, devices.least_division, self._limit - self.given.constant)
        self._note(proof.divisions[len(mine) :])
        by_weights = proof.value + self.given.constant
        capacity = capacity_bound(devices) if by_weights < self._limit else -np.inf
        return _Node(devices, proof, max(by_weights, capacity), by_capacity=capacity > by_weights)

    def _note(self, answers: Sequence[Division]) -> None:
        """Keep the new division of least makespan; critical paths of new divisions are rows already."""
        if answers:
            seconds = self._rows.path_seconds(answers).max(axis=0) + self.given.constant
            least = int(seconds.argmin())
            self.incumbent = min(self.incumbent, (float(seconds[least]), answers[least]), key=lambda one: one[0])

    @property
    def divisions(self) -> tuple[Division, ...]:
        """Divisions found in all leaves."""
        return tuple(division for leaf in self._root.leaves() for division in leaf.proof.divisions)

    @property
    def seconds(self) -> float:
        """The bound in seconds, at most the limit, without an allowance for rounding."""
        return min(*(leaf.seconds for leaf in self._root.leaves()), self._limit)

    def branch(self) -> bool:
        """Branch on the leaf with the least bound, (3) and (4); returns whether that was possible."""
        leaves = self._root.leaves()
        least = min(leaf.seconds for leaf in leaves)
        # Of equal leaves the deepest goes first, since it may take several branchings in one place to raise a bound.
        leaf = max((one for one in leaves if one.seconds <= least * TIE), key=lambda one: one.depth)
        weights = leaf.proof.column_weights
        if least >= self._limit or len(leaves) >= MOST_LEAVES or self._idle >= MOST_IDLE_SPLITS or not len(weights):
            return False
        layers = np.array([division.layers for division in leaf.proof.divisions[: len(weights)]])
        mean = weights @ layers
        variance = weights @ (layers - mean) ** 2
        leaf.chunk = int(variance.argmax())
        if variance[leaf.chunk] <= INTEGRAL:
            return False
        leaf.layers = int(np.clip(np.floor(mean[leaf.chunk]), *leaf.devices.split_range(leaf.chunk)))
        few, many = leaf.devices.split(leaf.chunk, leaf.layers)
        leaf.children = self._node(few, leaf.proof.divisions), self._node(many, leaf.proof.divisions)
        for child in leaf.children:
            child.depth = leaf.depth + 1
        self._idle = 0 if max(child.seconds for child in leaf.children) > least * TIE else self._idle + 1
        return True

    def witness(self) -> dict[str, Any]:
        """Limit, divisions whose critical paths have a weight at some leaf, and the tree with a proof at each leaf."""
        devices = self._rows.of_devices
        weights = [leaf.proof.path_weights[devices:] for leaf in self._root.leaves() if not leaf.by_capacity]
        used = sorted({k for one in weights for k in np.flatnonzero(one > 0).tolist()})
        known = [self._rows.critical_for[devices + k] for k in used]
        critical = [division for division in known if division is not None]
        return {
            "limit_s": self._limit,
            "critical": [{"ends": one.ends.tolist(), "recompute": one.recompute_index.tolist()} for one in critical],
            "tree": self._plain(self._root, [*range(devices), *(devices + k for k in used)]),
        }

    def _plain(self, node: _Node, paths: list[int]) -> dict[str, Any]:
        if node.children is None and node.by_capacity:
            return {"seconds": node.seconds}
        if node.children is None:
            weights = node.proof.path_weights
            weights = np.pad(weights, (0, len(self._rows.paths) - len(weights)))
            return {"shares": weights[paths].tolist()}
        few, many = (self._plain(child, paths) for child in node.children)
        return {"chunk": node.chunk, "layers": node.layers, "few": few, "many": many}
