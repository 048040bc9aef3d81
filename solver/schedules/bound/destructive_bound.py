r"""
Destructive lower bound on the makespan of every schedule of a pipeline, with a witness that derives it again.

A destructive bound refutes makespans [1]_: assume that some schedule ends by T, derive a contradiction, and raise T.
With T a whole time unit,

.. math:: T \text{ refuted} \; \Rightarrow \; \text{every makespan} \ge T + 1. \tag{1}

Closed forms (``taut.solver.schedules.bound.closed_form_bounds``) give the first bound. Two relaxations refute
makespans: that of one device alone (``taut.solver.schedules.bound.single_device``) and that of all devices together
(``taut.solver.schedules.bound.heads_tails``). The largest T that is refuted within a limit of work is sought: the
makespan of an incumbent first, since no bound can be larger; then, from the best bound so far, by steps that double
while they succeed and halve down to a share of the bound when they fail (2). What derives the bound again is
``taut.solver.schedules.bound.certificate``.

References
----------
.. [1] Klein, R. and Scholl, A. (1999). Computing lower bounds by destructive improvement: an application to
       resource-constrained project scheduling. European J. of Operational Research 112: 322-346.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from taut.formulations.schedules.schedule import ScheduleProblem
from taut.solver.schedules.bound.closed_form_bounds import (
    Relaxed,
    ScheduleBound,
    best_closed_form,
    chunks_by_device,
    closed_form_bound,
    is_feasible,
    relaxed,
)
from taut.solver.schedules.bound.heads_tails import refute_by_propagation
from taut.solver.schedules.bound.single_device import WIDTHS, refute
from taut.solver.schedules.bound.sweep import OneMachine

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
    """
    The largest lower bound that is found within a limit of work.

    ``incumbent``: makespan of a schedule that is known: no bound can be larger, so this is tried first; ``work_limit``:
    values of labels to extend at most, a measure of work that is the same on every machine; ``stop``: asked now and
    then; if true, the best bound so far is returned. Returns infinite if no schedule keeps within the limits.
    """
    if not is_feasible(problem):
        return closed_form_bound(problem)
    given = relaxed(problem)
    search = _Search(given, best_closed_form(given), incumbent, work_limit, stop)
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
        devices = [(d, device) for d in self._order() if (device := self.given.device(d)) is not None]
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
        """Refute larger and larger targets, by steps that double, then halve, (2)."""
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
        given = self.given
        found = refute_by_propagation(given.rounded, given.head, given.tail, target, most=most, stop=self.stop)
        if found.visits is None:
            return found.work, None
        return found.work, {"source": "propagation", "target": target, "visits": found.visits}
