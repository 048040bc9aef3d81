"""Bounds and searches of problems with optimizer states on hosts, beside the enumerated optimum."""

import json
from dataclasses import replace
from typing import Any

import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem, with_offload
from tests.support.ladder import check_candidates
from tests.support.oracle import enumerate_all

pytestmark = pytest.mark.proof


def offloaded(seed: int) -> PlanningProblem:
    """A random problem with states on hosts, in turn with every ZeRO stage, with experts, by orders, and overlap."""
    given = random_problem(seed, measured=seed % 5 == 0, large=seed % 7 == 4, experts=seed % 3 == 0)
    more: dict[str, Any] = {"zero": [[0, 1], [2], [3], [1]][seed % 4]}
    if seed % 6 == 1:
        more |= {"schedules": ["1f1b", "interleaved-1f1b", "zb-h1"], "max_vpp": 2}
    space = given.space.model_copy(update=more)
    return with_offload(seed, replace(given, space=space, overlap_grad_reduce=seed % 4 == 0))


@pytest.mark.parametrize("block", blocks(6))
def test_no_bound_with_states_on_hosts_is_above_the_optimum(block: int) -> None:
    """Six hundred candidates, a hundred a block, infeasible ones included."""
    checked, seed = 0, 10_000 * block
    while checked < 100:
        given = offloaded(seed)
        checked += len(check_candidates(given, given.candidates, seed, 4))
        seed += 1


@pytest.mark.parametrize("block", blocks(12, every_run=1))
def test_searches_enclose_the_optimum_with_and_without_states_on_hosts(block: int) -> None:
    """The enumerated optimum lies between bound and plan, infinite where none is found, and the certificate holds."""
    ended = []
    for seed in range(8 * block, 8 * (block + 1)):
        away = offloaded(seed)
        plain = replace(away, memory=away.memory.model_copy(update={"optimizer_offload_fraction": 0.0}))
        for given in (away, plain):
            best, found = enumerate_all(given).seconds, search(given, Limits())
            ended.append(found.status)
            if found.incumbent is None:
                assert best == float("inf"), seed
                continue
            assert found.incumbent.seconds >= best * (1 - 1e-9), seed
            assert found.lower_bound <= best * (1 + 1e-9), seed
            made = json.loads(json.dumps(plan_document(given, found, Limits())))
            assert verify_document(made).faults == (), seed
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
