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
(4) Expert ranks exchange tokens before the MLP of a layer with experts and after it, in both passes. What its gradients
    exchange takes half of its seconds before and behind, a combine forward as long, and a dispatch forward, or again,
    the rest of its pass's: exactly where gradients are in one format, as they are but where tokens are gathered, and
    in sum there. A block runs in step, so no exchange waits for another one. The all-reduces of such a layer differ
    and take their mean each.

An operator of a block takes what it takes on the block's slowest device type, as every part ends in a collective that
waits for all.
"""

from typing import NamedTuple

from taut.data.costs import RECOMPUTE, LayerCost
from taut.data.layers.layer import LayerSpec
from taut.errors import FormulationError
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.block_traffic import BlockLink, Traffic

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
    "exchange tokens",
)
"""What a task does; a task's kind is its place here."""
(FORWARD, RECOMPUTED, INPUT, WEIGHT, BACKWARD, TENSOR, CONTEXT, SEND, RETURN, GATHER, SCATTER) = range(11)
REDUCE, TIED, NORM, OPTIMIZER, EXCHANGE = range(11, 16)

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


TRAFFIC = (
    *("reduce", "reduce_back", "ring", "exchange", "exchange_again", "summed", "dispatch", "dispatch_again"),
    "combine",
)
"""Prices of traffic within a block."""


class LayerPrices(NamedTuple):
    """
    Seconds of one layer on a block, (1) to (4), and the ``share`` of them that attention has.

    ``again`` is recompute; ``reduce`` and ``reduce_back`` one all-reduce forward and backward, ``ring`` one turn of
    keys, ``exchange`` the all-to-alls of a pass, ``exchange_again`` and ``summed`` what selective recompute exchanges
    and sums again; ``dispatch`` and ``dispatch_again`` tokens forward and again, ``combine`` other exchanges of them.
    """

    forward: float
    again: float
    input: float
    weight: float
    share: float
    reduce: float
    reduce_back: float
    ring: float
    exchange: float
    exchange_again: float
    summed: float
    dispatch: float
    dispatch_again: float
    combine: float


class Prices:
    """Prices of the operators of a candidate; whether what is computed again communicates again, (3), is chosen."""

    def __init__(self, problem: PlanningProblem, candidate: Candidate, *, recompute_communication: bool = True) -> None:
        if problem.model.mtp_layers:
            raise FormulationError("prediction of further tokens is not simulated, expected mtp_layers 0")
        if problem.model.encoder and problem.model.encoder.ranks(candidate.tp) > 1:
            raise FormulationError(
                "an encoder on several tensor ranks is not simulated, expected tensor_parallel false"
            )
        self.problem, self.candidate = problem, candidate
        self.recompute_communication = recompute_communication
        #: Layers, with embedding and head where the end chunks may have none; the first of them is ``ahead`` parts on.
        self.layers, self.ahead = problem.num_layers(candidate), candidate.end_parts
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
        self._both: dict[str, list[Traffic]] = {
            name: [self.tables.traffic.at(r, layer, layer + 1) for layer in range(self.layers)]
            for r, name in enumerate(RECOMPUTE)
        }

    def layer(self, layer: int, recompute: str, types: tuple[int, ...], link: BlockLink) -> LayerPrices | None:
        """Prices of a layer on a block of some device types and links, None of embedding and head."""
        kind = self._kind[layer]
        if kind is None:
            return None
        plain = [self._cost["none"][k][kind] for k in types]
        chosen = [self._cost[recompute][k][kind] for k in types]
        again = [max(c.input_grad - p.input_grad, 0.0) for c, p in zip(chosen, plain, strict=True)]
        sent, both, chosen_both = self._traffic[layer], self._both["none"][layer], self._both[recompute][layer]
        more, combine = chosen_both.less(both), _exchanged(both.less(sent), link) / 2
        return LayerPrices(
            forward=max(cost.forward for cost in chosen),
            again=max(again),
            input=max(cost.input_grad - more for cost, more in zip(chosen, again, strict=True)),
            weight=max(cost.weight_grad for cost in chosen),
            share=self._share[kind],
            reduce=_summed(sent, link) / 2,
            reduce_back=_summed(both.less(sent), link) / 2,
            ring=float(sent.ring_seconds(link)),
            exchange=float(sent.all_to_all_seconds(link)),
            exchange_again=float(more.all_to_all_seconds(link)),
            summed=max(_summed(more, link), 0.0),
            dispatch=_exchanged(sent, link) - combine,
            dispatch_again=_exchanged(more, link) - combine,
            combine=combine,
        )

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
            model = self.problem.model
            own = min(model.edge_parameters(tp), rest)
            found.insert(0, (EMBEDDING, own))
            rest -= own
        if layer == self.layers - 1:
            found.append((HEAD, rest))
        return found


def _summed(sent: Traffic, link: BlockLink) -> float:
    """Seconds of the all-reduces of tensor groups."""
    return float(sent.group_bytes * link.inverse + sent.group_steps * link.latency)


def _exchanged(sent: Traffic, link: BlockLink) -> float:
    """Seconds of exchanges of tokens, (4)."""
    moved = sent.near_bytes * link.near_inverse + sent.far_bytes * link.far_inverse
    return float(moved + sent.expert_steps * link.expert_latency)


def attention_share(layer: LayerSpec) -> float:
    """Share of a layer's FLOP that attention has, (1)."""
    return 1.0 - layer.ffn_flops() / layer.forward_flops()
