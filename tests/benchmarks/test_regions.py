"""Regions that fits leave out, and choices by fits without the job's runs."""

import numpy as np
import pytest

from benchmarks.regions import Study, Unseen, choice_line, jobs_of, region_lines
from taut.data.arrays import Flags
from taut.data.calibration import BAND_WIDTH, BEYOND
from taut.data.samples import ConfigurationRow

SHAPE = {"gpu": "h100", "n_gpus": 8, "hidden": 1024, "layers": 8, "heads": 8, "dp": 8}


def study(ratios: list[float]) -> Study:
    """Runs of four jobs with micro-batches 1, 2 and 4, each measured at a ratio of its prediction of one second."""
    batches = [(batch, micro) for batch in (64, 128, 256, 512) for micro in (1, 2, 4)]
    ratios = ratios * 2
    rows = [
        ConfigurationRow.parse({**SHAPE, "global_batch": batch, "micro_batch": micro, "measured_s": ratio}, "row")
        for (batch, micro), ratio in zip(batches, ratios, strict=True)
    ]

    def without(region: Flags) -> Unseen:
        errors = np.log(np.array(ratios))[region]
        return Unseen(errors, np.full(len(errors), -0.05), np.full(len(errors), 0.05))

    return Study("made", rows, ["one"] * 12, [""] * 12, [""] * 12, without)


def test_a_region_has_its_errors_and_how_many_its_band_holds() -> None:
    """Micro-batches above 1: two of four runs within 5 %, in either half, three where the band is widened."""
    lines = {line["left out"]: line for line in region_lines(study([1.0, 1.01, 1.1, 1.0, 0.98, 1.3]))}
    found = lines["micro-batch above 1"]
    assert found["runs"] == 8
    assert (found["in the band %"], found["in the widened band %"]) == (50.0, 75.0)
    assert "each model" not in lines and "full recompute" not in lines


def test_a_widened_band_adds_its_deviation_in_squares() -> None:
    """As of one respect beyond all runs, of none, and of four."""
    found = Unseen(np.zeros(3), np.full(3, -0.05), np.zeros(3)).widened(np.array([1, 0, 4]))
    more = BAND_WIDTH * BEYOND * np.array([1, 0, 2])
    assert found.low == pytest.approx(-np.hypot(0.05, more))
    assert found.high == pytest.approx(more)


def test_respects_are_those_that_no_other_run_of_the_calibration_has() -> None:
    """A larger micro-batch is one where the others of its calibration lack it, whatever those of another had."""
    made = study([1.0] * 6)
    large = np.array([row.micro_batch == 4 for row in made.rows])
    assert list(made.respects_beyond(large)) == [1] * 4
    apart = made._replace(together=["own" if row.micro_batch < 4 else "another" for row in made.rows])
    assert list(apart.respects_beyond(large & (np.arange(12) < 3))) == [0]


def test_surprise_and_regret_of_choices() -> None:
    """All plans are predicted at a second, so the first of each job is picked, a fifth slower than the job's best."""
    made = study([1.2, 1.0, 1.1, 1.2, 1.0, 1.1])
    assert [list(places) for places in jobs_of(made)][:2] == [[0, 1, 2], [3, 4, 5]]
    found = choice_line(made)
    assert found is not None and found["jobs"] == 4
    assert found["mean surprise %"] == pytest.approx(20.0) and found["mean regret %"] == pytest.approx(20.0)
