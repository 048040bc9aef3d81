r"""
Lower bounds on the makespan of every schedule of a pipeline, with a witness that derives each again, and certificates.

Data are whole numbers with heads h and tails q (``taut.solver.schedules.one_machine``). For every device d with first
chunk :math:`c_0`,

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

A destructive bound refutes makespans [2]_: assume that some schedule ends by T, derive a contradiction, and raise T.
With T a whole time unit,

.. math:: T \text{ refuted} \; \Rightarrow \; \text{every makespan} \ge T + 1. \tag{5}

Closed forms give the first bound. Two relaxations refute makespans: that of one device alone and that of all devices
together. The largest T that is refuted within a limit of work is sought: the makespan of an incumbent first, since no
bound can be larger; then, from the best bound so far, by steps that double while they succeed and halve down to a share
of the bound when they fail (6).

A witness names its source: "memory" (no schedule exists), "work", "path" or "memory-area", which are worked out again
by (4) and (1) to (3); or, with the largest time unit T that is refuted,

(7) "single-device": a device, and the number of the sweep that keeps no label;
(8) "propagation": the number of the visit to a device that refutes T.

A certificate claims, and a check without any solver derives again, that

(9) the orders run every pass once, do not deadlock and keep the memory limits;
(10) makespan = end of the last pass of the orders, started as early as possible;
(11) lower bound = what the witness stands for;
(12) gap = (makespan - lower bound) / makespan.

A larger bound that only CP-SAT states is ``claimed_bound`` and enters nothing else (13).

A float is a rational number. Data are rounded to whole numbers without a further error, and all bounds of schedules
that exist are derived in whole numbers of less than 62 bits, so (11) holds in exact arithmetic (14).

References
----------
.. [1] Baptiste, P., Le Pape, C. and Nuijten, W. (2001). Constraint-based scheduling. Kluwer.
.. [2] Klein, R. and Scholl, A. (1999). Computing lower bounds by destructive improvement: an application to
       resource-constrained project scheduling. European J. of Operational Research 112: 322-346.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from taut.data.arrays import Ints
from taut.errors import CertificateError
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable, violations
from taut.solver.result import relative_gap
from taut.solver.schedules.one_machine import (
    MOST_SWEEPS,
    MOST_VISITS,
    WIDTHS,
    Relaxed,
    RoundedProblem,
    heads,
    refute,
    refute_by_propagation,
    rounded_down,
    single_device,
    tails,
)
from taut.solver.schedules.sweep import OneMachine


@dataclass(frozen=True, kw_only=True)
class ScheduleBound:
    """A lower bound in seconds, infinite if no schedule exists, its witness, and the labels that it took."""

    lower_bound: float
    source: str
    witness: dict[str, Any] = field(default_factory=dict)
    work: int = 0


def relaxed(problem: ScheduleProblem) -> Relaxed:
    """The pipeline in whole numbers, with heads and tails."""
    rounded = rounded_down(problem)
    return Relaxed(rounded, heads(rounded), tails(rounded))


def is_feasible(problem: ScheduleProblem) -> bool:
    """Whether any schedule keeps within the memory limits, (4)."""
    need = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
    return bool(np.all(need <= problem.allowed))


def closed_form_bound(problem: ScheduleProblem) -> ScheduleBound:
    """The best of (1) to (3), in microseconds to milliseconds; infinite if no schedule keeps within the limits."""
    if not is_feasible(problem):
        return ScheduleBound(lower_bound=math.inf, source="memory", witness={"source": "memory"})
    given = relaxed(problem)
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


WORK_LIMIT = 1_500_000_000
"""Values of labels to extend for one bound unless said otherwise: ten seconds or so, spent on large pipelines alone."""
_Outcome = tuple[int, dict[str, Any] | None]
_Attempt = Callable[[int, int], _Outcome]
_FIRST, _PARTS = 2, (24, 6)
"""
Divisors of the work that is left, for one attempt.

The incumbent as the first target decides most, and may take half. Others share the rest: a small part each while
devices are compared, a larger one on the best device and on all together.
"""
_COARSE, _FINE = 2e-3, 2e-5
"""
Steps at which the search for larger targets stops, as shares of the bound.

A coarse step tells which device bounds best; the fine one is below the gaps that are reported, of tenths of a percent.
"""


def lower_bound(
    problem: ScheduleProblem,
    *,
    incumbent: float = math.inf,
    work_limit: int = WORK_LIMIT,
    stop: Callable[[], bool] = lambda: False,
) -> ScheduleBound:
    """The largest bound within ``work_limit`` values of labels; the ``incumbent``'s makespan is the first target."""
    first, given = closed_form_bound(problem), relaxed(problem)
    if math.isinf(first.lower_bound):
        return first
    search = _Search(given, first, incumbent, work_limit, stop)
    search.run()
    return search.bound


class _Search:
    """The largest targets that can be refuted, within the limits of work."""

    def __init__(
        self, given: Relaxed, cheap: ScheduleBound, incumbent: float, work_limit: int, stop: Callable[[], bool]
    ) -> None:
        self.given, self.bound, self.work_limit, self.stop = given, cheap, work_limit, stop
        self.low = given.rounded.target(cheap.lower_bound)
        # Rounding makes every duration shorter by less than a time unit, so the incumbent may end so much earlier.
        rounded = 0 if given.rounded.is_exact else 4 * given.head.size
        self.is_guided = math.isfinite(incumbent)
        self.high = given.rounded.target(incumbent) - rounded if self.is_guided else 16 * self.low + 16
        self.work = 0

    def run(self) -> None:
        """Try the incumbent, then ever larger targets: on each device, on the best one, on all together."""
        devices = [(d, device) for d in self._order() if (device := single_device(self.given, d)) is not None]
        if not devices:
            return
        attempts: list[_Attempt] = [partial(self._alone, d, device, 1) for d, device in devices]
        if self.is_guided:
            self._try(attempts[0], self.high, _FIRST)
        for attempt in attempts:
            self._raise(attempt, _COARSE, _PARTS[0])
        for d, device in devices:
            if self.bound.witness.get("device") == d:
                attempts.append(partial(self._alone, d, device, len(WIDTHS)))
        for attempt in (*attempts[len(devices) :], self._together):
            if self.is_guided:
                self._try(attempt, self.high, _PARTS[1])
            self._raise(attempt, _FINE, _PARTS[1])

    def _order(self) -> list[int]:
        """Devices by the way from their last chunk to the end and back: the longer, the tighter is the relaxation."""
        last = [int(chunks[-1]) for chunks in chunks_by_device(self.given.rounded)]
        return sorted(range(len(last)), key=lambda d: last[d])

    def _raise(self, attempt: _Attempt, share: float, part: int) -> None:
        """Refute larger and larger targets, by steps that double, then halve, (6)."""
        end, least = self.high + 1, max(int(self.low * share), 1)
        step = least
        while step >= least and not self._is_over():
            if self._try(attempt, min(self.low + step, self.high), part):
                step = min(2 * step, (end - self.low + 1) // 2 if end <= self.high else 2 * step)
            else:
                end = min(self.low + step, self.high)
                step = (end - self.low) // 2

    def _is_over(self) -> bool:
        return self.low >= self.high or self.work >= self.work_limit or self.stop()

    def _try(self, attempt: _Attempt, target: int, part: int) -> bool:
        """Refute one target with a part of the work that is left, and note the bound if that succeeds."""
        if target <= self.low or self._is_over():
            return False
        work, witness = attempt(target, (self.work_limit - self.work) // part)
        self.work += work
        if witness is None:
            return False
        self.low = target
        self.bound = ScheduleBound(
            lower_bound=self.given.rounded.seconds(target), source=witness["source"], witness=witness, work=self.work
        )
        return True

    def _alone(self, d: int, device: OneMachine, stages: int, target: int, most: int) -> _Outcome:
        """Refute a target by one device."""
        swept = refute(device, target, stages=stages, most=most, stop=self.stop)
        if swept.refuted is None:
            return swept.work, None
        return swept.work, {"source": "single-device", "device": d, "target": target, "sweeps": swept.refuted}

    def _together(self, target: int, most: int) -> _Outcome:
        """Refute a target by all devices."""
        found = refute_by_propagation(self.given, target, most=most, stop=self.stop)
        if found.visits is None:
            return found.work, None
        return found.work, {"source": "propagation", "target": target, "visits": found.visits}


_LARGEST = 1 << 60
"""No sum of rounded durations is as large."""
_MORE_FIELDS = {"single-device": {"device", "target", "sweeps"}, "propagation": {"target", "visits"}}


def rederived(problem: ScheduleProblem, witness: Mapping[str, Any]) -> float:
    """The bound in seconds that a witness stands for, infinite for no schedule; else ``CertificateError``."""
    source = witness.get("source")
    if not isinstance(source, str):
        raise CertificateError(f"witness: source {source!r}, expected a name")
    expected = {"source"} | _MORE_FIELDS.get(source, set())
    if set(witness) != expected:
        raise CertificateError(f"witness: fields {sorted(map(str, witness))}, expected {sorted(expected)}")
    if source == "memory" and not is_feasible(problem):
        return math.inf
    given = relaxed(problem)
    if source in CLOSED_FORMS:
        return given.rounded.seconds(CLOSED_FORMS[source](given) - 1)
    if source not in _MORE_FIELDS:
        raise CertificateError(f"witness: source {source!r} does not hold")
    target = _count(witness, "target", _LARGEST)
    if not (_alone if source == "single-device" else _together)(given, witness, target):
        raise CertificateError(f"witness: the time unit {target} is not refuted as it says")
    return given.rounded.seconds(target)


def _alone(given: Relaxed, witness: Mapping[str, Any], target: int) -> bool:
    """Whether a time unit is refuted as (7) says."""
    device = single_device(given, _count(witness, "device", len(given.rounded.limit)))
    sweeps = _count(witness, "sweeps", MOST_SWEEPS + 1)
    return device is not None and refute(device, target, sweeps=sweeps).refuted == sweeps


def _together(given: Relaxed, witness: Mapping[str, Any], target: int) -> bool:
    """Whether a time unit is refuted as (8) says."""
    visits = _count(witness, "visits", MOST_VISITS + 1)
    return refute_by_propagation(given, target, visits=visits).visits == visits


def _count(witness: Mapping[str, Any], name: str, end: int) -> int:
    """A whole number from 0 to below ``end`` of a witness."""
    value = witness[name]
    if type(value) is not int or not 0 <= value < end:
        raise CertificateError(f"witness: {name} {value!r}, expected a whole number from 0 to {end - 1}")
    return value


FIELDS = ("makespan", "lower_bound", "gap", "claimed_bound", "witness")
_ROUNDING = 1e-12


def certificate(makespan: float, bound: ScheduleBound, claimed_bound: float | None = None) -> dict[str, Any]:
    """The claims as plain JSON values; ``claimed_bound`` are seconds that a solver states as a bound, (13)."""
    return {
        "makespan": makespan,
        "lower_bound": bound.lower_bound,
        "gap": relative_gap(makespan, bound.lower_bound),
        "claimed_bound": claimed_bound,
        "witness": dict(bound.witness),
    }


def complaints(problem: ScheduleProblem, schedule: Schedule, claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Check a certificate of a schedule: one sentence for each claim that does not hold."""
    if set(claims) != set(FIELDS):
        return (f"certificate: fields {sorted(map(str, claims))}, expected {sorted(FIELDS)}",)
    broken = violations(problem, schedule)
    if broken:
        return broken
    witness = claims["witness"]
    if not isinstance(witness, Mapping):
        return (f"witness: {witness!r}, expected an object",)
    makespan = timetable(problem, schedule).makespan
    try:
        bound = rederived(problem, witness)
    except CertificateError as error:
        return (str(error),)
    derived = {"makespan": makespan, "lower_bound": bound, "gap": relative_gap(makespan, bound)}
    return (
        *(
            f"{name}: {claims[name]!r}, derived {value!r}"
            for name, value in derived.items()
            if not _same(claims[name], value)
        ),
        *_claimed(claims["claimed_bound"], bound, makespan),
    )


def _same(stated: object, derived: float | None) -> bool:
    """Whether a stated number is the derived one but for rounding."""
    if stated is None or derived is None or isinstance(stated, bool) or not isinstance(stated, int | float):
        return stated is None and derived is None
    try:
        return math.isclose(stated, derived, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    except OverflowError:
        # A whole number that no float holds is no figure of a schedule.
        return False


def _claimed(stated: object, bound: float, makespan: float) -> tuple[str, ...]:
    """A claimed bound lies between the derived one and the makespan."""
    if stated is None:
        return ()
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not bound <= stated <= makespan:
        return (f"claimed_bound: {stated!r}, expected null or a number from {bound!r} to {makespan!r}",)
    return ()
