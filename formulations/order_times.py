r"""
Pipeline time of an order-priced candidate: the makespan of its order of passes.

Sets: chunks c on devices :math:`d(c)`, replicas z, tensor ranks y.
Data: seconds of the three passes F, I, W of a range of layers by device type; bytes of all-reduces of a range; links.

For every replica

(1) a chunk's forward, input gradient and weight gradient take what they take on the slowest device type of the tensor
    group, plus all-reduces over the group's slowest link: half of those without recompute forward, the others in the
    gradient by the input. What sharded weights and gradients add in ``step`` (``taut.formulations.sharding`` (2)) goes
    with the forward pass and the gradient by the input;
(2) a transfer from chunk c to the next, and of the gradient back, takes half of the hop there and back of the slowest
    tensor rank, times the calibration's coefficient. It takes nothing if both chunks lie on one device. The hop from
    the last device to the first counts like any other hop;
(3) T_pipe[z] is the makespan of the order under these durations (``taut.formulations.schedules.schedule`` (2) to (5)),
    and the end of device x the end of its last pass, which yields gradients.

At even chunks, with F, I, W the seconds of a device's chunks together and :math:`h_c` those of a transfer after chunk
c, (3) is :math:`m (F + I + W)` plus

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

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import Warming
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import Order, device_of_chunk, order_of
from taut.formulations.schedules.recurrence import device_ends
from taut.formulations.sharding import exposed_by_worker
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import block_link
from taut.formulations.terms import gathers_of


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
    """T_pipe of every replica (..., dp), (3), of devices (..., pp, pipelines, width)."""
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
    """Seconds of F, I, W by chunk (dp, 3, C), (1), and of transfers (dp, C - 1), (2), of devices (pp, dp, width)."""
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
    """Computation, all-reduces and sharding of F, I, W of every chunk and replica, (..., dp, 3 C), (1)."""
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
    """Seconds from every chunk to the next, one way, (..., dp, C - 1), (2)."""
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
