"""Moves along critical paths with times that are no binary fractions: sums round, the outcome must not."""

import numpy as np
import pytest

from taut.formulations.schedules.orders import repeat, v_min
from taut.formulations.schedules.schedule import ScheduleProblem, timetable, v_shape, violations
from taut.solver.schedules.disjunctive_graph import disjunctive_graph, flat_order, improve, schedule_of

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("seed", range(5))
def test_moves_report_the_makespan_that_their_order_has(seed: int) -> None:
    """
    Halves of 10.4, 10.2 and 7.7, and 0.4 between.

    A pass that starts when another ends may seem to start earlier by rounding, when its start is taken from its end.
    """
    chunks = 8
    problem = ScheduleProblem(
        device=v_shape(4),
        forward=np.full(chunks, 5.2),
        input_gradient=np.full(chunks, 5.1),
        weight_gradient=np.full(chunks, 3.85),
        transfer=np.full(chunks - 1, 0.4),
        num_micro_batches=8,
        activation=np.ones(chunks),
        kept_for_weight=np.ones(chunks),
        memory_limit=np.full(4, 4.0),
    )
    start = repeat(problem, v_min(4), "v-min")
    assert violations(problem, start) == ()
    length, order = improve(disjunctive_graph(problem), flat_order(problem, start), 20_000, seed=seed)
    found = schedule_of(problem, order, "improved")
    assert violations(problem, found) == ()
    assert timetable(problem, found).makespan == pytest.approx(length, rel=1e-12)
    assert length <= timetable(problem, start).makespan
