"""The figures of a certificate that follow from step time and bound alone."""

import math

import numpy as np
import pytest

from taut.formulations.latency import StepTime
from taut.solver.certificate import communication_gap

TIME = StepTime(
    total=np.array(10.0),
    compute=np.array(6.0),
    tensor_parallel=np.array(1.0),
    pipeline_transfers=np.array(0.5),
    data_parallel=np.array(1.5),
    optimizer=np.array(0.75),
    constant=np.array(0.25),
)
"""Ten seconds, of which every placement pays 6 + 1 + 0.75 + 0.25 = 8: communication takes 2."""


@pytest.mark.parametrize(
    ("lower_bound", "gap"),
    [(10.0, 0.0), (9.5, 0.25), (8.0, 1.0), (6.28, 1.0), (0.0, 1.0), (-math.inf, None)],
)
def test_the_gap_of_the_communication_is_at_most_one(lower_bound: float, gap: float | None) -> None:
    """(10 - bound) / 2 until the bound leaves no communication at all; without a bound there is no gap."""
    assert communication_gap(TIME, lower_bound) == gap
