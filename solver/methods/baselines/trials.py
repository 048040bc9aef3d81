r"""
What the baselines share: the configurations they choose from, and the best of the plans they try.

Random search says what chance finds in as many trials:

(1) A candidate, each as likely; (2) cuts between the layers, each set of them as likely; (3) one recompute for all
stages; (4) blocks on slots in an order that is drawn, each as likely.

``SAMPLES`` plans are drawn unless a work limit says how many; the same seed draws the same plans.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from taut.data.costs import RECOMPUTE
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.branch_and_bound.stop import Stop
from taut.solver.methods.named import Outcome
from taut.solver.result import Incumbent, Limits
from taut.solver.signals import cut_short
from taut.solver.simple_plans import priced


class Configuration(NamedTuple):
    """Degrees and micro-batch: what the papers vary."""

    pp: int
    tp: int
    dp: int
    micro_batch: int


def plain_candidates(problem: PlanningProblem) -> list[Candidate]:
    """Candidates that the papers know: 1F1B or GPipe, without context ranks and without sharded weights."""
    return [each for each in problem.closed_forms if each.of_tensor_groups and each.zero <= 1]


def configurations(candidates: Iterable[Candidate]) -> Iterator[tuple[Configuration, list[Candidate]]]:
    """Candidates by configuration, in ascending order."""
    for key, group in groupby(sorted(candidates, key=lambda each: (configuration(each), each)), key=configuration):
        yield key, list(group)


def configuration(candidate: Candidate) -> Configuration:
    """Degrees and micro-batch of a candidate."""
    return Configuration(candidate.pp, candidate.tp, candidate.dp, candidate.micro_batch)


def quickest(plans: Iterable[Incumbent | None]) -> Incumbent | None:
    """The plan of least seconds, the first of equal ones; None where there is none."""
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.seconds, default=None)


def tried(
    name: str,
    plans: Iterator[Incumbent | None],
    candidates: int,
    limits: Limits,
    progress: Listener | None = None,
    *,
    enough: Callable[[Incumbent], bool] = lambda plan: False,
) -> Outcome:
    """The quickest of plans, None for one that breaks a rule, until the time limit or a plan that is ``enough``."""
    best, is_cut_off = None, True
    with Stop(limits) as stop, cut_short():
        for plan in plans:
            taken = stop.seconds
            if plan is not None and (best is None or plan.seconds < best.seconds):
                best = plan
                if progress is not None:
                    progress(Progress(taken, best.seconds, -math.inf, f"{name}: {plan.strategy.candidate}"))
            if best is not None and enough(best):
                is_cut_off = False
                break
            if stop():
                break
        else:
            is_cut_off = False
    return Outcome(method=name, incumbent=best, candidates=candidates, wall_s=stop.seconds, is_cut_off=is_cut_off)


SAMPLES = 1000


def random_search(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (4)."""
    chosen = problem.closed_forms
    return tried("random", _drawn(problem, chosen, limits), len(chosen), limits, progress)


def _drawn(problem: PlanningProblem, candidates: list[Candidate], limits: Limits) -> Iterator[Incumbent | None]:
    """The plans that are drawn."""
    rng = np.random.default_rng(limits.seed)
    for _ in range((limits.work_limit or SAMPLES) if candidates else 0):
        strategy = _strategy(problem, candidates[rng.integers(len(candidates))], rng)
        given = placement_problem(problem, strategy)
        yield priced(problem, strategy, given.devices(given.slots[rng.permutation(len(given.slots))]))


def _strategy(problem: PlanningProblem, candidate: Candidate, rng: np.random.Generator) -> Strategy:
    layers, names = len(problem.model.blocks), problem.recompute_of(candidate)
    cuts = np.sort(rng.choice(np.arange(1, layers), candidate.pp - 1, replace=False))
    recompute = RECOMPUTE.index(names[rng.integers(len(names))])
    ends = np.append(cuts, layers)
    return Strategy(candidate=candidate, division=Division.of_ends(ends, np.full(candidate.pp, recompute)))
