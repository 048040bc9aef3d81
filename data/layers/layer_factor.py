r"""
Measured seconds of layers of some shapes over their modelled ones.

Operator models err by several per cent on shapes that were not measured, up or down as a kernel suits the shape, and
all runs whose layers have one shape share that error. A calibration may state for shapes of its own runs

(1) :math:`f = t / \hat t`, the seconds of a layer's passes over those that its coefficients give, launches included;
    every other shape has a factor of 1.

A shape are the sizes of one tensor rank's share of a layer and its micro-batch. Layers whose sequence context ranks
share, or that attend to a window, have a factor of 1.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from taut.data.arrays import Floats
from taut.data.spec import Spec

Count = Annotated[int, Field(ge=1)]
SIZES = ("micro_batch", "seq", "hidden", "heads", "kv_heads", "ffn_hidden")


class LayerFactor(Spec):
    """A shape, of one tensor rank, and its factor, (1)."""

    micro_batch: Count
    seq: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    ffn_hidden: Count
    gated: bool = False
    factor: Annotated[float, Field(ge=0.25, le=4)]

    @classmethod
    def of(cls, sizes: Sequence[float], factor: float = 1.0) -> "LayerFactor":
        """The shape of sizes as of ``sizes``."""
        *counts, up = (int(size) for size in sizes)
        return cls(**dict(zip(SIZES, counts, strict=True)), gated=up > 1, factor=factor)

    @property
    def sizes(self) -> tuple[float, ...]:
        """The shape as numbers, in the order of ``SIZES``, with 2 for a gated feed-forward part and 1 otherwise."""
        return *(float(getattr(self, name)) for name in SIZES), 1.0 + self.gated


def factors_at(factors: Sequence[LayerFactor], sizes: Floats) -> Floats:
    """Factors (...) of layers, (1), from their ``LayerFactor.sizes`` (..., 7)."""
    found = np.ones(sizes.shape[:-1])
    for one in factors:
        found = np.where((sizes == np.array(one.sizes)).all(axis=-1), one.factor, found)
    return found
