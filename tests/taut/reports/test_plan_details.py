"""What ``taut show`` adds: timeline, nearest alternatives, reasons of a gap; and the columns it keeps to."""

import json
from typing import Any

import pytest

import taut
from taut import Plan
from taut.planning.tables import device_ranges
from taut.reports.plan_details import candidate_name, details, nearest, own_entry, timeline_lines, why_lost
from tests.support.plans import made_plan
from tests.taut.conftest import Run


@pytest.fixture(scope="module")
def found() -> Plan:
    """GPT-2 345M on four nodes of four T4 in four stages."""
    return taut.plan("gpt2-345m", "g4dn.12xlarge:4", global_batch=32, fix={"pp": 4, "zero": 1}, work_limit=20)


def test_timeline_has_every_pass_of_a_short_schedule(found: Plan) -> None:
    """A row a stage; the first stage begins with a forward pass, the last one idles until then."""
    *_, first, _, _, last = timeline_lines(found, 80)
    assert first.split()[2][0] == "F"
    assert last.split()[2][0] == "."
    assert set("FBW.") >= set(first.split()[2]) - {"~"}


@pytest.mark.parametrize("width", [60, 80, 110])
def test_details_keep_to_the_columns(found: Plan, width: int) -> None:
    """No line is longer than the terminal is wide."""
    assert [line for line in details(found, width=width).splitlines() if len(line) > width] == []


def test_alternatives_are_the_least_bounds_of_others(found: Plan) -> None:
    """The five nearest have the least bounds, in order, and none is the plan's own candidate."""
    own = own_entry(found.typed)
    assert own is not None
    assert own.state in ("solved", "open", "pruned")
    chosen = nearest(found.typed, 5)
    bounds = sorted(e.lower_bound_s for e in found.candidates if e is not own and e.lower_bound_s is not None)
    assert [entry.lower_bound_s for entry in chosen] == bounds[:5]
    assert candidate_name(own).startswith(f"pp=4 tp={found.strategy.tp} dp={found.strategy.dp} ")


@pytest.mark.parametrize(
    ("state", "bound", "words"),
    [
        ("pruned", 2.1, "at least 5.00 % slower: paths over the real links"),
        ("solved", 2.0, "no faster: paths over the real links"),
        ("open", 1.9, "open: may be faster by up to 5.00 %, paths over the real links"),
        ("infeasible", None, "does not fit the memory"),
    ],
)
def test_why_a_candidate_lost(state: str, bound: float | None, words: str) -> None:
    """2.1 / 2 - 1 = 5 % slower, 1 - 1.9 / 2 = 5 % faster at most."""
    values: dict[str, Any] = {"strategy": {}, "state": state, "lower_bound_s": bound, "source": "cover", "witness": {}}
    plan = made_plan(certificate={"candidates": [values]})
    assert why_lost(plan.candidates[0], 2.0) == words


def test_gaps_say_what_would_close_them() -> None:
    """A search that the time ended is told to go on, and one that nothing was left for is not."""
    entry = {"strategy": {"pp": 4}, "state": "open", "lower_bound_s": 1.5, "source": "cover", "witness": {}}
    for stopped, words in (("time", "--time-limit none goes on"), ("exhausted", "no refinement is left")):
        plan = made_plan(certificate={"candidates": [entry]}, provenance={"stopped_by": stopped})
        said = " ".join(details(plan, width=80).split())
        assert "1 open candidate may hold a faster plan" in said
        assert words in said


@pytest.mark.parametrize(("devices", "words"), [([], ""), ([3], "3"), ([1, 0, 2, 9, 8], "0-2,8-9")])
def test_devices_are_named_in_ranges(devices: list[int], words: str) -> None:
    """Neighbours are one range."""
    assert device_ranges(devices) == words


def test_command_shows_details(found: Plan, tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    """``show`` prints timeline, alternatives and all devices, at 80 columns, and ``--json`` the document as it is."""
    path = tmp_path_factory.mktemp("show") / "plan.json"
    found.write(path)
    shown = run("show", path)
    assert (shown.code, shown.err) == (0, "")
    for words in ("timeline: ", "nearest alternatives", "devices", "status"):
        assert words in shown.out
    assert json.loads(run("show", path, "--json").out) == found.document
