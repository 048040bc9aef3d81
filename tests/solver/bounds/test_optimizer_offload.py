"""Bounds and searches of problems with optimizer states on hosts, beside the enumerated optimum."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.errors import DataError
from taut.formulations.mechanisms import offload
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import StrategySpace
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Incumbent, Limits, Status
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem, with_offload
from tests.support.ladder import check_candidates
from tests.support.oracle import enumerate_all
from tests.support.planted_bugs import wherever
from tests.support.searches import check_search

pytestmark = pytest.mark.proof


def offloaded(seed: int) -> PlanningProblem:
    """A random problem with states on hosts, in turn with every ZeRO stage, with experts, by orders, and overlap."""
    given = random_problem(seed, measured=seed % 5 == 0, large=seed % 7 == 4, experts=seed % 3 == 0)
    more: dict[str, Any] = {"zero": [[0, 1], [2], [3], [1]][seed % 4]}
    if seed % 6 == 1:
        more |= {"schedules": ["1f1b", "interleaved-1f1b", "zb-h1"], "max_vpp": 2}
    space = given.space.model_copy(update=more)
    return with_offload(seed, replace(given, space=space, overlap_grad_reduce=seed % 4 == 0))


@pytest.mark.parametrize("block", blocks(12))
def test_no_bound_with_states_on_hosts_is_above_the_optimum(block: int) -> None:
    """Six hundred candidates, fifty a block, infeasible ones included."""
    checked, seed = 0, 10_000 * block
    while checked < 50:
        given = offloaded(seed)
        checked += len(check_candidates(given, given.candidates, seed, 4))
        seed += 1


def of_several_shares(seed: int, *, few: bool = False) -> PlanningProblem:
    """A random problem whose candidates have each of two or three shares of their states on hosts."""
    given = offloaded(seed)
    rng = np.random.default_rng((seed, 7))
    shares = sorted(rng.choice([0.0, 0.25, 0.6, 0.75, 1.0], size=2 if few else 3, replace=False).tolist())
    listed = [
        {"fraction": share, "zero": rng.permutation([0, 1, 2, 3])[: rng.integers(2, 5)].tolist()} for share in shares
    ]
    listed[0]["zero"] = [0, 1, 2, 3]
    space = given.space.model_dump(mode="json") | {"optimizer_offload": listed}
    memory = given.memory.model_copy(update={"optimizer_offload_fraction": 0.0})
    return replace(given, space=StrategySpace.parse(space, "space"), memory=memory)


@pytest.mark.parametrize("block", blocks(6))
def test_no_bound_of_a_share_is_above_its_optimum(block: int) -> None:
    """Six hundred candidates that have their own share of the states on hosts, infeasible ones included."""
    checked, seed, shares = 0, 20_000 + 1_000 * block, set()
    while checked < 100:
        given = of_several_shares(seed)
        found = check_candidates(given, given.candidates, seed, 5)
        checked, seed = checked + len(found), seed + 1
        shares |= {each.optimizer_offload for each in given.candidates}
    assert len(shares) == 5


@pytest.mark.parametrize("block", blocks(12))
def test_searches_choose_the_share(block: int) -> None:
    """The optimum over all shares lies between bound and plan, and is the least of those of one share alone."""
    chosen = set()
    for seed in range(3 * block, 3 * (block + 1)):
        given = of_several_shares(seed, few=True)
        found, best = check_search(given, seed)
        apart = []
        for each in given.space.optimizer_offload:
            space = given.space.of_zero(zero for zero in given.space.zero if zero in each.zero)
            memory = given.memory.model_copy(update={"optimizer_offload_fraction": each.fraction})
            space = space.model_copy(update={"optimizer_offload": []})
            alone = replace(given, space=space, memory=memory)
            apart.append(enumerate_all(alone).seconds if space.zero and space.pipeline_zero != [] else float("inf"))
        assert best <= min(apart) * (1 + 1e-9), seed
        if found.incumbent:
            chosen.add(found.incumbent.strategy.candidate.optimizer_offload)
    assert chosen


@pytest.mark.parametrize("block", blocks(20))
def test_searches_enclose_the_optimum_with_and_without_states_on_hosts(block: int) -> None:
    """The enumerated optimum lies between bound and plan, infinite where none is found, and the certificate holds."""
    ended = []
    for seed in range(5 * block, 5 * (block + 1)):
        away = offloaded(seed)
        plain = replace(away, memory=away.memory.model_copy(update={"optimizer_offload_fraction": 0.0}))
        for given in (away, plain):
            found, _ = check_search(given, seed)
            ended.append(found.status)
    assert Status.OPTIMAL in ended


def test_corrupted_hosts_are_refused() -> None:
    """A certificate with another share, rate of a link or of a host's memory, digests matched, is refused."""
    from tests.solver.certificate.test_verify import resigned

    given = offloaded(3)
    limits = Limits()
    made = json.loads(json.dumps(plan_document(given, search(given, limits), limits)))
    assert verify_document(made).holds

    def node(plan: Any) -> Any:
        return plan["inputs"]["cluster"]["spec"]["nodes"][0]

    def share(plan: Any) -> None:
        plan["inputs"]["memory_model"]["spec"]["optimizer_offload_fraction"] *= 0.5

    def link(plan: Any) -> None:
        node(plan)["device"]["host_link_gbytes"] *= 2

    def memory(plan: Any) -> None:
        node(plan)["host_memory_gbytes"] *= 2

    for corrupt in (share, link, memory):
        changed = json.loads(json.dumps(made))
        corrupt(changed)
        assert not verify_document(resigned(changed)).holds, corrupt.__name__


def _share(best: Incumbent) -> float:
    return best.strategy.candidate.optimizer_offload


@pytest.mark.parametrize(("home", "name"), [(PlanningProblem, "memory_of"), (offload, "optimizer_seconds")])
def test_a_share_that_is_forgotten_is_noticed(home: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker prices bytes and seconds of a candidate's share by itself."""

    def forgetful(right: Any) -> Any:
        return lambda problem, one: right(problem, replace(one, optimizer_offload=0.0))

    for seed in range(60):
        given = of_several_shares(seed)
        with monkeypatch.context() as patch:
            if home is offload:
                wherever(patch, home, name, forgetful)
            else:
                patch.setattr(home, name, forgetful(getattr(home, name)))
            found = search(given, Limits())
            if found.incumbent is None or not _share(found.incumbent):
                continue
            made = json.loads(json.dumps(plan_document(given, found, Limits())))
            assert not verify_document(made).holds, seed
            return
    pytest.fail("no plan has states on hosts")


def test_corrupted_shares_are_refused() -> None:
    """A certificate with another share of the plan, a candidate or the space, or with one candidate less is refused."""
    from tests.solver.certificate.test_verify import resigned

    limits = Limits()
    plans = ((given, search(given, limits)) for given in map(of_several_shares, range(40)))
    given, found = next(pair for pair in plans if (best := pair[1].incumbent) and _share(best))
    made = json.loads(json.dumps(plan_document(given, found, limits)))
    assert verify_document(made).holds

    def of_plan(plan: Any) -> None:
        plan["strategy"]["optimizer_offload"] *= 0.5

    def none(plan: Any) -> None:
        plan["strategy"].pop("optimizer_offload")

    def of_candidate(plan: Any) -> None:
        strategies = [each["strategy"] for each in plan["certificate"]["candidates"]]
        next(each for each in strategies if "optimizer_offload" in each)["optimizer_offload"] *= 0.5

    def of_space(plan: Any) -> None:
        plan["certificate"]["space"]["optimizer_offload"].pop()

    def one_more(plan: Any) -> None:
        plan["certificate"]["space"]["optimizer_offload"].append({"fraction": 0.9, "zero": [0, 1, 2, 3]})

    def of_all(plan: Any) -> None:
        plan["inputs"]["memory_model"]["spec"]["optimizer_offload_fraction"] = 0.5

    for corrupt in (of_plan, none, of_candidate, of_space, one_more, of_all):
        changed = json.loads(json.dumps(made))
        corrupt(changed)
        try:
            assert not verify_document(resigned(changed)).holds, corrupt.__name__
        except DataError as error:
            assert "expected 0 where candidates have theirs" in str(error)
