r"""
Fitting a memory model: the analytic terms weighed by non-negative least squares on relative error, with a margin.

Samples i with terms :math:`x_{isk}` of every stage s that may be the fullest (``taut.formulations.memory_terms``; the
stage that was measured, if the sample says which), one byte of overhead among them, and measured bytes :math:`y_i`,

(1) minimise :math:`\sum_i w_i (\sum_k c_k x_{i s_i k} / y_i - 1)^2 + \lambda^2 \sum_k (c_k / p_k - 1)^2` over
    :math:`c \ge 0`, with p the analytic model's coefficients: the formulas hold until samples speak against them;
(2) :math:`s_i` is the fullest stage under the coefficients before, and the weights :math:`w_i` are those of absolute
    errors (``taut.solver.fit``), both renewed a fixed number of times;
(3) error on unseen samples: K folds, each predicted by a fit on the others;
(4) margin: with q the :math:`\lceil (n + 1) (1 - \alpha) \rceil`-th smallest of the n errors
    :math:`y / \hat y - 1` of (3), a new sample like these exceeds :math:`(1 + q)` times its prediction with a chance of
    about :math:`\alpha` (split-conformal prediction, Vovk et al. 2005); so the share :math:`q / (1 + q)` of a device's
    memory stays free. With fewer than :math:`1 / \alpha - 1` samples q is the largest error, and the level what that
    bears out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from taut.data.memory import MEMORY_TERMS, MemoryModel
from taut.data.units import GIB
from taut.errors import FormulationError
from taut.solver.fit import ROUNDS, SMALLEST_RESIDUAL

Floats = NDArray[np.float64]
PULL = 0.2
"""Lambda of (1): a coefficient at twice the analytic one costs as much as an error of 20 % on one sample."""
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
    coefficients, errors = memory_coefficients(terms, measured), unseen_errors(terms, measured, seed=seed)
    excess, borne = conformal_excess(errors, level)
    return MemoryModel.model_validate(
        {
            **about,
            "overhead_gib": coefficients[-1] / GIB,
            "coefficients": dict(zip(MEMORY_TERMS, coefficients[:-1].tolist(), strict=True)),
            "margin": excess / (1 + excess),
            "level": borne,
            "samples": len(measured),
            "mape": float(np.abs(errors).mean()),
        }
    )


def predicted(terms: Floats, coefficients: Floats) -> Floats:
    """Bytes of the fullest stage, (samples,)."""
    return np.asarray((terms @ coefficients[:-1] + coefficients[-1]).max(axis=1))


def memory_coefficients(terms: Floats, measured: Floats) -> Floats:
    """Non-negative coefficients of (1) and (2), with the overhead's bytes last."""
    coefficients, weights = PRIOR, np.ones(len(measured))
    rows, pull = np.arange(len(measured)), np.diag(np.full(len(PRIOR), PULL))
    for _ in range(ROUNDS):
        fullest = (terms @ coefficients[:-1]).argmax(axis=1)
        relative = np.column_stack([terms[rows, fullest], np.ones(len(rows))]) * PRIOR / measured[:, None]
        stacked = np.vstack([relative * weights[:, None], pull])
        scaled, _ = nnls(stacked, np.concatenate([weights, np.diag(pull)]))
        coefficients = scaled * PRIOR
        residuals = np.abs(predicted(terms, coefficients) / measured - 1)
        weights = 1 / np.sqrt(np.maximum(residuals, SMALLEST_RESIDUAL))
        weights /= np.sqrt(np.mean(weights**2))
    return np.asarray(coefficients)


def unseen_errors(terms: Floats, measured: Floats, *, folds: int = FOLDS, seed: int = 0) -> Floats:
    """Relative errors prediction / measurement - 1 of every sample by a fit that has not seen it, (3)."""
    order, parts = np.random.default_rng(seed).permutation(len(measured)), min(folds, len(measured))
    errors = np.empty(len(measured))
    for fold in range(parts):
        unseen = order[fold::parts]
        seen = np.setdiff1d(order, unseen)
        coefficients = memory_coefficients(terms[seen], measured[seen])
        errors[unseen] = predicted(terms[unseen], coefficients) / measured[unseen] - 1
    return errors


def conformal_excess(errors: Floats, level: float) -> tuple[float, float]:
    """The excess q of (4), at least 0, and the level that it bears out."""
    excess, count = np.sort(1 / (1 + errors) - 1), len(errors)
    rank = int(np.ceil((count + 1) * (1 - level)))
    if rank > count:
        return max(float(excess[-1]), 0.0), 1 / (count + 1)
    return max(float(excess[rank - 1]), 0.0), level
