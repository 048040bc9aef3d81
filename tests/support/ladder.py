"""Bounds of every rung of the ladder beside the enumerated optimum of a candidate."""

from collections.abc import Sequence

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.computations import COMPUTATIONS
from taut.solver.bounds.ladder import Ladder
from tests.support.oracle import enumerate_candidate

TOLERANCE = 1 + 1e-9


def check_rungs(given: PlanningProblem, ladder: Ladder, candidate: Candidate) -> None:
    """No rung of a candidate is above its enumerated optimum, infinite where nothing fits."""
    optimum = enumerate_candidate(given, candidate).seconds
    for rung in ladder.rungs(candidate):
        if rung.source in COMPUTATIONS:
            found = COMPUTATIONS[rung.source](ladder, candidate, np.inf).seconds
            assert found <= optimum * TOLERANCE, (candidate, rung.source)


def check_candidates(given: PlanningProblem, candidates: Sequence[Candidate], seed: int, most: int) -> list[Candidate]:
    """Check every rung of up to so many candidates, drawn by a seed, and return them."""
    ladder, drawn = Ladder(given), np.random.default_rng(seed).permutation(len(candidates))[:most].tolist()
    chosen = [candidates[index] for index in drawn]
    for candidate in chosen:
        check_rungs(given, ladder, candidate)
    return chosen
