"""What commands print: on outputs that take nothing, in narrow terminals, of what is missing, and of wrong rows."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taut.planning.plan import Plan
from taut.planning.summary import summary
from tests.support.plans import made_plan
from tests.taut.conftest import Run, refused

ROW = "A100,8,2048,24,64,{}"
HEAD = "gpu,n_gpus,hidden,layers,global_batch,dp"


def taut(*words: str, stdout: int) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "taut", *words], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device as Linux has it")
def test_full_output_is_one_line() -> None:
    """Standard output that takes nothing is bad usage, said in one line."""
    with open("/dev/full", "wb") as full:
        outcome = taut("catalog", stdout=full.fileno())
    assert outcome.returncode == 2
    assert outcome.stderr == "taut: standard output cannot be written (No space left on device)\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes as POSIX has them")
def test_reader_that_has_seen_enough_is_no_error() -> None:
    """A pipe whose reader is gone ends the command without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        outcome = taut("catalog", stdout=writing)
    finally:
        os.close(writing)
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_completion_of_the_shell_can_be_installed(run: Run) -> None:
    """The options that install and show it are there."""
    assert "--install-completion" in run("--help").out


def test_rows_are_counted_and_the_first_wrong_one_is_named(run: Run, tmp_path: Path) -> None:
    """A summary on stderr, nothing on stdout; only where every row is wrong, or none is there, nothing is written."""
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text(HEAD + "\n", encoding="utf-8")
    refused(run("predict", rows, "--out", out), "rows.csv: has no rows, expected a configuration a row")
    rows.write_text("\n".join([HEAD, ROW.format(3)]) + "\n", encoding="utf-8")
    refused(run("predict", rows, "--out", out), "all 1 rows are wrong, the first: row 1: n_gpus is 8")
    assert not out.exists()
    rows.write_text("\n".join([HEAD, ROW.format(8), ROW.format(3)]) + "\n", encoding="utf-8")
    outcome = run("predict", rows, "--out", out)
    assert (outcome.code, outcome.out) == (0, "")
    assert "2 rows, 1 wrong: first row 2: n_gpus is 8" in outcome.err
    assert "s in the mean, median" in outcome.err and "1 fit" in outcome.err
    with out.open(encoding="utf-8") as file:
        assert [bool(row["error"]) for row in csv.DictReader(file)] == [False, True]


def test_calibration_of_another_device_is_refused(run: Run) -> None:
    """A calibration names its device; a cluster without it is wrong."""
    outcome = run("plan", "gpt2-345m", "dgx-a100", "--global-batch", 8, "--calibration", "nemo-h100-bf16")
    refused(outcome, "--calibration nemo-h100-bf16: is of h100-80gb, expected one of a100-80gb")


def test_empty_space_names_the_largest_tensor_degree(run: Run) -> None:
    """Where ``--max-tp`` rules out a fixed degree, it stands among the reasons."""
    outcome = run("plan", "gpt2-345m", "dgx-a100", "--global-batch", 8, "--fix", "tp=8", "--max-tp", 4)
    refused(outcome, "--fix tp=8: no candidate has these values")
    assert "at most 4 (max_tp)" in outcome.err


@pytest.mark.parametrize("width", [40, 80, 110])
def test_report_keeps_to_its_width(width: int) -> None:
    """No line is longer than asked for."""
    space = {"global_batch": 4, "fixed": {"tp": 1}}
    plan = made_plan(certificate={"space": space}, inputs=INPUTS)
    assert max(map(len, summary(plan.typed, width=width).splitlines())) <= width


@pytest.mark.parametrize(
    ("stopped", "words"),
    [
        ("gap", "stopped at a gap of 25 %, as asked (--gap 0.3); --gap 0 goes on"),
        ("time", "stopped after 60 s of search; --time-limit none goes on"),
        ("work", "stopped after 7 refinements; a larger --work-limit goes on"),
        ("interrupt", "stopped by an interrupt; a run to its end goes on"),
        ("exhausted", "the search stopped: nothing was left"),
        (None, "the search stopped: nothing was left"),
    ],
)
def test_report_says_why_a_search_with_a_gap_stopped(stopped: str | None, words: str) -> None:
    """The reason stands below the gap with what goes on; plans of older versions leave out that nothing was left."""
    limits = {"time_s": 60.0, "work": 7, "gap": 0.3}
    provenance = {"stopped_by": stopped, "limits": limits, "work": 7}
    plan = made_plan(certificate={"space": {"global_batch": 4, "fixed": {}}}, inputs=INPUTS, provenance=provenance)
    assert words in " ".join(summary(plan.typed).split())
    assert "gap 25 % (50 % of communication time)" in summary(plan.typed)
    assert summary(plan.typed).startswith(
        "m on c: 1 devices, global batch 4, sequence length 16\nlatency model pipette"
    )


@pytest.mark.parametrize(
    ("status", "provenance", "words"),
    [
        ("feasible", {"stopped_by": "gap"}, "feasible, within the gap asked for: lower bound"),
        ("feasible", {"stopped_by": "time"}, "feasible: lower bound"),
        ("feasible", {"stopped_by": "gap", "method": {}}, "feasible: lower bound"),
        ("optimal", {"stopped_by": "gap"}, "optimal: lower bound"),
    ],
)
def test_a_plan_within_the_gap_asked_for_is_called_so(status: str, provenance: dict[str, Any], words: str) -> None:
    """The gap is that of the search's own plan; an optimal plan is called optimal."""
    space = {"space": {"global_batch": 4, "fixed": {}}}
    made = made_plan(certificate=space, inputs=INPUTS, provenance=provenance)
    plan = Plan({**made.document, "status": status})
    assert f"status      {words}" in summary(plan.typed)
    assert ("stopped at a gap" in summary(plan.typed)) == ("within" in words)


@pytest.mark.parametrize(("limits", "said"), [({"work": 7}, True), ({"work": None}, False), (None, False)])
def test_work_that_no_user_limited_is_not_named(limits: dict[str, Any] | None, said: bool) -> None:
    """The turns of a choice of nodes end by work of their own."""
    space = {"space": {"global_batch": 4, "fixed": {}}}
    provenance = {"stopped_by": "work", "work": 7, "limits": limits}
    plan = made_plan(certificate=space, inputs=INPUTS, provenance=provenance)
    assert ("--work-limit" in summary(plan.typed)) == said


def test_the_head_names_the_longest_sequence_and_overlap() -> None:
    """Batch, sequence length beside the model's longest, and latency model stand at the top."""
    model = {**INPUTS["model"], "spec": {**MODEL, "max_seq": 64}}
    certificate = {"space": {"global_batch": 4, "fixed": {}}, "latency_model": "step", "overlap_grad_reduce": True}
    plan = made_plan(certificate=certificate, inputs={**INPUTS, "model": model}, provenance={"stopped_by": None})
    assert " ".join(summary(plan.typed).split()).startswith(
        "m on c: 1 devices, global batch 4, sequence length 16 of at most 64 "
        "latency model step with overlapped gradient reductions strategy"
    )


NODE = {
    "device": {"name": "d", "memory_gib": 16, "peak_tflops": {"bf16": 1}, "memory_bandwidth_gbytes": 1},
    "gpus_per_node": 1,
    "intra_bandwidth_gbps": 1,
}
MODEL = {"name": "m", "layers": 1, "hidden": 8, "heads": 1, "seq": 16}
MEMORY = {"network": None, "precision": "bf16", "overhead_gib": 2.0, "samples": 0, "margin": 0.05}
INPUTS = {
    role: {"name": role[0], "sha256": "", "spec": spec}
    for role, spec in {
        "model": MODEL,
        "cluster": {"name": "c", "nodes": [NODE]},
        "costs": {"basis": "profile made up"},
        "memory_model": MEMORY,
    }.items()
}
