"""Reductions, tied embeddings and the optimizer after the passes, by hand and beside the closed form."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from taut.data.model import ModelSpec
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.operator_graph import OperatorGraph
from taut.formulations.simulation.passes import KINDS
from taut.formulations.strategy import Division, Strategy
from tests.formulations.simulation.test_graph import both
from tests.solver.certificate.reference.test_whole_step import CROSSED, PARAMETERS, crossed
from tests.support.instances import random_problem
from tests.support.reference import small_buckets
from tests.support.small import candidate, cluster, costs, in_order, problem, strategy

RING = PARAMETERS * 4 / 10e3
"""Seconds of a layer's gradients between two nodes at 10 kB/s: 4 B a parameter, factor 2 (2-1)/2 = 1."""


def of_kind(graph: OperatorGraph, kind: str) -> tuple[list[float], list[float]]:
    """Starts and ends of the tasks of a kind."""
    start, mine = graph.times(), graph.kind == KINDS.index(kind)
    return start[mine].tolist(), (start + graph.seconds)[mine].tolist()


def test_every_stage_reduces_when_its_last_pass_has_ended() -> None:
    """Two stages of 1 and 3 layers, one micro-batch: reductions of 20 and 60 s, started 2 s apart."""
    plan = strategy(candidate(2, 1, 2, m=1), 1, 4)
    graph = operator_graph(crossed(), plan, np.array(CROSSED))
    begin, end = of_kind(graph, "reduce gradients")
    # t = 3 and 9 s; stage 1 ends a backward pass of 2 s and a message before stage 0.
    assert begin == pytest.approx([12.0, 10.0], abs=1e-5)
    assert end == pytest.approx([12.0 + RING, 10.0 + 3 * RING], abs=1e-4)


def test_buckets_are_reduced_while_the_last_backward_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of one part each start as the parts end, one after another."""
    small_buckets(monkeypatch, parameters=1, a_replica=0)
    given = replace(crossed(), overlap_grad_reduce=True)
    plan = strategy(candidate(1, 1, 4, m=1), 4)
    graph = operator_graph(given, plan, in_order(plan.candidate))
    begin, end = of_kind(graph, "reduce gradients")
    assert len(begin) == 8  # attention and MLP of 4 layers
    assert begin[1:] == pytest.approx(end[:-1])  # the ring is slower than the pass
    # Forward 4 s; the MLP of layer 3 has its share of 2 s backward.
    mlp = 2 * 2 * 64 * 256 * 100 / (2 * 100 * 12 * 64**2 + 4 * 100 * 100 * 64)
    assert begin[0] == pytest.approx(4 + 2 * mlp)
    whole = operator_graph(replace(given, overlap_grad_reduce=False), plan, in_order(plan.candidate))
    (_, (alone,)) = of_kind(whole, "reduce gradients")
    assert end[-1] - begin[0] == pytest.approx(alone - 12.0)


def test_replicas_whose_passes_differ_in_tasks_are_reduced_together() -> None:
    """What takes no time on one type is no task there: the last of a pass then has another place in each replica."""
    given = replace(random_problem(5290, measured=True), latency_model="step", overlap_grad_reduce=True)
    choice = next(each for each in given.candidates if each.cp == 2 and each.dp == 2)
    plan = Strategy(candidate=choice, division=Division(((0, len(given.model.blocks)),), ("selective",)))
    sizes = set()
    for order in permutations(range(4)):
        graph = operator_graph(given, plan, np.array(order).reshape(1, 2, 2), every_replica=True)
        _, ends = of_kind(graph, "reduce gradients")
        assert ends[-1] >= (graph.times() + graph.seconds)[graph.last[:, -1]].max()
        sizes.add(tuple(np.diff(graph.row[:, [0, -1]]).ravel().tolist()))
    assert any(first != second for first, second in sizes)


def test_one_large_bucket_waits_for_the_whole_pass() -> None:
    """Forty million parameters are more than the model has, so overlap changes nothing, as the closed form says."""
    plan = strategy(candidate(2, 1, 2, m=1), 1, 4)
    given = replace(crossed(), overlap_grad_reduce=True)
    found, closed = both(given, plan, np.array(CROSSED))
    assert found == pytest.approx(closed, rel=1e-9)
    assert found == pytest.approx(both(crossed(), plan, np.array(CROSSED))[0], rel=1e-9)


def test_a_tied_embedding_waits_for_both_of_its_holders() -> None:
    """The first and the last stage exchange it when the later of them has ended, as the closed form says."""
    values = {"name": "tied", "layers": 4, "hidden": 64, "heads": 4, "seq": 100, "vocab": 1000}
    spec = ModelSpec.parse({**values, "tied_embedding": True}, "tied")
    table = costs(spec)
    extra = [table.rows[0].model_copy(update={"kind": kind, "tp": 1}) for kind in ("embedding", "head")]
    table = table.model_copy(update={"rows": [*table.rows, *extra]})
    given = problem(cluster(2, 1), spec, table=table, latency_model="step", max_tp=1)
    plan = strategy(candidate(2, 1, 1, m=1), 2, 4)
    graph = operator_graph(given, plan, in_order(plan.candidate))
    (begin,), (end,) = of_kind(graph, "reduce tied embedding")
    # Each stage has two layers and an edge of 3 s each; the vocabulary is padded to 1024 rows of 64.
    assert begin == pytest.approx(18.0, abs=1e-3)
    assert end - begin == pytest.approx(4 * 1024 * 64 / 1e9)
    found, closed = both(given, plan, in_order(plan.candidate))
    assert found == pytest.approx(closed, rel=1e-9)


def test_the_optimizer_waits_for_all_reductions() -> None:
    """Every device starts it at the norm, which the slowest reduction decides."""
    given = crossed(optimizer=1e-5)
    plan = strategy(candidate(2, 1, 2, m=1), 1, 4)
    graph = operator_graph(given, plan, np.array(CROSSED))
    begin, end = of_kind(graph, "optimizer")
    assert begin == pytest.approx([10.0 + 3 * RING] * 2, abs=1e-4)
    assert end == pytest.approx([begin[0] + 1e-5 * PARAMETERS, begin[0] + 3e-5 * PARAMETERS])
    found, closed = both(given, plan, np.array(CROSSED))
    assert found == pytest.approx(closed, rel=1e-9)
