r"""
The step time of many ordinary configurations at once, as terms that a calibration weighs.

A configuration is a stack of L equal layers divided evenly over pp stages of vpp chunks, on n equal nodes in
Megatron-LM's order (tensor ranks fastest, then replicas, then stages). With m micro-batches and the last stage the
longest, since it holds the head,

(1) seconds of a kind of work = (sum over stages + (m - 1) last stage) / 1 for 1F1B and GPipe; interleaving divides
    the bubble, sum - last, by vpp;
(2) tensor_parallel: the all-reduces of (1), ring(M, tp, B) with its latency, and for cp context ranks, each of which
    has 1 / cp of every sequence, the ring that passes keys and values around;
(3) pipeline: trips (max(1, m / pp) for 1F1B, 1 for GPipe) times vpp pp - 1 hops there and back, of which those that
    leave a node run at the node's cards shared by the tensor group;
(4) data_parallel: the hierarchical ring of what stage 0 exchanges; optimizer: stage 0's parameters, over dp cp under
    ZeRO; constant: 1.

The dot product of a row with a calibration's coefficients is the step time. It equals the evaluator
(``taut.formulations.latency``, model ``pipette``) on these configurations, and prices them hundreds of times faster.

Memory is that of ``taut.formulations.memory`` on the first and the last stage, the larger of the two.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from taut.data.analytic import OPTIMIZER_TRAFFIC_BYTES
from taut.data.calibration import TERMS
from taut.data.costs import RECOMPUTE
from taut.data.memory import ParameterBytes
from taut.data.work import LayerShape, Rates, block_passes, embedding_passes, head_passes, recomputed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
VOCABULARY_MULTIPLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a device makes of work, and rates of links in SI units; ``cards`` is a node's, infinite if not stated."""

    gpus_per_node: int
    rates: Rates
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
    cp: Ints
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


def step_terms(configurations: Configurations, machine: Machine, per_parameter: ParameterBytes) -> Floats:
    """
    Terms of the step time at coefficient 1, (configurations, terms) in the order of ``TERMS``.

    Parameters
    ----------
    configurations
        What is priced; layers divide evenly over stages and chunks.
    machine
        Rates and links.
    per_parameter
        Bytes of a parameter's weight and gradient.
    """
    c, element = configurations, machine.rates.element
    layer, head, embedding = (
        _layer_work(c, machine.rates),
        _head_work(c, machine.rates),
        _embedding_work(c, machine.rates),
    )
    bubbles = (c.pp - 1) / c.vpp
    # (1): m passes of the last stage, and the other stages once for the first and last micro-batch.
    passes = c.layers / c.pp * (c.num_micro_batches + bubbles)
    others = np.where(c.pp > 1, 1.0 / c.vpp, c.num_micro_batches)[:, None]
    terms = np.empty((len(c), len(TERMS)))
    terms[:, :4] = passes[:, None] * layer + c.num_micro_batches[:, None] * head + others * embedding
    terms[:, 4] = passes * (_tensor_ring(c, machine, element) + _context_ring(c, machine, element))
    terms[:, 5] = _pipeline(c, machine, element)
    parameters = first_stage_parameters(c)
    terms[:, 6] = _data_ring(c, machine, _exchanged(c, per_parameter) * parameters)
    shards = np.where(c.zero > 0, c.dp * c.cp, 1)
    terms[:, 7] = OPTIMIZER_TRAFFIC_BYTES * parameters / shards / machine.rates.memory_bandwidth
    terms[:, 8] = 1.0
    return terms


def local_tokens(c: Configurations) -> Ints:
    """Tokens of a micro-batch on one context rank."""
    return np.asarray(c.micro_batch * c.seq // c.cp)


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


def _layer_work(c: Configurations, rates: Rates) -> Floats:
    """Terms of one layer and micro-batch, all passes, (configurations, 4)."""
    shape = LayerShape.of(
        batch=c.micro_batch,
        seq=c.seq / c.cp,
        window=c.seq,
        hidden=c.hidden,
        heads=c.heads / c.tp,
        kv_heads=c.kv_heads / np.minimum(c.tp, c.kv_heads),
        head_dim=c.hidden // c.heads,
        ffn=c.ffn_hidden / c.tp,
        up=1 + c.gated,
    )
    plain = block_passes(shape, rates)
    recompute = c.recompute[:, None]
    again = [sum(recomputed(plain, kind)) for kind in RECOMPUTE[1:]]
    return np.asarray(np.where(recompute == 2, again[1], np.where(recompute == 1, again[0], sum(plain))))


def _head_work(c: Configurations, rates: Rates) -> Floats:
    passes = head_passes(local_tokens(c), c.hidden, padded_vocabulary(c) // c.tp, rates)
    return np.asarray(sum(passes) * (c.vocab > 0)[:, None])


def _embedding_work(c: Configurations, rates: Rates) -> Floats:
    return np.asarray(sum(embedding_passes(local_tokens(c), c.hidden, rates)) * (c.vocab > 0)[:, None])


def _tensor_ring(c: Configurations, machine: Machine, element: int) -> Floats:
    """All-reduce seconds of one layer and micro-batch, (2)."""
    inside = c.tp <= machine.gpus_per_node
    rate = np.where(inside, machine.inside_rate, min(machine.between_rate, machine.inside_rate))
    latency = np.where(inside, machine.inside_latency, max(machine.between_latency, machine.inside_latency))
    message = element * local_tokens(c) * c.hidden
    reductions = np.where(c.recompute == 2, 6, 4)
    ring = 2.0 * (c.tp - 1) / c.tp * message / rate + 2.0 * (c.tp - 1) * latency
    return np.asarray(reductions * ring)


def _context_ring(c: Configurations, machine: Machine, element: int) -> Floats:
    """Seconds to pass keys and values, and their gradients, around the context ranks, a layer and micro-batch, (2)."""
    rate = np.where(c.tp * c.cp <= machine.gpus_per_node, machine.inside_rate, machine.between_rate)
    kv_width = c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads)
    message = 2.0 * element * local_tokens(c) * kv_width
    return np.asarray((c.cp - 1) * (3 + (c.recompute > 0)) * message / rate)


def _exchanged(c: Configurations, per_parameter: ParameterBytes) -> Floats:
    """Bytes per parameter that the data-parallel rings carry in a step, as ``ParameterBytes.exchanged``."""
    m = c.num_micro_batches
    by_stage = [np.asarray([per_parameter.exchanged(zero, 1)] * len(c)) for zero in (0, 1)]
    second = (m * per_parameter.gradient + per_parameter.weight) / 2
    third = m * (per_parameter.gradient + 2 * per_parameter.weight) / 2
    return np.choose(c.zero, [*by_stage, second, third])


def _pipeline(c: Configurations, machine: Machine, element: int) -> Floats:
    """Trips times hops, (3)."""
    stage = c.tp * c.cp * c.dp
    per_node = np.maximum(machine.gpus_per_node // stage, 1)
    leaving = np.where(stage >= machine.gpus_per_node, c.pp - 1, -(-c.pp // per_node) - 1)
    message = element * local_tokens(c) * c.hidden / np.where(c.sequence_parallel == 1, c.tp, 1)
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
    groups, replicas = np.maximum(machine.gpus_per_node // c.tp, 1), c.dp * c.cp
    inside = np.where(c.tp <= machine.gpus_per_node, np.minimum(replicas, groups), 1)
    nodes = np.where(c.tp <= machine.gpus_per_node, -(-replicas // groups), replicas)
    rate = min(machine.between_rate, machine.cards / machine.gpus_per_node)
    within = 4.0 * (inside - 1) / inside * message / machine.inside_rate
    return np.asarray(within + 2.0 * (nodes - 1) / nodes * message / rate)


def memory_bytes(c: Configurations, rates: Rates, per_parameter: ParameterBytes, overhead: int) -> Ints:
    """Bytes of the fullest device: stage 0 with its micro-batches in flight, or the last stage with the logits."""
    flight = np.where(c.gpipe == 1, c.num_micro_batches, np.minimum(c.pp, c.num_micro_batches))
    flight = np.where((c.vpp > 1) & (c.gpipe == 0), np.ceil(flight * (1 + (c.pp - 1) / (c.pp * c.vpp))), flight)
    last = np.where(c.gpipe == 1, c.num_micro_batches, 1)
    element = rates.element
    kept, plain = _activation(c, rates, c.recompute), _activation(c, rates, np.zeros_like(c.recompute))
    per_stage = c.layers // c.pp
    head, mask = _edge_activation(c, element)
    first_bytes = per_stage * kept + mask + np.where(c.pp == 1, head, 0)

    shards = c.dp * c.cp
    first_shards, second_shards, third_shards = (np.where(c.zero >= stage, shards, 1) for stage in (1, 2, 3))

    def states(parameters: Floats) -> Floats:
        weights = -(-parameters * per_parameter.weight // third_shards)
        gradients = -(-parameters * per_parameter.gradient // second_shards)
        return np.asarray(weights + gradients - (-parameters * per_parameter.state // first_shards))

    first = states(first_stage_parameters(c)) + flight * first_bytes
    end = states(_last_stage_parameters(c)) + last * (per_stage * kept + head)
    fullest = np.where(c.pp == 1, first, np.maximum(first, end)) + (plain - kept) + overhead
    return np.asarray(fullest, dtype=np.int64)


def _activation(c: Configurations, rates: Rates, recompute: Ints) -> Floats:
    """Bytes that one layer keeps for one micro-batch on one tensor rank."""
    tokens, element = local_tokens(c), rates.element
    kv_hidden = c.hidden // c.heads * c.kv_heads
    replicated = tokens * c.hidden * (4 * element + np.where(c.gated == 1, 0, 2))
    widths = 2 * c.hidden + 2 * kv_hidden + np.where(c.gated == 1, 3, 2) * c.ffn_hidden
    split = tokens * element * widths
    if not rates.fused_attention:
        split = split + np.where(recompute == 0, (2 * element + 1) * c.heads * c.seq * tokens, 0)
    full = recompute == 2
    replicated, split = np.where(full, element * tokens * c.hidden, replicated), np.where(full, 0, split)
    sharded = -(-(replicated + split) // c.tp)
    return np.asarray(np.where(c.sequence_parallel == 1, sharded, replicated + -(-split // c.tp)))


def _edge_activation(c: Configurations, element: int) -> tuple[Floats, Floats]:
    """Bytes of the head (inputs and fp32 logits) and of the embedding's dropout mask."""
    some, output = c.vocab > 0, local_tokens(c) * c.hidden
    shards = np.where(c.sequence_parallel == 1, c.tp, 1)
    logits = 4 * local_tokens(c) * padded_vocabulary(c)
    inputs = 2 * element * output
    head = np.where(c.sequence_parallel == 1, -(-(inputs + logits) // c.tp), inputs + -(-logits // c.tp))
    return np.asarray(head * some), np.asarray(-(-output // shards) * some)
