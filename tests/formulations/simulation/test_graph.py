"""The simulated step beside the closed forms: equal where nothing overlaps, by hand where something does."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.data.stack import SCHEDULES
from taut.errors import FormulationError
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.operator_graph import OperatorGraph
from taut.formulations.simulation.passes import KINDS, STREAMS
from taut.formulations.strategy import Division, Strategy
from tests.support.instances import random_problem
from tests.support.small import candidate, cluster, in_order, model, problem, strategy

FREE = [[0.0, 1e12], [1e12, 0.0]]
"""GB/s between two nodes at which a message takes no time to speak of."""


def small(*, nodes: int = 2, gpus: int = 2, layers: int = 4, free: bool = True) -> PlanningProblem:
    """Layers of 1 s a pass on two nodes, in ``step``."""
    rows = FREE if free else None
    return problem(cluster(nodes, gpus, rows=rows), model(layers), latency_model="step", max_tp=2)


def seconds(graph: OperatorGraph) -> float:
    """End of the last task."""
    return float((graph.times() + graph.seconds).max())


def both(given: PlanningProblem, plan: Strategy, devices: Ints) -> tuple[float, float]:
    """The simulated step and the evaluator's."""
    found = seconds(operator_graph(given, plan, devices)) + given.constant_seconds
    return found, float(step_time(given, plan, devices).total)


def random_strategy(rng: np.random.Generator, given: PlanningProblem) -> Strategy:
    """Any candidate with any division and recompute."""
    choice = given.candidates[rng.integers(len(given.candidates))]
    count, layers = choice.pp * choice.vpp, given.num_layers(choice)
    ends = np.append(np.sort(rng.choice(np.arange(1, layers), size=count - 1, replace=False)), layers)
    kinds = [RECOMPUTE.index(name) for name in given.recompute_of(choice)]
    return Strategy(candidate=choice, division=Division.of_ends(ends, rng.choice(kinds, size=count)))


def devices_of(plan: Strategy) -> Ints:
    """Devices in order, context ranks included."""
    choice = plan.candidate
    return np.arange(choice.pp * choice.dp * choice.width).reshape(choice.pp, choice.dp, choice.width)


def random_case(
    seed: int, *, schedules: tuple[str, ...], one_type: bool = True, empty_ends: bool = False
) -> tuple[PlanningProblem, Strategy]:
    """A random problem in ``step`` with a random strategy, of one device type if so asked."""
    rng = np.random.default_rng(seed)
    while True:
        given = random_problem(int(rng.integers(1 << 20)))
        fixed = {"schedule": schedules[0]} if len(schedules) == 1 else {}
        update = {"schedules": list(schedules), "fixed": fixed, "empty_ends": empty_ends}
        space = given.space.model_copy(update=update)
        given = replace(given, latency_model="step", space=space)
        if given.candidates and not (one_type and len(given.device_types) > 1):
            return given, random_strategy(rng, given)


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_even_stages_under_1f1b_without_messages_take_what_the_closed_form_says(m: int, recompute: str) -> None:
    """With tensor groups, replicas and recompute, for few and for many micro-batches, to 1e-9."""
    plan = strategy(candidate(2, 2, 1, m=m), 2, 4, recompute=recompute)
    found, closed = both(small(), plan, in_order(plan.candidate))
    assert found == pytest.approx(closed, rel=1e-9)


def test_one_micro_batch_under_1f1b_pays_its_messages_once() -> None:
    """With m = 1 the closed form is exact on uneven stages and slow links, reductions of all stages included."""
    plan = strategy(candidate(2, 1, 2, m=1), 1, 4)
    found, closed = both(small(free=False), plan, np.array([[[0], [2]], [[1], [3]]]))
    assert found == pytest.approx(closed, rel=1e-9)


def test_gpipe_is_exact_where_one_stage_is_the_slowest_of_both_passes() -> None:
    """Stages of 1 and 3 layers, 4 micro-batches, with messages: sum + (m - 1) max + one trip."""
    plan = strategy(candidate(2, 1, 2, m=4, schedule="gpipe"), 1, 4)
    found, closed = both(small(free=False), plan, in_order(plan.candidate))
    assert found == pytest.approx(closed, rel=1e-9)


def test_gpipe_with_two_slowest_stages_takes_longer_than_its_closed_form() -> None:
    """Recompute on the shorter stage makes each stage the slowest of one pass: the sum of both maxima counts."""
    plan = Strategy(
        candidate=candidate(2, 2, 1, m=4, schedule="gpipe"), division=Division(((0, 3), (3, 7)), ("full", "none"))
    )
    found, closed = both(small(layers=7), plan, in_order(plan.candidate))
    # Forward 3 + 4 + 3 x 4, backward 9 + 8 + 3 x 9; both stages take 12 s for both passes.
    assert found == pytest.approx(19 + 44, rel=1e-4)
    assert closed == pytest.approx(24 + 36, rel=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_a_single_stage_takes_what_the_closed_form_says(seed: int) -> None:
    """Random models, clusters, calibrations, recompute, contexts: one stage without shards is exact, to 1e-9."""
    for attempt in range(50):
        given, plan = random_case(1000 * seed + attempt, schedules=("1f1b",))
        if plan.candidate.pp == 1 and plan.candidate.zero < 2:
            found, closed = both(given, plan, devices_of(plan))
            assert found == pytest.approx(closed, rel=1e-9)
            return
    pytest.fail("no instance has a single stage")


ORDERED = [name for name in SCHEDULES if name not in ("1f1b", "gpipe")]


@pytest.mark.parametrize(
    ("schedule", "ends"), [*((name, False) for name in ORDERED), ("interleaved-1f1b", True), ("zb-v", True)]
)
def test_order_priced_schedules_follow_the_recurrence(schedule: str, ends: bool) -> None:
    """On links that are as fast both ways, without shards, the graph ends when the order's recurrence does, to 1e-9."""
    compared = 0
    for seed in range(12):
        given, plan = random_case(seed, schedules=(schedule,), empty_ends=ends)
        rates = given.links.rate.dense()
        even = np.allclose(rates, rates.T) and np.allclose(given.links.latency.dense(), given.links.latency.dense().T)
        if plan.candidate.pp > 1 and plan.candidate.zero < 2 and even and not _queues(given, plan):
            found, closed = both(given, plan, devices_of(plan))
            assert found == pytest.approx(closed, rel=1e-9)
            compared += 1
    assert compared


def _queues(given: PlanningProblem, plan: Strategy) -> bool:
    """Whether a message waits for the one before on its stream."""
    graph = operator_graph(given, plan, devices_of(plan))
    start = graph.times()
    sent = np.flatnonzero(np.isin(graph.kind, [KINDS.index("send activations"), KINDS.index("send gradients")]))
    ready = np.array([start[graph.dependency[graph.first_dependency[u]]] for u in sent])
    took = np.array([graph.seconds[graph.dependency[graph.first_dependency[u]]] for u in sent])
    return bool((start[sent] > (ready + took) * (1 + 1e-12)).any())


@pytest.mark.parametrize("seed", range(30))
def test_the_step_is_no_shorter_than_any_device_is_busy(seed: int) -> None:
    """On random strategies of every schedule each stream runs one task at a time, within the step."""
    given, plan = random_case(seed, schedules=SCHEDULES, one_type=False)
    graph = operator_graph(given, plan, devices_of(plan))
    start = graph.times()
    end = start + graph.seconds
    order = np.lexsort((end, start, graph.stream))
    stream, begin, until = graph.stream[order], start[order], end[order]
    same = stream[1:] == stream[:-1]
    assert (begin[1:] >= until[:-1] - 1e-9 * end.max())[same].all()
    for u in range(graph.tasks):
        before = graph.dependency[graph.first_dependency[u] : graph.first_dependency[u + 1]]
        assert (end[before] <= start[u] * (1 + 1e-12)).all()


def test_computation_of_a_step_is_the_cost_tables() -> None:
    """All computing tasks of two stages with full recompute: 8 micro-batches of 4 layers of 4 s."""
    plan = strategy(candidate(2, 1, 2, m=8), 1, 4, recompute="full")
    graph = operator_graph(small(), plan, in_order(plan.candidate))
    computed = graph.seconds[(graph.stream % len(STREAMS) == 0) & (graph.micro_batch >= 0)]
    assert computed.sum() == pytest.approx(8 * 4 * 4)


def test_a_small_graph_can_be_had_as_a_networkx_object() -> None:
    """Its longest path by networkx is the step, and its streams have names."""
    from networkx import dag_longest_path_length

    plan = strategy(candidate(2, 2, 1, m=2), 2, 4)
    graph = operator_graph(small(), plan, in_order(plan.candidate))
    made = graph.to_networkx()
    for before, after in made.edges:
        made.edges[before, after]["weight"] = made.nodes[before]["seconds"]
    last = float(graph.seconds[-1])
    assert dag_longest_path_length(made) + last == pytest.approx(seconds(graph))
    assert {stream for _, stream in made.nodes(data="stream")} >= {"compute", "tensor-parallel", "job"}
    assert "forward attention, layer 0, micro-batch 0" in {name for _, name in made.nodes(data="name")}


def test_other_latency_models_are_refused() -> None:
    """Only the prices of ``step`` are simulated."""
    plan = strategy(candidate(2, 1, 2), 2, 4)
    with pytest.raises(FormulationError, match="expected step"):
        operator_graph(replace(small(), latency_model="amp"), plan, in_order(plan.candidate))
