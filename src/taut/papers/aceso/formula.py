r"""
Seconds and bytes of a plan by Aceso's formula (EuroSys 2024, sections 3.2 and 3.3, as its program computes them).

A plan has stages :math:`s = 0, \dots, S - 1` of consecutive operators :math:`i`, each on :math:`g_s = t_s d_s` devices
with tensor degree :math:`t_s` and :math:`d_s` replicas; micro-batches of :math:`m` samples of all replicas together, so
:math:`B = G / m` of them, and flags :math:`r_i \in \{0, 1\}` of recomputed operators. With seconds :math:`f_i, b_i` of
an operator at micro-batch :math:`m / d_s` and degree :math:`t_s`, bytes :math:`x_i, y_i` of its input and output,
:math:`a_i` of its activations, :math:`w_i` of its weights, and :math:`v_i, u_i` that the allocator holds besides in the
forward and the backward pass, a stage takes

(1) :math:`\tau_s = \sum_i (f_i + b_i + r_i f_i) + x_1 / W + y_n / W`

for a micro-batch, where :math:`W` is the rate of messages of that size, within a node or between nodes by the stage's
first and last device, and the step

(2) :math:`T = (B - 1) \max_s \tau_s + \sum_s \tau_s`.

Of the activations those stay away for which an operator and the next are recomputed, unless the next opens a layer:

(3) :math:`A_s = x_1 + \sum_i a_i - \sum_i r_i r_{i+1} a_i`,

the largest run of recomputed operators, cut where a layer opens, is there once more as :math:`P_s`, and with the
weights in fp16, gradients, a copy in fp32 and two moments

(4) :math:`M_s = 8 w + (S - s) A_s + P_s + \max(\max_i v_i + \max_i u_i, w),\quad w = \sum_i w_i`,

where the maxima leave out the stage's last operator. No plan may have an :math:`M_s` above the limit. Reductions of
gradients between replicas and the optimizer's step are not in the formula.

Two particulars of the program are kept, as its figures depend on them: a message takes the rate of half its size
rounded down to a power of two, and one below 1 MiB that of a place counted from the end of the list; a run that ends
the stage behind an operator with a shared buffer is forgotten in :math:`P_s`.

Aceso's search decides the micro-batch, stages of operators, devices and degrees of each, and what it recomputes. As the
search was run: at most ``most_stages`` stages; 1, 2, 4 or 8 devices each, none across two nodes; one tensor degree and
one number of replicas in a stage; at most as many samples of all replicas as the largest micro-batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import MIB
from taut.papers.aceso.operators import OperatorProfile, Operators

BYTES_OF_WEIGHTS = 8.0
"""Weights, gradients, fp32 copy and moments in units of the fp16 weights, (4)."""


def kinds_of(operators: Operators, layers: int) -> Ints:
    """Kind of every operator of a model with so many layers, in its order."""
    first, end = operators.head, operators.head + operators.layer
    layer = np.tile(np.arange(first, end), layers)
    return np.concatenate([np.arange(first), layer, np.arange(end, len(operators.names))])


def stage_seconds(operators: Operators, kinds: Ints, recomputed: Flags, first_rate: Floats, last_rate: Floats) -> float:
    """Seconds of a stage for a micro-batch, (1), with the rates of messages by size into it and out of it."""
    forward, backward = operators.forward[kinds], operators.backward[kinds]
    messages = message_seconds(operators.inputs[kinds[0]], first_rate)
    messages += message_seconds(operators.outputs[kinds[-1]], last_rate)
    return float(forward.sum() + backward.sum() + forward[recomputed].sum()) + messages


def message_seconds(size: float, rates: Floats) -> float:
    """Seconds of a message of so many bytes, with the rates of 1, 2, 4, ... MiB."""
    if size <= 0:
        return 0.0
    place = int(math.log2(size / MIB))
    place -= place >= 1
    return float(size / rates[min(place, len(rates) - 1)])


def step_seconds(stages: Floats, micro_batches: int) -> float:
    """Seconds of a step of stages with these seconds for a micro-batch, (2)."""
    return float((micro_batches - 1) * stages.max() + stages.sum())


def stage_bytes(operators: Operators, kinds: Ints, recomputed: Flags, behind: int) -> float:
    """Bytes of a device of a stage with ``behind`` = S - 1 - s stages behind it, (4)."""
    kept = operators.inputs[kinds[0]] + operators.activations[kinds].sum() - saved_bytes(operators, kinds, recomputed)
    weights = operators.weights[kinds].sum()
    reserved = max(_reserved(operators, kinds), weights)
    return float(BYTES_OF_WEIGHTS * weights + (behind + 1) * kept + run_bytes(operators, kinds, recomputed) + reserved)


def _reserved(operators: Operators, kinds: Ints) -> float:
    """What the allocator holds besides, without the stage's last operator."""
    forward, backward = operators.reserved_forward[kinds[:-1]], operators.reserved_backward[kinds[:-1]]
    return float(forward.max(initial=0.0) + backward.max(initial=0.0))


def saved_bytes(operators: Operators, kinds: Ints, recomputed: Flags) -> float:
    """Activations that stay away, the last sum of (3)."""
    both = recomputed[:-1] & recomputed[1:] & (kinds[1:] != operators.head)
    return float(operators.activations[kinds[:-1]][both].sum())


def run_bytes(operators: Operators, kinds: Ints, recomputed: Flags) -> float:
    """The largest run of recomputed operators, P of (4)."""
    largest = run = 0.0
    for place in range(len(kinds) - 1):
        kind, following = kinds[place], kinds[place + 1]
        if not (recomputed[place] and recomputed[place + 1]):
            largest, run = max(largest, run), 0.0
            continue
        run += operators.activations[kind]
        if not operators.shares[kind] and (following == operators.head or place + 2 == len(kinds)):
            largest, run = max(largest, run), 0.0
    return float(largest)


MICRO_BATCHES = (1, 2, 4, 8)
STAGE_DEVICES = (1, 2, 4, 8)
MOST_STAGES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AcesoProblem:
    """A model of ``layers`` layers on ``gpus`` devices with ``memory_limit`` bytes, ``gpus_per_node`` a node."""

    profile: OperatorProfile
    layers: int
    gpus: int
    gpus_per_node: int
    global_batch: int
    memory_limit: float
    micro_batches: tuple[int, ...] = MICRO_BATCHES
    most_stages: int = MOST_STAGES

    @property
    def stages(self) -> int:
        """The most stages of a plan."""
        return min(self.gpus, self.most_stages)

    def degrees(self, micro_batch: int) -> list[tuple[int, int]]:
        """Tensor degree and replicas that a stage may have: those that were profiled, on a node."""
        sizes = [size for size in STAGE_DEVICES if size <= min(self.gpus, self.gpus_per_node)]
        pairs = [(tp, size // tp) for size in sizes for tp in STAGE_DEVICES if size % tp == 0]
        profiled = self.profile.operators
        return [(tp, dp) for tp, dp in pairs if micro_batch % dp == 0 and (micro_batch // dp, tp) in profiled]


@dataclass(frozen=True, slots=True)
class AcesoStage:
    """Operators [first, end) of a plan, with tensor degree and replicas."""

    first: int
    end: int
    tp: int
    dp: int


@dataclass(frozen=True, slots=True)
class AcesoPrice:
    """Seconds of a step, of each stage for a micro-batch, and bytes of a device of each stage."""

    step: float
    stages: Floats
    memory: Floats


def price(
    problem: AcesoProblem, micro_batch: int, stages: Sequence[AcesoStage], recomputed: Sequence[Flags]
) -> AcesoPrice:
    """Price a plan of ``micro_batch`` samples in all replicas: its stages, and what each recomputes."""
    node, devices = problem.gpus_per_node, 0
    within, between = problem.profile.within_node, problem.profile.between_nodes
    seconds, memory = [], []
    for number, (stage, flags) in enumerate(zip(stages, recomputed, strict=True)):
        operators = problem.profile.operators[micro_batch // stage.dp, stage.tp]
        kinds = kinds_of(operators, problem.layers)[stage.first : stage.end]
        into = between if devices and devices % node == 0 else within
        devices += stage.tp * stage.dp
        out = between if devices % node == 0 else within
        seconds.append(stage_seconds(operators, kinds, flags, into, out))
        memory.append(stage_bytes(operators, kinds, flags, len(stages) - 1 - number))
    taken = np.array(seconds)
    return AcesoPrice(step_seconds(taken, problem.global_batch // micro_batch), taken, np.array(memory))
