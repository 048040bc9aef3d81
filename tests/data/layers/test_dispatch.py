"""What expert ranks send, by dispatcher and format."""

import pytest

from taut.data.layers.dispatch import NARROW, USUAL_DISPATCH, DispatchSpec
from taut.errors import DataError


def test_a_dispatch_in_fp8_has_a_scale_for_128_numbers() -> None:
    """128 bytes and 4 instead of 256."""
    assert DispatchSpec(fp8=True).dispatched == NARROW == (128 + 4) / 256
    assert USUAL_DISPATCH.dispatched == 1.0


def test_an_imbalance_below_the_mean_is_refused() -> None:
    """The fullest rank has the mean at least."""
    with pytest.raises(DataError, match="imbalance"):
        DispatchSpec.parse({"imbalance": 0.5}, "dispatch")
