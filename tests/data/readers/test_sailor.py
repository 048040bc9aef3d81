"""Sailor's profiles as cost tables."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.devices import device_named
from taut.data.costs import CostTable, Key, costs_csv, read_costs
from taut.data.device import DeviceSpec
from taut.data.layers.experts import ExpertsSpec
from taut.data.load import load_model
from taut.data.model import ModelSpec
from taut.data.readers.sailor import read_sailor, read_sailor_info
from taut.errors import DataError

FILES = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "profiles" / "sailor"
MODEL = ModelSpec(name="tiny", layers=3, hidden=4, heads=2, seq=8, vocab=128)
DEVICE = DeviceSpec(name="unit", memory_gib=1, peak_tflops={"fp32": 1.0}, memory_bandwidth_gbytes=1.0)
US = 1e-6


def layers(
    embedding: float, block: tuple[float, float], update: float = 0.0, head: tuple[float, float] = (6.0, 12.0)
) -> dict[str, list[float]]:
    """Layers 0 to 4 of a model of three blocks, from microseconds; the update in seconds."""
    passes = [(embedding, 0.0), block, block, block, head]
    return {str(i): [forward * US, backward * US, update] for i, (forward, backward) in enumerate(passes)}


def profile() -> dict[str, Any]:
    """One micro-batch of one sample at tp 1 and 2."""
    # A block has 244 parameters on one rank, 134 on one of two; embedding 512 and head 520 on either.
    # 2 * 244 + 512 + 520 = 1520 at 1 ns each, 2 * 134 + 512 + 520 = 1300 at 3 ns each.
    return {"1": {"2": layers(7.024, (35.0, 48.0), 3.9e-6), "1": layers(1.0, (40.0, 80.0), 1.52e-6)}}


def read(folder: Path, content: object, **options: Any) -> CostTable:
    path = folder / "profile.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_sailor(path, options.pop("model", MODEL), options.pop("device", DEVICE), **options)


def key(kind: str, tp: int = 1, micro_batch: int = 1) -> Key:
    return Key("unit", kind, tp, micro_batch, 8, "none")


def test_layers_become_embedding_block_and_head(tmp_path: Path) -> None:
    """The first layer is the embedding, the last the head, and the backward pass is split by FLOP."""
    table = read(tmp_path, profile())
    assert len(table.rows) == 6
    # Products 2 * 8 tokens * 192 weights = 3072 FLOP, attention 4 * 8 * 8 * 4 = 1024: of 2 * 4096 backward
    # 3072 are weight gradient, 3 / 8 of 80 us.
    block = table.by_key[key("block")]
    assert (block.forward, block.input_grad, block.weight_grad) == pytest.approx((40 * US, 50 * US, 30 * US))
    # The head is one product: its backward pass is halved.
    head = table.by_key[key("head")]
    assert (head.forward, head.input_grad, head.weight_grad) == pytest.approx((6 * US, 6 * US, 6 * US))
    embedding = table.by_key[key("embedding")]
    assert (embedding.forward, embedding.input_grad, embedding.weight_grad) == pytest.approx((1 * US, 0, 0))


def test_all_reduces_are_taken_out_of_the_blocks(tmp_path: Path) -> None:
    """Each pass of a block loses two of the all-reduce that the embedding shows, down to an even split."""
    # One sample hands on 4 bytes * 8 tokens * 4 = 128; the masked lookup moves 8 * 128 = 1024 bytes at 1 GB/s.
    # A = 7.024 - 1 - 1.024 = 5 us. Forward 35 - 10 = 25 us, above 40 / 2; backward 48 - 10 = 38 us, below 80 / 2.
    block = read(tmp_path, profile()).by_key[key("block", tp=2)]
    assert block.forward == pytest.approx(25 * US)
    assert block.input_grad + block.weight_grad == pytest.approx(40 * US)


def test_tensor_degree_1_of_a_smaller_micro_batch_stands_in(tmp_path: Path) -> None:
    """Without tp 1 the embedding and the even split come from the largest smaller micro-batch, in proportion."""
    content = profile()
    content["2"] = {"2": layers(14.048, (49.0, 96.0))}
    # A = 14.048 - 2 * 1 - 2 * 1.024 = 10 us: forward 49 - 20 = 29, below 2 * 40 / 2 = 40; backward 96 - 20 = 76, below
    # 2 * 80 / 2 = 80.
    block = read(tmp_path, content).by_key[key("block", tp=2, micro_batch=2)]
    assert block.seconds == pytest.approx(120 * US)


def test_without_tensor_degree_1_the_lookup_alone_is_left_to_the_embedding(tmp_path: Path) -> None:
    """Where tp 1 was never measured, all of the embedding but the masked lookup counts as all-reduce."""
    # A = 7.024 - 1.024 = 6 us: 35 - 12 = 23 us forward, 48 - 12 = 36 us backward.
    block = read(tmp_path, {"1": {"2": layers(7.024, (35.0, 48.0))}}).by_key[key("block", tp=2)]
    assert (block.forward, block.input_grad + block.weight_grad) == pytest.approx((23 * US, 36 * US))


def test_blocks_give_median_and_spread(tmp_path: Path) -> None:
    """The first block may differ: the median counts, and the range is kept relative to it."""
    content = {"1": {"1": layers(1.0, (40.0, 80.0))}}
    content["1"]["1"]["1"] = [50 * US, 84 * US, 0.0]
    row = next(row for row in read(tmp_path, content).rows if row.kind == "block")
    # Forward 40 to 50 us is 10 / 40, backward 80 to 84 is 4 / 80.
    assert (row.forward_s, row.spread) == pytest.approx((40 * US, 0.25))


def test_final_norm_counts_to_the_head(tmp_path: Path) -> None:
    """With one layer more, as for Llama, the two layers after the blocks are the head."""
    content = {"1": {"1": {**layers(1.0, (40.0, 80.0)), "5": [4 * US, 8 * US, 0.0]}}}
    assert read(tmp_path, content).by_key[key("head")].seconds == pytest.approx((6 + 12 + 4 + 8) * US)


def test_optimizer_is_the_step_over_what_was_profiled(tmp_path: Path) -> None:
    """The update of embedding, two blocks and head is divided by their parameters; zeros were not measured."""
    # The median of 1 and 3 ns.
    assert read(tmp_path, profile()).optimizer_s_per_parameter == pytest.approx({"unit": 2e-9})
    assert read(tmp_path, {"1": {"1": layers(1.0, (40.0, 80.0))}}).optimizer_s_per_parameter == {}


def test_activations_by_formula(tmp_path: Path) -> None:
    """Without Sailor's own file the formulas of unfused attention in fp32 hold."""
    table = read(tmp_path, profile())
    # Replicated 8 * 4 * (4 * 4 + 2) = 576 bytes; split 8 * 4 * 48 = 1536, and scores (2 * 4 + 1) * 2 * 8 * 8 = 1152.
    assert table.by_key[key("block")].activation_bytes == 576 + 1536 + 1152
    assert table.by_key[key("block", tp=2)].activation_bytes == 576 + (1536 + 1152) // 2
    # Inputs 2 * 4 * 32 bytes and logits 4 * 8 * 128.
    assert table.by_key[key("head")].activation_bytes == 256 + 4096
    assert "by formula" in table.basis


def test_table_survives_its_file(tmp_path: Path) -> None:
    """What is written as CSV reads back with the same keys, origin and price of the optimizer."""
    table = read(tmp_path, profile())
    path = tmp_path / "table.csv"
    path.write_text(costs_csv(table), encoding="utf-8")
    again = read_costs(path)
    assert again.by_key.keys() == table.by_key.keys()
    assert again.optimizer_s_per_parameter == table.optimizer_s_per_parameter
    assert "Sailor profile.json: tiny on unit, measured in fp32" in again.basis


def test_products_in_tf32_are_named(tmp_path: Path) -> None:
    """A rate between the peak of fp32 and that of the tensor cores says that products ran in TF32."""
    # 3072 FLOP in 40 us are 77 MFLOP/s, and the head's 8192 in 6 us 1365.
    for peak, named in ((50e-6, True), (2000e-6, False)):
        device = DEVICE.model_copy(update={"peak_tflops": {"fp32": peak, "bf16": 1.0}})
        table = read(tmp_path, {"1": {"1": layers(1.0, (40.0, 80.0))}}, device=device)
        assert ("so in TF32" in table.basis) is named


def test_head_that_was_not_profiled_is_estimated_on_demand(tmp_path: Path) -> None:
    """A head that is too short for its product is refused, or estimated at the rate of the blocks."""
    content = {"1": {"1": layers(1.0, (40.0, 80.0), 1e-6, head=(0.001, 0.002))}}
    with pytest.raises(DataError, match=r"1\.1: 1e-09 s is too short for a head's forward pass, .* --estimate-head"):
        read(tmp_path, content)
    table = read(tmp_path, content, estimate_head=True)
    # The head has 2 * 8 * 128 * 4 = 8192 FLOP, twice those of a block: 80 us forward and 160 us backward.
    assert table.by_key[key("head")].seconds == pytest.approx(240.003 * US)
    # 2 * 244 + 512 parameters took the step.
    assert table.optimizer_s_per_parameter == pytest.approx({"unit": 1e-9})
    assert "head estimated" in table.basis
    with pytest.raises(DataError, match="is long enough for a head's forward pass, expected no --estimate-head"):
        read(tmp_path, profile(), estimate_head=True)


REFUSED: list[tuple[object, str]] = [
    ({}, r"profile\.json is \{\}, expected an object of micro-batches"),
    ([], "holds list, expected a profile.json of Sailor"),
    ({"one": {}}, r"has the key 'one', expected micro-batches, whole numbers from 1 on"),
    ({"0": {}}, "has the key '0'"),
    ({"1": [1]}, r"profile\.json: 1 is \[1\], expected an object of tensor degrees"),
    ({"1": {"-2": {}}}, "has the key '-2', expected tensor degrees"),
    ({"1": {"3": {}}}, r"1\.3: tensor degree 3 does not divide a layer of tiny"),
    ({"1": {"1": {"0": [1, 1, 1]}}}, r"1\.1: has 1 layers, expected 5, or 6 with a final norm, for the 3 blocks"),
    ({"1": {"1": [[1, 1, 1]] * 5}}, r"1\.1: is \[\[1, 1, 1\].*expected 5"),
    ("{", "line 1: "),
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_wrong_nesting_is_refused(tmp_path: Path, content: object, message: str) -> None:
    """Every object must be there with its keys, and every model size with its layers."""
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


FIGURES: list[tuple[str, object, str]] = [
    ("4", None, r"1\.1\.4: is None, expected \[forward, backward, update\]"),
    ("4", [1e-3, 1e-3], r"1\.1\.4: is \[0\.001, 0\.001\], expected \[forward"),
    ("2", ["0.001", 1e-3, 0.0], r"1\.1\.2: holds '0\.001', expected seconds from 0"),
    ("2", [True, 1e-3, 0.0], r"1\.1\.2: holds True"),
    ("2", [-1e-3, 1e-3, 0.0], r"1\.1\.2: holds -0\.001"),
    ("2", [1e9, 1e-3, 0.0], r"1\.1\.2: holds 1000000000\.0"),
    ("2", [40e-6, 80e-6, 0.5], r"1\.1: update is \[1\.52e-06, 0\.5\], expected one step's"),
    ("2", [90e-6, 80e-6, 1.52e-6], r"1\.1: forward of the blocks is 4e-05 to 9e-05 s .* within a factor 2"),
    ("2", [40e-6, 30e-6, 1.52e-6], r"1\.1: backward of the blocks is 3e-05 to 8e-05 s"),
]


@pytest.mark.parametrize(("layer", "figures", "message"), FIGURES)
def test_wrong_figures_are_refused(tmp_path: Path, layer: str, figures: object, message: str) -> None:
    """Strings, missing, negative and huge numbers, unlike blocks and unlike updates are named with their place."""
    content = profile()
    content["1"]["1"][layer] = figures
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, number: str) -> None:
    """JSON's extensions and overflow are no seconds."""
    text = json.dumps(profile()).replace(f"{40 * US}", number)
    with pytest.raises(DataError, match="holds"):
        read(tmp_path, text)


def test_layer_without_a_place_is_refused(tmp_path: Path) -> None:
    """Layers are numbered from 0 without a hole."""
    content = profile()
    content["1"]["1"]["7"] = content["1"]["1"].pop("3")
    with pytest.raises(DataError, match=r"1\.1\.3: is None"):
        read(tmp_path, content)


def test_blocks_without_time_are_refused(tmp_path: Path) -> None:
    """Blocks that were rounded to nothing price nothing."""
    with pytest.raises(
        DataError, match="forward of the blocks is 0 to 0 s with median 0, expected equal blocks, above"
    ):
        read(tmp_path, {"1": {"1": layers(1.0, (0.0, 80.0))}})


def test_impossible_rates_are_refused(tmp_path: Path) -> None:
    """A block that would outrun the device was measured on another model or device."""
    # 3072 FLOP take 3.07 ns at 1 TFLOP/s, 6144 backward twice that.
    with pytest.raises(DataError, match=r"1\.1: block: forward and backward are 3e-09 .* expected at least 3\.07e-09"):
        read(tmp_path, {"1": {"1": layers(1.0, (0.003, 80.0))}})


def test_communication_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    """Without a lower degree beside, a block must be longer than its all-reduces."""
    with pytest.raises(DataError, match=r"1\.2: two all-reduces of 2e-05 s, .* leave nothing of a block's 3e-05 s"):
        read(tmp_path, {"1": {"2": layers(21.024, (30.0, 60.0))}})


def test_models_with_experts_are_refused(tmp_path: Path) -> None:
    """A profile of dense layers is not taken for one of experts."""
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 8}
    model = MODEL.model_copy(update={"experts": ExpertsSpec(**experts)})
    with pytest.raises(DataError, match="has experts, expected dense layers with plain attention"):
        read(tmp_path, profile(), model=model)


def test_models_of_another_form_are_refused(tmp_path: Path) -> None:
    """Layers of two kinds, or none but blocks, cannot be told apart in a profile."""
    shape = {"hidden": 4, "heads": 2, "seq": 8}
    kinds = [{"kind": "a", **shape}, {"kind": "b", **shape, "ffn_hidden": 8}]
    for model in (MODEL.model_copy(update={"vocab": None}), ModelSpec(name="two", layers=kinds, vocab=128)):
        with pytest.raises(DataError, match="expected layers of one kind and a vocabulary"):
            read(tmp_path, profile(), model=model)


def entry(tp: int = 1, parameters: float = 244, outputs: float = 32) -> dict[str, Any]:
    """Five layers of llm_info.json."""
    figures = [(512, 100), (parameters, 3000), (parameters, 3100), (parameters, 3200), (520, 5000)]
    return {
        str(tp): {
            str(i): {"params_floats": size, "act_mem_bytes": kept, "act_output_floats": outputs}
            for i, (size, kept) in enumerate(figures)
        }
    }


def info(folder: Path, content: object) -> Path:
    path = folder / "llm_info.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_measured_activations_of_the_model_that_fits(tmp_path: Path) -> None:
    """The entry is found by the parameters of a block, and its bytes grow with the micro-batch."""
    content = {**profile(), "2": {"1": layers(1.0, (80.0, 160.0))}}
    path = info(tmp_path, {"other": entry(parameters=500), "tiny": entry(parameters=246)})
    table = read(tmp_path, content, info=path)
    kept = [table.by_key[key(kind, micro_batch=2)].activation_bytes for kind in ("embedding", "block", "head")]
    assert kept == [200, 6200, 10000]
    # The file has no tp 2.
    assert table.by_key[key("block", tp=2)].activation_bytes == 1920
    assert "activation bytes of llm_info.json, at tp 2 by formula" in table.basis


def test_model_of_two_like_ones_is_named(tmp_path: Path) -> None:
    """Where two entries have the same blocks the caller names one."""
    path = info(tmp_path, {"a": entry(), "b": entry()})
    with pytest.raises(DataError, match="a, b have 3 blocks of 244 parameters, expected one, named"):
        read_sailor_info(path, MODEL.blocks[0], 3)
    assert read_sailor_info(path, MODEL.blocks[0], 3, "b")[1].block == 3100
    with pytest.raises(DataError, match="has no model 'c', expected one of a, b"):
        read_sailor_info(path, MODEL.blocks[0], 3, "c")


INFO: list[tuple[object, str]] = [
    ({"a": entry(parameters=300)}, "no model has 3 blocks of 244 parameters; a has 300 at tp 1, expected one"),
    ({"a": entry(outputs=16)}, r"a\.1\.0\.act_output_floats: is 16, 4 tokens of 4, expected 32 for a sequence of 8"),
    ({"a": {}}, r"a: is \{\}, expected an object of tensor degrees"),
    ({"a": {"x": {}}}, r"a\.'x': is \{\}, expected layers at a tensor degree"),
    ({"a": {"1": {"0": {}, "1": {}, "2": {}}}}, r"a\.1\.0\.params_floats: is None, expected a number"),
    ({"a": {"1": {"0": 1, "1": 2, "2": 3}}}, r"a\.1\.0: is 1, expected a layer's figures"),
    ({"a": entry(parameters=-1)}, r"a\.1\.1\.params_floats: is -1, expected a number from 0"),
    ({"a": {"1": {**entry()["1"], "9": entry()["1"]["0"]}}}, r"a\.1\.5: is None, expected a layer's figures"),
]


@pytest.mark.parametrize(("content", "message"), INFO)
def test_wrong_memory_figures_are_refused(tmp_path: Path, content: object, message: str) -> None:
    """Missing fields, other shapes and other sequence lengths are named with their place."""
    with pytest.raises(DataError, match=message):
        read_sailor_info(info(tmp_path, content), MODEL.blocks[0], 3)


MODELS = {"OPT-350": "opt-350m", "OPT-30": "opt-30b", "GPT-Neo-2.7": "gpt-neo-2.7b", "LLAMA-3-8": "sailor-llama3-8b"}
DEVICES = {
    "A100-40": "a100-40gb",
    "A100-80": "a100-80gb",
    "GH-96": "gh200-96gb",
    "V100-16": "v100-16gb",
    "RTX-2080": "rtx-2080ti",
    "RTX-3090": "rtx-3090",
    "Titan-RTX": "titan-rtx",
}
PUBLIC = sorted(FILES.glob("*__profile.json"))


@pytest.mark.skipif(not PUBLIC, reason="TAUT_SHARED_DATA holds no profiles of Sailor")
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.name.removesuffix("__profile.json"))
def test_public_profiles(path: Path) -> None:
    """Sailor's own files read; the one of GPT-Neo on GH200 is a copy of OPT-350's and is refused."""
    name, device, _ = path.name.split("__")
    model, estimated = load_model(MODELS[name]), name.startswith("GPT-Neo")
    memory = FILES / "llm_info.json"
    if (name, device) == ("GPT-Neo-2.7", "GH-96"):
        with pytest.raises(DataError, match="has 26 layers, expected 34"):
            read_sailor(path, model, device_named(DEVICES[device], ""), info=memory, estimate_head=True)
        return
    table = read_sailor(path, model, device_named(DEVICES[device], ""), info=memory, estimate_head=estimated)
    assert {row.kind for row in table.rows} == {"embedding", "block", "head"}
    seconds = {(row.tp, row.micro_batch): row.forward_s for row in table.rows if row.kind == "block"}
    # More tensor ranks never take longer once their communication is out.
    for (tp, batch), forward in seconds.items():
        assert forward <= seconds.get((tp // 2, batch), forward) * 1.1
