r"""
From the figures of a pipeline's stages to the problem of each placement.

The model is cut into P stages, one share for each of P devices, in the order of its layers. Figures are given as one
number for every stage, as P numbers, one for each stage, or as kP numbers, one for each of the kP equal-ranked pieces
that the stages are cut into. A placement puts n chunks on a device:

==============  ===  =========================================================================
placement       n    device of chunk c = 0, ..., nP - 1
==============  ===  =========================================================================
sequential      1    c
v               2    c down to the last device, then 2P - 1 - c back up
round-robin     n    c mod P
==============  ===  =========================================================================

A chunk is the n-th part of its stage: chunk c takes 1/n of the figure of stage floor(c / n); of finer pieces it takes
the sum (1). Transfers are latencies between neighbours: one number, P - 1 of them for the links between neighbouring
devices, or nP - 1 for those between consecutive chunks (2).

Memory limits are relative to 1F1B with one chunk a device, which holds on device d at most min(P - d, m) activations
of stage d; its fullest device is 1 (3).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.schedule import MOST_PASSES
from taut.errors import FieldError
from taut.formulations.schedules.schedule import PlacedProblem, ScheduleProblem, round_robin, sequential, v_shape

CHUNKS = {"sequential": 1, "v": 2, "round-robin": 2}
"""Chunks of a device by placement, unless another number is asked for."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """
    A pipeline of P ``stages`` as it is given, before its chunks are placed.

    Seconds ``forward``, ``backward`` (by the input), ``weight`` and ``comm`` to a neighbour, and memory ``activation``
    of a forward pass in any unit, are those of stages or pieces, (1) and (2); ``kept_for_weight`` is the share held
    between the gradients by input and by weights; ``memory_limit`` of all devices or of each is relative to 1F1B (3),
    infinite for none. Raises ``DataError`` for the first figure that is out of range or does not fit the number of
    stages.
    """

    stages: int
    micro_batches: int
    forward: Sequence[float]
    backward: Sequence[float]
    weight: Sequence[float]
    comm: Sequence[float] = (0.0,)
    activation: Sequence[float] = (1.0,)
    kept_for_weight: float = 1.0
    memory_limit: Sequence[float] = (math.inf,)

    def __post_init__(self) -> None:
        for name, count in (("stages", self.stages), ("micro_batches", self.micro_batches)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise FieldError(name, repr(count), "expected a whole number, at least 1")
        if 6 * self.stages * self.micro_batches > MOST_PASSES:
            many = f"{6 * self.stages * self.micro_batches} passes with {self.micro_batches} micro-batches"
            raise FieldError("stages", str(self.stages), f"{many}, expected at most {MOST_PASSES} passes")
        for name in ("forward", "backward", "weight", "comm", "activation", "memory_limit"):
            object.__setattr__(self, name, _figures(name, getattr(self, name)))
        for name in ("forward", "backward", "weight", "comm", "activation"):
            for value in getattr(self, name):
                if not (math.isfinite(value) and value >= 0):
                    raise FieldError(name, f"{value:g}", "expected a finite number not below 0")
        if not 0 <= self.kept_for_weight <= 1:
            raise FieldError("kept_for_weight", f"{self.kept_for_weight:g}", "expected a share from 0 to 1")
        if not any(self.activation):
            raise FieldError("activation", "0", "expected a number above 0, of one stage at least")
        self._check_lengths()

    def _check_lengths(self) -> None:
        for name in ("forward", "backward", "weight", "activation"):
            count = len(getattr(self, name))
            if count != 1 and (count == 0 or count % self.stages):
                expected = f"1, {self.stages} (one for each stage) or {2 * self.stages} (one for each half of a stage)"
                raise FieldError(name, None, f"{count} numbers, expected {expected}")
        if len(self.memory_limit) not in (1, self.stages):
            count = len(self.memory_limit)
            raise FieldError("memory_limit", None, f"{count} numbers, expected 1 or {self.stages}")
        for limit in self.memory_limit:
            if not limit > 0:
                raise FieldError("memory_limit", f"{limit:g}", "expected a number above 0, relative to 1F1B")

    def place(self, placement: str, chunks: int) -> PlacedProblem:
        """Put chunks on devices by ``sequential``, ``v`` or ``round-robin``; ``DataError`` if figures do not fit."""
        return self.place_on(device_map(placement, self.stages, chunks), placement)

    def place_on(self, device: Ints, placement: str) -> PlacedProblem:
        """Put the chunks on the devices of a map (n P,), called ``placement``; ``DataError`` as of ``place``."""
        chunks = len(device) // self.stages
        forward, backward, weight, activation = (
            self._of_chunks(name, chunks) for name in ("forward", "backward", "weight", "activation")
        )
        reference = self.reference_memory
        limits = np.array(self.memory_limit, dtype=np.float64) * reference
        problem = ScheduleProblem(
            device=device,
            forward=forward,
            input_gradient=backward,
            weight_gradient=weight,
            transfer=self._transfers(device, chunks),
            num_micro_batches=self.micro_batches,
            activation=activation,
            kept_for_weight=self.kept_for_weight * activation,
            memory_limit=np.broadcast_to(limits, (self.stages,)).copy(),
        )
        return PlacedProblem(placement=placement, problem=problem, reference_memory=reference)

    @property
    def reference_memory(self) -> float:
        """What 1F1B holds on its fullest device (3)."""
        held = np.minimum(self.stages - np.arange(self.stages), self.micro_batches)
        return float((held * self._of_chunks("activation", 1)).max())

    def _of_chunks(self, name: str, chunks: int) -> Floats:
        """Figure of every chunk (1)."""
        given: Floats = np.array(getattr(self, name), dtype=np.float64)
        pieces = 1 if len(given) == 1 else len(given) // self.stages
        if len(given) == 1:
            given = np.repeat(given, self.stages)
        if pieces % chunks == 0:
            return np.add.reduceat(given, np.arange(0, len(given), pieces // chunks))
        if chunks % pieces == 0:
            return np.repeat(given / (chunks // pieces), chunks // pieces)
        expected = f"expected {self.stages * chunks} for {chunks} chunks a device"
        raise FieldError(name, None, f"{len(given)} numbers, {expected}")

    def _transfers(self, device: Ints, chunks: int) -> Floats:
        """Seconds between consecutive chunks (2)."""
        given, count = np.array(self.comm, dtype=np.float64), len(device) - 1
        if len(given) == 1:
            return np.repeat(given, count)
        if len(given) == count:
            return given
        link, hops = np.minimum(device[1:], device[:-1]), np.abs(np.diff(device))
        if len(given) == self.stages - 1 and (hops <= 1).all():
            return np.where(hops == 0, 0.0, given[np.minimum(link, self.stages - 2)])
        if chunks == 1 and (len(given) + 1) % self.stages == 0:
            pieces = (len(given) + 1) // self.stages
            return given[pieces - 1 :: pieces]
        raise FieldError("comm", None, f"{len(given)} numbers, expected 1 or {count}, one between each two chunks")


def _figures(name: str, given: object) -> tuple[float, ...]:
    """The figures as numbers; one number stands for itself."""
    try:
        values = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
        return tuple(map(float, values))
    except (TypeError, ValueError):
        raise FieldError(name, repr(given)[:60], "expected a number, or a list of numbers") from None


def device_map(placement: str, stages: int, chunks: int) -> Ints:
    """Device of every chunk (stages * chunks,); ``DataError`` if there is no such placement with so many a device."""
    if placement == "sequential" and chunks == 1:
        return sequential(stages)
    if placement == "v" and chunks == 2:
        return v_shape(stages)
    if placement == "round-robin" and chunks > 1:
        return round_robin(stages, chunks)
    expected = "sequential with 1 chunk a device, v with 2, round-robin with 2 or more"
    if placement not in CHUNKS:
        raise FieldError("placement", placement, f"expected {expected}")
    raise FieldError("chunks", str(chunks), f"on the placement {placement}, expected {expected}")
