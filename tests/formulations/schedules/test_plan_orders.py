"""Schedules that a plan prices by their order: their time, their memory, and what counts as one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.data.stack import SCHEDULES
from taut.errors import FormulationError
from taut.formulations.latency import memory_bytes, step_time, violations
from taut.formulations.order_division import spans
from taut.formulations.schedules.orders import (
    ORDER_PRICED,
    SPLIT,
    as_schedule,
    device_of_chunk,
    in_flight_counts,
    is_defined,
    order_of,
)
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable
from taut.formulations.schedules.schedule import violations as order_violations
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.tables.memory import stage_memory
from tests.support.small import cluster, costs, in_order, model, problem

MESSAGE = 12_800.0
"""100 tokens x 64 channels x 2 bytes."""


def pipeline(kind: str, pp: int, vpp: int, m: int, rng: np.random.Generator | None = None) -> ScheduleProblem:
    """A pipeline of a kind, with unit or random times; a split backward pass keeps everything until its end."""
    device = device_of_chunk(kind, pp, vpp)
    chunks = len(device)

    def times(size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.ones(size) if rng is None else rng.uniform(0.1, 2, size)

    held = times(chunks)
    return ScheduleProblem(
        device=device,
        forward=times(chunks),
        input_gradient=times(chunks),
        weight_gradient=times(chunks),
        transfer=0.1 * times(chunks - 1),
        num_micro_batches=m,
        activation=held,
        kept_for_weight=held if kind in SPLIT else 0 * held,
        memory_limit=np.full(pp, np.inf),
    )


def scheduled(kind: str, pp: int, vpp: int, m: int) -> Schedule:
    """The order of a kind as a schedule."""
    return as_schedule(kind, order_of(kind, pp, vpp, m))


def shapes(kind: str) -> list[tuple[int, int, int]]:
    """Numbers of devices, chunks and micro-batches that a kind is defined for."""
    vpps = (2, 3) if kind == "interleaved-1f1b" else (1,) if kind.startswith("zb-h") else (2,)
    return [(pp, v, m) for pp in (2, 3, 4) for v in vpps for m in (1, 2, 4, 8, 9, 12, 16) if is_defined(kind, pp, m)]


@pytest.mark.parametrize("kind", ORDER_PRICED)
def test_orders_run_every_pass_once_without_deadlock(kind: str) -> None:
    """Every order is a schedule of its pipeline, few micro-batches included."""
    for pp, vpp, m in shapes(kind):
        assert order_violations(pipeline(kind, pp, vpp, m), scheduled(kind, pp, vpp, m)) == (), (pp, vpp, m)


@pytest.mark.parametrize("kind", ORDER_PRICED)
def test_counts_in_flight_give_the_peaks_of_the_running_sum(kind: str) -> None:
    """The largest sum of counts times activations is the evaluator's peak, for any activations of the chunks."""
    for seed, (pp, vpp, m) in enumerate(shapes(kind)):
        given_times = pipeline(kind, pp, vpp, m, np.random.default_rng(seed))
        peaks = timetable(given_times, scheduled(kind, pp, vpp, m)).peak_memory
        for d, counts in enumerate(in_flight_counts(kind, pp, vpp, m)):
            held = given_times.activation[given_times.device == d]
            assert (counts @ held).max() == pytest.approx(peaks[d]), (pp, vpp, m, d)


@given(
    pp=st.integers(2, 6),
    more=st.integers(0, 9),
    times=st.tuples(*[st.integers(1, 50)] * 3),
)
def test_zero_bubble_h1_at_even_stages(pp: int, more: int, times: tuple[int, int, int]) -> None:
    """ZB-H1 takes m (F + I + W) + (pp - 1)(F + I - W) where F + I >= W and m >= 2 pp."""
    f, b, w = times[0], times[1], min(times[2], times[0], times[1])
    m = 2 * pp + more
    seconds = np.repeat([float(f), float(b), float(w)], pp)[None]
    found = spans(order_of("zb-h1", pp, 1, m), seconds, np.zeros((1, pp - 1)), m)
    assert found[0] == m * (f + b + w) + (pp - 1) * (f + b - w)


@given(
    pp=st.integers(2, 6), vpp=st.integers(2, 4), rounds=st.integers(1, 4), times=st.tuples(*[st.integers(1, 50)] * 3)
)
def test_interleaving_divides_the_bubble(pp: int, vpp: int, rounds: int, times: tuple[int, int, int]) -> None:
    """Interleaved 1F1B at even chunks takes m t + (pp - 1) t / v, t the seconds of a device's chunks."""
    m, whole = rounds * pp, vpp * sum(times)
    seconds = np.repeat(np.array(times, dtype=float), pp * vpp)[None]
    found = spans(order_of("interleaved-1f1b", pp, vpp, m), seconds, np.zeros((1, pp * vpp - 1)), m)
    assert found[0] == m * whole + (pp - 1) * whole / vpp


@pytest.mark.proof
def test_interleaving_shows_one_trip_of_hops() -> None:
    """
    Of 6,000 pipelines of even chunks: m t + (pp - 1) t / v, and every hop once there and back.

    So it is where no hop is longer than a chunk's forward or backward pass; with longer ones it takes at least as long.
    """
    rng = np.random.default_rng(0)
    for case in range(6_000):
        pp, vpp = int(rng.integers(2, 10)), int(rng.integers(2, 6))
        m = pp * int(rng.integers(1, 6))
        times, chunks = rng.uniform(0, 1, 3), pp * vpp
        hops = rng.uniform(0, min(times[0], times[1] + times[2]), chunks - 1) * (1.0 if case % 3 else 3.0)
        found = spans(order_of("interleaved-1f1b", pp, vpp, m), np.repeat(times, chunks)[None], hops[None], m)[0]
        closed = (m * vpp + pp - 1) * times.sum() + 2 * hops.sum()
        assert found >= closed * (1 - 1e-12), case
        if case % 3:
            assert found == pytest.approx(closed, rel=1e-12), case


def test_unknown_orders_are_refused() -> None:
    """A schedule with a closed form has no order here."""
    with pytest.raises(FormulationError, match="expected one of interleaved-1f1b"):
        order_of("1f1b", 2, 1, 4)


def chosen(kind: str, pp: int, vpp: int, m: int, *ends: int, recompute: str = "none", tp: int = 1) -> Strategy:
    """A strategy of one replica with chunks that end at the given layers."""
    choice = Candidate(pp, tp, 1, vpp, 1, m, kind, 0, False)
    stages = tuple(zip((0, *ends[:-1]), ends, strict=True))
    return Strategy(candidate=choice, division=Division(stages, (recompute,) * len(ends)))


def test_step_time_is_the_makespan_of_the_order() -> None:
    """ZB-H1 on two stages of 2 layers: 8 x 6 s + (2 - 1)(2 + 2 - 2) s; one micro-batch: F F I I W with two hops."""
    given_nodes = problem(cluster(2, 1), model(4))
    many, one = chosen("zb-h1", 2, 1, 8, 2, 4), chosen("zb-h1", 2, 1, 1, 2, 4)
    assert step_time(given_nodes, many, in_order(many.candidate)).compute == pytest.approx(50.0)
    time = step_time(given_nodes, one, in_order(one.candidate))
    # One way 12,800 B at 1 GB/s take 12.8 us.
    assert time.pipeline_transfers == pytest.approx(2 * MESSAGE / 1e9)
    assert time.total == pytest.approx(10.0 + 2 * MESSAGE / 1e9, rel=1e-12)


def test_unlike_chunks_are_priced_as_the_evaluator_does() -> None:
    """Random divisions under every kind: the step time is that of the timetable with the chunks' own times."""
    rng = np.random.default_rng(0)
    given_nodes = problem(cluster(4, 1), model(9), table=costs(model(9)))
    for kind in ORDER_PRICED:
        vpp = 1 if kind.startswith("zb-h") else 2
        ends = [*np.sort(rng.choice(np.arange(1, 9), 4 * vpp - 1, replace=False)).tolist(), 9]
        strategy = chosen(kind, 4, vpp, 8, *ends)
        layers = np.diff([0, *ends]).astype(float)
        device = device_of_chunk(kind, 4, vpp)
        exact = ScheduleProblem(
            device=device,
            forward=layers,
            input_gradient=layers,
            weight_gradient=layers,
            transfer=np.full(len(layers) - 1, MESSAGE / 1e9),
            num_micro_batches=8,
            activation=layers,
            kept_for_weight=layers,
            memory_limit=np.full(4, np.inf),
        )
        wanted = timetable(exact, scheduled(kind, 4, vpp, 8)).makespan
        assert step_time(given_nodes, strategy, in_order(strategy.candidate)).total == pytest.approx(wanted, rel=1e-12)


def test_parts_of_the_step_time_add_up() -> None:
    """Computation, all-reduces, transfers, ring and optimizer make the total, whatever the placement."""
    given_nodes = problem(cluster(2, 4), model(8), table=costs(model(8), optimizer=1e-9))
    choice = Candidate(2, 2, 2, 2, 1, 4, "zb-v", 1, False)
    strategy = Strategy(candidate=choice, division=Division(((0, 1), (1, 4), (4, 7), (7, 8)), ("none",) * 4))
    time = step_time(given_nodes, strategy, in_order(choice))
    parts = time.compute + time.tensor_parallel + time.pipeline_transfers + time.data_parallel + time.optimizer
    assert parts == pytest.approx(time.total, rel=1e-12)
    assert min(time.compute, time.tensor_parallel, time.pipeline_transfers, time.data_parallel) > 0


def test_one_chunk_a_device_needs_what_a_stage_needs() -> None:
    """Where devices have one chunk, the bytes of the device are those of the tabulated stage."""
    given_nodes = problem(cluster(4, 1), model(8))
    for kind in ("zb-h1", "zb-h2"):
        strategy = chosen(kind, 4, 1, 6, 1, 3, 6, 8)
        tabulated = stage_memory(given_nodes, strategy.candidate)
        wanted = [tabulated.bytes_of(x, i, j, 0) for x, (i, j) in enumerate(strategy.stages)]
        assert memory_bytes(given_nodes, strategy) == wanted


def test_a_device_of_the_v_holds_both_of_its_chunks() -> None:
    """ZB-V holds at most 2 pp chunks: 18 B for each parameter of both, 4 activations of 1000 B, and messages."""
    given_nodes = problem(cluster(2, 1), model(4))
    strategy = chosen("zb-v", 2, 2, 8, 1, 2, 3, 4)
    parameters = 2 * (12 * 64 * 64 + 13 * 64)
    # One micro-batch of one layer keeps 1000 B; a message there and one back 12,800 B each.
    assert memory_bytes(given_nodes, strategy) == [18 * parameters + 4 * 1000 + 2 * 12_800] * 2


def test_chunk_memory_bounds_the_device() -> None:
    """What is tabulated for a chunk is never more than its device needs."""
    given_nodes = problem(cluster(4, 1), model(9))
    for kind in ("interleaved-1f1b", "zb-v", "v-half", "v-min"):
        strategy = chosen(kind, 4, 2, 8, 1, 2, 3, 4, 5, 6, 8, 9)
        tabulated, whole = stage_memory(given_nodes, strategy.candidate), memory_bytes(given_nodes, strategy)
        for c, (d, (i, j)) in enumerate(zip(device_of_chunk(kind, 4, 2), strategy.stages, strict=True)):
            assert tabulated.bytes_of(c, i, j, 0) <= whole[d]


def test_candidates_of_every_kind_are_defined() -> None:
    """Orders exist for every candidate, chunks are not more than layers, and other latency models have none."""
    found = problem(cluster(2, 2), model(8), schedules=list(SCHEDULES)).candidates
    assert {c.schedule for c in found} == set(SCHEDULES)
    for choice in found:
        assert choice.pp * choice.vpp <= 8
        if choice.is_order_priced:
            assert len(order_of(choice.schedule, choice.pp, choice.vpp, choice.num_micro_batches).passes) > 0
    for latency_model in ("pipette-printed", "amp"):
        priced = problem(cluster(2, 2), model(8), schedules=list(SCHEDULES), latency_model=latency_model).candidates
        assert {c.schedule for c in priced} == {"1f1b", "gpipe"}


def test_full_recompute_does_not_go_with_a_split_backward_pass() -> None:
    """It would bring back what the gradient by the weights still needs; whole backward passes may have it."""
    given_nodes = problem(cluster(2, 1), recompute=["none", "full"], schedules=list(SCHEDULES))
    split = chosen("zb-h1", 2, 1, 8, 2, 4, recompute="full")
    whole = chosen("interleaved-1f1b", 2, 2, 8, 1, 2, 3, 4, recompute="full")
    assert "recompute" in str(violations(given_nodes, split, in_order(split.candidate))[0])
    assert violations(given_nodes, whole, in_order(whole.candidate)) == ()
    only = problem(cluster(2, 1), recompute=["full"], schedules=["zb-h1", "1f1b"])
    assert {c.schedule for c in only.candidates} == {"1f1b"}
