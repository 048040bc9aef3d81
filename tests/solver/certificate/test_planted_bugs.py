"""Bugs planted in what search and check share: every one shows, and every false certificate is refused."""

import pytest

from tests.support.planted_bugs import planted, tally, written
from tests.support.planted_kinds import ROWS, WITHOUT, count_bug, decides, known, planted_row, shown, table

pytestmark = pytest.mark.proof

QUICK = {
    "data-parallel ring halved": 10,
    "last stage at half price": 10,
    "candidates with pp=2 forgotten": 10,
    "relaxation +10 %": 10,
    "reductions of later stages forgotten": 10,
    "gathers hidden altogether": 10,
    "gathers of bounds doubled": 10,
    "copies never summed": 6,
    "cases of copies +30 %": 6,
    "hops between classes tripled": 10,
    "rings of mixed stages tripled": 10,
    "an all-slow pipeline beside another +30 %": 10,
    "ten more hops where stage 0 fills its nodes": 12,
    "hops between alike nodes ten times as long": 12,
    "keys and values sent for nothing": 6,
    "contexts of bounds at half the rate": 6,
    "context ranks in rings forgotten": 6,
    "rings of experts forgotten": 16,
    "reductions of experts forgotten": 16,
    "gathers of experts in bounds tenfold": 16,
    "matrices in equal parts": 6,
    "experts orthogonalised for nothing": 6,
    "buffers without padding": 6,
    "matrices without states": 6,
    "least optimizer tenfold": 6,
    "ZeRO-1 forgotten beside Muon": 6,
    "pipelines of a type +20 %": 3,
    "rings of members doubled": 3,
    "a crossing more": 3,
    "hops of chunks between nodes tenfold": 3,
    "subset placement bound +5 %": 3,
    "a pass more before a device": 6,
    "ZeRO-0 dominates ZeRO-1": 6,
    "hops of chunks between racks tenfold": 4,
    "rings of node sets doubled": 3,
    "a hop fewer between parts": 3,
    "a parameter of orders takes 2 % more": 4,
    "rings of the second stage doubled": 3,
}
"""Bugs that every run plants, with the number of instances."""


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_refused(bug: str) -> None:
    """Under a bug some certificates are false, and every false one is refused."""
    found = count_bug(bug, QUICK[bug])
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize("bug", ["copies never summed", "cases of copies +30 %"])
def test_a_planted_bug_of_copies_beside_expert_ranks_is_refused(bug: str) -> None:
    """The same where candidates with and without expert ranks have two replicas to a copy."""
    found = count_bug(bug, 8, "copies of experts")
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize("kind", ["racks of chunks", "measured", "contexts", "sharded experts"])
def test_samples_alone_refute_a_bound_barely_above_the_optimum(kind: str) -> None:
    """Each bound a millionth above the optimum of its candidate is undercut by a sampled plan, whatever the links."""
    tried = 0
    for instance in known(kind, 6):
        with planted():
            document = written(instance.fresh, 40)
            bounds = {name: (1 + 1e-6) * each for name, each in instance.truth.items() if each < float("inf")}
            assert bounds or document is None
            if document is not None:
                tried += 1
                assert instance.sampled(document, bounds) == (len(bounds), len(bounds))
    assert tried > 0


@pytest.mark.parametrize("bug", ROWS)
def test_every_bug_has_its_place(bug: str) -> None:
    """What a bug replaces is still there."""
    with planted_row(bug):
        pass


def test_without_a_bug_no_certificate_is_false() -> None:
    """The search's certificates hold, and say what the enumeration says."""
    found = tally("", known("random", 10))
    assert found.written > 0
    assert found.false == found.beyond == 0


@pytest.mark.long
def test_bugs_show_and_false_certificates_are_refused() -> None:
    """Of over a hundred bugs nearly all show, and every false certificate is refused."""
    found = [shown(bug, 6) for bug in ROWS]
    assert sum(each.changed > 0 for each in found) >= 120, table(found)
    assert all(each.refused == each.false for each in found), table(found)


@pytest.mark.long
@pytest.mark.parametrize("rung", WITHOUT)
def test_every_rung_decides_on_its_kind(rung: str) -> None:
    """On a third of the instances of its kind the lower bound falls without the rung, and it is none too high."""
    assert decides(rung, 9) >= 3
