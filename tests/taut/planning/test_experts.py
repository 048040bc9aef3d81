"""Models with experts and latent attention are planned with a certificate that holds and says what it leaves out."""

from typing import Any

import pytest

from taut.data.model import ModelSpec
from taut.errors import DataError, FormulationError
from taut.formulations.space import Candidate
from taut.formulations.tables.memory import candidate_features
from taut.planning.solve import plan
from taut.solver.certificate.verify import Verification
from taut.verification import verify

LEFT_OUT = "etp other than 1 or tp, with ep > 1"
TOGETHER = "experts: split over tensor ranks, all on every replica (left out: expert parallelism, ep > 1)"
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024, "shared_ffn_hidden": 1024}
LATENT = {"kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64}
SHAPE = {"name": "small", "layers": 6, "hidden": 1024, "heads": 16, "seq": 2048, "gated_mlp": True, "vocab": 32000}


def small(**parts: object) -> ModelSpec:
    return ModelSpec.parse({**SHAPE, "experts": EXPERTS, **parts}, "small")


@pytest.mark.proof
@pytest.mark.parametrize("parts", [{}, {"dense_layers": 1, "latent": LATENT}, {"attention_window": 256}])
def test_experts_are_planned_and_verified(parts: dict[str, object]) -> None:
    """Experts, dense layers before them, latent attention and windows: the checker derives the same bound."""
    found = plan(small(**parts), "dgx-h100:2", global_batch=32, calibration="nemo-h100-bf16")
    assert found.status == "optimal"
    assert LEFT_OUT in " ".join(str(found).split())
    checked = verify(found)
    assert isinstance(checked, Verification)
    assert checked.faults == ()
    assert checked.lower_bound == pytest.approx(found.lower_bound_s)
    assert LEFT_OUT in checked.unsearched


@pytest.mark.proof
@pytest.mark.parametrize("degrees", [{"ep": 8, "etp": 1, "tp": 2}, {"ep": 4, "etp": 2, "tp": 2, "pp": 2}, {"ep": 1}])
def test_expert_degrees_can_be_fixed(degrees: dict[str, int]) -> None:
    """Groups in a node and over several: the plan states the degrees, devices by replica, and is verified."""
    found = plan(small(), "dgx-h100:2", global_batch=32, fix=degrees)
    assert found.strategy.ep == degrees["ep"]
    tp, dp = found.strategy.tp, found.strategy.dp
    assert {(len(stage), len(stage[0])) for stage in found.devices} == {(dp, tp * found.strategy.cp)}
    checked = verify(found)
    assert isinstance(checked, Verification)
    assert checked.faults == ()
    assert checked.lower_bound == pytest.approx(found.lower_bound_s)
    assert (TOGETHER in checked.narrowed) == (degrees["ep"] == 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fix": {"ep": 3}}, r"fix: ep=3, expected a divisor of the 16 devices"),
        ({"fix": {"ep": 16}}, r"fix: ep=16, expected a divisor of the 8 experts of a layer"),
        ({"fix": {"ep": 2}, "latency_model": "pipette"}, r"latency_model: pipette, does not price expert ranks"),
        ({"fix": {"ep": 2}, "stack": "deepspeed"}, r"fix: ep=2, not in deepspeed, expected 1, or stack any"),
        ({"fix": {"ep": 2, "tp": 2, "etp": 2}, "stack": "torchtitan"}, r"fix: etp=2, not in torchtitan with ep=2"),
        ({"fix": {"ep": 2, "zero": 0}, "stack": "torchtitan"}, r"fix: zero=0, .* with ep=2, expected one of 2, 3"),
        ({"fix": {"ep": 8, "tp": 2, "dp_shard": 2}}, r"fix: dp_shard=2, expected a multiple of 4, .* ep=8 beside tp=2"),
    ],
)
def test_expert_degrees_that_nothing_prices_are_refused(options: dict[str, Any], said: str) -> None:
    """One line says what was expected."""
    with pytest.raises(DataError, match=said):
        plan(small(), "dgx-h100:2", global_batch=32, **options)


def test_dense_models_have_no_expert_ranks() -> None:
    """A model without experts says so."""
    with pytest.raises(DataError, match="fix: ep=2, small has no experts, expected 1"):
        plan(small(experts=None), "dgx-h100:2", global_batch=32, fix={"ep": 2})


@pytest.mark.parametrize("parts", [{}, {"experts": None, "latent": LATENT}])
def test_memory_networks_know_dense_layers_alone(parts: dict[str, object]) -> None:
    """A network that was trained on dense layers is not asked about others."""
    choice = Candidate(1, 1, 8, 1, 1, 4, "1f1b", 0, False)
    with pytest.raises(FormulationError, match=r"small: layers have .*, expected dense ones for a memory network"):
        candidate_features(["layers"], small(**parts), choice)
