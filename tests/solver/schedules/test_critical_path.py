"""Improvement along critical paths: the lengths it claims are the evaluator's, and it never makes an order worse."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.formulations.schedules.orders import gpipe, one_forward_one_backward, repeat, v_min
from taut.formulations.schedules.schedule import ScheduleProblem, timetable, v_shape, violations
from taut.solver.schedules.disjunctive_graph import disjunctive_graph, flat_order, improve, longest_path, schedule_of
from tests.support.schedules import pipeline, pipelines

pytestmark = pytest.mark.proof


def scaled(problem: ScheduleProblem, factor: float) -> ScheduleProblem:
    """The same pipeline with all seconds times a factor, so that sums of floats round."""
    return replace(
        problem,
        forward=problem.forward * factor,
        input_gradient=problem.input_gradient * factor,
        weight_gradient=problem.weight_gradient * factor,
        transfer=problem.transfer * factor,
    )


@settings(max_examples=100)
@given(pipelines(limited=False), st.sampled_from([1.0, 0.1, 1 / 3, 5.21e-3]), st.integers(0, 5))
def test_improved_orders_are_feasible_and_as_long_as_claimed(
    problem: ScheduleProblem, factor: float, seed: int
) -> None:
    """From GPipe's order, within its memory: no violation, the evaluator's makespan, and not longer than before."""
    problem = scaled(problem, factor)
    start = gpipe(problem)
    limited = replace(problem, memory_limit=timetable(problem, start).peak_memory)
    network = disjunctive_graph(limited)
    order = flat_order(limited, start)
    length, found = improve(network, order, 2000, seed=seed)
    improved = schedule_of(limited, found, "improved")
    assert violations(limited, improved) == ()
    assert np.isclose(timetable(limited, improved).makespan, length, rtol=1e-9, atol=0)
    assert length <= longest_path(network, order) <= timetable(problem, start).makespan * (1 + 1e-9)


def test_gpipe_becomes_optimal_without_a_limit() -> None:
    """On two equal devices the work bound m (f + b + w) + f is reached from GPipe's order: 8 x 3 + 1."""
    problem = pipeline(np.arange(2), 8)
    length, _ = improve(disjunctive_graph(problem), flat_order(problem, gpipe(problem)), 20000)
    assert length == 25.0


def test_a_target_stops_the_search() -> None:
    """Nothing is changed where the target is reached at once."""
    problem = pipeline(v_shape(4), 8)
    order = flat_order(problem, repeat(problem, v_min(4), "v-min"))
    length, found = improve(disjunctive_graph(problem), order, 1000, target=1000.0)
    assert length == 59.0
    assert np.array_equal(found, order)


def test_whole_backward_passes_are_split() -> None:
    """B counts as I and W, in that order, so 1F1B's order as numbers is that of its split schedule, and shorter."""
    problem = pipeline(np.arange(4), 8)
    schedule = one_forward_one_backward(problem)
    order = flat_order(problem, schedule)
    assert sorted(order.tolist()) == list(range(3 * 4 * 8))
    # 33 = (8 + 3) x 3 with B whole; handing the gradient on after I saves W on the way up, 3 x 1, at least.
    assert timetable(problem, schedule).makespan == 33.0
    assert longest_path(disjunctive_graph(problem), order) <= 30.0
