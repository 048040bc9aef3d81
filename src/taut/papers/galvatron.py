r"""
Galvatron (PKU-DAIR/Hetu-Galvatron, revision cea12ff): its formula, its best plan over all settings, and a lower bound.

Seconds and memory of a whole plan are as its ``pipeline_costmodel`` has them. Let stage i of p have layers of
:math:`a_l` seconds in the last micro-batch and :math:`b_l` in others, and :math:`o_i` of embedding and head,
:math:`C_i = \sum_l b_l + o_i`, :math:`S_i = \sum_l a_l`. With m micro-batches

(1) :math:`R_1 = \sum_i C_i + (m - 1) C_{p-1}`,
(2) :math:`R_2 = \max(\min(p - 1, m - 1) C_0, \sum_{i > 0} C_i) + (m + 1 - p) C_0`,
(3) :math:`T = \max(R_1, R_2) + \max(0, \max_i S_i - \sum_{j \le i} C_j)`,

the last being reductions that no later stage hides. On one stage :math:`T = \max(m C, (m - 1) C + S)`. Redistribution
between layers over different ways is in the search's dynamic program and not in the time that it reports; here, too.

A layer is priced as Galvatron's ``layer_cost.py`` does. A layer over n ways of weights (t) or of the
sequence (s) has d replicas of b samples, and its weights are the same on :math:`r = d s` devices. With the forward line
of the profile, :math:`o` the slowdown by overlap, :math:`\rho` the rate of an all-reduce over r devices (consecutive
where t = 1) and P the fp32 bytes of its parameters,

(4) :math:`f = \alpha b / n + \beta`, and the backward pass :math:`g = 2 f`, or :math:`3 f` if it is recomputed;
(5) :math:`x = 2 \frac{r - 1}{r} \frac{P}{2 t \rho}` of gradients in half precision, half of it for ZeRO-3's weights;
(6) six all-gathers (t > 1) or four all-to-alls (s > 1) of :math:`2 b \, \mathrm{seq} \, \mathrm{hidden}` bytes, half as
    many again if it is recomputed;
(7) :math:`f + \max(x, g) + (o - 1) \min(x, g)` + (6) where d > 1, and :math:`f + g` + (6) otherwise; ZeRO-3 adds
    x / 2; in a pipeline of p stages each layer carries its part of :math:`4 p b \, \mathrm{seq} \, \mathrm{hidden}`
    bytes between stages. Micro-batches before the last have x = 0 in the maximum.

Its states are four times P / t, of which with :math:`u = 1 / r + 0.003` ZeRO-3 keeps u and ZeRO-2 :math:`7/8 u + 1/8`
at one micro-batch; at several :math:`7/8 u + 1/8` and :math:`6/8 u + 2/8`. Activations are those of the profile by
sample, for all micro-batches that stage i of 1F1B holds, p - i. A layer takes whole MiB.

Embedding and head are priced as ``embedding_lmhead_cost.py`` does. On one stage they are together; of several, the
first and the last have half of the seconds each. With f, g = 2 f, t, r and the rate of (4) and (5), and states of S
bytes,

(8) :math:`c = \frac{r - 1}{r} \frac{S}{8 \rho}` for gradients in half precision;
(9) a pass of y seconds beside communication of z takes :math:`y + (1 - 1/o) z`, or z where :math:`o y \le z`;
(10) the seconds are (9) of f beside c / 2 with ZeRO-3 and beside nothing without, (9) of g beside c / 2 with ZeRO-3 and
    beside nothing without (gradients are reduced in the last micro-batch alone, and the search leaves them out), and
    an all-gather of activations for each of embedding and head where t > 1.

Memory is states by what is sharded, activations of all micro-batches held, and 1 GiB of PyTorch's context, in whole
MiB; stages between hold the context alone. If weights are split anywhere, a buffer for a gathered micro-batch is kept.

At a global batch the search decides micro-batches, stages, and how each layer is spread. Stages hold equal numbers of
layers, the last one the rest. Of the devices of a stage a layer takes a power of two as its ways, tensor parallel or
with a split sequence, the others are replicas that keep what ``default`` says (``zero2``: optimizer and gradients
sharded; ``ddp``: nothing) or shard weights too, and it is recomputed or not; embedding and head choose the same,
without recomputation. A micro-batch has a sample for each replica at least, and a plan as many micro-batches as stages.

A setting has its micro-batches and stages. Where weights are split, a buffer is kept by the most ways of a plan, so a
setting is solved for every such number, and once without split weights and buffer. Without a pipeline the optimum is
exact; with one a bound is compared with the best plan, and where it is below, the bound of the whole is, too.

With a pipeline, by (1) to (3) the time of p stages is at least

(11) :math:`\max(R_1, R_2)`,
(12) :math:`\sum_{j > i} C_j + (m - 1) C_{p-1} + S_i` for every stage i,
(13) :math:`\max(\min(p - 1, m - 1) C_0, \sum_{i > 0} C_i) + (m - p) C_0 + S_0`,

as the reduction that is counted is not below that of one stage, nor below 0. All three grow with every :math:`C_i` and
:math:`S_i`, whose least values within the memory of a stage are each found by (15). The bound may stay
below every plan, since no plan need have all least values at once.

Without a pipeline, with m micro-batches, :math:`\alpha = \sum a`, :math:`\beta = \sum b` and o of embedding and head,

(14) :math:`T = \max(m (\beta + o), (m - 1)(\beta + o) + \alpha)`.

For :math:`\lambda \in [0, 1]` the sum of both parts, weighted by :math:`\lambda` and :math:`1 - \lambda`, is not above
T, and its least value is found by (15): a bound on every completion of a partial choice. Ways of spreading are taken
one after another with every number of layers; a partial choice is dropped where its bound for some :math:`\lambda`
reaches the best T. What is left at the end is compared by (14), so the least T is exact. If partial choices become too
many, the best of the bounds is kept instead.

Layers of a stage are alike, so what is chosen is how many of them are spread in which way. With :math:`w_s` whole MiB
and the cost :math:`c_s` of a layer that is spread as s, the least cost of k layers within u MiB is

(15) :math:`D_0(u) = 0, \quad D_k(u) = \min_{s: w_s \le u} D_{k-1}(u - w_s) + c_s`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.readers.galvatron.profile import Ends, GalvatronProfile, Split
from taut.data.units import MIB

RESERVED, RESERVED_FROM_MIB = 0.2, 21 * 1024
"""Share of the memory that the search leaves to PyTorch's cache, where it has this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronProblem:
    """A model of ``layers`` equal layers of width ``hidden`` on ``gpus`` devices with ``memory_mib`` each."""

    profile: GalvatronProfile
    layers: int
    hidden: int
    gpus: int
    global_batch: int
    memory_mib: int
    default: str = "zero2"

    @property
    def capacity(self) -> int:
        """MiB of a device that a plan may use."""
        reserved = int(self.memory_mib * RESERVED) if self.memory_mib >= RESERVED_FROM_MIB else 0
        return self.memory_mib - reserved

    def settings(self) -> Iterator["Setting"]:
        """Every number of micro-batches and stages."""
        for chunks in range(1, self.global_batch + 1):
            for pp in powers(min(chunks, self.layers, self.gpus)):
                if self.global_batch % chunks == 0:
                    yield Setting(chunks, pp)

    def division(self, pp: int) -> list[int]:
        """Layers by stage."""
        each = self.layers // pp
        return [each] * (pp - 1) + [self.layers - each * (pp - 1)]

    def splits(self, setting: "Setting") -> list[Split]:
        """What a layer may be at a setting."""
        return [Split(*split[:3], again) for split in self.ends(setting) for again in (False, True)]

    def ends(self, setting: "Setting") -> list[Split]:
        """What embedding and head may be at a setting."""
        devices = self.gpus // setting.pp
        most = min(self.global_batch // setting.chunks, devices)
        found = []
        for ways in powers(devices):
            if devices // ways <= most:
                for sequence in (False, True) if ways > 1 else (False,):
                    sharded = (False, True) if devices // ways > 1 else (False,)
                    found += [Split(ways, sequence, each) for each in sharded]
        return found

    def replicas(self, setting: "Setting", split: Split) -> int:
        """Replicas of a layer."""
        return self.gpus // setting.pp // split.ways

    def samples(self, setting: "Setting", split: Split) -> int:
        """Samples of a micro-batch on one replica."""
        return self.global_batch // setting.chunks // self.replicas(setting, split)


@dataclass(frozen=True, slots=True)
class Setting:
    """Micro-batches of a step, and stages."""

    chunks: int
    pp: int


def powers(most: int) -> list[int]:
    """Powers of two up to a number."""
    return [1 << k for k in range(most.bit_length()) if 1 << k <= most]


CONTEXT_MIB = 1024
STATES_OVER_PARAMETERS = 4


def vocabulary_seconds(problem: GalvatronProblem, setting: Setting, split: Split) -> list[float]:
    """Seconds of a micro-batch by stage, (10)."""
    profile, samples = problem.profile, problem.samples(setting, split)
    shared = devices_with_weights(problem, setting, split)
    share = 1 if setting.pp == 1 else 2
    forward = profile.vocabulary(samples / split.ways) / share
    gather = profile.gather[split.tp](message(problem, samples)) if split.tp > 1 else 0.0
    found = [0.0] * setting.pp
    for stage, ends in _ends(problem, setting):
        states = ends.states[split.tp] / STATES_OVER_PARAMETERS / HALF
        weights = (shared - 1) / shared * states * all_reduce(problem, shared, split) / 2 * split.sharded
        passes = sum(_beside(y, weights, profile.overlap) for y in (forward, BACKWARD * forward))
        found[stage] = passes + gather * (2 if setting.pp == 1 else 1)
    return found


def _beside(computation: float, communication: float, overlap: float) -> float:
    """Seconds of computation beside communication, (9)."""
    if overlap * computation > communication:
        return computation + (1 - 1 / overlap) * communication
    return communication


def vocabulary_mib(problem: GalvatronProblem, setting: Setting, split: Split) -> list[int]:
    """Whole MiB by stage."""
    found = [CONTEXT_MIB] * setting.pp
    for stage, ends in _ends(problem, setting):
        held = problem.samples(setting, split) * (setting.pp - stage)
        states = ends.states[split.tp] * states_kept(problem, setting, split)
        found[stage] = math.ceil((states + ends.activations[split.ways] * held) / MIB + CONTEXT_MIB)
    return found


def buffer_mib(problem: GalvatronProblem, setting: Setting, ways: int) -> int:
    """Whole MiB of the buffer where weights are split and nothing is spread over more than these ways."""
    samples = problem.global_batch / setting.chunks / (problem.gpus // setting.pp // ways)
    return int(HALF * samples * problem.profile.seq * problem.hidden / MIB)


def _ends(problem: GalvatronProblem, setting: Setting) -> list[tuple[int, Ends]]:
    """Stages with embedding or head, and their figures."""
    profile = problem.profile
    return [(0, profile.whole)] if setting.pp == 1 else [(0, profile.first), (setting.pp - 1, profile.last)]


BACKWARD, AGAIN = 2.0, 1.0
GATHERS, EXCHANGES, MORE_IF_RECOMPUTED = 6, 4, 1.5
HALF = 2
"""Bytes of a number in half precision."""
LEFT_BY_SHARDING = 0.003


class Price(NamedTuple):
    """Seconds of a micro-batch with the reduction of gradients, and without."""

    last: float
    others: float


def layer_price(problem: GalvatronProblem, setting: Setting, split: Split) -> Price:
    """Seconds of a layer, (7)."""
    profile, samples = problem.profile, problem.samples(setting, split)
    replicas, shared = problem.replicas(setting, split), devices_with_weights(problem, setting, split)
    forward = profile.layer(samples / split.ways)
    backward = forward * (BACKWARD + AGAIN * split.recompute)
    reduction = (shared - 1) / shared * profile.parameters / split.tp * all_reduce(problem, shared, split)
    rest = forward + _messages(problem, samples, split) + reduction / 2 * split.sharded
    if setting.pp > 1:
        between = 2 * setting.pp * HALF * samples * profile.seq * problem.hidden
        rest += between / profile.stage_rates[setting.pp] / problem.layers
    synchronised = reduction if replicas > 1 else 0.0
    both = max(synchronised, backward) + (profile.overlap - 1) * min(synchronised, backward)
    return Price(rest + both, rest + backward)


def devices_with_weights(problem: GalvatronProblem, setting: Setting, split: Split) -> int:
    """Devices that hold the same weights, r."""
    return problem.replicas(setting, split) * split.sp


def all_reduce(problem: GalvatronProblem, devices: int, split: Split) -> float:
    """Seconds a byte of an all-reduce; none on one device."""
    return 1 / problem.profile.rates[devices, split.tp == 1] if devices > 1 else 0.0


def message(problem: GalvatronProblem, samples: int) -> float:
    """Bytes of a micro-batch's activations between layers."""
    return float(HALF * samples * problem.profile.seq * problem.hidden)


def _messages(problem: GalvatronProblem, samples: int, split: Split) -> float:
    """Seconds of all-gathers or all-to-alls, (6)."""
    if split.ways == 1:
        return 0.0
    times, number = (problem.profile.exchange, EXCHANGES) if split.sequence else (problem.profile.gather, GATHERS)
    return times[split.ways](message(problem, samples)) * number * (MORE_IF_RECOMPUTED if split.recompute else 1)


def layer_mib(problem: GalvatronProblem, setting: Setting, split: Split, stage: int) -> int:
    """Whole MiB that a layer of a stage takes."""
    profile, samples = problem.profile, problem.samples(setting, split)
    held = samples * (setting.pp - stage)
    activations = profile.recomputed / split.ways if split.recompute else profile.activations[split.ways]
    states = 4 * profile.parameters / split.tp * states_kept(problem, setting, split)
    return math.ceil((states + activations * held) / MIB)


def states_kept(problem: GalvatronProblem, setting: Setting, split: Split) -> float:
    """Share of the states that a device keeps."""
    shared = devices_with_weights(problem, setting, split)
    if problem.replicas(setting, split) == 1 or (problem.default == "ddp" and not split.sharded):
        return 1.0
    each, whole = 1 / shared + LEFT_BY_SHARDING, (0 if split.sharded else 1) + (setting.chunks > 1)
    return each if whole == 0 else (8 - whole) / 8 * each + whole / 8


@dataclass(frozen=True, slots=True)
class GalvatronPrice:
    """Seconds of a step, and whole MiB by stage."""

    seconds: float
    mib: tuple[int, ...]


def price(problem: GalvatronProblem, setting: Setting, layers: tuple[Split, ...], ends: Split) -> GalvatronPrice:
    """Price a plan: how each layer, and embedding and head, are spread at a setting."""
    ways = max(split.ways for split in (*layers, ends))
    buffer = buffer_mib(problem, setting, ways) if any(split.tp > 1 for split in (*layers, ends)) else 0
    held = vocabulary_mib(problem, setting, ends)
    last, others = np.zeros(setting.pp), np.array(vocabulary_seconds(problem, setting, ends))
    first = 0
    for stage, count in enumerate(problem.division(setting.pp)):
        for split in layers[first : first + count]:
            seconds = layer_price(problem, setting, split)
            last[stage] += seconds.last
            others[stage] += seconds.others
            held[stage] += layer_mib(problem, setting, split, stage)
        first += count
    return GalvatronPrice(step_seconds(last, others, setting.chunks), tuple(mib + buffer for mib in held))


def step_seconds(last: Floats, others: Floats, chunks: int) -> float:
    """Seconds of a step by those of the stages, S and C, (3)."""
    hidden = float(np.max(last - np.cumsum(others)))
    return pipeline_seconds(others, chunks) + max(0.0, hidden)


def pipeline_seconds(others: Floats, chunks: int) -> float:
    """Seconds without the last reductions, the larger of (1) and (2)."""
    stages = len(others)
    first = float(others.sum() + others[-1] * (chunks - 1))
    filled = max(min(stages - 1, chunks - 1) * others[0], others[1:].sum())
    return max(first, float(filled + others[0] * max(0, chunks + 1 - stages)))


def least_costs(mib: Ints, costs: Floats, layers: int, capacity: int) -> Floats:
    """D of (15), by layers and by MiB, from MiB and cost of a layer by the way it is spread."""
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
    mixed = [_weighted(layers, chunks, weight) for weight in WEIGHTS]
    tables = [least_costs(layers.mib, costs, number, room) for costs in mixed]
    best = OneStage(known, known)
    for table, costs in zip(tables, mixed, strict=True):
        for place, end in enumerate(ends):
            counts = counts_of(table, layers.mib, costs, number, end.capacity)
            best = _better(best, layers, counts, chunks, place, end)
    bound = min((_bound(tables, number, end, chunks) for end in ends), default=np.inf)
    for place, end in enumerate(ends):
        choices = _choices(layers, number, end, chunks, (tables, mixed), best.seconds)
        if choices is None:
            return replace(best, lower_bound=min(bound, best.seconds))
        for counts in choices:
            best = _better(best, layers, counts, chunks, place, end)
    return replace(best, lower_bound=best.seconds)


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
    """T of (14)."""
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


def pipeline_bound(last: Floats, others: Floats, chunks: int) -> float:
    """The largest of (11) to (13), from the least S and C by stage, infinite where nothing fits."""
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
    task = replace(task, splits=[task.splits[kind] for kind in _not_dominated(_layers(problem, task, 0))])
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
