"""Blocks of random instances: some are checked in every run, all of them with ``pytest -m 'long or not long'``."""

from typing import Any

import pytest

EVERY_RUN = 2


def blocks(number: int, every_run: int = EVERY_RUN) -> list[Any]:
    """Numbers of blocks as parameters of a test, those beyond the first few marked as long."""
    return [pytest.param(k, marks=[pytest.mark.long] if k >= every_run else []) for k in range(number)]
