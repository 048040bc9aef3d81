"""Measured operators: read, interpolated by hand-computed rules, refused, and summed to layer costs."""

import os
from pathlib import Path
from typing import Any

import pytest

from taut.data.analytic.operator_costs import (
    AttentionTable,
    GemmTable,
    RateTable,
    costs_from_operators,
    read_attention,
    read_gemms,
)
from taut.data.analytic.operator_times import OperatorModel
from taut.data.catalog.devices import catalog_devices
from taut.data.costs import CostTable, Key, costs_csv, read_costs
from taut.data.device import DeviceSpec
from taut.data.layers.layer import LayerSpec
from taut.data.load import load_model
from taut.data.model import ModelSpec
from taut.errors import DataError, ExtrapolationWarning, MissingProfileError

GEMMS = """\
# measured somewhere
gemm_dtype,m,n,k,latency
bfloat16,100,100,100,1.0
bfloat16,400,100,100,2.0
float16,400,100,100,3.0
fp8,200,100,100,0.1
bfloat16,100,200,100,4.0
"""
ATTENTION = """\
attn_dtype,kv_cache_dtype,batch_size,isl,num_heads,num_key_value_heads,head_dim,window_size,latency
float16,float16,1,1000,4,2,64,0,1.0
bfloat16,bfloat16,1,4000,4,2,64,0,16.0
float16,fp8,1,2000,4,2,64,0,0.1
float16,float16,1,2000,4,2,64,128,0.1
"""
DEVICE = DeviceSpec(
    name="toy",
    memory_gib=80,
    launch_us=0,
    peak_tflops={"bf16": 100, "fp16": 100, "fp32": 10},
    memory_bandwidth_gbytes=1000,
)
SHAPE: dict[str, Any] = {"name": "toy", "layers": 2, "hidden": 128, "heads": 4, "seq": 256, "vocab": 1000}
RATE = 1e12


def gemms(folder: Path, text: str = GEMMS) -> GemmTable:
    path = folder / "gemm.csv"
    path.write_text(text, encoding="utf-8")
    return read_gemms(path)


def attention(folder: Path, text: str = ATTENTION) -> AttentionTable:
    path = folder / "attention.csv"
    path.write_text(text, encoding="utf-8")
    return read_attention(path)


def flat(axes: int) -> RateTable:
    """A table that runs everything at 1 TFLOP/s."""
    table = RateTable(name="flat", axes=tuple("nkm" if axes == 3 else "dghbs"))
    for corner in range(2**axes):
        table.put([1 if corner >> axis & 1 else 2**20 for axis in range(axes)], RATE)
    return table


def costs(model: ModelSpec, **changes: Any) -> CostTable:
    given = {"tensor_degrees": [1, 2], "micro_batches": [2], "attention": AttentionTable(flat(5))}
    return costs_from_operators(GemmTable(flat(3)), model, DEVICE, **{**given, **changes})


def test_measured_points_come_back(tmp_path: Path) -> None:
    """Milliseconds become seconds, the faster of two rows counts, and fp8 rows do not."""
    table = gemms(tmp_path)
    assert table.seconds(400, 100, 100) == pytest.approx(2e-3)
    assert attention(tmp_path).seconds(1, 4000, 4, 2, 64) == pytest.approx(16e-3)


def test_between_points_the_logarithms_are_linear(tmp_path: Path) -> None:
    """Half way in log m from 1 ms to 2 ms is sqrt(2) ms; attention of 1 and 16 ms gives 4 ms."""
    assert gemms(tmp_path).seconds(200, 100, 100) == pytest.approx(2**0.5 * 1e-3)
    assert attention(tmp_path).seconds(1, 2000, 4, 2, 64) == pytest.approx(4e-3)


def test_each_axis_is_interpolated_in_turn(tmp_path: Path) -> None:
    """Half way in log n between 2e9 FLOP/s at n = 100 and 1e9 at n = 200, at m = 100."""
    rate = (2e6 / 1e-3 * 4e6 / 4e-3) ** 0.5
    assert gemms(tmp_path).seconds(100, 141, 100) == pytest.approx(2 * 100 * 141 * 100 / rate, rel=1e-2)


def test_beyond_the_table_the_rate_or_the_seconds_hold(tmp_path: Path) -> None:
    """Twice the largest m takes twice as long, half the smallest k as long as the smallest; both warn."""
    table = gemms(tmp_path)
    with pytest.warns(ExtrapolationWarning, match="m beyond the largest measured, 400, is taken at its rate"):
        assert table.seconds(800, 100, 100) == pytest.approx(4e-3)
    with pytest.warns(ExtrapolationWarning, match="k below the smallest measured, 100, is taken at its seconds"):
        assert table.seconds(400, 100, 50) == pytest.approx(2e-3)


def test_a_product_outside_is_taken_as_its_transpose(tmp_path: Path) -> None:
    """400 columns were not measured, but 400 rows were."""
    assert gemms(tmp_path).seconds(100, 400, 100) == pytest.approx(2e-3)


def test_far_sizes_are_refused(tmp_path: Path) -> None:
    """A factor of more than 8 from what was measured says nothing."""
    with pytest.raises(MissingProfileError, match=r"gemm\.csv: k is 801, expected at most 800 \(measured: 100\)"):
        gemms(tmp_path).seconds(100, 100, 801)
    with pytest.raises(MissingProfileError, match=r"isl is 100, expected at least 125 \(measured: 1000\)"):
        attention(tmp_path).seconds(1, 100, 4, 2, 64)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "gemm.csv: is empty, expected a table of operators"),
        ("m,n,latency\n1,1,1\n", "gemm.csv: column k is missing"),
        ("m,n,k,latency\n1,1,1,0\n", "gemm.csv row 1: latency is '0', expected milliseconds above 0"),
        ("m,n,k,latency\n1,1,1,1\n1,1,1,inf\n", "gemm.csv row 2: latency is 'inf'"),
        ("m,n,k,latency\n1,1,2.5,1\n", "gemm.csv row 1: k is '2.5', expected a whole number above 0"),
        ("m,n,k,latency\n1,1,1\n", "gemm.csv row 1: latency is None"),
        ("gemm_dtype,m,n,k,latency\nfp8,1,1,1,1\n", "gemm.csv: has no row in half precision, expected bf16 or"),
    ],
)
def test_wrong_tables_are_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    """The message names the file, the row, the figure and what was expected."""
    with pytest.raises(DataError, match=words) as refusal:
        gemms(tmp_path, text)
    assert "\n" not in str(refusal.value)


def test_attention_needs_whole_groups_of_heads(tmp_path: Path) -> None:
    """Four heads cannot share three key-value heads."""
    with pytest.raises(DataError, match="row 1: num_heads is 4, expected a multiple of num_key_value_heads"):
        attention(tmp_path, ATTENTION.replace(",4,2,", ",4,3,"))


def test_layer_is_the_sum_of_its_operators() -> None:
    """A layer of 12 * 128^2 parameters, two samples of 256 tokens, everything at 1 TFLOP/s and 0.8 TB/s."""
    found = costs(ModelSpec(**SHAPE))
    # 2 * 512 * 196608 = 201.3 MFLOP of products; 4 * 2 * 256^2 * 128 = 67.1 MFLOP of attention;
    # 2 * 512 * (10 * 128 + 4 * 512) = 3.41 MB of the rest.
    products, core, rest = 201_326_592 / RATE, 67_108_864 / RATE, 3_407_872 / 0.8e12
    plain = found.at(Key("toy", "block", 1, 2, 256, "none"))
    assert plain.forward == pytest.approx(products + core + rest)
    assert plain.input_grad == pytest.approx(products + 2.5 * core + rest)
    assert plain.weight_grad == pytest.approx(products)
    again = {way: found.at(Key("toy", "block", 1, 2, 256, way)).input_grad for way in ("selective", "full")}
    assert again["selective"] == pytest.approx(plain.input_grad + core)
    assert again["full"] == pytest.approx(plain.input_grad + plain.forward)
    # Two ranks halve products, attention and what lies between the two matrices.
    halved = found.at(Key("toy", "block", 2, 2, 256, "none"))
    assert halved.forward == pytest.approx((products + core) / 2 + 2 * 512 * (10 * 128 + 1024) / 0.8e12)


def test_head_and_embedding() -> None:
    """1000 words are padded to 1024; the loss moves 8 bytes a logit; the embedding copies its rows."""
    found = costs(ModelSpec(**SHAPE))
    head = found.at(Key("toy", "head", 1, 2, 256, "none"))
    product, loss = 2 * 512 * 128 * 1024 / RATE, 8 * 512 * 1024 / 0.8e12
    assert head.forward == pytest.approx(product + loss)
    assert head.weight_grad == pytest.approx(product)
    embedding = found.at(Key("toy", "embedding", 1, 2, 256, "none"))
    assert embedding.forward == pytest.approx(2 * 2 * 512 * 128 / 0.8e12)
    assert embedding.input_grad == 0
    assert embedding.weight_grad == pytest.approx(embedding.forward)


def test_window_counts_the_cores_of_a_window() -> None:
    """256 tokens that see 64 each are four cores of 64 tokens."""
    layer = {"hidden": 128, "heads": 4, "seq": 256, "attention_window": 64}
    found = costs(ModelSpec(name="w", layers=[LayerSpec(**layer)]), tensor_degrees=[1])
    core = 4 * (4 * 2 * 64**2 * 128) / RATE
    again = [found.at(Key("toy", "block", 1, 2, 256, way)).input_grad for way in ("none", "selective")]
    assert again[1] - again[0] == pytest.approx(core)


def test_attention_falls_back_on_a_model_or_the_stated_efficiency() -> None:
    """Without a table the operator model or 0.4 of 100 TFLOP/s prices the core, and the basis says which."""
    twice = {"product": 2.0, "scores": 0.0, "traffic": 0.0, "launch": 0.0}
    unit = {"product": 1.0, "sustained": 0.0, "output": 0.0, "inputs": 0.0, "launch": 0.0}
    model = OperatorModel(device="toy", peak_tflops=100, memory_bandwidth_gbytes=1000, gemm=unit, attention=twice)
    for given, seconds, words in (
        (model, 2 * 67_108_864 / 100e12, "attention by the operator model of toy"),
        (None, 67_108_864 / 40e12, "attention at 0.4 of peak"),
    ):
        found = costs(ModelSpec(**SHAPE), attention=given)
        again = [found.at(Key("toy", "block", 1, 2, 256, way)).input_grad for way in ("none", "selective")]
        assert again[1] - again[0] == pytest.approx(seconds)
        assert words in found.basis


def test_table_survives_its_file(tmp_path: Path) -> None:
    """Costs are written and read back, with their basis and the optimizer's price."""
    path = tmp_path / "costs.csv"
    found = costs(ModelSpec(**SHAPE))
    path.write_text(costs_csv(found), encoding="utf-8")
    again = read_costs(path)
    assert [row.key for row in again.rows] == [row.key for row in found.rows]
    assert found.basis in again.basis
    assert again.optimizer_s_per_parameter == pytest.approx(found.optimizer_s_per_parameter, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"precision": "fp32"}, "precision is fp32, expected bf16 or fp16"),
        ({"tensor_degrees": [1, 3]}, "toy: tp 3 does not divide layers 'block', expected 1, 2, 4"),
    ],
)
def test_what_cannot_be_priced_is_refused(changes: dict[str, Any], words: str) -> None:
    """Another number format, and degrees that divide no layer."""
    with pytest.raises(DataError, match=words):
        costs(ModelSpec(**SHAPE), **changes)


@pytest.mark.filterwarnings("ignore::taut.errors.ExtrapolationWarning")
@pytest.mark.parametrize("table", ["a100_sxm", "h100_sxm"])
@pytest.mark.parametrize("model", ["gpt3-175b", "llama3-8b"])
def test_public_tables_price_large_models_at_likely_efficiencies(table: str, model: str) -> None:
    """Weight gradients, products alone, run at 60 to 90 % of peak at every degree; a forward pass takes longer."""
    folder = Path(os.environ.get("TAUT_SHARED_DATA", "")) / "profiles" / "aiconfigurator"
    paths = [*folder.glob(f"{table}__gemm_perf__*.csv"), *folder.glob(f"{table}__context_attention_perf__*.csv")]
    if "TAUT_SHARED_DATA" not in os.environ or len(paths) != 2:
        pytest.skip("public data are absent")
    device, spec = catalog_devices()[f"{table[:4]}-80gb"], load_model(model)
    found = costs_from_operators(
        read_gemms(paths[0]),
        spec,
        device,
        tensor_degrees=[1, 2, 4, 8],
        micro_batches=[1, 4],
        attention=read_attention(paths[1]),
    )
    peak = device.peak_flops("bf16") or 0.0
    blocks = [row for row in found.rows if row.kind == "block"]
    assert len(blocks) == 4 * 2 * 3
    for row in blocks:
        flop = 2.0 * row.micro_batch * row.seq * spec.blocks[0].matrix_parameters(row.tp)
        assert 0.6 < flop / peak / row.weight_grad_s < 0.9
        assert 0.3 < flop / peak / row.forward_s < 0.85
