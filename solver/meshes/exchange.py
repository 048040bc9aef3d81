r"""
Exchanges of nodes: other places of the same ranks, by steepest descent.

An order of ranks (``taut.solver.meshes.search`` (2)) goes over the nodes of a type in some order, which a launcher's
list of hosts states. Nodes of one type with as many devices may be exchanged in it.

(1) Exchanges of two nodes whose sites have the same links to all others change nothing and are left out.
(2) Exchanges are tried in turn, and kept where the step takes less, until none does or ``MOST_PRICED`` were tried.
(3) No exchange helps a plan whose passes and optimizer alone take as long as the incumbent: it changes hops and
    reductions, and traffic inside nodes only where nodes of one type differ.

The bound does not depend on places, so it holds as before.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from taut.formulations.meshes.step_time import MeshPlan, mesh_step
from taut.formulations.problem import PlanningProblem

MOST_PRICED = 400
"""Exchanges that are tried of one plan: half a second; all pairs of 28 nodes."""


class Placed(NamedTuple):
    """A plan and its seconds."""

    plan: MeshPlan
    seconds: float


def exchangeable(problem: PlanningProblem) -> list[tuple[int, int]]:
    """Pairs of nodes of one type and size whose exchange changes some link, (1)."""
    links, found = problem.links, list[tuple[int, int]]()
    blocks = links.rate.blocks.of, links.latency.blocks.of
    for a, b in combinations(range(links.num_nodes), 2):
        like = problem.type_of_node[a] == problem.type_of_node[b] and links.gpus_per_node[a] == links.gpus_per_node[b]
        same = links.by_node and all(of[a] == of[b] for of in blocks)
        if like and not same:
            found.append((a, b))
    return found


def with_exchanges(
    problem: PlanningProblem,
    plan: MeshPlan,
    pairs: list[tuple[int, int]],
    incumbent: float,
    late: Callable[[], object],
) -> Placed:
    """
    The best plan that exchanges of nodes come by, and its seconds, (2) and (3).

    ``problem``, ``plan``: what is planned, and the plan to begin with; ``pairs``: nodes that may be exchanged;
    ``incumbent``: seconds of the best plan known, infinite without one; ``late``: tells whether a limit was reached.
    """
    step, tried = mesh_step(problem, plan), 0
    seconds, better = step.total, bool(pairs)
    if step.passes + step.optimizer + step.constant >= incumbent:
        return Placed(plan, seconds)
    while better:
        better = False
        for a, b in pairs:
            if tried >= MOST_PRICED or late():
                return Placed(plan, seconds)
            tried += 1
            other = _exchanged(problem, plan, a, b)
            if (found := mesh_step(problem, other).total) < seconds:
                plan, seconds, better = other, found, True
    return Placed(plan, seconds)


def _exchanged(problem: PlanningProblem, plan: MeshPlan, a: int, b: int) -> MeshPlan:
    """The plan with the devices of two nodes exchanged."""
    place = np.arange(len(problem.links.node_of))
    own, others = (np.flatnonzero(problem.links.node_of == node) for node in (a, b))
    place[own], place[others] = others, own
    return replace(plan, devices=tuple(place[devices] for devices in plan.devices))
