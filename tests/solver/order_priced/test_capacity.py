"""What devices can take of a division: bounds against all divisions, by hand, and against what memory lacks."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from taut.data.stack import SCHEDULES
from taut.data.units import KIB
from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.formulations.tables.memory import DeviceMemory, device_memory
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.order_priced import device_options, layer_bounds
from taut.solver.order_priced.bound import order_bound
from taut.solver.order_priced.capacity import capacity_bound, is_lower_bound, is_too_small, missing_memory
from taut.solver.order_priced.device_options import DeviceChain
from taut.solver.order_priced.master_rows import MasterRows, least_makespan
from tests.solver.order_priced.test_bound import enumerable, random_orders
from tests.solver.order_priced.test_layer_tree import held_for_a_moment
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.small import cluster, model, problem

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9


def divisions(given: ChunkProblem) -> Iterator[Division]:
    """Every division, with every recompute."""
    kinds = np.flatnonzero(np.isfinite(given.passes[0, :, 0, -1])).tolist()
    for cuts in combinations(range(1, given.num_layers), given.num_chunks - 1):
        for recompute in product(kinds, repeat=given.num_chunks):
            yield Division.of_ends(np.array([*cuts, given.num_layers]), np.array(recompute))


def instances(block: int) -> Iterator[tuple[int, ChunkProblem]]:
    """
    Random division problems of every kind of schedule, layers alike and unlike, with little memory and much.

    In every other one a recompute may be quicker than another in some passes and slower in others.
    """
    for seed in range(block * 40, block * 40 + 40):
        given = random_orders(1000 + seed, list(SCHEDULES[2:]))
        for choice in enumerable(given)[::5]:
            division = chunked(given, choice, BestLinks(given.links, given.rings))
            if seed % 2:
                times = np.random.default_rng(seed).uniform(0.5, 1.5, (*division.passes.shape[:2], 1, 1))
                division = replace(division, passes=division.passes * times)
            if sum(1 for _ in divisions(division)) <= 2000:
                yield seed, division


def excess(given: ChunkProblem, division: Division) -> float:
    """Bytes that the worst device lacks, over all counts that it goes through, with those that it has for a moment."""
    i, j = division.starts, division.ends
    held = given.beside[i, j]
    kept = given.activation[division.recompute_index, i, j]
    worst = [
        float((counts @ kept[given.hosted(d)]).max() + held[given.hosted(d)].sum())
        for d, counts in enumerate(given.counts)
    ]
    momentary = held_for_a_moment(given, division) - given.passing
    return float((worst + np.maximum(momentary, 0.0)).max()) + given.always - given.budget


@pytest.mark.parametrize("block", blocks(10, first=3))
def test_bounds_are_below_every_division(block: int) -> None:
    """Seconds, costs under random shares, and missing memory: none above the least over all divisions."""
    rng = np.random.default_rng(block)
    for seed, given in instances(block):
        over = [(excess(given, one), one) for one in divisions(given)]
        least = min((least_makespan(given, one) for lacking, one in over if lacking <= 0), default=np.inf)
        devices = DeviceChain(given)
        missing = missing_memory(given)
        assert missing == 0 or min(lacking for lacking, _ in over) >= (missing - 1) * (1 - 1e-9), seed
        if not np.isfinite(least):
            continue
        assert capacity_bound(DeviceChain(given, 2 * least)) <= least * TOLERANCE, seed
        assert not is_lower_bound(given, least * TOLERANCE), seed
        for limit in (np.inf, least * TOLERANCE):
            rows, within = MasterRows(given, with_memory=False), DeviceChain(given, limit)
            weights = rows.chunk_costs(rng.dirichlet(np.ones(len(rows.paths))), np.zeros(0))
            few, many = within.split(int(rng.integers(given.num_chunks)), int(rng.integers(1, 3)))
            parts = min(few.least_division(weights)[0], many.least_division(weights)[0])
            assert within.least_division(weights)[0] <= parts * TOLERANCE, seed
            assert parts + given.constant <= least * TOLERANCE, seed
        assert devices.is_enumerable


def test_whole_layers_count() -> None:
    """Nine equal layers on four devices: one of them has three, which no mixture of divisions would tell."""
    given = problem(cluster(4, 1), model(9), schedules=["zb-h1"], max_tp=1, fixed={"pp": 4})
    choice = max((c for c in given.candidates), key=lambda c: c.num_micro_batches)
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    m, layer = division.micro_batches, float(division.passes[:, 0, 1, 2].sum())
    assert capacity_bound(DeviceChain(division, 1e3)) >= m * 3 * layer * (1 - 1e-5)
    least = min(least_makespan(division, one) for one in divisions(division) if excess(division, one) <= 0)
    assert order_bound(division).seconds <= least * TOLERANCE


def test_light_layers_in_front_count_once() -> None:
    """
    Three layers of next to no time before five others on four devices: one of these has two of the five.

    If devices 0, 1 and 2 could have three, two and one of the light ones, all eight would go with one of the five each.
    """
    given = problem(cluster(4, 1), model(8), schedules=["zb-h1"], max_tp=1, fixed={"pp": 4})
    choice = max((c for c in given.candidates), key=lambda c: c.num_micro_batches)
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    before = np.minimum(np.arange(9), 3) * 0.01 + np.maximum(np.arange(9) - 3, 0)
    times = np.where(
        np.isfinite(division.passes),
        (before - before[:, None]) / (np.arange(9) - np.arange(9)[:, None] + np.eye(9)),
        1.0,
    )
    division = replace(division, passes=division.passes * times)
    two = 2 * division.micro_batches * float(division.passes[:, 0, 4, 5].sum())
    least = min(least_makespan(division, one) for one in divisions(division) if excess(division, one) <= 0)
    assert least >= capacity_bound(DeviceChain(division, 1e3)) >= two


def test_a_limit_that_a_division_keeps_is_not_proven() -> None:
    """Every division's own makespan is refused as a witness, and so is memory that one fits."""
    given = problem(cluster(2, 1), model(4), schedules=["zb-v"], max_tp=1, fixed={"pp": 2})
    choice = next(c for c in given.candidates if c.micro_batch == 1)
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    for one in divisions(division):
        assert not is_lower_bound(division, least_makespan(division, one) * TOLERANCE)
    assert not is_too_small(DeviceChain(division), 0)


def test_more_memory_changes_options_alone() -> None:
    """Devices with more memory have the options of a problem with more, and share the figures they were found from."""
    grown = 0
    for seed, given in instances(0):
        devices, more = DeviceChain(given), 1 << (10 + seed % 20)
        larger, fresh = devices.with_memory(more), DeviceChain(replace(given, budget=given.budget + more))
        assert larger.minima is devices.minima
        for one, other, before in zip(larger.options, fresh.options, devices.options, strict=True):
            assert one.codes.tolist() == other.codes.tolist()
            grown += len(one.codes) > len(before.codes)
    assert grown > 0


def with_late_gradients(seed: int) -> Iterator[tuple[DeviceMemory, ChunkProblem]]:
    """Pipelines under ZeRO-2, each with its bytes and the least budget that holds some division."""
    drawn = random_problem(seed)
    kinds = {"schedules": ["zb-v", "interleaved-1f1b", "zb-h1"], "recompute": ["none"], "zero": [2], "fixed": {}}
    planning = replace(drawn, space=drawn.space.model_copy(update=kinds), latency_model="step")
    for choice in planning.candidates:
        if choice.is_order_priced and choice.pp > 1:
            given = chunked(planning, choice, BestLinks(planning.links, planning.rings))
            held = device_memory(planning, choice)
            if every := list(divisions(given)):
                least = min(max(held.bytes_of(*division.ranges)) for division in every)
                yield held, replace(given, budget=float(-(-least // KIB) * KIB))


def left_out(seeds: range) -> int:
    """Divisions that only bytes for a moment leave out, none of which may fit."""
    found = 0
    for seed in seeds:
        for held, given in with_late_gradients(seed):
            devices = DeviceChain(given, np.inf)
            if not (devices.is_enumerable and devices.has_alike_layers):
                continue
            without = replace(given, moments=np.zeros_like(given.moments), closing=np.zeros_like(given.closing))
            before = DeviceChain(without, np.inf)
            for division in divisions(given):
                if before.contains(division) and not devices.contains(division):
                    assert max(held.bytes_of(*division.ranges)) > given.budget, (
                        f"a division that fits is left out: {seed}"
                    )
                    found += 1
    return found


def test_gradients_that_await_their_sum_leave_out_what_does_not_fit() -> None:
    """Under ZeRO-2 options of devices have room for the largest layer's whole gradients; no division that fits goes."""
    assert left_out(range(20, 32)) > 0


def test_too_many_bytes_for_a_moment_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """With these bytes doubled some division that fits is left out."""
    old = layer_bounds.passing_bytes
    monkeypatch.setattr(device_options, "passing_bytes", lambda *given: 2 * old(*given))
    with pytest.raises(AssertionError, match="that fits is left out"):
        left_out(range(20, 32))
