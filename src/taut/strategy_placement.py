"""
The placement of one strategy as a quadratic assignment: of a plan, or of degrees that are stated.

The assignment's cost, the seconds of all transfers one after the other, is a surrogate of the step time
(``taut.formulations.placement``); both are reported, each with its bound.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

from taut.data.arrays import Ints
from taut.data.readers.qaplib import qaplib_text
from taut.errors import DataError, InfeasibleError
from taut.files import write_atomically
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.placement import PlacementProblem, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan, load_plan
from taut.planning.request import PlanRequest, check_search
from taut.planning.resolve import planning_problem
from taut.solver.certificate.document import by_replica, devices_of, problem_of, strategy_of
from taut.solver.ladder.computations import strongest
from taut.solver.ladder.ladder import Ladder
from taut.solver.methods.quadratic_placement import MOST_POSITIONS, QuadraticPlacement, place_quadratic
from taut.solver.methods.strategy_choice import StrategyPool, best_strategy
from taut.solver.placement.result import FoundPlacement, found_placement
from taut.solver.result import OPTIMALITY_GAP, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyPlacement:
    """
    A strategy's blocks on slots.

    Parameters
    ----------
    strategy
        What is placed.
    instance
        The quadratic assignment: bytes of a step between blocks, seconds per byte between slots.
    objective, lower_bound, gap
        Of the quadratic objective, in seconds.
    solver, bound_by
        Who found the permutation, and who proved the bound.
    permutation
        Slot of every block (replica by replica, stage by stage), from 0.
    step_s
        Step time of the permutation, infinite where it breaks a rule.
    annealed_s, devices
        Step time of the best placement that annealing finds from there and from others, and its devices.
    known_s
        Step time of the plan's own placement; None without a plan.
    step_bound_s
        Seconds that no placement of the candidate beats.
    wall_s
        Seconds that it took.
    """

    strategy: Strategy
    instance: QuadraticAssignment
    objective: float
    lower_bound: float
    gap: float | None
    solver: str
    bound_by: str
    permutation: tuple[int, ...]
    step_s: float
    annealed_s: float
    devices: Ints
    known_s: float | None
    step_bound_s: float
    wall_s: float

    @property
    def status(self) -> str:
        """``optimal`` where the quadratic gap is closed."""
        return "optimal" if self.gap is not None and self.gap <= OPTIMALITY_GAP else "feasible"

    def write(self, path: str | PathLike[str]) -> None:
        """Write the instance in QAPLIB's format, whole or not at all."""
        write_atomically(Path(path), qaplib_text(self.instance.flow, self.instance.distance))

    def as_dict(self) -> dict[str, Any]:
        """Plain values; unknown figures are None."""
        return {
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "source": self.solver,
            "bound_by": self.bound_by,
            "status": self.status,
            "permutation": list(self.permutation),
            "step_time_s": self.step_s if math.isfinite(self.step_s) else None,
            "annealed_step_time_s": self.annealed_s,
            "plan_step_time_s": self.known_s,
            "step_lower_bound_s": self.step_bound_s if math.isfinite(self.step_bound_s) else None,
            "strategy": self.strategy.candidate.as_dict(),
            "devices": by_replica(self.strategy.candidate, self.devices).tolist(),
            "wall_s": self.wall_s,
        }


def place_strategy(
    subject: Plan | PlanRequest | str | PathLike[str] | Mapping[str, Any],
    *,
    time_limit: float | None = 10.0,
    seed: int = 0,
) -> StrategyPlacement:
    """
    Place a strategy as a quadratic assignment, and anneal from there by the step time.

    Parameters
    ----------
    subject
        A plan, its file or its values, whose strategy is kept; or a request, whose best strategy is taken, as CP-SAT
        finds it among the candidates that hold what the request fixes.
    time_limit
        Seconds for the assignment, None for no limit; annealing takes its own.
    seed
        Of searches.

    Raises
    ------
    DataError
        If there is nothing to place, or more than ``MOST_POSITIONS`` blocks.
    InfeasibleError
        If no strategy of the request fits.

    Examples
    --------
    >>> import taut
    >>> request = taut.PlanRequest("gpt-1.1b", "dgx-a100:2", global_batch=64, fix={"tp": 4, "pp": 2, "micro_batch": 1})
    >>> found = taut.place_strategy(request)
    >>> sorted(found.permutation), found.status
    ([0, 1, 2, 3], 'optimal')
    """
    check_search(time_limit=time_limit, seed=seed)
    started, limits = perf_counter(), Limits(seed=seed)
    if isinstance(subject, PlanRequest):
        problem = planning_problem(subject)
        strategy, patterns, known = *_chosen(problem, seed), None
    else:
        problem, strategy, known = _of_plan(subject)
        patterns = (0,) * strategy.candidate.pp
    if strategy.micro_batches:
        raise DataError("the replicas of the plan divide the batch unevenly, expected an even batch to place")
    given = placement_problem(problem, strategy)
    starts = [] if known is None else [found_placement(given, known)]
    found = place_quadratic(given, patterns, limits, math.inf if time_limit is None else time_limit, starts)
    if found is None:
        count = f"{len(given.slots)} blocks of {strategy.candidate}"
        raise DataError(f"{count}, expected 2 to {MOST_POSITIONS} to place as a quadratic assignment")
    return _result(given, found, starts, perf_counter() - started)


def _result(
    given: PlacementProblem, found: QuadraticPlacement, starts: list[FoundPlacement], seconds: float
) -> StrategyPlacement:
    candidate = given.candidate
    return StrategyPlacement(
        strategy=given.strategy,
        instance=found.assignment.problem,
        objective=found.assignment.cost,
        lower_bound=found.assignment.lower_bound,
        gap=found.assignment.gap,
        solver=found.assignment.permutation_by,
        bound_by=found.assignment.bound_by,
        permutation=tuple(found.assignment.slots.tolist()),
        step_s=found.seconds,
        annealed_s=given.cost(found.placed.positions),
        devices=given.devices(found.placed.positions),
        known_s=starts[0].seconds if starts else None,
        step_bound_s=strongest(Ladder(given.problem), candidate).seconds,
        wall_s=seconds,
    )


def _of_plan(subject: Plan | str | PathLike[str] | Mapping[str, Any]) -> tuple[PlanningProblem, Strategy, Ints]:
    """Problem, strategy and devices of a plan."""
    if isinstance(subject, Mapping):
        subject = Plan(dict(subject))
    plan = subject if isinstance(subject, Plan) else load_plan(Path(subject))
    problem, strategy = problem_of(plan.typed, plan.source), strategy_of(plan.typed.strategy, plan.source)
    return problem, strategy, devices_of(plan.typed, plan.source)


def _chosen(problem: PlanningProblem, seed: int) -> tuple[Strategy, tuple[int, ...]]:
    """The best strategy of a problem, and the class of device that every stage wants."""
    from taut.solver.program.cp_sat import solve_cpsat

    candidates = [each for each in problem.closed_forms if not each.pipelines_by_type]
    choice = best_strategy(StrategyPool(Ladder(problem), candidates), solve_cpsat, seed=seed)
    if choice.strategy is None:
        raise InfeasibleError("no strategy with these values fits the memory", {})
    return choice.strategy, choice.patterns
