"""Gathers and scatters of sharded weights in ``step``: by hand, by both evaluators."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.calibration import TERMS, Calibration
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.problem import PlanningProblem
from tests.solver.certificate.reference.test_whole_step import CROSSED, PARAMETERS, SLOW, crossed, seconds
from tests.support.small import candidate, cluster, costs, in_order, model, problem, strategy

GATHER, SCATTER = 0.5 * PARAMETERS * 2 / 10e3, 0.5 * PARAMETERS * 4 / 10e3
"""Seconds for a layer on two nodes of a device at 10 kB/s: half of a ring whose factor is 1, 4.9984 and 9.9968 s."""
ALONE = [[[0], [1]]]
SLOWED = Calibration(
    name="slowed", coefficients={term: float(term != "constant") for term in TERMS}, gather_slowdown=0.2
)
"""Stated prices, and kernels that lose a fifth of their pace beside gathers."""


def pair(layer: float) -> PlanningProblem:
    """Two replicas on two nodes at 10 kB/s, and 4 layers of so many seconds forward and twice that backward."""
    nodes = cluster(2, 1, rows=[[0.0, SLOW], [SLOW, 0.0]])
    return problem(nodes, table=costs(model(), devices={"d": layer}), latency_model="step", max_tp=1)


def test_only_the_first_gather_and_the_last_scatter_of_a_pass_show_where_layers_are_long() -> None:
    """Layers of 20 s forward and 40 s backward hide a gather of 5 s and a scatter of 10 s beside them."""
    # A micro-batch: 4 x 60 s; forward the gather of layer 0, backward the gather of layer 3 and the scatter of layer 0.
    choice = candidate(1, 1, 2, m=4, zero=3)
    assert seconds(pair(20.0), choice, (4,), ALONE) == pytest.approx(4 * (240 + 2 * GATHER + SCATTER))


def test_gathers_show_where_layers_are_short() -> None:
    """Layers of 1 s: what gathers and scatters exceed the computation beside them is waited for."""
    # Forward 4 gathers, 3 of them beside the 3 s of the first three layers; backward 4 gathers and scatters, of which
    # a gather and a scatter stand alone, and 8 s of computation hide 8 s of the others.
    forward, backward = 4 * GATHER - 3, 4 * (GATHER + SCATTER) - 8
    choice = candidate(1, 1, 2, m=4, zero=3)
    assert seconds(pair(1.0), choice, (4,), ALONE) == pytest.approx(4 * (12 + forward + backward))


def test_kernels_beside_gathers_are_slower_and_no_pass_is_shorter_than_its_gathers() -> None:
    """At a slowdown of 1/5 what is hidden costs a fifth of itself, and passes of gathers alone take what they took."""
    choice = candidate(1, 1, 2, m=4, zero=3)
    # Beside long layers 3 gathers forward, and 3 gathers and 3 scatters backward; the others stand alone.
    hidden = 3 * (2 * GATHER + SCATTER)
    long, short = (replace(pair(layer), calibration=SLOWED) for layer in (20.0, 1.0))
    assert seconds(long, choice, (4,), ALONE) == pytest.approx(4 * (240 + 2 * GATHER + SCATTER + hidden / 5))
    forward, backward = 4 * GATHER - 3, 4 * (GATHER + SCATTER) - 8
    assert seconds(short, choice, (4,), ALONE) == pytest.approx(4 * (12 + forward + backward))


def test_gradient_shards_scatter_in_every_backward_pass_and_gather_weights_once() -> None:
    """ZeRO-2: a scatter a layer and micro-batch, the first layer's alone; updated weights are gathered at the end."""
    # Short layers: 8 s of computation beside 3 scatters; the gather of 4 layers' weights after the last pass.
    choice = candidate(1, 1, 2, m=4, zero=2)
    assert seconds(pair(1.0), choice, (4,), ALONE) == pytest.approx(4 * (12 + 4 * SCATTER - 8) + 4 * GATHER)
    assert seconds(pair(20.0), choice, (4,), ALONE) == pytest.approx(4 * (240 + SCATTER) + 4 * GATHER)


@pytest.mark.parametrize("zero", [2, 3])
def test_pipelines_scatter_gradients_once_after_the_passes(zero: int) -> None:
    """In a pipeline the longest stage with its gathers sets the pace; gradients are scattered after its last pass."""
    # Stages of 1 and 3 layers of 1 s, m = 4. ZeRO-3 gathers in every pass; a layer alone hides 0 s of its gathers.
    one, three, back, left = 3.0, 9.0, 2.0, SCATTER + GATHER
    if zero == 3:
        one, three, back, left = one + 2 * GATHER, three + (3 * GATHER - 2) + (3 * GATHER - 6), back + GATHER, SCATTER
    # The second stage ends a backward pass of the first and a hop before it, and scatters three layers.
    pipeline = one + 4 * three + 5.12e-6 - back - 1.28e-6
    choice = candidate(2, 1, 2, m=4, zero=zero)
    assert seconds(crossed(), choice, (1, 4), CROSSED) == pytest.approx(pipeline + 3 * left)


def test_copies_gather_inside_their_nodes_and_sum_their_shares_between_them() -> None:
    """Four replicas on two nodes with a copy a node: gathers at 10 GB/s, sums of half of the gradients at 10 kB/s."""
    # Inside a node half of a ring whose factor is 4 (2-1)/2 = 2; between nodes rings of two members, factor 1.
    inside, sums = PARAMETERS / 10e9, 4 * PARAMETERS * 4 / 2 / 10e3
    near = [[[0], [1], [2], [3]]]
    third, second = (candidate(1, 1, 4, m=4, zero=zero, dp_shard=2) for zero in (3, 2))
    # A micro-batch: forward the gather of layer 0, backward that of layer 3 and the scatter of layer 0.
    assert seconds(crossed(), third, (4,), near) == pytest.approx(4 * (12 + 8 * inside) + sums)
    # The scatter of layer 0 alone; at the end the gather of 4 layers' weights in every copy.
    assert seconds(crossed(), second, (4,), near) == pytest.approx(4 * (12 + 4 * inside) + sums + 8 * inside)


def test_copies_that_cross_nodes_gather_slowly() -> None:
    """With each copy on both nodes gathers take 10 kB/s, and sums between copies 10 GB/s."""
    far, choice = [[[0], [2], [1], [3]]], candidate(1, 1, 4, m=4, zero=3, dp_shard=2)
    forward, backward = 4 * GATHER - 3, 4 * (GATHER + SCATTER) - 8
    sums = 2 * 4 * PARAMETERS * 4 / 2 / 10e9
    assert seconds(crossed(), choice, (4,), far) == pytest.approx(4 * (12 + forward + backward) + sums)


def test_the_optimizer_and_memory_are_divided_among_the_replicas_of_a_copy() -> None:
    """Two replicas to a copy hold and update half each, whatever the number of copies."""
    given, placed = crossed(optimizer=1e-6), np.array([[[0], [1], [2], [3]]])
    two, four = strategy(candidate(1, 1, 4, m=4, zero=3, dp_shard=2), 4), strategy(candidate(1, 1, 4, m=4, zero=3), 4)
    assert float(step_time(given, two, placed).optimizer) == pytest.approx(4 * PARAMETERS * 1e-6 / 2)
    # 18 bytes a parameter: halves instead of quarters are 4.5 bytes more.
    assert memory_bytes(given, two)[0] - memory_bytes(given, four)[0] == 4.5 * 4 * PARAMETERS


def test_what_gathers_add_is_part_of_data_parallelism() -> None:
    """The parts of the step time sum to it, and say what gathers add."""
    given, choice = pair(1.0), candidate(1, 1, 2, m=4, zero=2)
    found = step_time(given, strategy(choice, 4), in_order(choice))
    assert float(found.sharding) == pytest.approx(4 * (4 * SCATTER - 8))
    assert float(found.data_parallel) == pytest.approx(float(found.sharding) + 4 * GATHER)
    assert float(found.compute + found.data_parallel) == pytest.approx(float(found.total))


def test_papers_price_all_gathers_after_the_pipeline() -> None:
    """In ``pipette`` nothing hides: m gathers for both passes and scatters follow it."""
    given = replace(pair(20.0), latency_model="pipette")
    found = step_time(given, strategy(candidate(1, 1, 2, m=4, zero=3), 4), np.array(ALONE))
    assert float(found.total) == pytest.approx(4 * 240 + 4 * 4 * (2 * GATHER + SCATTER))
