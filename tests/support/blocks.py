"""Blocks of random instances: every run checks one of a test, and ``pytest -m 'long or not long'`` all of them."""

from typing import Any

import pytest


def blocks(number: int, *, proof: bool = False) -> list[Any]:
    """Numbers of blocks as parameters of a test: the first in the test's tier, or the proof tier, the others long."""
    first = pytest.param(0, marks=[pytest.mark.proof] if proof else [])
    return [first, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, number))]
