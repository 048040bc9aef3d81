"""The space of a pipeline's schedules: placements by default and on request, and memory that holds none."""

from dataclasses import replace

import pytest

from taut.errors import DataError, FormulationError, InfeasibleError
from taut.formulations.schedules.stages import Stages
from taut.schedules.portfolio import build_kind, built_kinds, fastest_that_fits, placements, refuse_too_full, roomy

pytestmark = pytest.mark.proof

STAGES = Stages(stages=4, micro_batches=8, forward=[1.0], backward=[1.0], weight=[1.0])


def names(stages: Stages, placement: str | None = None, chunks: int | None = None) -> list[tuple[str, int]]:
    """Placements and their numbers of chunks."""
    return [(each.placement, each.problem.num_chunks) for each in placements(stages, placement, chunks)]


def test_every_placement_is_in_the_space_unless_one_is_asked_for() -> None:
    """One chunk a device in order, two in a V or round, and more chunks round alone."""
    assert names(STAGES) == [("sequential", 4), ("v", 8), ("round-robin", 8)]
    assert names(STAGES, chunks=1) == [("sequential", 4)]
    assert names(STAGES, chunks=2) == [("v", 8), ("round-robin", 8)]
    assert names(STAGES, chunks=4) == [("round-robin", 16)]
    assert names(STAGES, placement="v") == [("v", 8)]
    assert names(STAGES, placement="round-robin", chunks=3) == [("round-robin", 12)]


def test_one_device_has_one_placement() -> None:
    """However its chunks are named, they are all on it."""
    assert names(replace(STAGES, stages=1)) == [("sequential", 1)]


def test_placements_whose_links_are_not_given_are_left_out() -> None:
    """Three links of neighbours say nothing of that from the last device to the first."""
    assert names(replace(STAGES, comm=[1.0, 2.0, 3.0])) == [("sequential", 4), ("v", 8)]
    with pytest.raises(DataError, match="comm: 3 numbers"):
        placements(replace(STAGES, comm=[1.0, 2.0, 3.0]), "round-robin")


@pytest.mark.parametrize(("limit", "enough"), [(0.25, True), (0.2499, False)])
def test_the_least_memory_is_one_micro_batch(limit: float, enough: bool) -> None:
    """An activation of a stage, of the four that 1F1B holds."""
    space = placements(replace(STAGES, memory_limit=[limit]))
    if enough:
        assert roomy(space) == space
        return
    with pytest.raises(InfeasibleError, match=r"on device 0, its limit is 0\.2499; the least .* is 0\.25") as refusal:
        roomy(space)
    assert refusal.value.report == {"device": 0, "limit": limit, "least_limit": 0.25}


def test_placements_that_cannot_hold_a_micro_batch_are_left_out() -> None:
    """
    The first half of stage 0 takes 3, the second 1, and device 0's limit is 3 of the 16 that 1F1B holds.

    In a V it holds the first half and the last one, 0; one after the other it holds 4.
    """
    activation = [3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    stages = replace(STAGES, activation=activation, memory_limit=[3 / 16, 1, 1, 1])
    assert stages.reference_memory == 16
    assert [each.placement for each in roomy(placements(stages))] == ["v"]


def test_kinds_stand_on_the_placements_that_they_are_made_for() -> None:
    """1F1B wants one chunk a device, V-Half a V, and interleaved 1F1B chunks that go round."""
    kinds = {each.placement: {built.schedule.kind for built in built_kinds([each])} for each in placements(STAGES)}
    assert "1f1b" in kinds["sequential"]
    assert "v-half" in kinds["v"]
    assert "interleaved-1f1b" in kinds["round-robin"]
    assert "1f1b" not in kinds["v"] | kinds["round-robin"]
    with pytest.raises(FormulationError, match="v-half"):
        build_kind(placements(STAGES, "sequential")[0], "v-half")


def test_what_fits_is_preferred_to_what_is_fast() -> None:
    """ZB-V is faster than V-Half, but holds 1 where 0.75 is the limit."""
    (placed,) = placements(replace(STAGES, memory_limit=[0.75]), "v")
    fast, lean = build_kind(placed, "zb-v"), build_kind(placed, "v-half")
    free = placements(STAGES, "v")[0]
    assert build_kind(free, "zb-v").times.makespan < build_kind(free, "v-half").times.makespan
    if not fast.fits:
        assert min(fast, lean, key=fastest_that_fits) is lean
        with pytest.raises(InfeasibleError, match="it fits --memory-limit 1"):
            refuse_too_full(fast)


def test_a_search_that_must_end_has_tried_every_placement() -> None:
    """Orders by formula come before those that are adapted, each on every placement."""
    space = placements(replace(STAGES, micro_batches=4))
    built: list[tuple[str, str]] = []
    for each in built_kinds(space, lambda: len(built) >= 8):
        built.append((each.schedule.kind, each.placed.placement))
    assert {placement for _, placement in built} == {"sequential", "v", "round-robin"}
    assert built[:3] == [("gpipe", "sequential"), ("gpipe", "v"), ("gpipe", "round-robin")]
