r"""
Zero-bubble schedules on one chunk a device: ZB-H1 and ZB-H2 by formula.

The backward pass is split: the gradient by the input (I) goes on at once, that by the weights (W) fills what would be
idle. Stage d of p, with w = 1 for H1 and w = 2 for H2, is :math:`w (p - 1 - d)` forwards ahead; then come F and I in
turn until :math:`w (p - 1)` forwards are done, then F, I and W in turn, and W after I where forwards have run out [1]_.
H1 holds p micro-batches on every device, H2 2p - 1. (1)

References
----------
.. [1] Qi, P., Wan, X., Huang, G. and Lin, M. (2024). Zero bubble pipeline parallelism. ICLR.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.orders.classic import require
from taut.formulations.schedules.schedule import (
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Schedule,
    ScheduleProblem,
    sequential,
)


def zb_h1(problem: ScheduleProblem) -> Schedule:
    """ZB-H1, (1): as much memory as 1F1B on its first device."""
    return _by_hand(problem, "zb-h1", 1)


def zb_h2(problem: ScheduleProblem) -> Schedule:
    """ZB-H2, (1): twice as much."""
    return _by_hand(problem, "zb-h2", 2)


def _by_hand(problem: ScheduleProblem, kind: str, ahead: int) -> Schedule:
    p, m = problem.num_devices, problem.num_micro_batches
    require(problem, sequential(p), kind, "one chunk a device, in order")
    return Schedule(kind, tuple(_stage(d, ahead * (p - 1 - d), ahead * (p - 1), m) for d in range(p)))


def _stage(d: int, ahead: int, ahead_of_weights: int, m: int) -> Ints:
    """Order of one stage; times are positions in units of one round."""
    i = np.arange(m)
    forward, input_gradient = i.astype(float), ahead + i + 0.25
    weight = ahead_of_weights + i + 0.5
    when = np.concatenate((forward, input_gradient, weight))
    kind = np.repeat((FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT), m)
    order = np.argsort(when, kind="stable")
    return np.column_stack((kind, np.full(3 * m, d), np.tile(i, 3)))[order]
