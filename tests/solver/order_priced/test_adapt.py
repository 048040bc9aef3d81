"""Orders that are adapted to the times: in the schedule's memory, shorter, and part of a space that is proven."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.costs import RECOMPUTE
from taut.errors import DataError
from taut.formulations.order_division import ChunkProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import in_flight_counts, order_of
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.planning.solve import plan
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.certificate.document import problem_digest
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.order_priced.adapt import adapted_order
from taut.solver.order_priced.master_rows import least_makespan
from taut.solver.result import Limits, SearchResult
from taut.solver.search.order_refinement import OrderAdaptation
from taut.solver.search.search import search
from tests.solver.order_priced.test_bound import random_orders
from tests.support.oracle import enumerate_all
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof

Document = dict[str, Any]
LIMITS = Limits(workers=1)
SEEDS = (5, 14, 28, 50, 101)
"""Random problems of few devices for which the search finds orders worth having."""


def on_the_v(schedule: str, pp: int, m: int) -> tuple[Candidate, ChunkProblem, Division]:
    """A layer of a millisecond a pass in every chunk: the candidate with its division into like chunks."""
    spec = model(2 * pp)
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, 0.001))
    nodes = cluster(pp, 1, memory_gib=1.0)
    given = problem(nodes, spec, table=table, schedules=[schedule], global_batch=m, max_tp=1, fixed={"pp": pp})
    choice = next(c for c in given.candidates if c.num_micro_batches == m)
    even = Division.of_ends(np.arange(1, 2 * pp + 1), np.full(2 * pp, RECOMPUTE.index("none")))
    return choice, chunked(given, choice, BestLinks(given.links, given.rings)), even


@pytest.mark.parametrize(("schedule", "pp", "m"), [("v-half", 4, 12), ("v-half", 2, 1), ("v-min", 3, 9)])
def test_adapted_orders_are_shorter_in_the_memory_of_the_schedule(schedule: str, pp: int, m: int) -> None:
    """The gain asked for is reached, and no device holds more than under the schedule's own order."""
    choice, given, even = on_the_v(schedule, pp, m)
    gain = 1e-3 * least_makespan(given, even)
    twin = replace(choice, order=adapted_order(given, choice, even, gain=gain))
    adapted = replace(given, order=order_of(*twin.order_key))
    assert twin.order and least_makespan(adapted, even) <= least_makespan(given, even) - gain
    held = given.activation[even.ranges]
    for d, counts in enumerate(in_flight_counts(*twin.order_key)):
        mine = held[given.order.device == d]
        assert (counts @ mine).max() <= (given.counts[d] @ mine).max() * (1 + 1e-9)


@pytest.mark.parametrize(("schedule", "pp", "m"), [("zb-v", 3, 8), ("v-min", 4, 12)])
def test_orders_that_leave_nothing_to_gain_stay(schedule: str, pp: int, m: int) -> None:
    """At unit times no order shorter by a thousandth is found for these; ZB-V has no bubble to fill."""
    choice, given, even = on_the_v(schedule, pp, m)
    assert adapted_order(given, choice, even, gain=1e-3 * least_makespan(given, even)) == ()


def test_a_gain_beyond_reach_gives_nothing() -> None:
    """No order takes less than the work of a device."""
    choice, given, even = on_the_v("v-half", 4, 12)
    assert adapted_order(given, choice, even, gain=0.9 * least_makespan(given, even)) == ()


def searched(seed: int) -> tuple[PlanningProblem, SearchResult]:
    """A random problem with the orders that its search found, and what came of it."""
    given = random_orders(seed, ["zb-v", "v-half", "v-min"])
    result = search(given, LIMITS)
    return given, result


@pytest.mark.parametrize("seed", [5, 14, *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[2:])])
def test_orders_join_the_space_and_its_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its orders the bound is at most the enumerated optimum, and the plan at most that without them."""
    given, result = searched(seed)
    assert result.orders and result.incumbent is not None
    more = given.with_orders(result.orders)
    assert [bound.candidate for bound in result.bounds] == more.candidates
    optimum = enumerate_all(more).seconds
    assert result.lower_bound <= optimum * (1 + 1e-9)
    assert result.incumbent.seconds >= optimum * (1 - 1e-9)
    made = json.loads(json.dumps(plan_document(given, result, LIMITS)))
    assert verify_document(made).faults == ()
    monkeypatch.setattr(OrderAdaptation, "has_pending", False)
    own = search(given, LIMITS).incumbent
    assert own is not None and result.incumbent.seconds <= own.seconds


@pytest.fixture(scope="module")
def document() -> Document:
    """A plan whose order was adapted."""
    given, result = searched(5)
    made: Document = json.loads(json.dumps(plan_document(given, result, LIMITS)))
    assert made["strategy"]["order"]
    return made


def _word(made: Document) -> None:
    made["strategy"]["order"][0] = made["strategy"]["order"][0][::-1]


def _own_order(made: Document) -> None:
    del made["strategy"]["order"]


def _swapped(word: str) -> str:
    """The word with two neighbouring passes exchanged: its first two F of unlike chunks, or the first W put off."""
    passes = [word[k : k + 2] for k in range(0, len(word), 2)]
    k = next(k for k in range(len(passes) - 1, 0, -1) if passes[k][1] == "W" and passes[k - 1] != passes[k])
    passes[k - 1], passes[k] = passes[k], passes[k - 1]
    return "".join(passes)


def _listed(made: Document) -> None:
    words = made["certificate"]["space"]["orders"][0]["words"]
    words[0] = _swapped(words[0])


def _listed_everywhere(made: Document) -> None:
    """The same change wherever the order is written, so that all agree: only the prices can tell."""
    before = made["certificate"]["space"]["orders"][0]["words"][0]
    text = json.dumps(made).replace(before, _swapped(before))
    made.clear()
    made.update(json.loads(text))


def _degrees(made: Document) -> None:
    made["certificate"]["space"]["orders"][0]["micro_batch"] *= 2


def _no_orders(made: Document) -> None:
    made["certificate"]["space"]["orders"] = []


def _twice(made: Document) -> None:
    entries = made["certificate"]["candidates"]
    entries.append(copy.deepcopy(next(entry for entry in entries if "order" in entry["strategy"])))


def _candidate(made: Document) -> None:
    entry = next(entry for entry in made["certificate"]["candidates"] if "order" in entry["strategy"])
    del entry["strategy"]["order"]


def _bound(made: Document) -> None:
    entry = next(entry for entry in made["certificate"]["candidates"] if "order" in entry["strategy"])
    entry["lower_bound_s"] *= 1.0001


def _off_the_v(made: Document) -> None:
    made["certificate"]["space"]["orders"][0]["schedule"] = "zb-h1"


CHANGES = [_word, _own_order, _listed, _listed_everywhere, _degrees, _no_orders, _twice, _candidate, _bound, _off_the_v]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_altered_orders_are_refused(document: Document, change: Callable[[Document], None], signed: bool) -> None:
    """An order that is changed, missing or listed elsewhere is refused, with digests that match or not."""
    made = copy.deepcopy(document)
    change(made)
    assert made != document
    if signed:
        stated = made["certificate"]
        stated["problem_sha256"] = problem_digest(made["inputs"], stated)
    try:
        assert not verify_document(made).holds
    except DataError as refusal:
        assert "\n" not in str(refusal)


def test_the_plan_says_that_its_order_was_adapted() -> None:
    """V-Half alone on 16 devices: faster by an order of its own, which the words name and the certificate lists."""
    fix: dict[str, int | str | bool] = {"schedule": "v-half", "pp": 4, "tp": 4, "micro_batch": 2}
    found = plan("gpt2-345m", "amp-homogeneous", global_batch=32, fix=fix, gap=0.02, stack="any")
    assert "v-half with 2 chunks a device, adapted to its times" in str(found)
    adapted = len(found.certificate.space["orders"])
    words = f"orders: the schedules' own and {adapted} adapted, not every order"
    assert adapted > 0 and f"taut does not search {words}" in str(found)
    listed = found.document["certificate"]["space"]["orders"]
    assert [*found.strategy.order] in [order["words"] for order in listed]
    assert found.verify().holds
