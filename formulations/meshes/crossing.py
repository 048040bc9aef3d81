r"""
Activations from the last stage of a mesh to the first one of the next, and their gradients back.

Rank (z, y) of a stage, replica z and tensor rank y, holds the y-th of tp equal parts of the sequence of the z-th of dp
equal parts of the batch. The other stage cuts both in other numbers of parts.

(1) Ranks i and j exchange the share :math:`s_{ij}` that their parts have in common: for each of batch and sequence,
    parts u of a and v of b have
    :math:`\max(0, \min(\frac{u+1}{a}, \frac{v+1}{b}) - \max(\frac{u}{a}, \frac{v}{b}))` in common.
(2) A rank sends its pieces one after another, and receives one after another: with M bytes in all,

    .. math:: piece_{ij} = \lambda_{ij} + s_{ij} M / B_{ij}, \quad
        hop_{ij} = \max \Big( \sum_{j'} piece_{ij'}, \; \sum_{i'} piece_{i'j} \Big) \text{ where } s_{ij} > 0.

With equal degrees every rank has one partner, and (2) is the hop of an ordinary pipeline.

Source: FlagScale, flagscale/train/hetero/parallel_context.py, ``find_overlapped_mapping`` and
``get_inter_mesh_tensor_slices``: (1); flagscale/train/hetero/p2p_communication.py: (2).
"""

from math import lcm
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.links import Links
from taut.formulations.pair_table import PairTable


class Crossing(NamedTuple):
    """Seconds forth and back between ranks of two stages (n, n'), and which of them exchange something."""

    forth: Floats
    back: Floats
    joined: Flags


def common_shares(first: int, second: int) -> Floats:
    """Shares of the whole that parts of one division and of another have in common (first, second), (1)."""
    whole = lcm(first, second)
    u, v = np.arange(first)[:, None] * (whole // first), np.arange(second)[None, :] * (whole // second)
    until = np.minimum(u + whole // first, v + whole // second)
    return np.asarray(np.maximum(until - np.maximum(u, v), 0) / whole)


def crossing(links: Links, inverse: PairTable, before: Ints, after: Ints, whole: float) -> Crossing:
    """
    Price the transfer between two stages of different degrees, (2).

    ``inverse``: seconds per byte between sites; ``before``, ``after``: devices of the two stages, (dp, tp) each;
    ``whole``: bytes of all ranks, M.
    """
    share = np.kron(common_shares(len(before), len(after)), common_shares(before.shape[1], after.shape[1]))
    i, j = links.site_of[before.ravel()][:, None], links.site_of[after.ravel()][None, :]
    joined = share > 0
    forth = np.where(joined, links.latency[i, j] + whole * share * inverse[i, j], 0.0)
    back = np.where(joined, links.latency[j, i] + whole * share * inverse[j, i], 0.0)
    return Crossing(_in_turn(forth, joined), _in_turn(back, joined), joined)


def _in_turn(pieces: Floats, joined: Flags) -> Floats:
    """Seconds of a rank's pieces one after another, the slower of the two ranks; 0 where nothing is exchanged."""
    return np.where(joined, np.maximum(pieces.sum(axis=1, keepdims=True), pieces.sum(axis=0, keepdims=True)), 0.0)
