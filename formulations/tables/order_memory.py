r"""
Memory of devices with several chunks at least, as sums over their chunks (``taut.formulations.order_division`` (2)).

With :math:`n_c` micro-batches of chunk c in flight, :math:`a_c` bytes of activations of each, and what a device holds
for a moment (``taut.formulations.tables.memory`` (6)):

(1) where passes of two micro-batches run side by side, a device holds its largest chunk's activations once more:
    :math:`\sum_c n_c a_c + \max_c a_c` is the largest of the sums that count one more of a single chunk;
(2) of L parts, chunk c of C has one of the parts c to L - C + c. Workspace and buffers of a range are those of its
    largest part, and of a device those of its largest chunk; so no device has less than the least, over devices, of the
    largest, over their chunks, of the least figure of these parts;
(3) each parameter takes the bytes of ``taut.formulations.tables.held_bytes``, less than the rounding adds.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.data.memory import MemoryModel
from taut.formulations.schedules.plan_orders import in_flight_counts
from taut.formulations.space import Candidate
from taut.formulations.tables.held_bytes import held_bytes
from taut.formulations.tables.memory import HELD
from taut.formulations.tables.stage_tables import StageTables

MANY = 10**9
"""Parameters whose bytes are counted together, to know those of one."""


def held_counts(candidate: Candidate, *, ahead: bool) -> tuple[Ints, ...]:
    """For every device the micro-batches of each chunk that it holds, passes side by side or not, (n, chunks), (1)."""
    counts = in_flight_counts(*candidate.order_key)
    return tuple(_one_more(each) for each in counts) if ahead else counts


def _one_more(counts: Ints) -> Ints:
    """Counts (n, chunks) with one more of any chunk, each once."""
    more = np.eye(counts.shape[1], dtype=np.int64)
    return np.unique((counts[:, None] + more).reshape(-1, counts.shape[1]), axis=0)


def least_passing(tables: StageTables, memory: MemoryModel, allowed: list[int], device: Ints) -> float:
    """
    Bytes of workspace and buffers that every device holds for a moment at least, (2).

    Parameters
    ----------
    tables, memory
        Bytes of every range, and their coefficients.
    allowed
        Indices of the recomputes that a chunk may choose.
    device
        Device of every chunk (C,).
    """
    workspace, buffers = (
        _least_of_devices(np.diagonal(figure, 1), device)
        for figure in (tables.workspace[allowed].min(axis=0), tables.buffers)
    )
    return memory.coefficient("workspace") * workspace + memory.coefficient("buffers") * buffers


def _least_of_devices(parts: Ints, device: Ints) -> float:
    """The least of the devices' largest figures, from those of single parts (L,), (2)."""
    more, most = len(parts) - len(device), np.zeros(device.max() + 1)
    for chunk, host in enumerate(device.tolist()):
        most[host] = max(most[host], parts[chunk : chunk + more + 1].min())
    return float(most.min())


def bytes_per_parameter(memory: MemoryModel, candidate: Candidate, experts: int) -> float:
    """Least bytes of weight, gradient and state for each of ``MANY`` parameters, so many of them of experts, (3)."""
    many = held_bytes(np.array(MANY), np.array(0), memory.held_parameter_bytes, candidate, experts)
    held = sum(memory.coefficient(term) * float(figure) for term, figure in zip(HELD, many, strict=True)) / MANY
    # Bytes were rounded up to whole ones; the factor takes back more than that.
    return held * (1 - 1e-8)
