r"""
The strategy space: every candidate that the planner considers.

A candidate is (pp, tp, dp, vpp, micro_batch, schedule, zero, sequence_parallel, order, dp_shard, uniform_recompute,
cp). With D devices, global batch :math:`g` and L layers,

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
    every node together; and what is asked for. Groups of fewer than dp replicas are priced by the latency model
    ``step`` alone, where memory is a sum of terms;
(8) where recompute is not chosen by stage, a candidate has one recompute that all its stages share, each that (5)
    allows; where it is, every stage chooses for itself and ``uniform_recompute`` is empty;
(9) pipelines of more than one stage take the ZeRO stages of ``pipeline_zero`` where it is given.

(10) cp context ranks are at most ``max_cp``, and 2 cp divides every sequence, of which each rank has a piece from both
    ends, so that all have like work under a causal mask. Tensor groups then lie in a node, and blocks of tp cp devices
    fit the nodes as tensor groups do in (3). They are priced by the latency model ``step`` alone, where memory is a sum
    of terms, and have no groups of replicas with a copy each.

Of choices that are equal by definition one stands for all: one stage is scheduled as 1f1b, one replica has ZeRO-0,
one tensor rank has no sequence parallelism. Stages, recompute per stage and placement are decided inside a candidate.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE, CostTable, Key, Recompute
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.data.spec import Spec
from taut.data.stack import Schedule, ZeroStage
from taut.data.suggest import one_of
from taut.errors import FormulationError
from taut.formulations.degrees import context_degrees, divisors, tensor_degrees
from taut.formulations.schedules.plan_orders import ORDER_PRICED, SPLIT, chunks_of_device, is_defined, order_of

MOST_SEQUENCES = 10_000_000
FIXABLE = ("pp", "tp", "cp", "dp", "vpp", "micro_batch", "schedule", "zero", "sequence_parallel", "dp_shard")


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """
    One choice of everything but stages, recompute and placement.

    ``dp_shard`` replicas share one copy under ZeRO-2 and 3, (7); 0 stands for all of them. ``uniform_recompute`` is
    the recompute of every stage, (8), or empty where each stage has its own.
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

    def as_dict(self) -> dict[str, Any]:
        """Fields as plain values; those that have a default only where they differ from it."""
        values = asdict(self)
        given = {name: values.pop(name) for name in ("order", "dp_shard", "uniform_recompute")}
        if self.cp == 1:
            del values["cp"]
        return values | {name: list(value) if name == "order" else value for name, value in given.items() if value}

    def __str__(self) -> str:
        contexts = f" cp={self.cp}" if self.cp > 1 else ""
        text = f"pp={self.pp} tp={self.tp}{contexts} dp={self.dp} micro_batch={self.micro_batch} {self.schedule}"
        text += f" vpp={self.vpp}" if self.schedule == "interleaved-1f1b" else ""
        text += " adapted" if self.order else ""
        text += (f" zero={self.zero}" if self.zero else "") + (f" dp_shard={self.dp_shard}" if self.dp_shard else "")
        text += " sp" if self.sequence_parallel else ""
        return text + (f" recompute={self.uniform_recompute}" if self.uniform_recompute else "")

    @property
    def width(self) -> int:
        """Devices of a block, which tensor and context ranks of one stage and replica share, (10)."""
        return self.tp * self.cp

    @property
    def dp_cp(self) -> int:
        """Devices of a stage that hold the same weights: replicas times context ranks."""
        return self.dp * self.cp

    @property
    def shards(self) -> int:
        """Devices that share one copy of what is sharded, (7)."""
        return self.dp_shard or self.dp_cp

    @property
    def is_order_priced(self) -> bool:
        """Whether the schedule's time is that of its order (``taut.formulations.schedules.plan_orders``)."""
        return self.schedule in ORDER_PRICED

    @property
    def order_key(self) -> tuple[str, int, int, int, tuple[str, ...]]:
        """What the order of the passes depends on (``taut.formulations.schedules.plan_orders``)."""
        return self.schedule, self.pp, self.vpp, self.num_micro_batches, self.order


class GivenOrder(Spec):
    """An order of the passes, as words by device, for a schedule on the V at some degrees, (6)."""

    schedule: Literal["zb-v", "v-half", "v-min"]
    pp: Annotated[int, Field(gt=1)]
    tp: Annotated[int, Field(gt=0)]
    micro_batch: Annotated[int, Field(gt=0)]
    num_micro_batches: Annotated[int, Field(gt=0)]
    words: list[str]

    @model_validator(mode="after")
    def _feasible(self) -> Self:
        try:
            order_of(self.schedule, self.pp, 2, self.num_micro_batches, tuple(self.words))
        except FormulationError as error:
            raise ValueError(str(error)) from None
        return self


class StrategySpace(Spec):
    """
    What is varied and what is fixed; the plan carries it, and ``verify`` enumerates it again.

    ``stack`` names the framework (``taut.data.stack``) whose limits the other fields state.
    """

    global_batch: Annotated[int, Field(gt=0, le=MOST_SEQUENCES)]
    max_tp: Annotated[int, Field(gt=0)]
    max_cp: Annotated[int, Field(gt=0)] = 1
    schedules: list[Schedule] = ["1f1b", "gpipe"]
    max_vpp: Annotated[int, Field(gt=0)] = 4
    max_even_vpp: Annotated[int, Field(ge=0)] = 0
    zero: list[ZeroStage] = [0, 1]
    sequence_parallel: list[bool] = [False, True]
    pipeline_zero: list[ZeroStage] | None = None
    hybrid_sharding: bool = True
    recompute: list[Recompute] = list(RECOMPUTE)
    recompute_by_stage: bool = True
    stack: str = ""
    fixed: dict[str, int | str | bool] = {}
    orders: list[GivenOrder] = []

    @field_validator("fixed")
    @classmethod
    def _known(cls, fixed: dict[str, int | str | bool]) -> dict[str, int | str | bool]:
        for name, value in fixed.items():
            if name not in FIXABLE:
                raise ValueError(f"{name}: unknown name, expected {one_of(name, FIXABLE)}")
            wanted = {"schedule": str, "sequence_parallel": bool}.get(name, int)
            if type(value) is not wanted:
                raise ValueError(f"{name}: is {value!r}, expected a value of type {wanted.__name__}")
        return fixed


def candidates(space: StrategySpace, model: ModelSpec, cluster: ClusterSpec, costs: CostTable) -> list[Candidate]:
    """Every candidate of the space, in a fixed order, (1) to (10)."""
    own = [
        choice
        for choice in _all(space, model, cluster)
        if _allowed(choice, space.fixed) and priced(model, cluster, costs, choice)
    ]
    return sorted(
        {*own, *(_in_order(choice, given) for given in space.orders for choice in own if _suits(choice, given))}
    )


def _suits(choice: Candidate, given: GivenOrder) -> bool:
    """Whether an order is listed for the degrees of a candidate, (6)."""
    names = ("schedule", "pp", "tp", "micro_batch", "num_micro_batches")
    return all(getattr(choice, name) == getattr(given, name) for name in names)


def _in_order(choice: Candidate, given: GivenOrder) -> Candidate:
    return replace(choice, order=tuple(given.words))


def _all(space: StrategySpace, model: ModelSpec, cluster: ClusterSpec) -> Iterator[Candidate]:
    for tp, cp in _blocks(space, model, cluster):
        for pp in divisors(cluster.num_devices // tp // cp):
            dp = cluster.num_devices // tp // cp // pp
            if pp > len(model.blocks) or space.global_batch % dp:
                continue
            for micro_batch in divisors(space.global_batch // dp):
                m = space.global_batch // dp // micro_batch
                for schedule, vpp in _schedules(space, pp, m, len(model.blocks)):
                    degrees = pp, tp, dp, vpp, micro_batch, m, schedule
                    for zero in zero_stages(space, pp, dp * cp):
                        for group in shard_groups(space, cluster, tp, dp) if zero >= 2 and cp == 1 else [0]:
                            for sharded in _sequence_parallel(space, model, tp * cp if tp > 1 else 1):
                                for recompute in _uniform_recompute(space, schedule):
                                    yield Candidate(*degrees, zero, sharded, (), group, recompute, cp)


def _blocks(space: StrategySpace, model: ModelSpec, cluster: ClusterSpec) -> Iterator[tuple[int, int]]:
    """Tensor and context degrees, (3) and (10)."""
    for tp in tensor_degrees(model, cluster, space.max_tp):
        for cp in context_degrees(model, cluster, tp, space.max_cp):
            yield tp, cp


def zero_stages(space: StrategySpace, pp: int, dp_cp: int) -> list[int]:
    """ZeRO stages at the pipeline degree and devices that hold the same weights, (9)."""
    if dp_cp == 1:
        return [0]
    every = space.zero if pp == 1 or space.pipeline_zero is None else space.pipeline_zero
    return [zero for zero in space.zero if zero in every]


def _uniform_recompute(space: StrategySpace, schedule: str) -> tuple[str, ...]:
    """The recompute that all stages share, or nothing where each chooses its own, (8)."""
    return ("",) if space.recompute_by_stage else recompute_of(space, schedule)


def shard_groups(space: StrategySpace, cluster: ClusterSpec, tp: int, dp: int) -> list[int]:
    """Replicas that may share one copy, 0 for all, (7)."""
    room = min(group.gpus_per_node for group in cluster.nodes) // tp
    wanted = {int(space.fixed.get("dp_shard", 1))}
    if space.hybrid_sharding:
        wanted.add(max((s for s in divisors(dp) if s <= room), default=1))
    return [0, *sorted(s for s in wanted if 1 < s < dp and dp % s == 0)]


def _schedules(space: StrategySpace, pp: int, m: int, layers: int) -> Iterator[tuple[str, int]]:
    """Schedules with their chunks a device, (5)."""
    if pp == 1:
        yield "1f1b", 1
        return
    for schedule in space.schedules:
        if schedule in SPLIT and set(space.recompute) <= {"full"}:
            continue
        if schedule not in ORDER_PRICED:
            yield schedule, 1
        elif is_defined(schedule, pp, m):
            yield from ((schedule, vpp) for vpp in _chunks(space, schedule, pp, layers) if pp * vpp <= layers)


def _chunks(space: StrategySpace, schedule: str, pp: int, layers: int) -> list[int]:
    """Chunks that a device may have, (5)."""
    usual, most = chunks_of_device(schedule, space.max_vpp), chunks_of_device(schedule, space.max_even_vpp)
    even = [vpp for vpp in most if layers % (pp * vpp) == 0 or (layers + 2) % (pp * vpp) == 0]
    return sorted({*usual, *even})


def recompute_of(space: StrategySpace, schedule: str) -> tuple[Recompute, ...]:
    """Recompute that a stage may choose under a schedule, in the order of ``RECOMPUTE``, (5)."""
    return tuple(name for name in RECOMPUTE if name in space.recompute and not (name == "full" and schedule in SPLIT))


def _sequence_parallel(space: StrategySpace, model: ModelSpec, width: int) -> list[bool]:
    shards = width > 1 and all(layer.seq % width == 0 for layer in model.kinds.values())
    return space.sequence_parallel if shards else [False]


def _allowed(choice: Candidate, fixed: dict[str, int | str | bool]) -> bool:
    others = (getattr(choice, field) == value for field, value in fixed.items() if field != "dp_shard")
    return all(others) and ("dp_shard" not in fixed or (choice.zero >= 2 and choice.shards == fixed["dp_shard"]))


def priced(model: ModelSpec, cluster: ClusterSpec, costs: CostTable, choice: Candidate) -> bool:
    """Whether every layer has a cost without recompute at the candidate's degrees on every device type, (4)."""
    tp, micro_batch, cp = choice.tp, choice.micro_batch, choice.cp
    edges = [(EMBEDDING, model.blocks[0].seq), (HEAD, model.blocks[-1].seq)] if model.vocab else []
    wanted = [*((layer.kind, layer.seq) for layer in model.kinds.values()), *edges]
    return all(
        costs.prices(Key(device, kind, tp, micro_batch, seq, "none", cp))
        for device in cluster.devices
        for kind, seq in wanted
    )
