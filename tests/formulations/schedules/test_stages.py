"""From figures of stages to pipelines: halves of stages, transfers by placement, memory relative to 1F1B."""

import math
from typing import Any

import pytest

from taut.errors import DataError
from taut.formulations.schedules.stages import Stages


def stages(**given: Any) -> Stages:
    """Two stages of two micro-batches, unless said otherwise."""
    plain: dict[str, Any] = {
        "stages": 2,
        "micro_batches": 2,
        "forward": [1.0],
        "backward": [2.0],
        "weight": [3.0],
        "comm": [0.5],
    }
    return Stages(**plain | given)


def test_one_number_is_of_every_stage_and_shared_by_its_chunks() -> None:
    """A stage takes 1 forward, so each of its two chunks 0.5; transfers stay, but within a device there is none."""
    problem = stages().place("v", 2).problem
    assert problem.device.tolist() == [0, 1, 1, 0]
    assert problem.forward.tolist() == [0.5] * 4
    assert problem.input_gradient.tolist() == [1.0] * 4
    assert problem.weight_gradient.tolist() == [1.5] * 4
    assert problem.activation.tolist() == [0.5] * 4
    assert problem.transfer.tolist() == [0.5, 0.0, 0.5]


def test_a_list_by_stage_is_in_the_order_of_the_model() -> None:
    """Chunks 2s and 2s + 1 are the halves of stage s, wherever they are placed."""
    given = stages(forward=[1.0, 3.0])
    assert given.place("sequential", 1).problem.forward.tolist() == [1, 3]
    assert given.place("v", 2).problem.forward.tolist() == [0.5, 0.5, 1.5, 1.5]
    assert given.place("round-robin", 2).problem.forward.tolist() == [0.5, 0.5, 1.5, 1.5]


def test_a_list_by_half_stage_is_taken_as_it_is() -> None:
    """Four numbers are those of four chunks; one chunk a device takes both halves."""
    given = stages(forward=[1.0, 2.0, 3.0, 4.0])
    assert given.place("v", 2).problem.forward.tolist() == [1, 2, 3, 4]
    assert given.place("sequential", 1).problem.forward.tolist() == [3, 7]
    assert given.place("round-robin", 4).problem.forward.tolist() == [0.5, 0.5, 1, 1, 1.5, 1.5, 2, 2]


def test_links_between_neighbours_serve_both_ways_of_a_v() -> None:
    """Three devices with links of 1 and 2: down 1, 2, none at the bottom, and up 2, 1."""
    given = stages(stages=3, comm=[1.0, 2.0])
    assert given.place("v", 2).problem.transfer.tolist() == [1, 2, 0, 2, 1]
    assert given.place("sequential", 1).problem.transfer.tolist() == [1, 2]
    with pytest.raises(DataError, match="comm: 2 numbers, expected 1 or 5"):
        given.place("round-robin", 2)


def test_transfers_between_chunks_are_taken_as_they_are() -> None:
    """Five numbers are those of six chunks; between stages it is every second of them."""
    given = stages(stages=3, comm=[1.0, 2.0, 3.0, 4.0, 5.0])
    assert given.place("round-robin", 2).problem.transfer.tolist() == [1, 2, 3, 4, 5]
    assert given.place("v", 2).problem.transfer.tolist() == [1, 2, 0, 4, 5]
    assert given.place("sequential", 1).problem.transfer.tolist() == [2, 4]


@pytest.mark.parametrize(("micro_batches", "reference"), [(2, 2.0), (4, 4.0), (9, 4.0)])
def test_memory_is_relative_to_1f1b(micro_batches: int, reference: float) -> None:
    """On four stages 1F1B holds four activations, or as many as there are micro-batches."""
    placed = stages(stages=4, micro_batches=micro_batches, memory_limit=[0.5]).place("v", 2)
    assert placed.reference_memory == reference
    assert placed.problem.memory_limit.tolist() == [reference / 2] * 4


def test_memory_of_1f1b_with_unlike_stages() -> None:
    """Activations of 1, 1, 5 on devices that hold 3, 2, 1 of them: the last is the fullest with 5."""
    assert stages(stages=3, micro_batches=8, activation=[1.0, 1.0, 5.0]).reference_memory == 5


def test_limits_may_differ_by_device_and_be_absent() -> None:
    """One limit for each device, in shares of the same 1F1B peak."""
    placed = stages(memory_limit=[0.5, math.inf], kept_for_weight=0.25).place("sequential", 1)
    assert placed.problem.memory_limit.tolist() == [1.0, math.inf]
    assert placed.problem.kept_for_weight.tolist() == [0.25, 0.25]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stages": 0}, "stages: 0, expected a whole number, at least 1"),
        ({"micro_batches": 0}, "micro_batches: 0, expected a whole number, at least 1"),
        ({"stages": 10_000, "micro_batches": 10_000}, "600000000 passes with 10000 micro-batches, expected at most"),
        ({"forward": [-1.0]}, "forward: -1, expected a finite number not below 0"),
        ({"weight": [math.nan]}, "weight: nan, expected"),
        ({"comm": [math.inf]}, "comm: inf, expected"),
        ({"forward": [1.0, 2.0, 3.0]}, "forward: 3 numbers, expected 1, 2 (one for each stage) or 4"),
        ({"backward": []}, "backward: 0 numbers, expected 1"),
        ({"memory_limit": [1.0, 1.0, 1.0]}, "memory_limit: 3 numbers, expected 1 or 2"),
        ({"memory_limit": [0.0]}, "memory_limit: 0, expected a number above 0"),
        ({"memory_limit": [math.nan]}, "memory_limit: nan, expected a number above 0"),
        ({"kept_for_weight": 1.5}, "kept_for_weight: 1.5, expected a share"),
        ({"activation": [0.0]}, "activation: 0, expected a number above 0"),
    ],
)
def test_figures_out_of_range_are_refused(given: dict[str, Any], words: str) -> None:
    """Field, value and what was expected, in one line."""
    with pytest.raises(DataError) as refusal:
        stages(**given)
    assert words in str(refusal.value)


@pytest.mark.parametrize(("placement", "chunks"), [("v", 1), ("v", 3), ("sequential", 2), ("round-robin", 1), ("w", 2)])
def test_placements_that_do_not_exist_are_refused(placement: str, chunks: int) -> None:
    """The three placements and their numbers of chunks are named."""
    with pytest.raises(DataError, match="expected sequential with 1 chunk a device, v with 2, round-robin with 2"):
        stages().place(placement, chunks)


def test_pieces_that_do_not_divide_are_refused() -> None:
    """Three pieces a stage make no two chunks."""
    with pytest.raises(DataError, match="forward: 6 numbers, expected 4 for 2 chunks a device"):
        stages(forward=[1.0] * 6).place("v", 2)
