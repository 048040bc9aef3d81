r"""
Simulated annealing over list schedules: the order of the jobs, and how thrifty each is.

A move takes a job to another place of the order, or multiplies its :math:`\lambda_j` of
``taut.solver.jobs.list_schedule`` by a power of two. It is kept with probability :math:`e^{-\Delta / T}`, where T falls
geometrically from ``HOT`` to ``COLD`` times the first value over the steps of a round (Kirkpatrick et al., 1983). It
yields schedules and no bounds.
"""

from collections.abc import Callable
from math import exp, inf

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.jobs.problem import JobsProblem, Objective, Schedule
from taut.solver.jobs.list_schedule import ListData, as_schedule, list_data, list_schedule

HOT, COLD = 0.01, 1e-5
"""Temperatures as shares of the first value: one move in some hundred changes it by so much."""
STEPS = 4_000
"""Of a round; 128 jobs take some 0.1 ms a step."""
THRIFTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Values of lambda that all jobs begin with, each with every order of ``_orders``."""


def anneal(
    problem: JobsProblem,
    objective: Objective,
    *,
    seed: int = 0,
    rounds: int | None = None,
    target: float = 0.0,
    stop: Callable[[], bool] = bool,
    told: Callable[[float], None] | None = None,
) -> Schedule:
    """
    The best list schedule found.

    ``objective``: what is minimised; where jobs must be complete, those left out count as the whole of all seconds
    each; ``rounds``: rounds of ``STEPS`` moves; until ``stop`` if None; ``target``: value at which nothing better is
    looked for, as a lower bound is; ``stop``: asked after every step; ``told``: called with the value of every better
    schedule.
    """
    found = _Annealing(problem, objective, seed, told)
    return found.run(rounds, lambda: stop() or found.best_value <= target)


class _Annealing:
    def __init__(
        self, problem: JobsProblem, objective: Objective, seed: int, told: Callable[[float], None] | None
    ) -> None:
        self.problem, self.objective, self.told = problem, objective, told
        self.data = list_data(problem, objective)
        self.random = np.random.default_rng(seed)
        self.best, self.best_value = (np.arange(problem.num_jobs), np.zeros(problem.num_jobs)), inf

    def value(self, order: Ints, thrift: Floats) -> float:
        """The objective of a list schedule; remembers the best."""
        starts, chosen = list_schedule(self.data, order, thrift)
        value = _value(self.problem, self.objective, self.data, starts, chosen)
        if value < self.best_value:
            self.best, self.best_value = (order.copy(), thrift.copy()), value
            if self.told is not None:
                self.told(value)
        return value

    def run(self, rounds: int | None, stop: Callable[[], bool]) -> Schedule:
        """Constructed orders, then rounds of moves from the best."""
        jobs, done = self.problem.num_jobs, 0
        for thrift in THRIFTS:
            for order in _orders(self.problem):
                if stop() and self.best_value < inf:
                    break
                self.value(order, np.full(jobs, thrift))
        while jobs > 1 and (rounds is None or done < rounds) and not stop():
            self._round(stop)
            done += 1
        return as_schedule(self.data, *list_schedule(self.data, *self.best))

    def _round(self, stop: Callable[[], bool]) -> None:
        order, thrift = self.best[0].copy(), self.best[1].copy()
        value = scale = self.best_value
        for step in range(STEPS):
            if stop():
                return
            temperature = scale * HOT * (COLD / HOT) ** (step / STEPS)
            other_order, other_thrift = self._moved(order, thrift)
            other = self.value(other_order, other_thrift)
            if other <= value or self.random.random() < exp((value - other) / temperature):
                order, thrift, value = other_order, other_thrift, other

    def _moved(self, order: Ints, thrift: Floats) -> tuple[Ints, Floats]:
        first, to = self.random.integers(len(order), size=2).tolist()
        if self.random.random() < 0.5:
            rest = np.delete(order, first)
            return np.insert(rest, to, order[first]), thrift
        changed = thrift.copy()
        changed[first] = max(changed[first], 0.25) * 2.0 ** self.random.integers(-2, 3) * (self.random.random() > 0.1)
        return order, changed


def _value(problem: JobsProblem, objective: Objective, data: ListData, starts: Floats, chosen: Ints) -> float:
    placed = chosen >= 0
    if objective == "deadlines":
        return float(problem.weight[~placed & np.isfinite(problem.deadline)].sum())
    ends = np.where(placed, starts + data.seconds[chosen], data.seconds.sum() + data.arrival.max())
    if objective == "completion":
        return float(problem.weight @ (ends - problem.arrival) / problem.weight.sum())
    if objective == "makespan":
        # A little of the mean tells apart schedules of equal ends.
        return float(ends.max() - problem.arrival.min() + 1e-3 * ends.mean())
    return float(data.dollars[chosen[placed]].sum() + (~placed).sum() * data.dollars.sum())


def _orders(problem: JobsProblem) -> list[Ints]:
    """By arrival, by seconds alone, longest first, by due date, by least device-seconds, and by slack."""
    # A job that fits nowhere is left out wherever it stands.
    least = np.minimum(problem.least_seconds, 1e30)
    area = np.full(problem.num_jobs, inf)
    np.minimum.at(area, problem.job, problem.gpus / problem.rate * problem.work[problem.job])
    keys = (problem.arrival, least, -least, problem.deadline, area, -area, problem.deadline - problem.arrival - least)
    return [np.argsort(key, kind="stable") for key in keys]
