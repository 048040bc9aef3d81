r"""
Dynamic context degrees: every sequence has as many context ranks as its tokens need, and no more.

A plan of one stage has c context ranks in each of its dp replicas, and B tokens a micro-batch. With dynamic degrees the
dp c ranks are one pool. A sequence of l tokens runs on a group of g ranks,

.. math:: g \ge g(l) = \text{the least power of two with } l / g \le B / c, \tag{1}

aligned in the pool, so that no rank holds more tokens at a time than under the plan. Each rank of the group takes

.. math:: t(l, g) = \frac{c}{g} \Big( s \cdot x(l) + \max \big( \tfrac{g - 1}{c - 1} r x_0(l)
    - \tfrac{c (g - 1)}{g (c - 1)} h x_w(l), 0 \big) \Big), \tag{2}

with s, x, r and h of ``taut.solver.packing.step_graph`` (1) to (2'), launches as part of s: a ring of g ranks sends
1 / g of the keys g - 1 times. One rank has no ring. In the order of falling g the ranks of an aligned group are free
at the same time, so that a rank's time is the sum of its sequences'. The rule takes g(l), and of equal groups the one
that is free first, sequences of more work first. (3)

Bound: g t(l, g) rises with g, so

.. math:: T \ge \max\Big( \tfrac{1}{dp \, c} \sum_i g(l_i) \, t(l_i, g(l_i)), \; \max_i \min_{g \ge g(l_i)} t(l_i, g)
    \Big). \tag{4}

Megatron-LM runs dynamic degrees without pipelines alone (``--dynamic-context-parallel``), where dp c is a power of two.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.solver.packing.step_graph import Packed


class Contexts(NamedTuple):
    """A step with dynamic degrees: its seconds under rule (3), and the bound (4)."""

    step_s: float
    bound_s: float


def has_contexts(packed: Packed) -> bool:
    """Whether a plan has a stage alone, context ranks, and a pool of a power of two."""
    pool = packed.graph.replicas * packed.contexts
    return packed.contexts > 1 and len(packed.graph.last) == 1 and pool & (pool - 1) == 0


def dynamic_step(packed: Packed, tokens: Ints) -> Contexts:
    """A step of sequences (n,) with dynamic degrees, priced at the slowest replica and bounded at the fastest."""
    pool = packed.graph.replicas * packed.contexts
    least = least_degrees(tokens, packed.budget // packed.contexts)
    features, beside = packed.features(tokens), packed.graph.beside
    slow, fast = (_seconds(packed, features, least, slowest) for slowest in (True, False))
    step = greedy(slow, least, pool)
    alone = np.full(len(tokens), np.inf)
    for g in (2 ** np.arange(int(pool).bit_length())).tolist():
        each = _seconds(packed, features, np.full_like(least, g), False)
        alone = np.where(least <= g, np.minimum(alone, each), alone)
    bound = max(float(least @ fast) / pool, float(alone.max()))
    return Contexts(step + beside, bound + beside)


def least_degrees(tokens: Ints, most: int) -> Ints:
    """The least power of two of ranks that have at most so many tokens each (n,), (1)."""
    ranks = np.maximum(-(-tokens // most), 1)
    return np.asarray(2 ** np.ceil(np.log2(ranks) - 1e-12).astype(np.int64))


def greedy(seconds: Floats, degrees: Ints, pool: int) -> float:
    """The largest time of a rank under (3), of sequences by seconds on each of their ranks (n,)."""
    free = np.zeros(pool)
    for i in np.lexsort((-seconds, -degrees)).tolist():
        groups = free.reshape(-1, int(degrees[i]))
        # All ranks of a group are free at the same time.
        groups[int(np.argmin(groups[:, 0]))] += seconds[i]
    return float(free.max())


def _seconds(packed: Packed, features: Floats, degrees: Ints, slowest: bool) -> Floats:
    """Seconds (2) of sequences on each of so many ranks (n,), at the prices of the slowest or fastest replica."""
    graph, c = packed.graph, packed.contexts
    runs = np.bincount(graph.kind, minlength=len(graph.device)) > 0
    most, least = (np.max, np.min) if slowest else (np.min, np.max)
    slope, fixed = (most(each[:, runs].sum(axis=1), axis=0) for each in (graph.slope, graph.fixed))
    found = features @ slope + fixed * features[:, 0]
    ring, cover = most(graph.ring[:, runs], axis=0), least(graph.cover[:, runs], axis=0)
    turns = (degrees - 1) / (c - 1)
    for sent, hidden in zip(ring.reshape(-1), cover.reshape(-1), strict=True):
        shown = turns * sent * features[:, 0] - c / degrees * turns * hidden * features[:, -1]
        found = found + np.maximum(shown, 0.0)
    return np.asarray(found * c / degrees)
