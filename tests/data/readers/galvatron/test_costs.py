"""Galvatron's profiles as cost tables."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.devices import device_named
from taut.data.costs import CostTable, Key
from taut.data.device import DeviceSpec
from taut.data.load import load_model
from taut.data.model import ModelSpec
from taut.data.readers.galvatron.costs import read_galvatron, read_galvatron_memory
from taut.data.units import MIB
from taut.errors import DataError

FILES = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "profiles" / "galvatron"
MODEL = ModelSpec(name="tiny", layers=3, hidden=4, heads=2, seq=8, vocab=128)
DEVICE = DeviceSpec(
    name="unit", memory_gib=1, peak_tflops={"bf16": 1.0}, memory_bandwidth_gbytes=1.0, memory_efficiency=0.5
)
TIMES = {"layernum[2]_bsz1_seq8": 20.0, "layernum[4]_bsz1_seq8": 32.0}
"""A layer takes (32 - 20) / 2 = 6 ms, and 20 - 2 * 6 = 8 ms are embedding and head."""


def written(folder: Path, content: object, name: str = "computation.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def read(folder: Path, content: object, **options: Any) -> CostTable:
    return read_galvatron(written(folder, content), options.pop("model", MODEL), DEVICE, **options)


def key(kind: str, micro_batch: int = 1, recompute: str = "none") -> Key:
    return Key("unit", kind, 1, micro_batch, 8, recompute)


def test_difference_of_layer_counts_is_the_layers(tmp_path: Path) -> None:
    """A layer is the slope over the number of layers; the backward pass is twice that, split by FLOP."""
    table = read(tmp_path, TIMES)
    assert (len(table.rows), table.optimizer_s_per_parameter) == (3, {})
    block = table.by_key[key("block")]
    # Of 12 ms backward 3072 / (2 * 4096) are weight gradient (8 tokens, 192 weights; attention 4 * 8 * 8 * 4).
    assert (block.forward, block.input_grad, block.weight_grad) == pytest.approx((6e-3, 7.5e-3, 4.5e-3))
    assert table.rows[1].spread is None
    assert "at tp 1 alone" in table.basis


def test_rest_is_embedding_and_head(tmp_path: Path) -> None:
    """The embedding moves its rows twice at the device's memory rate; what is left of the rest is the head."""
    table = read(tmp_path, TIMES)
    # 2 * 2 bytes * 8 tokens * 4 = 128 bytes at 0.5 * 1 GB/s are 256 ns of the 8 ms, and twice that backward.
    embedding, head = table.by_key[key("embedding")], table.by_key[key("head")]
    assert (embedding.forward, embedding.input_grad, embedding.weight_grad) == pytest.approx((256e-9, 0, 512e-9))
    assert (head.forward, head.seconds) == pytest.approx((8e-3 - 256e-9, 3 * (8e-3 - 256e-9)))


def test_older_keys_have_no_tokens(tmp_path: Path) -> None:
    """Without tokens in the key the figures hold at the model's sequence length."""
    table = read(tmp_path, {"layernum[6]_bsz2": 69.0, "layernum[12]_bsz2": 123.0, "layertype_0": 4.5})
    # (123 - 69) / 6 = 9 ms for two samples.
    assert table.by_key[key("block", 2)].forward == pytest.approx(9e-3)


def test_other_sequence_lengths_are_left_alone(tmp_path: Path) -> None:
    """Of a file with several sequence lengths only the model's is read."""
    others = {"layernum[2]_bsz1_seq16": 50.0, "layernum[4]_bsz1_seq16": 90.0}
    assert read(tmp_path, {**TIMES, **others}).by_key.keys() == read(tmp_path, TIMES).by_key.keys()
    with pytest.raises(DataError, match="has seq 8, 16, expected times at seq 32"):
        read(tmp_path, {**TIMES, **others}, model=MODEL.model_copy(update={"seq": 32}))


def test_more_layer_counts_give_a_spread(tmp_path: Path) -> None:
    """Of several numbers of layers the outermost count, and the slopes between neighbours give the spread."""
    row = read(tmp_path, {**TIMES, "layernum[6]_bsz1_seq8": 40.0}).rows[1]
    # (40 - 20) / 4 = 5 ms; slopes 6 and 4 ms: (6 - 4) / 5.
    assert (row.forward_s, row.spread) == pytest.approx((5e-3, 0.4))


def test_batch_with_one_number_of_layers_is_left_out(tmp_path: Path) -> None:
    """A micro-batch that does not tell layers apart is named in the basis; a file of such is refused."""
    table = read(tmp_path, {**TIMES, "layernum[2]_bsz3_seq8": 50.0})
    assert {row.micro_batch for row in table.rows} == {1}
    assert "left out, with one number of layers: bsz 3" in table.basis
    with pytest.raises(DataError, match="has one number of layers at every bsz, expected two at least"):
        read(tmp_path, {"layernum[2]_bsz3_seq8": 50.0})


KEYS: list[tuple[object, str]] = [
    ({}, "has no times, expected times at seq 8"),
    ([], "holds list, expected a computation profile of Galvatron"),
    (
        {"layernum[2,2]_bsz1_seq[8,8]": 1.0},
        r"key 'layernum\[2,2\].*', expected layernum\[LAYERS\]_bszSAMPLES_seqTOKENS",
    ),
    ({"layernum[2]_bsz1_seq8_attention": 1.0}, "of whole layers of one kind"),
    ({"layernum[0]_bsz1_seq8": 1.0}, r"has the key 'layernum\[0\]"),
    ({**TIMES, "layernum[2]_bsz1": 21.0}, r"layernum\[2\]_bsz1: stands there with and without its tokens"),
    ({**TIMES, "layernum[6]_bsz1_seq8": 30.0}, "bsz 1: 32 ms for 4 layers and 30 for 6, expected more for more layers"),
    ({**TIMES, "layernum[2]_bsz1_seq8": 6.0}, "bsz 1: head, what is left,: forward and backward are -0.02"),
    ({**TIMES, "layernum[4]_bsz1_seq8": 20.000001}, "bsz 1: layer: forward and backward are 5e-10"),
]


@pytest.mark.parametrize(("content", "message"), KEYS)
def test_wrong_keys_and_times_are_refused(tmp_path: Path, content: object, message: str) -> None:
    """Other layer kinds, halves of a layer, falling and impossible times are named with their key."""
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


@pytest.mark.parametrize("value", ['"20.0"', "true", "null", "[20.0]", "0", "-1", "1e10", "1e999", "NaN", "Infinity"])
def test_values_that_are_no_milliseconds_are_refused(tmp_path: Path, value: str) -> None:
    """Strings, nothing, lists, negative, huge and infinite numbers are no times."""
    text = json.dumps(TIMES).replace("20.0", value)
    with pytest.raises(DataError, match=r"layernum\[2\]_bsz1_seq8: is .*, expected milliseconds above 0|holds "):
        read(tmp_path, text)


def memory(
    strategy: str = "1_1_8", first: object = 800.0, second: object = 1300.0, seq: str = "_seq8"
) -> dict[str, Any]:
    """Activations of one and two layers, of 8 samples on 8 devices, among what else stands there."""
    figures = {
        f"layernum[1]_bsz8{seq}_rank0_ms": 900.0,
        f"layernum[1]_bsz8{seq}_rank0_act": first,
        f"layernum[1]_bsz8{seq}_rank0_act_peak": 1400.0,
        f"layernum[2]_bsz8{seq}_rank0_act": second,
        f"layernum[2]_bsz8{seq}_rank7_act": 1.0,
    }
    return {strategy: figures}


def test_memory_profile_gives_activations(tmp_path: Path) -> None:
    """A layer keeps what it adds; the rest is divided between embedding and head as the formulas do."""
    content = {**TIMES, "layernum[2]_bsz3_seq8": 50.0, "layernum[4]_bsz3_seq8": 80.0}
    path = written(tmp_path, {**memory(), **memory("1_1_8_c", 300.0, 310.0), "layertype_0": {}}, "memory.json")
    table = read(tmp_path, content, memory=path)
    # One sample a device: 1300 - 800 = 500 MiB a layer, 300 beside; three samples three times that.
    assert table.by_key[key("block", 3)].activation_bytes == 1500 * MIB
    # The formulas give the embedding 32 bytes and the head 2 * 2 * 32 + 4 * 8 * 128 = 4224.
    kept = [table.by_key[key(kind)].activation_bytes for kind in ("embedding", "head")]
    assert kept == [round(300 * MIB * 32 / 4256), round(300 * MIB * 4224 / 4256)]


def test_memory_under_full_recomputation_adds_a_row(tmp_path: Path) -> None:
    """The strategy with suffix _c gives the bytes of full recomputation, whose forward pass is done again."""
    path = written(tmp_path, {**memory("1_1_8_sp"), **memory("1_1_8_c_sp", 300.0, 310.0)}, "memory.json")
    full = read(tmp_path, TIMES, memory=path).by_key[key("block", recompute="full")]
    assert full.activation_bytes == 10 * MIB
    # 7.5 ms and the 6 ms of the forward pass.
    assert (full.input_grad, full.weight_grad) == pytest.approx((13.5e-3, 4.5e-3))


def test_memory_of_several_strategies_is_the_most(tmp_path: Path) -> None:
    """A device holds B / DP samples; of several strategies the one that keeps most counts, others are not read."""
    # 8 samples on 4 devices: 1300 - 800 = 500 MiB for two samples.
    four, split = memory("1_1_4", seq=""), memory("1_2_4", "no", "number")
    assert read_galvatron_memory(written(tmp_path, {**four, **split}, "memory.json"), 8)["none"].layer == 250 * MIB
    assert read_galvatron_memory(written(tmp_path, {**four, **memory()}, "memory.json"), 8)["none"].layer == 500 * MIB


MEMORY: list[tuple[object, str]] = [
    ({}, "has no 1_1_DP with act at two numbers of layers and seq 8, expected one"),
    (memory("1_2_4"), "has no 1_1_DP"),
    (memory(seq="_seq16"), "has no 1_1_DP"),
    ({"1_1_8": 3}, "1_1_8: is 3, expected an object of figures"),
    (memory(first="800"), r"1_1_8\.layernum\[1\]_bsz8_seq8_rank0_act: is '800', expected MiB above 0"),
    (memory(first=-1.0), r"rank0_act: is -1\.0, expected MiB above 0"),
    (memory(first=True), "rank0_act: is True"),
    (memory(second=700.0), "1_1_8 at bsz 8: act is 800 MiB for 1 layers and 700 for 2, expected more for more layers"),
    (memory(second=1700.0), "act is 800 MiB for 1 layers and 1700 for 2, .* not less for embedding and head"),
    ({"1_1_8": {**memory()["1_1_8"], "layernum[1]_bsz8_rank0_act": 1.0}}, "stands there with and without its tokens"),
]


@pytest.mark.parametrize(("content", "message"), MEMORY)
def test_wrong_memory_profiles_are_refused(tmp_path: Path, content: object, message: str) -> None:
    """Missing strategies, other nesting and figures that cannot be are named with their place."""
    with pytest.raises(DataError, match=message):
        read_galvatron_memory(written(tmp_path, content, "memory.json"), 8)


PUBLIC = {
    "gpt_configs/computation_profiling_bf16_llama2-7b_all.json": ("llama2-7b", 2048, 12),
    "history/models__gpt__configs__computation_profiling_bf16_hidden2560_head32_seqlen2048.json": (
        "gpt3-2.7b",
        2048,
        1,
    ),
    "history/models__gpt_hf__configs__computation_profiling_bf16_hidden4096_head32.json": ("gpt3-6.7b", 8192, 1),
    "history/models__llama_hf__configs__computation_profiling_bf16_hidden5120_head40_seqlen2048.json": (
        "llama2-13b",
        2048,
        2,
    ),
}


@pytest.mark.skipif(not FILES.is_dir(), reason="TAUT_SHARED_DATA holds no profiles of Galvatron")
@pytest.mark.parametrize("name", PUBLIC)
def test_public_profiles(name: str) -> None:
    """Galvatron's own files read, with the memory profile beside them, at every micro-batch."""
    model, seq, batches = PUBLIC[name]
    beside = FILES / name.replace("computation", "memory")
    table = read_galvatron(FILES / name, load_model(model, seq=seq), device_named("a100-40gb", ""), memory=beside)
    assert len({row.micro_batch for row in table.rows}) == batches
    assert {row.recompute for row in table.rows} == {"none", "full"}


@pytest.mark.skipif(not FILES.is_dir(), reason="TAUT_SHARED_DATA holds no profiles of Galvatron")
def test_public_profile_of_a_layer_that_outruns_the_device() -> None:
    """The profile of attention alone, whose keys do not say so, is too fast for whole layers."""
    name = "history/models__llama_hf__configs__computation_profiling_bf16_llama-7b_attention.json"
    with pytest.raises(DataError, match=r"bsz 1: layer: .* as a100-40gb has a peak of 312 TFLOP/s"):
        read_galvatron(FILES / name, load_model("llama2-7b", seq=2048), device_named("a100-40gb", ""))
