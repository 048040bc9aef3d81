r"""
Shards: devices that hold the same weights share weights, gradients and optimizer states between them (ZeRO).

(7) Under ZeRO-2 and 3 every ``dp_shard`` consecutive replicas share one copy of weights, gradients and optimizer
    states. A candidate has one copy for all dp replicas. With ``hybrid_sharding`` there is a second candidate, whose
    ``dp_shard`` is the largest divisor of dp above 1 whose tensor groups fit every node together. A fixed ``dp_shard``
    is one more choice, and under a fixed ZeRO-1 (optimizer states) as well. Only the latency model ``step`` prices
    several copies, and only if memory is a sum of terms. With several context ranks there is one copy.
(9) In pipelines the ZeRO stage is one of ``pipeline_zero``, if it is given.

A range of layers has P parameters on a device, P' of them of experts, with :math:`w, g, o` bytes of weight, gradient
and state for each. Under ZeRO stage k or above :math:`d_k` devices share one copy; otherwise :math:`d_k = 1`.
:math:`d'_k` counts the devices of a copy that hold the same experts. A device holds

(1) :math:`\lceil (P - P') w / d_3 \rceil + \lceil P' w / d'_3 \rceil` bytes of weights, with gradients
    :math:`g, d_2, d'_2` and states :math:`o, d_1, d'_1` in the same way. Stage 3 adds two of the largest layer's
    weights. In a pipeline stages 2 and 3 add the range's whole gradients and stage 3 its whole weights instead
    (``taut.formulations.tables.memory`` (1));
(2) in the optimizer's step, if moments are in half precision, the moments of one parameter group (experts, or all other
    parameters) in single precision: :math:`8 \max(\lceil (P - P') / d_1 \rceil, \lceil P' / d'_1 \rceil)` bytes besides
    (1). No activations are kept then;
(3) under stages 2 and 3 the whole gradients of the largest layer, until the replicas have summed them: :math:`w + g`
    bytes a parameter. The pass leaves them in the weights' format, and the reduce-scatter, for which the next layer's
    gradients wait, copies them into the format of the sum. In a pipeline, (1) has whole summed gradients, and the
    copy is made when no activations are left, so :math:`w` bytes remain.

The terms of time (``taut.formulations.terms``) are two in the passes and two after them: for experts that fewer devices
hold, and for all other parameters.

(4) Stage 3 gathers the weights of a layer before each pass. Without a pipeline stages 2 and 3 scatter its gradients
    after the pass. Both run in the group of a copy. A gather or a scatter is half an all-reduce.
(5) After the passes one ring of all holders sums the gradients under stage 0. Under stage 1 it scatters the gradients
    and gathers the updated weights, in formats of their own (``taut.data.memory``). Under stage 2 it gathers the
    weights. In a pipeline stages 2 and 3 scatter the gradients in it, once for all micro-batches. With several copies
    of s devices each, the devices at one place of every copy sum their 1/s of the gradients. Before this sum stage 1,
    and in a pipeline every stage above, scatters the gradients within a copy. After it stages 1 and 2 gather the
    weights within a copy.

Sources of (3): PyTorch's FSDP2, ``post_backward`` in ``_fsdp_param_group.py`` and ``foreach_reduce`` in
``_fsdp_collectives.py``; Megatron-FSDP and DeepSpeed have buckets of about a layer's gradients. Of pipelines: PyTorch's
``backward_maybe_with_nosync`` in ``torch/distributed/pipelining/stage.py``, under which FSDP2 sums no gradients before
the last micro-batch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.memory import MOMENTS_CAST, MemoryModel, ParameterBytes
from taut.errors import FieldError
from taut.formulations.degrees import BlockShape, divisors
from taut.formulations.fields import (
    Asked,
    Columns,
    Compared,
    Field,
    Fix,
    Fixed,
    Runs,
    Sentence,
    Variants,
    Words,
    divides_devices,
    named,
    zero_stage,
)
from taut.formulations.terms import MOMENTS, Group, Load, MemoryTerm, Ring, Term

if TYPE_CHECKING:
    from taut.formulations.problem import PlanningProblem
    from taut.formulations.space import Candidate, Workload
    from taut.formulations.tables.memory import Figures
    from taut.formulations.tables.stage_tables import StageTables

COPIES = "copies"
"""What launchers state: how many copies of what is sharded there are."""
HELD = "weights", "gradients", "states"
"""Names of the terms (1)."""


def _devices_of_a_copy(candidate: "Candidate", fixed: Fixed) -> int | None:
    """Devices that share a copy, None where nothing that copies may divide is shared."""
    return candidate.shards if candidate.zero in _sharing(fixed) else None


def _sharing_words(strategy: Any, space: Mapping[str, Any]) -> str:
    """The ZeRO stage, with the replicas of a copy where there are several copies."""
    copies = f" with a copy for every {strategy.dp_shard} replicas" if strategy.dp_shard else ""
    return f"ZeRO-{strategy.zero}{copies}"


def check_groups(fixed: Mapping[str, Any]) -> None:
    """Refuse fixed copies that hold no whole group of fixed expert ranks (``taut.formulations.degrees`` (3))."""
    if not {"dp_shard", "ep", "tp"} <= fixed.keys():
        return
    shape = BlockShape(fixed["tp"], 1, fixed["ep"], fixed.get("etp", 1))
    if not shape.divides_copy(fixed["dp_shard"]):
        least = shape.experts // gcd(shape.experts, shape.tp)
        wanted = f"a multiple of {least}, whose devices hold whole groups of ep={shape.ep} beside tp={shape.tp}"
        raise FieldError("fix", f"dp_shard={fixed['dp_shard']}", f"expected {wanted}")


def stages_asked(fixed: Mapping[str, Any]) -> list[int]:
    """ZeRO stages 2 and 3 that fixed values ask for: the fixed one, or both for copies of any stage."""
    wanted = (2, 3) if "dp_shard" in fixed and "zero" not in fixed else (fixed.get("zero"),)
    return [stage for stage in (2, 3) if stage in wanted]


def fixed_copies(fixed: Mapping[str, Any], devices: int) -> dict[str, Any]:
    """Fixed values of which ``copies`` counts copies, as launchers do: with N, 1 / N of the replicas share one."""
    degrees = {name: fixed.get(name, 1) for name in ("tp", "pp", "cp")}
    others = {name: value for name, value in fixed.items() if name != COPIES}
    if (copies := fixed.get(COPIES, 1)) == 1:
        return others
    shown, replicas = f"copies={copies}", devices // prod(degrees.values())
    if degrees["cp"] > 1:
        raise FieldError("current", shown, f"not priced with cp={degrees['cp']}, expected one copy or cp=1")
    if not isinstance(copies, int) or copies < 1 or replicas % copies:
        raise FieldError("current", shown, f"expected a divisor of the {replicas} replicas")
    # A copy for each replica is one without shards.
    return others | ({"dp_shard": replicas // copies} if copies < replicas else {"zero": 0})


def with_zero(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate under every ZeRO stage, (9)."""
    for zero in workload.space.zero_stages(candidate.pp, candidate.dp_cp):
        yield candidate.changed(zero=zero) if zero else candidate


def check_copies(asked: Asked) -> None:
    """Refuse groups of replicas with a copy each where nothing prices them, and where nothing is sharded."""
    if "dp_shard" not in asked.fix:
        return
    asked.check_mechanism("dp_shard")
    if asked.fix.get("zero") == 0:
        raise FieldError("fix", "zero=0", "shares nothing, expected 1, 2 or 3 with dp_shard")


def with_copies(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with one copy, and with each number of replicas to a copy, (7)."""
    yield candidate
    space, dp = workload.space, candidate.dp
    if candidate.zero not in _sharing(space.fixed) or candidate.cp > 1:
        return
    sizes = {int(space.fixed.get("dp_shard", 1))}
    if space.hybrid_sharding and candidate.zero >= 2:
        room = min(group.gpus_per_node for group in workload.cluster.nodes) // candidate.tp
        sizes.add(max((size for size in divisors(dp) if size <= room), default=1))
    for size in sizes:
        if 1 < size < dp and dp % size == 0:
            yield replace(candidate, dp_shard=size)


def _sharing(fixed: Fixed) -> tuple[int, ...]:
    """ZeRO stages that may have several copies: 1 where it is fixed, (7)."""
    return (1, 2, 3) if fixed.get("zero") == 1 else (2, 3)


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
    return Group("copies", candidate.copies, candidate.shards * candidate.tp, candidate.width)


def has_expert_rings(candidate: "Candidate") -> bool:
    """Whether several devices hold the same experts, and fewer than hold the same of all else."""
    return candidate.edp > 1 and candidate.block.experts != candidate.tp


def shard_terms(problem: "PlanningProblem", candidate: "Candidate", terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Terms so far, and (4) and (5), gathers in the passes or all after them."""
    each, coefficient = problem.parameter_bytes, problem.coefficient
    loads: list[tuple[Load, Group]] = [("common", holders(candidate))]
    if has_expert_rings(candidate):
        loads.append(("experts", expert_holders(candidate)))
    if not problem.latency.gathers_in_passes:
        moved = coefficient("data_parallel") * each.exchanged(candidate.zero, candidate.num_micro_batches)
        return terms + tuple(Term(load, "end", (Ring(held),), moved) for load, held in loads)
    # What stages 2 and 3 exchange after the passes are collectives of the kind that their passes have.
    reduced = coefficient("gather" if candidate.zero >= 2 else "data_parallel")
    moved = reduced * (each.gradient / candidate.dp_shard if candidate.dp_shard else _left(candidate, each))
    found = [Term(load, "end", _rings(candidate, each, held), moved) for load, held in loads]
    weight = each.weight if candidate.zero == 3 else 0
    gradient = each.gradient if candidate.zero >= 2 and candidate.pp == 1 else 0
    if (weight or gradient) and candidate.dp_cp > 1:
        half = 0.5 * coefficient("gather")
        for load, held in loads:
            if (copy := copy_of(candidate, held)).members > 1:
                found.append(Term(load, "passes", (Ring(copy, half),), weight=weight, gradient=gradient))
    return terms + tuple(found)


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
    return each.exchanged_at_end(candidate.zero, in_pipeline=candidate.pp > 1)


def held_bytes(
    parameters: Ints, largest: Ints, per_parameter: ParameterBytes, candidate: "Candidate", experts: Ints | int = 0
) -> tuple[Ints, Ints, Ints]:
    """Bytes of weights, gradients and states, (1), of so many parameters a tensor rank and of the largest layers."""
    zero = candidate.zero
    weight, gradient = parameters * per_parameter.weight, parameters * per_parameter.gradient
    weights, gradients, states = (
        _shared(parameters - experts, count, candidate.shards if zero >= stage else 1)
        + _shared(experts, count, candidate.expert_shards if zero >= stage else 1)
        for count, stage in zip(per_parameter[:3], (3, 2, 1), strict=True)
    )
    in_pipeline = candidate.pp > 1
    if zero == 3 and candidate.dp_cp > 1:
        weights = weights + (weight if in_pipeline else 2 * largest * per_parameter.weight)
    if zero >= 2 and candidate.dp_cp > 1 and in_pipeline:
        gradients = gradients + gradient
    return np.asarray(weights), np.asarray(gradients), np.asarray(states)


def _shared(parameters: Ints | int, count: int, devices: int) -> Ints | int:
    """So many bytes of each parameter, shared by some devices and rounded up."""
    return -(-parameters * count // devices)


def shard_memory(
    parameters: Ints, largest: Ints, experts: Ints | int, model: MemoryModel, candidate: "Candidate"
) -> list[MemoryTerm]:
    """Memory terms (1) to (3) of the shape and arguments of ``held_bytes``."""
    each = model.held_parameter_bytes
    held = held_bytes(parameters, largest, each, candidate, experts)
    found = [MemoryTerm(name, MOMENTS[name], model.weigh(name, of)) for name, of in zip(HELD, held, strict=True)]
    unsummed = unsummed_bytes(largest, each, candidate)
    found.append(MemoryTerm("gradients", "reduction", model.weigh("gradients", unsummed)))
    if model.half_moments:
        found.append(MemoryTerm("states", "update", cast_bytes(parameters, candidate, experts)))
    return found


def _memory_of_figures(figures: "Figures", model: MemoryModel, candidate: "Candidate") -> list[MemoryTerm]:
    """The same of figures; none under Muon, whose matrices have terms of their own."""
    if figures.matrices is not None:
        return []
    return shard_memory(figures.parameters, figures.largest, figures.experts, model, candidate)


ZERO_STAGE = Field(
    variants=Variants(1, with_zero),
    terms=shard_terms,
    memory=_memory_of_figures,
    launched=True,
    meaning="What replicas shard: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too.",
    fix=Fix(10, int, zero_stage),
    words=Words(11, named("zero", 0), short=7),
    sentence=Sentence(1, 1, _sharing_words),
    columns=Columns(sweep=10, pareto=True),
    compared=Compared(7, change=8),
    runs=Runs("zero", 2, lambda value: f"ZeRO-{value}", lambda each: each.zero if each.dp_cp > 1 else None),
)


REPLICAS_OF_A_COPY = Field(
    variants=Variants(2, with_copies),
    check=check_copies,
    launched=True,
    meaning="Replicas that share one copy of what ZeRO shards; 0 stands for all of them.",
    seldom=True,
    grouped=True,
    fix=Fix(12, int, divides_devices, _devices_of_a_copy),
    words=Words(12, named("dp_shard", 0), short=8),
    columns=Columns(sweep=6, pareto=True),
    compared=Compared(12, held=False, shown=False),
    rule=lambda space: "dp_shard devices share a copy under ZeRO-1 to 3: a divisor of dp, and dp*cp where cp > 1",
    runs=Runs("copies", 3, lambda value: "several copies" if value else "one copy", lambda each: each.copies > 1),
)


def unsummed_bytes(largest: Ints, per_parameter: ParameterBytes, candidate: "Candidate") -> Ints:
    """Bytes of the gradients of the largest layers before the replicas have summed them, (3)."""
    if candidate.zero < 2 or candidate.dp_cp == 1:
        return np.zeros_like(largest)
    return np.asarray(largest * (per_parameter.weight + (0 if candidate.pp > 1 else per_parameter.gradient)))


def cast_bytes(parameters: Ints, candidate: "Candidate", experts: Ints | int = 0) -> Ints:
    """Bytes of moments in single precision while the larger parameter group is updated, (2)."""
    shards, of_experts = (candidate.shards, candidate.expert_shards) if candidate.zero else (1, 1)
    others = -(-(parameters - experts) * MOMENTS_CAST // shards)
    return np.asarray(np.maximum(others, -(-experts * MOMENTS_CAST // of_experts)))


def unshared(candidate: "Candidate") -> "Candidate":
    """The candidate where every device holds all that it updates."""
    return replace(candidate, zero=0, dp_shard=0)


def optimizer_shards(candidate: "Candidate") -> int:
    """Devices that share the optimizer's work, but that of experts that fewer of them hold."""
    return candidate.shards if candidate.zero else 1


def optimized_parameters(tables: "StageTables", candidate: "Candidate") -> Floats | Ints:
    """Parameters of every range (L+1, L+1), those of experts times how many more devices share the others."""
    shards = optimizer_shards(candidate)
    if candidate.ep == 1 or shards == 1:
        return tables.parameters
    return np.asarray(tables.parameters + tables.experts * (shards / candidate.expert_shards - 1))
