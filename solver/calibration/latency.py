r"""
Fitting a calibration: regularised non-negative least squares on relative error, reweighted towards absolute error.

Sets: samples i, terms k. Data: terms :math:`x_{ik}` in seconds at coefficient 1
(``taut.formulations.batch.step_time``), measured seconds :math:`y_i`, coefficients :math:`p_k` that the device states.
Variables: coefficients :math:`c_k \ge 0`.

(1) Minimise :math:`\sum_i w_i (\sum_k c_k x_{ik} / y_i - 1)^2 + \lambda^2 \sum_k (c_k / p_k - 1)^2`. The second sum
    (Tikhonov regularisation towards p) decides where the samples do not tell terms apart, and few samples move
    coefficients less. It is one non-negative least-squares problem (Lawson and Hanson 1974).
(2) Weights :math:`w_i = 1 / \max(|r_i|, \rho)` from the residuals r of the fit before, from all ones, a fixed number of
    times: iteratively reweighted least squares, which leads from squared towards absolute relative errors, so that few
    outliers do not set the rest (Holland and Welsch 1977).
(3) Error on unseen runs: K-fold cross-validation (Stone 1974), each fold predicted by a fit on the others. Its
    quantiles are the calibration's band; of two neighbouring errors the one farther out counts.
(4) Properties of the stack that the terms depend on, launch seconds and whether attention is fused: of the given
    combinations the first whose error of (3) is within 2 % of the least, or with few samples the first of all.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from taut.data.arrays import Floats
from taut.data.calibration import HIGH, LOW, TERMS, Calibration, uncalibrated
from taut.data.device import DeviceSpec
from taut.errors import FormulationError

REWEIGHTINGS = 8
"""Fits of (2)."""
SMALLEST_RESIDUAL = 0.02
"""Rho of (2), about run-to-run noise: smaller residuals weigh the same."""
REGULARISATION = 0.03
"""Lambda of (1): a coefficient at twice the stated one costs as much as an error of 3 % on one run."""
LAUNCHES_US = (100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 800.0)
FEWEST, ENOUGH = 4, 20
"""Samples below which there is no fit, and below which the stack's properties are not chosen by them."""
NEARLY_LEAST = 1.02
"""Factor of (4) on the least error: differences below it are noise of the folds."""
SMALLEST_STATED = 0.01
"""In the place of a stated coefficient of zero, as the constant's is, which (1) divides by."""
QUANTILES = (0.05, LOW, 0.25, 0.5, 0.75, HIGH, 0.95)


class Stack(NamedTuple):
    """Properties of a software stack that the terms depend on, (4)."""

    launch_us: float
    fused_attention: bool


STACKS = [Stack(launch, fused) for fused in (True, False) for launch in LAUNCHES_US]


def fit_coefficients(terms: Floats, seconds: Floats, stated: Floats) -> Floats:
    """
    Coefficients by (1) and (2).

    Parameters
    ----------
    terms
        Terms at coefficient 1, (samples, terms).
    seconds
        Measured step times, (samples,).
    stated
        Coefficients that the device states, (terms,).

    Returns
    -------
    array
        Coefficients, none negative, (terms,).

    Raises
    ------
    FormulationError
        If there are no samples, or a figure is not finite or not positive.
    """
    if len(seconds) == 0 or not (np.isfinite(terms).all() and (seconds > 0).all() and np.isfinite(seconds).all()):
        raise FormulationError("samples need finite terms and measured seconds above 0, at least one of them")
    scale = np.where(stated > 0, stated, SMALLEST_STATED)
    relative, weights = terms / seconds[:, None] * scale, np.ones(len(seconds))
    strength = REGULARISATION * np.ones(len(scale))
    for _ in range(REWEIGHTINGS):
        rows = np.vstack([relative * weights[:, None], np.diag(strength)])
        coefficients, _ = nnls(rows, np.concatenate([weights, strength]))
        residuals = np.abs(relative @ coefficients - 1)
        weights = 1 / np.sqrt(np.maximum(residuals, SMALLEST_RESIDUAL))
        weights /= np.sqrt(np.mean(weights**2))
    return np.asarray(coefficients * scale)


def cross_validate(terms: Floats, seconds: Floats, stated: Floats, *, folds: int = 10, seed: int = 0) -> Floats:
    """
    Relative error of every sample under a fit that has not seen it, (3).

    Parameters
    ----------
    terms, seconds, stated
        As in ``fit_coefficients``.
    folds, seed
        Number of folds, and the seed of their random choice.

    Returns
    -------
    array
        Prediction / measurement - 1, (samples,).
    """
    order = np.random.default_rng(seed).permutation(len(seconds))
    errors = np.empty(len(seconds))
    for fold in range(min(folds, len(seconds))):
        unseen = order[fold :: min(folds, len(seconds))]
        seen = np.setdiff1d(order, unseen)
        errors[unseen] = terms[unseen] @ fit_coefficients(terms[seen], seconds[seen], stated) / seconds[unseen] - 1
    return errors


def stated_coefficients(device: DeviceSpec) -> Floats:
    """Coefficients that the device states, in the order of ``TERMS``."""
    return np.array([uncalibrated(device)[term] for term in TERMS])


def fit_calibration(
    terms_by_stack: Mapping[Stack, Floats], seconds: Floats, device: DeviceSpec, about: Mapping[str, Any]
) -> Calibration:
    """
    Calibration from samples, with the error band of ten-fold cross-validation.

    Parameters
    ----------
    terms_by_stack
        Terms as in ``fit_coefficients`` by the stack's properties, (4).
    seconds
        Measured step times.
    device
        What the samples ran on; what it states decides where the samples do not.
    about
        What the calibration says of itself: fields of ``Calibration`` such as its name and stack.

    Returns
    -------
    Calibration
        Coefficients, band and error.

    Raises
    ------
    FormulationError
        If there are fewer than four samples.
    """
    if len(seconds) < FEWEST:
        raise FormulationError(f"{len(seconds)} samples, expected at least {FEWEST} for a fit with an error band")
    stated = stated_coefficients(device)
    unseen = {stack: cross_validate(terms, seconds, stated) for stack, terms in terms_by_stack.items()}
    stack = _chosen({stack: float(np.abs(errors).mean()) for stack, errors in unseen.items()}, len(seconds))
    errors, coefficients = unseen[stack], fit_coefficients(terms_by_stack[stack], seconds, stated)
    return Calibration.model_validate(
        {
            **about,
            "device": device.name,
            **stack._asdict(),
            "coefficients": dict(zip(TERMS, coefficients.tolist(), strict=True)),
            "residuals": {str(q): _outer_quantile(errors, q) for q in QUANTILES},
            "samples": len(seconds),
            "mape": float(np.abs(errors).mean()),
        }
    )


def _chosen(mean_error: Mapping[Stack, float], samples: int) -> Stack:
    """The stack by (4), from the mean error of each."""
    enough = max(mean_error.values()) if samples < ENOUGH else NEARLY_LEAST * min(mean_error.values())
    return next(stack for stack, error in mean_error.items() if error <= enough)


def _outer_quantile(errors: Floats, share: float) -> float:
    """The quantile, of two neighbouring errors the one farther out, (3)."""
    return float(np.quantile(errors, share, method="lower" if share < 0.5 else "higher"))
