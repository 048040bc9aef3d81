"""HETHUB's clusters with models of every size: even stages, its rule, the best plan and the bound."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from taut.commands.app import app
from taut.errors import FieldError
from taut.papers import hethub
from taut.papers.hethub import SizeTable, reproduce_hethub_table
from taut.solver.result import Limits

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def table() -> SizeTable:
    """Two models on 96 devices, each searched for a given number of refinements."""
    limits = Limits(work_limit=12, workers=1)
    return SizeTable(
        tuple(reproduce_hethub_table(limits, only=f"12n96d llama2-{size}").rows[0] for size in ("7b", "13b"))
    )


def test_layers_by_speed_beat_even_stages(table: SizeTable) -> None:
    """Steps are ordered: bound, best plan, HETHUB's rule, even stages; the bounds are within half a per cent."""
    for row in table.rows:
        assert row.best_s is not None and row.rule_s is not None and row.even_s is not None and row.gap is not None
        assert row.lower_bound_s <= row.best_s <= row.rule_s * (1 + 1e-9) <= row.even_s * (1 + 2e-9)
        assert row.gap < 0.005


def test_the_search_begins_with_the_better_simple_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """So no best plan is slower than the rule beside it, however early a limit ends the search."""
    every: list[Any] = [SimpleNamespace(seconds=seconds) for seconds in (2.0, 1.0)]
    monkeypatch.setattr(hethub, "search", lambda problem, limits, incumbent: incumbent)
    problem: Any = None
    for even, rule in (every, every[::-1], (None, every[0])):
        monkeypatch.setattr(hethub, "quickest_even", lambda problem, even=even: even)
        monkeypatch.setattr(hethub, "hethub", lambda problem, limits, rule=rule: SimpleNamespace(incumbent=rule))
        known = min(plan.seconds for plan in (even, rule) if plan is not None)
        found: Any = hethub.searched(problem, Limits())[2]
        assert found.seconds == known
    monkeypatch.setattr(hethub, "hethub", lambda problem, limits: SimpleNamespace(incumbent=None))
    assert hethub.searched(problem, Limits())[2] is None


def test_unknown_names_are_refused() -> None:
    """A part of a name that no cluster and model has is an error."""
    with pytest.raises(FieldError, match="llama9"):
        reproduce_hethub_table(only="llama9")


def test_the_command_prints_the_table(table: SizeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words and as JSON, a row for each cluster and model."""
    monkeypatch.setattr(hethub, "reproduce_hethub_table", lambda limits, only, within, told: table)
    runner = CliRunner()
    words = runner.invoke(app, ["reproduce", "hethub", "--table"]).stdout
    assert "hethub-12n96d" in words and "HETHUB's rule" in words
    found = json.loads(runner.invoke(app, ["reproduce", "hethub", "--table", "--json"]).stdout)
    assert [row["model"] for row in found["rows"]] == ["llama2-7b", "llama2-13b"]
