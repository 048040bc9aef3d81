"""A candidate whose figures are no larger has no larger bound, and its bound stands for the other only then."""

import math
from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.computations import partition
from taut.solver.ladder.dominance import dominates_in_division, inherited, likely_dominating, partition_data
from taut.solver.ladder.ladder import Ladder
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9


def with_choices(seed: int) -> PlanningProblem:
    """A random problem in ``step`` whose candidates differ in ZeRO and sequence parallelism."""
    given = random_problem(seed)
    space = given.space.model_copy(update={"zero": [0, 1], "sequence_parallel": [False, True]})
    return replace(given, space=space, latency_model="step", overlap_grad_reduce=seed % 2 == 0)


def test_a_dominating_candidate_bounds_the_other() -> None:
    """On 120 problems its partition is at most the other's enumerated optimum, and the check derives that bound."""
    compared, other_way = 0, 0
    for seed in range(120):
        ladder = Ladder(with_choices(seed))
        every = [choice for choice in ladder.problem.candidates if partition_data(ladder, choice)]
        for choice in every[::7]:
            for other in likely_dominating(choice, every):
                one, data = partition_data(ladder, other), partition_data(ladder, choice)
                assert one is not None and data is not None
                found = partition(ladder, other)
                if not np.isfinite(found.seconds):
                    continue
                witness = inherited(choice, other, found.witness)
                derived = derived_bound(ladder, choice, "partition", witness)
                if not dominates_in_division(one, data):
                    other_way += 1
                    assert derived == -math.inf
                    continue
                compared += 1
                assert found.seconds <= enumerate_candidate(ladder.problem, choice).seconds * TOLERANCE, seed
                assert derived >= found.seconds / TOLERANCE
    assert compared > 50 and other_way > 0


def test_a_witness_that_names_nothing_fitting_shows_nothing() -> None:
    """A chain of names, further entries and degrees that no candidate may take are refused."""
    ladder = Ladder(with_choices(3))
    choice = next(choice for choice in ladder.problem.candidates if choice.zero == 0 and not choice.sequence_parallel)
    named = {"of": {"zero": 1, "sequence_parallel": False}, "by": {}}
    for wrong in ({**named, "by": named}, {**named, "limit_s": 1.0}, {**named, "of": {"zero": 2}}, {"of": 1, "by": {}}):
        assert derived_bound(ladder, choice, "partition", wrong) == -math.inf
