"""Plans with an encoder of images: both evaluators agree, bounds hold and bind, planted bugs are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import taut
from taut.data.layers.encoder import EncoderSpec
from taut.data.layers.layer import ENCODER
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.tables.priced_layers import PricedLayers
from taut.solver.ladder.computations import COMPUTATIONS
from taut.solver.ladder.ladder import Ladder
from tests.solver.certificate.reference.test_reference import agree
from tests.support.blocks import blocks
from tests.support.contexts import all_context_kinds
from tests.support.images import with_encoder
from tests.support.instances import random_problem
from tests.support.ladder import check_candidates
from tests.support.reference import random_placement, random_strategy
from tests.support.searches import check_search

MOST_DEVICES = 4
"""Devices up to which every division, recompute and placement is enumerated."""


def drawn(seed: int, schedules: list[str]) -> PlanningProblem | None:
    """A random problem with an encoder, in half of them with end chunks that may have no layers; None without words."""
    given = random_problem(seed, experts=seed % 3 == 0, measured=seed % 5 == 0)
    if not given.model.vocab:
        return None
    more: dict[str, Any] = {"empty_ends": seed % 2 == 1, "schedules": schedules, "max_vpp": 2}
    space = given.space.model_copy(update=more)
    given = replace(given, latency_model="step", space=space, overlap_grad_reduce=seed % 4 == 0)
    return all_context_kinds(with_encoder(given, seed), seed)


@pytest.mark.parametrize("block", blocks(5, proof=True))
def test_evaluators_agree(block: int) -> None:
    """Every kind of training, shared by tensor ranks or whole, closed forms and orders, every ZeRO stage."""
    rng, checked = np.random.default_rng(800 + block), 0
    for seed in range(block * 30, (block + 1) * 30):
        given = drawn(seed, ["1f1b", "gpipe", "interleaved-1f1b", "zb-v"])
        if given is not None:
            space = given.space.model_copy(update={"zero": [0, 1, 2, 3]})
            checked += agree(replace(given, space=space), rng, 6)
    assert checked > 30


def scaled(given: PlanningProblem, times: float) -> PlanningProblem:
    """The problem with so many times the seconds of its encoder."""
    passes = ("forward_s", "input_grad_s", "weight_grad_s")
    rows = [
        row.model_copy(update={name: times * getattr(row, name) for name in passes}) if row.kind == ENCODER else row
        for row in given.costs.rows
    ]
    return given.with_costs(given.costs.model_copy(update={"rows": rows}))


@pytest.mark.proof
def test_the_price_is_convex_in_the_seconds_of_the_encoder() -> None:
    """Steps without images and of twice the images take no less in the mean, closed forms and orders."""
    rng, checked, above = np.random.default_rng(9), 0, 0
    for seed in range(50_000, 50_030):
        given = drawn(seed, ["1f1b", "gpipe", "interleaved-1f1b", "zb-v"])
        if given is None:
            continue
        for times in (0.5, 1.0, 1.5, 3.0, 5.0) if given.candidates else ():
            candidate = given.candidates[rng.integers(len(given.candidates))]
            strategy, devices = random_strategy(given, candidate, rng), random_placement(given, candidate, rng)
            few, mean, many = (
                float(step_time(scaled(given, x), strategy, devices).total) for x in (0.0, times, 2 * times)
            )
            assert few + many >= 2 * mean * (1 - 1e-12)
            checked, above = checked + 1, above + (few + many > 2 * mean * (1 + 1e-9))
    assert checked > 40 and above > 3


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_is_above_the_optimum(block: int) -> None:
    """Closed forms: 25 candidates a block, and bounds that are met, so that a price that is too high would show."""
    checked, met, seed = 0, 0, 20_000 + 1_000 * block
    while checked < 25:
        seed += 1
        given = drawn(seed, ["1f1b", "gpipe"])
        if given is None or given.cluster.num_devices > MOST_DEVICES:
            continue
        ladder = Ladder(given)
        for candidate, found in check_candidates(given, given.candidates, seed, 2).items():
            checked += 1
            rungs = [rung for rung in ladder.rungs(candidate) if rung.source in COMPUTATIONS]
            best = max(COMPUTATIONS[rung.source](ladder, candidate, np.inf).seconds for rung in rungs)
            met += bool(np.isfinite(found.seconds)) and best >= found.seconds * (1 - 1e-9)
    assert met > 3


@pytest.mark.proof
def test_searches_find_the_optimum_and_verify() -> None:
    """Bound, optimum and plan in order, and a certificate that holds; interleaved schedules in some."""
    checked, seed = 0, 40_000
    while checked < 4:
        seed += 1
        given = drawn(seed, ["1f1b", "interleaved-1f1b"] if seed % 3 == 0 else ["1f1b"])
        if given is not None and given.candidates and given.cluster.num_devices <= MOST_DEVICES:
            check_search(given, seed)
            checked += 1


SHAPE = {"name": "m", "layers": 4, "hidden": 512, "heads": 8, "seq": 512, "vocab": 1024}
IMAGES: dict[str, Any] = {
    "layers": 4,
    "hidden": 256,
    "heads": 4,
    "ffn_hidden": 1024,
    "patches": 256,
    "patch_dim": 48,
    "merge": 4,
}
IMAGES |= {"projector": [[1024, 512]], "images": 2.0, "most_images": 4, "tensor_parallel": True}
BUGS: dict[str, tuple[type, str, Any, dict[str, object]]] = {
    "sums of tensor ranks left out": (EncoderSpec, "summed", lambda *_: ((0.0, 0.0), (0.0, 0.0)), {}),
    "gradients of a frozen encoder reduced": (
        EncoderSpec,
        "trained_parameters",
        EncoderSpec.parameters,
        {"trained": "none"},
    ),
    "frozen weights left out": (EncoderSpec, "parameters", lambda *_: 0, {"trained": "none"}),
    "recomputed layer left out": (EncoderSpec, "working", lambda *_: 0, {"recompute": True}),
    "encoder left out of the first stage": (PricedLayers, "_with_images", lambda _, one, key: one, {}),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_refused(bug: str) -> None:
    """A certificate whose prices have the bug does not hold; without the bug it does."""
    home, name, wrong, changes = BUGS[bug]
    model = taut.ModelSpec.parse(SHAPE | {"encoder": IMAGES | changes}, "m")
    options: dict[str, Any] = {"global_batch": 8, "fix": {"pp": 2, "tp": 2, "zero": 0, "recompute": "none"}}
    assert taut.verify(taut.plan(model, "dgx-a100", **options)).holds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, name, wrong)
        plan = taut.plan(model, "dgx-a100", **options)
        assert not taut.verify(plan).holds
