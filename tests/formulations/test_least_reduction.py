"""Affine minorants of what a device's reduction shows after its last pass."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.stack import SCHEDULES
from taut.formulations.gradient_reductions import (
    LeastReduction,
    by_device,
    chord_of_bucket,
    end_of_step,
    minorants,
    overlaps,
    tied_bytes,
)
from taut.formulations.order_division import chunk_pipelines
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.terms import gradient_bytes
from taut.solver.bounds.least_rings import least_weighted_ring, tied_exchange
from taut.solver.bounds.link_bounds import BestLinks
from tests.support.blocks import blocks
from tests.support.instances import random_problem

KINDS = list(SCHEDULES[2:])


def ordered(seed: int) -> PlanningProblem:
    """A random problem whose schedules are priced by their order, with overlap and a tied embedding at times."""
    given = random_problem(seed)
    update = {"schedules": [KINDS[seed % len(KINDS)]], "max_vpp": 2}
    tied = given.model.model_copy(update={"tied_embedding": seed % 2 == 0})
    space = given.space.model_copy(update=update)
    return replace(given, space=space, model=tied, latency_model="step", overlap_grad_reduce=seed % 4 < 3)


def drawn(given: PlanningProblem, choice: Candidate, rng: np.random.Generator) -> Iterator[tuple[Strategy, Ints]]:
    """Random divisions of a candidate with random placements."""
    layers, chunks = given.tables(choice).num_layers, choice.pp * choice.vpp
    allowed = given.recompute_of(choice)
    for _ in range(5):
        cuts = [0, *sorted(1 + rng.choice(layers - 1, chunks - 1, replace=False)), layers]
        division = Division(tuple(pairwise(map(int, cuts))), tuple(rng.choice(allowed, chunks).tolist()))
        devices = rng.permutation(given.cluster.num_devices).reshape(choice.pp, choice.pipelines, choice.width)
        yield Strategy(candidate=choice, division=division), devices


def of_best_links(given: PlanningProblem, choice: Candidate) -> list[LeastReduction]:
    """The minorants at the best links."""
    best = BestLinks(given.links, given.rings)
    ring = least_weighted_ring(given, choice, best).seconds * gradient_bytes(given.terms(choice))
    exchange = tied_exchange(given, choice, best)
    return minorants(given, choice, ring, min(exchange.inside, exchange.apart), choice.vpp)


@pytest.mark.parametrize("block", blocks(4, proof=True))
def test_no_minorant_is_above_what_a_step_waits_for(block: int) -> None:
    """The step ends no sooner than a device's last pass and any of its minorants."""
    hidden, tied, shown = 0, 0, 0
    for seed in range(60 * block, 60 * block + 60):
        given, rng = ordered(seed), np.random.default_rng(seed)
        for choice in [each for each in given.candidates if each.is_order_priced and each.pp * each.vpp <= 5][::3]:
            for strategy, devices in drawn(given, choice, rng):
                pipeline = chunk_pipelines(given, strategy, devices)
                ended = float(end_of_step(given, strategy, devices, pipeline.ends, pipeline.backward))
                parameters = by_device(strategy, given.tables(choice).parameters)
                for found in of_best_links(given, choice):
                    after = found.constant + found.slope * parameters
                    assert (pipeline.ends.max(axis=-1) + after).max() <= ended * (1 + 1e-12), (seed, choice)
                    shown += bool((after > 0).all())
                hidden += overlaps(given, choice)
                tied += tied_bytes(given, choice) > 0
    assert hidden > 100 and tied > 20 and shown > 100


def test_the_last_bucket_shows_whole_where_no_device_has_less() -> None:
    """Devices of four layers of 50 million parameters each show the 40 million of a bucket, whatever they have."""
    layer = 50_000_000
    chord = chord_of_bucket(1e-9, 2 * layer, 32 * layer - 14 * layer, 40_000_000)
    assert chord == LeastReduction(0.04, 0.0)
    half = chord_of_bucket(1e-9, layer // 5, layer, 40_000_000)
    assert half.at(layer // 5) == pytest.approx(0.01) and half.at(layer) == pytest.approx(0.04)


def test_ranges_without_parameters_leave_the_last_bucket_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a layer has no parameters but a backward pass, the reduction less that pass is bounded by nothing."""
    given = next(each for each in map(ordered, range(60)) if any(c.is_order_priced for c in each.candidates))
    given = replace(given, overlap_grad_reduce=True)
    choice = next(each for each in given.candidates if each.is_order_priced and overlaps(given, each))
    tables = given.tables(choice)
    none = replace(tables, parameters=np.where(np.eye(tables.num_layers + 1, k=1) > 0, 0, tables.parameters))
    monkeypatch.setattr(PlanningProblem, "tables", lambda _self, _candidate: none)
    assert minorants(given, choice, 1e9, 0.0, choice.vpp)[1] == LeastReduction(0.0, 0.0)
