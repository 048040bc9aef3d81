r"""
The step time of a plan by vTrain's rules (arXiv 2312.12391, algorithm 1, and the graph that its released code builds).

A plan is (t, d, p): tensor, data and pipeline degree, m micro-batches of a few sequences, L/p layers a stage. With the
seconds F of a layer forward and B backward, R(S, n) of an all-reduce of S bytes over n GPUs, and A the bytes of a
micro-batch's activations, every stage takes

(1) forward: (F + 2 R(A, t)) L/p, and g for the transfer to the next stage;
(2) recompute: F L/p, without all-reduces, before every backward pass, waiting for nothing but its own GPU, and never on
    the last stage;
(3) backward: (B + 2 R(A, t)) L/p, and g for the transfer to the stage before.

Embedding and head stand on the first and last stage. Passes are in the order of 1F1B, and each begins at the end of the
last passes of its stage and of its micro-batch. After all of them

(4) every stage reduces its weights W in half precision, in :math:`\frac{W}{b} \frac{2 (d - 1)}{d}` where t is at least
    the node's size, and by R(W, d) elsewhere;
(5) all GPUs update.

Transfers take g = 2 A over a quarter of a node's bandwidth b, on one node as well. Of the links' bandwidth b is a share
:math:`\alpha` (equation 1 of the paper, where the best share is 1). Seconds of kernels are those of
taut's operator model of the A100 in fp16 with unfused attention, as vTrain's traces are not published, times one
scalar.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_work import LayerShape, block_passes, embedding_passes, head_passes
from taut.data.arrays import Floats
from taut.data.catalog.builtin import catalog_operators
from taut.data.catalog.devices import catalog_devices
from taut.formulations.compiled import jit

DEVICE, NODE_SIZE, SEQ, VOCABULARY = "a100-80gb", 8, 2048, 50257
BETWEEN_NODES = 800 * 2**30 / 8
"""Bytes a second of a node's four cards of 200 Gb/s; vTrain's Gb are binary."""
INSIDE_NODE = 150 * 2**30
"""Bytes a second of groups of more than eight GPUs, which vTrain takes for one node."""
TABLE_BYTES = 1024 * 2**20
"""The largest all-reduce of its tables; beyond it the bus rate counts as the rate, without the factor of (4)."""
BUS_UNIT = 2**30
"""vTrain counts the bus rates of its tables in binary gigabytes."""
ALL_REDUCE = {
    2: (44.6e-6, 192.9e9, 196.9),
    3: (54.0e-6, 157.2e9, 211.7),
    4: (52.8e-6, 145.5e9, 221.4),
    5: (57.9e-6, 138.9e9, 224.7),
    6: (65.6e-6, 134.6e9, 226.9),
    7: (69.3e-6, 131.9e9, 226.7),
    8: (77.1e-6, 129.9e9, 229.3),
}
"""By GPUs: seconds and bytes a second, fitted to vTrain's NCCL tables of the A100 (off by 1.4 to 1.8 % in the mean),
and the bus rate of their largest entry."""
OPTIMIZER_BYTES = 30
"""Moved by the update of one parameter, as ``taut.data.analytic.layer_costs`` has it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model of vTrain's studies: layers, hidden size, heads and tokens of a sequence."""

    layers: int
    hidden: int
    heads: int
    seq: int = SEQ

    @property
    def parameters(self) -> float:
        """Weights of layers and embedding, with biases and norms, and of the positions."""
        hidden = self.hidden
        return self.layers * (12 * hidden**2 + 13 * hidden) + (VOCABULARY + self.seq + 2) * hidden


Plan = tuple[int, int, int]
"""Tensor, data and pipeline degree, as vTrain writes them."""


def step_seconds(
    shape: Shape, plan: Plan, global_batch: int, scalar: float = 1.0, *, micro_batch: int = 1, alpha: float = 1.0
) -> float:
    """Seconds of a step by (1) to (5), kernels times the scalar, links between nodes at a share of their bandwidth."""
    (tensor, data, stages), bandwidth = plan, alpha * BETWEEN_NODES
    forward, recompute, backward = _passes(shape, tensor, stages, scalar, micro_batch, bandwidth)
    pipeline = makespan(forward, recompute, backward, global_batch // data // micro_batch)
    weights = _stage_weights(shape, tensor, stages)
    update = scalar * OPTIMIZER_BYTES * weights.max() / catalog_devices()[DEVICE].memory_bandwidth
    return float(pipeline + _gradients(2.0 * weights.max(), tensor, data, bandwidth) + update)


def _passes(
    shape: Shape, tensor: int, stages: int, scalar: float, micro_batch: int, bandwidth: float
) -> tuple[Floats, Floats, Floats]:
    """Seconds of every stage's forward, recompute and backward pass, (1) to (3)."""
    layer, first, last = kernels(shape, tensor, micro_batch)
    activations = 2.0 * micro_batch * shape.seq * shape.hidden
    each, hop = shape.layers / stages, 2.0 * activations / (bandwidth / 4)
    reduced = 2.0 * all_reduce(activations, tensor)
    ends = np.zeros((2, 2, stages))
    ends[:, 0, 0], ends[:, 1, -1] = first, last
    plain = each * layer[:, None] + ends.sum(axis=1)
    forward = scalar * plain[0] + each * reduced
    recompute = scalar * plain[0]
    backward = scalar * plain[1] + each * reduced
    forward[:-1] += hop
    backward[1:] += hop
    recompute[-1] = 0.0
    return forward, recompute, backward


def kernels(shape: Shape, tensor: int, micro_batch: int = 1) -> tuple[Floats, Floats, Floats]:
    """Forward and backward seconds of a layer's, the embedding's and the head's kernels on one of the tensor ranks."""
    rates = rates_of(
        catalog_devices()[DEVICE], "fp16", catalog_operators().get(DEVICE), launch=0.0, fused_attention=False
    )
    heads, channels = shape.heads / tensor, shape.hidden / shape.heads
    sizes = {"hidden": shape.hidden, "heads": heads, "kv_heads": heads, "head_dim": channels}
    layer = LayerShape.of(
        batch=micro_batch, seq=shape.seq, window=shape.seq, ffn=4 * shape.hidden / tensor, up=1, **sizes
    )
    words, tokens = VOCABULARY / tensor, micro_batch * shape.seq
    passes = (
        block_passes(layer, rates),
        embedding_passes(tokens, shape.hidden, rates),
        head_passes(tokens, shape.hidden, words, rates),
    )
    layer_s, first, last = (
        np.array([each.forward.sum(), each.input_grad.sum() + each.weight_grad.sum()]) for each in passes
    )
    return layer_s, first, last


def all_reduce(size: float, gpus: int) -> float:
    """Seconds of an all-reduce as vTrain has it: its tables to eight GPUs, one node's bandwidth for more."""
    if gpus == 1:
        return 0.0
    if gpus not in ALL_REDUCE:
        return size / INSIDE_NODE * 2 * (gpus - 1) / gpus
    latency, rate, bus = ALL_REDUCE[gpus]
    return latency + size / rate if size <= TABLE_BYTES else size / (bus * BUS_UNIT)


def _stage_weights(shape: Shape, tensor: int, stages: int) -> Floats:
    """Weights of a GPU of every stage."""
    weights = np.full(stages, 12.0 * shape.hidden**2 * shape.layers / stages / tensor)
    for stage in (0, -1):
        weights[stage] += VOCABULARY * shape.hidden / tensor
    return weights


def _gradients(size: float, tensor: int, data: int, bandwidth: float) -> float:
    """Seconds of the reduction of a stage's gradients, (4)."""
    if tensor < NODE_SIZE:
        return all_reduce(size, data)
    return size / bandwidth * 2 * (data - 1) / data


@jit
def makespan(forward: Floats, recompute: Floats, backward: Floats, micro_batches: int) -> float:
    """Seconds of all passes (stages,) in the order of 1F1B: each begins when its stage and micro-batch are free."""
    stages = len(forward)
    stage_end, batch_end = np.zeros(stages), np.zeros(micro_batches)
    for i in range(min(stages - 1, micro_batches)):
        for r in range(stages - 1 - i):
            stage_end[r] = batch_end[i] = max(stage_end[r], batch_end[i]) + forward[r]
    for i in range(micro_batches):
        for r in range(stages - 1, -1, -1):
            k = stages - r - 1 + i
            if k < micro_batches:
                stage_end[r] = batch_end[k] = max(stage_end[r], batch_end[k]) + forward[r]
            stage_end[r] = batch_end[i] = max(stage_end[r] + recompute[r], batch_end[i]) + backward[r]
    return float(stage_end.max())
