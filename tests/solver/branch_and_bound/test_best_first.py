"""The loop of every search: its order, its bound at every moment, and what ends it."""

import math
import signal

import pytest

from taut.solver.branch_and_bound.best_first import BestFirst, OpenItems
from taut.solver.branch_and_bound.stop import MOST, History, Progress, Stop
from taut.solver.result import Limits, StoppedBy


class Numbers:
    """The least of some numbers in [0, 64): an interval is bounded by its begin and split until it holds one number."""

    def __init__(self, numbers: set[int]) -> None:
        self.numbers, self.items, self.bounds = numbers, OpenItems[tuple[int, int]](), list[float]()
        self.incumbent_value = math.inf
        self.items.push(0, (0, 64))

    @property
    def lower_bound(self) -> float:
        """The least begin of an interval that waits."""
        return min(self.incumbent_value, self.items.least)

    @property
    def is_open(self) -> bool:
        """Whether an interval begins below the incumbent."""
        return self.items.least < self.incumbent_value

    def refine(self) -> str | None:
        """Split the interval with the least begin."""
        bound, (begin, end) = self.items.pop()
        self.bounds.append(bound)
        if end - begin == 1:
            self.incumbent_value = float(begin)
            return f"found {begin}"
        for part in ((begin, (begin + end) // 2), ((begin + end) // 2, end)):
            if self.numbers & set(range(*part)):
                self.items.push(part[0], part)
        return ""


def test_the_least_bound_is_refined_until_nothing_better_waits() -> None:
    """The bound never falls, the optimum is the bound in the end, and only what has words is told."""
    numbers, told = Numbers({37, 41, 63}), list[Progress]()
    loop = BestFirst(numbers, Limits(), told.append)
    with loop.stop:
        assert loop.run() is None
    assert numbers.incumbent_value == numbers.lower_bound == 37
    assert numbers.bounds == sorted(numbers.bounds) and loop.work == len(numbers.bounds)
    assert [at.doing for at in told] == ["found 37"] and told[-1].incumbent == 37 and told[-1].work == loop.work
    bounds = [moment.lower_bound for moment in loop.history.moments]
    assert bounds == sorted(bounds) and bounds[-1] == 37


@pytest.mark.parametrize(("limits", "reason"), [(Limits(work_limit=3), "work"), (Limits(time_limit=0.0), "time")])
def test_limits_leave_a_valid_bound(limits: Limits, reason: str) -> None:
    """A search that is cut short has worked no more than it may, and its bound holds."""
    numbers = Numbers({37})
    loop = BestFirst(numbers, limits)
    with loop.stop:
        assert loop.run() == reason
    assert loop.work == (limits.work_limit or 0) and numbers.lower_bound <= 37


def test_an_interrupt_comes_before_all_other_reasons() -> None:
    """Ctrl-C ends a search and the long steps in it; a closed gap comes before the time, the time before the work."""
    with Stop(Limits(time_limit=0.0, work_limit=0, gap=0.5)) as stop:
        assert stop.reason(2.0, 1.0, 0) is StoppedBy.GAP
        assert stop.reason(math.inf, 1.0, 0) is StoppedBy.TIME
        assert stop()
        part = stop.within(1.0)
        signal.raise_signal(signal.SIGINT)
        assert stop.reason(2.0, 1.0, 0) is StoppedBy.INTERRUPT
        assert part() and part.reason(2.0, 1.0, 0) is StoppedBy.INTERRUPT
    assert Stop(Limits(work_limit=2)).reason(2.0, 1.0, 2) is StoppedBy.WORK
    assert Stop(Limits()).reason(2.0, 1.0, 2) is None


def test_a_part_has_no_more_time_than_the_whole() -> None:
    """A share counts from the beginning, seconds count from now, and neither is more than is left."""
    with Stop(Limits(time_limit=100.0)) as stop:
        assert stop.share(0.5).left == pytest.approx(50, abs=5)
        assert stop.within(20.0).left == pytest.approx(20, abs=1e-3)
        assert stop.within(1e9).left == pytest.approx(stop.left, abs=1e-3)
        assert stop.share(0.5).within(80.0).left == pytest.approx(50, abs=5)
    with Stop(Limits()) as stop:
        assert stop.left == stop.share(0.1).left == stop.within(math.inf).left == math.inf
        assert not stop()


def test_a_long_history_keeps_its_first_course_and_its_last_moment() -> None:
    """Of more than ``MOST`` moments every second one goes; moments without a change are not kept at all."""
    history = History()
    for work in range(5 * MOST):
        for _ in range(2):
            history.note(Progress(0.0, math.inf, float(work), "", work))
    assert MOST / 2 <= len(history.moments) <= MOST
    assert history.moments[-1].work == 5 * MOST - 1
    assert history.as_dicts()[-1] == {
        "work": 5 * MOST - 1,
        "wall_s": 0.0,
        "objective_s": None,
        "lower_bound_s": 5 * MOST - 1,
    }
