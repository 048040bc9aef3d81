r"""
Step time of a plan, priced from its definition.

Worker (x, z, y) of stage x, replica z and tensor rank y runs on ``devices[x, z, y]``; m micro-batches a step.

(1) A stage takes its layers' seconds on the slowest type of the tensor group, and all-reduces of its layers' outputs,
    4 a layer and 6 under full recompute: ring(M, n, B) = 2 (n - 1)/n M/B + 2 (n - 1) latency on the group's slowest
    link.
(2) A hop takes latency + message/B there and back (in ``amp`` there alone); message is the last layer's output, divided
    by tp with sequence parallelism. T_PP[z] is the slowest tensor rank's sum over hops.
(3) T_pipe[z] = sum t + (m - 1) max t + h T_PP[z], with h = 1 under GPipe and in ``amp``, otherwise max(1, m/pp) in
    ``pipette`` and (pp - 1) m/pp in ``pipette-printed``.
(4) Other schedules run their order pass by pass: forward and both gradients of every chunk, half of the all-reduces
    without recompute forward and the others in the gradient by the input, and half of a hop each way.
(5) Rings of gradients: with g_n replicas on each of k nodes, max over n of 4 (g_n - 1)/g_n M/B_n + 2 (k - 1)/k M/B
    between, slowest links, for stage 0; in ``amp`` one ring of all replicas, the slowest of all stages, with latency.
(6) M is 1 gradient of each parameter, (m gradient + weight)/2 under ZeRO-2 and m (gradient + 2 weight)/2 under ZeRO-3.
(7) T = max T_pipe + T_DP + T_opt + constant; T_opt, in ``pipette`` alone, is the optimizer's seconds for the parameters
    of the first device, divided by dp under ZeRO.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.solver.certificate.reference.layers import RECOMPUTE, layers_of
from taut.solver.certificate.reference.memory import PARAMETER_BYTES, Stages
from taut.solver.certificate.reference.network import Network
from taut.solver.certificate.reference.orders import Order, makespans
from taut.solver.certificate.reference.space import CLOSED_FORM, Case, Choice

TIED = 1e-12
"""Relative difference up to which two sums of floats may be equal, so that either is the slowest."""


@dataclass(frozen=True)
class Price:
    """
    Seconds of a step by placement: totals (n,), and parts of the slowest replica.

    ``parts`` (ways, 3) are computation, all-reduces of tensor groups and transfers of the first placement, one row for
    each replica and stage that may be the slowest.
    """

    total: Floats
    parts: Floats
    data_parallel: Floats
    optimizer: Floats


def price(
    case: Case, choice: Choice, stages: Stages, recompute: tuple[str, ...], devices: Ints, order: Order | None
) -> Price:
    """Price a plan on placements (n, pp, dp, tp) that break no rule, (1) to (7)."""
    plan = _Plan(case, choice, stages, recompute, devices)
    if choice.schedule in CLOSED_FORM:
        pipelines, parts = _closed_form(plan)
    else:
        assert order is not None
        pipelines, parts = _by_order(plan, order)
    data, optimizer = _data_parallel(plan), _optimizer(plan)
    total = pipelines.max(axis=-1) + data + optimizer + case.coefficient("constant")
    return Price(total, parts, data, optimizer)


class _Plan:
    """A plan with its links, and the figures of its stages."""

    def __init__(self, case: Case, choice: Choice, stages: Stages, recompute: tuple[str, ...], devices: Ints) -> None:
        if "network" not in case.kept:
            case.kept["network"] = Network(case.cluster)
            names = list(case.cluster.devices)
            case.kept["kinds"] = np.array([names.index(node.device.name) for node in case.cluster.node_list])
        self.case, self.choice, self.devices = case, choice, devices
        self.network: Network = case.kept["network"]
        self.kinds = case.kept["kinds"][self.network.node_of[devices]]
        self.layers = layers_of(case, choice)
        self.first, self.last = np.array([first for first, _ in stages]), np.array([end for _, end in stages]) - 1
        row = np.repeat([RECOMPUTE.index(r) for r in recompute], self.last - self.first + 1)
        #: Seconds (3, types, chunks).
        self.passes = self.summed(self.layers.passes[:, :, row, np.arange(len(row))])
        #: Bytes and numbers of all-reduces (2, chunks): those of a step without recompute, and all.
        each = np.array([self.layers.output, np.ones(len(row))]) * case.coefficient("tensor_parallel")
        self.plain, self.every = self.summed(4 * each), self.summed(np.where(row == 2, 6, 4) * each)

    def summed(self, figures: Floats | Ints) -> Floats:
        """Figures by layer (..., L), summed over the layers of every chunk."""
        return np.asarray(np.add.reduceat(figures, self.first, axis=-1))

    def rings(self, volume: Floats, rank: Ints) -> Floats:
        """Seconds of all-reduces (2, C) on the tensor groups of pipeline ranks (C,): (n, C, dp), (1)."""
        tp = self.choice.tp
        if tp == 1:
            return np.zeros((len(self.devices), len(rank), self.choice.dp))
        rate, latency = (figure[:, rank] for figure in _slowest_link(self.network, self.devices))
        moved, steps = volume[:, :, None]
        return np.asarray(2 * (tp - 1) / tp * moved / rate + 2 * (tp - 1) * steps * latency)

    def hops(self, rank: Ints) -> Floats:
        """Seconds from every chunk to the next, on pipeline ranks (C,): (n, C - 1, dp, tp), (2)."""
        a, b, choice = self.devices[:, rank[:-1]], self.devices[:, rank[1:]], self.choice
        message = self.layers.output[self.last[:-1]] / (choice.tp if choice.sequence_parallel else 1)
        ways = [(a, b)] if self.case.latency_model == "amp" else [(a, b), (b, a)]
        network, message = self.network, message[:, None, None]
        seconds = [network.latency(i, j) + message / network.rate(i, j, choice.tp) for i, j in ways]
        return np.asarray(np.sum(seconds, axis=0))


def _closed_form(plan: _Plan) -> tuple[Floats, Floats]:
    """T_pipe by replica (n, dp), and its parts, (3)."""
    choice, rank = plan.choice, np.arange(plan.choice.pp)
    m, pp, model = choice.num_micro_batches, choice.pp, plan.case.latency_model
    compute = plan.passes.sum(axis=0)[plan.kinds, rank[:, None, None]].max(axis=-1)
    tensor = plan.rings(plan.every, rank)
    trips = max(1.0, m / pp) if model == "pipette" else (pp - 1) * m / pp
    trips = 1.0 if choice.schedule == "gpipe" or model == "amp" else trips
    transfers = plan.case.coefficient("pipeline") * trips * plan.hops(rank).sum(axis=1).max(axis=-1)
    stage = compute + tensor
    total = stage.sum(axis=1) + (m - 1) * stage.max(axis=1) + transfers
    z = np.flatnonzero(total[0] >= total[0].max() * (1 - TIED))
    x, at = np.nonzero(stage[0][:, z] >= stage[0][:, z].max(axis=0) * (1 - TIED))
    z = z[at]
    parts = [part[0][:, z].sum(axis=0) + (m - 1) * part[0][x, z] for part in (compute, tensor)]
    return total, np.column_stack([*parts, transfers[0][z]])


def _by_order(plan: _Plan, order: Order) -> tuple[Floats, Floats]:
    """T_pipe by replica (n, dp), and its parts, from running the order, (4)."""
    rank, count = np.array(plan.choice.chunk_device), len(plan.first)
    chunk = np.arange(count)[:, None, None]
    alone = np.stack([part[plan.kinds[:, rank], chunk].max(axis=-1) for part in plan.passes])
    forward = plan.rings(plan.plain / 2, rank)
    rings = np.stack([forward, plan.rings(plan.every - plan.plain / 2, rank), 0 * forward])
    away = (rank[:-1] != rank[1:])[:, None]
    hops = np.where(away, plan.case.coefficient("pipeline") * plan.hops(rank).max(axis=-1) / 2, 0.0)
    rows = np.concatenate([np.moveaxis(part, -2, 0) for part in (*alone, *rings, hops)])
    shape = rows.shape[1:]
    rows, where = np.unique(rows.reshape(len(rows), -1), axis=1, return_inverse=True)
    own, more, transfer = rows[: 3 * count], rows[3 * count : 6 * count], rows[6 * count :]
    seconds = np.concatenate([own + more, own + more, own], axis=1).reshape(3, count, -1)
    found = makespans(order, seconds, np.concatenate([transfer, 0 * transfer, 0 * transfer], axis=1))
    total, still, bare = found.reshape(3, -1)[:, where.ravel()].reshape(3, *shape)
    z = np.flatnonzero(total[0] >= total[0].max() * (1 - TIED))
    return total, np.column_stack([bare[0][z], (still - bare)[0][z], (total - still)[0][z]])


def _data_parallel(plan: _Plan) -> Floats:
    """Seconds of the rings of gradients (n,), (5) and (6)."""
    choice, case = plan.choice, plan.case
    if choice.dp == 1:
        return np.zeros(len(plan.devices))
    stored, gradient, _ = PARAMETER_BYTES[case.memory.precision]
    m, weight = choice.num_micro_batches, case.coefficient("data_parallel")
    moved = {2: (m * gradient + stored) / 2, 3: m * (gradient + 2 * stored) / 2}.get(choice.zero, gradient)
    message = weight * moved * plan.summed(plan.layers.parameters)
    members = np.swapaxes(plan.devices, -1, -2)
    if case.latency_model != "amp":
        first = message[np.array(choice.chunk_device) == 0].sum()
        return np.asarray(first * _hierarchical(plan.network, members[:, 0]).max(axis=-1))
    rate, latency = _slowest_link(plan.network, members, shared=True)
    n = choice.dp
    rings = 2 * (n - 1) / n * message[:, None] / rate + weight * 2 * (n - 1) * latency
    return np.asarray(rings.max(axis=(-1, -2)))


def _hierarchical(network: Network, members: Ints) -> Floats:
    """Seconds per byte of the rings of replicas (n, tp, dp), inside nodes and between them: (n, tp), (5)."""
    ends = np.sort(network.node_of[members] if network.by_node else members, axis=-1)
    groups, where = np.unique(ends.reshape(-1, ends.shape[-1]), axis=0, return_inverse=True)
    return np.array([_ring(network, group) for group in groups])[where.ravel()].reshape(members.shape[:-1])


def _ring(network: Network, ends: Ints) -> float:
    """Seconds per byte of one ring, of members at these nodes, or devices where links differ within nodes."""
    if network.by_node:
        nodes, count = np.unique(ends, return_counts=True)
        ends = np.concatenate([[0], np.cumsum(network.size)])[nodes]
        own = 1 / network.rate(ends, ends)
    else:
        nodes, of, count = np.unique(network.node_of[ends], return_inverse=True, return_counts=True)
        own = np.zeros(len(nodes))
    rate = network.rate(ends[:, None], ends[None, :], int(network.size.max()))
    slowness = 1 / np.minimum(rate, rate.T)
    if not network.by_node:
        same = of[:, None] == of[None, :]
        np.fill_diagonal(slowness, 0.0)
        np.maximum.at(own, of, np.where(same, slowness, 0.0).max(axis=1))
        slowness = np.where(same, 0.0, slowness)
    k = len(nodes)
    between = np.where(np.eye(len(slowness), dtype=bool), 0.0, slowness).max()
    return float((4 * (count - 1) / count * own).max() + 2 * (k - 1) / k * between)


def _slowest_link(network: Network, members: Ints, *, shared: bool = False) -> tuple[Floats, Floats]:
    """Least rate and largest latency between any two of the members (..., k), either way."""
    senders = int(network.size.max()) if shared else None
    nodes = network.node_of[members]
    if network.by_node and members.shape[-1] > 1 and (nodes == nodes[..., :1]).all():
        members = members[..., :2]
    a, b = np.nonzero(~np.eye(members.shape[-1], dtype=bool))
    i, j = members[..., a], members[..., b]
    return network.rate(i, j, senders).min(axis=-1), network.latency(i, j).max(axis=-1)


def _optimizer(plan: _Plan) -> Floats:
    """Optimizer seconds of the first device's parameters (n,), (7)."""
    if plan.case.latency_model != "pipette":
        return np.zeros(len(plan.devices))
    priced = plan.case.costs.optimizer_s_per_parameter
    slowest = np.array([priced.get(name, 0.0) for name in plan.case.cluster.devices])[plan.kinds[:, 0]].max(axis=(1, 2))
    first = plan.summed(plan.layers.parameters)[np.array(plan.choice.chunk_device) == 0].sum()
    return np.asarray(slowest * first / (plan.choice.dp if plan.choice.zero else 1))
