r"""
The strategy space: every candidate that the planner considers.

A candidate has the fields of ``Candidate``. With D devices, global batch :math:`g` and L layers,

(1) pp * tp * cp * dp = D and pp <= L; pp = 1 if the head is the embedding, unless the space has ``tied_pipelines``;
(2) g = dp * micro_batch * m with m micro-batches a pipeline and step;
(3) tp divides every layer (heads, key-value heads, feed-forward width), is at most ``max_tp``, and fits the nodes: it
    divides the size of every node, or is a multiple of the one size that all nodes share;
(4) every layer has a price at (tp, cp, micro_batch) on every device type;
(5) 1f1b and gpipe have vpp = 1. Every other schedule (``taut.formulations.schedules.orders``) is a choice if it is
    defined for pp and m, and pp * vpp <= L. A free vpp is at most ``max_vpp``, or at most ``max_even_vpp`` if it cuts
    the layers, or the layers with embedding and head, into equal chunks. Only the latency models ``step`` and
    ``pipette`` price these schedules. Schedules that split the backward pass exclude full recompute;
(6) an order of passes that the space lists makes one more candidate, of a schedule on the V at the degrees of the
    order. The candidate in the schedule's own order stays;
(12) some form in ``divisions`` states a division of the layers into the candidate's chunks
    (``taut.formulations.divisions``), and a plan has such a division;
(18) with ``seen`` every field of a candidate is one of a run's (``taut.formulations.runs``).

The other rules are those of mechanisms (``taut.formulations.mechanisms``): (7) and (9) ``shards``, (8) and (33)
``recompute``, (10) ``context_ranks``, (11) and (14) ``expert_ranks``, (13) ``empty_ends``, (15) and (17) ``offload``,
(16) ``unequal_replicas``.

If choices are equal by definition, one of them stands for all: a single stage is scheduled as 1f1b, a single replica
has ZeRO-0, and a single tensor rank has no sequence parallelism. Stages, recompute of every stage and placement are
decided inside a candidate.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Self, get_type_hints

import pydantic
from pydantic import field_validator

from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE, Module, OffloadModule, Recompute
from taut.data.layers.experts import USUAL_DISPATCH, DispatchSpec
from taut.data.model import ModelSpec
from taut.data.seen import Seen
from taut.data.spec import LATER, GrownSpec, Whole
from taut.data.stack import ANY_DIVISION, SCHEDULES, ContextKind, Form, Schedule, ZeroStage
from taut.data.suggest import one_of
from taut.formulations.degrees import BlockShape
from taut.formulations.fields import (
    Asked,
    Columns,
    Compared,
    Field,
    Fix,
    Fixed,
    Runs,
    Sentence,
    Words,
    chunk_count,
    degree,
    divides_batch,
    divides_both,
    divides_devices,
    named,
    one_of_names,
)
from taut.formulations.mechanisms.context_ranks import ATTENTION, CONTEXT_RANKS
from taut.formulations.mechanisms.empty_ends import END_CHUNKS
from taut.formulations.mechanisms.expert_ranks import EXPERT_RANKS, EXPERT_TENSOR_RANKS
from taut.formulations.mechanisms.offload import (
    ACTIVATIONS_ON_HOSTS,
    STATES_ON_HOSTS,
    ActivationOffload,
    OptimizerOffload,
)
from taut.formulations.mechanisms.recompute import FIRST_LAYERS, SHARED_RECOMPUTE
from taut.formulations.mechanisms.sequence_parallel import SEQUENCE_PARALLEL
from taut.formulations.mechanisms.shards import REPLICAS_OF_A_COPY, ZERO_STAGE
from taut.formulations.mechanisms.unequal_replicas import UNEVEN_BATCH
from taut.formulations.schedules.orders import ORDER_PRICED, GivenOrder

MOST_SEQUENCES = 10_000_000
LayersKey = tuple[BlockShape, int, bool, float, bool]
OrderKey = tuple[str, int, int, int, tuple[str, ...]]
"""Schedule, pipeline devices, chunks of each, micro-batches, and the words of an order that is given."""

OTHER_DEGREES = "dp", "cp_comm", "etp"
"""What follows from the degrees of pipelines, tensor and context ranks."""
STAGES = Field(
    launched=True,
    meaning="Pipeline stages.",
    fix=Fix(1, int, divides_devices),
    words=Words(0, named("pp"), short=0),
    sentence=degree(0, "pipeline", "pp"),
    columns=Columns(sweep=1, pareto=True),
    compared=Compared(2, change=2, frees=OTHER_DEGREES),
    runs=Runs("pp", 8, lambda value: f"pipeline {value}"),
)
TENSOR_RANKS = Field(
    launched=True,
    meaning="Tensor ranks, which split every layer.",
    fix=Fix(2, int, divides_devices),
    words=Words(1, named("tp"), short=1),
    sentence=degree(1, "tensor", "tp"),
    columns=Columns(sweep=2, pareto=True),
    compared=Compared(0, change=0, frees=OTHER_DEGREES),
    runs=Runs("tp", 4, lambda value: f"tensor {value}"),
)
REPLICAS = Field(
    launched=True,
    meaning="Replicas, which have different sequences.",
    fix=Fix(4, int, divides_both),
    words=Words(6, named("dp"), short=3),
    sentence=degree(3, "data", "dp"),
    columns=Columns(sweep=5, pareto=True),
    compared=Compared(3),
)
CHUNKS = Field(
    launched=True,
    meaning="Chunks of layers on every device of a pipeline.",
    fix=Fix(7, int, chunk_count),
    words=Words(9, lambda candidate: f"vpp={candidate.vpp}" if candidate.schedule == "interleaved-1f1b" else ""),
    columns=Columns(sweep=7),
    compared=Compared(4, change=5, frees=("schedule",)),
    runs=Runs("vpp", 9, lambda value: f"{value} chunk{'s' * (value > 1)} a device"),
)
MICRO_BATCH = Field(
    launched=True,
    meaning="Sequences of a micro-batch.",
    fix=Fix(8, int, divides_batch),
    words=Words(7, named("micro_batch"), short=5),
    columns=Columns(sweep=8, pareto=True),
    compared=Compared(5, change=6),
    runs=Runs("micro_batch", 0, lambda value: f"micro-batch {value}"),
)
MICRO_BATCHES = Field(launched=True, meaning="Micro-batches of a replica in a step.", columns=Columns(sweep=9))


def _schedule_words(strategy: Any, space: Mapping[str, Any]) -> str:
    """The schedule, with the chunks of a device where there are several, and whether its order is its own."""
    chunks = f" with {strategy.vpp} chunks a device" if strategy.vpp > 1 else ""
    adapted = ", adapted to its times" if strategy.order else ""
    return f"{strategy.schedule}{chunks}{adapted}"


def _check_orders(asked: Asked) -> None:
    """Refuse schedules that are priced by their order where nothing prices them."""
    for schedule in [kind for kind in asked.space.schedules if kind in ORDER_PRICED][:1]:
        asked.check_order(schedule)


SCHEDULE = Field(
    check=_check_orders,
    launched=True,
    meaning="The order of forward and backward passes.",
    fix=Fix(9, str, one_of_names(SCHEDULES)),
    words=Words(8, lambda candidate: str(candidate.schedule), short=6),
    sentence=Sentence(1, 0, _schedule_words),
    columns=Columns(sweep=0, pareto=True),
    compared=Compared(6, change=7),
    runs=Runs("schedule", 10, lambda value: f"schedule {value}"),
)
ORDER = Field(
    launched=True,
    meaning="Passes of every device in words, where they are not in the schedule's own order.",
    seldom=True,
    words=Words(10, lambda candidate: "adapted" if candidate.order else ""),
)


class _Hashed:
    """The place of a hash that is computed once, since candidates are keys of many tables."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True, order=True)
class Candidate(_Hashed):
    """
    A candidate: degrees, micro-batch, schedule and ZeRO stage. Division, recompute and placement are decided inside it.

    A record in ``FIELDS`` says what each field means, what may be fixed, and how it is written. The rules above, and
    the modules of ``taut.formulations.mechanisms``, say which values a space has.
    """

    pp: Annotated[Whole, STAGES]
    tp: Annotated[Whole, TENSOR_RANKS]
    dp: Annotated[Whole, REPLICAS]
    vpp: Annotated[Whole, CHUNKS]
    micro_batch: Annotated[Whole, MICRO_BATCH]
    num_micro_batches: Annotated[Whole, MICRO_BATCHES]
    schedule: Annotated[str, SCHEDULE]
    zero: Annotated[int, ZERO_STAGE]
    sequence_parallel: Annotated[bool, SEQUENCE_PARALLEL]
    order: Annotated[tuple[str, ...], pydantic.Strict(False), ORDER] = ()
    dp_shard: Annotated[Whole, REPLICAS_OF_A_COPY] = 0
    uniform_recompute: Annotated[str, SHARED_RECOMPUTE] = ""
    cp: Annotated[Whole, CONTEXT_RANKS] = 1
    ep: Annotated[Whole, EXPERT_RANKS] = 1
    etp: Annotated[Whole, EXPERT_TENSOR_RANKS] = 0
    cp_comm: Annotated[ContextKind, ATTENTION] = "p2p"
    empty_ends: Annotated[bool, END_CHUNKS] = False
    optimizer_offload: Annotated[float, STATES_ON_HOSTS] = 0.0
    uneven_batch: Annotated[bool, UNEVEN_BATCH] = False
    activation_offload: Annotated[float, ACTIVATIONS_ON_HOSTS] = 0.0
    recompute_layers: Annotated[int, FIRST_LAYERS] = 0

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(_VALUES(self)))
            return self._hash

    def changed(self, **values: Any) -> "Candidate":
        """The candidate with other values of some fields, in a fifth of the time of ``dataclasses.replace``."""
        every = [*_VALUES(self)]
        for name, value in values.items():
            every[_PLACES[name]] = value
        return Candidate(*every)

    def as_dict(self) -> dict[str, Any]:
        """Fields as plain values, without the seldom ones that have their default."""
        values: dict[str, Any] = dict(zip(ALWAYS, _ALWAYS(self), strict=True))
        values |= {name: getattr(self, name) for name, degree in BESIDE.items() if getattr(self, degree) > 1}
        if (seldom := _SELDOM(self)) == _USUAL:
            return values
        given = zip(SELDOM, seldom, _USUAL, strict=True)
        # JSON has no tuples.
        return values | {n: list(v) if isinstance(v, tuple) else v for n, v, default in given if v != default}

    @classmethod
    def of(cls, record: object) -> "Candidate":
        """The candidate that a record with the same fields states."""
        return Candidate(*_VALUES(record))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The candidate of plain values, as ``as_dict`` has them."""
        given: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}
        return cls(**given)

    def __str__(self) -> str:
        return " ".join(filter(None, (text(self) for text in TEXTS)))

    @property
    def layers_key(self) -> LayersKey:
        """What the prices of layers depend on: beside activations on hosts also what tensor ranks share."""
        away = self.activation_offload
        return self.block, self.micro_batch, self.empty_ends, away, bool(away) and self.sequence_parallel

    @property
    def recorded(self) -> bool:
        """Whether CUDA graphs may launch its passes, where costs have rows of these."""
        return self.records((self.uniform_recompute,))

    def records(self, recompute: Collection[str]) -> bool:
        """Whether runs of dense models record passes as CUDA graphs: one stage, whole weights, no whole recompute."""
        return self.pp == 1 and self.zero < 2 and "full" not in recompute and not self.activation_offload

    @property
    def width(self) -> int:
        """Devices of a block, which run in step (``taut.formulations.degrees`` (2))."""
        return self.block.width

    @property
    def block(self) -> BlockShape:
        """Degrees of a block."""
        return _block_shape(self.tp, self.cp, self.ep, self.etp or self.tp, self.cp_comm)

    @property
    def pipelines(self) -> int:
        """Blocks of a stage: replicas, or where an expert group goes over several of them, so many together."""
        return self.dp * self.tp * self.cp // self.width

    @property
    def end_parts(self) -> int:
        """Parts that are divided before the first layer and after the last: the embedding and the head, or none."""
        return int(self.empty_ends)

    @property
    def pipelines_by_type(self) -> bool:
        """Whether each pipeline is on one type of device, with its own number of micro-batches."""
        return self.uneven_batch

    @property
    def of_tensor_groups(self) -> bool:
        """Whether blocks are tensor groups and exchange nothing else."""
        return self.cp == self.ep == 1

    @property
    def needs_step(self) -> bool:
        """Whether ``step`` alone prices it, where memory is a sum of terms."""
        return any(getattr(self, name) != default for name, default in GROUPED.items())

    @property
    def edp(self) -> int:
        """Devices of a stage that hold the same experts."""
        return self.dp * self.tp * self.cp // self.block.experts

    @property
    def dp_cp(self) -> int:
        """All devices of a stage that hold the same weights: replicas times context ranks; ``shards`` share a copy."""
        return self.dp * self.cp

    @property
    def shards(self) -> int:
        """Devices that share one copy of what is sharded, (7)."""
        return self.dp_shard or self.dp_cp

    @property
    def copies(self) -> int:
        """Copies of what is sharded on a stage."""
        return self.dp_cp // self.shards

    @property
    def expert_shards(self) -> int:
        """Devices that share one copy of an expert group's part of the experts."""
        return self.shards * self.tp // self.block.experts

    @property
    def is_order_priced(self) -> bool:
        """Whether the schedule's time is that of its order (``taut.formulations.schedules.orders``)."""
        return self.schedule in ORDER_PRICED

    @property
    def effort(self) -> int:
        """What the search spends on its schedule: 1 on an order, 0 on a closed form, which therefore comes first."""
        return int(self.is_order_priced)

    @property
    def is_plain(self) -> bool:
        """Whether it has a closed form, tensor groups as blocks, one copy, and the same pipeline in every replica."""
        # The cheapest first: most candidates have an order or context ranks.
        plain = not self.is_order_priced and self.of_tensor_groups
        return plain and self.copies == 1 and not self.pipelines_by_type

    @property
    def order_key(self) -> OrderKey:
        """What the order of the passes depends on (``taut.formulations.schedules.orders``)."""
        return self.schedule, self.pp, self.vpp, self.num_micro_batches, self.order


_block_shape = cache(BlockShape)
"""Blocks of the same degrees, which every price of a candidate asks for."""


def _table() -> dict[str, Field]:
    """The record of every field, from what ``Candidate`` attaches to its types."""
    hints = get_type_hints(Candidate, include_extras=True)
    names = [each.name for each in fields(Candidate)]
    return {name: next(each for each in hints[name].__metadata__ if isinstance(each, Field)) for name in names}


FIELDS = _table()
"""Records of a candidate's fields by name."""
DEFAULTS = {each.name: each.default for each in fields(Candidate)}
"""Defaults of a candidate's fields, dataclasses' mark where there is none."""
_VALUES = attrgetter(*DEFAULTS)
_PLACES = {name: place for place, name in enumerate(DEFAULTS)}
_OF_CHUNKS = {"vpp", "order", "uniform_recompute", "recompute_layers"}
beside_chunks: Callable[[Candidate], tuple[Any, ...]] = attrgetter(
    *(name for name in DEFAULTS if name not in _OF_CHUNKS)
)
"""Values of a candidate's fields beside chunks, order and recompute: least communication depends on no others."""
ALWAYS = [name for name, field in FIELDS.items() if not field.seldom]
BESIDE = {name: field.seldom for name, field in FIELDS.items() if isinstance(field.seldom, str)}
SELDOM = {name: DEFAULTS[name] for name, field in FIELDS.items() if field.seldom is True}
_ALWAYS, _SELDOM, _USUAL = attrgetter(*ALWAYS), attrgetter(*SELDOM), tuple(SELDOM.values())
GROUPED = {name: DEFAULTS[name] for name, field in FIELDS.items() if field.grouped}
WORDS = sorted((f.words for f in FIELDS.values() if f.words), key=lambda each: each.place)
TEXTS = [words.text for words in WORDS]
SENTENCES = sorted((f.sentence for f in FIELDS.values() if f.sentence), key=lambda each: each[:2])
"""Parts of the sentence that describes a plan, in their order."""
_SHORT = ((words.short, words.text) for words in WORDS if words.short is not None)
SHORT_TEXTS = [text for _, text in sorted(_SHORT, key=lambda each: each[0])]
"""Texts of the one line that names a plan, in their order."""
VARIANTS = [v.of for v in sorted((f.variants for f in FIELDS.values() if f.variants), key=lambda each: each.place)]
"""What yields the variants of a candidate, after its schedule and before orders; each reads what those before chose."""
SEARCHED = {name: field.searched for name, field in FIELDS.items() if field.searched}
"""Truth values that only some stacks have, and on which models and clusters their spaces allow them."""
CHECKS = [field.check for field in FIELDS.values() if field.check]
"""What is refused of each field, in the order in which refusals are told."""
TERMS = [field.terms for field in FIELDS.values() if field.terms]
"""What makes the collectives of weights and gradients, each of those that the fields before have made."""
MEMORY = [field.memory for field in FIELDS.values() if field.memory]
"""Memory terms of fields."""
RUNS = sorted((f.runs for f in FIELDS.values() if f.runs), key=lambda each: each.place)
"""How fields stand beside the runs of a calibration, in the order in which they are told."""
FIXES = dict(sorted(((n, f.fix) for n, f in FIELDS.items() if f.fix is not None), key=lambda each: each[1].place))
"""What fields of a candidate may be fixed to, in the order in which messages name them."""


def strategy_sentence(strategy: object, space: Mapping[str, Any]) -> str:
    """Degrees, schedule and sharding of a strategy in words, of the plain values of its space."""
    clauses = (
        ", ".join(filter(None, (part.text(strategy, space) for part in parts)))
        for _, parts in groupby(SENTENCES, key=lambda each: each.clause)
    )
    return "; ".join(clauses)


def fixable_value(candidate: Candidate, name: str, fixed: Fixed = MappingProxyType({})) -> object:
    """What a candidate has of a fixable field where some values are fixed; None where it has nothing of it."""
    value = FIXES[name].value
    return getattr(candidate, name) if value is None else value(candidate, fixed)


def in_places(place: Callable[[Field], int | None]) -> tuple[str, ...]:
    """Names of the fields that have a place, in the order of their places."""
    places = {name: place(field) for name, field in FIELDS.items()}
    return tuple(name for _, name in sorted((at, name) for name, at in places.items() if at is not None))


SWEEP_COLUMNS = in_places(lambda field: field.columns.sweep)
"""Columns of a sweep's rows."""
FRONTIER_COLUMNS = tuple(name for name, field in FIELDS.items() if field.columns.pareto)
"""Columns of a frontier's rows."""
COMPARED = {
    name: compared
    for name in in_places(lambda field: field.compared and field.compared.place)
    if (compared := FIELDS[name].compared)
}
"""How fields stand in a configuration that runs, in its order."""
CHANGES = {name: COMPARED[name].frees for name in in_places(lambda field: field.compared and field.compared.change)}
"""Fields that may change alone, with what each change lets go as well."""


class StrategySpace(GrownSpec):
    """
    What is varied and what is fixed. A plan carries its space, and ``verify`` enumerates the space again.

    ``stack`` names the framework whose limits the other fields state; fields with a name of ``taut.data.stack`` have
    the meaning there. ``max_tp``, ``max_cp``, ``max_ep`` and ``max_vpp`` are the largest degrees. ``max_even_vpp``
    allows more chunks a device if all chunks can be equal. With ``hybrid_sharding`` replicas may have several copies of
    sharded weights. ``fixed`` holds the values of ``--fix``, and ``orders`` further orders of passes for candidates.
    ``recompute_modules`` are the modules of selective recompute (``taut.data.analytic.recompute_modules``); without
    any it recomputes the attention core, or what the stack recomputes. ``optimizer_offload`` and
    ``activation_offload`` list the shares on hosts that a candidate may have. ``seen`` is what a calibration's runs
    have been, where plans beyond them are taken away.
    """

    global_batch: Annotated[int, pydantic.Field(gt=0, le=MOST_SEQUENCES)]
    max_tp: Annotated[int, pydantic.Field(gt=0)]
    max_cp: Annotated[int, pydantic.Field(gt=0)] = 1
    max_ep: Annotated[int, pydantic.Field(gt=0), LATER] = 1
    cp_comm: Annotated[list[ContextKind], pydantic.Field(min_length=1), LATER] = ["p2p"]
    overlap_context: Annotated[bool, LATER] = False
    schedules: list[Schedule] = ["1f1b", "gpipe"]
    max_vpp: Annotated[int, pydantic.Field(gt=0)] = 4
    max_even_vpp: Annotated[int, pydantic.Field(ge=0)] = 0
    zero: list[ZeroStage] = [0, 1]
    replicated_kv: Annotated[bool, LATER] = True
    mixer_contexts: Annotated[bool, LATER] = True
    tied_pipelines: Annotated[bool, LATER] = True
    sequence_parallel: list[bool] = [False, True]
    pipeline_zero: list[ZeroStage] | None = None
    expert_zero: Annotated[list[ZeroStage] | None, LATER] = None
    expert_tensor: Annotated[bool, LATER] = True
    hybrid_sharding: bool = True
    recompute: list[Recompute] = list(RECOMPUTE)
    recompute_modules: Annotated[list[Module], LATER] = []
    dispatch: Annotated[DispatchSpec, LATER] = USUAL_DISPATCH
    recompute_by_stage: bool = True
    block_recompute: Annotated[bool, LATER] = False
    divisions: Annotated[list[Form], pydantic.Field(min_length=1), LATER] = [ANY_DIVISION]
    empty_ends: Annotated[bool, LATER] = False
    uneven_batch: Annotated[bool, LATER] = False
    stack: str = ""
    fixed: dict[str, int | str | bool] = {}
    orders: list[GivenOrder] = []
    optimizer_offload: Annotated[list[OptimizerOffload], LATER] = []
    activation_offload: Annotated[list[ActivationOffload], LATER] = []
    offload_modules: Annotated[list[OffloadModule], LATER] = []
    seen: Annotated[Seen | None, LATER] = None

    def zero_stages(self, pp: int, holders: int) -> list[ZeroStage]:
        """ZeRO stages at a pipeline degree and a number of devices that hold the same weights, (9)."""
        if holders == 1:
            return [0]
        allowed = self.zero if pp == 1 or self.pipeline_zero is None else self.pipeline_zero
        return [zero for zero in self.zero if zero in allowed]

    def of_zero(self, allowed: Iterable[ZeroStage]) -> Self:
        """The space with the given ZeRO stages, in pipelines those of them that are there."""
        stages = list(allowed)
        in_pipelines = self.pipeline_zero and [stage for stage in self.pipeline_zero if stage in stages]
        return self.model_copy(update={"zero": stages, "pipeline_zero": in_pipelines})

    @field_validator("fixed")
    @classmethod
    def _known(cls, fixed: dict[str, int | str | bool]) -> dict[str, int | str | bool]:
        for name, value in fixed.items():
            if name not in FIXES:
                raise ValueError(f"{name}: unknown name, expected {one_of(name, FIXES)}")
            if type(value) is not (wanted := FIXES[name].kind):
                raise ValueError(f"{name}: is {value!r}, expected a value of type {wanted.__name__}")
        return fixed


@dataclass(frozen=True)
class Workload:
    """What candidates are enumerated for: a space, a model, and a cluster."""

    space: StrategySpace
    model: ModelSpec
    cluster: ClusterSpec

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of the sequences of the kinds of layers."""
        return [layer.seq for layer in self.model.kinds.values()]

    @cached_property
    def expert_blocks(self) -> dict[tuple[BlockShape, int], list[BlockShape]]:
        """Blocks with several expert ranks by replica and devices of a stage, as far as they were asked for."""
        return {}

    @cached_property
    def device_counts(self) -> list[int]:
        """Devices of every type."""
        counts = dict.fromkeys(self.cluster.devices, 0)
        for group in self.cluster.nodes:
            counts[group.device.name] += group.count * group.gpus_per_node
        return list(counts.values())
