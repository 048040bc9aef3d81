r"""
Lower bounds on the makespan of every schedule of a pipeline, each with a witness that derives it again.

Data are whole numbers, :class:`taut.solver.schedules.ticks.Ticks`, with heads h and tails q
(:mod:`taut.solver.schedules.heads`). For every device d with first chunk :math:`c_0`,

.. math::
    T &\ge h^F_{c_0,0} + m \sum_{c \in d} (f_c + b_c + w_c) && \text{(work)} \tag{1} \\
    T &\ge h_x + p_x + q_x \text{ for every pass x} && \text{(path)} \tag{2} \\
    T &\ge h^F_{c_0,0} + \frac{m}{M_d} \sum_{c \in d} (a_c \lambda_c + k_c w_c), \quad
        \lambda_c = f_c + b_c + \sum_{x > c} (f_x + b_x + 2 t_{x-1}) && \text{(memory area)} \tag{3}

as a forward pass of c takes :math:`a_c` for at least :math:`\lambda_c`, from its start to the end of the gradient by
the input, then :math:`k_c` for at least :math:`w_c`, and all of that fits into :math:`M_d` times the time. The fourth
bound is the single-device relaxation (:mod:`taut.solver.schedules.single_device`): the largest T + 1 with T refuted;
the fifth the same for all devices together (:mod:`taut.solver.schedules.propagation`). A schedule exists if and only if

.. math:: \sum_{c \in d} a_c \le M_d \text{ for every device}, \tag{4}

since the first gradient of the device's last chunk waits for one forward pass of each of its chunks, and one
micro-batch after the other needs no more.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from taut.errors import CertificateError
from taut.formulations.passes import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Ints
from taut.formulations.schedule import ScheduleProblem
from taut.solver.schedules.heads import heads, tails
from taut.solver.schedules.propagation import MOST_VISITS, refute_together
from taut.solver.schedules.single_device import MOST_SWEEPS, WIDTHS, refute, single_device
from taut.solver.schedules.sweep import Device
from taut.solver.schedules.ticks import Ticks, in_ticks

WORK_LIMIT = 1_500_000_000
"""Values of labels to extend for one bound unless said otherwise: ten seconds or so, spent on large pipelines alone."""
_LARGEST = 1 << 60
_Outcome = tuple[int, dict[str, Any] | None]
_Attempt = Callable[[int, int], _Outcome]
_FIRST, _SHARES = 2, (24, 6)
"""The incumbent as the first target may take this part of the work that is left; others, between devices and after."""
_COARSE, _FINE = 2e-3, 2e-5
"""Steps at which the refutation of larger targets stops, as shares of the bound: between devices, and on the best."""


@dataclass(frozen=True, kw_only=True)
class ScheduleBound:
    """A lower bound in seconds on every makespan: where it comes from and what derives it again."""

    lower_bound: float
    source: str
    witness: dict[str, Any] = field(default_factory=dict)
    work: int = 0


@dataclass(frozen=True)
class _Relaxed:
    """A pipeline in whole numbers with its heads and tails."""

    ticks: Ticks
    head: Ints
    tail: Ints

    def device(self, number: int) -> Device | None:
        return single_device(self.ticks, number, self.head, self.tail)


def _relaxed(problem: ScheduleProblem) -> _Relaxed:
    ticks = in_ticks(problem)
    return _Relaxed(ticks, heads(ticks), tails(ticks))


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
    return _cheap(_relaxed(problem))


def _cheap(relaxed: _Relaxed) -> ScheduleBound:
    bounds = {name: bound(relaxed) for name, bound in _CHEAP.items()}
    source = max(bounds, key=lambda name: bounds[name])
    return ScheduleBound(
        lower_bound=relaxed.ticks.seconds(bounds[source] - 1), source=source, witness={"source": source}
    )


def _begin(relaxed: _Relaxed) -> Ints:
    """Head of the first pass of each device."""
    return np.array([relaxed.head[FORWARD, chunks[0], 0] for chunks in _chunks(relaxed.ticks)])


def _chunks(ticks: Ticks) -> list[Ints]:
    return [np.flatnonzero(ticks.device == d) for d in range(len(ticks.limit))]


def _work(relaxed: _Relaxed) -> int:
    """Bound (1), in ticks."""
    ticks = relaxed.ticks
    each = ticks.forward + ticks.input_gradient + ticks.weight_gradient
    busy = [ticks.micro_batches * int(each[chunks].sum()) for chunks in _chunks(ticks)]
    return int((_begin(relaxed) + np.array(busy)).max())


def _path(relaxed: _Relaxed) -> int:
    """Bound (2), in ticks."""
    ticks, through = relaxed.ticks, relaxed.head + relaxed.tail
    for kind, seconds in (
        (FORWARD, ticks.forward),
        (INPUT_GRADIENT, ticks.input_gradient),
        (WEIGHT_GRADIENT, ticks.weight_gradient),
    ):
        through[kind] += seconds[:, None]
    return int(through.max())


def _memory_area(relaxed: _Relaxed) -> int:
    """Bound (3), in ticks. Python's whole numbers hold the products."""
    ticks, best = relaxed.ticks, 0
    both = ticks.forward + ticks.input_gradient
    both[1:] += 2 * ticks.transfer
    life = np.cumsum(both[::-1])[::-1].copy()
    life[1:] -= 2 * ticks.transfer
    for begin, limit, chunks in zip(_begin(relaxed), ticks.limit, _chunks(ticks), strict=True):
        area = sum(
            int(ticks.activation[c]) * int(life[c]) + int(ticks.kept[c]) * int(ticks.weight_gradient[c]) for c in chunks
        )
        if area:
            best = max(best, int(begin) - (-ticks.micro_batches * area // int(limit)))
    return best


_MORE_FIELDS = {"single-device": {"device", "target", "sweeps"}, "propagation": {"target", "visits"}}
_CHEAP = {"work": _work, "path": _path, "memory-area": _memory_area}


def rederived(problem: ScheduleProblem, witness: Mapping[str, Any]) -> float:
    """
    The bound in seconds that a witness stands for, worked out again.

    Parameters
    ----------
    problem
        The pipeline.
    witness
        Of a :class:`ScheduleBound`.

    Raises
    ------
    CertificateError
        If the witness is none of this module's, or does not show what it says.
    """
    source = witness.get("source")
    if not isinstance(source, str):
        raise CertificateError(f"witness: source {source!r}, expected a name")
    expected = {"source"} | _MORE_FIELDS.get(source, set())
    if set(witness) != expected:
        raise CertificateError(f"witness: fields {sorted(map(str, witness))}, expected {sorted(expected)}")
    if source == "memory" and not is_feasible(problem):
        return math.inf
    relaxed = _relaxed(problem)
    if source in _CHEAP:
        return relaxed.ticks.seconds(_CHEAP[source](relaxed) - 1)
    if source not in _MORE_FIELDS:
        raise CertificateError(f"witness: source {source!r} does not hold")
    target = _count(witness, "target", _LARGEST)
    if source == "single-device":
        d, sweeps = _count(witness, "device", problem.num_devices), _count(witness, "sweeps", MOST_SWEEPS + 1)
        device = relaxed.device(d)
        holds = device is not None and refute(device, target, sweeps=sweeps).refuted == sweeps
    else:
        visits = _count(witness, "visits", MOST_VISITS + 1)
        holds = refute_together(relaxed.ticks, relaxed.head, relaxed.tail, target, visits=visits).visits == visits
    if not holds:
        raise CertificateError(f"witness: the tick {target} is not refuted as it says")
    return relaxed.ticks.seconds(target)


def _count(witness: Mapping[str, Any], name: str, end: int) -> int:
    """A whole number from 0 to below ``end`` of a witness."""
    value = witness[name]
    if type(value) is not int or not 0 <= value < end:
        raise CertificateError(f"witness: {name} {value!r}, expected a whole number from 0 to {end - 1}")
    return value


def lower_bound(
    problem: ScheduleProblem,
    *,
    incumbent: float = math.inf,
    work_limit: int = WORK_LIMIT,
    stop: Callable[[], bool] = lambda: False,
) -> ScheduleBound:
    """
    The best of all bounds.

    Parameters
    ----------
    problem
        Any pipeline.
    incumbent
        Makespan of a schedule that is known: no bound can be larger, so this is tried first.
    work_limit
        Values of labels to extend at most, a measure of work that is the same on every machine.
    stop
        Asked now and then; if true, the best bound so far is returned.

    Returns
    -------
    ScheduleBound
        Infinite if no schedule keeps within the limits.
    """
    if not is_feasible(problem):
        return cheap_bound(problem)
    relaxed = _relaxed(problem)
    search = _Search(relaxed, _cheap(relaxed), incumbent, work_limit, stop)
    search.run()
    return search.bound


class _Search:
    """The largest targets that can be refuted, within the limits of work."""

    def __init__(
        self, relaxed: _Relaxed, cheap: ScheduleBound, incumbent: float, work_limit: int, stop: Callable[[], bool]
    ) -> None:
        self.relaxed, self.bound, self.work_limit, self.stop = relaxed, cheap, work_limit, stop
        self.low = relaxed.ticks.target(cheap.lower_bound)
        # Rounding makes every duration shorter by less than a tick, so the incumbent may end so much earlier.
        rounded = 0 if relaxed.ticks.is_exact else 4 * relaxed.head.size
        self.is_guided = math.isfinite(incumbent)
        self.high = relaxed.ticks.target(incumbent) - rounded if self.is_guided else 16 * self.low + 16
        self.work = 0

    def run(self) -> None:
        """Try the incumbent, then ever larger targets: on each device, on the best one, on all together."""
        devices = [(d, device) for d in self._order() if (device := self.relaxed.device(d)) is not None]
        if not devices:
            return
        attempts: list[_Attempt] = [partial(self._alone, d, device, 1) for d, device in devices]
        if self.is_guided:
            self._try(attempts[0], self.high, _FIRST)
        for attempt in attempts:
            self._raise(attempt, _COARSE, _SHARES[0])
        for d, device in devices:
            if self.bound.witness.get("device") == d:
                attempts.append(partial(self._alone, d, device, len(WIDTHS)))
        for attempt in (*attempts[len(devices) :], self._together):
            if self.is_guided:
                self._try(attempt, self.high, _SHARES[1])
            self._raise(attempt, _FINE, _SHARES[1])

    def _order(self) -> list[int]:
        """Devices by the way from their last chunk to the end and back: the longer, the tighter is the relaxation."""
        last = [int(chunks[-1]) for chunks in _chunks(self.relaxed.ticks)]
        return sorted(range(len(last)), key=lambda d: last[d])

    def _raise(self, attempt: _Attempt, share: float, part: int) -> None:
        """Refute larger and larger targets, by steps that double, then halve down to a share of the bound."""
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
            lower_bound=self.relaxed.ticks.seconds(target), source=witness["source"], witness=witness, work=self.work
        )
        return True

    def _alone(self, d: int, device: Device, stages: int, target: int, most: int) -> _Outcome:
        """Refute a target by one device."""
        swept = refute(device, target, stages=stages, most=most, stop=self.stop)
        if swept.refuted is None:
            return swept.work, None
        return swept.work, {"source": "single-device", "device": d, "target": target, "sweeps": swept.refuted}

    def _together(self, target: int, most: int) -> _Outcome:
        """Refute a target by all devices."""
        relaxed = self.relaxed
        found = refute_together(relaxed.ticks, relaxed.head, relaxed.tail, target, most=most, stop=self.stop)
        if found.visits is None:
            return found.work, None
        return found.work, {"source": "propagation", "target": target, "visits": found.visits}
