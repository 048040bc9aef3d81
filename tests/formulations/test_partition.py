"""The arrays of the partition problem: classes of device, budgets, tensor rings."""

import numpy as np
import pytest

from taut.data.units import GIB, KIB
from taut.formulations.partition import partition_problem
from tests.support.small import candidate, cluster, costs, model, problem


def test_one_device_type_has_one_pattern() -> None:
    """With equal devices low and high are the seconds of the range."""
    found = partition_problem(problem(cluster(2, 1)), candidate(2, 1, 1))
    assert found.low.shape[0] == 1
    assert found.low[0, 0, 0, 2] == pytest.approx(6.0)
    assert found.high[0, 2, 1, 4] == pytest.approx(3 * 4.0)


def test_two_device_types_have_fast_slow_and_mixed_stages() -> None:
    """Patterns are all fast, all slow, mixed: the mixed one is low as the fast and high as the slow."""
    nodes = cluster(4, 1, devices=("a", "b"))
    given = problem(nodes, table=costs(model(), devices={"a": 1.0, "b": 3.0}))
    found = partition_problem(given, candidate(2, 1, 2, m=4))
    assert found.low[:, 0, 0, 1].tolist() == pytest.approx([3.0, 9.0, 3.0])
    assert found.high[:, 0, 0, 1].tolist() == pytest.approx([3.0, 9.0, 9.0])
    assert found.slow_groups == 2


def test_recompute_outside_the_space_is_infinite() -> None:
    """A recompute that the space does not list cannot be chosen."""
    found = partition_problem(problem(cluster(2, 1), recompute=["none"]), candidate(2, 1, 1))
    assert np.isinf(found.low[0, 1:, 0, 1]).all()


def test_tensor_ring_at_the_best_node_is_in_the_seconds() -> None:
    """Ranges carry the all-reduces over the best group that a node of the type offers."""
    # 4 all-reduces x 1.28 us at 10 GB/s.
    found = partition_problem(problem(cluster(1, 2)), candidate(1, 2, 1))
    assert found.low[0, 0, 0, 1] == pytest.approx(3.0 + 4 * 1.28e-6)


def test_margin_is_kept_free_only_when_asked() -> None:
    """Without the margin the budget is the whole capacity."""
    given = problem(cluster(2, 1))
    memory = given.memory.model_copy(update={"margin": 0.25})
    tight = type(given)(given.model, given.cluster, given.costs, memory, given.space)
    choice = candidate(2, 1, 1)
    kept, whole = partition_problem(tight, choice), partition_problem(tight, choice, margin=False)
    assert kept.budget.tolist() == [0.75 * 2**30]
    assert whole.budget.tolist() == [2**30]


def test_the_step_of_the_optimizer_keeps_a_range_off_the_smaller_type() -> None:
    """
    A layer of 49,984 parameters takes 2 + 4 + 8 bytes for each, and 8 more of moments in single precision in the step.

    These 1,099,648 bytes exceed the 1,000 KiB of b, which what the passes hold (725,376 of it whatever is in flight)
    does not; they fit a's.
    """
    nodes = cluster(2, 1, devices=("a", "b"))
    sizes = {"a": 5000, "b": 1000}
    groups = [
        group.model_copy(
            update={"device": group.device.model_copy(update={"memory_gib": sizes[group.device.name] * KIB / GIB})}
        )
        for group in nodes.nodes
    ]
    given = problem(nodes.model_copy(update={"nodes": groups}), table=costs(model(), devices={"a": 1.0, "b": 2.0}))
    memory = given.memory.model_copy(update={"half_moments": True})
    tight = type(given)(given.model, given.cluster, given.costs, memory, given.space)
    found = partition_problem(tight, candidate(2, 1, 1))
    assert found.need[1, 0, 0, 1] == 49_984 * (2 + 4 + 8 + 8) > found.budget[1]
    assert found.fixed[0, 0, 1] + found.activation[0, 0, 1] < found.budget[1]
    assert np.isfinite(found.low[0, 0, 0, 1]) and np.isinf(found.low[1:, :, 0, 1]).all()
