r"""
Lower bounds in closed form on the makespan of every schedule of a pipeline.

Data are whole numbers, ``taut.solver.schedules.bound.single_device``, with heads h and tails q
(``taut.solver.schedules.bound.heads_tails``). For every device d with first chunk :math:`c_0`,

.. math::
    T &\ge h^F_{c_0,0} + m \sum_{c \in d} (f_c + b_c + w_c) && \text{(work)} \tag{1} \\
    T &\ge h_x + p_x + q_x \text{ for every pass x} && \text{(path)} \tag{2} \\
    T &\ge h^F_{c_0,0} + \frac{m}{M_d} \sum_{c \in d} (a_c \lambda_c + k_c w_c), \quad
        \lambda_c = f_c + b_c + \sum_{x > c} (f_x + b_x + 2 t_{x-1}) && \text{(memory area)} \tag{3}

(1) is the load of a machine after its first head, (2) the longest path through a pass. (3) is an energy bound on a
cumulative resource: a forward pass of c takes :math:`a_c` for at least :math:`\lambda_c`, from its start to the end of
the gradient by the input, then :math:`k_c` for at least :math:`w_c`, and all of that fits into :math:`M_d` times the
time [1]_. A schedule exists if and only if

.. math:: \sum_{c \in d} a_c \le M_d \text{ for every device}, \tag{4}

since the first gradient of the device's last chunk waits for one forward pass of each of its chunks, and one
micro-batch after the other needs no more.

References
----------
.. [1] Baptiste, P., Le Pape, C. and Nuijten, W. (2001). Constraint-based scheduling. Kluwer.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import ScheduleProblem
from taut.solver.schedules.bound.heads_tails import heads, tails
from taut.solver.schedules.bound.single_device import RoundedProblem, rounded_down, single_device
from taut.solver.schedules.bound.sweep import OneMachine


@dataclass(frozen=True, kw_only=True)
class ScheduleBound:
    """
    A lower bound on every makespan.

    ``lower_bound``: seconds; infinite if no schedule exists; ``source``: name of the bound; ``witness``: what derives
    it again (``taut.solver.schedules.bound.certificate``); ``work``: values of labels that were extended for it.
    """

    lower_bound: float
    source: str
    witness: dict[str, Any] = field(default_factory=dict)
    work: int = 0


@dataclass(frozen=True)
class Relaxed:
    """A pipeline in whole numbers with its heads and tails (3, C, m), in time units."""

    rounded: RoundedProblem
    head: Ints
    tail: Ints

    def device(self, number: int) -> OneMachine | None:
        """The one-machine relaxation of a device; None if 64 bits cannot tell its states apart."""
        return single_device(self.rounded, number, self.head, self.tail)


def relaxed(problem: ScheduleProblem) -> Relaxed:
    """The pipeline in whole numbers, with heads and tails."""
    rounded = rounded_down(problem)
    return Relaxed(rounded, heads(rounded), tails(rounded))


def is_feasible(problem: ScheduleProblem) -> bool:
    """Whether any schedule keeps within the memory limits, (4)."""
    need = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
    return bool(np.all(need <= problem.allowed))


def closed_form_bound(problem: ScheduleProblem) -> ScheduleBound:
    """
    The best of (1) to (3), in microseconds to milliseconds.

    Returns infinite if no schedule keeps within the limits.
    """
    if not is_feasible(problem):
        return ScheduleBound(lower_bound=math.inf, source="memory", witness={"source": "memory"})
    return best_closed_form(relaxed(problem))


def best_closed_form(given: Relaxed) -> ScheduleBound:
    """The best of (1) to (3) for a pipeline that has schedules, with its witness."""
    bounds = {name: bound(given) for name, bound in CLOSED_FORMS.items()}
    source = max(bounds, key=lambda name: bounds[name])
    return ScheduleBound(
        lower_bound=given.rounded.seconds(bounds[source] - 1), source=source, witness={"source": source}
    )


def _begin(given: Relaxed) -> Ints:
    """Head of the first pass of each device."""
    return np.array([given.head[FORWARD, chunks[0], 0] for chunks in chunks_by_device(given.rounded)])


def chunks_by_device(rounded: RoundedProblem) -> list[Ints]:
    """Chunks of each device, in order."""
    return [np.flatnonzero(rounded.device == d) for d in range(len(rounded.limit))]


def _work(given: Relaxed) -> int:
    """Bound (1), in time units."""
    rounded = given.rounded
    each = rounded.forward + rounded.input_gradient + rounded.weight_gradient
    busy = [rounded.micro_batches * int(each[chunks].sum()) for chunks in chunks_by_device(rounded)]
    return int((_begin(given) + np.array(busy)).max())


def _path(given: Relaxed) -> int:
    """Bound (2), in time units."""
    rounded, through = given.rounded, given.head + given.tail
    for kind, seconds in (
        (FORWARD, rounded.forward),
        (INPUT_GRADIENT, rounded.input_gradient),
        (WEIGHT_GRADIENT, rounded.weight_gradient),
    ):
        through[kind] += seconds[:, None]
    return int(through.max())


def _memory_area(given: Relaxed) -> int:
    """Bound (3), in time units. Python's whole numbers hold the products."""
    rounded, best = given.rounded, 0
    both = rounded.forward + rounded.input_gradient
    both[1:] += 2 * rounded.transfer
    life = np.cumsum(both[::-1])[::-1].copy()
    life[1:] -= 2 * rounded.transfer
    for begin, limit, chunks in zip(_begin(given), rounded.limit, chunks_by_device(rounded), strict=True):
        area = sum(
            int(rounded.activation[c]) * int(life[c]) + int(rounded.kept[c]) * int(rounded.weight_gradient[c])
            for c in chunks
        )
        if area:
            best = max(best, int(begin) - (-rounded.micro_batches * area // int(limit)))
    return best


CLOSED_FORMS = {"work": _work, "path": _path, "memory-area": _memory_area}
"""Time units of the bounds (1) to (3) by the name of their source."""
