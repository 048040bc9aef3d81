r"""
Which layer ranges can be stages of a division that is of interest.

Let :math:`s_l` be the least seconds of layer l over recompute and patterns, :math:`S(i, j)` their sum over a range, and
suppose that no range takes less than the sum of its layers. With stage x on [i, j) the x stages before it have
[0, i) and the :math:`pp - 1 - x` after it [j, L), the slowest of them at least the mean, so a division takes at least

(1) :math:`S(0, L) - S(i, j) + low + \sum_{cuts} edge + tail
    + (m - 1) \max \big( high, \; S(0, i) / x, \; S(j, L) / (pp - 1 - x) \big)`

with the least edge at every cut and the least tail, that of j for stage 0. Where that is above the seconds of a known
division, [i, j) is no stage x of a better one. Ranges for which the supposition fails are all kept.

(2) Of the recomputes with which [i, j) fits as stage x, one that takes no longer than all others in ``low`` and
    ``high`` is enough, since memory is bounded stage by stage: the others, and all that do not fit, are left out.
"""

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.data.units import KIB
from taut.formulations.partition import PartitionProblem

ROUNDING = 1e-9
"""Relative allowance for sums of floats; (1) removes only what is worse by more."""


def windows(problem: PartitionProblem, edge: Floats, tail: Floats, most: float) -> list[Flags]:
    """
    Which ranges each stage can take in a division of at most ``most`` seconds.

    ``problem``, ``edge``, ``tail``: data of a candidate (``taut.formulations.partition``); ``most``: seconds that a
    division of interest does not exceed; infinite where none is known. Returns ``list``: for each stage, (patterns,
    recompute, L+1, L+1) truth values.
    """
    every = np.isfinite(problem.low) & np.isfinite(problem.high)
    if not np.isfinite(most):
        return [every] * problem.pp
    kept = [every & _cheapest(problem, x) for x in range(problem.pp)]
    if not _adds_up(problem):
        return kept
    layers, pp = problem.num_layers, problem.pp
    total = np.concatenate([[0.0], np.cumsum(_least(problem))])
    before, after = total[:, None], (total[-1] - total)[None, :]
    inner = range(1, layers)
    cuts = (pp - 1) * min((float(edge[j]) for j in inner), default=0.0) if pp > 1 else 0.0
    once = before + after + np.where(every, problem.low, 0.0) + cuts
    high = np.where(every, problem.high, 0.0)
    found = []
    for x in range(pp):
        mean = np.maximum(before / max(x, 1), after / max(pp - 1 - x, 1))
        least = once + (problem.micro_batches - 1) * np.maximum(high, mean)
        least = least + (tail[None, :] if x == 0 else float(tail[1:].min()))
        found.append(kept[x] & (least <= most * (1 + ROUNDING)))
    return found


def _cheapest(problem: PartitionProblem, x: int) -> Flags:
    """Whether a recompute is the one that (2) keeps; all that fit where none is the quickest in both."""
    need = problem.fixed + problem.in_flight[x] * problem.activation
    fits = -(-need[None] // KIB) <= problem.budget[:, None, None, None] // KIB
    low, high = np.where(fits, problem.low, np.inf), np.where(fits, problem.high, np.inf)
    first = low.argmin(axis=1)[:, None]
    quickest = np.take_along_axis(high, first, axis=1) <= high.min(axis=1, keepdims=True)
    chosen = np.arange(low.shape[1])[None, :, None, None] == first
    return np.asarray(fits & (chosen | ~quickest))


def _least(problem: PartitionProblem) -> Floats:
    """Least seconds of every layer (L,)."""
    layers = np.arange(problem.num_layers)
    return np.asarray(problem.low[:, :, layers, layers + 1].min(axis=(0, 1)))


def _adds_up(problem: PartitionProblem) -> bool:
    """Whether no range takes less than the sum of its layers' least seconds."""
    least = _least(problem)
    if not np.isfinite(least).all():
        return False
    total = np.concatenate([[0.0], np.cumsum(least)])
    whole = total[None, :] - total[:, None]
    first, end = np.triu_indices(len(total), 1)
    enough = whole[first, end] * (1 - ROUNDING)
    return bool((problem.low[..., first, end] >= enough).all() and (problem.high >= problem.low)[..., first, end].all())
