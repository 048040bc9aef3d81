"""Bugs planted in what search and check share: nearly every false certificate is refused."""

from dataclasses import replace

import pytest

from tests.support.planted_bugs import BUGS, Instance, instances, planted, table, tally

pytestmark = pytest.mark.proof

QUICK = (
    "data-parallel ring halved",
    "last stage at half price",
    "candidates with pp=2 forgotten",
    "relaxation +10 %",
    "reductions of later stages forgotten",
)


@pytest.fixture(scope="module")
def small() -> list[Instance]:
    """Ten small problems with their truth, so that each of the bugs makes a certificate false."""
    return instances(10)


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_refused(bug: str, small: list[Instance]) -> None:
    """Under a bug some certificates are false, and every false one is refused."""
    found = tally(bug, small)
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize("bug", ["gathers hidden altogether", "gathers of bounds doubled"])
def test_a_planted_bug_of_gathers_is_refused(bug: str, small: list[Instance]) -> None:
    """The same where weights and gradients are sharded in every candidate with replicas."""
    spaces = [each.problem.space.model_copy(update={"zero": [2, 3]}) for each in small]
    given = [
        Instance(replace(each.problem, space=space, latency_model="step"))
        for each, space in zip(small, spaces, strict=True)
    ]
    found = tally(bug, given)
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_has_its_place(bug: str) -> None:
    """What a bug replaces is still there."""
    with planted(bug):
        pass


def test_without_a_bug_no_certificate_is_false(small: list[Instance]) -> None:
    """The search's certificates hold, and say what the enumeration says."""
    found = tally("", small)
    assert found.written > 0
    assert found.false == 0


@pytest.mark.long
def test_nine_of_ten_false_certificates_are_refused() -> None:
    """Over all bugs, at least twenty of which make certificates false, the check refuses at least 90 %."""
    given = instances(12)
    found = [tally(bug, given) for bug in BUGS]
    false, refused = sum(each.false for each in found), sum(each.refused for each in found)
    assert sum(each.false > 0 for each in found) >= 20, table(found)
    assert refused >= 0.9 * false, table(found)
