r"""
Fitting a memory model: regularised non-negative least squares on relative error, with a margin.

Sets: samples i, terms k, stages s that may be the fullest (the one that was measured, if the sample says which).
Data: terms :math:`x_{isk}` in bytes (``taut.formulations.batch.memory``), a GiB for every group and a byte of overhead
among them, measured bytes :math:`y_i`, the analytic model's coefficients :math:`p_k`. Variables: coefficients
:math:`c_k \ge 0`.

(1) Minimise :math:`\sum_i w_i (\sum_k c_k x_{i s_i k} / y_i - 1)^2 + \lambda^2 \sum_k (c_k / p_k - 1)^2`: the formulas
    hold until samples contradict them (Tikhonov regularisation; Lawson and Hanson 1974).
(2) :math:`s_i` is the fullest stage under the coefficients before, and the weights :math:`w_i` are those of iteratively
    reweighted least squares (``taut.solver.calibration.latency`` (2)), both renewed a fixed number of times.
(3) Error on unseen samples: K-fold cross-validation; :math:`\lambda` is of a few values the one with the least error.
(4) Margin: from the excesses :math:`y - \hat y` of (3) and those of other stacks.

The margin is what stays free because predictions err, pooled over stacks where runs are few. Data: excesses
:math:`e_{si} = y - \hat y` of unseen runs i of stack s, :math:`n_s` of them, in GiB.

(5) Own quantile :math:`q_s`: the :math:`\lceil (n_s + 1) (1 - \alpha) \rceil`-th smallest excess. A new run like
    these exceeds its prediction by more with a probability of about :math:`\alpha` (conformal prediction, Vovk,
    Gammerman and Shafer 2005; with the errors of K folds, Barber et al. 2021). It takes :math:`1 / \alpha - 1` runs;
    of fewer it is the largest, which one bad run decides and :math:`1 / (n_s + 1)` of new runs exceed.
(6) Spread: :math:`\tilde\sigma_s^2 = (d_0 \sigma_0^2 + \sum_i e_{si}^2) / (d_0 + n_s)`, the stack's mean square drawn
    towards that of all stacks by :math:`d_0` degrees of freedom, more the less the stacks' spreads differ (moderated
    variances; :math:`d_0` and :math:`\sigma_0` by the first two moments of :math:`\ln \sum_i e_{si}^2 / n_s`, Smyth
    2004, section 6.2).
(7) Margin: :math:`\tilde\sigma_s Q`, at least 0, with Q the quantile (5) of :math:`e_{si} / \tilde\sigma_s` over the
    runs of all stacks: what a stack's few runs cannot say of rare excesses, those of all stacks do. Margins from 4 to
    8 of BLOOM's 60 runs alone are exceeded by 19 to 11 % of the others, pooled ones by 6 to 4 %
    (``benchmarks/memory_accuracy.py``).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq, nnls
from scipy.special import digamma, polygamma

from taut.data.arrays import Floats
from taut.data.memory import MEMORY_TERMS, MemoryModel
from taut.data.units import GIB
from taut.errors import FormulationError
from taut.solver.calibration.latency import REWEIGHTINGS, SMALLEST_RESIDUAL

SMALLEST = 1e-6
"""Least sum of squares of a stack, for runs that are predicted exactly."""
LEAST, MOST = 1e-3, 1e6
"""Half the least and the most degrees of freedom that (6) looks for; beyond the most, spreads are taken as equal."""


def pooled_margin(excesses: Floats, others: Sequence[Floats], level: float) -> tuple[float, float]:
    """Margin (7) and the level that it is for, of excesses (n,), or the own quantile where there is no other stack."""
    if not others:
        return conformal_margin(excesses, level)
    stacks = [excesses, *others]
    spreads = moderated_spreads(stacks)
    together = np.concatenate([found / spread for found, spread in zip(stacks, spreads, strict=True)])
    quantile, level = conformal_margin(together, level)
    return float(spreads[0]) * quantile, level


def conformal_margin(excesses: Floats, level: float) -> tuple[float, float]:
    """Own quantile (5), at least 0, of ``excesses`` (n,) on samples that the fit has not seen, and its level."""
    ordered, count = np.sort(excesses), len(excesses)
    rank = math.ceil((count + 1) * (1 - level))
    if rank > count:
        return max(float(ordered[-1]), 0.0), 1 / (count + 1)
    return max(float(ordered[rank - 1]), 0.0), level


def moderated_spreads(stacks: Sequence[Floats]) -> Floats:
    """Spread of every stack, (6), from the excesses of each."""
    freedom, square = _prior(stacks)
    counts, squares = np.array([len(found) for found in stacks]), np.array([found @ found for found in stacks])
    return np.asarray(np.sqrt((freedom * square + squares) / (freedom + counts)))


def _prior(stacks: Sequence[Floats]) -> tuple[float, float]:
    """Degrees of freedom and mean square that stacks share, (6)."""
    counts = np.array([len(found) for found in stacks], dtype=float)
    mean_squares = np.array([max(float(found @ found), SMALLEST) for found in stacks]) / counts
    logs = np.log(mean_squares) - digamma(counts / 2) + np.log(counts / 2)
    centre, differ = float(logs.mean()), float(logs.var(ddof=1) - polygamma(1, counts / 2).mean())
    if differ <= polygamma(1, MOST):
        return 2 * MOST, math.exp(centre)
    half = float(brentq(lambda half: float(polygamma(1, half)) - differ, LEAST, MOST))
    return 2 * half, math.exp(centre + float(digamma(half)) - math.log(half))


REGULARISATIONS = (0.05, 0.1, 0.2, 0.4)
"""Lambda of (1): at 0.1 a coefficient at twice the analytic one costs as much as an error of 10 % on one sample."""
OVERHEAD_GIB, GROUP_GIB = 2.0, 2.0
"""
Overheads, p of (1): CUDA's context and a fragmented allocator, and what several stages, and several replicas, take for
communicators and buckets. Left apart, both were fitted to 2.1 GiB on BLOOM's trials, and all other coefficients to 1.
"""
FEWEST, FOLDS = 4, 10
"""Samples below which there is no fit, and folds of (3)."""
PRIOR = np.array([*(1.0 for _ in MEMORY_TERMS), GROUP_GIB, OVERHEAD_GIB * GIB])


def fit_memory(
    terms: Floats,
    measured: Floats,
    about: Mapping[str, Any],
    *,
    level: float = 0.05,
    seed: int = 0,
    others: Sequence[Floats] = (),
) -> MemoryModel:
    """Memory model of ``terms`` (samples, stages, terms + 1), margin (4) with ``others``; ``about``: its own fields."""
    if len(measured) < FEWEST or not (
        np.isfinite(terms).all() and np.isfinite(measured).all() and (measured > 0).all()
    ):
        raise FormulationError(
            f"{len(measured)} samples, expected at least {FEWEST} with finite terms and bytes above 0"
        )
    by_strength = {
        strength: cross_validated_errors(terms, measured, strength, seed=seed) for strength in REGULARISATIONS
    }
    strength = min(REGULARISATIONS, key=lambda strength: float(np.abs(by_strength[strength]).mean()))
    coefficients, errors = memory_coefficients(terms, measured, strength), by_strength[strength]
    excesses = measured * -errors / GIB
    margin, guaranteed = pooled_margin(excesses, others, level)
    return MemoryModel.model_validate(
        {
            **about,
            "overhead_gib": coefficients[-1] / GIB,
            "group_overhead_gib": float(coefficients[-2]),
            "coefficients": dict(zip(MEMORY_TERMS, coefficients[:-2].tolist(), strict=True)),
            "margin": 0.0,
            "margin_gib": margin,
            "excesses_gib": np.sort(excesses).tolist(),
            "level": guaranteed,
            "samples": len(measured),
            "mape": float(np.abs(errors).mean()),
        }
    )


def weights_of(model: MemoryModel) -> Floats:
    """What a memory model multiplies terms with, in their order, the overheads of a group and of all last."""
    return np.array([*(model.coefficient(t) for t in MEMORY_TERMS), model.group_overhead_gib, model.overhead_bytes])


def predicted(terms: Floats, coefficients: Floats) -> Floats:
    """Bytes of the fullest stage (samples,), from terms (samples, stages, terms + 1) and their weights (terms + 2,)."""
    return np.asarray((terms @ coefficients[:-1] + coefficients[-1]).max(axis=1))


def memory_coefficients(terms: Floats, measured: Floats, strength: float) -> Floats:
    """Coefficients (terms + 2,) by (1) and (2), none negative, a group's GiB and the overhead's bytes last."""
    coefficients, weights = PRIOR, np.ones(len(measured))
    rows, strengths = np.arange(len(measured)), np.full(len(PRIOR), strength)
    for _ in range(REWEIGHTINGS):
        fullest = (terms @ coefficients[:-1]).argmax(axis=1)
        relative = np.column_stack([terms[rows, fullest], np.ones(len(rows))]) * PRIOR / measured[:, None]
        stacked = np.vstack([relative * weights[:, None], np.diag(strengths)])
        scaled, _ = nnls(stacked, np.concatenate([weights, strengths]))
        coefficients = scaled * PRIOR
        residuals = np.abs(predicted(terms, coefficients) / measured - 1)
        weights = 1 / np.sqrt(np.maximum(residuals, SMALLEST_RESIDUAL))
        weights /= np.sqrt(np.mean(weights**2))
    return np.asarray(coefficients)


def cross_validated_errors(terms: Floats, measured: Floats, strength: float, *, seed: int = 0) -> Floats:
    """Prediction / measurement - 1 of every sample under a fit that has not seen it, (samples,), (3)."""
    order, parts = np.random.default_rng(seed).permutation(len(measured)), min(FOLDS, len(measured))
    errors = np.empty(len(measured))
    for fold in range(parts):
        unseen = order[fold::parts]
        seen = np.setdiff1d(order, unseen)
        coefficients = memory_coefficients(terms[seen], measured[seen], strength)
        errors[unseen] = predicted(terms[unseen], coefficients) / measured[unseen] - 1
    return errors
