"""Parameters and FLOP of layers and models against published counts and hand-computed ones."""

from typing import Any

import pytest

from taut.data.catalog.builtin import catalog_models
from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec
from taut.errors import DataError

SMALL: dict[str, Any] = {"name": "small", "layers": 2, "hidden": 4, "heads": 2, "seq": 3, "vocab": 10}


def parse(**changes: Any) -> ModelSpec:
    return ModelSpec.parse({**SMALL, **changes}, "small.yaml")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # A layer is 2 h^2 + 2 h h_kv + 3 h f + 2 h; then embedding and head of V h each, and the last norm of h.
        # 32 (2 x 4096^2 + 2 x 4096 x 1024 + 3 x 4096 x 14336 + 8192) + 2 x 128256 x 4096 + 4096
        ("llama3-8b", 8_030_261_248),
        # 80 (2 x 8192^2 + 2 x 8192 x 1024 + 3 x 8192 x 28672 + 16384) + 2 x 128256 x 8192 + 8192
        ("llama3-70b", 70_553_706_496),
        # 126 (2 x 16384^2 + 2 x 16384 x 1024 + 3 x 16384 x 53248 + 32768) + 2 x 128256 x 16384 + 16384
        ("llama3-405b", 405_853_388_800),
        # 32 (4 x 4096^2 + 3 x 4096 x 11008 + 8192) + 2 x 32000 x 4096 + 4096
        ("llama2-7b", 6_738_415_616),
        # 40 (4 x 5120^2 + 3 x 5120 x 13824 + 10240) + 2 x 32000 x 5120 + 5120
        ("llama2-13b", 13_015_864_320),
        # 80 (2 x 8192^2 + 2 x 8192 x 1024 + 3 x 8192 x 28672 + 16384) + 2 x 32000 x 8192 + 8192
        ("llama2-70b", 68_976_648_192),
        # Plain layers are 12 h^2 + 13 h, the head is tied, the last norm is 2 h; positions are not counted.
        # 96 (12 x 12288^2 + 13 x 12288) + 51200 x 12288 + 2 x 12288
        ("gpt3-175b", 174_590_681_088),
        # 24 (12 x 1024^2 + 13 x 1024) + 52256 x 1024 + 2 x 1024
        ("gpt2-345m", 355_821_568),
    ],
)
def test_published_models_have_their_parameters(name: str, parameters: int) -> None:
    """The catalog's shapes give the published counts to the last parameter."""
    assert catalog_models()[name].parameters() == parameters


@pytest.mark.parametrize(
    ("name", "billions", "within"),
    [
        ("gpt3-175b", 174.6, 0.001),
        ("gpt-18.4b", 18.4, 0.01),
        ("gpt-39.1b", 39.1, 0.01),
        ("gpt-81.2b", 81.2, 0.01),
        ("mt-nlg-530b", 530.0, 0.01),
        ("gpt-1.1b", 1.1, 0.1),
        ("gpt-3.1b", 3.1, 0.1),
        ("gpt-8.1b", 8.1, 0.1),
        ("gpt-11.1b", 11.1, 0.01),
        ("llama2-35b", 35.0, 0.01),
        ("llama2-140b", 140.0, 0.03),
        ("mixtral-8x7b", 46.7, 0.001),
        ("qwen3-8b", 8.2, 0.002),
        ("qwen3-14b", 14.8, 0.003),
        ("qwen3-32b", 32.8, 0.002),
    ],
)
def test_named_sizes_are_what_the_names_say(name: str, billions: float, within: float) -> None:
    """Models whose papers give a size alone come near it; assumed shapes (Pipette's) less so."""
    assert catalog_models()[name].parameters() == pytest.approx(billions * 1e9, rel=within)


def test_layer_parameters_are_split_over_tensor_ranks() -> None:
    """Matrices are shared evenly; key-value heads beyond their number are replicated."""
    layer = LayerSpec(hidden=64, heads=8, kv_heads=2, seq=10)
    # h = 64, h_kv = 64 / 8 x 2 = 16, f = 256: 2 x 64^2 + 2 x 64 x 16 + 2 x 64 x 256 = 8192 + 2048 + 32768.
    assert layer.matrix_parameters() == 43_008
    # Two ranks hold one key-value head each: half of everything.
    assert layer.matrix_parameters(2) == 21_504
    # Four ranks: a quarter of 8192 and 32768, but still one whole key-value head of width 8: 2048 + 1024 + 8192.
    assert layer.matrix_parameters(4) == 11_264
    # Small parameters: biases (64 + 256) / tp + 2 x 8 + 2 x 64, norms 4 x 64.
    assert layer.parameters(2) == 21_504 + 160 + 16 + 128 + 256


def test_flops_follow_the_formulas() -> None:
    """Forward FLOP are 2 s per matrix parameter and 4 s w h for attention; training takes three times as many."""
    model = parse()
    # Matrices 12 x 4^2 = 192 parameters: 2 x 3 x 192 = 1152, attention 4 x 3 x 3 x 4 = 144.
    assert model.blocks[0].forward_flops() == 1296
    # Head 2 x 3 x 4 x 10 = 240; 3 x (2 x 1296 + 240) = 8496.
    assert model.training_flops() == 8496


def test_attention_window_limits_the_attention_core() -> None:
    """A window of w tokens costs 4 s w h, and one beyond the sequence costs as the sequence."""
    layer = LayerSpec(hidden=4, heads=2, seq=100, attention_window=5)
    assert layer.attention_flops() == 4 * 100 * 5 * 4
    assert layer.model_copy(update={"attention_window": 1000}).attention_flops() == 4 * 100 * 100 * 4


@pytest.mark.parametrize(
    ("tp", "padded"),
    # Multiples of 128, 256 and 1024; GPT-2's 50257 becomes 50304 on one rank and 51200 on eight, as in Megatron-LM.
    [(1, 50_304), (2, 50_432), (8, 51_200)],
)
def test_vocabulary_is_padded_as_megatron_does(tp: int, padded: int) -> None:
    """The padded vocabulary is a multiple of 128 times the tensor degree."""
    model = parse(vocab=50_257)
    assert model.padded_vocab(tp) == padded
    assert model.embedding_parameters(tp) == padded * 4 // tp


def test_tied_head_costs_nothing_where_it_shares_a_stage() -> None:
    """A tied head is a copy of the embedding on a stage of its own, and only a norm beside the embedding."""
    tied, untied = parse(tied_embedding=True), parse()
    # The padded vocabulary is 128, so the head has 128 x 4 = 512 parameters, the norm 2 x 4.
    assert tied.head_parameters(shared=True) == 8
    assert tied.head_parameters() == untied.head_parameters(shared=True) == 520
    # The whole model counts a tied head once: 10 x 4 parameters less than an untied one.
    assert untied.parameters() - tied.parameters() == 40


def test_model_without_vocabulary_is_its_layers_alone() -> None:
    """Without a vocabulary there is neither embedding, nor norm, nor head."""
    model = parse(vocab=None)
    assert model.embedding_parameters() == model.head_parameters() == 0
    assert model.parameters() == 2 * (12 * 16 + 13 * 4)
    assert model.head_flops() == 0


def test_layers_split_as_megatron_requires() -> None:
    """The tensor degree divides heads and feed-forward width, and divides key-value heads or is their multiple."""
    layer = LayerSpec(hidden=96, heads=12, kv_heads=4, ffn_hidden=360, seq=8)
    # 12 heads allow 1, 2, 3, 4, 6, 12; 4 key-value heads rule out 3 and 6; 360 allows 12.
    assert [tp for tp in range(1, 13) if layer.splits(tp)] == [1, 2, 4, 12]


def test_unlike_layers_keep_their_order_and_kinds() -> None:
    """A list of layers is unrolled in order, and every kind is found once."""
    entries = [
        {"kind": "wide", "count": 2, "hidden": 8, "heads": 2, "seq": 3},
        {"kind": "narrow", "hidden": 4, "heads": 2, "seq": 6},
    ]
    model = ModelSpec.parse({"name": "unlike", "layers": entries, "vocab": 10}, "unlike.yaml")
    assert [layer.kind for layer in model.blocks] == ["wide", "wide", "narrow"]
    assert list(model.kinds) == ["wide", "narrow"]
    assert model.tokens == 3
    # The embedding has the first layer's width, the untied head and its norm the last one's.
    assert model.embedding_parameters() == 128 * 8
    assert model.head_parameters() == 128 * 4 + 2 * 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden": 10, "heads": 3}, r"small.yaml: hidden is 10, expected a multiple of heads \(3\)"),
        ({"hidden": 8, "heads": 4, "kv_heads": 3}, r"heads is 4, expected a multiple of kv_heads \(3\)"),
        ({"layers": 0}, "layers.number: is 0, expected to be greater than 0"),
        ({"layers": 10**6}, "layers.number: is 1000000, expected to be less than or equal to 2048"),
        ({"layers": []}, "layers: is an empty list, expected at least one layer"),
        ({"hidden": None}, "hidden is missing, expected with a number of layers"),
        ({"hidden": 4.5}, "hidden: is 4.5, expected to be a valid integer"),
        ({"seq": True}, "seq: is True, expected to be a valid integer"),
        ({"colour": "red"}, "colour: unknown field"),
        ({"layers": [{"hidden": 4, "heads": 2, "seq": 3}]}, "belong to the entries of a list of layers"),
        ({"hidden": 10**7, "seq": 1, "layers": 2048}, "has 2.458e.18 parameters, expected at most 1e.15"),
    ],
)
def test_impossible_models_are_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    """The message names the file, the field, its value and what was expected."""
    with pytest.raises(DataError, match=words) as caught:
        parse(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"hidden": 12, "heads": 5, "seq": 8}], r"layers.list.0: hidden is 12, expected a multiple of heads \(5\)"),
        ([{"hidden": 12, "heads": 4, "seq": 8, "x": 1}], "layers.list.0.x: unknown field"),
        ([{"hidden": 12, "heads": 4}], "layers.list.0.seq: missing"),
        ([{"kind": "head", "hidden": 12, "heads": 4, "seq": 8}], "kind is 'head', which is reserved"),
        ([{"hidden": 12, "heads": 4, "seq": 8, "count": 10**12}], "layers.list.0.count: is 1000000000000, expected"),
        ([{"hidden": 12, "heads": 4, "seq": 8, "count": 2000}] * 2, "layers: more than 2048 in all"),
        (
            [{"hidden": 12, "heads": 4, "seq": 8}, {"hidden": 24, "heads": 4, "seq": 8}],
            "layers: kind 'block' has two shapes, expected one kind per shape",
        ),
    ],
)
def test_impossible_layers_are_named_by_their_place(entries: list[dict[str, Any]], words: str) -> None:
    """What is wrong with an entry of a list of layers is found there, not in the list as a whole."""
    with pytest.raises(DataError, match=words):
        ModelSpec.parse({"name": "unlike", "layers": entries}, "unlike.yaml")


def test_changed_copy_computes_its_layers_anew() -> None:
    """What a model has cached does not follow it into a copy with another shape."""
    model = parse()
    assert len(model.blocks) == 2
    copy = model.model_copy(update={"layers": 3, "seq": 7})
    assert len(copy.blocks) == 3
    assert copy.tokens == 7


def test_specs_read_back_from_their_own_json() -> None:
    """A dumped model parses to an equal model with the same digest, whatever form its layers have."""
    for model in (catalog_models()["llama3-8b"], catalog_models()["transgan-generator"]):
        again = ModelSpec.parse(model.model_dump(mode="json"), "again")
        assert again == model
        assert again.digest() == model.digest()
