r"""
Communication of any number of nodes: pipelines as a cover by paths, stage 0 as a clique.

One tensor group fills one node. Of a placement, let T be the seconds of the longest pipeline's hops and b the slowest
inverse rate between stage 0's nodes. Thresholds :math:`0 = b_0 < b_1 < ...` divide the placements into steps.

(1) Step i holds the placements with :math:`b_i \le b < b_{i+1}`. Sets of nodes that hold every clique of dp nodes with
    links below :math:`b_{i+1}` (``taut.solver.cliques``) hold their stage 0; with none the step is empty.
(2) On each set P, :math:`T \ge T(P)` by a proof: potentials (``taut.solver.forest``), or gains for paths that start in
    P (``taut.solver.refutation``). A proof for a set holds for every part of it.
(3) Every placement takes h T + g b >= min over steps of h min_P T(P) + g b_i, for every weight h of the trip and
    seconds g per unit of b: one staircase serves all strategies with the same hops.

``bound_of`` derives (3) from the staircase alone, which is the witness; ``taut.solver.cover`` builds it.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from taut.solver.cliques import clique_sets
from taut.solver.forest import Potentials, forest_seconds
from taut.solver.refutation import Refutation, refuted_seconds

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathProof:
    """A proof of (2) for the start set ``nodes``."""

    nodes: tuple[int, ...]
    by: Potentials | Refutation


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of (1) from ``threshold`` on, and which proofs bound its sets."""

    threshold: float
    proofs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staircase:
    """The whole witness: proofs, and steps by ascending threshold, the first at zero."""

    proofs: tuple[PathProof, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverBound:
    """Derived staircase: thresholds of the steps that are not empty, and the seconds of the longest path in each."""

    thresholds: Floats
    longest: Floats

    def seconds(self, weight: float, ring: Floats) -> Floats:
        """Least communication (3) for each of the ring's seconds per unit of the slowest inverse rate."""
        return np.asarray((weight * self.longest + np.multiply.outer(ring, self.thresholds)).min(axis=-1))


def bound_of(hops: Floats, inverse: Floats, pp: int, staircase: Staircase) -> CoverBound | None:
    """
    Derive the staircase again; None where it does not prove what it claims.

    Parameters
    ----------
    hops, inverse
        Symmetric hop seconds and seconds per byte between nodes, (N, N).
    pp
        Stages, at least 2.
    staircase
        The witness.
    """
    n = len(hops)
    steps, thresholds = staircase.steps, [step.threshold for step in staircase.steps]
    rising = all(a < b for a, b in pairwise(thresholds))
    if not steps or thresholds[0] != 0.0 or not rising or not np.isfinite(thresholds).all():
        return None
    if not all(_is_set(proof.nodes, n) for proof in staircase.proofs):
        return None
    if not all(0 <= index < len(staircase.proofs) for step in steps for index in step.proofs):
        return None
    starts = np.array([flags_of(proof.nodes, n) for proof in staircase.proofs]).reshape(-1, n)
    seconds = np.array([_proven(hops, s, pp, proof) for s, proof in zip(starts, staircase.proofs, strict=True)])
    longest = []
    for step, end in zip(steps, [*thresholds[1:], np.inf], strict=True):
        chosen = list(step.proofs)
        cliques = clique_sets(inverse, end, n // pp)
        if any(not (clique <= starts[chosen]).all(axis=1).any() for clique in cliques):
            return None
        longest.append(seconds[chosen].min(initial=np.inf) if len(cliques) else np.inf)
    kept = np.isfinite(longest)
    if not kept.any() or np.isneginf(longest).any():
        return None
    return CoverBound(thresholds=np.array(thresholds)[kept], longest=np.array(longest)[kept])


def _is_set(nodes: tuple[int, ...], n: int) -> bool:
    return len(set(nodes)) == len(nodes) and all(0 <= v < n for v in nodes)


def flags_of(nodes: tuple[int, ...], n: int) -> Flags:
    """A set of nodes as flags, (n,)."""
    flags = np.zeros(n, dtype=bool)
    flags[list(nodes)] = True
    return flags


def _proven(hops: Floats, starts: Flags, pp: int, proof: PathProof) -> float:
    if isinstance(proof.by, Potentials):
        return forest_seconds(hops, pp, proof.by)
    return refuted_seconds(hops, starts, pp, proof.by)
