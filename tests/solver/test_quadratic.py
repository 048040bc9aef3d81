"""Tests of the bound, the annealing and the tabu search of the quadratic assignment problem."""

import csv
import math
import os
from itertools import permutations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.data.qaplib import read_qaplib
from taut.errors import FormulationError
from taut.formulations.assignment import QuadraticAssignment
from taut.solver import quadratic
from taut.solver.quadratic import anneal, gilmore_lawler, place

Matrix = npt.NDArray[np.float64]

FILES = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "qaplib"

KINDS = ["integers", "signed integers", "sparse", "symmetric", "half symmetric", "clones", "floats", "signed floats"]

# Flow of nug12, QAPLIB (Nugent, Vollmann and Ruml, 1968): upper triangle, row by row.
NUG12 = """
    5 2 4 1 0 0 6 2 1 1 1
    3 0 2 2 2 0 4 5 0 0
    0 0 0 0 5 5 2 2 2
    5 2 2 10 0 0 5 5
    10 0 0 0 5 1 1
    5 1 1 5 4 0
    10 5 2 3 3
    0 0 5 0
    0 10 10
    5 0
    2
"""


def _random(kind: str, size: int, seed: int) -> QuadraticAssignment:
    """Instance of one of KINDS, with filled diagonals unless symmetric."""
    rng = np.random.default_rng([seed, size])
    flow, distance = rng.integers(-9 if kind.startswith("signed") else 0, 10, (2, size, size)).astype(float)
    if kind.endswith("floats"):
        flow, distance = flow * rng.random((size, size)), distance * rng.random((size, size))
    if kind == "sparse":
        flow, distance = flow * (rng.random((size, size)) < 0.3), distance * (rng.random((size, size)) < 0.6)
    if kind == "symmetric":
        flow, distance = np.triu(flow, 1) + np.triu(flow, 1).T, np.triu(distance, 1) + np.triu(distance, 1).T
    if kind == "half symmetric":
        flow, distance = (flow + flow.T, distance) if seed % 2 else (flow, distance + distance.T)
    if kind == "clones":
        flow, distance = np.where(np.add.outer(np.arange(size), np.arange(size)) < size - 1, 3.0, 1.0), distance
    return QuadraticAssignment(flow, distance, kind)


def _optimum(problem: QuadraticAssignment) -> float:
    """Cost of the best of all permutations."""
    return min(problem.cost(permutation) for permutation in permutations(range(problem.size)))


def _nug12() -> QuadraticAssignment:
    """QAPLIB's nug12: items on a grid of 3 x 4, Manhattan distances."""
    row, column = np.divmod(np.arange(12), 4)
    distance = abs(np.subtract.outer(row, row)) + abs(np.subtract.outer(column, column))
    flow = np.zeros((12, 12))
    flow[np.triu_indices(12, 1)] = [int(word) for word in NUG12.split()]
    return QuadraticAssignment(flow + flow.T, distance.astype(float), "nug12")


def test_bound_of_a_hand_computed_instance() -> None:
    """Gilmore and Lawler's bound on three items in a row, from the scalar products."""
    flow = np.array([[0.0, 5.0, 1.0], [5.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    distance = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 3.0], [4.0, 3.0, 0.0]])
    # Rows without diagonals, f rising: (1, 5), (2, 5), (1, 2); d falling: (4, 1), (3, 1), (4, 3).
    # l = [[9, 8, 19], [13, 11, 23], [6, 5, 10]]. Least assignment: 9 + 11 + 10 = 30 (others 31, 8 + 13 + 10 = 31,
    # 19 + 11 + 6 = 36, 19 + 13 + 5 = 37, 9 + 23 + 5 = 37, 8 + 23 + 6 = 37).
    problem = QuadraticAssignment(flow, distance)
    assert gilmore_lawler(problem) == 30.0
    # The identity costs 2 (5 * 1 + 1 * 4 + 2 * 3) = 30, so the bound is tight.
    assert problem.cost((0, 1, 2)) == 30.0


def test_bound_on_integers_is_rounded_up_to_even() -> None:
    """On nug12 the assignment problem gives 493 or 494, and every cost is even."""
    assert gilmore_lawler(_nug12()) == 494.0


@pytest.mark.parametrize("kind", KINDS)
def test_bound_never_exceeds_the_optimum(kind: str) -> None:
    """On 48 random instances of every kind, 384 in all, the bound is at most the cost of every permutation."""
    for seed in range(48):
        problem = _random(kind, 1 + seed % 6, seed)
        assert gilmore_lawler(problem) <= _optimum(problem), (kind, seed)


def test_bound_is_tight_where_one_matrix_is_constant() -> None:
    """If all items exchange the same, every permutation costs the same and the bound says so."""
    distance = np.random.default_rng(1).integers(-9, 10, (7, 7)).astype(float)
    problem = QuadraticAssignment(np.ones((7, 7)), distance)
    assert gilmore_lawler(problem) == problem.cost(range(7)) == distance.sum()


def test_bound_of_huge_integers_stays_below() -> None:
    """Where floats no longer hold every integer, the bound gives way for the rounding errors."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        problem = QuadraticAssignment(*rng.integers(0, 2**45, (2, 5, 5)).astype(float))
        assert gilmore_lawler(problem) <= _optimum(problem)


@pytest.mark.parametrize("kind", KINDS)
def test_annealing_finds_the_optimum_of_small_instances(kind: str) -> None:
    """The annealer alone reaches the optimum by enumeration for n from 1 to 8."""
    for size in range(1, 9):
        problem = _random(kind, size, 7)
        permutation = anneal(problem, seed=3, time_limit=0.02)
        assert problem.cost(permutation) == pytest.approx(place(problem).objective, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_tabu_search_finds_the_optimum_of_small_instances(kind: str) -> None:
    """Tabu search alone, out of the identity, reaches the optimum by enumeration for n from 2 to 8."""
    for size in range(2, 9):
        problem = _random(kind, size, 11)
        start = (problem.cost(range(size)), np.arange(size))
        found = list(quadratic._tabu_search(problem, start, np.random.default_rng(0), 0.0, -math.inf))
        assert found[-1][0] == pytest.approx(place(problem).objective, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_enumeration_prices_every_permutation(kind: str) -> None:
    """Up to n = 8 the result is the optimum, proven, and costs what it says."""
    for size in (1, 2, 3, 6):
        problem = _random(kind, size, 13)
        result = place(problem)
        assert result.objective == pytest.approx(_optimum(problem), rel=1e-12, abs=1e-12)
        assert result.objective == result.lower_bound == problem.cost(result.permutation)
        assert (result.gap, result.status, result.bound_source) == (0.0, "optimal", "enumeration")


@pytest.mark.parametrize("kind", KINDS)
def test_change_of_a_swap_is_the_difference_of_costs(kind: str) -> None:
    """Equation (3) agrees with pricing both permutations, before and after a swap."""
    problem, rng = _random(kind, 9, 17), np.random.default_rng(17)
    state = quadratic._arrange(problem, rng.permutation(9), rng)
    rows = (state.flow, state.placed, state.flow_loop, state.placed_loop)
    for _ in range(50):
        r, s = (int(item) for item in rng.choice(9, 2, replace=False))
        before, change = problem.cost(state.permutation), quadratic._change(*rows, r, s)
        if state.flow_kind[r] == state.flow_kind[s] or state.placed_kind[r] == state.placed_kind[s]:
            assert change == pytest.approx(0.0, abs=1e-9)
        quadratic._swap(state.placed, state.placed_loop, state.placed_kind, state.permutation, r, s)
        assert problem.cost(state.permutation) - before == pytest.approx(change, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_kept_up_to_date(kind: str) -> None:
    """Equation (4) gives the pairs without the two swapped items the change that (3) gives them."""
    problem, rng = _random(kind, 8, 19), np.random.default_rng(19)
    state = quadratic._arrange(problem, rng.permutation(8), rng)
    rows = (state.flow, state.placed, state.flow_loop, state.placed_loop)
    pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
    changes = np.zeros((8, 8))
    for i, j in pairs:
        changes[i, j] = quadratic._change(*rows, i, j)
    quadratic._swap(state.placed, state.placed_loop, state.placed_kind, state.permutation, 2, 5)
    quadratic._update(changes, state.flow, state.placed, 2, 5)
    for i, j in pairs:
        if not {i, j} & {2, 5}:
            assert changes[i, j] == pytest.approx(quadratic._change(*rows, i, j), abs=1e-9)


def test_alike_are_those_whose_swap_changes_nothing() -> None:
    """Two pairs of items exchange the same with everybody, a fifth differs by its diagonal."""
    flow = np.array([[0, 2, 1, 1, 2], [2, 0, 1, 1, 2], [1, 1, 0, 7, 1], [1, 1, 7, 0, 1], [2, 2, 1, 1, 0]], dtype=float)
    assert quadratic._alike(flow, np.array([0.0, 0.0, 4.0, 4.0, 5.0])).tolist() == [0, 0, 2, 2, 4]
    assert quadratic._alike(flow, np.zeros(5)).tolist() == [0, 0, 2, 2, 0]


def test_finds_the_optimum_of_nug12() -> None:
    """QAPLIB states 578 as the optimum of nug12; the search finds it and the bound stays below."""
    problem, calls = _nug12(), list[tuple[float, float, float]]()
    result = place(problem, seed=1, time_limit=0.3, progress=lambda *call: calls.append(call))
    assert result.objective == problem.cost(result.permutation) == 578.0
    assert (result.lower_bound, result.bound_source, result.status) == (494.0, "gilmore-lawler", "feasible")
    # (578 - 494) / 578 = 84 / 578.
    assert result.gap == pytest.approx(84 / 578)
    assert [bound for _, _, bound in calls] == [494.0] * len(calls)
    costs = [cost for _, cost, _ in calls]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 578.0


def test_published_solution_of_nug12_costs_its_optimum() -> None:
    """QAPLIB's permutation 12 7 9 3 4 8 11 1 5 6 10 2 costs 578 the other way round: nug12.dat states d first."""
    problem, permutation = _nug12(), np.array([12, 7, 9, 3, 4, 8, 11, 1, 5, 6, 10, 2]) - 1
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


def test_gap_is_none_where_it_means_nothing() -> None:
    """No gap to an unknown bound, nor of a zero objective; a negative objective counts by its size."""
    assert quadratic._gap(5.0, -math.inf) is None
    assert quadratic._gap(0.0, -2.0) is None
    assert quadratic._gap(0.0, 0.0) == 0.0
    # (-8 - -10) / 8 = 0.25.
    assert quadratic._gap(-8.0, -10.0) == 0.25


def test_interrupt_returns_the_best_so_far() -> None:
    """Ctrl-C ends the search, and objective and bound still hold."""
    problem = _nug12()

    def interrupt(_elapsed: float, cost: float, _bound: float) -> None:
        if cost <= 600:
            raise KeyboardInterrupt

    result = place(problem, time_limit=math.inf, progress=interrupt)
    assert result.objective == problem.cost(result.permutation) <= 600.0
    assert result.lower_bound == 494.0
    assert problem.cost(anneal(problem, seed=0, time_limit=math.inf, progress=interrupt)) <= 600.0


def test_interrupt_before_the_bound_claims_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the bound is computed leaves a permutation and no bound."""

    def interrupt(_problem: QuadraticAssignment) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(quadratic, "gilmore_lawler", interrupt)
    result = place(_nug12())
    assert (result.lower_bound, result.gap, result.bound_source) == (-math.inf, None, "none")
    assert result.permutation == tuple(range(12))


def test_one_seed_gives_one_order_of_work() -> None:
    """The permutations along the way depend on the seed and not on the clock."""
    problem = _random("floats", 30, 23)

    def first(seed: int) -> list[float]:
        found = quadratic._annealing(problem, np.random.default_rng(seed), 1e9, -math.inf)
        return [cost for cost, _ in (next(found) for _ in range(5))]

    assert first(0) == first(0)
    assert first(0) != first(1)


def test_no_time_still_gives_a_valid_result() -> None:
    """A limit of zero makes one call of each kernel."""
    problem = _random("signed floats", 15, 29)
    result = place(problem, time_limit=0.0)
    assert problem.violations(result.permutation) == ()
    assert result.lower_bound <= result.objective < problem.cost(range(15))


@pytest.mark.parametrize("limit", [-1.0, math.nan])
def test_refuses_times_that_are_none(limit: float) -> None:
    """A negative limit and NaN are refused by both searches."""
    for run in (lambda: place(_nug12(), time_limit=limit), lambda: anneal(_nug12(), seed=0, time_limit=limit)):
        with pytest.raises(FormulationError, match="time limit is"):
            run()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 7), st.integers(0, 2**16))
def test_result_survives_relabelling(kind: str, size: int, seed: int) -> None:
    """New names for items and locations change neither the optimum nor the bound."""
    problem, rng = _random(kind, size, seed), np.random.default_rng(seed)
    items, locations = rng.permutation(size), rng.permutation(size)
    renamed = QuadraticAssignment(problem.flow[np.ix_(items, items)], problem.distance[np.ix_(locations, locations)])
    assert place(renamed).objective == pytest.approx(place(problem).objective, rel=1e-9, abs=1e-9)
    assert gilmore_lawler(renamed) == pytest.approx(gilmore_lawler(problem), rel=1e-9, abs=1e-9)
    assert gilmore_lawler(renamed) <= place(problem).objective


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
