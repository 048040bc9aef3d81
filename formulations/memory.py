r"""
Memory of a stage, and whether it fits.

For stage x on range [i, j) under recompute r, with P parameters on a tensor rank, :math:`w, g, o` bytes of weight,
gradient and optimizer state for each, :math:`d_k = dp` under ZeRO stage k or above and 1 otherwise, and :math:`q_x`
micro-batches in flight, the terms are

(1) weights: :math:`\lceil P w / d_3 \rceil`, gradients: :math:`\lceil P g / d_2 \rceil`, states:
    :math:`\lceil P o / d_1 \rceil` (Rajbhandari et al., arXiv 1910.02054). Under stage 3 the weights are gathered layer
    by layer, the next while one is in use: twice the largest layer's; a pipeline, which would gather anew for every
    micro-batch, keeps the stage's weights and gradients whole as well (PyTorch's FSDP within a pipeline);
(2) activations, under full recompute checkpoints: :math:`q_x` times what stays of a micro-batch, with
    :math:`q_x = \min(pp - x, m)` for 1F1B and m for GPipe;
(3) workspace, logits, buffers: what recomputing, the loss and messages hold for a moment
    (``taut.formulations.stages``).

(4) bytes = sum over terms of coefficient times term + overhead;
(5) feasible on a device type: ceil(bytes / 1024) + margin <= capacity, in KiB.

Coefficients are 1 in the analytic model and fitted otherwise. Every term is rounded up to a whole byte, so a plan is
feasible for every reader or for none.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut.data.costs import RECOMPUTE
from taut.data.memory import MemoryModel, ParameterBytes
from taut.data.units import KIB
from taut.formulations.space import Candidate
from taut.formulations.stages import StageTables

Ints = NDArray[np.int64]
MOST_BYTES = 2**62
HELD, PASSING = ("weights", "gradients", "states"), ("workspace", "logits", "buffers")


@dataclass(frozen=True)
class StageMemory:
    """
    Bytes of every range: fixed[r, i, j] + in_flight[x] * activation[r, i, j], (4).

    ``budget[k]`` is the largest number of bytes that satisfies (5) on device type k.
    """

    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints

    def bytes_of(self, stage: int, first: int, end: int, recompute: int) -> int:
        """Bytes of stage number ``stage`` on layers [first, end)."""
        per_micro_batch = self.activation[recompute, first, end]
        return int(self.fixed[recompute, first, end] + self.in_flight[stage] * per_micro_batch)


def stage_memory(
    tables: StageTables,
    model: MemoryModel,
    candidate: Candidate,
    capacity_kib: list[int],
    *,
    margin: bool = True,
) -> StageMemory:
    """
    Memory of every range under a candidate.

    Parameters
    ----------
    tables
        Parameters, activations and workspace of every range.
    model
        Bytes per parameter, overhead, margin.
    candidate
        Degrees, schedule and ZeRO stage.
    capacity_kib
        Capacity by device type.
    margin
        Whether the margin is kept free.
    """
    held = held_bytes(tables.parameters, tables.largest, model.parameter_bytes, candidate)
    whole = [weighed(model, term, figure) for term, figure in zip(HELD, held, strict=True)]
    passing = [weighed(model, term, getattr(tables, term)) for term in PASSING]
    workspace, logits, buffers = passing
    fixed = workspace + (np.sum(whole, axis=0) + logits + buffers)[None] + model.overhead_bytes
    free = [kib - (model.margin_kib(kib) if margin else 0) for kib in capacity_kib]
    budget = np.array([kib * KIB for kib in free], dtype=np.int64)
    flight = in_flight(candidate)
    kept = np.stack([weighed(model, kept_term(r), tables.activation[k]) for k, r in enumerate(RECOMPUTE)])
    # Products with the micro-batches in flight must stay within 64 bits; what is cut off exceeds any device.
    activation = np.minimum(kept, MOST_BYTES // int(flight.max()))
    return StageMemory(fixed, activation, flight, budget)


def kept_term(recompute: str) -> str:
    """The term that what stays for the backward pass counts to, (2)."""
    return "checkpoints" if recompute == "full" else "activations"


def weighed(model: MemoryModel, term: str, figure: Ints) -> Ints:
    """Coefficient times term, rounded up to whole bytes."""
    coefficient = model.coefficient(term)
    return figure if coefficient == 1.0 else np.ceil(coefficient * figure).astype(np.int64)


def held_bytes(
    parameters: Ints, largest: Ints, per_parameter: ParameterBytes, candidate: Candidate
) -> tuple[Ints, Ints, Ints]:
    """Bytes of weights, gradients and optimizer states of a range with so many parameters, (1)."""
    zero, dp = candidate.zero, candidate.dp
    first, second, third = (dp if zero >= stage else 1 for stage in (1, 2, 3))
    weight, gradient, state = (parameters * count for count in per_parameter)
    weights, gradients = -(-weight // third), -(-gradient // second)
    if zero == 3 and dp > 1:
        whole = candidate.pp > 1
        weights = weights + (weight if whole else 2 * largest * per_parameter.weight)
        gradients = gradients + (gradient if whole else 0)
    return np.asarray(weights), np.asarray(gradients), np.asarray(-(-state // first))


def in_flight(candidate: Candidate) -> Ints:
    """Micro-batches whose activations a stage holds at once, by stage, (2)."""
    m = candidate.num_micro_batches
    if candidate.schedule == "gpipe":
        return np.full(candidate.pp, m, dtype=np.int64)
    return np.minimum(np.arange(candidate.pp, 0, -1), m).astype(np.int64)
