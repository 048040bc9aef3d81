r"""
The best plan by Galvatron's formula over all its settings, and a lower bound on every plan.

A setting has its micro-batches and stages. Where weights are split, a buffer is kept by the most ways of a plan, so a
setting is solved for every such number, and once without split weights and buffer. Without a pipeline the optimum is
exact; with one a bound is compared with the best plan, and where it is below, the bound of the whole is, too.

With a pipeline, by (1) to (3) of ``taut.papers.galvatron.step`` the time of p stages is at least

(1) :math:`\max(R_1, R_2)`,
(2) :math:`\sum_{j > i} C_j + (m - 1) C_{p-1} + S_i` for every stage i,
(3) :math:`\max(\min(p - 1, m - 1) C_0, \sum_{i > 0} C_i) + (m - p) C_0 + S_0`,

as the reduction that is counted is not below that of one stage, nor below 0. All three grow with every :math:`C_i` and
:math:`S_i`, whose least values within the memory of a stage are each found by (5). The bound may stay
below every plan, since no plan need have all least values at once.

Without a pipeline, with m micro-batches, :math:`\alpha = \sum a`, :math:`\beta = \sum b` and o of embedding and head,

(4) :math:`T = \max(m (\beta + o), (m - 1)(\beta + o) + \alpha)`.

For :math:`\lambda \in [0, 1]` the sum of both parts, weighted by :math:`\lambda` and :math:`1 - \lambda`, is not above
T, and its least value is found by (5): a bound on every completion of a partial choice. Ways of spreading are taken one
after another with every number of layers; a partial choice is dropped where its bound for some :math:`\lambda` reaches
the best T. What is left at the end is compared by (4), so the least T is exact. If partial choices become too many, the
best of the bounds is kept instead.

Layers of a stage are alike, so what is chosen is how many of them are spread in which way. With :math:`w_s` whole MiB
and the cost :math:`c_s` of a layer that is spread as s, the least cost of k layers within u MiB is

(5) :math:`D_0(u) = 0, \quad D_k(u) = \min_{s: w_s \le u} D_{k-1}(u - w_s) + c_s`.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.readers.galvatron.profile import Split
from taut.papers.galvatron.step import (
    GalvatronProblem,
    Setting,
    buffer_mib,
    layer_mib,
    layer_price,
    pipeline_seconds,
    powers,
    price,
    vocabulary_mib,
    vocabulary_seconds,
)


def least_costs(mib: Ints, costs: Floats, layers: int, capacity: int) -> Floats:
    """D of (5), by layers and by MiB, from MiB and cost of a layer by the way it is spread."""
    found = np.full((layers + 1, capacity + 1), np.inf)
    found[0] = 0.0
    for k in range(1, layers + 1):
        for size, cost in zip(mib, costs, strict=True):
            if size <= capacity:
                np.minimum(found[k, size:], found[k - 1, : capacity + 1 - size] + cost, out=found[k, size:])
    return found


def counts_of(found: Floats, mib: Ints, costs: Floats, layers: int, capacity: int) -> Ints | None:
    """Layers by way of spreading at the least cost in ``least_costs``' table within a capacity; None: none fits."""
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
SUM_ROUNDING = 1e-12
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
    """Solve a setting without a pipeline; the result is not above ``known``, without counts where no plan is faster."""
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
    """T of (4)."""
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
        fits &= least < known * (1 - SUM_ROUNDING)
    return np.asarray(fits)


def _spread(found: OneStage, kept: Ints) -> OneStage:
    """Counts over all ways of spreading; unchanged without counts."""
    if found.counts is None:
        return found
    every = np.zeros(int(kept.max()) + 1, dtype=np.int64)
    every[kept] = found.counts
    return OneStage(found.seconds, found.lower_bound, every, found.end)


def pipeline_bound(last: Floats, others: Floats, chunks: int) -> float:
    """The largest of (1) to (3), from the least S and C by stage, infinite where nothing fits."""
    if not (np.isfinite(last).all() and np.isfinite(others).all()):
        return np.inf
    stages = len(others)
    behind: Floats = np.append(np.cumsum(others[:0:-1])[::-1], 0.0)
    second = float(np.max(behind + last)) + (chunks - 1) * float(others[-1])
    filled = max(min(stages - 1, chunks - 1) * float(others[0]), float(behind[0]))
    third = filled + (chunks - stages) * float(others[0]) + float(last[0])
    return max(pipeline_seconds(others, chunks), second, third)


def in_order(counts: Ints) -> list[int]:
    """Ways of spreading by layer, those of one kind together."""
    return [kind for kind, number in enumerate(counts) for _ in range(int(number))]


ROUNDING = 1e-9
"""Share by which sums of the same figures may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronResult:
    """Least step found and a lower bound on every plan; without layers none is known to beat the one begun from."""

    seconds: float
    lower_bound: float
    setting: Setting = field(default_factory=lambda: Setting(1, 1))
    layers: tuple[Split, ...] = ()
    ends: Split = field(default_factory=Split)


@dataclass(frozen=True, slots=True)
class _Task:
    """A setting with what may be chosen in it and the MiB of its buffer."""

    setting: Setting
    splits: list[Split]
    ends: list[Split]
    buffer: int


def best_galvatron_plan(problem: GalvatronProblem, known: float = np.inf, *, alike: bool = False) -> GalvatronResult:
    """Search all settings for plans faster than ``known``; ``alike``: of layers over the same ways."""
    best = GalvatronResult(seconds=known, lower_bound=known)
    bound = known
    # Settings without a pipeline are exact and bring the plan to which the bounds of the others are compared.
    tasks = sorted(_tasks(problem), key=lambda task: task.setting.pp)
    if alike:
        tasks = [part for task in tasks for part in _alike(task)]
    for task in tasks:
        found = (_without_pipeline if task.setting.pp == 1 else _with_pipeline)(problem, task, best)
        bound = min(bound, found.lower_bound)
        best = min(best, found, key=lambda each: each.seconds)
    return replace(best, lower_bound=min(bound, best.seconds) * (1 - ROUNDING))


def _tasks(problem: GalvatronProblem) -> list[_Task]:
    found = []
    for setting in problem.settings():
        splits, ends = problem.splits(setting), problem.ends(setting)
        whole = _Task(setting, [each for each in splits if each.tp == 1], [each for each in ends if each.tp == 1], 0)
        found.append(whole)
        for ways in powers(problem.gpus // setting.pp)[1:]:
            narrow, few = ([each for each in every if each.ways <= ways] for every in (splits, ends))
            found.append(_Task(setting, narrow, few, buffer_mib(problem, setting, ways)))
    return [task for task in found if task.splits and task.ends]


def _alike(task: _Task) -> list[_Task]:
    """A task for every way over which all layers may be spread."""
    kinds = sorted({(split.ways, split.sequence) for split in task.splits})
    splits = [[split for split in task.splits if (split.ways, split.sequence) == kind] for kind in kinds]
    return [replace(task, splits=some) for some in splits]


def _layers(problem: GalvatronProblem, task: _Task, stage: int) -> Layers:
    prices = [layer_price(problem, task.setting, split) for split in task.splits]
    mib = [layer_mib(problem, task.setting, split, stage) for split in task.splits]
    return Layers(np.array(mib), np.array([p.last for p in prices]), np.array([p.others for p in prices]))


def _without_pipeline(problem: GalvatronProblem, task: _Task, best: GalvatronResult) -> GalvatronResult:
    ends = [End(vocabulary_seconds(problem, task.setting, end)[0], _room(problem, task, end)[0]) for end in task.ends]
    found = best_on_one_stage(_layers(problem, task, 0), problem.layers, ends, task.setting.chunks, best.seconds)
    if found.counts is None:
        return replace(best, lower_bound=found.lower_bound)
    layers = tuple(task.splits[kind] for kind in in_order(found.counts))
    return _priced(problem, task, layers, task.ends[found.end], found.lower_bound)


def _room(problem: GalvatronProblem, task: _Task, end: Split) -> list[int]:
    """MiB left to the layers of every stage."""
    return [problem.capacity - task.buffer - held for held in vocabulary_mib(problem, task.setting, end)]


def _priced(
    problem: GalvatronProblem, task: _Task, layers: tuple[Split, ...], end: Split, bound: float
) -> GalvatronResult:
    found = price(problem, task.setting, layers, end)
    if max(found.mib) > problem.capacity:
        raise RuntimeError(f"a plan needs {max(found.mib)} of {problem.capacity} MiB")
    return GalvatronResult(seconds=found.seconds, lower_bound=bound, setting=task.setting, layers=layers, ends=end)


def _with_pipeline(problem: GalvatronProblem, task: _Task, best: GalvatronResult) -> GalvatronResult:
    division = problem.division(task.setting.pp)
    rooms = np.array([_room(problem, task, end) for end in task.ends])
    stages = [_layers(problem, task, stage) for stage in range(task.setting.pp)]
    tables = [
        [least_costs(each.mib, costs, count, max(int(rooms[:, i].max()), 0)) for costs in (each.last, each.others)]
        for i, (each, count) in enumerate(zip(stages, division, strict=True))
    ]
    bound = np.inf
    for end, room in zip(task.ends, rooms, strict=True):
        last, others = (_least(tables, kind, division, room) for kind in (0, 1))
        others = others + np.array(vocabulary_seconds(problem, task.setting, end))
        least = pipeline_bound(last, others, task.setting.chunks)
        if least < best.seconds:
            bound = min(bound, least)
            counts = [
                counts_of(tables[i][1], each.mib, each.others, division[i], int(room[i]))
                for i, each in enumerate(stages)
            ]
            layers = tuple(task.splits[kind] for some in counts if some is not None for kind in in_order(some))
            found = _priced(problem, task, layers, end, bound)
            best = min(best, found, key=lambda each: each.seconds)
    return replace(best, lower_bound=min(bound, best.seconds))


def _least(tables: list[list[Floats]], kind: int, division: list[int], room: Floats) -> Floats:
    """Least sums by stage, infinite where nothing fits."""
    return np.array(
        [
            table[kind][count, int(left)] if left >= 0 else np.inf
            for table, count, left in zip(tables, division, room, strict=True)
        ]
    )
