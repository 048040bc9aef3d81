"""Blocks of random instances: every run checks a few of a test, and ``pytest -m 'long or not long'`` all of them."""

from typing import Any

import pytest


def blocks(number: int, *, proof: bool = False, first: int = 1) -> list[Any]:
    """Numbers of blocks as parameters of a test: the first few in the test's or the proof tier, others long."""
    usual = [pytest.mark.proof] if proof else []
    return [pytest.param(k, marks=usual if k < first else pytest.mark.long) for k in range(number)]
