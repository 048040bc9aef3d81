"""The reference evaluator and the fast one agree: candidates, step time and its parts, memory, and rules."""

import ast
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.data.memory import ALL_FEATURES, MemoryNetwork
from taut.data.stack import CONTEXT_KINDS, SCHEDULES
from taut.errors import DataError, ExtrapolationWarning
from taut.formulations.latency import memory_bytes, step_time, violations
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.problem import PlanningProblem
from taut.solver.certificate import reference
from taut.solver.certificate.examined import order_for
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.reference.memory import memory_bytes as reference_bytes
from taut.solver.certificate.reference.memory import violations as reference_violations
from taut.solver.certificate.reference.prices import check, device_ends, price
from tests.support.blocks import blocks
from tests.support.contexts import all_context_kinds
from tests.support.expert_ranks import with_copies_of_states, with_expert_ranks, with_expert_shards
from tests.support.instances import random_problem, with_offload
from tests.support.mixers import with_further_tokens, with_mixed_layers
from tests.support.reference import case_of, choice_of, random_placement, random_strategy
from tests.support.words import with_random_orders

SAME = 1e-12
ORDERED = [kind for kind in SCHEDULES if kind not in ("1f1b", "gpipe")]


def agree(given: PlanningProblem, rng: np.random.Generator, plans: int) -> int:
    """Check that both evaluators give the same candidates, and the same figures of random plans."""
    case = case_of(given)
    assert [choice.as_dict() for choice in candidates(case)] == [each.as_dict() for each in given.candidates]
    for _ in range(plans if given.candidates else 0):
        candidate = given.candidates[rng.integers(len(given.candidates))]
        strategy = random_strategy(given, candidate, rng)
        devices = np.array([random_placement(given, candidate, rng) for _ in range(2)])
        choice, rest = choice_of(candidate), (strategy.stages, strategy.recompute)
        order = order_for(case, choice)
        fast, found = step_time(given, strategy, devices), price(case, choice, *rest, devices, order)
        np.testing.assert_allclose(found.total, fast.total, rtol=SAME)
        parts = [fast.compute[0], fast.tensor_parallel[0], fast.pipeline_transfers[0], fast.sharding[0]]
        scale = float(fast.total[0])
        assert np.isclose(found.parts, parts, rtol=SAME, atol=SAME * scale).all(axis=1).any()
        after = fast.data_parallel - fast.sharding
        np.testing.assert_allclose(found.data_parallel, after, rtol=SAME, atol=SAME * scale)
        np.testing.assert_allclose(found.optimizer, fast.optimizer, rtol=SAME)
        assert reference_bytes(case, choice, *rest, order) == memory_bytes(given, strategy)
        for each in devices:
            words = [str(broken) for broken in violations(given, strategy, each)]
            assert [*reference_violations(case, choice, *rest, each, order)] == words
    return plans if given.candidates else 0


@pytest.mark.parametrize("block", blocks(9))
def test_evaluators_agree_on_random_plans(block: int) -> None:
    """Latency models, device types, measured links, ZeRO stages and calibrations of every kind, 1F1B and GPipe."""
    rng = np.random.default_rng(block)
    checked = 0
    for seed in range(block * 20, (block + 1) * 20):
        checked += agree(random_problem(seed, measured=seed % 3 == 0, large=seed % 5 == 0), rng, 6)
    assert checked > 53


def by_order(seed: int) -> PlanningProblem:
    """A random problem with every schedule that is priced by its order, and given orders at times."""
    given = random_problem(seed, large=seed % 2 == 0)
    space = given.space.model_copy(update={"schedules": ORDERED, "max_vpp": 2, "max_even_vpp": 3})
    given = replace(given, space=space, latency_model="pipette")
    return with_random_orders(given, np.random.default_rng(seed)) if seed % 2 else given


@pytest.mark.parametrize("block", blocks(3, proof=True))
def test_evaluators_agree_where_orders_are_run(block: int) -> None:
    """Interleaved, zero-bubble and V schedules, in their own order or in a given one."""
    rng = np.random.default_rng(100 + block)
    checked = sum(agree(by_order(seed), rng, 5) for seed in range(block * 40, (block + 1) * 40))
    assert checked > 100


def with_copies(seed: int) -> PlanningProblem:
    """A random problem under ZeRO-2 and 3 in ``step``, with several copies where replicas allow."""
    given = random_problem(seed, measured=seed % 3 == 0, large=seed % 5 == 0)
    more: dict[str, Any] = {"zero": [2, 3], "fixed": {"dp_shard": 2} if seed % 2 else {}}
    if seed % 4 == 0:
        more |= {"schedules": ["1f1b", "interleaved-1f1b", "zb-h1", "v-half"], "max_vpp": 2}
    return replace(given, latency_model="step", space=given.space.model_copy(update=more))


@pytest.mark.parametrize("block", blocks(9, proof=True))
def test_evaluators_agree_where_replicas_have_several_copies(block: int) -> None:
    """Groups of replicas with a copy each, in closed form and by orders, on any links."""
    rng, checked = np.random.default_rng(200 + block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = with_copies(seed)
        if any(candidate.dp_shard for candidate in given.candidates):
            checked += agree(given, rng, 6)
    assert checked > 13


@pytest.mark.parametrize("block", blocks(4, proof=True))
def test_evaluators_agree_on_mixed_layers(block: int) -> None:
    """Mixers, gates, indexers and embeddings of positions, with context ranks in every kind."""
    rng, checked, contexts = np.random.default_rng(600 + block), 0, 0
    for seed in range(block * 25, (block + 1) * 25):
        given = with_mixed_layers(seed)
        if seed % 2:
            given = all_context_kinds(replace(given, latency_model="step"), seed)
        contexts += any(layer.mixers for layer in given.model.blocks) and any(each.cp > 1 for each in given.candidates)
        checked += agree(given, rng, 5)
    assert checked > 80 and contexts


@pytest.mark.parametrize("block", blocks(4, proof=True))
def test_evaluators_agree_on_experts(block: int) -> None:
    """Experts, shared ones and latent attention, with tensor and context ranks, in every latency model."""
    rng, checked = np.random.default_rng(300 + block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = random_problem(seed, large=seed % 5 == 0, experts=True)
        if given.model.has_experts or any(layer.latent for layer in given.model.blocks):
            checked += agree(given if seed % 2 else replace(given, latency_model="step"), rng, 5)
    assert checked > 32


@pytest.mark.parametrize("block", blocks(8, proof=True))
def test_evaluators_agree_on_kinds_of_context_ranks(block: int) -> None:
    """Rings beside attention and not, gathers, all-to-alls and both, with experts at times, also by orders."""
    rng, checked, kinds = np.random.default_rng(400 + block), 0, set[str]()
    for seed in range(block * 20, (block + 1) * 20):
        given = random_problem(3 * seed + 1, large=seed % 2 == 0, experts=seed % 3 == 0)
        more: dict[str, Any] = {"zero": [0, 1, 2, 3]}
        if seed % 4 == 0:
            more |= {"schedules": ["1f1b", "interleaved-1f1b", "zb-h1", "v-half"], "max_vpp": 2}
        given = replace(given, latency_model="step", space=given.space.model_copy(update=more))
        given = all_context_kinds(given, seed)
        found = {each.cp_comm for each in given.candidates if each.cp > 1}
        kinds |= found
        checked += agree(given, rng, 6) if found else 0
    assert checked > 30
    assert kinds == set(CONTEXT_KINDS)


@pytest.mark.parametrize("block", blocks(6, proof=True))
def test_evaluators_agree_where_end_chunks_have_no_layers(block: int) -> None:
    """Embedding or head alone in the first or the last chunk, with context ranks, experts and shards at times."""
    rng, checked = np.random.default_rng(500 + block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = random_problem(seed, large=seed % 2 == 0, experts=seed % 3 == 0)
        schedules = ["1f1b", "interleaved-1f1b", "zb-v", "v-half", "v-min"]
        more: dict[str, Any] = {"empty_ends": True, "schedules": schedules, "max_vpp": 3, "zero": [0, 1, 2, 3]}
        more |= {"fixed": {"empty_ends": seed % 2 == 1}} if seed % 3 else {}
        given = replace(given, latency_model="step", space=given.space.model_copy(update=more))
        given = all_context_kinds(given, seed)
        checked += agree(given, rng, 6) if any(each.empty_ends for each in given.candidates) else 0
    assert checked > 16


@pytest.mark.parametrize("block", blocks(6, proof=True))
def test_evaluators_agree_on_further_tokens(block: int) -> None:
    """Layers that predict further tokens stand with the head: tied or not, experts, context ranks, empty end chunks."""
    rng, checked = np.random.default_rng(600 + block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = random_problem(seed, large=seed % 2 == 0, experts=seed % 3 == 0)
        if not given.model.vocab:
            continue
        schedules = ["1f1b", "gpipe", "interleaved-1f1b", "zb-v"]
        more: dict[str, Any] = {"empty_ends": seed % 2 == 1, "schedules": schedules, "max_vpp": 2, "zero": [0, 1, 2, 3]}
        model = given.model.model_copy(update={"mtp_layers": 1 + seed % 2})
        given = replace(given, model=model, latency_model="step", space=given.space.model_copy(update=more))
        given = all_context_kinds(given, seed)
        checked += agree(given, rng, 6)
    assert checked > 20


@pytest.mark.parametrize("block", blocks(4, proof=True))
def test_evaluators_agree_on_further_tokens_of_mixed_layers(block: int) -> None:
    """Each passes one to three layers of any kinds, with weights of its own or the same as the others."""
    rng, checked = np.random.default_rng(650 + block), 0
    for seed in range(block * 80, (block + 1) * 80):
        given = with_further_tokens(with_mixed_layers(seed), seed)
        if given is None:
            continue
        schedules = ["1f1b", "gpipe", "interleaved-1f1b", "zb-v"]
        more: dict[str, Any] = {"empty_ends": seed % 2 == 1, "schedules": schedules, "max_vpp": 2, "zero": [0, 1, 2, 3]}
        given = replace(given, latency_model="step", space=given.space.model_copy(update=more))
        checked += agree(all_context_kinds(given, seed), rng, 6)
    assert checked > 60


@pytest.mark.parametrize("block", blocks(5, proof=True))
def test_evaluators_agree_on_optimizer_states_on_hosts(block: int) -> None:
    """A part of the states or all of them, types of devices and hosts, every ZeRO stage, also by orders."""
    rng, checked = np.random.default_rng(700 + block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = random_problem(seed, measured=seed % 7 == 0, large=seed % 5 == 0, experts=seed % 3 == 0)
        more: dict[str, Any] = {"zero": [0, 1, 2, 3]}
        if seed % 4 == 0:
            more |= {"schedules": ["1f1b", "interleaved-1f1b", "zb-h1", "v-half"], "max_vpp": 2}
        checked += agree(with_offload(seed, replace(given, space=given.space.model_copy(update=more))), rng, 5)
    assert checked > 32


def random_network(rng: np.random.Generator) -> MemoryNetwork:
    """A network of two layers with random weights, some features by their logarithm."""
    names = [str(name) for name in rng.permutation(ALL_FEATURES)[:8]]
    positive = {"n_gpus", "layers", "hidden", "heads", "tp", "pp", "dp", "micro_batch", "mini_batch", "global_batch"}
    features: list[dict[str, Any]] = [
        {"name": name, "log": name in positive, "centre": 1.0, "scale": 2.0, "least": 0.0, "most": 1e9}
        for name in names
    ]
    layers = [
        {"weights": rng.normal(size=(4, 8)).tolist(), "biases": rng.normal(size=4).tolist()},
        {"weights": rng.normal(size=(1, 4)).tolist(), "biases": [0.0]},
    ]
    target = {"centre": 14.0, "scale": 0.5}
    return MemoryNetwork.model_validate({"features": features, "target": target, "layers": layers, "margin": 0.07})


@pytest.mark.proof
def test_evaluators_agree_on_learned_memory() -> None:
    """What a network predicts, for even divisions and others, is the same byte for byte."""
    rng, checked = np.random.default_rng(7), 0
    for seed in range(60):
        given = random_problem(seed)
        if len(given.model.kinds) > 1:
            continue
        memory = given.memory.model_copy(update={"network": random_network(rng)})
        checked += agree(replace(given, memory=memory), rng, 5)
    assert checked > 100


@pytest.mark.proof
def test_memory_coefficients_and_precisions() -> None:
    """Fitted coefficients, other precisions, also of gradients, and a margin in GiB are the same byte for byte."""
    rng, checked = np.random.default_rng(8), 0
    for seed in range(60):
        given = by_order(seed) if seed % 2 else random_problem(seed)
        more = {"weights": 0.9, "activations": 1.7, "checkpoints": 0.3, "buffers": 2.5, "logits": 0.01}
        update = {"coefficients": more, "margin_gib": 1e-4, "overhead_gib": 1e-5, "group_overhead_gib": 2e-5}
        kept = {"precision": "fp32", "grad_precision": [None, "bf16", "fp32"][seed % 3]}
        memory = given.memory.model_copy(update=update | kept)
        cluster = given.cluster.model_copy(deep=True)
        for group in cluster.nodes:
            group.device.peak_tflops["fp32"] = 1.0
        checked += agree(replace(given, memory=memory, cluster=cluster), rng, 4)
    assert checked > 100


@pytest.mark.proof
def test_costs_between_measured_micro_batches() -> None:
    """A cost that no row has is interpolated, or derived for a recompute, the same way."""
    rng, checked = np.random.default_rng(9), 0
    for seed in range(30):
        given = random_problem(seed)
        most = max(row.micro_batch for row in given.costs.rows)
        rows = [
            row for row in given.costs.rows if row.micro_batch in (1, most) and (seed % 2 or row.recompute == "none")
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            checked += agree(replace(given, costs=given.costs.model_copy(update={"rows": rows})), rng, 5)
    assert checked > 50


def test_orders_that_cannot_run_are_refused() -> None:
    """A pass that is missing, on another device, or waits for ever."""
    candidate = next(c for c in by_order(0).candidates if c.schedule == "zb-h1")
    choice = choice_of(candidate)
    case = case_of(by_order(0))
    order = [list(passes) for passes in order_for(case, choice) or []]
    with pytest.raises(DataError, match="every pass once"):
        check(choice, [order[0][1:], *order[1:]])
    with pytest.raises(DataError, match="another device"):
        check(choice, [order[1], order[0], *order[2:]])
    ones = np.ones((3, choice.pp, 1))
    with pytest.raises(DataError, match="for ever"):
        device_ends([passes[::-1] for passes in order], ones, np.ones((choice.pp - 1, 1)))


def test_the_reference_shares_no_code_with_what_it_checks() -> None:
    """It imports the input specs, errors, numpy and the standard library, and no compiled code."""
    folder = Path(reference.__path__[0])
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in named:
                own = ("taut.data", "taut.errors", reference.__name__)
                allowed = (
                    module.startswith(own)
                    if module.startswith("taut")
                    else module.partition(".")[0]
                    in (
                        "numpy",
                        *sys.stdlib_module_names,
                    )
                )
                assert allowed, f"{path.name} imports {module}"


@pytest.mark.parametrize("block", blocks(9, proof=True))
def test_evaluators_agree_where_experts_have_ranks_of_their_own(block: int) -> None:
    """Expert groups in a tensor group, in a replica and over several, in nodes and over them, by every schedule."""
    rng, checked = np.random.default_rng(300 + block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = with_expert_ranks(seed)
        apart = [candidate for candidate in given.candidates if candidate.ep > 1]
        if apart:
            checked += agree(given, rng, 8)
    assert checked > 26


@pytest.mark.proof
def test_evaluators_agree_where_one_stage_hides_exchanges() -> None:
    """A single stage whose exchanges another micro-batch hides holds one more layer of activations for both."""
    rng, checked = np.random.default_rng(900), 0
    for seed in (each for each in range(120) if each % 4 < 2):
        given = with_expert_ranks(seed)
        fixed = {**given.space.fixed, "pp": 1}
        given = replace(given, space=given.space.model_copy(update={"fixed": fixed}))
        if any(hides_exchange(given.space, given.model, candidate) for candidate in given.candidates):
            checked += agree(given, rng, 6)
    assert checked > 60


@pytest.mark.parametrize("block", blocks(9, proof=True))
def test_evaluators_agree_where_shards_of_experts_have_groups_of_their_own(block: int) -> None:
    """ZeRO-2 and 3 beside expert ranks, with gathers hidden, exposed and between; and the same candidates."""
    rng, checked = np.random.default_rng(900 + block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = with_expert_shards(seed)
        apart = [candidate for candidate in given.candidates if candidate.ep > 1]
        if apart:
            checked += agree(given, rng, 8)
    assert checked > 26


@pytest.mark.parametrize("block", blocks(9, proof=True))
def test_evaluators_agree_where_optimizer_states_have_several_copies(block: int) -> None:
    """ZeRO-1 with copies, dense and of experts, reductions beside backward passes and after them, also by orders."""
    rng, checked = np.random.default_rng(1000 + block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = with_copies_of_states(seed, large=seed % 4 == 0)
        if any(candidate.dp_shard for candidate in given.candidates):
            checked += agree(given, rng, 8)
    assert checked > 13
