r"""
Plans on unlike devices: stages on devices of one type, layers by the speed of each stage's own devices.

The bound ``partition`` knows two classes of device and lets a pipeline take the fastest replica of every stage, so its
divisions may place badly. Here the devices come first:

(1) devices stand in rank order, one type in a row before, between or after the stages of the others, which stand in any
    order: a slow type goes well where neither embedding nor head is;
(2) given devices, a stage takes as long as its slowest type does, with the cheapest recompute that fits every type it
    is on, and the layers are divided exactly (``taut.solver.stage_division``);
(3) annealing moves blocks, (2) divides again for where they are now, and so on for ``ROUNDS`` rounds.

Where one recompute holds for all stages the candidate states it.
"""

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.partition import seconds_within
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.placement.annealing.anneal import anneal_restarts
from taut.solver.placement.result import found_placement
from taut.solver.result import Incumbent, Limits
from taut.solver.simple_plans import priced
from taut.solver.stage_division import divide
from taut.solver.threads import Stopping, never

MOST_LAYOUTS = 36
"""Layouts (1) of a candidate that are tried, each some hundredths of a second: all of two types on 17 stages."""
ROUNDS = 3
"""Of (3); later ones seldom change the division."""


def typed_plans(
    problem: PlanningProblem, candidate: Candidate, limits: Limits, stopping: Stopping = never
) -> Iterator[Incumbent]:
    """
    Plans of a candidate by (1) to (3), the best of each step.

    Parameters
    ----------
    problem, candidate
        What is planned, on several types of device.
    limits
        Seed and threads of the annealing.
    stopping
        Ends the annealing early once it is true.
    """
    seconds = _of_types(problem, candidate)
    laid_out = (_divided(problem, candidate, devices, seconds) for devices in _layouts(problem, candidate))
    best = min((plan for plan in laid_out if plan is not None), key=lambda plan: plan.seconds, default=None)
    for _ in range(ROUNDS if best is not None else 0):
        assert best is not None
        yield best
        given = placement_problem(problem, best.strategy)
        start = found_placement(given, best.devices)
        runs = anneal_restarts(given, start, seed=limits.seed, workers=limits.workers, stopping=stopping)
        moved = priced(problem, best.strategy, given.devices(runs.positions))
        again = None if moved is None else _divided(problem, candidate, moved.devices, seconds)
        better = [plan for plan in (moved, again) if plan is not None and plan.seconds < best.seconds]
        if not better:
            return
        best = min(better, key=lambda plan: plan.seconds)
        yield best


def _layouts(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Devices of all workers by (1), each layout once."""
    type_of, share = problem.type_of_node[problem.links.node_of], candidate.pipelines * candidate.width
    held = [np.flatnonzero(type_of == kind) for kind in range(len(problem.device_types))]
    seen: set[bytes] = set()
    for kind in range(len(held)):
        for order in permutations(other for other in range(len(held)) if other != kind):
            others = np.concatenate([held[other] for other in order])
            for cut in range(0, len(others) + 1, share):
                every = np.concatenate([others[:cut], held[kind], others[cut:]])
                if every.tobytes() not in seen and len(seen) < MOST_LAYOUTS:
                    seen.add(every.tobytes())
                    yield every.reshape(candidate.pp, candidate.pipelines, candidate.width)


def _of_types(problem: PlanningProblem, candidate: Candidate) -> Floats:
    """Seconds of every range by type and recompute, infinite where it is not allowed, (types, recompute, L+1, L+1)."""
    allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
    seconds = problem.tables(candidate).seconds + seconds_within(problem, candidate).both
    return np.where(allowed[None, :, None, None], seconds, np.inf)


def _divided(problem: PlanningProblem, candidate: Candidate, devices: Ints, seconds: Floats) -> Incumbent | None:
    """The plan with the layers divided for the devices, (2); None where nothing fits or the devices break a rule."""
    memory, kinds = problem.stage_memory(candidate), problem.type_of_node[problem.links.node_of[devices]]
    chosen, recompute = [], []
    for x in range(candidate.pp):
        types = np.unique(kinds[x])
        fits = memory.fixed + memory.in_flight[x] * memory.activation <= memory.budget[types].min()
        slowest = np.where(fits, seconds[types].max(axis=0), np.inf)
        recompute.append(slowest.argmin(axis=0))
        chosen.append(slowest.min(axis=0))
    transfers = np.zeros((candidate.pp - 1, seconds.shape[-1]))
    ends = divide(np.stack(chosen), transfers, candidate.num_micro_batches)
    if ends is None:
        return None
    starts = np.concatenate([[0], ends[:-1]])
    kept = np.array([recompute[x][i, j] for x, (i, j) in enumerate(zip(starts, ends, strict=True))])
    return priced(problem, Strategy(candidate=candidate, division=Division.of_ends(ends, kept)), devices)
