"""Why nothing fits: missing bytes by hand, and every remedy checked by planning with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest

from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.model import ModelSpec
from taut.data.units import GIB, KIB
from taut.formulations.latency import memory_bytes
from taut.formulations.problem import PlanningProblem, Recent
from taut.formulations.space import Candidate
from taut.formulations.tables.memory import stage_memory
from taut.solver.infeasibility import feasibility
from taut.solver.infeasibility.diagnosis import (
    CHANGES,
    Infeasibility,
    Remedy,
    _fewest_nodes,
    _holds,
    _lean,
    _with_memory,
    _with_nodes,
    changes,
    diagnose,
    more_hardware,
)
from taut.solver.infeasibility.feasibility import Fit, best_fit, fits
from taut.solver.result import OPTIMALITY_GAP, Limits, Status
from taut.solver.search.search import search
from tests.support.instances import random_problem
from tests.support.oracle import _placements, _strategies
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof

LAYER = 49_984
"""Parameters of a layer of hidden size 64: 12 x 64^2 + 13 x 64; in bf16 weights, gradients and states take 2, 4, 12."""


def layers(number: int) -> ModelSpec:
    """Layers with one head, which no tensor degree divides."""
    return ModelSpec.parse({"name": "small", "layers": number, "hidden": 64, "heads": 1, "seq": 100}, "small")


def kib(count: int) -> float:
    """GiB of so many KiB."""
    return count * KIB / GIB


def diagnosed(given: PlanningProblem) -> Infeasibility:
    """The diagnosis of a problem that is proven infeasible."""
    result = search(given, Limits())
    assert result.status is Status.INFEASIBLE
    return diagnose(given, result)


def changed(found: Infeasibility) -> list[str]:
    return [remedy.change for remedy in found.remedies]


def holds(remedy: Remedy) -> bool:
    """Whether planning with a remedy finds a plan, none of which is faster than the claimed bound."""
    result = search(remedy.problem, Limits(gap=0.99))
    assert result.incumbent is not None
    assert remedy.lower_bound is None or result.incumbent.seconds >= remedy.lower_bound * (1 - 1e-9)
    return True


def test_only_recompute_helps() -> None:
    """One device, four layers: without recompute 249,984 bytes are missing, with it the model fits."""
    spec = layers(4)
    table = costs(spec, activation_bytes=100_000)
    # 4 x 18 x 49,984 + 4 x 100,000 = 3,998,848 bytes on 3,661 KiB = 3,748,864; selective recompute keeps half of the
    # activations and brings back 50,000: 3,848,848; full keeps a tenth and brings back 90,000: 3,728,848.
    nodes = cluster(1, 1, memory_gib=kib(3661))
    found = diagnosed(problem(nodes, spec, table=table, global_batch=1, recompute=["none"]))
    (short,) = found.shortfalls
    assert (short.missing_bytes, short.needed_bytes, short.capacity_bytes) == (249_984, 3_998_848, 3_748_864)
    assert (short.stage, short.device, short.device_type, short.devices) == (0, 0, "d", 1)
    assert changed(found) == ["recompute", "nodes", "device_memory"]
    assert found.remedies[0].detail == "recompute none or selective or full instead of none"
    # 4 layers of 4 s each under full recompute, against 3 s each.
    assert found.remedies[0].lower_bound == pytest.approx(16)
    assert found.unlimited_bound == pytest.approx(12)
    assert all(map(holds, found.remedies))


def test_only_zero_3_helps() -> None:
    """Nine layers on four devices: no division into stages is as even as the shards of ZeRO-3."""
    # Under ZeRO-3 9 x 18 / 4, twice a layer's weights, and weights and gradients of a layer until they are scattered,
    # 50.5 bytes a layer's parameter, under ZeRO-2 9 x 6 = 54 and those; four stages 3 x 18 = 54. 2,600 KiB hold 53.3.
    nodes = cluster(1, 4, memory_gib=kib(2600))
    found = diagnosed(problem(nodes, layers(9), global_batch=4, recompute=["none"]))
    assert changed(found) == ["zero", "nodes", "device_memory"]
    remedy = found.remedies[0]
    assert (remedy.candidate.zero, remedy.candidate.pp, remedy.candidate.dp) == (3, 1, 4)
    assert remedy.detail == "zero=3 instead of zero=0 or 1"
    assert all(map(holds, found.remedies))
    # The nearest is four stages, the last with three layers: 54 x 49,984, activations of one micro-batch, and two
    # messages of 100 x 64 x 2 bytes.
    (short,) = found.shortfalls
    assert (short.stage, short.device) == (3, 3)
    assert short.needed_bytes == 54 * LAYER + 3 * 1000 + 2 * 12_800
    assert short.missing_bytes == short.needed_bytes - 2600 * KIB


def test_only_zero_3_without_the_margin_helps() -> None:
    """The same with a tenth of the memory kept free: 2,340 KiB hold 47.9 bytes, and neither change alone is enough."""
    given = problem(cluster(1, 4, memory_gib=kib(2600)), layers(9), global_batch=4, recompute=["none"])
    found = diagnosed(replace(given, memory=given.memory.model_copy(update={"margin": 0.1}), _shared=Recent(0)))
    assert changed(found)[0] == "zero+margin"
    assert all(map(holds, found.remedies))


def test_only_a_smaller_micro_batch_helps() -> None:
    """One device and layer: activations of four sequences do not fit, those of one do, those of two would not."""
    table = costs(layers(1), activation_bytes=100_000)
    # 18 x 49,984 = 899,712 bytes and 100,000 a sequence, on 1,000 KiB = 1,024,000.
    nodes = cluster(1, 1, memory_gib=kib(1000))
    given = problem(nodes, layers(1), table=table, global_batch=4, fixed={"micro_batch": 4})
    found = diagnosed(given)
    assert found.shortfalls[0].missing_bytes == 899_712 + 400_000 - 1_024_000
    assert found.remedies[0].detail == "micro_batch=1 instead of micro_batch=4"
    assert changed(found) == ["micro_batch", "nodes", "device_memory"]
    # Two nodes leave two sequences to each, so the fixed micro-batch has no candidate there.
    assert found.remedies[1].detail == "2 such nodes instead of 1, without --fix micro_batch=4"
    assert all(map(holds, found.remedies))


def test_only_more_stages_help() -> None:
    """Four devices and layers with one stage fixed: no ZeRO stage shards as much as four stages do."""
    # 4 x 18 / 4 and twice a layer's weights = 22 bytes a layer's parameter under ZeRO-3; 18 in four stages. 976 KiB
    # hold 19.995.
    nodes = cluster(1, 4, memory_gib=kib(976))
    found = diagnosed(problem(nodes, layers(4), global_batch=4, fixed={"pp": 1}))
    assert changed(found) == ["pipeline_stages", "nodes", "device_memory"]
    assert found.remedies[0].detail == "pp=4 instead of pp=1"
    assert all(map(holds, found.remedies))


def test_larger_tensor_degree_is_priced_beyond_the_given_one() -> None:
    """Where only four tensor ranks hold a layer, costs for that degree are asked for, and no plan fits without it."""
    share = model(1).blocks[0].parameters(4)
    # Four ranks need 18 bytes each of their share, 2 ranks with ZeRO-2 on 2 replicas 10 of theirs; 235 KiB = 240,640.
    assert 18 * share + 4_000 < 240_640 < 10 * model(1).blocks[0].parameters(2)
    nodes, table = cluster(1, 4, memory_gib=kib(235)), costs(model(1))
    narrow = table.model_copy(update={"rows": [row for row in table.rows if row.tp == 1]})
    given = problem(nodes, model(1), table=narrow, global_batch=4, max_tp=1)
    result, asked = search(given, Limits()), []

    def pricing(largest: int) -> CostTable:
        asked.append(largest)
        return table

    found = diagnose(given, result, pricing=pricing)
    assert asked == [4]
    assert found.remedies[0].detail == "tp=4 instead of tp of at most 1"
    assert all(map(holds, found.remedies))
    assert "tensor_degree" not in changed(diagnose(given, result))


@pytest.mark.parametrize("margin", [{"margin": 0.1}, {"margin_gib": 90 * KIB / GIB}])
def test_margin_alone_helps(margin: dict[str, float]) -> None:
    """A layer that fits the whole device but not beside a margin of a tenth, stated as a share or in GiB."""
    # 899,712 + 1,000 bytes on 900 KiB = 921,600, of which 829,440 are free beside the margin.
    given = problem(cluster(1, 1, memory_gib=kib(900)), layers(1), global_batch=1, recompute=["none"])
    found = diagnosed(replace(given, memory=given.memory.model_copy(update=margin)))
    assert changed(found) == ["margin", "device_memory"]
    assert found.remedies[0].detail == "no memory margin instead of 8.58e-05 GiB"
    assert found.shortfalls[0].missing_bytes == 900_712 - 829_440
    assert "less 0.00 GiB of margin" in str(found)
    assert all(map(holds, found.remedies))


def test_changes_that_need_each_other_are_found_together() -> None:
    """With one stage and four sequences a micro-batch fixed, neither alone but both freed fit."""
    table = costs(layers(2), activation_bytes=100_000)
    # Two stages of one layer: 899,712 + 100,000 b + 25,600 b bytes a stage, in flight b = 1 twice on the first:
    # 1,125,312 on 1,110 KiB = 1,136,640; one stage takes 1,799,424 and ZeRO-3 1,099,648 + 200,000 b.
    nodes = cluster(1, 2, memory_gib=kib(1110))
    fixed: dict[str, int | str | bool] = {"pp": 1, "micro_batch": 4}
    found = diagnosed(
        problem(nodes, layers(2), table=table, global_batch=8, fixed=fixed, recompute=["none"], schedules=["1f1b"])
    )
    assert found.remedies[0].change == "micro_batch+pipeline_stages"
    assert found.remedies[0].detail == "pp=2 micro_batch=1 instead of pp=1 micro_batch=4"
    assert all(map(holds, found.remedies))


def test_only_more_nodes_help() -> None:
    """Six layers, two of which fit a device: three nodes of one device do, two do not."""
    # 2 x 18 x 49,984 = 1,799,424 bytes, up to 6 x 1,000 of activations and 25,600 of messages on 1,800 KiB.
    nodes = cluster(1, 1, memory_gib=kib(1800))
    given = problem(nodes, layers(6), recompute=["none"])
    found = diagnosed(given)
    assert changed(found) == ["nodes", "device_memory"]
    assert found.remedies[0].detail == "3 such nodes instead of 1"
    assert all(map(holds, found.remedies))
    fewer = replace(given, cluster=_with_nodes(given.cluster, 2))
    assert search(fewer, Limits()).status is Status.INFEASIBLE


@pytest.mark.parametrize("free_kib", range(600, 2000, 150))
def test_fewest_nodes_are_those_of_a_linear_scan(free_kib: int) -> None:
    """Doubling and bisection over numbers with gaps between them end where a scan of all numbers does."""
    # Batches of 8 sequences and stages of 6 layers leave no candidates on 7, 11, 13, ... nodes of one device.
    given = problem(cluster(1, 1, memory_gib=kib(free_kib)), layers(6), fixed={"micro_batch": 1})
    if _holds(given, 1, bool):
        pytest.skip("fits as it is")
    counts = [count for count in range(2, 65) if _lean(given, count)]
    assert set(range(2, 65)).difference(counts)
    expected = next((count for count in counts if _holds(given, count, bool)), None)
    assert _fewest_nodes(given, bool) == (None if expected is None else (expected, True))


@pytest.mark.parametrize(("number", "expected"), [(100, 100), (60, 60), (128, 128), (129, None)])
def test_many_nodes_are_found_by_bisection(number: int, expected: int | None) -> None:
    """Two nodes, one layer a device: as many nodes as layers, up to 64 times as many as there are."""
    # A layer takes 899,712 bytes, 25,600 of messages, and 200 for each of two micro-batches in flight; a batch of one
    # sequence has a single replica.
    given = problem(cluster(2, 1, memory_gib=kib(910)), layers(number), global_batch=1)
    assert _fewest_nodes(given, bool) == (None if expected is None else (expected, True))


def test_only_larger_devices_help() -> None:
    """One sequence and layer on one device cannot be divided: the device must be larger, to a tenth of a GiB."""
    spec = ModelSpec.parse({"name": "wide", "layers": 1, "hidden": 4096, "heads": 1, "seq": 100}, "wide")
    # 12 x 4096^2 + 13 x 4096 = 201,379,840 parameters of 18 bytes and 1,000 of activations: 3.376 GiB.
    given = problem(cluster(1, 1, memory_gib=2.0), spec, global_batch=1)
    found = diagnosed(given)
    assert found.shortfalls[0].needed_bytes == 201_379_840 * 18 + 1_000
    assert found.shortfalls[0].missing_bytes == 201_379_840 * 18 + 1_000 - 2 * GIB
    assert [remedy.detail for remedy in found.remedies] == ["devices with 3.4 GiB instead of 2 GiB"]
    assert holds(found.remedies[0])
    assert search(replace(given, cluster=_with_memory(given.cluster, 3.3)), Limits()).status is Status.INFEASIBLE


def unlike(kib_of: dict[str, int]) -> ClusterSpec:
    """A node of one device of each type, with so many KiB."""
    plain = cluster(len(kib_of), 1, devices=tuple(kib_of))
    groups = [
        group.model_copy(
            update={"device": group.device.model_copy(update={"memory_gib": kib(kib_of[group.device.name])})}
        )
        for group in plain.nodes
    ]
    return plain.model_copy(update={"nodes": groups})


def test_small_device_among_large_ones_is_named() -> None:
    """Where every stage would fit the larger type, what lacks is what the smaller one has too little."""
    # Of four layers in two stages one at least is on device b: 899,712 bytes, 1,000 of activations of the last stage,
    # 25,600 of messages, on 800 KiB = 819,200. Device a holds four layers.
    given = problem(
        unlike({"a": 5000, "b": 800}),
        layers(4),
        table=costs(layers(4), devices={"a": 1.0, "b": 2.0}),
        global_batch=1,
        recompute=["none"],
        schedules=["1f1b"],
        fixed={"pp": 2},
    )
    found = diagnosed(given)
    (short,) = found.shortfalls
    assert (short.device, short.device_type) == (1, "b")
    assert short.missing_bytes == 899_712 + 1_000 + 25_600 - 819_200
    assert "0.00 GiB (107112 bytes) on device 1 (b, stage" in str(found)
    assert all(map(holds, found.remedies))


def infeasible(count: int, types: int) -> Iterator[tuple[int, PlanningProblem, Infeasibility]]:
    """Random infeasible problems with at most so many device types, with their diagnosis."""

    def drawn() -> Iterator[tuple[int, PlanningProblem, Infeasibility]]:
        for seed in range(1000):
            given = smaller(random_problem(seed), np.random.default_rng((seed, 2)).uniform(0.4, 0.95))
            if not given.candidates or len(given.device_types) > types:
                continue
            if not any(fits(given, candidate) for candidate in given.candidates):
                result = search(given, Limits())
                if result.status is Status.INFEASIBLE:
                    yield seed, given, diagnose(given, result)

    return islice(drawn(), count)


def smaller(given: PlanningProblem, share: float) -> PlanningProblem:
    """The problem with a share of every device's memory."""
    groups = [
        group.model_copy(
            update={"device": group.device.model_copy(update={"memory_gib": share * group.device.memory_gib})}
        )
        for group in given.cluster.nodes
    ]
    return replace(given, cluster=given.cluster.model_copy(update={"nodes": groups}))


@pytest.mark.parametrize("number", [5, pytest.param(25, marks=pytest.mark.long)])
def test_missing_bytes_equal_enumeration(number: int) -> None:
    """Random infeasible problems of one and two types: no division or placement lacks less than the nearest."""
    for seed, given, found in infeasible(number, types=2):
        tried = [_least_by_enumeration(given, candidate) for candidate in given.candidates]
        assert found.shortfalls[0].missing_bytes == min(tried), seed
        assert found.shortfalls[0].missing_bytes == max(found.nearest.missing)
        for short in found.shortfalls:
            nearest = found.nearest.strategy.candidate
            room = stage_memory(given, nearest).budget[given.device_types.index(short.device_type)]
            assert short.needed_bytes - room == short.missing_bytes


def _least_by_enumeration(given: PlanningProblem, candidate: Candidate) -> int:
    """Least worst excess over divisions, recompute and placements."""
    placements = _placements(given, candidate)
    budget = stage_memory(given, candidate).budget
    room = np.unique(budget[given.type_of_node[given.links.node_of[placements]]].min(axis=(-1, -2)), axis=0)
    return min(
        int((np.array(memory_bytes(given, strategy)) - room).max(axis=1).min())
        for strategy in _strategies(given, candidate)
    )


def always(costs: CostTable) -> Callable[[int], CostTable]:
    """The same costs whatever the largest tensor degree."""
    return lambda _: costs


@pytest.mark.parametrize("number", [20, pytest.param(40, marks=pytest.mark.long)])
def test_every_way_out_of_random_problems_holds(number: int) -> None:
    """Planning with a claimed remedy finds a plan within its bound; a single change that is not claimed has none."""
    kinds = set()
    for seed, given, found in infeasible(number, types=3):
        assert found.complete
        for remedy in found.remedies:
            assert holds(remedy), (seed, remedy)
            kinds.add(remedy.change)
        alone = [remedy.change for remedy in found.remedies if "+" not in remedy.change]
        for name, change in CHANGES.items() if len(given.device_types) == 1 else ():
            other = change(given, always(given.costs))
            if other is not None and name not in alone:
                assert search(other, Limits()).status is Status.INFEASIBLE, (seed, name)
        assert [remedy.hardware for remedy in found.remedies] == sorted(remedy.hardware for remedy in found.remedies), (
            seed
        )
    assert {"zero", "margin", "nodes", "device_memory"} <= kinds


def test_states_on_hosts_are_a_way_out_where_hosts_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One device holds twice 4 x 6 x 49,984 bytes but not two and a half times, so half of the states leave it.

    They take 8 bytes at 10 GB/s and 28 at 28.
    """
    monkeypatch.setattr(feasibility, "GAP", OPTIMALITY_GAP)
    nodes = cluster(1, 1, memory_gib=kib(2500))
    given = problem(nodes, layers(4), global_batch=1, latency_model="step")
    assert "optimizer_offload" not in changed(diagnosed(given))
    node = nodes.nodes[0]
    device = node.device.model_copy(update={"host_link_gbytes": 10.0, "host_link_efficiency": 1.0})
    host = {"host_memory_gbytes": 28.0, "host_memory_efficiency": 1.0}
    described = nodes.model_copy(update={"nodes": [node.model_copy(update={"device": device, **host})]})
    found = diagnosed(replace(given, cluster=described, _shared=Recent(0)))
    assert changed(found)[0] == "optimizer_offload"
    assert found.remedies[0].detail == "optimizer-offload-fraction 0.5 instead of 0"
    assert found.remedies[0].lower_bound == pytest.approx(12 + 4 * LAYER * 0.5 * 1.8e-9, rel=1e-9)
    assert holds(found.remedies[0])


def test_sentence_names_stages_and_ways_in_one_line() -> None:
    """Several stages that lack are named with their devices, and remedies with bound and slowdown."""
    given = problem(cluster(1, 4, memory_gib=kib(700)), layers(4), global_batch=4, fixed={"pp": 4})
    words = str(diagnosed(given))
    # Stage 0 of four: 899,712 bytes, four micro-batches of 100 under full recompute, 900 brought back, 25,600 of
    # messages, on 716,800; less in flight on the next ones.
    assert words.startswith(
        "no plan fits: the nearest, pp=4 tp=1 dp=1 micro_batch=1 1f1b, even with the best stages and recompute lacks "
        "0.00 GiB (209812 bytes) on device 0 (d, stage 0), which has 0.000667572 GiB less 0.00 GiB of margin, "
        "0.00 GiB on device 1 (stage 1), 0.00 GiB on device 2 (stage 2) and 0.00 GiB on device 3 (stage 3); "
    )
    # Two nodes share the states among two replicas; 4 stages of 3 s and the hops, m - 1 = 1 straggler more.
    assert "nearest way out: 2 such nodes instead of 1 (at least " in words
    assert " s with unlimited memory); or: devices with 0.1 GiB instead of 0.000667572 GiB (at least " in words
    assert "\n" not in words


def test_interrupt_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C the diagnosis names what lacks and the ways found so far, and says that it is not complete."""
    given = problem(cluster(1, 4, memory_gib=kib(976)), layers(4), global_batch=4, fixed={"pp": 1})
    result = search(given, Limits())
    whole = diagnose(given, result)
    seen = set()
    for patience in range(0, 400, 7):
        pressed = partial(_pressed_after, patience)
        monkeypatch.setattr("taut.solver.infeasibility.diagnosis.interrupt_requested", pressed)
        found = diagnose(given, result)
        assert found.shortfalls == whole.shortfalls
        details = [remedy.detail for remedy in found.remedies]
        assert set(details) <= {remedy.detail for remedy in whole.remedies}
        assert found.complete or "stopped before all were tried" in str(found)
        seen.add((tuple(details), found.complete))
    assert ((), False) in seen
    assert (tuple(remedy.detail for remedy in whole.remedies), True) in seen


def test_the_time_limit_keeps_what_was_found() -> None:
    """Without seconds that are left no way out is tried, which the diagnosis says."""
    given = problem(cluster(1, 4, memory_gib=kib(976)), layers(4), global_batch=4, fixed={"pp": 1})
    result = search(given, Limits())
    cut, whole = diagnose(given, result, seconds=0.0), diagnose(given, result, seconds=1e3)
    assert cut.shortfalls == whole.shortfalls and whole.complete and whole.remedies
    assert not cut.complete and not cut.remedies and "stopped before all were tried" in str(cut)


def test_more_hardware_is_found_however_long_changes_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the limit comes while changes are tried, more nodes and larger devices are known already."""
    given = problem(cluster(1, 4, memory_gib=kib(976)), layers(4), global_batch=4, fixed={"pp": 1})
    result, pressed = search(given, Limits()), list[bool]()

    def endless(*_: object) -> list[Remedy]:
        pressed.append(True)
        return []

    monkeypatch.setattr(f"{diagnose.__module__}.interrupt_requested", lambda: nullcontext(lambda: bool(pressed)))
    monkeypatch.setattr(f"{diagnose.__module__}.changes", endless)
    found = diagnose(given, result)
    assert found.remedies and all(remedy.hardware for remedy in found.remedies) and not found.complete


def test_nodes_that_suffice_are_named_before_their_bound_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the limit comes while their plans are bounded, a candidate that fits is enough."""
    given = problem(cluster(1, 4, memory_gib=kib(976)), layers(4), global_batch=4, fixed={"pp": 1})
    (bounded,) = more_hardware(given, None, lambda: False)
    monkeypatch.setattr(f"{more_hardware.__module__}.best_fit", lambda *_, **__: None)
    (cut,) = more_hardware(given, None, lambda: False)
    assert cut.detail == bounded.detail and cut.lower_bound is None and holds(cut)


def test_a_plan_found_before_the_limit_is_a_way_out() -> None:
    """Wherever a search is cut after its first plan the change counts, without a bound."""
    given = problem(cluster(1, 4), layers(4), global_batch=4)
    found = list[Fit | None]()
    while not found or found[-1] is None or found[-1].lower_bound is None:
        with _pressed_after(len(found)) as pressed:
            found.append(best_fit(given, stop=pressed))
    cut = [fit for fit in found if fit and fit.lower_bound is None]
    assert len(cut) > 1 and found[-len(cut) - 1 : -1] == cut
    assert all(fits(given, fit.candidate) for fit in cut)


def test_changes_without_a_bound_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says that a change whose search was cut off costs less than the others."""
    given = problem(cluster(1, 4, memory_gib=kib(2000)), layers(4), global_batch=4, fixed={"pp": 1, "micro_batch": 4})
    first, *others = changes(given, lambda _: given.costs, bool)
    assert others

    def without(problem: PlanningProblem, stop: Callable[[], bool]) -> Fit | None:
        fit = best_fit(problem, stop=stop)
        return fit and (replace(fit, lower_bound=None) if fit.lower_bound == first.lower_bound else fit)

    monkeypatch.setattr(f"{changes.__module__}.best_fit", without)
    found = changes(given, lambda _: given.costs, bool)
    assert (found[-1].detail, found[-1].lower_bound) == (first.detail, None)


def test_nodes_that_suffice_are_at_hand_before_all_fewer_are_tried() -> None:
    """Cut off while fewer nodes are tried, a doubled number is named, and that fewer may do."""
    given = problem(cluster(1, 1, memory_gib=kib(3000)), layers(16), global_batch=48, fixed={"dp": 1})
    found = _fewest_nodes(given, bool)
    assert found == (6, True)
    named = set[str]()
    for patience in range(200):
        with _pressed_after(patience) as pressed:
            cut = _fewest_nodes(given, pressed)
        assert cut is None or cut == found or (cut[0] > found[0] and not cut[1])
        if cut is not None and not cut[1]:
            with _pressed_after(patience) as pressed:
                (remedy,) = more_hardware(given, None, pressed)
            named.add(remedy.detail)
    assert len(named) == 1 and "such nodes (not all smaller numbers were tried) instead of 1" in named.pop()


@contextmanager
def _pressed_after(patience: int) -> Iterator[Callable[[], bool]]:
    """Ctrl-C that comes after so many questions."""
    asked = 0

    def pressed() -> bool:
        nonlocal asked
        asked += 1
        return asked > patience

    yield pressed
