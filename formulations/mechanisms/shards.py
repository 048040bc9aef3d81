r"""
Shards: devices that hold the same weights share weights, gradients and optimizer states between them (ZeRO).

Every ``dp_shard`` consecutive replicas share one copy, or all of them (``taut.formulations.mechanisms.copies``).

A range of layers has P parameters on a device, P' of them of experts, with :math:`w, g, o` bytes of weight, gradient
and state for each. Under ZeRO stage k or above :math:`d_k` devices share one copy, and otherwise :math:`d_k = 1`;
:math:`d'_k` counts those that hold the same experts. A device holds

(1) :math:`\lceil (P - P') w / d_3 \rceil + \lceil P' w / d'_3 \rceil` bytes of weights, with gradients
    :math:`g, d_2, d'_2` and states :math:`o, d_1, d'_1` alike. Stage 3 adds two of the largest layer's weights, and in
    a pipeline the range's weights and gradients whole (``taut.formulations.tables.memory`` (1));
(2) moments in half precision are updated in single precision, of one parameter group at a time, experts or all others:
    :math:`8 \max(\lceil (P - P') / d_1 \rceil, \lceil P' / d'_1 \rceil)` bytes beside (1), when no activations are
    kept;
(3) under stages 2 and 3 the gradients of a layer are whole until the replicas have summed them, first in the weights'
    format, as the pass leaves them, and copied into that of the sum for the reduce-scatter, which the next layer's
    gradients wait for: :math:`w + g` bytes for each parameter of the largest layer. Under stage 3 in a pipeline, where
    (1) has the summed ones whole, the copy is made when no activations are left, and :math:`w` bytes remain.

The terms of time (``taut.formulations.terms``) are two in the passes and two after them, for experts that fewer devices
hold and for all other parameters:

(4) stage 3 gathers the weights of a layer before each pass, and stages 2 and 3 scatter its gradients after it, in the
    group of a copy. A gather or a scatter is half an all-reduce;
(5) after the passes one ring of all holders sums the gradients under stages 0 and 1. Under stage 2 it gathers the
    updated weights; stage 3 leaves nothing. Where groups of s devices have a copy each, the devices at one place of
    every copy sum their 1/s of the gradients. Stage 1 scatters the gradients within a copy before, and stages 1 and 2
    gather the weights within it after.

Sources of (3): PyTorch's FSDP2, ``post_backward`` in ``_fsdp_param_group.py`` and ``foreach_reduce`` in
``_fsdp_collectives.py``; Megatron-FSDP and DeepSpeed have buckets of about a layer's gradients.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.memory import MOMENTS_CAST, MemoryModel, ParameterBytes
from taut.formulations.terms import Group, Load, MemoryTerm, Ring, Term

if TYPE_CHECKING:
    from taut.formulations.space import Candidate
    from taut.formulations.tables.stage_tables import StageTables

HELD = "weights", "gradients", "states"
"""Names of the terms (1)."""


def holders(candidate: "Candidate") -> Group:
    """The devices of a stage that hold the same weights: a tensor rank of every replica and context rank."""
    return Group("replicas", candidate.dp_cp, candidate.tp, candidate.tp, every_type=candidate.pipelines_by_type)


def expert_holders(candidate: "Candidate") -> Group:
    """The devices of a stage that hold the same experts."""
    return Group("experts", candidate.edp, candidate.block.experts, candidate.block.experts)


def copy_of(candidate: "Candidate", held: Group) -> Group:
    """The devices of one copy that hold the same, of all that do."""
    if not candidate.dp_shard:
        return held
    return held._replace(kind="copy", members=candidate.shards * candidate.tp // held.width)


def between_copies(candidate: "Candidate") -> Group:
    """One device of every copy; each is in a block of its own."""
    copies = candidate.dp_cp // candidate.shards
    return Group("copies", copies, candidate.shards * candidate.tp, candidate.width)


def has_expert_rings(candidate: "Candidate") -> bool:
    """Whether several devices hold the same experts, and fewer than hold the same of all else."""
    return candidate.edp > 1 and candidate.block.experts != candidate.tp


def shard_terms(
    candidate: "Candidate", each: ParameterBytes, coefficient: Callable[[str], float], *, in_passes: bool
) -> tuple[Term, ...]:
    """
    The terms (4) and (5) of a candidate.

    ``each``: bytes for a parameter; ``coefficient`` of a calibration by name; ``in_passes``: whether gathers and
    scatters run in the passes. Otherwise all bytes move after them.
    """
    loads: list[tuple[Load, Group]] = [("common", holders(candidate))]
    if has_expert_rings(candidate):
        loads.append(("experts", expert_holders(candidate)))
    reduced = coefficient("data_parallel")
    if not in_passes:
        moved = reduced * each.exchanged(candidate.zero, candidate.num_micro_batches)
        return tuple(Term(load, "end", (Ring(held),), moved) for load, held in loads)
    moved = reduced * (each.gradient / candidate.dp_shard if candidate.dp_shard else _left(candidate, each))
    found = [Term(load, "end", _rings(candidate, each, held), moved) for load, held in loads]
    if candidate.zero >= 2 and candidate.dp_cp > 1:
        half, weight = 0.5 * coefficient("gather"), each.weight if candidate.zero == 3 else 0
        for load, held in loads:
            if (copy := copy_of(candidate, held)).members > 1:
                found.append(Term(load, "passes", (Ring(copy, half),), weight=weight, gradient=each.gradient))
    return tuple(found)


def _rings(candidate: "Candidate", each: ParameterBytes, held: Group) -> tuple[Ring, ...]:
    """Rings after the passes, (5), by byte of a shard of the gradients where there are several copies."""
    if not candidate.dp_shard:
        return (Ring(held),)
    copy, within = copy_of(candidate, held), weight_share(each, candidate)
    # A shard of experts is larger than that of the rest where fewer devices of a copy hold them.
    summed = Ring(between_copies(candidate), candidate.shards / copy.members)
    return (summed, Ring(copy, within)) if within else (summed,)


def weight_share(each: ParameterBytes, candidate: "Candidate") -> float:
    """Bytes that a copy scatters and gathers after the passes, as of an all-reduce, by byte of a gradient shard."""
    return _left(candidate, each) / (each.gradient / candidate.shards)


def _left(candidate: "Candidate", each: ParameterBytes) -> float:
    """Bytes for a parameter that all holders of one copy exchange after the passes, as of an all-reduce."""
    return each.exchanged_at_end(candidate.zero)


def held_bytes(
    parameters: Ints, largest: Ints, per_parameter: ParameterBytes, candidate: "Candidate", experts: Ints | int = 0
) -> tuple[Ints, Ints, Ints]:
    """
    Bytes of weights, gradients and optimizer states, (1).

    ``parameters``: parameters of ranges on a tensor rank, of any shape; ``largest``: parameters of their largest
    layers, of the same shape; ``per_parameter``: bytes of weight, gradient and state for a parameter; ``candidate``:
    degrees and ZeRO stage; ``experts``: parameters of experts that fewer devices hold than the others. Returns three
    arrays of that shape, in bytes.
    """
    zero = candidate.zero
    weight, gradient, _ = (parameters * count for count in per_parameter)
    weights, gradients, states = (
        _shared(parameters - experts, count, candidate.shards if zero >= stage else 1)
        + _shared(experts, count, candidate.expert_shards if zero >= stage else 1)
        for count, stage in zip(per_parameter, (3, 2, 1), strict=True)
    )
    if zero == 3 and candidate.dp_cp > 1:
        whole = candidate.pp > 1
        weights = weights + (weight if whole else 2 * largest * per_parameter.weight)
        gradients = gradients + (gradient if whole else 0)
    return np.asarray(weights), np.asarray(gradients), np.asarray(states)


def _shared(parameters: Ints | int, count: int, devices: int) -> Ints | int:
    """So many bytes of each parameter, shared by some devices and rounded up."""
    return -(-parameters * count // devices)


def shard_memory(
    parameters: Ints, largest: Ints, experts: Ints | int, model: MemoryModel, candidate: "Candidate"
) -> list[MemoryTerm]:
    """Memory terms (1) to (3), of the shape of ``held_bytes``, whose arguments these are."""
    each = model.held_parameter_bytes
    held = held_bytes(parameters, largest, each, candidate, experts)
    found = [MemoryTerm(name, "always", model.weigh(name, of)) for name, of in zip(HELD, held, strict=True)]
    unsummed = unsummed_bytes(largest, each, candidate)
    found.append(MemoryTerm("gradients", "reduction", model.weigh("gradients", unsummed)))
    if model.half_moments:
        found.append(MemoryTerm("states", "update", cast_bytes(parameters, candidate, experts)))
    return found


def unsummed_bytes(largest: Ints, per_parameter: ParameterBytes, candidate: "Candidate") -> Ints:
    """
    Bytes of the gradients of a layer before the replicas have summed them, (3).

    ``largest``, ``per_parameter``, ``candidate``: as of ``held_bytes``.
    """
    if candidate.zero < 2 or candidate.dp_cp == 1:
        return np.zeros_like(largest)
    piped = candidate.zero == 3 and candidate.pp > 1
    return np.asarray(largest * (per_parameter.weight + (0 if piped else per_parameter.gradient)))


def cast_bytes(parameters: Ints, candidate: "Candidate", experts: Ints | int = 0) -> Ints:
    """
    Bytes of moments in single precision while the larger parameter group is updated, (2).

    ``parameters``, ``candidate``, ``experts``: as of ``held_bytes``.
    """
    shards, of_experts = (candidate.shards, candidate.expert_shards) if candidate.zero else (1, 1)
    others = -(-(parameters - experts) * MOMENTS_CAST // shards)
    return np.asarray(np.maximum(others, -(-experts * MOMENTS_CAST // of_experts)))


def optimizer_shards(candidate: "Candidate") -> int:
    """Devices that share the optimizer's work, but that of experts that fewer of them hold."""
    return candidate.shards if candidate.zero else 1


def optimized_parameters(tables: "StageTables", candidate: "Candidate") -> Floats | Ints:
    """
    Parameters of every range whose optimizers would take as long, (L+1, L+1), if as many devices shared all of them.

    Those of experts are shared by fewer devices, so each stands for several.
    """
    shards = optimizer_shards(candidate)
    if candidate.ep == 1 or shards == 1:
        return tables.parameters
    return np.asarray(tables.parameters + tables.experts * (shards / candidate.expert_shards - 1))
