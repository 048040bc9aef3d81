r"""
The links of a block: seconds per byte and of latency over which its groups exchange (``block_traffic``).

(1) A tensor group, and a context ring, has its slowest inverse rate and its largest latency. Of its nodes' cards a
    context ring with g of G devices on a node gets g / G.
(2) An expert group, and context ranks that share attention by an all-to-all, have their slowest link inside nodes, and
    between them the slowest or, of the cards N of a node with G devices, the share N / G where that is less; and the
    largest latency. Where context ranks pass keys between nodes alone (``a2a+p2p``), a ring has that link between them.
(3) Of a block the slowest of each kind of group counts, each kind for itself.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.stack import ContextKind
from taut.formulations.degrees import BlockShape
from taut.formulations.links import Links


class BlockLink(NamedTuple):
    """
    Seconds per byte and latency of the links of a block: tensor groups, context rings, all-to-alls of experts.

    An exchange of experts, and of context ranks, has seconds per byte inside nodes and between them.
    """

    inverse: Floats | float
    latency: Floats | float
    context_inverse: Floats | float
    context_latency: Floats | float
    near_inverse: Floats | float = 0.0
    far_inverse: Floats | float = 0.0
    expert_latency: Floats | float = 0.0
    context_near: Floats | float = 0.0
    context_far: Floats | float = 0.0


FIGURES = len(BlockLink._fields)


def block_link(links: Links, devices: Ints, block: BlockShape) -> BlockLink:
    """
    Slowest links of blocks, (1) to (3).

    ``links``: links of the cluster; ``devices``: devices of blocks, (..., width); ``block``: degrees of a block.
    Returns figures (...).
    """
    groups = devices.reshape(*devices.shape[:-1], -1, block.tp)
    inverse, latency = (figure.max(axis=-1) for figure in _slowest(links, groups))
    context, expert, apart = (np.zeros_like(inverse),) * 2, (np.zeros_like(inverse),) * 3, (np.zeros_like(inverse),) * 2
    if block.cp > 1:
        rings = np.swapaxes(devices.reshape(*devices.shape[:-1], -1, block.cp, block.tp), -1, -2)
        context, apart = _context(links, rings, block.cp_comm)
    if block.ep > 1:
        peers = np.swapaxes(devices.reshape(*devices.shape[:-1], -1, block.ep, block.etp), -1, -2)
        near, far, wait = (figure.max(axis=(-1, -2)) for figure in _exchange(links, peers))
        expert = near, far, wait
    return BlockLink(inverse, latency, *context, *expert, *apart)


def _context(links: Links, rings: Ints, kind: ContextKind) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Figures of context ranks (..., cp): of a ring, and of all-to-alls inside nodes and between them, (1) and (2)."""
    if kind in ("p2p", "all_gather"):
        between, wait = _slowest(links, rings)
        ring = np.maximum(between, _card(links, rings)).max(axis=(-1, -2))
        return (ring, wait.max(axis=(-1, -2))), (np.zeros_like(ring), np.zeros_like(ring))
    near, far, wait = (figure.max(axis=(-1, -2)) for figure in _exchange(links, rings))
    none = np.zeros_like(near)
    return ((far, wait), (near, none)) if kind == "a2a+p2p" else ((none, wait), (near, far))


def _exchange(links: Links, peers: Ints) -> tuple[Floats, Floats, Floats]:
    """Seconds per byte among peers (..., ep) inside nodes and between them, 0 where none are, and of latency, (2)."""
    sites, nodes, ep = links.site_of[peers], links.node_of[peers], peers.shape[-1]
    pairs = sites[..., :, None], sites[..., None, :]
    same, inverse = nodes[..., :, None] == nodes[..., None, :], 1.0 / links.rate[pairs]
    inside = np.where(same & ~np.eye(ep, dtype=bool), inverse, 0.0).max(axis=(-1, -2))
    between = np.where(same, 0.0, inverse).max(axis=(-1, -2))
    share = (links.gpus_per_node[nodes] / links.cards[nodes]).max(axis=-1)
    apart = np.where(same.all(axis=(-1, -2)), 0.0, np.maximum(between, share))
    return np.asarray(inside), np.asarray(apart), _slowest(links, peers)[1]


def _slowest(links: Links, groups: Ints) -> tuple[Floats, Floats]:
    """Seconds per byte and of latency of the slowest pair of every group (..., n)."""
    sites = links.site_of[groups]
    pairs = sites[..., :, None], sites[..., None, :]
    apart = ~np.eye(groups.shape[-1], dtype=bool)
    inverse = np.where(apart, 1.0 / links.rate[pairs], 0.0).max(axis=(-1, -2))
    return inverse, np.where(apart, links.latency[pairs], 0.0).max(axis=(-1, -2))


def _card(links: Links, rings: Ints) -> Floats:
    """Seconds per byte of a ring's share of the cards of its nodes, 0 inside a node, (1)."""
    nodes = links.node_of[rings]
    members = (nodes[..., :, None] == nodes[..., None, :]).sum(axis=-1)
    each = links.gpus_per_node[nodes] / (links.cards[nodes] * members)
    return np.asarray(np.where(members < rings.shape[-1], each, 0.0).max(axis=-1))


def best_block(links: Links, of_type: Flags, block: BlockShape) -> BlockLink:
    """
    Figures of (1) to (3) that no block on nodes of one type, or on several nodes of any type, has less of.

    ``links``: bandwidth and latency between sites; ``of_type``: whether a node is of the type (nodes,). Returns
    numbers.
    """
    size = int(links.gpus_per_node.max())
    if block.width <= size:
        return BlockLink(*blocks_of_nodes(links, block)[:, of_type].min(axis=1).tolist())
    if block.tp == block.width and block.ep == 1:
        return BlockLink(*links.best_spanning_group(block.tp), 0.0, 0.0)
    exchanged = block.cp_comm in ("a2a", "a2a+p2p")
    inner = max(size // block.tp, 1) if exchanged else 1
    within = block._replace(
        cp=block.cp if block.replica <= size else inner, ep=block.ep if block.experts <= size else size // block.etp
    )
    found = BlockLink(*blocks_of_nodes(links, within).min(axis=1).tolist())
    if block.replica > size:
        apart, wait = links.best_nodes(block.replica // size)
        members = block.tp if not exchanged else links.gpus_per_node
        apart = max(apart, float((members / links.cards).min()))
        field = "context_far" if block.cp_comm == "a2a" else "context_inverse"
        found = found._replace(**{field: apart, "context_latency": wait})
    if block.experts > size:
        apart, wait = links.best_nodes(block.experts // size)
        apart = max(apart, float((links.gpus_per_node / links.cards).min()))
        found = found._replace(far_inverse=apart, expert_latency=wait)
    return found


def blocks_of_nodes(links: Links, block: BlockShape) -> Floats:
    """Figures of (1) to (3) that no block in a node beats (9, nodes); exact where devices are interchangeable."""
    found = np.zeros((FIGURES, links.num_nodes))
    context = [2, 3] if block.cp_comm in ("p2p", "all_gather") else [7, 3]
    for at, members in (([0, 1], block.tp), (context, block.cp), ([4, 6], block.ep)):
        if members > 1:
            found[at] = links.best_groups(members)
    return found
