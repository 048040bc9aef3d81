"""Values that a user fixes are judged before anything is planned."""

import pytest

from taut.errors import DataError
from taut.planning.choices import check_fixed
from tests.support.small import cluster


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"dp": 3}, "divisor of the 8 devices"),
        ({"tp": 7}, "divisor of the 8 devices"),
        ({"dp": 8}, "divisor of the global batch 4"),
        ({"micro_batch": 3}, "divisor of the global batch 4"),
        ({"micro_batches": 2}, "fix: micro_batches=2, unknown name, expected .*; did you mean micro_batch?"),
        ({"tp": "8"}, "fix: tp='8', expected a divisor of the 8 devices"),
        ({"zero": 4}, "fix: zero=4, expected 0, 1, 2 or 3"),
        ({"sequence_parallel": 1}, "fix: sequence_parallel=1, expected true or false"),
        ({"vpp": 0}, "chunks a device"),
        ({"schedule": "zb-3p"}, "expected one of 1f1b, gpipe"),
        ({"pp": 0}, "divisor"),
        ({"dp_shard": 3}, "fix: dp_shard=3, expected a divisor of the 8 devices"),
        ({"dp_shard": 0}, "divisor"),
        ({"pp": "x"}, "divisor"),
        ({"recompute": "some"}, "expected one of none, selective, full"),
    ],
)
def test_fixed_values_that_no_candidate_can_have_are_refused(fixed: dict[str, int | str | bool], words: str) -> None:
    """The message names field, value and what was expected."""
    with pytest.raises(DataError, match=words):
        check_fixed(fixed, 4, cluster(2, 4))
