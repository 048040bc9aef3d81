r"""
What a step on a slot graph waits for once its paths have ended: the reductions of gradients, and by how long.

Data: gradient bytes :math:`G_t` and slack :math:`A_t` seconds of reductions t, each of a stage x(t), whose ring takes
:math:`\rho_{x(t)}` seconds per byte (``taut.solver.placement.annealing.path_prices`` (1)).

(1) A stage ends :math:`A_t` before stage 0, so that the step waits :math:`\max_t G_t \rho_{x(t)} - A_t` for
    reductions; stage 0 has no slack, and the papers' latency models wait for it alone.
(2) First and last slot of a path may exchange a tied embedding as well (``path_prices`` (3)).
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit


class Reductions(NamedTuple):
    """
    Reductions of the leading stages that the step may wait for, (1).

    Parameters
    ----------
    stages
        Stage of every reduction, (reductions,).
    gradients
        Bytes, (reductions,).
    slack
        Seconds that the stage ends before stage 0, (reductions,).
    tied
        Bytes of a tied embedding that first and last stage exchange, (2).
    """

    stages: Ints
    gradients: Floats
    slack: Floats
    tied: float = 0.0

    @property
    def num_stages(self) -> int:
        """Leading stages up to the last that has a reduction."""
        return int(self.stages.max(initial=-1)) + 1


def first_stage(gradients: float) -> Reductions:
    """
    Wait for stage 0 alone.

    ``gradients``: its gradient bytes. Returns its reduction, or none without gradients.
    """
    some = int(gradients > 0.0)
    return Reductions(np.zeros(some, np.int64), np.full(some, gradients), np.zeros(some))


class Waits(NamedTuple):
    """Reductions by stage: bytes and slack of each, (stages, most of any); without a byte where there are fewer."""

    gradients: Floats
    slack: Floats


def by_stage(reductions: Reductions) -> Waits:
    """
    List reductions by their stage.

    ``reductions``: bytes and slack, in any order. Returns the same figures.
    """
    most = int(np.bincount(reductions.stages, minlength=1).max())
    waits = Waits(np.zeros((reductions.num_stages, most)), np.zeros((reductions.num_stages, most)))
    taken = np.zeros(reductions.num_stages, np.int64)
    for t, x in enumerate(reductions.stages.tolist()):
        waits.gradients[x, taken[x]], waits.slack[x, taken[x]] = reductions.gradients[t], reductions.slack[t]
        taken[x] += 1
    return waits


@jit
def stage_wait(waits: Waits, x: int, ring: float) -> float:
    """
    Find for how long the step waits for the reductions of one stage, (1).

    ``waits``: bytes and slack by stage; ``ring``: seconds per byte of its ring. Returns seconds after the end of stage
    0, at least zero.
    """
    longest = 0.0
    for t in range(waits.gradients.shape[1]):
        longest = max(longest, waits.gradients[x, t] * ring - waits.slack[x, t])
    return longest
