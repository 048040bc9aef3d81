"""What expert ranks send, by dispatcher and format."""

import pytest

from taut.data.layers.experts import NARROW, USUAL_DISPATCH, DispatchSpec
from taut.errors import DataError


def test_a_dispatch_in_fp8_has_a_scale_for_128_numbers() -> None:
    """128 bytes and 4 instead of 256."""
    assert DispatchSpec(fp8=True).dispatched == NARROW == (128 + 4) / 256
    assert USUAL_DISPATCH.dispatched == 1.0


def test_scores_have_the_format_of_activations_unless_one_is_stated() -> None:
    """2 or 4 bytes as numbers of activations have, 4 in fp32 and 8 in fp64 whatever these are."""
    assert [USUAL_DISPATCH.score_bytes(element) for element in (2, 4)] == [2, 4]
    assert [DispatchSpec(router_dtype="fp32").score_bytes(element) for element in (2, 4)] == [4, 4]
    assert DispatchSpec(router_dtype="fp64").score_bytes(2) == 8


def test_a_gather_has_no_fp8_and_nothing_hides_it() -> None:
    """Both are refused by name."""
    with pytest.raises(DataError, match="dispatcher is allgather, which gathers nothing in fp8"):
        DispatchSpec.parse({"dispatcher": "allgather", "fp8": True}, "dispatch")
    with pytest.raises(DataError, match="dispatcher is allgather, which hides no exchange"):
        DispatchSpec.parse({"dispatcher": "allgather", "overlap": True}, "dispatch")


def test_an_imbalance_below_the_mean_is_refused() -> None:
    """The fullest rank has the mean at least."""
    with pytest.raises(DataError, match="imbalance"):
        DispatchSpec.parse({"imbalance": 0.5}, "dispatch")
