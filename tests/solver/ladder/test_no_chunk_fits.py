"""A candidate of which no chunk at all fits its device: no finite bytes are missing, and none are named."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from taut.formulations.space import Candidate
from taut.solver.ladder import checks, computations
from taut.solver.order_priced.bound import OrderBound

CANDIDATE = Candidate(2, 1, 1, 2, 1, 4, "interleaved-1f1b", 0, False)


def test_no_bytes_are_named_where_no_chunk_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound says that nothing fits, and its check takes the same witness, but none that names bytes."""
    ladder = cast(
        "Any",
        SimpleNamespace(
            chunked=lambda _: None,
            missing_of_chunks=lambda *_: 0,
            missing=lambda _: (0, 0),
            lists=lambda _: False,
            lacks=lambda *_: False,
        ),
    )
    nothing = OrderBound(seconds=np.inf, witness={"prices": [1.0]}, missing=np.inf)
    monkeypatch.setattr(computations, "order_bound", lambda *_: nothing)
    monkeypatch.setattr(checks, "missing_bytes", lambda *_: np.inf)
    found = computations.order(ladder, CANDIDATE)
    assert found.seconds == np.inf and found.witness == {"prices": [1.0]}
    assert checks._order_memory(ladder, CANDIDATE, found.witness) == np.inf
    assert checks._order_memory(ladder, CANDIDATE, {"prices": [1.0], "missing_kib": 1}) == -np.inf
