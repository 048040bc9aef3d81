"""The latency model ``step`` of the reference evaluator: by hand, and beside the fast evaluator."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.model import ModelSpec
from taut.data.stack import SCHEDULES
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.certificate.reference.prices import price
from tests.solver.certificate.reference.test_reference import agree
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.reference import case_of, choice_of, small_buckets
from tests.support.small import candidate, cluster, costs, model, problem, strategy
from tests.support.words import with_random_orders

SLOW = 1e-5
"""GB/s between nodes: 10 kB/s."""
PARAMETERS = 49_984
"""A layer of hidden size 64: 12 x 64^2 weights, 13 x 64 biases and norms."""
CROSSED = [[[0], [2]], [[1], [3]]]
"""Devices of two stages with two replicas on two nodes of two devices: every ring crosses, no hop does."""


def seconds(given: PlanningProblem, choice: Candidate, ends: tuple[int, ...], devices: list[list[list[int]]]) -> float:
    """The step time by the reference evaluator, after the fast one has given the same."""
    plan, placed = strategy(choice, *ends), np.array(devices)
    found = price(case_of(given), choice_of(choice), plan.stages, plan.recompute, placed[None], None)
    assert float(found.total[0]) == pytest.approx(float(step_time(given, plan, placed).total), rel=1e-12)
    return float(found.total[0])


def crossed(*, nic_gbps: float | None = None, optimizer: float = 0.0) -> PlanningProblem:
    """Two nodes of two devices, 10 kB/s between them, and 4 layers of 1 s a pass."""
    rows = [[0.0, SLOW], [SLOW, 0.0]]
    nodes = cluster(2, 2, rows=rows, nic_gbps=nic_gbps)
    return problem(nodes, table=costs(model(), optimizer=optimizer), latency_model="step", max_tp=1)


def test_the_ring_of_a_later_stage_counts() -> None:
    """A second stage with thrice the layers ends earlier, and then exchanges thrice the bytes."""
    # t = 3, 9 s; m = 4: 12 + 3 x 9 = 39 s, and 2 trips of 2 x 1.28 us. Stage 1 ends 2 s and a hop earlier.
    # Rings of two on two nodes move 2 (2-1)/2 = 1 times 4 B a parameter, 19.9936 s a layer: 39 + 20.0 < 37 + 60.0.
    choice = candidate(2, 1, 2, m=4)
    assert seconds(crossed(), choice, (1, 4), CROSSED) == pytest.approx(37 + 3.84e-6 + 3 * 19.9936)
    assert seconds(replace(crossed(), latency_model="pipette"), choice, (1, 4), CROSSED) == pytest.approx(
        39 + 5.12e-6 + 19.9936
    )


def test_every_replica_must_have_ended() -> None:
    """The ring of a stage starts with its slowest replica."""
    # Replica 1 sends its hops over 10 kB/s: 1.28 s each way, 2 trips of 2.56 s; it ends 2 + 1.28 s earlier on stage 1.
    # Stage 0 lies on devices 0 and 1 (10 GB/s within), stage 1 on 3 and 2 of the other node.
    choice = candidate(2, 1, 2, m=4)
    within = 2 * PARAMETERS * 4 / 10e9  # 4 (2-1)/2 of the bytes inside a node
    found = seconds(crossed(), choice, (1, 4), [[[0], [1]], [[3], [2]]])
    assert found == pytest.approx(39 + 5.12 + within)


def test_a_ring_gets_its_members_share_of_the_cards() -> None:
    """With one of a node's two devices a ring gets half of its cards, with both all of them."""
    # Cards of 8 bit/us = 1 kB/s a node, below the link's 10 kB/s. g = 1 of 2: 0.5 kB/s, 199,936 B take 399.872 s.
    # g = 2 of 2, one ring of four replicas: 1 kB/s for 4 layers, and 4 (2-1)/2 inside at 10 GB/s.
    given = crossed(nic_gbps=8e-6)
    assert seconds(given, candidate(2, 1, 2, m=4), (3, 4), CROSSED) == pytest.approx(39 + 5.12e-6 + 3 * 399.872)
    whole = 4 * 199_936 * (1 / 1e3 + 2 / 10e9)
    assert seconds(given, candidate(1, 1, 4, m=2), (4,), [[[0], [1], [2], [3]]]) == pytest.approx(24 + whole)


def test_buckets_are_reduced_during_the_last_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """With overlap the last bucket is left, or what the backward pass is too short for."""
    # Buckets of a layer: stage 0 has one, 39 + 19.9936. Stage 1: max(59.9808 / 3, 59.9808 - 6) = 53.9808 s after 37 s.
    given, choice = replace(crossed(), overlap_grad_reduce=True), candidate(2, 1, 2, m=4)
    assert seconds(given, choice, (1, 4), CROSSED) == pytest.approx(37 + 3.84e-6 + 3 * 19.9936)
    small_buckets(monkeypatch, PARAMETERS)
    assert seconds(given, choice, (1, 4), CROSSED) == pytest.approx(37 + 3.84e-6 + 53.9808)
    assert seconds(given, choice, (3, 4), CROSSED) == pytest.approx(39 + 5.12e-6 + 53.9808)


def test_an_unlike_group_takes_one_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tensor group of two types the slower of both gradients together hides the reduction, not each one's."""
    # d takes 2 + 1 s for the gradients of a layer, e 1 + 2 s: 12 s for four. All-reduces of 12,800 B at 10 kB/s between
    # the group's two nodes: 1.28 s, 4 a layer, half of them backward: 10.24 s. t = 4 x (4 + 4 x 1.28) = 36.48, m = 4.
    # A rank has 25,184 parameters a layer: 402,944 B take 40.2944 s, of which 12 + 10.24 are hidden.
    small_buckets(monkeypatch, 1000)
    rows = [[SLOW * (i != j) for j in range(4)] for i in range(4)]
    table, unlike = costs(model(), devices={"d": 1.0, "e": 1.0}), {"d": (2.0, 1.0), "e": (1.0, 2.0)}
    priced = [
        row.model_copy(update=dict(zip(("input_grad_s", "weight_grad_s"), unlike[row.device], strict=True)))
        for row in table.rows
    ]
    nodes = cluster(4, 1, rows=rows, devices=("d", "e"))
    given = problem(nodes, table=table.model_copy(update={"rows": priced}), latency_model="step")
    given = replace(given, overlap_grad_reduce=True)
    found = seconds(given, candidate(1, 2, 2, m=4), (4,), [[[0, 2], [1, 3]]])
    assert found == pytest.approx(4 * 36.48 + 40.2944 - 22.24)


def test_the_largest_optimizer_counts() -> None:
    """The optimizer runs everywhere at once, on a share of the parameters under ZeRO."""
    # 100 us a parameter: 3 x 4.9984 s on stage 1, half of them where two replicas share the work.
    given, choice = crossed(optimizer=1e-4), candidate(2, 1, 2, m=4)
    before = 37 + 3.84e-6 + 3 * 19.9936
    assert seconds(given, choice, (1, 4), CROSSED) == pytest.approx(before + 14.9952)
    assert seconds(given, replace(choice, zero=1), (1, 4), CROSSED) == pytest.approx(before + 7.4976)


def tied() -> PlanningProblem:
    """Two nodes of one device, 10 kB/s, and 4 layers with a tied vocabulary of 128 that costs no time."""
    values = {"name": "tied", "layers": 4, "hidden": 64, "heads": 4, "seq": 100, "vocab": 128, "tied_embedding": True}
    table = costs(model())
    nothing = {"forward_s": 0.0, "input_grad_s": 0.0, "weight_grad_s": 0.0, "activation_bytes": 0}
    edges = [row.model_copy(update={"kind": kind, **nothing}) for kind in ("embedding", "head") for row in table.rows]
    table = table.model_copy(update={"rows": [*table.rows, *edges]})
    nodes = cluster(2, 1, rows=[[0.0, SLOW], [SLOW, 0.0]])
    return problem(nodes, ModelSpec.parse(values, "tied"), table=table, latency_model="step", max_tp=1)


def test_a_tied_embedding_is_exchanged_by_its_two_holders() -> None:
    """Its gradients are summed once both holders have ended."""
    # t = 6 s twice, m = 8: 12 + 7 x 6 = 54 s, and 4 trips of 2 x 1.28 s. 128 x 64 x 4 B at 10 kB/s: 3.2768 s.
    choice = candidate(2, 1, 1)
    assert seconds(tied(), choice, (2, 4), [[[0]], [[1]]]) == pytest.approx(54 + 10.24 + 3.2768)
    untied = tied().model.model_copy(update={"tied_embedding": False})
    assert seconds(replace(tied(), model=untied), choice, (2, 4), [[[0]], [[1]]]) == pytest.approx(54 + 10.24)


def whole_step(seed: int) -> PlanningProblem:
    """A random problem in ``step``, in turn with overlap, measured links, every schedule, and given orders."""
    given = random_problem(seed, measured=seed % 3 == 0, large=seed % 5 == 0)
    tied = given.model.model_copy(update={"tied_embedding": bool(given.model.vocab) and seed % 2 == 0})
    given = replace(given, model=tied, latency_model="step", overlap_grad_reduce=seed % 4 < 2)
    if seed % 7 < 4:
        return given
    space = given.space.model_copy(update={"schedules": list(SCHEDULES), "max_vpp": 3})
    given = replace(given, space=space)
    return with_random_orders(given, np.random.default_rng(seed)) if seed % 7 == 6 else given


@pytest.mark.parametrize("block", blocks(3, proof=True))
def test_evaluators_agree_on_the_whole_step(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every schedule, device type, measured link, ZeRO stage and calibration, with and without overlap and tying."""
    small_buckets(monkeypatch, a_replica=1000)
    rng = np.random.default_rng(200 + block)
    checked = sum(agree(whole_step(seed), rng, 6) for seed in range(block * 70, (block + 1) * 70))
    assert checked > 200
