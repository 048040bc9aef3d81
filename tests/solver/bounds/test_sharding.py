"""With sharded weights no bound of the whole step is above the enumerated optimum, whatever computation hides."""

from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.ladder.ladder import Ladder
from taut.solver.order_priced.bound import order_bound
from tests.formulations.test_sharding import GATHER
from tests.solver.certificate.reference.test_whole_step import SLOW
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.ladder import TOLERANCE, check_candidates, check_rungs
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, problem

pytestmark = pytest.mark.proof

MOST_DEVICES = 4
"""Devices up to which orders of passes are enumerated."""
CANDIDATES = 5
SECONDS = ("forward_s", "input_grad_s", "weight_grad_s")


def sharded(seed: int) -> PlanningProblem:
    """
    A random problem with ZeRO-2 and 3 alone; its layers take from a hundredth to a hundredfold of their seconds.

    Every second one has two or three replicas to a copy.
    """
    rng, given = np.random.default_rng(seed), random_problem(seed, measured=seed % 3 == 0)
    factor = float(10 ** rng.uniform(-2, 2))
    rows = [row.model_copy(update={name: getattr(row, name) * factor for name in SECONDS}) for row in given.costs.rows]
    space = given.space.model_copy(update={"zero": [2, 3]})
    if seed % 4 == 0 and given.cluster.num_devices <= MOST_DEVICES:
        space = space.model_copy(update={"schedules": ["1f1b", "interleaved-1f1b", "zb-h1", "v-half"], "max_vpp": 2})
    costs = given.costs.model_copy(update={"rows": rows})
    if seed % 2:
        space = space.model_copy(update={"fixed": {"dp_shard": 3 if seed % 8 == 7 else 2}})
    return replace(given, latency_model="step", space=space, costs=costs)


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_of_a_sharded_candidate_is_above_its_optimum(block: int) -> None:
    """500 candidates of random problems, fifty a block, where gathers are hidden, exposed, or between."""
    checked, seed = 0, 10_000 * block
    while checked < 50:
        given = sharded(seed)
        checked += len(check_candidates(given, [each for each in given.candidates if each.zero], seed, CANDIDATES))
        seed += 1


@pytest.mark.parametrize("block", blocks(12))
def test_no_bound_of_a_sharded_order_is_above_its_optimum(block: int) -> None:
    """Of 960 candidates that are priced by their order, eighty a block: their chunks wait for gathers at every pass."""
    checked, seed = 0, 4 * 1_000 * block
    while checked < 80:
        given = sharded(seed)
        every = [one for one in given.candidates if one.is_order_priced and one.zero and one.pp * one.vpp <= 5]
        checked += len(check_candidates(given, every, seed, CANDIDATES))
        seed += 4


def test_a_chunk_waits_for_its_gather_in_every_pass() -> None:
    """Two chunks of a layer on each of two stages, replicas 10 kB/s apart: four gathers a micro-batch."""
    rows = [[0.0 if i == j else SLOW for j in range(4)] for i in range(4)]
    given = problem(
        cluster(4, 1, rows=rows),
        latency_model="step",
        max_tp=1,
        schedules=["interleaved-1f1b"],
        zero=[3],
        fixed={"pp": 2, "vpp": 2, "micro_batch": 1},
    )
    (candidate,) = given.candidates
    # Layers of 3 s, and half of a ring of factor 1 for 49,984 parameters of 2 bytes, forward and backward.
    m = candidate.num_micro_batches
    least = m * 2 * (3 + 2 * GATHER)
    ladder = Ladder(given)
    found = order_bound(chunked(given, candidate, ladder.links)).seconds
    assert least * (1 - 1e-9) <= ladder.relaxation(candidate) <= found
    assert found <= enumerate_candidate(given, candidate).seconds * TOLERANCE


def eight_devices(seed: int) -> PlanningProblem:
    """A random problem with ZeRO-2 and 3 on eight devices, where pipelines have several copies."""
    rng, given = np.random.default_rng(seed), random_problem(seed, large=True)
    factor = float(10 ** rng.uniform(-2, 2))
    rows = [row.model_copy(update={name: getattr(row, name) * factor for name in SECONDS}) for row in given.costs.rows]
    space = given.space.model_copy(update={"zero": [2, 3], "recompute": ["none"]})
    return replace(given, latency_model="step", space=space, costs=given.costs.model_copy(update={"rows": rows}))


@pytest.mark.parametrize("block", blocks(4))
def test_no_bound_of_several_copies_in_a_pipeline_is_above_its_optimum(block: int) -> None:
    """Ten candidates a block with two stages or more and several copies, by every placement on eight devices."""
    checked, seed = 0, 1_000 * block
    while checked < 10:
        given = eight_devices(seed)
        every = [candidate for candidate in given.candidates if candidate.dp_shard and candidate.pp > 1]
        if every:
            candidate = every[np.random.default_rng(seed).integers(len(every))]
            check_rungs(given, Ladder(given), candidate)
            checked += 1
        seed += 1


def test_a_slow_block_on_several_nodes_may_wait_for_a_fast_device() -> None:
    """Four context ranks on seven devices of one type and one of another, whose backward pass is the slower."""
    given = replace(random_problem(42724, large=True), latency_model="step")
    space = given.space.model_copy(update={"zero": [3], "pipeline_zero": None, "recompute": ["none"]})
    given = replace(given, space=space)
    every = [each for each in given.candidates if each.cp == 4 and each.pp == 2]
    assert every
    check_candidates(given, every, 0, 3)
