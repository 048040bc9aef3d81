r"""
What the papers' latency models wait for after the pipeline: one reduction of gradients.

They price the hierarchical ring of ``taut.formulations.gradient_reductions`` (1) on stage 0 alone, or on the slowest
stage by one flat ring (AMP), after the end of the pipeline.

References
----------
Yim et al. (2024), Pipette, eq. 6. Li et al. (2022), AMP, eq. 3.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import by_device, hierarchical_ring
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_factor, ring_steps
from taut.formulations.strategy import Strategy


def data_parallel_in_papers(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Floats:
    """
    T_DP of the papers' models: stage 0's, or in ``amp`` the slowest stage's flat ring.

    ``devices``: device of every worker, (..., pp, dp, tp). Returns seconds (...).
    """
    if strategy.candidate.dp == 1:
        return np.zeros(devices.shape[:-3])
    gradients = by_device(strategy, problem.gradient_bytes(strategy.candidate))
    if problem.latency_model != "amp":
        return float(gradients[0]) * hierarchical_ring(problem, devices[..., 0, :, :])
    rings = [_flat(problem, devices[..., x, :, :], float(message)) for x, message in enumerate(gradients)]
    return np.asarray(np.max(rings, axis=0))


def _flat(problem: PlanningProblem, group: Ints, message: float) -> Floats:
    """One ring over the slowest link of the group, as AMP prices it; its coefficient scales latencies as well."""
    links, weight = problem.links, problem.coefficient("data_parallel")
    sites = links.site_of[np.swapaxes(group, -1, -2)]
    pairs = sites[..., :, None], sites[..., None, :]
    apart = ~np.eye(sites.shape[-1], dtype=bool)
    inverse = np.where(apart, 1.0 / links.data_rate[pairs], 0.0).max(axis=(-1, -2))
    latency = np.where(apart, links.latency[pairs], 0.0).max(axis=(-1, -2))
    n = sites.shape[-1]
    return np.asarray((ring_factor(n) * message * inverse + weight * ring_steps(n) * latency).max(axis=-1))
