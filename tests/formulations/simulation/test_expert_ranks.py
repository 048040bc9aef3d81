"""Exchanges of expert ranks in the simulated step: as long as the closed form says where nothing else differs."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.costs import RECOMPUTE
from taut.errors import FormulationError
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.operator_graph import ACTIVITIES, activity_seconds
from taut.formulations.simulation.passes import KINDS
from taut.formulations.strategy import Division, Strategy
from tests.support.blocks import blocks
from tests.support.expert_ranks import SECONDS, with_expert_ranks, with_expert_shards

pytestmark = pytest.mark.proof


def plain(seed: int) -> PlanningProblem:
    """A random problem with expert ranks, whose exchanges and reductions nothing hides."""
    given = with_expert_ranks(seed)
    dispatch = given.space.dispatch.model_copy(update={"overlap": False})
    space = given.space.model_copy(update={"dispatch": dispatch})
    return replace(given, space=space, overlap_grad_reduce=False)


def random_strategy(rng: np.random.Generator, given: PlanningProblem) -> Strategy | None:
    """A candidate with several expert ranks, any division and any recompute; None where there is none."""
    routed = [choice for choice in given.candidates if choice.ep > 1]
    if not routed:
        return None
    choice = routed[rng.integers(len(routed))]
    count, layers = choice.pp * choice.vpp, given.num_layers(choice)
    ends = np.append(np.sort(rng.choice(np.arange(1, layers), size=count - 1, replace=False)), layers)
    kinds = [RECOMPUTE.index(name) for name in given.recompute_of(choice)]
    return Strategy(candidate=choice, division=Division.of_ends(ends, rng.choice(kinds, size=count)))


def both(given: PlanningProblem, plan: Strategy) -> tuple[float, float]:
    """The simulated step and the evaluator's, on devices in order."""
    choice = plan.candidate
    devices = np.arange(given.cluster.num_devices).reshape(choice.pp, choice.pipelines, choice.width)
    graph = operator_graph(given, plan, devices)
    found = float((graph.times() + graph.seconds).max()) + given.constant_seconds
    return found, float(step_time(given, plan, devices).total)


@pytest.mark.parametrize("block", blocks(6))
def test_exact_steps_are_the_closed_forms(block: int) -> None:
    """One stage, and orders on links as fast both ways: dispatchers, formats, imbalance and recompute, to 1e-9."""
    stages, compared = set(), 0
    for seed in range(40 * block, 40 * block + 40):
        rng, given = np.random.default_rng(seed), plain(seed)
        plan = random_strategy(rng, given)
        if plan is None or len(given.device_types) > 1:
            continue
        choice, dense = plan.candidate, (given.links.rate.dense(), given.links.latency.dense())
        even = all(np.allclose(figures, figures.T) for figures in dense)
        exact = choice.is_order_priced or (choice.pp == 2 and choice.num_micro_batches == 1)
        if choice.pp > 1 and not (even and exact):
            continue
        found, closed = both(given, plan)
        assert found == pytest.approx(closed, rel=1e-9), (seed, choice)
        stages.add((choice.pp, choice.schedule))
        compared += 1
    assert compared > 3 and (1, "1f1b") in stages


def test_gathers_of_experts_that_long_layers_hide_are_the_closed_forms() -> None:
    """One stage with ZeRO-2 or 3, layers of up to 10,000 times their seconds: to 1e-9, gathers of experts apart."""
    compared, apart = 0, False
    for seed in range(60):
        rng, given = np.random.default_rng(seed), long_layers(seed)
        plan = random_strategy(rng, given)
        if plan is None or len(given.device_types) > 1 or plan.candidate.pp > 1 or plan.candidate.zero < 2:
            continue
        found, closed = both(given, plan)
        assert found == pytest.approx(closed, rel=1e-9), (seed, plan.candidate)
        compared, apart = compared + 1, apart or plan.candidate.edp > 1
    assert compared > 8 and apart


def long_layers(seed: int) -> PlanningProblem:
    """A random problem with sharded experts, whose layers hide what is gathered beside them."""
    given = with_expert_shards(seed)
    rows = [row.model_copy(update={name: 100 * getattr(row, name) for name in SECONDS}) for row in given.costs.rows]
    return replace(given, costs=given.costs.model_copy(update={"rows": rows}), overlap_grad_reduce=False)


def test_exchanges_are_an_activity_of_their_own() -> None:
    """On one stage every exchange is waited for: the activity's seconds are those of its tasks, some in every layer."""
    for seed in range(60):
        given = plain(seed)
        plan = random_strategy(np.random.default_rng(seed), given)
        if plan is None or plan.candidate.pp > 1:
            continue
        choice = plan.candidate
        devices = np.arange(given.cluster.num_devices).reshape(1, choice.pipelines, choice.width)
        graph = operator_graph(given, plan, devices)
        spent = activity_seconds(graph, graph.times())[:, ACTIVITIES.index("expert_parallel")]
        tasks = [task for task in range(graph.tasks) if KINDS[graph.kind[task]] == "exchange tokens"]
        routed = {k for k, layer in enumerate(given.model.blocks) if layer.experts}
        assert spent.sum() == pytest.approx(graph.seconds[tasks].sum(), rel=1e-9)
        assert {int(graph.layer[task]) for task in tasks} == routed
        return
    pytest.fail("no instance has one stage of expert ranks")


def test_what_is_not_simulated_is_refused() -> None:
    """Exchanges behind another micro-batch, reductions that overlap, and shared links."""
    seed = next(seed for seed in range(60) if random_strategy(np.random.default_rng(seed), plain(seed)))
    given = plain(seed)
    plan = random_strategy(np.random.default_rng(seed), given)
    assert plan is not None
    choice = plan.candidate
    devices = np.arange(given.cluster.num_devices).reshape(choice.pp, choice.pipelines, choice.width)
    with pytest.raises(FormulationError, match="with links that flows share is not simulated"):
        operator_graph(given, plan, devices, share_links=True)
    with pytest.raises(FormulationError, match="with gradient reductions that overlap is not simulated"):
        operator_graph(replace(given, overlap_grad_reduce=True), plan, devices)
