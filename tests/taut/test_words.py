"""Words for figures."""

import pytest

from taut.words import percent


@pytest.mark.parametrize(
    ("gap", "words"), [(None, "unknown"), (0.0, "0 %"), (3.14e-10, "0 %"), (2e-9, "2e-07 %"), (0.0495, "4.95 %")]
)
def test_gaps_of_rounding_alone_are_none(gap: float | None, words: str) -> None:
    """Up to 1e-9 a bound equals a value, here as everywhere; what is not defined is unknown."""
    assert percent(gap) == words
