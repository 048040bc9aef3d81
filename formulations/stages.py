r"""
What a stage costs: seconds, bytes and messages of every range of layers.

Sets: layers :math:`l = 0..L-1`, device types k, recompute :math:`r \in` {none, selective, full}; a stage is a range
:math:`[i, j)`, non-empty. The embedding belongs to layer 0, the final norm and head to layer :math:`L-1`.
Data: the cost table at one (tp, micro_batch b); bytes per element; Megatron's 4 all-reduces a layer and micro-batch,
6 under full recompute.

For every range, at one (tp, micro_batch, sequence_parallel):

(1) seconds[k, r, i, j]: forward, input gradient and weight gradient of its layers on type k, without communication;
(2) volume[r, i, j] bytes and reductions[r, i, j] of tensor-parallel all-reduces;
    ring(M, n, B) = 2 (n-1)/n M/B + 2 (n-1) latency;
(3) parameters[i, j] of one tensor rank;
(4) activation[r, i, j] bytes kept per micro-batch in flight, workspace[r, i, j] bytes for the layer that is being
    recomputed, logits[i, j] bytes of the loss's passing copies (2 of half precision and the fp32 gradient: 8 an entry),
    buffers[i, j] bytes of messages under way (one received, one sent) and of the gathered input under sequence
    parallelism, and largest[i, j] parameters of the largest layer;
(5) message[j] bytes between the stage that ends before layer j and the next one, on one tensor rank.

A range's figures are sums over layer kinds of count times figure, so equal ranges get equal floats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut.data.costs import RECOMPUTE, CostTable, Key, LayerCost
from taut.data.device import Precision
from taut.data.model import EMBEDDING, HEAD, LayerSpec, ModelSpec
from taut.data.work import ELEMENT_BYTES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LOGIT_BYTES = 8
REDUCTIONS = {"none": 4, "selective": 4, "full": 6}


@dataclass(frozen=True)
class StageTables:
    """Figures of every range of layers, (1) to (5); entries with i >= j mean nothing."""

    seconds: Floats
    volume: Floats
    reductions: Floats
    parameters: Ints
    activation: Ints
    workspace: Ints
    logits: Ints
    buffers: Ints
    largest: Ints
    message: Floats

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return int(self.parameters.shape[0]) - 1

    @property
    def equal_messages(self) -> bool:
        """Whether every cut between layers sends the same bytes."""
        inner = self.message[1:-1]
        return bool(inner.size == 0 or inner.min() == inner.max())


def ring_factor(n: int) -> float:
    """2 (n-1)/n, the share of a message that crosses each link of a ring all-reduce."""
    return 2.0 * (n - 1) / n


def stage_tables(
    model: ModelSpec,
    costs: CostTable,
    device_types: list[str],
    *,
    precision: Precision,
    tp: int,
    micro_batch: int,
    sequence_parallel: bool,
    single_stage: bool,
    shared_head: bool | None = None,
    tensor_parallel: float = 1.0,
) -> StageTables:
    """
    Figures of every range of layers at one (tp, micro_batch, sequence_parallel).

    Parameters
    ----------
    model, costs, device_types
        What is trained, its priced layers, the types in the order of axis k.
    precision
        Number format of weights and activations.
    tp, micro_batch, sequence_parallel
        Degrees that change a layer's cost.
    single_stage
        Whether there is one stage, which sends no messages.
    shared_head
        Whether embedding and head share a device: a tied head then adds no parameters. By default as
        ``single_stage``.
    tensor_parallel
        Coefficient of the all-reduces.

    Raises
    ------
    MissingProfileError
        If a cost is neither in the table nor between two entries.
    """
    kinds = list(model.kinds.values())
    count, ranges = _counts(model, kinds), _range_sums(model)
    first, last = _edges(len(model.blocks))
    element = ELEMENT_BYTES[precision]

    def price(device: str, recompute: str) -> list[LayerCost]:
        return [_layer_cost(costs, device, layer, tp, micro_batch, recompute, element) for layer in kinds]

    edges = {device: _edge_costs(model, costs, device, tp, micro_batch) for device in device_types}
    seconds = [
        [
            ranges([cost.seconds for cost in price(device, recompute)], *(edge.seconds for edge in edges[device]))
            for recompute in RECOMPUTE
        ]
        for device in device_types
    ]
    output = [float(element * micro_batch * layer.output_elements) for layer in kinds]
    kept = {r: _most([price(device, r) for device in device_types], sequence_parallel) for r in RECOMPUTE}
    at_edges = _most(list(edges.values()), sequence_parallel)
    parameters = ranges(
        [layer.parameters(tp) for layer in kinds],
        model.embedding_parameters(tp),
        model.head_parameters(tp, shared=single_stage if shared_head is None else shared_head),
    )
    return StageTables(
        seconds=np.array(seconds),
        volume=tensor_parallel * np.array([ranges([REDUCTIONS[r] * out for out in output], 0, 0) for r in RECOMPUTE]),
        reductions=tensor_parallel * np.array([ranges([REDUCTIONS[r]] * len(kinds), 0, 0) for r in RECOMPUTE]),
        parameters=parameters.astype(np.int64),
        activation=np.array([ranges(kept[r], *at_edges) for r in RECOMPUTE]).astype(np.int64),
        workspace=np.array([_largest(_brought_back(kept["none"], kept[r]), count) for r in RECOMPUTE]),
        logits=(_logits(model, micro_batch, tp) * last).astype(np.int64),
        buffers=_largest([_buffers(int(out), tp, sequence_parallel, single_stage) for out in output], count),
        largest=np.maximum(
            _largest([layer.parameters(tp) for layer in kinds], count),
            (model.embedding_parameters(tp) * first).astype(np.int64),
        ),
        message=_messages(model, kinds, output, tp if sequence_parallel else 1),
    )


@dataclass(frozen=True)
class PassTables:
    """Seconds of the passes of every range of layers on every type, without communication, (types, recompute, ...)."""

    forward: Floats
    input_gradient: Floats
    weight_gradient: Floats


def pass_tables(
    model: ModelSpec,
    costs: CostTable,
    device_types: list[str],
    *,
    precision: Precision,
    tp: int,
    micro_batch: int,
) -> PassTables:
    """Figure (1) by pass: what a range takes forward, and for its gradients by input and weights."""
    kinds, ranges, element = list(model.kinds.values()), _range_sums(model), ELEMENT_BYTES[precision]
    edges = {device: _edge_costs(model, costs, device, tp, micro_batch) for device in device_types}

    def seconds(part: Callable[[LayerCost], float]) -> Floats:
        return np.array(
            [
                [
                    ranges(
                        [part(_layer_cost(costs, device, layer, tp, micro_batch, r, element)) for layer in kinds],
                        *(part(edge) for edge in edges[device]),
                    )
                    for r in RECOMPUTE
                ]
                for device in device_types
            ]
        )

    return PassTables(
        forward=seconds(lambda cost: cost.forward),
        input_gradient=seconds(lambda cost: cost.input_grad),
        weight_gradient=seconds(lambda cost: cost.weight_grad),
    )


def _range_sums(model: ModelSpec) -> Callable[..., Floats]:
    """Sums over every range of a figure by layer kind, with those of embedding and head."""
    count = _counts(model, list(model.kinds.values()))
    first, last = _edges(len(model.blocks))

    def ranges(per_kind: Sequence[float], at_first: float, at_last: float) -> Floats:
        total = at_first * first + at_last * last
        for figure, times in zip(per_kind, count, strict=True):
            total += figure * times
        return np.asarray(total)

    return ranges


def _counts(model: ModelSpec, kinds: list[LayerSpec]) -> Floats:
    """count[kind, i, j]: layers of a kind in [i, j)."""
    names = [layer.kind for layer in kinds]
    of_kind = np.array([[layer.kind == name for layer in model.blocks] for name in names], dtype=float)
    before = np.concatenate([np.zeros((len(kinds), 1)), np.cumsum(of_kind, axis=1)], axis=1)
    return np.asarray(np.maximum(before[:, None, :] - before[:, :, None], 0.0))


def _edges(num_layers: int) -> tuple[Floats, Floats]:
    """Whether a range holds the embedding, and whether it holds the head."""
    size = num_layers + 1
    first, last = np.zeros((size, size)), np.zeros((size, size))
    first[0, :], last[:, num_layers] = 1.0, 1.0
    return first, last


def _layer_cost(
    costs: CostTable, device: str, layer: LayerSpec, tp: int, micro_batch: int, recompute: str, element: int
) -> LayerCost:
    """The table's cost; full recompute follows from none where it has no row, selective is then none."""
    key = Key(device, layer.kind, tp, micro_batch, layer.seq, recompute)
    if costs.prices(key):
        return costs.at(key)
    plain = costs.at(key._replace(recompute="none"))
    if recompute != "full":
        return plain
    kept = element * micro_batch * layer.output_elements
    return LayerCost(plain.forward, plain.input_grad + plain.forward, plain.weight_grad, kept, -(-kept // tp))


def _edge_costs(model: ModelSpec, costs: CostTable, device: str, tp: int, micro_batch: int) -> list[LayerCost]:
    """Costs of embedding and head; nothing for a model without vocabulary."""
    if not model.vocab:
        return [LayerCost(0.0, 0.0, 0.0, 0, 0)] * 2
    at = [(EMBEDDING, model.blocks[0].seq), (HEAD, model.blocks[-1].seq)]
    return [costs.at(Key(device, kind, tp, micro_batch, seq, "none")) for kind, seq in at]


def _most(by_device: list[list[LayerCost]], sequence_parallel: bool) -> list[int]:
    """Activation bytes by layer, the most that any device type keeps."""
    field = "activation_bytes_sp" if sequence_parallel else "activation_bytes"
    return [max(getattr(cost, field) for cost in costs) for costs in zip(*by_device, strict=True)]


def _brought_back(plain: list[int], kept: list[int]) -> list[int]:
    """Bytes that recomputing a layer brings back for a moment, by kind, (4)."""
    return [max(a - b, 0) for a, b in zip(plain, kept, strict=True)]


def _largest(per_kind: list[int], count: Floats) -> Ints:
    """The largest figure of any layer kind in a range."""
    figures = np.array(per_kind, dtype=np.int64)
    return np.asarray(np.max(np.where(count > 0, figures[:, None, None], 0), axis=0), dtype=np.int64)


def _logits(model: ModelSpec, micro_batch: int, tp: int) -> int:
    return LOGIT_BYTES * micro_batch * model.blocks[-1].seq * (model.padded_vocab(tp) // tp)


def _buffers(output: int, tp: int, sequence_parallel: bool, single_stage: bool) -> int:
    """Bytes of messages under way at a layer whose output takes so many bytes, (4)."""
    message = -(-output // tp) if sequence_parallel else output
    gathered = output if sequence_parallel and tp > 1 else 0
    return gathered + (0 if single_stage else 2 * message)


def _messages(model: ModelSpec, kinds: list[LayerSpec], output: list[float], shards: int) -> Floats:
    by_kind = {layer.kind: out / shards for layer, out in zip(kinds, output, strict=True)}
    return np.array([0.0, *(by_kind[layer.kind] for layer in model.blocks)])
