"""Bounds and searches of problems with activations on hosts, beside the enumerated optimum."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.costs import CostRow
from taut.formulations.mechanisms.offload import HOST_FULL
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import StrategySpace
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem, with_offload
from tests.support.ladder import check_candidates
from tests.support.searches import check_search

pytestmark = pytest.mark.proof


def on_hosts(seed: int, *, few: bool = False) -> PlanningProblem:
    """
    A random problem with shares of activations on hosts of any size, in turn with experts and states on hosts.

    Every fourth has chunks, and a schedule beside which activations stay.
    In every third one shares are of what a named module keeps, a part of the bytes of any size for every cost.
    """
    rng = np.random.default_rng((seed, 8))
    given = random_problem(seed, measured=seed % 5 == 0, large=seed % 7 == 4, experts=seed % 3 == 0)
    given = with_offload(seed, given)
    away = seed % 2 * given.memory.optimizer_offload_fraction
    shares = sorted(rng.choice([0.0, 0.3, 0.5, 1.0], size=2 if few else 3, replace=False).tolist())
    kinds = [["none", "selective", "full"], ["none"], ["full", "none"], ["selective", "none"]]
    listed = [
        {"fraction": s, "recompute": kinds[rng.integers(4)], "pipelines": bool(rng.random() < 0.8)} for s in shares
    ]
    more: dict[str, Any] = {"schedules": ["1f1b", "gpipe", *(["interleaved-1f1b", "zb-h1"] if seed % 4 == 2 else [])]}
    more |= {"max_vpp": 2, "activation_offload": listed, "zero": [[0, 1], [2], [3], [1]][seed % 4]}
    space = StrategySpace.parse(given.space.model_dump(mode="json") | more, "space")
    gib = float(10 ** rng.uniform(-4, 1))
    groups = [
        node.model_copy(
            update={
                "host_memory_gib": gib * rng.uniform(1, 2),
                "device": node.device.model_copy(update={"host_link_gbytes": float(10 ** rng.uniform(-1, 2))}),
            }
        )
        for node in given.cluster.nodes
    ]
    first = {node.device.name: node.device for node in reversed(groups)}
    groups = [node.model_copy(update={"device": first[node.device.name]}) for node in groups]
    if seed % 3 == 1:
        space = space.model_copy(update={"offload_modules": ["core_attn"]})
        given = replace(given, costs=given.costs.model_copy(update={"rows": [*map(_named(rng), given.costs.rows)]}))
    memory = given.memory.model_copy(update={"optimizer_offload_fraction": away})
    cluster = given.cluster.model_copy(update={"nodes": groups})
    return replace(given, space=space, memory=memory, cluster=cluster, overlap_grad_reduce=seed % 4 == 0)


def _named(rng: np.random.Generator) -> Callable[[CostRow], CostRow]:
    """A row of whose bytes a named module has a part."""

    def changed(row: CostRow) -> CostRow:
        with_sp = row.activation_bytes if row.activation_bytes_sp is None else row.activation_bytes_sp
        parts = (int(rng.random() * most) for most in (row.activation_bytes, with_sp))
        return row.model_copy(update=dict(zip(("offload_bytes", "offload_bytes_sp"), parts, strict=True)))

    return changed


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_with_activations_on_hosts_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, a hundred a block, with full hosts and infeasible ones among them."""
    checked, seed, full = 0, 30_000 + 1_000 * block, 0
    while checked < 100:
        given = on_hosts(seed)
        some = [each for each in given.candidates if each.activation_offload]
        found = check_candidates(given, some, seed, 5)
        full += sum(bool((given.tables(each).activation >= HOST_FULL).any()) for each in found)
        checked, seed = checked + len(found), seed + 1
    assert full > 0


@pytest.mark.parametrize("block", blocks(8))
def test_searches_choose_the_share_of_activations(block: int) -> None:
    """The enumerated optimum lies between bound and plan, infinite where none is found, and the certificate holds."""
    ended, chosen = [], set()
    for seed in range(4 * block, 4 * (block + 1)):
        given = on_hosts(seed, few=True)
        found, _ = check_search(given, seed)
        ended.append(found.status)
        if found.incumbent:
            chosen.add(found.incumbent.strategy.candidate.activation_offload)
    assert {Status.OPTIMAL, Status.FEASIBLE} & set(ended) and chosen


def _made(*, modules: bool) -> dict[str, Any]:
    """A plan with a share of the activations on hosts, or of a module's, on fewer than eight devices."""
    small = (given for given in map(on_hosts, range(14, 300)) if given.cluster.num_devices < 8)
    problems = (given for given in small if bool(given.space.offload_modules) == modules)
    plans = ((given, search(given, Limits())) for given in problems)
    given, found = next(
        (given, found)
        for given, found in plans
        if found.incumbent and found.incumbent.strategy.candidate.activation_offload
    )
    return dict(json.loads(json.dumps(plan_document(given, found, Limits()))))


def test_corrupted_shares_of_activations_are_refused() -> None:
    """A certificate with another share, host memory that is too small or a slow link, digests matched, is refused."""
    from tests.solver.certificate.test_verify import resigned

    made = _made(modules=False)
    assert verify_document(made).holds

    def share(plan: Any) -> None:
        plan["strategy"]["activation_offload"] *= 0.5

    def listed(plan: Any) -> None:
        for each in plan["certificate"]["space"]["activation_offload"]:
            each["fraction"] *= 0.5

    def host(plan: Any) -> None:
        for node in plan["inputs"]["cluster"]["spec"]["nodes"]:
            node["host_memory_gib"] = 1e-9

    def link(plan: Any) -> None:
        for node in plan["inputs"]["cluster"]["spec"]["nodes"]:
            node["device"]["host_link_gbytes"] = 1e-4

    for corrupt in (share, listed, host, link):
        changed = json.loads(json.dumps(made))
        corrupt(changed)
        assert not verify_document(resigned(changed)).holds, corrupt.__name__


def test_corrupted_modules_are_refused() -> None:
    """A certificate of modules' inputs on hosts, with no module or with other bytes of it, digests matched, fails."""
    from tests.solver.certificate.test_verify import resigned

    made = _made(modules=True)
    assert verify_document(made).holds

    def names(plan: Any) -> None:
        del plan["certificate"]["space"]["offload_modules"]

    def nothing(plan: Any) -> None:
        for row in plan["inputs"]["costs"]["spec"]["rows"]:
            row["offload_bytes"] = row["offload_bytes_sp"] = 0

    def more(plan: Any) -> None:
        for row in plan["inputs"]["costs"]["spec"]["rows"]:
            row["offload_bytes"], row["offload_bytes_sp"] = row["activation_bytes"], row["activation_bytes"]

    for corrupt in (names, nothing, more):
        changed = json.loads(json.dumps(made))
        corrupt(changed)
        assert not verify_document(resigned(changed)).holds, corrupt.__name__
