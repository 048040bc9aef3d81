"""
Figure 10: MT-NLG's design space, its Pareto front, and the best plan for each number of GPUs.

The released configurations are t in {4, 8, 16}, d up to 30 and p in {3, ..., 105}: 294 plans (a 295th repeats one).
Each is priced by vTrain's rules and by our calibration. A plan is on the front

(1) if none of as few GPUs is as fast;

(2) for each number of GPUs that fills whole nodes, our search goes through all plans of 1F1B with full recompute,
    micro-batch 1 and ZeRO-1 that fit the memory, the stack's divisions of the layers and tensor degrees up to a node,
    and its bound says how far the best one is from the optimum at these prices.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from taut.papers.compared import rows_so_far
from taut.papers.vtrain.plans import BLOOM, GLOBAL_BATCH, MEMORY, MT_NLG, STACK, Priced, gpus, priced
from taut.papers.vtrain.step import NODE_SIZE, Plan, step_seconds
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.processes import cores, local_executor
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from taut.sweeping.sweep import Told

TENSOR, STAGES = (4, 8, 16), (3, 5, 7, 15, 21, 35, 105)
DATA = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30)
PLANS: tuple[Plan, ...] = tuple((t, d, p) for t in TENSOR for d in DATA for p in STAGES)
WORK = 60
"""Refinements of a search, some second of one core; at 12 gaps are still up to 20 per cent."""
GAP = 0.01
"""A gap that ends a search: smaller than the calibration's own error by far."""
TOO_LARGE = "none fits the memory"
"""Of a number of GPUs for which that is proven."""
REQUEST: dict[str, Any] = {
    "model": "mt-nlg-530b",
    "global_batch": GLOBAL_BATCH,
    "precision": "fp16",
    "stack": STACK,
    "calibration": BLOOM.calibration,
    "memory_model": MEMORY,
    "fix": {"schedule": "1f1b", "recompute": "full", "micro_batch": 1, "zero": 1},
}


@dataclass(frozen=True, slots=True)
class Point:
    """A plan of the space: seconds by vTrain's rules, and by our calibration with memory."""

    plan: Plan
    rules_s: float
    ours: Priced

    @property
    def gpus(self) -> int:
        """GPUs of the plan."""
        return gpus(self.plan)


@dataclass(frozen=True, slots=True)
class Best:
    """The best plan for a number of GPUs with its bound, None where nothing fits or was found, and why."""

    gpus: int
    plan: Plan | None
    step_s: float | None
    lower_bound_s: float | None
    why_not: str

    @property
    def gap(self) -> float | None:
        """Relative distance of the plan from the bound."""
        return None if self.step_s is None or not self.lower_bound_s else 1 - self.lower_bound_s / self.step_s

    @property
    def is_cut_off(self) -> bool:
        """Whether a limit ended the search: its gap is not small enough."""
        return self.why_not != TOO_LARGE and (self.gap is None or self.gap > GAP)


def points(scalar: float) -> list[Point]:
    """All plans of the space, priced."""
    ours = priced(BLOOM, [(MT_NLG, plan) for plan in PLANS], GLOBAL_BATCH)
    return [
        Point(plan, step_seconds(MT_NLG, plan, GLOBAL_BATCH, scalar), found)
        for plan, found in zip(PLANS, ours, strict=True)
    ]


def front(found: Sequence[Point]) -> list[Point]:
    """The points on the Pareto front of GPUs and our seconds, (1), of those that fit with ZeRO-1."""
    chosen: list[Point] = []
    fitting = [each for each in found if each.ours.zero1_fits]
    for point in sorted(fitting, key=lambda each: (each.gpus, each.ours.step_s)):
        if not chosen or point.ours.step_s < chosen[-1].ours.step_s:
            chosen.append(point)
    return chosen


NONE_YET = "none found so far"

COUNTS = sorted({gpus(plan) for plan in PLANS if gpus(plan) % NODE_SIZE == 0})
"""Numbers of GPUs of (2)."""


def best_plans(
    *, work_limit: int = WORK, time_limit: float | None = None, jobs: int | None = None, progress: Told | None = None
) -> list[Best]:
    """The best plan for every number of GPUs, (2), until a signal, on processes that share the seconds."""
    count, end = jobs or cores(), math.inf if time_limit is None else perf_counter() + time_limit
    with local_executor(count) as pool:
        # The largest have the most candidates: begun first, none of them runs alone at the end.
        left = [math.ceil((len(COUNTS) - done) / count) for done in range(len(COUNTS))]
        futures = [
            pool.submit(best_plan, gpus, work_limit, end, rounds)
            for gpus, rounds in zip(reversed(COUNTS), left, strict=True)
        ]

        def made(count: int) -> Best:
            if progress is not None:
                progress(count, len(COUNTS), None)
            return futures[count].result()

        return sorted(rows_so_far(range(len(COUNTS)), made), key=lambda best: best.gpus)


def best_plan(devices: int, work_limit: int, end: float = math.inf, rounds: int = 1) -> Best:
    """The best plan of so many GPUs, posed and searched in the first of so many equal rounds until ``end``."""
    began = perf_counter()
    each = (end - began) / rounds
    if each <= 0:
        return Best(devices, None, None, None, NONE_YET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = planning_problem(PlanRequest(**{**REQUEST, "cluster": BLOOM.cluster_of(devices)}))
        limits = Limits(work_limit=work_limit, time_limit=None if math.isinf(end) else each, gap=GAP, workers=1)
        result = search(problem, limits.shared(perf_counter() - began, 1))
    bound = result.lower_bound if math.isfinite(result.lower_bound) else None
    if result.incumbent is None:
        proven = result.status is Status.INFEASIBLE
        return Best(devices, None, None, bound, TOO_LARGE if proven else NONE_YET)
    chosen = result.incumbent.strategy.candidate
    return Best(devices, (chosen.tp, chosen.dp, chosen.pp), result.incumbent.seconds, bound, "")
