"""``taut jobs`` from files to pictures, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import taut
from taut.commands.app import app
from taut.data.calibration import Calibration
from taut.data.cluster import NetworkSpec
from taut.data.load import load_calibration, load_cluster, load_model
from taut.errors import DataError, FieldError, InfeasibleError, NothingFoundError
from taut.planning import stack as planning_stack
from taut.plots.jobs import jobs_page, plot_jobs
from taut.sharing import instance as sharing_columns
from taut.sharing.instance import Kind, gpu_counts

RATES = "name,steps,arrival_s,deadline_s,rates\na,7200,0,9000,8:1.0|16:1.9|32:3.4\nb,3600,600,4000,8:1.0|16:1.8\n"
JOBS: dict[str, Any] = {
    "jobs": [
        {"name": "a", "steps": 7200, "deadline_s": 9000.0, "rates": {"8": 1.0, "16": 1.9, "32": 3.4}},
        {"name": "b", "steps": 3600, "arrival_s": 600.0, "deadline_s": 4000.0, "rates": {"8": 1.0, "16": 1.8}},
    ]
}


def test_the_command_prints_json_and_writes_files(tmp_path: Path) -> None:
    """Objective, bound, ratio and jobs; a row a segment; a picture."""
    (tmp_path / "jobs.csv").write_text(RATES)
    out, plot = tmp_path / "out.csv", tmp_path / "gantt.png"
    words = ["jobs", str(tmp_path / "jobs.csv"), "dgx-a100:4", "--policy", "elasticflow", "--json", "--quiet"]
    done = CliRunner().invoke(app, [*words, "--out", str(out), "--plot", str(plot)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["objective"], found["lower_bound"], found["deadline_ratio"]) == (0, 0, 1)
    assert [job["met"] for job in found["jobs"]] == [True, True]
    assert out.read_text().startswith("job,start_s,end_s,device,gpus,steps_per_s,plan\na,0.000,")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_page_names_every_segment() -> None:
    """Bars with job, GPUs and plan, and marks of deadlines, in one file that needs no network."""
    found = taut.jobs(JOBS, "dgx-a100:4", policy="elasticflow")
    page = jobs_page(found)
    assert page.rstrip().endswith("</html>")
    assert "a100-80gb" in page
    assert "measured" in page


def test_values_agree_with_the_check() -> None:
    """What is reported is what the independent check measures, and nothing is violated."""
    found = taut.jobs(JOBS, "dgx-a100:4", objective="cost", policy="annealing", prices={"a100-80gb": 3.6}, rounds=1)
    assert found.check() == []
    # The cheapest: a on 8 GPUs for 7200 s (before 9000 s), b on 8 for 3600 s would end at 4200 s, so on 16 for 2000 s.
    assert found.value == pytest.approx(0.001 * (8 * 7200 + 16 * 2000))
    assert found.lower_bound <= found.value
    # With resizing b holds 8 GPUs for t and 16 for the rest: the bound is below.
    assert found.lower_bound == pytest.approx(0.001 * (8 * 7200 + 16 * 250 + 8 * 3150), rel=1e-6)
    assert str(found).splitlines()[1].startswith("cost: dollars 89.60, no schedule is below 86.80")


def test_late_jobs_are_drawn() -> None:
    """A job that no schedule completes in time is left out, and the picture has a line for it."""
    late = {"jobs": [*JOBS["jobs"], {"name": "c", "steps": 3600, "deadline_s": 10.0, "rates": {"8": 1.0}}]}
    found = taut.jobs(late, "dgx-a100:4", rounds=1)
    assert found.value == found.lower_bound == 1
    assert found.deadline_ratio == found.deadline_ratio_bound == pytest.approx(2 / 3)
    figure = plot_jobs(found)
    assert len(figure.axes[0].get_yticks()) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "elastic"}, "policy: elastic, expected one of"),
        ({"objective": "deadline"}, "did you mean deadlines?"),
        ({"plans": "dp"}, "plans: dp, expected one of best, data-parallel"),
        ({"time_limit": 0.0}, "time_limit: 0, expected a number above 0"),
        ({"prices": {"h100": 1.0}}, "price of h100: expected one of a100-80gb"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    """One line with the field, the value and what was expected."""
    with pytest.raises((DataError, FieldError)) as refused:
        taut.jobs(JOBS, "dgx-a100:4", **options)
    assert words in str(refused.value)


def test_counts_that_do_not_pack_are_refused() -> None:
    """12 GPUs are no whole nodes of eight."""
    with pytest.raises(DataError, match="job a: 12 GPUs on a100-80gb, expected 1, 2, 4, 8 or whole nodes of 8"):
        taut.jobs({"jobs": [{"name": "a", "steps": 1, "rates": {12: 1.0}}]}, "dgx-a100:4")


def test_a_job_that_fits_nowhere_is_infeasible() -> None:
    """Where all are to be completed; under deadlines it is missed."""
    large = {"jobs": [{"name": "a", "steps": 1, "rates": {64: 1.0}, "deadline_s": 9.0}]}
    with pytest.raises(InfeasibleError, match="job a: has no plan on any number of GPUs of dgx-a100:4"):
        taut.jobs(large, "dgx-a100:4", objective="makespan")
    assert taut.jobs(large, "dgx-a100:4", rounds=1).lower_bound == 1


def test_numbers_of_gpus() -> None:
    """Parts of a node, nodes by powers of two, and all of them."""
    assert gpu_counts(8, 6) == [1, 2, 4, 8, 16, 32, 48]


@pytest.mark.proof
def test_columns_are_plans_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is that of the plan on so many GPUs; a second run plans nothing; data parallelism is no faster."""
    monkeypatch.setenv("TAUT_CACHE", str(tmp_path))
    job = {"name": "a", "model": "gpt2-345m", "global_batch": 32, "steps": 100, "gpu_counts": [4, 8]}
    told: list[str] = []
    found = taut.jobs(
        {"jobs": [job]}, "dgx-a100", policy="first-come", objective="makespan", processes=1, told=told.append
    )
    assert len(told) == 3
    rates = dict(zip(found.instance.problem.gpus.tolist(), found.instance.problem.rate.tolist(), strict=True))
    assert rates[8] == pytest.approx(1 / taut.plan("gpt2-345m", "dgx-a100", global_batch=32, gap=0.01).step_time_s)
    again = taut.jobs({"jobs": [job]}, "dgx-a100", policy="first-come", objective="makespan", told=told.append)
    assert len(told) == 3
    assert again.value == found.value
    plain = taut.jobs({"jobs": [job]}, "dgx-a100", policy="first-come", objective="makespan", plans="data-parallel")
    assert plain.value >= found.value * (1 - 0.01)
    assert all("tp=1 pp=1" in plan for plan in plain.instance.plans)


def test_missing_plans_share_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the limit, among plans and processes; what it ends is not kept, and an interrupt names what is."""
    monkeypatch.setenv("TAUT_CACHE", str(tmp_path))
    job = {"name": "a", "model": "gpt2-345m", "global_batch": 32, "steps": 100, "gpu_counts": [4, 8]}
    given: list[float] = []
    gap = 0.2

    def run(points: list[Any], finished: Callable[[Any, dict[str, Any]], None], jobs: int) -> None:
        assert jobs == 1
        given.extend(point.fields["time_limit"] for point in points)
        row = dict.fromkeys(("tp", "pp", "dp", "micro_batch", "zero"), 1) | {"status": "feasible", "error": ""}
        for point in points:
            finished(point, row | {"step_time_s": 1.0, "lower_bound_s": 1.0 - gap, "gap": gap})

    def plan() -> int:
        given.clear()
        options: dict[str, Any] = {"policy": "first-come", "objective": "makespan", "processes": 1, "time_limit": 20.0}
        taut.jobs({"jobs": [job]}, "dgx-a100", **options)
        return len(given)

    monkeypatch.setattr(sharing_columns, "run_here", run)
    assert plan() == 2 and given == pytest.approx([5.0, 5.0], abs=2.0)
    gap = 0.005
    assert [plan(), plan()] == [2, 0]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    job["global_batch"] = 16
    monkeypatch.setattr(sharing_columns, "run_here", stop)
    with pytest.raises(NothingFoundError, match="interrupted: planned 0 of 2 columns; the same command goes on"):
        plan()


def point_key(**pricing: Any) -> str:
    """Name of the plan of GPT-2 on four A100."""
    group = load_cluster("dgx-a100").nodes[0].model_copy(update={"count": 1})
    kind = Kind(load_model("gpt2-345m"), 32, group, NetworkSpec(bandwidth_gbps=200))
    return sharing_columns._point(kind, 4, sharing_columns._loaded(pricing)).key


def slower(calibration: Calibration) -> Calibration:
    """A calibration under which matrix products take twice as long."""
    doubled = {**calibration.coefficients, "gemm": 2 * calibration["gemm"]}
    return calibration.model_copy(update={"coefficients": doubled})


def test_what_prices_a_column_is_in_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration, memory model or stack that changes, in a file or in the catalog, changes the key; a copy none."""
    plain = point_key()
    assert plain == point_key()
    assert plain != point_key(stack="any")
    assert plain != point_key(memory_model="megatron-deepspeed-bloom")
    file = tmp_path / "mine.yaml"
    known = load_calibration("megatron-deepspeed-a100-many")
    file.write_text(yaml.safe_dump(known.model_dump(mode="json")))
    before = point_key(calibration=file)
    assert before == point_key(calibration=known)
    file.write_text(yaml.safe_dump(slower(known).model_dump(mode="json")))
    assert before != point_key(calibration=file)
    monkeypatch.setattr(planning_stack, "load_calibration", lambda name: slower(load_calibration(name)))
    assert plain != point_key()


@pytest.mark.proof
def test_a_changed_calibration_is_planned_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file twice plans once; with slower products it plans again, at a lower rate; back again it does not."""
    monkeypatch.setenv("TAUT_CACHE", str(tmp_path / "cache"))
    job = {"name": "a", "model": "gpt2-345m", "global_batch": 32, "steps": 100, "gpu_counts": [1]}
    file, told = tmp_path / "mine.yaml", list[str]()
    known = load_calibration("megatron-deepspeed-a100-many")

    def rate(calibration: Calibration) -> float:
        file.write_text(yaml.safe_dump(calibration.model_dump(mode="json")))
        found = taut.jobs(
            {"jobs": [job]}, "dgx-a100", policy="first-come", objective="makespan", calibration=file,
            processes=1, told=told.append,
        )  # fmt: skip
        return float(found.instance.problem.rate[0])

    rates = [rate(known), rate(known), rate(slower(known)), rate(known)]
    assert len(told) == 4
    assert rates[0] == rates[1] == rates[3] > 1.2 * rates[2]
