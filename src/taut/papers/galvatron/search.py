r"""
The best plan by Galvatron's formula over all its settings, and a lower bound on every plan.

A setting has its micro-batches and stages. Where weights are split, a buffer is kept by the most ways of a plan, so a
setting is solved for every such number, and once without split weights and buffer. Without a pipeline the optimum is
exact; with one a bound is compared with the best plan, and where it is below, the bound of the whole is, too.

With a pipeline, by (1) to (3) of ``taut.papers.galvatron.step`` the time of p stages
is at least

(1) :math:`\max(R_1, R_2)`,
(2) :math:`\sum_{j > i} C_j + (m - 1) C_{p-1} + S_i` for every stage i,
(3) :math:`\max(\min(p - 1, m - 1) C_0, \sum_{i > 0} C_i) + (m - p) C_0 + S_0`,

as the reduction that is counted is not below that of one stage, nor below 0. All three grow with every :math:`C_i` and
:math:`S_i`, whose least values within the memory of a stage are each found by ``taut.papers.galvatron.one_stage``.
The bound may stay below every plan, since no plan need have all least values at once.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.readers.galvatron.profile import Split
from taut.papers.galvatron.one_stage import End, Layers, best_on_one_stage, counts_of, least_costs
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


def pipeline_bound(last: Floats, others: Floats, chunks: int) -> float:
    """
    The largest of (1) to (3).

    ``last``, ``others``: least S and C by stage, infinite where nothing fits; ``chunks``: micro-batches of a step, as
    many as stages at least.
    """
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
    """
    Least step found and a lower bound on every plan.

    Without layers no plan is known to be faster than the one that the search began from.
    """

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
    """
    Search all settings.

    ``known``: seconds of a known plan; plans that are slower are not looked at; ``alike``: of plans whose layers are
    all spread over the same ways, so that nothing is redistributed between layers.
    """
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
