"""What the catalog ships of fits is what the scripts that are named as its source fit today."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy import pulled_to, rounded
from benchmarks.blackwell import fits
from benchmarks.campaigns import campaigns, megatron_bridge_blackwell
from benchmarks.expert_fitting import fit_experts
from benchmarks.expert_rows import campaigns as expert_campaigns
from benchmarks.expert_rows import expert_runs
from benchmarks.memory_accuracy import fitted
from benchmarks.memory_campaigns import memory_campaigns
from taut.data.arrays import Floats
from taut.data.calibration import EXPERT_TERMS, TERMS, Calibration
from taut.data.catalog.builtin import catalog_calibrations, catalog_memory_models
from taut.prediction.fitting import memory_model, samples_of
from taut.prediction.settings import find_device
from taut.solver.calibration.latency import (
    Samples,
    drawn,
    factors_above,
    fit_coefficients,
    stack_of,
)

MEASURED = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "measured"
BRIDGE = "megatron-bridge"
RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""Far above what is rounded, and what other libraries of linear algebra round; far below what any price shows."""

pytestmark = pytest.mark.skipif(not MEASURED.is_dir(), reason="TAUT_SHARED_DATA holds no measured campaigns")


def known_terms(shipped: Calibration, runs: Samples, found: Floats, terms: Sequence[str]) -> None:
    """Assert that a calibration states what was found of every term that the runs have, and of no optional other."""
    present = np.any(runs.terms(found) > 0, axis=0).tolist()
    known = {name: value for name, value, some in zip(terms, found, present, strict=True) if some or name != "gather"}
    assert shipped.coefficients == pytest.approx(known, rel=RELATIVE, abs=ABSOLUTE), shipped.name


def test_calibrations_are_what_their_runs_give() -> None:
    """Coefficients and factors of every campaign at the shipped launch time, pulled to what other fits say of it."""
    known, seen = catalog_calibrations(), set()
    for campaign in campaigns(MEASURED):
        shipped, device = known[campaign.name], find_device(campaign.rows[0].gpu)
        like = pulled_to(campaign, known.values())
        runs = samples_of(campaign.rows, device, campaign.about, stack_of(shipped))
        runs, stated = drawn(runs, device, like, campaign.towards)
        found = fit_coefficients(runs, stated)
        for name, card in (campaign.cards or {campaign.name: device.name}).items():
            assert known[name].device == card
            known_terms(known[name], runs, found, TERMS)
            seen.add(name)
        assert shipped.samples == len(runs.seconds)
        if shipped.layer_factors:
            above = factors_above(runs, found)
            assert above is not None
            assert [one.factor - 1 for one in shipped.layer_factors] == pytest.approx(
                above, rel=RELATIVE, abs=ABSOLUTE
            ), campaign.name
    assert seen == {name for name, one in known.items() if not one.experts and one.stack != BRIDGE}


def test_calibrations_of_blackwell_are_what_their_runs_give() -> None:
    """Coefficients and bands of every precision, the one without runs included, each once for every device."""
    known = catalog_calibrations()
    found, _ = fits(megatron_bridge_blackwell(MEASURED / "megatron_bridge_h100_b200_gb200.csv"))
    for each in found:
        shipped = known[each.name]
        assert shipped.coefficients == pytest.approx(each.coefficients, rel=RELATIVE, abs=ABSOLUTE), each.name
        assert shipped.residuals == pytest.approx(each.residuals, rel=RELATIVE, abs=ABSOLUTE), each.name
        assert (shipped.samples, shipped.seen, shipped.device) == (each.samples, each.seen, each.device)
    assert {each.name for each in found} == {name for name, one in known.items() if one.stack == BRIDGE}


@pytest.mark.proof
def test_calibrations_with_experts_are_what_their_runs_give() -> None:
    """Coefficients, spread and noise of campaigns with experts, each once for every device of theirs."""
    known, seen = catalog_calibrations(), set()
    for each in fit_experts(expert_campaigns(expert_runs(MEASURED))):
        name, found = each.campaign.about["name"], each.posterior
        of_gpus = {f"{name}-{gpu}" for gpu in each.campaign.gpus}
        for shipped in (one for one in known.values() if one.name in of_gpus or (not of_gpus and name in one.name)):
            assert [shipped[term] for term in EXPERT_TERMS] == pytest.approx(found.coefficients, rel=RELATIVE), name
            spread = np.sqrt(np.diag(found.covariance))
            assert [shipped.spread[term] for term in EXPERT_TERMS] == pytest.approx(spread, rel=RELATIVE), name
            assert shipped.noise == pytest.approx(found.noise, rel=RELATIVE)
            seen.add(shipped.name)
    assert seen == {name for name, one in known.items() if one.experts}


def test_memory_models_are_what_their_runs_give() -> None:
    """Coefficients, overheads and margins of every memory model that was fitted, the margins pooled with the others."""
    known = catalog_memory_models()
    every = [fitted(campaign) for campaign in memory_campaigns(MEASURED)]
    for index, one in enumerate(every):
        others = [other.excesses() for other in every[:index] + every[index + 1 :]]
        found = memory_model(one.campaign.rows, one.campaign.about, others=others)
        shipped = known[found.name]
        assert shipped.coefficients == pytest.approx(found.coefficients, rel=RELATIVE, abs=ABSOLUTE), found.name
        for name in ("overhead_gib", "group_overhead_gib", "margin_gib", "mape"):
            assert getattr(shipped, name) == pytest.approx(getattr(found, name), rel=RELATIVE, abs=ABSOLUTE), (
                found.name,
                name,
            )
        assert np.allclose(shipped.excesses_gib, rounded(found.excesses_gib), atol=1e-3), found.name
    assert {one.campaign.name for one in every} == {name for name, one in known.items() if one.excesses_gib}
