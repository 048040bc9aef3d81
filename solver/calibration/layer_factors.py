r"""
Factors of layer shapes from measured runs: what the coefficients leave that all runs of a shape have in common.

Sets: runs i, shapes g of their layers. Data: measured seconds :math:`y_i`; under fitted coefficients predicted seconds
:math:`a_i`, of which :math:`l_i` are passes of layers.

(1) With :math:`r_i = 1 - a_i / y_i` and :math:`s_i = l_i / y_i` the factor of shape g is :math:`1 + u_g`,

    .. math:: u_g = \frac{\sum_{i \in g} r_i s_i}{\sum_{i \in g} s_i^2 + (\sigma / \tau)^2},

    the mean of u where :math:`r_i = s_i u_g + \epsilon_i`, with :math:`\sigma` the noise of a run and :math:`\tau` the
    error of operator models on shapes that were not measured (a random effect; Robinson 1991, Statistical Science 6).
(2) Predicted seconds are :math:`a_i + u_g l_i`: to first order, since which stage a step waits for may change.
(3) A calibration takes factors if they take a share off the mean error of unseen runs, each predicted by coefficients
    and factors of the others. Runs of shapes that the others lack keep their prediction, and the calibration its band,
    which holds for every shape.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.layers.layer_factor import LayerFactor

RUN_NOISE, SHAPE_ERROR = 0.02, 0.08
"""Sigma and tau of (1): about run-to-run noise, and the mean error of A100's operator model on unseen products."""
WORTHWHILE = 0.8
"""Factor on the mean error from which (3) takes factors: a fifth is more than folds and the choice itself may feign."""
LEAST, MOST = 0.25, 4.0
"""Factors that a calibration may state."""


class LayerShapes(NamedTuple):
    """
    Shapes of the runs' layers: the shapes, which is each run's (samples,), and seconds of layers in terms.

    ``terms`` are those of passes of layers alone at coefficients, (samples, terms).
    """

    shapes: tuple[LayerFactor, ...]
    which: Ints
    terms: Callable[[Floats], Floats]

    def take(self, rows: Ints) -> "LayerShapes":
        """Those of some of the samples."""
        terms = self.terms
        return self._replace(which=self.which[rows], terms=lambda coefficients: terms(coefficients)[rows])


def relative_factors(layers: LayerShapes, coefficients: Floats, predicted: Floats, seconds: Floats) -> Floats:
    """
    What the factors of all shapes are above 1, (shapes,), (1).

    ``layers``: shapes of the runs' layers; ``coefficients``: those fitted to the runs, (terms,); ``predicted``,
    ``seconds``: seconds under these coefficients, and measured ones, (samples,).
    """
    share, left = layers.terms(coefficients) @ coefficients / seconds, 1 - predicted / seconds
    count = len(layers.shapes)
    above = np.bincount(layers.which, left * share, count)
    below = np.bincount(layers.which, share**2, count) + (RUN_NOISE / SHAPE_ERROR) ** 2
    return np.asarray(np.clip(above / below, LEAST - 1, MOST - 1))


def with_factors(layers: LayerShapes, coefficients: Floats, predicted: Floats, above: Floats) -> Floats:
    """Predicted seconds with factors, (samples,), (2)."""
    return np.asarray(predicted + above[layers.which] * (layers.terms(coefficients) @ coefficients))


def stated_factors(layers: LayerShapes, above: Floats) -> list[LayerFactor]:
    """Shapes with their factors."""
    pairs = zip(layers.shapes, above.tolist(), strict=True)
    return [shape.model_copy(update={"factor": 1 + more}) for shape, more in pairs]
