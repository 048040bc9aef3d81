r"""
The strategy space: every candidate that the planner considers.

A candidate is (pp, tp, dp, vpp, micro_batch, schedule, zero, sequence_parallel, order, dp_shard, uniform_recompute,
cp, ep, etp, cp_comm, empty_ends, optimizer_offload, uneven_batch, activation_offload). With D devices, global batch
:math:`g` and L layers,

(1) pp * tp * cp * dp = D and pp <= L;
(2) g = dp * micro_batch * m with m micro-batches a pipeline and step;
(3) tp divides every layer (heads, key-value heads, feed-forward width), is at most ``max_tp``, and fits the nodes: it
    divides the size of every node, or is a multiple of the one size that all nodes share;
(4) every layer has a price at (tp, cp, micro_batch) on every device type;
(5) 1f1b and gpipe have vpp = 1; the other schedules (``taut.formulations.schedules.plan_orders``) are there where they
    are defined for pp and m, with pp * vpp <= L. Where it is free vpp is at most ``max_vpp``, or ``max_even_vpp`` where
    it cuts the layers, or the layers with embedding and head, into equal chunks. They are priced by the latency models
    ``step`` and ``pipette`` alone, and split ones do not go with full recompute;
(6) with every order of the passes that the space lists, schedules on the V have a further candidate at the degrees
    that it is listed for, beside the one that runs in the schedule's own order.
(7) under ZeRO-2 and 3 every ``dp_shard`` consecutive replicas share one copy of weights, gradients and optimizer
    states: all dp of them; with ``hybrid_sharding`` the largest divisor of dp, more than one, whose tensor groups fit
    every node together; and what is asked for, under ZeRO-1 (optimizer states) too where that is fixed. Groups of fewer
    than dp replicas are priced by the latency model ``step`` alone, where memory is a sum of terms;
(8) where recompute is not chosen by stage, a candidate has one recompute that all its stages share, each that (5)
    allows; where it is, every stage chooses for itself and ``uniform_recompute`` is empty;
(9) pipelines of more than one stage take the ZeRO stages of ``pipeline_zero`` where it is given.
(10) cp context ranks are at most ``max_cp``, and 2 cp divides every sequence, of which each rank has a piece from both
    ends, so that all have like work under a causal mask. Tensor groups then lie in a node, and blocks of tp cp devices
    fit the nodes as tensor groups do in (3). They are priced by the latency model ``step`` alone, where memory is a sum
    of terms, and have no groups of replicas with a copy each. They share attention in each way of ``cp_comm`` that
    suits the heads, but those that another one is never slower than (``taut.formulations.tables.context_kinds``).
(11) ep expert ranks are at most ``max_ep``, divide the experts of every layer that has some, and have one tensor rank
    each or all tp of them: etp = 1 or tp. Expert groups and blocks are those of ``taut.formulations.degrees`` (1), fit
    the nodes as tensor groups do in (3), and tensor groups lie in a node. Tensor ranks share what lies between their
    parts (``sequence_parallel``). Where ep is 1 all experts are split over tensor ranks; elsewhere candidates have
    ZeRO-1, or ZeRO-0 where 1 is not in the space or 0 is fixed, or ZeRO-2 or 3, whose copies hold whole expert groups
    (degrees (3)), and then no exchange beside another micro-batch, (14), all of ``expert_zero`` where it is given, and
    etp = 1 unless ``expert_tensor``. They are priced as in (10).

(12) the layers have a division into its chunks that ``divisions`` states (``taut.formulations.divisions``), and plans
    have such a one.
(13) with ``empty_ends`` and ``layout`` among the divisions, candidates of a model with a vocabulary that have several
    chunks a device, or several stages where ``empty_ends`` is fixed, divide the embedding, the layers and the head: the
    first chunk may have the embedding alone, and the last the head, so that pp * vpp <= L + 2.
(14) where exchanges overlap another micro-batch, they do in candidates with several expert ranks whose passes alternate
    between micro-batches: interleaved 1F1B, and one stage with more than one micro-batch. Their layers with experts are
    alike, and recompute is neither full nor of the module ``moe``.
(15) with ``optimizer_offload`` every candidate is there with each share of its optimizer states in the host's memory
    that goes with its ZeRO stage, or any where one device holds the weights.
(16) with ``uneven_batch`` there is, beside a candidate, one whose replicas divide the g / micro_batch micro-batches of
    a step unevenly: every replica is on one type of device and runs one micro-batch or more, m in the mean. It is there
    where the cluster has several types, whose devices make whole pipelines each (pp tp cp divides their number), under
    1F1B with m >= pp and m > 1, so that stages hold what they hold with m, with ZeRO-0 or 1 and ep = 1, as other ranks
    would exchange something with every micro-batch. It is priced as in (10). Gradients are averaged over samples: a
    replica's count by its micro-batches.
(17) with ``activation_offload`` candidates are there with each share of their activations, or of ``offload_modules``',
    in the host's memory, those above none where no schedule splits the backward pass, whose gradients by the weights
    keep what came back, with its recompute and pipelines, priced as in (10).

Of choices that are equal by definition one stands for all: one stage is scheduled as 1f1b, one replica has ZeRO-0,
one tensor rank has no sequence parallelism. Stages, recompute per stage and placement are decided inside a candidate.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from taut.data.costs import RECOMPUTE, Module, OffloadModule, Recompute
from taut.data.layers.dispatch import USUAL_DISPATCH, DispatchSpec
from taut.data.spec import Spec
from taut.data.stack import ANY_DIVISION, ContextKind, Form, Schedule, ZeroStage
from taut.data.suggest import one_of
from taut.formulations.degrees import BlockShape
from taut.formulations.schedules.plan_orders import ORDER_PRICED, GivenOrder
from taut.formulations.tables.host_shares import ActivationOffload, OptimizerOffload

MOST_SEQUENCES = 10_000_000
FIXABLE = (
    *("pp", "tp", "cp", "dp", "ep", "etp", "vpp", "micro_batch", "schedule", "zero", "sequence_parallel", "dp_shard"),
    *("cp_comm", "empty_ends", "uneven_batch"),
)
OFFLOADED = "optimizer_offload", "activation_offload"
SELDOM = "order", "dp_shard", "uniform_recompute", "etp", "empty_ends", "uneven_batch", *OFFLOADED
"""Fields of a candidate that are written only where they are given."""
USUAL = (
    *("max_ep", "divisions", "recompute_modules", "cp_comm", "overlap_context", "empty_ends", "expert_zero"),
    *("expert_tensor", "uneven_batch", "offload_modules", *OFFLOADED),
)
"""Fields of a space that are written only where they differ from their default."""
SWITCHES = "sequence_parallel", "empty_ends", "uneven_batch"
"""Fixable fields that are true or false."""
LayersKey = tuple[BlockShape, int, bool, float, bool]


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """
    A candidate: degrees, micro-batch, schedule, ZeRO. Division, recompute and placement are decided inside it.

    ``dp_shard`` replicas share one copy under ZeRO-1 to 3, (7); 0 stands for all replicas. ``uniform_recompute`` is the
    recompute of every stage, (8), or empty if each stage has its own. ``etp`` is 0 if ``ep`` is 1, and then stands for
    tp, (11). ``optimizer_offload`` is the share of the optimizer states in the host's memory if the space has several
    shares, (15), and ``activation_offload`` the share of the activations, (17). With ``uneven_batch`` replicas run
    different numbers of micro-batches, m on average, (16).
    """

    pp: int
    tp: int
    dp: int
    vpp: int
    micro_batch: int
    num_micro_batches: int
    schedule: str
    zero: int
    sequence_parallel: bool
    order: tuple[str, ...] = ()
    dp_shard: int = 0
    uniform_recompute: str = ""
    cp: int = 1
    ep: int = 1
    etp: int = 0
    cp_comm: ContextKind = "p2p"
    empty_ends: bool = False
    optimizer_offload: float = 0.0
    uneven_batch: bool = False
    activation_offload: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Fields as plain values; those that have a default only where they differ from it."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        given = {name: values.pop(name) for name in SELDOM}
        for name in ("cp", "ep"):
            if values[name] == 1:
                del values[name]
        if self.cp == 1:
            del values["cp_comm"]
        return values | {name: list(value) if name == "order" else value for name, value in given.items() if value}

    def __str__(self) -> str:
        more = f" cp={self.cp}" + (f" {self.cp_comm}" if self.cp_comm != "p2p" else "") if self.cp > 1 else ""
        more += f" ep={self.ep} etp={self.etp}" if self.ep > 1 else ""
        text = f"pp={self.pp} tp={self.tp}{more} dp={self.dp} micro_batch={self.micro_batch} {self.schedule}"
        text += f" vpp={self.vpp}" if self.schedule == "interleaved-1f1b" else ""
        text += " adapted" if self.order else ""
        text += (f" zero={self.zero}" if self.zero else "") + (f" dp_shard={self.dp_shard}" if self.dp_shard else "")
        text += (" sp" if self.sequence_parallel else "") + (" uneven batch" if self.uneven_batch else "")
        text += f" offload={self.optimizer_offload:g}" if self.optimizer_offload else ""
        text += f" activation_offload={self.activation_offload:g}" if self.activation_offload else ""
        return text + (f" recompute={self.uniform_recompute}" if self.uniform_recompute else "")

    @property
    def layers_key(self) -> LayersKey:
        """What the prices of layers depend on: beside activations on hosts also what tensor ranks share."""
        away = self.activation_offload
        return self.block, self.micro_batch, self.empty_ends, away, bool(away) and self.sequence_parallel

    @property
    def width(self) -> int:
        """Devices of a block, which run in step (``taut.formulations.degrees`` (2))."""
        return self.block.width

    @property
    def block(self) -> BlockShape:
        """Degrees of a block."""
        return BlockShape(self.tp, self.cp, self.ep, self.etp or self.tp, self.cp_comm)

    @property
    def pipelines(self) -> int:
        """Blocks of a stage: replicas, or where an expert group goes over several of them, so many together."""
        return self.dp * self.tp * self.cp // self.width

    @property
    def of_tensor_groups(self) -> bool:
        """Whether blocks are tensor groups and exchange nothing else."""
        return self.cp == self.ep == 1

    @property
    def needs_step(self) -> bool:
        """Whether ``step`` alone prices it, where memory is a sum of terms."""
        return not self.of_tensor_groups or bool(self.dp_shard or self.uneven_batch or self.activation_offload)

    @property
    def edp(self) -> int:
        """Devices of a stage that hold the same experts."""
        return self.dp * self.tp * self.cp // self.block.experts

    @property
    def dp_cp(self) -> int:
        """Devices of a stage that hold the same weights: replicas times context ranks."""
        return self.dp * self.cp

    @property
    def shards(self) -> int:
        """Devices that share one copy of what is sharded, (7)."""
        return self.dp_shard or self.dp_cp

    @property
    def expert_shards(self) -> int:
        """Devices that share one copy of an expert group's part of the experts."""
        return self.shards * self.tp // self.block.experts

    @property
    def is_order_priced(self) -> bool:
        """Whether the schedule's time is that of its order (``taut.formulations.schedules.plan_orders``)."""
        return self.schedule in ORDER_PRICED

    @property
    def order_key(self) -> tuple[str, int, int, int, tuple[str, ...]]:
        """What the order of the passes depends on (``taut.formulations.schedules.plan_orders``)."""
        return self.schedule, self.pp, self.vpp, self.num_micro_batches, self.order


class StrategySpace(Spec):
    """
    What is varied and what is fixed; the plan carries it, and ``verify`` enumerates it again.

    ``stack`` names the framework (``taut.data.stack``) whose limits the other fields state. ``recompute_modules`` are
    the modules of selective recompute (``taut.data.analytic.recompute_modules``); none stands for the attention core,
    or for what the stack recomputes. ``dispatch`` says how expert ranks exchange tokens, (14). ``overlap_context`` says
    whether steps of a ring of keys and values run during attention (``taut.formulations.tables.block_traffic`` (2)).
    """

    global_batch: Annotated[int, Field(gt=0, le=MOST_SEQUENCES)]
    max_tp: Annotated[int, Field(gt=0)]
    max_cp: Annotated[int, Field(gt=0)] = 1
    max_ep: Annotated[int, Field(gt=0)] = 1
    cp_comm: Annotated[list[ContextKind], Field(min_length=1)] = ["p2p"]
    overlap_context: bool = False
    schedules: list[Schedule] = ["1f1b", "gpipe"]
    max_vpp: Annotated[int, Field(gt=0)] = 4
    max_even_vpp: Annotated[int, Field(ge=0)] = 0
    zero: list[ZeroStage] = [0, 1]
    sequence_parallel: list[bool] = [False, True]
    pipeline_zero: list[ZeroStage] | None = None
    expert_zero: list[ZeroStage] | None = None
    expert_tensor: bool = True
    hybrid_sharding: bool = True
    recompute: list[Recompute] = list(RECOMPUTE)
    recompute_modules: list[Module] = []
    dispatch: DispatchSpec = USUAL_DISPATCH
    recompute_by_stage: bool = True
    divisions: Annotated[list[Form], Field(min_length=1)] = [ANY_DIVISION]
    empty_ends: bool = False
    uneven_batch: bool = False
    stack: str = ""
    fixed: dict[str, int | str | bool] = {}
    orders: list[GivenOrder] = []
    optimizer_offload: list[OptimizerOffload] = []
    activation_offload: list[ActivationOffload] = []
    offload_modules: list[OffloadModule] = []

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values = self.dumped(handler(self), *USUAL)
        if self.dispatch == USUAL_DISPATCH:
            del values["dispatch"]
        return values

    def shares_offloaded(self, zero: int, dp_cp: int) -> list[float]:
        """Shares of the optimizer states that may be in the host's memory, (15); 0 where the space has none."""
        listed = [each.fraction for each in self.optimizer_offload if dp_cp == 1 or zero in each.zero]
        return listed if self.optimizer_offload else [0.0]

    def of_zero(self, allowed: Iterable[ZeroStage]) -> Self:
        """The space with the given ZeRO stages, in pipelines those of them that are there."""
        stages = list(allowed)
        in_pipelines = self.pipeline_zero and [stage for stage in self.pipeline_zero if stage in stages]
        return self.model_copy(update={"zero": stages, "pipeline_zero": in_pipelines})

    @field_validator("fixed")
    @classmethod
    def _known(cls, fixed: dict[str, int | str | bool]) -> dict[str, int | str | bool]:
        for name, value in fixed.items():
            if name not in FIXABLE:
                raise ValueError(f"{name}: unknown name, expected {one_of(name, FIXABLE)}")
            wanted = {"schedule": str, "cp_comm": str, **dict.fromkeys(SWITCHES, bool)}.get(name, int)
            if type(value) is not wanted:
                raise ValueError(f"{name}: is {value!r}, expected a value of type {wanted.__name__}")
        return fixed
