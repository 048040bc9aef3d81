"""AMP's three searches: the strategies that the paper counts, every method above one bound, and their text."""

import json

import pytest

from taut.papers.amp_searches import Table, reproduce_amp_searches
from taut.solver.result import Limits
from tests.taut.conftest import Run, refused

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def table() -> Table:
    """All settings, each method within its own limits of work."""
    return reproduce_amp_searches(limits=Limits(work_limit=200, workers=1))


def test_strategies_are_as_many_as_published(table: Table) -> None:
    """53 for GPT-2 on either cluster and 65 for TransGAN."""
    assert {row.setting: row.strategies for row in table.rows} == {
        "homogeneous": 53,
        "het_cluster": 53,
        "het_model": 65,
    }


def test_no_method_is_below_the_bound_or_above_the_search(table: Table) -> None:
    """Every plan is at least the bound, and the branch and bound is no worse than AMP by AMP's own latency model."""
    for row in table.rows:
        searched = row.step_s["taut"]
        assert searched is not None
        for method, seconds in row.step_s.items():
            assert seconds is not None and seconds >= row.lower_bound_s * (1 - 1e-9), (row.setting, method)
            assert searched <= seconds * (1 + 1e-9), (row.setting, method)


def test_table_is_text_and_json(table: Table) -> None:
    """The text has a part for speed-ups, seconds, distances, best and times; the same is there as plain values."""
    words = str(table)
    assert words.count("\nhet_cluster") == 4 + len(table.rows[1].five_best) and "1.54x" in words
    plain = json.loads(json.dumps(table.as_dict()))
    assert plain["rows"][1]["published"] == {"speed_up": 1.54, "search_s": 325.6}
    assert plain["rows"][1]["speed_up"] > 1.0


def test_one_setting_is_searched_from_the_command_line(run: Run) -> None:
    """The command prints the JSON of the setting that is asked for, and refuses an unknown one."""
    found = run("reproduce", "amp", "--setting", "het_model", "--json")
    assert found.code == 0 and [row["setting"] for row in json.loads(found.out)["rows"]] == ["het_model"]
    refused(run("reproduce", "amp", "--setting", "het"), "did you mean het_model")


def test_trials_without_a_profile_are_refused(run: Run) -> None:
    """Trials are priced by AMP's profile, so one file without the other is refused in one line."""
    refused(run("reproduce", "amp", "--trials", "trials.csv"), "--profile")
