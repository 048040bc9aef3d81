r"""
Plans whose replicas divide the batch unevenly, each on one type of device.

(1) The devices of a type make whole pipelines, in the order of the nodes: a node of g blocks holds s stages of g / s
    replicas, for every s that divides g, as in ``taut.solver.search.typed_plans`` (5).
(2) The layers are divided as for the pipelines of each type in the bound (``taut.solver.bounds.pipelines_by_type``),
    and the micro-batches for the division and the devices.
(3) From the best of these, as long as the step gets shorter, a boundary is moved by a layer, the recompute of a stage
    is another one, or two blocks of one type change places.

Given division and devices, replica z with m
micro-batches keeps the step waiting for

(4) :math:`T_z(m) = \max_x (end[x, z] + R_x)`, and what follows its holders of a tied embedding: its pipeline, which
    rises with m, and what comes after that for all m alike (``taut.formulations.latency`` (3) to (5)).
(5) The step is the least for :math:`m_z \ge 1, \sum_z m_z = dp\,m` with the least :math:`\max_z T_z(m_z)`. As each
    :math:`T_z` rises, it is found by one micro-batch after the other for the replica that would end first with it.

``T_pipe`` is linear in m below pp and above it, where the trips through the pipeline are paid more than once, so three
prices give all others.

References
----------
Jia et al. (2022), Whale: section 4.1, the batch of replicas on different devices by their speed. Federgruen and
Groenevelt (1986), The greedy procedure for resource allocation problems: (5).
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise, permutations, product

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.degrees import divisors
from taut.formulations.gradient_reductions import end_of_step
from taut.formulations.latency import closed_pipelines, step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.result import Incumbent
from taut.solver.search.typed_plans import devices_of_types, in_runs
from taut.solver.simple_plans import priced


def divide_batch(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Strategy:
    """The strategy with the replicas' micro-batches that make its step shortest, (5), on devices (pp, dp, width)."""
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
    """T_z of every replica if all had so many micro-batches (dp,), (4)."""
    dp = strategy.candidate.dp
    given = replace(strategy, micro_batches=(m,) * dp)
    found = closed_pipelines(problem, given, devices)
    alone = np.where(np.eye(dp, dtype=bool)[:, None], found.ends, -np.inf)
    return end_of_step(problem, given, devices, alone, found.backward)


MOST_MOVES = 8
"""Rounds of (3): the divisions of (2) are of the best pipelines, so that few boundaries move."""
MOST_EXCHANGES, WORKERS = 128, 16_384
"""Exchanges of blocks that a round prices at most, and workers in all of them: some milliseconds."""


def uneven_plans(
    problem: PlanningProblem, candidate: Candidate, divided: Iterable[Division], seed: int = 0
) -> Iterator[Incumbent]:
    """Plans of an uneven batch by (1) to (3), each better than the one before, from divisions that fit every type."""
    rng, placed = np.random.default_rng(seed), list(_layouts(problem, candidate))
    tried = [(division, devices) for division in dict.fromkeys(divided) for devices in placed]
    best = _best(problem, candidate, tried)
    for _ in range(MOST_MOVES):
        if best is None:
            return
        yield best
        moved = [(division, best.devices) for division in _moved(problem, best.strategy)]
        moved.append((best.strategy.division, _exchanged(problem, best, rng)))
        found = _best(problem, candidate, moved)
        best = found if found is not None and found.seconds < best.seconds else None


def _best(problem: PlanningProblem, candidate: Candidate, tried: list[tuple[Division, Ints]]) -> Incumbent | None:
    """The best plan of some divisions on some devices."""
    plans = (_plan(problem, candidate, division, devices) for division, devices in tried)
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.seconds, default=None)


def _plan(problem: PlanningProblem, candidate: Candidate, division: Division, devices: Ints) -> Incumbent | None:
    """The plan with the best division of the batch, (2); None where it breaks a rule."""
    strategy = divide_batch(problem, Strategy(candidate=candidate, division=division), devices)
    return priced(problem, strategy, devices)


def _layouts(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Devices of all workers (pp, dp, width) by (1)."""
    blocks, width = max(int(problem.links.gpus_per_node.max()) // candidate.width, 1), candidate.width
    for run in divisors(blocks)[::-1]:
        found, first = np.empty((candidate.pp, candidate.dp, width), dtype=np.int64), 0
        for held in devices_of_types(problem):
            replicas = np.arange(first, first + len(held) // (candidate.pp * width))
            x, z = in_runs(np.arange(candidate.pp), replicas, run, blocks).T
            found[x, z] = held.reshape(-1, width)
            first += len(replicas)
        yield found


def _exchanged(problem: PlanningProblem, plan: Incumbent, rng: np.random.Generator) -> Ints:
    """The devices with two blocks of one type exchanged, the best of some such pairs, (3)."""
    blocks = plan.devices.reshape(-1, plan.devices.shape[-1])
    types = problem.type_of_node[problem.links.node_of[blocks[:, 0]]]
    pairs = np.argwhere(np.triu(types[:, None] == types, 1))
    pairs = rng.permutation(pairs)[: max(min(MOST_EXCHANGES, WORKERS // plan.devices.size), 1)]
    if not len(pairs):
        return plan.devices
    order = np.tile(np.arange(len(blocks)), (len(pairs), 1))
    np.put_along_axis(order, pairs, pairs[:, ::-1], axis=1)
    moved = blocks[order].reshape(-1, *plan.devices.shape)
    return np.asarray(moved[step_time(problem, plan.strategy, moved).total.argmin()])


def _moved(problem: PlanningProblem, strategy: Strategy) -> Iterator[Division]:
    """The division with one boundary moved by a layer, or the recompute of one stage changed, (3)."""
    division, kinds = strategy.division, problem.recompute_of(strategy.candidate)
    ends = division.ends.tolist()
    for stage, (kept, kind) in product(range(len(ends)), permutations(kinds, 2)):
        if division.recompute[stage] == kept:
            changed = (*division.recompute[:stage], kind, *division.recompute[stage + 1 :])
            yield replace(division, recompute=changed)
    for cut in range(len(ends) - 1):
        for step in (-1, 1):
            near = [*ends[:cut], ends[cut] + step, *ends[cut + 1 :]]
            if all(a < b for a, b in pairwise([0, *near])):
                yield replace(division, stages=tuple(pairwise([0, *near])))
