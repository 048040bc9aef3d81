r"""
Calibrations from measured runs of models with experts, of one stack on one device or on devices of one kind.

The step time T(c) of a configuration is piecewise linear in the coefficients c, and doubles when they all double. By
Euler's theorem it is then, with its slopes as terms,

(1) :math:`T(c) = \sum_k c_k\, \partial T / \partial c_k`,

of which each part is what the term adds to the step: what other work or replicas hide of it has no slope. Slopes are
differences to slightly larger coefficients, exact but for rounding where no maximum changes its winner between.

A fit takes the slopes of its runs at the stated coefficients, and once more at the coefficients that the first fit
finds: between both hardly a maximum changes its winner.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from taut.data.arrays import Floats
from taut.data.calibration import EXPERT_TERMS, KEPT, Calibration, uncalibrated
from taut.data.samples import ConfigurationRow
from taut.prediction.experts import division_of, priced_alone
from taut.prediction.fitting import gather_slowdown_of, seen_of
from taut.prediction.settings import Given, Setting, find_device, setting_of
from taut.solver.calibration.fitted import fit_calibration
from taut.solver.calibration.latency import (
    SHOWN,
    Samples,
    Stack,
    TermsAt,
    fit_coefficients,
    stated_coefficients,
)

STEP = 1e-6
"""Difference of a coefficient by which slopes are taken."""
LAUNCHES_US = (400.0, 800.0, 1600.0, 3000.0)
"""Microseconds of the host for a pass that a fit tries: layers with experts launch more kernels than dense ones."""
HIDDEN = ("tensor_parallel", "pipeline", "data_parallel", "gather")
"""Terms of communication, of which computation may hide a part."""
LEAST = {"gemm": 0.75, "attention": 0.5, "memory": 0.75, "exchange": 1.0, **dict.fromkeys(HIDDEN, SHOWN)}
"""
Least coefficients. Tables of products are 12 to 15 % off, and cast for each product what training casts in the kernels
before it; attention in fp8 takes half the time of bf16 at best; kernels that are fused save a quarter of the traffic of
their layer at most, the copy between each two of four. No exchange is quicker than its links; what another micro-batch
hides is priced apart.
"""
REGULARISATION = 0.1
"""Weight of the stated coefficients: at 0.03, as for dense runs, the fewer kinds of runs leave terms to their noise."""


def calibrate_experts(
    rows: list[ConfigurationRow],
    about: dict[str, Any],
    launches: Sequence[float] = LAUNCHES_US,
) -> list[Calibration]:
    """
    Calibration from runs with experts, once for each of their devices.

    ``rows``: runs of models with experts, with ``measured_s``; ``about``: what the calibration says of itself: fields
    of ``Calibration``; its name is followed by the device's where there are several; ``launches``: microseconds of the
    host for a pass that are tried. Raises ``DataError`` if no plan has a row's degrees. Raises ``FormulationError`` if
    there are fewer than four runs.
    """
    devices = list({row.gpu: find_device(row.gpu) for row in rows}.values())
    samples = expert_samples(rows, about, launches)
    about = {"nodes": "any", **about, "experts": True, "gather_slowdown": gather_slowdown_of(rows)}
    about["seen"] = seen_of(rows)
    found = fit_calibration(samples, devices[0], about, EXPERT_TERMS)
    several = len(devices) > 1
    return [
        found.model_copy(
            update={"device": one.name, "name": f"{found.name}-{one.name.split('-')[0]}" if several else found.name}
        )
        for one in devices
    ]


def expert_samples(
    rows: list[ConfigurationRow], about: dict[str, Any], launches: Sequence[float]
) -> dict[Stack, Samples]:
    """Runs with experts under every launch time that a fit tries, of a calibration that says this of itself."""
    return {stack: _samples(rows, about, stack) for stack in (Stack(launch, True) for launch in launches)}


def _samples(rows: list[ConfigurationRow], about: dict[str, Any], stack: Stack) -> Samples:
    seconds = np.array([row.measured_s for row in rows], dtype=float)
    stated = stated_coefficients(find_device(rows[0].gpu), EXPERT_TERMS)
    at, least = stated, np.array([LEAST.get(term, 0.0) for term in EXPERT_TERMS])
    for _ in range(2):
        runs = Samples(_constant(_slopes(rows, about, stack, at)), seconds, least, REGULARISATION)
        at = fit_coefficients(runs, stated)
    return runs


def _constant(terms: Floats) -> TermsAt:
    return lambda _: terms


def _slopes(rows: list[ConfigurationRow], about: dict[str, Any], stack: Stack, at: Floats) -> Floats:
    """Terms of all runs at some coefficients, (runs, terms)."""
    kept = {name: about[name] for name in (*KEPT, "cluster", "fused_experts") if name in about}
    found = []
    for row in rows:
        said = uncalibrated(find_device(row.gpu)).model_copy(update={**kept, **stack._asdict()})
        found.append(slopes(row, setting_of(row, Given(calibration=said)), at))
    return np.array(found)


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
