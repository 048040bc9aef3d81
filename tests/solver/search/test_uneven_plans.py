"""Plans whose replicas divide the batch unevenly: their batches are the best, and their certificates hold."""

import copy
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import taut
from taut.data.cluster import ClusterSpec
from taut.formulations.latency import step_time, violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.solver.bounds.pipelines_by_type import BoundByType, bound_by_type
from taut.solver.certificate.examined import Examined, case_of
from taut.solver.certificate.reference.space import Choice
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from taut.solver.search.typed_plans import divide_batch
from tests.support.blocks import blocks
from tests.support.oracle import batches, enumerate_all, enumerate_candidate
from tests.support.uneven import uneven_candidates, uneven_problem

pytestmark = pytest.mark.proof

LIMITS = Limits(workers=1)


def problems(first: int, count: int, *, fixed: bool = True) -> list[PlanningProblem]:
    """So many random problems from a seed on."""
    found: list[PlanningProblem] = []
    while len(found) < count:
        given = uneven_problem(first, fixed=fixed)
        found += [given] if given is not None else []
        first += 1
    return found


def written(given: PlanningProblem) -> dict[str, Any] | None:
    """The document of a search, as it is read back; None where there is no plan."""
    result = search(given, LIMITS)
    return None if result.incumbent is None else json.loads(json.dumps(plan_document(given, result, LIMITS)))


@cache
def unlike_document() -> dict[str, Any]:
    """A plan whose replicas run different numbers of micro-batches."""
    for given in problems(0, 60):
        document = written(given)
        if document is not None and len(set(document["strategy"]["micro_batches"])) > 1:
            return document
    raise AssertionError("no plan divides its batch unevenly")


def test_the_batch_is_divided_best() -> None:
    """Given division and devices, no micro-batches by replica make a shorter step."""
    checked = 0
    for given in problems(100, 30):
        for candidate in uneven_candidates(given)[:2]:
            best = enumerate_candidate(given, candidate)
            if best.strategy is None or best.devices is None:
                continue
            found = divide_batch(given, replace(best.strategy, micro_batches=()), best.devices)
            every = [replace(found, micro_batches=each) for each in batches(candidate)]
            least = min(float(step_time(given, each, best.devices).total) for each in every)
            assert step_time(given, found, best.devices).total == pytest.approx(least, rel=1e-12)
            checked += 1
    assert checked > 20


def test_the_reference_evaluator_agrees() -> None:
    """Both evaluators give a plan the same seconds, whatever micro-batches its replicas run."""
    rng, checked = np.random.default_rng(0), 0
    for given in problems(200, 30):
        for candidate in uneven_candidates(given)[:2]:
            best = enumerate_candidate(given, candidate)
            if best.strategy is None or best.devices is None:
                continue
            drawn = list(batches(candidate))
            strategy = replace(best.strategy, micro_batches=drawn[rng.integers(len(drawn))])
            choice = Choice(**{name: getattr(candidate, name) for name in Choice.__dataclass_fields__})
            plan = strategy.stages, strategy.recompute, best.devices, strategy.micro_batches
            found = Examined(case_of(given), choice, *plan)
            assert not found.violations
            assert found.seconds == pytest.approx(float(step_time(given, strategy, best.devices).total), rel=1e-9)
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("block", blocks(4))
def test_searches_bracket_the_optimum(block: int) -> None:
    """Bound and plan enclose the enumerated optimum of all candidates, or both find nothing; certificates hold."""
    for given in problems(10_000 * (block + 1), 8, fixed=block % 2 == 0):
        known = uneven_candidates(given)
        if given.cluster.num_devices > 4 or any(c.uneven_batch and c not in known for c in given.candidates):
            continue
        optimum, result = enumerate_all(given).seconds, search(given, LIMITS)
        if not np.isfinite(optimum):
            assert result.status is Status.INFEASIBLE
            continue
        assert result.incumbent is not None
        assert result.lower_bound <= optimum * (1 + 1e-9) and result.incumbent.seconds >= optimum * (1 - 1e-9)
        document = json.loads(json.dumps(plan_document(given, result, LIMITS)))
        assert verify_document(document).faults == ()


def test_a_quicker_type_runs_more_micro_batches() -> None:
    """On A100 and H100 a replica on the quicker runs more micro-batches, and those of one type as many."""
    cluster, fix = ClusterSpec.parse(mixed(), "mixed"), {"uneven_batch": True, "pp": 1, "tp": 1}
    request = taut.PlanRequest("gpt-1.1b", cluster, global_batch=64, stack="any", fix=fix)
    with pytest.warns(UserWarning, match="plans of meshes are not searched: fix: uneven_batch"):
        found = taut.plan(request)
    assert found.status == "optimal"
    counts = found.strategy.micro_batches
    assert sum(counts) * found.strategy.micro_batch == 64
    types = ["a100" if block[0] < 8 else "h100" for block in found.devices[0]]
    slow, fast = ({n for n, kind in zip(counts, types, strict=True) if kind == name} for name in ("a100", "h100"))
    assert max(slow) < min(fast)
    assert verify_document(found.document).faults == ()


def mixed() -> dict[str, Any]:
    """One node of A100 and one of H100."""
    nodes = [
        {"count": 1, "device": kind, "gpus_per_node": 8, "intra_bandwidth_gbps": rate, "nic_bandwidth_gbps": 400}
        for kind, rate in (("a100-80gb", 2400), ("h100-80gb", 3600))
    ]
    return {"name": "mixed", "nodes": nodes, "network": {"bandwidth_gbps": 200, "latency_us": 5}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda counts: counts[::-1], "step_time_s"),
        (lambda counts: [counts[0] + 1, *counts[1:]], "do not divide"),
        (lambda counts: [], "do not divide"),
        (lambda counts: [0, sum(counts[:2]), *counts[2:]], "do not divide"),
    ],
)
def test_other_micro_batches_are_refused(change: Any, said: str) -> None:
    """A document with other micro-batches by replica than the plan's is not accepted."""
    document = copy.deepcopy(unlike_document())
    document["strategy"]["micro_batches"] = change(document["strategy"]["micro_batches"])
    found = verify_document(document)
    assert not found.holds and said in found.faults[0]


def test_micro_batches_of_an_even_batch_are_refused() -> None:
    """Micro-batches by replica go with an uneven batch alone, and so does a candidate of the space."""
    document = copy.deepcopy(unlike_document())
    del document["strategy"]["uneven_batch"]
    assert "not a candidate of the stated space" in verify_document(document).faults[0]


def test_a_replica_on_two_types_breaks_a_rule() -> None:
    """Where two replicas on different types exchange a block, the plan is refused."""
    for given in problems(0, 60):
        document = written(given)
        if document is None or document["strategy"]["pp"] == 1:
            continue
        devices = document["placement"]["devices"]
        devices[0][0], devices[0][-1] = devices[0][-1], devices[0][0]
        assert "is on several types of device" in verify_document(document).faults[0]
        return
    raise AssertionError("no plan has several stages")


def test_a_raised_bound_is_refuted_by_sampled_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound that is four times as large in search and check alike, the plan or sampled ones refute it."""
    real = bound_by_type

    def raised(*given: Any, **named: Any) -> BoundByType:
        found = real(*given, **named)
        return replace(found, seconds=4 * found.seconds)

    monkeypatch.setattr("taut.solver.ladder.computations.bound_by_type", raised)
    monkeypatch.setattr("taut.solver.ladder.checks.bound_by_type", raised)
    documents = [document for given in problems(0, 12) if (document := written(given)) is not None]
    refused = sum(not verify_document(document).holds for document in documents)
    assert refused == len(documents) > 0


def test_strategies_without_micro_batches_are_no_plans() -> None:
    """An uneven candidate without micro-batches by replica breaks a rule."""
    given = problems(100, 1)[0]
    found = next(best for c in uneven_candidates(given) if (best := enumerate_candidate(given, c)).strategy is not None)
    assert found.strategy is not None and found.devices is not None
    bare = Strategy(candidate=found.strategy.candidate, division=found.strategy.division)
    assert "do not divide" in str(violations(given, bare, found.devices)[0])
