"""``taut profile`` from the command line: tables that ``plan`` reads, or one line of what is wrong."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.builtin import catalog_models, catalog_profiles
from taut.data.costs import Key, read_costs
from taut.data.load import load_costs
from taut.errors import DataError
from taut.profiling.layers import Point, measure
from tests.taut.conftest import Run

pytestmark = pytest.mark.usefixtures("one_thread")
MODEL = "layers: 2\nhidden: 16\nheads: 4\nseq: 8\nvocab: 300\ntied_embedding: true\n"
MEASURE = "taut.profiling.layers.measure"
SHORT = ("--device", "cpu", "--repeats", 2, "--warm-up", 1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model as a file."""
    path = tmp_path / "small.yaml"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.mark.proof
def test_profile_writes_a_table_that_plan_uses(tmp_path: Path, run: Run, model: Path) -> None:
    """Every asked key is in the table, with its origin, and a plan on the CPU node is priced by it."""
    out, kernels = tmp_path / "costs.csv", tmp_path / "kernels.csv"
    asked = ("--tp", "1,2", "--micro-batch", "2,1,4", "--kernels", kernels)
    outcome = run("profile", model, *SHORT, *asked, "--out", out)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.endswith(f"{out}: 24 rows for cpu\n")
    table = read_costs(out)
    kinds = [("block", "none"), ("block", "full"), ("embedding", "none"), ("head", "none")]
    keys = {Key("cpu", kind, tp, batch, 8, how) for tp in (1, 2) for batch in (1, 2, 4) for kind, how in kinds}
    assert set(table.by_key) == keys
    assert table.optimizer_s_per_parameter["cpu"] > 0
    for words in ("small, measured by taut profile on 20", "CPU", "fp32; medians of 2 repeats after 1", "PyTorch"):
        assert words in table.basis
    assert kernels.read_text(encoding="utf-8").startswith("# small, measured by taut profile on 20")
    plan = run("plan", model, "cpu-node", "--global-batch", 4, "--profile", out, "--quiet")
    assert (plan.code, plan.err) == (0, "")
    assert "priced by   profile costs.csv: small, measured by taut profile" in plan.out


def test_sequence_and_device_type_are_the_asked(tmp_path: Path, run: Run, model: Path) -> None:
    """``--seq`` replaces the model's, ``--gpu`` names the rows, and ``--quiet`` leaves stderr empty."""
    out = tmp_path / "costs.csv"
    asked = ("--seq", 16, "--gpu", "own", "--tp", "4", "--micro-batch", "1", "--precision", "bf16", "--quiet")
    assert run("profile", model, *SHORT, *asked, "--out", out) == (0, "", "")
    table = read_costs(out)
    assert {(row.device, row.tp, row.seq) for row in table.rows} == {("own", 4, 16)}
    assert "bf16" in table.basis


def test_default_degrees_are_those_that_split_the_model(tmp_path: Path, run: Run, model: Path) -> None:
    """Of 1, 2, 4 and 8 ranks a model with 4 heads is measured on 1, 2 and 4."""
    out = tmp_path / "costs.csv"
    assert run("profile", model, *SHORT, "--micro-batch", "1", "--quiet", "--out", out).code == 0
    assert {row.tp for row in read_costs(out).rows} == {1, 2, 4}


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points before the interrupt are written, and file and stderr say that it came."""
    out = tmp_path / "costs.csv"

    def interrupted(sweep: Any, point: Point) -> Any:
        if point == Point("head", 1, 1):
            raise KeyboardInterrupt
        return measure(sweep, point)

    monkeypatch.setattr(MEASURE, interrupted)
    outcome = run("profile", model, *SHORT, "--tp", "1", "--quiet", "--out", out)
    assert outcome == (0, "", "taut: warning: interrupted after 2 of 12 points\n")
    table = read_costs(out)
    assert [row.kind for row in table.rows] == ["block", "block", "embedding"]
    assert "Interrupted after 2 of 12 points." in table.basis


@pytest.mark.parametrize(
    ("outcome", "words"),
    [(KeyboardInterrupt, "no row: interrupted before the first"), (None, "no row: nothing fits the device's memory")],
)
def test_nothing_measured_is_said(
    tmp_path: Path, run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, outcome: Any, words: str
) -> None:
    """Without a row there is no table: exit code 4."""

    def nothing(sweep: Any, point: Point) -> None:
        if outcome is not None:
            raise outcome

    monkeypatch.setattr(MEASURE, nothing)
    out = tmp_path / "costs.csv"
    found = run("profile", model, *SHORT, "--quiet", "--out", out)
    assert (found.code, found.out) == (4, "")
    assert found.err.startswith(f"taut: {words}")
    assert found.err.count("\n") == 1
    assert not out.exists()


def test_what_does_not_fit_is_said(tmp_path: Path, run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points without enough memory are named on stderr, even when quiet."""
    monkeypatch.setattr(MEASURE, lambda sweep, point: None if point.kind == "head" else measure(sweep, point))
    asked = ("--tp", "1", "--micro-batch", "2", "--quiet")
    outcome = run("profile", model, *SHORT, *asked, "--out", tmp_path / "costs.csv")
    assert outcome.code == 0
    assert outcome.err == (
        "taut: warning: left out, as the device's memory does not suffice: head tp=1 micro_batch=2\n"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "MODEL: missing, expected a model, or --network"),
        (["gpt-5", "--device", "cpu"], "model 'gpt-5' is not in the catalog"),
        (["gpt-tiny", "--device", "tpu"], "--device tpu: expected one of cuda, cpu"),
        (["gpt-tiny", "--device", "cpu", "--tp", "3"], "--tp 3: does not divide the heads and ffn of gpt-tiny"),
        (["gpt-tiny", "--device", "cpu", "--tp", "1,x"], "--tp 1,x: expected whole numbers above 0"),
        (["gpt-tiny", "--device", "cpu", "--micro-batch", "0"], "--micro-batch 0: expected whole numbers above 0"),
        (["gpt-tiny", "--device", "cpu", "--micro-batch", "9" * 5000], "expected whole numbers above 0"),
        (["gpt-tiny", "--device", "cpu", "--seq", "0"], "seq: is 0, expected to be greater than 0"),
        (["gpt-tiny", "--device", "cpu", "--precision", "int8"], "--precision int8: expected one of bf16, fp16, fp32"),
        (["gpt-tiny", "--device", "cpu", "--repeats", "0"], "--repeats 0: expected at least 1"),
        (["gpt-tiny", "--device", "cpu", "--warm-up", "-1"], "--warm-up -1: expected at least 0"),
        (["gpt-tiny", "--device", "cpu", "--kernels", "nowhere/k.csv"], "nowhere/k.csv: there is no folder nowhere"),
        (["gpt-tiny", "--device", "cpu", "--processes", "2"], "--processes 2: expected only with --network"),
        (["gpt-tiny", "--network"], "MODEL gpt-tiny: expected only without --network"),
        (["--network", "--tp", "2"], "--tp 2: expected only without --network"),
    ],
)
def test_wrong_usage_is_one_line_and_no_file(tmp_path: Path, run: Run, words: list[str], complaint: str) -> None:
    """Exit code 2, one line on stderr, and nothing written."""
    outcome = run("profile", *words, "--out", tmp_path / "out")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith("taut: ")
    assert complaint in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_missing_cuda_is_one_line(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for a GPU where PyTorch finds none is exit code 2; it is what ``--device`` asks for by default."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words = "taut: --device cuda: PyTorch finds no CUDA device, expected one, or --device cpu\n"
    assert run("profile", "gpt-tiny", "--out", tmp_path / "costs.csv") == (2, "", words)


def test_missing_torch_is_one_line(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyTorch the message names the extra that brings it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = run("profile", "gpt-tiny", "--device", "cpu", "--out", tmp_path / "costs.csv")
    words = "taut: torch: not installed, expected it to measure with (pip install 'taut[learn]')\n"
    assert outcome == (2, "", words)


def test_network_is_handed_on(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--network`` measures links with what the options say, and a device type as guessed."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr("taut.profiling.network.profile_network", lambda **options: seen.update(options))
    out = tmp_path / "cluster.yaml"
    assert run("profile", "--network", "--device", "cpu", "--gpus-per-node", 4, "--name", "box", "--out", out).code == 0
    expected = {"out": out, "device": "cpu", "gpu": "cpu", "processes": 2, "gpus_per_node": 4, "name": "box"}
    assert seen == {**expected, "quiet": False}


def test_help_loads_neither_torch_nor_numba() -> None:
    """``taut profile --help`` is written without importing what measures."""
    script = (
        "import sys; sys.argv = ['taut', 'profile', '--help']\n"
        "from taut.commands import app as cli\n"
        "try:\n    cli.main()\n"
        "except SystemExit as stop:\n    print(stop.code, sorted({'torch', 'numba'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_catalog_has_a_measured_profile(run: Run) -> None:
    """The built-in table covers its model on the CPU node, says where it was measured, and plans by its name."""
    table = catalog_profiles()["gpt-tiny-cpu"]
    assert load_costs("gpt-tiny-cpu") == table
    kinds = {*catalog_models()["gpt-tiny"].kinds, "embedding", "head"}
    asked = {(kind, tp, batch) for kind in kinds for tp in (1, 2, 4) for batch in (1, 2, 4, 8, 16)}
    assert {(row.kind, row.tp, row.micro_batch) for row in table.rows} == asked
    assert "no GPU available" in table.basis
    outcome = run("plan", "gpt-tiny", "cpu-node", "--global-batch", 16, "--profile", "gpt-tiny-cpu", "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    assert "model megatron-core: fp32" in outcome.out
    assert "gpt-tiny-cpu" in run("catalog", "profiles").out


@pytest.mark.parametrize(
    ("model", "degrees", "batches"),
    [
        ("llama3-8b", (1, 2, 4, 8), (1, 2, 4)),
        ("llama3-70b", (2, 4, 8), (1, 2, 4)),
        ("gpt3-175b", (4, 8), (1, 2, 4, 8)),
    ],
)
def test_catalog_has_models_measured_on_h100(model: str, degrees: tuple[int, ...], batches: tuple[int, ...]) -> None:
    """The built-in tables hold every part of the model at every degree and micro-batch, and price the optimizer."""
    table = catalog_profiles()[f"{model}-h100-80gb"]
    kinds = {*catalog_models()[model].kinds, "embedding", "head"}
    asked = {("h100-80gb", kind, tp, batch) for kind in kinds for tp in degrees for batch in batches}
    assert {(row.device, row.kind, row.tp, row.micro_batch) for row in table.rows} == asked
    assert all(row.peak_bytes and row.peak_bytes > row.activation_bytes for row in table.rows)
    assert table.optimizer_s_per_parameter["h100-80gb"] < 2e-11
    assert "NVIDIA H100 80GB HBM3, PyTorch" in table.basis


def test_plans_are_priced_by_layers_measured_on_h100(run: Run) -> None:
    """A plan by the built-in table names it, and its computation is within 5 % of the price of calibrated runs."""
    asked = ("plan", "llama3-8b", "dgx-h100", "--global-batch", 128, "--quiet", "--fix", "tp=1,pp=1,micro_batch=1")
    by_profile, by_default = run(*asked, "--profile", "llama3-8b-h100-80gb"), run(*asked)
    assert (by_profile.code, by_default.code) == (0, 0)
    assert "profile llama3-8b-h100-80gb.csv" in by_profile.out
    seconds = [float(re.findall(r"computation +([\d.]+)", outcome.out)[0]) for outcome in (by_profile, by_default)]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.05)


def test_unknown_profiles_are_refused() -> None:
    """A name that is neither the catalog's nor a file names the choices."""
    with pytest.raises(DataError, match=r"profile 'gpt-5' is not in the catalog, expected one of .*gpt-tiny-cpu"):
        load_costs("gpt-5")
