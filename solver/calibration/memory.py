r"""
Fitting a memory model: the analytic terms weighed by non-negative least squares on relative error, with a margin.

Samples i with terms :math:`x_{isk}` of every stage s that may be the fullest (``taut.formulations.batch.memory``; the
stage that was measured, if the sample says which), one byte of overhead among them, and measured bytes :math:`y_i`,

(1) minimise :math:`\sum_i w_i (\sum_k c_k x_{i s_i k} / y_i - 1)^2 + \lambda^2 \sum_k (c_k / p_k - 1)^2` over
    :math:`c \ge 0`, with p the analytic model's coefficients: the formulas hold until samples speak against them;
(2) :math:`s_i` is the fullest stage under the coefficients before, and the weights :math:`w_i` are those of absolute
    errors (``taut.solver.calibration.latency``), both renewed a fixed number of times;
(3) error on unseen samples: K folds, each predicted by a fit on the others; :math:`\lambda` is of a few values the one
    with the least of it, for many samples bear more freedom than few;
(4) margin: the :math:`\lceil (n + 1) (1 - \alpha) \rceil`-th smallest of the n excesses :math:`y - \hat y` of (3): a
    new sample like these exceeds its prediction by more with a chance of about :math:`\alpha` (split-conformal
    prediction, Vovk et al. 2005). With fewer than :math:`1 / \alpha - 1` samples it is the largest, and the level what
    that bears out.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import nnls

from taut.data.arrays import Floats
from taut.data.memory import MEMORY_TERMS, MemoryModel
from taut.data.units import GIB
from taut.errors import FormulationError
from taut.solver.calibration.latency import ROUNDS, SMALLEST_RESIDUAL

PULLS = (0.05, 0.1, 0.2, 0.4)
"""Lambda of (1): at 0.1 a coefficient at twice the analytic one costs as much as an error of 10 % on one sample."""
OVERHEAD_GIB = 4.0
"""The overhead that (1) pulls towards: context, communicators and a fragmented allocator."""
FEWEST, FOLDS = 4, 10
PRIOR = np.array([*(1.0 for _ in MEMORY_TERMS), OVERHEAD_GIB * GIB])


def fit_memory(
    terms: Floats, measured: Floats, about: Mapping[str, Any], *, level: float = 0.05, seed: int = 0
) -> MemoryModel:
    """
    Memory model from samples, with the margin of (4).

    Parameters
    ----------
    terms
        Terms at coefficient 1, (samples, stages, terms) in the order of ``MEMORY_TERMS``.
    measured
        Bytes, (samples,).
    about
        What the model says of itself: fields of ``MemoryModel`` such as its name, stack and precision.
    level
        Chance that a new sample exceeds prediction and margin.
    seed
        Of the division into folds.

    Raises
    ------
    FormulationError
        If there are fewer than four samples, or a figure is not finite or not positive.
    """
    if len(measured) < FEWEST or not (
        np.isfinite(terms).all() and np.isfinite(measured).all() and (measured > 0).all()
    ):
        raise FormulationError(
            f"{len(measured)} samples, expected at least {FEWEST} with finite terms and bytes above 0"
        )
    by_pull = {pull: unseen_errors(terms, measured, pull, seed=seed) for pull in PULLS}
    pull = min(PULLS, key=lambda pull: float(np.abs(by_pull[pull]).mean()))
    coefficients, errors = memory_coefficients(terms, measured, pull), by_pull[pull]
    margin, borne = conformal_margin(measured * -errors, level)
    return MemoryModel.model_validate(
        {
            **about,
            "overhead_gib": coefficients[-1] / GIB,
            "coefficients": dict(zip(MEMORY_TERMS, coefficients[:-1].tolist(), strict=True)),
            "margin": 0.0,
            "margin_gib": margin / GIB,
            "level": borne,
            "samples": len(measured),
            "mape": float(np.abs(errors).mean()),
        }
    )


def predicted(terms: Floats, coefficients: Floats) -> Floats:
    """Bytes of the fullest stage, (samples,)."""
    return np.asarray((terms @ coefficients[:-1] + coefficients[-1]).max(axis=1))


def memory_coefficients(terms: Floats, measured: Floats, pull: float) -> Floats:
    """Non-negative coefficients of (1) and (2), with the overhead's bytes last."""
    coefficients, weights = PRIOR, np.ones(len(measured))
    rows, pulls = np.arange(len(measured)), np.full(len(PRIOR), pull)
    for _ in range(ROUNDS):
        fullest = (terms @ coefficients[:-1]).argmax(axis=1)
        relative = np.column_stack([terms[rows, fullest], np.ones(len(rows))]) * PRIOR / measured[:, None]
        stacked = np.vstack([relative * weights[:, None], np.diag(pulls)])
        scaled, _ = nnls(stacked, np.concatenate([weights, pulls]))
        coefficients = scaled * PRIOR
        residuals = np.abs(predicted(terms, coefficients) / measured - 1)
        weights = 1 / np.sqrt(np.maximum(residuals, SMALLEST_RESIDUAL))
        weights /= np.sqrt(np.mean(weights**2))
    return np.asarray(coefficients)


def unseen_errors(terms: Floats, measured: Floats, pull: float, *, folds: int = FOLDS, seed: int = 0) -> Floats:
    """Relative errors prediction / measurement - 1 of every sample by a fit that has not seen it, (3)."""
    order, parts = np.random.default_rng(seed).permutation(len(measured)), min(folds, len(measured))
    errors = np.empty(len(measured))
    for fold in range(parts):
        unseen = order[fold::parts]
        seen = np.setdiff1d(order, unseen)
        coefficients = memory_coefficients(terms[seen], measured[seen], pull)
        errors[unseen] = predicted(terms[unseen], coefficients) / measured[unseen] - 1
    return errors


def conformal_margin(excesses: Floats, level: float) -> tuple[float, float]:
    """The margin of (4) from excesses, at least 0, and the level that it bears out."""
    ordered, count = np.sort(excesses), len(excesses)
    rank = math.ceil((count + 1) * (1 - level))
    if rank > count:
        return max(float(ordered[-1]), 0.0), 1 / (count + 1)
    return max(float(ordered[rank - 1]), 0.0), level
