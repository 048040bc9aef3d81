"""Random cases of jobs on a cluster, and their best schedules on a grid by enumeration."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.jobs.problem import JobsProblem, Objective, Pool


def random_case(seed: int, *, jobs: int = 4, counts: int = 3, intervals: int = 4) -> tuple[JobsProblem, Floats]:
    """A problem of up to ``jobs`` jobs with up to ``counts`` configurations each, and a grid of ``intervals``."""
    rng = np.random.default_rng(seed)
    pools = tuple(
        Pool(f"p{n}", int(rng.integers(1, 4)), 4, float(rng.uniform(1, 3))) for n in range(rng.integers(1, 3))
    )
    number = int(rng.integers(1, jobs + 1))
    grid = np.concatenate([[0.0], np.cumsum(rng.uniform(5, 15, intervals))])
    job, pool, gpus, rate = [], [], [], []
    for each in range(number):
        speed = rng.uniform(0.5, 1.5)
        for _ in range(rng.integers(1, counts + 1)):
            job.append(each)
            pool.append(int(rng.integers(len(pools))))
            gpus.append(int(rng.choice([1, 2, 4, 8, 12])))
            rate.append(speed * gpus[-1] ** rng.uniform(0.5, 1.1))
    arrival = np.where(rng.random(number) < 0.5, 0.0, rng.uniform(0, grid[-1] / 2, number))
    work = rng.uniform(0.1, 1.0, number) * grid[-1]
    due = np.where(rng.random(number) < 0.8, arrival + rng.uniform(0.2, 1.2, number) * grid[-1], inf)
    problem = JobsProblem(
        pools=pools,
        arrival=arrival,
        work=work,
        deadline=due,
        weight=np.ones(number) if rng.random() < 0.5 else rng.uniform(0.5, 2, number),
        job=np.array(job),
        pool=np.array(pool),
        gpus=np.array(gpus),
        rate=np.array(rate),
        restart_s=float(rng.choice([0.0, 2.0])),
    )
    return problem, grid


@dataclass(frozen=True)
class Choice:
    """What one job holds in every pool and interval, and its price by the grid and by its true end."""

    usage: Floats
    on_grid: float
    true: float


def _segments(held: tuple[int, ...], grid: Floats, arrival: float) -> Iterator[tuple[int, float, float]]:
    """Maximal runs of one configuration; -1 is rest."""
    start = 0
    for t in range(1, len(held) + 1):
        if t == len(held) or held[t] != held[start]:
            if held[start] >= 0:
                yield held[start], max(float(grid[start]), arrival), float(grid[t])
            start = t


def _choices(problem: JobsProblem, objective: Objective, grid: Floats, job: int) -> list[Choice]:
    """All that a job may hold and is complete with; under ``deadlines`` also nothing, and being late."""
    arrival, due = float(problem.arrival[job]), float(problem.deadline[job])
    weight = float(problem.weight[job])
    found = [Choice(np.zeros((len(problem.pools), len(grid) - 1)), *[weight * (due < inf)] * 2)]
    found = found if objective == "deadlines" else []
    for held in product([-1, *(c for c in problem.columns(job) if problem.fits[c])], repeat=len(grid) - 1):
        if any(c >= 0 and grid[t + 1] <= arrival for t, c in enumerate(held)):
            continue
        left, end, dollars = float(problem.work[job]), inf, 0.0
        for c, first, until in _segments(held, grid, arrival):
            rate = float(problem.rate[c])
            seconds = max(0.0, until - first - problem.restart_s)
            if left > 0 and seconds * rate >= left:
                end = first + problem.restart_s + left / rate
            left -= seconds * rate
            dollars += float(problem.price[c]) * (min(until, end) - first) * (first < end)
        late = objective in ("deadlines", "cost") and end > due
        if end == inf or late:
            continue
        usage = np.zeros((len(problem.pools), len(grid) - 1))
        whole = 0.0
        for t, c in enumerate(held):
            if c >= 0:
                usage[problem.pool[c], t] = problem.gpus[c]
                whole += float(problem.price[c]) * float(grid[t + 1] - grid[t])
        ends = float(grid[1 + max(t for t, c in enumerate(held) if c >= 0)])
        prices = {
            "deadlines": (0.0, 0.0),
            "completion": (weight * (ends - arrival), weight * (end - arrival)),
            "makespan": (ends, end),
            "cost": (whole, dollars),
        }[objective]
        found.append(Choice(usage, *prices))
    return found


def _minimal(choices: list[Choice]) -> list[Choice]:
    """Choices without those that hold no less at no less a price than another."""
    kept: list[Choice] = []
    for each in sorted(choices, key=lambda c: (c.on_grid, c.true, float(c.usage.sum()))):
        if not any(np.all(k.usage <= each.usage) and k.true <= each.true for k in kept):
            kept.append(each)
    return kept


def enumerated(problem: JobsProblem, objective: Objective, grid: Floats) -> tuple[float, float]:
    """The least objective of all schedules on a grid: as the program counts it, and by true completions."""
    every = [_minimal(_choices(problem, objective, grid, job)) for job in range(problem.num_jobs)]
    total = float(problem.weight.sum()) if objective == "completion" else 1.0
    origin = float(problem.arrival.min()) if objective == "makespan" else 0.0
    best = [inf, inf]

    def descend(job: int, used: Floats, on_grid: float, true: float) -> None:
        if on_grid >= best[0] and true >= best[1]:
            return
        if job == problem.num_jobs:
            best[0], best[1] = min(best[0], on_grid), min(best[1], true)
            return
        for choice in every[job]:
            usage = used + choice.usage
            if np.any(usage > problem.capacity[:, None]):
                continue
            if objective == "makespan":
                descend(job + 1, usage, max(on_grid, choice.on_grid), max(true, choice.true))
            else:
                descend(job + 1, usage, on_grid + choice.on_grid, true + choice.true)

    descend(0, np.zeros((len(problem.pools), len(grid) - 1)), 0.0, 0.0)
    return (best[0] - origin) / total, (best[1] - origin) / total
