r"""
What a stage costs: seconds, bytes and messages of every range of layers.

Sets: layers :math:`l = 0..L-1`, device types k, recompute :math:`r \in` {none, selective, full}; a stage is a range
:math:`[i, j)`, non-empty. The embedding belongs to layer 0, the final norm and head to layer :math:`L-1`.
Data: the cost table at the degrees of a block, and one micro-batch of b sequences; bytes per element.

For every range, at the degrees of a block and one (micro_batch, sequence_parallel):

(1) seconds[k, r, i, j]: forward, input gradient and weight gradient of its layers on type k, without communication;
(2) traffic[r, i, j] inside a block, and forward[i, j] of it (``taut.formulations.tables.block_traffic``);
(3) parameters[i, j] of one device, and experts[i, j], those of them that fewer devices of a stage hold than the rest
    (``taut.formulations.degrees`` (3));
(4) bytes and parameters that decide the memory of a stage:

    - activation[r, i, j]: bytes kept for each micro-batch in flight; of layers that a range keeps beside those that it
      recomputes, bytes that count as checkpoints (``taut.formulations.mechanisms.recompute`` (2));
    - layer_activation[r, i, j]: bytes of the layer that keeps most, without embedding and head;
    - workspace[r, i, j]: bytes of the layer that is being recomputed, or of an encoder's frozen one;
    - logits[i, j]: bytes of temporary copies in the loss (``LOGIT_BYTES`` an entry, or what the stack takes);
    - buffers[i, j]: bytes of one message received and one sent, and of the gathered input under sequence parallelism;
      if context ranks gather keys, of all keys and values with their gradients; if expert ranks gather tokens, of all
      tokens of an expert group with their scores, and of their outputs or gradients, also in the wider format in which
      they are summed;
    - backward[i, j]: bytes of the gradients of activations that pass in a layer's backward pass, where the memory model
      counts them. The widest are those of the feed-forward part's function, its input's and its output's, g + 1 times
      the width f / t, or of a row of experts, of h channels and width :math:`f_e`, :math:`\max((g + 1) f_e, h + g
      f_e)`. The head's activations are gone by then, so the range that holds it counts what is beyond them;
    - cached[s, i, j]: parameters of every shape s of weights in a range for whose gradients stand-ins are kept
      (``taut.data.layers.layer``), once whatever their number; the frozen ones of an encoder, which have no
      gradients and states, count as one more shape;
    - largest[i, j]: parameters of the largest layer, or of the token embedding with a trained encoder;
(5) message[j]: bytes from a stage that ends before layer j to the next stage, on one tensor rank.

A range's figures are sums over layer kinds (``taut.formulations.tables.priced_layers``), so equal ranges get equal
floats.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE, LayerCost, Recompute
from taut.data.layers.layer import LayerSpec, WeightShape, weight_shapes
from taut.data.loss import LossKind
from taut.data.memory import MemoryModel
from taut.formulations.mechanisms.muon import Matrices
from taut.formulations.tables.block_traffic import Traffic, traffic_tables
from taut.formulations.tables.priced_layers import FULL, PricedLayers
from taut.formulations.terms import Load

ANALYTIC = MemoryModel()
"""The memory model of no framework."""


@dataclass(frozen=True)
class StageTables:
    """
    Figures (1) to (5) of every range of layers; entries with i >= j mean nothing.

    Seconds are (types, recompute, L+1, L+1); traffic of both passes and bytes by recompute (recompute, L+1, L+1),
    forward traffic and all else (L+1, L+1), ``cached`` (shapes, L+1, L+1) and ``message`` (L+1,). ``moved`` are the
    bytes of a micro-batch on the host, where a share of the activations is there. ``matrices`` and the ``padding`` of
    their buffers are there under Muon (``taut.formulations.mechanisms.muon``). ``repeated`` are the common parameters
    and those of experts that a pass gathers once more, where further tokens pass the same weights.
    """

    seconds: Floats
    traffic: Traffic
    forward: Traffic
    parameters: Ints
    experts: Ints
    activation: Ints
    layer_activation: Ints
    workspace: Ints
    logits: Ints
    buffers: Ints
    backward: Ints
    cached: Ints
    largest: Ints
    message: Floats
    moved: Ints | None = None
    matrices: Matrices | None = None
    padding: tuple[Ints, Ints] | None = None
    repeated: tuple[Ints, Ints] | None = None

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return int(self.parameters.shape[0]) - 1

    @cached_property
    def common(self) -> Ints:
        """Parameters (3) but those of experts that fewer devices hold, (L+1, L+1)."""
        return self.parameters - self.experts

    @property
    def under_muon(self) -> Matrices:
        """The matrices, under Muon."""
        assert self.matrices is not None
        return self.matrices

    def carried(self, load: Load) -> Ints:
        """Parameters that a term of a load carries, (L+1, L+1)."""
        if self.padding is not None and load in ("padding", "expert padding"):
            return self.padding[load == "expert padding"]
        return self.experts if load == "experts" else self.common

    def gathered(self, load: Load) -> Ints:
        """Parameters of a load that a pass gathers, those of repeated layers each time, (L+1, L+1)."""
        carried = self.carried(load)
        return carried if self.repeated is None else carried + self.repeated[load == "experts"]

    @property
    def equal_messages(self) -> bool:
        """Whether every cut between layers sends the same bytes."""
        inner = self.message[1:-1]
        return bool(inner.size == 0 or inner.min() == inner.max())


class RangeFigures:
    """
    Figures of the ranges of layers at one price list, each made once for every sequence parallelism and head.

    Candidates that follow each other differ in these and in messages alone, so that most figures are found here.
    """

    def __init__(self, priced: PricedLayers, memory: MemoryModel = ANALYTIC, fused_loss: LossKind = "none") -> None:
        self._priced, self._memory, self._fused_loss = priced, memory, fused_loss
        self._output = [int(priced.output_bytes(layer)) for layer in priced.kinds]
        self._parameters = [priced.parameters(layer) for layer in priced.kinds]
        self._kept: dict[tuple[str, bool], dict[str, Any]] = {}

    def tables(
        self,
        *,
        sequence_parallel: bool,
        single_stage: bool,
        shared_head: bool | None = None,
        traffic: tuple[Traffic, Traffic] | None = None,
    ) -> StageTables:
        """Figures of every range, (..., L+1, L+1), and messages (L+1,); a ``single_stage`` sends no messages."""
        both, forward = traffic or traffic_tables(self._priced)
        found = self._figures("any", self._of_any) | self._figures("activations", self._of_passes, sequence_parallel)
        found |= self._figures("parameters", self._of_head, single_stage if shared_head is None else shared_head)
        buffers = self._buffers(sequence_parallel, single_stage)
        return StageTables(seconds=self._priced.whole_seconds, traffic=both, forward=forward, buffers=buffers, **found)

    def _figures(self, name: str, make: Callable[[bool], dict[str, Any]], case: bool = False) -> dict[str, Any]:
        if (name, case) not in self._kept:
            self._kept[name, case] = make(case)
        return self._kept[name, case]

    def _of_any(self, case: bool) -> dict[str, Any]:
        """Figures that no case changes."""
        priced, memory, model = self._priced, self._memory, self._priced.model
        edge, entries = model.edge_parameters(priced.tp) - model.position_parameters, _logits(priced) * priced.last
        return {
            "experts": priced.sums([*map(priced.apart, priced.kinds)], 0, 0, weights=True).astype(np.int64),
            "logits": (memory.logit_bytes(priced.tp, self._fused_loss) * entries).astype(np.int64),
            "cached": _cached(priced, memory),
            "largest": np.maximum(_largest(self._parameters, priced.count), (edge * priced.first).astype(np.int64)),
            "moved": None if priced.hosts is None else _moved(priced, {r: priced.moved(r) for r in RECOMPUTE}),
            "repeated": self._repeated() if model.mtp_repeated else None,
        }

    def _repeated(self) -> tuple[Ints, Ints]:
        """Parameters of layers for further tokens beyond their first use, but those of experts, and of experts."""
        sums, experts = self._priced.sums, [*map(self._priced.apart, self._priced.kinds)]
        every, apart = (
            (sums(each, 0, 0) - sums(each, 0, 0, weights=True)).astype(np.int64) for each in (self._parameters, experts)
        )
        return every - apart, apart

    def _of_head(self, shared: bool) -> dict[str, Any]:
        """Parameters of ranges whose device has the embedding, too, if the last layer's range has its weights."""
        model, tp = self._priced.model, self._priced.tp
        edges = model.edge_parameters(tp), model.head_parameters(tp, shared=shared)
        return {"parameters": self._priced.sums(self._parameters, *edges, weights=True).astype(np.int64)}

    def _of_passes(self, sequence_parallel: bool) -> dict[str, Any]:
        """Figures of activations, and messages."""
        priced, memory, count = self._priced, self._memory, self._priced.count
        kept = {r: _most([priced.prices(d, r) for d in priced.device_types], sequence_parallel) for r in RECOMPUTE}
        plain = kept if priced.hosts is None else _plain(priced, sequence_parallel)
        if memory.saves_both_outputs:
            kept, plain = (_with_both_outputs(priced, each) for each in (kept, plain))
        passing = {r: _passing(plain["none"], plain[r], priced.moved(r)) for r in RECOMPUTE}
        at_edges = _most([priced.edges(device) for device in priced.device_types], sequence_parallel)
        again = {r: count if r != "full" or priced.again is None else priced.again for r in RECOMPUTE}
        return {
            "activation": _activation(priced, kept, at_edges, memory),
            "layer_activation": np.array([_largest(kept[r], count) for r in RECOMPUTE]),
            "workspace": np.maximum(
                [_largest(passing[r], again[r]) for r in RECOMPUTE],
                (_working(priced) * priced.first).astype(np.int64),
            ),
            "backward": _backward(priced, memory, at_edges[1]),
            "message": _messages(priced, self._output, priced.tp if sequence_parallel else 1),
        }

    def _buffers(self, sequence_parallel: bool, single_stage: bool) -> Ints:
        """Bytes of messages under way, and of what is gathered, (4)."""
        priced, of = self._priced, (self._priced.tp, sequence_parallel, single_stage)
        gathered = [_gathered(priced, layer) + _gathered_tokens(priced, layer) for layer in priced.kinds]
        sent = [_buffers(out, *of) for out in self._output]
        each = [a + b for a, b in zip(sent, gathered, strict=True)]
        return _largest(each, priced.count, _at_ends(priced, sent))


def _activation(
    priced: PricedLayers, kept: Mapping[Recompute, list[int]], at_edges: list[int], memory: MemoryModel
) -> Ints:
    """Bytes that a range keeps of a micro-batch by recompute; beside checkpoints other bytes count as these, (4)."""
    found = np.array([priced.sums(kept[r], *at_edges) for r in RECOMPUTE])
    if priced.again is not None:
        share = memory.coefficient("activations") / memory.coefficient("checkpoints")
        beside = np.ceil(share * np.array(kept["none"]))
        found[FULL] = priced.sums(beside.tolist(), *at_edges)
        found[FULL] += np.tensordot(kept["full"] - beside, priced.again, 1)
    return found.astype(np.int64)


def _plain(priced: PricedLayers, sequence_parallel: bool) -> dict[Recompute, list[int]]:
    """Activation bytes by recompute and layer where none are on hosts."""
    types = priced.device_types
    return {r: _most([priced.plain_prices(device, r) for device in types], sequence_parallel) for r in RECOMPUTE}


def _with_both_outputs(priced: PricedLayers, kept: Mapping[Recompute, list[int]]) -> dict[Recompute, list[int]]:
    """Activation bytes by recompute and layer with the attention's second output, where heads go all to all."""
    if priced.cp == 1 or priced.block.cp_comm != "a2a":
        return dict(kept)
    widths = [sum(part.output(priced.tp) for part in layer.attending) for layer in priced.kinds]
    own = [_number_bytes(priced, layer) * width for layer, width in zip(priced.kinds, widths, strict=True)]
    more = {r: own if r != "full" else [0] * len(own) for r in RECOMPUTE}
    return {r: [a + b for a, b in zip(each, more[r], strict=True)] for r, each in kept.items()}


def _backward(priced: PricedLayers, memory: MemoryModel, head: int) -> Ints:
    """Bytes of gradients that pass in a backward pass beyond the bytes of the head, which are gone, (4)."""
    if not memory.passing_gradients:
        return np.zeros(priced.first.shape, dtype=np.int64)
    found = _largest(
        [_passing_gradients(priced, layer) for layer in priced.kinds],
        priced.count,
        [(_passing_of_images(priced) * priced.first).astype(np.int64)],
    )
    return np.maximum(found - (head * priced.last).astype(np.int64), 0)


def _number_bytes(priced: PricedLayers, layer: LayerSpec) -> int:
    """Bytes of one number for each of a micro-batch's tokens on one context rank."""
    return priced.element * priced.micro_batch * layer.seq // priced.cp


def _passing_gradients(priced: PricedLayers, layer: LayerSpec) -> int:
    """Bytes of the gradients of activations in the feed-forward part of a layer, (4)."""
    if layer.beside:
        return max(_passing_gradients(priced, part) for part in layer.together)
    number, tp, parts = _number_bytes(priced, layer), priced.tp, layer.ffn_matrices
    if layer.experts is None:
        return number * parts * layer.ffn // tp
    etp, each = (priced.block.etp, priced.dispatch.imbalance) if priced.block.ep > 1 else (tp, 1.0)
    width, rows = layer.experts.expert_ffn_hidden // etp, each * layer.experts.experts_per_token * number * etp / tp
    of_experts = math.ceil(rows * max(parts * width, layer.row + (parts - 1) * width))
    return max(number * parts * layer.experts.shared_ffn_hidden // tp, of_experts)


def _passing_of_images(priced: PricedLayers) -> int:
    """Bytes of the gradients of activations in the feed-forward part of an encoder's layer."""
    encoder = priced.model.encoder
    if encoder is None or encoder.trained != "all":
        return 0
    patches = priced.element * priced.micro_batch * encoder.most_images * encoder.patches
    return patches * (3 if encoder.gated_mlp else 2) * encoder.ffn_hidden // encoder.ranks(priced.tp)


def _working(priced: PricedLayers) -> int:
    """Bytes of a layer of an encoder while it is recomputed, or frozen and under way."""
    encoder = priced.model.encoder
    return encoder.working(priced.tp, priced.micro_batch, priced.element) if encoder else 0


def _cached(priced: PricedLayers, memory: MemoryModel) -> Ints:
    """Parameters of every shape of weights with a stand-in that a range has, (shapes, L+1, L+1), (4)."""
    held: dict[WeightShape, Floats] = {}
    expert_tp = priced.block.etp if priced.block.ep > 1 else priced.tp
    for layer, count in zip(priced.kinds, priced.count, strict=True):
        for shape in weight_shapes(layer, priced.tp, expert_tp):
            if memory.caches(grouped=shape.grouped):
                each = shape._replace(grouped=False)
                held[each] = np.maximum(held.get(each, 0.0), count > 0)
    if priced.model.vocab and memory.caches(grouped=False):
        head = WeightShape(priced.model.padded_vocab(priced.tp) // priced.tp, priced.model.blocks[-1].hidden)
        held[head] = np.maximum(held.get(head, 0.0), priced.last)
    every = [shape.size * held[shape] for shape in sorted(held)]
    if encoder := priced.model.encoder:
        every.append((encoder.parameters(priced.tp) - encoder.trained_parameters(priced.tp)) * priced.first)
    if not every:
        return np.zeros((1, *priced.first.shape), dtype=np.int64)
    return np.array(every, dtype=np.int64)


def _moved(priced: PricedLayers, away: Mapping[Recompute, list[int]]) -> Ints:
    """Bytes of a micro-batch on the host by recompute and range."""
    return np.array([priced.sums(away[r], 0, 0) for r in RECOMPUTE]).astype(np.int64)


def _most(by_device: Sequence[Sequence[LayerCost]], sequence_parallel: bool) -> list[int]:
    """Activation bytes by layer, the most that any device type keeps."""
    field = "activation_bytes_sp" if sequence_parallel else "activation_bytes"
    return [max(getattr(cost, field) for cost in costs) for costs in zip(*by_device, strict=True)]


def _passing(plain: list[int], kept: list[int], away: list[int]) -> list[int]:
    """Bytes that recomputing a layer brings back for a moment, by kind, (4), and two layers' that are on hosts."""
    return [max(a - b, 0) + 2 * c for a, b, c in zip(plain, kept, away, strict=True)]


def _largest(per_kind: list[int], count: Floats, at_ends: Iterable[Ints] = ()) -> Ints:
    """The largest figure of any layer kind in a range, and of what embedding and head have of their own."""
    figures = np.array(per_kind, dtype=np.int64)
    found = np.asarray(np.max(np.where(count > 0, figures[:, None, None], 0), axis=0), dtype=np.int64)
    for own in at_ends:
        found = np.maximum(found, own)
    return found


def _at_ends(priced: PricedLayers, per_kind: list[int]) -> list[Ints]:
    """Figures of the first and the last layer for ranges with embedding and head, if these are parts of their own."""
    if not priced.ends:
        return []
    names, blocks = [layer.kind for layer in priced.kinds], priced.model.blocks
    beside = (priced.first, blocks[0]), (priced.last, blocks[-1])
    return [holds.astype(np.int64) * per_kind[names.index(layer.kind)] for holds, layer in beside]


def _logits(priced: PricedLayers) -> int:
    """Entries of one tensor rank's logits."""
    tokens, tp = priced.micro_batch * priced.model.blocks[-1].seq // priced.cp, priced.tp
    return tokens * (priced.model.padded_vocab(tp) // tp)


def _buffers(output: int, tp: int, sequence_parallel: bool, single_stage: bool) -> int:
    """Bytes of messages under way at a layer whose output takes so many bytes, (4)."""
    message = -(-output // tp) if sequence_parallel else output
    gathered = output if sequence_parallel and tp > 1 else 0
    return gathered + (0 if single_stage else 2 * message)


def _gathered(priced: PricedLayers, layer: LayerSpec) -> int:
    """Bytes of all keys and values of a layer with their gradients, where context ranks gather them, (4)."""
    if priced.cp == 1 or priced.block.cp_comm != "all_gather":
        return 0
    keys = sum(part.keys_and_values(priced.tp) for part in layer.attending)
    return 2 * priced.element * priced.micro_batch * layer.seq * keys


def _gathered_tokens(priced: PricedLayers, layer: LayerSpec) -> int:
    """Bytes of an expert group's tokens with their outputs or gradients, where each of its ranks has all, (4)."""
    if layer.experts is None or priced.block.ep == 1 or not priced.dispatch.gathers:
        return 0
    score = priced.dispatch.score_bytes(priced.element)
    tokens = priced.output_bytes(layer) // (priced.element * layer.streams * layer.hidden) * layer.row
    summed = score if score > priced.element else 0
    rows = (2 * priced.element + summed) * tokens + layer.experts.num_experts * (score + 1) * tokens // layer.row
    return rows * priced.block.experts // priced.tp


def _messages(priced: PricedLayers, output: list[int], shards: int) -> Floats:
    by_kind = {layer.kind: out / shards for layer, out in zip(priced.kinds, output, strict=True)}
    sent = [by_kind[layer.kind] for layer in priced.model.blocks]
    return np.array([0.0, *sent[:1], *sent, sent[-1]] if priced.ends else [0.0, *sent])
