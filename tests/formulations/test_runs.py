"""Plans beyond all runs: fields one by one by hand, in words, and as the reference evaluator tells them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.seen import Seen
from taut.formulations.runs import EXPERTS, FACTS, Beyond, beyond, beyond_words, is_within
from taut.formulations.space import RUNS, Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.certificate.reference import space as reference
from taut.solver.certificate.reference.candidates import candidates
from tests.support.instances import random_problem
from tests.support.mixers import with_mixed_layers
from tests.support.reference import case_of, choice_of, random_strategy
from tests.support.runs import seen, with_few_runs, with_runs
from tests.support.small import cluster, model, problem

PLAIN = Candidate(2, 4, 2, 1, 2, 8, "1f1b", 1, True)


def test_every_field_of_a_record_stands_beside_one_of_a_plan_or_its_job() -> None:
    """Names of candidates and jobs together are those of a record, each once."""
    names = [runs.name for runs in (*RUNS, *FACTS)]
    assert len(names) == len(set(names)) and set(names) == {*Seen.model_fields, EXPERTS}


@pytest.mark.parametrize(
    ("changes", "runs", "within"),
    [
        ({}, {}, True),
        ({"micro_batch": 4}, {"micro_batch": [1, 4]}, True),
        ({"micro_batch": 8}, {"micro_batch": [1, 4]}, False),
        ({"micro_batch": 1}, {"micro_batch": [2, 4]}, False),
        ({"zero": 3}, {"zero": [0, 1]}, False),
        # A single holder of the weights shards nothing.
        ({"zero": 0, "dp": 1}, {"zero": [1]}, True),
        ({"zero": 0}, {"zero": [1]}, False),
        # Without expert ranks the tensor ranks of experts are those of the replica.
        ({}, {"etp": [1, 1]}, True),
        ({"ep": 4, "etp": 2}, {"etp": [1, 1]}, False),
        ({"ep": 4, "etp": 1}, {"ep": [8, 64]}, False),
        ({"zero": 3, "dp": 4, "dp_shard": 2}, {"copies": [False]}, False),
        ({"uniform_recompute": "full"}, {"recompute": ["none"]}, False),
        # Where each stage chooses, the candidate does not say.
        ({}, {"recompute": ["none"]}, True),
        ({"schedule": "interleaved-1f1b", "vpp": 2}, {"schedule": ["1f1b"]}, False),
        ({"optimizer_offload": 0.5}, {"optimizer_offload": [0.0, 0.25]}, False),
        ({"activation_offload": 0.25}, {"activation_offload": [0.0, 0.25]}, True),
        ({"uneven_batch": True}, {"uneven_batch": [False]}, False),
        ({"cp": 2}, {"cp": [1, 1]}, False),
    ],
)
def test_a_candidate_is_within_runs_by_every_field(changes: dict[str, Any], runs: dict[str, Any], within: bool) -> None:
    """Numbers lie from the least to the most, kinds are among those of runs; the reference says the same."""
    candidate, known = replace(PLAIN, **changes), seen(**runs)
    assert is_within(known, candidate) == within
    assert reference.is_like_runs(choice_of(candidate), known) == within


def test_what_lies_beyond_is_told_by_hand() -> None:
    """Micro-batch and full recompute of a plan, and GPUs, sequence and experts of its job."""
    given = with_runs(
        problem(cluster(1, 4), model(layers=2), latency_model="step"),
        **{"micro_batch": [1, 1], "recompute": ["none"], "n_gpus": [8, 16], "seq": [4096, 8192]},
    )
    assert given.calibration is not None
    given = replace(given, calibration=given.calibration.model_copy(update={"experts": True}))
    candidate = Candidate(2, 1, 2, 1, 2, 8, "1f1b", 1, False)
    strategy = Strategy(candidate=candidate, division=Division(((0, 1), (1, 2)), ("none", "full")))
    length = given.model.blocks[0].seq
    assert beyond(given, strategy) == [
        ("micro_batch", 2, [1, 1]),
        ("recompute", "full", ["none"]),
        ("n_gpus", 4, [8, 16]),
        ("seq", length, [4096, 8192]),
        ("experts", False, [True]),
    ]
    silent = None if given.calibration is None else given.calibration.model_copy(update={"seen": None})
    alone = replace(given, calibration=silent)
    assert beyond(alone, strategy) == beyond(replace(given, calibration=None), strategy) == []


def test_fields_beyond_runs_in_words() -> None:
    """Ranges, single values, kinds and what never was; a field of another version is left out."""
    given = [
        Beyond("micro_batch", 8, [1, 2]),
        Beyond("recompute", "full", ["none"]),
        Beyond("zero", 3, [0, 1]),
        Beyond("cp", 2, [1, 1]),
        Beyond("ep", 1, [8, 64]),
        Beyond("vpp", 16, [1, 12]),
        Beyond("optimizer_offload", 0.5, [0.0, 0.0]),
        Beyond("n_gpus", 64, [8, 8]),
        Beyond("precision", "fp16", ["bf16", "fp8"]),
        Beyond("mixing", "delta-rule", ["attention"]),
        Beyond("mixing", "sparse-attention", ["attention"]),
        Beyond("of another version", 1, [0, 0]),
    ]
    assert beyond_words(given, experts=True) == (
        "micro-batch 8 (seen 1 to 2), full recompute with experts (never), ZeRO-3 with experts (never), "
        "context 2 with experts (never), 1 expert rank (seen 8 to 64), 16 chunks a device (seen 1 to 12), "
        "50% of the optimizer states on the host with experts (never), 64 GPUs (seen 8), fp16 (seen bf16, fp8), "
        "layers of linear attention with the delta rule (never), attention to chosen or compressed tokens (never)"
    )
    assert beyond_words(given[1:2], experts=False) == "full recompute (never)"
    assert beyond_words([Beyond("experts", True, [False])], experts=False) == "layers with experts (never)"


def test_the_reference_tells_the_same_of_random_plans() -> None:
    """Candidates of a space with runs, and fields of random plans beyond them."""
    rng, left, told, ways = np.random.default_rng(0), 0, 0, set[object]()
    for seed in range(40):
        given = replace(random_problem(seed), latency_model="step")
        if seed % 2:
            given = replace(given, model=with_mixed_layers(seed).model)
        if not given.candidates:
            continue
        given = with_few_runs(seed, given, mixing=["attention"])
        assert given.calibration is not None
        narrowed = replace(given, space=given.space.model_copy(update={"seen": given.calibration.seen}))
        assert [choice_of(candidate) for candidate in narrowed.candidates] == candidates(case_of(narrowed))
        left += len(given.candidates) - len(narrowed.candidates)
        for index in rng.integers(len(given.candidates), size=5).tolist():
            strategy = random_strategy(given, given.candidates[index], rng)
            found = [(each.field, each.value) for each in beyond(given, strategy)]
            choice = choice_of(strategy.candidate)
            assert sorted(map(str, found)) == sorted(
                map(str, reference.beyond(case_of(given), choice, strategy.recompute))
            )
            told += len(found)
            ways |= {value for name, value in found if name == "mixing"}
    assert left > 100 and told > 20 and len(ways) > 3
