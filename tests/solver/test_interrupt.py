"""Ctrl-C or SIGTERM as a request: blocks are told, nested ones too, and a second one raises."""

import signal

import pytest

from taut.solver.interrupt import interrupt_requested


def press(number: signal.Signals = signal.SIGINT) -> None:
    """Ctrl-C, as the terminal sends it, or another signal."""
    signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_every_nested_block_is_told(number: signal.Signals) -> None:
    """What runs inside stops, and so does what called it; afterwards the signal is as it was."""
    before = signal.getsignal(number)
    with interrupt_requested() as outer:
        with interrupt_requested() as inner:
            assert not inner()
            press(number)
            assert inner()
        assert outer()
    assert signal.getsignal(number) is before


def test_a_block_that_is_over_is_told_nothing() -> None:
    """Ctrl-C after the inner block reaches the outer one alone."""
    with interrupt_requested() as outer:
        with interrupt_requested() as inner:
            pass
        press()
        assert outer()
        assert not inner()


def test_a_second_one_raises() -> None:
    """Who presses twice does not want to wait."""
    with interrupt_requested(), pytest.raises(KeyboardInterrupt):
        press()
        press()
