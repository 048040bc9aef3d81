r"""
Seconds and memory of embedding and head, as Galvatron's ``embedding_lmhead_cost.py`` has them.

On one stage they are together; of several, the first and the last have half of the seconds each. With f, g = 2 f, t, r
and the rate of (1) and (2) of ``taut.papers.galvatron.layers``, and states of S bytes,

(1) :math:`c = \frac{r - 1}{r} \frac{S}{8 \rho}` for gradients in half precision;
(2) a pass of y seconds beside communication of z takes :math:`y + (1 - 1/o) z`, or z where :math:`o y \le z`;
(3) the seconds are (2) of f beside c / 2 with ZeRO-3 and beside nothing without, (2) of g beside c / 2 with ZeRO-3 and
    beside nothing without (gradients are reduced in the last micro-batch alone, and the search leaves them out), and
    an all-gather of activations for each of embedding and head where t > 1.

Memory is states by what is sharded, activations of all micro-batches held, and 1 GiB of PyTorch's context, in whole
MiB; stages between hold the context alone. If weights are split anywhere, a buffer for a gathered micro-batch is kept.
"""

import math

from taut.data.readers.galvatron.plans import Split
from taut.data.readers.galvatron.profile import Ends
from taut.data.units import MIB
from taut.papers.galvatron.layers import (
    BACKWARD,
    HALF,
    all_reduce,
    devices_with_weights,
    message,
    states_kept,
)
from taut.papers.galvatron.problem import GalvatronProblem, Setting

CONTEXT_MIB = 1024
STATES_OVER_PARAMETERS = 4


def vocabulary_seconds(problem: GalvatronProblem, setting: Setting, split: Split) -> list[float]:
    """Seconds of a micro-batch by stage, (3)."""
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
    """Seconds of computation beside communication, (2)."""
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
