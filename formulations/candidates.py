"""
Candidates of a strategy space, one by one: ``taut.formulations.space`` (1) to (18).

(1) Candidates begin as degrees and micro-batches (``_degrees``), of one stage or under 1F1B, with all replicas alike.
(2) Each expander yields the variants of a candidate by one mechanism, in the order of ``VARIANTS``: an expander reads
    what those before it have chosen.
(3) Candidates that have the fixed values and a price, and lie within runs where the space asks for it, remain.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter

from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable, Key
from taut.data.layers.layer import EMBEDDING, ENCODER, HEAD
from taut.data.model import ModelSpec
from taut.formulations.degrees import BlockShape, context_degrees, divisors, tensor_degrees
from taut.formulations.divisions import families
from taut.formulations.fields import Fixed
from taut.formulations.mechanisms.context_ranks import ContextKinds
from taut.formulations.mechanisms.empty_ends import ENDS
from taut.formulations.mechanisms.expert_ranks import with_expert_ranks
from taut.formulations.mechanisms.sequence_parallel import with_sequence_parallel
from taut.formulations.mechanisms.shards import with_zero
from taut.formulations.runs import is_within
from taut.formulations.schedules.orders import ORDER_PRICED, SPLIT, chunks_of_device, is_defined
from taut.formulations.space import FIELDS, VARIANTS, Candidate, StrategySpace, Workload, fixable_value

Expander = Callable[[Workload, Candidate], Iterator[Candidate]]
Degrees = tuple[int, int, int, int]
"""Tensor, context and expert degree, and micro-batch."""


def candidates(
    space: StrategySpace, model: ModelSpec, cluster: ClusterSpec, costs: CostTable, kinds: ContextKinds | None = None
) -> list[Candidate]:
    """Every candidate of the space, in a fixed order, (1) to (18); ``kinds`` of context ranks may know the links."""
    workload = Workload(space, model, cluster)
    # No expander changes what those before it chose, so candidates without a fixed degree or schedule go at once.
    every = _having(space.fixed, DEGREES, _degrees(workload, kinds or ContextKinds(space, model, cluster)))
    every = _having(space.fixed, SCHEDULE, _expanded(with_schedules, workload, every))
    for expand in (with_divisions, *VARIANTS):
        every = _expanded(expand, workload, every)
    own = _priced(workload, costs, _as_fixed(space, every))
    found = {each for candidate in own for each in with_orders(workload, candidate)} if space.orders else set(own)
    # In the order of the fields, as candidates compare; thousands of comparisons would each make two tuples.
    return sorted(found, key=attrgetter(*FIELDS))


def _expanded(expand: Expander, workload: Workload, every: Iterable[Candidate]) -> Iterator[Candidate]:
    """The variants of all candidates by one expander."""
    for candidate in every:
        yield from expand(workload, candidate)


def _degrees(workload: Workload, kinds: ContextKinds) -> Iterator[Candidate]:
    """Candidates of 1F1B without any sharding at the degrees of pipelines, tensor and context ranks, (1) to (3)."""
    space, model, cluster = workload.space, workload.model, workload.cluster
    most, held = len(model.blocks) + ENDS if space.tied_pipelines or not model.tied_embedding else 1, space.fixed
    for tp in tensor_degrees(model, cluster, space.max_tp, replicated_kv=space.replicated_kv):
        if held.get("tp", tp) != tp:
            continue
        for cp in context_degrees(model, cluster, tp, space.max_cp, mixer_contexts=space.mixer_contexts):
            shared = [*kinds.of(tp, cp)]
            for pp in divisors(cluster.num_devices // tp // cp):
                dp = cluster.num_devices // tp // cp // pp
                if pp > most or space.global_batch % dp or held.get("pp", pp) != pp:
                    continue
                for micro_batch in divisors(space.global_batch // dp):
                    m = space.global_batch // dp // micro_batch
                    for kind in shared:
                        yield Candidate(pp, tp, dp, 1, micro_batch, m, "1f1b", 0, False, cp=cp, cp_comm=kind)


def with_schedules(workload: Workload, candidate: Candidate) -> Iterator[Candidate]:
    """The candidate under every schedule, with every number of chunks a device, (5)."""
    space, pp, layers = workload.space, candidate.pp, len(workload.model.blocks)
    if pp == 1:
        yield candidate
        return
    for schedule in space.schedules:
        if schedule in SPLIT and set(space.recompute) <= {"full"}:
            continue
        if schedule not in ORDER_PRICED:
            yield candidate.changed(schedule=schedule)
        elif is_defined(schedule, pp, candidate.num_micro_batches):
            for vpp in _chunks(space, schedule, pp, layers):
                if pp * vpp <= layers + ENDS:
                    yield candidate.changed(schedule=schedule, vpp=vpp)


def _chunks(space: StrategySpace, schedule: str, pp: int, layers: int) -> list[int]:
    """Chunks that a device may have, (5)."""
    fitting = (layers + ENDS) // pp
    limits = min(space.max_vpp, fitting), min(space.max_even_vpp, fitting)
    usual, most = (chunks_of_device(schedule, limit) for limit in limits)
    even = [vpp for vpp in most if layers % (pp * vpp) == 0 or (layers + 2) % (pp * vpp) == 0]
    return sorted({*usual, *even})


def with_divisions(workload: Workload, candidate: Candidate) -> Iterator[Candidate]:
    """The candidate, if the layers have a division into its chunks, (12)."""
    shape = candidate.schedule, candidate.pp, candidate.vpp
    divisions = families(workload.space.divisions, len(workload.model.blocks), *shape)
    if divisions is None or len(divisions):
        yield candidate


def with_orders(workload: Workload, candidate: Candidate) -> Iterator[Candidate]:
    """The candidate in the schedule's own order, and in every order that is listed for its degrees, (6)."""
    yield candidate
    names = "schedule", "pp", "tp", "micro_batch", "num_micro_batches"
    for given in workload.space.orders:
        if all(getattr(candidate, name) == getattr(given, name) for name in names):
            yield candidate.changed(order=tuple(given.words))


DEGREES, SCHEDULE = ("pp", "tp", "dp", "micro_batch"), ("schedule", "vpp")
"""Fields that ``_degrees`` and ``with_schedules`` decide."""


def _as_fixed(space: StrategySpace, every: Iterable[Candidate]) -> Iterable[Candidate]:
    """The candidates that have all fixed values, within runs where the space asks for it."""
    fixed, seen = space.fixed, space.seen
    if seen is not None:
        every = (candidate for candidate in every if is_within(seen, candidate))
    return _having(fixed, fixed, every)


def _having(fixed: Fixed, names: Collection[str], every: Iterable[Candidate]) -> Iterable[Candidate]:
    """The candidates that have the fixed values of some fields."""
    kept = {name: fixed[name] for name in names if name in fixed}
    if not kept:
        return every
    return (each for each in every if all(fixable_value(each, name, fixed) == v for name, v in kept.items()))


def _priced(workload: Workload, costs: CostTable, every: Iterable[Candidate]) -> Iterator[Candidate]:
    """The candidates that have a price, (4), which depends on few of their degrees."""
    known: dict[tuple[BlockShape, int], bool] = {}
    for candidate in every:
        key = candidate.block, candidate.micro_batch
        if key not in known:
            known[key] = priced(workload.model, workload.cluster, costs, candidate)
        if known[key]:
            yield candidate


def unpriced_degrees(workload: Workload, costs: CostTable) -> tuple[set[Degrees], set[Degrees]]:
    """Degrees of the space without a price, (4), and those with one, before a schedule is chosen."""
    space, model, cluster = workload.space, workload.model, workload.cluster
    every = _having(space.fixed, DEGREES, _degrees(workload, ContextKinds(space, model, cluster)))
    for expand in (with_zero, with_sequence_parallel, with_expert_ranks):
        every = _expanded(expand, workload, every)
    without, having = set[Degrees](), set[Degrees]()
    for block, each in {(each.block, each.micro_batch): each for each in every}.items():
        ranks = each.tp, each.cp, each.ep, block[1]
        (having if priced(model, cluster, costs, each) else without).add(ranks)
    return without - having, having


def priced(model: ModelSpec, cluster: ClusterSpec, costs: CostTable, candidate: Candidate) -> bool:
    """Whether every layer has a cost without recompute at the candidate's degrees on every device type, (4)."""
    tp, micro_batch, cp, ranks = candidate.tp, candidate.micro_batch, candidate.cp, (candidate.ep, candidate.etp)
    edges = [(EMBEDDING, model.blocks[0].seq), (HEAD, model.blocks[-1].seq)] if model.vocab else []
    edges += [(ENCODER, model.encoder.patches)] if model.encoder else []
    layers = [(layer.kind, layer.seq, *(ranks if layer.experts else ())) for layer in model.kinds.values()]
    return all(
        costs.prices(Key(device, kind, tp, micro_batch, seq, "none", cp, *experts))
        for device in cluster.devices
        for kind, seq, *experts in [*layers, *edges]
    )
