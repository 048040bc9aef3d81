"""Least recomputation of a stage: by both tables beside every set of operators, and the set behind a figure."""

from itertools import product

import numpy as np
import pytest

from taut.papers.aceso.formula import kinds_of, stage_bytes
from taut.papers.aceso.operators import Operators
from taut.papers.aceso.stage_table import StageTable, kind_of_stage, recomputed_at_best, stage_table
from tests.support.aceso import even, problem

BEHIND = 1


def figure(table: StageTable, operators: Operators, layers: int, first: int, end: int, behind: int) -> float:
    """The figure of a stage in a table."""
    begins, whole, x, y = kind_of_stage(operators.layer, layers, first, end)
    if y == 0:
        return float(table.head[behind])
    return float(table.singles[behind, x, y] if x else table.spans[behind, begins, y, whole])


def least(operators: Operators, layers: int, where: tuple[int, int, int], limit: float) -> float:
    """Seconds of the best set of a stage of all that fit."""
    first, end, behind = where
    kinds, best = kinds_of(operators, layers)[first:end], np.inf
    for flags in product((False, True), repeat=end - first):
        again = np.array(flags)
        if stage_bytes(operators, kinds, again, behind) <= limit:
            best = min(best, float(operators.forward[kinds][again].sum()))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_tables_enclose_every_set_of_every_stage(seed: int) -> None:
    """No table is on the wrong side of the least seconds of all sets; where units divide activations both have them."""
    given = problem(seed)
    operators, layers, limit = given.profile.operators[1, 1], given.layers, given.memory_limit
    plain, cautious = (stage_table(operators, limit, BEHIND, layers, cautious=each) for each in (False, True))
    count, apart, finite = len(kinds_of(operators, layers)), 0, 0
    for first in range(count):
        for end in range(first + 1, count + 1):
            where, asked = (first, end, BEHIND), least(operators, layers, (first, end, BEHIND), limit)
            low, high = (figure(table, operators, layers, *where) for table in (plain, cautious))
            assert low <= asked * (1 + 1e-12) and high >= asked * (1 - 1e-12), where
            if np.isfinite(high):
                kinds = kinds_of(operators, layers)[first:end]
                flags = recomputed_at_best(operators, layers, where, limit)
                assert float(operators.forward[kinds][flags].sum()) == pytest.approx(high, abs=1e-12)
                assert stage_bytes(operators, kinds, flags, BEHIND) <= limit + 1
            finite += np.isfinite(asked)
            apart += np.isfinite(asked) and high > asked * (1 + 1e-9)
    assert finite > 0 and (apart == 0 or not even(seed))
