"""
A calibration from measured runs: the stack's properties, coefficients, factors of layer shapes, and the error band.

Numbers in brackets are those of ``taut.solver.calibration.latency``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taut.data.arrays import Floats
from taut.data.calibration import HIGH, LOW, OPTIONAL, TERMS, Calibration
from taut.data.device import DeviceSpec
from taut.data.layers.layer_factor import LayerFactor
from taut.errors import FormulationError
from taut.solver.calibration.latency import (
    ALIKE,
    ENOUGH,
    FEWEST,
    WORTHWHILE,
    Samples,
    Stack,
    cross_validate,
    drawn_to,
    factors_above,
    fit_coefficients,
    stack_of,
    stated_factors,
)

NEARLY_LEAST = 1.02
"""Factor of (4) on the least error: differences below it are noise of the folds."""
QUANTILES = (0.05, LOW, 0.25, 0.5, 0.75, HIGH, 0.95)


def fit_calibration(
    samples: Mapping[Stack, Samples],
    device: DeviceSpec,
    about: Mapping[str, Any],
    terms: Sequence[str] = TERMS,
    like: Calibration | None = None,
) -> Calibration:
    """
    Calibration from samples, with the error band of ten-fold cross-validation.

    ``samples``: the runs by the stack's properties, (4); ``device``: what the samples ran on; what it states decides
    where the samples do not; ``about``: what the calibration says of itself: fields of ``Calibration`` such as its name
    and stack; ``terms``: names of the terms; ``like``: what another fit of the stack says of these runs, (6). Returns
    coefficients, band and error. Raises ``FormulationError`` if there are fewer than four samples.
    """
    count = len(next(iter(samples.values())).seconds)
    if count < FEWEST:
        raise FormulationError(f"{count} samples, expected at least {FEWEST} for a fit with an error band")
    if like is not None:
        samples = {stack_of(like): samples[stack_of(like)]._replace(strength=ALIKE)}
    stated = drawn_to(device, like, terms)
    unseen = {stack: cross_validate(runs, stated) for stack, runs in samples.items()}
    stack = _chosen({stack: float(np.abs(errors).mean()) for stack, errors in unseen.items()}, count)
    runs, errors, coefficients = samples[stack], unseen[stack], fit_coefficients(samples[stack], stated)
    known = dict(zip(terms, coefficients.tolist(), strict=True))
    return Calibration.model_validate(
        {
            **about,
            "device": device.name,
            **stack._asdict(),
            "coefficients": {term: known[term] for term in terms if term not in _unseen(runs, coefficients, terms)},
            "layer_factors": _factors(runs, stated, errors, coefficients),
            "residuals": {str(q): outer_quantile(errors, q) for q in QUANTILES},
            "samples": count,
            "mape": float(np.abs(errors).mean()),
        }
    )


def _unseen(runs: Samples, coefficients: Floats, terms: Sequence[str]) -> set[str]:
    """Optional terms of which no run has anything: what a fit says of them is what it was pulled to."""
    present = np.any(runs.terms(coefficients) > 0, axis=0).tolist()
    return {term for term, some in zip(terms, present, strict=True) if term in OPTIONAL and not some}


def _factors(runs: Samples, stated: Floats, errors: Floats, coefficients: Floats) -> list[LayerFactor]:
    """Factors of layer shapes by (7), beside the errors of unseen runs without; none where they are not worthwhile."""
    above = factors_above(runs, coefficients)
    if runs.layers is None or above is None or len(errors) < ENOUGH:
        return []
    beside = cross_validate(runs, stated, factors=True)
    return stated_factors(runs.layers, above) if np.abs(beside).mean() < WORTHWHILE * np.abs(errors).mean() else []


def _chosen(mean_error: Mapping[Stack, float], samples: int) -> Stack:
    """The stack by (4), from the mean error of each."""
    enough = max(mean_error.values()) if samples < ENOUGH else NEARLY_LEAST * min(mean_error.values())
    return next(stack for stack, error in mean_error.items() if error <= enough)


def outer_quantile(errors: Floats, share: float) -> float:
    """The quantile, of two neighbouring errors the one farther out, (3)."""
    return float(np.quantile(errors, share, method="lower" if share < 0.5 else "higher"))
