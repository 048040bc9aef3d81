"""
What each term of a calibration takes of a plan's step: the derivative of its logarithm by those of coefficients.

An evaluator says what computation, communication, the optimizer and the constant take. Of computation the kinds of a
layer's work (``taut.data.analytic.layer_work``) take what they take of all layers of the model together, of whatever
stage they are: stages of a plan differ little in that, and a band need not be exact. Where a plan has tensor ranks and
expert ranks, the evaluator has one figure for their traffic, of which each is given half. What weights and gradients
take after the passes are gathers where weights or gradients are sharded, and rings of replicas elsewhere.
"""

from collections.abc import Collection, Mapping

import numpy as np

from taut.data.analytic.device_rates import Operators, rates_of
from taut.data.analytic.layer_costs import is_plain, layer_shape
from taut.data.analytic.layer_work import KINDS, block_passes, head_passes, whole_terms
from taut.data.analytic.routed_layers import ExpertRanks, routed_passes
from taut.data.calibration import Calibration
from taut.data.device import DeviceSpec, Precision
from taut.data.model import ModelSpec

PARTS = {"pipeline_transfers": "pipeline", "data_parallel": "data_parallel", "optimizer": "optimizer"}
"""Terms by the evaluator's names of parts that one term each makes."""


def step_shares(
    parts: Mapping[str, float],
    model: ModelSpec,
    device: DeviceSpec,
    precision: Precision,
    operators: Operators | None,
    calibration: Calibration,
    *,
    tp: int = 1,
    cp: int = 1,
    ep: int = 1,
    etp: int = 1,
    micro_batch: int = 1,
    zero: int = 0,
    recompute: Collection[str] = (),
) -> dict[str, float]:
    """Shares of the step by term, from its seconds by the evaluator's names."""
    rates = rates_of(device, precision, operators, **calibration.of_runs, **calibration.kept)
    again = sum(kind == "full" for kind in recompute) / max(len(recompute), 1)
    seconds = np.zeros(len(KINDS))
    for layer in model.blocks:
        shape = layer_shape(layer, tp, micro_batch, cp)
        ranks = ExpertRanks(ep, max(etp, 1)) if layer.experts else ExpertRanks()
        passes = block_passes(shape, rates) if is_plain(layer) else routed_passes(layer, shape, tp, rates, ranks)
        seconds += sum(passes) + again * (passes.forward if layer.experts else whole_terms(passes, shape, rates))
    if model.vocab:
        last = model.blocks[-1]
        seconds += sum(head_passes(micro_batch * last.seq // cp, last.hidden, model.padded_vocab(tp) // tp, rates))
    weighed = seconds * np.array([calibration[kind] for kind in KINDS])
    work = parts.get("compute", 0.0) * weighed / weighed.sum()
    found = dict(zip(KINDS, work.tolist(), strict=True))
    found |= {term: parts.get(name, 0.0) for name, term in PARTS.items()}
    traffic = {"tensor_parallel": tp > 1 or ep == 1, "exchange": ep > 1}
    found |= {name: parts.get("tensor_parallel", 0.0) * some / sum(traffic.values()) for name, some in traffic.items()}
    if zero >= 2:
        found["gather"] = found.pop("data_parallel")
    whole = sum(found.values())
    return {term: value / whole for term, value in found.items()} if whole else {}
