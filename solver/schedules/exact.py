r"""
The schedule of least makespan by CP-SAT, or the best order of a part of its passes.

The constraint program, (3) to (7), is in whole numbers. Rounding moves a makespan by at most r units of 1 / scale
seconds, so where all passes are free

    makespan >= (bound of the model - r) / scale  (1)

is what the solver claims of every schedule. Its own schedule is priced by the evaluator again, and the known one is
returned where that is not longer (2).

Data are those of ``taut.formulations.schedules.schedule``; times are rounded to whole numbers :math:`p` of about 1e-7
of the makespan. A pass B is never needed and micro-batches may run in order (rules 1 and 2 of
``taut.formulations.schedules.schedule``), so

.. math::
    \min T: \quad & s_x + p_x + t_{xy} \le s_y && \text{x before y in the formulation, or in order} \tag{3} \\
    & [s_x, s_x + p_x) \text{ disjoint} && x \in d \tag{4} \\
    & \sum_{c \in d, i} (a_c - k_c) [s(F_{ci}) \le s < e(I_{ci})] + k_c [s(F_{ci}) \le s < e(W_{ci})] \le M_d
        && \text{at any time s} \tag{5} \\
    & s_x + p_x \le T \tag{6}

A *part* is some passes that are free to change places: of each device, all that start in one interval. The order of
the others on the device stays that of the known schedule; what starts before all of the part starts when it did (7).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import (
    Schedule,
    ScheduleProblem,
    canonical_schedule,
    canonical_starts,
    timetable,
    violations,
)
from taut.solver.cp_sat import run

_RESOLUTION = 1e7
"""Whole units of time in a makespan: rounding is far below any gap of interest, and sums stay small for CP-SAT."""
_UNITS = 1 << 20
"""Whole units of memory that the largest limit has, so rounding up takes less than a millionth of it a pass."""

Key = tuple[int, int, int]


class Model:
    """Variables and constraints (3) to (7); passes that are not ``free`` (3, C, m) stay as in ``known``, the hint."""

    def __init__(
        self, problem: ScheduleProblem, known: Schedule, makespan: float, free: Flags | None, bound: float
    ) -> None:
        is_whole = makespan <= _RESOLUTION and all(np.all(times == np.round(times)) for times in _times(problem))
        self.scale = 1.0 if is_whole else _RESOLUTION / makespan
        rounded = [np.round(times * self.scale) for times in _times(problem)]
        forward, input_gradient, weight_gradient, transfer = rounded
        self.problem = problem = replace(
            problem, forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient, transfer=transfer
        )
        self.begin = begin = canonical_starts(problem, known)
        self.free = np.ones(begin.shape, dtype=bool) if free is None else free
        self.opens = begin[self.free].min(initial=np.inf)
        self.seconds, self.delay = problem.seconds.astype(np.int64), problem.transfer.astype(np.int64)
        self.horizon = int((begin + problem.seconds[:3, :, None]).max())
        # Rounding moves each pass and transfer by half a unit at most.
        self.rounding = 0 if is_whole else 3 * begin.size
        self.model = cp_model.CpModel()
        least = max(0, int(np.floor(bound * self.scale)) - self.rounding)
        self.end = self.model.new_int_var(min(least, self.horizon), self.horizon, "")
        self.start = {
            (kind, c, i): self._variable(kind, c, i)
            for kind in range(3)
            for c in range(problem.num_chunks)
            for i in range(problem.num_micro_batches)
        }
        for key, variable in self.start.items():
            self.model.add_hint(variable, int(begin[key]))
        self._precedences()
        for d in range(problem.num_devices):
            self._device(np.flatnonzero(problem.device == d), float(problem.allowed[d]))
        self.model.minimize(self.end)

    def _variable(self, kind: int, c: int, i: int) -> cp_model.IntVar:
        """Start of a pass; what starts before all free passes starts as it did."""
        if self.begin[kind, c, i] < self.opens:
            begin = int(self.begin[kind, c, i])
            return self.model.new_int_var(begin, begin, "")
        return self.model.new_int_var(0, self.horizon - int(self.seconds[kind, c]), "")

    def _after(self, first: Key, then: Key, delay: int = 0) -> None:
        """Constraint (3)."""
        self.model.add(self.start[then] >= self.start[first] + int(self.seconds[first[0], first[1]]) + delay)

    def _precedences(self) -> None:
        """Constraints (3) and (6)."""
        chunks, m = self.problem.num_chunks, self.problem.num_micro_batches
        for c in range(chunks):
            for i in range(m):
                if c:
                    self._after((FORWARD, c - 1, i), (FORWARD, c, i), int(self.delay[c - 1]))
                    self._after((INPUT_GRADIENT, c, i), (INPUT_GRADIENT, c - 1, i), int(self.delay[c - 1]))
                self._after((FORWARD, c, i), (INPUT_GRADIENT, c, i))
                self._after((INPUT_GRADIENT, c, i), (WEIGHT_GRADIENT, c, i))
                for kind in range(3) if i else ():
                    self._after((kind, c, i - 1), (kind, c, i))
            self.model.add(self.end >= self.start[WEIGHT_GRADIENT, c, m - 1] + int(self.seconds[WEIGHT_GRADIENT, c]))

    def _device(self, chunks: Ints, limit: float) -> None:
        """Constraints (4), (5) and (7) of one device."""
        m = self.problem.num_micro_batches
        keys = [(kind, int(c), i) for kind in range(3) for c in chunks for i in range(m)]
        keys.sort(key=lambda key: (float(self.begin[key]), *self._rank(key)))
        places = [place for place, key in enumerate(keys) if self.free[key]]
        first, last = (places[0], places[-1]) if places else (len(keys), len(keys))
        block = keys[first : last + 1]
        for one, other in pairwise(keys[: first + 1]):
            self._after(one, other)
        for one, other in pairwise(keys[last:]):
            self._after(one, other)
        for key in block:
            if first:
                self._after(keys[first - 1], key)
            if last + 1 < len(keys):
                self._after(key, keys[last + 1])
        self.model.add_no_overlap(
            [self.model.new_fixed_size_interval_var(self.start[key], int(self.seconds[key[:2]]), "") for key in block]
        )
        if np.isfinite(limit) and block:
            self._memory(set(block), set(keys[:first]), chunks, limit)

    def _memory(self, block: set[Key], earlier: set[Key], chunks: Ints, limit: float) -> None:
        """Constraint (5) in a block; amounts are rounded up where they are not whole, so schedules stay feasible."""
        problem = self.problem
        amounts = np.stack((problem.activation - problem.kept_for_weight, problem.kept_for_weight))
        unit = 1.0 if np.all(amounts == np.round(amounts)) else limit / _UNITS
        demands, room = np.ceil(amounts / unit - 1e-9).astype(np.int64), int(np.floor(limit / unit))
        intervals, sizes = [], []
        for c in chunks.tolist():
            for i in range(problem.num_micro_batches):
                taken = (FORWARD, c, i)
                for kind in (INPUT_GRADIENT, WEIGHT_GRADIENT):
                    given, size = (kind, c, i), int(demands[kind - 1, c])
                    if size == 0 or given in earlier or not (taken in block or taken in earlier):
                        continue
                    if taken in earlier and given not in block:
                        room -= size
                        continue
                    begin = self.start[taken] if taken in block else 0
                    end = self.start[given] + int(self.seconds[kind, c]) if given in block else self.horizon
                    length = self.model.new_int_var(0, self.horizon, "")
                    intervals.append(self.model.new_interval_var(begin, length, end, ""))
                    sizes.append(size)
        self.model.add_cumulative(intervals, sizes, room)

    def schedule(self, solver: cp_model.CpSolver) -> Schedule:
        """Orders by the solver's starts; passes of no duration come after those that they wait for."""
        orders = []
        for d in range(self.problem.num_devices):
            keys = [key for key in self.start if self.problem.device[key[1]] == d]
            keys.sort(key=lambda key: (solver.value(self.start[key]), *self._rank(key)))
            orders.append(np.array(keys, dtype=np.int64))
        return Schedule("improved", tuple(orders))

    def _rank(self, key: Key) -> tuple[bool, int, int]:
        """Order of passes that start together: those of no duration first, then as they follow each other."""
        kind, c, i = key
        chunks = self.problem.num_chunks
        return bool(self.seconds[kind, c] > 0), (c, 2 * chunks - c, 3 * chunks)[kind], i


def _times(problem: ScheduleProblem) -> list[Floats]:
    return [problem.forward, problem.input_gradient, problem.weight_gradient, problem.transfer]


@dataclass(frozen=True)
class Solved:
    """The best schedule, its makespan, the bound that the solver claims (-inf: none), whether that is an optimum."""

    schedule: Schedule
    makespan: float
    claimed_bound: float
    is_complete: bool


def solve(
    problem: ScheduleProblem,
    known: Schedule,
    *,
    free: Flags | None = None,
    lower_bound: float = 0.0,
    time_limit: float = 60.0,
    work_limit: float | None = None,
    seed: int = 0,
    workers: int = 1,
    stop: Callable[[], bool] = lambda: False,
) -> Solved:
    """
    Improve a feasible schedule, or prove it best; the result is not longer.

    ``free``: passes of the part (3, C, m), all by default; ``lower_bound``: seconds that no schedule is shorter than;
    ``time_limit``, ``work_limit``: seconds, and the solver's own measure of work. With one worker and a work limit
    alone the answer does not vary; ``stop``: asked several times a second.
    """
    table = timetable(problem, canonical_schedule(problem, known))
    if table.makespan <= 0:
        return Solved(known, table.makespan, table.makespan, True)
    model = Model(problem, known, table.makespan, free, lower_bound)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    # Linear relaxations say little of disjunctions, and cost most of the time.
    solver.parameters.linearization_level = 0
    solver.parameters.max_time_in_seconds = time_limit
    if work_limit is not None:
        solver.parameters.max_deterministic_time = work_limit
    status = run(solver, model.model, stop)
    claimed = -np.inf
    if free is None:
        claimed = (solver.best_objective_bound - model.rounding) / model.scale
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solved(known, table.makespan, claimed, False)
    found = model.schedule(solver)
    # Passes of no duration may change memory in an order that starts do not tell.
    sound = not violations(problem, found)
    makespan = timetable(problem, found).makespan if sound else np.inf
    if makespan >= table.makespan:
        found, makespan = known, table.makespan
    return Solved(found, makespan, claimed, sound and status == cp_model.OPTIMAL)
