r"""
Cheap lower bounds on the makespan of every schedule of a pipeline.

Data are whole numbers, :class:`taut.solver.schedules.bound.ticks.Ticks`, with heads h and tails q
(:mod:`taut.solver.schedules.bound.heads`). For every device d with first chunk :math:`c_0`,

.. math::
    T &\ge h^F_{c_0,0} + m \sum_{c \in d} (f_c + b_c + w_c) && \text{(work)} \tag{1} \\
    T &\ge h_x + p_x + q_x \text{ for every pass x} && \text{(path)} \tag{2} \\
    T &\ge h^F_{c_0,0} + \frac{m}{M_d} \sum_{c \in d} (a_c \lambda_c + k_c w_c), \quad
        \lambda_c = f_c + b_c + \sum_{x > c} (f_x + b_x + 2 t_{x-1}) && \text{(memory area)} \tag{3}

as a forward pass of c takes :math:`a_c` for at least :math:`\lambda_c`, from its start to the end of the gradient by
the input, then :math:`k_c` for at least :math:`w_c`, and all of that fits into :math:`M_d` times the time. A schedule
exists if and only if

.. math:: \sum_{c \in d} a_c \le M_d \text{ for every device}, \tag{4}

since the first gradient of the device's last chunk waits for one forward pass of each of its chunks, and one
micro-batch after the other needs no more.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import ScheduleProblem
from taut.solver.schedules.bound.heads import heads, tails
from taut.solver.schedules.bound.single_device import single_device
from taut.solver.schedules.bound.states import Device
from taut.solver.schedules.bound.ticks import Ticks, in_ticks


@dataclass(frozen=True, kw_only=True)
class ScheduleBound:
    """A lower bound in seconds on every makespan: where it comes from and what derives it again."""

    lower_bound: float
    source: str
    witness: dict[str, Any] = field(default_factory=dict)
    work: int = 0


@dataclass(frozen=True)
class Relaxed:
    """A pipeline in whole numbers with its heads and tails."""

    ticks: Ticks
    head: Ints
    tail: Ints

    def device(self, number: int) -> Device | None:
        """One device alone; None if 64 bits cannot tell its states apart."""
        return single_device(self.ticks, number, self.head, self.tail)


def relaxed(problem: ScheduleProblem) -> Relaxed:
    """The pipeline in whole numbers."""
    ticks = in_ticks(problem)
    return Relaxed(ticks, heads(ticks), tails(ticks))


def is_feasible(problem: ScheduleProblem) -> bool:
    """Whether any schedule keeps within the memory limits, (4)."""
    need = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
    return bool(np.all(need <= problem.allowed))


def cheap_bound(problem: ScheduleProblem) -> ScheduleBound:
    """
    The best of (1) to (3), in microseconds to milliseconds.

    Parameters
    ----------
    problem
        Any pipeline.

    Returns
    -------
    ScheduleBound
        Infinite if no schedule keeps within the limits.
    """
    if not is_feasible(problem):
        return ScheduleBound(lower_bound=math.inf, source="memory", witness={"source": "memory"})
    return best_cheap(relaxed(problem))


def best_cheap(given: Relaxed) -> ScheduleBound:
    """The best of (1) to (3) for a pipeline that has schedules."""
    bounds = {name: bound(given) for name, bound in CHEAP.items()}
    source = max(bounds, key=lambda name: bounds[name])
    return ScheduleBound(lower_bound=given.ticks.seconds(bounds[source] - 1), source=source, witness={"source": source})


def _begin(given: Relaxed) -> Ints:
    """Head of the first pass of each device."""
    return np.array([given.head[FORWARD, chunks[0], 0] for chunks in hosted(given.ticks)])


def hosted(ticks: Ticks) -> list[Ints]:
    """Chunks of each device."""
    return [np.flatnonzero(ticks.device == d) for d in range(len(ticks.limit))]


def _work(given: Relaxed) -> int:
    """Bound (1), in ticks."""
    ticks = given.ticks
    each = ticks.forward + ticks.input_gradient + ticks.weight_gradient
    busy = [ticks.micro_batches * int(each[chunks].sum()) for chunks in hosted(ticks)]
    return int((_begin(given) + np.array(busy)).max())


def _path(given: Relaxed) -> int:
    """Bound (2), in ticks."""
    ticks, through = given.ticks, given.head + given.tail
    for kind, seconds in (
        (FORWARD, ticks.forward),
        (INPUT_GRADIENT, ticks.input_gradient),
        (WEIGHT_GRADIENT, ticks.weight_gradient),
    ):
        through[kind] += seconds[:, None]
    return int(through.max())


def _memory_area(given: Relaxed) -> int:
    """Bound (3), in ticks. Python's whole numbers hold the products."""
    ticks, best = given.ticks, 0
    both = ticks.forward + ticks.input_gradient
    both[1:] += 2 * ticks.transfer
    life = np.cumsum(both[::-1])[::-1].copy()
    life[1:] -= 2 * ticks.transfer
    for begin, limit, chunks in zip(_begin(given), ticks.limit, hosted(ticks), strict=True):
        area = sum(
            int(ticks.activation[c]) * int(life[c]) + int(ticks.kept[c]) * int(ticks.weight_gradient[c]) for c in chunks
        )
        if area:
            best = max(best, int(begin) - (-ticks.micro_batches * area // int(limit)))
    return best


CHEAP = {"work": _work, "path": _path, "memory-area": _memory_area}
"""Ticks of the bounds (1) to (3) by the name of their source."""
