r"""
How well predicted seconds order and match measured ones.

For trials with measured seconds :math:`y_i > 0` and predictions :math:`p_i`:

(1) Spearman's rho: the correlation of the ranks of p and y, equal values sharing their mean rank;
(2) Kendall's tau-b: pairs in the same order less pairs in opposite order, over the geometric mean of the pairs that p
    and that y tell apart;
(3) regret after k choices: :math:`\min y` over the k trials with the least p, relative to :math:`\min y`, less 1;
(4) mean absolute error: mean of :math:`|p_i / y_i - 1|`.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Rank correlations, None where one side does not tell the trials apart; the rest in shares."""

    spearman: float | None
    kendall: float | None
    regret: float
    regret_top3: float
    regret_top5: float
    mape: float


def agreement(predicted: Floats, measured: Floats) -> Agreement:
    """
    Agreement of predictions with measurements, (1) to (4).

    ``predicted``, ``measured``: seconds of the same trials, at least one, (n,), finite and above 0.
    """
    return Agreement(
        spearman=_cosine(_centred(_ranks(predicted)), _centred(_ranks(measured))),
        kendall=_cosine(_signs(predicted), _signs(measured)),
        regret=_regret(predicted, measured, 1),
        regret_top3=_regret(predicted, measured, 3),
        regret_top5=_regret(predicted, measured, 5),
        mape=float(np.abs(predicted / measured - 1).mean()),
    )


def _ranks(values: Floats) -> Floats:
    ordered = np.sort(values)
    return np.asarray(np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2


def _centred(values: Floats) -> Floats:
    return np.asarray(values - values.mean())


def _signs(values: Floats) -> Floats:
    """Which of two is the larger, (n, n)."""
    return np.asarray(np.sign(np.subtract.outer(values, values)))


def _cosine(a: Floats, b: Floats) -> float | None:
    """Both correlations are cosines: of centred ranks, and of the signs of all differences."""
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale > 0 else None


def _regret(predicted: Floats, measured: Floats, choices: int) -> float:
    chosen = np.argsort(predicted, kind="stable")[:choices]
    return float(measured[chosen].min() / measured.min() - 1)
