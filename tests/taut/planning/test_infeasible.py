"""What the command line says where nothing fits: one line on stderr, the same as JSON on stdout, exit code 3."""

import json
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.errors import InfeasibleError
from tests.taut.conftest import Run

pytestmark = pytest.mark.proof

LLAMA = ("plan", "llama2-7b", "g4dn.12xlarge", "--global-batch", 4, "--quiet")
FIXED = ("plan", "gpt3-6.7b", "dgx-a100", "--global-batch", 64, "--quiet", "--fix")


REPORTS: dict[tuple[object, ...], dict[str, Any]] = {}
"""What was reported of each command: several tests read one report."""


def reported(run: Run, *words: object) -> dict[str, Any]:
    """The JSON of an infeasible plan, beside one line on stderr."""
    if words not in REPORTS:
        outcome = run(*words, "--json")
        assert outcome.code == 3
        assert outcome.err.startswith("taut: no plan fits: ")
        assert outcome.err.count("\n") == 1
        REPORTS[words] = json.loads(outcome.out)
    return REPORTS[words]


def test_report_has_the_stated_fields(run: Run, tmp_path: Path) -> None:
    """Status, candidate, devices and ways out, each with its fields; no plan is written."""
    out = tmp_path / "plan.json"
    report = reported(run, *LLAMA, "--out", out)
    assert report["status"] == "infeasible"
    assert report["complete"] is True
    assert not out.exists()
    strategy = report["candidate"]
    assert strategy["pp"] * strategy["tp"] * strategy["dp"] == 4
    assert strategy["stages"][-1][1] == 32
    assert len(strategy["recompute"]) == strategy["pp"]
    for device in report["devices"]:
        assert set(device) >= {"stage", "device", "missing_bytes", "capacity_bytes", "needed_bytes"}
        # The margin is 5 % of the capacity, in whole KiB.
        free = device["needed_bytes"] - device["missing_bytes"]
        assert free == pytest.approx(0.95 * device["capacity_bytes"], abs=1024)
        # What a process sees of a T4 of 16 GB.
        assert device["capacity_bytes"] == 14.75 * 2**30
    for way in report["ways_out"]:
        assert set(way) >= {"change", "detail", "step_time_lower_bound_s"}
        assert way["slowdown"] == pytest.approx(
            way["step_time_lower_bound_s"] / report["unlimited_memory_lower_bound_s"] - 1
        )
    assert [way["change"] for way in report["ways_out"]] == ["nodes", "device_memory"]


def test_line_names_what_the_report_holds(run: Run) -> None:
    """Without ``--json`` nothing is on stdout, and the line has the worst device and every way out."""
    report, outcome = reported(run, *LLAMA), run(*LLAMA)
    assert (outcome.code, outcome.out) == (3, "")
    worst = report["devices"][0]
    assert (
        f"({worst['missing_bytes']} bytes) on device {worst['device']} (t4-16gb, stage {worst['stage']})" in outcome.err
    )
    for way in report["ways_out"]:
        assert way["detail"] in outcome.err
    assert outcome.err.index("nearest way out: ") < outcome.err.index(report["ways_out"][0]["detail"])


def test_nodes_that_are_asked_for_suffice(run: Run) -> None:
    """So many nodes hold the model, as planning on them says, and one fewer does not."""
    nodes = int(reported(run, *LLAMA)["ways_out"][0]["detail"].split()[0])
    assert run("plan", "llama2-7b", f"g4dn.12xlarge:{nodes}", *LLAMA[3:], "--gap", 0.9).code == 0
    assert run("plan", "llama2-7b", f"g4dn.12xlarge:{nodes - 1}", *LLAMA[3:], "--gap", 0.9).code == 3


def test_changes_of_fixed_values_can_be_taken_up(run: Run) -> None:
    """Changed as a way out says, ``--fix`` leads to a plan that is no faster than the stated bound."""
    # 6.65e9 parameters of 18 bytes are 111 GiB on every device of 80; ZeRO-1 leaves 6 + 12 / 8 bytes. ZeRO-3 leaves
    # less, and its gathers hide behind computation, where the reduction of ZeRO-1 follows it.
    report = reported(run, *FIXED, "dp=8,zero=0")
    ways = {way["change"]: way for way in report["ways_out"]}
    assert ways["zero"]["detail"] == "zero=3 instead of zero=0"
    for change, fix in (("zero", "dp=8,zero=3"), ("pipeline_stages", "zero=0")):
        outcome = run(*FIXED, fix, "--json", "--gap", 0.9)
        assert outcome.code == 0
        step_time = json.loads(outcome.out)["predicted"]["step_time_s"]
        assert step_time >= ways[change]["step_time_lower_bound_s"] * (1 - 1e-9)


def test_zero_stages_beyond_the_default_can_be_fixed(run: Run) -> None:
    """ZeRO-2 and 3, which ways out may name, are no part of the default space but can be asked for."""
    for stage in (2, 3):
        outcome = run(*FIXED, f"dp=8,zero={stage}", "--json", "--gap", 0.9)
        assert outcome.code == 0
        assert json.loads(outcome.out)["strategy"]["zero"] == stage


def test_exception_carries_the_report() -> None:
    """From Python the exception's text is the line, and its report the JSON."""
    with pytest.raises(InfeasibleError, match="no plan fits: ") as caught:
        taut.plan("llama2-7b", "g4dn.12xlarge", global_batch=4)
    assert caught.value.report is not None
    assert caught.value.report["status"] == "infeasible"
    assert json.loads(json.dumps(caught.value.report)) == caught.value.report
