"""Bounds of every rung of the ladder beside the enumerated optimum of a candidate."""

from collections.abc import Sequence

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.computations import COMPUTATIONS, counted
from taut.solver.ladder.ladder import Ladder
from tests.support.oracle import Enumerated, enumerate_candidate

TOLERANCE = 1 + 1e-9


def check_rungs(given: PlanningProblem, ladder: Ladder, candidate: Candidate) -> Enumerated:
    """No rung of a candidate is above its enumerated optimum, infinite where nothing fits; returns the optimum."""
    enumerated = enumerate_candidate(given, candidate)
    optimum = enumerated.seconds
    for rung in ladder.rungs(candidate):
        if rung.source in COMPUTATIONS:
            found = COMPUTATIONS[rung.source](ladder, candidate, np.inf).seconds
            assert found <= optimum * TOLERANCE, (candidate, rung.source)
    if candidate.is_order_priced:
        check_count(ladder, candidate, optimum)
    return enumerated


def check_count(ladder: Ladder, candidate: Candidate, optimum: float) -> None:
    """The layers that devices take within 1.5 optima prove no more than the optimum, and the check derives as much."""
    limit = 1.5 * optimum if np.isfinite(optimum) else 1e3
    found = counted(ladder, candidate, limit)
    if found is not None:
        assert found.seconds <= optimum * TOLERANCE, (candidate, "counted")
        assert derived_bound(ladder, candidate, found.source, found.witness) >= found.seconds / TOLERANCE


def check_candidates(
    given: PlanningProblem, candidates: Sequence[Candidate], seed: int, most: int
) -> dict[Candidate, Enumerated]:
    """Check every rung of up to so many candidates, drawn by a seed, and return them with their optima."""
    ladder, drawn = Ladder(given), np.random.default_rng(seed).permutation(len(candidates))[:most].tolist()
    return {candidates[index]: check_rungs(given, ladder, candidates[index]) for index in drawn}
