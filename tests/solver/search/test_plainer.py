"""Near-ties: least seconds under a restriction, bounds that no plan of it undercuts, known bounds of a search."""

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.latency import step_time, violations
from taut.formulations.partition import stated_divisions
from taut.formulations.plainer import (
    meets,
    missed,
    plainness,
    restricted,
    restriction_of,
    restrictions_on,
    widened,
    wider,
)
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import division_of_layers
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document, with_plainer
from taut.solver.result import OPTIMALITY_GAP, Incumbent, Limits, NearTie, SearchResult, State
from taut.solver.search import plainer
from taut.solver.search.plainer import near_ties
from taut.solver.search.search import search
from tests.support.chunked import chunked
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate
from tests.support.reference import random_placement, random_strategy
from tests.support.runs import with_few_runs

pytestmark = pytest.mark.proof

EXACT = Limits(gap=OPTIMALITY_GAP, workers=1)


def interleaved(seed: int) -> PlanningProblem:
    """A random problem with chunks, whose end chunks may have no layers; in every second one they are of use."""
    if seed % 2:
        return chunked(seed)
    given = random_problem(seed)
    update = {"empty_ends": seed % 4 != 0, "schedules": ["1f1b", "interleaved-1f1b"], "max_vpp": 4}
    return replace(given, space=given.space.model_copy(update=update), latency_model="step")


def of_runs(seed: int) -> PlanningProblem | None:
    """The same with runs that had the fields of few candidates; None where there is no candidate."""
    given = interleaved(seed)
    return with_few_runs(seed, given) if given.candidates else None


def searched(given: PlanningProblem) -> tuple[SearchResult, list[NearTie]] | None:
    """A search with its near-ties; None where nothing fits."""
    result = search(given, EXACT)
    return None if result.incumbent is None else near_ties(given, result, EXACT)


def least(given: PlanningProblem, name: str) -> float:
    """Seconds of the best plan of a restriction, by a search of it alone."""
    restriction = restriction_of(name, given.calibration)
    assert restriction is not None
    alone = restricted(given, restriction)
    only = [candidate for candidate in alone.candidates if restriction.keeps(candidate)]
    found = search(alone, EXACT, only=only)
    return np.inf if found.incumbent is None else found.incumbent.seconds


@pytest.mark.parametrize("first", [0, pytest.param(20, marks=pytest.mark.long)])
def test_near_ties_are_the_best_plans_of_their_restrictions(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the bounds of the whole space the search of a restriction finds what a search of it alone finds."""
    monkeypatch.setattr(plainer, "GAP", OPTIMALITY_GAP)
    names = set[str]()
    for seed in range(first, first + 20):
        given = of_runs(seed)
        if given is None or (found := searched(given)) is None:
            continue
        result, ties = found
        assert result.incumbent is not None
        for tie in ties:
            names.add(tie.restriction)
            assert tie.incumbent.seconds == pytest.approx(least(given, tie.restriction), rel=1e-6), seed
            assert result.incumbent.seconds <= tie.incumbent.seconds * (1 + 1e-9)
            assert tie.lower_bound <= tie.incumbent.seconds
        assert [tie.incumbent.seconds for tie in ties] == sorted(tie.incumbent.seconds for tie in ties)
    assert names >= {"even-stages", "no-interleaving", "at-most-2-chunks", "seen"}


def bounded(given: PlanningProblem, result: SearchResult, tie: NearTie) -> Iterator[tuple[float, float]]:
    """Bound and enumerated optimum of every candidate of a restriction."""
    restriction = restriction_of(tie.restriction, given.calibration)
    assert restriction is not None
    alone = restricted(given, restriction)
    known = {bound.candidate: bound.lower_bound for bound in result.bounds}
    raised = {bound.candidate: bound.lower_bound for bound in tie.bounds}
    for candidate in alone.candidates:
        if restriction.keeps(candidate):
            bound = max(known.get(wider(candidate, known), -np.inf), raised.get(candidate, -np.inf))
            yield bound, enumerate_candidate(alone, candidate).seconds


def test_no_bound_of_a_restriction_is_above_the_optimum() -> None:
    """Bounds of the whole space and those that a restriction raised, against enumeration on two or four devices."""
    checked, names = 0, set[str]()
    for seed in range(1, 12):
        # In every second one stages choose their recompute, of which few kinds were seen.
        given = of_runs(seed) if seed % 2 else with_few_runs(seed, chunked(seed, recompute=["none", "full"], max_vpp=1))
        if given is None or (found := searched(given)) is None:
            continue
        result, ties = found
        names |= {tie.restriction for tie in ties}
        for tie in ties:
            for bound, optimum in bounded(given, result, tie):
                assert bound <= optimum * (1 + 1e-9), (seed, tie.restriction)
                checked += 1
    assert checked > 20 and "seen" in names


def test_a_plan_of_even_stages_has_its_price_in_the_whole_space() -> None:
    """Where embedding and head are parts as well, a division costs the same, or less where passes gather them apart."""
    checked, rng = 0, np.random.default_rng(0)
    even = restriction_of("even-stages")
    assert even is not None
    for seed in range(60):
        given = interleaved(seed)
        alone, whole = restricted(given, even), set(given.candidates)
        for candidate in alone.candidates:
            if candidate in whole:
                continue
            drawn, stated = random_strategy(alone, candidate, rng), stated_divisions(alone, candidate)
            assert stated is not None
            sizes = stated[rng.integers(len(stated))].tolist()
            division = division_of_layers(candidate, sizes, drawn.division.recompute_index)
            strategy, devices = replace(drawn, division=division), random_placement(alone, candidate, rng)
            same = widened(strategy, whole)
            assert same.candidate in whole and same.layer_stages == strategy.layer_stages
            one, other = step_time(given, same, devices).total, step_time(alone, strategy, devices).total
            assert one <= other if candidate.zero >= 2 else one == other
            assert violations(given, same, devices) == violations(alone, strategy, devices)
            checked += 1
    assert checked > 50


def test_a_faster_near_tie_becomes_the_plan() -> None:
    """Beside the best plan of four chunks a plan of a restriction is faster; states follow from it."""
    improved = 0
    for seed in (1, 3):
        given = interleaved(seed)
        best = search(given, EXACT)
        four = search(given, EXACT, only=[candidate for candidate in given.candidates if candidate.vpp == 4])
        assert best.incumbent is not None and four.incumbent is not None
        # Bounds below the slower plan are open.
        still = [replace(b, state=State.OPEN) if b.lower_bound < four.incumbent.seconds else b for b in best.bounds]
        result, ties = near_ties(given, replace(best, incumbent=four.incumbent, bounds=still), EXACT)
        assert result.incumbent is not None
        improved += result.incumbent.seconds < four.incumbent.seconds
        assert not violations(given, result.incumbent.strategy, result.incumbent.devices)
        for tie in ties:
            restriction = restriction_of(tie.restriction)
            assert restriction is not None and not meets(given, restriction, result.incumbent.strategy)
        for bound in result.bounds:
            assert bound.state is not State.PRUNED or bound.lower_bound >= result.incumbent.seconds * (1 - 1e-9)
    assert improved


def solved() -> Iterator[tuple[int, PlanningProblem, SearchResult, Incumbent]]:
    """Random problems that have a plan, by seed, with their search and its plan."""
    for seed in range(12):
        given = of_runs(seed)
        best = None if given is None else search(given, EXACT)
        if given is not None and best is not None and best.incumbent is not None:
            yield seed, given, best, best.incumbent


def test_a_plainer_plan_takes_the_place_of_one_that_is_hardly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the near-ties within the share the plainest, then the fastest; the bound, below the optimum, stays."""
    monkeypatch.setattr(plainer, "UNTOLD", 0.1)
    monkeypatch.setattr(plainer, "WITHIN_RUNS", 0.1)
    taken, limits = 0, replace(EXACT, gap=1e-5)
    for seed, given, best, optimum in solved():
        states = [replace(bound) for bound in best.bounds]
        result, ties = near_ties(given, best, limits)
        assert result.incumbent is not None
        chosen = plainness(given, result.incumbent.strategy), result.incumbent.seconds
        exact, others = near_ties(given, replace(best, incumbent=optimum, bounds=states), EXACT)
        assert exact.incumbent is not None and exact.incumbent.seconds <= optimum.seconds * (1 + 1e-6)
        least = missed(given, optimum.strategy)
        near = [exact.incumbent] + [tie.incumbent for tie in others if tie.incumbent.seconds <= 1.1 * optimum.seconds]
        near = [each for each in near if missed(given, each.strategy) <= least]
        assert chosen == min((plainness(given, each.strategy), each.seconds) for each in (optimum, *near)), seed
        assert result.lower_bound <= optimum.seconds
        if result.incumbent.seconds > optimum.seconds * (1 + 1e-9):
            taken += 1
            first = ties[0]
            assert first.restriction == "fastest" and first.incumbent is optimum
            left = [bound for bound in result.bounds if bound.state is not State.INFEASIBLE]
            assert {bound.state for bound in left} <= {State.OPEN, State.PRUNED}
            for bound in left:
                assert (bound.state is State.PRUNED) == (bound.lower_bound >= result.incumbent.seconds)
            document = json.loads(json.dumps(with_plainer(plan_document(given, result, limits), ties)))
            assert verify_document(document).faults == (), seed
    assert taken >= 3


def test_a_plan_within_the_runs_is_taken_for_one_beyond_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of prices that are not known holds for that alone."""
    monkeypatch.setattr(plainer, "UNTOLD", 0.0)
    monkeypatch.setattr(plainer, "WITHIN_RUNS", 0.5)
    taken, limits = 0, replace(EXACT, gap=1e-5)
    for _, given, best, optimum in solved():
        seen = restriction_of("seen", given.calibration)
        assert seen is not None
        within = meets(given, seen, optimum.strategy)
        result, _ = near_ties(given, best, limits)
        assert result.incumbent is not None
        if result.incumbent.seconds > optimum.seconds * (1 + 1e-5):
            assert not within and meets(given, seen, result.incumbent.strategy)
            taken += 1
    assert taken


def test_no_time_and_no_work_leave_no_near_tie() -> None:
    """A share of nothing is nothing, and after an interrupt nothing is searched."""
    given = interleaved(1)
    result = search(given, EXACT)
    assert result.incumbent is not None and [*restrictions_on(given, result.incumbent.strategy)]
    for limits in (Limits(time_limit=0.0), Limits(work_limit=3)):
        assert near_ties(given, result, limits) == (result, [])


def test_a_search_from_known_bounds_finds_the_same_plan_with_less_work() -> None:
    """Bounds of a finished search leave the plan's own candidate, and those that are equal, to be searched."""
    for seed in range(6):
        given = interleaved(seed)
        first = search(given, EXACT)
        if first.incumbent is None:
            continue
        again = search(given, EXACT, known={bound.candidate: bound for bound in first.bounds}, adapts=False)
        assert again.incumbent is not None
        assert again.incumbent.seconds == pytest.approx(first.incumbent.seconds, rel=1e-6)
        assert again.work <= first.work
        before = {bound.candidate: bound.lower_bound for bound in first.bounds}
        assert all(bound.lower_bound >= before[bound.candidate] for bound in again.bounds)
