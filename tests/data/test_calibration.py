"""Calibrations: complete, non-negative, with a band that their residuals state."""

import math

import numpy as np
import pytest

from taut.data.calibration import EXPERT_TERMS, RING_EFFICIENCY, TERMS, Calibration, uncalibrated
from taut.data.catalog.builtin import catalog_calibrations
from taut.data.catalog.devices import catalog_devices
from taut.data.load import load_calibration
from taut.errors import DataError

ONES = dict.fromkeys(TERMS, 1.0)


def test_band_divides_by_one_plus_the_error_quantiles() -> None:
    """Predictions between 10 % too low and 20 % too high put 12 s between 10 and 13.33 s."""
    calibration = Calibration(name="c", coefficients=ONES, residuals={"0.1": -0.1, "0.9": 0.2})
    assert calibration.band(12.0) == pytest.approx((10.0, 12 / 0.9))


def posterior(**values: object) -> Calibration:
    """Products known to 10 % and attention to 20 %, their errors of opposite sign, and a noise of 5 %."""
    lower = np.diag(np.full(len(EXPERT_TERMS), 0.04))
    lower[0, 0], lower[1, 0] = 0.01, -0.01
    triangle = [row[: k + 1].tolist() for k, row in enumerate(lower)]
    return Calibration.parse({"name": "c", "coefficients": ONES, "covariance": triangle, "noise": 0.05, **values}, "c")


def test_band_of_a_posterior_follows_the_shares() -> None:
    """The variance is that of the shares, so that errors of opposite sign cancel, and grows beyond the runs."""
    found = posterior()
    assert found.spread["gemm"] == pytest.approx(0.1) and found.spread["attention"] == pytest.approx(0.2)
    assert found.deviation({"gemm": 1.0}) == pytest.approx(np.hypot(0.1, 0.05))
    half = {"gemm": 0.5, "attention": 0.5}
    assert found.deviation(half) == pytest.approx(np.sqrt(0.25 * (0.01 + 0.04 - 0.02) + 0.0025))
    assert found.deviation({}, beyond=0.12) == pytest.approx(np.hypot(0.05, 0.12))
    low, high = found.band(10.0, {"gemm": 1.0})
    assert low * high == pytest.approx(100.0) and high / 10 == pytest.approx(np.exp(1.2816 * np.hypot(0.1, 0.05)))


def test_a_band_of_residuals_is_wider_beyond_the_runs() -> None:
    """Each end moves out by what errors beyond all runs add."""
    calibration = Calibration(name="c", coefficients=ONES, residuals={"0.1": -0.1, "0.9": 0.2})
    (low, high), (less, more) = calibration.band(12.0), calibration.band(12.0, beyond=0.1)
    assert less < low and more > high


def test_files_without_a_posterior_are_as_they_were() -> None:
    """Neither field is written where there is none."""
    assert not {"covariance", "noise", "release", "features"} & set(
        Calibration(name="c", coefficients=ONES).model_dump()
    )
    assert {"covariance", "noise"} <= set(posterior().model_dump())


def test_without_residuals_the_band_is_the_prediction() -> None:
    """A calibration that knows no errors claims none."""
    assert Calibration(name="c", coefficients=ONES).band(3.0) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("rings", "experts", "priced"), [(0.5, False, 1 / RING_EFFICIENCY), (0.5, True, 1.0), (1.1, False, 1.1)]
)
def test_overlapped_rings_run_at_the_rate_of_nccl(rings: float, experts: bool, priced: float) -> None:
    """A coefficient below 1 says what is hidden, not how fast rings are; one above 1 is kept."""
    known = Calibration(name="c", coefficients={**ONES, "data_parallel": rings}, experts=experts)
    assert known.overlapped_rings == priced


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"coefficients": {**ONES, "gemm": -1}}, "coefficients.gemm"),
        ({"coefficients": {"gemm": 1.0}}, "coefficients.attention: missing"),
        ({"coefficients": {**ONES, "magic": 1.0}}, "magic: unknown term"),
        ({"coefficients": ONES, "residuals": {"0.1": -1.0}}, "relative error above -1"),
        ({"coefficients": {**ONES, "constant": float("nan")}}, "constant"),
        ({"coefficients": ONES, "covariance": [[1.0], [1.0]]}, "covariance: has rows of"),
        ({"coefficients": ONES, "features": ["magic"]}, "features: is 'magic', expected some of whole-step-graphs"),
    ],
)
def test_wrong_calibrations_are_refused_in_one_line(values: dict[str, object], words: str) -> None:
    """Missing, unknown and negative coefficients and impossible errors name their field."""
    with pytest.raises(DataError, match=words) as refusal:
        Calibration.parse({"name": "c", **values}, "c.yaml")
    assert "\n" not in str(refusal.value)


def test_uncalibrated_device_takes_the_terms_as_they_are() -> None:
    """Traffic at an efficiency of 0.8 is a coefficient of 1 / 0.8; operators, launches and links are as stated."""
    device = catalog_devices()["a100-80gb"]
    found = uncalibrated(device)
    assert found["memory"] == found["optimizer"] == pytest.approx(1 / 0.8)
    assert found["gemm"] == found["attention"] == found["launch"] == 1.0
    assert found["tensor_parallel"] == found["pipeline"] == found["data_parallel"] == 1.0
    assert found["constant"] == 0.0


def test_shipped_calibrations_say_what_they_rest_on() -> None:
    """Every built-in calibration names stack, device, source, samples and its error on unseen runs."""
    shipped = catalog_calibrations()
    assert shipped
    for name, entry in shipped.items():
        assert load_calibration(name) == entry
        assert entry.stack and entry.source and entry.device in catalog_devices()
        assert entry.samples >= 4
        assert entry.mape is not None and entry.mape < 0.3
        assert entry.residuals["0.1"] < entry.residuals["0.9"]


def test_unknown_calibration_is_refused() -> None:
    """The message lists what there is."""
    with pytest.raises(DataError, match="megatron-deepspeed-a100-one"):
        load_calibration("nope")


def test_coefficients_at_a_quantile_are_those_of_the_errors() -> None:
    """An error of -10 % at one tenth: nine tenths of runs take up to 1 / 0.9 of the prediction; logarithms between."""
    given = Calibration(
        name="c", coefficients={**ONES, "data_parallel": 0.5}, residuals={"0.1": -0.1, "0.5": 0.0, "0.9": 0.2}, mape=0.1
    )
    found = given.at_quantile(0.9)
    assert found["gemm"] == pytest.approx(1 / 0.9) and found["data_parallel"] == pytest.approx(0.5 / 0.9)
    # What no run had costs no less than stated, before the quantile is taken.
    assert found["gather"] == pytest.approx(1 / 0.9)
    assert (found.residuals, found.quantile, given.quantile, found.beyond_s) == ({}, 0.9, None, 0.0)
    # 1.282 deviates of a step of 10 s for each unit of deviation.
    assert given.at_quantile(0.9, 10.0).beyond_s == pytest.approx(12.816, abs=1e-3)
    assert found.band(3.0) == (3.0, 3.0)
    assert given.at_quantile(0.7)["gemm"] == pytest.approx((1 / 0.9) ** 0.5)
    # Beyond the outermost error: 2.326 deviates at 0.99, 1.282 at 0.9.
    assert given.at_quantile(0.99)["gemm"] == pytest.approx((1 / 0.9) ** (2.326348 / 1.281552), rel=1e-6)
    beside = given.beside({"d": given.model_copy(update={"name": "other"})}).at_quantile(0.9)
    assert beside.on("d")["gemm"] == pytest.approx(1 / 0.9)
    assert Calibration.parse(found.model_dump(mode="json"), "c.yaml") == found


def test_without_errors_there_is_no_quantile() -> None:
    """A calibration that knows no errors says so in one line."""
    with pytest.raises(DataError, match="c: does not know how far its predictions may be off"):
        Calibration(name="c", coefficients=ONES).at_quantile(0.9)


def test_a_posterior_has_a_quantile_for_every_term() -> None:
    """Deviations of 20 % for products and 10 % for the rest of what is known, with noise of 5 %, at 1.282 deviates."""
    size = len(EXPERT_TERMS)
    variances = [0.04 if term == "gemm" else 0.01 for term in EXPERT_TERMS]
    lower = [[0.0] * k + [variances[k]] for k in range(size)]
    found = Calibration(name="c", coefficients=ONES, covariance=lower, noise=0.05).at_quantile(0.9)
    assert found["gemm"] == pytest.approx(math.exp(1.281552 * 0.25)) and (found.covariance, found.noise) == ([], 0.0)
    assert found["pipeline"] == found["exchange"] == pytest.approx(math.exp(1.281552 * 0.15))
