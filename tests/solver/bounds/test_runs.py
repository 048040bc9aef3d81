"""What a quantile adds for fields beyond all runs: by hand, by both evaluators, and below every optimum in bounds."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.seen import DEVIATIONS
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.solver.certificate.reference.space import added_seconds
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import OPTIMALITY_GAP, Limits
from taut.solver.search.search import search
from tests.support.chunked import chunked
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate
from tests.support.reference import case_of, choice_of
from tests.support.runs import with_few_runs

EXACT = Limits(gap=OPTIMALITY_GAP, workers=1)


def at_a_quantile(seed: int) -> PlanningProblem | None:
    """A random problem where each field beyond the few runs adds seconds; None where it has no candidate."""
    given = chunked(seed) if seed % 2 else replace(random_problem(seed), latency_model="step")
    if not given.candidates:
        return None
    given = with_few_runs(seed, given)
    assert given.calibration is not None
    each = float(np.random.default_rng(seed).uniform(0.01, 5.0))
    return replace(given, calibration=given.calibration.model_copy(update={"beyond_s": each}))


def test_seconds_grow_with_the_deviation_of_the_fields_beyond() -> None:
    """Both evaluators, on all candidates of random problems: by no kind, by one, and by several."""
    several = set[float]()
    for seed in range(12):
        if (given := at_a_quantile(seed)) is None:
            continue
        assert given.calibration is not None
        for candidate in given.candidates:
            more = given.constant_of(candidate) - given.constant_seconds
            assert more == pytest.approx(added_seconds(case_of(given), choice_of(candidate)))
            several.add(round(more / given.calibration.beyond_s, 6))
    assert several >= {0.0, *(DEVIATIONS[kind] for kind in ("micro-batch", "pipeline"))} and len(several) > 4


@pytest.mark.proof
def test_the_plan_at_a_quantile_is_the_least_of_all_and_no_bound_is_above() -> None:
    """Search and bounds against enumeration of every candidate."""
    checked = 0
    for seed in range(1, 16):
        given = at_a_quantile(seed)
        if given is None or len(given.candidates) > 16 or given.cluster.num_devices > 2 + 2 * (seed < 6):
            continue
        result, ladder = search(given, EXACT), Ladder(given)
        optima = {candidate: enumerate_candidate(given, candidate).seconds for candidate in given.candidates}
        least = min(optima.values())
        if result.incumbent is None:
            assert not np.isfinite(least)
            continue
        assert result.incumbent.seconds == pytest.approx(least, rel=1e-6), seed
        priced = step_time(given, result.incumbent.strategy, result.incumbent.devices)
        assert float(priced.total) == pytest.approx(result.incumbent.seconds)
        for bound in result.bounds:
            assert bound.lower_bound <= optima[bound.candidate] * (1 + 1e-9), (seed, bound.candidate)
            assert ladder.first(bound.candidate)[0] <= optima[bound.candidate] * (1 + 1e-9)
            checked += 1
    assert checked > 20
