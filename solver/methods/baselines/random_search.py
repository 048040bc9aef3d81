r"""
Random search: what chance finds in as many trials.

(1) A candidate, each as likely; (2) cuts between the layers, each set of them as likely; (3) one recompute for all
stages; (4) blocks on slots in an order that is drawn, each as likely.

``SAMPLES`` plans are drawn unless a work limit says how many; the same seed draws the same plans.
"""

from collections.abc import Iterator

import numpy as np

from taut.data.costs import RECOMPUTE
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.methods.baselines.trials import tried
from taut.solver.methods.outcome import Outcome
from taut.solver.result import Incumbent, Limits
from taut.solver.simple_plans import priced

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
