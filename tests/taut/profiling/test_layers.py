"""Marks between passes, medians and spreads, on a clock that the test sets."""

from collections.abc import Iterator

import pytest
import torch

from taut.profiling.layers import time_passes

CPU = torch.device("cpu")


class Clock:
    """Seconds that pass only where the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.begun = 0

    def passes(self) -> Iterator[None]:
        """Repeat k has passes of k and 10 k seconds; what comes after the last mark does not count."""
        self.begun += 1
        for seconds in (self.begun, 10 * self.begun):
            self.now += seconds
            yield
        self.now += 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock, in place of the real one."""
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", lambda: clock.now)
    return clock


def test_median_and_quartiles_of_the_repeats_after_the_warm_up(clock: Clock) -> None:
    """Of repeats 3 to 7 the median is the fifth, and the quartiles are 4 and 6 times a pass."""
    timing = time_passes(clock.passes, CPU, warm_up=2, repeats=5)
    assert clock.begun == 7
    assert timing.seconds == pytest.approx((5.0, 50.0))
    # (6 - 4) / 5 for both passes.
    assert timing.spread == pytest.approx(0.4)


def test_one_repeat_has_no_spread(clock: Clock) -> None:
    """A single repeat is its own median and says nothing about others."""
    timing = time_passes(clock.passes, CPU, warm_up=0, repeats=1)
    assert timing.seconds == pytest.approx((1.0, 10.0))
    assert timing.spread is None


def test_events_of_the_stream_are_read_once_it_is_done(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """On a GPU the marks are events, whose milliseconds are asked for after everything is done."""
    synchronized: list[float] = []

    class Event:
        """A mark at the clock's time."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            """Take the time."""
            self.at = clock.now

        def elapsed_time(self, later: "Event") -> float:
            """Milliseconds until a later event."""
            assert len(synchronized) == clock.begun
            return 1000 * (later.at - self.at)

    monkeypatch.setattr("torch.cuda.Event", Event)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: synchronized.append(clock.now))
    timing = time_passes(clock.passes, torch.device("cuda"), warm_up=1, repeats=1)
    assert timing.seconds == pytest.approx((2.0, 20.0))
