"""Plans as values: what they print, their tables, and reading them back."""

from pathlib import Path

import pytest

import taut
from taut.data.model import ModelSpec
from taut.data.units import GIB
from tests.support.plans import made_plan
from tests.support.small import costs


def test_repr_is_one_line_and_the_notebook_gets_a_table() -> None:
    """Model, cluster, strategy, step time and gap, in a line or as rows."""
    plan = made_plan(pp=2, tp=2)
    assert repr(plan) == "<Plan m on c, pp=2 tp=2 dp=1 micro_batch=1 1f1b, 2 s a step, gap 25 %>"
    page = plan._repr_html_()
    assert page.startswith("<table>") and page.count("<tr>") == 4 and "m on c" in page


def test_names_are_escaped_in_the_notebooks_table() -> None:
    """A name that looks like HTML stays text."""
    plan = made_plan(inputs={"model": {"name": "<b>m", "sha256": "", "spec": {}}})
    assert "&lt;b&gt;m" in plan._repr_html_()


def test_tables_have_a_record_for_each_stage_and_worker() -> None:
    """Stages with their memory and kind of device, workers with their node and place there."""
    plan = made_plan(pp=2, tp=2, dp=1)
    assert [stage["layers"] for stage in plan.stages] == ["0", "1"]
    assert plan.stages[1] == {
        "stage": 1,
        "layers": "1",
        "num_layers": 1,
        "recompute": "none",
        "device": "d",
        "first_device": 2,
        "memory_bytes": 2 * GIB,
        "margin_bytes": GIB,
        "capacity_bytes": 16 * GIB,
    }
    assert [worker["device"] for worker in plan.workers] == [0, 1, 2, 3]
    place = {"device": 3, "node": 0, "local": 3}
    assert plan.workers[3] == {"stage": 1, "replica": 0, "context_rank": 0, "tensor_rank": 1, **place}


def test_written_plans_are_read_back(tmp_path: Path) -> None:
    """The document survives, and another file is refused by its name."""
    path, plan = tmp_path / "plan.json", made_plan()
    plan.write(path)
    assert taut.load_plan(path).document == plan.document == taut.Plan.read(str(path)).document
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(taut.DataError, match=r"plan.json: format: missing, expected a value"):
        taut.load_plan(path)


def test_step_without_duration_has_no_throughput() -> None:
    """Where nothing takes time the plan is found, proven, printed and verified; tokens per second are unknown."""
    calibration = taut.Calibration(
        name="free",
        coefficients=dict.fromkeys(taut.load_calibration("megatron-deepspeed-a100-one").coefficients, 0.0),
    )
    node = {"device": "a100-80gb", "gpus_per_node": 1, "intra_bandwidth_gbps": 2400}
    model = {"name": "m", "layers": 2, "hidden": 64, "heads": 2, "seq": 32}
    spec = ModelSpec.parse(model, "m")
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, 0.0), devices={"a100-80gb": 1.0})
    plan = taut.plan(model, {"nodes": [node]}, global_batch=2, calibration=calibration, profile=table)
    assert (plan.step_time_s, plan.lower_bound_s, plan.gap) == (0.0, 0.0, 0.0)
    assert (plan.predicted.tokens_per_s, plan.predicted.mfu) == (None, None)
    assert "throughput unknown" in str(plan)
    assert taut.verify(plan).holds
