"""Requests with Muon: plans, refusals, rows, launch lines and exports."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import taut
from taut.commands.app import app
from taut.errors import DataError, FieldError
from taut.launchers.read import launch_of_text
from taut.launchers.settings import Run

COLUMNS = "gpu,n_gpus,hidden,layers,heads,vocab,tp,pp,dp,micro_batch,global_batch,zero,optimizer"
ROW = "h100,16,2048,24,16,51200,2,2,4,2,64,1"
FLAT = "h100,16,2048,24,16,51200,2,1,8,2,64,"


def problem(**options: Any) -> taut.PlanningProblem:
    """The problem of a small request."""
    given = {"global_batch": 32, "max_tp": 2, "optimizer": "muon", **options}
    return taut.planning_problem(taut.PlanRequest("gpt2-345m", given.pop("cluster", "dgx-a100:2"), **given))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stack": "torchtitan"}, "optimizer: muon, not in torchtitan, expected adam"),
        ({"latency_model": "pipette"}, "optimizer: muon, no part of pipette, expected latency model step"),
        ({"latency_model": "pipette", "stack": "any"}, "no part of pipette"),
        ({"overlap_grad_reduce": True}, "overlap_grad_reduce: true, not priced with optimizer muon, expected false"),
        ({"fix": {"zero": 2}}, "fix: zero=2, not priced with optimizer muon, expected ZeRO-0 or 1 and one copy"),
        ({"fix": {"dp_shard": 2}}, "fix: dp_shard=2, not priced with optimizer muon"),
        ({"activation_offload_fraction": 0.5}, "activation_offload_fraction: not priced with optimizer muon"),
        ({"mtp_layers": 1}, "optimizer: muon, mtp_layers is 1, expected none"),
        ({"cluster": "amp-heterogeneous"}, "optimizer: muon, amp-heterogeneous has .*, expected one type of device"),
        ({"optimizer": "soap"}, "optimizer: soap, expected one of adam, muon"),
    ],
)
def test_what_is_not_priced_is_refused(options: dict[str, Any], words: str) -> None:
    """One line with the field, its value and what was expected."""
    with pytest.raises(FieldError, match=words):
        problem(**options)


def test_states_are_whole_under_muon() -> None:
    """A given memory model keeps what it says; shares on hosts do not go with it."""
    with pytest.raises(DataError, match="half_moments: is True, expected none with optimizer muon"):
        problem(memory_model={"half_moments": True})
    with pytest.raises(DataError, match=r"optimizer_offload_fraction: is 0\.5, expected none with optimizer muon"):
        problem(optimizer_offload_fraction=0.5)
    assert problem(optimizer=None, memory_model={"optimizer": "muon"}).has_muon
    assert not problem(optimizer="adam", memory_model={"optimizer": "muon"}).has_muon


@pytest.mark.filterwarnings("ignore:.*priced by their work")
def test_a_model_with_a_mixer_is_refused(tmp_path: Path) -> None:
    """Its matrices are not priced."""
    file = tmp_path / "config.json"
    shape = {"model_type": "mamba2", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256, "state_size": 16}
    shape |= {"num_heads": 8, "head_dim": 16, "expand": 2, "n_groups": 1, "conv_kernel": 4}
    file.write_text(json.dumps(shape))
    with pytest.raises(FieldError, match=r"optimizer: muon, layer .* has a mixer, whose matrices are not priced"):
        taut.planning_problem(taut.PlanRequest(str(file), "dgx-h100", global_batch=8, seq=1024, optimizer="muon"))


@pytest.mark.proof
def test_a_plan_is_made_checked_and_written(tmp_path: Path) -> None:
    """From the command line: a plan that verifies, the flags of its launch, and what it costs more than Adam."""
    run, plan = CliRunner(), tmp_path / "plan.json"
    words = ["plan", "gpt2-345m", "dgx-a100", "--global-batch", "32", "--max-tp", "2", "--gap", "0.02"]
    made = run.invoke(app, [*words, "--optimizer", "muon", "--out", str(plan), "--quiet"])
    assert made.exit_code == 0 and "optimizer" in made.output
    assert run.invoke(app, ["verify", str(plan)]).exit_code == 0
    assert json.loads(plan.read_text())["inputs"]["memory_model"]["spec"]["optimizer"] == "muon"
    written = run.invoke(app, ["export", str(plan), "--to", "megatron", "--out", str(tmp_path / "launch")])
    assert written.exit_code == 0
    flags = (tmp_path / "launch" / "megatron.args").read_text()
    assert "--optimizer muon" in flags and "--muon-tp-mode duplicated" in flags
    refused = run.invoke(app, ["export", str(plan), "--to", "torchtitan", "--out", str(tmp_path / "other")])
    assert refused.exit_code != 0 and not (tmp_path / "other").exists()
    line = "tp=1,pp=1,dp=8,micro_batch=4,zero=1"
    compared = [*words[:4], "32", "--current", f"{line},optimizer=muon", "--json", "--quiet"]
    compared[0] = "compare"
    muon = json.loads(run.invoke(app, compared).output)
    adam = json.loads(run.invoke(app, [*compared[:6], line, *compared[7:]]).output)
    assert muon["current"]["step_time_s"] > adam["current"]["step_time_s"]


def test_rows_have_an_optimizer(tmp_path: Path) -> None:
    """Muon's rows take longer; Adam's are as without the column; what is not priced is named."""
    file, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows = [f"{ROW},", f"{ROW},adam", f"{ROW},muon", f"{FLAT}2,muon", f"{ROW},soap"]
    file.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert CliRunner().invoke(app, ["predict", str(file), "--out", str(out)]).exit_code == 0
    usual, adam, muon, sharded, other = (line.split(",")[13:] for line in out.read_text().splitlines()[1:])
    assert usual == adam and float(muon[0]) > float(adam[0]) and float(muon[3]) < float(adam[3])
    assert "zero is 2, not priced with optimizer muon, expected ZeRO-0 or 1 and one copy" in ",".join(sharded)
    assert "optimizer: is 'soap'" in ",".join(other)


@pytest.mark.parametrize(
    ("words", "zero", "named"),
    [
        ("--optimizer muon --use-distributed-optimizer", 1, ""),
        ("--optimizer muon", 0, ""),
        ("--optimizer dist_muon --muon-momentum 0.95", 1, ""),
        ("--optimizer muon --muon-num-ns-steps 5 --muon-tp-mode blockwise", 0, "not priced: --muon-tp-mode"),
        ("--optimizer muon --muon-use-syrk", 0, "not priced: --muon-use-syrk"),
    ],
)
def test_a_launch_line_states_it(words: str, zero: int, named: str) -> None:
    """Megatron-LM's flags; what decides the price otherwise is named."""
    launch = launch_of_text(f"--tensor-model-parallel-size 2 --micro-batch-size 1 {words}", Run(None, 8))
    assert launch.options["optimizer"] == "muon" and launch.values["zero"] == zero
    assert [line for line in launch.named if "priced" in line] == ([named] if named else [])


def test_other_optimizers_are_named() -> None:
    """They are priced as Adam; FSDP does not go with Muon."""
    line = "--tensor-model-parallel-size 2 --micro-batch-size 1 --optimizer"
    assert "--optimizer sgd: priced as adam" in launch_of_text(f"{line} sgd", Run(None, 8)).named
    assert not any("optimizer" in each for each in launch_of_text(f"{line} adam", Run(None, 8)).named)
    with pytest.raises(DataError, match="--use-megatron-fsdp with --optimizer muon: expected one of them"):
        launch_of_text(f"{line} muon --use-megatron-fsdp", Run(taut.load_model("gpt2-345m"), 8))
