"""Regions that fits leave out, and choices by fits without the job's runs."""

import numpy as np
import pytest

from benchmarks.regions import (
    KIND_NAMES,
    Region,
    Study,
    Unseen,
    choice_line,
    chunk_lines,
    deviations_by,
    gain_lines,
    jobs_of,
    region_line,
    regions_of,
)
from taut.data.arrays import Flags
from taut.data.calibration import BAND_WIDTH
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
    regions = [*regions_of(study([1.0, 1.01, 1.09, 1.0, 0.98, 1.3]))]
    lines = {region.left_out: region_line(region, regions) for region in regions}
    found = lines["micro-batch above 1"]
    assert found["runs"] == 8
    assert (found["in the band %"], found["in the widened band %"]) == (50.0, 75.0)
    assert "each model" not in lines and "full recompute" not in lines


def test_runs_of_one_layer_a_chunk_are_predicted_by_the_others() -> None:
    """Of twelve runs four have eight layers in two stages of four chunks, and are 5 % faster than predicted."""
    plain = study([1.0, 0.95, 1.0, 1.0, 0.95, 1.0])
    split = {"pp": 2, "vpp": 4, "dp": 4, "schedule": "interleaved-1f1b"}
    rows = [row.model_copy(update=split) if row.micro_batch == 2 else row for row in plain.rows]
    (line,) = chunk_lines([plain, plain._replace(rows=rows)])
    assert (line["runs"], line["others"], line["chunks a device"]) == (4, 8, "4 to 4")
    assert line["mean error %"] == pytest.approx(100 * (1 / 0.95 - 1))


def test_a_widened_band_adds_its_deviation_in_squares() -> None:
    """As of some deviation beyond all runs, of none, and of twice as much."""
    deviations = np.array([0.1, 0.0, 0.2])
    found = Unseen(np.zeros(3), np.full(3, -0.05), np.zeros(3)).widened(deviations)
    more = BAND_WIDTH * deviations
    assert found.low == pytest.approx(-np.hypot(0.05, more))
    assert found.high == pytest.approx(more)


def test_deviations_are_those_that_the_bands_of_regions_lack() -> None:
    """
    By hand: bands of no width, errors of 0.1 in micro-batch and of 0.05 in scale, each in many regions.

    Each square is (0.1 / z)^2 but for the prior's part, which counts as four regions; other kinds keep the prior's.
    """
    at = {kind: np.eye(len(KIND_NAMES))[[k]] for k, kind in enumerate(KIND_NAMES)}

    def region(kind: str, error: float, campaign: str) -> Region:
        return Region(campaign, kind, Unseen(np.array([error]), np.zeros(1), np.zeros(1)), at[kind], np.zeros((0, 2)))

    every = [region(kind, error, "a") for kind, error in (("micro-batch", 0.1), ("scale", -0.05)) for _ in range(400)]
    found = dict(zip(KIND_NAMES, deviations_by(every), strict=True))
    assert found["micro-batch"] == pytest.approx(0.1 / BAND_WIDTH, rel=0.02)
    assert found["scale"] == pytest.approx(0.05 / BAND_WIDTH, rel=0.02)
    assert found["recompute"] == pytest.approx(0.06) and found["any other"] == pytest.approx(0.06)


def test_gains_beyond_the_runs_are_those_of_the_picked_plan() -> None:
    """
    By hand: all plans are predicted at a second, and each job's run outside the region takes 1.2 s.

    The first plan of a region is picked: promised is 1.2 over 1, shown 1.2 over its own 1.1 s. Where a run outside is
    faster, nothing is promised.
    """
    regions = {region.left_out: region for region in regions_of(study([1.2, 1.1, 1.0] * 2))}
    found = regions["micro-batch above 1"]
    assert np.exp(found.gains) == pytest.approx(np.array([[1.2, 1.2 / 1.1]] * 4))
    *_, mean = gain_lines([found])
    assert mean["jobs"] == 4
    assert (mean["promised gain %"], mean["shown gain %"]) == pytest.approx((20, 100 / 11))
    slower = {region.left_out: region for region in regions_of(study([0.9, 1.1, 1.0] * 2))}
    assert slower["micro-batch above 1"].gains.shape == (0, 2)


def test_kinds_are_those_that_no_other_run_of_the_calibration_has() -> None:
    """A larger micro-batch is one where the others of its calibration lack it, whatever those of another had."""
    made = study([1.0] * 6)
    large = np.array([row.micro_batch == 4 for row in made.rows])
    assert made.kinds_beyond(large).tolist() == [[float(kind == "micro-batch") for kind in KIND_NAMES]] * 4
    apart = made._replace(together=["own" if row.micro_batch < 4 else "another" for row in made.rows])
    assert not apart.kinds_beyond(large & (np.arange(12) < 3)).any()


def test_surprise_and_regret_of_choices() -> None:
    """All plans are predicted at a second, so the first of each job is picked, a fifth slower than the job's best."""
    made = study([1.2, 1.0, 1.1, 1.2, 1.0, 1.1])
    assert [list(places) for places in jobs_of(made)][:2] == [[0, 1, 2], [3, 4, 5]]
    found = choice_line(made)
    assert found is not None and found["jobs"] == 4
    assert found["mean surprise %"] == pytest.approx(20.0) and found["mean regret %"] == pytest.approx(20.0)
