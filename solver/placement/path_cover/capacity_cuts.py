r"""
Rounded capacity cuts and mixed-integer-rounding cuts on the visits of paths to a set of nodes.

Let a set B of nodes have b slots. A visit is a longest stretch of a path inside B. Of the v visits of all paths, s
begin a path; those take at most pp slots of B each, all others at most pp - 1, since the slot before lies outside:

(1) :math:`(pp - 1) v + s \ge b, \quad 0 \le s \le v`.

Fractional solutions satisfy (1) with parts of visits. With :math:`m = \lceil b / (pp - 1) \rceil` and
:math:`j = b \bmod (pp - 1)`, all integer solutions satisfy

(2) :math:`v \ge \lceil b / pp \rceil`, the rounded capacity cut (Chvatal-Gomory rounding of (1) with s <= v);
(3) :math:`j v + s \ge j m`, the mixed-integer-rounding (MIR) cut of (1), v integer.

With (1) they describe the convex hull of its integer solutions. A cut has a coefficient for a visit, one more for a
visit that begins a path, and a right-hand side; the dual price of a cut is at least zero.

References
----------
Laporte and Nobert (1983), A branch and bound algorithm for the capacitated vehicle routing problem; Lysgaard, Letchford
and Eglese (2004), A new branch-and-cut algorithm for the capacitated vehicle routing problem: rounded capacity cuts.
Nemhauser and Wolsey (1990), A recursive procedure to generate all cuts for 0-1 mixed integer programs: MIR cuts.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.solver.placement.slots import SlotGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A cut on the visits to a set of nodes: the MIR cut (3) if ``mir``, else the rounded capacity cut (2)."""

    nodes: tuple[int, ...]
    mir: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class CutArrays:
    """
    Several cuts as arrays.

    ``inside`` (cuts, N) flags of their nodes; ``visit`` and ``start`` (cuts,) the coefficients of a visit, and of a
    visit that begins a path beside it; ``least`` (cuts,) the right-hand sides.
    """

    inside: Flags
    visit: Ints
    start: Ints
    least: Ints

    def coefficients(self, routes: Ints) -> Ints:
        """
        Left-hand sides of the cuts for single routes.

        ``routes``: nodes of routes, (routes, pp). Returns coefficients of the routes' columns, (routes, cuts).
        """
        inside = self.inside[:, routes]
        entries = (inside[:, :, 1:] & ~inside[:, :, :-1]).sum(axis=2)
        coefficients = self.visit[:, None] * entries + (self.visit + self.start)[:, None] * inside[:, :, 0]
        return np.asarray(coefficients.T, dtype=np.int64)

    def hop_duals(self, duals: Ints) -> Ints:
        """
        Prices of hops that enter sets.

        ``duals``: dual price of each cut, (cuts,). Returns sum of the prices that a hop from v to w collects, (N, N).
        """
        inside = self.inside.astype(np.int64)
        return (1 - inside).T @ ((duals * self.visit)[:, None] * inside)

    def start_duals(self, duals: Ints) -> Ints:
        """
        Prices of starts.

        ``duals``: dual price of each cut, (cuts,). Returns sum of the prices that a path collects by beginning in a
        node, (N,).
        """
        return np.asarray((duals * (self.visit + self.start)) @ self.inside.astype(np.int64))


def cut_arrays(graph: SlotGraph, cuts: tuple[Cut, ...]) -> CutArrays:
    """
    Write cuts as arrays.

    ``cuts``: any cuts on sets of its nodes. Returns coefficients and right-hand sides, in the order of ``cuts``.
    """
    inside = np.zeros((len(cuts), len(graph.hops)), dtype=bool)
    for flags, cut in zip(inside, cuts, strict=True):
        flags[list(cut.nodes)] = True
    mir = np.array([cut.mir for cut in cuts], dtype=bool)
    slots, later = inside @ graph.capacity, graph.pp - 1
    rest = slots % later
    return CutArrays(
        inside=inside,
        visit=np.where(mir, rest, 1),
        start=np.where(mir, 1, 0),
        least=np.where(mir, rest * -(-slots // later), -(-slots // graph.pp)),
    )
