r"""
Seconds and memory of one layer, as Galvatron's ``layer_cost.py`` has them.

A layer over n ways of weights (t) or of the sequence (s) has d replicas of b samples, and its weights are the same on
:math:`r = d s` devices. With the forward line of the profile, :math:`o` the slowdown by overlap, :math:`\rho` the rate
of an all-reduce over r devices (consecutive where t = 1) and P the fp32 bytes of its parameters,

(1) :math:`f = \alpha b / n + \beta`, and the backward pass :math:`g = 2 f`, or :math:`3 f` if it is recomputed;
(2) :math:`x = 2 \frac{r - 1}{r} \frac{P}{2 t \rho}` of gradients in half precision, half of it for ZeRO-3's weights;
(3) six all-gathers (t > 1) or four all-to-alls (s > 1) of :math:`2 b \, \mathrm{seq} \, \mathrm{hidden}` bytes, half as
    many again if it is recomputed;
(4) :math:`f + \max(x, g) + (o - 1) \min(x, g)` + (3) where d > 1, and :math:`f + g` + (3) otherwise; ZeRO-3 adds
    x / 2; in a pipeline of p stages each layer carries its part of :math:`4 p b \, \mathrm{seq} \, \mathrm{hidden}`
    bytes between stages. Micro-batches before the last have x = 0 in the maximum.

Its states are four times P / t, of which with :math:`u = 1 / r + 0.003` ZeRO-3 keeps u and ZeRO-2 :math:`7/8 u + 1/8`
at one micro-batch; at several :math:`7/8 u + 1/8` and :math:`6/8 u + 2/8`. Activations are those of the profile by
sample, for all micro-batches that stage i of 1F1B holds, p - i. A layer takes whole MiB.
"""

import math
from typing import NamedTuple

from taut.data.readers.galvatron.plans import Split
from taut.data.units import MIB
from taut.papers.galvatron.problem import GalvatronProblem, Setting

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
    """Seconds of a layer, (4)."""
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
    """Seconds of all-gathers or all-to-alls, (3)."""
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
