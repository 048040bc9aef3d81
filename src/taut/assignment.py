"""
Quadratic assignment problems: a QAPLIB file, two matrices, or the placement of one strategy.

A strategy is that of a plan, or of degrees that are stated. Its assignment's cost, the seconds of all transfers one
after the other, is a surrogate of the step time (``taut.formulations.placement``); both are reported,
each with its bound.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.data.arrays import Ints
from taut.data.readers.qaplib import qaplib_text, read_qaplib
from taut.errors import DataError, FieldError, InfeasibleError
from taut.files import write_atomically
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.placement import FoundPlacement, PlacementProblem, found_placement, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan, load_plan
from taut.planning.request import PlanRequest, check_search
from taut.planning.resolve import planning_problem
from taut.solver.branch_and_bound.stop import Listener, interrupt_requested
from taut.solver.certificate.document import by_replica, devices_of, problem_of, strategy_of
from taut.solver.ladder.computations import strongest
from taut.solver.ladder.ladder import Ladder
from taut.solver.methods.quadratic_placement import MOST_POSITIONS, SEARCHED, QuadraticPlacement, place_quadratic
from taut.solver.methods.strategy_choice import StrategyPool, best_strategy
from taut.solver.placement.group_spans import Spans, place_by_spans, spans_of
from taut.solver.qap.quadratic import AssignmentResult
from taut.solver.qap.quadratic import place as solve_assignment
from taut.solver.result import OPTIMALITY_GAP, Limits

Matrices = tuple[npt.ArrayLike, npt.ArrayLike]


def place(
    instance: QuadraticAssignment | Matrices | str | PathLike[str],
    *,
    time_limit: float | None = 10.0,
    seed: int = 0,
    progress: Listener | None = None,
) -> AssignmentResult:
    """
    Solve a quadratic assignment problem, with a lower bound.

    Parameters
    ----------
    instance
        Path of a QAPLIB file (``.dat``), a pair of matrices ``(flow, distance)``, both (n, n), or a
        ``QuadraticAssignment``.
    time_limit
        Seconds to search; None goes on to the proof or an interrupt.
    seed
        Seed of the search.
    progress
        Called with a ``Progress``: ``wall_s``, ``incumbent``, ``lower_bound``, and in ``doing`` its source.

    Returns
    -------
    AssignmentResult
        Objective, lower bound, gap, and the permutation: location of every item, counted from 0.

    Raises
    ------
    DataError
        If the file is wrong, or a limit is out of range.
    FormulationError
        If the matrices are not square, finite and of one size.

    Examples
    --------
    >>> import taut
    >>> flow, distance = [[0, 5, 2], [0, 0, 3], [0, 0, 0]], [[0, 8, 1], [8, 0, 4], [1, 4, 0]]
    >>> found = taut.place((flow, distance))
    >>> found.objective, found.lower_bound, found.permutation
    (33.0, 33.0, (0, 2, 1))
    """
    check_search(time_limit=time_limit, seed=seed)
    return solve_assignment(
        assignment_problem(instance),
        seed=seed,
        time_limit=math.inf if time_limit is None else time_limit,
        progress=progress,
    )


def assignment_problem(instance: QuadraticAssignment | Matrices | str | PathLike[str]) -> QuadraticAssignment:
    """The problem that a file or two matrices state; a ``DataError`` if the file is wrong, or this is no such pair."""
    if isinstance(instance, QuadraticAssignment):
        return instance
    if isinstance(instance, str | PathLike):
        read = read_qaplib(Path(instance))
        return QuadraticAssignment(flow=read.flow, distance=read.distance, name=read.name)
    if not (isinstance(instance, tuple | list) and len(instance) == 2):
        raise FieldError("instance", None, "expected a QAPLIB file or a pair of matrices, (flow, distance)")
    try:
        flow, distance = (np.asarray(matrix, dtype=np.float64) for matrix in instance)
    except (TypeError, ValueError) as error:
        raise FieldError("instance", None, f"expected two matrices of numbers ({error})") from None
    return QuadraticAssignment(flow=flow, distance=distance, name="given")


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
    seconds = math.inf if time_limit is None else time_limit
    with interrupt_requested() as asked:
        found = place_quadratic(given, patterns, limits, seconds, starts, asked)
    if found is None:
        count = f"{len(given.slots)} blocks of {strategy.candidate}"
        raise DataError(f"{count}, expected 2 to {MOST_POSITIONS} to place as a quadratic assignment")
    return _result(given, found, starts, perf_counter() - started)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanPlacement:
    """A strategy's blocks by the spans of its groups over leaf switches; ``known``: of the plan's own placement."""

    spans: Spans
    devices: Ints
    step_s: float
    known_s: float
    known: tuple[int, int]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        found = self.spans
        return {
            "replicas_span": found.replicas,
            "stages_span": found.stages,
            "objective": found.objective,
            "lower_bound": found.lower_bound,
            "step_time_s": self.step_s,
            "plan_step_time_s": self.known_s,
            "plan_spans": list(self.known),
            "devices": self.devices.tolist(),
        }


def place_by_leaves(
    plan: Plan | str | PathLike[str] | Mapping[str, Any], weight: float, *, time_limit: float = 10.0, seed: int = 0
) -> SpanPlacement:
    """Place a plan by the leaf switches (racks) of its groups (Arnold, 2025); ``weight``: that of replicas, 0 to 1."""
    check_search(time_limit=time_limit, seed=seed)
    if not 0 <= weight <= 1:
        raise FieldError("spans", f"{weight:g}", "expected a weight from 0 to 1")
    problem, strategy, devices = _of_plan(plan)
    given, candidate = placement_problem(problem, strategy), strategy.candidate
    racks = problem.cluster.network.racks if problem.cluster.network is not None else []
    leaf_of = np.full(problem.cluster.num_nodes, -1)
    for number, rack in enumerate(racks):
        leaf_of[rack.nodes] = number
    sites = leaf_of[given.links.node_of_site[given.slots]]
    if not racks or (leaf_of < 0).any() or (sites != sites[:, :1]).any():
        raise DataError(f"{problem.cluster.name}: expected racks that hold every node, and every block in one of them")
    leaves, leaf = np.unique(sites[:, 0], return_inverse=True)
    pp, dp = candidate.pp, candidate.pipelines
    spans = place_by_spans(pp, dp, np.bincount(leaf, minlength=len(leaves)), weight, time_limit=time_limit, seed=seed)
    # Positions go replica by replica; inside a leaf stages or replicas stand side by side.
    wanted, stage = spans.leaf.T.ravel(), np.tile(np.arange(pp), dp)
    replica, found = np.repeat(np.arange(dp), pp), list[Ints]()
    for first, second in ((stage, replica), (replica, stage)):
        slots = np.empty(len(leaf), dtype=np.int64)
        slots[np.lexsort((second, first, wanted))] = np.argsort(leaf, kind="stable")
        found.append(given.slots[slots])
    best = min(found, key=given.cost)
    own = found_placement(given, devices)
    where = leaf_of[given.links.node_of_site[own.positions[:, 0]]].reshape(dp, pp).T
    return SpanPlacement(
        spans=spans, devices=given.devices(best), step_s=given.cost(best), known_s=own.seconds, known=spans_of(where)
    )


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
        solver=SEARCHED,
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
