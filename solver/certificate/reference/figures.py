r"""
What the stages of a plan take on their devices, and what their ranks exchange.

Worker (x, z, y) of stage x, block z and rank y runs on ``devices[x, z, y]``; y = c tp + t has tensor rank t, and of
consecutive tp cp ranks context rank c. In groups of ep etp consecutive ranks every etp-th are peers.

(1) A tensor group has 4 all-reduces of every layer's output, and 6 under full recompute. Each takes
    ring(M, n, B) = 2 (n - 1)/n M/B + 2 (n - 1) latency on the group's slowest link. Two of the first 4 run forward, all
    others backward.
(2) A hop takes latency + message/B each way. The message is the last layer's output, divided by tp with sequence
    parallelism.
(3) A backward pass takes the gradients by input and weights on the slowest type of the tensor group. If an order runs
    them apart, each takes its own slowest type.
(4) Expert ranks, ep > 1. In a layer with experts a device sends the outputs of its b s / (cp tp) tokens to its peers,
    twice forward, twice backward, and twice more if all is computed again, in the copies and formats of
    (7) to (9). Between nodes the rate is the slowest of the group's links there,
    at most an equal share of a node's cards. Within nodes it is the slowest of the group's links there. Both times and
    the largest latency add up. All-reduces, (1), are one for attention, one for shared experts, and with etp > 1 one of
    k outputs. If exchanges overlap, they are hidden up to the least seconds of a layer's passes without recompute, half
    of it forward. If an expert group gathers all tokens, the all-reduce with etp > 1 is of ep outputs and has no
    latency of its own, and the largest latency counts once for each other device of the group.
(5) Context ranks. In a ring (p2p) each of cp ranks sends keys and values cp - 1 times to the next rank: forward once,
    backward twice, and once more if attention is computed again. A gather of all keys (all_gather) sends as many. The
    link is the slowest among the ranks with the same tensor rank; between nodes it is at most the share of a node's
    cards of the ranks on it. If rings overlap, each step shows its latency, and its bytes beyond 1/cp of the rank's
    forward attention at the rate that the fastest device type states. In an all-to-all (a2a) each rank sends 1/cp of
    its queries, keys, values and outputs to every other rank, once forward, once backward, and once more if attention
    is computed again, with two latencies, over the links of (4). In a2a+p2p with g ranks on a node the all-to-all is
    among these. The ring between nodes has cp/g - 1 steps over the link between nodes of (4), each during g/cp of
    attention. What a layer has in attention's place goes all to all among all cp ranks, whatever attention does, once
    forward, once backward, and once more if the layer is computed again, with two latencies.
(6) Selective recompute repeats the attention core, unless modules are named. The core sends keys and values once more.
    A dense part (``mlp``), experts (``moe``) and, with expert ranks, shared experts named alone (they are part of
    ``moe``) sum their outputs once more. ``moe`` also sends tokens both ways once more.
(7) A token crosses once to every other node that has one of its k of E experts, and within a node once to every device
    that has one, but from one of the node's g peers to itself; none of n experts is among k with probability
    (E - n)! (E - k)! / ((E - n - k)! E!). Where a router keeps to K of G groups, one set of them as likely as another,
    the k are of the E K / G experts of a set, and of n those in it; the probability is then the mean over all sets and
    the E / n places. A plain all-to-all sends k rows of a token, each to one of ep devices. Where all tokens of an
    expert group are gathered, each goes to every device of it, evenly: every other node has one of its rows, within a
    node every device but one of the g.
(8) A row is times the imbalance factor, and the first of two exchanges forward is in the dispatch's format.
(9) A gather has no imbalance. Numbers of activations have e bytes, scores s. Forward a token takes e h bytes there,
    with E s of scores and E that say which experts take it, in three collectives, and s h back in one, as outputs are
    summed in the scores' format; backward s h there, and e h and E s back, as nothing goes back of the choice.
(10) A device holds what an expert group gathers in (9), the outputs of all its tokens, and these once more in the
    format in which they are summed, if that is wider.
"""

from collections.abc import Iterator
from functools import cache, cached_property
from itertools import product
from math import comb
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.layers.experts import ExpertsSpec
from taut.solver.certificate.reference.layers import (
    NUMBER_BYTES,
    Layers,
    alone,
    attention_inverse,
    expert_row,
    layers_of,
    layers_with_ends,
    numbers_of_layers,
    of_images,
    rows_of_layers,
    with_further,
)
from taut.solver.certificate.reference.network import Network
from taut.solver.certificate.reference.space import CLOSED_FORM, Case, Choice, Stages

SCORE_BYTES = {"fp32": 4, "fp64": 8}


def copies(case: Case, choice: Choice, node: int) -> Floats:
    """Copies of a token of each layer that its device sends within nodes of so many and to other nodes, (2, L), (7)."""
    blocks, ep, kind = layers_with_ends(case, choice), choice.ep, case.dispatch.dispatcher
    found, here = np.zeros((2, len(blocks))), min(choice.ep, node // max(choice.etp, 1))
    for at, layer in enumerate(blocks):
        if layer.experts is None or ep == 1:
            continue
        count, chosen = layer.experts.num_experts, layer.experts.experts_per_token
        if kind == "alltoall":
            found[:, at] = chosen / ep * (here - 1), chosen / ep * (ep - here)
            continue
        owned = count // ep, count // ep * here
        of_device, of_node = (1.0 if kind == "allgather" else 1 - _missed(layer.experts, own) for own in owned)
        found[:, at] = of_device * (ep - ep // here), of_node * (ep // here - 1)
    return found


def both_ways(case: Case, choice: Choice) -> tuple[Floats, Floats]:
    """How often half of a layer's all-reduces and one exchange are sent, forward and backward (6, L), (8) and (9)."""
    dispatch, blocks = case.dispatch, layers_with_ends(case, choice)
    there, back = np.full((2, 6, len(blocks)), 2.0)
    there[3:5] = 1 + dispatch.dispatched
    if dispatch.dispatcher == "allgather":
        number, score = NUMBER_BYTES[case.memory.precision], _score(case)
        experts = np.array([layer.experts.num_experts if layer.experts else 0 for layer in blocks])
        of_row = experts / np.array([number * expert_row(layer) for layer in blocks])
        back[2:5] = 1 + of_row * score + score / number
        there[2:5] = back[2:5] + of_row
        there[5], back[5] = 4, 3
    return there, back


def gathered_bytes(case: Case, choice: Choice, output: Ints) -> Ints:
    """Bytes of a layer's gathers whose output takes so many, by layer, (10)."""
    number, score, found = NUMBER_BYTES[case.memory.precision], _score(case), []
    for layer, whole in zip(layers_with_ends(case, choice), output.tolist(), strict=True):
        tokens = whole // (number * layer.hidden * layer.streams)
        experts = layer.experts.num_experts if layer.experts else 0
        row = (2 * number + (score if score > number else 0)) * expert_row(layer) + experts * (score + 1)
        found.append(row * tokens * choice.expert_group // choice.tp if experts else 0)
    return np.array(found)


@cache
def _missed(experts: ExpertsSpec, own: int) -> float:
    """Mean probability that none of the experts of a place with so many takes a token, (7)."""
    groups, kept, chosen = experts.router_num_groups, experts.router_group_topk, experts.experts_per_token
    left = experts.num_experts // groups * kept
    none = [
        sets * np.prod([(left - held - i) / (left - i) for i in range(chosen)])
        for held, sets in _in_chosen(experts, own)
    ]
    return float(sum(none)) / comb(groups, kept) / (experts.num_experts // own)


def _in_chosen(experts: ExpertsSpec, own: int) -> Iterator[tuple[int, int]]:
    """Of every place with so many experts, how many may be in chosen groups, and in how many sets of these."""
    groups, kept = experts.router_num_groups, experts.router_group_topk
    size = experts.num_experts // groups
    for start in range(0, experts.num_experts, own):
        before = min(-start % size, own)
        whole, behind = divmod(own - before, size)
        ends = [end for end in (before, behind) if end]
        for several, taken in product(range(whole + 1), product((0, 1), repeat=len(ends))):
            if (others := kept - several - sum(taken)) >= 0:
                held = several * size + sum(end * one for end, one in zip(ends, taken, strict=True))
                yield held, comb(whole, several) * comb(groups - whole - len(ends), others)


def _score(case: Case) -> int:
    """Bytes of a score."""
    kind = case.dispatch.router_dtype
    return NUMBER_BYTES[case.memory.precision] if kind is None else SCORE_BYTES[kind]


class Places:
    """Placements (n, pp, dp, tp) at a candidate's degrees with links within blocks, which sampled plans share."""

    def __init__(self, network: Network, kinds: Ints, choice: Choice, devices: Ints) -> None:
        self.network, self.choice, self.devices = network, choice, devices
        self.kinds = kinds[network.node_of[devices]]
        self._hops: dict[tuple[bytes, bool], tuple[Floats, Floats]] = {}

    def hop_links(self, rank: Ints, *, back: bool) -> tuple[Floats, Floats]:
        """Latency and rate from every chunk to the next, on pipeline ranks (C,), or back, (n, C - 1, dp, tp), (2)."""
        key = rank.tobytes(), back
        if key not in self._hops:
            i, j = self.devices[:, rank[:-1]], self.devices[:, rank[1:]]
            if back:
                i, j = j, i
            self._hops[key] = self.network.latency(i, j), self.network.rate(i, j, self.choice.block)
        return self._hops[key]

    @cached_property
    def holders(self) -> Ints:
        """Devices by the weights that they hold, (n, pp, dp cp, tp)."""
        return self.devices.reshape(*self.devices.shape[:2], -1, self.choice.tp)

    @cached_property
    def expert_holders(self) -> Ints:
        """Devices by the experts that they hold, (n, pp, groups, devices of a group)."""
        return self.devices.reshape(*self.devices.shape[:2], -1, self.choice.expert_group)

    @cached_property
    def group_link(self) -> tuple[Floats, Floats]:
        """Least rate and largest latency within the tensor groups of every block, (n, pp, dp)."""
        rate, latency = self.network.slowest(self.holders)
        shape = *self.devices.shape[:3], -1
        return rate.reshape(shape).min(axis=-1), latency.reshape(shape).max(axis=-1)

    @cached_property
    def context_link(self) -> tuple[Floats, Floats]:
        """Least rate and largest latency among the context ranks of every block, (n, pp, dp), (5)."""
        network, cp, found = self.network, self.choice.cp, []
        for ring in self._peers(self.choice.tp, self.choice.tp * cp):
            rate, latency = network.slowest(ring)
            nodes = network.node_of[ring]
            here = np.stack([(nodes == nodes[..., c : c + 1]).sum(axis=-1) for c in range(cp)], axis=-1)
            share = np.where(here < cp, network.cards[nodes] * here / network.size[nodes], np.inf)
            found.append((np.minimum(rate, share.min(axis=-1)), latency))
        rates, latencies = zip(*found, strict=True)
        return np.min(rates, axis=0), np.max(latencies, axis=0)

    @cached_property
    def expert_link(self) -> tuple[Floats, Floats, Floats]:
        """Seconds of a byte within nodes and between them, and largest latency, (n, pp, blocks), (4)."""
        return self._exchange_link(self.choice.etp, self.choice.expert_group)

    @cached_property
    def context_exchange(self) -> tuple[Floats, Floats, Floats]:
        """The same of context ranks, (5)."""
        return self._exchange_link(self.choice.tp, self.choice.tp * self.choice.cp)

    def _peers(self, apart: int, group: int) -> list[Ints]:
        """Devices of every block so far apart in its groups of so many, (n, pp, blocks, members) each."""
        firsts = [first for first in range(self.choice.block) if first % group < apart]
        return [self.devices[..., first : first + group : apart] for first in firsts]

    def _exchange_link(self, apart: int, group: int) -> tuple[Floats, Floats, Floats]:
        network, found = self.network, []
        for peers in self._peers(apart, group):
            a, b = peers[..., :, None], peers[..., None, :]
            here = network.node_of[a] == network.node_of[b]
            other, slow = ~np.eye(peers.shape[-1], dtype=bool), 1 / network.rate(a, b)
            share = (network.size / network.cards)[network.node_of[a]]
            parts = (
                np.where(here & other, slow, 0),
                np.where(here, 0, np.maximum(slow, share)),
                np.where(other, network.latency(a, b), 0),
            )
            found.append([part.max(axis=(-1, -2)) for part in parts])
        near, far, wait = np.max(found, axis=0)
        return near, far, wait


def places_of(case: Case, choice: Choice, devices: Ints) -> Places:
    """The devices of placements with their links."""
    if "network" not in case.kept:
        case.kept["network"] = Network(case.cluster)
    degrees, latest = (choice.tp, choice.cp, choice.ep, choice.etp), case.kept.get("places")
    if latest is None or latest[0] != degrees or not np.array_equal(latest[1].devices, devices):
        places = Places(case.kept["network"], case.type_of_node, choice, devices.copy())
        latest = case.kept["places"] = (degrees, places)
    found: Places = latest[1]
    return found


class Sent(NamedTuple):
    """
    What the layers of a candidate exchange in their blocks, whatever its stages.

    ``turns`` are bytes of keys, FLOP and number of attentions of layers alike in these (3, kinds). ``there`` and
    ``back`` say how often the first six of (11 + kinds) figures are sent forward and backward, ``each`` (11 + kinds, L)
    what is sent once, ``forward`` what is sent forward, and ``repeated`` what recomputing modules sends again.
    ``images`` (11 + kinds, L) is what an encoder sends in both passes; ``forward`` holds its part of the forward pass.
    """

    turns: Floats
    there: Floats
    back: Floats
    each: Floats
    forward: Floats
    repeated: Floats
    images: Floats


def sent_of(case: Case, choice: Choice, layers: Layers, network: Network) -> Sent:
    """What the layers of a candidate exchange; that of the last one is kept, as many of its stages are priced."""
    latest = case.kept.get("sent")
    if latest is None or latest[0] != choice:
        latest = case.kept["sent"] = (choice, _sent(case, choice, layers, network))
    found: Sent = latest[1]
    return found


def _sent(case: Case, choice: Choice, layers: Layers, network: Network) -> Sent:
    one = np.ones(len(layers.keys))
    kinds, of_kind = np.unique(np.stack([layers.keys, layers.core, layers.rings]), axis=1, return_inverse=True)
    turns = one * (of_kind.ravel() == np.arange(kinds.shape[1])[:, None])
    rows = layers.output // np.array([layer.streams for layer in layers_with_ends(case, choice)])
    routed = rows * np.array([expert_row(layer) / layer.hidden for layer in layers_with_ends(case, choice)])
    outputs, chosen = _summed_forward(case, choice)
    usual, exchange = case.coefficient("tensor_parallel"), case.coefficient("exchange")
    gathers = case.dispatch.dispatcher == "allgather"
    wide = (choice.ep * (chosen > 0) if gathers else chosen) * (choice.etp > 1) * exchange
    each = np.array(
        [
            outputs * usual / 2 * rows,
            (outputs * usual + (wide > 0) * (not gathers) * exchange) / 2,
            wide / 2 * routed,
            *copies(case, choice, int(network.size.max()))
            * routed
            * exchange
            * (1.0 if gathers else case.dispatch.imbalance),
            (chosen > 0) * exchange * (choice.expert_group - 1 if gathers else 1),
            (chosen > 0) * layers.hiding * case.hides(choice) / 2,
            layers.moved * usual,
            layers.rings * usual,
            layers.mixed * usual,
            layers.mixers * usual,
            *turns * usual,
        ]
    )
    there, back = both_ways(case, choice)
    number = numbers_of_layers(case, choice)
    repeated = number * _repeated(case, choice, layers, each, there)
    each = number * each
    forward = np.concatenate([there, np.ones((5 + len(turns), len(one)))]) * each
    images = np.zeros((2, *each.shape))
    images[:, :2, 0] = usual * np.array(of_images(case, choice).summed)
    return Sent(kinds, there, back, each, forward + images[0], repeated, images.sum(axis=0))


def _summed_forward(case: Case, choice: Choice) -> tuple[Floats, Floats]:
    """Outputs of each layer that are summed forward but its experts', and experts elsewhere for a token, (L,)."""
    blocks = layers_with_ends(case, choice)
    found = [(sum(2 if one.only is None else 1 for one in alone(layer)), 0) for layer in blocks]
    for at, layer in enumerate(blocks):
        if layer.experts is not None and choice.ep > 1:
            shared = int(layer.experts.shared_ffn_hidden > 0)
            found[at] = found[at][0] - 1 + shared, layer.experts.experts_per_token
    outputs, chosen = np.array(found, dtype=float).T
    return outputs, chosen


def _repeated(case: Case, choice: Choice, layers: Layers, each: Floats, there: Floats) -> Floats:
    """What recomputing modules sends again, of what layers send in half of their passes' times, by layer, (6)."""
    modules, usual = set(case.space.get("recompute_modules", ())), case.coefficient("tensor_parallel")
    found = np.zeros_like(each)
    for at, layer in enumerate(layers_with_ends(case, choice) if modules else ()):
        one = usual * np.array([layers.output[at] // layer.streams, 1, *[0] * (len(each) - 2)])
        every = alone(layer)
        dense = sum(own.only != "attention" and own.experts is None for own in every) * ("mlp" in modules)
        apart = layer.experts is not None and choice.ep > 1
        shared = layer.experts is not None and layer.experts.shared_ffn_hidden > 0
        if apart and "moe" in modules:
            found[:6, at] = there[:, at] * each[:6, at]
            found[:, at] -= one * (sum(2 if own.only is None else 1 for own in every) - 1 - dense)
        elif apart:
            found[:, at] = one * (dense + (shared and "shared_experts" in modules))
        else:
            found[:, at] = one * (dense + (layer.experts is not None and "moe" in modules))
    return found


class Figures:
    """A plan with its links, and the figures of its stages."""

    def __init__(self, case: Case, choice: Choice, stages: Stages, recompute: tuple[str, ...], devices: Ints) -> None:
        self.case, self.choice, self.devices = case, choice, devices
        self.places = places_of(case, choice, devices)
        self.network, self.kinds = self.places.network, self.places.kinds
        self.layers = layers_of(case, choice)
        self.first, self.last = np.array([first for first, _ in stages]), np.array([end for _, end in stages]) - 1
        row = rows_of_layers(choice, with_further(case, stages), recompute)
        #: Seconds (3, types, layers), and (3, types, chunks).
        self.by_layer = self.layers.passes[:, :, row, np.arange(len(row))]
        self.passes = self.summed(self.by_layer)
        #: Bytes and numbers of all-reduces and tokens of experts, seconds of these that another micro-batch hides,
        #: bytes and number of all-to-alls of context ranks, for attention and for what takes its place, and turns of
        #: keys by layers alike in these and in attention (11 + kinds, chunks): forward, and all.
        sent = sent_of(case, choice, self.layers, self.network)
        self.turn_bytes, self.turn_flops, self.turn_rings = sent.turns
        modules = set(case.space.get("recompute_modules", ()))
        self.sent = sent.forward
        own = np.minimum(np.arange(len(row)), self.last[-1])
        self.is_first, self.is_last = np.isin(own, self.first), np.isin(own, self.last)
        self.parameters, self.experts = self.summed(self.layers.parameters), self.summed(self.layers.experts)
        again = np.where((row == 2) | (row == 1) & (not modules or "core_attn" in modules), 1, 0)
        whole = [2 + (row == 2)] * 2
        contexts = np.array([0 * row + 2, *[2 + again] * 2, *whole, *[3 + again] * sent.turns.shape[1]])
        times = np.concatenate([np.where(row == 2, 2 * sent.there, sent.there) + sent.back, contexts])
        every = times * sent.each + sent.images
        if modules:
            every = every + (row == 1) * sent.repeated
        self.forward, self.every = self.summed(self.sent), self.summed(every)

    def summed(self, figures: Floats | Ints) -> Floats:
        """Figures by layer (..., L), summed over the layers of every chunk."""
        return np.asarray(np.add.reduceat(figures, self.first, axis=-1))

    def rings(self, sent: Floats, rank: Ints) -> Floats:
        """Seconds of what blocks of pipeline ranks (C,) exchange, (n, C, blocks), of (11 + kinds, C) figures."""
        tp, found = self.choice.tp, np.zeros((len(self.devices), len(rank), self.choice.blocks))
        moved, steps, sums, near, far, exchanges, hidden, *contexts = sent[:, :, None]
        if tp > 1:
            rate, latency = (figure[:, rank] for figure in self.places.group_link)
            found = found + 2 * (tp - 1) / tp * (moved + sums) / rate + 2 * (tp - 1) * steps * latency
        if self.choice.cp > 1:
            found = found + self._contexts(rank, *contexts)
        if self.choice.ep > 1:
            inside, between, latency = (figure[:, rank] for figure in self.places.expert_link)
            found = found + np.maximum((near * inside + far * between) / tp + exchanges * latency - hidden, 0)
        return np.asarray(found)

    def _contexts(
        self, rank: Ints, whole: Floats, times: Floats, mixed: Floats, mixers: Floats, *turns: Floats
    ) -> Floats:
        """Seconds of what context ranks exchange for attention and in its place, (5)."""
        cp, kind, found = self.choice.cp, self.choice.cp_comm, np.zeros((len(self.devices), len(rank), 1))
        here = self.choice.inner(int(self.network.size.max()))
        count = {"a2a": 1, "a2a+p2p": cp // here}.get(kind, cp)
        if kind.startswith("a2a") or mixers.any():
            near, far, wait = (figure[:, rank] for figure in self.places.context_exchange)
            found = found + mixed * ((here - 1) * near + (cp - here) * far) / cp + 2 * mixers * wait
        if kind.startswith("a2a"):
            peers = cp if kind == "a2a" else here
            found = found + whole * ((here - 1) * near + (peers - here) * far) / peers + 2 * times * wait
            slow = far
        else:
            rate, wait = (figure[:, rank] for figure in self.places.context_link)
            slow = 1 / rate
        hidden = attention_inverse(self.case) if kind != "all_gather" else 0.0
        for number, keys, flops, rings in zip(turns, self.turn_bytes, self.turn_flops, self.turn_rings, strict=True):
            shown = np.maximum(keys * slow - flops / count * hidden, 0.0) + rings * wait
            found = found + (count - 1) * number * shown
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
        message = self.layers.output[self.last[:-1]] / (self.choice.tp if self.choice.sequence_parallel else 1)
        latency, rate = self.places.hop_links(rank, back=back)
        return np.asarray(latency + message[:, None, None] / rate)
