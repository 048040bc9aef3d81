r"""
Candidates of a strategy space, enumerated from its definition.

With D devices, global batch g and L layers, a candidate has

(1) degrees with pp tp cp dp = D, pp <= L and g = dp micro_batch m; a single stage if the head is the embedding, unless
    the space has ``tied_pipelines``;
(2) a tensor degree that divides heads and feed-forward width of every layer, and divides the key-value heads or, with
    ``replicated_kv``, is a multiple of them. It divides the size of every node, or is a multiple of the size if all
    nodes have the same;
(3) a cost without recompute for every layer on every device type;
(4) a schedule of the space; a single stage runs 1F1B. A schedule that is priced by its order needs the latency model
    ``step`` or ``pipette``, memory that is a sum of terms, and a layer for each chunk. Interleaved 1F1B needs m to be a
    multiple of pp, ZB-V needs m >= 2 pp, and a schedule that splits the backward pass needs some recompute other than
    full. Under interleaved 1F1B a device has at most ``max_vpp`` chunks, or at most ``max_even_vpp`` if pp vpp divides
    L or L + 2;
(5) ZeRO-0 if only one device holds the weights. Sequence parallelism needs tp > 1 and tp cp to divide every sequence;
(6) its schedule's own order, or an order that the space lists for its degrees;
(7) under ZeRO-2 and 3 one copy of the weights for all replicas, or one for every dp_shard consecutive replicas, where
    dp_shard divides dp and is neither 1 nor dp. With hybrid sharding dp_shard is the largest such number whose tensor
    groups fit the smallest node. A fixed dp_shard is a choice too, and under a fixed ZeRO-1 as well. Several copies
    need the latency model ``step`` and memory that is a sum of terms;
(8) one recompute for all stages, each that (4) allows, unless every stage has its own;
(9) with pp > 1 a ZeRO stage that the space lists for pipelines, if it lists some;
(10) cp context ranks, at most ``max_cp``, with 2 cp dividing every sequence. Several ranks need the latency model
    ``step``, memory that is a sum of terms, tensor groups within nodes, and tp cp devices that divide every node or are
    a multiple of the size of all. They exclude several copies, (7). They share attention in one of the listed ways:

    - ``a2a``, if cp divides the heads and the key-value heads of a tensor rank;
    - ``a2a+p2p``, if a replica fills several nodes with some of its ranks on each, and these ranks divide the heads;
    - ``all_gather``, unless a ring (p2p) is listed and the gather is not fixed;
    - ``p2p``. If it is listed and no other way is fixed, there is no all-to-all under two conditions, for one sequence.
      First, the attention during a step of the ring takes at least as long as the step's bytes, on the slowest link
      inside nodes. If links were measured by device, or a replica is on several nodes, it is the slowest of all links,
      with at most the ring's share of a node's cards. Second, 2 (cp - 1) of the longest latencies are at most the
      latencies of the all-to-all, 2 and 2 for each step between nodes of a2a+p2p, and its bytes on the fastest of these
      links;

    If an indexer chooses the tokens of attention, only ``all_gather`` shares it. tp cp divides the heads of what a
    layer has in attention's place. There are no several ranks beside it without ``mixer_contexts``, or if it attends
    to a stated number of tokens;
(11) ep expert ranks, at most ``max_ep``, that divide the experts of every layer with experts, of etp = 1 or etp = tp
    tensor ranks each. Several ranks need what (10) needs of several context ranks, and:

    - sequence parallelism if tp > 1, and etp = 1 unless the space has ``expert_tensor``;
    - ZeRO-1, or 0 if 1 is not in the space or 0 is fixed, or 2 or 3 if exchanges do not overlap, (14). If the space
      lists stages for experts, the stage is one of these;
    - copies, (7), that hold whole groups of ep etp devices;
    - ep etp is a multiple of tp, divides tp cp dp, and divides tp cp or is a multiple of it. It, and the larger of it
      and tp cp, fit nodes as in (2). The larger of both is a block, whose devices run in step;
(12) a division of the layers in one of the space's forms (``taut.solver.certificate.reference.space``);
(13) L + 2 parts to divide, embedding, layers and head, if the space has ``empty_ends`` and the form ``layout``, the
    model has a vocabulary, and a device has several chunks (or, with ``empty_ends`` fixed, there are several stages);
(14) if exchanges overlap (``Case.hides``), some recompute that allows it;
(15) if the space lists shares of optimizer states for the host's memory, each share that is listed with its ZeRO stage,
    or any if only one device holds the weights;
(16) if the space has uneven batches, a second version with an uneven batch. It needs several types of device, each with
    a multiple of pp tp cp devices, m >= pp, m >= 2, 1F1B, ZeRO-0 or 1, ep = 1, the latency model ``step``, and memory
    that is a sum of terms;
(17) if the space lists shares of activations for the host's memory, each share. A share above 0 needs a schedule that
    does not split the backward pass, a recompute that is listed with the share, a single stage unless the space allows
    several, and the latency model and memory of (10);
(18) with ``seen`` what runs had of each of its fields (``taut.solver.certificate.reference.space``);
(19) what goes with Muon (``taut.solver.certificate.reference.muon`` (7));
(33) of full recompute for all stages, if the space has ``block_recompute``, all layers of every chunk, or its first k
    for each k >= 1 with k pp vpp < L. The latter needs no activations in the host's memory, no further tokens that are
    predicted, the latency model ``step``, and memory that is a sum of terms.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from taut.data.costs import Key
from taut.data.layers.layer import LayerSpec
from taut.errors import DataError
from taut.solver.certificate.reference.layers import (
    alone,
    attention_figures,
    attention_inverse,
    attentions,
    otherwise,
)
from taut.solver.certificate.reference.muon import suits
from taut.solver.certificate.reference.network import Network
from taut.solver.certificate.reference.space import CLOSED_FORM, ON_V, SPLIT, Case, Choice, has_stated, in_space


def expert_ranks(case: Case, choice: Choice) -> Iterator[tuple[int, int]]:
    """Expert ranks and their tensor ranks, (11), which are 0 for those of the replica."""
    yield 1, 0
    numbers = case.numbers_of_experts
    if not numbers:
        return
    tp, replica, sizes = choice.tp, choice.tp * choice.cp, [node.gpus_per_node for node in case.cluster.nodes]
    priced = case.knows_groups and _beside_experts(case, choice)
    if not priced or choice.sequence_parallel != (tp > 1) or any(size % tp for size in sizes):
        return
    shared = {1, tp} if case.space.get("expert_tensor", True) else {1}
    divisors = [ep for ep in range(2, case.space.get("max_ep", 1) + 1) if not any(count % ep for count in numbers)]
    for ep, etp in product(divisors, shared):
        held = ep * etp
        nested = held % tp == 0 and (held % replica == 0 or replica % held == 0) and replica * choice.dp % held == 0
        fits = nested and all(map(case.fits_nodes, (held, max(held, replica))))
        if not (fits and _expert_costs(case, choice, ep, etp)) or choice.copy_of * replica % (held * choice.cp):
            continue
        found = replace(choice, ep=ep, etp=etp)
        if case.recomputes(found) and not (choice.zero in (2, 3) and case.hides(found)):
            yield ep, etp


def _beside_experts(case: Case, choice: Choice) -> bool:
    """Whether a candidate's ZeRO stage goes with expert ranks: ZeRO-0 not where 1 is there as well."""
    named, wanted = case.space.get("expert_zero"), case.space["fixed"].get("zero")
    stages = [0] if choice.holders == 1 else zero_stages(case, choice.pp)
    stages = [zero for zero in stages if wanted in (None, zero) and (named is None or zero in named)]
    whole = choice.zero > 0 or 1 not in stages
    return choice.zero in stages and whole


def _expert_costs(case: Case, choice: Choice, ep: int, etp: int) -> bool:
    """Whether the layers with experts have a cost, (3), at some expert ranks."""
    for device, layer in product(case.cluster.devices, case.model.blocks):
        key = Key(device, layer.kind, choice.tp, 0, layer.seq, "none", choice.cp, ep, etp)
        measured = case.costs.micro_batches.get(key, [])
        if layer.experts and not (measured and measured[0] <= choice.micro_batch <= measured[-1]):
            return False
    return True


def zero_stages(case: Case, pp: int) -> list[int]:
    """ZeRO stages of the space at a pipeline degree, (9)."""
    piped = case.space.get("pipeline_zero")
    return [zero for zero in case.space["zero"] if pp == 1 or piped is None or zero in piped]


def candidates(case: Case) -> list[Choice]:
    """Every candidate of the space in ascending order, (1) to (19) and (33)."""
    own = [
        choice
        for choice in _degrees(case)
        if all(_is(case, choice, k, v) for k, v in case.space["fixed"].items()) and has_stated(case, choice)
        if suits(case, choice)
    ]
    given = [
        replace(choice, order=tuple(order["words"]))
        for order in case.space["orders"]
        for choice in own
        if all(_field(choice, k) == v for k, v in order.items() if k != "words")
    ]
    # In the order of the fields; thousands of comparisons would each make two tuples.
    return sorted(in_space({*own, *given}, case.space), key=lambda choice: tuple(vars(choice).values()))


def _is(case: Case, choice: Choice, name: str, value: Any) -> bool:
    """Whether a candidate has what is asked for; one without shards has no replicas that share them."""
    if name == "dp_shard":
        return _in_copies(case, choice.zero) and choice.copy_of == value
    return bool(_field(choice, name) == value)


def _field(choice: Choice, name: str) -> Any:
    if name == "etp":
        return choice.etp or choice.tp
    if name in ("order", "dp_shard", "uniform_recompute") or name not in choice.__dataclass_fields__:
        raise DataError(f"space: unknown field {name!r}, expected one of a candidate")
    return getattr(choice, name)


def _degrees(case: Case) -> Iterator[Choice]:
    """Candidates in their own order, (1) to (5)."""
    devices, batch, layers = case.cluster.num_devices, case.space["global_batch"], len(case.model.blocks)
    single = case.model.tied_embedding and not case.space.get("tied_pipelines", True)
    for tp, cp in product(_divisors(devices), repeat=2):
        if devices % (tp * cp) or tp > case.space["max_tp"] or not _splits(case, tp) or not _contexts(case, tp, cp):
            continue
        kinds, shards = [*_kinds(case, tp, cp)], _shards(case, tp, cp)
        for pp in [1] if single else _divisors(devices // tp // cp):
            dp = devices // tp // cp // pp
            for micro_batch in (
                _divisors(batch // dp) if batch % dp == 0 and pp <= layers + 2 * _empty_ends(case, pp, 1) else []
            ):
                if not is_priced(case, tp, micro_batch, cp):
                    continue
                m = batch // dp // micro_batch
                for schedule, vpp in _schedules(case, pp, m):
                    head, apart = (pp, tp, dp, vpp, micro_batch, m, schedule), _empty_ends(case, pp, vpp)
                    for zero in zero_stages(case, pp) if dp * cp > 1 else [0]:
                        for sharded in case.space["sequence_parallel"] if shards else [False]:
                            for copy in _copies(case, tp, dp, zero) if cp == 1 else [0]:
                                for shared, some in _shared_recompute(case, schedule, pp * vpp):
                                    own = *head, zero, sharded, (), copy, shared, cp
                                    usual = 1, 0, "p2p", 0.0
                                    choice = Choice(*own, *usual[:3], apart, recompute_layers=some)
                                    ranks = [*expert_ranks(case, choice)]
                                    for kind, rank, away in product(kinds, ranks, _states_away(case, choice)):
                                        beside = (*rank, kind, apart, away, False, 0.0, some)
                                        found = choice if (*rank, kind, away) == usual else Choice(*own, *beside)
                                        uneven = [replace(found, uneven_batch=True)] if _uneven(case, found) else []
                                        for each in [found, *uneven]:
                                            yield from _activations_away(case, each)


def _states_away(case: Case, choice: Choice) -> list[float]:
    """Shares of the optimizer states that the host's memory may have, (15)."""
    listed = case.space.get("optimizer_offload", ())
    found = {each["fraction"] for each in listed if choice.holders == 1 or choice.zero in each["zero"]}
    return sorted(found) if listed else [0.0]


def _activations_away(case: Case, choice: Choice) -> Iterator[Choice]:
    """The candidate with each share of its activations that the host's memory may have, (17)."""
    listed = case.space.get("activation_offload", ())
    if not listed or any(not each["fraction"] for each in listed):
        yield choice
    if choice.schedule in SPLIT or not case.knows_groups:
        return
    for each in listed:
        found = replace(choice, activation_offload=each["fraction"])
        if each["fraction"] and (choice.pp == 1 or each.get("pipelines", True)) and case.recomputes(found):
            yield found


def _uneven(case: Case, choice: Choice) -> bool:
    """Whether replicas may run different numbers of micro-batches, (16)."""
    if not case.space.get("uneven_batch") or not case.knows_groups:
        return False
    names = [node.device.name for node in case.cluster.node_list for _ in range(node.gpus_per_node)]
    pipeline, m = choice.pp * choice.tp * choice.cp, choice.num_micro_batches
    whole = len(set(names)) > 1 and not choice.dp_shard and not any(names.count(name) % pipeline for name in set(names))
    return whole and m >= choice.pp and m > 1 and choice.schedule == "1f1b" and choice.zero < 2 and choice.ep == 1


def _contexts(case: Case, tp: int, cp: int) -> bool:
    """Whether sequences and nodes suit a context degree beside a tensor degree, (10)."""
    if cp == 1:
        return True
    if cp > case.space.get("max_cp", 1) or not case.knows_groups:
        return False
    mixers = [(one.heads, one.mixer.attends) for layer in case.model.blocks for one in otherwise(layer) if one.mixer]
    if any(heads % (tp * cp) or attends or not case.space.get("mixer_contexts", True) for heads, attends in mixers):
        return False
    inside = all(node.gpus_per_node % tp == 0 for node in case.cluster.nodes)
    return case.fits_nodes(tp * cp) and inside and all(b.seq % (2 * cp) == 0 for b in case.model.blocks)


def _kinds(case: Case, tp: int, cp: int) -> Iterator[str]:
    """How context ranks may share attention, (10)."""
    if cp == 1:
        yield "p2p"
        return
    listed = case.space.get("cp_comm", ["p2p"])
    every = [one for block in case.model.blocks for one in attentions(block)]
    if any(one.latent is not None and one.latent.index_heads for one in every):
        yield from (kind for kind in listed if kind == "all_gather")
        return
    here = min(cp, max(max(node.gpus_per_node for node in case.cluster.nodes) // tp, 1))

    def divides(ranks: int) -> bool:
        each = [count for one in every for count in (one.heads, one.key_value_heads)]
        return not any(count % (tp * ranks) for count in each)

    fixed = case.space["fixed"].get("cp_comm")
    if "p2p" in listed:
        yield "p2p"
    if "all_gather" in listed and ("p2p" not in listed or fixed == "all_gather"):
        yield "all_gather"
    ring = "p2p" in listed and fixed in (None, "p2p")
    if "a2a" in listed and divides(cp) and not (ring and _hides_ring(case, tp, cp, here, cp)):
        yield "a2a"
    several = "a2a+p2p" in listed and here not in (1, cp) and divides(here)
    if several and not (ring and _hides_ring(case, tp, cp, here, here)):
        yield "a2a+p2p"


def _hides_ring(case: Case, tp: int, cp: int, here: int, ranks: int) -> bool:
    """Whether a ring of one sequence is never slower than an all-to-all among so many ranks, (10)."""
    if (attention := attention_inverse(case)) == 0.0:
        return False
    network, within = Network(case.cluster), tp * cp <= min(node.gpus_per_node for node in case.cluster.nodes)
    if network.by_node:
        starts = np.concatenate([[0], np.cumsum(network.size)])[network.telling(np.arange(len(network.size)))]
        chosen = np.eye(len(starts), dtype=bool) if within else np.ones((len(starts),) * 2, dtype=bool)
    else:
        starts = np.arange(len(network.node_of))
        chosen = ~np.eye(len(starts), dtype=bool)
    pairs = starts[:, None], starts[None, :]
    each, wait = (1 / network.rate(*pairs))[chosen], network.latency(*pairs)[chosen].max()
    slow, fast, waits = each.max(), each.min(), 2 * (cp - 1) - 2 * (cp // ranks - 1) - 2
    slow = slow if within else max(slow, (network.size / network.cards / here).max())
    for layer in (one for block in case.model.blocks for one in attentions(block)):
        keys, moved, core = attention_figures(case, layer, tp, cp)
        if keys * slow > core / cp * attention or waits * wait > moved * (ranks - 1) / ranks * fast:
            return False
    return True


def _shared_recompute(case: Case, schedule: str, chunks: int) -> list[tuple[str, int]]:
    """What all stages may recompute alike, or nothing where each has its own, (8), and layers of it, (33)."""
    if case.space.get("recompute_by_stage", True):
        return [("", 0)]
    found = [(kind, 0) for kind in case.space["recompute"] if kind != "full" or schedule not in SPLIT]
    offload, further = case.space.get("activation_offload"), case.model.mtp_layers
    if ("full", 0) not in found or not case.space.get("block_recompute") or not case.knows_groups or offload or further:
        return found
    layers = len(case.model.blocks)
    return found + [("full", k) for k in range(1, layers) if k * chunks < layers]


def _in_copies(case: Case, zero: int) -> bool:
    """Whether replicas may have several copies under a ZeRO stage, (7)."""
    return zero in (2, 3) or (zero == 1 and case.space["fixed"].get("zero") == 1)


def _copies(case: Case, tp: int, dp: int, zero: int) -> list[int]:
    """Replicas that may have one copy between them, 0 for all of them, (7)."""
    if not _in_copies(case, zero) or not case.knows_groups:
        return [0]
    smallest = min(node.gpus_per_node for node in case.cluster.nodes)
    hybrid = case.space.get("hybrid_sharding", True) and zero > 1
    inside = [size for size in _divisors(dp) if size * tp <= smallest and hybrid]
    asked = case.space["fixed"].get("dp_shard", 0)
    return [0, *(size for size in _divisors(dp)[1:-1] if size in (*inside[-1:], asked))]


def _divisors(number: int) -> list[int]:
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def splits(layer: LayerSpec, tp: int, *, replicated_kv: bool = True) -> bool:
    """Whether a tensor degree divides a layer's widths and heads, (2)."""
    experts = layer.experts
    widths = [layer.ffn] if experts is None else [experts.expert_ffn_hidden, experts.shared_ffn_hidden]
    if any(width % tp for width in widths) or layer.only == "feed_forward":
        return not any(width % tp for width in widths)
    keys = layer.key_value_heads
    return layer.heads % tp == 0 and (keys % tp == 0 or (replicated_kv and tp % keys == 0))


def _splits(case: Case, tp: int) -> bool:
    """Whether the layers and the nodes suit a tensor degree, (2)."""
    shared = case.space.get("replicated_kv", True)
    every = (layer for block in case.model.blocks for layer in alone(block))
    return all(splits(layer, tp, replicated_kv=shared) for layer in every) and shares(case, tp) and case.fits_nodes(tp)


def shares(case: Case, tp: int) -> bool:
    """Whether a tensor degree divides the heads and widths of an encoder that its ranks share, (2)."""
    images = case.model.encoder
    if images is None or not images.tensor_parallel:
        return True
    widths = images.heads, images.ffn_hidden, images.projector[0][1], images.projector[-1][0]
    return not any(width % tp for width in widths)


def is_priced(case: Case, tp: int, micro_batch: int, cp: int = 1) -> bool:
    """Whether every layer has a cost or lies between two measured micro-batches, (3)."""
    blocks = case.model.blocks
    kinds = {(layer.kind, layer.seq) for layer in blocks}
    if case.model.vocab:
        kinds |= {("embedding", blocks[0].seq), ("head", blocks[-1].seq)}
    if case.model.encoder:
        kinds.add(("encoder", case.model.encoder.patches))
    for device in case.cluster.devices:
        for kind, seq in kinds:
            measured = case.costs.micro_batches.get(Key(device, kind, tp, 0, seq, "none", cp), [])
            if not measured or not measured[0] <= micro_batch <= measured[-1]:
                return False
    return True


def _schedules(case: Case, pp: int, m: int) -> Iterator[tuple[str, int]]:
    """Schedules with their chunks a device, (4)."""
    if pp == 1:
        yield "1f1b", 1
        return
    for schedule in case.space["schedules"]:
        if schedule in CLOSED_FORM:
            yield schedule, 1
        elif case.knows_orders and not (schedule in SPLIT and set(case.space["recompute"]) <= {"full"}):
            if (schedule == "interleaved-1f1b" and m % pp) or (schedule == "zb-v" and m < 2 * pp):
                continue
            layers, chunks = len(case.model.blocks), [2 if schedule in ON_V else 1]
            if schedule == "interleaved-1f1b":
                fitting = (layers + 2) // pp
                more = range(2, min(case.space.get("max_even_vpp", 0), fitting) + 1)
                chunks = [v for v in more if not layers % (pp * v) or not (layers + 2) % (pp * v)]
                chunks = sorted({*chunks, *range(2, min(case.space["max_vpp"], fitting) + 1)})
            yield from ((schedule, vpp) for vpp in chunks if pp * vpp <= layers + 2 * _empty_ends(case, pp, vpp))


def _empty_ends(case: Case, pp: int, vpp: int) -> bool:
    """Whether end chunks may have no layers, (13)."""
    allowed = case.space.get("empty_ends", False) and "layout" in case.space.get("divisions", ["layout"])
    wanted = case.space["fixed"].get("empty_ends", vpp > 1)
    return bool(allowed and wanted and pp > 1 and case.model.vocab)


def _shards(case: Case, tp: int, cp: int) -> bool:
    return tp > 1 and all(layer.seq % (tp * cp) == 0 for layer in case.model.blocks)
