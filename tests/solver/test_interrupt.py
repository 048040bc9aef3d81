"""Ctrl-C as a request: blocks are told, nested ones too, and a second one raises."""

import signal

import pytest

from taut.solver.interrupt import interrupt_requested


def press() -> None:
    """Ctrl-C, as the terminal sends it."""
    signal.raise_signal(signal.SIGINT)


def test_every_nested_block_is_told() -> None:
    """What runs inside stops, and so does what called it; afterwards Ctrl-C is as it was."""
    before = signal.getsignal(signal.SIGINT)
    with interrupt_requested() as outer:
        with interrupt_requested() as inner:
            assert not inner()
            press()
            assert inner()
        assert outer()
    assert signal.getsignal(signal.SIGINT) is before


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
