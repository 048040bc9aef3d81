r"""
Pipette's procedure: every configuration that fits, each with its workers dedicated to devices by annealing.

For all (pp, tp, dp) with pp tp dp devices and every micro-batch that divides the mini-batch (algorithm 1):

(1) even stages; a configuration that does not fit the memory is left out (line 7);
(2) simulated annealing over the mapping of workers to devices, by the estimated latency (lines 9 to 15);
(3) the least latency of all wins.

The latency is the evaluator's, which under the latency model ``pipette`` is the paper's; the moves are those of
``taut.solver.placement.annealing.anneal``, the paper's three among them. The paper gives every configuration 10 s; here
each has ``MOVES`` moves, so that the same seed gives the same plan.

References
----------
J. Yim et al., Pipette: automatic fine-grained large language model training configurator for real-world clusters,
DATE 2024.
"""

from collections.abc import Iterator

from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.methods.baselines.trials import configurations, plain_candidates, quickest, tried
from taut.solver.methods.outcome import Outcome
from taut.solver.placement.annealing.anneal import MAX_LOOK_UPS, anneal, best_start, move_cost
from taut.solver.result import Incumbent, Limits
from taut.solver.simple_plans import priced, simple_plan

MOVES = 20_000
"""Of annealing for a configuration: about what the paper's program makes in half a second."""


def pipette(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (3)."""
    count = len(plain_candidates(problem))
    return tried("pipette", _dedicated(problem, limits), count, limits, progress)


def _dedicated(problem: PlanningProblem, limits: Limits) -> Iterator[Incumbent | None]:
    """The plan of every configuration before and after (2)."""
    for _, group in configurations(plain_candidates(problem)):
        plan = quickest(simple_plan(problem, each) for each in group)
        yield plan
        if plan is not None and plan.strategy.candidate.pp > 1:
            given = placement_problem(problem, plan.strategy)
            start = best_start(given, (0,) * given.candidate.pp)
            moves = min(MOVES, MAX_LOOK_UPS // move_cost(given))
            found = anneal(given, start, moves=moves, seed=limits.seed)
            yield priced(problem, plan.strategy, given.devices(found.positions))
