r"""
The step time of many ordinary configurations at once, as terms that a calibration weighs.

A configuration is a stack of L equal layers divided evenly over pp stages of vpp chunks, on n equal nodes in
Megatron-LM's order (tensor ranks fastest, then replicas, then stages). With m micro-batches and the last stage the
longest, since it holds the head,

(1) seconds of a kind of work = (sum over stages + (m - 1) last stage) / 1 for 1F1B and GPipe; interleaving divides
    the bubble, sum - last, by vpp;
(2) tensor_parallel: the all-reduces of (1), ring(M, tp, B) with its latency;
(3) pipeline: trips (max(1, m / pp) for 1F1B, 1 for GPipe) times vpp pp - 1 hops there and back, of which those that
    leave a node run at the node's cards shared by the tensor group;
(4) data_parallel: the hierarchical ring of stage 0's gradients; optimizer: stage 0's parameters, over dp under
    ZeRO-1; constant: 1.

The dot product of a row with a calibration's coefficients is the step time. It equals the evaluator
(``taut.formulations.latency``, model ``pipette``) on these configurations, and prices them hundreds of times faster.

Memory is that of ``taut.formulations.memory`` on the first and the last stage, the larger of the two.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from taut.data.calibration import TERMS
from taut.data.memory import ParameterBytes
from taut.data.roofline import OPTIMIZER_TRAFFIC_BYTES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
VOCABULARY_MULTIPLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Peak rates of a device and rates of its links, in SI units; ``cards`` is a node's, infinite if not stated."""

    gpus_per_node: int
    peak: float
    memory_bandwidth: float
    inside_rate: float
    inside_latency: float
    between_rate: float
    between_latency: float
    cards: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """
    Configurations as columns of equal length.

    ``recompute`` is 0 for none, 1 for selective, 2 for full; ``gpipe``, ``gated``, ``sequence_parallel`` and ``tied``
    are 0 or 1; ``kv_heads`` is the number of key-value heads.
    """

    hidden: Ints
    layers: Ints
    heads: Ints
    kv_heads: Ints
    ffn_hidden: Ints
    seq: Ints
    vocab: Ints
    gated: Ints
    tp: Ints
    pp: Ints
    dp: Ints
    vpp: Ints
    micro_batch: Ints
    num_micro_batches: Ints
    gpipe: Ints
    recompute: Ints
    zero: Ints
    sequence_parallel: Ints

    def __len__(self) -> int:
        """Number of configurations."""
        return len(self.hidden)

    def take(self, rows: Ints) -> "Configurations":
        """The configurations at these rows."""
        return Configurations(**{column.name: getattr(self, column.name)[rows] for column in fields(self)})


def step_terms(configurations: Configurations, machine: Machine, element: int, gradient: int) -> Floats:
    """
    Terms of the step time at coefficient 1, (configurations, terms) in the order of ``TERMS``.

    Parameters
    ----------
    configurations
        What is priced; layers divide evenly over stages and chunks.
    machine
        Peak rates and links.
    element, gradient
        Bytes of an activation and of a summed gradient.
    """
    c = configurations
    work = _layer_work(c, element)
    head, embedding = _head_work(c, element), _embedding_work(c, element)
    bubbles = (c.pp - 1) / c.vpp
    per_stage = c.layers / c.pp
    # (1): m passes of the last stage, and the other stages once for the first and last micro-batch.
    passes = per_stage * (c.num_micro_batches + bubbles)
    terms = np.empty((len(c), len(TERMS)))
    scale = np.array([machine.peak, machine.peak, machine.memory_bandwidth, 1.0])
    others = np.where(c.pp > 1, 1.0 / c.vpp, c.num_micro_batches)[:, None]
    total = passes[:, None] * work + c.num_micro_batches[:, None] * head + others * embedding
    terms[:, :4] = total / scale
    terms[:, 4] = passes * _tensor_ring(c, machine, element)
    terms[:, 5] = _pipeline(c, machine, element)
    parameters = first_stage_parameters(c)
    terms[:, 6] = _data_ring(c, machine, gradient * parameters)
    shards = np.where(c.zero == 1, c.dp, 1)
    terms[:, 7] = OPTIMIZER_TRAFFIC_BYTES * parameters / shards / machine.memory_bandwidth
    terms[:, 8] = 1.0
    return terms


def _matrix_parameters(c: Configurations) -> Floats:
    kv_width = c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads)
    gates = np.where(c.gated == 1, 3, 2)
    return np.asarray(2 * c.hidden**2 // c.tp + 2 * c.hidden * kv_width + gates * c.hidden * c.ffn_hidden // c.tp)


def _layer_parameters(c: Configurations) -> Floats:
    kv_width = c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads)
    biases = (c.hidden + c.ffn_hidden) // c.tp + 2 * kv_width + 2 * c.hidden
    small = np.where(c.gated == 1, 2 * c.hidden, biases + 4 * c.hidden)
    return np.asarray(_matrix_parameters(c) + small)


def padded_vocabulary(c: Configurations) -> Ints:
    """Vocabulary after padding to a multiple of 128 times the tensor degree."""
    multiple = VOCABULARY_MULTIPLE * c.tp
    return np.asarray(-(-c.vocab // multiple) * multiple)


def first_stage_parameters(c: Configurations) -> Floats:
    """Parameters of one tensor rank of stage 0: its layers, the embedding, and the head if it is the only stage."""
    table = padded_vocabulary(c) * c.hidden // c.tp
    head = np.where(c.pp == 1, table + _final_norm(c), 0)
    return np.asarray(c.layers // c.pp * _layer_parameters(c) + table + head)


def _last_stage_parameters(c: Configurations) -> Floats:
    return np.asarray(
        c.layers // c.pp * _layer_parameters(c) + padded_vocabulary(c) * c.hidden // c.tp + _final_norm(c)
    )


def _final_norm(c: Configurations) -> Ints:
    return np.asarray(np.where(c.gated == 1, c.hidden, 2 * c.hidden) * (c.vocab > 0))


def _layer_work(c: Configurations, element: int) -> Floats:
    """FLOP, attention FLOP, bytes and launches of one layer and micro-batch, all passes."""
    tokens, parameters = c.micro_batch * c.seq, _matrix_parameters(c)
    again_attention, again_all = (c.recompute > 0).astype(float), (c.recompute == 2).astype(float)
    rest = element * tokens * (10 * c.hidden + 4 * c.ffn_hidden / c.tp)
    return np.stack(
        [
            (3 + again_all) * 2.0 * tokens * parameters,
            (3 + again_attention) * 4.0 * tokens * c.seq * c.hidden / c.tp,
            (3 + again_all) * element * parameters + (2 + again_all) * rest,
            3 + again_all,
        ],
        axis=1,
    )


def _head_work(c: Configurations, element: int) -> Floats:
    tokens, vocab = c.micro_batch * c.seq, padded_vocabulary(c)
    parameters = vocab * c.hidden // c.tp
    traffic = 3.0 * element * parameters + 2 * 8.0 * tokens * vocab / c.tp
    zero = np.zeros(len(c))
    return np.stack([6.0 * tokens * parameters, zero, traffic, 3.0 * (c.vocab > 0)], axis=1)


def _embedding_work(c: Configurations, element: int) -> Floats:
    traffic = 4.0 * element * c.micro_batch * c.seq * c.hidden * (c.vocab > 0)
    zero = np.zeros(len(c))
    return np.stack([zero, zero, traffic, 2.0 * (c.vocab > 0)], axis=1)


def _tensor_ring(c: Configurations, machine: Machine, element: int) -> Floats:
    """All-reduce seconds of one layer and micro-batch, (2)."""
    inside = c.tp <= machine.gpus_per_node
    rate = np.where(inside, machine.inside_rate, min(machine.between_rate, machine.inside_rate))
    latency = np.where(inside, machine.inside_latency, max(machine.between_latency, machine.inside_latency))
    message = element * c.micro_batch * c.seq * c.hidden
    reductions = np.where(c.recompute == 2, 6, 4)
    ring = 2.0 * (c.tp - 1) / c.tp * message / rate + 2.0 * (c.tp - 1) * latency
    return np.asarray(reductions * ring)


def _pipeline(c: Configurations, machine: Machine, element: int) -> Floats:
    """Trips times hops, (3)."""
    stage = c.tp * c.dp
    per_node = np.maximum(machine.gpus_per_node // stage, 1)
    leaving = np.where(stage >= machine.gpus_per_node, c.pp - 1, -(-c.pp // per_node) - 1)
    message = element * c.micro_batch * c.seq * c.hidden / np.where(c.sequence_parallel == 1, c.tp, 1)
    shared = np.minimum(machine.between_rate, machine.cards / np.minimum(c.tp, machine.gpus_per_node))
    between = 2 * (machine.between_latency + message / shared)
    within = 2 * (machine.inside_latency + message / machine.inside_rate)
    # Interleaving passes the ring of stages vpp times, with the hop from the last stage back to the first.
    wrapped = np.where(stage * c.pp > machine.gpus_per_node, between, within)
    trip = leaving * between + (c.pp - 1 - leaving) * within
    trips = np.where(c.gpipe == 1, 1.0, np.maximum(1.0, c.num_micro_batches / c.pp))
    hops = c.vpp * trip + (c.vpp - 1) * wrapped
    return np.asarray(np.where(c.pp > 1, trips * hops, 0.0))


def _data_ring(c: Configurations, machine: Machine, message: Floats) -> Floats:
    """Hierarchical ring of stage 0, whose replicas fill nodes in order, (4)."""
    groups = np.maximum(machine.gpus_per_node // c.tp, 1)
    inside = np.where(c.tp <= machine.gpus_per_node, np.minimum(c.dp, groups), 1)
    nodes = np.where(c.tp <= machine.gpus_per_node, -(-c.dp // groups), c.dp)
    rate = min(machine.between_rate, machine.cards / machine.gpus_per_node)
    within = 4.0 * (inside - 1) / inside * message / machine.inside_rate
    return np.asarray(within + 2.0 * (nodes - 1) / nodes * message / rate)


def memory_bytes(c: Configurations, element: int, per_parameter: ParameterBytes, overhead: int) -> Ints:
    """Bytes of the fullest device: stage 0 with its micro-batches in flight, or the last stage with the logits."""
    shards = np.where(c.zero == 1, c.dp, 1)
    flight = np.where(c.gpipe == 1, c.num_micro_batches, np.minimum(c.pp, c.num_micro_batches))
    flight = np.where((c.vpp > 1) & (c.gpipe == 0), np.ceil(flight * (1 + (c.pp - 1) / (c.pp * c.vpp))), flight)
    last = np.where(c.gpipe == 1, c.num_micro_batches, 1)
    kept, plain = _activation(c, element, c.recompute), _activation(c, element, np.zeros_like(c.recompute))
    per_stage = c.layers // c.pp
    head, mask = _edge_activation(c, element)
    first_bytes = per_stage * kept + mask + np.where(c.pp == 1, head, 0)

    def states(parameters: Floats) -> Floats:
        state = -(-parameters * per_parameter.state // shards)
        return np.asarray(parameters * (per_parameter.weight + per_parameter.gradient) + state)

    first = states(first_stage_parameters(c)) + flight * first_bytes
    end = states(_last_stage_parameters(c)) + last * (per_stage * kept + head)
    fullest = np.where(c.pp == 1, first, np.maximum(first, end)) + (plain - kept) + overhead
    return np.asarray(fullest, dtype=np.int64)


def _activation(c: Configurations, element: int, recompute: Ints) -> Floats:
    """Bytes that one layer keeps for one micro-batch on one tensor rank, with a fused attention kernel."""
    tokens = c.micro_batch * c.seq
    kv_hidden = c.hidden // c.heads * c.kv_heads
    replicated = tokens * c.hidden * (4 * element + np.where(c.gated == 1, 0, 2))
    widths = 2 * c.hidden + 2 * kv_hidden + np.where(c.gated == 1, 3, 2) * c.ffn_hidden
    split = tokens * element * widths
    full = recompute == 2
    replicated, split = np.where(full, element * tokens * c.hidden, replicated), np.where(full, 0, split)
    sharded = -(-(replicated + split) // c.tp)
    return np.asarray(np.where(c.sequence_parallel == 1, sharded, replicated + -(-split // c.tp)))


def _edge_activation(c: Configurations, element: int) -> tuple[Floats, Floats]:
    """Bytes of the head (inputs and fp32 logits) and of the embedding's dropout mask."""
    some, output = c.vocab > 0, c.micro_batch * c.seq * c.hidden
    shards = np.where(c.sequence_parallel == 1, c.tp, 1)
    logits = 4 * c.micro_batch * c.seq * padded_vocabulary(c)
    inputs = 2 * element * output
    head = np.where(c.sequence_parallel == 1, -(-(inputs + logits) // c.tp), inputs + -(-logits // c.tp))
    return np.asarray(head * some), np.asarray(-(-output // shards) * some)
