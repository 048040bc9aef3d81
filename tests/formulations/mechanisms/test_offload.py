"""Seconds of an optimizer whose states are in the host's memory, by hand, and what a device keeps of them."""

from dataclasses import replace

import pytest

from taut.data.cluster import ClusterSpec
from taut.data.memory import MemoryModel
from taut.errors import DataError
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.mechanisms.offload import offloaded_seconds
from taut.formulations.problem import PlanningProblem
from tests.support.small import candidate, cluster, costs, in_order, model, problem, strategy

OWN = 1e-9
"""Seconds of the device's own optimizer for a parameter."""


def hosts(link: float = 10, memory: float = 56) -> ClusterSpec:
    """One node of two devices that reach 10 GB/s to the host each, and of its memory 56 GB/s: 28 GB/s a device."""
    given = cluster(1, 2)
    node = given.nodes[0]
    device = node.device.model_copy(update={"host_link_gbytes": 2 * link, "host_link_efficiency": 0.5})
    host = {"host_memory_gbytes": 4 * memory, "host_memory_efficiency": 0.25}
    node = node.model_copy(update={"device": device, **host})
    return given.model_copy(update={"nodes": [node]})


def test_all_states_on_the_host_by_hand() -> None:
    """8 bytes at 10 GB/s take 0.8 ns, 28 bytes at 28 GB/s 1 ns; the device itself has nothing to update."""
    assert offloaded_seconds(hosts(), "d", 1.0, 5 * OWN) == pytest.approx(0.8e-9 + 1e-9)


def test_device_and_host_update_side_by_side() -> None:
    """At a quarter transfers take 0.2 ns, the host 0.25 ns and the device three quarters of its own time."""
    assert offloaded_seconds(hosts(), "d", 0.25, OWN) == pytest.approx(0.2e-9 + 0.75e-9)
    assert offloaded_seconds(hosts(), "d", 0.25, 0.1 * OWN) == pytest.approx(0.2e-9 + 0.25e-9)
    assert offloaded_seconds(hosts(), "d", 0.0, OWN) == OWN


def test_the_host_with_least_memory_rate_a_device_counts() -> None:
    """A node of the same devices with half the rate: the host's 1 ns become 2 ns."""
    given = hosts()
    slower = given.nodes[0].model_copy(update={"host_memory_gbytes": 112.0})
    both = given.model_copy(update={"nodes": [given.nodes[0], slower]})
    assert offloaded_seconds(both, "d", 1.0, OWN) == pytest.approx(0.8e-9 + 2e-9)


def test_clusters_without_hosts_are_refused() -> None:
    """One line names the cluster and the field, of the device or of the node."""
    given = hosts()
    with pytest.raises(DataError, match="cluster small: device d: host_link_gbytes: missing, expected GB/s"):
        offloaded_seconds(cluster(1, 2), "d", 1.0, OWN)
    bare = given.model_copy(update={"nodes": [given.nodes[0].model_copy(update={"host_memory_gbytes": None})]})
    with pytest.raises(DataError, match="cluster small: node of d: host_memory_gbytes: missing, expected GB/s"):
        offloaded_seconds(bare, "d", 1.0, OWN)


def both(fraction: float) -> tuple[PlanningProblem, PlanningProblem]:
    """A problem, and the same with states on the host."""
    spec = model()
    table = costs(spec, optimizer=OWN)
    plain = problem(hosts(), spec, table=table, latency_model="step")
    memory = plain.memory.model_copy(update={"optimizer_offload_fraction": fraction})
    return plain, replace(plain, memory=memory)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_step_and_memory_by_hand(fraction: float) -> None:
    """Of P parameters a device has P / 2 to update; it keeps (1 - F) of 12 bytes of states for each."""
    (plain, away), choice = both(fraction), candidate(1, 1, 2, m=4, zero=1)
    parameters, chosen = int(plain.tables(choice).parameters[0, -1]), strategy(choice, 4)
    seconds = [float(step_time(given, chosen, in_order(choice)).total) for given in (plain, away)]
    update = {0.5: 0.4e-9 + 0.5e-9, 1.0: 0.8e-9 + 1e-9}[fraction]
    assert seconds[1] - seconds[0] == pytest.approx((update - OWN) * parameters / 2, rel=1e-4)
    states = 12 * parameters // 2
    kept = [memory_bytes(given, chosen)[0] for given in (plain, away)]
    assert kept[0] - kept[1] == states - round((1 - fraction) * states)


def test_formats_of_the_device_do_not_go_with_the_host() -> None:
    """The host's states are in single precision."""
    for name in ("weight_remainders", "half_moments"):
        with pytest.raises(DataError, match=f"{name}: is true, expected false with optimizer_offload_fraction"):
            MemoryModel.parse({name: True, "optimizer_offload_fraction": 0.5}, "memory model")
    plain = MemoryModel()
    assert "optimizer_offload_fraction" not in plain.model_dump()
    assert plain.coefficient("states") == 1.0
