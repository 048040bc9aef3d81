"""``taut export`` and ``taut.export``: what is written, and what is refused before anything is."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import taut
from taut.commands.app import app
from taut.exports.export import TARGETS
from taut.exports.job import ExportError, Job
from taut.formulations.space import FIELDS
from tests.support.launches import launched

runner = CliRunner()
COMMON = {"env.sh", "ranks.csv", "plan.json", "launch.md"}


def job() -> Job:
    """Two stages that every framework but DeepSpeed runs."""
    return launched(pp=2, tp=2, micro_batch=1, schedule="1f1b", recompute="none", zero=0, sequence_parallel=True)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """The file of that plan."""
    job().plan.write(tmp_path / "p.json")
    return tmp_path / "p.json"


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "deepspeed"])
def test_every_target_writes_its_files(target: str, plan: Path, tmp_path: Path) -> None:
    """Beside its own files stand the environment, the ranks, the plan, and ten lines or so on what to do."""
    done = runner.invoke(app, ["export", str(plan), "--to", target, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names > COMMON
    assert taut.load_plan(tmp_path / "out" / "plan.json").document == job().plan.document
    lines = (tmp_path / "out" / "launch.md").read_text().splitlines()
    assert (10 <= len(lines) <= 16 and "YOUR" in "".join(lines)) or target in ("torchtitan", "flagscale")


def test_a_framework_goes_with_several_starters(plan: Path, tmp_path: Path) -> None:
    """Slurm's and Open MPI's files stand beside Megatron-LM's flags."""
    written = taut.export(plan, ["megatron", "slurm", "rankfile"], tmp_path / "out", hosts=["alpha", "beta"])
    assert {"megatron.args", "slurm.sh", "rankfile", "hosts.txt", "process.sh"} <= {path.name for path in written}
    assert (tmp_path / "out" / "hosts.txt").read_text().split()[0] == "alpha"


def test_environment_is_what_megatron_asks_for(plan: Path, tmp_path: Path) -> None:
    """Tensor ranks want launches in order; sharded weights want more than one connection."""
    taut.export(plan, "megatron", tmp_path / "a")
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1\n" in (tmp_path / "a" / "env.sh").read_text()
    taut.export(launched(pp=1, tp=1, micro_batch=1, zero=3, recompute="none").plan, "megatron", tmp_path / "b")
    assert "CUDA_DEVICE_MAX_CONNECTIONS=32\n" in (tmp_path / "b" / "env.sh").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "megatro"], "did you mean megatron?"),
        (["--to", "megatron,torchtitan"], "one framework at most"),
        (["--to", ","], "at least one target"),
        (["--to", "torchtitan", "--hosts", "missing.txt"], "missing.txt"),
        (["--to", "slurm", "--hosts", "HOSTS"], "1 names, expected one for each of 2 nodes"),
        (["--to", "deepspeed"], "which DeepSpeed has not"),
    ],
)
def test_wrong_input_is_one_line_and_no_file(options: list[str], words: str, plan: Path, tmp_path: Path) -> None:
    """Exit code 2, and the folder is not made."""
    (tmp_path / "hosts").write_text("# ours\nalpha\n")
    given = [str(tmp_path / "hosts") if word == "HOSTS" else word for word in options]
    done = runner.invoke(app, ["export", str(plan), "--out", str(tmp_path / "out"), *given])
    assert done.exit_code != 0 and words in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_a_field_that_no_launcher_is_told_stops_the_export(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launchers know every field of a candidate; a plan with one that they do not know is refused by its name."""
    assert {name for name, field in FIELDS.items() if not field.launched} == set()
    monkeypatch.setitem(FIELDS, "sequence_parallel", replace(FIELDS["sequence_parallel"], launched=False))
    with pytest.raises(ExportError, match="sequence_parallel=True, which no launcher here can be told"):
        taut.export(plan, "megatron", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_are_replaced_only_if_asked(plan: Path, tmp_path: Path) -> None:
    """A folder with files is refused without --force."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(taut.DataError, match="--force"):
        taut.export(plan, "torchrun", tmp_path / "out")
    taut.export(plan, "torchrun", tmp_path / "out", force=True)
    assert (tmp_path / "out" / "mine").read_text() == "kept"
    with pytest.raises(taut.DataError, match="is a file"):
        taut.export(plan, "torchrun", plan)
