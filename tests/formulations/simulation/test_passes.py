"""Gathers and scatters of shards beside the operators of a pass."""

from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.passes import KINDS
from taut.formulations.strategy import Strategy
from tests.formulations.simulation.test_graph import both, seconds
from tests.formulations.test_sharding import GATHER, SCATTER, SLOWED, pair
from tests.support.small import candidate, in_order, strategy


def chosen(zero: int) -> Strategy:
    """Two replicas on one stage of 4 layers, 4 micro-batches."""
    return strategy(candidate(1, 1, 2, m=4, zero=zero), 4)


@pytest.mark.parametrize("zero", [2, 3])
def test_long_layers_hide_all_but_the_first_and_the_last(zero: int) -> None:
    """Layers of 20 s hide what is beside them, slowed by it or not, and the closed form is exact."""
    plan, ends = chosen(zero), []
    for calibration in (None, SLOWED):
        found, closed = both(replace(pair(20.0), calibration=calibration), plan, in_order(plan.candidate))
        assert found == pytest.approx(closed, rel=1e-9)
        ends.append(found)
    # Four micro-batches, each with 3 gathers forward and 3 gathers and scatters backward beside layers.
    assert ends[1] - ends[0] == pytest.approx(4 * 3 * ((2 * GATHER if zero == 3 else 0) + SCATTER) / 5)


def test_short_layers_wait_for_their_weights() -> None:
    """Layers of 0.1 s: forward the gathers one after another and the last layer's computation."""
    plan = chosen(3)
    graph = operator_graph(pair(0.1), plan, in_order(plan.candidate))
    start = graph.times()
    forward = start[graph.row[0, 0] : graph.row[0, 1]]
    assert forward[-1] == pytest.approx(4 * GATHER, abs=0.2)
    # Backward 4 gathers and 4 scatters on one stream, and what the first and last layer compute beside none.
    passes = 4 * (4 * GATHER + 4 * (GATHER + SCATTER))
    assert passes < seconds(graph) < passes + 4 * 4 * 0.4


def test_a_gather_starts_no_more_than_a_layer_ahead() -> None:
    """The weights of layer 2 are gathered when layer 1 starts, not before."""
    graph = operator_graph(pair(20.0), chosen(3), np.arange(2).reshape(1, 2, 1))
    start = graph.times()
    mine = slice(graph.row[0, 0], graph.row[0, 1])
    layer, kind = graph.layer[mine], graph.kind[mine]
    gather = start[mine][(kind == KINDS.index("gather weights")) & (layer == 2)][0]
    computes = start[mine][(kind == KINDS.index("forward")) & (layer == 1)][0]
    assert gather == pytest.approx(computes)
    assert computes == pytest.approx(GATHER + 20.0)


def test_a_pass_ends_with_its_last_scatter() -> None:
    """Under ZeRO-2 the next forward pass starts when the gradients of layer 0 are scattered."""
    graph = operator_graph(pair(20.0), chosen(2), np.arange(2).reshape(1, 2, 1))
    start = graph.times()
    # Forward 4 x 20 s, backward 4 x 40 s, and a scatter.
    assert start[graph.row[0, 2]] == pytest.approx(80 + 160 + SCATTER)
