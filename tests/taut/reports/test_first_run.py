"""A plan beside its run: arithmetic by hand, and the command."""

import json
from pathlib import Path

import pytest

import taut
from taut.data.calibration import TERMS
from taut.data.units import GIB
from taut.reports.sensitivity import MeasuredRun, first_run, first_run_text
from taut.solver.certificate.document import PlanDocument
from tests.support.plans import made_plan
from tests.taut.conftest import Run, refused


def plan() -> PlanDocument:
    """One with 2 s predicted and 1.5 s proven, whose fullest device takes 2 of 16 GiB, and a margin of 1."""
    return made_plan(pp=2).typed


@pytest.mark.parametrize(
    ("measured", "error", "at_most"), [(2.5, -0.2, 2.5 / 1.5 - 1), (1.6, 0.25, 1.6 / 1.5 - 1), (1.25, 0.6, 0.0)]
)
def test_seconds(measured: float, error: float, at_most: float) -> None:
    """The error is that of the median, and what the plan may lose to others is against the bound."""
    found = first_run(plan(), MeasuredRun((99.0, measured, measured, measured), None))
    assert (found.steps, found.predicted_s, found.measured_s) == (4, 2.0, measured)
    assert found.error == pytest.approx(error)
    assert found.at_most == pytest.approx(at_most)
    assert (found.band, found.memory) == (None, None)


@pytest.mark.parametrize(
    ("gib", "words"), [(1.5, "no more than predicted"), (2.5, "within the margin"), (3.5, "raise it, or fit")]
)
def test_memory(gib: float, words: str) -> None:
    """Measured bytes are set against the fullest stage, with and without its margin."""
    run = MeasuredRun((2.0,), gib * GIB)
    found = first_run(plan(), run).memory
    assert found is not None
    assert (found.memory_bytes, found.margin_bytes, found.capacity_bytes) == (2 * GIB, GIB, 16 * GIB)
    assert words in found.words
    assert words.split()[0] in first_run_text(plan(), run, Path("run.csv"), width=80)


@pytest.mark.parametrize(
    ("measured", "words"), [(2.0, "within the 80 % band"), (2.5, "above the 80 % band"), (1.5, "below the 80 % band")]
)
def test_band(measured: float, words: str) -> None:
    """With quantiles of errors -0.19 and 0.25 the run is expected between 1.6 and 2.47 s."""
    spec = {"name": "c", "coefficients": dict.fromkeys(TERMS, 1.0), "residuals": {"0.1": -0.19, "0.9": 0.25}}
    inputs = made_plan().document["inputs"] | {"calibration": {"name": "c", "sha256": "0" * 64, "spec": spec}}
    typed = made_plan(inputs=inputs).typed
    text = first_run_text(typed, MeasuredRun((measured,), None), Path("run.csv"), width=80)
    assert words in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_command(tmp_path: Path, run: Run) -> None:
    """``show --calibrate-after`` prints it below the plan, ``--json`` adds it, a wrong run is refused in one line."""
    path, steps = tmp_path / "plan.json", tmp_path / "run.csv"
    found = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    found.write(path)
    steps.write_text(f"measured_s\n{1.25 * found.predicted.step_time_s}\n")
    shown = run("show", path, "--calibrate-after", steps)
    assert (shown.code, shown.err) == (0, "")
    assert "run.csv, 1 step " in " ".join(shown.out.split())
    printed = json.loads(run("show", path, "--calibrate-after", steps, "--json").out)
    assert printed["run"]["error"] == pytest.approx(-0.2)
    refused(run("show", path, "--calibrate-after", tmp_path / "none.csv"), "none.csv: No such file")
