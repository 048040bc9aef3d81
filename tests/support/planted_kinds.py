"""
Kinds of instance on which planted bugs show: the rung of every bug, and problems on which that rung decides.

A kind names a generator, and what is switched off on it so that the rung decides: on few devices a bound over all
placements would hide what weaker rungs say.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec
from taut.data.layers.encoder import EncoderSpec
from taut.data.model import ModelSpec
from taut.data.units import KIB
from taut.formulations import gradient_reductions
from taut.formulations.latency import memory_bytes
from taut.formulations.mechanisms import muon, offload
from taut.formulations.mechanisms.latency_models import LatencyName
from taut.formulations.problem import MOST_KEPT, PlanningProblem, Recent
from taut.formulations.space import Candidate, beside_chunks
from taut.formulations.tables import block_traffic, memory
from taut.formulations.tables.priced_layers import PricedLayers
from taut.solver.bounds import (
    candidate_bounds,
    communication,
    copies,
    least_rings,
    node_parts,
    pipelines_by_type,
    rack_cases,
    relaxation,
)
from taut.solver.bounds.ring_members import MemberBound
from taut.solver.ladder import chunk_racks, dominance, ladder
from taut.solver.layer_division.divide import solve_partition
from taut.solver.order_priced import bound as order_bounds
from taut.solver.order_priced import capacity, chunk_memory, critical_paths, layer_bounds
from taut.solver.placement.exact import joint, node_sets, node_slots
from taut.solver.placement.path_cover import bound as cover
from taut.solver.placement.path_cover import racks as cover_racks
from taut.solver.result import CandidateBound, Limits
from taut.solver.search import refinement
from taut.solver.search.search import search
from taut.solver.search.standing import Standing
from tests.solver.bounds import test_block_recompute, test_node_parts, test_rack_cases
from tests.solver.ladder import test_chunk_racks, test_node_cases
from tests.solver.order_priced import test_enumeration
from tests.solver.placement.exact import test_node_sets, test_subset
from tests.solver.placement.path_cover import test_rack_cases as test_covered_racks
from tests.solver.test_encoders import drawn as with_images
from tests.support import interleaved
from tests.support.alike import alike_problem
from tests.support.expert_ranks import with_expert_copies, with_expert_ranks, with_expert_shards
from tests.support.instances import random_problem, with_offload
from tests.support.muon import muon_problem
from tests.support.oracle import enumerate_all, enumerate_candidate
from tests.support.planted_bugs import (
    BUGS,
    Instance,
    Patch,
    Tally,
    _changed,
    _method,
    _raised,
    _scaled,
    instances,
    key_of,
    planted,
    tally,
    wherever,
)
from tests.support.small import cluster, costs, model, problem
from tests.support.uneven import uneven_problem
from tests.support.unlike import filling_problem, slow_between_types, unlike_problem

Problems = Iterator[PlanningProblem]


def _first(
    make: Callable[[int], PlanningProblem | None], *, candidates: int = 60, layers: int = 6, devices: int = 4
) -> Problems:
    """Problems of a generator by seed, with few devices, candidates and layers."""
    for given in map(make, count()):
        small = given is not None and given.cluster.num_devices <= devices and len(given.model.blocks) <= layers
        if given is not None and small and 0 < len(given.candidates) <= candidates:
            yield given


def _within(given: PlanningProblem | None, *, latency: LatencyName = "step", **space: Any) -> PlanningProblem | None:
    """The problem with other fields of its space, in ``step``."""
    return given and replace(given, space=given.space.model_copy(update=space), latency_model=latency)


def several_copies(seed: int) -> PlanningProblem:
    """Two nodes of two devices with slow links between, ZeRO-2 or 3, and layers too short to hide gathers."""
    rng = np.random.default_rng(seed)
    slow = float(rng.uniform(0.01, 0.1))
    nodes = cluster(2, 2, rows=[[0.0, slow], [slow, 0.0]])
    spec = model(int(rng.integers(2, 4)))
    table = costs(spec, seconds={"block": float(rng.uniform(1e-5, 1e-3))})
    given = problem(nodes, spec, table=table, latency_model="step", max_tp=1, zero=[2 + seed % 2], recompute=["none"])
    return replace(given, space=given.space.model_copy(update={"fixed": {"dp_shard": 2, "dp": 4}}))


def _contexts(seed: int) -> PlanningProblem | None:
    """A random problem with two context ranks to a block."""
    return _within(random_problem(3 * seed + 1), fixed={"cp": 2})


def _sharded(seed: int, *, copies: bool) -> PlanningProblem | None:
    """A random problem with sharded experts that several devices hold; ``copies``: two replicas have one."""
    given = _within((with_expert_copies if copies else with_expert_shards)(seed, orders=False), recompute=["none"])
    if given is None or given.cluster.num_devices > 4:
        return None
    held = any(each.ep > 1 and each.edp > 1 and (each.dp_shard or not copies) for each in given.candidates)
    return given if held else None


def _two_classes(seed: int) -> PlanningProblem | None:
    """A random problem on two or three types of device with slow links between."""
    fixed = {"pp": 2, "vpp": 1, "schedule": "1f1b"}
    return _within(slow_between_types(unlike_problem(seed), seed), fixed=fixed, recompute=["none"])


def _filled_nodes(seed: int) -> PlanningProblem | None:
    """Two stages and replicas on two nodes of two devices of unlike types."""
    fixed = {"pp": 2, "dp": 2, "vpp": 1, "schedule": "1f1b"}
    return _within(filling_problem(seed, (2, 2)), fixed=fixed, zero=[0, 1], recompute=["none"])


def _alike_nodes(seed: int) -> PlanningProblem | None:
    """Two stages and replicas by AMP's model on two alike nodes of two devices."""
    fixed = {"pp": 2, "dp": 2, "vpp": 1, "schedule": "1f1b"}
    return _within(alike_problem(seed, (2, 2)), latency="amp", fixed=fixed, zero=[0], recompute=["none"])


def _muon(seed: int) -> PlanningProblem | None:
    """Muon in closed form."""
    return _within(muon_problem(seed), schedules=["1f1b"], recompute=["none"], max_cp=1)


def _in_part(seed: int) -> PlanningProblem | None:
    """Recompute of the first layers of every chunk."""
    return test_block_recompute.in_part(seed) if seed % 4 != 2 else None


def _experts(seed: int) -> PlanningProblem | None:
    """Experts on ranks of their own."""
    given = _within(with_expert_ranks(seed, orders=False), recompute=["none"])
    return given if given and any(each.ep > 1 for each in given.candidates) else None


def _hosts(seed: int) -> PlanningProblem | None:
    """Optimizer states on hosts."""
    return with_offload(seed, random_problem(seed))


def _chunks() -> Iterator[Instance]:
    """Interleaved chunks on two to six devices, with layers that differ and little memory, and every plan of them."""
    for seed in chain(test_enumeration.FALSE.values(), count()):
        given, every = interleaved.drawn(seed)
        if every:
            yield Instance(given, {key_of(candidate.as_dict()): plans.optimum for candidate, plans in every})


def _uneven() -> Iterator[Instance]:
    """Replicas that divide the batch unevenly, in every way."""
    for given in _first(partial(uneven_problem, fixed=True)):
        truth = {key_of(each.as_dict()): enumerate_candidate(given, each).seconds for each in given.candidates}
        yield Instance(given, truth)


def _expert_nodes(seed: int) -> PlanningProblem | None:
    """Experts on two nodes with slow links and long waits between, where a first stage of one node may take both."""
    given = test_node_cases.with_experts(seed)
    if len(given.cluster.node_list) > 2:
        return None
    values = given.cluster.model_dump(mode="json")
    values["nodes"][0] |= {"intra_bandwidth_gbps": 8.0, "nic_bandwidth_gbps": None}
    values["network"] |= {"bandwidth_gbps": (0.5, 2.0)[seed % 2], "latency_us": 5000}
    given = replace(given, cluster=ClusterSpec.parse(values, "slow"))
    return _within(given, schedules=["1f1b"], fixed={"pp": 2}, recompute=["none"], max_cp=1, zero=[1], max_tp=2)


def _parts() -> Iterator[Instance]:
    """A candidate of experts on nodes with room beside whole stages, and every placement of it."""
    for seed in count():
        room, nodes, *more = test_node_parts.SHAPES[seed % len(test_node_parts.SHAPES)]
        given, choice = test_node_parts.of_experts(seed, room, nodes, *more)
        yield Instance(given, {key_of(choice.as_dict()): test_node_parts.optimum(given, choice, room, nodes)})


def _pairs(seed: int) -> PlanningProblem | None:
    """Two stages of two replicas on two types of device."""
    given = slow_between_types(unlike_problem(seed), seed)
    return _within(given, fixed={"pp": 2, "dp": 2, "vpp": 1, "schedule": "1f1b"}, recompute=["none"])


def _orders(seed: int) -> PlanningProblem:
    """Two to four stages in an order without a closed form, of a few layers each, with two kinds of recompute."""
    rng = np.random.default_rng((seed, 71))
    pp = 2 + seed % 3
    spec = model(pp + int(rng.integers(1, 3)))
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, float(np.exp(rng.uniform(-9, -6)))))
    links = cluster(pp, 1, nic_gbps=float(rng.choice([0.5, 2.0, 8.0])), latency_us=20.0 * (seed % 2))
    fixed = {"pp": pp, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "zb-h1"}
    batch, kinds = pp * int(rng.integers(1, 4)), ["none", "selective"]
    latency: LatencyName = "step" if seed % 2 else "pipette"
    return problem(
        links, spec, table=table, latency_model=latency, global_batch=batch, fixed=fixed, recompute=kinds, max_tp=1,
        schedules=["zb-h1"],
    )  # fmt: skip


def _dominated(seed: int) -> PlanningProblem:
    """
    Three fast layers of many parameters before two slow ones, with and without ZeRO-1, in scarce memory.

    Gradients take about as long as what the relaxation of two stages leaves out: exact divisions are beaten alone. In
    every second problem the optimizer takes no time, and ZeRO-1 saves bytes alone.
    """
    rng = np.random.default_rng((seed, 73))
    kinds = [("wide", 64)] * 3 + [("narrow", 32)] * 2
    rows = [{"kind": kind, "hidden": hidden, "heads": 4, "seq": 100} for kind, hidden in kinds]
    spec, slow = ModelSpec.parse({"name": "small", "layers": rows}, "small"), float(np.exp(rng.uniform(-9.8, -9.0)))
    table = costs(
        spec, seconds={"narrow": slow, "wide": slow * float(rng.uniform(0.1, 0.3))}, optimizer=1e-12 * (1 - seed % 2)
    )
    latency: LatencyName = "step" if seed % 4 < 2 else "pipette"
    # Three wide layers and a narrow one fit a stage with ZeRO-1 alone, all layers without stages too.
    nodes = cluster(4, 1, memory_gib=2.75e6 / 2**30)
    fixed = {"micro_batch": 1, "schedule": "1f1b"}
    return problem(
        nodes, spec, table=table, latency_model=latency, fixed=fixed, recompute=["none"], max_tp=1, zero=[0, 1]
    )


def _own_if_not_dominated(patch: pytest.MonkeyPatch) -> None:
    """A candidate that a beaten one may dominate is not divided itself."""
    divide = refinement.Refining._partition

    def divided(self: refinement.Refining, bound: CandidateBound, at: Standing) -> bool:
        likely = dominance.likely_dominating(bound.candidate, self._divided)
        if all(self._divided[other][0] < self._best.seconds for other in likely):
            return divide(self, bound, at)
        self._inherit(bound)
        return False

    patch.setattr(refinement.Refining, "_partition", divided)


def _scarce(seed: int) -> PlanningProblem | None:
    """Interleaved and zero-bubble orders where the best plan with ample memory just fits: ZeRO, Muon and experts."""
    draw = (muon_problem, partial(with_expert_shards, orders=False), random_problem)[seed % 3]
    orders: dict[str, Any] = {"schedules": ["interleaved-1f1b", "zb-h1"], "max_vpp": 2, "max_cp": 1}
    given = _within(draw(seed), **orders, recompute=["none"], fixed={"pp": 2})
    if given is None or not 2 < len(given.model.blocks) <= 5 or given.cluster.num_devices > 4:
        return None
    ample = replace(given, cluster=of_memory(given.cluster, 2**20), _shared=Recent(MOST_KEPT))
    best = enumerate_all(ample)
    if best.strategy is None:
        return None
    need = -(-max(memory_bytes(ample, best.strategy)) // KIB)
    whole = given.memory.model_copy(update={"margin": 0.0})
    return replace(ample, cluster=of_memory(given.cluster, need), memory=whole, _shared=Recent(MOST_KEPT))


def of_memory(given: ClusterSpec, kib: int) -> ClusterSpec:
    """The cluster with so much memory on every device."""
    nodes = [
        group.model_copy(update={"device": group.device.model_copy(update={"memory_gib": kib / 2**20})})
        for group in given.nodes
    ]
    return given.model_copy(update={"nodes": nodes})


def _tied(seed: int) -> PlanningProblem | None:
    """First and last stage exchange an embedding."""
    given = random_problem(seed)
    return _within(given, fixed={"schedule": "1f1b", "pp": 2}, max_cp=1) if given.model.tied_embedding else None


def _measured(seed: int) -> PlanningProblem | None:
    """Two tensor ranks, on links measured device by device."""
    return _within(random_problem(seed, measured=True), fixed={"schedule": "1f1b", "tp": 2}, recompute=["none"])


def _in_racks(made: tuple[PlanningProblem, Any, Ints], seed: int) -> PlanningProblem | None:
    """The problem with links that are alike but for a percent in racks, and as much slower between them."""
    given, _, rack = made
    rng, apart = np.random.default_rng((seed, 61)), ~np.equal.outer(rack, rack)
    if not apart.any():
        return None
    rate = 0.05 * rng.uniform(1.0, 1.01, apart.shape) / np.where(apart, float(rng.choice([2.0, 4.0, 30.0])), 1.0)
    values = {**given.cluster.model_dump(), "bandwidth_matrix": {"unit": "GB/s", "rows": rate.tolist()}}
    return replace(given, cluster=ClusterSpec.parse(values, "racks"))


def _racks(seed: int) -> PlanningProblem | None:
    """Stages of whole nodes in racks."""
    return _in_racks(test_rack_cases.racked_problem(seed), seed) if seed % 20 != 19 else None


def _racks_of_chunks(seed: int) -> PlanningProblem | None:
    """Interleaved stages of whole nodes in racks."""
    return _in_racks(test_chunk_racks.racked_problem(seed), seed)


def members(seed: int) -> PlanningProblem:
    """
    Three or four stages of two replicas on nodes of two devices with cards below their links: few layers, much to sum.

    A ring with both of its members on a node has twice the cards there. Pipelines with such stages hop between nodes.
    """
    rng = np.random.default_rng((seed, 51))
    pp, held, dp = (4, 2, 2) if seed % 8 == 7 else (3, 2, 2)
    nodes = pp * dp // held
    spec = model(pp + int(rng.integers(0, 3)), unlike=bool(seed % 3 == 0))
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, float(np.exp(rng.uniform(-11, -7)))))
    links = cluster(nodes, held, nic_gbps=float(rng.choice([0.5, 2.0, 6.0])), latency_us=20.0 * (seed % 2))
    fixed = {"pp": pp, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    batch = dp * int(rng.integers(1, 9))
    return problem(
        links, spec, table=table, latency_model="step", global_batch=batch, fixed=fixed, recompute=["none"], max_tp=1
    )


def _without(*names: str) -> Patch:
    """No bound over placements of these sources."""

    def patch(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(ladder, "RUNGS", _rungs(*names))
        if "COVER" in names:
            wherever(patch, cover, "has_cover", lambda _: lambda *_: False)

    return patch


def _without_weights(patch: pytest.MonkeyPatch) -> None:
    """Of the bounds under an order the layers that devices take within a time, and no weighted paths."""

    def none(divisions: Sequence[Any]) -> order_bounds.OrderBound:
        return order_bounds.OrderBound(seconds=-np.inf, witness={}, divisions=tuple(divisions))

    patch.setattr(order_bounds, "_by_options", lambda _, divisions: none(divisions))
    patch.setattr(order_bounds, "_by_prices", lambda _, divisions, limit: none(divisions))


EXACT = ("EVERY_PLACEMENT", "NODE_SLOTS", "PLACEMENT", "NODE_SETS")
"""Bounds over all placements, which decide on few devices."""


SIZES, LARGE_WORK = (16, 32, 64), 6
"""Nodes of clusters on which plans are not enumerated, and refinements of their searches."""


def large_problem(nodes: int, pp: int, seed: int) -> PlanningProblem:
    """Nodes of one device whose links all differ, in racks of unlike sizes; so many stages, interleaved in one."""
    rng = np.random.default_rng((pp, nodes, seed))
    rack = rng.permutation(np.sort(rng.integers(0, nodes // 6, nodes)))
    rate = np.exp(rng.normal(-3, 0.2, (nodes, nodes))) / np.where(np.equal.outer(rack, rack), 1.0, 6.0)
    spec = model(16)
    return problem(
        cluster(nodes, 1, rows=rate.tolist(), latency_us=20.0),
        spec,
        table=costs(spec, seconds={"block": 2e-4}),
        latency_model="step",
        global_batch=2 * nodes,
        max_tp=1,
        recompute=["none"],
        zero=[0],
        schedules=["1f1b", "interleaved-1f1b"],
        max_vpp=2,
        fixed={"micro_batch": 1, "pp": pp},
    )


def unlike_nodes(nodes: int) -> Iterator[Instance]:
    """The truth of a candidate is a good plan of it, which its own search finds without a bug."""
    for pp, seed in ((2, 0), (2, 1)) if nodes < 32 else ((2, 0), (8, 0), (4, 0)):
        given = large_problem(nodes, pp, seed)
        with planted():
            yield Instance(given, {key_of(each.as_dict()): _good_plan(given, each) for each in given.candidates})


def _good_plan(given: PlanningProblem, candidate: Candidate) -> float:
    """Seconds of a good plan of a candidate."""
    fixed = {**given.space.fixed, "schedule": candidate.schedule, "vpp": candidate.vpp}
    alone = replace(given, space=given.space.model_copy(update={"fixed": fixed}))
    found = search(alone, Limits(work_limit=LARGE_WORK, workers=1)).incumbent
    return found.seconds if found else np.inf


KINDS: dict[str, Callable[[], Iterator[Instance | PlanningProblem]]] = {
    "random": lambda: iter(instances(24)),
    "sharded": lambda: (_zero(each.problem) for each in instances(24)),
    "copies": lambda: map(several_copies, count()),
    "contexts": lambda: _first(_contexts),
    "sharded experts": lambda: _first(partial(_sharded, copies=False), layers=5),
    "copies of experts": lambda: _first(partial(_sharded, copies=True), layers=5),
    "expert ranks": lambda: _first(_experts),
    "two classes": lambda: _first(_two_classes, layers=5),
    "pairs of classes": lambda: _first(_pairs, layers=5),
    "orders": lambda: map(_orders, count()),
    "dominated": lambda: map(_dominated, count()),
    "scarce orders": lambda: _first(_scarce, candidates=12),
    "filled nodes": lambda: _first(_filled_nodes, layers=5),
    "alike nodes": lambda: _first(_alike_nodes, layers=5),
    "tied embeddings": lambda: _first(_tied),
    "measured": lambda: _first(_measured),
    "Muon": lambda: _first(_muon),
    "first layers": lambda: _first(_in_part, candidates=40),
    "images": lambda: _first(lambda seed: with_images(seed, ["1f1b"]), candidates=40),
    "states on hosts": lambda: _first(_hosts, candidates=40),
    "uneven batches": _uneven,
    "ring members": lambda: map(members, count()),
    "racks": lambda: _first(_racks, devices=8),
    "nodes of experts": lambda: _first(_expert_nodes, candidates=12, devices=8),
    "parts of nodes": _parts,
    "racks of chunks": lambda: _first(_racks_of_chunks, layers=8, devices=6),
    "nodes of chunks": lambda: (
        test_chunk_racks.racked_problem(seed, test_node_cases.SHAPES)[0] for seed in count() if seed % 9 < 4
    ),
    "chunks": _chunks,
    "two stages": lambda: map(test_subset.two_stages, count()),
    "node sets": lambda: map(test_node_sets.planned, count()),
    **{f"{nodes} unlike nodes": partial(unlike_nodes, nodes) for nodes in SIZES},
    "covers": lambda: (test_covered_racks.racked_problem(seed)[0] for seed in count() if seed % 20 != 19),
}
"""Instances of every kind, or their problems, by seed."""
BESIDE: dict[str, Patch] = {
    "pairs of classes": _without(*EXACT, "COVER"),
    "two classes": _without(*EXACT, "COVER"),
    "tied embeddings": _without(*EXACT, "COVER"),
    "filled nodes": _without(*EXACT, "COVER"),
    "ring members": _without(*EXACT, "COVER"),
    "racks": _without(*EXACT, "COVER"),
    "nodes of experts": _without(*EXACT, "COVER"),
    "orders": _without_weights,
    "dominated": _own_if_not_dominated,
    "two stages": _without("NODE_SETS"),
    "covers": _without(*EXACT),
}
"""What is switched off on the instances of a kind."""


def _zero(given: PlanningProblem) -> PlanningProblem:
    """The problem with weights and gradients sharded in every candidate with replicas."""
    return replace(given, space=given.space.model_copy(update={"zero": [2, 3]}), latency_model="step")


def known(kind: str, number: int) -> list[Instance]:
    """The first instances of a kind, whose truth is enumerated once for all bugs."""
    made = _KNOWN.setdefault(kind, [])
    for each in islice(KINDS[kind](), len(made), number):
        made.append(each if isinstance(each, Instance) else Instance(each))
    return made[:number]


_KNOWN: dict[str, list[Instance]] = {}


def _by(**values: Callable[[Any], Any]) -> Callable[..., Any]:
    """A change of some fields of a result, where there is one."""
    return lambda found, *_: found and replace(found, **{key: make(found) for key, make in values.items()})


def _shared(name: str) -> Patch:
    """Candidates count as alike that differ in a field."""
    alike = beside_chunks
    return lambda patch: patch.setattr(
        ladder, "beside_chunks", lambda candidate: alike(candidate.changed(**{name: type(getattr(candidate, name))()}))
    )


def _setting(home: Any, name: str, value: Any) -> Patch:
    return lambda patch: patch.setattr(home, name, value)


def _rungs(*names: str) -> tuple[ladder.Rung, ...]:
    return tuple(rung for rung in ladder.RUNGS if rung.source.name not in names)


def _one_pipeline_for_all(stages: Any, comm: Any, limit: float, firsts: Any = ()) -> Any:
    """The exact partition alone."""
    more = {"later": comm.later, "crossing": comm.crossing}
    return solve_partition(stages, comm.edge, comm.tail, limit=limit, **more)


def _no_exchange(found: Any, *_: Any) -> Any:
    return found._replace(inside=0.0, apart=0.0)


def _lost_ways(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cover.CoveredSeconds, "ways_back", lambda *_: 0.0)


def _slow_hops(found: Any, *_: Any) -> Any:
    return replace(found, net=found.hops)


def _dear_rings(found: Any, *_: Any) -> Any:
    return replace(found, rings=2 * found.rings)


def _fewer_hops(patch: pytest.MonkeyPatch) -> None:
    of = node_parts.Packing.of
    patch.setattr(
        node_parts.Packing, "of", lambda self, allowed, most, *steps: of(self, allowed, max(most - 1, 0), *steps)
    )


def _without_shards(patch: pytest.MonkeyPatch) -> None:
    likely = dominance.likely_dominating

    def more(candidate: Candidate, known: Collection[Candidate]) -> Iterator[Candidate]:
        yield from {candidate.changed(zero=0)} & set(known) - {candidate}
        yield from likely(candidate, known)

    wherever(patch, dominance, "likely_dominating", lambda _: more)
    wherever(patch, dominance, "dominates_in_division", lambda _: lambda *_: True)


Row = tuple[str, str, Patch]
"""Rung, kind of instance, and the change of the sources."""
FURTHER: dict[str, Row] = {
    # Prices, memory and candidates of mechanisms.
    "exchanges of experts for nothing": (
        "prices",
        "expert ranks",
        lambda patch: wherever(
            patch, block_traffic, "_traffic", lambda old: lambda priced, a, b, *more: old(priced, a, 0.0, *more)
        ),
    ),
    "host links twice as fast": ("prices", "states on hosts", _scaled(offload, "offloaded_seconds", 0.5)),
    "matrices in equal parts": (
        "prices",
        "Muon",
        _changed(
            muon,
            "assign",
            lambda found, order, size, seconds, amount, ranks: (float(seconds @ amount) / ranks, found[1]),
        ),
    ),
    "experts orthogonalised for nothing": (
        "prices",
        "Muon",
        _changed(muon, "matrices_of", lambda found, *_: [one for one in found if not one.apart]),
    ),
    "buffers without padding": (
        "prices",
        "Muon",
        _method(muon.Matrices, "padding", lambda found, *_: tuple(0 * each for each in found)),
    ),
    "matrices without states": (
        "memory",
        "Muon",
        _changed(muon, "matrix_memory", lambda found, *_: [term for term in found if term.name != "states"]),
    ),
    "ZeRO-1 forgotten beside Muon": (
        "candidates",
        "Muon",
        _changed(muon, "suits_muon", lambda found, each, *_: found and each.zero == 0),
    ),
    "least optimizer tenfold": ("relaxation", "Muon", _scaled(muon, "least_update", 10.0)),
    "all layers kept": ("prices", "first layers", test_block_recompute.BUGS["all layers kept"]),
    "kept layers as checkpoints": ("memory", "first layers", test_block_recompute.BUGS["kept layers as checkpoints"]),
    "candidates of one layer forgotten": (
        "candidates",
        "first layers",
        test_block_recompute.BUGS["candidates of one layer forgotten"],
    ),
    "relaxation of whole recompute": (
        "relaxation",
        "first layers",
        test_block_recompute.BUGS["relaxation of whole recompute"],
    ),
    "sums of an encoder's ranks left out": (
        "prices",
        "images",
        _setting(EncoderSpec, "summed", lambda *_: ((0.0, 0.0), (0.0, 0.0))),
    ),
    "gradients of a frozen encoder reduced": (
        "prices",
        "images",
        _setting(EncoderSpec, "trained_parameters", EncoderSpec.parameters),
    ),
    "weights of an encoder left out": ("memory", "images", _setting(EncoderSpec, "parameters", lambda *_: 0)),
    "recomputed layer of an encoder left out": ("memory", "images", _setting(EncoderSpec, "working", lambda *_: 0)),
    "encoder left out of the first stage": (
        "prices",
        "images",
        _setting(PricedLayers, "_with_images", lambda _, one, key: one),
    ),
    # Relaxation and what alike candidates share.
    "slowest stage on unlike devices +50 %": ("balance", "two classes", _scaled(relaxation, "mean_stage", 1.5)),
    "slowest stage of the relaxation +20 %": ("relaxation", "random", _scaled(relaxation, "_slowest_stage", 1.2)),
    "alike without regard to ZeRO": ("relaxation", "random", _shared("zero")),
    "alike without regard to sequence parallelism": ("relaxation", "random", _shared("sequence_parallel")),
    "alike chunks lack a MiB more": (
        "order-memory",
        "chunks",
        _changed(chunk_memory, "missing_of_alike", lambda found, *_: [missing + 2**20 for missing in found]),
    ),
    # Dominance.
    "a larger figure dominates": (
        "dominance",
        "dominated",
        lambda patch: wherever(patch, dominance, "_none_is_larger", lambda old: lambda some, others: old(others, some)),
    ),
    "ZeRO-0 dominates ZeRO-1": ("dominance", "dominated", _without_shards),
    # Exact division of the layers.
    "tied embeddings of bounds ten times as long": (
        "partition",
        "random",
        _changed(
            least_rings,
            "tied_exchange",
            lambda found, *_: found._replace(inside=10 * found.inside, apart=10 * found.apart),
        ),
    ),
    "optimizer of bounds tenfold": ("partition", "random", _scaled(communication, "optimizer_per_parameter", 10.0)),
    "pipelines of a type +20 %": (
        "uneven batches",
        "uneven batches",
        _method(pipelines_by_type._Types, "seconds", lambda found, *_: 1.2 * found),
    ),
    "a micro-batch fewer in time": (
        "uneven batches",
        "uneven batches",
        _changed(pipelines_by_type, "_most", lambda found, *_: max(found - 1, 0)),
    ),
    "rings of members doubled": (
        "ring members",
        "ring members",
        _method(MemberBound, "_ring", lambda found, *_: 2 * found),
    ),
    "a hop more by members": (
        "ring members",
        "ring members",
        _method(MemberBound, "_hops", lambda found, *_: found + 3),
    ),
    "a stop more by members": (
        "ring members",
        "ring members",
        _method(MemberBound, "_stops", lambda found, own, *_: len(own._walks.whole) - 1),
    ),
    "rings between racks doubled": (
        "racks",
        "racks",
        _changed(rack_cases, "rack_cases", _by(ring=lambda found: 2 * found.ring)),
    ),
    "a crossing more": (
        "racks",
        "racks",
        _changed(rack_cases, "rack_cases", _by(crossings=lambda found: found.crossings + 1)),
    ),
    "cases of racks left out": (
        "racks",
        "racks",
        _changed(rack_cases, "rack_cases", _by(crossings=lambda found: found.crossings[-1:])),
    ),
    "ways back between racks forgotten": (
        "racks",
        "racks",
        _changed(rack_cases, "rack_cases", _by(before=lambda found: found.whole)),
    ),
    "first stages between racks tenfold": (
        "racks",
        "racks",
        _changed(rack_cases, "rack_cases", _by(spanning=lambda found: 10 * found.spanning)),
    ),
    "a crossing of nodes more": (
        "nodes of experts",
        "nodes of experts",
        _changed(rack_cases, "crossings_of_nodes", lambda found, *_: found + 1),
    ),
    "rings of parts +20 %": (
        "parts of nodes",
        "parts of nodes",
        _changed(
            node_parts,
            "node_parts",
            _by(seconds=lambda found: 1.2 * found.seconds, unhidden=lambda found: 1.2 * found.unhidden),
        ),
    ),
    "the widest kind of parts left out": (
        "parts of nodes",
        "parts of nodes",
        _changed(node_parts, "node_parts", lambda found, *_: found and test_node_parts.without_kind(found)),
    ),
    "a node more for parts": (
        "parts of nodes",
        "parts of nodes",
        _changed(node_parts, "node_parts", _by(nodes=lambda found: found.nodes + 1)),
    ),
    "a hop fewer between parts": ("parts of nodes", "parts of nodes", _fewer_hops),
    # Schedules that are priced by their order.
    "a staircase one pass too long": ("order", "chunks", test_enumeration._staircase),
    "bytes beside forgotten": ("order", "chunks", test_enumeration._beside),
    "one case of differing layers": ("order", "chunks", test_enumeration._one_case),
    "a case of differing layers left out": ("order", "chunks", test_enumeration._fewer_cases),
    "one layer too few": ("order", "chunks", test_enumeration._layers(-1)),
    "a parameter of orders takes 2 % more": (
        "order-memory",
        "scarce orders",
        _scaled(memory, "bytes_of_each", 1.02),
    ),
    "one layer too few by memory": ("order-memory", "chunks", test_enumeration._fewer_by_memory),
    "rounds of a mixture longer": (
        "order",
        "chunks",
        _changed(layer_bounds, "mix", lambda found, *_: found._replace(forward=1.2 * found.forward)),
    ),
    "reductions of chunks half as long again": (
        "order",
        "chunks",
        _changed(gradient_reductions, "least_reduction", lambda found, *_: found._replace(slope=1.5 * found.slope)),
    ),
    "path before a device doubled": ("order", "orders", _scaled(capacity, "_before", 2.0)),
    "a pass more before a device": (
        "order",
        "orders",
        lambda patch: wherever(
            patch,
            capacity,
            "_before",
            lambda old: lambda devices, device, path: old(devices, device, path._replace(passes=path.passes + 1)),
        ),
    ),
    "ten hops more to a device": (
        "order",
        "orders",
        _changed(critical_paths, "device_path", lambda found, *_: found._replace(transfers=found.transfers + 10)),
    ),
    "busiest device +20 %": ("relaxation", "chunks", _scaled(relaxation, "_busiest", 1.2)),
    "hops of chunks between racks tenfold": (
        "racks of chunks",
        "racks of chunks",
        _changed(chunk_racks, "chunk_racks", _by(hop=lambda found: 10 * found.hop)),
    ),
    "hops of chunks between nodes tenfold": (
        "nodes of chunks",
        "nodes of chunks",
        _changed(chunk_racks, "chunk_racks", _by(hop=lambda found: 10 * found.hop)),
    ),
    "a hop of chunks more": (
        "nodes of chunks",
        "nodes of chunks",
        _changed(chunk_racks, "chunk_racks", _by(crossings=lambda found: found.crossings + 1)),
    ),
    # Placements.
    "ways back of two stages forgotten": ("placement", "two stages", _setting(joint, "kept_share", lambda *_: 1.0)),
    "rings of the second stage doubled": (
        "placement",
        "two stages",
        lambda patch: wherever(
            patch, joint, "waited_for", lambda old: lambda stages, later, end, ring: old(stages, later, end, 2 * ring)
        ),
    ),
    "node-sets bound +5 %": ("node-sets", "node sets", _changed(node_sets, "solve_by_node_sets", _raised)),
    "ways back of node sets forgotten": ("node-sets", "node sets", _changed(node_sets, "placements_of", _slow_hops)),
    "rings of node sets doubled": ("node-sets", "node sets", _changed(node_sets, "placements_of", _dear_rings)),
    "rings of node slots tenfold": (
        "node-slots",
        "alike nodes",
        _changed(node_slots, "_rings", lambda found, *_: (10 * found[0], *found[1:])),
    ),
    "hops of node slots tenfold": ("node-slots", "alike nodes", _scaled(node_slots, "_mean_hop", 10.0)),
    "ways back of covers forgotten": ("cover", "covers", _lost_ways),
    "covers +5 %": ("cover", "covers", _changed(cover, "cover_bound", lambda found, *_: (1.05 * found[0], *found[1:]))),
    "spanning stages take the slowest link": (
        "cover",
        "covers",
        _changed(cover_racks, "spanning_rate", lambda _, inverse, *more: test_covered_racks.slowest_rate(inverse)),
    ),
}
"""Bugs in mechanisms and bounds that came after the first."""


WHERE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("memory", "random", ("micro-batches in flight overcounted", "bytes of weights halved", "margin forgotten")),
    ("memory", "random", ("logits forgotten in memory", "optimizer divided without ZeRO", "workspace counted twice")),
    ("candidates", "random", ("candidates with pp=2 forgotten", "candidates with ZeRO-1 forgotten")),
    ("prices", "contexts", ("keys and values sent for nothing", "context ranks in rings forgotten")),
    ("prices", "sharded", ("gathers hidden altogether",)),
    ("prices", "sharded experts", ("reductions of experts forgotten", "rings of experts forgotten")),
    ("prices", "copies", ("copies never summed",)),
    ("relaxation", "random", ("relaxation +10 %", "nodes hold half of the groups", "ring of bounds +30 %")),
    ("relaxation", "random", ("core bound takes the slowest link", "hops of bounds +20 %", "forest of bounds +50 %")),
    ("relaxation", "sharded", ("gathers of bounds doubled",)),
    ("relaxation", "sharded experts", ("gathers of experts in bounds tenfold",)),
    ("relaxation", "contexts", ("contexts of bounds at half the rate",)),
    ("partition", "random", ("partition optimum +5 %", "overlap forgotten in bounds", "reductions of bounds +30 %")),
    ("partition", "copies", ("cases of copies +30 %",)),
    ("two classes", "two classes", ("hops between classes tripled", "rings of mixed stages tripled")),
    ("two classes", "two classes", ("an all-slow pipeline beside another +30 %",)),
    ("partition", "filled nodes", ("ten more hops where stage 0 fills its nodes",)),
    ("placement", "two stages", ("subset placement bound +5 %",)),
    ("prices", "two stages", ("slack of later stages counted twice", "gradients' way back forgotten")),
    ("prices", "two stages", ("overlap hides half of every reduction",)),
    ("every-placement", "random", ("every-placement bound +5 %",)),
    ("node-slots", "alike nodes", ("node-slots bound +5 %", "hops between alike nodes ten times as long")),
)
"""Rungs and kinds of the first bugs; others of them are prices, and show on random problems."""
_NAMED = {bug: (rung, kind) for rung, kind, bugs in WHERE for bug in bugs}
ROWS: dict[str, Row] = {
    **{bug: (*_NAMED.get(bug, ("prices", "random")), patch) for bug, patch in BUGS.items()},
    **FURTHER,
}
"""All bugs."""


@contextmanager
def planted_row(bug: str) -> Iterator[None]:
    """Plant a bug of the table for a while."""
    with planted("", ROWS[bug][2]):
        yield


COLUMNS = ("bugs", "shown", "written", "changed", "false", "refused", "beyond", "stopped")
"""Of the table: bugs, those that change something, and the sums of ``Tally``."""


def table(found: Sequence[Tally]) -> str:
    """The tallies in columns by rung, with their sum, and those of every bug."""
    rungs = dict.fromkeys(ROWS[each.bug][0] for each in found)
    groups = {rung: [each for each in found if ROWS[each.bug][0] == rung] for rung in rungs} | {"all": list(found)}
    rows = [f"{'rung':44}" + "".join(f"{name:>9}" for name in COLUMNS)]
    rows += [
        _cells(rung, [len(group), sum(each.changed > 0 for each in group)], group) for rung, group in groups.items()
    ]
    rows += ["", f"{'bug':44}{'':18}" + "".join(f"{name:>9}" for name in COLUMNS[2:])]
    rows += [_cells(f"{each.bug:62}", [], [each]) for each in found]
    return "\n".join(rows)


def _cells(name: str, first: list[int], group: list[Tally]) -> str:
    """A row of the table."""
    sums = [sum(getattr(each, column) for each in group) for column in COLUMNS[2:]]
    return f"{name:44}" + "".join(f"{number:9}" for number in [*first, *sums])


def count_bug(bug: str, number: int, kind: str = "", *, first: int = 0) -> Tally:
    """What becomes of a bug on so many instances of its kind, or of another one."""
    _, own, patch = ROWS[bug]
    kind = kind or own
    found = tally("", known(kind, first + number)[first:], patch, beside=BESIDE.get(kind, lambda _: None))
    return replace(found, bug=bug)


def shown(bug: str, number: int) -> Tally:
    """The same on so many instances, on up to four times as many until a certificate is false."""
    found, first = count_bug(bug, number), number
    while not (found.changed and found.false) and first < 4 * number:
        more = count_bug(bug, 2, first=first)
        sums = {name: getattr(found, name) + getattr(more, name) for name in COLUMNS[2:]}
        found, first = replace(found, **sums), first + 2
    return found


Off = tuple[str, Patch]
"""A kind, and what takes the rung away."""
WITHOUT: dict[str, Off] = {
    "copies": ("copies", _changed(copies, "has_cases", lambda *_: False)),
    "two classes": ("pairs of classes", _setting(candidate_bounds, "_of_every_pipeline", _one_pipeline_for_all)),
    "tied pairs": ("tied embeddings", _changed(least_rings, "tied_exchange", _no_exchange)),
    "uneven batches": ("uneven batches", _method(pipelines_by_type._Types, "seconds", lambda found, *_: 0 * found)),
    "ring members": ("ring members", _setting(candidate_bounds, "has_members", lambda *_: False)),
    "racks": ("racks", _changed(rack_cases, "rack_cases", lambda *_: None)),
    "nodes of experts": ("nodes of experts", _changed(rack_cases, "rack_cases", lambda *_: None)),
    "parts of nodes": ("parts of nodes", _changed(node_parts, "node_parts", lambda *_: None)),
    "dominance": ("dominated", _changed(dominance, "dominates_in_division", lambda *_: False)),
    "path before a device": ("orders", _scaled(capacity, "_before", 0.0)),
    "racks of chunks": ("racks of chunks", _changed(chunk_racks, "chunk_racks", lambda *_: None)),
    "nodes of chunks": ("nodes of chunks", _changed(chunk_racks, "chunk_racks", lambda *_: None)),
    "every-placement": ("measured", _setting(ladder, "RUNGS", _rungs("EVERY_PLACEMENT"))),
    "node-slots": ("alike nodes", _setting(ladder, "RUNGS", _rungs("NODE_SLOTS"))),
    "placement": ("two stages", _setting(ladder, "RUNGS", _rungs("NODE_SETS", "PLACEMENT"))),
    "node-sets": ("node sets", _setting(ladder, "RUNGS", _rungs("NODE_SETS"))),
    "cover": ("covers", _without(*EXACT, "COVER")),
}
"""Rungs that are to decide on their kind."""


def decides(rung: str, number: int, *, work_limit: int = 40) -> int:
    """On how many of the first instances of its kind the lower bound falls without the rung."""
    kind, off = WITHOUT[rung]
    beside, fell = BESIDE.get(kind, lambda _: None), 0
    for instance in known(kind, number):
        bounds = []
        for patches in ((), (off,)):
            with planted("", beside, *patches):
                bounds.append(search(instance.fresh, Limits(work_limit=work_limit, workers=1)).lower_bound)
        assert bounds[0] <= min(instance.truth.values()) * (1 + 1e-9)
        fell += bounds[1] < bounds[0] * (1 - 1e-9)
    return fell


LARGE: tuple[str, ...] = (
    "data-parallel ring halved",
    "transfers at twice the rate",
    "relaxation +10 %",
    "ring of bounds +30 %",
    "hops of bounds +20 %",
    "forest of bounds +50 %",
    "partition optimum +5 %",
    "reductions of bounds +30 %",
    "rings between racks doubled",
    "a crossing more",
    "subset placement bound +5 %",
    "node-sets bound +5 %",
    "covers +5 %",
    "spanning stages take the slowest link",
    "one layer too few",
    "hops of chunks between racks tenfold",
)
"""Bugs that are planted on 16 to 64 unlike nodes too."""


POWER = "false", "refused", "beyond", "stopped", "above", "undercut"
"""Of the table by bug: false certificates, and what samples alone say of false bounds."""


def sizes(number: int) -> str:
    """The same bugs by the size of the cluster, and the power of samples by bug."""
    rows = [f"{'cluster':44}" + "".join(f"{name:>9}" for name in COLUMNS)]
    found = {nodes: [count_bug(bug, number, f"{nodes} unlike nodes") for bug in LARGE] for nodes in SIZES}
    for nodes, group in found.items():
        rows.append(_cells(f"{nodes} unlike nodes", [len(group), sum(each.changed > 0 for each in group)], group))
    rows += ["", f"{'bug, on 16 to 64 unlike nodes':44}" + "".join(f"{name:>9}" for name in POWER)]
    for one in zip(*found.values(), strict=True):
        sums = (sum(getattr(each, name) for each in one) for name in POWER)
        rows.append(f"{one[0].bug:44}" + "".join(f"{each:9}" for each in sums))
    return "\n".join(rows)
