r"""
Operators of a layer, the tasks of a pass over layers, and those that follow the passes of a step.

The seconds of operators are the figures of the cost table and of the links, split into what runs at once. Sets: layers
l; parts of a layer: attention and feed-forward part (MLP), and embedding and head beside the first and last layer;
passes F, I, W, and B for I and W in one.
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

The units u = 1, ..., n of a pass are its layers in the order in which it runs them; :math:`C_u` are the operators of a
unit, one after another, (1) to (4).

(5) Without gathers and scatters a pass is the chain :math:`C_1, \dots, C_n`.
(6) Under ZeRO-3 the weights of a unit are gathered before it, those of the next unit while it runs: gather
    :math:`G_{u+1}` starts when :math:`G_u` has ended and :math:`C_u` starts, and :math:`C_{u+1}` waits for it.
(7) Under ZeRO-2 and 3 the gradients of a unit are scattered after it: :math:`S_u` starts when :math:`C_u` has ended and
    the stream of its device is free, gathers first. A pass ends when its last scatter has.
(8) A pass of a chunk sends its result when it ends, if the next chunk is on another device.
(9) Gathers and scatters take pace from the units beside them: with G seconds of those beside unit u and
    :math:`\sigma` of ``taut.formulations.sharding`` (2), its operators take
    :math:`\min(1 + \sigma G / C_u, 1 / (1 - \sigma))` times as long.

Where every gather and scatter is shorter than the operators beside it, a pass takes what
``taut.formulations.sharding`` (2) says. After the passes

(10) without overlap the gradients of a pipeline rank are reduced at once when its last pass has ended in every replica,
    in the seconds of ``taut.formulations.gradient_reductions`` (1).
(11) With overlap the parameters of a chunk fill buckets in the order in which the last pass that yields its gradients
    comes to them. A bucket is full with the part of a layer that brings it to :math:`\beta` parameters, and its
    reduction, which takes its share of the seconds of (10), may start when that part has run in every replica and the
    bucket before on the rank is reduced.
(12) First and last chunk exchange the gradients of a tied embedding when the last passes of both ranks have ended.
(13) The norm of all gradients waits for all passes and reductions, and the optimizer of every device for the norm.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE, LayerCost
from taut.errors import FormulationError
from taut.formulations.gradient_reductions import (
    bucket_parameters,
    by_device,
    optimizer_by_stage,
    overlaps,
    reduction_seconds,
    tied_seconds,
)
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import Order
from taut.formulations.schedules.recurrence import BACKWARD as WHOLE_BACKWARD
from taut.formulations.schedules.recurrence import WEIGHT_GRADIENT
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
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


TRAFFIC = LayerPrices._fields[LayerPrices._fields.index("reduce") :]
"""Prices of traffic within a block."""


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
        #: Share of a layer's FLOP that attention has, (1).
        self._share = [1.0 - layer.ffn_flops() / layer.forward_flops() for layer in priced.kinds]
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


ENTRY, NONE = -2, -1
"""Places of tasks that stand for the start of the pass, and for nothing."""


class Gathers(NamedTuple):
    """Seconds of gathering a unit's weights and scattering its gradients by layer, and the slowdown, (9)."""

    gather: dict[int, float]
    scatter: dict[int, float]
    slowdown: float = 0.0


class Template(NamedTuple):
    """Tasks of a pass, two places that each waits for, the one that ends it, and the one that sends."""

    operators: list[Operator]
    after: list[tuple[int, int]]
    last: int
    send: int


class _Builder:
    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.after: list[tuple[int, int]] = []

    def add(self, operator: Operator, first: int, second: int = NONE) -> int:
        self.operators.append(operator)
        self.after.append((first, second if second != first else NONE))
        return len(self.operators) - 1


def template(units: Iterable[list[Operator]], sent: Gathers, send: Operator | None) -> Template:
    """Tasks of a pass over operators by unit, with gathers and scatters by layer and a result, (5) to (9)."""
    made, every = _Builder(), list(units)
    gathers = [sent.gather.get(unit[0].layer, 0.0) for unit in every]
    ended = started = ENTRY
    fetched = _gather(made, every, gathers, 0, ENTRY, NONE)
    stream, pending = fetched, NONE
    for u, unit in enumerate(every):
        started = ended
        ready, fetched, beside = fetched, NONE, 0.0
        if u + 1 < len(every) and gathers[u + 1] > 0.0:
            stream = fetched = _gather(made, every, gathers, u + 1, started, stream)
            beside += gathers[u + 1]
        if pending != NONE:
            stream = _scatter(made, every[u - 1], sent, pending, stream)
            beside += sent.scatter[every[u - 1][0].layer]
        ended = _chain(made, _slowed(unit, beside, sent.slowdown), ended, ready)
        pending = ended if sent.scatter.get(unit[0].layer, 0.0) > 0.0 else NONE
    if pending != NONE:
        ended = _scatter(made, every[-1], sent, pending, stream)
    result = NONE if send is None else made.add(send, ended)
    return Template(made.operators, made.after, ended, result)


def _gather(made: _Builder, units: list[list[Operator]], gathers: list[float], u: int, start: int, stream: int) -> int:
    """Gather of unit u, (6); none where it takes no time."""
    if gathers[u] <= 0.0:
        return NONE
    own = Operator(gathers[u], GATHER, WHOLE, units[u][0].layer, DATA)
    # A unit starts when the one before has ended and its own weights are there; the stream says the latter.
    return made.add(own, stream, start) if stream != NONE else made.add(own, start)


def _scatter(made: _Builder, unit: list[Operator], sent: Gathers, ended: int, stream: int) -> int:
    layer = unit[0].layer
    return made.add(Operator(sent.scatter[layer], SCATTER, WHOLE, layer, DATA), ended, stream)


def _slowed(unit: list[Operator], beside: float, slowdown: float) -> list[Operator]:
    """Operators of a unit beside some seconds of gathers and scatters, (9)."""
    whole = sum(operator.seconds for operator in unit)
    if not (slowdown > 0.0 and beside > 0.0 and whole > 0.0):
        return unit
    longer = min(1.0 + slowdown * beside / whole, 1.0 / (1.0 - slowdown))
    return [operator._replace(seconds=longer * operator.seconds) for operator in unit]


def _chain(made: _Builder, unit: list[Operator], before: int, ready: int) -> int:
    """Operators of a unit one after another; the first waits for its weights as well."""
    for operator in unit:
        before, ready = made.add(operator, before, ready), NONE
    return before


def forward_operators(
    prices: Prices, layer: int, recompute: str, types: tuple[int, ...], link: BlockLink
) -> Iterator[Operator]:
    """Operators of a layer's forward pass in order, (1) and (2)."""
    own = prices.layer(layer, recompute, types, link)
    if layer == 0:
        yield from _timed(prices.edge(EMBEDDING, types).forward, FORWARD, EMBEDDING, layer)
    if own is not None:
        yield from _forward(prices, own, layer, FORWARD, own.forward)
    if layer == prices.layers - 1:
        yield from _timed(prices.edge(HEAD, types).forward, FORWARD, HEAD, layer)


def _forward(prices: Prices, own: LayerPrices, layer: int, kind: int, seconds: float) -> Iterator[Operator]:
    yield from _timed(own.ring + own.exchange, CONTEXT, ATTENTION, layer)
    yield from _part(prices, own.reduce, Operator(own.share * seconds, kind, ATTENTION, layer, COMPUTE))
    yield from _timed(own.dispatch if kind == FORWARD else own.dispatch_again, EXCHANGE, MLP, layer)
    yield from _part(prices, own.reduce, Operator((1 - own.share) * seconds, kind, MLP, layer, COMPUTE))
    yield from _timed(own.combine, EXCHANGE, MLP, layer)


def backward_operators(
    prices: Prices, layer: int, recompute: str, kind: int, types: tuple[int, ...], link: BlockLink
) -> Iterator[Operator]:
    """Operators of a layer's gradients by input, by weights (W alone has no traffic) or both, in order, (2) and (3)."""
    own = prices.layer(layer, recompute, types, link)
    if layer == prices.layers - 1:
        yield from _timed(_of_kind(prices.edge(HEAD, types), kind), kind, HEAD, layer)
    if own is not None:
        yield from _backward(prices, own, layer, recompute, kind)
    if layer == 0:
        yield from _timed(_of_kind(prices.edge(EMBEDDING, types), kind), kind, EMBEDDING, layer)


def _backward(prices: Prices, own: LayerPrices, layer: int, recompute: str, kind: int) -> Iterator[Operator]:
    """What is computed again of a layer, and its gradients."""
    seconds = {INPUT: own.input, WEIGHT: own.weight, BACKWARD: own.input + own.weight}[kind]
    if kind != WEIGHT:
        yield from _recomputed(prices, own, layer, recompute)
    reduce, combine = (0.0, 0.0) if kind == WEIGHT else (own.reduce_back, own.combine)
    yield from _timed(combine, EXCHANGE, MLP, layer)
    yield from _part(prices, reduce, Operator((1 - own.share) * seconds, kind, MLP, layer, COMPUTE))
    yield from _timed(combine, EXCHANGE, MLP, layer)
    yield from _part(prices, reduce, Operator(own.share * seconds, kind, ATTENTION, layer, COMPUTE))
    if kind != WEIGHT:
        yield from _timed(2 * own.ring + own.exchange, CONTEXT, ATTENTION, layer)


def _recomputed(prices: Prices, own: LayerPrices, layer: int, recompute: str) -> Iterator[Operator]:
    """What is computed again, (3)."""
    silent = own if prices.recompute_communication else own._replace(**dict.fromkeys(TRAFFIC, 0.0))
    if recompute == "full":
        yield from _forward(prices, silent, layer, RECOMPUTED, own.again)
    elif recompute == "selective":
        modules = prices.modules
        if "core_attn" in modules:
            yield from _timed(silent.ring + silent.exchange_again, CONTEXT, ATTENTION, layer)
        if "moe" in modules:
            yield from _timed(silent.dispatch_again, EXCHANGE, MLP, layer)
        yield from _timed(own.again, RECOMPUTED, ATTENTION if "core_attn" in modules else MLP, layer)
        yield from _timed(silent.summed, TENSOR, MLP, layer)
        if "moe" in modules:
            yield from _timed(silent.combine, EXCHANGE, MLP, layer)


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


def _timed(seconds: float, kind: int, part: int, layer: int) -> Iterator[Operator]:
    """An operator on the compute stream, or the stream of groups, (4), where it takes time."""
    if seconds > 0.0:
        yield Operator(seconds, kind, part, layer, GROUP if kind in (EXCHANGE, CONTEXT, TENSOR) else COMPUTE)


class Tail(NamedTuple):
    """Tasks after the passes, with the tasks that each waits for; ``stream`` of an operator is one of the graph."""

    operators: list[Operator]
    after: list[list[int]]


class Ended(NamedTuple):
    """Passes in a graph: templates, with numbers by pipeline, kind of pass and chunk; first tasks (n, passes + 1)."""

    order: Order
    of: Ints
    templates: list[Template]
    row: Ints

    def _task(self, pipeline: int, passed: int, own: Operator | None = None) -> int:
        """The task of an operator's kind, layer and part, or the one that ends the pass where there is none."""
        made, wanted = self.template(passed, pipeline), own and own[1:]
        place = next((k for k, each in enumerate(made.operators) if each[1:] == wanted), made.last)
        return int(self.row[pipeline, passed]) + place

    def last_gradients(self, chunk: int) -> int:
        """The last pass that yields gradients by the weights of a chunk."""
        passes = self.order.passes
        yields = (passes[:, 0] == WEIGHT_GRADIENT) | (passes[:, 0] == WHOLE_BACKWARD)
        return int(np.flatnonzero(yields & (passes[:, 1] == chunk))[-1])

    def tasks(self, passed: int, own: Operator | None = None) -> list[int]:
        """The task of an operator of a pass, or the one that ends it, in every simulated pipeline."""
        return [self._task(z, passed, own) for z in range(len(self.of))]

    def template(self, passed: int, pipeline: int = 0) -> Template:
        """Tasks of a pass; simulated pipelines have the same but those that take no time."""
        kind, chunk, _ = self.order.passes[passed]
        return self.templates[int(self.of[pipeline, kind, chunk])]


def tail_of(problem: PlanningProblem, strategy: Strategy, devices: Ints, prices: Prices, ended: Ended) -> Tail:
    """Tasks that follow the passes, (10) to (13), of devices (pp, dp, tp cp) and passes as they lie in the graph."""
    tail, pp = Tail([], []), strategy.candidate.pp
    pipelines = len(ended.of)
    reductions = reduction_seconds(problem, strategy, devices)
    overlapped = overlaps(problem, strategy.candidate)
    # What ends the last pass of every pipeline rank.
    passes = [ended.tasks(end - 1) for end in ended.order.first[1:].tolist()]
    for x in np.flatnonzero(reductions).tolist():
        buckets = _buckets(problem, strategy, prices, ended, x) if overlapped else [(1.0, passes[x], -1)]
        _reduce(tail, ended, buckets, float(reductions[x]), x)
    first = int(ended.row[-1, -1])
    tied = float(tied_seconds(problem, strategy, devices))
    extra = pipelines * pp * len(STREAMS)
    if tied > 0.0:
        tail.after.append([*passes[0], *passes[-1]])
        tail.operators.append(Operator(tied, TIED, WHOLE, 0, extra + 1))
    waited = [task for each in passes for task in each] + list(range(first, first + len(tail.operators)))
    tail.operators.append(Operator(0.0, NORM, WHOLE, -1, extra))
    tail.after.append(waited)
    norm = first + len(tail.operators) - 1
    seconds = optimizer_by_stage(problem, strategy, devices)
    for z in range(pipelines):
        for x in range(pp):
            tail.operators.append(Operator(float(seconds[x]), OPTIMIZER, WHOLE, -1, _stream(z * pp + x, COMPUTE)))
            tail.after.append([norm])
    return tail


def _stream(device: int, stream: int) -> int:
    return device * len(STREAMS) + stream


def _reduce(tail: Tail, ended: Ended, buckets: list[tuple[float, list[int], int]], seconds: float, rank: int) -> None:
    """Reductions of a rank's buckets, each a share of the seconds, one after another, (10) and (11)."""
    before: list[int] = []
    for share, waits, layer in buckets:
        tail.operators.append(Operator(share * seconds, REDUCE, WHOLE, layer, _stream(rank, DATA)))
        tail.after.append([*waits, *before])
        before = [int(ended.row[-1, -1]) + len(tail.operators) - 1]


def _buckets(
    problem: PlanningProblem, strategy: Strategy, prices: Prices, ended: Ended, rank: int
) -> list[tuple[float, list[int], int]]:
    """Buckets of a rank by the time at which they are full: share of its parameters, tasks, last layer, (11)."""
    total = float(by_device(strategy, problem.tables(strategy.candidate).parameters)[rank])
    most, found = bucket_parameters(strategy.candidate), []
    for chunk in np.flatnonzero(ended.order.device == rank).tolist():
        passed = ended.last_gradients(chunk)
        first, end = strategy.stages[chunk]
        left = {(layer, part): count for layer in range(first, end) for part, count in prices.parameters(layer)}
        filled, made = 0, ended.template(passed)
        for own in made.operators:
            if own.kind in (BACKWARD, WEIGHT):
                filled += left.pop((own.layer, own.part), 0)
                if filled >= most:
                    found.append((filled / total, ended.tasks(passed, own), own.layer))
                    filled = 0
        if rest := filled + sum(left.values()):
            found.append((rest / total, ended.tasks(passed), first))
    return sorted(found, key=lambda bucket: bucket[1][0])
