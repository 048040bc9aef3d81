r"""
Micro-batches of every replica where these divide the batch unevenly.

Given division and devices, replica z with m micro-batches keeps the step waiting for

(1) :math:`T_z(m) = \max_x (end[x, z] + R_x)`, and what follows its holders of a tied embedding: its pipeline, which
    rises with m, and what comes after that for all m alike (``taut.formulations.latency`` (3) to (5)).
(2) The step is the least for :math:`m_z \ge 1, \sum_z m_z = dp\,m` with the least :math:`\max_z T_z(m_z)`. As each
    :math:`T_z` rises, it is found by one micro-batch after the other for the replica that would end first with it.

``T_pipe`` is linear in m below pp and above it, where the trips through the pipeline are paid more than once, so three
prices give all others.

References
----------
Jia et al. (2022), Whale: section 4.1, the batch of replicas on different devices by their speed. Federgruen and
Groenevelt (1986), The greedy procedure for resource allocation problems: (2).
"""

import heapq
from dataclasses import replace

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import end_of_step
from taut.formulations.latency import closed_pipelines
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy


def divide_batch(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Strategy:
    """
    The strategy with the micro-batches of every replica that make its step the shortest, (2).

    ``problem``, ``strategy``: what is planned: a candidate whose batch is divided unevenly, and its division of the
    layers; ``devices``: device of every worker (pp, dp, width).
    """
    candidate = strategy.candidate
    at = {m: _seconds(problem, strategy, devices, m) for m in (1, candidate.pp, candidate.pp + 1)}
    first, knee, beyond = (at[m] for m in (1, candidate.pp, candidate.pp + 1))
    below, above = (knee - first) / max(candidate.pp - 1, 1), beyond - knee

    def seconds(z: int, m: int) -> float:
        more = max(m - candidate.pp, 0)
        return float(first[z] + (m - 1 - more) * below[z] + more * above[z])

    counts = [1] * candidate.dp
    heap = [(seconds(z, 2), z) for z in range(candidate.dp)]
    heapq.heapify(heap)
    for _ in range(candidate.dp * (candidate.num_micro_batches - 1)):
        z = heap[0][1]
        counts[z] += 1
        heapq.heapreplace(heap, (seconds(z, counts[z] + 1), z))
    return replace(strategy, micro_batches=tuple(counts))


def _seconds(problem: PlanningProblem, strategy: Strategy, devices: Ints, m: int) -> Floats:
    """T_z of every replica if all had so many micro-batches (dp,), (1)."""
    dp = strategy.candidate.dp
    given = replace(strategy, micro_batches=(m,) * dp)
    found = closed_pipelines(problem, given, devices)
    alone = np.where(np.eye(dp, dtype=bool)[:, None], found.ends, -np.inf)
    return end_of_step(problem, given, devices, alone, found.backward)
