"""Factors at which another plan wins against enumeration, the words of both reports, and the command."""

import json
from pathlib import Path

import pytest

import taut
from taut.reports.sensitivity import box_text, break_even_text
from taut.sensitivity import Box, BoxRegret, Points, Row, break_even_rows, prices_imbalance
from tests.support.blocks import blocks
from tests.support.launches import launched_on, model_with_experts, small_cluster
from tests.taut.conftest import Run
from tests.taut.test_sensitivity import SECONDS, found, least, problem_of

BOX = BoxRegret(
    box=Box(links=0.2, memory=0.05),
    slowdown=(0.8, 1.2),
    at_most=0.0521,
    at_least=0.05,
    better="pp=16 tp=8 dp=16 micro_batch=4 interleaved-1f1b zero=3 sp recompute=none",
    searches=7,
)


@pytest.mark.proof
@pytest.mark.parametrize("seed", blocks(16))
def test_a_winner_wins_and_the_bound_holds(seed: int) -> None:
    """At every factor told the enumerated best is no faster than the bound allows, and faster where one wins."""
    plan = found(seed).incumbent
    if plan is None:
        return
    for row in break_even_rows(Points(problem_of(seed), plan.strategy, plan.devices, SECONDS)):
        factors = {"links": 1.0, "memory": 1.0} | {row.term: row.factor}
        true = least(seed, factors["links"], factors["memory"])
        assert true <= row.best_s * (1 + 1e-9)
        if row.at_most is not None:
            assert row.seconds <= true * (1 + row.at_most) * (1 + 1e-9)
        if row.winner:
            assert row.best_s < row.seconds


@pytest.mark.proof
def test_uneven_routing_is_priced_anew() -> None:
    """Of analytic costs of experts: seconds and the best ones rise with the imbalance, and rows bound the regret."""
    job = launched_on(small_cluster(1), model_with_experts(8), pp=1, tp=2, ep=2, etp=1, micro_batch=4)
    points = Points.of(job.plan.typed, "plan", 2.0)
    assert prices_imbalance(points.problem)
    found = [points.at(imbalance=factor) for factor in (1.0, 1.3, 2.0)]
    assert found[0].seconds < found[1].seconds < found[2].seconds
    assert found[0].bound <= found[1].best * (1 + 1e-9) and found[1].bound <= found[2].best * (1 + 1e-9)
    rows = [row for row in break_even_rows(points) if row.term == "imbalance"]
    assert rows and all(row.at_most is not None and row.seconds <= row.best_s * (1 + row.at_most) for row in rows)


def test_measured_layers_are_not_priced_anew() -> None:
    """Of a model without experts, or with costs that are no analytic ones, there is no row of imbalance."""
    assert not prices_imbalance(problem_of(0)) and not prices_imbalance(problem_of(1))


def test_words_keep_to_the_columns() -> None:
    """At 80 columns no line is longer, and what wins is named."""
    row = Row(term="links", factor=1.25, seconds=49.98, best_s=49.0, at_most=0.02, winner=BOX.better)
    text = f"{box_text(BOX, width=80)}\n{break_even_text([row], width=80)}"
    assert [line for line in text.splitlines() if len(line) > 80] == []
    plain = " ".join(text.split())
    assert "at most 5.21 % slower" in plain and plain.count("interleaved-1f1b") == 2
    assert ["1.25", "49.98", "s", "49", "s", "2", "%"] in [line.split()[2:] for line in text.splitlines()]


@pytest.mark.proof
def test_command_adds_both(tmp_path: Path, run: Run) -> None:
    """``show --within`` and ``--break-even`` print below the plan, tell their searches, and add to ``--json``."""
    plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    path = tmp_path / "plan.json"
    plan.write(path)
    shown = run("show", path, "--within", "links=0.2,layers=0.05", "--break-even", "--quiet")
    assert (shown.code, shown.err) == (0, "")
    assert "links 0.762 to 1.26 times as slow" in " ".join(shown.out.split()) and "links' seconds" in shown.out
    printed = json.loads(run("show", path, "--within", "links=0.1", "--break-even", "--json", "--quiet").out)
    assert printed["within"]["at_least"] <= printed["within"]["at_most"]
    assert [row["term"] for row in printed["break_even"]][-1] == "memory"


@pytest.mark.parametrize("text", ["links=1", "links=-0.1", "lynks=0.1", "links", "links=x", "links=0.1,,"])
def test_wrong_boxes_are_refused_in_a_line(text: str, tmp_path: Path, run: Run) -> None:
    """Shares from 0 to below 1 of known terms; anything else is exit code 2 with what was expected."""
    taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "micro_batch": 4}).write(
        tmp_path / "plan.json"
    )
    refused = run("show", tmp_path / "plan.json", "--within", text)
    assert refused.code == 2 and "--within" in refused.err and "expected" in refused.err
    assert len(refused.err.splitlines()) == 1
