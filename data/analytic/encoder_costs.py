r"""
Costs of an encoder of images for a micro-batch, on one tensor rank.

Products, traffic and launches are priced as those of a layer (``taut.data.analytic.layer_work``). Sizes are those of
``taut.data.layers.encoder``.

(1) An image, or a window of w of its patches, is a sequence of its own. Its attention core takes twice the seconds of a
    causal core of as many tokens, on whose kernels the operator models are fitted.
(2) A frozen part has a forward pass alone. Trained projectors behind frozen layers need no gradient by their input.
(3) Attention is one kernel, whatever the language model has. Products are in half precision.
"""

from typing import NamedTuple

import numpy as np

from taut.data.analytic.device_rates import Rates
from taut.data.analytic.layer_work import LayerShape, Passes, Product, passes_of
from taut.data.analytic.routed_layers import Kept
from taut.data.arrays import Floats
from taut.data.layers.encoder import EncoderSpec

TWO_WAYS = 2.0
"""Seconds of a core without a causal mask over those of one with it, (1)."""


class _Part(NamedTuple):
    """Passes of the layers or the projectors, and how often they run in a micro-batch."""

    passes: Passes
    times: int


def encoder_passes(encoder: EncoderSpec, tp: int, samples: int, rates: Rates) -> Passes:
    """Terms of the passes of all images of a micro-batch of so many samples, (1) and (2)."""
    t, patches = encoder.ranks(tp), np.asarray(samples * encoder.images * encoder.patches)
    layers = [_Part(_layer(encoder, t, patches, encoder.patches, rates), encoder.full_layers)]
    window = min(encoder.window or encoder.patches, encoder.patches)
    layers.append(_Part(_layer(encoder, t, patches, window, rates), encoder.layers - encoder.full_layers))
    core = LayerShape.of(**dict.fromkeys(LayerShape._fields, 1.0))
    made = [Product(patches, np.asarray(encoder.hidden), np.asarray(encoder.patch_dim))]
    moved = rates.element * patches * (encoder.patch_dim + encoder.hidden)
    embedding = _Part(passes_of(core, rates, made, moved, has_core=False), 1)
    projector = _Part(_projector(encoder, t, patches / encoder.merge, rates), encoder.projectors)
    forward = sum(part.times * part.passes.forward for part in (*layers, embedding, projector))
    none = 0.0 * projector.passes.forward
    by_input = by_weights = none
    if encoder.trained == "all":
        by_input = sum((part.times * part.passes.input_grad for part in (*layers, projector)), none)
        by_input = by_input + encoder.recompute * sum(part.times * part.passes.forward for part in layers)
        by_weights = sum((part.times * part.passes.weight_grad for part in (*layers, embedding, projector)), none)
    elif encoder.trained == "projector":
        if len(encoder.projector) > 1:
            by_input = encoder.projectors * _projector(encoder, t, patches / encoder.merge, rates, 1).input_grad
        by_weights = encoder.projectors * projector.passes.weight_grad
    return Passes(np.asarray(forward), np.asarray(by_input), np.asarray(by_weights))


def _layer(encoder: EncoderSpec, t: int, patches: Floats, reach: int, rates: Rates) -> Passes:
    """Terms of a layer whose patches attend to so many, (1)."""
    heads, ffn, hidden, up = encoder.heads / t, encoder.ffn_hidden / t, encoder.hidden, 2 if encoder.gated_mlp else 1
    width = hidden / t
    shape = LayerShape.of(
        batch=patches / reach,
        seq=reach,
        window=reach,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // encoder.heads,
        ffn=ffn,
        up=up,
    )
    columns = (3 * width, hidden), (hidden, width), (up * ffn, hidden), (hidden, ffn)
    products = [Product(patches, np.asarray(made), np.asarray(sums)) for made, sums in columns]
    moved = rates.element * patches * (10.0 * hidden + 4.0 * ffn)
    return passes_of(shape, rates, products, moved, cores=TWO_WAYS)


def _projector(encoder: EncoderSpec, t: int, rows: Floats, rates: Rates, first: int = 0) -> Passes:
    """Terms of one projector from its product ``first`` on, whose first and last product tensor ranks share."""
    shape = LayerShape.of(**dict.fromkeys(LayerShape._fields, 1.0))
    last, products, moved = len(encoder.projector) - 1, [], 0.0 * rows
    for number, (sums, columns) in enumerate(encoder.projector):
        if number >= first:
            split_sums, split_columns = (t if 0 < number == last else 1), (t if number == 0 else 1)
            products.append(Product(rows, np.asarray(columns / split_columns), np.asarray(sums / split_sums)))
            moved = moved + 2.0 * rates.element * rows * columns / split_columns
    return passes_of(shape, rates, products, moved, has_core=False)


def encoder_kept(encoder: EncoderSpec, tp: int, samples: int, element: int) -> Kept:
    """Bytes that an encoder keeps of a micro-batch; sequence parallelism shares none of them."""
    of_layer = encoder.kept(samples, element, recompute=encoder.recompute) if encoder.trained == "all" else (0, 0)
    replicated, split = (encoder.layers * bytes_ for bytes_ in of_layer)
    whole = encoder.kept_at_edges(samples, element) + replicated
    return Kept(0, split, whole) if encoder.ranks(tp) > 1 else Kept(0, 0, whole + split)
