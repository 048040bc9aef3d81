r"""
The memory of many ordinary configurations at once, as terms that a memory model weighs.

For stage x of every configuration the terms of ``taut.formulations.tables.memory``, ordered as ``MEMORY_TERMS``, with

(1) :math:`q_x` micro-batches in flight: :math:`\min(pp - x, m)` for 1F1B and m for GPipe; interleaved 1F1B holds
    :math:`2 (pp - x - 1) + (vpp - 1) pp + 1` chunks of 1 / vpp of the stage (Narayanan et al., arXiv 2104.04473);
(2) context ranks dividing the tokens, and sharing weights, gradients and states as replicas do under ZeRO.

The bytes of a configuration are those of its fullest stage: the first one, which holds most micro-batches, or the
last, which holds the head. They equal what the planner computes for the same configuration.
"""

import numpy as np

from taut.data.analytic.device_rates import KEPT_BLOCK, Rates
from taut.data.arrays import Flags, Floats, Ints
from taut.data.memory import MEMORY_TERMS, MemoryModel, ParameterBytes
from taut.formulations.batch.configurations import (
    Configurations,
    layer_parameters,
    local_tokens,
    longest_stage,
    padded_vocabulary,
    stage_parameters,
    table_parameters,
)
from taut.formulations.tables.stage_tables import LOGIT_BYTES


def memory_bytes(c: Configurations, rates: Rates, model: MemoryModel) -> Ints:
    """Bytes of the fullest device of every configuration, predicted by a memory model."""
    return np.asarray(np.max([stage_bytes(c, stage, rates, model) for stage in edge_stages(c)], axis=0))


def edge_stages(c: Configurations) -> tuple[Ints, Ints]:
    """The first and the last stage."""
    return np.zeros_like(c.pp), c.pp - 1


def stage_bytes(c: Configurations, stage: Ints, rates: Rates, model: MemoryModel) -> Ints:
    """Bytes of a device of the given stage, every term rounded up."""
    terms = memory_terms(c, stage, rates, model.parameter_bytes)
    weights = np.array([model.coefficient(term) for term in MEMORY_TERMS])
    return np.asarray(np.ceil(terms * weights).sum(axis=1) + model.overhead_bytes, dtype=np.int64)


def memory_terms(c: Configurations, stage: Ints, rates: Rates, per_parameter: ParameterBytes) -> Floats:
    """
    Terms of a stage's memory at coefficient 1, (configurations, terms) in the order of ``MEMORY_TERMS``.

    Parameters
    ----------
    c
        What is priced.
    stage
        Index of the stage, from 0, by configuration.
    rates
        Bytes of an element, and whether attention scores stay out of memory.
    per_parameter
        Bytes of a weight, a gradient and an optimizer state.
    """
    first, last, element = stage == 0, stage == c.pp - 1, rates.element
    kept, plain = _activation(c, rates, c.recompute), _activation(c, rates, np.zeros_like(c.recompute))
    head, mask = _edge_activation(c, element)
    layers = longest_stage(c) * kept + np.where(first, mask, 0) + np.where(last, head, 0)
    in_flight = np.ceil(_in_flight(c, stage) * layers)
    full = c.recompute == 2
    logits = np.where(last, LOGIT_BYTES * local_tokens(c) * (padded_vocabulary(c) // c.tp), 0)
    held = _held(c, stage_parameters(c, first, last), first, per_parameter)
    passing = (np.maximum(plain - kept, 0), logits, _buffers(c, element))
    columns = (*held, np.where(full, 0, in_flight), np.where(full, in_flight, 0), *passing)
    return np.stack(np.broadcast_arrays(*columns), axis=1).astype(np.float64)


def _in_flight(c: Configurations, stage: Ints) -> Floats:
    """Micro-batches whose activations the stage holds at once, (1)."""
    chunks = 2 * (c.pp - stage - 1) + (c.vpp - 1) * c.pp + 1
    plain = np.where(c.vpp > 1, chunks / c.vpp, c.pp - stage)
    return np.asarray(np.where(c.gpipe == 1, c.num_micro_batches, np.minimum(plain, c.num_micro_batches)))


def _held(c: Configurations, parameters: Ints, first: Flags, per_parameter: ParameterBytes) -> tuple[Ints, Ints, Ints]:
    """Bytes of weights, gradients and optimizer states, as ``taut.formulations.tables.memory.held_bytes``."""
    replicas = c.dp * c.cp
    by_stage = (np.where(c.zero >= stage, replicas, 1) for stage in (1, 2, 3))
    weight, gradient, state = (parameters * count for count in per_parameter)
    states, gradients, weights = (
        -(-figure // shards) for figure, shards in zip((state, gradient, weight), by_stage, strict=True)
    )
    largest = np.maximum(layer_parameters(c), np.where(first, table_parameters(c), 0))
    gathers, piped = (c.zero == 3) & (replicas > 1), c.pp > 1
    weights = weights + np.where(gathers, np.where(piped, weight, 2 * largest * per_parameter.weight), 0)
    return np.asarray(weights), np.asarray(gradients + np.where(gathers & piped, gradient, 0)), np.asarray(states)


def _buffers(c: Configurations, element: int) -> Ints:
    """Bytes of messages under way, and of the gathered input under sequence parallelism."""
    output = element * local_tokens(c) * c.hidden
    sharded = (c.sequence_parallel == 1) & (c.tp > 1)
    message = np.where(sharded, -(-output // c.tp), output)
    return np.asarray(np.where(sharded, output, 0) + np.where(c.pp > 1, 2 * message, 0))


def _activation(c: Configurations, rates: Rates, recompute: Ints) -> Floats:
    """Bytes that one layer keeps for one micro-batch on one tensor rank."""
    tokens, element = local_tokens(c), rates.element
    kv_hidden = c.hidden // c.heads * c.kv_heads
    masks = np.where(c.gated == 1, 0, 2)
    replicated = tokens * c.hidden * (2 * element + masks) - (-2 * tokens * c.hidden * rates.kept // KEPT_BLOCK)
    widths = 2 * c.hidden + 2 * kv_hidden + np.where(c.gated == 1, 2, 1) * c.ffn_hidden
    inputs = c.ffn_hidden + (c.hidden if rates.casts else 0)
    split = tokens * element * widths - (-tokens * inputs * rates.kept // KEPT_BLOCK)
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
