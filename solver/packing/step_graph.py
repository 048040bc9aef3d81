r"""
A step of unequal micro-batches: its time, and a bound on the time of every packing.

Sets: sequences i of :math:`l_i` tokens, micro-batches k = 0..m-1 of a replica, replicas z, pipeline chunks c, windows w
of attention. Data: a plan whose micro-batches have b sequences of S tokens.

With :math:`c_w(l)` the seconds of the attention core of one sequence, forward and backward, in a kernel over all
tokens of a micro-batch (the device's operator model: a l + b l^2 while all tokens are in the window), a sequence has

.. math:: x_0 = \frac{l}{b S}, \qquad x_w = \frac{c_w(l)}{b \, c_w(S)}, \tag{1}

so that a full micro-batch of the plan sums to 1 in each. A pass j (forward, gradients by input and weights of a chunk)
takes the plan's own seconds :math:`s_j` there. A share of them are launches, which do not grow, and shares
:math:`a_{jw}` are attention cores of a window, by the operators of the device; the rest grows with the tokens, traffic
of tensor and context ranks with it:

.. math:: s_j(k) = s_j \Big( f_j + (1 - f_j - \textstyle\sum_w a_{jw}) x_0(k) + \sum_w a_{jw} x_w(k) \Big), \quad
    x(k) = \sum_{i \in k} x(l_i). \tag{2}

A ring of context ranks sends keys and values, :math:`r_j x_0` seconds, while attention of :math:`h_j x_w` seconds hides
them (w the largest window), and so adds :math:`\max(r_j x_0 - h_j x_w, 0)` to (2) in place of the plan's own figure:
attention of short sequences hides less. Bounds take it as 0, or without the maximum. (2')

(3) The pipeline is a longest path in a graph of passes. A pass follows the pass before it on its device, and its
    micro-batch's pass on the chunk before, a transfer later. In a closed form a stage's passes of a micro-batch are one
    pass of forward and backward: for equal micro-batches the longest path is
    :math:`\sum_x t_x + (m - 1) \max_x t_x`, the plan's own formula. Other schedules have the graph of their order.
(4) The step is :math:`\max_z` of (3) and what the plan's step takes beside its pipeline: trips of a closed form,
    reductions, optimizer, constant. These do not depend on the packing. The step of full micro-batches is the
    plan's.

Bounds. A path visits pass r with micro-batch k(r). Any convex combination of paths, a unit flow, with shares
:math:`\alpha_r` bounds the longest path of replica z from below:

.. math:: T_z \ge \sum_r \alpha_r s_r(k(r)) \ge \beta + \sum_{i \in z} p(l_i), \quad
    p(l) = \min_k g_k \cdot x(l), \quad g_k = \sum_{r: k(r) = k} \alpha_r \, \partial s_r / \partial x. \tag{5}

The minimum over places k makes (5) hold for every order of micro-batches, and :math:`\beta` are the launches and
transfers of the flow. So :math:`p(l)`, the least of functions :math:`a l + b l^2` (full attention), is work of a
sequence that adds up, and packing is a makespan problem of this work over replicas. Flows used: all passes of one
device, for each device; and the flow of

    .. math:: \min_{\lambda \ge 0, \sum_k \lambda_k = m} \; \text{longest path with } x(k) = \lambda_k \bar x, \tag{6}

the least pipeline time if work could be divided over the m micro-batches at will: its dual solution. The linear program
is solved by HiGHS; the flow is made from its duals so that it is a unit flow by construction, whatever they are.

(7) Makespan on n replicas of work :math:`p_1 \ge p_2 \ge \dots`: at least the mean :math:`\sum p / n`, and for every q
    at least :math:`p_{qn - q + 1} + \dots + p_{qn + 1}`: of the qn + 1 largest some replica has q + 1. q = 0 is the
    largest one.
(8) A sequence goes through all passes of its micro-batch one after the other, so that their sum for the longest one is
    a bound as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import TopologicalSorter
from typing import NamedTuple

import numpy as np

from taut.data.analytic.device_rates import Rates, rates_of, recorded_by
from taut.data.analytic.layer_costs import layer_shape, pass_terms
from taut.data.analytic.layer_work import KINDS, attention_core
from taut.data.analytic.routed_layers import TOGETHER, ExpertRanks
from taut.data.arrays import Floats, Ints
from taut.data.calibration import Calibration, uncalibrated
from taut.data.catalog.builtin import catalog_operators
from taut.data.costs import RECOMPUTE, Key
from taut.data.layers.layer import LayerSpec
from taut.errors import DataError
from taut.formulations.latency import step_time
from taut.formulations.order_division import candidate_order, replica_seconds
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import Order, device_of_chunk
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import block_link
from taut.solver.linear_program import linear_program

MOST_PASSES = 2_500
"""Passes up to which (6) is solved: a second or two."""


class Flow(NamedTuple):
    """A flow (5): launches and transfers, and work of a feature at its places (places, F)."""

    base: float
    work: Floats

    def of(self, features: Floats) -> Floats:
        """Work p of sequences (n,) by their features (n, F)."""
        return np.asarray((features @ self.work.T).min(axis=-1))


@dataclass(frozen=True, eq=False)
class StepGraph:
    """
    Passes of a pipeline with their seconds, (2) and (3).

    By pass (n,), each after all that it waits for: its ``kind`` j and micro-batch ``batch``; the pass ``before`` on the
    device and the ``source`` of its input, -1 without; and the transfer ``lag`` between. ``last`` pass of every device
    (devices,), and ``device`` of every kind (J,). Seconds: launches ``fixed`` (replicas, J); ``slope`` of a feature of
    (1) (replicas, J, F); ``transfer`` (replicas, lags), the last one 0; ``ring`` of context ranks and attention as its
    ``cover`` (replicas, J, rings), (2'); ``beside`` the pipeline, (4).
    """

    kind: Ints
    batch: Ints
    before: Ints
    source: Ints
    lag: Ints
    last: Ints
    device: Ints
    fixed: Floats
    slope: Floats
    transfer: Floats
    ring: Floats
    cover: Floats
    beside: float = 0.0

    @property
    def micro_batches(self) -> int:
        """Micro-batches m of a replica."""
        return int(self.batch.max()) + 1

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return len(self.fixed)

    def pipelines(self, features: Floats) -> Floats:
        """Longest paths (3) (..., replicas) under features of their micro-batches (..., replicas, m, F)."""
        kinds = self.slope.shape[1]
        seconds = np.einsum("...zkf,zjf->jk...z", features, self.slope) + self.fixed.T[:, None].reshape(
            (kinds, 1, *(1 for _ in features.shape[:-3]), self.replicas)
        )
        for sent, hidden in zip(np.moveaxis(self.ring, -1, 0), np.moveaxis(self.cover, -1, 0), strict=True):
            bytes_, attention = (
                np.einsum("...zk,zj->jk...z", features[..., w], each) for w, each in ((0, sent), (-1, hidden))
            )
            seconds += np.maximum(bytes_ - attention, 0.0)
        return np.asarray(np.max(self._ends(seconds)[self.last], axis=0))

    def _ends(self, seconds: Floats) -> Floats:
        """Ends of all passes (n, ...) under seconds by kind and micro-batch (J, m, ..., replicas)."""
        ends = np.empty((len(self.kind), *seconds.shape[2:]))
        rows = zip(
            *(part.tolist() for part in (self.kind, self.batch, self.before, self.source, self.lag)), strict=True
        )
        for r, (j, k, before, source, lag) in enumerate(rows):
            if source >= 0:
                ready = ends[source] + self.transfer[:, lag]
                if before >= 0:
                    np.maximum(ready, ends[before], out=ready)
                ends[r] = ready + seconds[j, k]
            else:
                ends[r] = seconds[j, k] + (ends[before] if before >= 0 else 0.0)
        return ends

    def steps(self, features: Floats) -> Floats:
        """Seconds of steps (...,), (4), of features (..., replicas, m, F)."""
        return np.asarray(self.pipelines(features).max(axis=-1) + self.beside)

    @cached_property
    def through(self) -> tuple[float, Floats]:
        """Launches and transfers, and seconds of a feature (F,), of one micro-batch alone, (8)."""
        first = np.flatnonzero(self.batch == 0)
        place = {int(r): k for k, r in enumerate(first)}
        best: list[tuple[float, Floats]] = []
        for r in first.tolist():
            j = self.kind[r]
            found = float(self.fixed[:, j].min()), self.slope[:, j].min(axis=0)
            if (source := int(self.source[r])) >= 0:
                wait, work = best[place[source]]
                found = found[0] + wait + float(self.transfer[:, self.lag[r]].min()), found[1] + work
            best.append(found)
        return max(best, key=lambda part: float(part[1].sum()) + part[0])

    def shown(self, mean: Floats) -> "StepGraph":
        """The graph with (2') as if the rings that are longer than attention at mean features (F,) were so always."""
        longer = self.ring[:1] * mean[0] > self.cover[:1] * mean[-1]
        slope = self.slope.copy()
        slope[..., 0] += (longer * self.ring).sum(axis=-1)
        slope[..., -1] -= (longer * self.cover).sum(axis=-1)
        none = np.zeros((*self.fixed.shape, 0))
        return replace(self, slope=slope, ring=none, cover=none)

    def flows(self, mean: Floats) -> list[Flow]:
        """The flows of (5), that of (6) for micro-batches of mean features (F,), with and without rings."""
        shown = self.shown(mean)
        more = shown.flows(mean) if (shown.slope != self.slope).any() else []
        flows = [self._of_device(d) for d in range(len(self.last))]
        if len(self.kind) <= MOST_PASSES and (even := self._even(mean)) is not None:
            flows.insert(0, even)
        return flows + more

    def _of_device(self, device: int) -> Flow:
        """The flow of all passes of a device."""
        kinds = np.bincount(self.kind, minlength=len(self.device)) * (self.device == device)
        each = kinds / self.micro_batches
        return _flow_of((self.fixed @ kinds), np.einsum("j,zjf->zf", each, self.slope))

    def _even(self, mean: Floats) -> Flow | None:
        """The flow of (6), None where its program has no solution."""
        kinds, size = self.kind, len(self.kind)
        fixed, work = self.fixed[0], self.slope[0] @ mean
        entries: list[tuple[int, int, float]] = []
        least: list[float] = []
        edges: list[list[tuple[int, int, int]]] = [[] for _ in range(size)]

        def row(*cells: tuple[int, float], bound: float) -> int:
            entries.extend((len(least), column, value) for column, value in cells)
            least.append(bound)
            return len(least) - 1

        # Columns: the ends of the passes, the shares of the micro-batches, the longest path.
        for r, (j, k) in enumerate(zip(kinds.tolist(), self.batch.tolist(), strict=True)):
            before, source, lag = int(self.before[r]), int(self.source[r]), int(self.lag[r])
            own = (r, 1.0), (size + k, -float(work[j]))
            if before < 0 and source < 0:
                row(*own, bound=float(fixed[j]))
            if before >= 0:
                edges[r].append((row(*own, (before, -1.0), bound=float(fixed[j])), before, -1))
            if source >= 0:
                wait = float(fixed[j] + self.transfer[0, lag])
                edges[r].append((row(*own, (source, -1.0), bound=wait), source, lag))
        end = size + self.micro_batches
        sinks = [row((end, 1.0), (int(r), -1.0), bound=0.0) for r in self.last]
        row(*((size + k, 1.0) for k in range(self.micro_batches)), bound=float(self.micro_batches))
        duals = _duals(end + 1, entries, np.array(least))
        return None if duals is None else self._flow(duals, edges, sinks)

    def _flow(self, duals: Floats, edges: Sequence[Sequence[tuple[int, int, int]]], sinks: Sequence[int]) -> Flow:
        """The unit flow back from the rows of ends ``sinks`` in the proportions of duals."""
        flow = np.zeros(len(self.kind))
        flow[self.last] = _shares(duals[list(sinks)])
        waits = np.zeros(len(self.transfer))
        for r in range(len(flow) - 1, -1, -1):
            if not flow[r] or not edges[r]:
                continue
            for share, (_, source, lag) in zip(_shares(duals[[row for row, *_ in edges[r]]]), edges[r], strict=True):
                flow[source] += share * flow[r]
                if lag >= 0:
                    waits += share * flow[r] * self.transfer[:, lag]
        visits = np.zeros((self.micro_batches, len(self.device)))
        np.add.at(visits, (self.batch, self.kind), flow)
        work = np.einsum("kj,zjf->kzf", visits, self.slope)
        return _flow_of(waits + self.fixed @ visits.sum(axis=0), work.reshape(-1, work.shape[-1]))


def _flow_of(base: Floats, work: Floats) -> Flow:
    """A flow from its launches and transfers by replica, and its work by place and replica (n, F)."""
    return Flow(float(base.min()), np.unique(work, axis=0))


def _shares(weights: Floats) -> Floats:
    """Weights as shares that add up to 1, the first alone if none is positive."""
    weights = np.maximum(weights, 0.0)
    if not (total := float(weights.sum())) > 0.0:
        weights, total = np.eye(1, len(weights))[0], 1.0
    return np.asarray(weights / total)


def _duals(columns: int, entries: Sequence[tuple[int, int, float]], least: Floats) -> Floats | None:
    """Duals of rows at least ``least`` of (row, column, value), of non-negative columns, the last one minimised."""
    from scipy.sparse import csr_matrix

    rows, places, values = zip(*entries, strict=True)
    program = linear_program("highs")
    cost = np.zeros(columns)
    cost[-1] = 1.0
    program.add_columns(cost, np.zeros(columns), np.full(columns, np.inf), np.zeros((0, columns)))
    matrix = csr_matrix((values, (rows, places)), shape=(len(least), columns))
    program.add_rows(matrix, least, np.full(len(least), np.inf))
    found = program.solve()
    return None if found is None else found.duals


def makespan_bound(work: Floats, replicas: int) -> float:
    """The bound (7) on the largest sum of work (n,) of a replica; the mean alone where some work is below 0."""
    falling = np.sort(work)[::-1]
    if falling[-1] < 0.0:
        return float(falling.sum()) / replicas
    sums = np.concatenate([[0.0], np.cumsum(falling)])
    q = np.arange((len(work) - 1) // replicas + 1)
    largest = float((sums[q * replicas + 1] - sums[q * replicas - q]).max())
    return max(float(falling.sum()) / replicas, largest)


def step_bound(graph: StepGraph, flows: Sequence[Flow], features: Floats) -> float:
    """A bound on the step of every packing of sequences with features (n, F)."""
    wait, work = graph.through
    alone = wait + float((features @ work).max())
    return max(alone, *(f.base + makespan_bound(f.of(features), graph.replicas) for f in flows)) + graph.beside


@dataclass(frozen=True, eq=False)
class Packed:
    """
    A plan's step as a function of packed sequences.

    ``graph``: passes and prices; ``seq``, ``budget``: tokens of a sequence of the plan, and of a micro-batch;
    ``contexts``: its context ranks; ``cores``: seconds of attention of sequences by tokens (n,), by window (n, W).
    """

    graph: StepGraph
    seq: int
    budget: int
    contexts: int
    cores: Callable[[Floats], Floats]

    def features(self, tokens: Ints) -> Floats:
        """Features (1) of sequences by their tokens (n, W + 1)."""
        distinct, place = np.unique(tokens, return_inverse=True)
        core = self.cores(distinct.astype(float)) / self.cores(np.array([float(self.seq)]))
        core = core * (self.seq / self.budget)
        return np.concatenate([distinct[:, None] / self.budget, core], axis=1)[place]


def packed_step(problem: PlanningProblem, strategy: Strategy, devices: Ints, source: str) -> Packed:
    """The step of a plan with packed micro-batches; ``DataError`` names its ``source`` if replicas differ in m."""
    candidate = strategy.candidate
    if len(set(strategy.batches.tolist())) > 1:
        raise DataError(f"{source}: its replicas run {list(strategy.batches)} micro-batches, expected one number")
    seconds, transfer = replica_seconds(problem, strategy, devices)
    windows = windows_of(problem)
    launches, cores = _parts_of_passes(problem, strategy, devices, windows)
    ring, cover = _rings_of_passes(problem, strategy, devices)
    seconds = seconds - np.maximum(ring - cover, 0.0).sum(axis=-1)
    launches = np.minimum(launches, seconds)
    whole = np.maximum(cores.sum(axis=-1), np.finfo(float).tiny)
    cores = cores * np.minimum((seconds - launches) / whole, 1.0)[..., None]
    slope = np.concatenate([(seconds - launches - cores.sum(axis=-1))[..., None], cores], axis=-1)
    # Replicas that share experts are one pipeline, and go on their own here.
    share = candidate.dp // len(seconds)
    figures = [np.repeat(each, share, axis=0) for each in (launches, slope, ring, cover, transfer)]
    m = candidate.num_micro_batches
    closed = not candidate.is_order_priced
    graph = flow_shop(m, *figures[:4]) if closed else graph_of(candidate_order(candidate), m, *figures)
    total = float(step_time(problem, strategy, devices).total)
    full = np.ones((graph.replicas, m, len(windows) + 1))
    graph, seq = replace(graph, beside=total - float(graph.steps(full))), problem.model.blocks[-1].seq
    budget = candidate.micro_batch * seq
    return Packed(graph, seq, budget, candidate.cp, core_seconds(problem, candidate, budget, windows))


def windows_of(problem: PlanningProblem) -> list[int]:
    """Distinct windows of attention of a model's layers."""
    parts = [part for layer in problem.model.blocks for part in layer.together]
    return sorted({part.window for part in parts if part.mixes and not part.mixer}) or [1]


def core_seconds(
    problem: PlanningProblem, at: Candidate | Key, budget: int, windows: Sequence[int]
) -> Callable[[Floats], Floats]:
    """Seconds of attention cores on the first type of device, as of ``Packed``."""
    rates = _rates(problem, problem.device_types[0])
    parts = [part for layer in problem.model.blocks for part in layer.together if part.mixes and not part.mixer]
    layers = [next(part for part in parts if part.window == window) for window in windows if parts]

    def seconds(tokens: Floats) -> Floats:
        found = [np.ones_like(tokens) for _ in windows[len(layers) :]]
        for layer in layers:
            reach = tokens if layer.window == layer.seq else np.minimum(tokens, layer.window)
            shape = layer_shape(layer, at.tp, 1, at.cp)
            shape = shape._replace(batch=budget / tokens, seq=tokens / at.cp, window=reach)
            both = attention_core(shape, rates) + attention_core(shape, rates, backward=True)
            found.append(both * tokens / budget)
        return np.stack(found, axis=-1)

    return seconds


def flow_shop(micro_batches: int, fixed: Floats, slope: Floats, ring: Floats, cover: Floats) -> StepGraph:
    """The graph of a closed form, whose passes of a stage and micro-batch are one, (2')."""
    stages = fixed.shape[-1]
    passes = np.array([(FORWARD, x, i) for x in range(stages) for i in range(micro_batches)], dtype=np.int64)
    order = Order(passes, np.arange(stages + 1) * micro_batches, np.arange(stages))
    both = fixed.sum(axis=1, keepdims=True), slope.sum(axis=1, keepdims=True)
    sent, hidden = (np.concatenate(np.split(x, x.shape[1], axis=1), axis=-1) for x in (ring, cover))
    return _graph(order, micro_batches, *both, sent, hidden, None)


def graph_of(
    order: Order, micro_batches: int, fixed: Floats, slope: Floats, ring: Floats, cover: Floats, transfer: Floats
) -> StepGraph:
    """The graph of an order of F, I, W by chunk, (2'), with the ``transfer`` to the next chunk (replicas, C - 1)."""
    fixed, slope, ring, cover = (
        np.concatenate([x, x[:, 1:2] + x[:, 2:3]], axis=1) for x in (fixed, slope, ring, cover)
    )
    return _graph(order, micro_batches, fixed, slope, ring, cover, transfer)


def _graph(
    order: Order, micro_batches: int, fixed: Floats, slope: Floats, ring: Floats, cover: Floats, transfer: Floats | None
) -> StepGraph:
    """The graph of kinds of pass by chunk; without transfers passes hand on forward alone."""
    replicas, kinds, chunks = fixed.shape
    lags = np.zeros((replicas, 1)) if transfer is None else np.concatenate([transfer, np.zeros((replicas, 1))], axis=1)
    rows, (kind, batch, before, source, lag) = _in_order(order, lags.shape[1] - 1)
    return StepGraph(
        kind=kind,
        batch=batch,
        before=before,
        source=source,
        lag=lag,
        last=np.array([int(np.flatnonzero(rows == end - 1)[0]) for end in order.first[1:]]),
        device=np.tile(order.device, kinds),
        fixed=fixed.reshape(replicas, -1),
        slope=slope.reshape(replicas, kinds * chunks, -1),
        transfer=lags,
        ring=ring.reshape(replicas, kinds * chunks, ring.shape[-1]),
        cover=cover.reshape(replicas, kinds * chunks, cover.shape[-1]),
    )


def _in_order(order: Order, none: int) -> tuple[Ints, tuple[Ints, ...]]:
    """Rows of an order, each after what it waits for, with the fields of ``StepGraph``; ``none`` takes no time."""
    passes, chunks = order.passes.tolist(), len(order.device)
    row_of = {(kind, c, i): r for r, (kind, c, i) in enumerate(passes)}
    before = [-1] * len(passes)
    for first, end in zip(order.first[:-1].tolist(), order.first[1:].tolist(), strict=True):
        before[first + 1 : end] = range(first, end - 1)
    source = [_source(row_of, *row, chunks=chunks, none=none) for row in passes]
    needs = ([n for n in (b, s) if n >= 0] for b, (s, _) in zip(before, source, strict=True))
    rows = [*TopologicalSorter(dict(enumerate(needs))).static_order()]
    new = {r: k for k, r in enumerate(rows)} | {-1: -1}
    figures = (
        [passes[r][0] * chunks + passes[r][1] for r in rows],
        [passes[r][2] for r in rows],
        [new[before[r]] for r in rows],
        [new[source[r][0]] for r in rows],
        [source[r][1] for r in rows],
    )
    return np.array(rows), tuple(np.array(each, dtype=np.int64) for each in figures)


def _source(
    row_of: dict[tuple[int, int, int], int], kind: int, c: int, i: int, *, chunks: int, none: int
) -> tuple[int, int]:
    """The pass that a pass gets its input from and the transfer between, -1 without one; ``none`` takes no time."""
    if kind == FORWARD:
        return (row_of[FORWARD, c - 1, i], c - 1 if none else 0) if c else (-1, none)
    if kind == WEIGHT_GRADIENT:
        return row_of[INPUT_GRADIENT, c, i], none
    if c == chunks - 1:
        return row_of[FORWARD, c, i], none
    whole = row_of.get((BACKWARD, c + 1, i))
    return row_of[INPUT_GRADIENT, c + 1, i] if whole is None else whole, c


def _parts_of_passes(
    problem: PlanningProblem, strategy: Strategy, devices: Ints, windows: Sequence[int]
) -> tuple[Floats, Floats]:
    """Seconds of F, I, W of every chunk and replica that are launches (dp, 3, C), and cores by window (dp, 3, C, W)."""
    candidate, (recompute, first, end) = strategy.candidate, strategy.ranges
    priced = problem.priced_layers(candidate)
    device = device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp)
    types = problem.type_of_node[problem.links.node_of[devices[device, :, 0]]].T
    launch = np.zeros((candidate.pipelines, 3, len(first)))
    cores = np.zeros((*launch.shape, len(windows)))
    for t, name in enumerate(problem.device_types):
        own, at = types == t, (recompute, first, end)
        shares = [[shares_of(problem, candidate, name, layer, r) for layer in priced.kinds] for r in RECOMPUTE]
        for k, part in enumerate(("forward", "input_grad", "weight_grad")):
            seconds = np.array([[getattr(cost, part) for cost in priced.prices(name, r)] for r in RECOMPUTE])
            launched = seconds * np.array([[x[k][0] for x in row] for row in shares])
            launch[:, k] += own * priced.sums_of(launched.tolist(), 0.0, 0.0)[at]
            for w, window in enumerate(windows):
                core = seconds * np.array([[x[k][1].get(window, 0.0) for x in row] for row in shares])
                cores[:, k, :, w] += own * priced.sums_of(core.tolist(), 0.0, 0.0)[at]
    return launch, cores


def _rings_of_passes(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> tuple[Floats, Floats]:
    """Seconds of rings of F, I, W of every chunk and replica, and of attention that hides them (dp, 3, C, rings)."""
    candidate, (recompute, first, end) = strategy.candidate, strategy.ranges
    if candidate.cp == 1:
        none = np.zeros((candidate.pipelines, 3, len(first), 0))
        return none, none
    tables, within = problem.tables(candidate), (first[:, None], end[:, None])
    hosts = devices[device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp)]
    inverse = np.asarray(block_link(problem.links, hosts, candidate.block).context_inverse)[..., None]
    forward = tables.forward.at(*within)
    backward = tables.traffic.at(recompute[:, None], *within).less(forward)
    ring = [each.ring_bytes * inverse for each in (forward, backward)]
    cover = [np.broadcast_to(each.ring_hidden, ring[0].shape) for each in (forward, backward)]
    stacked = (np.stack([*each, np.zeros_like(ring[0])]) for each in (ring, cover))
    sent, hidden = (np.moveaxis(each, 2, 0) for each in stacked)
    return sent, hidden


def shares_of(
    problem: PlanningProblem, at: Candidate | Key, name: str, layer: LayerSpec, recompute: str
) -> list[tuple[float, dict[int, float]]]:
    """Shares of a layer's passes F, I, W that are launches, and attention cores by window, on a type of device."""
    rates, chosen = _rates(problem, name), _calibration(problem, name)
    if at.recorded and problem.costs.records and recompute != "full":
        rates = recorded_by(rates, at.tp * at.cp)
    weight, modules = np.array([chosen[kind] for kind in KINDS]), tuple(problem.space.recompute_modules)
    total, launched, cores = np.zeros(3), np.zeros(3), dict[int, Floats]()
    for part in layer.together:
        ranks = ExpertRanks(at.ep, at.etp) if part.experts and at.ep > 1 else TOGETHER
        shape = layer_shape(part, at.tp, at.micro_batch, at.cp)
        terms = np.array(pass_terms(part, shape, at.tp, rates, ranks, modules).under(recompute)) * weight
        total += terms.sum(axis=1)
        launched += terms[:, KINDS.index("launch")]
        if part.mixes and not part.mixer:
            cores[part.window] = cores.get(part.window, 0.0) + terms[:, KINDS.index("attention")]
    whole = np.maximum(total, np.finfo(float).tiny)
    return [(float(launched[k] / whole[k]), {w: float(s[k] / whole[k]) for w, s in cores.items()}) for k in range(3)]


def _calibration(problem: PlanningProblem, name: str) -> Calibration:
    """Coefficients of a type of device."""
    given = problem.calibration
    return uncalibrated(problem.cluster.devices[name]) if given is None else given.on(name)


def _rates(problem: PlanningProblem, name: str) -> Rates:
    """What a type of device makes of work."""
    chosen, device = _calibration(problem, name), problem.cluster.devices[name]
    kept = {} if problem.calibration is None else chosen.kept
    return rates_of(device, problem.memory.precision, catalog_operators().get(name), **chosen.of_runs, **kept)
