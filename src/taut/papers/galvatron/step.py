r"""
What Galvatron's search decides, and seconds and memory of a whole plan as its ``pipeline_costmodel`` has them.

Let stage i of p have layers of :math:`a_l` seconds in the last micro-batch and :math:`b_l` in others, and :math:`o_i`
of embedding and head, :math:`C_i = \sum_l b_l + o_i`, :math:`S_i = \sum_l a_l`. With m micro-batches

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
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
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
