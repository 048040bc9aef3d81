"""Numbers that a model may have: sizes, and layers."""

from typing import Annotated

from pydantic import Field

MOST_LAYERS = 2048
MOST_PARAMETERS = 10**15
MOST_ENTRIES = 10**17
"""Activations and scores of a micro-batch: ten bytes of each fit a whole number of 64 bits."""
Count = Annotated[int, Field(gt=0, le=10_000_000, strict=True)]
"""A size: channels, heads, tokens, experts."""
LayerCount = Annotated[int, Field(gt=0, le=MOST_LAYERS, strict=True)]
"""A number of layers."""


def too_large(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn_hidden: int, vocab: int, seq: int, micro_batch: int
) -> str:
    """What of a dense model and its micro-batch no device will ever hold, in words; empty where nothing is."""
    weights = 2.0 * hidden * hidden * (1 + kv_heads / heads) + 3.0 * hidden * ffn_hidden
    parameters = layers * weights + 2.0 * hidden * vocab
    if parameters > MOST_PARAMETERS:
        return f"the model has {parameters:.3g} parameters, expected at most {MOST_PARAMETERS:.3g}"
    entries = float(micro_batch) * seq * layers * (4 * hidden + 2 * ffn_hidden + heads * seq + vocab)
    if entries > MOST_ENTRIES:
        return f"seq is {seq} and micro_batch {micro_batch}, expected fewer tokens of a micro-batch"
    return ""
