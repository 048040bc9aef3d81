"""Orders as words: what they mean, and which are refused."""

import numpy as np
import pytest

from taut.errors import DataError, FormulationError
from taut.formulations.schedules.orders import (
    ORDER_PRICED,
    as_schedule,
    in_flight_counts,
    order_of,
    orders_of,
    words_of,
)
from taut.formulations.schedules.schedule import Schedule, timetable
from taut.formulations.space import StrategySpace
from tests.formulations.schedules.test_plan_orders import pipeline, scheduled, shapes
from tests.support.small import cluster, model, problem
from tests.support.words import random_words, with_random_orders


def test_words_number_the_passes_by_how_often_they_came() -> None:
    """Two micro-batches on one device of two chunks, by hand."""
    (order,) = orders_of(["0F1F0F1I1W0B"])
    assert order.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [2, 1, 0], [3, 0, 0]]
    assert words_of(Schedule("any", (order,))) == ("0F1F0F1I1W0B",)


@pytest.mark.parametrize("kind", ORDER_PRICED)
def test_published_orders_are_their_words(kind: str) -> None:
    """Every order by formula or block runs each chunk's micro-batches in order, and its words give it back."""
    for pp, vpp, m in shapes(kind):
        order = scheduled(kind, pp, vpp, m)
        for mine, again in zip(order.orders, orders_of(words_of(order)), strict=True):
            assert np.array_equal(mine, again), (pp, vpp, m)


def test_random_words_are_orders_with_their_own_makespan_and_peaks() -> None:
    """A given order is run as it stands: the counts in flight give the peaks of its own timetable."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        pp, m = int(rng.integers(2, 4)), int(rng.integers(1, 7))
        words = random_words(pp, m, rng)
        order, times = order_of("v-half", pp, 2, m, words), pipeline("v-half", pp, 2, m, rng)
        found = timetable(times, Schedule("given", orders_of(words)))
        assert words_of(as_schedule("given", order)) == words
        for d, counts in enumerate(in_flight_counts("v-half", pp, 2, m, words)):
            held = counts @ times.activation[order.device == d]
            assert held.max() == pytest.approx(found.peak_memory[d], rel=1e-12), (seed, d)


def test_micro_batches_out_of_order_have_no_words() -> None:
    """The second micro-batch before the first cannot be written down."""
    with pytest.raises(FormulationError, match="micro-batches out of order"):
        words_of(Schedule("any", (np.array([[0, 0, 1], [0, 0, 0]]),)))


GOOD = ["0F0F3F3I3W3F3I3W0I0W0I0W", "1F1F2F2I2W2F2I2W1I1W1I1W"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([GOOD[0]], "orders of 1 devices, expected 2"),
        ([GOOD[0], GOOD[1] + "1W"], "does not exist"),
        ([GOOD[0], GOOD[1].replace("1I1W1I1W", "1I1W1I")], "W of chunk 1, micro-batch 1 runs 0 times, expected once"),
        ([GOOD[1], GOOD[0]], "is on device"),
        (["3F" + GOOD[0].replace("3F", "", 1), GOOD[1]], "waits for ever at F of chunk 3"),
        (["0f" + GOOD[0], GOOD[1]], "expected chunk numbers and letters"),
        (["F", GOOD[1]], "expected chunk numbers and letters"),
        (["9999999F", GOOD[1]], "expected chunk numbers and letters"),
    ],
)
def test_words_that_are_no_order_are_refused(words: list[str], said: str) -> None:
    """A device, a pass or a letter amiss is named, in a space as well."""
    assert len(order_of("v-min", 2, 2, 2, tuple(GOOD)).passes) == 24
    with pytest.raises(FormulationError, match=said):
        order_of("v-min", 2, 2, 2, tuple(words))
    listed = {"schedule": "v-min", "pp": 2, "tp": 1, "micro_batch": 1, "num_micro_batches": 2, "words": words}
    with pytest.raises(DataError, match=f"^space: orders.0: .*{said}"):
        StrategySpace.parse({"global_batch": 2, "max_tp": 1, "orders": [listed]}, "space")


def test_sizes_that_words_cannot_have_are_refused_at_once() -> None:
    """Numbers of devices or micro-batches beyond memory are not built, only compared with the words."""
    listed = {"schedule": "v-min", "pp": 2, "tp": 1, "micro_batch": 1, "num_micro_batches": 2, "words": GOOD}
    for field, said in (("pp", "orders of 2 devices, expected"), ("num_micro_batches", "too short for")):
        with pytest.raises(DataError, match=said):
            StrategySpace.parse({"global_batch": 2, "max_tp": 1, "orders": [{**listed, field: 10**15}]}, "space")


def test_schedules_off_the_v_run_in_their_own_order() -> None:
    """1F1B-like schedules take no words."""
    with pytest.raises(FormulationError, match="zb-h1: runs in its own order"):
        order_of("zb-h1", 2, 1, 2, tuple(GOOD))


def test_a_listed_order_gives_candidates_at_its_degrees_alone() -> None:
    """Each has its words beside the candidate in the schedule's own order; listed twice it counts once."""
    given = problem(cluster(2, 2), model(8), schedules=["zb-v", "v-min"], global_batch=8)
    more = with_random_orders(given, np.random.default_rng(0))
    own = [choice for choice in more.candidates if not choice.order]
    assert own == given.candidates
    listed = {(o.schedule, o.pp, o.tp, o.micro_batch, o.num_micro_batches, tuple(o.words)) for o in more.space.orders}
    for choice in set(more.candidates).difference(own):
        degrees = (choice.schedule, choice.pp, choice.tp, choice.micro_batch, choice.num_micro_batches)
        assert (*degrees, choice.order) in listed
        assert str(choice).count("adapted") == 1 and choice.as_dict()["order"] == list(choice.order)
    assert sum(choice.pp > 1 for choice in own) == len(more.candidates) - len(own)
    assert more.with_orders(more.space.orders).candidates == more.with_orders([]).candidates == more.candidates
