r"""
Plans on devices of several types: stages on devices of one type, layers by the speed of each stage's own devices.

The bound ``partition`` knows two classes of device and lets a pipeline take the fastest replica of every stage, so its
divisions may place badly. Here the devices come first:

(1) devices stand type by type (``taut.solver.search.typed_layouts``);
(2) given devices, a stage takes as long as its slowest type does, with the cheapest recompute that fits every type it
    is on, and the layers are divided exactly (``taut.solver.layer_division.known_devices``);
(3) annealing moves blocks, (2) divides again for where they are now, and so on for ``ROUNDS`` rounds.

Where one recompute holds for all stages the candidate states it.
"""

from collections.abc import Iterator

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.divisions import stated_ranges
from taut.formulations.least_traffic import seconds_within
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.layer_division.known_devices import divide
from taut.solver.placement.annealing.anneal import anneal_restarts
from taut.solver.placement.result import found_placement
from taut.solver.result import Incumbent, Limits
from taut.solver.search.typed_layouts import layouts
from taut.solver.simple_plans import priced
from taut.solver.threads import Stopping, never

ROUNDS = 3
"""Of (3); later ones seldom change the division."""


def typed_plans(
    problem: PlanningProblem, candidate: Candidate, limits: Limits, stopping: Stopping = never
) -> Iterator[Incumbent]:
    """
    Plans of a candidate by (1) to (3), the best of each step.

    ``problem``, ``candidate``: what is planned, on several types of device; ``limits``: seed and threads of the
    annealing; ``stopping``: ends the annealing early once it is true.
    """
    divided = _Divisions(problem, candidate)
    laid_out = (divided.plan(devices) for devices in layouts(problem, candidate))
    best = min((plan for plan in laid_out if plan is not None), key=lambda plan: plan.seconds, default=None)
    for _ in range(ROUNDS if best is not None else 0):
        assert best is not None
        yield best
        given = placement_problem(problem, best.strategy)
        start = found_placement(given, best.devices)
        runs = anneal_restarts(given, start, seed=limits.seed, workers=limits.workers, stopping=stopping)
        moved = priced(problem, best.strategy, given.devices(runs.positions))
        again = None if moved is None else divided.plan(moved.devices)
        better = [plan for plan in (moved, again) if plan is not None and plan.seconds < best.seconds]
        if not better:
            return
        best = min(better, key=lambda plan: plan.seconds)
        yield best


class _Divisions:
    """The layers of a candidate divided for the types of device that every stage is on, (2), each once."""

    def __init__(self, problem: PlanningProblem, candidate: Candidate) -> None:
        self._problem, self._candidate, self._memory = problem, candidate, problem.stage_memory(candidate)
        allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
        seconds = problem.tables(candidate).seconds + seconds_within(problem, candidate).both
        # Of every range by type and recompute, infinite where it is not allowed, (types, recompute, L+1, L+1).
        self._seconds = np.where(allowed[None, :, None, None], seconds, np.inf)
        self._stated = stated_ranges(problem.families(candidate), seconds.shape[-1] - 1)
        self._known: dict[bytes, Division | None] = {}

    def plan(self, devices: Ints) -> Incumbent | None:
        """The plan with the layers divided for the devices; None where nothing fits or the devices break a rule."""
        kinds = self._problem.type_of_node[self._problem.links.node_of[devices]]
        of_stage = np.stack([(kinds == kind).any(axis=(1, 2)) for kind in range(len(self._problem.device_types))])
        key = of_stage.tobytes()
        if key not in self._known:
            self._known[key] = self._divided(of_stage)
        division = self._known[key]
        return (
            None
            if division is None
            else priced(self._problem, Strategy(candidate=self._candidate, division=division), devices)
        )

    def _divided(self, of_stage: Flags) -> Division | None:
        """The division for the types of every stage (types, pp)."""
        memory, chosen, recompute = self._memory, [], []
        for x, types in enumerate(of_stage.T):
            fits = memory.need(x) <= memory.budget[types].min()
            slowest = np.where(fits, self._seconds[types].max(axis=0), np.inf)
            recompute.append(slowest.argmin(axis=0))
            chosen.append(slowest.min(axis=0))
        transfers = np.zeros((len(chosen) - 1, self._seconds.shape[-1]))
        by_stage = np.stack(chosen) if self._stated is None else np.where(self._stated, np.stack(chosen), np.inf)
        ends = divide(by_stage, transfers, self._candidate.num_micro_batches)
        if ends is None:
            return None
        starts = np.concatenate([[0], ends[:-1]])
        kept = np.array([recompute[x][i, j] for x, (i, j) in enumerate(zip(starts, ends, strict=True))])
        return Division.of_ends(ends, kept)
