"""The branch and bound: limits, determinism, states."""

import numpy as np
import pytest

from taut.solver.branch_and_bound.stop import Progress
from taut.solver.infeasibility.diagnosis import diagnose
from taut.solver.result import CandidateBound, Limits, Source, State, relative_gap
from taut.solver.search.search import search
from taut.solver.search.standing import Best
from tests.support.oracle import enumerate_all
from tests.support.small import cluster, costs, model, problem, strategy

pytestmark = pytest.mark.proof


def test_search_proves_the_optimum_of_a_small_problem() -> None:
    """Eight devices in two nodes: plan, bound and enumeration agree."""
    given = problem(cluster(2, 2), recompute=["none"])
    result = search(given, Limits())
    assert result.status == "optimal"
    assert result.incumbent is not None
    assert result.incumbent.seconds == pytest.approx(enumerate_all(given).seconds, rel=1e-9)


def test_every_candidate_has_a_state_that_follows_from_its_bound() -> None:
    """Pruned and solved candidates are no better than the plan, open ones are none when proven."""
    result = search(problem(cluster(2, 2)), Limits())
    assert result.incumbent is not None
    for bound in result.bounds:
        if bound.state in (State.PRUNED, State.SOLVED):
            assert bound.lower_bound >= result.incumbent.seconds * (1 - 1e-9)
        assert np.isfinite(bound.lower_bound) == (bound.state is not State.INFEASIBLE)


def test_work_limit_is_deterministic_and_leaves_a_valid_bound() -> None:
    """The same work gives the same plan whatever the threads, and less work no better bound."""
    rng = np.random.default_rng(3)
    given = problem(cluster(6, 2, rows=rng.uniform(0.01, 1, (12, 12)).tolist()), model(6), global_batch=12)
    one = search(given, Limits(work_limit=4, workers=1))
    other = search(given, Limits(work_limit=4, workers=2))
    assert one.incumbent is not None and other.incumbent is not None
    assert one.incumbent.seconds == other.incumbent.seconds
    assert (one.incumbent.devices == other.incumbent.devices).all()
    assert one.work == 4
    assert one.lower_bound <= search(given, Limits()).lower_bound * (1 + 1e-12)


@pytest.mark.parametrize("slow_pair", [False, True])
def test_workers_stand_in_the_order_of_the_devices_where_it_costs_nothing(slow_pair: bool) -> None:
    """Four stages on four nodes: in order where links are alike, and not over a slow link that the plan avoids."""
    rates = np.full((4, 4), 1.0)
    rates[1, 2] = rates[2, 1] = 0.01 if slow_pair else 1.0
    given = problem(cluster(4, 1, rows=rates.tolist()), model(4), global_batch=8, fixed={"pp": 4})
    best, choice = Best(given), given.candidates[0]
    bound = CandidateBound(candidate=choice, state=State.OPEN, lower_bound=0.0, source=Source.BALANCE)
    best.take(bound, strategy(choice, 1, 2, 3, 4), np.array([0, 1, 3, 2]).reshape(4, 1, 1))
    before = best.seconds
    best.settle()
    assert best.incumbent is not None and best.seconds == pytest.approx(before, rel=1e-12)
    assert best.incumbent.devices.ravel().tolist() == ([0, 1, 3, 2] if slow_pair else [0, 1, 2, 3])


@pytest.mark.parametrize(("fixed", "shared"), [({}, True), ({"sequence_parallel": False}, False)])
def test_tensor_ranks_share_sequences_where_it_costs_nothing(fixed: dict[str, bool], shared: bool) -> None:
    """Two tensor ranks take as long with sequence parallelism as without it, and a plan has it unless it is fixed."""
    given = problem(cluster(1, 2), fixed={"pp": 1, "tp": 2, **fixed})
    found = search(given, Limits()).incumbent
    assert found is not None and found.strategy.candidate.sequence_parallel is shared
    seconds = {each.candidate.sequence_parallel: each.lower_bound for each in search(given, Limits()).bounds}
    assert seconds[shared] <= found.seconds
    best = Best(given)
    bound = CandidateBound(candidate=given.candidates[0], state=State.OPEN, lower_bound=0.0, source=Source.BALANCE)
    layers = len(given.model.blocks)
    before = best.take(bound, strategy(given.candidates[0], layers), np.array([0, 1]).reshape(1, 1, 2))
    best.settle()
    assert best.incumbent is not None and best.seconds <= before < np.inf
    assert best.incumbent.strategy.candidate.sequence_parallel is shared


@pytest.mark.parametrize("schedules", [["1f1b"], ["interleaved-1f1b"]])
def test_a_limit_that_leaves_no_refinement_leaves_a_plan(schedules: list[str]) -> None:
    """Without time or work for a single division there is a simple plan, with the bounds by closed forms."""
    given = problem(cluster(4, 1), model(8), latency_model="step", schedules=schedules, fixed={"pp": 4})
    for limits in (Limits(work_limit=0), Limits(time_limit=0.0)):
        result = search(given, limits)
        assert result.incumbent is not None
        assert 0 < result.lower_bound <= result.incumbent.seconds


def test_a_limit_leaves_a_division_where_simple_plans_do_not_fit() -> None:
    """With layers that keep 10 MB, 2 + 2 of them keep 40 MB in two micro-batches on the first stage, 1 + 3 keep 30."""
    nodes, spec = cluster(2, 1, memory_gib=36e6 / 2**30), model(4)
    fixed = {"pp": 2, "micro_batch": 1}
    table = costs(spec, activation_bytes=10**7)
    tight = problem(nodes, spec, table=table, latency_model="step", recompute=["none"], fixed=fixed)
    result = search(tight, Limits(time_limit=0.0))
    assert result.incumbent is not None
    assert result.incumbent.strategy.division.layers.tolist() == [1, 3]


def test_a_limit_is_no_excuse_where_nothing_fits() -> None:
    """Without time for the search, three megabytes are proven to be too few for four layers of a megabyte."""
    nodes = cluster(1, 1, memory_gib=3e6 / 2**30)
    assert search(problem(nodes, model(4)), Limits(time_limit=0.0)).status == "infeasible"


def test_gap_limit_stops_when_the_gap_is_small_enough() -> None:
    """A generous gap stops at once with status feasible or better."""
    result = search(problem(cluster(2, 2)), Limits(gap=0.9))
    assert result.stopped_by == "gap"
    assert result.gap is not None and result.gap <= 0.9


def test_interrupt_returns_the_incumbent_with_its_bound() -> None:
    """Ctrl-C while the search reports keeps plan and bound."""
    import os
    import signal

    def press(at: Progress) -> None:
        if np.isfinite(at.incumbent):
            os.kill(os.getpid(), signal.SIGINT)

    rng = np.random.default_rng(3)
    given = problem(cluster(6, 2, rows=rng.uniform(0.01, 1, (12, 12)).tolist()), model(6), global_batch=12)
    result = search(given, Limits(workers=1), press)
    assert result.stopped_by == "interrupt"
    assert result.incumbent is not None
    assert np.isfinite(result.lower_bound)


def test_infeasible_problem_is_proven_and_explained() -> None:
    """Nothing fits in 0.2 MiB: the explanation names device, bytes and a way out that fits."""
    given = problem(cluster(1, 2, memory_gib=2e-4), model(4), global_batch=2)
    result = search(given, Limits())
    assert result.status == "infeasible"
    words = str(diagnose(given, result))
    assert "bytes) on device" in words
    assert "nearest way out: " in words
    assert "\n" not in words


def test_way_out_by_more_nodes_is_computed() -> None:
    """Four layers that need four devices: two nodes of two do what one cannot."""
    # A layer alone needs 18 x 49,984 B of states; 0.9 MiB hold one layer with its activations, not two.
    given = problem(cluster(1, 2, memory_gib=0.9e-3), model(4), global_batch=2, max_tp=1, fixed={})
    words = str(diagnose(given, search(given, Limits())))
    assert "nearest way out: 2 such nodes instead of 1 (" in words


def test_way_out_by_other_stages_comes_first() -> None:
    """If more stages than fixed have a plan, the explanation says how many."""
    given = problem(cluster(2, 2, memory_gib=2e-3), model(4), global_batch=4, max_tp=1, fixed={"pp": 1})
    words = str(diagnose(given, search(given, Limits())))
    assert "nearest way out: pp=2 instead of pp=1 (" in words


def test_unlike_devices_are_planned_within_the_bound() -> None:
    """Two types of device: the plan is at least the bound, and the fast ones get more layers."""
    nodes = cluster(2, 1, devices=("a", "b"))
    given = problem(nodes, model(4), table=costs(model(4), devices={"a": 1.0, "b": 3.0}), fixed={"pp": 2})
    result = search(given, Limits())
    assert result.incumbent is not None
    # 3 layers on the fast device (9 s), 1 on the slow one (9 s): micro-batch 1, 18 + 7 x 9 seconds and the hop.
    assert result.incumbent.seconds == pytest.approx(enumerate_all(given).seconds, rel=1e-9)
    sizes = sorted(end - first for first, end in result.incumbent.strategy.stages)
    assert sizes == [1, 3]


@pytest.mark.parametrize(
    ("objective", "bound", "gap"),
    [
        (2.0, 1.0, 0.5),
        (1.0, 1.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, -1.0, None),
        (1.0, -np.inf, None),
        (np.inf, 1.0, None),
        (-8.0, -10.0, 0.25),
    ],
)
def test_gap_is_unknown_where_it_is_not_defined(objective: float, bound: float, gap: float | None) -> None:
    """A relative gap needs finite figures and an objective other than zero."""
    assert relative_gap(objective, bound) == gap
