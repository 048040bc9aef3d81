"""vTrain's tables beside ours: its rules, the measured runs, its utilisation, the sizes, and the front."""

import json
import os
from collections import deque
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from taut.errors import DataError
from taut.papers.published_rows import PAPERS
from taut.papers.vtrain import plans, sizes, space
from taut.papers.vtrain.plans import BLOOM, VTRAIN, priced
from taut.papers.vtrain.step import makespan, step_seconds
from taut.papers.vtrain.study import SIZE, Space, Study, plot_design_space, validate
from tests.taut.conftest import Run, refused

DATA = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "measured"


def graph_seconds(forward: list[float], recompute: list[float], backward: list[float], batches: int) -> float:
    """The same step as a graph of tasks in the order of the released code, run by algorithm 1 of the paper."""
    stages = len(forward)
    streams: list[list[int]] = [[] for _ in range(stages)]
    chains: list[list[int]] = [[] for _ in range(batches)]
    seconds: list[float] = []

    def add(stage: int, duration: float, batch: int | None) -> None:
        streams[stage].append(len(seconds))
        if batch is not None:
            chains[batch].append(len(seconds))
        seconds.append(duration)

    for i in range(min(stages - 1, batches)):
        for r in range(stages - 1 - i):
            add(r, forward[r], i)
    for i in range(batches):
        for r in reversed(range(stages)):
            if stages - r - 1 + i < batches:
                add(r, forward[r], stages - r - 1 + i)
            add(r, recompute[r], None)
            add(r, backward[r], i)
    children: list[list[int]] = [[] for _ in seconds]
    waits = [0] * len(seconds)
    for path in (*streams, *chains):
        for a, b in pairwise(path):
            children[a].append(b)
            waits[b] += 1
    start, ready = [0.0] * len(seconds), deque(u for u, count in enumerate(waits) if not count)
    while ready:
        u = ready.popleft()
        for c in children[u]:
            start[c] = max(start[c], start[u] + seconds[u])
            waits[c] -= 1
            if not waits[c]:
                ready.append(c)
    return max(s + d for s, d in zip(start, seconds, strict=True))


def test_the_recurrence_is_algorithm_1_on_the_released_graph() -> None:
    """On 200 random pipelines the makespan is that of the tasks taken one by one."""
    chance = np.random.default_rng(0)
    for _ in range(200):
        stages, batches = (int(n) for n in chance.integers(1, 7, 2))
        forward, recompute, backward = chance.random((3, stages))
        expected = graph_seconds(forward.tolist(), recompute.tolist(), backward.tolist(), int(batches))
        assert makespan(forward, recompute, backward, int(batches)) == pytest.approx(expected, rel=1e-12)


def test_every_prediction_of_table_i_within_two_per_cent() -> None:
    """With one scalar of the other five plans, each is within a tenth of a per cent of the published seconds."""
    rows = plans.table_one()
    assert len(rows) == 6
    assert max(abs(row.rules_error) for row in rows) < 0.001
    assert max(row.scalar for row in rows) - min(row.scalar for row in rows) < 0.001


def test_measured_runs_of_mt_nlg_within_ten_per_cent() -> None:
    """BLOOM's calibration is within 5 % of 60.1, 50.2 and 44.4 s, and no plan of vTrain's fits 80 GB without ZeRO."""
    rows = plans.table_one()
    errors = [row.measured_error for row in rows if row.measured_error is not None]
    assert len(errors) == 3 and max(abs(error) for error in errors) < 0.05
    assert [row.ours.fits for row in rows] == [True] * 3 + [False] * 3
    assert all(row.ours.zero1_fits for row in rows)


def run_file(path: Path, seconds: float) -> None:
    """One run of Table I's last plan at twice the micro-batch, as vTrain writes them."""
    head = "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,"
    head += "data parallelism,pipeline parallelism,iteration time (ms)"
    path.write_text(f"{head}\n2880,1920,2,20480,128,105,2048,8,24,15,{1e3 * seconds}\n", encoding="utf-8")


def test_errors_and_the_sweep_are_of_the_runs_of_the_files(tmp_path: Path) -> None:
    """A run that takes what the rules say at 0.4 of the bandwidth has no error there, and the sweep finds it."""
    seconds = {
        alpha: step_seconds(plans.MT_NLG, (8, 24, 15), 1920, 1.1, micro_batch=2, alpha=alpha) for alpha in (0.4, 1.0)
    }
    run_file(tmp_path / "vtrain_single.csv", 2 * seconds[1.0])
    run_file(tmp_path / "vtrain_multi.csv", seconds[0.4])
    found = validate(tmp_path, 1.1)
    assert found.runs == (1, 1) and found.best_alpha == 0.4 and found.by_alpha[0.4] == pytest.approx(0.0, abs=1e-9)
    assert found.errors == pytest.approx((0.5, 1 - seconds[1.0] / seconds[0.4]))
    (tmp_path / "vtrain_multi.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="ground truth"):
        validate(tmp_path, 1.1)


@pytest.mark.skipif(not DATA.is_dir(), reason="vTrain's runs are not here")
def test_recorded_errors_are_of_the_published_runs() -> None:
    """The rows of figure 9 and equation 1 have the figures that the files give."""
    recorded = {row.key: row.ours for row in PAPERS["vtrain"].rows}
    for key, ours in validate(DATA, plans.fitted(plans.TABLE)).figures.items():
        assert recorded[key] == ours


def test_days_utilisation_and_dollars_are_the_published_ones() -> None:
    """(1) and (2) give the published columns from the published seconds, to the digits that are printed."""
    for row in plans.table_one():
        line = row.published
        assert row.days(line.step_s) == pytest.approx(line.days, abs=0.011)
        assert row.utilisation(line.step_s) == pytest.approx(line.utilisation, abs=0.0001)
        assert row.dollars(line.step_s) == pytest.approx(line.dollars, abs=0.006e6)


def test_another_price_scales_the_dollars() -> None:
    """Dollars are proportional to the price of a GPU hour."""
    cheap, usual = plans.table_one(1.0), plans.table_one()
    assert [5 * a.dollars(1.0) for a in cheap] == [b.dollars(1.0) for b in usual]


def test_shapes_and_tokens_of_table_iii() -> None:
    """The parameters of all eleven shapes are the published ones, and the tokens are twenty for each."""
    for line in sizes.TABLE:
        assert line.shape.parameters / 1e9 == pytest.approx(line.parameters, abs=0.011)
        assert line.tokens == pytest.approx(sizes.TOKENS_A_PARAMETER * line.parameters, abs=1.0)
        assert plans.gpus(line.plan) == sizes.GPUS
        assert sizes.GLOBAL_BATCH % line.plan[1] == 0
    assert sizes.chinchilla() == pytest.approx((146.7, 3090.8), abs=0.1)


def test_days_of_table_iii_by_the_rules() -> None:
    """With table I's scalar and the batch of the first row, the other ten are at most 12 % short of the published."""
    scalar = plans.fitted(plans.TABLE)
    found = priced(VTRAIN, [(line.shape, line.plan) for line in sizes.TABLE], sizes.GLOBAL_BATCH)
    for line, ours in zip(sizes.TABLE, found, strict=True):
        seconds = step_seconds(line.shape, line.plan, sizes.GLOBAL_BATCH, scalar)
        row = sizes.Row(line, seconds, ours, None)
        assert -0.12 < row.days(seconds) / line.days - 1 < 0.01
        assert ours.zero1_fits


def test_the_front_of_the_design_space() -> None:
    """Of 294 plans none on the front has another with as few GPUs that is as fast, and the rest have one."""
    points = space.points(1.12)
    assert len(points) == len(space.PLANS) == 294
    chosen = space.front(points)
    fitting = [point for point in points if point.ours.zero1_fits]
    for point in fitting:
        better = [o for o in fitting if o.gpus <= point.gpus and o.ours.step_s < point.ours.step_s]
        same = [o for o in fitting if o.gpus < point.gpus and o.ours.step_s == point.ours.step_s]
        assert (point in chosen) == (not better and not same)


def study() -> Study:
    """A small study with everything in it."""
    points = space.points(1.12)
    best = (space.Best(504, (4, 6, 21), 198.0, 197.0, ""), space.Best(24, None, None, None, space.TOO_LARGE))
    figure = Space(points=tuple(points), front=tuple(space.front(points)), best=best)
    three = sizes.Row(sizes.TABLE[0], 5.0, points[0].ours, sizes.Best((8, 15, 28), 5.7, 5.69))
    return Study(scalar=1.12, price=5.0, table_one=tuple(plans.table_one()), table_three=(three,), space=figure)


def test_the_words_and_the_picture() -> None:
    """Every part stands in the text and in the plain values, and the picture names its axes."""
    from matplotlib.figure import Figure

    found = study()
    text, plain = str(found), found.as_dict()
    assert "vTrain (8, 24, 15)" in text and "113.2 too much" in text and space.TOO_LARGE in text
    assert "(8, 15, 28)" in text and "figure 10, MT-NLG 530B: 294 plans" in text
    assert plain["table_1"][0]["gpus"] == 2240 and len(plain["figure_10"]["points"]) == 294
    assert found.space is not None
    axes = Figure(figsize=SIZE).subplots(1, 2)
    plot_design_space(found.space, tuple(axes))
    assert [ax.get_xlabel() for ax in axes] == ["GPUs", "GPUs"]


def test_what_a_limit_cut_off_is_marked() -> None:
    """Without a limit nothing is; a gap, or no plan, is marked in both tables, and in the picture with its bound."""
    from matplotlib.figure import Figure

    whole = study()
    assert "*" not in str(whole) and whole.space is not None
    late = (space.Best(504, (4, 6, 21), 198.0, 180.0, ""), space.Best(280, None, None, 300.0, "none found so far"))
    three = (whole.table_three[0], replace(whole.table_three[0], best=None))
    found = replace(whole, table_three=three, space=replace(whole.space, best=late))
    text = str(found)
    assert "9.09 %*" in text and "none found so far*" in text and "-*" in text and text.count("* a limit") == 2
    assert "none by our prices*" in text and found.space is not None
    axes = Figure(figsize=SIZE).subplots(1, 2)
    plot_design_space(found.space, tuple(axes))
    stars = next(line for line in axes[0].lines if line.get_marker() == "*")
    assert list(stars.get_ydata()) == [180.0, 300.0]


@pytest.mark.proof
def test_the_searches_share_a_time_limit(run: Run) -> None:
    """With hardly any time every size of table III has a mark, and so has the largest model, whatever is found."""
    outcome = run("reproduce", "vtrain", "--only", "table-3", "--time-limit", "0.5", "--json")
    found = json.loads(outcome.out)
    assert len(found["table_3"]) == len(sizes.TABLE)
    assert "*" in next(row["ours"] for row in found["paper"] if row["what"] == "largest model in 30 days")


def test_no_search_of_figure_10_begins_after_the_limit() -> None:
    """A search whose limit is over says that it found nothing, and proves nothing."""
    late = space.best_plan(2800, 1, perf_counter() - 1.0, 3)
    assert (late.step_s, late.lower_bound_s, late.why_not) == (None, None, space.NONE_YET) and late.is_cut_off


def test_the_command(run: Run) -> None:
    """A part alone is quick, and a wrong one is refused in one line."""
    outcome = run("reproduce", "vtrain", "--only", "table-1", "--price", "2")
    assert outcome.code == 0 and "at $ 2 an hour of a GPU" in outcome.out
    refused(run("reproduce", "vtrain", "--only", "table-2"), "--only table-2: expected one of table-1, table-3")
    refused(run("reproduce", "vtrain", "--only", "table-1", "--plot", "a.png"), "there is no picture of a table")


@pytest.mark.proof
def test_a_best_plan_of_table_iii_is_bounded() -> None:
    """The search finds a faster plan than the published one for the smallest model, with a bound."""
    line = sizes.TABLE[-1]
    best = sizes.best_plan(line.shape, sizes.WORK)
    ours = priced(VTRAIN, [(line.shape, line.plan)], sizes.GLOBAL_BATCH)[0]
    assert best is not None and 0 < best.lower_bound_s <= best.step_s < ours.step_s


@pytest.mark.proof
def test_the_best_plan_of_a_number_of_gpus_is_bounded() -> None:
    """On 3,360 GPUs the search proves a plan optimal to a per cent that is no slower than MT-NLG's; on 56 none fits."""
    best, published = space.best_plan(3360, space.WORK), priced(BLOOM, [(plans.MT_NLG, (8, 12, 35))], 1920)[0]
    assert best.step_s is not None and best.lower_bound_s is not None and best.gap is not None
    assert best.lower_bound_s <= best.step_s <= published.step_s and best.gap <= 0.0101
    assert space.best_plan(56, space.WORK).why_not == "none fits the memory"


def test_days_of_gpt3_are_six_operations_a_weight_and_token() -> None:
    """Figure 1: days fall with the utilisation, and are those of 6 N T operations up to attention and head."""
    assert plans.gpt3_days(0.3) == pytest.approx(2 * plans.gpt3_days(0.6))
    assert plans.gpt3_days(0.3) * 86_400 * 1024 * 312e12 * 0.3 == pytest.approx(6 * 175e9 * 300e9, rel=0.05)
