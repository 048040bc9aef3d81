r"""
What a step waits for after its passes: rings of gradients, and the optimizer.

Stage x ends its last pass in replica z after end[x, z] seconds; backward[x, z] are those of one micro-batch there.

(1) Bytes that a parameter exchanges after the passes. ZeRO-0: its gradient. In ``step``, ZeRO-1: half of its gradient
    and of what ``param_gather`` names (gradient, weight, or one byte in fp8), ZeRO-2: weight/2, and ZeRO-3: none, since
    the passes move the rest (``prices``). In a pipeline ZeRO-2 and 3 exchange gradient/2 more, which no pass moves. The
    coefficient of gathers weighs both, that of rings the others. In the papers' models, ZeRO-1: its gradient, ZeRO-2:
    (m gradient + weight)/2, and ZeRO-3: m (gradient + 2 weight)/2. M is the sum over a pipeline rank's layers.
(2) Rings of M bytes over the devices with the same weights, g_n of them on each of k nodes: max over n of
    4 (g_n - 1)/g_n M/B_n + 2 (k - 1)/k M/B between, with the slowest link in either direction. In the papers' models
    every device has an equal share of its node's cards. In ``step`` a node with G_n devices and stated cards gives a
    ring g_n shares. A share is as fast as cards_n/G_n, and no faster than the node's fastest link to another node. A
    link counts by itself too if it is slower than the fastest links of both its nodes, or if a node states no cards.
(3) ``step``: R[x] is (2) of the slowest tensor rank. With overlap, buckets of max(40e6, 1e6 dp cp) parameters are
    reduced during the last backward pass, and R[x] = max((2) min(1, bucket/parameters), (2) - max_z backward[x, z]);
    not under ZeRO-2 and 3, which shard gradients. The rings of experts follow, with the same formula, over the devices
    at the same place in every group that has all experts.
(4) ``step``: two devices that hold a tied embedding exchange its gradients, half of the bytes in each of two steps, at
    the slower direction of their link. Between nodes the link is at most one device's share of the cards.
(5) ``step``: all gradients are reduced after max(max_x(max_z end[x, z] + R[x]), both holders' ends + (4)); then every
    stage's optimizer runs, and the slowest counts.
(6) Papers: (2) for stage 0; in ``amp`` one ring of all replicas, the slowest of all stages, with latency. The
    optimizer, in ``pipette`` alone, is the one of the first device.
(7) The optimizer takes o seconds for each parameter of a device. Under ZeRO the devices of a copy divide the
    parameters: dp cp devices if there is one copy, and for experts the groups that have all experts. With a share F of
    the states in the host's memory, o becomes 8 F/link + max(28 F gpus/memory, (1 - F) o). Both rates are what is
    reached of the device's link to its host and of the node's host memory, the least over the nodes of a device type.
(8) ``step`` with s replicas z = q s .. q s + s - 1 to a copy: after the passes the replicas at the same place of every
    copy sum 1/s of the gradients in a ring (2). Under ZeRO-1 and 2 each copy then exchanges what (1) says. Experts
    follow in the same way: if e groups of a copy have all experts, each sums 1/e of their gradients.
(9) Under Muon the optimizer takes ``taut.solver.certificate.reference.muon`` (4), and rings carry (5) as well.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import DataError
from taut.solver.certificate.reference.figures import Figures
from taut.solver.certificate.reference.memory import parameter_bytes
from taut.solver.certificate.reference.muon import chunks_of, sharers
from taut.solver.certificate.reference.network import Network
from taut.solver.certificate.reference.space import ON_V, Case, Choice

LEAST_BUCKET, BUCKET_A_REPLICA = 40e6, 1e6
"""Parameters that Megatron-LM reduces at once by default: the larger of the first and the second times dp cp."""
MOST_KEPT = 1024
"""Rings whose seconds a network keeps, since candidates place theirs alike."""


def all_reduced(plan: Figures, ends: Floats) -> Floats:
    """Seconds after which no gradient is left to reduce (n,), from ends (n, pp, dp), (5)."""
    ended = ends.max(axis=-1)
    holders = np.maximum(ended[:, 0], ended[:, -1]) + tied(plan)
    return np.asarray(np.maximum((ended + reductions(plan)).max(axis=-1), holders))


def reductions(plan: Figures) -> Floats:
    """R of every stage (n, pp), (3)."""
    choice = plan.choice
    if choice.holders == 1:
        return np.zeros(plan.devices.shape[:2])
    if choice.dp_shard:
        alone = _between_copies(plan)
    else:
        # Fewer devices hold the same experts than the rest, so that these have rings of their own.
        experts = _experts_message(plan) * rings_of_experts(plan).max(axis=-1)
        alone = _message(plan) * kept_rings(plan) + experts + _padding(plan)
    if not plan.case.overlap_grad_reduce or choice.zero >= 2:
        return alone
    bucket = max(LEAST_BUCKET, BUCKET_A_REPLICA * choice.holders)
    last = np.minimum(1.0, bucket / plan.by_rank(plan.parameters))
    return np.asarray(np.maximum(alone * last, alone - plan.backward().max(axis=-1)))


def _padding(plan: Figures) -> Floats:
    """Seconds of the rings of what buffers have beyond the parameters under Muon, (n, pp), (9)."""
    choice, case = plan.choice, plan.case
    if case.memory.optimizer != "muon":
        return np.zeros(plan.devices.shape[:2])
    each = case.coefficient("data_parallel") * _exchanged(plan)
    common, experts = (
        each * plan.by_rank(more) for more in chunks_of(case, choice, plan.first, plan.last).padding(choice)
    )
    apart = choice.ep > 1 and choice.expert_group != choice.tp
    rings = rings_of_experts(plan).max(axis=-1) if apart else kept_rings(plan)
    return np.asarray(common * kept_rings(plan) + experts * rings)


def _between_copies(plan: Figures) -> Floats:
    """Seconds of the sums between copies, and of what is exchanged inside them at the end, (n, pp), (8)."""
    choice = plan.choice
    gradient = _coefficient(plan) * parameter_bytes(plan.case.memory)[1]
    dense = gradient * plan.by_rank(plan.parameters - plan.experts) / choice.dp_shard
    found = dense * _sums(plan, plan.places.holders, choice.dp_shard) + _message(plan) * rings_of_copies(plan).max(
        axis=-1
    )
    if choice.ep == 1:
        return np.asarray(found)
    apart = gradient * plan.by_rank(plan.experts) / choice.expert_sharers
    found = found + apart * _sums(plan, plan.places.expert_holders, choice.expert_sharers)
    return np.asarray(found + _experts_message(plan) * rings_of_experts(plan).max(axis=-1))


def _sums(plan: Figures, members: Ints, size: int) -> Floats:
    """Seconds per byte of the slowest ring over all copies, of members (n, pp, all, ranks), so many to a copy."""
    rings = [np.swapaxes(members[:, :, place::size], -1, -2) for place in range(size)]
    found = np.stack([_hierarchical(plan.network, ring, by_members=True) for ring in rings])
    return np.asarray(found.max(axis=(0, -1)))


def _within_copies(plan: Figures, members: Ints) -> Floats:
    """Seconds per byte of every copy's slowest ring of members (n, pp, all, ranks): (n, pp, copies)."""
    parts = [np.swapaxes(part, -1, -2) for part in np.split(members, plan.choice.copies, axis=2)]
    return np.stack([_hierarchical(plan.network, part, by_members=True).max(axis=-1) for part in parts], axis=-1)


def _by_block(plan: Figures, copies: Floats) -> Floats:
    return np.repeat(copies, plan.choice.blocks // plan.choice.copies, axis=-1)


def rings_of_copies(plan: Figures) -> Floats:
    """Seconds per byte of the slowest ring of the copy that a block has a share of, (n, pp, blocks)."""
    size = plan.choice.dp_shard
    if not size:
        return np.repeat(kept_rings(plan)[..., None], plan.choice.blocks, axis=-1)
    kept = plan.case.kept.get("copies")
    if kept is None or kept[0] != size or not np.array_equal(kept[1], plan.places.holders):
        kept = plan.case.kept["copies"] = (size, plan.places.holders.copy(), _within_copies(plan, plan.places.holders))
    return _by_block(plan, kept[2])


def _message(plan: Figures) -> Floats:
    """Bytes that a device of every pipeline rank exchanges (pp,), times the calibration's coefficient, (1)."""
    choice, case = plan.choice, plan.case
    stored, gradient, _ = parameter_bytes(case.memory)
    m, weight = choice.num_micro_batches, case.coefficient("data_parallel")
    moved = {2: (m * gradient + stored) / 2, 3: m * (gradient + 2 * stored) / 2}.get(choice.zero, gradient)
    if case.waits_for_all:
        weight, moved = _coefficient(plan), _exchanged(plan)
    return weight * moved * plan.by_rank(plan.parameters - plan.experts)


def _exchanged(plan: Figures) -> float:
    """Bytes of a parameter after the passes in ``step``, (1)."""
    memory = plan.case.memory
    stored, gradient, _ = parameter_bytes(memory)
    gathered = {"weights": stored, "fp8": 1}.get(memory.param_gather, gradient)
    scattered = gradient / 2 if plan.choice.pp > 1 else 0.0
    left = {1: (gradient + gathered) / 2, 2: stored / 2 + scattered, 3: scattered}
    return left.get(plan.choice.zero, float(gradient))


def _experts_message(plan: Figures) -> Floats:
    """Bytes of experts that a device of every pipeline rank exchanges (pp,), as ``_message``."""
    return np.asarray(_coefficient(plan) * _exchanged(plan) * plan.by_rank(plan.experts))


def _coefficient(plan: Figures) -> float:
    """Coefficient of what is exchanged after the passes in ``step``, (1)."""
    return plan.case.coefficient("gather" if plan.choice.zero >= 2 else "data_parallel")


def rings_of_experts(plan: Figures) -> Floats:
    """Seconds per byte of the slowest ring of the devices of a block's copy with the same experts, (n, pp, blocks)."""
    if plan.choice.ep == 1 or plan.choice.expert_sharers == 1:
        return np.zeros((*plan.devices.shape[:2], plan.choice.blocks))
    return _by_block(plan, _within_copies(plan, plan.places.expert_holders))


def kept_rings(plan: Figures) -> Floats:
    """Seconds per byte of every stage's slowest ring (n, pp); those of the placements of the last call are kept."""
    kept = plan.case.kept.get("rings")
    if kept is None or not np.array_equal(kept[0], plan.places.holders):
        rings = _hierarchical(plan.network, np.swapaxes(plan.places.holders, -1, -2), by_members=True).max(axis=-1)
        kept = plan.case.kept["rings"] = (plan.places.holders.copy(), rings)
    return np.asarray(kept[1])


def tied(plan: Figures) -> Floats:
    """Seconds of the slowest exchange of a tied embedding (n,), (4)."""
    choice, case = plan.choice, plan.case
    if not (case.model.tied_embedding or case.model.mtp_layers) or choice.pp == 1 or choice.schedule in ON_V:
        return np.zeros(len(plan.devices))
    network, gradient = plan.network, parameter_bytes(case.memory)[1]
    message = case.coefficient("data_parallel") * gradient * plan.layers.embedding
    a, b = plan.devices[:, 0], plan.devices[:, -1]
    all_send = int(network.size.max())
    rate = np.minimum(network.rate(a, b, all_send), network.rate(b, a, all_send))
    return np.asarray((2 * (message / 2) / rate).max(axis=(1, 2)))


def in_papers(plan: Figures) -> Floats:
    """Seconds of the rings of gradients in the papers' models (n,), (6)."""
    choice, case = plan.choice, plan.case
    if choice.dp == 1:
        return np.zeros(len(plan.devices))
    message, members = _message(plan), np.swapaxes(plan.devices, -1, -2)
    if not case.is_amp:
        return np.asarray(message[0] * _hierarchical(plan.network, members[:, 0], by_members=False).max(axis=-1))
    rate, latency = plan.network.slowest(members, int(plan.network.size.max()))
    n, weight = choice.dp, case.coefficient("data_parallel")
    rings = 2 * (n - 1) / n * message[:, None] / rate + weight * 2 * (n - 1) * latency
    return np.asarray(rings.max(axis=(-1, -2)))


def _hierarchical(network: Network, members: Ints, *, by_members: bool) -> Floats:
    """Seconds per byte of the rings of replicas (..., tp, dp), inside nodes and between them: (..., tp), (2)."""
    ends = np.sort(network.node_of[members] if network.by_node else members, axis=-1)
    if (ends == ends[..., :1, :]).all():
        # The rings of all tensor ranks have their members at the same places.
        ends = ends[..., :1, :]
    groups, where = np.unique(ends.reshape(-1, ends.shape[-1]), axis=0, return_inverse=True)
    keys = [(by_members, group.tobytes()) for group in groups]
    if len(network.kept) + len(keys) > MOST_KEPT:
        network.kept.clear()
    for key, group in zip(keys, groups, strict=True):
        if key not in network.kept:
            network.kept[key] = _ring(network, group, by_members)
    return np.array([network.kept[key] for key in keys])[where.ravel()].reshape(ends.shape[:-1])


def _ring(network: Network, ends: Ints, by_members: bool) -> float:
    """Seconds per byte of one ring, of members at these nodes, or devices where links differ within nodes, (2)."""
    if network.by_node:
        nodes, count = np.unique(ends, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(network.size)])
        own, ends = 1 / network.rate(starts[nodes], starts[nodes]), starts[network.telling(nodes)]
    else:
        nodes, of, count = np.unique(network.node_of[ends], return_inverse=True, return_counts=True)
        own = np.zeros(len(nodes))
    rate = network.rate(ends[:, None], ends[None, :], None if by_members else int(network.size.max()))
    slowness = 1 / np.minimum(rate, rate.T)
    if not network.by_node:
        same = of[:, None] == of[None, :]
        np.fill_diagonal(slowness, 0.0)
        np.maximum.at(own, of, np.where(same, slowness, 0.0).max(axis=1))
        slowness = np.where(same, 0.0, slowness)
    k = len(nodes)
    np.fill_diagonal(slowness, 0.0)
    between = slowness.max()
    if by_members:
        at, listed = network.node_of[ends], np.isfinite(network.cards)
        port = network.port[at]
        slower = (slowness > np.maximum(port[:, None], port[None, :])) | ~(listed[at][:, None] & listed[at][None, :])
        shares = np.where(listed, np.maximum(network.size / network.cards, network.port), 0.0)
        between = max(np.where(slower, slowness, 0.0).max(), (shares[nodes] / count).max())
    return float((4 * (count - 1) / count * own).max() + 2 * (k - 1) / k * between)


def optimizer(plan: Figures) -> Floats:
    """Optimizer seconds of a step (n,), (5) to (7)."""
    if not plan.case.pays_optimizer:
        return np.zeros(len(plan.devices))
    if plan.case.memory.optimizer == "muon":
        return np.full(len(plan.devices), _muon(plan))
    each = np.array([update_seconds(plan.case, plan.choice, name) for name in plan.case.cluster.devices])
    slowest = each[plan.kinds].max(axis=(2, 3))
    shards = plan.choice.copy_of if plan.choice.zero else 1
    sharers = plan.choice.expert_sharers if plan.choice.zero else 1
    experts = plan.by_rank(plan.experts)
    seconds = slowest * ((plan.by_rank(plan.parameters) - experts) / shards + experts / sharers)
    return np.asarray(seconds.max(axis=1) if plan.case.waits_for_all else seconds[:, 0])


def _muon(plan: Figures) -> float:
    """Seconds of the slowest device's optimizer under Muon, (9)."""
    case, choice = plan.case, plan.choice
    chunks = chunks_of(case, choice, plan.first, plan.last)
    (parameter,) = (case.costs.optimizer_s_per_parameter.get(name, 0.0) for name in case.cluster.devices)
    others = plan.parameters - chunks.held - chunks.experts
    return float(plan.by_rank(chunks.seconds + parameter * others / sharers(choice)[0]).max())


def update_seconds(case: Case, choice: Choice, device: str) -> float:
    """Seconds of a parameter's update on a device type, (7)."""
    own, away = case.costs.optimizer_s_per_parameter.get(device, 0.0), case.memory_of(choice).optimizer_offload_fraction
    if away == 0.0:
        return own
    nodes = [node for node in case.cluster.nodes if node.device.name == device]
    kind = case.cluster.devices[device]
    if kind.host_link_gbytes is None or any(node.host_memory_gbytes is None for node in nodes):
        raise DataError(f"cluster {case.cluster.name}: hosts of {device} are not described, expected their rates")
    reached = [1e9 * node.host_memory_efficiency * (node.host_memory_gbytes or 0.0) for node in nodes]
    slowest = max(node.gpus_per_node / rate for node, rate in zip(nodes, reached, strict=True))
    one_way = 4 * away / (1e9 * kind.host_link_efficiency * kind.host_link_gbytes)
    return 2 * one_way + max(28 * away * slowest, (1 - away) * own)
