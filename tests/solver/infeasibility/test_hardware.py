"""What lacks where hosts are full of activations: by hand, and every size checked by planning with it."""

from dataclasses import replace

import pytest

from taut.data.units import GIB, KIB
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import StrategySpace
from taut.solver.infeasibility.diagnosis import MOST_KIB, diagnose, least_host_room, with_room
from taut.solver.infeasibility.feasibility import least_need
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from tests.solver.bounds.test_activation_offload import on_hosts
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof


def full(room: int, gib: float = 1.0) -> PlanningProblem:
    """Four layers of 100,000 bytes on two devices, all of which go to hosts that have so many bytes for each."""
    spec = model()
    given = cluster(1, 2)
    node = given.nodes[0]
    device = node.device.model_copy(update={"host_link_gbytes": 10.0, "memory_gib": gib})
    node = node.model_copy(update={"device": device, "host_memory_gib": 2 * room / GIB})
    table = costs(spec, activation_bytes=100_000)
    found = problem(given.model_copy(update={"nodes": [node]}), spec, table=table, latency_model="step")
    away = {"activation_offload": [{"fraction": 1.0, "recompute": ["none"]}], "recompute": ["none"]}
    fixed = {"fixed": {"pp": 2, "micro_batch": 1}}
    space = StrategySpace.parse({**found.space.model_dump(mode="json"), **away, **fixed}, "space")
    return replace(found, space=space)


def test_full_hosts_are_named_with_what_lacks() -> None:
    """
    Two stages of two layers with two micro-batches in flight at most: 400,000 bytes, in KiB 391, of which 97 are there.

    A smaller share and larger hosts are ways out, each with a plan that its bound does not exceed.
    """
    given = full(97 * KIB)
    found = diagnose(given, search(given, Limits()))
    assert found.hosts is not None and found.shortfalls == ()
    assert (found.hosts.needed_bytes, found.hosts.room_bytes) == (391 * KIB, 97 * KIB)
    assert f"lacks 0.00 GiB ({294 * KIB} bytes) of the hosts' memory for each GPU" in str(found)
    assert found.as_dict()["hosts"]["missing_bytes"] == 294 * KIB and found.as_dict()["devices"] == []
    words = {remedy.change: remedy.detail for remedy in found.remedies}
    assert words["activation_offload"].endswith("instead of 1")
    assert words["host_memory"].startswith("host_memory_gib 1 instead of 0.000185")
    for remedy in found.remedies:
        planned = search(remedy.problem, Limits())
        assert planned.incumbent is not None and remedy.lower_bound is not None
        assert planned.incumbent.seconds >= remedy.lower_bound * (1 - 1e-9)


def test_devices_that_lack_memory_are_named_before_hosts() -> None:
    """Where no host is large enough, the devices and their bytes are what lacks, though hosts are full too."""
    given = full(97 * KIB, gib=1e-4)
    found = diagnose(given, search(given, Limits()))
    assert found.hosts is None and found.shortfalls
    assert all(short.missing_bytes < GIB for short in found.shortfalls)


@pytest.mark.parametrize("seed", [14, 294])
def test_the_nearest_beside_full_hosts_may_have_an_order(seed: int) -> None:
    """Chunks divide unlike layers more evenly, so the leanest plan is one of interleaved 1F1B."""
    given = on_hosts(seed, few=True)
    away = [each for each in given.space.activation_offload if each.fraction]
    nodes = [
        node.model_copy(update={"host_memory_gib": 1e-9, "device": node.device.model_copy(update={"memory_gib": 1e-4})})
        for node in given.cluster.nodes
    ]
    given = replace(given, space=given.space.model_copy(update={"activation_offload": away}))
    given = replace(given, cluster=given.cluster.model_copy(update={"nodes": nodes}))
    found = diagnose(given, search(given, Limits()), seconds=0.0)
    far = with_room(given, MOST_KIB)
    least = min((least_need(far, each), each.schedule) for each in given.candidates)
    assert found.hosts is None and (max(found.nearest.needed), found.nearest.strategy.candidate.schedule) == least
    assert least[1] == "interleaved-1f1b"


def test_the_least_room_is_where_plans_begin_to_fit() -> None:
    """Of random problems: with the room that is named a plan fits, with a KiB less none does."""
    checked = 0
    for seed in range(400):
        given = on_hosts(seed, few=True)
        if len(given.device_types) > 1 or not given.candidates or any(one.vpp > 1 for one in given.candidates):
            continue
        away = [each for each in given.space.activation_offload if each.fraction]
        if not away:
            continue
        given = replace(given, space=given.space.model_copy(update={"activation_offload": away}))
        given = replace(given, cluster=with_room(given, 0).cluster)
        nodes = [node.model_copy(update={"host_memory_gib": 1e-9}) for node in given.cluster.nodes]
        given = replace(given, cluster=given.cluster.model_copy(update={"nodes": nodes}))
        found = least_host_room(given, lambda: False)
        if found is None:
            continue
        enough, less = (with_room(given, found.needed_bytes // KIB - short) for short in (0, 1))
        assert search(enough, Limits(gap=0.99)).incumbent is not None, seed
        assert search(less, Limits(gap=0.99)).status is Status.INFEASIBLE, seed
        checked += 1
        if checked == 12:
            break
    assert checked == 12
