"""The scorecard: figures from the result pages, and what is worse than at the last release."""

from dataclasses import replace

import pytest

from benchmarks import scorecard
from benchmarks.scorecard import Figure, figures, releases

ERROR = Figure("area", "row", "error, %", 5.0, 1, 0.0, 10)
BAND = Figure("area", "row", "in the band, %", 85.0, 1, 80.0, 10)


def test_every_figure_is_as_good_as_at_the_last_release_or_says_why() -> None:
    """What ``--check`` asks of the figures that stand on the pages now."""
    kept = releases()
    last = next(reversed(kept["figures"].values()))
    found = list(figures())
    assert len(found) > 50 and len({each.key for each in found}) == len(found)
    worse = [each.key for each in found if each.key in last and each.is_worse(last[each.key])]
    assert [key for key in worse if key not in kept["reasons"]] == []


@pytest.mark.parametrize(
    ("figure", "before", "is_worse"),
    [
        (ERROR, 4.8, True),
        (ERROR, 4.9, False),
        (ERROR, 6.0, False),
        (replace(ERROR, value=-5.0), 4.0, True),
        (BAND, 74.0, False),
        (BAND, 79.0, True),
        (BAND, 90.0, False),
    ],
)
def test_worse_is_further_from_the_aim(figure: Figure, before: float, is_worse: bool) -> None:
    """An error aims at 0 and a band at 80 %; a unit of the last place is no difference."""
    assert figure.is_worse(before) == is_worse


def test_a_worse_figure_fails_without_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A figure that was better fails the check by name, and passes with a reason, which the page shows."""
    monkeypatch.setattr("sys.argv", ["scorecard", "--check"])
    figure = next(figures())
    kept = {"figures": {"0.0": {figure.key: figure.value / 2}}, "reasons": dict[str, str]()}
    monkeypatch.setattr(scorecard, "releases", lambda: kept)
    assert scorecard.main() == 1
    assert figure.key in capsys.readouterr().out
    kept["reasons"] = {figure.key: "more runs"}
    assert scorecard.main() == 0
    assert "more runs)" in scorecard.scorecard()
