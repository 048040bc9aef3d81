"""Pipelines for tests of schedules: unit times on any placement, random ones, and the published rows where present."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from benchmarks.schedules import even, table
from taut.formulations.schedules.schedule import ScheduleProblem, round_robin, sequential, v_shape

DATA = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "schedules"
"""Published schedules, where this folder exists."""


def pipeline(
    device: np.ndarray,
    m: int,
    *,
    f: float = 1.0,
    b: float = 1.0,
    w: float = 1.0,
    c: float = 0.0,
    limit: float = np.inf,
    kept: float = 1.0,
) -> ScheduleProblem:
    """Like chunks: seconds of each pass, latency c, one memory unit a chunk of which ``kept`` stays for W."""
    return even(device, m, (f, b, w, c), limit, kept)


@st.composite
def pipelines(draw: st.DrawFn, *, limited: bool = True) -> ScheduleProblem:
    """Any small pipeline: sequential, round-robin or V placement, unlike chunks and devices, some limits."""
    stages, m = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    placements = (sequential(stages), round_robin(stages, 2), v_shape(stages))
    device = draw(st.sampled_from(placements))
    n = len(device)

    def numbers(size: int, low: int, high: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(low, high), min_size=size, max_size=size)), dtype=np.float64)

    activation = numbers(n, 0, 4)
    kept = np.minimum(activation, numbers(n, 0, 4))
    limit = numbers(stages, 1, 24) if limited and draw(st.booleans()) else np.full(stages, np.inf)
    return ScheduleProblem(
        device=device,
        forward=numbers(n, 0, 5),
        input_gradient=numbers(n, 0, 5),
        weight_gradient=numbers(n, 0, 5),
        transfer=numbers(n - 1, 0, 2),
        num_micro_batches=m,
        activation=activation,
        kept_for_weight=kept,
        memory_limit=limit,
    )


def rows(file: str) -> Iterator[dict[str, str]]:
    """Rows of a published table that were simulated without an error; none if the table is absent."""
    return table(DATA / file)
