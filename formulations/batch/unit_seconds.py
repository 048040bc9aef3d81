r"""
What one unit of a configuration's work takes: a layer's passes, a hop, as terms that a calibration weighs.

(1) Passes of a layer, of the embedding and of the head: forward, gradient by the input, gradient by the weights, in the
    terms gemm, attention, memory and launch (``taut.data.analytic.layer_work``), what recompute repeats with the
    gradient by the input.
    No pass takes less than the fastest kernels that were measured (``taut.data.analytic.kernel_floors`` (5)).
(2) The fifth term, tensor_parallel: all-reduces of tensor groups, and what context ranks exchange for attention and
    attention does not hide (``taut.formulations.tables.block_traffic`` (1) to (3)); those that are not forward belong
    to the gradient by the input.
(3) A hop, one way, inside a node and between nodes: latency and message over the link, between nodes at most at the
    node's cards shared by the tensor and context ranks of a stage and replica.

Megatron-LM's order of workers on equal nodes says which rings and hops leave a node. Tensor groups follow one another
node by node, replicas of a stage before the next stage: group :math:`j = x D + z` of stage x and replica z, of D
replicas (context ranks among them), lies on node :math:`\lfloor j / q \rfloor`, with q groups on a node, or has nodes
of its own where it fills them.

(4) The replicas of stage x touch k nodes, with at most :math:`g^+` and at least :math:`g^-` of them on one; their ring
    (``taut.formulations.rings`` (2) and (3)) takes, for each byte,
    :math:`4 (g^+ - 1) / g^+ / B_{in} + 2 (k - 1) / k \max(1 / B, G / N) / g^-` seconds, or without stated cards
    :math:`1 / B` between nodes.
(5) The hop of replica z from stage x to x + 1, and from the last stage back to the first, stays in a node or leaves it.
    Replicas with the same hops form one pattern; there is only one where stages fill nodes or nodes hold whole stages.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.analytic.device_rates import Rates
from taut.data.analytic.layer_work import (
    LayerShape,
    Passes,
    block_passes,
    embedding_passes,
    floors_of,
    head_passes,
    recomputed,
    selective_shares,
    whole_terms,
)
from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.stack import CONTEXT_KINDS
from taut.formulations.batch.configurations import Configurations, local_tokens, padded_vocabulary
from taut.formulations.rings import inside_factor, ring_factor, ring_steps
from taut.formulations.tables.block_traffic import EXCHANGED, PASSED, REDUCTIONS

LAYER, EMBEDDING, HEAD = 0, 1, 2
ALL_GATHER, ALL_TO_ALL, BETWEEN_NODES = (CONTEXT_KINDS.index(kind) for kind in ("all_gather", "a2a", "a2a+p2p"))
FORWARD, BY_INPUT, BY_WEIGHT = 0, 1, 2
"""Axes of ``pass_terms``: what is passed, and in which pass."""


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
    core_inverse: float = 0.0


def pass_terms(c: Configurations, machine: Machine) -> Floats:
    """Terms of every pass, (rows, 3 of what, 3 passes, 5 terms), (1) and (2)."""
    rates, found = machine.rates, np.zeros((len(c), 3, 3, 5))
    some = (c.vocab > 0)[:, None]
    edges = (
        embedding_passes(local_tokens(c), c.hidden, rates),
        head_passes(local_tokens(c), c.hidden, padded_vocabulary(c) // c.tp, rates),
    )
    for kind, passes in ((LAYER, _layer_passes(c, rates)), (EMBEDDING, edges[0]), (HEAD, edges[1])):
        for place, part in enumerate(passes):
            found[:, kind, place, :4] = part if kind == LAYER else part * some
    found[:, LAYER, :2, 4] = _tensor_rings(c, machine) + _context_seconds(c, machine)
    return found


def pass_floors(c: Configurations, machine: Machine) -> Floats:
    """Least seconds of the first four terms of every pass, (rows, 3 of what, 3 passes), (1)."""
    found = np.zeros((len(c), 3, 3))
    if (fastest := machine.rates.fastest) is None:
        return found
    tokens, some = local_tokens(c), c.vocab > 0
    for kind, passes in (
        (LAYER, _layer_passes(c, fastest)),
        (EMBEDDING, embedding_passes(tokens, c.hidden, fastest)),
        (HEAD, head_passes(tokens, c.hidden, padded_vocabulary(c) // c.tp, fastest)),
    ):
        for place, floor in enumerate(floors_of(passes)):
            found[:, kind, place] = floor if kind == LAYER else floor * some
    return found


def _layer_passes(c: Configurations, rates: Rates) -> Passes:
    """Passes of a layer with what is recomputed, (1)."""
    shape = layer_shape(c)
    plain, recompute = block_passes(shape, rates), c.recompute[:, None]
    again = plain.forward * selective_shares(shape, rates)
    whole = whole_terms(plain, shape, rates)
    kinds = [recomputed(plain, kind, again, whole).input_grad for kind in RECOMPUTE]
    return plain._replace(input_grad=np.where(recompute == 2, kinds[2], np.where(recompute == 1, kinds[1], kinds[0])))


def layer_shape(c: Configurations) -> LayerShape:
    """Sizes of one tensor rank's share of a layer."""
    return LayerShape.of(
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


def _tensor_rings(c: Configurations, machine: Machine) -> Floats:
    """All-reduce seconds of one layer and micro-batch, forward and in the gradient by the input, (rows, 2), (2)."""
    inside = c.tp <= machine.gpus_per_node
    rate = np.where(inside, machine.inside_rate, min(machine.between_rate, machine.inside_rate))
    latency = np.where(inside, machine.inside_latency, max(machine.between_latency, machine.inside_latency))
    message = machine.rates.element * local_tokens(c) * c.hidden
    ring = ring_factor(c.tp) * message / rate + ring_steps(c.tp) * latency
    return _times(ring, c, REDUCTIONS, 2)


def _context_seconds(c: Configurations, machine: Machine) -> Floats:
    """Seconds of what context ranks exchange for the attention of one layer, as ``_tensor_rings``, (2)."""
    inside, here = c.tp * c.cp <= machine.gpus_per_node, np.maximum(machine.gpus_per_node // c.tp, 1)
    inner = np.minimum(c.cp, here)
    latency = np.where(inside, machine.inside_latency, max(machine.between_latency, machine.inside_latency))
    kv_width = c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads)
    number = machine.rates.element * local_tokens(c)
    ring = _ring_seconds(c, machine, here, latency, 2.0 * number * kv_width)
    near = 1 / machine.inside_rate
    far = np.maximum(1 / machine.between_rate, machine.gpus_per_node / machine.cards)
    ranks = np.where(c.cp_comm == ALL_TO_ALL, c.cp, inner)
    moved = number * (2 * (c.hidden // c.tp) + 2 * kv_width) / ranks
    whole = moved * ((inner - 1) * near + (ranks - inner) * far) + 2 * latency
    exchanged = np.where((c.cp > 1) & (c.cp_comm >= ALL_TO_ALL), whole, 0.0)
    return _times(ring, c, PASSED, 1) + _times(exchanged, c, EXCHANGED, 1)


def _ring_seconds(c: Configurations, machine: Machine, here: Ints, latency: Floats, message: Floats) -> Floats:
    """Seconds of one turn of keys and values, of a layer, that attention does not hide."""
    between = c.cp_comm == BETWEEN_NODES
    members = np.where(between, 1, here)
    across = np.maximum(1 / machine.between_rate, machine.gpus_per_node / machine.cards / members)
    across = np.maximum(across, np.where(members > 1, 1 / machine.inside_rate, 0.0))
    inside = (c.tp * c.cp <= machine.gpus_per_node) & ~between
    steps = np.select([c.cp_comm == ALL_TO_ALL, between], [1, c.cp // np.minimum(c.cp, here)], c.cp)
    flops = 4.0 * c.micro_batch * c.seq * c.seq * c.hidden / c.tp / c.cp
    beside = np.where(c.cp_comm == ALL_GATHER, 0.0, machine.core_inverse * flops / steps)
    step = message * np.where(inside, 1 / machine.inside_rate, across)
    return np.asarray((steps - 1) * (np.maximum(step - beside, 0.0) + latency))


def _times(seconds: Floats, c: Configurations, every: dict[str, int], forward: int) -> Floats:
    """Seconds so often forward, and what is left of all times by recompute with the gradient by the input."""
    times = np.array([every[kind] for kind in RECOMPUTE])[c.recompute]
    return np.stack([forward * seconds, (times - forward) * seconds], axis=1)


def hop_seconds(c: Configurations, machine: Machine) -> Floats:
    """Seconds of one hop, one way, inside a node and between nodes, (rows, 2), (3)."""
    message = machine.rates.element * local_tokens(c) * c.hidden / np.where(c.sequence_parallel == 1, c.tp, 1)
    shared = np.minimum(machine.between_rate, machine.cards / np.minimum(c.tp * c.cp, machine.gpus_per_node))
    within = machine.inside_latency + message / machine.inside_rate
    return np.stack([within, machine.between_latency + message / shared], axis=1)


@dataclass(frozen=True)
class Layouts:
    """
    Seconds per byte of rings (rows, stages), (4), and between both ends (rows,), and the hops of configurations.

    ``first`` and ``count`` (rows,) say which rows of ``leaves`` (patterns, stages) are a configuration's, (5).
    """

    ring: Floats
    tied: Floats
    first: Ints
    count: Ints
    leaves: Flags


def layouts(c: Configurations, machine: Machine) -> Layouts:
    """Rings and hops of every configuration, (4) and (5)."""
    degrees = np.stack([c.tp, c.dp * c.cp, c.pp], axis=1)
    ranks = [np.unique(column, return_inverse=True)[1] for column in degrees.T]
    key = (ranks[0] * len(c) + ranks[1]) * len(c) + ranks[2]
    _, rows, of = np.unique(key, return_index=True, return_inverse=True)
    distinct, most = degrees[rows], int(c.pp.max(initial=1))
    leaves = [_leaves((tp, each, pp), machine.gpus_per_node, most) for tp, each, pp in distinct.tolist()]
    count = np.array([len(each) for each in leaves], dtype=np.int64)
    first = np.cumsum(count) - count
    ring = _rings(distinct, machine, most)
    tied = np.array([_tied(each, pp, machine) for each, pp in zip(leaves, distinct[:, 2].tolist(), strict=True)])
    every = np.concatenate(leaves) if leaves else np.zeros((0, most), dtype=bool)
    return Layouts(ring[of], tied[of], first[of], count[of], every)


def _rings(degrees: Ints, machine: Machine, most: int) -> Floats:
    """Seconds per byte of the ring of every stage, (layouts, most), (4)."""
    tp, replicas, _ = (column[:, None] for column in degrees.T)
    room = np.maximum(machine.gpus_per_node // tp, 1)
    before = np.arange(most) * replicas % room
    head = np.minimum(replicas, room - before)
    full, tail = np.divmod(replicas - head, room)
    touched = 1 + full + (tail > 0)
    largest = np.maximum(head, np.where(full > 0, room, tail))
    smallest = np.minimum(head, np.where(tail > 0, tail, head))
    card = max(1 / machine.between_rate, machine.gpus_per_node / machine.cards)
    between = card / (smallest if np.isfinite(machine.cards) else 1)
    return np.asarray(inside_factor(largest) / machine.inside_rate + ring_factor(touched) * between)


def _leaves(degrees: tuple[int, int, int], gpus_per_node: int, most: int) -> Flags:
    """Whether every hop leaves its node, and at pp - 1 the one back to the first stage, (patterns, most), (5)."""
    tp, replicas, pp = degrees
    room = max(gpus_per_node // tp, 1)
    aligned = replicas % room == 0 or room % replicas == 0
    z = np.arange(1 if aligned else replicas)[:, None]
    node = (np.arange(pp) * replicas + z) // room
    found = np.zeros((len(z), most), dtype=bool)
    found[:, :pp] = node != np.roll(node, -1, axis=1)
    return np.unique(found, axis=0)


def _tied(leaves: Flags, pp: int, machine: Machine) -> float:
    """Seconds per byte between the first and the last stage, the slowest replica's."""
    apart = leaves[:, pp - 1]
    between = max(1 / machine.between_rate, machine.gpus_per_node / machine.cards)
    return max(between if apart.any() else 0.0, 0.0 if apart.all() else 1 / machine.inside_rate)
