"""Aceso's formula on three-operator layers, computed by hand."""

import numpy as np
import pytest

from taut.data.units import MIB
from taut.papers.aceso.formula import (
    kinds_of,
    message_seconds,
    run_bytes,
    saved_bytes,
    stage_bytes,
    stage_seconds,
    step_seconds,
)
from taut.papers.aceso.operators import Operators

RATES = np.array([1.0, 2.0, 4.0, 8.0]) * MIB
"""Bytes a second of messages of 1, 2, 4 and 8 MiB."""


@pytest.fixture
def operators() -> Operators:
    """A head, a layer of three operators whose second shares its buffer, and a tail."""
    return Operators(
        names=("head", "norm", "shared", "product", "tail"),
        head=1,
        layer=3,
        forward=np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        backward=np.array([2.0, 4.0, 6.0, 8.0, 10.0]),
        inputs=np.array([0.5, 4.0, 8.0, 16.0, 2.0]) * MIB,
        outputs=np.array([4.0, 8.0, 16.0, 2.0, 0.0]) * MIB,
        weights=np.array([3.0, 0.0, 0.0, 2.0, 4.0]) * MIB,
        activations=np.array([1.0, 10.0, 20.0, 30.0, 40.0]) * MIB,
        measured_activations=np.array([1.0, 10.0, 20.0, 30.0, 40.0]) * MIB,
        reserved_forward=np.array([1.0, 5.0, 7.0, 2.0, 100.0]) * MIB,
        reserved_backward=np.array([2.0, 3.0, 1.0, 6.0, 100.0]) * MIB,
        shares=np.array([False, False, True, False, False]),
    )


def flags(text: str) -> np.ndarray:
    """Recomputed operators, a 1 each."""
    return np.array([letter == "1" for letter in text])


def test_operators_stand_in_the_order_of_the_model(operators: Operators) -> None:
    """The layer is repeated between head and tail."""
    assert kinds_of(operators, 2).tolist() == [0, 1, 2, 3, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("mib", "seconds"),
    [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (4.0, 2.0), (10.0, 2.5), (64.0, 8.0), (0.5, 0.0625)],
)
def test_messages_take_the_rate_of_half_their_size(mib: float, seconds: float) -> None:
    """2 and 1 MiB at 1 MiB/s, 4 MiB at 2, 10 at 4, 64 at the last rate, 8; half a MiB at the last, from the end."""
    assert message_seconds(mib * MIB, RATES) == pytest.approx(seconds)


def test_stage_and_step(operators: Operators) -> None:
    """Equations (1) and (2): 3 + 2 + 1 + 2 times the seconds, forward of two again, two messages; 7 steady ones."""
    kinds = kinds_of(operators, 1)[:4]
    seconds = stage_seconds(operators, kinds, flags("0110"), RATES, RATES)
    assert seconds == pytest.approx((1 + 2 + 3 + 4) * 3 + (2 + 3) + 0.5 / 8 + 2 / 1)
    assert step_seconds(np.array([3.0, 5.0]), 8) == pytest.approx(7 * 5 + 8)


def test_memory_counts_what_stays_what_is_run_again_and_what_is_reserved(operators: Operators) -> None:
    """Equation (4) with one stage behind: weights of 5 MiB eight times, 51.5 MiB twice, a run of 10, 7 + 6 reserved."""
    kinds = kinds_of(operators, 1)[:4]
    assert saved_bytes(operators, kinds, flags("0110")) == 10 * MIB
    kept = 0.5 + 61 - 10
    reserved = max(7 + 3, 5)
    assert stage_bytes(operators, kinds, flags("0110"), 1) == pytest.approx((8 * 5 + 2 * kept + 10 + reserved) * MIB)


def test_runs_are_cut_where_a_layer_opens(operators: Operators) -> None:
    """Both layers recomputed: the first run has 10 + 20 + 30 as the next operator opens a layer, the second 10 + 20."""
    kinds = kinds_of(operators, 2)[1:7]
    assert saved_bytes(operators, kinds, flags("111111")) == 60 * MIB
    assert run_bytes(operators, kinds, flags("111111")) == 60 * MIB
    assert run_bytes(operators, kinds, flags("111011")) == 30 * MIB


def test_a_run_that_ends_the_stage_behind_a_shared_buffer_is_forgotten(operators: Operators) -> None:
    """As in Aceso's program: the run of 10 + 20 ends the stage behind the operator with the shared buffer."""
    kinds = kinds_of(operators, 1)[1:4]
    assert run_bytes(operators, kinds, flags("111")) == 0.0
    assert run_bytes(operators, kinds[:2], flags("11")) == 10 * MIB
