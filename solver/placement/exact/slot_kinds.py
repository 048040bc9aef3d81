r"""
Kinds of slots: which tensor groups of a cluster can be exchanged (symmetry of the placement problem).

Two slots are of one kind if exchanging them changes no link. Those of one node are, where the devices of a node are
interchangeable. Two that are alone in their nodes, or two devices of one node, are of one kind if for every table of
links M (latency, rate of pipeline transfers, rate of rings), their nodes' cards giving equal shares,

(1) :math:`M_{uw} = M_{vw}, \; M_{wu} = M_{wv}` for every other w, :math:`M_{uv} = M_{vu}, \; M_{uu} = M_{vv}`.

This is an equivalence (u and v are twins in every table), so a slot need only be compared with one of each kind.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.links import Links
from taut.formulations.pair_table import PairTable
from taut.formulations.placement import slot_sites
from taut.formulations.rings import RingRates

MAX_KINDS = 20
"""Kinds that are told apart: 20 slots of different kinds have a million multisets, near the most that are solved."""


def slot_kinds(links: Links, rings: RingRates, tp: int) -> Ints | None:
    """
    Find the kind of every slot.

    ``links``, ``rings``: links of the cluster, and rates of its rings. Returns kinds by slot, (slots,), numbered from
    zero on; None where there are more than ``MAX_KINDS``.
    """
    sites, node = slot_sites(links, tp)[:, 0], links.node_of_site
    single = np.bincount(sites, minlength=links.num_sites) == 1
    # Devices of two nodes can change places only where each is all of its node.
    place = np.where(np.bincount(node)[node] == 1, -1, node)
    tables, card = (links.latency, links.pipeline_rate(tp), rings.inverse), rings.card[node]
    block_of, known = links.rate.blocks.of, np.full(len(links.rate.blocks.size), -1)
    first: list[int] = []
    kind_of = np.zeros(links.num_sites, np.int64)
    for v in range(links.num_sites):
        # Slots that are alone on nodes of one block are of one kind.
        kind = int(known[block_of[v]]) if single[v] else -1
        if kind < 0:
            alike = (
                c
                for c, u in enumerate(first)
                if single[u] and single[v] and place[u] == place[v] and card[u] == card[v]
            )
            kind = next((c for c in alike if _exchangeable(tables, first[c], v)), len(first))
        if kind == len(first):
            first.append(v)
        kind_of[v] = known[block_of[v]] = kind
        if len(first) > MAX_KINDS:
            return None
    return kind_of[sites]


def _exchangeable(tables: tuple[PairTable, ...], u: int, v: int) -> bool:
    """Whether two sites of different blocks can be exchanged, (1)."""
    for table in tables:
        b, c = table.blocks.of[[u, v]]
        apart = (table.apart[b] != table.apart[c]) | (table.apart[:, b] != table.apart[:, c])
        # Beside a site that is alone in its block there is no other one.
        apart[[b, c]] &= table.blocks.size[[b, c]] > 1
        if apart.any() or table.apart[b, c] != table.apart[c, b] or table.own[b] != table.own[c]:
            return False
    return True
