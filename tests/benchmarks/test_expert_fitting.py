"""Calibrations from runs with experts: what a fit finds again, and which one prices a row or a plan."""

from typing import Any

import numpy as np
import pytest

import taut
from benchmarks.expert_fitting import PRIOR, calibrations_of, expert_terms, fit_experts
from benchmarks.expert_rows import ExpertCampaign, ExpertRun, campaigns
from taut.data.calibration import EXPERT_TERMS, uncalibrated
from taut.data.catalog.builtin import catalog_calibrations
from taut.data.load import load_stack
from taut.data.samples import ConfigurationRow
from taut.data.stack import calibration_for
from taut.prediction.rows import predict_rows
from taut.prediction.settings import Given, find_device, setting_of, within_domain

SHAPE = {"hidden": 2048, "layers": 8, "heads": 16, "ffn_hidden": 8192, "seq": 4096, "vocab": 32000, "zero": 1}
EXPERTS = {"num_experts": 32, "experts_per_token": 4, "expert_ffn_hidden": 1024}
PLANS = ((16, 1, 8, 1), (16, 1, 16, 1), (16, 1, 8, 4), (16, 2, 8, 1), (16, 2, 4, 2), (32, 1, 16, 2), (32, 2, 16, 1))

ROW = {"gpu": "h100-80gb", "n_gpus": 16, "hidden": 1024, "layers": 6, "heads": 16, "ffn_hidden": 4096, "seq": 2048}
ROW |= {"vocab": 32000, "num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024, "shared_ffn_hidden": 1024}


def row(gpus: int, pp: int, ep: int, micro_batch: int, gpu: str = "h100") -> ConfigurationRow:
    degrees = {"n_gpus": gpus, "pp": pp, "dp": gpus // pp, "ep": ep, "micro_batch": micro_batch, "global_batch": 256}
    return ConfigurationRow.parse({"gpu": gpu, "precision": "bf16", **SHAPE, **EXPERTS, **degrees}, "row")


@pytest.mark.proof
def test_a_fit_finds_what_made_its_runs() -> None:
    """Runs of products at 1.3, exchanges at 1.6 and a launch of 800 us: unseen ones are predicted to 3 %."""
    device, about = find_device("h100"), {"name": "made", "source": "made"}
    coefficients = {term: PRIOR[term][0] for term in EXPERT_TERMS} | {"gemm": 1.3, "exchange": 1.6}
    behind = uncalibrated(device).model_copy(update={"coefficients": coefficients, "launch_us": 800.0, "experts": True})
    plain = [row(*plan) for plan in PLANS]
    made = [one.step_time_s for one in predict_rows(plain, Given(calibration=behind))]
    rows = [one.model_copy(update={"measured_s": seconds}) for one, seconds in zip(plain, made, strict=True)]
    runs = [ExpertRun("made", "26.08", one) for one in rows]
    (fitted,) = fit_experts([ExpertCampaign(about, "blackwell", 800.0, runs)])
    (found,) = calibrations_of(fitted, np.array([-0.01, 0.01]))
    assert found.experts and found.samples == len(PLANS) and found.device == device.name
    assert found["exchange"] > PRIOR["exchange"][0] and found["gemm"] > PRIOR["gemm"][0]
    assert set(found.spread) == set(EXPERT_TERMS) and found.spread["exchange"] < PRIOR["exchange"][1]
    unseen = row(64, 2, 16, 1)
    said, true = (predict_rows([unseen], Given(calibration=one))[0] for one in (found, behind))
    assert said.step_time_s == pytest.approx(true.step_time_s, rel=0.03)
    assert said.band is not None and said.band[0] < (true.step_time_s or 0) < said.band[1]


@pytest.mark.parametrize(
    ("gpu", "precision", "name"),
    [
        ("h100", "bf16", "megatron-experts-h100-bf16"),
        ("h100", "fp8", "megatron-experts-h100-fp8"),
        ("b200", "mxfp8", "megatron-experts-hgx-mxfp8-b200"),
        ("gb200", "bf16", "megatron-experts-rack-bf16-gb200"),
        ("gb300", "mxfp8", "megatron-experts-graphs-gb300"),
        ("h200", "bf16", "nemo-h100-bf16"),
    ],
)
def test_runs_with_experts_speak_for_models_with_experts(gpu: str, precision: Any, name: str) -> None:
    """Where a device has a calibration of such runs; dense models keep theirs."""
    known = [catalog_calibrations()[each] for each in load_stack("megatron-core").calibrations]
    device = find_device(gpu)
    taken = calibration_for(known, [device], precision, many_nodes=True, experts=True)
    dense = calibration_for(known, [device], precision, many_nodes=True)
    assert taken is not None and taken.name == name
    assert dense is not None and not dense.experts


@pytest.mark.proof
def test_a_plan_is_priced_by_runs_with_experts() -> None:
    """As the row of the same degrees is, with the band of these runs."""
    shape: dict[str, Any] = {"name": "row", "gated_mlp": True, "experts": EXPERTS, **SHAPE}
    del shape["zero"]
    fixed: dict[str, Any] = {
        "pp": 1,
        "tp": 1,
        "ep": 8,
        "micro_batch": 1,
        "schedule": "1f1b",
        "recompute": "none",
        "zero": 1,
    }
    spec = taut.ModelSpec.parse(shape, "row")
    found = taut.plan(spec, "dgx-h100:2", global_batch=256, fix=fixed | {"sequence_parallel": False})
    (said,) = predict_rows([row(16, 1, 8, 1)])
    assert found.step_time_s == pytest.approx(said.step_time_s, rel=1e-9)
    assert said.band is not None and said.band[0] < found.step_time_s < said.band[1]


def test_trays_of_a_rack_share_its_links() -> None:
    """GB200 counted by trays of four is one domain of 64, as are 256 GPUs on racks of 72; H100 keeps nodes of eight."""
    trays = row(128, 1, 16, 1, "gb200").model_copy(update={"gpus_per_node": 4})
    assert within_domain(trays).gpus_per_node == 64
    assert within_domain(trays.model_copy(update={"n_gpus": 256, "gpus_per_node": 72})).gpus_per_node == 64
    assert within_domain(trays.model_copy(update={"n_gpus": 144, "gpus_per_node": 72})).gpus_per_node == 72
    assert within_domain(row(16, 1, 8, 1)).gpus_per_node == 8
    inside, whole = predict_rows([trays, trays.model_copy(update={"gpus_per_node": 64})])
    assert inside.step_time_s == whole.step_time_s


def test_recorded_steps_fuse_the_activation_of_experts() -> None:
    """No launch, and no kernels of their own for biases and activation."""
    setting = setting_of(row(16, 1, 8, 1).model_copy(update={"cuda_graphs": True}), Given())
    assert setting.calibration.launch_us == 0 and setting.calibration.fused_experts
    assert np.isfinite(setting.calibration["exchange"])


def test_terms_add_up_to_the_step() -> None:
    """Each coefficient times its slope; pipelines on several nodes wait for all of them."""
    degrees = {"tp": 2, "pp": 2, "dp": 4, "zero": 1, "ep": 4, "etp": 1, "global_batch": 64}
    row = ConfigurationRow.parse({**ROW, **degrees}, "row")
    found = expert_terms(row)
    assert sum(found.values()) == pytest.approx(taut.predict([{**ROW, **degrees}])[0]["step_time_s"], rel=1e-6)
    assert all(found[term] > 0 for term in ("gemm", "tensor_parallel", "pipeline", "data_parallel", "exchange"))


def test_runs_whose_hosts_wait_are_a_campaign_of_their_own() -> None:
    """On B200 by the stack of their rows; what was seen is of both, and only the others promise HybridEP and graphs."""
    quick, slow = (
        ExpertRun("made", "26.08", row(64, 2, 16, 1, "b200").model_copy(update={"precision": "mxfp8", "stack": stack}))
        for stack in ("", "megatron-experts-eager")
    )
    found = {each.about["name"]: each for each in campaigns([quick, slow])}
    waiting, others = (found[f"megatron-experts-{name}-mxfp8"] for name in ("eager", "hgx"))
    assert (waiting.runs, [*waiting.beside]) == ([slow], [quick])
    assert (others.runs, [*others.beside]) == ([quick], [slow])
    assert waiting.launch_us > others.launch_us
    assert "hybrid-ep" in others.features and "part-graphs" in others.features
    assert waiting.features == ("fused-router", "fused-permutation", "grouped-products", "dp-comm-overlap")
    said, taken = predict_rows([slow.row, quick.row])
    assert said.error == "" and (said.step_time_s or 0) > (taken.step_time_s or 0)


def test_gpus_with_other_clocks_have_campaigns_of_their_own() -> None:
    """On racks, with the other's runs beside: they belong to what was seen, and share a prior of the software."""
    first, second = (ExpertRun("made", "26.08", row(64, 2, 16, 1, gpu)) for gpu in ("gb200", "gb300"))
    racks = [each for each in campaigns([first, second]) if each.about["name"] == "megatron-experts-rack-bf16"]
    assert [each.label for each in racks] == [f"megatron-experts-rack-bf16-{gpu}" for gpu in ("gb200", "gb300")]
    assert [(each.runs, [*each.beside]) for each in racks] == [([first], [second]), ([second], [first])]


def test_steps_that_prices_were_checked_on_were_seen() -> None:
    """Full recompute in bf16 on H100 is within the runs, though no run of the fit has it; in fp8 it is not."""
    checked = {each.label: each.checked for each in campaigns([]) if each.checked}
    assert [*checked] == ["megatron-experts-h100-bf16"]
    assert {run.row.recompute for run in checked["megatron-experts-h100-bf16"]} == {"none", "full"}
    known = catalog_calibrations()
    for precision, seen in (("bf16", True), ("fp8", False)):
        found = known[f"megatron-experts-h100-{precision}"].seen
        assert found is not None and ("full" in found.recompute) == seen
