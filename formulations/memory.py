r"""
Memory of a stage, and whether it fits.

For stage x on range [i, j) under recompute r, with :math:`w, g, o` bytes per parameter for weight, gradient and
optimizer state, and :math:`q_x` micro-batches in flight,

(1) bytes = ceil(parameters w / d_3) + ceil(parameters g / d_2) + ceil(parameters o / d_1) + q_x activation + workspace
    + overhead, with d_k = dp under ZeRO stage k or above, else 1 (Rajbhandari et al., arXiv 1910.02054);
(2) q_x = min(pp - x, m) for 1F1B and m for GPipe;
(3) feasible on a device type: ceil(bytes / 1024) + margin <= capacity, in KiB.

Everything is integer, so a plan is feasible for every reader or for none.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut.data.memory import MemoryModel, ParameterBytes
from taut.data.units import KIB
from taut.formulations.space import Candidate
from taut.formulations.stages import StageTables

Ints = NDArray[np.int64]
MOST_BYTES = 2**62


@dataclass(frozen=True)
class StageMemory:
    """
    Bytes of every range: fixed[r, i, j] + in_flight[x] * activation[r, i, j], (1).

    ``budget[k]`` is the largest number of bytes that satisfies (3) on device type k.
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
    per_parameter = model.parameter_bytes
    held_bytes = parameter_memory(tables.parameters, per_parameter, candidate.zero, candidate.dp)
    fixed = held_bytes[None] + tables.workspace + model.overhead_bytes
    free = [kib - (model.margin_kib(kib) if margin else 0) for kib in capacity_kib]
    budget = np.array([kib * KIB for kib in free], dtype=np.int64)
    held = in_flight(candidate)
    # Products with the micro-batches in flight must stay within 64 bits; what is cut off exceeds any device.
    activation = np.minimum(tables.activation, MOST_BYTES // int(held.max()))
    return StageMemory(fixed, activation, held, budget)


def parameter_memory(parameters: Ints, per_parameter: ParameterBytes, zero: int, dp: int) -> Ints:
    """Bytes of weights, gradients and optimizer states of so many parameters, (1)."""
    first, second, third = (dp if zero >= stage else 1 for stage in (1, 2, 3))
    weights, gradients = parameters * per_parameter.weight, parameters * per_parameter.gradient
    states = parameters * per_parameter.state
    return np.asarray(-(-weights // third) - (-gradients // second) - (-states // first))


def in_flight(candidate: Candidate) -> Ints:
    """Micro-batches whose activations a stage holds at once, by stage, (2)."""
    m = candidate.num_micro_batches
    if candidate.schedule == "gpipe":
        return np.full(candidate.pp, m, dtype=np.int64)
    return np.minimum(np.arange(candidate.pp, 0, -1), m).astype(np.int64)
