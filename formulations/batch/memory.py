r"""
The memory of many ordinary configurations at once, as terms that a memory model weighs.

For stage x of every configuration the terms of ``taut.formulations.tables.memory``, ordered as ``MEMORY_TERMS``, with

(1) :math:`q_x` micro-batches in flight: :math:`\min(pp - x, m)` for 1F1B and m for GPipe; an order-priced schedule
    keeps :math:`\max_n \sum_c n_c a_c`, over the counts n of micro-batches in flight that its order goes through
    (``taut.formulations.schedules.orders`` (13));
(2) context ranks dividing the tokens, and sharing weights, gradients and states as replicas do under ZeRO.

The bytes of a configuration are those of its fullest stage: the first one, which holds most micro-batches, or the
last, which holds the head, unless schedule or division make it another. They equal what the planner computes for the
same configuration.
"""

import numpy as np

from taut.data.analytic.device_rates import KEPT_BLOCK, Rates
from taut.data.arrays import Flags, Floats, Ints
from taut.data.memory import MEMORY_TERMS, MOMENTS_CAST, MemoryModel, ParameterBytes
from taut.data.stack import CONTEXT_KINDS, SCHEDULES
from taut.formulations.batch.configurations import (
    FOLDED,
    GPIPE,
    ORDERED,
    Configurations,
    device_parameters,
    layer_parameters,
    local_tokens,
    padded_vocabulary,
    stage_of,
    table_parameters,
)
from taut.formulations.schedules.orders import device_of_chunk, in_flight_counts
from taut.formulations.terms import MOMENTS, MemoryTerm, device_bytes

MOST = 2.0**62
"""Bytes, beyond which a whole number of 64 bits would turn negative."""
GRADIENTS, LOGITS = (MEMORY_TERMS.index(term) for term in ("gradients", "logits"))
ALL_TO_ALL = CONTEXT_KINDS.index("a2a")


def memory_bytes(c: Configurations, rates: Rates, model: MemoryModel) -> Ints:
    """Bytes of the fullest device of every configuration, predicted by a memory model; see ``stage_bytes``."""
    each = model.held_parameter_bytes
    found = np.asarray(np.max([stage_bytes(c, stage, rates, model, each) for stage in edge_stages(c)], axis=0))
    differing = np.flatnonzero(ORDERED[c.schedule] | (c.division[:, 1:] > c.division[:, :1]).any(axis=1))
    rest = c.take(differing)
    for stage in range(1, int(rest.pp.max(initial=1)) - 1):
        some = np.flatnonzero(stage < rest.pp - 1)
        needed = stage_bytes(rest.take(some), np.full(len(some), stage), rates, model, each)
        found[differing[some]] = np.maximum(found[differing[some]], needed)
    return found


def edge_stages(c: Configurations) -> tuple[Ints, Ints]:
    """The first and the last stage."""
    return np.zeros_like(c.pp), c.pp - 1


def stage_bytes(
    c: Configurations, stage: Ints, rates: Rates, model: MemoryModel, per_parameter: ParameterBytes
) -> Ints:
    """Bytes of a device of the given stage, every term rounded up, at so many bytes a parameter."""
    weights = {term: model.coefficient(term) for term in MEMORY_TERMS}
    kept = weights["activations"], weights["checkpoints"]
    terms = memory_terms(c, stage, rates, per_parameter, kept, model)
    # What stays of a micro-batch is weighed before micro-batches are counted.
    others = np.array(list((weights | {"activations": 1.0, "checkpoints": 1.0}).values()))
    each = zip(MOMENTS.items(), np.ceil(np.ascontiguousarray(terms.T) * others[:, None]), strict=True)
    found = [MemoryTerm(name, moment, figure) for (name, moment), figure in each]
    unsummed = np.ceil(weights["gradients"] * unsummed_bytes(c, stage, per_parameter))
    found.append(MemoryTerm("gradients", "reduction", unsummed))
    stand_ins = per_parameter.weight * _stand_ins(c, stage, model)
    found.append(MemoryTerm("gradients", "always", np.ceil(weights["gradients"] * stand_ins)))
    backward = np.ceil(weights["workspace"] * _backward(c, stage, rates, model))
    found.append(MemoryTerm("workspace", "reduction", backward))
    if model.half_moments:
        own = device_parameters(c)[np.arange(len(c)), stage]
        cast = -(-own * MOMENTS_CAST // np.where(c.zero > 0, c.dp * c.cp, 1))
        found.append(MemoryTerm("states", "update", cast))
    found.append(MemoryTerm("overhead", "always", model.overhead_bytes + groups(c) * model.group_bytes))
    return np.asarray(np.minimum(device_bytes(found), MOST), dtype=np.int64)


def groups(c: Configurations) -> Ints:
    """Groups of several stages, and of several replicas or context ranks: none, one or both."""
    return np.asarray((c.pp > 1) * 1 + (c.dp * c.cp > 1))


def memory_terms(
    c: Configurations,
    stage: Ints,
    rates: Rates,
    per_parameter: ParameterBytes,
    kept: tuple[float, float] = (1.0, 1.0),
    model: MemoryModel | None = None,
) -> Floats:
    """Terms of stages at coefficient 1, (rows, terms) as ``MEMORY_TERMS``; ``kept``: without and with recompute."""
    last = stage == np.where(FOLDED[c.schedule], 0, c.pp - 1)
    model = model or MemoryModel()
    full, plain = c.recompute == 2, _activation(c, rates, np.zeros_like(c.recompute), model)
    left = _activation(c, rates, c.recompute, model)
    at_once = _at_once(c, stage, rates, left, np.where(full, kept[1], kept[0]))
    alone, shared = (model.logit_bytes(tp, rates.fused_loss) for tp in (1, 2))
    entries = local_tokens(c) * (padded_vocabulary(c) // c.tp)
    logits = np.where(last, np.where(c.tp > 1, shared, alone) * entries, 0)
    held = _held(c, device_parameters(c)[np.arange(len(c)), stage], _largest(c, stage), per_parameter)
    layered = _has_layers(c, stage)
    again = np.where(layered, np.maximum(plain - left, 0), 0)
    passing = (again, logits, _buffers(c, rates.element, layered))
    columns = (*held, np.where(full, 0, at_once), np.where(full, at_once, 0), *passing)
    return np.stack(np.broadcast_arrays(*columns), axis=1).astype(np.float64)


def _has_layers(c: Configurations, stage: Ints) -> Flags:
    """Whether a device of the stage has any layer, which one with the embedding or the head alone has not."""
    rows, folded = np.arange(len(c)), FOLDED[c.schedule]
    other = c.division[rows, np.where(folded, 2 * c.pp - 1 - stage, stage)]
    return np.asarray((c.division[rows, stage] > 0) | (other > 0) | ((c.vpp > 1) & ~folded))


def _at_once(c: Configurations, stage: Ints, rates: Rates, layer: Floats, weight: Floats) -> Floats:
    """Bytes of activations that the stage holds at once, of a layer's, weighed, (1)."""
    most = np.where(c.schedule == GPIPE, c.num_micro_batches, np.minimum(c.pp - stage, c.num_micro_batches))
    found = most * np.ceil(weight * _chunk_activation(c, stage, rates, layer))
    keys = np.stack([c.schedule, c.pp, c.vpp, c.num_micro_batches, stage], axis=1)
    ordered = np.flatnonzero(ORDERED[c.schedule])
    for schedule, pp, vpp, m, device in np.unique(keys[ordered], axis=0).tolist():
        some = ordered[(keys[ordered] == (schedule, pp, vpp, m, device)).all(axis=1)]
        kind, rows = SCHEDULES[schedule], c.take(some)
        hosted = np.flatnonzero(device_of_chunk(kind, pp, vpp) == device)
        each = [_chunk_activation(rows, np.full(len(some), j), rates, layer[some]) for j in hosted.tolist()]
        counts = in_flight_counts(kind, pp, vpp, m)[device]
        found[some] = (counts @ np.ceil(weight[some] * np.array(each))).max(axis=0)
    return found


def _chunk_activation(c: Configurations, chunk: Ints, rates: Rates, layer: Floats) -> Floats:
    """Bytes that a chunk keeps of one micro-batch, where a layer keeps so many."""
    head, mask = _edge_activation(c, rates)
    layers = c.division[np.arange(len(c)), chunk]
    return np.asarray(layers * layer + np.where(chunk == 0, mask, 0) + np.where(chunk == c.pp * c.vpp - 1, head, 0))


def _held(c: Configurations, parameters: Ints, largest: Ints, per_parameter: ParameterBytes) -> tuple[Ints, Ints, Ints]:
    """Bytes of weights, gradients and optimizer states, as ``taut.formulations.mechanisms.shards.held_bytes``."""
    replicas = c.dp * c.cp
    by_stage = (np.where(c.zero >= stage, replicas, 1) for stage in (1, 2, 3))
    weight, gradient, state = (parameters * count for count in per_parameter[:3])
    states, gradients, weights = (
        -(-figure // shards) for figure, shards in zip((state, gradient, weight), by_stage, strict=True)
    )
    gathers, scatters = (c.zero == 3) & (replicas > 1), (c.zero >= 2) & (replicas > 1)
    weights = weights + np.where(gathers, np.where(c.pp > 1, weight, 2 * largest * per_parameter.weight), 0)
    gradients = gradients + np.where(scatters & (c.pp > 1), gradient, 0)
    return np.asarray(weights), np.asarray(gradients), np.asarray(states)


def unsummed_bytes(c: Configurations, stage: Ints, per_parameter: ParameterBytes) -> Ints:
    """Bytes of a layer's gradients before they are summed, as ``taut.formulations.mechanisms.shards`` (3)."""
    scatters = (c.zero >= 2) & (c.dp * c.cp > 1)
    each = per_parameter.weight + np.where(c.pp > 1, 0, per_parameter.gradient)
    return np.asarray(np.where(scatters, _largest(c, stage) * each, 0))


def _largest(c: Configurations, stage: Ints) -> Ints:
    """Parameters of the largest layer of a stage, or of its embedding."""
    layer = np.where(_has_layers(c, stage), layer_parameters(c), 0)
    return np.asarray(np.maximum(layer, np.where(stage == 0, table_parameters(c), 0)))


def _buffers(c: Configurations, element: int, layered: Flags) -> Ints:
    """Bytes of messages under way, of the gathered input, and of keys and values that layers' context ranks gather."""
    output = element * local_tokens(c) * c.hidden
    sharded = (c.sequence_parallel == 1) & (c.tp > 1)
    message = np.where(sharded, -(-output // c.tp), output)
    keys = 2 * (c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads))
    gathers = layered & (c.cp > 1) & (c.cp_comm == CONTEXT_KINDS.index("all_gather"))
    gathered = np.where(gathers, 2 * element * c.micro_batch * c.seq * keys, 0)
    return np.asarray(np.where(sharded, output, 0) + np.where(c.pp > 1, 2 * message, 0) + gathered)


def _stand_ins(c: Configurations, stage: Ints, model: MemoryModel) -> Ints:
    """Parameters of every shape of weights on a stage, once (``taut.data.layers.layer``)."""
    if not model.caches(grouped=False):
        return np.zeros_like(c.hidden)
    kv_width = c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads)
    width, gates = c.ffn_hidden // c.tp, np.where(c.gated == 1, 2, 1)
    shapes = [(c.hidden // c.tp + 2 * kv_width, c.hidden), (c.hidden, c.hidden // c.tp)]
    shapes += [(gates * width, c.hidden), (c.hidden, width), (padded_vocabulary(c) // c.tp, c.hidden)]
    layered, last = _has_layers(c, stage), stage == np.where(FOLDED[c.schedule], 0, c.pp - 1)
    held: list[tuple[Ints, Ints, Flags]] = []
    found = np.zeros_like(c.hidden)
    for number, (rows, columns) in enumerate(shapes):
        here = layered if number < 4 else last & (c.vocab > 0)
        known = [(rows == a) & (columns == b) & there for a, b, there in held]
        new = here & ~np.any([np.zeros(len(c), dtype=bool), *known], axis=0)
        found = found + np.where(new, rows * columns, 0)
        held.append((rows, columns, here))
    return np.asarray(found)


def _backward(c: Configurations, stage: Ints, rates: Rates, model: MemoryModel) -> Floats:
    """Bytes of gradients that pass in a layer's backward pass, as ``taut.formulations.tables.stage_tables`` (4)."""
    if not model.passing_gradients:
        return np.zeros(len(c))
    each = rates.element * local_tokens(c) * np.where(c.gated == 1, 3, 2) * c.ffn_hidden // c.tp
    chunks, rows, found = c.pp * c.vpp, np.arange(len(c)), np.zeros(len(c))
    head, _ = _edge_activation(c, rates)
    for chunk in range(c.division.shape[1]):
        here = (stage_of(c, chunk) == stage) & (chunk < chunks) & (c.division[rows, chunk] > 0)
        beyond = np.maximum(each - np.where(chunk == chunks - 1, head, 0), 0)
        found = np.maximum(found, np.where(here, beyond, 0))
    return found


def _activation(c: Configurations, rates: Rates, recompute: Ints, model: MemoryModel) -> Floats:
    """Bytes that one layer keeps for one micro-batch on one tensor rank."""
    tokens, element = local_tokens(c), rates.element
    kv_hidden = c.hidden // c.heads * c.kv_heads
    masks = 2 * c.dropout
    replicated = tokens * c.hidden * (2 * element + masks) - (-2 * tokens * c.hidden * rates.kept // KEPT_BLOCK)
    widths = 2 * c.hidden + 2 * kv_hidden + np.where(c.gated == 1, 2, 1) * c.ffn_hidden
    inputs = c.ffn_hidden + (c.hidden if rates.casts else 0)
    split = tokens * element * widths - (-tokens * inputs * rates.kept // KEPT_BLOCK)
    if not rates.fused_attention:
        split = split + np.where(recompute == 0, (2 * element + 1) * c.heads * c.seq * tokens, 0)
    if rates.selective_products:
        whole, part = c.hidden * (1 + c.gated), 2 * c.hidden + kv_hidden + c.ffn_hidden
        replicated = np.where(recompute == 1, element * tokens * whole, replicated)
        split = np.where(recompute == 1, element * tokens * part, split)
    if model.saves_both_outputs:
        split = split + np.where((c.cp > 1) & (c.cp_comm == ALL_TO_ALL), tokens * element * c.hidden, 0)
    full = recompute == 2
    replicated, split = np.where(full, element * tokens * c.hidden, replicated), np.where(full, 0, split)
    sharded = -(-(replicated + split) // c.tp)
    return np.asarray(np.where(c.sequence_parallel == 1, sharded, replicated + -(-split // c.tp)))


def _edge_activation(c: Configurations, rates: Rates) -> tuple[Floats, Floats]:
    """Bytes of the head (inputs and logits) and of the embedding's dropout mask."""
    some, output = c.vocab > 0, local_tokens(c) * c.hidden
    shards = np.where(c.sequence_parallel == 1, c.tp, 1)
    logits = rates.logit_bytes * local_tokens(c) * padded_vocabulary(c)
    inputs = 2 * rates.element * output
    head = np.where(c.sequence_parallel == 1, -(-(inputs + logits) // c.tp), inputs + -(-logits // c.tp))
    return np.asarray(head * some), np.asarray(-(-output // shards) * some)
