"""The closed form of missing memory: what it proves it confirms, and what it does not prove is refused."""

import math

from taut.data.stack import SCHEDULES
from taut.data.units import KIB
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.ladder import Ladder
from taut.solver.order_priced.chunk_memory import memory_of_chunks
from taut.solver.result import Source
from tests.solver.order_priced.test_bound import random_orders


def test_no_more_is_confirmed_than_is_missing() -> None:
    """The closed form confirms what it proves, and not a fiftieth and a step of its grid more; nothing shows 32 TiB."""
    proven = 0
    for seed in range(80):
        given = random_orders(seed, list(SCHEDULES[2:]))
        for candidate in (each for each in given.candidates if each.is_order_priced):
            closed = memory_of_chunks(given, candidate, margin=True)
            if closed is None or not (missing := int(closed.missing()[0])):
                continue
            more = missing + missing // 50 + 20_000
            assert closed.lacks(missing) and not closed.lacks(more)
            for named, holds in ((missing, True), (1 << 45, False)):
                witness = {"missing": named, "missing_kib": -(-named // KIB)}
                found = derived_bound(Ladder(given), candidate, Source.ORDER_MEMORY, witness)
                assert found == (math.inf if holds else -math.inf)
            proven += 1
    assert proven >= 20
