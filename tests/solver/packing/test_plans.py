"""Mean work, and bounds on the expected step of every plan of a space, against plans that are priced as packed."""

from itertools import islice

import numpy as np
import pytest

import taut
from taut.data.lengths import Lengths, load_lengths
from taut.formulations.problem import PlanningProblem
from taut.solver.packing import plans
from taut.solver.packing.plans import (
    AttentionShares,
    MeanWork,
    balance_bound,
    has_linear_step,
    mean_costs,
    search_mean_work,
    space_bound,
)
from taut.solver.packing.rules import Drawn, draw_steps, micro_batch_features, pack_by
from taut.solver.packing.step_graph import packed_step
from taut.solver.result import Limits, State
from taut.solver.simple_plans import simple_plan

ROWS = 32


def small_problem() -> PlanningProblem:
    """A small model on eight devices, with context ranks and every recompute."""
    return taut.planning_problem(taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=ROWS, max_cp=2))


def drawn_steps(lengths: Lengths, number: int = 2) -> list[Drawn]:
    return list(islice(draw_steps(lengths, 1, ROWS, 1024), number))


def searched(problem: PlanningProblem, steps: list[Drawn]) -> MeanWork:
    """The search at the mean work of drawn steps."""
    tokens = np.concatenate([each.tokens for each in steps])
    return search_mean_work(problem, tokens, tokens.sum() / (len(steps) * ROWS * 1024), Limits(work_limit=60))


def mean_step(problem: PlanningProblem, steps: list[Drawn], candidate: taut.Candidate) -> float | None:
    """The mean step of a candidate's simple plan under the best rule of each drawn step."""
    if (found := simple_plan(problem, candidate)) is None:
        return None
    packed = packed_step(problem, found.strategy, found.devices, "a plan")
    graph, seconds = packed.graph, []
    for each in steps:
        features = packed.features(each.tokens)
        shape = graph.replicas, graph.micro_batches
        work = features.sum(axis=1)
        packings = [
            pack_by(rule, each, work, *shape, packed.budget, packed.budget, packed.budget // packed.seq)[0]
            for rule in ("first-fit", "balanced", "two-level")
        ]
        seconds.append(min(float(graph.steps(micro_batch_features(features, places, *shape))) for places in packings))
    return float(np.mean(seconds))


def worst(found: MeanWork, problem: PlanningProblem, steps: list[Drawn]) -> float:
    """The largest bound of a candidate over its simple plan's mean step."""
    most = 0.0
    for each in found.result.bounds[:: max(len(found.result.bounds) // 60, 1)]:
        if each.state is State.INFEASIBLE or (step := mean_step(problem, steps, each.candidate)) is None:
            continue
        linear = found.fill * each.lower_bound if has_linear_step(found.problem, each.candidate) else 0.0
        most = max(most, balance_bound(found, each.candidate) / step, linear / step)
    return most


def test_mean_work_of_whole_sequences_is_the_table() -> None:
    """Sequences of the model's length leave every row as it is; short ones take attention away, and no more."""
    problem = small_problem()
    same = mean_costs(problem, AttentionShares(problem, np.array([1024, 1024])))
    assert [row.forward_s for row in same.rows] == pytest.approx([row.forward_s for row in problem.costs.rows])
    short = mean_costs(problem, AttentionShares(problem, np.array([128])))
    for row, whole in zip(short.rows, problem.costs.rows, strict=True):
        assert 0.5 * whole.forward_s < row.forward_s <= whole.forward_s
        assert row.weight_grad_s == whole.weight_grad_s
    assert short.name.endswith(plans.PACKED)


@pytest.mark.proof
@pytest.mark.parametrize("name", ["recipe-sft", "chat-sft"])
def test_no_plan_of_the_space_is_below_its_bound(name: str) -> None:
    """Of every candidate tried, its simple plan under the best of three rules, step by step; some come near."""
    problem, steps = small_problem(), drawn_steps(load_lengths(name).up_to(1024))
    found = searched(problem, steps)
    assert 0.9 < worst(found, problem, steps) <= 1.0 + 1e-9
    best = found.result.incumbent
    assert best is not None
    packed = mean_step(problem, steps, best.strategy.candidate)
    assert packed is None or space_bound(found) <= packed


@pytest.mark.proof
def test_a_wrong_share_of_tokens_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batches that hold 1.25 times the drawn tokens give bounds above plans."""
    problem, steps = small_problem(), drawn_steps(load_lengths("recipe-sft").up_to(1024))
    found = searched(problem, steps)
    assert worst(found._replace(fill=1.25 * found.fill), problem, steps) > 1.0


def test_kept_layers_are_not_recomputed() -> None:
    """With the first 6 of 24 layers recomputed, launches and slopes are a quarter of the way from none to all."""
    fix: dict[str, int | str | bool] = {"pp": 1, "tp": 1, "micro_batch": 1}
    request = taut.PlanRequest(
        "gpt2-345m", "dgx-a100", global_batch=ROWS, stack="megatron-core", fix=fix, block_recompute=True
    )
    problem, figures = taut.planning_problem(request), dict[tuple[str, int], np.ndarray]()
    for candidate in problem.candidates:
        key = candidate.uniform_recompute, candidate.recompute_layers
        if key in {("none", 0), ("full", 6), ("full", 0)} and (found := simple_plan(problem, candidate)):
            graph = packed_step(problem, found.strategy, found.devices, "a plan").graph
            figures[key] = np.concatenate([graph.fixed.ravel(), graph.slope.ravel()])
    none, some, every = (figures[key] for key in (("none", 0), ("full", 6), ("full", 0)))
    assert np.allclose(some, none + (every - none) / 4, rtol=1e-9) and (every > none).all()
