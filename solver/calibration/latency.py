r"""
Fitting a calibration: regularised non-negative least squares on relative error, reweighted towards absolute error.

Sets: samples i, terms k. Data: terms :math:`x_{ik}(c)` in seconds at coefficient 1 of what sample i waits for under
coefficients c (``taut.formulations.batch.step_time`` (8)), measured seconds :math:`y_i`, coefficients :math:`p_k` that
the device states, floors :math:`f_k`. Variables: coefficients :math:`c_k \ge f_k`.

(1) Minimise :math:`\sum_i w_i (\sum_k c_k x_{ik} / y_i - 1)^2 + \lambda^2 \sum_k (c_k / p_k - 1)^2`. The second sum
    (Tikhonov regularisation towards p) decides where the samples do not tell terms apart, and few samples move
    coefficients less. With :math:`c - f \ge 0` as variables it is one non-negative least-squares problem (Lawson and
    Hanson 1974).
(2) Weights :math:`w_i = 1 / \max(|r_i|, \rho)` from the residuals r of the fit before, from all ones, a fixed number of
    times: iteratively reweighted least squares, which leads from squared towards absolute relative errors, so that few
    outliers do not set the rest (Holland and Welsch 1977). The terms, too, are those at the coefficients before
    (Gauss-Newton on a piecewise linear model), and of the whole and shorter steps to each fit the first is taken whose
    own terms give less, until none does, of
    :math:`\sum_i r_i^2 w_i + \lambda^2 \bar w \sum_k (c_k / p_k - 1)^2`. It begins at the stated coefficients and
    with communication at its floors; the better end is kept.
(3) Error on unseen runs: K-fold cross-validation (Stone 1974), each fold predicted by a fit on the others. The band has
    quantiles of the errors on unseen plans: runs that differ in devices and replicas alone say nearly the same, so that
    they are in one fold. Of two neighbouring errors the one farther out counts.
(4) Properties of the stack that the terms depend on, launch seconds and whether attention is fused: of the given
    combinations the first whose error of (3) is within 2 % of the least, or with few samples the first of all.
(5) Floors :math:`f_k` of communication. No link is faster than stated by more than some per cent, so that a coefficient
    far below 1 stands for what a stack hides behind computation. It hides in pieces, of which the first or the last has
    nothing beside it: collectives of tensor groups run beside products in at most as many pieces as a node has ranks, 8
    in all campaigns here, so at least 1/8 shows, and the same share is taken of hops and gradients. Where the model
    itself hides gradients or gathers, the floor is 1. The optimizer's bytes pass no faster than at the peak bandwidth
    that its term is priced at: 1. Matrix products are no faster in training than measured alone, on devices whose
    operators were measured, less the mean error of their model on unseen shapes.
(6) Runs in a narrower format are pulled to the stack's fit in half precision in the place of stated coefficients. Runs
    on many nodes are pulled to the stack's fit on one node in products, attention and launches, the same kernels and
    hosts; its coefficient of memory traffic holds what else small layers wait for, and is not taken. Of two fits with
    other work, what their launches have in common are the seconds of a pass without work, coefficient times launch
    time: that is the launch time, and its coefficient is pulled to 1.
    A term that a stack hides nearly whole, so that its runs do not tell, may be pulled to a known figure as strongly.
(7) Beside the coefficients of all runs the shapes of their layers may have factors.

The factor of a shape is what the coefficients leave that all runs of a shape have in common. Sets: runs i, shapes g of
their layers. Data: measured seconds :math:`y_i`; under fitted coefficients predicted seconds :math:`a_i`, of which
:math:`l_i` are passes of layers.

(8) With :math:`r_i = 1 - a_i / y_i` and :math:`s_i = l_i / y_i` the factor of shape g is :math:`1 + u_g`,

    .. math:: u_g = \frac{\sum_{i \in g} r_i s_i}{\sum_{i \in g} s_i^2 + (\sigma / \tau)^2},

    the mean of u where :math:`r_i = s_i u_g + \epsilon_i`, with :math:`\sigma` the noise of a run and :math:`\tau` the
    error of operator models on shapes that were not measured (a random effect; Robinson 1991, Statistical Science 6).
(9) Predicted seconds are :math:`a_i + u_g l_i`: to first order, since which stage a step waits for may change.
(10) A calibration takes factors if they take a share off the mean error of unseen runs, each predicted by coefficients
    and factors of the others. Runs of shapes that the others lack keep their prediction, and the calibration its band,
    which holds for every shape.

A calibration holds the stack's properties, coefficients, factors of layer shapes, and the error band.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from taut.data.arrays import Floats, Ints
from taut.data.calibration import HIGH, LOW, OPTIONAL, TERMS, Calibration, uncalibrated
from taut.data.device import DeviceSpec
from taut.data.layers.layer_factor import LayerFactor
from taut.errors import FormulationError

RUN_NOISE, SHAPE_ERROR = 0.02, 0.08
"""Sigma and tau of (8): run-to-run noise, and the mean error of A100's operator model on unseen products."""
WORTHWHILE = 0.8
"""Factor on the mean error from which (10) takes factors: a fifth is beyond what folds and the choice itself feign."""
LEAST_FACTOR, MOST_FACTOR = 0.25, 4.0
"""Factors that a calibration may state."""


class LayerShapes(NamedTuple):
    """Shapes of the runs' layers, each run's (samples,), and seconds of layers in terms at coefficients."""

    shapes: tuple[LayerFactor, ...]
    which: Ints
    terms: Callable[[Floats], Floats]

    def take(self, rows: Ints) -> "LayerShapes":
        """Those of some of the samples."""
        terms = self.terms
        return self._replace(which=self.which[rows], terms=lambda coefficients: terms(coefficients)[rows])


def relative_factors(layers: LayerShapes, coefficients: Floats, predicted: Floats, seconds: Floats) -> Floats:
    """What the factors of all shapes are above 1, (shapes,), (8), from seconds predicted and measured, (samples,)."""
    share, left = layers.terms(coefficients) @ coefficients / seconds, 1 - predicted / seconds
    count = len(layers.shapes)
    above = np.bincount(layers.which, left * share, count)
    below = np.bincount(layers.which, share**2, count) + (RUN_NOISE / SHAPE_ERROR) ** 2
    return np.asarray(np.clip(above / below, LEAST_FACTOR - 1, MOST_FACTOR - 1))


def with_factors(layers: LayerShapes, coefficients: Floats, predicted: Floats, above: Floats) -> Floats:
    """Predicted seconds with factors, (samples,), (9)."""
    return np.asarray(predicted + above[layers.which] * (layers.terms(coefficients) @ coefficients))


def stated_factors(layers: LayerShapes, above: Floats) -> list[LayerFactor]:
    """Shapes with their factors."""
    pairs = zip(layers.shapes, above.tolist(), strict=True)
    return [shape.model_copy(update={"factor": 1 + more}) for shape, more in pairs]


REWEIGHTINGS = 8
"""Fits of (2) with renewed weights and terms."""
SMALLEST_RESIDUAL = 0.02
"""Rho of (2), about run-to-run noise: smaller residuals weigh the same."""
REGULARISATION = 0.03
"""Lambda of (1): a coefficient at twice the stated one costs as much as an error of 3 % on one run."""
ALIKE = 0.1
"""Lambda of (6), one of 0.03, 0.1 and 0.3: a coefficient at twice the stack's own costs as a run that is 10 % off."""
STEPS = (1.0, 0.5, 0.2, 0.05)
"""Shares of the step to a fit that (2) tries."""
LAUNCHES_US = (100.0, 200.0, 300.0, 400.0)
"""Microseconds of (4): a pass over a dense layer has some 20 to 40 kernels, each launched in 5 to 10 us."""
FEWEST, ENOUGH = 4, 20
"""Samples below which there is no fit, and below which the stack's properties are not chosen by them."""
SMALLEST_STATED = 0.01
"""In the place of a stated coefficient of zero, as the constant's is, which (1) divides by."""

SHOWN = 1 / 8
"""Floor of (5): the least share of its stated cost that communication shows."""
LEAST = {**dict.fromkeys(("tensor_parallel", "pipeline", "data_parallel", "gather"), SHOWN), "optimizer": 1.0}
FLOORS = np.array([LEAST.get(term, 0.0) for term in TERMS])
"""Floors of (5) that no device states."""
TermsAt = Callable[[Floats], Floats]
"""Terms (samples, terms) at coefficients in the order of ``TERMS``."""


class Samples(NamedTuple):
    """
    Measured runs: their terms as a function of coefficients, and seconds (samples,).

    ``floors`` (terms,) are the least coefficients, (5); ``strength`` is lambda of (1), of all terms or (terms,);
    ``layers`` are the shapes of the runs' layers, where factors of them may be found, (7); ``plans`` (samples,) are
    equal in runs of one plan, (3).
    """

    terms: TermsAt
    seconds: Floats
    floors: Floats = FLOORS
    strength: float | Floats = REGULARISATION
    layers: LayerShapes | None = None
    plans: Ints | None = None

    def take(self, rows: Ints) -> "Samples":
        """Some of the samples."""
        layers = None if self.layers is None else self.layers.take(rows)
        terms, plans = self.terms, None if self.plans is None else self.plans[rows]
        return self._replace(
            terms=lambda given: terms(given)[rows], seconds=self.seconds[rows], layers=layers, plans=plans
        )


class Stack(NamedTuple):
    """Properties of a software stack that the terms depend on, (4)."""

    launch_us: float
    fused_attention: bool


STACKS = [Stack(launch, fused) for fused in (True, False) for launch in LAUNCHES_US]


def fit_coefficients(samples: Samples, stated: Floats) -> Floats:
    """Coefficients (terms,) by (1) and (2), none below its floor; ``stated``: the device's own, (terms,)."""
    scale = np.where(stated > 0, stated, SMALLEST_STATED)
    _check(samples)
    fits = [_descent(samples, scale, start) for start in _starts(stated, samples.floors)]
    return min(fits, key=lambda fit: fit.merit).coefficients


def _starts(stated: Floats, floors: Floats) -> list[Floats]:
    """Coefficients that (2) begins with: as stated, and with communication at its floors."""
    return [np.maximum(stated, floors), np.where(floors > 0, floors, stated)]


class _Fit(NamedTuple):
    """Coefficients and their merit, what (2) keeps the least of."""

    coefficients: Floats
    merit: float
    terms: Floats
    weights: Floats


def _descent(samples: Samples, scale: Floats, start: Floats) -> _Fit:
    """The best of the fits that one start leads to, (2)."""
    best = _judged(samples, scale, start)
    weights = np.ones(len(samples.seconds))
    for _ in range(REWEIGHTINGS):
        found = _least_squares(samples, best.terms / samples.seconds[:, None], weights, scale)
        steps = (best.coefficients + share * (found - best.coefficients) for share in STEPS)
        tried = (_judged(samples, scale, coefficients) for coefficients in steps)
        better = next((fit for fit in tried if fit.merit < best.merit), None)
        if better is None:
            break
        best, weights = better, better.weights
    return best


def _judged(samples: Samples, scale: Floats, coefficients: Floats) -> _Fit:
    """Coefficients with their own terms, weights of the residuals under them, and merit, (2)."""
    terms = samples.terms(coefficients)
    residuals = np.abs(terms @ coefficients / samples.seconds - 1)
    weights = 1 / np.maximum(residuals, SMALLEST_RESIDUAL)
    pull = weights.mean() * ((samples.strength * (coefficients / scale - 1)) ** 2).sum()
    merit = float((residuals**2 * weights).sum() + pull)
    return _Fit(coefficients, merit, terms, np.sqrt(weights / weights.mean()))


def _check(samples: Samples) -> None:
    """Refuse samples that are none or wrong."""
    seconds = samples.seconds
    finite = len(seconds) and np.isfinite(samples.terms(np.maximum(samples.floors, 1.0))).all()
    if not (finite and (seconds > 0).all() and np.isfinite(seconds).all()):
        raise FormulationError("samples need finite terms and measured seconds above 0, at least one of them")


def _least_squares(samples: Samples, relative: Floats, weights: Floats, scale: Floats) -> Floats:
    """Coefficients by (1), of terms relative to the measured seconds."""
    strength = samples.strength * np.ones(len(scale))
    rows = np.vstack([relative * scale * weights[:, None], np.diag(strength)])
    least = samples.floors / scale
    above, _ = nnls(rows, np.concatenate([weights, strength]) - rows @ least)
    return np.asarray((least + above) * scale)


def cross_validate(
    samples: Samples, stated: Floats, *, folds: int = 10, seed: int = 0, factors: bool = False, plans: bool = False
) -> Floats:
    """
    Prediction / measurement - 1 (samples,) of fits that have not seen the sample, (3).

    ``factors``: with (7); ``plans``: fits that have not seen its plan, if there are enough for a fit.
    """
    seconds = samples.seconds
    parts = plans_of(samples) if plans else np.arange(len(seconds))
    order, errors = np.random.default_rng(seed).permutation(parts.max() + 1), np.empty(len(seconds))
    for fold in range(min(folds, len(order))):
        unseen = np.flatnonzero(np.isin(parts, order[fold :: min(folds, len(order))]))
        seen = samples.take(np.setdiff1d(np.arange(len(seconds)), unseen))
        coefficients = fit_coefficients(seen, stated)
        above = factors_above(seen, coefficients) if factors else None
        errors[unseen] = predicted_seconds(samples, coefficients, above)[unseen] / seconds[unseen] - 1
    return errors


def plans_of(samples: Samples) -> Ints:
    """Number of every sample's plan, (samples,), or of the sample where plans are too few to leave some out, (3)."""
    if samples.plans is None or len(set(samples.plans.tolist())) < FEWEST:
        return np.arange(len(samples.seconds))
    return np.unique(samples.plans, return_inverse=True)[1]


def factors_above(samples: Samples, coefficients: Floats) -> Floats | None:
    """What factors of the samples' layer shapes are above 1 beside these coefficients, (shapes,), (7)."""
    if samples.layers is None:
        return None
    return relative_factors(samples.layers, coefficients, predicted_seconds(samples, coefficients), samples.seconds)


def predicted_seconds(samples: Samples, coefficients: Floats, above: Floats | None = None) -> Floats:
    """Seconds of every sample at coefficients, with factors if there are any, (samples,)."""
    plain = samples.terms(coefficients) @ coefficients
    if samples.layers is None or above is None:
        return np.asarray(plain)
    return with_factors(samples.layers, coefficients, plain, above)


def stated_coefficients(device: DeviceSpec, terms: Sequence[str] = TERMS) -> Floats:
    """Coefficients of some terms that the device states."""
    return np.array([uncalibrated(device)[term] for term in terms])


def stack_of(calibration: Calibration) -> Stack:
    """The stack's properties that a calibration states, (4)."""
    return Stack(calibration.launch_us or 0.0, calibration.fused_attention)


def drawn(
    samples: Samples,
    device: DeviceSpec,
    like: Calibration | None = None,
    towards: Mapping[str, float] = MappingProxyType({}),
    terms: Sequence[str] = TERMS,
) -> tuple[Samples, Floats]:
    """
    Samples and the coefficients (terms,) that their fit is pulled to, as strongly as it is.

    They are those that the device states, or those of another fit of the stack, and of some terms known figures, (6).
    """
    stated = stated_coefficients(device, terms) if like is None else np.array([like[term] for term in terms])
    strength = np.full(len(terms), REGULARISATION if like is None else ALIKE)
    for term, coefficient in towards.items():
        stated[terms.index(term)], strength[terms.index(term)] = coefficient, ALIKE
    return samples._replace(strength=strength), stated


NEARLY_LEAST = 1.02
"""Factor of (4) on the least error: differences below it are noise of the folds."""
QUANTILES = (0.05, LOW, 0.25, 0.5, 0.75, HIGH, 0.95)


def fit_calibration(
    samples: Mapping[Stack, Samples],
    device: DeviceSpec,
    about: Mapping[str, Any],
    terms: Sequence[str] = TERMS,
    like: Calibration | None = None,
    towards: Mapping[str, float] = MappingProxyType({}),
) -> Calibration:
    """Calibration with the band of unseen plans, (3); ``about``: its fields, ``like`` and ``towards`` as in (6)."""
    count = len(next(iter(samples.values())).seconds)
    if count < FEWEST:
        raise FormulationError(f"{count} samples, expected at least {FEWEST} for a fit with an error band")
    tried = samples if like is None else [stack_of(like)]
    pulled = {stack: drawn(samples[stack], device, like, towards, terms) for stack in tried}
    unseen = {stack: cross_validate(*each) for stack, each in pulled.items()}
    stack = _chosen({stack: float(np.abs(errors).mean()) for stack, errors in unseen.items()}, count)
    runs, stated = pulled[stack]
    coefficients = fit_coefficients(runs, stated)
    errors = cross_validate(runs, stated, plans=True)
    known = dict(zip(terms, coefficients.tolist(), strict=True))
    return Calibration.model_validate(
        {
            **about,
            "device": device.name,
            **stack._asdict(),
            "coefficients": {term: known[term] for term in terms if term not in _unseen(runs, coefficients, terms)},
            "layer_factors": _factors(runs, stated, unseen[stack], coefficients),
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
