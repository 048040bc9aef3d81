"""Plans by the integer program and the quadratic assignment: valid, under the search's bound, and often its optimum."""

import json
import math
from dataclasses import replace

import pytest

from taut.formulations.problem import PlanningProblem
from taut.formulations.program.program import StrategyProgram
from taut.solver.branch_and_bound import stop
from taut.solver.branch_and_bound.stop import Listener
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.methods import certified as certifying
from taut.solver.methods import integer_program, strategy_choice
from taut.solver.methods.baselines import hethub
from taut.solver.methods.certified import METHOD_SHARE, certified, planned_within
from taut.solver.methods.named import MESHES, NAMES, PROGRAMS, SEARCH, Outcome, method_of
from taut.solver.program.checked import ProgramResult
from taut.solver.result import Limits, SearchResult, Status
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.chunked import chunked
from tests.support.instances import random_problem

pytestmark = pytest.mark.proof


class Watch:
    """Seconds of a clock that only a test moves, from the moment it is entered."""

    seconds = 0.0

    def __enter__(self) -> "Watch":
        Watch.seconds = 0.0
        return self

    def __exit__(self, *raised: object) -> None:
        pass


@pytest.mark.parametrize("block", blocks(10))
def test_plans_of_every_method_hold_and_are_not_below_the_bound(block: int) -> None:
    """
    Four random problems a block, under every method in turn.

    Each plan is priced again by the checker, no method beats the proven bound, and what CP-SAT or CBC claims is no more
    than the optimum where the search proves one.
    """
    for seed in range(4 * block, 4 * block + 4):
        given = random_problem(seed)
        if not given.candidates:
            continue
        limits = Limits(work_limit=200, seed=seed)
        least = search(given, limits)
        for name in NAMES:
            if name in (SEARCH, MESHES):
                continue
            found = certified(given, method_of(name)(given, limits, None), limits)
            if found.outcome.incumbent is None:
                continue
            seconds = found.outcome.incumbent.seconds
            assert seconds >= least.lower_bound * (1 - 1e-9), (seed, name)
            assert found.result.lower_bound <= seconds
            if name in PROGRAMS and least.incumbent is not None:
                assert found.outcome.lower_bound <= least.incumbent.seconds * (1 + 1e-9), (seed, name)
            if found.result.orders:
                continue
            document = json.loads(json.dumps(plan_document(given, found.result, limits, found.figures)))
            assert document["provenance"]["method"]["name"] == name
            assert verify_document(document).faults == (), (seed, name)


def test_a_method_without_a_plan_says_so() -> None:
    """Where nothing fits no method has a plan, and the certificate's search finds none either."""
    given = random_problem(0)
    tiny = given.memory.model_copy(update={"overhead_gib": 1e3})
    tight = replace(given, memory=tiny)
    for name in NAMES:
        if name not in (SEARCH, MESHES):
            found = certified(tight, method_of(name)(tight, Limits(), None), Limits())
            assert found.outcome.incumbent is None
            assert found.result.incumbent is None
            assert math.isinf(found.best_s)


def test_a_backend_has_what_is_left_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A backend that takes all of its time and finds nothing, on a clock that only it moves.

    No solve is told more than is left of the limit, none begins after it, the method ends with a plan no worse than
    HETHUB's, and it claims no more than the optimum.
    """
    limit = 20.0
    told: list[tuple[float, float]] = []

    def slow(program: StrategyProgram, *, time_limit: float, workers: int, seed: int) -> ProgramResult:
        told.append((Watch.seconds, time_limit))
        Watch.seconds += time_limit
        return ProgramResult(
            status=Status.UNKNOWN,
            objective_ns=None,
            lower_bound_ns=None,
            choice=None,
            solver="slow",
        )

    monkeypatch.setattr(stop, "Stopwatch", Watch)
    monkeypatch.setattr(strategy_choice, "perf_counter", lambda: Watch.seconds)
    for seed in range(12):
        given = random_problem(seed)
        told.clear()
        limits = Limits(time_limit=limit, seed=seed)
        outcome = integer_program.by_program("slow", slow, given, limits)
        assert all(asked <= limit - began for began, asked in told)
        assert Watch.seconds <= limit
        least, simple = search(given, Limits(work_limit=200)).incumbent, hethub(given, limits).incumbent
        if least is not None:
            assert outcome.lower_bound <= least.seconds * (1 + 1e-9)
        if simple is not None:
            assert outcome.incumbent is not None
            assert outcome.incumbent.seconds <= simple.seconds


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_is_never_behind_hethub(name: str) -> None:
    """Its first plan is HETHUB's, so on random problems it ends with one as quick, even within no time."""
    for seed in range(20, 40):
        given = random_problem(seed)
        simple = hethub(given, Limits()).incumbent
        found = method_of(name)(given, Limits(time_limit=2.0), None).incumbent
        assert simple is None or (found is not None and found.seconds <= simple.seconds)


def test_the_program_covers_schedules_that_are_priced_by_their_order() -> None:
    """
    On small problems with chunks it has the best plan of all candidates, interleaved or not, and a bound on all.

    A certificate with the bounds that the method found holds.
    """
    interleaved = 0
    for seed in range(3):
        given, limits = chunked(seed), Limits(seed=seed)
        least = search(given, limits)
        assert least.incumbent is not None
        found = certified(given, method_of("cp-sat")(given, limits, None), limits)
        plan = found.outcome.incumbent
        assert plan is not None
        assert found.outcome.candidates == len(given.candidates) > len(given.closed_forms)
        assert plan.seconds == pytest.approx(least.incumbent.seconds, rel=1e-6), seed
        assert found.outcome.lower_bound <= least.incumbent.seconds * (1 + 1e-9)
        assert found.outcome.lower_bound >= least.lower_bound * (1 - 1e-6)
        assert not found.outcome.is_cut_off or least.lower_bound < least.incumbent.seconds
        interleaved += plan.strategy.candidate.is_order_priced
        assert ("strategy_by" in found.figures) == plan.strategy.candidate.is_order_priced
        document = json.loads(json.dumps(plan_document(given, found.result, limits, found.figures)))
        assert verify_document(document).faults == (), seed
    assert interleaved > 0


@pytest.mark.parametrize(("taken", "rest"), [(5.0, 15.0), (15.0, 5.0), (30.0, 5.0)])
def test_method_and_search_share_the_limit(monkeypatch: pytest.MonkeyPatch, taken: float, rest: float) -> None:
    """
    Of 20 s the method is told its share, and the search what the method leaves, or its own share of a late one.

    Without a limit neither is told one.
    """
    told: list[float | None] = []

    def method(problem: PlanningProblem, limits: Limits, progress: Listener | None) -> Outcome:
        told.append(limits.time_limit)
        Watch.seconds = taken
        return Outcome(method="slow", incumbent=None, candidates=0, wall_s=taken)

    def noted(problem: PlanningProblem, limits: Limits, progress: Listener | None, **known: object) -> SearchResult:
        told.append(limits.time_limit)
        return replace(found, wall_s=1.0)

    given = random_problem(0)
    found = search(given, Limits(work_limit=1))
    monkeypatch.setattr(certifying, "Stopwatch", Watch)
    monkeypatch.setattr(certifying, "search", noted)
    both = planned_within(given, method, Limits(time_limit=20.0))
    assert told == [METHOD_SHARE * 20.0, rest]
    assert both.result.wall_s == taken + 1.0
    assert len(both.result.history) == len(found.history) > 0
    for moment, alone in zip(both.result.history, found.history, strict=True):
        assert moment == alone | {"wall_s": taken + (alone["wall_s"] or 0.0)}
    told.clear()
    planned_within(given, method, Limits())
    assert told == [None, None]
