"""Bounds on choices of meshes, and what the search finds, against every division and recompute of small problems."""

import numpy as np
import pytest

from taut.formulations.meshes.step_time import mesh_step, mesh_violations
from taut.solver.meshes.bound import MeshBounds
from taut.solver.meshes.search import search_meshes
from taut.solver.result import Limits, Status
from tests.support.blocks import blocks
from tests.support.meshes import least_seconds, mesh_choices, mesh_problem, number_of_plans, random_plan
from tests.support.reference import small_buckets


@pytest.mark.parametrize("block", blocks(4))
@pytest.mark.proof
def test_bounds_undercut_every_plan_and_infinite_ones_have_none(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    500 choices of 150 problems: no division, recompute or placement tried is below the bounds.

    Each cheaper bound is below the next one, that of all choices together below each of them. Bounds are lowered by
    more than rounding, so no tolerance is left. A choice has an infinite bound exactly where nothing fits; two in five
    do. Over a quarter of the others have a bound above the two dynamic programs, and some that of their best plan.
    """
    small_buckets(monkeypatch)
    infeasible = compared = above = attained = 0
    for seed in range(150 * block, 150 * (block + 1)):
        problem, rng = mesh_problem(seed), np.random.default_rng(seed)
        choices, bounds = mesh_choices(problem), MeshBounds(problem)
        small = [choice for choice in choices if number_of_plans(problem, choice) <= 300]
        for k in rng.permutation(len(small))[:4].tolist():
            quick, (exact, _) = bounds.quick(small[k]), bounds.exact(small[k])
            least, together = least_seconds(problem, small[k]), problem.space.global_batch // small[k].num_micro_batches
            assert bounds.of_all(together) <= quick * (1 + 1e-12), (seed, small[k])
            assert bounds.floor(small[k]) <= quick <= exact * (1 + 1e-12) and exact <= least, (seed, small[k])
            above += np.isfinite(exact) and exact > quick * (1 + 1e-6)
            attained += np.isfinite(exact) and exact > least * (1 - 1e-9)
            assert np.isinf(least) == np.isinf(exact) == np.isinf(quick), (seed, small[k])
            for plan in (random_plan(rng, problem, small[k]) for _ in range(4)):
                if not mesh_violations(problem, plan):
                    assert mesh_step(problem, plan).total >= exact, (seed, small[k])
            infeasible, compared = infeasible + bool(np.isinf(least)), compared + 1
    assert compared > 400 and infeasible > 100, (compared, infeasible)
    assert above > (compared - infeasible) / 4 and attained > 10, (above, attained)


@pytest.mark.parametrize("seed", [3, 24, *(pytest.param(s, marks=pytest.mark.proof) for s in range(30, 60))])
def test_search_is_between_bound_and_enumeration(seed: int) -> None:
    """The search's bound is below the best of all plans in the two orders of ranks, and its plan is no better."""
    problem = mesh_problem(seed)
    choices = mesh_choices(problem)
    if sum(number_of_plans(problem, choice) for choice in choices) > 1500:
        pytest.skip("too many plans to enumerate")
    least = min((least_seconds(problem, choice) for choice in choices), default=np.inf)
    found = search_meshes(problem, Limits())
    assert found.choices == len(choices) and found.lower_bound <= least * (1 + 1e-12)
    if np.isinf(least):
        assert found.status is Status.INFEASIBLE and found.incumbent is None
        return
    assert found.incumbent is not None and not mesh_violations(problem, found.incumbent.plan)
    assert found.incumbent.seconds == mesh_step(problem, found.incumbent.plan).total >= least * (1 - 1e-12)


@pytest.mark.parametrize("limits", [Limits(time_limit=0.0), Limits(work_limit=0), Limits(work_limit=1)], ids=str)
def test_limits_before_choices_are_enumerated_leave_a_valid_bound(limits: Limits) -> None:
    """With no time or work to enumerate the choices of meshes nothing is found, and a bound of all of them is known."""
    problem = next(p for p in map(mesh_problem, range(100)) if search_meshes(p, Limits()).incumbent)
    found, best = search_meshes(problem, limits), search_meshes(problem, Limits()).incumbent
    assert found.incumbent is None and str(found.stopped_by) == ("work" if limits.time_limit is None else "time")
    assert best is not None and 0 < found.lower_bound <= best.seconds
    assert found.status is Status.UNKNOWN and found.choices is None


@pytest.mark.parametrize("block", blocks(6))
@pytest.mark.proof
def test_bounds_are_valid_after_any_work(block: int) -> None:
    """After any number of refinements the bound is at most the best plan, grows with work, and repeats exactly."""
    for seed in range(8 * block, 8 * (block + 1)):
        problem = mesh_problem(seed)
        best, before = search_meshes(problem, Limits()), 0.0
        seconds = np.inf if best.incumbent is None else best.incumbent.seconds
        for work in range(0, best.work + 5, max(1, best.work // 7)):
            found = search_meshes(problem, Limits(work_limit=work))
            assert before <= found.lower_bound <= seconds and found.work <= work, (seed, work)
            assert found.lower_bound == search_meshes(problem, Limits(work_limit=work)).lower_bound
            assert found.choices in (None, len(mesh_choices(problem)))
            before = found.lower_bound
