r"""
Relaxation of a schedule problem to whole numbers: every schedule stays feasible and none gets longer.

Sets and data are those of ``taut.formulations.schedules.schedule``. With powers of two :math:`\tau` for a time unit and
:math:`\upsilon` for a memory unit,

.. math:: f'_c = \lfloor f_c / \tau \rfloor \text{ and likewise } b, w, t; \qquad
    a'_c = \lfloor a_c / \upsilon \rfloor, \; k'_c = \lfloor k_c / \upsilon \rfloor, \;
    M'_d = \lceil M_d / \upsilon \rceil. \tag{1}

Starts and ends as early as possible grow with every duration, and memory held is a sum of non-negative multiples of a
and k. So a feasible schedule of makespan X is feasible here and ends by :math:`X / \tau` (2): if no schedule here ends
by the time unit T, none there ends before :math:`(T + 1) \tau` (3). Powers of two make (1) exact for whole numbers and
for fractions of few binary digits. Bounds look at canonical schedules alone (``taut.solver.schedules.canonical``).
"""

import math
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.schedules.schedule import ScheduleProblem

_DIGITS = 46
"""
Binary digits of the largest sum of durations.

Six digits below the 52 of a float leave room for sums; up to some thousand roundings put a bound off by less than
1e-10 of itself.
"""
_NO_LIMIT = 1 << 60
"""Memory that no sum of rounded activations reaches."""


class RoundedProblem(NamedTuple):
    """
    A pipeline in whole numbers, (1).

    ``device``: device of each chunk (C,); ``forward``, ``input_gradient``, ``weight_gradient``: durations by chunk in
    time units (C,); ``transfer``: time units between each chunk and the next (C - 1,); ``micro_batches``: number m;
    ``activation``, ``kept``: memory units that a forward takes, and that are kept for the weight gradient (C,);
    ``limit``: memory units of each device (devices,); ``exponent``: binary logarithm of the time unit in seconds;
    ``is_exact``: whether no duration was rounded.
    """

    device: Ints
    forward: Ints
    input_gradient: Ints
    weight_gradient: Ints
    transfer: Ints
    micro_batches: int
    activation: Ints
    kept: Ints
    limit: Ints
    exponent: int
    is_exact: bool

    def seconds(self, target: int) -> float:
        """Seconds before which no schedule ends if none ends by the time unit ``target``, (3)."""
        return math.ldexp(target + 1, self.exponent)

    def target(self, makespan: float) -> int:
        """The largest time unit that is less than ``makespan`` seconds."""
        return math.ceil(math.ldexp(makespan, -self.exponent)) - 1


def rounded_down(problem: ScheduleProblem) -> RoundedProblem:
    """
    Round a problem to whole numbers, (1).

    Returns its relaxation in whole numbers.
    """
    everything = problem.num_micro_batches * float(problem.seconds[3].sum() + problem.forward.sum())
    everything += 2 * float(problem.transfer.sum())
    exponent = _exponent(everything)
    unit = _exponent(float(problem.activation.sum()) * problem.num_micro_batches)
    limited = np.isfinite(problem.memory_limit)
    limit = np.full(problem.num_devices, _NO_LIMIT)
    # More than all activations together limits nothing; scaled, it could exceed what 64 bits hold.
    most = 2.0 ** (_DIGITS + 1)
    limit[limited] = np.minimum(np.ceil(np.ldexp(problem.allowed[limited] * (1 + 1e-12), -unit)), most)
    times = (problem.forward, problem.input_gradient, problem.weight_gradient, problem.transfer)
    forward, input_gradient, weight_gradient, transfer = (_floor(seconds, exponent) for seconds in times)
    scaled = np.ldexp(np.concatenate(times), -exponent)
    return RoundedProblem(
        device=problem.device,
        forward=forward,
        input_gradient=input_gradient,
        weight_gradient=weight_gradient,
        transfer=transfer,
        micro_batches=problem.num_micro_batches,
        activation=_floor(problem.activation, unit),
        kept=_floor(problem.kept_for_weight, unit),
        limit=limit,
        exponent=exponent,
        is_exact=bool(np.all(scaled == np.floor(scaled))),
    )


def _exponent(largest: float) -> int:
    """Exponent of the power of two that ``largest`` has so many binary digits in."""
    return math.frexp(largest)[1] - _DIGITS if largest > 0 else 0


def _floor(values: Floats, exponent: int) -> Ints:
    return np.floor(np.ldexp(values, -exponent)).astype(np.int64)
