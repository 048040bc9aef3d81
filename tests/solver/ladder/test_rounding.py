"""
Bounds do not hang on the rounding of their sums: in every direction of rounding they stay within their allowances.

Every operation of the processor rounds down in one derivation and up in another. Sums, products, maxima and minima of
positive terms enclose the exact value between the two, and differences show how far they cancel. The allowances that
bounds take off for rounding are 1e-12 of a closed form and 1e-10 of an order.
"""

import ctypes
import math
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from taut.formulations.order_division import ROUNDING as OF_ORDERS
from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import CandidateBound, Limits
from taut.solver.search.search import search
from tests.support.instances import random_problem
from tests.support.small import cluster, model
from tests.support.small import problem as problem_of

pytestmark = pytest.mark.proof

UP, DOWN = (0x800, 0x400) if platform.machine() in ("x86_64", "AMD64") else (0x400000, 0x800000)
"""``FE_UPWARD`` and ``FE_DOWNWARD`` of the C library, on x86-64 and on AArch64."""
LIBRARY = ctypes.CDLL(None)


@contextmanager
def rounded(direction: int) -> Iterator[None]:
    """Let the processor round so."""
    assert LIBRARY.fesetround(direction) == 0
    try:
        yield
    finally:
        LIBRARY.fesetround(0)


def derived(problem: PlanningProblem, bounds: list[CandidateBound]) -> list[float]:
    """All bounds, derived from new tables."""
    ladder = Ladder(replace(problem))
    return [derived_bound(ladder, each.candidate, str(each.source), each.witness) for each in bounds]


def test_the_processor_rounds_as_it_is_told() -> None:
    """A third is less when it is rounded down than when it is rounded up."""
    one, three = float("1"), float("3")
    with rounded(DOWN):
        low = one / three
    with rounded(UP):
        high = one / three
    assert low < high


def test_bounds_stay_within_their_allowances_in_either_direction() -> None:
    """Bounds of random problems move by less than a tenth of what is taken off for rounding, whatever their source."""
    seen = set[str]()
    ordered = problem_of(cluster(4, 1), model(8), schedules=["zb-h1", "interleaved-1f1b"], fixed={"pp": 4})
    problems = [*map(random_problem, range(16)), ordered]
    for problem in problems:
        found = search(problem, Limits(work_limit=40)).bounds
        if not found:
            continue
        nearest = derived(problem, found)
        with rounded(DOWN):
            low = derived(problem, found)
        with rounded(UP):
            high = derived(problem, found)
        for each, value, *others in zip(found, nearest, low, high, strict=True):
            if not (value > 0 and math.isfinite(value)):
                assert others == [value, value], each
                continue
            seen.add(str(each.source))
            allowed = OF_ORDERS if each.candidate.is_order_priced else ROUNDING
            moved = max(abs(other - value) for other in others) / value
            assert moved < allowed / 10, each
    assert seen >= {"every-placement", "order", "partition", "placement", "relaxation"}, seen
