"""Plans beyond all runs of their calibration: in words, on the page, exported, and left out where that is asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.data.calibration import Calibration, uncalibrated
from taut.data.catalog.devices import catalog_devices
from taut.errors import DataError
from taut.planning.proof import band_of, plainer_words, runs_words
from taut.planning.summary import summary
from taut.reports.page.page import plan_page
from tests.support.runs import seen
from tests.taut.conftest import Run, refused

FIX: dict[str, int | str] = {"schedule": "1f1b", "pp": 2, "tp": 1}
OPTIONS: dict[str, Any] = {"global_batch": 32, "fix": FIX}


def of_runs(**fields: Any) -> Calibration:
    """A calibration at stated efficiencies whose runs had everything but what is said."""
    stated = uncalibrated(catalog_devices()["a100-80gb"])
    return stated.model_copy(update={"name": "own runs", "seen": seen(**fields)})


@pytest.fixture(scope="module")
def beyond() -> taut.Plan:
    """A plan whose micro-batch no run had, with the best one within runs."""
    return taut.plan("gpt2-345m", "dgx-a100", calibration=of_runs(micro_batch=[1, 1]), plainer=True, **OPTIONS)


@pytest.mark.proof
def test_a_plan_beyond_all_runs_says_so_and_what_one_within_them_costs(beyond: taut.Plan) -> None:
    """In the words of the plan, on its page and in its document; the one within runs is no line of plainer ones."""
    chosen = beyond.strategy.micro_batch
    assert chosen > 1 and [each.field for each in beyond.beyond] == ["micro_batch"]
    first, second = runs_words(beyond.typed)
    assert first == f"the measured runs in: micro-batch {chosen} (seen 1)"
    assert second.startswith("the best like a run that was measured: +") and "micro_batch=1" in second
    assert not any("measured" in words for words in plainer_words(beyond.typed))
    assert f"beyond      {first}\n            {second}"[:80] in summary(beyond.sections, width=200)
    assert f"The plan lies beyond {first}" in plan_page(beyond)
    assert beyond.document["beyond"] == [{"field": "micro_batch", "value": chosen, "seen": [1, 1]}]
    assert beyond.verify().holds


@pytest.mark.proof
def test_the_plan_within_runs_is_a_plan_of_its_own(beyond: taut.Plan) -> None:
    """It says of itself that it lies within, and its certificate holds."""
    within = beyond.plainer_plan("seen")
    assert within.strategy.micro_batch == 1 and within.beyond == [] and within.verify().holds
    assert runs_words(within.typed) == [] and "Beyond all runs" not in plan_page(within)


@pytest.mark.proof
def test_a_space_within_runs_has_the_same_plan(beyond: taut.Plan) -> None:
    """What ``seen`` takes away is named, and the bound is one on what is left."""
    within = taut.plan("gpt2-345m", "dgx-a100", calibration=of_runs(micro_batch=[1, 1]), seen=True, **OPTIONS)
    tie = next(each for each in beyond.plainer if each.restriction == "seen")
    assert within.step_time_s == pytest.approx(tie.step_time_s, rel=2e-3) and within.strategy.micro_batch == 1
    assert tie.lower_bound_s <= within.step_time_s
    checked = within.verify()
    assert checked.holds and "seen: plans within all runs of the calibration" in " ".join(checked.narrowed)
    assert "seen: plans within all runs" in summary(within.sections, width=200)


@pytest.mark.proof
def test_layers_that_no_run_had_are_named_and_widen_the_band() -> None:
    """
    Mamba-2 beside runs of attention, within all runs otherwise or not.

    Errors of 10 % either way and a deviation of 8.6 %: with z = 1.2816 the ends are the exponentials of the roots of
    log(1.1)^2 + 0.1102^2 and log(0.9)^2 + 0.1102^2, which are 1.1569 and 1.1647.
    """
    sizes = {"hidden": 768, "heads": 12, "ffn_hidden": 3072, "seq": 256}
    mixer = {"key_dim": 16, "value_dim": 64, "made": 1600, "chunk": 64}
    layers = [{"kind": "mamba", "mixer": mixer, **sizes}, {"kind": "plain", **sizes}] * 2
    model = taut.ModelSpec.parse({"name": "mixed", "vocab": 1024, "layers": layers}, "mixed")
    stated = of_runs(mixing=["attention"]).model_copy(update={"residuals": {"0.1": -0.1, "0.9": 0.1}})
    silent = stated.model_copy(update={"seen": seen(mixing=None)})
    for runs, seen_alone in ((stated, False), (silent, True)):
        found = taut.plan(model, "dgx-a100", calibration=runs, seen=seen_alone, **OPTIONS)
        assert runs_words(found.typed) == ["the measured runs in: layers of Mamba-2 or linear attention (never)"]
        assert found.document["beyond"] == [{"field": "mixing", "value": "linear-attention", "seen": ["attention"]}]
        assert "layers of Mamba-2 or linear attention (never)" in plan_page(found) and found.verify().holds
        ends = found.step_time_s / 1.1569, found.step_time_s * 1.1647
        assert band_of(found.typed) == pytest.approx(ends, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"profile": None, "latency_model": "pipette"}, "no calibration is used, expected"),
        ({"calibration": of_runs().model_copy(update={"seen": None})}, "own runs names no runs here"),
        ({"calibration": of_runs(micro_batch=[64, 64])}, "every field is within the runs of own runs"),
        ({"calibration": of_runs(), "method": "meshes"}, "is of plans with one degree for all stages"),
    ],
)
def test_where_runs_say_nothing_or_leave_nothing_it_is_refused(options: dict[str, Any], words: str) -> None:
    """Without a calibration that names its runs, and where nothing is within them."""
    with pytest.raises(DataError, match=words) as refusal:
        taut.plan("gpt2-345m", "dgx-a100", seen=True, **OPTIONS, **options)
    assert "\n" not in str(refusal.value)


@pytest.mark.proof
def test_the_command_prints_exports_and_restricts(run: Run, tmp_path: Path) -> None:
    """The line with its plan by default, ``--plainer seen`` of an export, and ``--seen``."""
    file, out = tmp_path / "own.yaml", tmp_path / "plan.json"
    file.write_text(json.dumps(of_runs(micro_batch=[1, 1]).model_dump(mode="json")), encoding="utf-8")
    asked = ["plan", "gpt2-345m", "dgx-a100", "--global-batch", "32", "--fix", "schedule=1f1b,pp=2,tp=1"]
    asked += ["--calibration", str(file)]
    words = run(*asked, "--out", out).out
    assert (
        "beyond      the measured runs in: micro-batch" in words and "the best like a run that was measured: +" in words
    )
    assert "beyond      the measured runs in: micro-batch" in run("show", out).out
    flags = tmp_path / "flags"
    assert run("export", out, "--to", "megatron", "--out", flags, "--plainer", "seen").code == 0
    assert "--micro-batch-size 1" in (flags / "megatron.args").read_text(encoding="utf-8")
    within = run(*asked, "--seen").out
    assert "beyond   " not in within and "narrowed space, seen: plans within all runs" in " ".join(within.split())
    refused(run(*asked[:-2], "--latency-model", "pipette", "--seen"), "--seen true: no calibration is used")
