r"""
Packing rules: which sequences share a micro-batch, which replica runs it, and on how many context ranks.

A step has G rows of at most S tokens, G the plan's global batch, and dp m micro-batches of b rows, B = b S tokens.
Sequences come in a stream, independent of each other. A step takes them until the next one finds no room in a row under
first fit; that one opens the next step. So all plans of one global batch get the same steps. (1)

==============  ======================================================================================================
``first-fit``   each sequence, as it comes, goes to the first row with room; b rows are a micro-batch
``sorted``      the longest first, to the first micro-batch with room (first-fit decreasing)
``balanced``    the longest first, each to the micro-batch with the least work among all with room; then
                micro-batches, the most work first, each to the replica with the least work among all with a free
                place. This is the greedy rule of WLB-LLM without its queue of delayed documents
``two-level``   the longest first, each to the replica with the least work among all with room, and there to the
                micro-batch with the least work among all with room; where none has, the replica is packed by sorted
==============  ======================================================================================================

The first two deal micro-batches to the replicas in turn, as loaders do. Under the other two a micro-batch may have more
room than B. Equal micro-batches need not give equal replicas, since a single long sequence may have more work than the
mean micro-batch: two-level fills up the other micro-batches of its replica less. Where a rule finds no room for a
sequence, the step is packed by balanced in place of two-level, and by first fit, which has room by (1), in place of
others. (2)

How few rows hold the sequences of a step? At least, for every k of at most S / 2 tokens,

.. math:: |A| + |B| + \left\lceil \frac{\sum_{C} l - (|B| S - \sum_{B} l)}{S} \right\rceil^+, \tag{3}

with A the sequences above S - k tokens, B other ones above S / 2, and C other ones of at least k: a sequence of A or B
has a row of its own, and C finds room beside B alone. The largest is the bound L2 of Martello and Toth.

Sources: Wang et al. (2025), WLB-LLM: workload-balanced 4D parallelism for large language model training, OSDI;
Martello and Toth (1990), Lower bounds and reduction procedures for the bin packing problem.

Under dynamic context degrees every sequence has as many context ranks as its tokens need, and no more. A plan of one
stage has c context ranks in each of its dp replicas, and B tokens a micro-batch. With dynamic degrees the dp c ranks
are one pool. A sequence of l tokens runs on a group of g ranks,

.. math:: g \ge g(l) = \text{the least power of two with } l / g \le B / c, \tag{4}

aligned in the pool, so that no rank holds more tokens at a time than under the plan. Each rank of the group takes

.. math:: t(l, g) = \frac{c}{g} \Big( s \cdot x(l) + \max \big( \tfrac{g - 1}{c - 1} r x_0(l)
    - \tfrac{c (g - 1)}{g (c - 1)} h x_w(l), 0 \big) \Big), \tag{5}

with s, x, r and h of ``taut.solver.packing.step_graph`` (1) to (2'), launches as part of s: a ring of g ranks sends
1 / g of the keys g - 1 times. One rank has no ring. In the order of falling g the ranks of an aligned group are free
at the same time, so that a rank's time is the sum of its sequences'. The rule takes g(l), and of equal groups the one
that is free first, sequences of more work first. (6)

Bound: g t(l, g) rises with g, so

.. math:: T \ge \max\Big( \tfrac{1}{dp \, c} \sum_i g(l_i) \, t(l_i, g(l_i)), \; \max_i \min_{g \ge g(l_i)} t(l_i, g)
    \Big). \tag{7}

Megatron-LM runs dynamic degrees without pipelines alone (``--dynamic-context-parallel``), where dp c is a power of two.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.lengths import Lengths
from taut.solver.packing.step_graph import Packed

RuleName = Literal["first-fit", "sorted", "balanced", "two-level"]
RULES: tuple[RuleName, ...] = get_args(RuleName)
BLOCK = 4096
"""Lengths drawn at a time."""


class Drawn(NamedTuple):
    """Sequences of a step (n,), and the row of each by first fit."""

    tokens: Ints
    first_fit: Ints


def draw_steps(lengths: Lengths, seed: int, rows: int, seq: int) -> Iterator[Drawn]:
    """Steps without end, (1), of so many rows of at most ``seq`` tokens."""
    random = np.random.default_rng(seed)
    held: list[int] = []
    while True:
        room, tokens, places = np.full(rows, seq, dtype=np.int64), list[int](), list[int]()
        opened = 0
        while True:
            if not held:
                held = lengths.draw(random, BLOCK).tolist()[::-1]
            place = int(np.argmax(room[: opened + 1] >= held[-1]))
            if room[place] < held[-1]:
                break
            # Rows behind the first empty one are empty too.
            opened = min(max(opened, place + 1), rows - 1)
            room[place] -= held[-1]
            tokens.append(held.pop())
            places.append(place)
        yield Drawn(np.array(tokens, dtype=np.int64), np.array(places, dtype=np.int64))


def pack_by(
    rule: RuleName,
    drawn: Drawn,
    work: Floats,
    replicas: int,
    micro_batches: int,
    budget: int,
    room: int,
    samples: int = 1,
) -> tuple[Ints, bool]:
    """Micro-batch of every sequence, replica after replica (n,), for ``work`` (n,), and whether the rule had room."""
    count = replicas * micro_batches
    dealt = (np.arange(count) % replicas) * micro_batches + np.arange(count) // replicas
    as_drawn, order = dealt[drawn.first_fit // samples], np.argsort(-drawn.tokens, kind="stable")
    if rule == "first-fit":
        return as_drawn, True
    if rule == "sorted":
        found = _first_fit(drawn.tokens, order, count, budget)
        return (as_drawn, False) if found is None else (dealt[found], True)
    if rule == "two-level":
        found = _two_level(drawn.tokens, order, work, replicas, micro_batches, room)
        if found is not None:
            return found, True
    # Balanced, which also takes the place of two levels where these have no room.
    found = _least_work(drawn.tokens, order, work, count, room)
    if found is None:
        return as_drawn, False
    each = np.zeros(count)
    np.add.at(each, found, work)
    return _to_replicas(each, replicas, micro_batches)[found], rule == "balanced"


def _first_fit(tokens: Ints, order: Ints, count: int, budget: int) -> Ints | None:
    """Micro-batch of every sequence by first fit in an order (n,); None where one finds no room."""
    room, found, opened = np.full(count, budget, dtype=np.int64), np.empty(len(tokens), dtype=np.int64), 0
    for i in order.tolist():
        place = int(np.argmax(room[: opened + 1] >= tokens[i]))
        if room[place] < tokens[i]:
            return None
        opened = min(max(opened, place + 1), count - 1)
        room[place] -= tokens[i]
        found[i] = place
    return found


def _least_work(tokens: Ints, order: Ints, work: Floats, count: int, room: int) -> Ints | None:
    """Micro-batch of every sequence, each to the one with the least work that has room; None where none has."""
    left, done, found = np.full(count, room, dtype=np.int64), np.zeros(count), np.empty(len(tokens), dtype=np.int64)
    for i in order.tolist():
        place = int(np.argmin(np.where(left >= tokens[i], done, np.inf)))
        if left[place] < tokens[i]:
            return None
        left[place] -= tokens[i]
        done[place] += work[i]
        found[i] = place
    return found


def _two_level(tokens: Ints, order: Ints, work: Floats, replicas: int, micro_batches: int, room: int) -> Ints | None:
    """Place of every sequence by work, replica first; None where one finds no room."""
    replica = _least_work(tokens, order, work, replicas, micro_batches * room)
    if replica is None:
        return None
    found = np.empty(len(tokens), dtype=np.int64)
    for z in range(replicas):
        own = order[replica[order] == z]
        turn, share = np.arange(len(own)), tokens[own]
        each = _least_work(share, turn, work[own], micro_batches, room)
        if each is None and (each := _first_fit(share, turn, micro_batches, room)) is None:
            return None
        found[own] = z * micro_batches + each
    return found


def _to_replicas(work: Floats, replicas: int, micro_batches: int) -> Ints:
    """Place of every micro-batch (count,), the most work first, each to the replica with the least that is free."""
    done, filled, found = np.zeros(replicas), np.zeros(replicas, dtype=np.int64), np.empty(len(work), dtype=np.int64)
    for k in np.argsort(-work, kind="stable").tolist():
        z = int(np.argmin(np.where(filled < micro_batches, done, np.inf)))
        found[k] = z * micro_batches + filled[z]
        done[z] += work[k]
        filled[z] += 1
    return found


def least_rows(tokens: Ints, seq: int) -> int:
    """The bound (3) on the rows that hold sequences of at most ``seq`` tokens (n,)."""
    rising = np.sort(tokens)
    sums = np.concatenate([[0], np.cumsum(rising)])
    halves = int(np.searchsorted(rising, seq / 2, side="right"))
    small = np.unique(np.concatenate([[0], rising[:halves]]))
    from_small = np.searchsorted(rising, small)
    large = np.maximum(np.searchsorted(rising, seq - small, side="right"), halves)
    beside = (large - halves) * seq - (sums[large] - sums[halves])
    over = np.maximum(sums[halves] - sums[from_small] - beside, 0)
    return int((len(rising) - halves + -(-over // seq)).max())


def micro_batch_features(features: Floats, places: Ints, replicas: int, micro_batches: int) -> Floats:
    """Sums of the features (n, F) of sequences by replica and micro-batch (replicas, m, F)."""
    found = np.zeros((replicas * micro_batches, features.shape[1]))
    np.add.at(found, places, features)
    return found.reshape(replicas, micro_batches, -1)


class Contexts(NamedTuple):
    """A step with dynamic degrees: its seconds under rule (6), and the bound (7)."""

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
    """The least power of two of ranks that have at most so many tokens each (n,), (4)."""
    ranks = np.maximum(-(-tokens // most), 1)
    return np.asarray(2 ** np.ceil(np.log2(ranks) - 1e-12).astype(np.int64))


def greedy(seconds: Floats, degrees: Ints, pool: int) -> float:
    """The largest time of a rank under (6), of sequences by seconds on each of their ranks (n,)."""
    free = np.zeros(pool)
    for i in np.lexsort((-seconds, -degrees)).tolist():
        groups = free.reshape(-1, int(degrees[i]))
        # All ranks of a group are free at the same time.
        groups[int(np.argmin(groups[:, 0]))] += seconds[i]
    return float(free.max())


def _seconds(packed: Packed, features: Floats, degrees: Ints, slowest: bool) -> Floats:
    """Seconds (5) of sequences on each of so many ranks (n,), at the prices of the slowest or fastest replica."""
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
