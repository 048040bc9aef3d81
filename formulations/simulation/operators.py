r"""
Operators of a layer, and their seconds: the figures of the cost table and of the links, split into what runs at once.

Sets: layers l; parts of a layer: attention and feed-forward part (MLP), and embedding and head beside the first and
last layer; passes F, I, W, and B for I and W in one.
Data: seconds of a layer by pass (``taut.data.costs``), traffic within blocks
(``taut.formulations.tables.block_traffic``).

(1) Attention takes the share :math:`\alpha_l` of a layer's seconds that it has of its FLOP, the MLP the rest, so that
    both together take what the table says.
(2) Each part ends in one all-reduce of the tensor group forward and one backward; under sequence parallelism in its
    place a gather before the part and a scatter after it, half as long each. Keys and values pass the context ring
    once before attention forward, and twice, with their gradients, after it backward, each for what attention does not
    hide (``taut.formulations.tables.block_traffic`` (3)); all-to-alls of context ranks take their place, once each.
(3) Recompute r adds :math:`I_r - I_{none}` seconds before the gradients of a layer: the whole forward pass with its
    all-reduces, or attention's core; both with the context ring. What a table's row has less than none is 0.

An operator of a block takes what it takes on the block's slowest device type, as every part ends in a collective that
waits for all.
"""

from collections.abc import Iterator
from typing import NamedTuple

from taut.data.costs import RECOMPUTE, LayerCost
from taut.data.layers.layer import LayerSpec
from taut.errors import FormulationError
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.block_links import BlockLink

KINDS = (
    "forward",
    "recompute",
    "input gradient",
    "weight gradient",
    "backward",
    "tensor-parallel",
    "context-parallel",
    "send activations",
    "send gradients",
    "gather weights",
    "scatter gradients",
    "reduce gradients",
    "reduce tied embedding",
    "norm of gradients",
    "optimizer",
)
"""What a task does; a task's kind is its place here."""
(FORWARD, RECOMPUTED, INPUT, WEIGHT, BACKWARD, TENSOR, CONTEXT, SEND, RETURN, GATHER, SCATTER) = range(11)
REDUCE, TIED, NORM, OPTIMIZER = range(11, 15)

PARTS = ("", "attention", "mlp", "embedding", "head")
"""Which part of a layer a task belongs to; a task's part is its place here."""
WHOLE, ATTENTION, MLP, EMBEDDING, HEAD = range(5)

STREAMS = ("compute", "tensor-parallel", "send activations", "send gradients", "data-parallel")
"""Streams of a device."""
COMPUTE, GROUP, FORTH, BACK, DATA = range(5)


class Operator(NamedTuple):
    """Seconds, kind, part, layer and stream of a task."""

    seconds: float
    kind: int
    part: int
    layer: int
    stream: int


class LayerPrices(NamedTuple):
    """
    What one layer costs a block.

    ``forward``, ``again`` (recompute), ``input`` and ``weight`` seconds; ``share`` of attention, (1); ``reduce``
    seconds of one all-reduce, ``ring`` of one turn of keys and values, ``exchange`` of the all-to-alls of a pass, (2).
    """

    forward: float
    again: float
    input: float
    weight: float
    share: float
    reduce: float
    ring: float
    exchange: float


class Prices:
    """
    Prices of the operators of a candidate.

    Parameters
    ----------
    problem, candidate
        What is simulated.
    recompute_communication
        Whether what is computed again communicates again, (3).
    """

    def __init__(self, problem: PlanningProblem, candidate: Candidate, *, recompute_communication: bool = True) -> None:
        if problem.model.mtp_layers:
            raise FormulationError("prediction of further tokens is not simulated, expected mtp_layers 0")
        self.problem, self.candidate = problem, candidate
        self.recompute_communication = recompute_communication
        #: Layers, with embedding and head where the end chunks may have none; the first of them is ``ahead`` parts on.
        self.layers, self.ahead = problem.num_layers(candidate), int(candidate.empty_ends)
        self.tables = problem.tables(candidate)
        priced = problem.priced_layers(candidate)
        names = [layer.kind for layer in priced.kinds]
        at_ends = [None] * self.ahead
        self._kind = [*at_ends, *(names.index(layer.kind) for layer in problem.model.blocks), *at_ends]
        self._share = [attention_share(layer) for layer in priced.kinds]
        types = problem.device_types
        self._cost: dict[str, list[list[LayerCost]]] = {
            r: [priced.prices(device, r) for device in types] for r in RECOMPUTE
        }
        self._edge = [priced.edges(device) for device in types]
        #: Modules of selective recompute.
        self.modules = frozenset(priced.modules or ("core_attn",))
        self._traffic = [self.tables.forward.at(layer, layer + 1) for layer in range(self.layers)]

    def layer(self, layer: int, recompute: str, types: tuple[int, ...], link: BlockLink) -> LayerPrices | None:
        """Prices of a layer on a block of some device types and links, None of embedding and head."""
        kind = self._kind[layer]
        if kind is None:
            return None
        plain = [self._cost["none"][k][kind] for k in types]
        chosen = [self._cost[recompute][k][kind] for k in types]
        again = [max(c.input_grad - p.input_grad, 0.0) for c, p in zip(chosen, plain, strict=True)]
        sent = self._traffic[layer]
        return LayerPrices(
            forward=max(cost.forward for cost in chosen),
            again=max(again),
            input=max(cost.input_grad - more for cost, more in zip(chosen, again, strict=True)),
            weight=max(cost.weight_grad for cost in chosen),
            share=self._share[kind],
            reduce=float(sent.group_bytes * link.inverse + sent.group_steps * link.latency) / 2,
            ring=float(sent.ring_seconds(link)),
            exchange=float(sent.all_to_all_seconds(link)),
        )

    def sums_again(self, layer: int) -> bool:
        """Whether recomputing modules of a layer sums its output again."""
        return ("moe" if self.problem.model.blocks[layer - self.ahead].experts else "mlp") in self.modules

    def kind_of(self, layer: int) -> int | None:
        """Number of a layer's kind."""
        return self._kind[layer]

    def edge(self, part: int, types: tuple[int, ...]) -> LayerCost:
        """Seconds of embedding or head on the slowest of some device types."""
        costs = [self._edge[k][0 if part == EMBEDDING else 1] for k in types]
        return max(costs, key=lambda cost: cost.seconds)

    def parameters(self, layer: int) -> list[tuple[int, int]]:
        """Parts of a layer with their parameters on one tensor rank, in the order of the forward pass."""
        tp, found, rest = self.candidate.tp, [], int(self.tables.parameters[layer, layer + 1])
        if self._kind[layer] is not None:
            spec = self.problem.model.blocks[layer - self.ahead]
            mlp = spec.ffn_parameters(tp)
            found = [(ATTENTION, spec.parameters(tp) - mlp), (MLP, mlp)]
            rest -= spec.parameters(tp)
        if layer == 0:
            own = min(self.problem.model.embedding_parameters(tp), rest)
            found.insert(0, (EMBEDDING, own))
            rest -= own
        if layer == self.layers - 1:
            found.append((HEAD, rest))
        return found


def attention_share(layer: LayerSpec) -> float:
    """Share of a layer's FLOP that attention has, (1)."""
    return 1.0 - layer.ffn_flops() / layer.forward_flops()


def forward_operators(
    prices: Prices, layer: int, recompute: str, types: tuple[int, ...], link: BlockLink
) -> Iterator[Operator]:
    """Operators of a layer's forward pass in order, (1) and (2)."""
    own = prices.layer(layer, recompute, types, link)
    if layer == 0:
        yield from _compute(prices.edge(EMBEDDING, types).forward, FORWARD, EMBEDDING, layer)
    if own is not None:
        yield from _forward(prices, own, layer, FORWARD, own.forward)
    if layer == prices.layers - 1:
        yield from _compute(prices.edge(HEAD, types).forward, FORWARD, HEAD, layer)


def _forward(prices: Prices, own: LayerPrices, layer: int, kind: int, seconds: float) -> Iterator[Operator]:
    yield from _contexts(own.ring + own.exchange, layer)
    yield from _part(prices, own.reduce, Operator(own.share * seconds, kind, ATTENTION, layer, COMPUTE))
    yield from _part(prices, own.reduce, Operator((1 - own.share) * seconds, kind, MLP, layer, COMPUTE))


def backward_operators(
    prices: Prices, layer: int, recompute: str, kind: int, types: tuple[int, ...], link: BlockLink
) -> Iterator[Operator]:
    """Operators of a layer's gradients by input, by weights (W alone has no traffic) or both, in order, (2) and (3)."""
    own = prices.layer(layer, recompute, types, link)
    if layer == prices.layers - 1:
        yield from _compute(_of_kind(prices.edge(HEAD, types), kind), kind, HEAD, layer)
    if own is not None:
        yield from _backward(prices, own, layer, recompute, kind)
    if layer == 0:
        yield from _compute(_of_kind(prices.edge(EMBEDDING, types), kind), kind, EMBEDDING, layer)


def _backward(prices: Prices, own: LayerPrices, layer: int, recompute: str, kind: int) -> Iterator[Operator]:
    """What is computed again of a layer, and its gradients."""
    seconds = {INPUT: own.input, WEIGHT: own.weight, BACKWARD: own.input + own.weight}[kind]
    if kind != WEIGHT:
        yield from _recomputed(prices, own, layer, recompute)
    reduce = 0.0 if kind == WEIGHT else own.reduce
    yield from _part(prices, reduce, Operator((1 - own.share) * seconds, kind, MLP, layer, COMPUTE))
    yield from _part(prices, reduce, Operator(own.share * seconds, kind, ATTENTION, layer, COMPUTE))
    if kind != WEIGHT:
        yield from _contexts(2 * own.ring + own.exchange, layer)


def _recomputed(prices: Prices, own: LayerPrices, layer: int, recompute: str) -> Iterator[Operator]:
    """What is computed again, (3)."""
    silent = own if prices.recompute_communication else own._replace(reduce=0.0, ring=0.0, exchange=0.0)
    if recompute == "full":
        yield from _forward(prices, silent, layer, RECOMPUTED, own.again)
    elif recompute == "selective":
        modules = prices.modules
        if "core_attn" in modules:
            yield from _contexts(silent.ring + silent.exchange, layer)
        yield from _compute(own.again, RECOMPUTED, ATTENTION if "core_attn" in modules else MLP, layer)
        if prices.sums_again(layer) and silent.reduce > 0.0:
            yield Operator(silent.reduce, TENSOR, MLP, layer, GROUP)


def _of_kind(cost: LayerCost, kind: int) -> float:
    return {INPUT: cost.input_grad, WEIGHT: cost.weight_grad, BACKWARD: cost.input_grad + cost.weight_grad}[kind]


def _part(prices: Prices, reduce: float, own: Operator) -> Iterator[Operator]:
    """A part with its collective, (2)."""
    both = Operator(reduce / 2, TENSOR, own.part, own.layer, GROUP)
    if reduce > 0.0 and prices.candidate.sequence_parallel:
        yield both
        yield own
        yield both
        return
    yield own
    if reduce > 0.0:
        yield both._replace(seconds=reduce)


def _contexts(seconds: float, layer: int) -> Iterator[Operator]:
    if seconds > 0.0:
        yield Operator(seconds, CONTEXT, ATTENTION, layer, GROUP)


def _compute(seconds: float, kind: int, part: int, layer: int) -> Iterator[Operator]:
    if seconds > 0.0:
        yield Operator(seconds, kind, part, layer, COMPUTE)
