"""Tables of peers: an absent checkout is one line, and what is computed here is right by hand."""

import sys
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.amp import FIRST
from benchmarks.peers.frame import PeerRow, table
from benchmarks.peers.rlinf import iteration, least
from benchmarks.peers.simumax import PRODUCT

PROFILE: list[list[float | None]] = [[8.0, 4.0, 3.0], [6.0, None, 2.0], [None, 3.0, 2.0]]
"""Seconds of a batch of three parts on 1, 2 and 3 GPUs; None where a part cannot run on so many."""


def test_a_peer_without_its_checkout_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the peer and what is missing, and nothing else is said."""
    monkeypatch.setattr(sys, "argv", ["peers", "aceso", "--peers", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"^aceso was not run: .*: no such file, expected a checkout of the peer$"):
        main()


def test_an_iteration_of_parts_by_hand() -> None:
    """Shared: 10 x (3 + 2 + 2). Apart on 4 GPUs: 8 + 6 + 3 once, and nine more of the longest, 8."""
    assert iteration(PROFILE, None, 3, 10) == 70.0
    assert iteration(PROFILE, [1, 1, 2], 4, 10) == 17.0 + 9 * 8.0
    assert iteration(PROFILE, [1, 2, 1], 4, 10) is None


def test_the_least_placement_is_the_least_of_all() -> None:
    """On 3 GPUs no part of three can have GPUs of its own where the third needs two, so all share."""
    assert least(PROFILE, 3, 10) == (70.0, "all share")


def test_a_row_has_the_distance_from_the_bound() -> None:
    """1.1 s above a bound of 1 s are 10 %."""
    row = PeerRow(
        case="a", theirs="b", predicted_s=None, their_cpu_s=None, priced_s=1.1, ours="c", best_s=1.0, bound_s=1.0,
        our_cpu_s=0.5,
    )  # fmt: skip
    assert table([row]).splitlines()[1].endswith("10.00 %")


@pytest.mark.parametrize("layout", ["TN", "NN"])
def test_lines_of_other_programs_are_read(layout: str) -> None:
    """A product of SimuMax's system file, and the first line of AMP's log."""
    found = PRODUCT.match(f"b=1, m=4096, k=5120, n=1536, layout={layout}, accumulate=False, out_dtype=bf16")
    assert found is not None and found.groups() == ("4096", "5120", "1536")
    line = (
        "rank 0: ((1, {'mp_deg': tensor([1.]), 'dp_deg': tensor([4.]), 'pp_deg': tensor([4.])}, "
        "defaultdict(<class 'list'>, {0: [0, 1]}), [0, 12, 44, 49, 56]), tensor([1.1502]))"
    )
    first = FIRST.search(line)
    assert first is not None and first.groups() == ("1", "1", "4", "4", "1.1502")
