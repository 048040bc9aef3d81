"""Tests of the annealing and the tabu search of the quadratic assignment problem, and of what a swap changes."""

import csv
import math
import os
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import event

from taut.data.readers.qaplib import read_qaplib
from taut.errors import FormulationError
from taut.formulations.assignment import QuadraticAssignment
from taut.solver.branch_and_bound.stop import COMPILING, Progress
from taut.solver.qap import quadratic, swap_neighbourhood
from taut.solver.qap.hahn_grant import gilmore_lawler
from taut.solver.qap.quadratic import place
from tests.support.assignments import KINDS, nug12, optimum, random_assignment

pytestmark = pytest.mark.proof

FILES = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "qaplib"


@pytest.mark.parametrize("kind", KINDS)
def test_annealing_finds_the_optimum_of_small_instances(kind: str) -> None:
    """The annealer alone reaches the optimum by enumeration for n from 2 to 8."""
    for size in range(2, 9):
        problem = random_assignment(kind, size, 7)
        found = list(swap_neighbourhood._annealing(problem, np.random.default_rng(3), 0.02, -math.inf))
        assert found[-1][0] == pytest.approx(place(problem).objective, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_tabu_search_finds_the_optimum_of_small_instances(kind: str) -> None:
    """Tabu search alone, out of the identity, reaches the optimum by enumeration for n from 2 to 8."""
    for size in range(2, 9):
        problem = random_assignment(kind, size, 11)
        start = (problem.cost(range(size)), np.arange(size))
        found = list(swap_neighbourhood._tabu_search(problem, start, np.random.default_rng(0), 0.0, -math.inf))
        assert found[-1][0] == pytest.approx(place(problem).objective, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_enumeration_prices_every_permutation(kind: str) -> None:
    """Up to n = 8 the result is the optimum, proven, and costs what it says."""
    for size in (1, 2, 3, 6):
        problem = random_assignment(kind, size, 13)
        result = place(problem)
        assert result.objective == pytest.approx(optimum(problem), rel=1e-12, abs=1e-12)
        assert result.objective == result.lower_bound == problem.cost(result.permutation)
        assert (result.gap, result.status, result.bound_source) == (0.0, "optimal", "enumeration")


@pytest.mark.parametrize("kind", KINDS)
def test_change_of_a_swap_is_the_difference_of_costs(kind: str) -> None:
    """Equation (1) agrees with pricing both permutations, before and after a swap."""
    problem, rng = random_assignment(kind, 9, 17), np.random.default_rng(17)
    state = swap_neighbourhood.arrange(problem, rng.permutation(9), rng)
    rows = (state.flow, state.placed, state.flow_loop, state.placed_loop)
    for _ in range(50):
        r, s = (int(item) for item in rng.choice(9, 2, replace=False))
        before, change = problem.cost(state.permutation), swap_neighbourhood._change(*rows, r, s)
        if state.flow_kind[r] == state.flow_kind[s] or state.placed_kind[r] == state.placed_kind[s]:
            assert change == pytest.approx(0.0, abs=1e-9)
        swap_neighbourhood._swap(state.placed, state.placed_loop, state.placed_kind, state.permutation, r, s)
        assert problem.cost(state.permutation) - before == pytest.approx(change, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_kept_up_to_date(kind: str) -> None:
    """Equation (2) gives the pairs without the two swapped items the change that (1) gives them."""
    problem, rng = random_assignment(kind, 8, 19), np.random.default_rng(19)
    state = swap_neighbourhood.arrange(problem, rng.permutation(8), rng)
    rows = (state.flow, state.placed, state.flow_loop, state.placed_loop)
    pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
    changes = np.zeros((8, 8))
    for i, j in pairs:
        changes[i, j] = swap_neighbourhood._change(*rows, i, j)
    swap_neighbourhood._swap(state.placed, state.placed_loop, state.placed_kind, state.permutation, 2, 5)
    swap_neighbourhood._update(changes, state.flow, state.placed, 2, 5)
    for i, j in pairs:
        if not {i, j} & {2, 5}:
            assert changes[i, j] == pytest.approx(swap_neighbourhood._change(*rows, i, j), abs=1e-9)


def test_alike_are_those_whose_swap_changes_nothing() -> None:
    """Two pairs of items exchange the same with everybody, a fifth differs by its diagonal."""
    flow = np.array([[0, 2, 1, 1, 2], [2, 0, 1, 1, 2], [1, 1, 0, 7, 1], [1, 1, 7, 0, 1], [2, 2, 1, 1, 0]], dtype=float)
    assert swap_neighbourhood.twins(flow, np.array([0.0, 0.0, 4.0, 4.0, 5.0])).tolist() == [0, 0, 2, 2, 4]
    assert swap_neighbourhood.twins(flow, np.zeros(5)).tolist() == [0, 0, 2, 2, 0]


def test_proves_the_optimum_of_nug12() -> None:
    """QAPLIB states 578 as the optimum of nug12; the search finds it and the bound rises to it from below."""
    problem, calls = nug12(), list[Progress]()
    result = place(problem, seed=1, time_limit=math.inf, progress=calls.append)
    assert result.objective == problem.cost(result.permutation) == 578.0
    assert (result.lower_bound, result.bound_source, result.status) == (578.0, "branch-and-bound", "optimal")
    assert result.gap == 0.0
    bounds = [call.lower_bound for call in calls]
    assert bounds == sorted(bounds)
    # The identity's cost comes before any bound, Gilmore and Lawler's 494 before the others.
    assert (bounds[0], bounds[1]) == (-math.inf, 494.0)
    costs = [call.incumbent for call in calls]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 578.0


def test_published_solution_of_nug12_costs_itsoptimum() -> None:
    """QAPLIB's permutation 12 7 9 3 4 8 11 1 5 6 10 2 costs 578 the other way round: nug12.dat states d first."""
    problem, permutation = nug12(), np.array([12, 7, 9, 3, 4, 8, 11, 1, 5, 6, 10, 2]) - 1
    assert QuadraticAssignment(problem.distance, problem.flow).cost(permutation) == 578.0
    assert problem.cost(np.argsort(permutation)) == 578.0


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_stops_as_soon_as_the_bound_is_met(scale: float) -> None:
    """A star among leaves costs what the bound says, so that no limit is needed; fractions leave room for rounding."""
    flow, distance = np.zeros((20, 20)), np.ones((20, 20)) * 9.0
    flow[0, 1:] = np.arange(1.0, 20.0)
    distance[3, :] = np.arange(20.0)
    result = place(QuadraticAssignment(scale * flow, scale * distance), time_limit=math.inf)
    assert result.status == "optimal"
    assert result.gap == pytest.approx(0.0, abs=1e-9)
    assert result.lower_bound <= result.objective


def test_zero_costs_are_proven_and_have_no_gap() -> None:
    """Without any flow objective and bound are both zero, and the gap is zero."""
    result = place(QuadraticAssignment(np.zeros((12, 12)), np.random.default_rng(0).random((12, 12))))
    assert (result.objective, result.lower_bound, result.gap, result.status) == (0.0, 0.0, 0.0, "optimal")


def test_interrupt_returns_the_best_so_far() -> None:
    """Ctrl-C ends the search, and objective and bound still hold."""
    problem = nug12()

    def interrupt(at: Progress) -> None:
        if at.incumbent <= 600:
            signal.raise_signal(signal.SIGINT)

    result = place(problem, time_limit=math.inf, progress=interrupt)
    assert result.objective == problem.cost(result.permutation) <= 600.0
    assert result.lower_bound == 494.0


def test_interrupt_before_the_bound_claims_none() -> None:
    """Ctrl-C before a bound is computed leaves a permutation and no bound."""

    def interrupt(*_call: object) -> None:
        signal.raise_signal(signal.SIGINT)

    result = place(nug12(), progress=interrupt)
    assert (result.lower_bound, result.gap, result.bound_source) == (-math.inf, None, "none")
    assert result.permutation == tuple(range(12))


def test_every_kernel_is_loaded_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long compiling takes: bounds, searches and proof run to their ends, the last one by the tree."""
    called: list[str] = []

    def noted(name: str, run: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def listed(*arguments: Any, **options: Any) -> Iterator[Any]:
            for found in run(*arguments, **options):
                called.append(getattr(found, "source", name))
                yield found
            called.append(f"{name} ended")

        return listed

    for module, name in ((quadratic, "root_bounds"), (quadratic, "prove"), (swap_neighbourhood, "_annealing")):
        monkeypatch.setattr(module, name, noted(name, getattr(module, name)))
    monkeypatch.setattr(swap_neighbourhood, "_tabu_search", noted("_tabu_search", swap_neighbourhood._tabu_search))
    quadratic._load.__wrapped__()
    for name in ("root_bounds", "_annealing", "_tabu_search", "prove"):
        assert f"{name} ended" in called
    assert called[-2:] == ["branch-and-bound", "prove ended"]


def test_one_seed_gives_one_order_of_work() -> None:
    """The permutations along the way depend on the seed and not on the clock."""
    problem = random_assignment("floats", 30, 23)

    def first(seed: int) -> list[float]:
        found = swap_neighbourhood._annealing(problem, np.random.default_rng(seed), 1e9, -math.inf)
        return [cost for cost, _ in (next(found) for _ in range(5))]

    assert first(0) == first(0)
    assert first(0) != first(1)


def test_no_time_still_gives_a_valid_result() -> None:
    """A limit of zero makes one call of each kernel."""
    problem = random_assignment("signed floats", 15, 29)
    result = place(problem, time_limit=0.0)
    assert problem.violations(result.permutation) == ()
    assert result.lower_bound <= result.objective < problem.cost(range(15))


@pytest.mark.parametrize("limit", [-1.0, math.nan])
def test_refuses_times_that_are_none(limit: float) -> None:
    """A negative limit and NaN are refused."""
    with pytest.raises(FormulationError, match="time limit is"):
        place(nug12(), time_limit=limit)


@settings(max_examples=25)
@given(st.sampled_from(KINDS), st.integers(1, 7), st.integers(0, 2**16))
def test_result_survives_relabelling(kind: str, size: int, seed: int) -> None:
    """New names for items and locations change neither the optimum nor the bound."""
    problem, rng = random_assignment(kind, size, seed), np.random.default_rng(seed)
    items, locations = rng.permutation(size), rng.permutation(size)
    renamed = QuadraticAssignment(problem.flow[np.ix_(items, items)], problem.distance[np.ix_(locations, locations)])
    assert place(renamed).objective == pytest.approx(place(problem).objective, rel=1e-9, abs=1e-9)
    assert gilmore_lawler(renamed) == pytest.approx(gilmore_lawler(problem), rel=1e-9, abs=1e-9)
    assert gilmore_lawler(renamed) <= place(problem).objective


def test_compiling_is_no_turn_of_the_proof() -> None:
    """However long the proof compiles, the search beside it gets the times of its work alone."""

    def turns(name: str, compiling: float = 0.0) -> Iterator[Any]:
        while True:
            with event.trigger_event(COMPILING, data={}):
                sleep(compiling)
            sleep(0.01)
            yield name

    found: list[Any] = list(islice(quadratic._shared(turns("proof", 0.2), turns("search"), 1.0), 8))
    # Counted, each would give the search some twenty turns.
    assert found.count("proof") >= 2


@pytest.mark.skipif(not FILES.is_dir(), reason="TAUT_SHARED_DATA holds no qaplib folder")
def test_published_values_lie_between_bound_and_objective() -> None:
    """On QAPLIB no permutation beats the best known value and the bound does not exceed it."""
    with (FILES / "qaplib.csv").open(encoding="utf-8", newline="") as table:
        rows = [row for row in csv.DictReader(table) if row["perm_verified"] == "1"]
    for row in rows:
        instance, known = read_qaplib(FILES / f"{row['name']}.dat"), float(row["best_known"])
        result = place(QuadraticAssignment(instance.flow, instance.distance, instance.name), time_limit=0.05)
        assert result.lower_bound <= known, row["name"]
        assert result.objective >= known or row["proven_optimal"] == "0", row["name"]
