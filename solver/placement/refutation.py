r"""
Longest path: a proof of how short the longest of the paths that take all slots cannot be, and its check.

Sets: nodes with :math:`c_v` slots (``taut.solver.placement.slots``), to be divided among paths of pp slots, every one
of which begins in the set P, so that at least k and at most k' nodes are touched, among them the set Q. A run is a
stretch of a path in one node.

(1) Let w be the least hop and q a quantum. Hops weigh :math:`l_{ab} = \lfloor (W_{ab} - w) / q \rfloor` levels, so a
    path of R levels or more takes at least :math:`T_R = (pp - 1) w + R q` seconds.
(2) Let runs have whole gains by node and length, first runs their own (``taut.solver.placement.fillings``), and
    :math:`\Gamma` be the least that all paths together gain. Let Z be the largest gain of a walk of pp slots that
    begins in P, has runs of at most :math:`c_v` slots, never returns at once to the node it left if it had filled it,
    and takes fewer than R levels. If paths shorter than :math:`T_R` took every slot once, each would be such a walk.
    Hence

    .. math:: \Gamma > paths \cdot Z \;\Rightarrow\; T \ge T_R.

Z is found by dynamic programming over slots, nodes and levels (``taut.solver.placement.dearest``), all in integers:
checking (2) takes one pass. A gain of one on every slot of one node and zero elsewhere is the bound by the hardest node
to visit; gains from the average path are covered too. ``taut.solver.placement.walks`` finds gains.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut.solver.placement.dearest import MOST_SUM, dearest_walks
from taut.solver.placement.fillings import cheapest_fillings, least_total
from taut.solver.placement.slots import Slots

Floats = NDArray[np.float64]
Small = NDArray[np.int32]
Flags = NDArray[np.bool_]
MOST_LEVELS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Refutation:
    """
    Proof by (2) that some path takes at least ``seconds``.

    ``quantum`` seconds a level, ``levels`` = R; ``later`` and ``first`` gains by node and length from 1 on, ``first``
    where they differ. Valid for paths that begin in the set it was made for, or in any part of it, for any part of the
    range of touched nodes, and with more required ones.
    """

    quantum: float
    levels: int
    later: tuple[tuple[int, ...], ...]
    first: tuple[tuple[int, ...], ...] | None = None


def refuted_seconds(given: Slots, starts: Flags, required: Flags, touched: tuple[int, int], proof: Refutation) -> float:
    """
    Seconds that the longest path takes at least, minus infinity where the proof does not hold.

    Parameters
    ----------
    given
        The slots.
    starts
        P, (N,).
    required
        Q, (N,).
    touched
        k and k', the fewest and most nodes that stage 0 touches.
    proof
        Gains and levels.
    """
    if not 0 < proof.levels <= MOST_LEVELS or not 0.0 < proof.quantum < np.inf:
        return -np.inf
    later = _table(given, proof.later)
    first = later if proof.first is None else _table(given, proof.first)
    if later is None or first is None:
        return -np.inf
    least, levels = levels_of(given, proof.quantum, proof.levels)
    best = dearest_walks(levels, first, later, given.capacity, starts, given.pp, proof.levels)[0]
    fillings = cheapest_fillings(first.astype(np.float64), later.astype(np.float64), given.capacity)[0]
    if not int(best.max()) * given.paths < least_total(fillings, starts, required, *touched) < np.inf:
        return -np.inf
    return (given.pp - 1) * least + proof.levels * proof.quantum


def _table(given: Slots, gains: tuple[tuple[int, ...], ...]) -> Small | None:
    """Gains as an array (N, c + 1) with a column for no slots; None where they are not by node and length, or huge."""
    longest = int(given.capacity.max())
    if len(gains) != len(given.hops) or any(len(row) != longest for row in gains):
        return None
    if max(abs(gain) for row in gains for gain in row) * given.pp >= MOST_SUM:
        return None
    return np.pad(np.array(gains, dtype=np.int32), ((0, 0), (1, 0)))


def levels_of(given: Slots, quantum: float, most: int) -> tuple[float, Small]:
    """Least hop, and hops in levels by (1), never more than ``most``; single slots have no hop inside."""
    least = given.least_hop()
    allowed = ~np.diag(given.capacity <= 1)
    # Rounding in the quotient must not lift a hop to the next level.
    exact = np.floor((np.where(allowed, given.hops, np.inf) - least) / quantum * (1 - 1e-12))
    return least, np.clip(exact, 0, most).astype(np.int32)
