r"""
Bound on divisions by what every device can take, in branches.

(1) In a branch chunk c has at least :math:`a_c` and at most :math:`b_c` layers. Its divisions are bounded by the
    devices' options that keep to that, under shares of paths (``taut.solver.order_priced.device_chain``), or by how
    many layers they take (``taut.solver.order_priced.capacity``), whichever is more.
(2) The divisions of a branch are those with at most n layers in chunk c and those with more. So the least bound over
    the leaves of a tree of such branches bounds all divisions.

The leaf with the least bound is divided, of equal ones the deepest, at the chunk whose layers vary most over the
mixture of divisions that its linear program ended with, at their mean. The witness names the divisions whose critical
paths are meant, and the tree, with shares or seconds at its leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.formulations.strategy import Division
from taut.solver.order_priced.capacity import capacity_bound
from taut.solver.order_priced.device_chain import Devices
from taut.solver.order_priced.dual_ascent import Raised, raised
from taut.solver.order_priced.rows import Rows

MOST_LEAVES = 256
"""Leaves beyond which no branch is divided."""
PATIENCE = 20
"""Splits in a row after which a bound is left as it is, if neither part of any of them was slower than the whole."""
SAME = 1 + 1e-9
"""Relative distance within which bounds count as equal."""


@dataclass
class _Node:
    """A branch: its devices, seconds that are proven of it and how, and once it is divided where, and its two parts."""

    devices: Devices
    proof: Raised
    seconds: float
    by_capacity: bool
    depth: int = 0
    chunk: int = -1
    layers: int = 0
    parts: "tuple[_Node, _Node] | None" = None

    def leaves(self) -> "list[_Node]":
        """Branches that are not divided."""
        return [self] if self.parts is None else [leaf for part in self.parts for leaf in part.leaves()]


class Branching:
    """
    A tree of branches under construction.

    Parameters
    ----------
    devices
        The devices, all of whose divisions are bounded; their limit is that of the bound.
    divisions
        Where to begin.

    Attributes
    ----------
    quickest
        Of the divisions found in any branch, which fit memory by least figures, the least makespan, and its division.
    """

    def __init__(self, devices: Devices, divisions: Sequence[Division]) -> None:
        self.given, self._limit = devices.given, devices.limit
        self._rows = Rows(devices.given, priced=False)
        self.quickest: tuple[float, Division | None] = (np.inf, None)
        self._root = self._node(devices, divisions)
        self._idle = 0

    def _node(self, devices: Devices, divisions: Sequence[Division]) -> _Node:
        mine = [division for division in divisions if devices.hold(division)]
        proof = raised(self._rows, mine, devices.least, self._limit - self.given.constant)
        self._note(proof.divisions[len(mine) :])
        by_shares = proof.value + self.given.constant
        capacity = capacity_bound(devices) if by_shares < self._limit else -np.inf
        return _Node(devices, proof, max(by_shares, capacity), by_capacity=capacity > by_shares)

    def _note(self, answers: Sequence[Division]) -> None:
        """Keep the quickest of new divisions, whose critical paths are among the rows by now."""
        if answers:
            seconds = self._rows.seconds(answers).max(axis=0) + self.given.constant
            least = int(seconds.argmin())
            self.quickest = min(self.quickest, (float(seconds[least]), answers[least]), key=lambda one: one[0])

    @property
    def divisions(self) -> tuple[Division, ...]:
        """Divisions found in all branches."""
        return tuple(division for leaf in self._root.leaves() for division in leaf.proof.divisions)

    @property
    def seconds(self) -> float:
        """Seconds that are proven, at most the limit, without an allowance for rounding."""
        return min(*(leaf.seconds for leaf in self._root.leaves()), self._limit)

    def refine(self) -> bool:
        """Divide the branch with the least bound; returns whether that was possible."""
        leaves = self._root.leaves()
        least = min(leaf.seconds for leaf in leaves)
        # Of equal branches the deepest goes first: several splits may have to come together before any of them tells.
        leaf = max((one for one in leaves if one.seconds <= least * SAME), key=lambda one: one.depth)
        if least >= self._limit or len(leaves) >= MOST_LEAVES or self._idle >= PATIENCE or not len(leaf.proof.parts):
            return False
        layers = np.array([division.layers for division in leaf.proof.divisions[: len(leaf.proof.parts)]])
        mean = leaf.proof.parts @ layers
        spread = leaf.proof.parts @ (layers - mean) ** 2
        leaf.chunk = int(spread.argmax())
        if spread[leaf.chunk] <= 1e-9:
            return False
        leaf.layers = int(np.clip(np.floor(mean[leaf.chunk]), *leaf.devices.between(leaf.chunk)))
        few, many = leaf.devices.split(leaf.chunk, leaf.layers)
        leaf.parts = self._node(few, leaf.proof.divisions), self._node(many, leaf.proof.divisions)
        for part in leaf.parts:
            part.depth = leaf.depth + 1
        self._idle = 0 if max(part.seconds for part in leaf.parts) > least * SAME else self._idle + 1
        return True

    def witness(self) -> dict[str, Any]:
        """Limit, divisions whose critical paths have a share, and the tree with a proof at each leaf."""
        devices = len(self.given.counts)
        shares = [leaf.proof.shares[devices:] for leaf in self._root.leaves() if not leaf.by_capacity]
        used = sorted({k for one in shares for k in np.flatnonzero(one > 0).tolist()})
        sources = [self._rows.sources[devices + k] for k in used]
        meant = [source for source in sources if source is not None]
        return {
            "limit_s": self._limit,
            "critical": [{"ends": one.ends.tolist(), "recompute": one.recompute_index.tolist()} for one in meant],
            "tree": self._stated(self._root, [*range(devices), *(devices + k for k in used)]),
        }

    def _stated(self, node: _Node, paths: list[int]) -> dict[str, Any]:
        if node.parts is None and node.by_capacity:
            return {"seconds": node.seconds}
        if node.parts is None:
            shares = np.pad(node.proof.shares, (0, len(self._rows.paths) - len(node.proof.shares)))
            return {"shares": shares[paths].tolist()}
        few, many = (self._stated(part, paths) for part in node.parts)
        return {"chunk": node.chunk, "layers": node.layers, "few": few, "many": many}
