r"""
Fitting a calibration: non-negative least squares on relative error.

Samples i with terms :math:`x_{ik}` at coefficient 1 (``taut.formulations.terms``) and measured seconds :math:`y_i`,

(1) minimise :math:`\sum_i w_i (\sum_k c_k x_{ik} / y_i - 1)^2 + \lambda^2 n \sum_k (c_k / p_k - 1)^2` over
    :math:`c \ge 0`, with p what the device states and a small :math:`\lambda`: where samples cannot tell terms apart
    the stated efficiencies do, instead of one term taking what belongs to another;
(2) weights :math:`w_i = 1 / \max(|r_i|, \rho)` from the residuals r of the fit before, from all ones, a fixed number
    of times: this leads from squares towards absolute relative errors, so that few odd runs do not set the rest;
(3) error on unseen runs: K folds, each predicted by a fit on the others; its quantiles are the calibration's band.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from taut.data.calibration import HIGH, LOW, TERMS, Calibration, uncalibrated
from taut.data.device import DeviceSpec
from taut.errors import FormulationError

Floats = NDArray[np.float64]
ROUNDS = 8
SMALLEST_RESIDUAL = 0.02
"""Residuals below run-to-run noise weigh the same."""
PULL = 0.003
"""Lambda of (1): a coefficient at twice the stated one costs as much as 0.3 % of error on every run."""
SMALLEST_STATED = 0.01
"""Stands for a stated coefficient of zero, as the constant's is."""
QUANTILES = (0.05, LOW, 0.25, 0.5, 0.75, HIGH, 0.95)


def fit_coefficients(terms: Floats, seconds: Floats, stated: Floats) -> Floats:
    """
    Non-negative coefficients of (1) and (2).

    Parameters
    ----------
    terms
        Terms at coefficient 1, (samples, terms).
    seconds
        Measured step times, (samples,).
    stated
        Coefficients that the device states, (terms,).

    Raises
    ------
    FormulationError
        If there are no samples, or a figure is not finite or not positive.
    """
    if len(seconds) == 0 or not (np.isfinite(terms).all() and (seconds > 0).all() and np.isfinite(seconds).all()):
        raise FormulationError("samples need finite terms and measured seconds above 0, at least one of them")
    scale = np.where(stated > 0, stated, SMALLEST_STATED)
    relative, weights = terms / seconds[:, None] * scale, np.ones(len(seconds))
    pull = PULL * np.sqrt(len(seconds)) * np.ones(len(scale))
    for _ in range(ROUNDS):
        rows = np.vstack([relative * weights[:, None], np.diag(pull)])
        coefficients, _ = nnls(rows, np.concatenate([weights, pull]))
        residuals = np.abs(relative @ coefficients - 1)
        weights = 1 / np.sqrt(np.maximum(residuals, SMALLEST_RESIDUAL))
        weights /= np.sqrt(np.mean(weights**2))
    return np.asarray(coefficients * scale)


def cross_validate(terms: Floats, seconds: Floats, stated: Floats, *, folds: int = 10, seed: int = 0) -> Floats:
    """
    Relative errors prediction / measurement - 1 of every sample, predicted by a fit that has not seen it, (3).

    Parameters
    ----------
    terms, seconds, stated
        As in ``fit_coefficients``.
    folds, seed
        Number of parts, and the seed of the random division.
    """
    order = np.random.default_rng(seed).permutation(len(seconds))
    errors = np.empty(len(seconds))
    for fold in range(folds):
        unseen = order[fold::folds]
        seen = np.setdiff1d(order, unseen)
        errors[unseen] = terms[unseen] @ fit_coefficients(terms[seen], seconds[seen], stated) / seconds[unseen] - 1
    return errors


def fit_calibration(
    terms: Floats,
    seconds: Floats,
    device: DeviceSpec,
    *,
    name: str,
    stack: str = "",
    nodes: str = "any",
    cluster: str = "",
    source: str = "",
) -> Calibration:
    """
    Calibration from samples, with the error band of ten-fold cross-validation.

    Parameters
    ----------
    terms, seconds
        As in ``fit_coefficients``; at least 20 samples.
    device
        What the samples ran on; its stated efficiencies decide where the samples do not.
    name, stack, nodes, cluster, source
        What the calibration says of itself.

    Raises
    ------
    FormulationError
        If there are fewer than 20 samples: the band would mean nothing.
    """
    if len(seconds) < 20:
        raise FormulationError(f"{len(seconds)} samples, expected at least 20 for a fit with an error band")
    stated = np.array([uncalibrated(device)[term] for term in TERMS])
    errors = cross_validate(terms, seconds, stated)
    return Calibration.model_validate(
        {
            "name": name,
            "stack": stack,
            "device": device.name,
            "nodes": nodes,
            "cluster": cluster,
            "coefficients": dict(zip(TERMS, fit_coefficients(terms, seconds, stated).tolist(), strict=True)),
            "residuals": {str(q): float(np.quantile(errors, q)) for q in QUANTILES},
            "samples": len(seconds),
            "mape": float(np.abs(errors).mean()),
            "source": source,
        }
    )
