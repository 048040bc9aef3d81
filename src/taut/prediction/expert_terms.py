r"""
Terms of a step with experts: what each coefficient of a calibration multiplies.

The step time T(c) of a configuration is piecewise linear in the coefficients c, and doubles when they all double. By
Euler's theorem it is then, with its slopes as terms,

(1) :math:`T(c) = \sum_k c_k\, \partial T / \partial c_k`,

of which each part is what the term adds to the step: what other work or replicas hide of it has no slope. Slopes are
differences to slightly larger coefficients, exact but for rounding where no maximum changes its winner between.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from taut.data.arrays import Floats
from taut.data.calibration import EXPERT_TERMS, Calibration
from taut.data.samples import ConfigurationRow
from taut.prediction.experts import division_of, priced_alone
from taut.prediction.settings import Given, Setting, setting_of

STEP = 1e-6
"""Difference of a coefficient by which slopes are taken."""


def expert_terms(row: ConfigurationRow, given: Given | None = None) -> dict[str, float]:
    """Seconds that each term adds to the predicted step of a row with experts, (1)."""
    setting = setting_of(row, given or Given())
    coefficients = np.array([setting.calibration[term] for term in EXPERT_TERMS])
    parts = slopes(row, setting, coefficients) * coefficients
    return dict(zip(EXPERT_TERMS, parts.tolist(), strict=True))


def slopes(row: ConfigurationRow, setting: Setting, coefficients: Floats) -> Floats:
    """
    Terms of a row at some coefficients, (1).

    ``row``: a configuration with experts; ``setting``: what prices it but the coefficients; ``coefficients``: in the
    order of ``EXPERT_TERMS``. Returns seconds at coefficient 1, in the order of ``EXPERT_TERMS``. Raises ``DataError``
    if no plan has these degrees.
    """
    at = _seconds(row, setting, coefficients)
    moved = coefficients + STEP * np.eye(len(EXPERT_TERMS))
    return np.array([_seconds(row, setting, each) - at for each in moved]) / STEP


def _seconds(row: ConfigurationRow, setting: Setting, coefficients: Sequence[float] | Floats) -> float:
    known = setting.calibration.model_dump()
    known["coefficients"] = dict(zip(EXPERT_TERMS, map(float, coefficients), strict=True))
    chosen = replace(setting, calibration=Calibration.model_validate(known))
    return priced_alone(row, chosen, division_of(row))[0]
