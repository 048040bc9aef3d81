"""Galvatron's formula by hand, and beside plans that its own engine priced."""

import numpy as np
import pytest

from taut.data.readers.galvatron.profile import Ends, GalvatronProfile, Line, Split
from taut.data.units import GIB, MIB
from taut.papers.galvatron import (
    GalvatronProblem,
    Setting,
    buffer_mib,
    layer_mib,
    layer_price,
    price,
    states_kept,
    step_seconds,
    vocabulary_mib,
    vocabulary_seconds,
)

ENDS = Ends({1: 800.0 * MIB, 2: 400.0 * MIB}, {1: 10.0 * MIB, 2: 6.0 * MIB})
ONE = Split()


def _problem(*, global_batch: int = 2, memory_mib: int = 4096, default: str = "zero2") -> GalvatronProblem:
    """A sample's forward pass of a layer takes 1 s, an all-reduce 1 s for 512 MiB, an all-gather or -to-all 0.5 s."""
    flat = Line(0.0, 0.5, {})
    profile = GalvatronProfile(
        seq=1024,
        layer=Line(1.0, 0.0, {}),
        vocabulary=Line(2.0, 0.0, {}),
        parameters=256.0 * MIB,
        activations={1: 40.0 * MIB, 2: 20.0 * MIB},
        recomputed=8.0 * MIB,
        whole=ENDS,
        first=ENDS,
        last=ENDS,
        rates={(2, True): 512.0 * MIB, (2, False): 512.0 * MIB},
        stage_rates={2: 1024.0 * MIB},
        gather={2: flat},
        exchange={2: flat},
        overlap=1.25,
    )
    given = {"global_batch": global_batch, "memory_mib": memory_mib}
    return GalvatronProblem(profile=profile, layers=2, hidden=1024, gpus=2, default=default, **given)


def test_a_layer_by_hand() -> None:
    """
    Two replicas of a sample: 1 s forward and 2 backward beside a reduction of half of 256 MiB at 512, 0.25 s.

    By overlap 0.25 of the reduction is added: 1 + 2 + 0.25 * 0.25. ZeRO-3 gathers 64 MiB, 0.125 s; recomputed, a
    backward pass takes 3 s. Over two ways six gathers of 0.5 s, or four exchanges, are added, and nothing is reduced.
    """
    given, setting = _problem(), Setting(1, 1)
    assert layer_price(given, setting, ONE) == pytest.approx((3.0625, 3.0))
    assert layer_price(given, setting, Split(sharded=True)) == pytest.approx((3.1875, 3.125))
    assert layer_price(given, setting, Split(recompute=True)) == pytest.approx((4.0625, 4.0))
    assert layer_price(given, setting, Split(2)) == pytest.approx((6.0, 6.0))
    assert layer_price(given, setting, Split(2, sequence=True)) == pytest.approx((5.0, 5.0))
    assert layer_price(given, setting, Split(2, recompute=True)).last == pytest.approx(1 + 3 + 6 * 0.5 * 1.5)


def test_a_stage_sends_its_part() -> None:
    """Two stages: each of two layers carries half of 4 * 2 * 1024 * 1024 bytes at 1024 MiB/s, 4 MiB: 1/256 s."""
    assert layer_price(_problem(), Setting(2, 2), ONE).others == pytest.approx(3 + 1 / 256)


def test_memory_by_hand() -> None:
    """
    States of 1024 MiB; two replicas with ZeRO-3 keep 0.503 of them, with ZeRO-2 an eighth more of the rest.

    With several micro-batches another eighth is kept whole. Stage 0 of two holds two micro-batches.
    """
    given, one, two = _problem(), Setting(1, 1), Setting(2, 1)
    sharded = Split(sharded=True)
    assert states_kept(given, one, sharded) == pytest.approx(0.503)
    assert states_kept(given, one, ONE) == pytest.approx(0.503 * 7 / 8 + 1 / 8)
    assert layer_mib(given, one, sharded, 0) == np.ceil(1024 * 0.503 + 40)
    pipeline = Setting(2, 2)
    assert states_kept(given, pipeline, ONE) == 1.0
    assert [layer_mib(given, pipeline, ONE, stage) for stage in (0, 1)] == [1104, 1064]
    assert layer_mib(given, one, Split(2, recompute=True), 0) == 512 + 8
    larger = _problem(global_batch=4)
    assert states_kept(larger, two, ONE) == pytest.approx(0.503 * 6 / 8 + 2 / 8)
    assert states_kept(larger, two, sharded) == pytest.approx(0.503 * 7 / 8 + 1 / 8)
    assert states_kept(_problem(default="ddp"), one, ONE) == 1.0
    assert given.capacity == 4096 and _problem(memory_mib=36 * 1024).capacity == 36864 - 7372


def test_embedding_and_head_by_hand() -> None:
    """
    2 s forward and 4 backward; ZeRO-3 gathers half of 100 MiB at 512 MiB/s in each pass, 0.0488 s, a fifth beyond.

    Split over two ways the passes take half, and embedding and head each gather activations for 0.5 s.
    """
    given, setting = _problem(), Setting(1, 1)
    weights = 0.5 * 800 / 8 / 512 / 2
    assert vocabulary_seconds(given, setting, ONE) == pytest.approx([6.0])
    assert vocabulary_seconds(given, setting, Split(sharded=True)) == pytest.approx([6.0 + 2 * 0.2 * weights])
    assert vocabulary_seconds(given, setting, Split(2)) == pytest.approx([2 * 3.0 + 1.0])
    assert vocabulary_seconds(given, Setting(2, 2), ONE) == pytest.approx([3.0, 3.0])
    assert vocabulary_mib(given, setting, Split(2)) == [1024 + 400 + 2 * 6]
    assert vocabulary_mib(given, Setting(2, 2), ONE) == [1024 + 800 + 20, 1024 + 800 + 10]
    assert buffer_mib(given, setting, 2) == 2 * 2 * 1024 * 1024 // MIB


def test_a_step_by_hand() -> None:
    """
    One stage: 3 micro-batches of 4 s, and a reduction that ends 1 s after the last.

    Two stages of 2 and 5 s: 7 + 2 * 5 of the last stage. Of 5 and 2 s: once the first fills, and twice more.
    """
    assert step_seconds(np.array([5.0]), np.array([4.0]), 3) == 13.0
    assert step_seconds(np.array([0.0, 0.0]), np.array([2.0, 5.0]), 3) == 17.0
    assert step_seconds(np.array([0.0, 0.0]), np.array([5.0, 2.0]), 3) == 5.0 + 2 * 5.0
    assert step_seconds(np.array([6.0, 0.0]), np.array([5.0, 2.0]), 3) == 16.0


def test_memory_of_a_plan_has_a_buffer_where_weights_are_split() -> None:
    """A layer over two ways brings the buffer of a gathered micro-batch."""
    given, setting = _problem(), Setting(1, 1)
    whole, split = (price(given, setting, (kind,) * 2, ONE) for kind in (ONE, Split(2)))
    assert whole.mib == (2 * layer_mib(given, setting, ONE, 0) + vocabulary_mib(given, setting, ONE)[0],)
    assert split.mib[0] == 2 * layer_mib(given, setting, Split(2), 0) + vocabulary_mib(given, setting, ONE)[0] + 4
    assert GIB == 1024 * MIB
