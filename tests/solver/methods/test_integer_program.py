"""Plans by the integer program and the quadratic assignment: valid, under the search's bound, and often its optimum."""

import json
import math
from dataclasses import replace

import pytest

from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.methods.certified import certified
from taut.solver.methods.named import NAMES, PROGRAMS, SEARCH, method_of
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(10, 1))
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
            if name == SEARCH:
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
        if name != SEARCH:
            found = certified(tight, method_of(name)(tight, Limits(), None), Limits())
            assert found.outcome.incumbent is None
            assert found.result.incumbent is None
            assert math.isinf(found.best_s)
