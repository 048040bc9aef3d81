r"""
The margin of a memory model: what stays free because predictions err, pooled over stacks where runs are few.

Data: excesses :math:`e_{si} = y - \hat y` of unseen runs i of stack s, :math:`n_s` of them, in GiB.

(1) Own quantile :math:`q_s`: the :math:`\lceil (n_s + 1) (1 - \alpha) \rceil`-th smallest excess. A new run like
    these exceeds its prediction by more with a probability of about :math:`\alpha` (conformal prediction, Vovk,
    Gammerman and Shafer 2005; with the errors of K folds, Barber et al. 2021). It takes :math:`1 / \alpha - 1` runs;
    of fewer it is the largest, which one bad run decides and :math:`1 / (n_s + 1)` of new runs exceed.
(2) Spread: :math:`\tilde\sigma_s^2 = (d_0 \sigma_0^2 + \sum_i e_{si}^2) / (d_0 + n_s)`, the stack's mean square drawn
    towards that of all stacks by :math:`d_0` degrees of freedom, more the less the stacks' spreads differ (moderated
    variances; :math:`d_0` and :math:`\sigma_0` by the first two moments of :math:`\ln \sum_i e_{si}^2 / n_s`, Smyth
    2004, section 6.2).
(3) Margin: :math:`\tilde\sigma_s Q`, at least 0, with Q the quantile (1) of :math:`e_{si} / \tilde\sigma_s` over the
    runs of all stacks: what a stack's few runs cannot say of rare excesses, those of all stacks do. Margins from 4 to
    8 of BLOOM's 60 runs alone are exceeded by 19 to 11 % of the others, pooled ones by 6 to 4 %
    (``benchmarks/memory_accuracy.py``).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from taut.data.arrays import Floats

SMALLEST = 1e-6
"""Least sum of squares of a stack, for runs that are predicted exactly."""
LEAST, MOST = 1e-3, 1e6
"""Half the least and the most degrees of freedom that (2) looks for; beyond the most, spreads are taken as equal."""


def pooled_margin(excesses: Floats, others: Sequence[Floats], level: float) -> tuple[float, float]:
    """
    Margin (3), or the own quantile where there is no other stack.

    ``excesses``: measurement less prediction of unseen runs of the stack, (n,); ``others``: the same of other stacks,
    in the same unit. Returns the margin, in the unit of the excesses, and the level that it is for.
    """
    if not others:
        return conformal_margin(excesses, level)
    stacks = [excesses, *others]
    spreads = moderated_spreads(stacks)
    together = np.concatenate([found / spread for found, spread in zip(stacks, spreads, strict=True)])
    quantile, level = conformal_margin(together, level)
    return float(spreads[0]) * quantile, level


def conformal_margin(excesses: Floats, level: float) -> tuple[float, float]:
    """
    Own quantile (1).

    ``excesses``: measurement less prediction on samples that the fit has not seen, (n,). Returns the margin, at least
    0, in the unit of the excesses, and the level that it guarantees.
    """
    ordered, count = np.sort(excesses), len(excesses)
    rank = math.ceil((count + 1) * (1 - level))
    if rank > count:
        return max(float(ordered[-1]), 0.0), 1 / (count + 1)
    return max(float(ordered[rank - 1]), 0.0), level


def moderated_spreads(stacks: Sequence[Floats]) -> Floats:
    """Spread of every stack, (2), from the excesses of each."""
    freedom, square = _prior(stacks)
    counts, squares = np.array([len(found) for found in stacks]), np.array([found @ found for found in stacks])
    return np.asarray(np.sqrt((freedom * square + squares) / (freedom + counts)))


def _prior(stacks: Sequence[Floats]) -> tuple[float, float]:
    """Degrees of freedom and mean square that stacks share, (2)."""
    counts = np.array([len(found) for found in stacks], dtype=float)
    mean_squares = np.array([max(float(found @ found), SMALLEST) for found in stacks]) / counts
    logs = np.log(mean_squares) - digamma(counts / 2) + np.log(counts / 2)
    centre, differ = float(logs.mean()), float(logs.var(ddof=1) - polygamma(1, counts / 2).mean())
    if differ <= polygamma(1, MOST):
        return 2 * MOST, math.exp(centre)
    half = float(brentq(lambda half: float(polygamma(1, half)) - differ, LEAST, MOST))
    return 2 * half, math.exp(centre + float(digamma(half)) - math.log(half))
