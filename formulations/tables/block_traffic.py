r"""
What the devices of a block exchange within it: all-reduces of tensor groups, keys and values of context ranks.

A block are the tp cp devices of one stage and replica, tensor ranks first: device c tp + t has tensor rank t and
context rank c. Devices of one c are a tensor group, those of one t a context ring. Each context rank has 1/cp of the
tokens of every sequence; with b sequences of s tokens, elements of e bytes, and keys w wide on one tensor rank,

(1) a tensor group sums a layer's output 4 times for every micro-batch, twice of them forward, and twice more where the
    layer is recomputed as a whole, each by a ring (``taut.formulations.rings`` (1));
(2) a context ring passes the keys and values of every rank, :math:`M = e b w s / cp` bytes, through all others in
    cp - 1 steps: once forward, twice backward, with their gradients, and once more where attention is computed again
    (Liu et al. 2023, arXiv 2310.01889);
(3) seconds are bytes times the slowest inverse rate, plus steps times the largest latency, of the tensor group and of
    the context ring. Of its nodes' cards a context ring with g of G devices on a node gets g / G;
(4) none of it overlaps computation.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.links import Links
from taut.formulations.rings import ring_factor, ring_steps
from taut.formulations.tables.priced_layers import PricedLayers

REDUCTIONS = {"none": 4, "selective": 4, "full": 6}
"""All-reduces of a layer and micro-batch in Megatron by recompute, (1)."""
PASSED = {"none": 3, "selective": 4, "full": 4}
"""Times that keys and values pass their ring for a layer and micro-batch by recompute, (2)."""


class BlockLink(NamedTuple):
    """Seconds per byte and of latency of a block's slowest links: of tensor groups, and of context rings, (3)."""

    inverse: Floats | float
    latency: Floats | float
    context_inverse: Floats | float
    context_latency: Floats | float


class Traffic(NamedTuple):
    """Bytes over the slowest link and steps, of tensor groups and of context rings, each of one shape, (1) and (2)."""

    group_bytes: Floats
    group_steps: Floats
    context_bytes: Floats
    context_steps: Floats

    def at(self, *index: Ints | int) -> "Traffic":
        """The entries at an index."""
        return Traffic(*(figure[index] for figure in self))

    def less(self, other: "Traffic") -> "Traffic":
        """What remains without another traffic."""
        return Traffic(*(mine - its for mine, its in zip(self, other, strict=True)))

    def seconds(self, link: BlockLink) -> Floats:
        """Seconds on the links of blocks, (3), of the shape that both broadcast to."""
        return np.asarray(sum(figure * price for figure, price in zip(self, link, strict=True)))

    def by_place(self, links: Links, tp: int, width: int) -> tuple[Floats, Floats, Floats]:
        """
        Split it by what its seconds depend on, for searches that move blocks.

        Parameters
        ----------
        links
            Links of the cluster.
        tp, width
            Devices of a tensor group and of a block.

        Returns
        -------
        tuple
            Seconds wherever the block is, and bytes and steps over its slowest link. In blocks of several nodes tensor
            groups are on the best link inside a node.
        """
        if tp == width or width <= links.gpus_per_node.max():
            moved, steps = self.group_bytes + self.context_bytes, self.group_steps + self.context_steps
            return np.zeros_like(moved), moved, steps
        link = best_block(links, np.ones(links.num_nodes, bool), tp, tp)
        inside = self.group_bytes * link.inverse + self.group_steps * link.latency
        return np.asarray(inside), self.context_bytes, self.context_steps


class BlockSeconds(NamedTuple):
    """Seconds of traffic by range on n blocks: both passes (n, recompute, L+1, L+1), forward (n, 1, L+1, L+1)."""

    both: Floats
    forward: Floats


ALONE = BlockSeconds(np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 1, 1)))
"""A block of one device exchanges nothing."""


def block_seconds(both: Traffic, forward: Traffic, links: Iterable[BlockLink]) -> BlockSeconds:
    """Seconds of the traffic of every range on some blocks, (3)."""
    each = list(links)
    return BlockSeconds(
        np.stack([both.seconds(link) for link in each]), np.stack([forward.seconds(link)[None] for link in each])
    )


def traffic_tables(priced: PricedLayers, coefficient: float) -> tuple[Traffic, Traffic]:
    """
    Traffic of both passes of every range of layers (recompute, L+1, L+1), and of the forward pass (L+1, L+1).

    Parameters
    ----------
    priced
        The layers at one (tp, cp, micro_batch).
    coefficient
        What a calibration multiplies it by.
    """
    tp, turns = priced.tp, priced.cp - 1
    widths = [layer.keys_and_values(tp) for layer in priced.kinds]
    tokens = [priced.micro_batch * layer.seq // priced.cp for layer in priced.kinds]
    output = [priced.element * count * layer.hidden for count, layer in zip(tokens, priced.kinds, strict=True)]
    passed = [priced.element * count * width for count, width in zip(tokens, widths, strict=True)]

    def traffic(reductions: int, passes: int) -> Traffic:
        figures = (
            [ring_factor(tp) * reductions * out for out in output],
            [float(ring_steps(tp) * reductions)] * len(output),
            [float(turns * passes * own) for own in passed],
            [float(turns * passes)] * len(output),
        )
        return Traffic(*(coefficient * priced.sums(figure, 0, 0) for figure in figures))

    both = [traffic(REDUCTIONS[kind], PASSED[kind]) for kind in RECOMPUTE]
    return Traffic(*(np.stack(figures) for figures in zip(*both, strict=True))), traffic(2, 1)


def block_link(links: Links, devices: Ints, tp: int) -> BlockLink:
    """
    Slowest links of blocks, (3).

    Parameters
    ----------
    links
        Links of the cluster.
    devices
        Devices of blocks, (..., tp cp).
    tp
        Tensor degree.

    Returns
    -------
    BlockLink
        Figures (...).
    """
    groups = devices.reshape(*devices.shape[:-1], -1, tp)
    inverse, latency = (figure.max(axis=-1) for figure in _slowest(links, groups))
    if groups.shape[-2] == 1:
        return BlockLink(inverse, latency, np.zeros_like(inverse), np.zeros_like(latency))
    rings = np.swapaxes(groups, -1, -2)
    between, wait = _slowest(links, rings)
    apart = np.maximum(between, _card(links, rings))
    return BlockLink(inverse, latency, apart.max(axis=-1), wait.max(axis=-1))


def _slowest(links: Links, groups: Ints) -> tuple[Floats, Floats]:
    """Seconds per byte and of latency of the slowest pair of every group (..., n)."""
    sites = links.site_of[groups]
    pairs = sites[..., :, None], sites[..., None, :]
    apart = ~np.eye(groups.shape[-1], dtype=bool)
    inverse = np.where(apart, 1.0 / links.rate[pairs], 0.0).max(axis=(-1, -2))
    return inverse, np.where(apart, links.latency[pairs], 0.0).max(axis=(-1, -2))


def _card(links: Links, rings: Ints) -> Floats:
    """Seconds per byte of a ring's share of the cards of its nodes, 0 inside a node, (3)."""
    nodes = links.node_of[rings]
    members = (nodes[..., :, None] == nodes[..., None, :]).sum(axis=-1)
    each = links.gpus_per_node[nodes] / (links.cards[nodes] * members)
    return np.asarray(np.where(members < rings.shape[-1], each, 0.0).max(axis=-1))


def best_block(links: Links, of_type: Flags, tp: int, width: int) -> BlockLink:
    """
    Figures of (3) that no block on nodes of one type, or on several nodes of any type, has less of.

    Parameters
    ----------
    links
        Bandwidth and latency between sites.
    of_type
        Whether a node is of the type (nodes,).
    tp, width
        Devices of a tensor group and of a block.

    Returns
    -------
    BlockLink
        Numbers.
    """
    if width <= links.gpus_per_node.max():
        return BlockLink(*blocks_of_nodes(links, tp, width)[:, of_type].min(axis=1).tolist())
    if tp == width:
        return BlockLink(*links.best_spanning_group(tp), 0.0, 0.0)
    inverse, latency, _, _ = blocks_of_nodes(links, tp, tp).min(axis=1).tolist()
    apart, wait = links.best_nodes(width // int(links.gpus_per_node[0]))
    return BlockLink(inverse, latency, max(apart, float((tp / links.cards).min())), wait)


def blocks_of_nodes(links: Links, tp: int, width: int) -> Floats:
    """Figures of (3) that no block inside a node beats (4, nodes); exact where devices are interchangeable."""
    found = np.zeros((4, links.num_nodes))
    if tp > 1:
        found[:2] = links.best_groups(tp)
    if width > tp:
        found[2:] = links.best_groups(width // tp)
    return found
