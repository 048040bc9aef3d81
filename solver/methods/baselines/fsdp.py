r"""
Fully sharded data parallelism alone.

(1) One stage, no tensor or context ranks, and weights, gradients and optimizer states sharded over the replicas:
    ZeRO-3;
(2) all replicas share one copy, or groups of them where the space has hybrid sharding;
(3) the quickest micro-batch, recompute and group that fit.

References
----------
Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB 2023. S. Rajbhandari et al.,
ZeRO: memory optimizations toward training trillion parameter models, SC 2020.
"""

from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.methods.baselines.trials import tried
from taut.solver.methods.outcome import Outcome
from taut.solver.result import Limits
from taut.solver.simple_plans import simple_plan


def fsdp(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (3)."""
    chosen = [each for each in problem.candidates if _is_sharded(each)]
    return tried("fsdp", (simple_plan(problem, each) for each in chosen), len(chosen), limits, progress)


def _is_sharded(candidate: Candidate) -> bool:
    """Whether a candidate is (1); a single replica has nothing to share."""
    alone = candidate.pp == candidate.width == 1
    return alone and (candidate.zero == 3 or candidate.dp == 1)
