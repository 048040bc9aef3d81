"""Dominance between candidates: valid against enumeration, derived again from what it names, refused otherwise."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.costs import CostRow
from taut.data.stack import SCHEDULES
from taut.formulations.problem import MOST_KEPT, PlanningProblem, Recent
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.dominance import dominates_under_an_order, inherited, likely_dominating
from taut.solver.ladder.ladder import Ladder
from taut.solver.order_priced.bound import order_bound
from tests.solver.order_priced.test_bound import enumerable, random_orders
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, model, problem

pytestmark = pytest.mark.proof


def test_inherited_bounds_are_valid_on_random_instances() -> None:
    """What a dominating candidate's witness proves is no more than the enumerated optimum of the dominated one."""
    seen, of_contexts = 0, 0
    for seed in range(90):
        given = with_dear_contexts(random_orders(seed, list(SCHEDULES[2:])), seed)
        ladder, known = Ladder(given), set(given.candidates)
        for choice in enumerable(given)[::3]:
            for other in likely_dominating(choice, known):
                one, two = (chunked(given, each, ladder.links) for each in (other, choice))
                if not dominates_under_an_order(one, two):
                    continue
                found, optimum = order_bound(one), enumerate_candidate(given, choice).seconds
                if not np.isfinite(found.seconds):
                    assert optimum == math.inf
                    continue
                derived = derived_bound(ladder, choice, "order", inherited(choice, other, found.witness))
                assert found.seconds <= derived <= optimum * (1 + 1e-9), (seed, choice, other)
                seen += 1
                of_contexts += other.cp < choice.cp
    assert seen >= 15 and of_contexts >= 5


def key_of(row: CostRow, *, fewer: int = 1) -> tuple[object, ...]:
    """What tells rows of costs apart, of so many times fewer context ranks and as much smaller micro-batches."""
    layer = row.device, row.kind, row.seq, row.tp, row.recompute
    return *layer, row.cp // fewer, row.micro_batch // fewer


def with_dear_contexts(given: PlanningProblem, seed: int) -> PlanningProblem:
    """The same where context ranks take as long as as much smaller micro-batches without them, and a little more."""
    rng, rows = np.random.default_rng((seed, 5)), given.costs.rows
    named = {key_of(row): row for row in rows}
    for row in rows:
        smaller = named.get(key_of(row, fewer=row.cp))
        if row.cp > 1 and row.micro_batch % row.cp == 0 and smaller is not None:
            longer = {
                "cp": row.cp,
                "micro_batch": row.micro_batch,
                "forward_s": smaller.forward_s * rng.uniform(1, 1.2),
            }
            named[key_of(row)] = smaller.model_copy(update=longer)
    rows = list(named.values())
    costs = given.costs.model_copy(update={"rows": rows})
    return replace(given, costs=costs, _shared=Recent(MOST_KEPT))


def pair() -> tuple[Ladder, Candidate, Candidate]:
    """Two candidates of ZB-H1 on two nodes, without ZeRO and sequence parallelism, and with both."""
    given = problem(cluster(4, 2), model(8), schedules=["zb-h1"], fixed={"pp": 2, "tp": 2, "dp": 2})
    lean = next(one for one in given.candidates if one.zero == 1 and one.sequence_parallel)
    return Ladder(given), replace(lean, zero=0, sequence_parallel=False), lean


def test_only_what_is_no_harder_dominates() -> None:
    """ZeRO-1 with sequence parallelism dominates neither, and not the other way round; nor with any figure larger."""
    ladder, plain, lean = pair()
    hard, easy = (chunked(ladder.problem, one, ladder.links) for one in (plain, lean))
    assert dominates_under_an_order(easy, hard) and dominates_under_an_order(easy, easy)
    assert not dominates_under_an_order(hard, easy)
    assert set(likely_dominating(plain, set(ladder.problem.candidates))) >= {lean}
    assert list(likely_dominating(lean, set(ladder.problem.candidates))) == []
    for field in ("ring", "optimizer", "constant", "always", "micro_batches"):
        assert not dominates_under_an_order(replace(hard, **{field: getattr(hard, field) + 1}), hard), field
    for field in ("passes", "edge", "loads", "activation", "beside", "moments", "closing"):
        assert not dominates_under_an_order(replace(hard, **{field: getattr(hard, field) + 1.0}), hard), field
    assert not dominates_under_an_order(replace(hard, budget=hard.budget - 1), hard)
    assert not dominates_under_an_order(replace(hard, passing=hard.passing + 1, always=hard.always + 1), hard)
    assert not dominates_under_an_order(replace(hard, losses=hard.losses - 1), hard)
    assert not dominates_under_an_order(replace(hard, stated=np.ones((1, 2), np.int64)), hard)
    assert not dominates_under_an_order(replace(hard, waits_for_all=not hard.waits_for_all), hard)


@pytest.mark.parametrize(
    "change",
    [
        {"of": {"zero": 1}},
        {"of": {"zero": 2, "sequence_parallel": True}},
        {"of": {"zero": True, "sequence_parallel": True}},
        {"of": {"zero": 1, "sequence_parallel": 1}},
        {"of": [1, True]},
        {"of": {"zero": 1, "sequence_parallel": True, "cp": 2}},
        {"of": {"zero": 1, "sequence_parallel": True, "cp": 0}},
        {"of": {"zero": 1, "sequence_parallel": True, "cp": True}},
        {"of": {"zero": 1, "sequence_parallel": True, "tp": 1}},
        {"of": {"zero": 0, "sequence_parallel": True, "cp": 1}},
        {"of": {"zero": 1, "sequence_parallel": False, "cp": 1}},
        {"of": {"cp": 1}},
        {"by": {}},
        {"by": []},
        {"more": 1},
    ],
)
def test_altered_dominance_is_refused(change: dict[str, Any]) -> None:
    """Another candidate than a dominating one, no proof, or more fields; and the harder one bounds the easier never."""
    ladder, plain, lean = pair()
    easy, hard = (order_bound(chunked(ladder.problem, one, ladder.links)) for one in (lean, plain))
    witness = inherited(plain, lean, easy.witness)
    assert derived_bound(ladder, plain, "order", witness) >= easy.seconds
    assert derived_bound(ladder, plain, "order", {**witness, **change}) == -math.inf
    assert derived_bound(ladder, lean, "order", inherited(lean, plain, hard.witness)) == -math.inf
