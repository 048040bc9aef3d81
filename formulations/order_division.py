r"""
Order-priced candidates: the division of the layers into chunks, and the pipeline time of a division.

Sets: chunks c = 0..C-1 on devices d(c), layers 0..L-1, recompute r.
Data: for every range of layers the least seconds of F, I, W over device types and tensor groups, with what gathers and
scatters of shards add at least (``taut.formulations.sharding`` (2)), the least one-way seconds of a cut, the loads of
reductions, bytes of activations and bytes beside; counts n of micro-batches that each device holds at once
(``taut.formulations.tables.memory`` (9)). A load is in parameters: one of experts counts as often as its ring takes
longer.
Variables: ends :math:`0 = e_{-1} < e_0 < ... < e_{C-1} = L` and recompute of every chunk.

(1) Minimise the makespan of the order under the chunks' seconds and cuts, plus ``ring`` and ``optimizer`` times the
    load of device 0, plus a constant; or, where every device is waited for, with :math:`P_d` the load and
    :math:`end_d` the end of the last pass of device d,

    .. math:: \max_d (end_d + \text{ring}\, P_d) + \text{optimizer} \max_d P_d + \text{constant}, \tag{1'}

    so that
(2) every device fits its memory:
    :math:`\sum_{c \in d} (\text{beside}_c + n_c a_c) + \text{always} \le \text{budget}`
    for all its counts n. ``always`` has the least that any device holds for a moment
    (``taut.formulations.tables.memory`` (10)). What a device holds for a moment beyond this is left to linear bounds
    (``taut.solver.order_priced.layer_bounds`` (9)), and rounding is left out.

The problem is a relaxation of the candidate: no placement prices a division lower, and no division that violates (2)
fits. A lower bound on (1) therefore bounds the candidate (``taut.solver.order_priced.bound``).

Pipeline time is the makespan of the order of passes, of chunks c on devices :math:`d(c)`, replicas z and tensor ranks
y. Its data are the seconds of the three passes F, I, W of a range of layers by device type, the bytes of all-reduces of
a range, and links. For every replica

(3) a chunk's forward, input gradient and weight gradient take what they take on the slowest device type of the tensor
    group, plus all-reduces over the group's slowest link: half of those without recompute forward, the others in the
    gradient by the input. What sharded weights and gradients add in ``step`` (``taut.formulations.sharding`` (2)) goes
    with the forward pass and the gradient by the input;
(4) a transfer from chunk c to the next, and of the gradient back, takes half of the hop there and back of the slowest
    tensor rank, times the calibration's coefficient. It takes nothing if both chunks lie on one device. The hop from
    the last device to the first counts like any other hop;
(5) T_pipe[z] is the makespan of the order under these durations (``taut.formulations.schedules.schedule`` (2) to (5)),
    and the end of device x the end of its last pass, which yields gradients.

At even chunks, with F, I, W the seconds of a device's chunks together and :math:`h_c` those of a transfer after chunk
c, (5) is :math:`m (F + I + W)` plus

=====================  ===================================================
``interleaved-1f1b``   :math:`(pp - 1) (F + I + W) / v + 2 \sum_c h_c`
``zb-h1``              :math:`(pp - 1) (F + I - W)` where :math:`F + I \ge W`, for m >= 2 pp
=====================  ===================================================

The first formula holds if no transfer takes longer than a chunk's forward or backward pass. The passes of other
micro-batches then hide all transfers but one trip there and back, hops from the last device to the first included.
Otherwise it is a lower bound. The second formula is without transfers.

The parts of T_pipe come from makespans too. Computation is the makespan of the computation alone. Tensor-parallel is
what all-reduces add to it, sharding what gathers and scatters add to both, and transfers are the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.memory import MemoryModel
from taut.data.units import KIB
from taut.formulations.compiled import Warming
from taut.formulations.gradient_reductions import least_reduction, seconds_of_best
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.mechanisms.offload import memory_key, optimizer_seconds
from taut.formulations.mechanisms.recompute import in_part
from taut.formulations.mechanisms.shards import optimized_parameters, optimizer_shards
from taut.formulations.partition import stated_divisions
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import Order, device_of_chunk, order_of
from taut.formulations.schedules.recurrence import device_ends
from taut.formulations.sharding import NO_GATHERS, GatherRates, exposed_by_range, exposed_by_worker
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.tables.block_traffic import block_link
from taut.formulations.tables.memory import (
    SUMMED,
    budgets,
    bytes_of_each,
    held_counts,
    kept_coefficients,
    least_passing,
    momentary,
    overhead,
)
from taut.formulations.tables.stage_tables import StageTables
from taut.formulations.terms import gathers_of, gradient_bytes

ROUNDING = 1e-10
"""Relative allowance for the rounding of sums, over all passes or of bytes: up to 1e6 terms of 1e-16 each."""


class SlowLinks(NamedTuple):
    """
    What placements of one case have at least beyond the best links (``taut.solver.ladder.chunk_racks``).

    Of the transfers between a device and the next those of at least ``hops`` devices take ``seconds`` more, one way, in
    every round, and with ``back`` those from the last device to the first. The reduction of the device ``spanning``
    takes ``ring`` seconds for a unit of load, and that of the first device at least ``exchange`` seconds, if any.
    """

    hops: int = 0
    seconds: float = 0.0
    spanning: int = 0
    ring: float = 0.0
    back: bool = False
    exchange: float = 0.0


NO_SLOW_LINKS = SlowLinks()


class SlowDevices(NamedTuple):
    """
    The devices of a pipeline that are of the slow class, in one case (``taut.solver.ladder.chunk_types``).

    ``devices``: whether each is, (devices,); ``passes`` (3, recompute, L+1, L+1): seconds of F, I, W on them, no less
    than elsewhere; ``ring``: seconds of their reductions for a unit of load at least.
    """

    devices: Flags
    passes: Floats
    ring: float = 0.0


@dataclass(frozen=True)
class ChunkProblem:
    """
    Arrays of one candidate's division into chunks.

    ``order`` of the passes, with the device of every chunk, for ``micro_batches`` m; ``counts``: for every device the
    micro-batches of its chunks that it holds at once, (n, chunks). Seconds: ``passes`` F, I, W (3, recompute, L+1,
    L+1), infinite where a recompute is not allowed or there is no layer, and no longer than of a range that holds
    theirs; ``edge`` (L+1,), one way, of a cut before layer j; ``ring`` and ``optimizer`` for a unit of a device's load,
    the former without ``reduced``, what every device waits for (``taut.formulations.gradient_reductions``). It is in
    ``constant``, and so is the optimizer's mean where experts take it longer than their load says. ``waits_for_all``:
    whether every device is waited for, (1'), or the makespan and device 0, (1).

    By range, as floats: ``loads`` of reductions (L+1, L+1), parameters on a tensor rank, those of experts weighted;
    bytes ``activation`` for a micro-batch in flight (recompute, L+1, L+1), and ``beside``, of weights, gradients,
    states and the loss (L+1, L+1). By layer: ``moments`` (n, L), bytes of which a device has the most of its layers',
    the last ones instead of those of the loss, ``losses`` (L,), and in the chunk with the head ``closing`` (L,), by its
    first layer. Bytes of every device: ``always``, of which ``passing`` for a moment; ``budget`` of the largest one, in
    whole KiB. ``stated``: layers of every chunk of the divisions that may be chosen (n, C), None where any may be, or
    too many. ``ends`` is 1 where embedding and head are divided beside the layers, of which the first and the last
    chunk may have none. ``slow``: what placements have beyond the best links; linear bounds alone count it. ``slower``:
    devices of the slow class, whose seconds makespans and linear bounds count.
    """

    order: Order
    micro_batches: int
    counts: tuple[Ints, ...]
    passes: Floats
    edge: Floats
    ring: float
    optimizer: float
    waits_for_all: bool
    constant: float
    reduced: float
    loads: Floats
    activation: Floats
    beside: Floats
    always: float
    passing: float
    moments: Floats
    closing: Floats
    losses: Floats
    budget: float
    stated: Ints | None = None
    ends: int = 0
    slow: SlowLinks = NO_SLOW_LINKS
    slower: SlowDevices | None = None

    @cached_property
    def rings(self) -> Floats:
        """Seconds of the reduction for a unit of every device's load, (devices,)."""
        rings = np.full(len(self.counts), self.ring)
        if self.slower is not None:
            rings[self.slower.devices] = max(self.ring, self.slower.ring)
        rings[self.slow.spanning] = max(rings[self.slow.spanning], self.slow.ring)
        if self.slow.exchange > 0:
            rings[0] = 0.0
        return rings

    @cached_property
    def waits(self) -> Floats:
        """Seconds that follow the last pass of every device whatever its load, (devices,)."""
        return np.append(self.slow.exchange, np.zeros(len(self.counts) - 1))

    def passes_of(self, recompute: Ints | int, starts: Ints, ends: Ints) -> Floats:
        """Seconds of F, I, W of the chunks of divisions (..., C), each on its device's class, (3, ..., C)."""
        seconds = self.passes[:, recompute, starts, ends]
        if self.slower is None:
            return seconds
        slow = self.slower.devices[self.order.device]
        return np.where(slow, self.slower.passes[:, recompute, starts, ends], seconds)

    @property
    def patterns(self) -> tuple[int, ...]:
        """Class of every device, 1 for the slow one, (devices,)."""
        devices = len(self.counts)
        return (0,) * devices if self.slower is None else tuple(self.slower.devices.astype(int).tolist())

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return int(self.loads.shape[0]) - 1

    def ends_of(self, layers: Ints) -> Ints:
        """Ends of a division with so many layers of the model in every chunk (C,)."""
        parts = layers.copy()
        parts[[0, -1]] += self.ends
        return np.asarray(parts.cumsum())

    @cached_property
    def lead(self) -> int:
        """The least layer but the first from which on all layers but the last are alike, in every figure."""
        tables = (self.passes, self.activation, self.loads, self.beside)
        every = np.concatenate([np.diagonal(table, 1, -2, -1).reshape(-1, self.num_layers) for table in tables])
        inner, cuts = every[:, 1:-1], self.edge[1:-1]
        if not np.isclose(cuts, cuts[:1], rtol=1e-12, atol=0.0).all():
            return self.num_layers - 1
        differing = ~np.isclose(inner, inner[:, -1:], rtol=1e-12, atol=0.0).all(axis=0)
        return int(np.flatnonzero(differing).max(initial=-1)) + 2

    @property
    def num_chunks(self) -> int:
        """Chunks C."""
        return len(self.order.device)

    @property
    def away(self) -> Flags:
        """Whether a chunk and the next lie on different devices (C - 1,)."""
        return np.asarray(self.order.device[1:] != self.order.device[:-1])

    def hosted(self, device: int) -> Ints:
        """Chunks of a device, ascending."""
        return self._chunks[device]

    def device_loads(self, division: Division) -> Floats:
        """Load of every device, (devices,)."""
        by_chunk = self.loads[division.starts, division.ends]
        return np.asarray(np.bincount(self.order.device, by_chunk, minlength=len(self.counts)), dtype=np.float64)

    def tail(self, last: int, most: int) -> Floats:
        """Seconds for a unit of every device's load, (devices,), after a path that ends on ``last``."""
        seconds = np.zeros(len(self.counts))
        seconds[last if self.waits_for_all else 0] += self.rings[last if self.waits_for_all else 0]
        seconds[most if self.waits_for_all else 0] += self.optimizer
        return seconds

    def seconds(self, ends: Floats, loads: Floats) -> Floats:
        """Seconds (1) or (1') of n divisions (n,), of ends and loads of the devices, each (n, devices)."""
        if not self.waits_for_all:
            return np.asarray(ends.max(axis=1) + (self.ring + self.optimizer) * loads[:, 0] + self.constant)
        last = (ends + self.rings * loads + self.waits).max(axis=1) + self.optimizer * loads.max(axis=1)
        return np.asarray(last + self.constant)

    @property
    def recomputes(self) -> Ints:
        """Indices of the recomputes that a chunk may choose."""
        return np.flatnonzero(np.isfinite(self.passes[0, :, 0, -1]))

    @cached_property
    def _chunks(self) -> list[Ints]:
        return [np.flatnonzero(self.order.device == d) for d in range(len(self.counts))]


class ChunkBytes(NamedTuple):
    """
    Bytes of (2) for figures of ranges.

    ``held`` for one of each figure of ``summed_figures`` (figures,); ``kept`` (recompute,), factors of what stays of a
    micro-batch; ``always`` on every device, of which ``passing`` for a moment; and ``budget`` of the largest device, in
    whole KiB.
    """

    held: Floats
    kept: Floats
    always: float
    passing: float
    budget: float


def summed_figures(tables: StageTables) -> Ints:
    """Figures of ranges that a device has of all its chunks together, (figures, L+1, L+1)."""
    return np.stack([getattr(tables, name) for name in SUMMED])


def bytes_of_alike(
    problem: PlanningProblem, candidates: Sequence[Candidate], device: Ints, *, margin: bool
) -> list[ChunkBytes]:
    """Bytes of (2) of candidates of one order and recompute, on devices (C,), the memory margin kept free or not."""
    found, known = list[ChunkBytes](), dict[tuple[float, bool], tuple[MemoryModel, Floats, float]]()
    for candidate, passing in zip(candidates, passing_of_alike(problem, candidates, device), strict=True):
        if (key := (memory_key(candidate), candidate.recorded)) not in known:
            memory = problem.memory_of(candidate)
            budget = float(budgets(memory, problem.capacity_kib, margin=margin).max() // KIB * KIB)
            known[key] = memory, kept_coefficients(memory), budget
        memory, kept, budget = known[key]
        held = problem.alike(candidate, "held", partial(bytes_of_each, memory, candidate))
        found.append(ChunkBytes(held, kept, overhead(memory, candidate) + passing, passing, budget))
    return found


def passing_of_alike(problem: PlanningProblem, candidates: Sequence[Candidate], device: Ints) -> list[float]:
    """Bytes that pass at least on every device, of candidates of one order and recompute, with chunks on devices."""
    known, key = problem.kept("least passing"), candidates[0].order_key[:3]
    keys = [(key, memory_key(candidate), problem.shared_key(candidate)) for candidate in candidates]
    # Tables are made where the least is not known: few of the candidates that are asked for need them otherwise.
    new = {each: candidate for each, candidate in zip(keys, candidates, strict=True) if each not in known}
    if new:
        allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidates[0])]
        every = [problem.tables(candidate) for candidate in new.values()]
        known.update(zip(new, least_passing(every, problem.memory_of(candidates[0]), allowed, device), strict=True))
    return [known[each] for each in keys]


def chunk_problem(
    problem: PlanningProblem,
    candidate: Candidate,
    edge: Floats,
    ring: tuple[float, float] = (0.0, 1.0),
    *,
    gather: GatherRates = NO_GATHERS,
    tied: float = 0.0,
    margin: bool = True,
) -> ChunkProblem:
    """Data (1), (2) of a candidate at least seconds of cuts, a ring and its factor for experts, gathers and ties."""
    tables, device = problem.tables(candidate), device_of_chunk(*candidate.order_key[:3])
    memory = problem.memory_of(candidate)
    order, (each,) = candidate_order(candidate), bytes_of_alike(problem, [candidate], device, margin=margin)
    hosted, (by_byte, weight) = len(device) // candidate.pp, ring
    reduced = least_reduction(problem, candidate, by_byte * gradient_bytes(problem.terms(candidate)), tied, hosted)
    optimizer, constant = float(optimizer_seconds(problem, candidate).min()) / optimizer_shards(candidate), 0.0
    if problem.latency.waits_for_every_stage and tables.experts.any():
        updated = optimized_parameters(tables, candidate)[0, -1]
        optimizer, constant = 0.0, optimizer * float(updated) / candidate.pp
    allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
    moments, closing = momentary(tables, memory, candidate, allowed)
    return ChunkProblem(
        order=order,
        micro_batches=candidate.num_micro_batches,
        counts=held_counts(candidate.order_key, ahead=hides_exchange(problem.space, problem.model, candidate)),
        passes=_least_passes(problem, candidate, gather),
        edge=problem.coefficient("pipeline") * edge / 2,
        ring=reduced.slope,
        optimizer=optimizer,
        waits_for_all=problem.latency.waits_for_every_stage,
        constant=problem.least_constant(candidate) + reduced.constant + constant,
        reduced=reduced.constant,
        loads=tables.parameters + (weight - 1.0) * tables.experts,
        activation=each.kept[:, None, None] * tables.activation,
        beside=np.tensordot(each.held, problem.shared(candidate, "summed", lambda: summed_figures(tables)), 1),
        always=each.always,
        passing=each.passing,
        moments=moments,
        closing=closing,
        losses=np.asarray(memory.coefficient("logits") * np.diagonal(tables.logits, 1)),
        budget=each.budget,
        stated=stated_divisions(problem, candidate),
        ends=candidate.end_parts,
    )


def _least_passes(problem: PlanningProblem, candidate: Candidate, gather: GatherRates) -> Floats:
    """Seconds of F, I, W of every range on the best device type and block, (3, recompute, L+1, L+1)."""
    if gather != NO_GATHERS:
        return _passes_beside(problem, candidate, gather)
    # Candidates that differ in pipelines, chunks and shards alone have these in common.
    return problem.shared(candidate, "least passes", lambda: _passes_beside(problem, candidate, gather))


def _passes_beside(problem: PlanningProblem, candidate: Candidate, gather: GatherRates) -> Floats:
    return np.asarray(passes_by_type(problem, candidate, gather).min(axis=1))


def passes_by_type(problem: PlanningProblem, candidate: Candidate, gather: GatherRates) -> Floats:
    """Seconds of F, I, W of every range by device type on its best block, (3, types, recompute, L+1, L+1)."""
    ranges, tables = problem.passes(candidate), problem.tables(candidate)
    passes = np.stack((ranges.forward, ranges.input_gradient, ranges.weight_gradient))
    within = seconds_of_best(problem, candidate)
    passes[0] += within.forward
    passes[1] += within.both - within.forward
    allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
    layers = np.arange(tables.num_layers + 1)
    rising = layers[:, None] < layers[None, :]
    if gather != NO_GATHERS:
        for k, waits in enumerate(exposed_by_range(problem, candidate, gather, within)):
            passes[k] = _of_longer_ranges(np.where(rising, passes[k] + waits, np.inf))
    if in_part(candidate):
        passes[1] = _of_longer_ranges(np.where(rising, passes[1], np.inf))
    return np.where(allowed[:, None, None] & rising, passes, np.inf)


def _of_longer_ranges(seconds: Floats) -> Floats:
    """The least seconds of a range and of all that hold it, of ranges from row to column."""
    later_ends = np.minimum.accumulate(seconds[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(np.minimum.accumulate(later_ends, axis=-2))


class PipelineSeconds(NamedTuple):
    """T_pipe and its parts (..., dp); ends of last gradients and a micro-batch's backward seconds (..., pp, dp)."""

    total: Floats
    compute: Floats
    tensor_parallel: Floats
    sharding: Floats
    transfers: Floats
    ends: Floats
    backward: Floats


def chunk_pipelines(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> PipelineSeconds:
    """T_pipe of every replica (..., dp), (5), of devices (..., pp, pipelines, width)."""
    candidate = strategy.candidate
    order = candidate_order(candidate)
    parts = _passes(problem, strategy, order.device, devices)
    rows = np.concatenate([*parts, _transfers(problem, strategy, order.device, devices)], axis=-1)
    distinct, of = _distinct(rows.reshape(-1, rows.shape[-1]))
    alone, rings, gathers, hops = np.split(distinct, np.cumsum([part.shape[-1] for part in parts]), axis=1)
    whole, m = alone + rings + gathers, candidate.num_micro_batches
    ends = pipeline_ends(order, whole, hops, m)
    total = ends.max(axis=1)
    bare, still = (spans(order, passes, np.zeros_like(hops), m) for passes in (alone, alone + rings))
    without_hops = spans(order, whole, np.zeros_like(hops), m) if gathers.any() else still
    shape = rows.shape[:-1]
    figures = (total, bare, still - bare, without_hops - still, total - without_hops)
    backward = _on_devices(order.device, whole)
    return PipelineSeconds(
        *(figure[of].reshape(shape) for figure in figures),
        *(np.swapaxes(part[of].reshape(*shape, candidate.pp), -1, -2) for part in (ends, backward)),
    )


def _distinct(rows: Floats) -> tuple[Floats, Ints]:
    """The distinct rows in no order, and the place of each row among them (n,)."""
    # Rows are compared as bytes: ``np.unique`` compares them number by number, seven times as slowly.
    rows = np.ascontiguousarray(rows)
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, of = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], of


def _on_devices(device: Ints, passes: Floats) -> Floats:
    """Backward seconds of one micro-batch on every device (n, devices), of passes (n, 3 C)."""
    _, by_input, by_weight = np.split(passes, 3, axis=1)
    total = np.zeros((int(device.max()) + 1, len(passes)))
    np.add.at(total, device, (by_input + by_weight).T)
    return total.T


def replica_seconds(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> tuple[Floats, Floats]:
    """Seconds of F, I, W by chunk (dp, 3, C), (3), and of transfers (dp, C - 1), (4), of devices (pp, dp, width)."""
    candidate = strategy.candidate
    device = device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp)
    compute, tensor, sharding = _passes(problem, strategy, device, devices)
    passes = (compute + tensor + sharding).reshape(candidate.pipelines, 3, len(device))
    return passes, _transfers(problem, strategy, device, devices)


def candidate_order(candidate: Candidate) -> Order:
    """Order of a candidate's passes."""
    return order_of(*candidate.order_key)


def spans(order: Order, passes: Floats, transfer: Floats, num_micro_batches: int) -> Floats:
    """Makespans of an order under many durations (n,), the largest of ``pipeline_ends``."""
    return np.asarray(pipeline_ends(order, passes, transfer, num_micro_batches).max(axis=1))


def pipeline_ends(order: Order, passes: Floats, transfer: Floats, num_micro_batches: int) -> Floats:
    """Ends of an order's devices (n, devices) under passes F, I, W of every chunk (n, 3 C) and transfers (n, C - 1)."""
    seconds = passes.reshape(len(passes), 3, -1)
    whole = seconds[:, 1] + seconds[:, 2]
    every = np.concatenate([seconds, whole[:, None]], axis=1)
    given = order.passes, order.first, every, np.ascontiguousarray(transfer), num_micro_batches
    return np.asarray(_ends(len(every) * len(order.passes), *given))


MOST_IN_PYTHON = 40_000
"""Passes that Python runs in one process: a tenth of a second."""
_ends = Warming(device_ends, MOST_IN_PYTHON)


def _passes(problem: PlanningProblem, strategy: Strategy, device: Ints, devices: Ints) -> tuple[Floats, ...]:
    """Computation, all-reduces and sharding of F, I, W of every chunk and replica, (..., dp, 3 C), (3)."""
    recompute, first, end = strategy.ranges
    candidate = strategy.candidate
    tables, ranges = problem.tables(candidate), problem.passes(candidate)
    hosts = devices[..., device, :, :]
    types = problem.type_of_node[problem.links.node_of[hosts]]
    chunk = np.arange(len(first))[:, None, None]
    parts = (ranges.forward, ranges.input_gradient, ranges.weight_gradient)
    each = [part[:, recompute, first, end][types, chunk] for part in parts]
    compute = [part.max(axis=-1) for part in each]
    none = np.zeros_like(compute[0])
    sharding = [none] * 3
    if gathers_of(problem.terms(candidate)):
        waits = exposed_by_worker(problem, strategy, device, devices)
        sharding = [(each[k] + waits[k]).max(axis=-1) - compute[k] for k in (0, 1)] + [none]
    if candidate.width == 1:
        return _by_replica(compute), _by_replica([none] * 3), _by_replica(sharding)
    link, within = block_link(problem.links, hosts, candidate.block), (first[:, None], end[:, None])
    plain = tables.forward.at(*within)
    forward = plain.seconds(link)
    backward = tables.traffic.at(recompute[:, None], *within).less(plain).seconds(link)
    return _by_replica(compute), _by_replica([forward, backward, none]), _by_replica(sharding)


def _by_replica(parts: list[Floats]) -> Floats:
    """Parts (..., C, dp) as rows (..., dp, 3 C)."""
    return np.concatenate([np.swapaxes(part, -1, -2) for part in parts], axis=-1)


def _transfers(problem: PlanningProblem, strategy: Strategy, device: Ints, devices: Ints) -> Floats:
    """Seconds from every chunk to the next, one way, (..., dp, C - 1), (4)."""
    _, _, end = strategy.ranges
    sites = problem.links.site_of[devices]
    before, after = sites[..., device[:-1], :, :], sites[..., device[1:], :, :]
    message = problem.tables(strategy.candidate).message[end[:-1]]
    inverse = 1.0 / problem.links.pipeline_rate(strategy.candidate.width)
    inverse, latency = inverse + inverse.T, problem.links.latency + problem.links.latency.T
    hop = (latency[before, after] + message[:, None, None] * inverse[before, after]).max(axis=-1)
    away = (device[:-1] != device[1:])[:, None]
    weight = problem.coefficient("pipeline")
    return np.swapaxes(np.where(away, weight * hop / 2, 0.0), -1, -2)
