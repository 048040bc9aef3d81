r"""
Plans whose replicas divide the batch unevenly, each on one type of device.

(1) The devices of a type make whole pipelines, in the order of the nodes: a node of g blocks holds s stages of g / s
    replicas, for every s that divides g, as in ``taut.solver.search.typed_layouts`` (2).
(2) The layers are divided as for the pipelines of each type in the bound (``taut.solver.bounds.uneven_batch``), and the
    micro-batches for the division and the devices (``taut.solver.batch_division``).
(3) From the best of these, boundaries are moved by a layer as long as the step gets shorter, the recomputes kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.degrees import divisors
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.batch_division import divide_batch
from taut.solver.result import Incumbent
from taut.solver.search.typed_layouts import devices_of_types, in_runs
from taut.solver.simple_plans import priced

MOST_MOVES = 8
"""Rounds of (3): the divisions of (2) are of the best pipelines, so that few boundaries move."""


def uneven_plans(problem: PlanningProblem, candidate: Candidate, divided: Iterable[Division]) -> Iterator[Incumbent]:
    """
    Plans of a candidate by (1) to (3), each better than the one before.

    Parameters
    ----------
    problem, candidate
        What is planned: a candidate whose batch is divided unevenly.
    divided
        Divisions of the layers within the memory of every type.
    """
    divisions, placed = list(dict.fromkeys(divided)), list(_layouts(problem, candidate))
    tried = [plan for division in divisions for devices in placed if (plan := _plan(problem, candidate, division, devices))]
    best = min(tried, key=lambda plan: plan.seconds, default=None)
    for _ in range(MOST_MOVES):
        if best is None:
            return
        yield best
        devices = best.devices
        moved = [_plan(problem, candidate, division, devices) for division in _moved(best.strategy.division)]
        better = [plan for plan in moved if plan is not None and plan.seconds < best.seconds]
        best = min(better, key=lambda plan: plan.seconds, default=None)


def _plan(problem: PlanningProblem, candidate: Candidate, division: Division, devices: Ints) -> Incumbent | None:
    """The plan with the best division of the batch, (2); None where it breaks a rule."""
    strategy = divide_batch(problem, Strategy(candidate=candidate, division=division), devices)
    return priced(problem, strategy, devices)


def _layouts(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Devices of all workers (pp, dp, width) by (1)."""
    blocks, width = max(int(problem.links.gpus_per_node.max()) // candidate.width, 1), candidate.width
    for run in divisors(blocks)[::-1]:
        found, first = np.empty((candidate.pp, candidate.dp, width), dtype=np.int64), 0
        for held in devices_of_types(problem):
            replicas = np.arange(first, first + len(held) // (candidate.pp * width))
            x, z = in_runs(np.arange(candidate.pp), replicas, run, blocks).T
            found[x, z] = held.reshape(-1, width)
            first += len(replicas)
        yield found


def _moved(division: Division) -> Iterator[Division]:
    """The division with one boundary moved by a layer, (3)."""
    ends = division.ends.tolist()
    for cut in range(len(ends) - 1):
        for step in (-1, 1):
            near = [*ends[:cut], ends[cut] + step, *ends[cut + 1 :]]
            if all(a < b for a, b in pairwise([0, *near])):
                yield replace(division, stages=tuple(pairwise([0, *near])))
