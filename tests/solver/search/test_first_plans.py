"""First plans of a search: even divisions in rank order that break no rule."""

from dataclasses import replace

import numpy as np

from taut.data.stack import SCHEDULES
from taut.formulations.latency import violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.result import CandidateBound, Source
from taut.solver.simple_plans import MOST_PRICED, even_chunks, even_strategy, first_plans, simplest_plans
from tests.support.instances import random_problem
from tests.support.small import cluster, costs, model, problem


def test_what_is_left_over_goes_to_inner_chunks() -> None:
    """Of 11 layers on 2 x 4 chunks each has one, and the second to the fourth one more."""
    choice = Candidate(2, 1, 1, 4, 1, 4, "interleaved-1f1b", 0, False)
    assert even_chunks(11, choice).tolist() == [1, 2, 2, 2, 1, 1, 1, 1]
    assert even_chunks(8, choice).tolist() == [1] * 8


def test_the_most_even_stated_division_is_tried() -> None:
    """Seven layers on four stages: the first three have two as DeepSpeed divides them, otherwise inner ones."""
    free, stated = (
        problem(cluster(1, 4), model(7), latency_model="step", divisions=forms, fixed={"pp": 4})
        for forms in (["layout"], ["balanced"])
    )
    layers = [even_strategy(one, one.candidates[0], "none").division.layers.tolist() for one in (free, stated)]
    assert layers == [[1, 2, 2, 2], [2, 2, 2, 1]]


def test_first_plans_break_no_rule_and_come_by_ascending_bound() -> None:
    """Of random problems with every schedule: whole groups, and within memory."""
    checked = 0
    for seed in range(30):
        given = random_problem(seed)
        space = given.space.model_copy(update={"schedules": list(SCHEDULES), "max_vpp": 2})
        given = replace(given, space=space, latency_model="step")
        rng = np.random.default_rng(seed)
        bounds = [
            CandidateBound(candidate=choice, lower_bound=float(rng.random()), source=Source.RELAXATION)
            for choice in given.candidates
        ]
        found = list(first_plans(given, bounds))
        assert len(found) <= MOST_PRICED
        assert [bound.lower_bound for bound, _, _ in found] == sorted(bound.lower_bound for bound, _, _ in found)
        for _, strategy, devices in found:
            assert not violations(given, strategy, devices)
        checked += len(found)
    assert checked > 50


def relaxed(given: PlanningProblem) -> list[CandidateBound]:
    """A bound of one second on every candidate."""
    return [CandidateBound(candidate=c, lower_bound=1.0, source=Source.RELAXATION) for c in given.candidates]


def test_a_search_begins_without_them_where_divisions_come_first() -> None:
    """Closed forms alone, and unlike devices, have simple plans only as the last resort."""
    classic = problem(cluster(2, 1), model(4), global_batch=4, latency_model="step")
    nodes = cluster(2, 1, memory_gib=10.0, devices=("a", "b"))
    table = costs(model(4), devices={"a": 1.0, "b": 2.0})
    unlike = problem(nodes, model(4), table=table, latency_model="step", schedules=["1f1b", "interleaved-1f1b"])
    for given in (classic, unlike):
        assert not list(first_plans(given, relaxed(given)))
        assert list(simplest_plans(given, relaxed(given)))


def test_nothing_is_recomputed_with_room_and_nothing_planned_without() -> None:
    """With 10 GiB no chunk recomputes; with a kilobyte there is no plan."""
    for memory, expected in ((10.0, {"none"}), (1e-6, set())):
        nodes = cluster(2, 1, memory_gib=memory)
        given = problem(nodes, model(4), global_batch=4, latency_model="step", schedules=["interleaved-1f1b"])
        found = list(first_plans(given, relaxed(given)))
        assert {name for _, strategy, _ in found for name in strategy.recompute} == expected
