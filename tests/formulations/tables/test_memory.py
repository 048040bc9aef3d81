"""Memory of devices with several chunks at least: sums over chunks against the bytes that divisions need."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.costs import RECOMPUTE
from taut.data.stack import SCHEDULES
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.order_division import ChunkProblem, chunk_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import in_flight_counts
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.formulations.tables.memory import device_memory, held_counts
from tests.support.expert_ranks import with_expert_ranks, with_hidden_exchanges
from tests.support.instances import random_problem
from tests.support.small import cluster, model, problem

HIDDEN = (27, 108, 123)
"""Seeds of problems whose exchanges hide behind another micro-batch."""


def _drawn(given: PlanningProblem, candidate: Candidate, rng: np.random.Generator) -> Division:
    """A random division of a candidate, with recomputes that it may choose."""
    parts, chunks = given.tables(candidate).num_layers, candidate.pp * candidate.vpp
    cuts = np.sort(rng.choice(np.arange(1, parts), chunks - 1, replace=False))
    allowed = [RECOMPUTE.index(name) for name in given.recompute_of(candidate)]
    return Division.of_ends(np.append(cuts, parts), rng.choice(allowed, chunks))


def _at_least(given: ChunkProblem, division: Division) -> list[float]:
    """Bytes of every device by the sums over chunks."""
    kept = given.activation[division.ranges]
    held = given.beside[division.starts, division.ends]
    at = [given.hosted(d) for d in range(len(given.counts))]
    return [(n @ kept[c]).max() + held[c].sum() + given.always for n, c in zip(given.counts, at, strict=True)]


def _instances(seeds: range) -> Iterator[tuple[PlanningProblem, Candidate]]:
    """Random candidates of every schedule: with expert ranks, exchanges hidden or not, and with empty ends."""
    for seed in HIDDEN:
        given = with_hidden_exchanges(seed)
        yield from (
            (given, one)
            for one in given.candidates
            if one.is_order_priced and hides_exchange(given.space, given.model, one)
        )
    for seed in seeds:
        given = random_problem(seed)
        update = {"schedules": list(SCHEDULES), "max_vpp": 2, "empty_ends": True, "fixed": {"empty_ends": True}}
        ends = replace(given, space=given.space.model_copy(update=update), latency_model="step")
        for each in (with_expert_ranks(3 * seed), ends):
            yield from ((each, one) for one in each.candidates[::7] if one.is_order_priced)


@pytest.mark.proof
def test_no_device_needs_less() -> None:
    """No random division of any schedule has a device with fewer bytes than its sums, some of which are exact."""
    rng, hidden, passing, closest = np.random.default_rng(0), 0, 0, np.inf
    for given, candidate in _instances(range(40)):
        chunks = chunk_problem(given, candidate, np.zeros(given.tables(candidate).num_layers + 1))
        for division in (_drawn(given, candidate, rng) for _ in range(3)):
            least, need = _at_least(chunks, division), device_memory(given, candidate).bytes_of(*division.ranges)
            assert all(few <= bytes_ * (1 + 1e-12) for few, bytes_ in zip(least, need, strict=True)), candidate
            closest = min(closest, min(np.array(need) / least))
        hidden += hides_exchange(given.space, given.model, candidate)
        passing += chunks.passing > 0
    assert hidden >= 6 and passing > 100 and closest < 1 + 1e-6


def test_a_pass_beside_another_holds_one_more_of_any_chunk() -> None:
    """Beside another micro-batch's pass each count of a device has one more of one of its chunks or another."""
    given = with_hidden_exchanges(HIDDEN[0])
    candidate = next(
        one for one in given.candidates if one.is_order_priced and hides_exchange(given.space, given.model, one)
    )
    own, counts = in_flight_counts(*candidate.order_key), held_counts(candidate.order_key, ahead=True)
    for before, after in zip(own, counts, strict=True):
        expected = {tuple(row + one) for row in before for one in np.eye(candidate.vpp, dtype=int)}
        assert {tuple(row) for row in after} == expected


def test_every_device_recomputes_a_layer() -> None:
    """Of layers alike that are recomputed as a whole every device has the activations of one, and buffers, at once."""
    space: dict[str, Any] = {"schedules": ["interleaved-1f1b"], "fixed": {"pp": 2}, "recompute": ["full"]}
    given = problem(cluster(2, 1), model(6), max_tp=1, **space)
    candidate, tables = given.candidates[0], given.tables(given.candidates[0])
    chunks = chunk_problem(given, candidate, np.zeros(tables.num_layers + 1))
    assert chunks.passing == tables.workspace[2, 2, 3] + tables.buffers[2, 3] > tables.buffers[2, 3]
