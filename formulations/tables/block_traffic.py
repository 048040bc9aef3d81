r"""
What the devices of a block exchange within it: all-reduces of tensor groups, keys and values, tokens of experts.

A block holds whole replicas of tp cp devices, and whole expert groups of x ep devices (``taut.formulations.degrees``).
Device c tp + t of a replica has tensor rank t and context rank c. Devices with the same c are a tensor group, and
devices with the same t a context ring. In an expert group the devices with the same remainder by x exchange tokens.
Each context rank has 1/cp of the tokens of every sequence. A micro-batch has b sequences of s tokens, an element e
bytes, and the keys of a tensor rank are w wide.

(1) A tensor group sums a layer's output 4 times for every micro-batch, 2 of these forward, and 2 times more if the
    layer is recomputed as a whole, each by a ring (``taut.formulations.rings`` (1)).
(2) Context ranks share attention in one of four ways (``taut.formulations.degrees`` (4)).

    - A ring passes the keys and values of every rank, :math:`M = e b w s / cp` bytes, through all other ranks in cp - 1
      steps: once forward, twice backward with their gradients, and once more if attention is computed again (Liu et al.
      2023, arXiv 2310.01889).
    - A gather of all keys moves the same bytes: a gather forward, and a gather and a scatter of gradients backward.
    - An all-to-all moves queries, keys, values and the attention's output, :math:`e b (2 q + w) s / cp` bytes with
      queries q wide on a tensor rank. Each other rank gets 1/cp of them (Jacobs et al. 2023, arXiv 2309.14509): once
      forward, once backward, and once more if attention is computed again, in two steps.
    - ``a2a+p2p`` is an all-to-all among the g context ranks of a node, and a ring of cp / g - 1 steps of M bytes
      between nodes (Fang and Zhao 2024, arXiv 2405.07719).
    - A layer that mixes tokens otherwise than by attention has an all-to-all of its heads under every kind
      (``taut.data.layers.mixer`` (5)), once forward, once backward, and once more under full recompute.
(3) If a stack overlaps a ring, a step runs during the attention of the step before. With n steps a turn and a window of
    :math:`w_s` tokens this attention has :math:`4 b w_s q s / (cp \, n)` FLOP over the full square, at the rate that
    the fastest device states for attention. A step then costs its latency, since both streams meet once a step, and
    the time by which its bytes take longer. Backward, keys pass with their gradients during an attention that is twice
    as long. Gathers and all-to-alls run before and after attention, and nothing hides them (Transformer Engine,
    ``context_parallel.py``).
(4) With expert ranks each device has 1/tp of its context rank's tokens: :math:`T = b s / (cp\,tp)` tokens of
    :math:`e h` bytes. k of E experts take a token. Routing is even, so a share q of the experts gets a token with
    probability :math:`p(q) = 1 - \binom{E - qE}{k} / \binom{E}{k}`, or less if the router keeps a token within some
    groups of experts (``taut.data.layers.experts`` (5)). A token crosses to a node once, whatever the number of its
    experts there. In a node it goes once to each device with some of its experts (DeepEP, HybridEP: the flex dispatcher
    of Megatron-LM). A node has g of the group's ep devices, and gives each of its G devices N / G of its cards. With
    the slowest links of the group inside nodes and between them an exchange takes

    .. math:: e T h \Big( ep \frac{g - 1}{g} p \big( \tfrac{1}{ep} \big) \frac{1}{B_{in}} + \big( \tfrac{ep}{g} - 1
        \big) p \big( \tfrac{g}{ep} \big) \max \big( \tfrac{1}{B_{out}}, \tfrac{G}{N} \big) \Big)

    and the largest latency of the group once. Tokens are dispatched and combined forward, again backward, and again if
    the layer is recomputed as a whole. The all-reduce (1) of the feed-forward part is then the all-reduce of shared
    experts, if there are some. If x = tp, there is one more all-reduce, of the :math:`e k b s h / cp` bytes that the
    group's experts take: a gather before the experts, and a scatter after them.

    - With the dispatcher ``alltoall`` (``taut.data.layers.experts``) each of a token's k rows goes to its own expert:
      :math:`k (g - 1) / ep` inside the node, and :math:`k (ep - g) / ep` to other nodes.
    - With ``allgather`` every token goes to all nodes and all of their devices: p = 1 for every k, and ep rows in the
      place of k through each tensor group. It is the ring of an all-gather of the x ep devices, and of a reduce-scatter
      back, in x ep - 1 steps of the largest latency. With scores of s bytes a token takes :math:`e h + (s + 1) E` bytes
      forward, in three gathers: the tokens, the scores of all experts, and a byte for each expert that says whether it
      takes the token. :math:`s h` bytes come back, since outputs are cast to the scores' format and summed in it.
      Backward :math:`s h` are gathered, and :math:`e h + s E` are summed and scattered in two, as the byte has no
      gradient (``MoEAllGatherTokenDispatcher`` and ``topk_routing_with_score_function`` of Megatron-LM).
    - Bytes are multiplied by the imbalance factor, except under ``allgather``. What is dispatched forward, or again, is
      in the format of dispatches.
    - If a candidate hides exchanges (``taut.formulations.mechanisms.expert_ranks`` (14)), E seconds of a layer's
      exchanges take :math:`\max(0, E - H)`. H is the least seconds of both passes of a layer with experts; half of H
      hides the exchanges forward. All such layers are equal, so ranges have sums of E and of H.
(5) Seconds are bytes times the slowest inverse rate, plus steps times the largest latency, of the tensor group and of
    the context ranks. A context ring with g of the G devices of a node gets g / G of the node's cards. Except for (3)
    and (4) nothing overlaps computation.
(6) If named modules are recomputed (``taut.data.analytic.recompute_modules``), ``core_attn`` passes keys and values
    once more. ``mlp``, ``moe`` and, with expert ranks, ``shared_experts`` sum their outputs once more. ``moe`` also
    dispatches and combines once more.

The links of a block, over which its groups exchange:

(7) a tensor group, and a context ring, has its slowest inverse rate and its largest latency. Of its nodes' cards a
    context ring with g of G devices on a node gets g / G;
(8) an expert group, and context ranks that share attention by an all-to-all, have their slowest link inside nodes, and
    between them the slowest or, of the cards N of a node with G devices, the share N / G where that is less; and the
    largest latency. Where context ranks pass keys between nodes alone (``a2a+p2p``), a ring has that link between them;
(9) of a block the slowest of each kind of group counts, each kind for itself.

(10) An encoder of images sums its outputs (``taut.data.layers.encoder`` (4)) on the stage of the embedding.

A layer's bytes, steps and hidden seconds are summed over its kinds (``taut.formulations.tables.priced_layers`` (1)).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE, Module
from taut.data.layers.layer import LayerSpec
from taut.data.stack import ContextKind
from taut.formulations.degrees import BlockShape, inner_contexts
from taut.formulations.links import Links
from taut.formulations.rings import ring_factor, ring_steps
from taut.formulations.tables.priced_layers import FULL, PricedLayers


class BlockLink(NamedTuple):
    """Seconds per byte and latency of the links of a block, of exchanges inside nodes (near) and between (far)."""

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
    """Slowest links of blocks, (7) to (9), by figure (...), of devices (..., width)."""
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
    """Figures of context ranks (..., cp): of a ring, and of all-to-alls inside nodes and between them, (7) and (8)."""
    near, far, wait = (figure.max(axis=(-1, -2)) for figure in _exchange(links, rings))
    if kind in ("p2p", "all_gather"):
        ring = np.maximum(_slowest(links, rings)[0], _card(links, rings)).max(axis=(-1, -2))
        return (ring, wait), (near, far)
    return (far if kind == "a2a+p2p" else np.zeros_like(far), wait), (near, far)


def _exchange(links: Links, peers: Ints) -> tuple[Floats, Floats, Floats]:
    """Seconds per byte among peers (..., ep) inside nodes and between them, 0 where none are, and of latency, (8)."""
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
    """Seconds per byte of a ring's share of the cards of its nodes, 0 inside a node, (7)."""
    nodes = links.node_of[rings]
    members = (nodes[..., :, None] == nodes[..., None, :]).sum(axis=-1)
    each = links.gpus_per_node[nodes] / (links.cards[nodes] * members)
    return np.asarray(np.where(members < rings.shape[-1], each, 0.0).max(axis=-1))


def best_block(links: Links, of_type: Flags, block: BlockShape) -> BlockLink:
    """Figures of (7) to (9) that no block on nodes of one type (nodes,), or on several of any, has less of."""
    size = int(links.gpus_per_node.max())
    if block.width <= size:
        return BlockLink(*blocks_of_nodes(links, block)[:, of_type].min(axis=1).tolist())
    if block.tp == block.width and block.ep == 1:
        return BlockLink(*links.best_spanning_group(block.tp), 0.0, 0.0)
    inner = max(size // block.tp, 1)
    within = block._replace(
        cp=block.cp if block.replica <= size else inner, ep=block.ep if block.experts <= size else size // block.etp
    )
    found = BlockLink(*blocks_of_nodes(links, within).min(axis=1).tolist())
    if block.replica > size:
        between, wait = links.best_nodes(block.replica // size)
        ring, far = (max(between, float((n / links.cards).min())) for n in (block.tp, links.gpus_per_node))
        ring = ring if block.cp_comm in ("p2p", "all_gather") else far
        found = found._replace(context_inverse=ring, context_far=far, context_latency=wait)
    if block.experts > size:
        apart, wait = links.best_nodes(block.experts // size)
        apart = max(apart, float((links.gpus_per_node / links.cards).min()))
        found = found._replace(far_inverse=apart, expert_latency=wait)
    return found


def blocks_of_nodes(links: Links, block: BlockShape) -> Floats:
    """Figures of (7) to (9) that no block in a node beats (9, nodes); exact where devices are interchangeable."""
    found = np.zeros((FIGURES, links.num_nodes))
    for at, members in (([0, 1], block.tp), ([2, 3], block.cp), ([7, 3], block.cp), ([4, 6], block.ep)):
        if members > 1:
            found[at] = links.best_groups(members)
    return found


class Traffic(NamedTuple):
    """
    What blocks send for ranges of layers: bytes over the slowest link, and steps that pay its latency, (1) to (4).

    ``group``: all-reduces of tensor groups, (1). ``ring``: rings of context ranks, (3), with a last axis for layers of
    equal bytes and equal attention; ``ring_hidden`` are the seconds of attention that hide a step. ``context``:
    all-to-alls of context ranks, (2), with bytes inside nodes (``near``) and between them (``far``). ``near_bytes``,
    ``far_bytes``, ``expert_steps``: all-to-alls of expert ranks, (4), of which another micro-batch hides
    ``expert_hidden`` seconds. All arrays have one shape, except for the last axis of ``ring``.
    """

    group_bytes: Floats
    group_steps: Floats
    ring_bytes: Floats
    ring_steps: Floats
    ring_hidden: Floats
    near_bytes: Floats
    far_bytes: Floats
    expert_steps: Floats
    context_near: Floats
    context_far: Floats
    context_steps: Floats
    expert_hidden: Floats

    def at(self, *index: Ints | int | slice) -> "Traffic":
        """The entries at an index."""
        return Traffic(*(figure[index] for figure in self))

    def less(self, other: "Traffic") -> "Traffic":
        """What remains without another traffic."""
        return Traffic(*(mine - its for mine, its in zip(self, other, strict=True)))

    def times(self, share: Floats) -> "Traffic":
        """So much of every entry."""
        return Traffic(*(share[..., None] * f if name.startswith("ring") else share * f for name, f in self._named))

    @property
    def _named(self) -> Iterable[tuple[str, Floats]]:
        return zip(self._fields, self, strict=True)

    def seconds(self, link: BlockLink) -> Floats:
        """Seconds on the links of blocks, (3) and (5), of the shape that both broadcast to."""
        found = self.group_bytes * link.inverse + self.group_steps * link.latency
        # Blocks without contexts and experts, which are most, have links of 0 seconds for these.
        if _some(link.context_inverse):
            found = found + self.ring_seconds(link)
        if _some(link.context_near) or _some(link.context_far):
            found = found + self.all_to_all_seconds(link)
        if _some(link.near_inverse) or _some(link.far_inverse):
            found = found + self.near_bytes * link.near_inverse + self.far_bytes * link.far_inverse
            found = found + self.expert_steps * link.expert_latency
            found = found - self._behind(link) if self.expert_hidden.any() else found
        return np.asarray(found)

    def _behind(self, link: BlockLink) -> Floats:
        """Seconds of exchanges that another micro-batch hides, (4)."""
        exchanged = self.near_bytes * link.near_inverse + self.far_bytes * link.far_inverse
        return np.asarray(np.minimum(exchanged + self.expert_steps * link.expert_latency, self.expert_hidden))

    def ring_seconds(self, link: BlockLink) -> Floats:
        """Seconds of context rings that attention does not hide, (3)."""
        waits = self.ring_steps.sum(axis=-1) * link.context_latency
        return np.asarray(self._shown(link).sum(axis=-1) + waits)

    def all_to_all_seconds(self, link: BlockLink) -> Floats:
        """Seconds of the all-to-alls of context ranks, (2)."""
        moved = self.context_near * link.context_near + self.context_far * link.context_far
        return np.asarray(moved + self.context_steps * link.context_latency)

    def _shown(self, link: BlockLink) -> Floats:
        """Seconds of bytes of rings that attention does not hide, of layers alike, (3)."""
        inverse = np.asarray(link.context_inverse)[..., None]
        return np.asarray(np.maximum(self.ring_bytes * inverse - self.ring_hidden, 0.0))

    def by_place(self, links: Links, block: BlockShape) -> tuple[Floats, Floats, Floats]:
        """Seconds wherever the block is, and bytes and steps over its slowest link."""
        if self.expert_hidden.any():
            nothing, best = np.zeros_like(self.expert_hidden), best_block(links, np.ones(links.num_nodes, bool), block)
            none = {"near_bytes": nothing, "far_bytes": nothing, "expert_steps": nothing, "expert_hidden": nothing}
            rest = self._replace(**none)
            anywhere, moved, steps = rest.by_place(links, block)
            return anywhere + self.seconds(best) - rest.seconds(best), moved, steps
        if block.tp == block.width and block.ep == 1:
            return np.zeros_like(self.group_bytes), self.group_bytes, self.group_steps
        link = best_block(links, np.ones(links.num_nodes, bool), block)
        shows = self._shown(link) > 0.0
        sent, hidden = (np.where(shows, figure, 0.0).sum(axis=-1) for figure in (self.ring_bytes, self.ring_hidden))
        waits = self.ring_steps.sum(axis=-1)
        if block.width <= links.gpus_per_node.max():
            moved = self.group_bytes + sent + self.near_bytes + self.context_near
            return -hidden, moved, self.group_steps + waits + self.expert_steps + self.context_steps
        without = Traffic(*(np.zeros_like(f) if name.startswith("ring") else f for name, f in self._named))
        return np.asarray(without.seconds(link) - hidden), sent, waits


def _some(figure: Floats | float) -> bool:
    return bool(np.ndim(figure) or figure)


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


REDUCTIONS = {"forward": 2, "none": 4, "selective": 4, "full": 6}
"""All-reduces of a layer and micro-batch in Megatron by recompute, (1); and exchanges of tokens, (4)."""
PASSED = {"forward": 1, "none": 3, "selective": 4, "full": 4}
"""Times that keys and values pass their ring for a layer and micro-batch by recompute, (2)."""
GATHERS = 4, 3
"""Collectives of a layer whose tokens are gathered, forward and backward: of which experts take a token, of scores, and
of tokens, and the sums of outputs; the gradients of all but the first, (4)."""
EXCHANGED = {"forward": 1, "none": 2, "selective": 3, "full": 3}
"""Times that an all-to-all of context ranks goes to attention and back, by recompute, (2)."""


def traffic_tables(
    priced: PricedLayers, coefficient: float = 1.0, exchange: float = 1.0, *, hides: bool = False
) -> tuple[Traffic, Traffic]:
    """Traffic of both passes (recompute, L+1, L+1) and of the forward pass (L+1, L+1); ``hides`` exchanges by (4)."""
    hiding = priced.hiding if hides else 0.0
    both = [_traffic(priced, coefficient, exchange, kind, hiding) for kind in RECOMPUTE]
    forward = _traffic(priced, coefficient, exchange, "forward", hiding / 2)
    if priced.first_layers:
        both[FULL] = _of_first_layers(both[0], both[FULL], priced.ends_of_first_layers)
    return Traffic(*(_stacked(figures) for figures in zip(*both, strict=True))), forward


def _of_first_layers(kept: Traffic, full: Traffic, until: Ints) -> Traffic:
    """Traffic of ranges that recompute their layers before ``until`` (L+1,), which is that of two ranges."""
    first, end = np.arange(len(until))[:, None], np.arange(len(until))
    between = np.minimum(until[:, None], end)
    parts = full.at(first, between), kept.at(between, end)
    return Traffic(*(a if not any(a.strides) else b + c for a, b, c in zip(kept, *parts, strict=True)))


def no_traffic(shape: tuple[int, ...]) -> Floats:
    """Zeros that take no memory: most blocks have no context ranks and no expert ranks."""
    return np.broadcast_to(np.zeros(1), shape)


def _stacked(figures: Sequence[Floats]) -> Floats:
    """The figures of every recompute in one array."""
    first = figures[0]
    without = all(figure.base is not None and not any(figure.strides) for figure in figures)
    return no_traffic((len(figures), *first.shape)) if without else np.stack(figures)


def _traffic(priced: PricedLayers, coefficient: float, exchange: float, kind: str, hiding: float) -> Traffic:
    """Traffic of every range of layers under a recompute, or of its forward pass, of experts some of it hidden."""
    block, kinds = priced.block, priced.kinds
    modules = priced.modules if kind == "selective" else ()
    attention = "none" if modules and "core_attn" not in modules else kind
    repeated, exchanged = np.array([_again(layer, block, modules) for layer in kinds]).T
    reductions, exchanges = REDUCTIONS[kind], REDUCTIONS[kind] + 2 * exchanged
    forward = (2 if kind == "full" else 1) + exchanged
    backward = float(kind != "forward")
    exchanged_bytes = np.array([_outputs_moved(layer, priced) for layer in kinds]).T
    moved = exchanged_bytes[0] * forward + exchanged_bytes[1] * backward
    tp = block.tp
    tokens = [priced.micro_batch * layer.seq // block.cp for layer in kinds]
    output = np.array([priced.element * count * layer.hidden for count, layer in zip(tokens, kinds, strict=True)])
    rows = np.array([priced.element * count * layer.row for count, layer in zip(tokens, kinds, strict=True)])
    summed, chosen = np.array([_feed_forward(layer, block) for layer in kinds]).T
    gathers = priced.dispatch.gathers
    apart = chosen > 0
    wide = (block.ep * moved if gathers else chosen * exchanges) * (block.etp > 1) * apart
    summed_apart = exchanges * (wide > 0) * (not gathers)
    waits = (GATHERS[0] * forward + GATHERS[1] * backward) * (block.experts - 1) if gathers else exchanges
    near, far = np.array([_copies(layer, priced) for layer in kinds]).T
    none = np.zeros(len(kinds))

    def sums(common: Floats, experts: Floats = none, images: float = 0.0) -> Floats:
        found = _weighed_sums(priced, [(coefficient, common), (exchange, experts)])
        return found + coefficient * images * priced.first if images else found

    rings = _rings(priced, np.array(tokens), PASSED[attention])
    rings = coefficient * rings if rings.any() else rings
    inside, outside, steps = _all_to_alls(priced, np.array(tokens), attention, kind)
    images, sums_of_images = _of_images(priced, backward)
    return Traffic(
        sums(
            ring_factor(tp) * (reductions * summed / 2 + repeated) * output,
            ring_factor(tp) * (wide / 2) * rows,
            ring_factor(tp) * images,
        ),
        sums(
            ring_steps(tp) * (reductions * summed / 2 + repeated),
            ring_steps(tp) * (summed_apart / 2),
            ring_steps(tp) * sums_of_images,
        ),
        rings[0],
        rings[1],
        rings[2],
        sums(none, moved * (near * rows / tp)),
        sums(none, moved * (far * rows / tp)),
        sums(none, waits * apart),
        sums(inside),
        sums(outside),
        sums(steps),
        _weighed_sums(priced, [(1.0, hiding * apart)]),
    )


def _of_images(priced: PricedLayers, backward: float) -> tuple[float, float]:
    """Bytes that tensor ranks sum of an encoder's outputs, and how often, forward or in both passes."""
    if priced.model.encoder is None:
        return 0.0, 0.0
    there, back = priced.model.encoder.summed(priced.tp)
    numbers, times = (a + backward * b for a, b in zip(there, back, strict=True))
    return priced.element * priced.micro_batch * numbers, times


def _weighed_sums(priced: PricedLayers, parts: list[tuple[float, Floats]]) -> Floats:
    """Sums of figures by kind over every range, each times its coefficient."""
    some = [weight * priced.sums(figure.astype(float).tolist(), 0, 0) for weight, figure in parts if figure.any()]
    return np.asarray(sum(some[1:], some[0]) if some else no_traffic(priced.first.shape))


def _rings(priced: PricedLayers, tokens: Ints, passes: int) -> Floats:
    """Bytes, steps and hidden seconds of context rings of every range, (3, L+1, L+1, layers alike), (2) and (3)."""
    block, inner = priced.block, inner_contexts(priced.tp, priced.cp, priced.node_size)
    if priced.cp == 1:
        return no_traffic((3, *priced.first.shape, 1))
    turns = {"a2a": 0, "a2a+p2p": block.cp // inner - 1}.get(block.cp_comm, block.cp - 1)
    parts, hides = [layer.attending for layer in priced.kinds], priced.core_inverse
    hides = hides if block.cp_comm != "all_gather" else 0.0
    sent = priced.element * tokens * np.array([sum(part.keys_and_values(block.tp) for part in own) for own in parts])
    core = np.array([sum(part.attention_flops() for part in own) for own in parts])
    core = core * priced.micro_batch / block.tp / block.cp
    each = np.stack([sent, np.array([len(own) for own in parts]), core / (turns + 1) * hides])
    alike, of = np.unique(each, axis=1, return_inverse=True)
    count = np.stack([priced.count[of.ravel() == k].sum(axis=0) for k in range(alike.shape[1])], axis=-1)
    return np.asarray(turns * passes * count * alike[:, None, None])


def _all_to_alls(priced: PricedLayers, tokens: Ints, attention: str, kind: str) -> tuple[Floats, Floats, Floats]:
    """Bytes within nodes, between them, and steps, of the all-to-alls of context ranks by layer kind, (2)."""
    block, inner, kinds = priced.block, inner_contexts(priced.tp, priced.cp, priced.node_size), priced.kinds
    if block.cp == 1:
        return (np.zeros(len(tokens)),) * 3
    tp, times = block.tp, EXCHANGED["none" if kind == "selective" else kind]
    columns = np.array([sum(mixer.exchanged(heads, tp) for heads, mixer in layer.mixers) for layer in kinds])
    steps = [len(layer.mixers) * 2.0 * times for layer in kinds]
    moved = times * priced.element * tokens * columns / block.cp
    near, far = moved * (inner - 1), moved * (block.cp - inner)
    if block.cp_comm not in ("a2a", "a2a+p2p"):
        return near, far, np.array(steps)
    ranks, times = block.cp if block.cp_comm == "a2a" else inner, EXCHANGED[attention]
    widths = [
        sum(part.queries(tp) + part.output(tp) + part.keys_and_values(tp) for part in layer.attending)
        for layer in kinds
    ]
    moved = times * priced.element * tokens * np.array(widths) / ranks
    alone = [len(layer.attending) * 2.0 * times for layer in kinds]
    return near + moved * (inner - 1), far + moved * (ranks - inner), np.array(steps) + np.array(alone)


def _feed_forward(layer: LayerSpec, block: BlockShape) -> tuple[int, int]:
    """All-reduces forward of a layer but its experts', and experts on other ranks that take a token, (1) and (4)."""
    summed = sum(part.parts for part in layer.together)
    if not layer.experts or block.ep == 1:
        return summed, 0
    return summed - 1 + int(layer.experts.shared_ffn_hidden > 0), layer.experts.experts_per_token


def _again(layer: LayerSpec, block: BlockShape, modules: Collection[Module]) -> tuple[int, int]:
    """All-reduces, and exchanges to and fro, of a layer that recomputing modules repeats, (6)."""
    dense = sum(part.feeds for part in layer.together if not part.experts) if "mlp" in modules else 0
    if layer.experts is None:
        return dense, 0
    shared = int(layer.experts.shared_ffn_hidden > 0)
    if "moe" in modules:
        return dense + (1 if block.ep == 1 else shared), int(block.ep > 1)
    return dense + int("shared_experts" in modules and shared and block.ep > 1), 0


def _outputs_moved(layer: LayerSpec, priced: PricedLayers) -> tuple[float, float]:
    """Bytes of a dispatch and a combine over those of a layer's output, forward and backward, (4)."""
    dispatch, element = priced.dispatch, priced.element
    if not dispatch.gathers or layer.experts is None:
        return dispatch.imbalance * (dispatch.dispatched + 1.0), dispatch.imbalance * 2.0
    score, row = dispatch.score_bytes(element), element * layer.row
    scores, summed = layer.experts.num_experts * score / row, score / element
    return 1.0 + scores + layer.experts.num_experts / row + summed, summed + 1.0 + scores


def _copies(layer: LayerSpec, priced: PricedLayers) -> tuple[float, float]:
    """Copies of a token that a device sends inside nodes, and to other nodes, in an exchange, (4)."""
    block = priced.block
    if not layer.experts or block.ep == 1:
        return 0.0, 0.0
    ep, here = block.ep, min(block.ep, priced.node_size // block.etp)
    if priced.dispatch.dispatcher == "alltoall":
        rows = layer.experts.experts_per_token
        return rows * (here - 1) / ep, rows * (ep - here) / ep
    of_device, of_node = (1.0 if priced.dispatch.gathers else layer.experts.reach(n) for n in (ep, ep // here))
    return ep * (here - 1) / here * of_device, (ep / here - 1) * of_node
