"""Operators of Aceso as a cost table: sums over a layer, all-reduces taken out, recomputation."""

from pathlib import Path

import pytest

from taut.data.device import DeviceSpec
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.data.units import MIB
from taut.errors import DataError
from taut.papers.aceso.operators import read_all_reduces, read_operator_costs

HEADER = "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved"
LINES = """encoder-embedding,1000,2000,1,8,100,8,10,10
enc-1st-layernorm,1000,1000,8,8,0,8,0,10
enc-attention-dropout,500,700,8,8,0,64,0,10
enc-MLP-GEMM-1,2500,4300,8,8,10,16,0,10
final-layernorm,1000,1000,8,8,0,8,0,10
gpt-post-process,4000,8000,8,0,100,20,0,0
"""
MODEL = ModelSpec.parse({"name": "m", "layers": 2, "hidden": 64, "heads": 8, "seq": 8192, "vocab": 512}, "m")
DEVICE = DeviceSpec.parse(
    {"name": "d", "memory_gib": 24, "peak_tflops": {"fp16": 100}, "memory_bandwidth_gbytes": 300}, "d"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Profiles at tensor degrees 1 and 2, and all-reduces of 1 and 3 MiB, one of 4 not run; a layer's output has 1."""
    for tp in (1, 2):
        (tmp_path / f"gpt_1_3B_mbs1_tp{tp}_algo0.csv").write_text(f"{HEADER}\n{LINES}", encoding="utf-8")
    for name in ("intra", "inter"):
        (tmp_path / f"p2p_{name}_node.csv").write_text("1,2\n8,8\n", encoding="utf-8")
    text = "data_size(MB),time(ms)\n3,1.5\n1,0.5\n4,1000000000.000\n"
    (tmp_path / "prim_gpt_1_3B_all_reduce_2gpus.csv").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_layer_is_the_sum_of_its_operators(folder: Path) -> None:
    """4 ms forward and 6 backward; head and tail beside; 8 + 1.5 x 64 + 16 MiB stay, 24 without the core, 8 of all."""
    table = read_operator_costs(folder, "1_3B", MODEL, DEVICE)
    rows = {(row.kind, row.recompute): row for row in table.rows if row.tp == 1}
    kind = MODEL.blocks[0].kind
    plain, selective, full = (rows[kind, recompute] for recompute in ("none", "selective", "full"))
    assert plain.forward_s == pytest.approx(4e-3)
    assert plain.input_grad_s + plain.weight_grad_s == pytest.approx(6e-3)
    assert selective.input_grad_s == pytest.approx(plain.input_grad_s + 0.5e-3)
    assert full.input_grad_s == pytest.approx(plain.input_grad_s + 4e-3)
    assert [row.activation_bytes / MIB for row in (plain, selective, full)] == [120, 24, 8]
    assert rows[EMBEDDING, "none"].forward_s == pytest.approx(1e-3)
    assert rows[HEAD, "none"].forward_s == pytest.approx(5e-3) and rows[HEAD, "none"].activation_bytes == 28 * MIB


def test_all_reduces_are_taken_out_but_no_split_is_better_than_even(folder: Path) -> None:
    """An all-reduce of 1 MiB takes 0.5 ms: at tp 2 a layer has 4 - 1 and 6 - 1 ms; if it took 2 ms, half of tp 1."""
    assert read_all_reduces(folder, "1_3B", 2)[1].tolist() == [0.5e-3, 1.5e-3]
    path = folder / "prim_gpt_1_3B_all_reduce_2gpus.csv"
    for text, forward, backward in (("1,0.5", 3e-3, 5e-3), ("1,2", 2e-3, 3e-3)):
        path.write_text(f"data_size(MB),time(ms)\n{text}\n", encoding="utf-8")
        table = read_operator_costs(folder, "1_3B", MODEL, DEVICE)
        row = next(row for row in table.rows if row.tp == 2 and row.kind == MODEL.blocks[0].kind)
        assert row.forward_s == pytest.approx(forward)
        assert row.input_grad_s + row.weight_grad_s == pytest.approx(backward)


def test_layers_above_the_peak_rate_are_left_out(folder: Path) -> None:
    """Operators of a nanosecond were not measured on this device; the others stay, and the basis says so."""
    path = folder / "gpt_1_3B_mbs2_tp1_algo0.csv"
    fast = "\n".join(
        ",".join([cells.split(",")[0], "0.001", "0.001", *cells.split(",")[3:]]) for cells in LINES.split()
    )
    path.write_text(f"{HEADER}\n{fast}\n", encoding="utf-8")
    table = read_operator_costs(folder, "1_3B", MODEL, DEVICE)
    assert {(row.micro_batch, row.tp) for row in table.rows} == {(1, 1), (1, 2)}
    assert "left out, as above the peak rate: micro-batch 2 at tp 1" in table.basis


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data_size(MB),time(ms)\n1,x\n", "row 1: time: is 'x'"),
        ("data_size(MB),time(ms)\n", "has no rows, expected all-reduces"),
        (None, "expected all-reduces"),
    ],
)
def test_wrong_all_reduces_are_refused(folder: Path, text: str | None, message: str) -> None:
    """File, row and value; a file that is missing is named."""
    path = folder / "prim_gpt_1_3B_all_reduce_2gpus.csv"
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_operator_costs(folder, "1_3B", MODEL, DEVICE)
