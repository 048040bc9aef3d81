r"""
A division of the layers into chunks, and the one of least weighted sum, by dynamic programming.

The problem itself, its data and its objective, a makespan, are those of ``taut.formulations.order_division``. Here the
objective is a sum over chunks, as bounds on the makespan ask for it (``taut.solver.order_priced.lagrangian``): with
weights
:math:`\alpha_c` (3,) on seconds, :math:`\tau_c` on cuts, :math:`\pi_c` on parameters, :math:`\kappa_c` on activations
and :math:`\lambda_c` on logits, and the range of a chunk c being :math:`[i, j)` with recompute r,

(1) :math:`D[c, i] = \min_{j, r} \alpha_c \cdot \text{passes}_{r i j} + \tau_c \text{edge}_j + \pi_c P_{ij} +
    \kappa_c a_{rij} + \lambda_c \text{logits}_{ij} + D[c + 1, j]`;
(2) a chunk that cannot be on its device alone is left out: held P + logits + n a + always > budget, beyond rounding;
(3) and so is one that takes more than ``longest`` seconds for a micro-batch.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division

ROUNDING = 1e-10
"""Relative allowance for the rounding of sums, over all passes or of bytes."""


@dataclass(frozen=True)
class Weights:
    """Weights of (1): ``passes`` (C, 3), the others (C,)."""

    passes: Floats
    edge: Floats
    parameters: Floats
    activation: Floats
    logits: Floats


def room(given: ChunkProblem) -> float:
    """Bytes beyond which no device can hold what it must, with an allowance for rounding, (2)."""
    return given.budget - given.always + ROUNDING * max(given.budget, 1.0)


def least_division(given: ChunkProblem, weights: Weights, longest: float = np.inf) -> tuple[float, Division | None]:
    """Least weighted sum and a division that attains it; infinite and None where none satisfies (2) and (3)."""
    most = np.zeros(given.num_chunks)
    for d, counts in enumerate(given.counts):
        most[given.hosted(d)] = counts.max(axis=0)
    value, ends, recompute = _least(
        given.passes,
        given.edge,
        given.parameters,
        given.activation,
        given.logits,
        weights.passes,
        weights.edge,
        weights.parameters,
        weights.activation,
        weights.logits,
        most,
        given.held,
        room(given),
        longest,
    )
    return (float(value), Division.of_ends(ends, recompute)) if np.isfinite(value) else (np.inf, None)


@jit
def _least(
    passes: Floats,
    edge: Floats,
    parameters: Floats,
    activation: Floats,
    logits: Floats,
    of_pass: Floats,
    of_edge: Floats,
    of_parameter: Floats,
    of_activation: Floats,
    of_logit: Floats,
    most: Floats,
    held: float,
    room: float,
    longest: float,
) -> tuple[float, Ints, Ints]:
    chunks, layers = len(most), len(edge) - 1
    value = np.full((chunks + 1, layers + 1), np.inf)
    step = np.zeros((chunks, layers + 1, 2), np.int64)
    value[chunks, layers] = 0.0
    for c in range(chunks - 1, -1, -1):
        for i in range(c, 1 if c == 0 else layers - (chunks - 1 - c)):
            for j in range(layers if c == chunks - 1 else i + 1, layers - (chunks - 1 - c) + 1):
                if not np.isfinite(value[c + 1, j]):
                    continue
                once = of_parameter[c] * parameters[i, j] + of_logit[c] * logits[i, j] + value[c + 1, j]
                if c < chunks - 1:
                    once += of_edge[c] * edge[j]
                for r in range(passes.shape[1]):
                    if not passes[0, r, i, j] + passes[1, r, i, j] + passes[2, r, i, j] <= longest:
                        continue
                    if held * parameters[i, j] + logits[i, j] + most[c] * activation[r, i, j] > room:
                        continue
                    total = once + of_activation[c] * activation[r, i, j]
                    for k in range(3):
                        total += of_pass[c, k] * passes[k, r, i, j]
                    if total < value[c, i]:
                        value[c, i] = total
                        step[c, i, 0], step[c, i, 1] = j, r
    ends, recompute = np.zeros(chunks, np.int64), np.zeros(chunks, np.int64)
    i = 0
    for c in range(chunks if np.isfinite(value[0, 0]) else 0):
        ends[c], recompute[c] = step[c, i, 0], step[c, i, 1]
        i = ends[c]
    return value[0, 0], ends, recompute
