r"""
Memory of a stage, and whether it fits.

For stage x on range [i, j) under recompute r, with P parameters on a tensor rank, :math:`w, g, o` bytes of weight,
gradient and optimizer state for each, :math:`d_k` the devices that share one copy
(``taut.formulations.space`` (7), of experts those that hold the same) under ZeRO stage k or above and 1 otherwise, and
:math:`q_x` micro-batches in flight, the terms are

(1) weights: :math:`\lceil P w / d_3 \rceil`, gradients: :math:`\lceil P g / d_2 \rceil`, states:
    :math:`\lceil P o / d_1 \rceil` (Rajbhandari et al., arXiv 1910.02054). Under stage 3 the weights are gathered layer
    by layer, the next while one is in use: twice the largest layer's; a pipeline, which would gather anew for every
    micro-batch, keeps the stage's weights and gradients whole as well (PyTorch's FSDP within a pipeline);
(2) activations, under full recompute checkpoints: :math:`q_x` times what stays of a micro-batch, with
    :math:`q_x = \min(pp - x, m)` for 1F1B and m for GPipe; an order-priced schedule holds what its
    order makes it hold (``taut.formulations.schedules.plan_orders`` (1));
(3) workspace, logits, buffers: what recomputing, the loss and messages hold for a moment
    (``taut.formulations.tables.stage_tables``). Instead of the logits, if they are more, under stages 2 and 3 a layer's
    gradients that the replicas have not summed yet, weighed as gradients: they come when the loss's copies are gone
    (``taut.formulations.mechanisms.shards`` (3)).

(4) bytes = sum over terms of coefficient times term + overhead, that of groups included: of stages, and of replicas
    (those of contexts too), where there are several;
(5) feasible on a device type: ceil(bytes / 1024) + margin <= capacity, in KiB.

Coefficients are 1 in the analytic model and fitted otherwise. Every term is rounded up to a whole byte, so a plan is
feasible for every reader or for none.

In the optimizer's step, when activations are gone, a device needs no less than (1), the overhead, and what moments in
half precision take for a moment (``taut.formulations.mechanisms.shards`` (2)). (7)

Where one stage runs the layers of a micro-batch's forward pass beside those of another one's backward pass, each layer
of the latter is free when the next one of the former begins, so that the device holds no more than a micro-batch and
its largest layer once more (Megatron-LM's ``combined_1f1b.py`` and ``model_chunk_schedule_plan.py``; layers whose
activations never shrink towards the last, or repeat). (8)

A device with several chunks holds the weights, gradients, states and logits of all of them, the activations that its
order keeps at once, and, as it runs one pass at a time, the largest workspace and buffers of any
(``taut.formulations.tables.order_memory``). (6)
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.data.memory import MemoryModel
from taut.data.units import KIB, SATURATED_BYTES
from taut.formulations.mechanisms.shards import cast_bytes, held_bytes, unsummed_bytes
from taut.formulations.schedules.plan_orders import device_of_chunk, in_flight_counts
from taut.formulations.space import Candidate
from taut.formulations.tables.stage_tables import StageTables

HELD, PASSING = ("weights", "gradients", "states"), ("workspace", "logits", "buffers")


@dataclass(frozen=True)
class StageMemory:
    """
    Bytes of every range: fixed[r, i, j] + in_flight[x] * activation[r, i, j], (4).

    Where devices have several chunks, x is a chunk, and its device needs no less.

    Parameters
    ----------
    fixed
        Bytes of a stage whatever is in flight (recompute, L+1, L+1).
    activation
        Bytes for a micro-batch in flight (recompute, L+1, L+1).
    in_flight
        Most micro-batches in flight of every stage (X,).
    budget
        Largest number of bytes that satisfies (5), by device type.
    update
        Bytes of a stage in the optimizer's step, (7), (L+1, L+1), or None if they are never more.
        Where they exceed every device, ``fixed`` is raised to them. ``during_passes`` is ``fixed`` before it is raised.
    """

    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints
    update: Ints | None = None
    during_passes: Ints | None = None

    @property
    def held(self) -> Ints:
        """Bytes of a stage during the passes whatever is in flight, (recompute, L+1, L+1)."""
        return self.fixed if self.during_passes is None else self.during_passes

    def need(self, stage: int) -> Ints:
        """Bytes of stage number ``stage`` on every range, (recompute, L+1, L+1)."""
        passes = self.held + self.in_flight[stage] * self.activation
        return np.asarray(passes if self.update is None else np.maximum(passes, self.update))

    def bytes_of(self, stage: int, first: int, end: int, recompute: int) -> int:
        """Bytes of stage number ``stage`` on layers [first, end)."""
        per_micro_batch = self.activation[recompute, first, end]
        passes = int(self.held[recompute, first, end] + self.in_flight[stage] * per_micro_batch)
        return passes if self.update is None else max(passes, int(self.update[first, end]))


def stage_memory(
    tables: StageTables,
    model: MemoryModel,
    candidate: Candidate,
    capacity_kib: list[int],
    *,
    margin: bool = True,
    ahead: bool = False,
) -> StageMemory:
    """
    Memory of every range under a candidate.

    ``tables``: parameters, activations and workspace of every range; ``model``: bytes per parameter, overhead, margin;
    ``candidate``: degrees, schedule and ZeRO stage; ``capacity_kib``: capacity by device type; ``margin``: whether the
    margin is kept free; ``ahead``: whether the single stage runs passes of two micro-batches side by side, (8). Returns
    bytes of every recompute and range, (recompute, L+1, L+1), micro-batches in flight (pp,), budgets (types,).
    """
    each = model.held_parameter_bytes
    held = held_bytes(tables.parameters, tables.largest, each, candidate, tables.experts)
    whole = [weighed(model, term, figure) for term, figure in zip(HELD, held, strict=True)]
    passing = [weighed(model, term, getattr(tables, term)) for term in PASSING]
    workspace, logits, buffers = passing
    logits = np.maximum(logits, weighed(model, "gradients", unsummed_bytes(tables.largest, each, candidate)))
    fixed = workspace + (np.sum(whole, axis=0) + logits + buffers)[None] + overhead(model, candidate)
    if ahead:
        beside = [weighed(model, kept_term(r), tables.layer_activation[k]) for k, r in enumerate(RECOMPUTE)]
        fixed = fixed + np.stack(beside)
    budget = budgets(model, capacity_kib, margin=margin)
    flight = in_flight(candidate)
    kept = np.stack([weighed(model, kept_term(r), tables.activation[k]) for k, r in enumerate(RECOMPUTE)])
    # Products with the micro-batches in flight must stay within 64 bits; what is cut off exceeds any device.
    activation = np.minimum(kept, SATURATED_BYTES // int(flight.max()))
    if not model.half_moments:
        return StageMemory(fixed, activation, flight, budget)
    cast = cast_bytes(tables.parameters, candidate, tables.experts)
    update = np.sum(whole, axis=0) + cast + overhead(model, candidate)
    above = np.where(update > budget.max(), np.maximum(fixed, update), fixed)
    return StageMemory(above, activation, flight, budget, update, fixed)


def bytes_of_stages(
    tables: StageTables,
    model: MemoryModel,
    candidate: Candidate,
    recompute: Ints,
    first: Ints,
    end: Ints,
    *,
    ahead: bool = False,
) -> Ints:
    """Bytes of every stage of a closed form (pp,), from its recompute and range, as ``stage_memory`` has them."""
    each, largest = model.held_parameter_bytes, tables.largest[first, end]
    held = held_bytes(tables.parameters[first, end], largest, each, candidate, tables.experts[first, end])
    whole = np.sum([weighed(model, term, figure) for term, figure in zip(HELD, held, strict=True)], axis=0)
    passing = tables.workspace[recompute, first, end], tables.logits[first, end], tables.buffers[first, end]
    workspace, logits, buffers = (weighed(model, term, figure) for term, figure in zip(PASSING, passing, strict=True))
    unsummed = weighed(model, "gradients", unsummed_bytes(largest, each, candidate))
    passes = workspace + np.maximum(logits, unsummed) + buffers
    kept, beside, flight = np.zeros_like(first), np.zeros_like(first), in_flight(candidate)
    for k in np.unique(recompute).tolist():
        some = recompute == k
        kept[some], beside[some] = (
            weighed(model, kept_term(RECOMPUTE[k]), figure[k, first[some], end[some]])
            for figure in (tables.activation, tables.layer_activation)
        )
    passes = passes + ahead * beside + flight * np.minimum(kept, SATURATED_BYTES // int(flight.max()))
    if model.half_moments:
        cast = cast_bytes(tables.parameters[first, end], candidate, tables.experts[first, end])
        passes = np.maximum(passes, cast)
    return np.asarray(whole + overhead(model, candidate) + passes)


def overhead(model: MemoryModel, candidate: Candidate) -> int:
    """Bytes that the framework holds on every device under a candidate, (4)."""
    groups = (candidate.pp > 1) + (candidate.dp_cp > 1)
    return model.overhead_bytes + groups * model.group_bytes


def budgets(model: MemoryModel, capacity_kib: list[int], *, margin: bool = True) -> Ints:
    """Largest number of bytes that satisfies (5), by device type, from capacities in KiB (types,)."""
    free = [kib - (model.margin_kib(kib) if margin else 0) for kib in capacity_kib]
    return np.array([kib * KIB for kib in free], dtype=np.int64)


def kept_term(recompute: str) -> str:
    """The term that what stays for the backward pass counts to, (2)."""
    return "checkpoints" if recompute == "full" else "activations"


def weighed(model: MemoryModel, term: str, figure: Ints) -> Ints:
    """Coefficient times term, rounded up to whole bytes."""
    coefficient = model.coefficient(term)
    return figure if coefficient == 1.0 else np.ceil(coefficient * figure).astype(np.int64)


def in_flight(candidate: Candidate) -> Ints:
    """Most micro-batches whose activations a stage (a chunk, where there are several) holds at once, (2)."""
    m = candidate.num_micro_batches
    if candidate.is_order_priced:
        counts = in_flight_counts(*candidate.order_key)
        device = device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp)
        most = [counts[d].max(axis=0)[np.count_nonzero(device[:c] == d)] for c, d in enumerate(device.tolist())]
        return np.array(most, dtype=np.int64)
    if candidate.schedule == "gpipe":
        return np.full(candidate.pp, m, dtype=np.int64)
    return np.minimum(np.arange(candidate.pp, 0, -1), m).astype(np.int64)
