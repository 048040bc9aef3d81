r"""
The exact optimum of a plan without a pipeline, whose time is the larger of two sums over its layers.

With m micro-batches, :math:`\alpha = \sum a`, :math:`\beta = \sum b` and o of embedding and head
(``taut.papers.galvatron.step``),

(1) :math:`T = \max(m (\beta + o), (m - 1)(\beta + o) + \alpha)`.

For :math:`\lambda \in [0, 1]` the sum of both parts, weighted by :math:`\lambda` and :math:`1 - \lambda`, is not above
T, and its least value is found by (2): a bound on every completion of a partial choice.
Ways of spreading are taken one after another with every number of layers; a partial choice is dropped where its bound
for some :math:`\lambda` reaches the best T. What is left at the end is compared by (1), so the least T is exact. If
partial choices become too many, the best of the bounds is kept instead.

A dynamic program finds the layers of one stage at the least cost within its memory. Layers are alike, so what is chosen
is how many of them are spread in which way. With :math:`w_s` whole MiB and the cost :math:`c_s` of a layer that is
spread as s, the least cost of k layers within u MiB is

(2) :math:`D_0(u) = 0, \quad D_k(u) = \min_{s: w_s \le u} D_{k-1}(u - w_s) + c_s`.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Floats, Ints


def least_costs(mib: Ints, costs: Floats, layers: int, capacity: int) -> Floats:
    """
    D of (2), by layers and by MiB.

    ``mib``, ``costs``: of a layer, by the way it is spread.
    """
    found = np.full((layers + 1, capacity + 1), np.inf)
    found[0] = 0.0
    for k in range(1, layers + 1):
        for size, cost in zip(mib, costs, strict=True):
            if size <= capacity:
                np.minimum(found[k, size:], found[k - 1, : capacity + 1 - size] + cost, out=found[k, size:])
    return found


def counts_of(found: Floats, mib: Ints, costs: Floats, layers: int, capacity: int) -> Ints | None:
    """
    How many layers are spread in which way at the least cost within a capacity, or None where none fits.

    ``found``: what ``least_costs`` returned for these layers; ``mib``, ``costs``, ``layers``, ``capacity``: as given to
    it, or a smaller capacity.
    """
    if capacity < 0 or not np.isfinite(found[layers, capacity]):
        return None
    counts, left = np.zeros(len(mib), dtype=np.int64), capacity
    for k in range(layers, 0, -1):
        rest = [
            found[k - 1, left - size] + cost if size <= left else np.inf for size, cost in zip(mib, costs, strict=True)
        ]
        chosen = int(np.argmin(rest))
        counts[chosen] += 1
        left -= int(mib[chosen])
    return counts


WEIGHTS = 0.0, 0.5, 1.0
"""Weights of the bounds: either part alone, and both."""
MOST_PARTIAL = 500_000
"""Partial choices at once, some 100 MB; the examples of Galvatron keep below a thousand."""
ROUNDING = 1e-12
"""Share by which sums of the same figures may differ."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Whole MiB, and seconds in the last micro-batch and in others, of a layer by the way it is spread."""

    mib: Ints
    last: Floats
    others: Floats


@dataclass(frozen=True, slots=True)
class End:
    """Seconds of embedding and head, and MiB that they leave."""

    seconds: float
    capacity: int


@dataclass(frozen=True, slots=True)
class OneStage:
    """The least time found, how many layers are spread in which way and with which end, and a lower bound."""

    seconds: float
    lower_bound: float
    counts: Ints | None = None
    end: int = -1


def best_on_one_stage(layers: Layers, number: int, ends: list[End], chunks: int, known: float) -> OneStage:
    """
    Solve a setting without a pipeline.

    ``layers``: by the way they are spread; ``number``: layers of the model; ``ends``: what embedding and head may be;
    ``chunks``: micro-batches of a step; ``known``: seconds of a known plan; the result is not above, and without counts
    where no plan is faster.
    """
    room = max((end.capacity for end in ends), default=-1)
    if room < 0 or not len(layers.mib):
        return OneStage(known, known)
    kept = _not_dominated(layers)
    few = Layers(layers.mib[kept], layers.last[kept], layers.others[kept])
    mixed = [_weighted(few, chunks, weight) for weight in WEIGHTS]
    tables = [least_costs(few.mib, costs, number, room) for costs in mixed]
    best = OneStage(known, known)
    for table, costs in zip(tables, mixed, strict=True):
        for place, end in enumerate(ends):
            counts = counts_of(table, few.mib, costs, number, end.capacity)
            best = _better(best, few, counts, chunks, place, end)
    bound = min((_bound(tables, number, end, chunks) for end in ends), default=np.inf)
    for place, end in enumerate(ends):
        choices = _choices(few, number, end, chunks, (tables, mixed), best.seconds)
        if choices is None:
            return _spread(OneStage(best.seconds, min(bound, best.seconds), best.counts, best.end), kept)
        for counts in choices:
            best = _better(best, few, counts, chunks, place, end)
    return _spread(OneStage(best.seconds, best.seconds, best.counts, best.end), kept)


def _not_dominated(layers: Layers) -> Ints:
    """Ways of spreading that no other equals or betters in memory and both times; of equals the first."""
    rows = np.column_stack([layers.mib, layers.last, layers.others])
    below = (rows[:, None] <= rows[None, :]).all(axis=2)
    equal = below & below.T
    first = np.tri(len(rows), k=-1, dtype=bool).T
    return np.flatnonzero(~(below & (~equal | first)).any(axis=0))


def _weighted(layers: Layers, chunks: int, weight: float) -> Floats:
    return np.asarray((weight * chunks + (1 - weight) * (chunks - 1)) * layers.others + (1 - weight) * layers.last)


def _time(layers: Layers, counts: Ints, chunks: int, end: End) -> float:
    """T of (1)."""
    others = float(counts @ layers.others) + end.seconds
    return max(chunks * others, (chunks - 1) * others + float(counts @ layers.last))


def _better(best: OneStage, layers: Layers, counts: Ints | None, chunks: int, place: int, end: End) -> OneStage:
    if counts is None:
        return best
    seconds = _time(layers, counts, chunks, end)
    return OneStage(seconds, best.lower_bound, counts, place) if seconds < best.seconds else best


def _of_end(end: End, chunks: int, weight: float) -> float:
    return (weight * chunks + (1 - weight) * (chunks - 1)) * end.seconds


def _bound(tables: list[Floats], number: int, end: End, chunks: int) -> float:
    """The largest bound on all plans with an end."""
    if end.capacity < 0:
        return np.inf
    each = zip(WEIGHTS, tables, strict=True)
    return max(float(table[number, end.capacity]) + _of_end(end, chunks, weight) for weight, table in each)


def _choices(
    layers: Layers, number: int, end: End, chunks: int, bounds: tuple[list[Floats], list[Floats]], known: float
) -> Ints | None:
    """All choices that may be faster than what is known, or None where they are too many."""
    partial = np.zeros((1 if end.capacity >= 0 else 0, len(layers.mib)), dtype=np.int64)
    for place in range(len(layers.mib)):
        left = number - partial.sum(axis=1)
        last = place == len(layers.mib) - 1
        if not last and int((left + 1).sum()) > MOST_PARTIAL:
            return None
        taken = left if last else np.concatenate([np.arange(n + 1) for n in left] or [left])
        partial = partial if last else np.repeat(partial, left + 1, axis=0)
        partial[:, place] = taken
        partial = partial[_may_be_better(layers, partial, number, end, chunks, bounds, known)]
    return partial


def _may_be_better(
    layers: Layers,
    partial: Ints,
    number: int,
    end: End,
    chunks: int,
    bounds: tuple[list[Floats], list[Floats]],
    known: float,
) -> Flags:
    left = number - partial.sum(axis=1)
    room = end.capacity - partial @ layers.mib
    fits = room >= 0
    for weight, table, costs in zip(WEIGHTS, *bounds, strict=True):
        least = partial @ costs + table[left, np.maximum(room, 0)] + _of_end(end, chunks, weight)
        fits &= least < known * (1 - ROUNDING)
    return np.asarray(fits)


def _spread(found: OneStage, kept: Ints) -> OneStage:
    """Counts over all ways of spreading; unchanged without counts."""
    if found.counts is None:
        return found
    every = np.zeros(int(kept.max()) + 1, dtype=np.int64)
    every[kept] = found.counts
    return OneStage(found.seconds, found.lower_bound, every, found.end)
