"""Memory terms of many configurations against the published figures of Korthikanti et al. and hand-computed ones."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.catalog.devices import catalog_devices
from taut.data.memory import MEMORY_TERMS, PARAMETER_BYTES, MemoryModel
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB
from taut.formulations.batch.configurations import Configurations, layer_parameters, matrix_parameters
from taut.formulations.batch.memory import groups, memory_terms, stage_bytes
from taut.prediction.rows import columns_of

SHAPES = {
    "22b": {"hidden": 6144, "layers": 48, "heads": 64, "pp": 1, "micro_batch": 4, "vpp": 1},
    "175b": {"hidden": 12288, "layers": 96, "heads": 96, "pp": 8, "micro_batch": 1, "vpp": 3},
    "530b": {"hidden": 20480, "layers": 105, "heads": 128, "pp": 35, "micro_batch": 1, "vpp": 3},
    "1t": {"hidden": 25600, "layers": 128, "heads": 160, "pp": 64, "micro_batch": 1, "vpp": 1},
}
"""Table 3 of Korthikanti et al. (arXiv 2205.05198): tensor degree 8, sequence 2048."""


def configuration(name: str, **change: object) -> Configurations:
    shape = SHAPES[name]
    pp = int(shape["pp"])
    values = {"gpu": "a100", "n_gpus": 8 * pp, "tp": 8, "dp": 1, "seq": 2048, "vocab": 0, **shape}
    values["global_batch"] = 4 * pp * int(shape["micro_batch"])
    return columns_of([ConfigurationRow.parse({**values, **change}, "row")])


def terms(c: Configurations, stage: int = 0, *, fused: bool = False) -> dict[str, float]:
    rates = rates_of(catalog_devices()["a100-80gb"], "bf16", None, fused_attention=fused)
    found = memory_terms(c, np.array([stage]), rates, PARAMETER_BYTES["bf16"])[0]
    return dict(zip(MEMORY_TERMS, found.tolist(), strict=True))


def sharded(c: Configurations) -> Configurations:
    return replace(c, sequence_parallel=np.array([1]))


@pytest.mark.parametrize(
    ("name", "states_gib", "activations_gib", "selective_sharded_gib"),
    # Korthikanti et al., figure 1 (parameters and optimizer states, activations without and with their two methods).
    [
        ("22b", 45.5625, 59.25, 9.5625),
        ("175b", 45.5625, 66.84375, 12.3515625),
        ("530b", 31.640625, 114.0234375, 23.076171875),
        ("1t", 32.958984375, 131.25, 26.5625),
    ],
)
def test_memory_is_korthikantis(
    name: str, states_gib: float, activations_gib: float, selective_sharded_gib: float
) -> None:
    """Eighteen bytes a matrix parameter, and the activations of the first stage with its interleaved micro-batches."""
    plain = configuration(name)
    matrices = int((plain.layers // plain.pp * matrix_parameters(plain))[0])
    assert 18 * matrices / GIB == pytest.approx(states_gib, rel=1e-9)
    found = terms(plain)
    held = found["weights"] + found["gradients"] + found["states"]
    biases = int((plain.layers // plain.pp * (layer_parameters(plain) - matrix_parameters(plain)))[0])
    assert held == pytest.approx(18 * (matrices + biases))
    assert found["activations"] / GIB == pytest.approx(activations_gib, rel=2e-3)
    lean = terms(sharded(configuration(name, recompute="selective")))
    assert lean["activations"] / GIB == pytest.approx(selective_sharded_gib, rel=2e-3)


def test_last_stage_holds_one_micro_batch_and_the_logits() -> None:
    """The last stage of 1F1B has one micro-batch in flight, and eight bytes a logit for a moment."""
    plain = configuration("1t", vocab=51200)
    first, last = terms(plain), terms(plain, 63)
    assert first["logits"] == 0
    assert last["logits"] == 8 * 2048 * 51200 / 8
    # The head keeps two inputs of the layer's width and the fp32 logits, the embedding a mask of a byte.
    layer = (first["activations"] - 64 * 2048 * 25600) / 64
    assert last["activations"] == pytest.approx(layer + 2 * 2 * 2048 * 25600 + 4 * 2048 * 51200 / 8)


def test_full_recompute_keeps_checkpoints() -> None:
    """Under full recompute the layers' inputs are checkpoints, and one layer comes back for a moment."""
    found = terms(configuration("22b", recompute="full"))
    assert found["activations"] == 0
    # 48 layers of 2 x 4 x 2048 x 6144 bytes.
    assert found["checkpoints"] == 48 * 2 * 4 * 2048 * 6144
    none = terms(configuration("22b"))["activations"] / 48
    assert found["workspace"] == pytest.approx(none - 2 * 4 * 2048 * 6144)


def test_context_ranks_share_tokens_and_states() -> None:
    """Two context ranks halve activations, and ZeRO divides states over replicas and context ranks."""
    one = terms(configuration("22b"))
    two = terms(configuration("22b", cp=2, n_gpus=16, zero=1))
    assert two["activations"] == one["activations"] / 2
    assert two["states"] == one["states"] / 2


def test_interleaving_holds_more_micro_batches() -> None:
    """With vpp chunks stage x holds 2 (pp - x - 1) + (vpp - 1) pp + 1 chunks of 1 / vpp of its layers."""
    # 175b: 2 x 7 + 2 x 8 + 1 = 31 chunks on stage 0, 2 x 0 + 17 = 17 on stage 7.
    c = configuration("175b")
    first, last = terms(c)["activations"], terms(c, 7)["activations"]
    assert first / last == pytest.approx(31 / 17)


def test_coefficients_weigh_the_terms() -> None:
    """Bytes are the coefficients times the terms, each rounded up, and the overhead."""
    c = configuration("22b")
    rates = rates_of(catalog_devices()["a100-80gb"], "bf16", None, fused_attention=False)
    weights = dict.fromkeys(MEMORY_TERMS, 0.0) | {"states": 1.25, "activations": 0.5}
    model = MemoryModel(overhead_gib=1.0, coefficients=weights)
    found = terms(c)
    wanted = np.ceil(1.25 * found["states"]) + np.ceil(0.5 * found["activations"]) + GIB
    assert stage_bytes(c, np.array([0]), rates, model, model.parameter_bytes)[0] == wanted


@pytest.mark.parametrize(("degrees", "held"), [((1, 1, 1), 0), ((2, 1, 1), 2), ((1, 4, 1), 2), ((2, 1, 2), 4)])
def test_stages_and_replicas_hold_communicators(degrees: tuple[int, int, int], held: int) -> None:
    """Several stages hold 2 GiB beside the overhead, and so do several replicas or context ranks."""
    pp, dp, cp = (np.array([degree]) for degree in degrees)
    c = replace(configuration("22b"), pp=pp, dp=dp, cp=cp)
    assert groups(c)[0] * MemoryModel(group_overhead_gib=2.0).group_bytes == held * GIB


def test_stand_ins_and_passing_gradients_by_hand() -> None:
    """Transformer Engine's stand-ins: four shapes of a layer and the head's; gradients pass on the stage without it."""
    shape = {"hidden": 8192, "heads": 64, "kv_heads": 8, "ffn_hidden": 28672, "seq": 4096, "vocab": 128256}
    values = {"gpu": "b200", "n_gpus": 8, "layers": 12, "tp": 2, "pp": 2, "dp": 2, "global_batch": 8, **shape}
    c = columns_of([ConfigurationRow.parse(values, "row")], sequence_parallel=True)
    rates = rates_of(catalog_devices()["b200-180gb"], "bf16", None, fused_loss="te")
    plain, counted = MemoryModel(), MemoryModel(transformer_engine="2.3", passing_gradients=True)
    layer = 2 * 8192 * (10240 + 8192 + 3 * 28672) // 2
    head = 2 * 8192 * 128256 // 2
    gradients = 2 * 4096 * 3 * 28672 // 2
    for stage, more in ((0, layer + gradients), (1, layer + head)):
        few, many = (
            stage_bytes(c, np.array([stage]), rates, model, model.held_parameter_bytes)[0] for model in (plain, counted)
        )
        # The head's logits, 2 bytes an entry, are more than what passes in a layer.
        assert many - few == more


def test_heads_all_to_all_leave_two_outputs() -> None:
    """From release 2.8 on attention keeps its output before and behind the exchange of heads, unless recomputed."""
    values = {"gpu": "b200", "n_gpus": 4, "layers": 3, "hidden": 2048, "heads": 16, "seq": 8192, "cp": 4, "vocab": 0}
    rates = rates_of(catalog_devices()["b200-180gb"], "bf16", None)
    found = {}
    for kind in ("a2a", "p2p"):
        for recompute in ("none", "full"):
            row = {**values, "cp_comm": kind, "recompute": recompute, "global_batch": 1}
            c = columns_of([ConfigurationRow.parse(row, "row")])
            old, new = (MemoryModel(transformer_engine=release) for release in ("2.7", "2.8"))
            each = [stage_bytes(c, np.array([0]), rates, model, model.held_parameter_bytes)[0] for model in (old, new)]
            found[kind, recompute] = int(each[1] - each[0])
    output = 2 * 2048 * 2048
    assert found == {
        ("a2a", "none"): 3 * output,
        ("a2a", "full"): output,
        ("p2p", "none"): 0,
        ("p2p", "full"): 0,
    }
