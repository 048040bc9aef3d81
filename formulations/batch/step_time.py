r"""
The step time of many ordinary configurations at once, as terms that a calibration weighs.

A configuration is a stack of L equal layers divided over pp stages of vpp chunks, the longest of :math:`\lceil L / pp
\rceil` layers, on n equal nodes in Megatron-LM's order (tensor ranks fastest, then replicas, then stages). With m
micro-batches and the last stage the slowest, since it holds the head, and the first as long as any,

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
"""

from dataclasses import dataclass

import numpy as np

from taut.data.analytic.device_rates import Rates
from taut.data.analytic.layer_costs import OPTIMIZER_TRAFFIC_BYTES
from taut.data.analytic.layer_work import LayerShape, block_passes, embedding_passes, head_passes, recomputed
from taut.data.arrays import Floats
from taut.data.calibration import TERMS
from taut.data.costs import RECOMPUTE
from taut.data.memory import ParameterBytes
from taut.formulations.batch.configurations import (
    Configurations,
    first_stage_parameters,
    local_tokens,
    longest_stage,
    padded_vocabulary,
)
from taut.formulations.rings import inside_factor, ring_factor, ring_steps


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


def step_terms(configurations: Configurations, machine: Machine, per_parameter: ParameterBytes) -> Floats:
    """
    Terms of the step time at coefficient 1, (configurations, terms) in the order of ``TERMS``.

    Parameters
    ----------
    configurations
        What is priced; with more than one chunk layers divide evenly over stages and chunks.
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
    passes = _passes(c)
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
    ring = ring_factor(c.tp) * message / rate + ring_steps(c.tp) * latency
    return np.asarray(reductions * ring)


def _context_ring(c: Configurations, machine: Machine, element: int) -> Floats:
    """Seconds to pass keys and values, and their gradients, around the context ranks, a layer and micro-batch, (2)."""
    rate = np.where(c.tp * c.cp <= machine.gpus_per_node, machine.inside_rate, machine.between_rate)
    kv_width = c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads)
    message = 2.0 * element * local_tokens(c) * kv_width
    return np.asarray((c.cp - 1) * (3 + (c.recompute > 0)) * message / rate)


def _passes(c: Configurations) -> Floats:
    """Layers that a step waits for: m times those of the longest stage, and of the others once, (1)."""
    plain = c.layers + (c.num_micro_batches - 1) * longest_stage(c)
    interleaved = c.layers / c.pp * (c.num_micro_batches + (c.pp - 1) / c.vpp)
    return np.asarray(np.where(c.vpp > 1, interleaved, plain), dtype=np.float64)


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
    within = inside_factor(inside) * message / machine.inside_rate
    return np.asarray(within + ring_factor(nodes) * message / rate)
