"""
What a pipeline is before its passes are ordered: chunks on devices, their seconds and memory.

The words and symbols are those of ``taut.formulations.schedules.schedule``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError

_TOLERANCE = 1e-9
"""Memory may exceed a limit by this share of it: sums of the same units in another order."""


def sequential(stages: int) -> Ints:
    """Device map of one chunk a device, in order (stages,)."""
    return np.arange(stages)


def round_robin(stages: int, chunks_per_device: int) -> Ints:
    """Device map of interleaved schedules: chunk c on device c mod stages."""
    return np.arange(stages * chunks_per_device) % stages


def v_shape(stages: int) -> Ints:
    """Device map of two chunks a device, down the devices and back up: first and last chunk on device 0."""
    return np.concatenate((np.arange(stages), np.arange(stages)[::-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class ScheduleProblem:
    """
    A pipeline whose passes are to be ordered.

    ``device``: device of each chunk (C,), every device from 0 on at least once. All arrays are copied; ``forward``,
    ``input_gradient``, ``weight_gradient``: seconds of the passes of each chunk (C,); ``transfer``: seconds between
    each chunk and the next (C - 1,); taken as 0 where both are on one device; ``num_micro_batches``: micro-batches m of
    a step; ``activation``: memory units that a forward pass of each chunk takes (C,); ``kept_for_weight``: units still
    held between the gradients by input and by weights (C,), at most ``activation``; ``memory_limit``: units each device
    has (devices,); infinite means no limit. Raises ``FormulationError`` if shapes disagree, a number is negative or not
    finite, or a device has no chunk.
    """

    device: Ints
    forward: Floats
    input_gradient: Floats
    weight_gradient: Floats
    transfer: Floats
    num_micro_batches: int
    activation: Floats
    kept_for_weight: Floats
    memory_limit: Floats

    def __post_init__(self) -> None:
        device = np.array(self.device)
        if device.ndim != 1 or device.size == 0 or not np.issubdtype(device.dtype, np.integer):
            raise FormulationError(f"device: {self.device!r}, expected one whole number for each chunk")
        self._set("device", device.astype(np.int64))
        if self.num_micro_batches < 1:
            raise FormulationError(f"num_micro_batches: {self.num_micro_batches}, expected at least 1")
        chunks = len(device)
        for name in ("forward", "input_gradient", "weight_gradient", "activation", "kept_for_weight"):
            self._set(name, _numbers(getattr(self, name), chunks, name))
        transfer = _numbers(self.transfer, chunks - 1, "transfer")
        self._set("transfer", np.where(device[1:] == device[:-1], 0.0, transfer))
        limits = np.asarray(self.memory_limit, dtype=np.float64)
        self._set("memory_limit", _numbers(limits, len(limits) if limits.ndim == 1 else 0, "memory_limit", limit=True))
        if set(device.tolist()) != set(range(self.num_devices)):
            expected = f"every device from 0 to {self.num_devices - 1}, one memory limit each"
            raise FormulationError(f"device: chunks are on devices {sorted(set(device.tolist()))}, expected {expected}")
        if np.any(self.kept_for_weight > self.activation):
            c = int(np.argmax(self.kept_for_weight > self.activation))
            kept, taken = self.kept_for_weight[c], self.activation[c]
            raise FormulationError(f"kept_for_weight: {kept:g} of chunk {c}, expected at most its activation {taken:g}")

    def _set(self, name: str, values: npt.NDArray[np.generic]) -> None:
        values.setflags(write=False)
        object.__setattr__(self, name, values)

    @property
    def num_chunks(self) -> int:
        """Number C of chunks."""
        return len(self.device)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.memory_limit)

    @cached_property
    def seconds(self) -> Floats:
        """Duration by kind of pass and chunk (4, C)."""
        whole = self.input_gradient + self.weight_gradient
        return np.stack((self.forward, self.input_gradient, self.weight_gradient, whole))

    @cached_property
    def busy(self) -> Floats:
        """Seconds of all passes of every device (devices,)."""
        work = self.num_micro_batches * (self.forward + self.input_gradient + self.weight_gradient)
        return np.bincount(self.device, weights=work, minlength=self.num_devices).astype(np.float64)

    @cached_property
    def allowed(self) -> Floats:
        """Memory limits with the rounding that (7) is checked with (devices,)."""
        return self.memory_limit * (1.0 + _TOLERANCE)


def unit_pipeline(device: Ints, num_micro_batches: int) -> ScheduleProblem:
    """
    A pipeline whose passes and messages take a second each, for orders that depend on no times.

    ``device``: device of each chunk (C,); ``num_micro_batches``: micro-batches of a step. Returns without a memory
    limit; a pass takes one unit until the gradient by the weights.
    """
    one = np.ones(len(device))
    return ScheduleProblem(
        device=device,
        forward=one,
        input_gradient=one,
        weight_gradient=one,
        transfer=one[1:],
        num_micro_batches=num_micro_batches,
        activation=one,
        kept_for_weight=one,
        memory_limit=np.full(int(device.max()) + 1, np.inf),
    )


def _numbers(values: npt.ArrayLike, size: int, name: str, *, limit: bool = False) -> Floats:
    """Copy of an array of given size, finite (unless a limit) and not negative."""
    array = np.array(values, dtype=np.float64)
    if array.shape != (size,):
        raise FormulationError(f"{name}: shape {array.shape}, expected ({size},)")
    good = (array >= 0) if limit else np.isfinite(array) & (array >= 0)
    if not good.all():
        place = int(np.argmin(good))
        raise FormulationError(f"{name}: entry {place} is {array[place]:g}, expected a number not below 0")
    return array


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedProblem:
    """
    A pipeline, how its chunks lie on the devices, and what 1F1B would hold.

    ``placement``: ``sequential``, ``v``, ``round-robin``, or the name a file gives; ``problem``: the pipeline;
    ``reference_memory``: memory of 1F1B on its fullest device, in the problem's units; ``unit``: unit of the times,
    such as ``s``; empty where they are given in any unit.
    """

    placement: str
    problem: ScheduleProblem
    reference_memory: float
    unit: str = ""
