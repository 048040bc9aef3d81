"""``taut import operators``: a cost table that ``plan`` reads, or one line."""

import itertools
from pathlib import Path

import pytest

from taut.data.costs import read_costs
from tests.taut.conftest import Outcome, Run

SIZES = (256, 512, 1024, 4096, 65536)
GEMMS = "m,n,k,latency\n" + "".join(
    # 10 TFLOP/s everywhere: 2 m n k / 1e13 seconds, in milliseconds.
    f"{m},{n},{k},{2 * m * n * k / 1e10}\n"
    for m, n, k in itertools.product(SIZES, repeat=3)
)
ATTENTION = "batch_size,isl,num_heads,num_key_value_heads,head_dim,latency\n1,1024,8,8,64,1.0\n1,1024,16,16,64,2.0\n"


def call(run: Run, folder: Path, *options: object, text: str = GEMMS, device: str = "t4-16gb") -> Outcome:
    path = folder / "gemm.csv"
    path.write_text(text, encoding="utf-8")
    given = ("--model", "gpt2-345m", "--device", device, "--precision", "fp16", "--out", folder / "costs.csv")
    return run("import", "operators", path, *given, *options)


def test_import_writes_a_table_that_plan_reads(tmp_path: Path, run: Run) -> None:
    """Products at 10 TFLOP/s, attention by the catalog's model; the plan is priced by the file."""
    outcome, out = call(run, tmp_path, "--tp", "1,2", "--micro-batch", "1, 2"), tmp_path / "costs.csv"
    assert outcome == Outcome(0, "", f"{out}: 20 rows\n")
    table = read_costs(out)
    assert "measured products of gemm.csv, attention by the operator model of t4-16gb" in table.basis
    (block,) = (row for row in table.rows if row.key[1:6] == ("block", 2, 2, 1024, "none"))
    # gpt2-345m has 24 layers of 12 * 1024^2 matrix parameters: 2 * 2048 * 12 * 1024^2 / 2 FLOP on one of two ranks.
    assert block.weight_grad_s == pytest.approx(2 * 2048 * 12 * 1024**2 / 2 / 1e13, rel=1e-5)
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: [{count: 1, device: t4-16gb, gpus_per_node: 2, intra_bandwidth_gbps: 64}]\n")
    options = ("--global-batch", 4, "--profile", out, "--precision", "fp16", "--work-limit", 5, "--quiet")
    planned = run("plan", "gpt2-345m", cluster, *options)
    assert planned.code == 0
    assert "measured products of gemm.csv" in " ".join(planned.out.split())


def test_measured_attention_counts(tmp_path: Path, run: Run) -> None:
    """Selective recompute adds the measured core once: 2 ms of 16 heads, or 1 ms of 8."""
    path = tmp_path / "attention.csv"
    path.write_text(ATTENTION, encoding="utf-8")
    assert call(run, tmp_path, "--attention", path, "--tp", "1,2", "--micro-batch", "1", "--seq", "1024").code == 0
    rows = {(row.tp, row.recompute): row for row in read_costs(tmp_path / "costs.csv").rows if row.kind == "block"}
    for tp, seconds in ((1, 2e-3), (2, 1e-3)):
        again = rows[tp, "selective"].input_grad_s - rows[tp, "none"].input_grad_s
        assert again == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tp", "1,x"], "--tp 1,x: expected whole numbers from 1 to 65536, such as 1,2,4"),
        (["--micro-batch", "0"], "--micro-batch 0: expected whole numbers"),
        (["--tp", "3"], "gpt2-345m: tp 3 does not divide layers 'block'"),
        (["--precision", "fp32"], "precision is fp32, expected bf16 or fp16"),
        (["--model", "nope"], "model 'nope' is not in the catalog"),
        (["--attention", "none.csv"], "none.csv: No such file or directory, expected a table of operators"),
    ],
)
def test_wrong_options_are_one_line_and_no_file(tmp_path: Path, run: Run, options: list[str], words: str) -> None:
    """Exit code 2, one line on stderr, and no table."""
    outcome = call(run, tmp_path, *options)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith("taut: ") and words in outcome.err
    assert not (tmp_path / "costs.csv").exists()


def test_wrong_files_and_devices_are_one_line(tmp_path: Path, run: Run) -> None:
    """A wrong figure, a device without half precision of this kind, and an unknown device."""
    wrong = call(run, tmp_path, text="m,n,k,latency\n1,1,1,fast\n")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "gemm.csv row 1: latency is 'fast', expected milliseconds above 0" in wrong.err
    assert "no peak rate for precision bf16" in call(run, tmp_path, "--precision", "bf16").err
    assert "--device: is 'b999', expected one of" in call(run, tmp_path, device="b999").err
