"""What expert ranks send, by dispatcher and format."""

import pytest

from taut.data.layers.dispatch import NARROW, USUAL_DISPATCH, DispatchSpec
from taut.errors import DataError


def test_a_dispatch_in_fp8_has_a_scale_for_128_numbers() -> None:
    """128 bytes and 4 instead of 256."""
    assert DispatchSpec(fp8=True).dispatched == NARROW == (128 + 4) / 256
    assert USUAL_DISPATCH.dispatched == 1.0


def test_a_gather_is_even_and_has_no_format_of_its_own() -> None:
    """Every rank gathers as many tokens as any other, in bf16, and nothing hides it."""
    assert DispatchSpec(dispatcher="allgather", imbalance=1.5).uneven == 1.0
    assert DispatchSpec(dispatcher="alltoall", imbalance=1.5).uneven == 1.5
    with pytest.raises(DataError, match="dispatcher is allgather, which gathers nothing in fp8"):
        DispatchSpec.parse({"dispatcher": "allgather", "fp8": True}, "dispatch")
    with pytest.raises(DataError, match="dispatcher is allgather, which hides no exchange"):
        DispatchSpec.parse({"dispatcher": "allgather", "overlap": True}, "dispatch")


def test_an_imbalance_below_the_mean_is_refused() -> None:
    """The fullest rank has the mean at least."""
    with pytest.raises(DataError, match="imbalance"):
        DispatchSpec.parse({"imbalance": 0.5}, "dispatch")
