"""Tables that are computed anew once they were not asked for lately."""

import numpy as np
import pytest

from taut.formulations import problem as problems
from taut.formulations.problem import Recent, array_bytes
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.small import cluster, model, problem


def test_values_that_were_not_asked_for_lately_are_made_again() -> None:
    """Of three arrays of 8 bytes two have room in 16; the one that was asked for last stays."""
    recent, made = Recent(16), list[int]()

    def ask(key: int) -> int:
        def make() -> np.ndarray:
            made.append(key)
            return np.full(1, key)

        return int(recent.get(key, make)[0])

    assert [ask(key) for key in (1, 2, 1, 3, 1, 2)] == [1, 2, 1, 3, 1, 2]
    assert made == [1, 2, 3, 2]
    assert len(recent) == 2


def test_a_value_without_room_is_kept_alone() -> None:
    """What was computed last is there for the next question, however large it is."""
    recent = Recent(0)
    assert recent.get("a", lambda: 3) == recent.get("a", lambda: 4) == 3
    assert recent.get("b", lambda: np.zeros(4)).size == 4
    assert recent.get("c", lambda: np.zeros(4)).size == 4
    assert "b" not in recent and "c" in recent


def test_blocks_without_experts_and_contexts_share_zeros() -> None:
    """Ten of the twelve figures of dense layers' traffic are zero and take 8 bytes each, in both passes and forward."""
    given = problem(cluster(2, 2), model(6))
    both, forward = given.traffic(given.candidates[0])
    figures = [*both, *forward]
    assert sum(not figure.any() for figure in figures) == sum(array_bytes(figure) == 8 for figure in figures) >= 20
    assert array_bytes(both) < sum(figure.nbytes for figure in both) / 4


@pytest.mark.proof
def test_a_search_with_room_for_one_table_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan, bounds and their sources do not depend on how many tables are kept."""
    usual = search(problem(cluster(2, 2), model(6), latency_model="step"), Limits())
    monkeypatch.setattr(problems, "MOST_KEPT", 0)
    tight = problem(cluster(2, 2), model(6), latency_model="step")
    found = search(tight, Limits())
    assert len(tight._shared) == len(tight._own) == 1
    assert found.bounds == usual.bounds
    assert found.incumbent is not None and usual.incumbent is not None
    assert found.incumbent.seconds == usual.incumbent.seconds
