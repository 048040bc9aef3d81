"""
Layers with experts that were measured on one H100, as runs of a fit.

``benchmarks/torch_experts.py`` measures them. Taken are layers without recompute and with full recompute, replayed as
one CUDA graph, so that no launch is in them. The work is that of the layer alone: no exchange, no optimizer.
"""

from pathlib import Path

import numpy as np

from benchmarks.device_measurements import FOLDER
from benchmarks.posterior import CampaignRuns
from benchmarks.runs import lines_of
from benchmarks.torch_experts import MODELS, Experts
from taut.data.analytic.device_rates import Rates, rates_of
from taut.data.analytic.layer_costs import layer_shape
from taut.data.analytic.layer_work import KINDS
from taut.data.analytic.routed_layers import ExpertRanks, routed_passes
from taut.data.arrays import Floats
from taut.data.calibration import EXPERT_TERMS
from taut.data.catalog.builtin import catalog_operators
from taut.data.catalog.devices import catalog_devices
from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec

GPU = "h100-80gb"


def measured_layers(folder: Path = FOLDER) -> CampaignRuns:
    """The measured layers, with seconds forward and backward."""
    models = {each.model: each for each in MODELS}
    rates = rates_of(catalog_devices()[GPU], "bf16", catalog_operators()[GPU], launch=0.0)
    lines = [line for line in lines_of(folder / f"expert-layers-{GPU}.csv") if line["recompute"] in ("none", "full")]
    terms = np.zeros((len(lines), len(EXPERT_TERMS)))
    for row, line in enumerate(lines):
        ranks, again = ExpertRanks(int(line["ep"]), 1), line["recompute"] == "full"
        terms[row, : len(KINDS)] = work(models[line["model"]], ranks, int(line["micro_batch"]), rates, again=again)
    seconds = np.array([float(line["graph_s"]) for line in lines])
    return CampaignRuns("hopper", seconds, lambda _: terms, np.zeros(len(lines), dtype=int), "layers")


def work(model: Experts, ranks: ExpertRanks, micro_batch: int, rates: Rates, *, again: bool) -> Floats:
    """Terms of a layer's passes together, (4,), with a second forward pass if its work is done again."""
    layer = layer_of(model)
    passes = routed_passes(layer, layer_shape(layer, 1, micro_batch), 1, rates, ranks)
    return np.asarray(sum(passes) + (passes.forward if again else 0.0))


def layer_of(model: Experts) -> LayerSpec:
    """A layer as it was measured: attention of heads and key-value heads, without norms of queries and keys."""
    experts = {"num_experts": model.experts, "experts_per_token": model.chosen, "expert_ffn_hidden": model.width}
    shape = {name: getattr(model, name) for name in ("hidden", "heads", "kv_heads", "head_dim", "seq")}
    spec = {"name": "layer", "layers": 1, "ffn_hidden": model.width, "gated_mlp": True, "dropout": False, **shape}
    return ModelSpec.parse({**spec, "experts": {**experts, "shared_ffn_hidden": model.shared}}, "layer").blocks[0]
