r"""
Megatron-LM's order of workers on equal nodes: which rings and hops leave a node.

Tensor groups follow one another node by node, replicas of a stage before the next stage: group :math:`j = x D + z` of
stage x and replica z, of D replicas (context ranks among them), lies on node :math:`\lfloor j / q \rfloor`, with q
groups on a node, or has nodes of its own where it fills them.

(1) The replicas of stage x touch k nodes, with at most :math:`g^+` and at least :math:`g^-` of them on one; their ring
    (``taut.formulations.rings`` (2) and (3)) takes, for each byte,
    :math:`4 (g^+ - 1) / g^+ / B_{in} + 2 (k - 1) / k \max(1 / B, G / N) / g^-` seconds, or without stated cards
    :math:`1 / B` between nodes.
(2) The hop of replica z from stage x to x + 1, and from the last stage back to the first, stays in a node or leaves it.
    Replicas with the same hops form one pattern; there is only one where stages fill nodes or nodes hold whole stages.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.batch.configurations import Configurations
from taut.formulations.batch.unit_seconds import Machine
from taut.formulations.rings import inside_factor, ring_factor


@dataclass(frozen=True)
class Layouts:
    """
    Rings and hops of configurations on one machine.

    ``ring`` (rows, stages) seconds per byte of every stage's ring, (1), and ``tied`` (rows,) of the ring of two between
    first and last stage; ``first`` and ``count`` (rows,) say which rows of ``leaves`` (patterns, stages) are a
    configuration's, (2).
    """

    ring: Floats
    tied: Floats
    first: Ints
    count: Ints
    leaves: Flags


def layouts(c: Configurations, machine: Machine) -> Layouts:
    """Rings and hops of every configuration, (1) and (2)."""
    degrees = np.stack([c.tp, c.dp * c.cp, c.pp], axis=1)
    ranks = [np.unique(column, return_inverse=True)[1] for column in degrees.T]
    key = (ranks[0] * len(c) + ranks[1]) * len(c) + ranks[2]
    _, rows, of = np.unique(key, return_index=True, return_inverse=True)
    distinct, most = degrees[rows], int(c.pp.max(initial=1))
    leaves = [_leaves((tp, each, pp), machine.gpus_per_node, most) for tp, each, pp in distinct.tolist()]
    count = np.array([len(each) for each in leaves], dtype=np.int64)
    first = np.cumsum(count) - count
    ring = _rings(distinct, machine, most)
    tied = np.array([_tied(each, pp, machine) for each, pp in zip(leaves, distinct[:, 2].tolist(), strict=True)])
    every = np.concatenate(leaves) if leaves else np.zeros((0, most), dtype=bool)
    return Layouts(ring[of], tied[of], first[of], count[of], every)


def _per_node(tp: Ints, gpus_per_node: int) -> Ints:
    """Groups q on a node; 1 where a group fills nodes, which then are its own."""
    return np.maximum(gpus_per_node // tp, 1)


def _rings(degrees: Ints, machine: Machine, most: int) -> Floats:
    """Seconds per byte of the ring of every stage, (layouts, most), (1)."""
    tp, replicas, _ = (column[:, None] for column in degrees.T)
    room = _per_node(tp, machine.gpus_per_node)
    before = np.arange(most) * replicas % room
    head = np.minimum(replicas, room - before)
    full, tail = np.divmod(replicas - head, room)
    touched = 1 + full + (tail > 0)
    largest = np.maximum(head, np.where(full > 0, room, tail))
    smallest = np.minimum(head, np.where(tail > 0, tail, head))
    card = max(1 / machine.between_rate, machine.gpus_per_node / machine.cards)
    between = card / (smallest if np.isfinite(machine.cards) else 1)
    return np.asarray(inside_factor(largest) / machine.inside_rate + ring_factor(touched) * between)


def _leaves(degrees: tuple[int, int, int], gpus_per_node: int, most: int) -> Flags:
    """Whether every hop leaves its node, and at pp - 1 the one back to the first stage, (patterns, most), (2)."""
    tp, replicas, pp = degrees
    room = max(gpus_per_node // tp, 1)
    aligned = replicas % room == 0 or room % replicas == 0
    z = np.arange(1 if aligned else replicas)[:, None]
    node = (np.arange(pp) * replicas + z) // room
    found = np.zeros((len(z), most), dtype=bool)
    found[:, :pp] = node != np.roll(node, -1, axis=1)
    return np.unique(found, axis=0)


def _tied(leaves: Flags, pp: int, machine: Machine) -> float:
    """Seconds per byte between the first and the last stage, the slowest replica's."""
    apart = leaves[:, pp - 1]
    between = max(1 / machine.between_rate, machine.gpus_per_node / machine.cards)
    return max(between if apart.any() else 0.0, 0.0 if apart.all() else 1 / machine.inside_rate)
