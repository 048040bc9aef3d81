"""Small models and short sweeps."""

from typing import Any

import torch

from taut.data.model import ModelSpec
from taut.profiling.layers import Sweep


def plain_model(**changes: Any) -> ModelSpec:
    """GPT of four layers: hidden 16, 4 heads of 4 channels, feed-forward 64, 8 tokens, vocabulary of 300."""
    values = {"name": "plain", "layers": 4, "hidden": 16, "heads": 4, "seq": 8, "vocab": 300, **changes}
    return ModelSpec.parse(values, "plain")


def gated_model(**changes: Any) -> ModelSpec:
    """Llama of four layers: as the plain one with 2 key-value heads and a gated feed-forward part of 24."""
    return plain_model(**{"name": "gated", "kv_heads": 2, "ffn_hidden": 24, "gated_mlp": True, **changes})


def sweep_of(model: ModelSpec, **changes: Any) -> Sweep:
    """A short sweep on the CPU."""
    values: dict[str, Any] = {
        "gpu": "cpu",
        "device": torch.device("cpu"),
        "precision": "fp32",
        "tensor_degrees": [1, 2],
        "micro_batches": [1, 2],
        "warm_up": 1,
        "repeats": 3,
    }
    return Sweep(model=model, **{**values, **changes})
