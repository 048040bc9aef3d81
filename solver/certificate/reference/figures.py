r"""
What the stages of a plan take on their devices.

Worker (x, z, y) of stage x, replica z and rank y runs on ``devices[x, z, y]``; y = c tp + t has context rank c and
tensor rank t.

(1) All-reduces of a tensor group, 4 of every layer's output and 6 under full recompute:
    ring(M, n, B) = 2 (n - 1)/n M/B + 2 (n - 1) latency on the group's slowest link. Half of those without recompute run
    forward, all others backward. Each of cp context ranks sends keys and values to the next cp - 1 times, forward
    once, backward twice, and once more where attention is computed again. Their link is the slowest of those with one
    tensor rank, or between nodes the share of a node's cards of those of them that it holds.
(2) A hop takes latency + message/B either way; message is the last layer's output, divided by tp with sequence
    parallelism.
(3) A backward pass takes the gradients by input and weights on the slowest type of the tensor group; where an order
    runs them apart, each on the slowest for it.
"""

from functools import cached_property

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.solver.certificate.reference.layers import RECOMPUTE, layers_of
from taut.solver.certificate.reference.memory import Stages
from taut.solver.certificate.reference.network import Network
from taut.solver.certificate.reference.space import CLOSED_FORM, Case, Choice


class Figures:
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
        #: Seconds (3, types, layers), and (3, types, chunks).
        self.by_layer = self.layers.passes[:, :, row, np.arange(len(row))]
        self.passes = self.summed(self.by_layer)
        #: Bytes and numbers of all-reduces and of keys and values (4, chunks): those of the forward pass, and all.
        layers, one = self.layers, np.ones(len(row))
        each = np.array([layers.output, one, layers.keys, one]) * case.coefficient("tensor_parallel")
        self.sent, self.is_last = np.array([2, 2, 1, 1])[:, None] * each, np.isin(np.arange(len(row)), self.last)
        self.parameters = self.summed(layers.parameters)
        times = np.repeat([np.where(row == 2, 6, 4), np.where(row > 0, 4, 3)], 2, axis=0)
        self.forward, self.every = self.summed(self.sent), self.summed(times * each)

    def summed(self, figures: Floats | Ints) -> Floats:
        """Figures by layer (..., L), summed over the layers of every chunk."""
        return np.asarray(np.add.reduceat(figures, self.first, axis=-1))

    @cached_property
    def holders(self) -> Ints:
        """Devices by the weights that they hold, (n, pp, dp cp, tp)."""
        return self.devices.reshape(*self.devices.shape[:2], -1, self.choice.tp)

    @cached_property
    def group_link(self) -> tuple[Floats, Floats]:
        """Least rate and largest latency within the tensor groups of every block, (n, pp, dp)."""
        rate, latency = self.network.slowest(self.holders)
        shape = *self.devices.shape[:3], self.choice.cp
        return rate.reshape(shape).min(axis=-1), latency.reshape(shape).max(axis=-1)

    @cached_property
    def context_link(self) -> tuple[Floats, Floats]:
        """Least rate and largest latency among the context ranks of every block, (n, pp, dp), (1)."""
        network, (tp, cp) = self.network, (self.choice.tp, self.choice.cp)
        found = []
        for t in range(tp):
            ring = self.devices[..., t::tp]
            rate, latency = network.slowest(ring)
            nodes = network.node_of[ring]
            here = np.stack([(nodes == nodes[..., c : c + 1]).sum(axis=-1) for c in range(cp)], axis=-1)
            share = np.where(here < cp, network.cards[nodes] * here / network.size[nodes], np.inf)
            found.append((np.minimum(rate, share.min(axis=-1)), latency))
        rates, latencies = zip(*found, strict=True)
        return np.min(rates, axis=0), np.max(latencies, axis=0)

    def rings(self, sent: Floats, rank: Ints) -> Floats:
        """Seconds of all-reduces, and of keys and values, (4, C) in blocks of pipeline ranks (C,): (n, C, dp), (1)."""
        tp, cp, found = self.choice.tp, self.choice.cp, np.zeros((len(self.devices), len(rank), self.choice.dp))
        moved, steps, keys, turns = sent[:, :, None]
        if tp > 1:
            rate, latency = (figure[:, rank] for figure in self.group_link)
            found = found + 2 * (tp - 1) / tp * moved / rate + 2 * (tp - 1) * steps * latency
        if cp > 1:
            rate, latency = (figure[:, rank] for figure in self.context_link)
            found = found + (cp - 1) * (keys / rate + turns * latency)
        return np.asarray(found)

    def alone(self, rank: Ints) -> Floats:
        """Seconds of the three passes of every chunk on its slowest device type, (3, n, C, dp)."""
        chunk = np.arange(len(rank))[:, None, None]
        return np.stack([part[self.kinds[:, rank], chunk].max(axis=-1) for part in self.passes])

    def backward(self) -> Floats:
        """Seconds of one micro-batch's backward passes on every pipeline rank, (n, pp, dp), (1) and (3)."""
        rank = np.array(self.choice.chunk_device)
        if self.choice.schedule in CLOSED_FORM:
            alone = self.passes[1:].sum(axis=0)[self.kinds, rank[:, None, None]].max(axis=-1)
        else:
            alone = self.alone(rank)[1:].sum(axis=0)
        by_chunk = alone + self.rings(self.every - self.forward, rank)
        return np.stack([by_chunk[:, rank == x].sum(axis=1) for x in range(self.choice.pp)], axis=1)

    def by_rank(self, figures: Floats | Ints) -> Floats:
        """Figures of every chunk, summed on its pipeline rank, (pp,)."""
        total: Floats = np.bincount(self.choice.chunk_device, figures, self.choice.pp).astype(float)
        return total

    def hops(self, rank: Ints, *, back: bool) -> Floats:
        """Seconds from every chunk to the next, on pipeline ranks (C,), or back: (n, C - 1, dp, tp), (2)."""
        i, j, choice = self.devices[:, rank[:-1]], self.devices[:, rank[1:]], self.choice
        if back:
            i, j = j, i
        message = self.layers.output[self.last[:-1]] / (choice.tp if choice.sequence_parallel else 1)
        return np.asarray(self.network.latency(i, j) + message[:, None, None] / self.network.rate(i, j, choice.block))
