r"""
Placement as a quadratic assignment: traffic between workers times distance between devices.

Items are the workers (x, z, y), numbered :math:`(x \cdot dp + z) \cdot tp + y`; locations are the devices.
Flow, in bytes per step from one worker to another:

(1) pipeline: m times the message from (x, z, y) to (x + 1, z, y), and as much back;
(2) data parallelism: :math:`2 (dp - 1)/dp` of the stage's gradients from (x, z, y) to (x, z + 1 mod dp, y);
(3) tensor parallelism: :math:`2 (tp - 1)/tp` of the stage's all-reduced bytes, m times, from (x, z, y) to
    (x, z, y + 1 mod tp).

Distance is 1/bandwidth in seconds per byte. The cost is the seconds of all transfers one after the other: a surrogate
of the step time, which pays the slowest pipeline and the slowest ring (``taut.formulations.placement``), in the form
that quadratic-assignment solvers and bounds take.
"""

import numpy as np

from taut.data.arrays import Floats
from taut.data.costs import RECOMPUTE
from taut.formulations.assignment.assignment import QuadraticAssignment
from taut.formulations.links import Links
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_factor
from taut.formulations.strategy import Strategy


def placement_assignment(problem: PlanningProblem, strategy: Strategy) -> QuadraticAssignment:
    """The quadratic assignment of a strategy's workers to the cluster's devices."""
    return QuadraticAssignment(
        flow=worker_flow(problem, strategy),
        distance=device_distance(problem.links),
        name=f"{problem.model.name} on {problem.cluster.name}",
    )


def worker_flow(problem: PlanningProblem, strategy: Strategy) -> Floats:
    """Bytes a step from every worker to every other, (workers, workers), (1) to (3)."""
    candidate, tables = strategy.candidate, problem.tables(strategy.candidate)
    pp, dp, tp, m = candidate.pp, candidate.dp, candidate.tp, candidate.num_micro_batches
    worker = np.arange(pp * dp * tp).reshape(pp, dp, tp)
    flow = np.zeros((worker.size, worker.size))
    gradients = problem.gradient_bytes(candidate)
    for x, ((first, end), recompute) in enumerate(zip(strategy.stages, strategy.recompute, strict=True)):
        if x < pp - 1:
            sent = m * tables.message[end]
            flow[worker[x], worker[x + 1]] += sent
            flow[worker[x + 1], worker[x]] += sent
        if dp > 1:
            flow[worker[x], np.roll(worker[x], -1, axis=0)] += ring_factor(dp) * gradients[first, end]
        if tp > 1:
            volume = m * tables.volume[RECOMPUTE.index(recompute), first, end]
            flow[worker[x], np.roll(worker[x], -1, axis=1)] += ring_factor(tp) * volume
    return flow


def device_distance(links: Links) -> Floats:
    """Seconds per byte from every device to every other, (devices, devices), zero on the diagonal."""
    distance = 1.0 / links.rate[np.ix_(links.site_of, links.site_of)]
    np.fill_diagonal(distance, 0.0)
    return np.asarray(distance)
