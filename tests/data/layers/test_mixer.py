"""Layers that mix tokens otherwise than by attention, gates and indexers: parameters and work by hand."""

from typing import Any

import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_costs import analytic_costs, is_plain, layer_shape
from taut.data.analytic.layer_work import KINDS
from taut.data.analytic.routed_layers import routed_passes
from taut.data.catalog.devices import catalog_devices
from taut.data.layers.layer import LatentSpec, LayerSpec
from taut.data.layers.mixer import MixerSpec
from taut.data.model import ModelSpec
from taut.errors import DataError
from taut.solver.certificate.reference.space import mixing_of

DELTA = {"key_dim": 128, "value_dim": 128, "made": 12352, "convolved": 8192, "taps": 4, "chunk": 64, "delta_rule": True}
LINEAR: dict[str, Any] = {"hidden": 2048, "heads": 32, "ffn_hidden": 5632, "seq": 4096, "gated_mlp": True}
LATENT = {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12}


def test_parameters_are_those_of_qwen3_nexts_layer() -> None:
    """Gated DeltaNet: 12,288 + 64 columns of 2048, 8192 channels of four taps, and 4096 back to 2048."""
    layer = LayerSpec.parse({**LINEAR, "mixer": DELTA}, "layer")
    attention = 2048 * 12352 + 8192 * 4 + 4096 * 2048
    assert layer.attention_parameters() == attention
    assert layer.attention_parameters(4) == attention // 4
    assert layer.parameters() == attention + 3 * 2048 * 5632 + 2 * 2048
    assert (layer.query_hidden, layer.keys_and_values(2)) == (4096, 0)
    assert not is_plain(layer)


def test_columns_of_low_rank_are_whole_on_every_rank() -> None:
    """Kimi Delta Attention makes 256 columns on every rank, and two products of 128 x 4096 of them."""
    sizes = {**DELTA, "made": 3 * 4096 + 32, "made_whole": 256, "second_parameters": 2 * 128 * 4096, "convolved": 12288}
    shared = 2304 * (12320 + 4096) + 2 * 128 * 4096 + 12288 * 4
    assert MixerSpec.parse(sizes, "mixer").matrix_parameters(2304, 32, 2) == 2304 * 256 + shared // 2


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        # 2 x 64 x 256 + 4 x 128^2 = 98,304 FLOP, and by the delta rule 6 x 64 x 128 + 2 x 128^2 = 81,920 more.
        ({"delta_rule": False}, 98304 // 512),
        ({}, (98304 + 81920) // 512),
        # Mamba-2: 2 x 256 x (128 + 64) + 4 x 128 x 64 = 131,072, of 4 x 64 a token.
        ({"delta_rule": False, "chunk": 256, "value_dim": 64}, 512),
        ({"chunk": 0}, 2),
    ],
)
def test_work_is_that_of_attention_to_so_many_tokens(changes: dict[str, Any], tokens: int) -> None:
    """Chunks and states take the FLOP of plain attention to a number of tokens that the sequence does not change."""
    mixer = MixerSpec.parse({**DELTA, **changes}, "mixer")
    layer = LayerSpec.parse({**LINEAR, "mixer": mixer}, "layer")
    assert mixer.reach == layer.window == tokens
    assert layer.attention_flops() == 4.0 * 4096 * tokens * 32 * mixer.value_dim


def test_gates_and_indexers_add_their_matrices() -> None:
    """A gate by channel is as wide as the queries; DeepSeek-V3.2's indexer has 64 heads of 128 channels."""
    plain = {"hidden": 2048, "heads": 16, "kv_heads": 2, "head_dim": 256, "seq": 4096, "gated_mlp": True}
    gated = LayerSpec.parse({**plain, "attention_gate": 4096}, "layer")
    assert gated.attention_parameters(2) - LayerSpec.parse(plain, "layer").attention_parameters(2) == 2048 * 4096 // 2
    sizes = {
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    with_indexer = LatentSpec.parse({**sizes, "index_heads": 64, "index_dim": 128}, "latent")
    more = 1536 * 64 * 128 + 7168 * (128 + 64)
    for tp in (1, 8):
        without = LatentSpec.parse(sizes, "latent").matrix_parameters(7168, 128, tp)
        assert with_indexer.matrix_parameters(7168, 128, tp) == without + more


def test_files_from_before_keep_their_digest() -> None:
    """Specs without the new parts are written as before them."""
    layer = LayerSpec.parse({"hidden": 64, "heads": 4, "seq": 16}, "layer")
    assert not {"mixer", "attention_gate"} & layer.model_dump().keys()
    model = ModelSpec.parse({"name": "m", "layers": 2, "hidden": 64, "heads": 4, "seq": 16, "vocab": 64}, "m")
    assert not {"position_rows", "attention_gate"} & model.model_dump().keys()
    assert LatentSpec.parse(LATENT, "latent").model_dump() == {"q_lora_rank": None, **LATENT}


@pytest.mark.parametrize(
    "changes", [{"head_dim": 64}, {"attention_window": 64}, {"attention_gate": 64}, {"qk_norm": True}, {"kv_heads": 2}]
)
def test_a_mixer_takes_the_place_of_attention(changes: dict[str, Any]) -> None:
    """Fields of attention beside a mixer are refused."""
    with pytest.raises(DataError, match="a mixer takes the place of attention"):
        LayerSpec.parse({**LINEAR, "mixer": DELTA, **changes}, "layer")


def test_chunks_take_longer_than_attention_to_as_many_tokens() -> None:
    """Kernels that take chunks are no attention's: 2.5 times its seconds, and the products of both are alike."""
    rates = rates_of(catalog_devices()["h100-80gb"], "bf16", None)
    found = []
    for sizes in (DELTA, {**DELTA, "chunk": 0, "attends": MixerSpec.parse(DELTA, "mixer").reach}):
        layer = LayerSpec.parse({**LINEAR, "mixer": sizes}, "layer")
        found.append(routed_passes(layer, layer_shape(layer, 1, 1), 1, rates))
    for chunks, attention in zip(*found, strict=True):
        assert chunks[KINDS.index("attention")] == pytest.approx(2.5 * attention[KINDS.index("attention")])
        assert chunks[KINDS.index("gemm")] == attention[KINDS.index("gemm")]
    assert MixerSpec.parse(DELTA, "mixer").takes_chunks
    assert not MixerSpec.parse({**DELTA, "scanned": 16}, "mixer").takes_chunks


@pytest.mark.parametrize(
    ("changes", "ways"),
    [
        ({"mixer": DELTA}, {"delta-rule"}),
        ({"mixer": {**DELTA, "delta_rule": False}}, {"linear-attention"}),
        ({"mixer": {**DELTA, "scanned": 16}}, {"scan"}),
        ({"mixer": {**DELTA, "chunk": 0}}, {"convolution"}),
        ({"mixer": {**DELTA, "attends": 128}}, {"sparse-attention"}),
        # Step-3's matrices are its own, and its attention is to all tokens.
        ({"mixer": {**DELTA, "attends": LINEAR["seq"]}}, {"attention"}),
        ({"attention_window": 128}, {"attention"}),
        ({"latent": LATENT}, {"attention"}),
        ({"latent": {**LATENT, "index_heads": 4, "index_dim": 8}}, {"sparse-attention"}),
        ({"only": "feed_forward"}, set()),
        ({"beside": {**LINEAR, "mixer": DELTA}}, {"attention", "delta-rule"}),
        ({"only": "feed_forward", "beside": {**LINEAR, "mixer": DELTA}}, {"delta-rule"}),
    ],
)
def test_ways_of_mixing_tokens(changes: dict[str, Any], ways: set[str]) -> None:
    """A layer's and those beside it, by its sizes; the reference says the same."""
    layer = LayerSpec.parse({**LINEAR, **changes}, "layer")
    assert layer.mixing == mixing_of(layer) == ways


def test_linear_layers_are_cheaper_on_long_sequences() -> None:
    """At 65,536 tokens linear attention takes less than attention; tensor ranks share its work and its bytes."""
    rows = {}
    for word, part in (("linear", {"mixer": DELTA}), ("full", {"head_dim": 128})):
        model = ModelSpec.parse({"name": word, "layers": [{**LINEAR, "seq": 65536, "count": 2, **part}]}, word)
        devices = [catalog_devices()["h100-80gb"]]
        table = analytic_costs(model, devices, precision="bf16", tensor_degrees=(1, 4), micro_batches=(1,))
        rows[word] = {row.tp: row for row in table.rows if row.recompute == "none"}
    assert rows["linear"][1].forward_s < 0.5 * rows["full"][1].forward_s
    assert rows["linear"][4].forward_s < 0.5 * rows["linear"][1].forward_s
    shared, alone = (rows["linear"][tp].activation_bytes_sp for tp in (4, 1))
    assert shared is not None
    assert alone is not None
    assert shared < 0.3 * alone
