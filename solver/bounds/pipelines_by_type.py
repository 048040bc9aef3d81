r"""
Bound ``partition`` where replicas divide the batch unevenly, each on one type of device.

Sets: types k with :math:`R_k` replicas, :math:`\sum_k R_k = dp`; m micro-batches a replica in the mean.
Data: :math:`F_k(n)`, the exact partition (``taut.formulations.partition`` (1) and (1')) of one pipeline with n
micro-batches on devices of type k, within the memory of all types, as every stage is on all of them, with the least
communication of such a candidate.

(1) A replica of type k with n micro-batches ends its step no earlier than :math:`F_k(n)`, which rises with n. That all
    replicas share one division is left out. Within T seconds the replica runs at most
    :math:`n_k(T) = \max \{n : F_k(n) \le T\}` micro-batches. All replicas together need dp m, so

    .. math:: T \ge \min \Big\{ T : \sum_k R_k \, n_k(T) \ge dp\,m, \; n_k(T) \ge 1 \Big\}.

(2) The least T of (1) equals some :math:`F_k(n)`. Begin with any counts that are enough, and let T be the largest of
    their :math:`F_k`. Find the counts that take less than T. If they are not enough, T is the least. Otherwise the
    largest of their :math:`F_k` is the next T.

Some replica has at least m micro-batches. The division of one pipeline on devices as fast as the fastest of any type is
therefore a bound too, and (1) is never below it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import seconds_of_best
from taut.formulations.partition import PartitionProblem, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.divide import Partition, solve_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundByType:
    """The bound in seconds, infinite where nothing fits, and the divisions that the pipelines of each type attain."""

    seconds: float
    divided: tuple[Partition, ...]


def bound_by_type(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool = True
) -> BoundByType:
    """Bound (1) of a candidate whose replicas divide the batch unevenly."""
    types = _Types(problem, candidate, best, margin)
    replicas = np.bincount(np.repeat(problem.type_of_node, problem.links.gpus_per_node))
    replicas = replicas // (candidate.pp * candidate.width)
    total = candidate.dp * candidate.num_micro_batches
    divided = [types.divided(k, candidate.num_micro_batches) for k in range(len(replicas))]
    if not all(found.feasible for found in divided):
        return BoundByType(seconds=np.inf, divided=())
    pace = np.array([found.seconds for found in divided]) / (candidate.num_micro_batches + candidate.pp - 1)
    seconds, counts = _least(types.seconds, replicas.tolist(), total, _estimate(pace, replicas, total, candidate.pp))
    found = [types.divided(k, max(n, 1)) for k, n in enumerate(counts)]
    return BoundByType(seconds=seconds * (1 - ROUNDING), divided=tuple(found))


def _estimate(pace: Floats, replicas: Ints, total: int, pp: int) -> list[int]:
    """Micro-batches by type with which all end together, n micro-batches taking n + pp - 1 times the pace."""
    together = (total + replicas.sum() * (pp - 1)) / (replicas / pace).sum()
    return [max(int(n), 1) for n in np.ceil(together / pace - (pp - 1))]


def _least(
    seconds: Callable[[int, int], float], replicas: list[int], total: int, counts: list[int]
) -> tuple[float, list[int]]:
    """The least T of (1) and micro-batches by type within it, from counts that may be enough, by (2)."""
    while sum(r * n for r, n in zip(replicas, counts, strict=True)) < total:
        counts = [n + 1 for n in counts]
    while True:
        counts = _spared(seconds, replicas, total, counts)
        least = max(seconds(k, n) for k, n in enumerate(counts))
        within = [_most(partial(seconds, k), least, start, total) for k, start in enumerate(counts)]
        if min(within) == 0 or sum(r * n for r, n in zip(replicas, within, strict=True)) < total:
            return least, counts
        counts = within


def _spared(seconds: Callable[[int, int], float], replicas: list[int], total: int, counts: list[int]) -> list[int]:
    """The counts without micro-batches of the slowest types that the others are enough without."""
    counts = list(counts)
    while True:
        slowest = max(range(len(counts)), key=lambda k: seconds(k, counts[k]))
        rest = sum(r * n for r, n in zip(replicas, counts, strict=True)) - replicas[slowest]
        if rest < total or counts[slowest] == 1:
            return counts
        counts[slowest] -= 1


def _most(seconds: Callable[[int], float], limit: float, start: int, total: int) -> int:
    """Most micro-batches below a limit in seconds, by interpolation between counts that are and that are not."""
    below, above, n = 0, total + 1, start
    while above - below > 1:
        taken = seconds(n)
        below, above = (n, above) if taken < limit else (below, n)
        guess = n + int((limit - taken) / taken * n) if taken > 0 else above - 1
        n = min(max(guess, below + 1), above - 1)
    return below


class _Types:
    """Exact partitions of pipelines of every type, each found once."""

    def __init__(self, problem: PlanningProblem, candidate: Candidate, best: BestLinks, margin: bool) -> None:
        self._problem, self._candidate, self._best = problem, candidate, best
        self._stages = partition_problem(problem, candidate, margin=margin)
        tables, passes = problem.tables(candidate), problem.passes(candidate)
        within = seconds_of_best(problem, candidate)
        allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
        self._both = np.where(allowed[None, :, None, None], tables.seconds + within.both, np.inf)
        self._forward = (passes.forward + within.forward).min(axis=1)
        self._known: dict[tuple[int, int], Partition] = {}

    def seconds(self, kind: int, count: int) -> float:
        """F_k of so many micro-batches."""
        return self.divided(kind, count).seconds

    def divided(self, kind: int, count: int) -> Partition:
        """The partition that attains it."""
        if (kind, count) not in self._known:
            given = replace(self._candidate, num_micro_batches=count)
            comm = communication(self._problem, given, self._best)
            self._known[kind, count] = solve_partition(
                self._of_type(kind, count), comm.edge, comm.tail, later=comm.later
            )
        return self._known[kind, count]

    def _of_type(self, kind: int, count: int) -> PartitionProblem:
        both, forward = self._both[kind][None], self._forward[kind][None]
        return replace(self._stages, low=both, high=both, forward=forward, micro_batches=count)
