"""Exchanges of nodes in plans of meshes, against every order of the nodes."""

from itertools import permutations, product

import numpy as np
import pytest

from taut.formulations.meshes.step_time import MeshPlan, mesh_step, mesh_violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Division, Rule
from taut.planning.meshes import mesh_problem as planned_problem
from taut.planning.request import PlanRequest
from taut.solver.meshes.search import ORDERS, exchangeable, ranked_devices, with_exchanges
from tests.support.blocks import blocks
from tests.support.meshes import mesh_choices, mesh_problem, random_plan
from tests.taut.planning.test_meshes import CLUSTER


def every_order(problem: PlanningProblem, plan: MeshPlan) -> list[float]:
    """Seconds of the plan over all orders of the nodes of one type and size."""
    links = problem.links
    like = [
        [n for n in range(links.num_nodes) if (problem.type_of_node[n], links.gpus_per_node[n]) == key]
        for key in sorted({(k, g) for k, g in zip(problem.type_of_node, links.gpus_per_node, strict=True)})
    ]
    found = []
    for orders in product(*(permutations(nodes) for nodes in like)):
        place = np.arange(len(links.node_of))
        for nodes, order in zip(like, orders, strict=True):
            for node, other in zip(nodes, order, strict=True):
                place[links.node_of == node] = np.flatnonzero(links.node_of == other)
        devices = tuple(place[each] for each in plan.devices)
        found.append(mesh_step(problem, MeshPlan(plan.choice, plan.division, devices)).total)
    return found


@pytest.mark.parametrize("block", blocks(10, proof=True))
def test_exchanges_come_near_the_best_order_of_nodes(block: int) -> None:
    """The plan is a rearrangement with its own price, no worse than before, mostly the best of all."""
    better = best = compared = 0
    for seed in range(75 * block, 75 * (block + 1)):
        problem, rng = mesh_problem(seed), np.random.default_rng(seed)
        choices, pairs = mesh_choices(problem), exchangeable(problem)
        for k in rng.permutation(len(choices))[: 3 * bool(pairs)].tolist():
            drawn = random_plan(rng, problem, choices[k])
            plan = MeshPlan(choices[k], drawn.division, ranked_devices(problem, choices[k], ORDERS[k % 2]))
            before = mesh_step(problem, plan).total
            found, seconds = with_exchanges(problem, plan, pairs, np.inf, lambda: False)
            every = every_order(problem, plan)
            assert seconds == mesh_step(problem, found).total <= before
            assert seconds >= min(every) * (1 - 1e-12) and isinstance(found.division, Division)
            assert not [each for each in mesh_violations(problem, found) if each.rule is not Rule.MEMORY]
            better, compared = better + (seconds < before * (1 - 1e-9)), compared + 1
            best += seconds <= min(every) * (1 + 1e-12)
    assert compared >= 8 and better >= 1 and best >= 0.9 * compared, (better, best, compared)


def test_pairs_left_out_change_nothing() -> None:
    """Only nodes of one type in different racks are exchanged; nodes of one rack leave every price as it is."""
    nodes = [CLUSTER["nodes"][0], {**CLUSTER["nodes"][1], "count": 4}]
    within = [{"nodes": held, "bandwidth_gbps": 100} for held in ([0, 1, 3], [2, 4])]
    racks = {"racks": within, "bandwidth_gbps": 10}
    cluster = {**CLUSTER, "nodes": nodes, "network": {**CLUSTER["network"], **racks}}
    problem = planned_problem(PlanRequest("gpt2-345m", cluster, global_batch=8, stack="flagscale"))
    assert exchangeable(problem) == [(1, 2), (1, 4), (2, 3), (3, 4)]
    rng, choices = np.random.default_rng(0), mesh_choices(problem)
    for k in rng.integers(len(choices), size=8).tolist():
        plan = random_plan(rng, problem, choices[k])
        seconds = mesh_step(problem, plan).total
        found, _ = with_exchanges(problem, plan, [(1, 3), (2, 4)], np.inf, str)
        assert mesh_step(problem, found).total == pytest.approx(seconds, rel=1e-12)


def test_limits_end_the_exchanges() -> None:
    """With no time left, or an incumbent that passes alone exceed, the plan is returned as it was."""
    problem = next(p for p in map(mesh_problem, range(50)) if exchangeable(p) and mesh_choices(p))
    plan = random_plan(np.random.default_rng(0), problem, mesh_choices(problem)[0])
    for incumbent, late in ((np.inf, "time"), (0.0, "")):
        found, _ = with_exchanges(problem, plan, exchangeable(problem), incumbent, late.strip)
        assert all(np.array_equal(a, b) for a, b in zip(found.devices, plan.devices, strict=True))
