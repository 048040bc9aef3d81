"""Jobs of the table of promises: one for each, with its fastest run, on as many devices as it had."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import promises
from benchmarks.promises import Job, assumed, cluster_of, degrees, factors, fastest, jobs, reason, speed_of
from taut.data.samples import ConfigurationRow

SHAPE = {"hidden": 1024, "layers": 8, "heads": 8, "n_gpus": 16, "dp": 16, "global_batch": 64}


def job(release: str, gpu: str = "h100", **values: object) -> Job:
    return Job("made", "Megatron-Bridge", release, ConfigurationRow.parse({"gpu": gpu, **SHAPE, **values}, "row"))


def test_the_fastest_run_of_a_job_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of runs with other degrees or releases; another batch is another job."""
    runs = [job("1", measured_s=2.0), job("2", measured_s=1.0, tp=2, dp=8), job("3", measured_s=9.0, global_batch=32)]
    monkeypatch.setattr(promises, "_runs", lambda folder: iter(runs))
    assert {(each.row.global_batch, each.release) for each in jobs(Path())} == {(64, "2"), (32, "3")}


def test_the_fastest_run_of_the_model_tells_of_every_batch() -> None:
    """And of every number of GPUs, but of no other precision or GPU."""
    own, large = job("1", measured_s=2.0), job("2", measured_s=2.0, global_batch=128)
    others = [job("1", "b200", measured_s=0.1), job("1", measured_s=0.1, precision="fp8")]
    found = fastest([own, large, *others])
    assert own.kind == large.kind and found[own.kind] == pytest.approx(large.speed) and len(found) == 3


def test_a_job_is_planned_on_as_many_devices() -> None:
    """Whole nodes of H100, and a part of an NVLink domain with its share of the cards."""
    assert cluster_of(job("1").row).num_devices == 16
    part = cluster_of(job("1", "gb300", n_gpus=8, dp=8).row)
    assert part.num_devices == 8 and part.num_nodes == 1


def test_degrees_in_words() -> None:
    """Degrees above 1, sharding above 0, and recompute where there is any."""
    assert degrees({"pp": 4, "tp": 1, "micro_batch": 2, "zero": 1}, "full") == "pp 4 mb 2 ZeRO 1 full"
    assert degrees({"pp": 1, "tp": None}, "none") == "dp"


def test_a_run_is_priced_with_the_stack_that_made_it() -> None:
    """Twice the measured seconds are half the speed, and torchtitan's runs have torchtitan's prices."""
    shape: dict[str, Any] = {"hidden": 4096, "layers": 32, "heads": 32, "seq": 8192, "zero": 3, "micro_batch": 2}
    fast, slow = (job("1", measured_s=seconds, **shape) for seconds in (1.0, 2.0))
    core = {"stack": "megatron-core"}
    assert float(speed_of(slow, core)) == pytest.approx(2 * float(speed_of(fast, core)), abs=0.011)
    assert speed_of(fast, {"stack": "torchtitan"}) != speed_of(fast, core)


def test_a_ratio_is_a_product_of_price_software_and_search() -> None:
    """By hand: geometric means of two jobs, and a third that is not priced does not count."""
    ratios = ("1.00", "1.21", "1.21 *"), ("1.21", "1.21", "2.42"), ("-", "1.00", "3.00")
    lines = [dict(zip(("as run", "as planned", "ratio"), each, strict=True)) for each in ratios]
    found = factors("made", lines)
    assert (found["number"], found["price"], found["software"]) == ("2", "1.100", "1.100")
    assert (found["search"], found["ratio"]) == ("1.414", "1.711")


@pytest.mark.parametrize(
    ("as_run", "as_planned", "ratio", "expected"),
    [
        ("1.00", "1.00", "1.14", ""),
        ("1.20", "1.25", "1.30", "price"),
        ("1.00", "1.30", "1.37", "software"),
        ("0.90", "0.90", "1.36", "search"),
        ("1.05", "1.05", "0.82", "search"),
        ("0.67", "0.60", "0.80 *", "price"),
        ("-", "1.00", "1.40", ""),
    ],
)
def test_a_ratio_out_of_its_range_has_a_reason(as_run: str, as_planned: str, ratio: str, expected: str) -> None:
    """The factor that takes it farthest out, on the side where it lies."""
    line = {"as run": as_run, "as planned": as_planned, "ratio": ratio}
    assert reason(line, has_experts=True) == expected


def test_dense_models_are_held_to_a_narrower_range() -> None:
    """A ratio of 1.14 is out of it."""
    assert reason({"as run": "1.00", "as planned": "1.00", "ratio": "1.14"}, has_experts=False) == "search"


def test_a_planned_layout_has_what_plans_assume() -> None:
    """Graphs of the calibration in one stage with whole weights, no full recompute, and no overlap of its own."""
    row = job("1", overlap_grad_reduce=True, fp8_param_gather=True, precision="fp8", zero=1).row
    found = assumed(row, ["dp-comm-overlap", "one-stage-graph"])
    assert found == {
        "cuda_graphs": True,
        "fp8_param_gather": False,
        "overlap_grad_reduce": None,
        "overlap_moe_expert_parallel_comm": None,
    }
    others = (job("1", zero=3), job("1", recompute="full"), job("1", pp=2, dp=8))
    assert not any(assumed(each.row, ["one-stage-graph"])["cuda_graphs"] for each in others)
    assert not assumed(row, ["whole-step-graphs"])["cuda_graphs"]
