"""A whole plan by Aceso's formula: seconds of the step and bytes of every stage."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.papers.aceso.formula import kinds_of, stage_bytes, stage_seconds, step_seconds
from taut.papers.aceso.problem import AcesoProblem, AcesoStage


@dataclass(frozen=True, slots=True)
class AcesoPrice:
    """Seconds of a step, of each stage for a micro-batch, and bytes of a device of each stage."""

    step: float
    stages: Floats
    memory: Floats


def price(
    problem: AcesoProblem, micro_batch: int, stages: Sequence[AcesoStage], recomputed: Sequence[Flags]
) -> AcesoPrice:
    """
    Price a plan.

    ``micro_batch``: samples of a micro-batch in all replicas; ``stages``, ``recomputed``: the stages, and which of its
    operators each recomputes.
    """
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
