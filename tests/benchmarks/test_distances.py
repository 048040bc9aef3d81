"""The table of distances: rows from the JSON of every kind of part, and the picture."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.distances import distances, plot, run_part
from benchmarks.distances_table import Distance, in_markdown, of_markdown

PUBLISHED = {"who": "MLPerf v5.0 NVIDIA", "model": "llama3-405b", "gpus": 2048, "global_batch": 1152}
PLAN = {
    "published": {**PUBLISHED, "fixed": {"tp": 8, "cp": 2, "pp": 8, "vpp": 8}},
    **{"distance": 0.04, "best_s": 13.1, "lower_bound_s": 13.0, "predicted_s": 13.52, "command": "taut plan x"},
}
OWN = {"model": "gpt-13b", "gpus": 16, "distance": 0.02, "best_s": 2.0, "lower_bound_s": 2.0, "command": "c"}


def test_published_plans_stand_beside_the_best_plan() -> None:
    """A published plan at taut's prices with its degrees, and what taut's best plan leaves."""
    (line,) = in_markdown(list(distances("gpt3", {"rows": [PLAN]})))[2:]
    assert line.startswith("| MLPerf v5.0 NVIDIA llama3-405b on 2048 GPUs, batch 1152 (tp 8 cp 2 pp 8 vpp 8) |")
    assert "| 4.00 % | 0.77 % | `taut plan x` |" in line


def test_recipes_with_offload_and_experts_are_planners_of_their_own() -> None:
    """Their machines, precision, expert degree and share of the activations on hosts are named."""
    recipe = {"who": "NVIDIA recipe", "model": "llama3-70b", "gpus": 64, "global_batch": 256, "precision": "fp8"}
    recipe |= {"cluster": "gb200-nvl64", "activation_offload": 0.5, "fixed": {"tp": 1, "pp": 1}}
    expert = {**recipe, "who": "NVIDIA 26.08", "activation_offload": 0.0, "fixed": {"tp": 1, "pp": 4, "ep": 64}}
    rows = list(distances("offload", {"rows": [{**PLAN, "published": each} for each in (recipe, expert)]}))
    assert [row.planner for row in rows] == ["offload", "taut", "experts", "taut"]
    assert rows[0].setting == "NVIDIA recipe llama3-70b on gb200-nvl64 in fp8, batch 256 (dp offload 50 %)"
    assert rows[2].setting == "NVIDIA 26.08 llama3-70b on gb200-nvl64 in fp8, batch 256 (pp 4 ep 64)"


def test_searches_are_compared_by_their_own_formula_first() -> None:
    """Aceso's plan by its formula and at taut's prices, a line each."""
    ours = {"theirs_s": 3.3, "best_s": 3.0, "lower_bound_s": 3.0}
    content: dict[str, Any] = {
        "rows": [],
        "aceso": [{**OWN, "gpu": "l4", "ours": ours}, {**OWN, "gpu": "a10g", "ours": None}],
    }
    first, second, third = in_markdown(list(distances("aceso", content)))[2:]
    assert "paper's own formula | 2.00 % | 0.00 %" in first and "taut's prices | 10.00 %" in second
    assert "a10g" in third


def test_methods_of_a_setting_share_a_line() -> None:
    """Baselines on AMP's setting, one without a plan; shares of a throughput are turned into distances."""
    rows = [{"setting": "homogeneous", "distance": {"megatron": None, "amp": 0.001, "taut": 0.0}}]
    (line,) = in_markdown(list(distances("amp", {"rows": rows})))[2:]
    assert "megatron no plan; amp 0.10 % | 0.00 % | `taut reproduce amp`" in line
    shares = {"setting": {"name": "96"}, "even": 0.8, "rule": None, "best": 1.0, "at_most": 1.0}
    found = list(distances("hethub", {"rows": [shares]}))
    assert [row.share for row in found] == [pytest.approx(0.25), None, 0.0]


def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    """A part whose JSON stands in the folder, or that needs tables without a folder of them, is left alone."""
    (tmp_path / "amp.json").write_text(json.dumps({"rows": []}), encoding="utf-8")
    run_part("amp", tmp_path, None)
    run_part("sailor", tmp_path, None)
    assert [path.name for path in tmp_path.iterdir()] == ["amp.json"]


def test_every_plan_is_a_dot(tmp_path: Path) -> None:
    """A picture is drawn, also of plans that are none."""
    pytest.importorskip("matplotlib")
    rows = [Distance("amp", "a", "taut's prices", share, "c") for share in (0.0, 0.1, None)]
    plot(rows, tmp_path / "distances.png")
    assert (tmp_path / "distances.png").stat().st_size > 1000


def test_rows_are_read_back_from_a_page() -> None:
    """The lines of every kind of part give their rows again, to a hundredth of a per cent."""
    recipe = {"who": "NVIDIA 26.08", "model": "qwen3", "gpus": 64, "global_batch": 256, "precision": "fp8"}
    recipe |= {"cluster": "gb200-nvl64", "fixed": {"tp": 1, "pp": 1, "ep": 64}}
    methods = [{"setting": "homogeneous", "distance": {"megatron": None, "amp": 0.001, "taut": 0.0}}]
    shares = {"setting": {"name": "96"}, "even": 0.8, "rule": None, "best": 1.0, "at_most": 1.0}
    own = {**OWN, "gpu": "l4", "ours": None}
    rows = [
        *distances("gpt3", {"rows": [PLAN, {**PLAN, "published": recipe}], "aceso": [own]}),
        *distances("amp", {"rows": methods}),
        *distances("hethub", {"rows": [shares]}),
    ]
    found = of_markdown(["# Title", "| plans | why |", "| a | b |", *in_markdown(rows)])
    assert {(row.planner, row.setting, row.prices, row.command) for row in found} == {
        (row.planner, row.setting, row.prices, row.command) for row in rows
    }
    assert sorted(row.share or 0.0 for row in found) == pytest.approx(
        sorted(row.share or 0.0 for row in rows), abs=1e-4
    )
