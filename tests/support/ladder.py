"""Bounds of every rung of the ladder beside the enumerated optimum of a candidate."""

from collections.abc import Sequence

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.ladder.computations import COMPUTATIONS
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
    return enumerated


def check_candidates(
    given: PlanningProblem, candidates: Sequence[Candidate], seed: int, most: int
) -> dict[Candidate, Enumerated]:
    """Check every rung of up to so many candidates, drawn by a seed, and return them with their optima."""
    ladder, drawn = Ladder(given), np.random.default_rng(seed).permutation(len(candidates))[:most].tolist()
    return {candidates[index]: check_rungs(given, ladder, candidates[index]) for index in drawn}
