r"""
Placement of a strategy as a quadratic assignment, and annealing by the step time from what it finds.

(1) The strategy's blocks and slots become a problem of Koopmans and Beckmann
    (``taut.formulations.assignment.placement_qap``), whose permutation and bound come from ``taut.solver.qap``.
(2) Where its tables are small enough CP-SAT solves a model of its own with that permutation as a hint and that bound
    (``taut.solver.qap.placement_model``).
(3) The quadratic cost is a sum where the step time has maxima, so its optimum is only a start: annealing goes on from
    it and from the constructed placements, and the step time decides between them. Where the problem has more than
    ``MOST_POSITIONS`` positions, (3) is all there is.

A position whose block spans several nodes is priced by the first of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.assignment.assignment import QuadraticAssignment
from taut.formulations.assignment.placement_qap import placement_assignment
from taut.formulations.placement import PlacementProblem
from taut.solver.placement.annealing.anneal import anneal_restarts, best_start
from taut.solver.placement.result import FoundPlacement
from taut.solver.qap.placement_model import MOST_ROWS, rows_of, solve_placement
from taut.solver.qap.quadratic import place
from taut.solver.result import Limits, relative_gap
from taut.solver.threads import Stopping, never

MOST_POSITIONS = 256
"""Positions up to which the assignment is posed: searches of two matrices with more take longer than annealing."""
SHARE = 0.5
"""Of the seconds for the quadratic assignment, those for ``taut.solver.qap``; the rest is CP-SAT's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticPlacement:
    """
    A placement by (1) to (3), with the figures of its quadratic assignment.

    ``slots`` is the slot of every position in the best permutation; ``cost`` and ``lower_bound`` are of the quadratic
    objective; ``seconds`` is the step time of that permutation, infinite where it breaks a rule; ``placed`` is the
    best placement by the step time; ``solver`` says who found the permutation.
    """

    problem: QuadraticAssignment
    slots: Ints
    cost: float
    lower_bound: float
    seconds: float
    placed: FoundPlacement
    solver: str

    @property
    def gap(self) -> float | None:
        """Relative gap of the quadratic objective."""
        return relative_gap(self.cost, self.lower_bound)


def anneal_from(
    given: PlacementProblem, starts: list[FoundPlacement], limits: Limits, stopping: Stopping = never
) -> FoundPlacement:
    """The best placement of annealing from several starts, (3), which ends early once ``stopping`` is true."""
    runs = [
        anneal_restarts(given, start, seed=limits.seed, workers=limits.workers, stopping=stopping) for start in starts
    ]
    return min(runs, key=lambda run: run.seconds)


def place_quadratic(
    given: PlacementProblem,
    patterns: tuple[int, ...],
    limits: Limits,
    seconds: float,
    known: Sequence[FoundPlacement] = (),
    stopping: Stopping = never,
) -> QuadraticPlacement | None:
    """
    Place a strategy, or None where there are too many positions, or only one.

    ``given``: the strategy to place; ``patterns``: by stage, the class of device it wants; ``seconds``: for the
    quadratic assignment; annealing takes its own; ``known``: further placements that annealing starts from;
    ``stopping``: ends annealing early once it is true.
    """
    if not 1 < len(given.slots) <= MOST_POSITIONS:
        return None
    assignment, start = placement_assignment(given), best_start(given, patterns)
    found = place(assignment, seed=limits.seed, time_limit=SHARE * seconds)
    slots, bound, solver = np.array(found.permutation), found.lower_bound, f"qap ({found.bound_source})"
    sites = given.slots[:, 0]
    if found.status != "optimal" and rows_of(assignment, sites) <= MOST_ROWS:
        left = max((1 - SHARE) * seconds, 0.1)
        answer = solve_placement(assignment, sites, slots, bound=max(bound, 0.0), time_limit=left, seed=limits.seed)
        bound = max(bound, answer.lower_bound)
        if assignment.cost(answer.slots) < assignment.cost(slots):
            slots, solver = answer.slots, "cp-sat"
    positions = given.slots[slots]
    allowed = not given.violations(positions)
    priced = FoundPlacement(seconds=given.cost(positions) if allowed else np.inf, positions=positions)
    starts = [start, *known, priced] if allowed else [start, *known]
    return QuadraticPlacement(
        problem=assignment,
        slots=slots,
        cost=assignment.cost(slots),
        lower_bound=bound,
        seconds=priced.seconds,
        placed=anneal_from(given, starts, limits, stopping),
        solver=solver,
    )
