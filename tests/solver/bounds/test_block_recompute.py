"""Bounds and searches of problems whose chunks recompute their first layers, beside the enumerated optimum."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.costs import RECOMPUTE
from taut.errors import TautError
from taut.formulations.candidates import candidates
from taut.formulations.latency import memory_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.tables import stage_tables
from taut.formulations.tables.priced_layers import PricedLayers
from taut.solver.bounds import relaxation
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.simulated import simulated_bound
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from taut.solver.simple_plans import even_strategy
from tests.solver.bounds.test_simulated import least_simulated
from tests.support.blocks import blocks
from tests.support.chunked import chunked
from tests.support.instances import random_problem
from tests.support.ladder import check_candidates
from tests.support.searches import check_search

pytestmark = pytest.mark.proof


def in_part(seed: int) -> PlanningProblem:
    """
    A random problem with recompute of the first layers of every chunk, whose memory is tight in most instances.

    In turn experts, measured links, overlap, and coefficients of memory that differ for checkpoints and activations;
    every fourth has several chunks a device.
    """
    rng = np.random.default_rng((seed, 33))
    given = chunked(seed) if seed % 4 == 2 else random_problem(seed, measured=seed % 5 == 0, experts=seed % 3 == 0)
    kinds = [["none", "full"], ["none", "selective", "full"], ["full"]][rng.integers(3)]
    more: dict[str, Any] = {"block_recompute": True, "recompute_by_stage": False, "recompute": kinds}
    more |= {"zero": [[0, 1], [2], [3], [1]][seed % 4 if seed % 4 != 2 else 0]}
    space = StrategySpace.model_validate({**given.space.model_dump(), **more})
    weights = {"checkpoints": float(rng.uniform(0.8, 1.5)), "activations": float(rng.uniform(0.8, 1.5))}
    memory = given.memory.model_copy(update={"coefficients": weights if seed % 3 else {}})
    found = replace(given, space=space, memory=memory, latency_model="step", overlap_grad_reduce=seed % 4 == 0)
    return _tightened(rng, found) if found.candidates and rng.random() < 0.8 else found


def _tightened(rng: np.random.Generator, given: PlanningProblem) -> PlanningProblem:
    """The problem with memories near what the even plan of some candidate in part needs, which fits at times."""
    some = [each for each in given.candidates if each.recompute_layers] or given.candidates
    candidate = some[rng.integers(len(some))]
    plan = even_strategy(given, candidate, candidate.uniform_recompute)
    gib = max(memory_bytes(given, plan)) / 2**30 * float(rng.uniform(0.95, 1.2)) / (1 - given.memory.margin)
    nodes = [
        node.model_copy(update={"device": node.device.model_copy(update={"memory_gib": gib})})
        for node in given.cluster.nodes
    ]
    return replace(given, cluster=given.cluster.model_copy(update={"nodes": nodes}))


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_with_recompute_in_part_is_above_the_optimum(block: int) -> None:
    """Five hundred candidates, fifty a block, with infeasible ones among them."""
    checked, seed = 0, 50_000 + 1_000 * block
    while checked < 50:
        given = in_part(seed)
        found = check_candidates(given, [each for each in given.candidates if each.recompute_layers], seed, 5)
        checked, seed = checked + len(found), seed + 1


def test_no_simulated_step_is_below_its_bound() -> None:
    """Two hundred candidates: a layer beyond the first ones of its chunk is kept, and takes less."""
    checked, seed = 0, 900_000
    while checked < 200:
        given, rng, seed = in_part(seed), np.random.default_rng(seed), seed + 1
        some, best = [each for each in given.candidates if each.recompute_layers], BestLinks(given.links, given.rings)
        for k in rng.permutation(len(some))[:3].tolist():
            least = least_simulated(rng, given, some[k])
            assert simulated_bound(given, some[k], best) <= least * (1 + 1e-9), (seed - 1, some[k])
            checked += bool(np.isfinite(least))


@pytest.mark.parametrize("block", blocks(4))
def test_searches_choose_how_many_layers_are_recomputed(block: int) -> None:
    """The enumerated optimum lies between bound and plan, infinite where none is found, and the certificate holds."""
    ended, chosen, seed = list[Status](), set[int](), 100 * block
    while len(ended) < 3:
        given, seed = in_part(seed), seed + 1
        if given.cluster.num_devices <= 4 and 0 < len(given.candidates) <= 60 and seed % 4 != 3:
            found, _ = check_search(given, seed)
            ended.append(found.status)
            chosen |= {found.incumbent.strategy.candidate.recompute_layers} if found.incumbent else set()
    assert {Status.OPTIMAL, Status.FEASIBLE} & set(ended) and chosen


def _made() -> dict[str, Any]:
    """A plan that recomputes some layers of every chunk."""
    small = (given for given in map(in_part, range(1000)) if 0 < len(given.candidates) <= 60)
    plans = ((given, search(given, Limits())) for given in small)
    given, found = next(
        (given, found)
        for given, found in plans
        if found.incumbent and found.incumbent.strategy.candidate.recompute_layers
    )
    return dict(json.loads(json.dumps(plan_document(given, found, Limits()))))


def test_corrupted_plans_of_recompute_in_part_are_refused() -> None:
    """With another number of layers, or a space without them, digests matched, a certificate is refused."""
    from tests.solver.certificate.test_verify import resigned

    made = _made()
    assert verify_document(made).holds

    def fewer(plan: Any) -> None:
        plan["strategy"]["recompute_layers"] -= 1

    def all_layers(plan: Any) -> None:
        del plan["strategy"]["recompute_layers"]

    def more(plan: Any) -> None:
        plan["strategy"]["recompute_layers"] += 1

    def whole(plan: Any) -> None:
        plan["certificate"]["space"]["block_recompute"] = False

    def forgotten(plan: Any) -> None:
        entries = plan["certificate"]["candidates"]
        entries[:] = [each for each in entries if each["strategy"].get("recompute_layers") != 1]

    for corrupt in (fewer, all_layers, more, whole, forgotten):
        changed = json.loads(json.dumps(made))
        corrupt(changed)
        assert not verify_document(resigned(changed)).holds, corrupt.__name__


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "all layers kept": lambda patch: patch.setattr(
        PricedLayers, "again", property(lambda self: np.zeros_like(self.count) if self.first_layers else None)
    ),
    "kept layers as checkpoints": lambda patch: patch.setattr(
        stage_tables, "_activation", lambda priced, kept, edges, memory: _whole(priced, kept, edges)
    ),
    "candidates of one layer forgotten": lambda patch: patch.setattr(
        "taut.formulations.problem.candidates", _without_first(candidates)
    ),
    "relaxation of whole recompute": lambda patch: patch.setattr(relaxation, "in_part", lambda candidate: False),
}
"""Bugs in what search and check of recompute in part share, or in the search alone."""


def _whole(priced: PricedLayers, kept: Any, edges: list[int]) -> Any:
    return np.array([priced.sums(kept[r], *edges) for r in RECOMPUTE]).astype(np.int64)


def _without_first(old: Callable[..., list[Candidate]]) -> Callable[..., list[Candidate]]:
    return lambda *given: [each for each in old(*given) if each.recompute_layers != 1]


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_refused(bug: str) -> None:
    """The check refuses the certificate of some problem."""
    refused = 0
    for seed in range(400):
        given = in_part(seed)
        if not (given.cluster.num_devices <= 4 and 0 < len(given.candidates) <= 40) or seed % 4 == 2:
            continue
        with pytest.MonkeyPatch.context() as patch:
            BUGS[bug](patch)
            wrong = given.with_costs(given.costs)
            found = search(wrong, Limits(work_limit=40))
            if found.incumbent is None:
                continue
            made = json.loads(json.dumps(plan_document(wrong, found, Limits(work_limit=40))))
            refused += not _holds(made)
        if refused:
            return
    raise AssertionError(bug)


def _holds(made: dict[str, Any]) -> bool:
    try:
        return verify_document(made).holds
    except (TautError, ArithmeticError, LookupError, ValueError):
        return False
