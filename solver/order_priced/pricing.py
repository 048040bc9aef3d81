r"""
Pricing problem over divisions: the division of least reduced cost, by dynamic programming over chunks.

Sets: chunks :math:`c = 0, \dots, C - 1`, layers :math:`0, \dots, L - 1`, recompute r.
Data: the tables of ``taut.formulations.order_division``, in seconds, loads and bytes of a range; costs of a
chunk's figures, in seconds for a unit of each: :math:`\alpha_c` (3,) for a second of F, I, W, :math:`\tau_c` for a
second of its cut, :math:`\pi_c` for a parameter, :math:`\kappa_c` for a byte of activations, :math:`\lambda_c` for a
byte beside.
Variables: ends :math:`0 = e_{-1} < e_0 < \dots < e_{C-1} = L` and recompute :math:`r_c`.

(1) Minimise the sum over chunks of :math:`\alpha_c \cdot \text{passes}_{r i j} + \tau_c \text{edge}_j + \pi_c P_{ij} +
    \kappa_c a_{rij} + \lambda_c \text{beside}_{ij}`, the range of chunk c being :math:`[i, j)` with recompute r, where
(2) every chunk alone fits its device: :math:`\text{beside} + n a + \text{always} \le \text{budget}`,
    beyond rounding, n being the most micro-batches of it in flight;
(3) every chunk takes at most ``longest`` seconds for the three passes of a micro-batch.

With D[c, i] the least cost of chunks c..C-1 on layers i..L-1, :math:`D[c, i] = \min_{j, r} (\text{cost of } c) +
D[c + 1, j]` is found backwards over c in :math:`O(C L^2 R)` steps. This is a shortest path through the states (c, i),
the pricing problem of the restricted master problem (``taut.solver.order_priced.master``) in the sense of Dantzig and
Wolfe (Decomposition principle for linear programs, Operations Research 8, 1960).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.order_division import ROUNDING, ChunkProblem
from taut.formulations.strategy import Division


@dataclass(frozen=True)
class ChunkCosts:
    """Costs of (1) for a second of ``passes`` F, I, W (C, 3) and ``edge`` (C,), ``loads`` (C,), a byte (C,)."""

    passes: Floats
    edge: Floats
    loads: Floats
    activation: Floats
    beside: Floats


class _Tables(NamedTuple):
    """Figures of every range, as ``ChunkProblem`` names them."""

    passes: Floats
    edge: Floats
    loads: Floats
    activation: Floats
    beside: Floats


class _Limits(NamedTuple):
    """Most micro-batches in flight by chunk (C,), room of (2), seconds of (3)."""

    most: Floats
    room: float
    longest: float


def room(given: ChunkProblem) -> float:
    """Bytes beyond which no device can hold what it must, with an allowance for rounding, (2)."""
    return given.budget - given.always + ROUNDING * max(given.budget, 1.0)


def least_division(given: ChunkProblem, costs: ChunkCosts, longest: float = np.inf) -> tuple[float, Division | None]:
    """Least cost (1) and a division that attains it, chunks within ``longest`` seconds (3); infinite and None else."""
    most = np.zeros(given.num_chunks)
    for d, counts in enumerate(given.counts):
        most[given.hosted(d)] = counts.max(axis=0)
    tables = _Tables(given.passes, given.edge, given.loads, given.activation, given.beside)
    weights = _Tables(costs.passes, costs.edge, costs.loads, costs.activation, costs.beside)
    value, ends, recompute = _least(tables, weights, _Limits(most, room(given), float(longest)))
    return (float(value), Division.of_ends(ends, recompute)) if np.isfinite(value) else (np.inf, None)


@jit
def _least(tables: _Tables, costs: _Tables, limits: _Limits) -> tuple[float, Ints, Ints]:
    """Least cost with ends and recompute (C,) of every chunk; infinite where no division is allowed."""
    # Arrays are bound once: each look-up through the tuple would count a reference.
    passes, edge, loads, activation, beside = tables
    of_pass, of_edge, of_load, of_activation, of_beside = costs
    most, room, longest = limits
    chunks, layers = len(most), len(edge) - 1
    value = np.full((chunks + 1, layers + 1), np.inf)
    step = np.zeros((chunks, layers + 1, 2), np.int64)
    value[chunks, layers] = 0.0
    for c in range(chunks - 1, -1, -1):
        for i in range(c, 1 if c == 0 else layers - (chunks - 1 - c)):
            for j in range(layers if c == chunks - 1 else i + 1, layers - (chunks - 1 - c) + 1):
                if not np.isfinite(value[c + 1, j]):
                    continue
                once = of_load[c] * loads[i, j] + of_beside[c] * beside[i, j] + value[c + 1, j]
                if c < chunks - 1:
                    once += of_edge[c] * edge[j]
                for r in range(passes.shape[1]):
                    if not passes[0, r, i, j] + passes[1, r, i, j] + passes[2, r, i, j] <= longest:
                        continue
                    if beside[i, j] + most[c] * activation[r, i, j] > room:
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
