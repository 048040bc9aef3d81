r"""
Least excess of memory over divisions of the layers into stages: a bottleneck dynamic program.

Sets, data and variables are those of ``taut.formulations.partition``, the divisions of each family in turn; budgets
are the largest of any class of device.

(1) Minimise :math:`\max_x \max(\text{held} + \text{in\_flight}_x \text{activation}, \text{update})` over divisions of
    the layers into stages x with recompute. With E[x, i] the least worst need of stages x..pp-1 on layers i..L-1,
    :math:`E[x, i] = \min_j \max(\text{need of } [i, j), E[x + 1, j])` is found backwards over x in
    :math:`O(pp L^2 R)` steps. What it exceeds the budget by is the least excess.
(2) No division fits where the excess is positive; with one class of device one fits otherwise.

The need (1) depends on neither seconds nor a memory margin, so it decides most candidates before anything is priced.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.partition import PartitionProblem, stage_families
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.memory import bytes_of_stages, stage_memory

FORBIDDEN = np.iinfo(np.int64).max // 4
"""Bytes of a recompute that is not allowed."""
NEVER = np.iinfo(np.int64).max // 2
"""Bytes of a division that does not exist: more than what is forbidden needs."""


class Need(NamedTuple):
    """Bytes (1) of the worst stage of the best division, and the number of that stage."""

    bytes: int
    stage: int

    def beyond(self, budget: int) -> tuple[int, int]:
        """Bytes above a budget, and the stage; (0, -1) where a division fits."""
        return (self.bytes - budget, self.stage) if self.bytes > budget else (0, -1)


def least_excess(problem: PartitionProblem) -> tuple[int, int]:
    """Least bytes by which a division's worst stage exceeds memory, at least, and that stage; (0, -1) if one fits."""
    allowed = np.isfinite(problem.low.min(axis=0))
    held = np.where(allowed, problem.held, FORBIDDEN)
    need = _need(held, problem.activation, problem.update, problem.in_flight, problem.families)
    return need.beyond(int(problem.budget.max()))


def division_need(problem: PlanningProblem, candidate: Candidate) -> Need:
    """The need (1) of a candidate, from its memory alone."""
    kinds = np.array([RECOMPUTE.index(name) for name in problem.recompute_of(candidate)])
    if candidate.pp == 1 and problem.memory.is_sum_of_terms:
        # A single stage has all layers, so no other range is asked for.
        every = np.zeros_like(kinds), np.full_like(kinds, problem.num_layers(candidate))
        return Need(int(bytes_of_stages(problem, candidate, kinds, *every).min()), 0)
    memory = stage_memory(problem, candidate)
    each = memory.held[kinds], memory.activation[kinds], memory.update, memory.in_flight
    return _need(*each, stage_families(problem, candidate))


def _need(held: Ints, activation: Ints, update: Ints | None, in_flight: Ints, families: Ints | None) -> Need:
    """The need (1) of the best division of any family."""
    layers, step = held.shape[-1] - 1, np.zeros_like(held[0]) if update is None else update
    # Of a schedule with several chunks a device, chunks take the place of stages here.
    every = [np.array([[1, layers]] * len(in_flight))] if families is None else families
    each = (_least_need(held, activation, step, in_flight, sizes) for sizes in every)
    return Need(*min(each, key=lambda found: found[0]))


def _least_need(held: Ints, activation: Ints, update: Ints, in_flight: Ints, sizes: Ints) -> tuple[int, int]:
    """Least worst need (1) in bytes, and the stage that has it."""
    size, needs = held.shape[1], dict[tuple[int, ...], tuple[Ints, Ints]]()
    rows, worst, at = np.arange(size), np.where(np.arange(size) == size - 1, 0, NEVER), np.full(size, -1)
    for x in range(len(in_flight) - 1, -1, -1):
        # Many stages hold as many micro-batches and may have the same numbers of layers.
        key = int(in_flight[x]), *sizes[x].tolist()
        if key not in needs:
            needs[key] = _needs(held, activation, update, *key)
        ends, need = needs[key]
        value = np.maximum(need, worst[ends])
        least = value.argmin(axis=1)
        end = ends[rows, least]
        at = np.where(need[rows, least] >= worst[end], x, at[end])
        worst = value[rows, least]
    return int(worst[0]), int(at[0])


def _needs(held: Ints, activation: Ints, update: Ints, in_flight: int, low: int, high: int) -> tuple[Ints, Ints]:
    """Ends of ranges of ``low`` to ``high`` layers from each layer on, (L+1, n), and the need of each range."""
    ends, exists, places = _ranges(held.shape[1] - 1, low, high)
    need = np.maximum((held + in_flight * activation).min(axis=0), update)
    return ends, np.where(exists, need.take(places), NEVER)


@lru_cache(maxsize=64)
def _ranges(last: int, low: int, high: int) -> tuple[Ints, Flags, Ints]:
    """Ends of those ranges (L+1, n), whether there are such, and their places among all in a row."""
    first, ends = np.arange(last + 1)[:, None], np.arange(last + 1)[:, None] + np.arange(low, min(high, last) + 1)
    exists, ends = (ends <= last) & (first < last), np.minimum(ends, last)
    return ends, exists, first * (last + 1) + ends
