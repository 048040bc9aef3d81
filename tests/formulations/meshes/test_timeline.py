"""Steps of meshes pass by pass, against their closed form."""

from collections.abc import Callable

import numpy as np
import pytest

from taut.formulations.meshes.step_time import MeshPlan, hops_of, mesh_step, mesh_timeline, pipeline_seconds
from taut.formulations.problem import PlanningProblem
from tests.support.meshes import mesh_choices, mesh_problem, random_plan

pytestmark = pytest.mark.proof


def plans(seed: int, count: int) -> list[tuple[PlanningProblem, MeshPlan]]:
    """Random plans of random choices of a problem."""
    problem, rng = mesh_problem(seed), np.random.default_rng(seed)
    choices = mesh_choices(problem)
    chosen = rng.permutation(len(choices))[:count].tolist()
    return [(problem, random_plan(rng, problem, choices[k])) for k in chosen]


def test_one_micro_batch_on_single_ranks_takes_the_closed_form() -> None:
    """A micro-batch goes there and back once, over the only rank of every stage: both prices are the same sum."""
    compared = alike = 0
    for seed in range(120):
        problem = mesh_problem(seed)
        choices = [c for c in mesh_choices(problem) if c.num_micro_batches == 1]
        single = [c for c in choices if all(m.tp * m.dp == c.pipelines for m in c.meshes)]
        for choice in single[:3]:
            plan = random_plan(np.random.default_rng(seed), problem, choice)
            step, hops, found = mesh_step(problem, plan), hops_of(problem, plan), mesh_timeline(problem, plan)
            assert found.ended[0] == pytest.approx(step.passes + step.pipeline_transfers, rel=1e-12)
            if np.allclose(hops.forth, hops.back, rtol=1e-14):
                assert found.total == pytest.approx(step.total, rel=1e-12)
                alike += 1
            compared += 1
    assert compared > 30 and alike > 5, (compared, alike)


def test_without_hops_a_slowest_last_stage_takes_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of all micro-batches follow one another on the last stage; otherwise the closed form is no less."""
    monkeypatch.setattr(PlanningProblem, "coefficient", _free(PlanningProblem.coefficient))
    equal = 0
    for seed in range(60):
        for problem, plan in plans(seed, 6):
            stage, _ = pipeline_seconds(problem, plan)
            simulated, closed = mesh_timeline(problem, plan), mesh_step(problem, plan).total
            assert simulated.total <= closed * (1 + 1e-12), (seed, plan.choice)
            if (stage[-1] >= stage.max(axis=0)).all():
                assert simulated.total == pytest.approx(closed, rel=1e-12), (seed, plan.choice)
                equal += 1
    assert equal > 20, equal


def _free(coefficient: Callable[[PlanningProblem, str], float]) -> Callable[[PlanningProblem, str], float]:
    """Coefficients without one of the pipeline's hops."""
    return lambda problem, name: 0.0 if name == "pipeline" else coefficient(problem, name)


def test_passes_follow_the_order_and_each_other() -> None:
    """A stage runs one pass at a time, a forward pass after that of the stage before and its hop."""
    for problem, plan in plans(5, 10):
        found, hops = mesh_timeline(problem, plan), hops_of(problem, plan)
        stage, backward = pipeline_seconds(problem, plan)
        for c, times in enumerate(found.times):
            transfer = problem.coefficient("pipeline") * (hops.forth + hops.back)[:, c] / 2
            for x, (start, end) in enumerate(zip(times.start, times.end, strict=True)):
                assert (start[1:] >= end[:-1] * (1 - 1e-12)).all()
                assert (end - start).sum() == pytest.approx(plan.choice.num_micro_batches * stage[x, c])
                if x > 0:
                    assert start[0] >= times.end[x - 1][0] + transfer[x - 1] * (1 - 1e-12)
        assert found.ended.max() == max(times.makespan for times in found.times)
        assert (stage >= backward).all()
