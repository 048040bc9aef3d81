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
