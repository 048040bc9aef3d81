"""Candidates of a strategy space, one by one: ``taut.formulations.space`` (1) to (17)."""

from collections.abc import Iterator
from dataclasses import fields, replace
from operator import attrgetter

from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE, CostTable, Key, Recompute
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.data.stack import ANY_DIVISION, ContextKind
from taut.formulations.degrees import BlockShape, context_degrees, divisors, expert_degrees, tensor_degrees
from taut.formulations.divisions import families
from taut.formulations.schedules.plan_orders import ORDER_PRICED, SPLIT, GivenOrder, chunks_of_device, is_defined
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.tables.context_kinds import ContextKinds


def candidates(
    space: StrategySpace,
    model: ModelSpec,
    cluster: ClusterSpec,
    costs: CostTable,
    kinds: ContextKinds | None = None,
) -> list[Candidate]:
    """
    Every candidate of the space, in a fixed order, (1) to (17).

    ``kinds`` of context ranks know the links; by default they leave out nothing on account of these.
    """
    own = [*_priced(space, model, cluster, costs, ContextKinds(space, model, cluster) if kinds is None else kinds)]
    adapted = (_in_order(choice, given) for given in space.orders for choice in own if _suits(choice, given))
    # In the order of the fields, as candidates compare; thousands of comparisons would each make two tuples.
    return sorted({*own, *adapted}, key=attrgetter(*(field.name for field in fields(Candidate))))


def _priced(
    space: StrategySpace, model: ModelSpec, cluster: ClusterSpec, costs: CostTable, kinds: ContextKinds
) -> Iterator[Candidate]:
    """The candidates that are allowed and have a price, (4), which depends on few of their degrees."""
    known: dict[tuple[BlockShape, int], bool] = {}
    for choice in _all(space, model, cluster, kinds):
        if _allowed(choice, space):
            key = choice.block, choice.micro_batch
            if key not in known:
                known[key] = priced(model, cluster, costs, choice)
            if known[key]:
                yield choice


def _suits(choice: Candidate, given: GivenOrder) -> bool:
    """Whether an order is listed for the degrees of a candidate, (6)."""
    names = ("schedule", "pp", "tp", "micro_batch", "num_micro_batches")
    return all(getattr(choice, name) == getattr(given, name) for name in names)


def _in_order(choice: Candidate, given: GivenOrder) -> Candidate:
    return replace(choice, order=tuple(given.words))


def _all(space: StrategySpace, model: ModelSpec, cluster: ClusterSpec, kinds: ContextKinds) -> Iterator[Candidate]:
    for tp, cp, kind in _blocks(space, model, cluster, kinds):
        for pp in divisors(cluster.num_devices // tp // cp):
            dp = cluster.num_devices // tp // cp // pp
            if pp > len(model.blocks) + 2 * has_empty_ends(space, model, pp, 1) or space.global_batch % dp:
                continue
            for micro_batch in divisors(space.global_batch // dp):
                m = space.global_batch // dp // micro_batch
                for schedule, vpp in _schedules(space, pp, m, model):
                    apart = has_empty_ends(space, model, pp, vpp)
                    degrees = pp, tp, dp, vpp, micro_batch, m, schedule
                    for zero in zero_stages(space, pp, dp * cp):
                        for group in shard_groups(space, cluster, tp, dp, zero) if cp == 1 else [0]:
                            for sharded in _sequence_parallel(space, model, tp * cp if tp > 1 else 1):
                                for recompute in _uniform_recompute(space, schedule):
                                    choice = Candidate(
                                        *degrees,
                                        zero,
                                        sharded,
                                        (),
                                        group,
                                        recompute,
                                        cp,
                                        cp_comm=kind,
                                        empty_ends=apart,
                                    )
                                    every = [choice]
                                    if divides_unevenly(space, cluster, choice):
                                        every.append(replace(choice, uneven_batch=True))
                                    if zero in expert_zero(space, pp, dp * cp) and sharded == (tp > 1):
                                        every += _with_experts(space, model, cluster, choice)
                                    for share in space.shares_offloaded(zero, dp * cp):
                                        for each in every:
                                            yield from _activations_away(space, _away(each, share))


def _away(choice: Candidate, share: float) -> Candidate:
    """The candidate with a share of its optimizer states in the host's memory, (15)."""
    return replace(choice, optimizer_offload=share) if share else choice


def _activations_away(space: StrategySpace, choice: Candidate) -> Iterator[Candidate]:
    """The candidate with each share of its activations in the host's memory, (17)."""
    if not space.activation_offload:
        yield choice
    for each in space.activation_offload:
        if not each.fraction:
            yield choice
        elif choice.schedule not in SPLIT and (each.pipelines or choice.pp == 1):
            found = replace(choice, activation_offload=each.fraction)
            kept = beside_hosts(space, found, recompute_of(space, choice.schedule))
            if choice.uniform_recompute in kept or (kept and not choice.uniform_recompute):
                yield found


def beside_hosts(space: StrategySpace, choice: Candidate, every: tuple[Recompute, ...]) -> tuple[Recompute, ...]:
    """Those kinds of recompute that go with a candidate's share of activations on hosts, (17)."""
    share = choice.activation_offload
    listed = [each.recompute for each in space.activation_offload if each.fraction == share]
    return tuple(name for name in every if name in listed[0]) if share and listed else every


def divides_unevenly(space: StrategySpace, cluster: ClusterSpec, choice: Candidate) -> bool:
    """Whether replicas of a candidate may run different numbers of micro-batches, (16)."""
    m, devices = choice.num_micro_batches, dict.fromkeys(cluster.devices, 0)
    for group in cluster.nodes:
        devices[group.device.name] += group.count * group.gpus_per_node
    whole = all(count % (choice.pp * choice.tp * choice.cp) == 0 for count in devices.values())
    allowed = space.uneven_batch and len(devices) > 1 and whole and not choice.dp_shard
    return allowed and choice.schedule == "1f1b" and choice.zero < 2 and m >= max(choice.pp, 2)


def expert_zero(space: StrategySpace, pp: int, dp_cp: int) -> list[int]:
    """The ZeRO stages beside several expert ranks: 1 takes less than 0 in all, (11)."""
    stages = [zero for zero in zero_stages(space, pp, dp_cp) if space.fixed.get("zero", zero) == zero]
    if space.expert_zero is not None:
        stages = [zero for zero in stages if zero in space.expert_zero]
    return [zero for zero in stages if zero or 1 not in stages]


def _with_experts(
    space: StrategySpace, model: ModelSpec, cluster: ClusterSpec, choice: Candidate
) -> Iterator[Candidate]:
    """The candidate with several expert ranks, (11)."""
    if space.max_ep > 1:
        for shape in expert_degrees(model, cluster, choice.block, choice.dp * choice.width):
            if shape.ep <= space.max_ep and (shape.etp == 1 or space.expert_tensor):
                found = replace(choice, ep=shape.ep, etp=shape.etp)
                kept = beside_overlap(space, model, found, recompute_of(space, choice.schedule))
                hidden = found.zero >= 2 and hides_exchange(space, model, found)
                beside = not hidden and shape.divides_copy(choice.dp_shard)
                if beside and (choice.uniform_recompute in kept or (kept and not choice.uniform_recompute)):
                    yield found


def hides_exchange(space: StrategySpace, model: ModelSpec, choice: Candidate) -> bool:
    """Whether exchanges of a candidate overlap another micro-batch, (14)."""
    alternate = choice.schedule == "interleaved-1f1b" or (choice.pp == 1 and choice.num_micro_batches > 1)
    return space.dispatch.overlap and choice.ep > 1 and alternate and model.has_alike_experts


def beside_overlap(
    space: StrategySpace, model: ModelSpec, choice: Candidate, every: tuple[Recompute, ...]
) -> tuple[Recompute, ...]:
    """Those kinds of recompute that go with a candidate's overlap of exchanges, (14)."""
    if not hides_exchange(space, model, choice):
        return every
    moe = "moe" in space.recompute_modules
    return tuple(name for name in every if name == "none" or (name == "selective" and not moe))


def _blocks(
    space: StrategySpace, model: ModelSpec, cluster: ClusterSpec, kinds: ContextKinds
) -> Iterator[tuple[int, int, ContextKind]]:
    """Tensor and context degrees with how context ranks share attention, (3) and (10)."""
    for tp in tensor_degrees(model, cluster, space.max_tp):
        for cp in context_degrees(model, cluster, tp, space.max_cp):
            for kind in kinds.of(tp, cp):
                yield tp, cp, kind


def zero_stages(space: StrategySpace, pp: int, dp_cp: int) -> list[int]:
    """ZeRO stages at the pipeline degree and devices that hold the same weights, (9)."""
    if dp_cp == 1:
        return [0]
    every = space.zero if pp == 1 or space.pipeline_zero is None else space.pipeline_zero
    return [zero for zero in space.zero if zero in every]


def _uniform_recompute(space: StrategySpace, schedule: str) -> tuple[str, ...]:
    """The recompute that all stages share, or nothing where each chooses its own, (8)."""
    return ("",) if space.recompute_by_stage else recompute_of(space, schedule)


def shard_groups(space: StrategySpace, cluster: ClusterSpec, tp: int, dp: int, zero: int) -> list[int]:
    """Replicas that may share one copy, 0 for all, (7)."""
    if zero not in _sharing(space):
        return [0]
    room = min(group.gpus_per_node for group in cluster.nodes) // tp
    wanted = {int(space.fixed.get("dp_shard", 1))}
    if space.hybrid_sharding and zero >= 2:
        wanted.add(max((s for s in divisors(dp) if s <= room), default=1))
    return [0, *sorted(s for s in wanted if 1 < s < dp and dp % s == 0)]


def _sharing(space: StrategySpace) -> tuple[int, ...]:
    """ZeRO stages that may have several copies: 1 where it is fixed, (7)."""
    return (1, 2, 3) if space.fixed.get("zero") == 1 else (2, 3)


def has_empty_ends(space: StrategySpace, model: ModelSpec, pp: int, vpp: int) -> bool:
    """Whether the first and the last chunk of a candidate may have no layers, (13)."""
    asked = bool(space.fixed.get("empty_ends", vpp > 1))
    return asked and space.empty_ends and pp > 1 and bool(model.vocab) and ANY_DIVISION in space.divisions


def _schedules(space: StrategySpace, pp: int, m: int, model: ModelSpec) -> Iterator[tuple[str, int]]:
    """Schedules with their chunks a device, (5) and (12)."""
    for schedule, vpp in _chunked(space, pp, m, model):
        given = families(space.divisions, len(model.blocks), schedule, pp, vpp)
        if given is None or len(given):
            yield schedule, vpp


def _chunked(space: StrategySpace, pp: int, m: int, model: ModelSpec) -> Iterator[tuple[str, int]]:
    """Schedules with their chunks a device, however the layers are divided."""
    if pp == 1:
        yield "1f1b", 1
        return
    for schedule in space.schedules:
        if schedule in SPLIT and set(space.recompute) <= {"full"}:
            continue
        if schedule not in ORDER_PRICED:
            yield schedule, 1
        elif is_defined(schedule, pp, m):
            for vpp in _chunks(space, schedule, pp, len(model.blocks)):
                if pp * vpp <= len(model.blocks) + 2 * has_empty_ends(space, model, pp, vpp):
                    yield schedule, vpp


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


def _allowed(choice: Candidate, space: StrategySpace) -> bool:
    fixed, shared = space.fixed, choice.zero in _sharing(space)
    others = (_degree(choice, field) == value for field, value in fixed.items() if field != "dp_shard")
    return all(others) and ("dp_shard" not in fixed or (shared and choice.shards == fixed["dp_shard"]))


def _degree(choice: Candidate, field: str) -> object:
    return choice.block.etp if field == "etp" else getattr(choice, field)


def priced(model: ModelSpec, cluster: ClusterSpec, costs: CostTable, choice: Candidate) -> bool:
    """Whether every layer has a cost without recompute at the candidate's degrees on every device type, (4)."""
    tp, micro_batch, cp, apart = choice.tp, choice.micro_batch, choice.cp, (choice.ep, choice.etp)
    edges = [(EMBEDDING, model.blocks[0].seq), (HEAD, model.blocks[-1].seq)] if model.vocab else []
    layers = [(layer.kind, layer.seq, *(apart if layer.experts else ())) for layer in model.kinds.values()]
    return all(
        costs.prices(Key(device, kind, tp, micro_batch, seq, "none", cp, *experts))
        for device in cluster.devices
        for kind, seq, *experts in [*layers, *edges]
    )
