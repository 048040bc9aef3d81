r"""
What every layer costs at the degrees of a candidate, read from the cost table.

(1) A layer takes forward, input-gradient and weight-gradient seconds on a device type under a recompute, and keeps
    bytes of activations, the most of any type. The embedding adds to the first layer, norm and head to the last.
(2) A cost between two measured micro-batches is interpolated. Without a row, full recompute runs the forward pass once
    more within the gradient by the input and keeps the layer's output; selective recompute is none.
(3) Parameters of one tensor rank: matrices are split, norms and biases of the rows are not, key-value heads are
    replicated where they are fewer than ranks; the vocabulary is padded to a multiple of 128 tp. A tied head has
    none of its own where embedding and head share a device. Ranks share every expert's matrices and have the whole
    router; of latent attention they share what is made by heads and have whole what compresses, as they have an
    embedding of positions. With ep expert ranks
    each has 1/ep of the experts, and etp tensor ranks share each.
(4) Each of cp context ranks has 1/cp of the tokens. A layer's output has as many numbers of the precision's size for
    each as its hidden size, and its keys and values as many as both are wide on a tensor rank, (8); ``moved`` has
    queries and the attention's output beside them. ``core`` are the FLOP of a rank's forward attention, 4 for each of
    its tokens, tokens that this attends to, and channels of its heads, of latent attention the mean of the keys' and
    the values'. Layers beside a layer add theirs. Linear attention, a state space or a convolution has none of these;
    context ranks exchange its heads, ``mixed`` bytes: the columns made on a tensor rank, what second products make of
    those of low rank, and the channels read.
(5) Where end chunks may have no layers, embedding and head are parts before and behind the layers: what they add to the
    first and the last layer in (1) and (3) is theirs alone, and both hand on as many bytes as the layers beside them.
(8) A layer may have one part only, values of their own width, keys and values made by one matrix or none, products
    that every rank has whole, several streams (which a hop carries), and layers beside it that count with it: (3) is
    summed over them, a part has one norm, and a tensor group sums one output for every part.
(7) Of what a layer keeps under its recompute, or of what the table says that modules offload where the space names
    some, the host has floor(share times bytes) where a candidate has a share of its activations there. No pass takes
    less than these over the rate of the device's link, the gradients by input and weights together, and two layers'
    stand on the device beside what recomputing brings back.
(6) Of further tokens that are predicted each adds a layer like the last one, or one of every kind that is stated, as
    parts between the last layer and the head, three norms, 2 h^2 parameters of a product, the head's seconds times
    1 + 2 h over its padded words without tensor ranks, and the head's bytes with 4 outputs of a layer. Parameters are
    the first token's alone where all tokens repeat its layers. Where embedding and head lie apart, the latter's device
    has a copy of the embedding.
(9) With a release of Transformer Engine from 2.3 on a rank has a stand-in for the gradient of every shape of the
    weights of layers and head, once however many weights have it: queries, keys and values together; the output's;
    gates with what goes up; what goes down; what compresses in latent attention, and what unfolds this; from 2.10 on
    one expert's two. From 2.8 on an all-to-all of context ranks leaves attention's output twice, but for full
    recompute.
(10) In the backward pass gradients pass as wide as the feed-forward part's function takes and gives together, or, of
    experts, as a row and what the function takes. Where they are counted, the head's device counts what they take
    beyond the head's activations.
(11) Where a candidate recomputes some layers of every chunk, these are the first so many of the chunk, the embedding
    not counted, and all others are as without recompute.
(12) An encoder of images adds its row of the table to the embedding, with which it is gathered. A layer has 4 h^2 and 2
    or 3 h f parameters with two norms, and biases where it is not gated; t ranks share its matrices if they share the
    encoder at all. Frozen parameters count as a stand-in of their own. A layer that is frozen or recomputed has, while
    it runs, 8 numbers of h and 2 or 3 of f a patch, of which ranks share all but 4 h, for the most images of a
    micro-batch. Gradients as (10) are of f alone. Where ranks share it, outputs of the mean images are summed: two of
    every layer and one of every projector forward, as many backward and, recomputed, two of every layer more.
(13) Passes of a candidate in one stage, with whole weights and gradients, without full recompute and activations on
    hosts, are launched by CUDA graphs where the table has rows of such passes: these are its rows. A space may leave
    the recompute to the stage; it is full then where the space has no other.
"""

import math
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import Key
from taut.data.layers.layer import LayerSpec
from taut.errors import DataError
from taut.solver.certificate.reference.space import ON_V, Case, Choice, Stages

RECOMPUTE = ("none", "selective", "full")
NUMBER_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 2, "fp8-blockwise": 2, "mxfp8": 2, "nvfp4": 2}


@dataclass(frozen=True)
class Layers:
    """
    Figures by layer; axes are device type k, recompute r, layer l where they apply.

    ``passes`` (3, k, r, l) are seconds forward, by the input and by the weights. ``kept`` (r, l), ``of_layer`` (r, l)
    and ``brought_back`` (r, l) are bytes of activations that stay, of these those of one layer without embedding and
    head, and those that recomputing brings back. ``output`` (l,) are bytes of the
    layers' outputs, ``keys`` (l,) those of keys and values, ``moved``, ``core`` and ``mixed`` (l,) as in (4), ``rings``
    and ``mixers`` (l,) how many attentions and other ways to mix tokens a layer has, ``parameters`` (l,)
    those of one rank, ``gathered`` (l,) those that the largest gather takes; ``again`` (2, l) those of layers that
    stand for earlier ones, and of their experts; ``experts`` (l,) those of experts where fewer devices hold them than
    the rest; ``embedding`` are those of the token embedding alone. ``stand_ins`` (s, l)
    are the parameters of every shape of (9) in the layers that have it, and ``passing`` (l,) the bytes of (10) of the
    layers, of which the head's device counts those beyond ``of_head``. ``hiding`` are the
    least seconds of all passes of a layer with experts, without recompute.
    """

    passes: Floats
    kept: Ints
    of_layer: Ints
    brought_back: Ints
    moved_away: Ints
    output: Ints
    keys: Ints
    moved: Ints
    core: Floats
    mixed: Ints
    rings: Ints
    mixers: Ints
    parameters: Ints
    gathered: Ints
    again: Ints
    experts: Ints
    embedding: int
    logits: int
    stand_ins: Ints
    passing: Ints
    of_head: int
    hiding: float


def layers_of(case: Case, choice: Choice) -> Layers:
    """Figures of all layers at the degrees of a candidate."""
    shared = choice.pp == 1 or choice.schedule in ON_V
    degrees = choice.tp, choice.cp, choice.ep, choice.etp, choice.micro_batch, choice.sequence_parallel
    key = "layers", *degrees, case.records(choice), choice.cp_comm, choice.moved_share, choice.empty_ends, shared
    if key not in case.kept:
        case.kept[key] = _layers(case, choice, shared)
    found: Layers = case.kept[key]
    return found


def _layers(case: Case, choice: Choice, shared: bool) -> Layers:
    blocks, tp, batch = [*case.model.blocks, *_further(case)], choice.tp, choice.micro_batch
    number = NUMBER_BYTES[case.memory.precision]
    kinds = {layer.kind: layer for layer in blocks}
    of = [list(kinds).index(layer.kind) for layer in blocks]
    costs = np.array(
        [[[_cost(case, choice, d, layer, r) for layer in kinds.values()] for r in RECOMPUTE] for d in _devices(case)]
    )[:, :, of]
    routed = np.array([layer.experts is not None for layer in blocks])
    hiding = float(costs[:, 0, routed, :3].sum(axis=-1).min(initial=np.inf))
    whole = costs[..., 4 if choice.sequence_parallel else 3]
    outputs = np.array([_second_output(case, choice, layer) for layer in kinds.values()])[of]
    whole = whole + outputs * (np.arange(len(RECOMPUTE)) < 2)[:, None]
    named = costs[..., 6 if choice.sequence_parallel else 5]
    given = costs[..., 4 if choice.sequence_parallel else 3]
    away = np.floor(choice.moved_share * (named if case.space.get("offload_modules") else given))
    passes, kept = _beside_transfers(case, costs[..., :3], away), (whole - away).max(axis=0)
    moved_away = away.max(axis=0)
    of_layer = kept
    brought_back = np.maximum(whole.max(axis=0)[0] - whole.max(axis=0), 0) + 2 * moved_away
    vocabulary = -(-(case.model.vocab or 0) // (128 * tp)) * 128
    parameters = np.array([_parameters(layer, tp, choice.expert_group) for layer in kinds.values()])[of]
    experts = np.array([_routed(layer, choice.expert_group) for layer in kinds.values()])[of]
    numbers = numbers_of_layers(case, choice)
    passes, kept, moved_away, parameters, experts = (
        numbers * _with_ends(figures, choice) for figures in (passes, kept, moved_away, parameters, experts)
    )
    brought_back, of_layer = ((numbers > 0) * _with_ends(figures, choice) for figures in (brought_back, of_layer))
    further, of_head, embedding = case.model.mtp_layers, 0, 0
    weighed = min(further, 1) if case.model.mtp_repeated else further
    end = int(choice.empty_ends) + len(case.model.blocks) + weighed * (len(case.model.mtp_kinds) or 1)
    again = np.stack([parameters, experts]) * (np.arange(len(numbers)) >= end)
    parameters, experts = (figures * (np.arange(len(numbers)) < end) for figures in (parameters, experts))
    gathered = parameters.copy()
    if case.model.vocab:
        images = case.model.encoder
        for name, at in (("embedding", 0), ("head", -1)):
            where = tp, batch, blocks[at].seq, "none", choice.cp
            edge = np.array([_measured(case, Key(device, name, *where), choice) for device in _devices(case)])
            if images and name == "embedding":
                where = tp, batch, images.patches, "none", choice.cp
                edge = edge + [_measured(case, Key(device, "encoder", *where), choice) for device in _devices(case)]
            more = further * (name == "head")
            times = 1 + more * (1 + 2 * blocks[-1].hidden / (-(-case.model.vocab // 128) * 128))
            passes[..., at] += times * edge[:, :3].T[:, :, None]
            inputs = 4 * number_bytes_of(case, choice, blocks[-1])
            edge[:, 3:5] = (1 + more) * edge[:, 3:5] + more * np.array([inputs, -(-inputs // tp)])
            of_head = edge[:, 4 if choice.sequence_parallel else 3].max()
            kept = kept + of_head * (np.arange(kept.shape[1]) == at % kept.shape[1])
        embedding, head = (vocabulary * blocks[at].hidden for at in (0, -1))
        parameters[0] += embedding + case.model.position_rows * blocks[0].hidden + case.model.further_embedding
        norm = (1 if case.model.gated_mlp else 2) * blocks[-1].hidden
        parameters[-1] += norm + weighed * (2 * blocks[-1].hidden ** 2 // tp + 3 * norm)
        parameters[-1] += 0 if case.model.tied_embedding and shared else head
        parameters[-1] += 0 if case.model.tied_embedding or shared or not further else head
        gathered[0] = max(gathered[0], embedding + of_images(case, choice).trained)
        parameters[0] += of_images(case, choice).trained
    tokens = np.array([batch * layer.seq // choice.cp for layer in kinds.values()])[of]
    output = number * tokens * np.array([layer.hidden * layer.streams for layer in kinds.values()])[of]
    zero, every = [(0.0, 0.0, 0.0)], [(attentions(layer), otherwise(layer)) for layer in kinds.values()]
    each = [[attention_figures(case, one, tp, choice.cp) for one in ring] or zero for ring, _ in every]
    keys, moved, core = batch * np.array([np.sum(figures, axis=0) for figures in each]).T[:, of]
    mixed = number * tokens * np.array([sum(_exchanged(one, tp) for one in mixer) for _, mixer in every])[of]
    rings, mixers = np.array([list(map(len, each)) for each in every]).T[:, of]
    output, keys, moved, core, mixed, rings, mixers = (
        _with_ends(figures, choice) for figures in (output, keys.astype(int), moved, core, mixed, rings, mixers)
    )
    passing = brought_back.astype(int), moved_away.astype(int)
    held = kept.astype(int), of_layer.astype(int), *passing, output, keys, moved, core, mixed, rings, mixers
    entry = case.memory.shared_logit_bytes if tp > 1 else case.memory.whole_logit_bytes
    loss = (case.calibration or case.memory).fused_loss
    if loss != "none":
        entry = 2 if loss == "native" else max(case.memory.fused_logit_bytes, 4 if _release(case) >= (2, 18) else 0)
    apart = experts if choice.expert_group > tp else 0 * experts
    again[1] *= choice.expert_group > tp
    edges = embedding, entry * tokens[-1] * vocabulary
    stand_ins = _stand_ins(case, choice, vocabulary)
    backward = np.array([_passing(case, choice, layer) for layer in kinds.values()])[of]
    backward = (numbers > 0) * _with_ends(backward, choice)
    images_bytes = of_images(case, choice)
    held[2][:, 0] = np.maximum(held[2][:, 0], images_bytes.working)
    backward[0] = max(backward[0], images_bytes.passing * case.memory.passing_gradients)
    stand_ins = np.concatenate([stand_ins, images_bytes.frozen * (np.arange(len(numbers)) == 0)[None]])
    hidden = hiding if routed.any() else 0.0
    return Layers(passes, *held, parameters, gathered, again, apart, *edges, stand_ins, backward, int(of_head), hidden)


@dataclass(frozen=True)
class Images:
    """What an encoder adds to the embedding, (12): parameters, bytes, and sums of outputs forward and backward."""

    trained: int = 0
    frozen: int = 0
    working: int = 0
    passing: int = 0
    summed: tuple[tuple[float, float], tuple[float, float]] = ((0.0, 0.0), (0.0, 0.0))


def of_images(case: Case, choice: Choice) -> Images:
    """Figures of the encoder of images, nothing without one, (12)."""
    if (images := case.model.encoder) is None:
        return Images()
    t, h, f = choice.tp if images.tensor_parallel else 1, images.hidden, images.ffn_hidden
    gates, number = 3 if images.gated_mlp else 2, NUMBER_BYTES[case.memory.precision]
    layer = (4 * h * h + gates * h * f) // t + (2 * h if images.gated_mlp else 6 * h + (3 * h + f) // t)
    body = images.layers * layer + images.hidden * (images.patch_dim + images.position_rows)
    chain = [rows * columns for rows, columns in images.projector]
    ends = chain[0] if len(chain) == 1 else chain[0] + chain[-1]
    chains = images.projectors * (sum(chain) - ends + ends // t)
    trained = {"all": body + chains, "projector": chains, "none": 0}[images.trained]
    most = number * choice.micro_batch * images.most_images * images.patches
    frozen_or_again = images.recompute or images.trained != "all"
    working = 4 * most * h - (-most * (4 * h + gates * f) // t) if frozen_or_again else 0
    passing = most * gates * f // t if images.trained == "all" else 0
    if t == 1:
        return Images(trained, body + chains - trained, working, passing)
    mean = number * choice.micro_batch * images.images * images.patches
    twice, last, first = 2 * images.layers, images.projector[-1][1], images.projector[0][0]
    forward = mean * (twice * h + images.projectors * last / images.merge), twice + images.projectors
    more = twice * (2 if images.recompute else 1)
    backward = mean * (more * h + images.projectors * first / images.merge), more + images.projectors
    return Images(
        trained,
        body + chains - trained,
        working,
        passing,
        (forward, backward if images.trained == "all" else (0.0, 0.0)),
    )


def _release(case: Case) -> tuple[int, ...]:
    """Release of Transformer Engine; (0,) without it."""
    return tuple(map(int, case.memory.transformer_engine.split("."))) if case.memory.transformer_engine else (0,)


def _second_output(case: Case, choice: Choice, layer: LayerSpec) -> int:
    """Bytes of attention's second output on one rank, (9)."""
    if choice.cp == 1 or choice.cp_comm != "a2a" or _release(case) < (2, 8):
        return 0
    tokens = choice.micro_batch * layer.seq // choice.cp
    widths = (one.heads * _value_width(one) // choice.tp for one in attentions(layer))
    return NUMBER_BYTES[case.memory.precision] * tokens * sum(widths)


def _value_width(layer: LayerSpec) -> int:
    """Channels of a head of attention's output."""
    if layer.only == "feed_forward":
        return 0
    if layer.value_head_dim is not None:
        return layer.value_head_dim
    if layer.mixer is not None:
        return layer.mixer.value_dim
    return layer.latent.v_head_dim if layer.latent else _key_width(layer)


def _passing(case: Case, choice: Choice, layer: LayerSpec) -> int:
    """Bytes of gradients that pass in a layer's backward pass, (10)."""
    if not case.memory.passing_gradients:
        return 0
    if layer.beside is not None:
        return max(_passing(case, choice, one) for one in alone(layer))
    tokens, gates = choice.micro_batch * layer.seq // choice.cp, 2 if layer.gated_mlp else 1
    number = NUMBER_BYTES[case.memory.precision] * tokens
    if layer.experts is None:
        return 0 if layer.only == "attention" else number * (gates + 1) * layer.ffn // choice.tp
    ranks = choice.etp if choice.ep > 1 else choice.tp
    uneven = (case.dispatch.imbalance if choice.ep > 1 else 1.0) * layer.experts.experts_per_token
    width = layer.experts.expert_ffn_hidden // ranks
    row = max((gates + 1) * width, expert_row(layer) + gates * width)
    shared = number * (gates + 1) * layer.experts.shared_ffn_hidden // choice.tp
    return max(shared, math.ceil(uneven * number * ranks / choice.tp * row))


def _stand_ins(case: Case, choice: Choice, words: int) -> Ints:
    """Parameters of every shape of weights in the parts that have it (s, l), (9)."""
    release, parts = _release(case), layers_with_ends(case, choice)
    numbers = numbers_of_layers(case, choice)
    found: dict[tuple[int, int], Ints] = {}
    of_kind = {kind: _shapes(layer, choice, release) for kind, layer in case.model.kinds.items()}
    for at, layer in enumerate(parts):
        shapes = of_kind[layer.kind] if numbers[at] else set()
        if at == len(parts) - 1 and case.model.vocab and release >= (2, 3):
            shapes = shapes | {(words, layer.hidden)}
        for shape in shapes:
            found.setdefault(shape, np.zeros(len(parts), dtype=int))[at] = shape[0] * shape[1]
    return np.array(list(found.values())) if found else np.zeros((1, len(parts)), dtype=int)


def _shapes(layer: LayerSpec, choice: Choice, release: tuple[int, ...]) -> set[tuple[int, int]]:
    """Rows and columns of a layer's weights that have a stand-in, (9)."""
    if release < (2, 3):
        return set()
    if layer.beside is not None:
        return {shape for one in alone(layer) for shape in _shapes(one, choice, release)}
    hidden, tp, gates = layer.hidden, choice.tp, 2 if layer.gated_mlp else 1
    found = {(each.columns // (tp if each.split else 1), each.sums) for each in layer.adjoined}
    if layer.only != "feed_forward":
        found |= {(hidden, layer.heads * _value_width(layer) // tp), *_mixing_shapes(layer, tp)}
    if layer.only == "attention":
        return found
    parts = [(hidden, layer.ffn // tp)]
    if layer.experts is not None:
        parts = [(hidden, layer.experts.shared_ffn_hidden // tp)] if layer.experts.shared_ffn_hidden else []
        if release >= (2, 10):
            own = layer.experts.expert_ffn_hidden // (choice.etp if choice.ep > 1 else tp)
            parts.append((expert_row(layer), own))
    for row, width in parts:
        found |= {(gates * width, row), (row, width)}
    return found


def _mixing_shapes(layer: LayerSpec, tp: int) -> set[tuple[int, int]]:
    """Rows and columns of what makes queries, keys and values, or a mixer's columns, (9)."""
    hidden, latent = layer.hidden, layer.latent
    if layer.mixer is not None:
        return {(layer.mixer.made // tp + layer.mixer.made_whole, hidden)}
    if latent is None:
        made = layer.heads * _key_width(layer) // tp + _made_keys(layer, tp) + (layer.attention_gate or 0) // tp
        return {(made, hidden)}
    key = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    found = {
        (latent.kv_lora_rank + latent.qk_rope_head_dim, hidden),
        (layer.heads * (latent.qk_nope_head_dim + latent.v_head_dim) // tp, latent.kv_lora_rank),
        (layer.heads * key // tp, latent.q_lora_rank or hidden),
    }
    return found | ({(latent.q_lora_rank, hidden)} if latent.q_lora_rank else set())


def _beside_transfers(case: Case, costs: Floats, away: Floats) -> Floats:
    """Seconds of the three passes (3, k, r, l), none shorter than what leaves or comes back beside it, (7)."""
    passes = np.moveaxis(costs, -1, 0).copy()
    if not away.any():
        return passes
    links = [1e9 * kind.host_link_efficiency * (kind.host_link_gbytes or 0.0) for kind in case.cluster.devices.values()]
    seconds = away / np.array(links)[:, None, None]
    passes[0], passes[1] = np.maximum(passes[0], seconds), np.maximum(passes[1], seconds - passes[2])
    return passes


def _with_ends(figures: Any, choice: Choice) -> Any:
    """Figures by layer (..., L), with those of the layers beside embedding and head where these are parts, (5)."""
    more = int(choice.empty_ends)
    return np.pad(figures, [(0, 0)] * (figures.ndim - 1) + [(more, more)], mode="edge")


def rows_of_layers(choice: Choice, stages: Stages, recompute: tuple[str, ...]) -> Ints:
    """Recompute r of every part of some chunks, of which the first layers alone may be recomputed, (11)."""
    first, end = np.array(stages).T
    rows = np.repeat([RECOMPUTE.index(kind) for kind in recompute], end - first)
    if choice.recompute_layers:
        before = np.arange(len(rows)) - np.repeat(np.maximum(first, int(choice.empty_ends)), end - first)
        rows[before >= choice.recompute_layers] = RECOMPUTE.index("none")
    return rows


def layers_with_ends(case: Case, choice: Choice) -> list[LayerSpec]:
    """Layers with those for further tokens, (6), and the ones beside embedding and head where these are parts, (5)."""
    own, ends = [*case.model.blocks, *_further(case)], int(choice.empty_ends)
    return [*own[:1] * ends, *own, *own[-1:] * ends]


def numbers_of_layers(case: Case, choice: Choice) -> Ints:
    """Layers in every part, (5) and (6): one, and none in embedding and head."""
    ends = [0] * choice.empty_ends
    return np.array([*ends, *[1] * (len(case.model.blocks) + len(_further(case))), *ends])


def _further(case: Case) -> list[LayerSpec]:
    """The layers for further tokens, (6)."""
    model = case.model
    return [model.kinds[kind] for kind in model.mtp_kinds or [model.blocks[-1].kind]] * model.mtp_layers


def with_further(case: Case, stages: Stages) -> Stages:
    """Stages of which the last has the layers for further tokens as parts of its own, (6)."""
    return *stages[:-1], (stages[-1][0], stages[-1][1] + len(_further(case)))


def number_bytes_of(case: Case, choice: Choice, layer: LayerSpec) -> int:
    """Bytes of a layer's output on one context rank."""
    tokens = choice.micro_batch * layer.seq // choice.cp
    return NUMBER_BYTES[case.memory.precision] * tokens * layer.hidden * layer.streams


def alone(layer: LayerSpec) -> list[LayerSpec]:
    """A layer and the layers beside it, each by itself, (8)."""
    return [layer] if layer.beside is None else [layer.model_copy(update={"beside": None}), *alone(layer.beside)]


def attentions(layer: LayerSpec) -> list[LayerSpec]:
    """The attentions of a layer and of those beside it, (4)."""
    return [one for one in alone(layer) if one.only != "feed_forward" and one.mixer is None]


def otherwise(layer: LayerSpec) -> list[LayerSpec]:
    """What else mixes tokens in a layer and in those beside it, (4)."""
    return [one for one in alone(layer) if one.mixer is not None]


def _exchanged(layer: LayerSpec, tp: int) -> int:
    """Numbers a token that context ranks exchange of a layer without attention, there and back, (4)."""
    if (mixer := layer.mixer) is None:
        return 0
    # A second product takes as many columns of low rank as a head has keys.
    return (mixer.made + layer.heads * mixer.value_dim + mixer.second_parameters // mixer.key_dim) // tp


def expert_row(layer: LayerSpec) -> int:
    """Channels of what experts take and give."""
    return layer.hidden if layer.experts is None else layer.experts.latent_hidden or layer.hidden


def plain_parts(layer: LayerSpec) -> bool:
    """Whether a layer has both parts, keys and values of its own as wide as queries, and nothing beside, (8)."""
    alike = layer.kv_matrices == 2 and layer.value_head_dim is None and layer.streams == 1
    return alike and layer.only is None and not layer.adjoined and layer.beside is None


def _devices(case: Case) -> list[str]:
    return list(case.cluster.devices)


def _cost(case: Case, choice: Choice, device: str, layer: LayerSpec, recompute: str) -> tuple[float, ...]:
    """Seconds of the three passes, bytes kept and of these offloaded, without and with sequence parallelism, (1)."""
    split = (choice.ep, choice.etp) if layer.experts else ()
    key = Key(device, layer.kind, choice.tp, choice.micro_batch, layer.seq, recompute, choice.cp, *split)
    try:
        return _measured(case, key, choice)
    except DataError:
        plain = _measured(case, key._replace(recompute="none"), choice)
    if recompute != "full":
        return plain
    kept = number_bytes_of(case, choice, layer)
    return plain[0], plain[1] + plain[0], plain[2], kept, -(-kept // choice.tp), 0, 0


def _measured(case: Case, key: Key, choice: Choice) -> tuple[float, ...]:
    """The row of a key, of graphs if any, (13), or what lies between the rows of neighbouring micro-batches, (2)."""
    if case.records(choice) and not key.recorded:
        try:
            return _measured(case, key._replace(recorded=True), choice)
        except DataError:
            pass
    if key in case.costs.by_key:
        return astuple(case.costs.by_key[key])
    batches = case.costs.micro_batches.get(key._replace(micro_batch=0), [])
    low, high = [b for b in batches if b < key.micro_batch], [b for b in batches if b > key.micro_batch]
    if not low or not high:
        raise DataError(f"costs: no row for {', '.join(map(str, key))}, expected one or neighbours")
    share = (key.micro_batch - low[-1]) / (high[0] - low[-1])
    ends = (astuple(case.costs.by_key[key._replace(micro_batch=batch)]) for batch in (low[-1], high[0]))
    mixed = [a + share * (b - a) for a, b in zip(*ends, strict=True)]
    return *mixed[:3], *map(round, mixed[3:])


def _parameters(layer: LayerSpec, tp: int, group: int) -> int:
    """Parameters of a layer on one device, whose group has all experts between them, (3)."""
    if layer.beside is not None:
        return sum(_parameters(one, tp, group) for one in alone(layer))
    hidden, each = layer.hidden, 3 if layer.gated_mlp else 2
    if not plain_parts(layer):
        count = sum(each.sums * each.columns // (tp if each.split else 1) for each in layer.adjoined)
        count += (2 if layer.only is None else 1) * hidden
        count += 0 if layer.only == "feed_forward" else _attention(layer, tp)
    else:
        count = _attention(layer, tp) + (2 if layer.gated_mlp else 4) * hidden
    count += 2 * _key_width(layer) if layer.qk_norm else 0
    if layer.only == "attention":
        pass
    elif layer.experts is None:
        count += each * hidden * layer.ffn // tp
    else:
        shared = layer.experts.shared_ffn_hidden // tp
        count += layer.experts.num_experts * hidden + each * hidden * shared + _routed(layer, group)
    if layer.gated_mlp or layer.experts or layer.latent or layer.mixer or not plain_parts(layer):
        return count
    return count + (layer.heads * _key_width(layer) + layer.ffn) // tp + _keys(layer, tp) + 2 * hidden


def _routed(layer: LayerSpec, group: int) -> int:
    """Parameters of the experts that a router chooses from, on one device of a group, (3)."""
    if layer.experts is None:
        return 0
    width = layer.experts.num_experts * layer.experts.expert_ffn_hidden
    return (3 if layer.gated_mlp else 2) * expert_row(layer) * width // group


def _attention(layer: LayerSpec, tp: int) -> int:
    """Parameters of the attention on one tensor rank, with the norms of latent attention, (3)."""
    hidden, latent, mixer = layer.hidden, layer.latent, layer.mixer
    if mixer is not None:
        share = hidden * mixer.made + mixer.second_parameters + mixer.convolved * mixer.taps
        share += layer.heads * mixer.value_dim * mixer.scanned
        return hidden * mixer.made_whole + (share + mixer.output * layer.heads * mixer.value_dim * hidden) // tp
    if layer.attention_gate:
        return hidden * layer.attention_gate // tp + _attention(layer.model_copy(update={"attention_gate": None}), tp)
    if latent is None:
        width = layer.heads * (_key_width(layer) + (layer.value_head_dim or _key_width(layer)))
        return hidden * width // tp + hidden * _made_keys(layer, tp)
    key, value, rank = latent.qk_nope_head_dim + latent.qk_rope_head_dim, latent.v_head_dim, latent.kv_lora_rank
    own = layer.heads // tp * (rank * (latent.qk_nope_head_dim + value) + value * hidden)
    whole = hidden * (rank + latent.qk_rope_head_dim + latent.index_dim + latent.index_heads) + rank
    whole += (latent.q_lora_rank or 0) * latent.index_heads * latent.index_dim
    if latent.q_lora_rank is None:
        return whole + own + layer.heads // tp * key * hidden
    return whole + own + latent.q_lora_rank * (hidden + 1 + layer.heads // tp * key)


def attention_figures(case: Case, layer: LayerSpec, tp: int, cp: int) -> tuple[float, float, float]:
    """Bytes of keys and values, with queries and outputs, and FLOP of attention, of one rank and sequence, (4)."""
    tokens = layer.seq // cp
    number, (moved, core) = NUMBER_BYTES[case.memory.precision] * tokens, _attention_widths(layer, tp)
    keys = number * _keys(layer, tp)
    return keys, keys + number * moved, 4 * tokens * _window(layer) * core


def attention_inverse(case: Case) -> float:
    """Seconds of a FLOP of attention on the fastest device as stated; 0 where no ring goes beside it."""
    if not case.space.get("overlap_context", False):
        return 0.0
    precision = case.memory.precision
    number = "bf16" if precision.startswith(("fp8", "mxfp8", "nvfp4")) else precision
    devices = case.cluster.devices.values()
    rate = max(1e12 * device.peak_tflops.get(number, 0.0) * device.attention_efficiency for device in devices)
    return 1 / rate if rate > 0 else 0.0


def _attention_widths(layer: LayerSpec, tp: int) -> tuple[float, float]:
    """Width of queries and the attention's output together, and of the products of attention, on one tensor rank."""
    latent = layer.latent
    if latent is None:
        key, value = layer.heads * _key_width(layer), layer.heads * _value_width(layer)
        return key // tp + value // tp, (key + value) / 2 / tp
    key, value = layer.heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim), layer.heads * latent.v_head_dim
    return key // tp + value // tp, (key + value + latent.index_heads * latent.index_dim) / 2 / tp


def _window(layer: LayerSpec) -> int:
    return min(layer.attention_window or layer.seq, layer.seq)


def _keys(layer: LayerSpec, tp: int) -> int:
    """Width of keys and values together on one tensor rank, (3)."""
    heads, groups, latent = layer.heads, layer.key_value_heads, layer.latent
    if layer.mixer is not None or layer.only == "feed_forward":
        return 0
    if latent is not None:
        return heads // tp * (latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim)
    key, held = _key_width(layer), min(tp, groups)
    return key * groups // held + (layer.value_head_dim or key) * groups // held


def _made_keys(layer: LayerSpec, tp: int) -> int:
    """Width of what matrices make of keys and values on one tensor rank, (8)."""
    if layer.kv_matrices == 2:
        return _keys(layer, tp)
    groups = layer.key_value_heads
    return layer.kv_matrices * (_key_width(layer) * groups // min(tp, groups))


def _key_width(layer: LayerSpec) -> int:
    """Channels of a head of queries and keys."""
    return layer.head_dim or layer.hidden // layer.heads
