"""Prediction of further tokens: parameters, FLOP, prices and words by hand."""

import json
from typing import Any

import numpy as np
import pytest

import taut
from taut.data.costs import RECOMPUTE
from taut.data.model import ModelSpec
from taut.errors import DataError, FormulationError
from taut.exports.architecture import layout_of
from taut.exports.job import ExportError, Job
from taut.exports.megatron import megatron_flags
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.sharding import pass_bytes
from taut.formulations.strategy import Division, Strategy
from tests.solver.certificate.test_verify import resigned

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


LAYER = {"hidden": 256, "seq": 128}
LISTED: dict[str, Any] = {
    **{"name": "listed", "vocab": 1024, "gated_mlp": True},
    "layers": [
        {"kind": "attention", "only": "attention", "heads": 4, "count": 2, **LAYER},
        {"kind": "dense", "only": "feed_forward", "heads": 1, "ffn_hidden": 1024, "gated_mlp": True, **LAYER},
        {"kind": "mamba", "only": "attention", "heads": 8, **LAYER}
        | {"mixer": {"key_dim": 32, "value_dim": 64, "made": 1200, "convolved": 512, "taps": 4, "chunk": 64}},
        {"kind": "narrow", "heads": 2, "hidden": 128, "seq": 128},
        {"kind": "dense", "only": "feed_forward", "heads": 1, "ffn_hidden": 1024, "gated_mlp": True, **LAYER},
    ],
}
"""Layers of one part; a narrow one, which no further token passes."""


@pytest.mark.parametrize(("repeated", "held"), [(False, 3), (True, 1)])
def test_tokens_pass_stated_kinds_of_layers_with_weights_of_their_own_or_one(repeated: bool, held: int) -> None:
    """Three tokens pass attention and a dense part: 4 x 256^2 and 3 x 256 x 1024 weights, a norm of 256 each."""
    more = {"mtp_layers": 3, "mtp_kinds": ["attention", "dense"], "mtp_repeated": repeated}
    plain, model = ModelSpec.parse(LISTED, "m"), ModelSpec.parse({**LISTED, **more}, "m")
    weights = 4 * 256**2 + 256 + 3 * 256 * 1024 + 256
    assert model.parameters() - plain.parameters() == held * (weights + 3 * 256 + 512 * 256)
    forward = sum(model.kinds[kind].forward_flops() for kind in ("attention", "dense"))
    forward += plain.head_flops() + 2 * 128 * 512 * 256
    assert model.training_flops() - plain.training_flops() == pytest.approx(3 * 3 * forward, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mtp_kinds": ["experts"]}, "mtp_kinds: 'experts', expected kinds of the layers: attention, dense, mamba"),
        ({}, "mtp_layers is 1, expected mtp_kinds with it where the last layer has one part only"),
        ({"mtp_kinds": ["narrow"]}, "mtp_kinds: 'narrow', expected layers with the last layer's hidden and seq"),
        ({"layers": [{"heads": 4, "streams": 2, **LAYER}]}, "expected 0 where layers have several streams"),
        ({"layers": [{"heads": 4, "kv_matrices": 0, **LAYER}]}, "expected 0 where 'block' takes keys or weights of"),
        ({"layers": [{"heads": 4, "reused": True, **LAYER}]}, "expected 0 where 'block' takes keys or weights of an"),
    ],
)
def test_layers_that_no_further_token_passes_are_refused(change: dict[str, Any], words: str) -> None:
    """Unknown kinds, a last layer of one part, other sizes, several streams, and what an earlier layer has."""
    with pytest.raises(DataError, match=words):
        ModelSpec.parse({**LISTED, "mtp_layers": 1, **change}, "m")


@pytest.mark.proof
def test_plans_of_mixed_layers_are_derived_with_further_tokens() -> None:
    """A plan checks; with the weights of two tokens in place of one's, or fewer layers for each, it is refused."""
    more = {"mtp_layers": 2, "mtp_kinds": ["attention", "dense"], "mtp_repeated": True}
    options: dict[str, Any] = {"global_batch": 8, "fix": {"pp": 2, "tp": 1}}
    plan = taut.plan(ModelSpec.parse({**LISTED, **more}, "m"), "dgx-a100", **options)
    assert plan.verify().holds
    for change in ({"mtp_repeated": False}, {"mtp_kinds": ["attention"]}):
        document = json.loads(json.dumps(plan.document))
        document["inputs"]["model"]["spec"].update(change)
        assert not taut.verify(resigned(document)).holds


@pytest.mark.parametrize(("repeated", "held"), [(False, 3), (True, 1)])
def test_passes_gather_a_repeated_layer_for_every_token_and_scatter_it_once(repeated: bool, held: int) -> None:
    """Three tokens gather layers and their own projection in two bytes, both ways; gradients of four follow once."""
    more = {"mtp_layers": 3, "mtp_kinds": ["attention", "dense"], "mtp_repeated": repeated}
    options: dict[str, Any] = {"global_batch": 8, "fix": {"pp": 1, "tp": 1, "micro_batch": 1, "zero": 3}}
    sent = []
    for given in (LISTED, {**LISTED, **more}):
        problem = taut.planning_problem(taut.PlanRequest(ModelSpec.parse(given, "m"), "dgx-a100", **options))
        common, _ = pass_bytes(problem, problem.candidates[0])
        alone, beside = np.array(common)[[0, 2], 0, -1], np.array(common)[[1, 3], 0, -1]
        sent.append(alone + beside)
    layers, projection = 4 * 256**2 + 256 + 3 * 256 * 1024 + 256, 512 * 256 + 3 * 256
    gathered = 2 * (3 * layers + held * projection)
    assert [*sent[1] - sent[0]] == [gathered, gathered + 4 * held * (layers + projection)]


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
    assert "1 further token predicted" in str(plan).splitlines()[0]
    with pytest.raises(FormulationError, match="mtp_layers 0"):
        taut.simulate(plan)
    with pytest.raises(DataError, match="mtp_layers"):
        taut.plan(PLAIN, "dgx-a100", mtp_layers=0, **options)
    with pytest.raises(DataError, match="without a vocab"):
        ModelSpec.parse({**SHAPE, "vocab": None, "mtp_layers": 1}, "small")


@pytest.mark.proof
@pytest.mark.parametrize("change", [{"mtp_repeated": True}, {"mtp_kinds": ["block", "block"]}])
def test_exports_refuse_layers_that_they_write_no_settings_for(change: dict[str, Any]) -> None:
    """The same weights for each further token, and stated kinds."""
    model = ModelSpec.parse({**SHAPE, "gated_mlp": True, "mtp_layers": 2, **change}, "small")
    plan = taut.plan(model, "dgx-a100", global_batch=8, fix={"pp": 2, "tp": 1, "micro_batch": 1})
    with pytest.raises(ExportError, match="further tokens with mtp_kinds or mtp_repeated, for which taut writes no"):
        megatron_flags(Job(plan))


def test_layouts_state_it_before_the_loss() -> None:
    """``m`` stands with the loss, alone where the last chunk has no layers."""
    assert layout_of((2, 2), 1) == "Et*2|t*2mL"
    assert layout_of((2, 2, 0), 2) == "Et*2|t*2|m*2L"
