"""Prediction of further tokens: parameters, FLOP, prices and words by hand."""

from typing import Any

import numpy as np
import pytest

import taut
from taut.data.costs import RECOMPUTE
from taut.data.model import ModelSpec
from taut.errors import DataError, FormulationError
from taut.exports.architecture import layout_of
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.strategy import Division, Strategy

SHAPE = {"name": "small", "layers": 4, "hidden": 256, "heads": 4, "ffn_hidden": 1024, "seq": 128, "vocab": 1024}
PLAIN = ModelSpec.parse({**SHAPE, "gated_mlp": True}, "small")
FURTHER = ModelSpec.parse({**SHAPE, "gated_mlp": True, "mtp_layers": 1}, "small")


def test_a_further_token_has_a_layer_three_norms_and_a_product() -> None:
    """A layer, 3 x 256 norms and 512 x 256 of a product; on a stage of its own the head has a copy of the embedding."""
    layer = PLAIN.blocks[-1].parameters()
    assert FURTHER.parameters() - PLAIN.parameters() == layer + 3 * 256 + 512 * 256
    apart = FURTHER.head_parameters(2) - PLAIN.head_parameters(2)
    assert apart == 1024 * 256 // 2 + 3 * 256 + 512 * 256 // 2
    assert FURTHER.head_parameters(2, shared=True) - PLAIN.head_parameters(2, shared=True) == apart - 1024 * 256 // 2
    forward = PLAIN.blocks[-1].forward_flops() + PLAIN.head_flops() + 2 * 128 * 512 * 256
    assert FURTHER.training_flops() - PLAIN.training_flops() == pytest.approx(3 * forward, rel=1e-12)


def plan_of(model: ModelSpec) -> tuple[float, list[int]]:
    """Seconds of computation and bytes of four layers on two stages."""
    request = taut.PlanRequest(model, "dgx-a100", global_batch=8, fix={"pp": 2, "tp": 1, "micro_batch": 1, "zero": 0})
    problem = taut.planning_problem(request)
    candidate = next(each for each in problem.candidates if each.schedule == "1f1b")
    kinds = np.full(2, RECOMPUTE.index(problem.recompute_of(candidate)[0]))
    strategy = Strategy(candidate=candidate, division=Division.of_ends(np.array([2, 4]), kinds))
    devices = np.arange(8).reshape(2, 4, 1)
    return float(step_time(problem, strategy, devices).compute), memory_bytes(problem, strategy)


def test_the_last_stage_alone_has_more_to_do() -> None:
    """It takes longer and holds more, the first stage what it held."""
    (plain, held), (further, more) = plan_of(PLAIN), plan_of(FURTHER)
    assert further > plain
    assert more[0] == held[0]
    assert more[1] > held[1] + 18 * PLAIN.blocks[-1].parameters()


@pytest.mark.proof
def test_it_is_asked_for_and_said() -> None:
    """A request takes it in; the plan says so in its first line and checks; it is not simulated."""
    options: dict[str, Any] = {"global_batch": 8, "fix": {"pp": 2, "tp": 1, "micro_batch": 1}}
    plan = taut.plan(PLAIN, "dgx-a100", mtp_layers=1, **options)
    assert plan.verify().holds
    assert "1 further tokens predicted" in str(plan).splitlines()[0]
    with pytest.raises(FormulationError, match="mtp_layers 0"):
        taut.simulate(plan)
    with pytest.raises(DataError, match="mtp_layers"):
        taut.plan(PLAIN, "dgx-a100", mtp_layers=0, **options)
    with pytest.raises(DataError, match="without a vocab"):
        ModelSpec.parse({**SHAPE, "vocab": None, "mtp_layers": 1}, "small")


def test_layouts_state_it_before_the_loss() -> None:
    """``m`` stands with the loss, alone where the last chunk has no layers."""
    assert layout_of((2, 2), 1) == "Et*2|t*2mL"
    assert layout_of((2, 2, 0), 2) == "Et*2|t*2|m*2L"
