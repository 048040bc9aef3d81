r"""
Varuna's choice: pipelines and replicas alone, everything recomputed.

(1) No tensor parallelism: on commodity networks it is the traffic that hurts (section 2);
(2) every activation is recomputed in full (section 3.2), which is what makes deep pipelines of large models fit;
(3) pipelines of every depth P with D = devices / P replicas and every micro-batch are tried, and the quickest wins, as
    its simulator decides (section 4.4);
(4) even stages at its cut-points, and workers in rank order.

Its schedule, which fills bubbles as they come, is priced as the quicker of 1F1B and GPipe.

References
----------
S. Athlur et al., Varuna: scalable, low-cost training of massive deep learning models, EuroSys 2022.
"""

from taut.formulations.problem import PlanningProblem
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.methods.baselines.trials import plain_candidates, tried
from taut.solver.methods.outcome import Outcome
from taut.solver.result import Limits
from taut.solver.simple_plans import simple_plan


def varuna(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (4)."""
    chosen = [each for each in plain_candidates(problem) if each.tp == 1]
    plans = (simple_plan(problem, each, recompute="full") for each in chosen)
    return tried("varuna", plans, len(chosen), limits, progress)
