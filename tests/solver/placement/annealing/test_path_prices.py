"""Annealed pipelines: what their step waits for after stage 0, against enumeration and the evaluator."""

from itertools import permutations

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.formulations.latency import step_time
from taut.formulations.links import PairTable
from taut.formulations.partition import partition_problem
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import RingRates, ring_by_byte
from taut.solver.branch_and_bound.stop import unraised
from taut.solver.placement.annealing.paths import (
    MOST_STAGES,
    PathAnnealing,
    Reductions,
    first_stage,
    leading_reductions,
)
from taut.solver.placement.slots import SlotGraph, slot_graph
from tests.support.small import candidate, cluster, costs, model, problem, strategy

pytestmark = pytest.mark.proof


def graph_of(seed: int) -> SlotGraph:
    """Eight slots on four or eight nodes, two pipelines of four, with cards that every third graph lacks."""
    rng = np.random.default_rng(seed)
    n = [4, 8][seed % 2]
    hops, inverse = (figures + figures.T for figures in rng.uniform(0.2, 1.0, (2, n, n)))
    np.fill_diagonal(hops, 0.1)
    np.fill_diagonal(inverse, 0.1)
    card = rng.uniform(0.5, 3.0, n) * (seed % 3 > 0)
    return SlotGraph(hops=hops, inverse=inverse, capacity=np.full(n, 8 // n), pp=4, replicas=2, card=card)


def rings_of(graph: SlotGraph, paths: Ints, stages: int) -> Floats:
    """Seconds per byte of the leading stages' rings, (..., stages), by the evaluator's formula."""
    rates = RingRates(PairTable.of_matrix(graph.inverse), graph.card)
    return np.stack([ring_by_byte(rates, paths[..., x], paths[..., x]) for x in range(stages)], axis=-1)


def longest_wait(reductions: Reductions, rings: Floats) -> float:
    """Seconds that the step waits for reductions at most, as the formula says."""
    return float((rings[:, None] * reductions.gradients - reductions.slack).max(initial=0.0))


def exchanges_of(graph: SlotGraph, paths: Ints) -> Floats:
    """Seconds per byte of the slowest exchange between first and last slot, (...,)."""
    a, b = paths[..., 0], paths[..., -1]
    cards = np.where(a == b, 0.0, np.maximum(graph.card[a], graph.card[b]))
    return np.asarray(np.maximum(graph.inverse[a, b], cards).max(axis=-1))


@pytest.mark.parametrize("tied", [0.0, 0.9])
def test_annealing_finds_what_waits_for_several_stages(tied: float) -> None:
    """With reductions of three stages and a tied embedding, the annealed optimum is mostly that of all placements."""
    slack = np.array([[0.0, 0.0], [0.2, 0.5], [0.4, 0.0]])
    reductions = Reductions(np.array([[0.2, 0.0], [0.5, 0.8], [0.75, 0.0]]), slack, tied)
    met = 0
    for seed in range(8):
        graph = graph_of(seed)
        nodes = np.repeat(np.arange(len(graph.hops)), graph.capacity)
        every = np.array(sorted(set(permutations(nodes.tolist())))).reshape(-1, 2, 4)
        longest = graph.hops[every[..., :-1], every[..., 1:]].sum(axis=-1).max(axis=-1)
        waits = rings_of(graph, every, 3)[..., None] * reductions.gradients - reductions.slack
        waits = np.maximum(waits.max(axis=(-2, -1)), tied * exchanges_of(graph, every))
        exact = float((longest + waits).min())
        run = PathAnnealing(graph, reductions, nodes.reshape(2, 4), moves=100_000, seed=seed)
        while not run.finished:
            run.advance(unraised())
        assert run.seconds >= exact * (1 - 1e-12), seed
        met += run.seconds <= exact * (1 + 1e-12)
        priced = max(longest_wait(reductions, rings_of(graph, run.best, 3)), tied * exchanges_of(graph, run.best))
        hops = graph.hops[run.best[:, :-1], run.best[:, 1:]].sum(axis=1).max()
        assert run.seconds == pytest.approx(hops + priced, rel=1e-12), seed
    assert met >= 6


def planning(seed: int, *, overlap: bool, latency_model: str = "step") -> PlanningProblem:
    """Eight nodes with random links, alike both ways, and cards; gradients take about as long as a backward pass."""
    rates = np.exp(np.random.default_rng(seed).normal(-7.0, 0.5, (8, 8)))
    spec = model(8)
    table = costs(spec, seconds={"block": 0.02})
    nodes = cluster(8, 1, rows=(rates + rates.T).tolist(), nic_gbps=0.01 if seed % 2 else None)
    given = problem(nodes, spec, table=table, global_batch=16, recompute=["none", "full"])
    return PlanningProblem(
        given.model,
        given.cluster,
        given.costs,
        given.memory,
        given.space,
        "step" if latency_model == "step" else "pipette",
        overlap_grad_reduce=overlap,
    )


@pytest.mark.parametrize("seed", range(12))
def test_waits_are_the_evaluators_but_for_ways_back(seed: int) -> None:
    """Path, wait and computation are the evaluator's step, beyond which ways back are the shortest hop's at least."""
    given, rng = planning(seed, overlap=seed % 3 == 0), np.random.default_rng((seed, 1))
    chosen = strategy(candidate(4, 1, 2, m=8), 1, 3, 6, 8)
    graph, stages = slot_graph(given, chosen.candidate), partition_problem(given, chosen.candidate)
    reductions = leading_reductions(given, chosen.candidate, graph, stages, chosen.division)
    weight = given.transfer_weight(chosen.candidate)
    spread = graph.hops[~np.eye(8, dtype=bool)]
    for _ in range(10):
        paths = rng.permutation(8).reshape(2, 4)
        devices = placement_problem(given, chosen).devices(paths.reshape(-1, 1))
        exact = step_time(given, chosen, devices)
        longest = graph.hops[paths[:, :-1], paths[:, 1:]].sum(axis=1).max()
        wait = longest_wait(reductions, rings_of(graph, paths, len(reductions.slack)))
        found = weight * (longest + wait) + float(exact.compute + exact.tensor_parallel)
        assert found >= float(exact.total) * (1 - 1e-12)
        assert found - float(exact.total) <= (MOST_STAGES - 1) * float(spread.max() - spread.min() / 2)


def test_the_papers_models_wait_for_the_first_stage_alone() -> None:
    """In ``pipette`` the one reduction is stage 0's; in ``step`` others follow, with the slack of backward passes."""
    chosen = strategy(candidate(4, 1, 2, m=8), 1, 3, 6, 8)
    for latency_model in ("pipette", "step"):
        given = planning(0, overlap=False, latency_model=latency_model)
        graph, stages = slot_graph(given, chosen.candidate), partition_problem(given, chosen.candidate)
        found = leading_reductions(given, chosen.candidate, graph, stages, chosen.division)
        bytes_of_layer = float(given.gradient_bytes(chosen.candidate)[0, 1])
        weight = given.transfer_weight(chosen.candidate)
        assert found.gradients[0, 0] == pytest.approx(bytes_of_layer / weight)
        assert found.slack[0, 0] == 0.0
        if latency_model == "pipette":
            assert found.gradients.shape == (1, 1)
        else:
            # A layer's backward pass takes 0.02 s for either gradient; the way back is half a hop.
            assert found.gradients[1, 0] > 0.0
            assert found.slack[1, 0] * weight == pytest.approx(0.04 + graph.shortest_hop() / 2)
    assert len(first_stage(0.0).slack) == 0
