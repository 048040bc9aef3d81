"""The frontier of step time over memory limits: monotone, proven, the same as each limit solved apart."""

import csv
import json
import math
import os
import signal
import sys
from dataclasses import replace
from functools import cache
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.data.costs import RECOMPUTE
from taut.data.memory import MemoryModel
from taut.errors import DataError, InfeasibleError, NothingFoundError, TautError
from taut.formulations.latency import memory_bytes, violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.frontier.frontier import (
    Frontier,
    _improved,
    frontier_of,
    gib_of,
    kib_of,
    least_limit,
    limit_for,
    lowered,
    pareto,
    spaced_limits,
)
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.planning.solve import plan
from taut.solver.branch_and_bound.stop import Progress
from taut.solver.certificate.document import PlanDocument, devices_of, strategy_of
from taut.solver.result import CandidateBound, Limits, Source, State, Status
from taut.solver.search.search import search
from tests.support import small
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all
from tests.taut.conftest import Run

pytestmark = pytest.mark.proof

BATCH = 64
GIVEN = [2.0, 3.0, 3.5, 4.0, 6.0, 8.0, 16.0]
WHOLE: dict[str, Any] = {"fix": {"zero": 1}, "schedules": "1f1b", "gap": 1e-6, "time_limit": None}
"""Closed forms alone, each limit to its optimum."""
OPTIMA = ("--schedules", "1f1b", "--gap", "1e-6", "--time-limit", "none", "--quiet")
ASKED = ("pareto", "gpt2-345m", "amp-homogeneous", "--global-batch", BATCH, "--fix", "zero=1", *OPTIMA)
SMALL = ("pareto", "gpt2-345m", "g4dn.12xlarge", "--global-batch", 8, "--quiet")
SEEDS = (0, 3, 5, 8, 11, 17, 26, 32, 34, 36)
"""Random problems with one to three types of device, closed and open gaps, each enumerated in less than a second."""


@pytest.fixture(scope="module")
def found() -> Frontier:
    """GPT-2 345M on four nodes of four T4 within some limits, the smallest of which holds no plan."""
    return pareto("gpt2-345m", "amp-homogeneous", global_batch=BATCH, **WHOLE, limits=GIVEN)


@pytest.fixture(scope="module")
def whole() -> Frontier:
    """The same, every plan of the frontier."""
    return pareto("gpt2-345m", "amp-homogeneous", global_batch=BATCH, **WHOLE, points=None)


def problem() -> PlanningProblem:
    return planning_problem(PlanRequest("gpt2-345m", "amp-homogeneous", global_batch=BATCH, **WHOLE))


def monotone(frontier: Frontier) -> bool:
    """Whether neither step time nor bound rises with the limit, and no bound is above its step time."""
    times = [math.inf if point.step_time_s is None else point.step_time_s for point in frontier.points]
    bounds = [math.inf if point.lower_bound_s is None else point.lower_bound_s for point in frontier.points]
    below = all(bound <= seconds for bound, seconds in zip(bounds, times, strict=True))
    return below and times == sorted(times, reverse=True) and bounds == sorted(bounds, reverse=True)


def chosen(frontier: Frontier, index: int) -> tuple[Strategy, "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"]:
    """Strategy and devices of a point's plan."""
    point = frontier.points[index]
    assert point.plan is not None
    document = PlanDocument.model_validate(point.plan.document)
    return strategy_of(document.strategy, "plan"), devices_of(document, "plan")


def test_limit_leaves_room_beside_its_margin() -> None:
    """A limit is the least capacity that holds the bytes and the margin's share of itself, and its fixed part."""
    # 100 KiB less 5 % leave 95; 99 KiB less ceil(4.95) = 5 leave 94.
    assert limit_for(MemoryModel(margin=0.05), 95) == 100
    # 96 needs 101: 101 less ceil(5.05) = 6 leave 95, so 102: 102 less ceil(5.1) = 6 leave 96.
    assert limit_for(MemoryModel(margin=0.05), 96) == 102
    assert limit_for(MemoryModel(margin=0.0), 96) == 96
    # 1/1024 GiB = 1024 KiB on top: 1129 less ceil(56.45) = 57 less 1024 leave 48.
    assert limit_for(MemoryModel(margin=0.05, margin_gib=1 / 1024), 48) == 1129


@pytest.mark.parametrize("margin", [0.0, 0.05, 1 / 3, 0.1, 0.7, 0.999, 1 - 2**-53])
def test_room_does_not_fall_when_the_limit_grows(margin: float) -> None:
    """What fits a limit fits every larger one, for any share of margin and to the last KiB."""
    memory = MemoryModel(margin=margin, margin_gib=0.001)
    for start in (1, 10**6, 83_886_000, 2**30 - 500, 2**40 - 500):
        room = [kib - memory.margin_kib(kib) for kib in range(start, start + 1000)]
        assert room == sorted(room)


def test_least_limit_of_a_small_model_by_enumeration() -> None:
    """Two stages on two devices: the least of all divisions and recomputes, with more than two layers' parameters."""
    # A layer of hidden size 64 has 12 x 64^2 + 13 x 64 = 49,984 parameters, 18 bytes each in bf16: 899,712 bytes.
    spec = small.model(4)
    assert spec.blocks[0].parameters(1) == 49_984
    asked = small.problem(small.cluster(1, 2), spec, global_batch=2, fixed={"pp": 2, "schedule": "1f1b"})
    needs = [
        max(memory_bytes(asked, small.strategy(candidate, end, 4, recompute=kind)))
        for candidate in asked.candidates
        for end in (1, 2, 3)
        for kind in ("none", "selective", "full")
    ]
    least = least_limit(asked)
    assert least.need_kib == -(-min(needs) // 1024)
    assert min(needs) > 2 * 899_712
    # No margin, so the limit is what is needed.
    assert least.limit_kib == least.need_kib


def test_limits_are_spaced_evenly_in_hundredths() -> None:
    """From the least limit, rounded up, to the capacity; a capacity below the least limit is all there is."""
    assert spaced_limits(kib_of(2.5) + 1, kib_of(16), 4) == [2.51, 7.01, 11.51, 16.0]
    assert spaced_limits(kib_of(2.5), kib_of(16), 1) == [16.0]
    assert spaced_limits(kib_of(20), kib_of(16), 4) == [16.0]


def test_each_point_is_the_limit_solved_apart(found: Frontier) -> None:
    """A cluster whose devices have that much memory gives the same optimum, or none."""
    for point in found.points:
        cluster = lowered(problem(), point.limit_gib).cluster
        assert {device.memory_gib for device in cluster.devices.values()} == {point.limit_gib}
        if point.plan is None:
            with pytest.raises(InfeasibleError):
                plan("gpt2-345m", cluster, global_batch=BATCH, **WHOLE)
            continue
        apart = plan("gpt2-345m", cluster, global_batch=BATCH, **WHOLE)
        assert point.step_time_s == pytest.approx(apart.step_time_s, rel=1e-9)
        assert point.lower_bound_s == pytest.approx(apart.lower_bound_s, rel=1e-9)
        assert point.status is Status.OPTIMAL


def test_curve_is_monotone_with_many_plans(found: Frontier) -> None:
    """Step time and bound fall with the limit, and the strategies change."""
    assert monotone(found)
    assert len({repr(point.strategy) for point in found.planned}) >= 4
    assert [point.limit_gib for point in found.points] == GIVEN


def test_every_plan_verifies_and_respects_its_limit(found: Frontier) -> None:
    """Each point is a whole plan with a certificate, within its limit less the margin's share of the limit."""
    for point in found.planned:
        assert point.plan is not None
        assert point.plan.verify().holds
        predicted = point.plan.document["predicted"]
        limit = int(point.limit_gib * 2**30)
        assert set(predicted["capacity_bytes"]) == {limit}
        # 5 % of the lowered capacity, rounded up to a KiB.
        margin = math.ceil(0.05 * (limit // 1024)) * 1024
        assert set(predicted["margin_bytes"]) == {margin}
        assert point.memory_bytes == max(predicted["memory_bytes"]) <= limit - margin


def test_plan_needs_its_least_limit_to_the_kib(found: Frontier) -> None:
    """Within what it needs a plan violates nothing, within one KiB less it does."""
    for index, point in enumerate(found.points):
        if point.needs_gib is None:
            continue
        assert point.needs_gib <= point.limit_gib
        strategy, devices = chosen(found, index)
        assert violations(lowered(problem(), point.needs_gib), strategy, devices) == ()
        less = gib_of(kib_of(point.needs_gib) - 1)
        assert "needs" in str(violations(lowered(problem(), less), strategy, devices)[0])


def test_least_limit_is_feasible_and_no_smaller_one(found: Frontier) -> None:
    """The search proves the least limit infeasible when one KiB is taken away, by the bytes that are reported."""
    at_least = pareto("gpt2-345m", "amp-homogeneous", global_batch=BATCH, **WHOLE, limits=[found.least_gib])
    assert at_least.points[0].status is Status.OPTIMAL
    assert at_least.points[0].needs_gib == found.least_gib
    for limit in (gib_of(kib_of(found.least_gib) - 1), 2.0, 1.0):
        result = search(lowered(problem(), limit), Limits())
        assert result.status is Status.INFEASIBLE
        missing = min(bound.witness["missing_kib"] for bound in result.bounds)
        point = pareto("gpt2-345m", "amp-homogeneous", global_batch=BATCH, **WHOLE, limits=[limit, 16]).points[0]
        assert point.status is Status.INFEASIBLE
        assert point.missing_bytes == missing * 1024 > 0
        assert (point.step_time_s, point.lower_bound_s, point.gap, point.strategy) == (None, None, None, None)


def test_limits_above_the_capacity_change_nothing() -> None:
    """A device keeps what it has: 24 GiB are as good as a T4's 16, and the plan is that without a limit."""
    frontier = pareto("gpt2-345m", "amp-homogeneous", global_batch=BATCH, **WHOLE, limits=[16, 24])
    assert frontier.points[0].step_time_s == frontier.points[1].step_time_s
    free = plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, **WHOLE)
    assert frontier.points[1].step_time_s == free.step_time_s
    assert frontier.points[1].plan is not None
    assert frontier.points[1].plan.document["inputs"]["cluster"] == free.document["inputs"]["cluster"]


def test_whole_frontier_leaves_no_limit_open(whole: Frontier, found: Frontier) -> None:
    """Each limit is one KiB below what the plan before needs, down to the least, and every limit between is proven."""
    assert monotone(whole)
    assert whole.points[-1].limit_gib == 16.0
    assert whole.points[0].needs_gib == whole.least_gib
    for smaller, larger in zip(whole.points, whole.points[1:], strict=False):
        assert larger.needs_gib is not None
        assert kib_of(smaller.limit_gib) == kib_of(larger.needs_gib) - 1
        assert smaller.step_time_s is not None
        assert larger.step_time_s is not None
        assert smaller.step_time_s > larger.step_time_s
    assert whole.widest_gap is not None
    assert whole.widest_gap <= 1e-9
    for point in found.planned:
        assert whole.at(point.limit_gib) == pytest.approx((point.step_time_s, point.step_time_s), rel=1e-9)


def test_points_say_what_holds_between_them(found: Frontier, whole: Frontier) -> None:
    """At any limit the optimum lies between the figures of the sampled curve; below the least there is none."""
    assert found.at(gib_of(kib_of(found.least_gib) - 1)) == (math.inf, math.inf)
    assert found.at(20.0)[0] == 0.0
    gaps = []
    for kib in np.random.default_rng(0).integers(kib_of(found.least_gib), kib_of(16) + 1, 300).tolist():
        optimum = whole.at(gib_of(kib))[1]
        lower, upper = found.at(gib_of(kib))
        assert lower <= optimum * (1 + 1e-9)
        assert optimum <= upper * (1 + 1e-9)
        if kib >= kib_of(found.span_gib[0]):
            gaps.append((upper - lower) / upper)
    assert found.widest_gap is not None
    assert max(gaps) <= found.widest_gap


@cache
def every_plan(seed: int) -> Frontier:
    """The whole frontier of a random problem."""
    return frontier_of(random_problem(seed), Limits(), points=None)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_frontiers_against_enumeration(seed: int) -> None:
    """On any kind of small problem the optimum by enumeration lies within the whole frontier, at any limit."""
    asked, frontier = random_problem(seed), every_plan(seed)
    assert monotone(frontier)
    # No plan stands at two limits, so the step time falls strictly where it is proven.
    for smaller, larger in zip(frontier.points, frontier.points[1:], strict=False):
        assert larger.status is not Status.OPTIMAL or smaller.step_time_s != larger.step_time_s
    least, most = kib_of(frontier.least_gib), kib_of(frontier.capacity_gib)
    drawn = np.random.default_rng(seed).integers(least, most + 1, 2).tolist()
    for kib in {least - 1, least, most, *drawn}:
        lower, upper = frontier.at(gib_of(kib))
        optimum = enumerate_all(lowered(asked, gib_of(kib))).seconds
        assert lower <= optimum * (1 + 1e-9)
        assert optimum <= upper * (1 + 1e-9)
    for point in frontier.planned:
        assert point.plan is not None
        assert point.plan.verify().holds


@pytest.mark.parametrize("work", [1, 4, 15])
@pytest.mark.parametrize("seed", [3, 4, 8, 32, 34])
def test_curve_is_monotone_whatever_stops_the_searches(seed: int, work: int) -> None:
    """Searches that stop early give weaker figures, still monotone, valid and certified."""
    asked, full = random_problem(seed), every_plan(seed)
    given = [*(point.limit_gib for point in full.points), full.least_gib / 2]
    try:
        frontier = frontier_of(asked, Limits(work_limit=work), memory_limits=given)
    except NothingFoundError:
        return
    assert monotone(frontier)
    for point in frontier.points:
        lower, upper = full.at(point.limit_gib)
        assert point.lower_bound_s is None or point.lower_bound_s <= upper * (1 + 1e-9)
        assert point.step_time_s is None or point.step_time_s >= lower * (1 - 1e-9)
        assert point.plan is None or point.plan.verify().holds
    assert frontier.points[0].status is Status.INFEASIBLE


def test_searches_share_the_seconds_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of four has at most a quarter, and each has its share of what the ones before have left."""
    asked: list[float | None] = []

    def noted(given: PlanningProblem, limits: Limits, *more: Any, **named: Any) -> Any:
        asked.append(limits.time_limit)
        return search(given, replace(limits, time_limit=None), *more, **named)

    monkeypatch.setattr("taut.frontier.frontier.search", noted)
    problem, seconds = small.problem(small.cluster(2, 1), small.model(4)), 1000.0
    frontier_of(problem, Limits(time_limit=seconds, gap=0.5), points=4)
    first, *later = [limit for limit in asked if limit is not None]
    assert 249 < first <= 250 and len(later) == 3
    assert 250 <= later[0] <= later[1] <= later[2] <= seconds
    asked.clear()
    frontier_of(problem, Limits(work_limit=3), points=2)
    assert asked == [None, None]


def test_interrupt_keeps_the_points_so_far() -> None:
    """Ctrl-C at the second limit gives the points of the larger ones, and says that limits are left."""
    seen: list[str] = []

    def press(at: Progress) -> None:
        seen.append(at.doing)
        if "at most 8 GiB" in at.doing:
            os.kill(os.getpid(), signal.SIGINT)

    asked = problem()
    frontier = frontier_of(asked, Limits(), memory_limits=[1, 4, 8, 16], progress=press)
    assert frontier.interrupted
    assert [point.limit_gib for point in frontier.points] == [1, 8, 16]
    assert frontier.points[0].status is Status.INFEASIBLE
    assert frontier.points[2].status is Status.OPTIMAL
    assert "Interrupted: smaller limits were not searched." in str(frontier)
    # The plan within 16 GiB fits 8 and began that search; its bound holds there too, and is better than its own.
    cut = frontier.points[1]
    assert cut.step_time_s == pytest.approx(frontier.points[2].step_time_s, rel=1e-9)
    assert cut.step_time_s == pytest.approx(cut.lower_bound_s, rel=1e-9)
    assert cut.status is Status.OPTIMAL
    assert cut.bound_from_gib == 16
    assert cut.plan is not None
    assert cut.plan.status == "feasible"
    assert cut.plan.lower_bound_s is not None
    assert cut.lower_bound_s is not None
    assert cut.plan.lower_bound_s < cut.lower_bound_s
    assert cut.plan.verify().holds
    assert seen[0].startswith("at most 16 GiB: bounds of 0 of ")
    assert any(doing.startswith("at most 16 GiB: pp=") for doing in seen)


def test_taken_over_plan_prunes_the_candidates_that_it_beats() -> None:
    """A faster plan closes what it beats; the bound is the least of the others, or the plan itself."""
    result = search(problem(), Limits(work_limit=30))
    assert result.incumbent is not None
    kinds = [
        (State.OPEN, 3.0),
        (State.OPEN, 5.0),
        (State.SOLVED, 2.0),
        (State.INFEASIBLE, math.inf),
        (State.PRUNED, 4.5),
    ]
    bounds = [
        CandidateBound(candidate=bound.candidate, lower_bound=value, source=Source.PARTITION, state=state)
        for bound, (state, value) in zip(result.bounds, kinds, strict=False)
    ]
    stopped = replace(result, status=Status.FEASIBLE, lower_bound=3.0, bounds=bounds)
    better = _improved(stopped, replace(result.incumbent, seconds=4.0))
    states = [State.OPEN, State.PRUNED, State.SOLVED, State.INFEASIBLE, State.PRUNED]
    assert [bound.state for bound in better.bounds] == states
    assert (better.status, better.lower_bound, better.gap) == (Status.FEASIBLE, 3.0, 0.25)
    best = _improved(stopped, replace(result.incumbent, seconds=3.0))
    assert (best.status, best.lower_bound, best.gap) == (Status.OPTIMAL, 3.0, 0.0)


def test_no_feasible_limit_is_an_error_with_the_missing_bytes(found: Frontier) -> None:
    """What is missing at the largest limit, and the least limit that would do."""
    with pytest.raises(
        InfeasibleError, match=r"the largest, 2 GiB, lacks .* nearest way out: a limit of 2\.\d\d GiB"
    ) as no:
        pareto("gpt2-345m", "amp-homogeneous", global_batch=BATCH, **WHOLE, limits=[1, 2])
    assert no.value.report is not None
    assert f"({no.value.report['points'][1]['missing_bytes']} bytes)" in str(no.value)
    assert found.points[0].missing_bytes == no.value.report["points"][1]["missing_bytes"]


@pytest.mark.parametrize("points", [None, 1, 5])
def test_model_that_no_device_holds_names_the_device_that_would(points: int | None) -> None:
    """Where even the capacity is too small, the way out is larger devices."""
    with pytest.raises(
        InfeasibleError, match=r"the largest, 16 GiB, lacks .* devices with [\d.]+ GiB instead of 16 GiB"
    ):
        pareto("gpt3-175b", "g4dn.12xlarge", global_batch=8, points=points)


@pytest.mark.parametrize("wrong", [[], [0.0], [-1.0], [math.nan], [math.inf], [1e300], [1e-9]])
def test_wrong_limits_are_refused(wrong: list[float]) -> None:
    """Limits are GiB above 0 that a device could have."""
    with pytest.raises(DataError, match=r"limits: .*expected GiB above 0"):
        pareto("gpt2-345m", "g4dn.12xlarge", global_batch=8, limits=wrong)


def test_command_prints_table_json_csv_picture_and_plans(tmp_path: Path, run: Run) -> None:
    """One call writes all files, whose figures agree, and each plan verifies by the command line."""
    names = {"--out": "curve.csv", "--plot": "curve.svg", "--out-plans": "plans"}
    words = [word for option, name in names.items() for word in (option, tmp_path / name)]
    outcome = run(*ASKED, "--limits", "2,4, 16", "--json", *words)
    assert (outcome.code, outcome.err) == (0, "")
    said = json.loads(outcome.out)
    assert [point["limit_gib"] for point in said["points"]] == [2, 4, 16]
    assert [point["status"] for point in said["points"]] == ["infeasible", "optimal", "optimal"]
    assert said["points"][0]["missing_bytes"] > 0
    assert (said["capacity_gib"], said["interrupted"], said["margin"]) == (16, False, 0.05)
    rows = list(csv.DictReader(StringIO((tmp_path / "curve.csv").read_text())))
    for row, point in zip(rows, said["points"], strict=True):
        for field in ("limit_gib", "step_time_s", "lower_bound_s", "gap", "needs_gib", "memory_bytes"):
            assert row[field] == ("" if point[field] is None else str(point[field])), field
    assert [int(rows[1][degree]) for degree in ("pp", "tp", "dp")] == [
        said["points"][1]["strategy"][degree] for degree in ("pp", "tp", "dp")
    ]
    assert len(rows[1]["recompute"].split()) == int(rows[1]["pp"])
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    plans = sorted((tmp_path / "plans").iterdir())
    assert [path.name for path in plans] == ["01-4.00gib.json", "02-16.00gib.json"]
    assert all(run("verify", path).code == 0 for path in plans)


def test_command_prints_what_is_known(run: Run) -> None:
    """The table has a line per limit, the largest first, and says what holds between and below."""
    outcome = run(*ASKED, "--limits", "2,4,16")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    head = "gpt2-345m on amp-homogeneous, global batch 64, sequence length 1024, latency model step"
    assert lines[0] == f"{head}: step time by memory limit"
    assert lines[2].split()[:2] == ["limit", "GiB"]
    assert [line.split()[0] for line in lines[3:6]] == ["16.00", "4.00", "2.00"]
    assert "infeasible" in lines[5]
    assert "lacks 0." in lines[5]
    assert "in between too, the gap is " in outcome.out
    assert "No plan fits less than 2." in outcome.out


@pytest.mark.parametrize(("words", "points"), [((), 8), (("--points", "3"), 3), (("--points", "all"), None)])
def test_command_chooses_limits_itself(run: Run, words: tuple[str, ...], points: int | None) -> None:
    """Eight limits unless said otherwise, from the least that holds a plan to the capacity."""
    said = json.loads(run(*SMALL, *OPTIMA, "--json", *words).out)
    assert points is None or len(said["points"]) == points
    assert said["points"][-1]["limit_gib"] == 16
    if points is None:
        assert said["points"][0]["needs_gib"] == said["least_gib"]
        assert said["widest_gap"] <= 1e-6
    else:
        assert said["points"][0]["limit_gib"] == math.ceil(said["least_gib"] * 100) / 100


WRONG = {
    "--limits=2,x": "--limits x: expected GiB above 0",
    "--limits=": "--limits none given",
    "--limits=4,0": "--limits 0: expected GiB above 0",
    "--limits=1e999": "--limits inf: expected GiB above 0",
    "--limits=4 --points=3": "--points 3: given together with --limits",
    "--points=0": "--points 0: expected a number from 1 to 10000, or all",
    "--points=some": "--points some: expected a number above 0, or all",
    "--points=99999": "--points 99999: expected a number from 1",
    "--plot=curve.txt": "expected a name that ends in .png, .pdf, .svg",
    "--plot=nowhere/curve.png": "there is no folder nowhere",
    "--out=nowhere/curve.csv": "there is no folder nowhere",
    "--out-plans=nowhere/plans": "there is no folder nowhere",
    "--out-plans=README.md": "README.md: is a file, expected a folder",
    "--out=docs": "docs: is a folder, expected a writable file name",
    "--gap=2": "--gap 2: expected a share",
    "--time-limit=0": "--time-limit 0: expected a number above 0",
    "--fix=tp": "--fix tp: expected NAME=VALUE",
    "--latency-model=x": "--latency-model x: expected one of",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_options_stop_in_one_line(run: Run, words: str) -> None:
    """A wrong option is one line and exit code 2, before any search."""
    outcome = run(*SMALL, *words.split(" "))
    assert (outcome.code, outcome.out) == (2, "")
    assert WRONG[words] in outcome.err
    assert outcome.err.count("\n") == 1


def test_picture_without_matplotlib_names_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where matplotlib is absent the command says how to get it, before the search."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = run(*SMALL, "--plot", "curve.png")
    assert (outcome.code, outcome.out) == (2, "")
    assert "plots need matplotlib: pip install 'taut[plot]'" in outcome.err


def test_exit_codes_for_infeasible_and_nothing_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 with a report where no limit holds a plan, 4 where time ran out before the first plan."""
    outcome = run(*ASKED, "--limits", "1,2", "--json")
    assert outcome.code == 3
    assert json.loads(outcome.out)["status"] == "infeasible"
    assert "no plan fits any limit" in outcome.err
    # Simple plans are what a search leaves that has no time; a problem that is too tight for them has none.
    for plans in ("search.first_plans", "search.simplest_plans"):
        monkeypatch.setattr(f"taut.solver.search.{plans}", lambda *given, **more: iter(()))
    chunks = "pareto", "gpt2-345m", "amp-homogeneous", "--global-batch", BATCH, "--fix", "schedule=interleaved-1f1b"
    outcome = run(*chunks, "--limits", "8,16", "--time-limit", "1e-9", "--quiet")
    assert (outcome.code, outcome.out) == (4, "")
    assert "no plan found at any limit" in outcome.err


def test_sweep_of_a_single_candidate_names_it() -> None:
    """With everything fixed the leanest candidate is the one there is."""
    fixed: dict[str, int | str | bool] = {
        "pp": 4,
        "tp": 1,
        "dp": 4,
        "micro_batch": 1,
        "schedule": "1f1b",
        "zero": 1,
        "sequence_parallel": False,
        "recompute": "full",
    }
    frontier = pareto("gpt2-345m", "amp-homogeneous", global_batch=BATCH, fix=fixed, points=3)
    assert frontier.leanest == str(Candidate(4, 1, 4, 1, 1, 8, "1f1b", 1, False))
    assert issubclass(InfeasibleError, TautError)
    assert {point.strategy.dp for point in frontier.planned if point.strategy} == {4}


@pytest.mark.parametrize("seed", [5, 17, 41, 53])
def test_no_order_priced_plan_needs_less_than_the_least_limit(seed: int) -> None:
    """Every division and recompute of random candidates takes at least the bytes of the least limit."""
    given = random_problem(seed)
    space = given.space.model_copy(update={"schedules": ["interleaved-1f1b", "zb-h1", "v-half"], "max_vpp": 2})
    asked = replace(given, space=space, latency_model="step")
    assert any(candidate.is_order_priced for candidate in asked.candidates)
    least = least_limit(asked)
    for candidate in asked.candidates:
        chunks, layers = candidate.pp * candidate.vpp, len(asked.model.blocks)
        for inner in combinations(range(1, layers), chunks - 1):
            for kind in asked.recompute_of(candidate):
                kinds = np.full(chunks, RECOMPUTE.index(kind))
                division = Division.of_ends(np.array([*inner, layers]), kinds)
                held = max(memory_bytes(asked, Strategy(candidate=candidate, division=division)))
                assert -(-held // 1024) >= least.need_kib, candidate


def test_frontier_of_schedules_that_are_priced_by_their_order() -> None:
    """With interleaved chunks and the V the curve is monotone, and every plan fits its limit."""
    request = PlanRequest(
        "gpt2-345m", "g4dn.12xlarge", global_batch=8, schedules="1f1b,interleaved-1f1b,v-half", stack="any"
    )
    limits = Limits(work_limit=60, workers=1)
    frontier = frontier_of(planning_problem(request), limits, memory_limits=[3.0, 5.0, 8.0, 16.0])
    assert monotone(frontier)
    assert any(point.plan is not None for point in frontier.points)
    for point in frontier.points:
        assert point.needs_gib is None or point.needs_gib <= point.limit_gib


def test_pareto_takes_every_schedule(run: Run) -> None:
    """The command plans an interleaved schedule within a limit."""
    made = run(*SMALL, "--schedules", "interleaved-1f1b", "--limits", "16", "--work-limit", "20")
    assert made.code == 0
    assert "16.00" in made.out
