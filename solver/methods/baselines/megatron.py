r"""
Megatron-LM's rule: the least model parallelism that fits, tensor parallelism in the node first, then replicas.

(1) Tensor parallelism "should generally be used up to degree g when using g-GPU servers, and then pipeline parallelism"
    (section 3.2, takeaway 1): of pairs with one product the one with the largest tp within the node;
(2) "a total model-parallel size of M = t p should be used so that the model's parameters and intermediate metadata fit
    in GPU memory; data parallelism can be used to scale up training" (takeaway 2): the least product that fits;
(3) the micro-batch is the quickest one (takeaway 3);
(4) even stages, and workers in rank order.

References
----------
D. Narayanan et al., Efficient large-scale language model training on GPU clusters using Megatron-LM, SC 2021.
"""

from collections.abc import Iterator

from taut.formulations.problem import PlanningProblem
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.methods.baselines.trials import plain_candidates, quickest, tried
from taut.solver.methods.outcome import Outcome
from taut.solver.result import Incumbent, Limits
from taut.solver.simple_plans import simple_plan


def megatron(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (4)."""
    count = len(plain_candidates(problem))
    return tried("megatron", _by_degrees(problem), count, limits, progress, enough=lambda plan: True)


def _by_degrees(problem: PlanningProblem) -> Iterator[Incumbent | None]:
    """The quickest plan of every pair of degrees, in the order of (1) and (2)."""
    within = [each for each in plain_candidates(problem) if each.tp <= problem.links.gpus_per_node.max()]
    for _, _, pp, tp in sorted({(each.tp * each.pp, -each.tp, each.pp, each.tp) for each in within}):
        yield quickest(simple_plan(problem, each) for each in within if (each.pp, each.tp) == (pp, tp))
