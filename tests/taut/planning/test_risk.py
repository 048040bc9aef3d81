"""The quantile of a step time: prices at their quantiles, a bound that holds there, and what is refused."""

from typing import Any

import pytest

import taut
from taut.planning.summary import summary
from tests.taut.conftest import Run, refused

OPTIONS: dict[str, Any] = {"global_batch": 32}
FIX: dict[str, int | str] = {"pp": 2, "tp": 1, "micro_batch": 2, "schedule": "1f1b"}


@pytest.mark.proof
def test_a_plan_at_a_quantile_is_the_plan_at_the_prices_there() -> None:
    """All errors of runs without covariance are one factor, so that the plan is the same and the step takes longer."""
    usual = taut.plan("gpt2-345m", "dgx-h100", fix=FIX, **OPTIONS)
    risky = taut.plan("gpt2-345m", "dgx-h100", fix=FIX, risk=0.9, **OPTIONS)
    named = usual.document["inputs"]["calibration"]["name"]
    factor = 1 / (1 + taut.load_calibration(named).residuals["0.1"])
    assert factor > 1.02 and risky.step_time_s == pytest.approx(factor * usual.step_time_s, rel=2e-3)
    assert risky.lower_bound_s is not None and risky.lower_bound_s <= risky.step_time_s
    assert risky.strategy.micro_batch == usual.strategy.micro_batch
    assert risky.document["inputs"]["calibration"]["spec"]["quantile"] == 0.9
    words = summary(risky.sections, width=200)
    assert "90 % of runs are expected within the step time" in words and "80 % of runs" not in words
    assert risky.verify().holds


@pytest.mark.parametrize("risk", ["0.5", "1", "-1", "nan"])
def test_the_command_refuses_a_risk_out_of_range(run: Run, risk: str) -> None:
    """In one line, as bad usage."""
    asked = ["plan", "gpt2-345m", "dgx-a100", "--global-batch", "32", "--risk", risk]
    refused(run(*asked), "expected a quantile above 0.5 and below 1, such as 0.9")


def test_the_command_refuses_a_risk_of_unknown_prices(run: Run) -> None:
    """The papers' prices have no calibration, and one for another device knows no errors."""
    asked = ["plan", "gpt2-345m", "dgx-a100", "--global-batch", "32", "--risk", "0.9"]
    refused(run(*asked, "--latency-model", "pipette"), "no calibration is used, expected one that knows")
