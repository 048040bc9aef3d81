"""Least seconds of an option of the strategy program whose flat ring goes by the class of device of its stage."""

from itertools import combinations, product

import numpy as np

from taut.formulations.program.program import MIXED, SLOW, SLOW_MIXED, Option, kibibytes
from taut.solver.layer_division.divide import solve_partition


def option_optimum(option: Option) -> float:
    """By the fast partition; where AMP's ring stands for the optimizer by pattern, by enumeration of all divisions."""
    stages, later = option.partition, option.later
    if later is None or later.parameters.ndim == 2:
        return solve_partition(stages, option.edge, option.tail, later=later).seconds
    x, kinds = np.arange(stages.pp), stages.low.shape[1]
    # More than one replica of three stages has more than six devices.
    assert stages.pp <= 3
    rows = np.array(list(product(range(len(stages.budget) * kinds), repeat=stages.pp)))
    rows = rows[[_is_possible(option, row) for row in (rows // kinds).tolist()]]
    pattern, recompute = rows // kinds, rows % kinds
    need, budget = kibibytes(stages.need), kibibytes(stages.budget)
    rings, best = later.optimizer * later.parameters, np.inf
    for cuts in combinations(range(1, stages.num_layers), stages.pp - 1):
        first, end = np.array([0, *cuts]), np.array([*cuts, stages.num_layers])
        once = stages.low[pattern, recompute, first, end].sum(axis=1) + option.edge[end[:-1]].sum()
        slowest = stages.high[pattern, recompute, first, end].max(axis=1)
        seconds = once + option.tail[end[0]] + (stages.micro_batches - 1) * np.where(np.isinf(once), 0.0, slowest)
        fits = (need[x, recompute, first, end] <= budget[pattern]).all(axis=1)
        seconds = np.where(fits, seconds + rings[pattern, first, end].max(axis=1), np.inf)
        best = min(best, seconds.min(initial=np.inf))
    return float(best)


def _is_possible(option: Option, patterns: list[int]) -> bool:
    """Whether the slow groups fill these stages, and a mixed stage is priced on them."""
    stages, priced = option.partition, patterns.count(SLOW_MIXED)
    slow, mixed = patterns.count(SLOW), patterns.count(MIXED) + priced
    if len(stages.budget) == 1:
        return True
    most = stages.slow_groups + stages.more_slow_groups
    held = stages.dp * slow + mixed <= most and stages.slow_groups <= stages.dp * slow + (stages.dp - 1) * mixed
    return held and (not mixed or priced > 0 or len(stages.budget) <= SLOW_MIXED)
