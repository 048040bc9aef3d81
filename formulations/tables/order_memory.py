r"""
Memory of devices with several chunks, and least figures of it as sums over their chunks.

The sums are those of ``taut.formulations.order_division`` (2). With :math:`n_c` micro-batches of chunk c in flight,
:math:`a_c` bytes of activations of each, and what a device holds for a moment (``taut.formulations.tables.memory``
(6)):

(1) where passes of two micro-batches run side by side, a device holds its largest chunk's activations once more:
    :math:`\sum_c n_c a_c + \max_c a_c` is the largest of the sums that count one more of a single chunk;
(2) of L parts, chunk c of C has one of the parts c to L - C + c. Workspace and buffers of a range are those of its
    largest part, and of a device those of its largest chunk; so no device has less than the least, over devices, of the
    largest, over their chunks, of the least figure of these parts;
(3) each parameter takes the bytes of ``taut.formulations.mechanisms.shards``, less than the rounding adds.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.data.memory import MemoryModel
from taut.data.units import SATURATED_BYTES
from taut.formulations.mechanisms.shards import cast_bytes, held_bytes, unsummed_bytes
from taut.formulations.schedules.plan_orders import device_of_chunk, in_flight_counts
from taut.formulations.space import Candidate
from taut.formulations.tables.memory import HELD, budgets, kept_term, overhead, weighed
from taut.formulations.tables.stage_tables import StageTables

MANY = 10**9
"""Parameters whose bytes are counted together, to know those of one."""


@dataclass(frozen=True)
class DeviceMemory:
    """
    Memory of the devices of an order-priced candidate (``taut.formulations.tables.memory`` (6)).

    Parameters
    ----------
    tables, model, candidate
        Figures of every range, the memory model, and the candidate.
    device
        Device of every chunk (C,).
    counts
        For every device the micro-batches in flight of its chunks that its order goes through, (n, chunks).
    budget
        Largest bytes of each device type that satisfy ``taut.formulations.tables.memory`` (5).
    ahead
        Whether a device holds its largest chunk's activations once more, for a pass that runs beside another one.
    """

    tables: StageTables
    model: MemoryModel
    candidate: Candidate
    device: Ints
    counts: tuple[Ints, ...]
    budget: Ints
    ahead: bool = False

    def bytes_of(self, recompute: Ints, first: Ints, end: Ints) -> list[int]:
        """Bytes of every device (pp), from index of recompute, first layer and end of every chunk, each (C,)."""
        return [self._bytes(d, *(each[self.device == d] for each in (recompute, first, end))) for d in range(self._pp)]

    @property
    def _pp(self) -> int:
        return self.candidate.pp

    def _bytes(self, device: int, recompute: Ints, first: Ints, end: Ints) -> int:
        tables, model = self.tables, self.model
        ranges = list(zip(recompute.tolist(), first.tolist(), end.tolist(), strict=True))
        whole, largest = tables.parameters[first, end].sum(), tables.largest[first, end].max()
        apart = tables.experts[first, end].sum()
        each = model.held_parameter_bytes
        held = held_bytes(whole, largest, each, self.candidate, apart)
        once = sum(int(weighed(model, term, figure)) for term, figure in zip(HELD, held, strict=True))
        workspace = weighed(model, "workspace", tables.workspace[recompute, first, end]).max()
        unsummed = weighed(model, "gradients", unsummed_bytes(largest, each, self.candidate))
        logits = max(weighed(model, "logits", tables.logits[first, end]).sum(), unsummed)
        buffers = weighed(model, "buffers", tables.buffers[first, end]).max()
        kept = [weighed(model, kept_term(RECOMPUTE[r]), tables.activation[r, i, j]) for r, i, j in ranges]
        counts = self.counts[device]
        at_once = (counts @ np.minimum(kept, SATURATED_BYTES // int(counts.sum(axis=1).max()))).max()
        passes = int(workspace) + int(logits) + int(buffers) + int(at_once) + self.ahead * int(max(kept))
        cast = int(cast_bytes(whole, self.candidate, apart)) if model.half_moments else 0
        return once + max(passes, cast) + overhead(model, self.candidate)


def device_memory(
    tables: StageTables, model: MemoryModel, candidate: Candidate, capacity_kib: list[int], *, ahead: bool = False
) -> DeviceMemory:
    """
    Memory of the devices of an order-priced candidate (``taut.formulations.tables.memory`` (6)).

    ``tables``, ``model``, ``candidate``, ``capacity_kib``: as of ``stage_memory``; ``ahead``: whether passes of two
    micro-batches run side by side. Returns ``DeviceMemory``: with the budgets of every device type, margin kept free.
    """
    device, counts = device_of_chunk(*candidate.order_key[:3]), in_flight_counts(*candidate.order_key)
    return DeviceMemory(tables, model, candidate, device, counts, budgets(model, capacity_kib), ahead)


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

    ``tables``, ``memory``: bytes of every range, and their coefficients; ``allowed``: indices of the recomputes that a
    chunk may choose; ``device``: device of every chunk (C,).
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
