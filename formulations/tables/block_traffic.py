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

    - With the dispatcher ``alltoall`` (``taut.data.layers.dispatch``) each of a token's k rows goes to its own expert:
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
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.degrees import BlockShape
from taut.formulations.links import Links
from taut.formulations.tables.block_links import BlockLink, best_block


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
        """
        Split it by what its seconds depend on, for searches that move blocks.

        Returns seconds wherever the block is, and bytes and steps over its slowest link. In blocks of several nodes
        tensor groups and exchanges are on the best links, and what context rings send counts between nodes. A ring that
        is hidden on the best links counts as hidden everywhere. Exchanges of which some are hidden are on the best
        links as well.
        """
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
