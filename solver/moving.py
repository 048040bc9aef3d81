r"""
What it moves to go from one plan to another: bytes that devices lack, on which links, and the least of both.

Units u are the embedding, every layer, and the head. A last stage that has a copy of the embedding (a tied head, or
further tokens that are predicted) holds this unit too, once where it is the first stage as well. A unit has four kinds
of bytes: weights and optimizer states, of experts and of all else. A device holds the units of its stages, and of every
kind one interval of the unit, [0, 1):

(1) dense weights: of tensor rank y, :math:`[y / tp, (y + 1) / tp)`; expert weights: of expert rank e and its tensor
    rank v, :math:`[(e + v / etp) / ep, (e + (v + 1) / etp) / ep)`;
(2) states, and the weights under ZeRO-3: the part of (1) that belongs to share j of n,
    :math:`a + (b - a) [j / n, (j + 1) / n)`, where n devices share one copy (``taut.formulations.mechanisms.shards``),
    and all of (1) without ZeRO. The states of experts have shares among the devices that hold the same experts.
    States are those of Adam, layer by layer; Muon's, which go to ranks as whole matrices, are fewer.

A new plan has workers w, and old devices d hold what they held. With :math:`s_{uk}` the bytes of kind k of unit u,

(3) :math:`c_{wd} = \sum_{u, k} s_{uk} |held_w \setminus held_d|` bytes are lacking where w is on d;
(4) a placement is an assignment of workers to devices, so no placement of these workers lacks fewer bytes than the
    least-cost assignment :math:`\min_\pi \sum_w c_{w \pi(w)}` (Hungarian method);
(5) devices of a node, and nodes of a class with equal links, may change places at no cost in time. With
    :math:`C_{ab}` the least-cost assignment of the workers of new node a to the devices of old node b, the least-cost
    assignment of new nodes to old ones by C is the best of all such changes.

Where each worker is, a node b receives over the network what some device of it lacks and no device of it held:

(6) :math:`in_b` counts such bytes once, as the node's own links pass them on. What no device that is left held is lost,
    and comes from the checkpoint, over the network as well;
(7) with :math:`r_b` bytes per second of all cards of node b, and :math:`only_b` what some other node lacks and node b
    alone held, no transfer takes less than :math:`\max_b \max(in_b, only_b) / r_b` seconds;
(8) where the nodes that held something send equal parts of it, :math:`out_b` bytes leave node b, and
    :math:`\max_b \max(in_b, out_b) / r_b` seconds for the network, with the largest :math:`in_b` inside a node over one
    of its links after it, are enough.

Source: Crouse (2016), On implementing 2D rectangular assignment algorithms: scipy's method for (4).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from taut.data.arrays import Flags, Floats, Ints
from taut.data.memory import ParameterBytes
from taut.data.model import ModelSpec
from taut.formulations.schedules.orders import device_of_chunk
from taut.formulations.strategy import Strategy

MOST_ASSIGNED = 4096
"""Devices up to which (4) and (5) are solved: the costs take 128 MiB, and a second or two."""
KINDS = ("dense weights", "dense states", "expert weights", "expert states")
WEIGHTS, STATES = [0, 2], [1, 3]
"""Kinds that are weights, and kinds that are states."""


class Held(NamedTuple):
    """What n workers or devices hold: ``units`` (n, U), and [``start``, ``end``) of every kind, each (n, 4)."""

    units: Flags
    start: Floats
    end: Floats

    def at(self, places: Ints) -> "Held":
        """What the given ones of them hold, nothing where the place is -1."""
        return Held(self.units[places] & (places >= 0)[:, None], self.start[places], self.end[places])


def unit_bytes(model: ModelSpec, each: ParameterBytes) -> Floats:
    """Bytes of every kind of every unit, (4, U), at so many bytes a parameter."""
    routed = np.array([0, *(layer.routed_parameters for layer in model.blocks), 0])
    ends = model.embedding_parameters(), model.head_parameters(shared=True)
    whole = np.array([ends[0], *(layer.own_parameters for layer in model.blocks), ends[1]])
    # A last stage that has the embedding has no positions, which are on the stage of the first layer.
    whole[1 if model.shares_embedding else 0] += model.position_parameters
    dense = whole - routed
    states = dense.copy()
    if model.encoder:
        dense[0] += model.encoder.parameters()
        states[0] += model.encoder.trained_parameters()
    return np.array([dense * each.weight, states * each.state, routed * each.weight, routed * each.state], np.float64)


def held_by_workers(strategy: Strategy, *, both_ends: bool) -> Held:
    """What workers hold by stage, replica and rank, (1) and (2); ``both_ends``: the last one has the embedding."""
    chosen = strategy.candidate
    pp, dp, ranks = chosen.pp, chosen.dp, chosen.tp * chosen.cp
    worker = np.arange(pp * dp * ranks)
    stage, place = worker // (dp * ranks), worker % (dp * ranks)
    units = _units(strategy, both_ends=both_ends)[stage]
    etp = chosen.etp or chosen.tp
    tensor, group = place % chosen.tp, place // chosen.tp
    expert_tensor, expert, expert_group = place % etp, place // etp % chosen.ep, place // (etp * chosen.ep)
    dense = tensor / chosen.tp, 1 / chosen.tp
    experts = (expert + expert_tensor / etp) / chosen.ep, 1 / (chosen.ep * etp)
    start, end = np.empty((len(worker), 4)), np.empty((len(worker), 4))
    shares = (dense, group, chosen.shards), (experts, expert_group, max(chosen.expert_shards, 1))
    for k, ((first, width), member, count) in enumerate(shares):
        shared = first + width * (member % count) / count, width / count
        for kind, is_shared in ((2 * k, chosen.zero == 3), (2 * k + 1, chosen.zero >= 1)):
            start[:, kind], wide = shared if is_shared else (first, width)
            end[:, kind] = start[:, kind] + wide
    return Held(units, start, end)


def _units(strategy: Strategy, *, both_ends: bool) -> Flags:
    """Units of every stage's device, (pp, U): of all its chunks, embedding and head with the first and the last."""
    chosen = strategy.candidate
    layers = max(end for _, end in strategy.layer_stages)
    found = np.zeros((chosen.pp, layers + 2), dtype=bool)
    chunks = strategy.layer_stages
    device = device_of_chunk(chosen.schedule, chosen.pp, chosen.vpp).tolist()
    for stage, (first, end) in zip(device, chunks, strict=True):
        found[stage, first + 1 : end + 1] = True
    found[device[0], 0] = found[device[-1], -1] = True
    found[device[-1], 0] |= both_ends
    return found


def lacking_bytes(size: Floats, wanted: Held, present: Held) -> Floats:
    """Bytes that every worker would lack on every device, (3), (workers, devices); ``size`` (4, U)."""
    lacking = np.zeros((len(wanted.units), len(present.units)))
    for kind in range(4):
        if not size[kind].any():
            continue
        both = (wanted.units * size[kind]) @ present.units.T
        low = np.maximum(wanted.start[:, None, kind], present.start[None, :, kind])
        high = np.minimum(wanted.end[:, None, kind], present.end[None, :, kind])
        own = (wanted.units @ size[kind]) * (wanted.end[:, kind] - wanted.start[:, kind])
        lacking += own[:, None] - both * np.maximum(high - low, 0.0)
    return np.maximum(lacking, 0.0)


def least_total(costs: Floats) -> float:
    """Cost of the least-cost assignment of all rows to some columns, (4); infinite where there is none."""
    try:
        rows, columns = linear_sum_assignment(costs)
    except ValueError:
        return np.inf
    return float(costs[rows, columns].sum())


def exchanged_nodes(costs: Floats, new: list[Ints], new_class: Ints, old: list[Ints], old_class: Ints) -> Ints:
    """The column of every row by the best change of places, (5), among nodes of one class and size."""
    found = np.full(len(costs), -1, dtype=np.int64)
    known: dict[bytes, tuple[float, Ints]] = {}
    for name in np.unique(new_class):
        ours, theirs = np.flatnonzero(new_class == name), np.flatnonzero(old_class == name)
        total, ways = np.empty((len(ours), len(theirs))), {}
        for i, a in enumerate(ours):
            for j, b in enumerate(theirs):
                block = np.ascontiguousarray(costs[np.ix_(new[a], old[b])])
                key = block.tobytes()
                if key not in known:
                    rows, columns = linear_sum_assignment(block)
                    known[key] = float(block[rows, columns].sum()), columns
                total[i, j], ways[i, j] = known[key]
        for i, j in zip(*linear_sum_assignment(total), strict=True):
            found[new[ours[i]]] = old[theirs[j]][ways[i, j]]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """
    What moves, in bytes and seconds.

    ``weights`` and ``states`` are lacking where the workers are, and ``least`` is what any placement of the same
    workers lacks, (4), None where it was not computed. ``between`` nodes and from the ``checkpoint`` come over the
    network, (6), and ``inside`` is what nodes pass on. ``least_s`` and ``most_s`` are (7) and (8).
    """

    weights: float
    states: float
    least: float | None
    inside: float
    between: float
    checkpoint: float
    least_s: float
    most_s: float


def price_move(
    size: Floats,
    wanted: Held,
    own: Held,
    present: Held,
    *,
    node: Ints,
    node_present: Ints,
    card_rate: Floats,
    inner_rate: Floats,
    least: float | None,
) -> Moved:
    """What moves, (6) to (8), by the ``size`` of units (4, U): wanted, ``own``, ``present``; ``least`` is (4)."""
    nodes = len(card_rate)
    total, lost = np.zeros(4), 0.0
    inside, incoming, outgoing, only = (np.zeros(nodes) for _ in range(4))
    for kind in range(4):
        if not size[kind].any():
            continue
        cuts = np.unique(np.concatenate([each[:, kind] for each in (*wanted[1:], *present[1:])]))
        # Ends of equal shares that were computed in two ways differ by rounding.
        cuts = cuts[np.append(True, np.diff(cuts) > 1e-12)]
        weight = size[kind][:, None] * np.diff(cuts)[None, :]
        middle = (cuts[1:] + cuts[:-1]) / 2
        has, needs, keeps = (
            (each.start[:, kind, None] < middle) & (middle < each.end[:, kind, None]) for each in (present, wanted, own)
        )
        covered = np.zeros((nodes, *weight.shape), dtype=bool)
        for b in range(nodes):
            covered[b] = _any(present.units[node_present == b], has[node_present == b])
        holders = covered.sum(axis=0)
        asked = np.zeros(weight.shape)
        for b in range(nodes):
            here = np.flatnonzero(node == b)
            missing = (wanted.units[here][:, :, None] & needs[here][:, None, :]) & ~(
                own.units[here][:, :, None] & keeps[here][:, None, :]
            )
            lacks = float((missing * weight).sum())
            arriving = missing.any(axis=0) & ~covered[b]
            total[kind] += lacks
            incoming[b] += (came := float((arriving * weight).sum()))
            inside[b] += lacks - came
            lost += float(((arriving & (holders == 0)) * weight).sum())
            asked += arriving
        part = np.where(holders > 0, asked * weight / np.maximum(holders, 1), 0.0)
        outgoing += np.tensordot(covered, part, axes=2)
        only += np.tensordot(covered, ((asked > 0) & (holders == 1)) * weight, axes=2)
    busy = np.maximum(incoming, outgoing) / card_rate
    least_s = (np.maximum(incoming, only) / card_rate).max(initial=0.0)
    return Moved(
        weights=float(total[WEIGHTS].sum()),
        states=float(total[STATES].sum()),
        least=least,
        inside=float(inside.sum()),
        between=float(incoming.sum()) - lost,
        checkpoint=lost,
        least_s=float(least_s),
        most_s=float(busy.max(initial=0.0) + (inside / inner_rate).max(initial=0.0)),
    )


def _any(units: Flags, cells: Flags) -> Flags:
    """Whether some of a few devices hold a cell of a unit, (U, cells)."""
    return np.asarray((units.T.astype(np.float32) @ cells.astype(np.float32)) > 0)
