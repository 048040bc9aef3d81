"""
Sites of a plan's cluster in the order of its stages, with the links between them and what the placement uses of them.

Sites a, b are devices or nodes, ordered by the first stage on their node, as ``taut.plots.placement`` says, whose
equations (1) and (2) are meant here.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.units import GIGABIT
from taut.formulations.links import links

if TYPE_CHECKING:
    from taut.planning.plan import Plan


@dataclass(frozen=True)
class Grid:
    """
    Sites in drawing order, by number in ``site``, on the nodes ``node``.

    ``rate`` is Gb/s with NaN from a device to itself, ``shared`` the same in data-parallel rings, and ``at`` the
    place in the order of every worker (pp, dp, tp cp); ``tp`` tensor ranks.
    """

    site: Ints
    node: Ints
    rate: Floats
    shared: Floats
    at: Ints
    tp: int

    @cached_property
    def groups(self) -> list[list[tuple[int, int]]]:
        """Stage and replica of every block on each site."""
        found: list[set[tuple[int, int]]] = [set() for _ in self.site]
        for (x, z, _), place in np.ndenumerate(self.at):
            found[place].add((x, z))
        return [sorted(groups) for groups in found]

    @cached_property
    def hops(self) -> Counter[tuple[int, int]]:
        """How many hops between stages use each cell, (1); the ranks of a block count once."""
        pairs = np.stack([self.at[:-1], self.at[1:]], axis=-1).reshape(-1, self.at.shape[-1], 2).tolist()
        return Counter(cell for group in pairs for cell in {(a, b) for a, b in group})

    @cached_property
    def ring(self) -> list[tuple[int, int]]:
        """Cells of stage 0's all-reduce, (2)."""
        ranks = [Counter(rank) for rank in self.at[0].reshape(-1, self.tp).T.tolist()]
        return sorted({(a, b) for rank in ranks for a in rank for b in rank if a != b or rank[a] > 1})

    @property
    def slowest(self) -> list[tuple[int, int]]:
        """Cells that the all-reduce waits for, with the network cards shared; none where all are equal."""
        rates = {(a, b): self.shared[a, b] for a, b in self.ring if a != b}
        least, most = min(rates.values(), default=0.0), max(rates.values(), default=0.0)
        return [cell for cell, rate in rates.items() if rate == least < most]

    @property
    def square(self) -> float:
        """Width of one square of the bands, in cells."""
        return max(0.55, 0.03 * len(self.site))

    @property
    def margin(self) -> float:
        """Width that the bands take, in cells."""
        return self.square * (0.8 + max(len(groups) for groups in self.groups))


def grid_of(plan: "Plan") -> Grid:
    """The links of a plan's cluster in drawing order: nodes by their first worker, devices by node and worker."""
    net = links(plan.cluster_spec)
    devices = np.array(plan.devices, dtype=np.int64)
    worker = np.argsort(devices.ravel())
    first = np.full(net.num_nodes, devices.size)
    np.minimum.at(first, net.node_of, worker)
    if net.by_node and net.num_nodes > 1:
        order = np.argsort(first)
        cells, at = np.ix_(order, order), np.argsort(order)[net.node_of[devices]]
        return Grid(order, order, net.rate[cells] / GIGABIT, net.data_rate[cells] / GIGABIT, at, plan.strategy.tp)
    order = np.lexsort((worker, first[net.node_of]))
    cells = np.ix_(net.site_of[order], net.site_of[order])
    rate = np.where(np.eye(len(order), dtype=bool), np.nan, net.rate[cells] / GIGABIT)
    at = np.argsort(order)[devices]
    return Grid(order, net.node_of[order], rate, net.data_rate[cells] / GIGABIT, at, plan.strategy.tp)
