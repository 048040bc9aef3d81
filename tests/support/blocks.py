"""Blocks of random instances: some are checked in every run, all of them with ``pytest -m 'long or not long'``."""

from typing import Any

import pytest

EVERY_RUN = 2


def blocks(number: int, every_run: int = EVERY_RUN, proof: int = 0) -> list[Any]:
    """Numbers of blocks as parameters of a test: the first few of its tier, then some of the proof tier, then long."""
    marks: list[Any] = [[]] * every_run + [[pytest.mark.proof]] * proof + [[pytest.mark.long]] * number
    return [pytest.param(k, marks=marks[k]) for k in range(number)]
