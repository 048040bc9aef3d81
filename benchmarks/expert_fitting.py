r"""
Calibrations from measured runs of models with experts: one posterior for all campaigns.

The step time T(c) of a configuration is piecewise linear in the coefficients c, and doubles when they all double. By
Euler's theorem it is then, with its slopes as terms,

(1) :math:`T(c) = \sum_k c_k\, \partial T / \partial c_k`,

of which each part is what the term adds to the step: what other work or replicas hide of it has no slope. Slopes are
differences to slightly larger coefficients, exact but for rounding where no maximum changes its winner between.

``benchmarks.posterior`` fits all campaigns together. One of them has no steps but layers with experts that
this project measured on one H100 (``benchmarks/measured/expert-layers-h100-80gb.csv``), at micro-batches 1 to 8 and
with full recompute, replayed as CUDA graphs: they say what products, attention and memory traffic take where no
published run went.

``PRIOR`` has for each term a mean, a deviation of the logarithm, and a floor. The reasons:

- gemm: dense fits have 1.04 to 1.47, in the mean 1.15. Products in training are no faster than measured alone: 1.
- attention: dense fits with one kernel have 1.1 to 3.3, the median 1.5. Kernels in fp8 take 0.6 of bf16's time, by the
  ratio of FlashAttention-3's figures, which is the least taken.
- memory: dense fits have 0.7 to 4.3, the median 1.27; a stream reaches 0.9 of the peak bandwidth. Fused kernels save a
  quarter of the traffic at most: 0.75.
- launch: the host's time is stated, and its coefficient about 1.
- tensor_parallel, pipeline: links as stated; a part may be hidden, at most 7/8.
- data_parallel: rings reach 0.8 of the links' rate, and are hidden apart.
- gather: nine fits of fully sharded programs have 0.87 to 2.86, in the geometric mean 1.5 with a deviation of 0.37.
- optimizer: 0.8 of the peak bandwidth.
- exchange: DeepEP reports 43 of the cards' 50 GB/s, 1.16; recipes hide up to 37 % behind another micro-batch (NVIDIA on
  Qwen3 30B), 0.7 of it at the least.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.expert_layers import measured_layers
from benchmarks.expert_rows import ExpertCampaign
from benchmarks.posterior import CampaignRuns, Posterior, Prior, TermsAt, fit_posteriors, spread_of
from taut.data.arrays import Flags, Floats
from taut.data.calibration import EXPERT_TERMS, KEPT, Calibration, uncalibrated
from taut.data.samples import ConfigurationRow
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.planning.stack import not_hidden_twice
from taut.prediction.experts import _costs, _problem, _strategy, division_of
from taut.prediction.fitting import gather_slowdown_of, seen_of
from taut.prediction.settings import Given, Setting, find_device, setting_of
from taut.solver.calibration.latency import QUANTILES, outer_quantile
from taut.solver.simple_plans import rank_order

STEP = 1e-6
"""Relative difference of a coefficient by which slopes are taken."""
PRIOR = {
    "gemm": (1.15, 0.12, 1.0),
    "attention": (1.5, 0.4, 0.6),
    "memory": (1.3, 0.3, 0.75),
    "launch": (1.0, 0.4, 0.2),
    "tensor_parallel": (1.0, 0.3, 1 / 8),
    "pipeline": (1.0, 0.3, 1 / 8),
    "data_parallel": (1.1, 0.2, 1 / 8),
    "optimizer": (1.25, 0.1, 1.0),
    "constant": (0.01, 0.3, 0.001),
    "gather": (1.5, 0.37, 0.5),
    "exchange": (1.16, 0.3, 0.7),
}
"""Mean, deviation of the logarithm, and floor of every term."""
RELEASE = "Megatron-Bridge 26.04 to 26.08"
"""The software whose speed the coefficients stand for."""


class Fitted(NamedTuple):
    """A campaign with its runs as the fit has them, and its posterior."""

    campaign: ExpertCampaign
    runs: CampaignRuns
    posterior: Posterior


def prior() -> Prior:
    """``PRIOR`` in the order of ``EXPERT_TERMS``."""
    return Prior(*(np.array([PRIOR[term][column] for term in EXPERT_TERMS]) for column in range(3)))


def fit_experts(campaigns: Sequence[ExpertCampaign]) -> list[Fitted]:
    """Posteriors of all campaigns, fitted together with the measured layers."""
    runs = [runs_of(campaign) for campaign in campaigns]
    found = fit_posteriors([*runs, measured_layers()], prior())
    return [Fitted(*each) for each in zip(campaigns, runs, found, strict=False)]


def unseen_errors(fitted: Sequence[Fitted], folds: int = 10) -> list[Floats]:
    """Prediction / measurement - 1 of every campaign's runs under fits without them, of folds over all campaigns."""
    ends = np.cumsum([0, *(len(each.runs.seconds) for each in fitted)])
    errors, order = np.zeros(ends[-1]), np.random.default_rng(0).permutation(ends[-1])
    for fold in range(folds):
        region = np.isin(np.arange(len(errors)), order[fold::folds])
        errors[region] = 1 / unseen_runs(fitted, region)[0] - 1
    return [errors[begin:end] for begin, end in pairwise(ends)]


def unseen_runs(fitted: Sequence[Fitted], region: Flags) -> tuple[Floats, Floats]:
    """
    What fits without a region say of it: measured over predicted seconds, and the deviation of their logarithm.

    ``region`` is of the runs of all campaigns in their order, (runs,). Terms stay those of the whole fit, since slopes
    do not change between coefficients that are alike. Returns two arrays of the region's runs.
    """
    ends = np.cumsum([0, *(len(each.runs.seconds) for each in fitted)])
    terms = [each.runs.terms(each.posterior.coefficients) for each in fitted]
    kept = []
    for each, own, begin, end in zip(fitted, terms, ends, ends[1:], strict=False):
        rows = np.flatnonzero(~region[begin:end])
        kept.append(each.runs.take(rows)._replace(terms=_fixed(own[rows])))
    ratios, deviations = [], []
    for each, own, found in zip(fitted, terms, fit_posteriors([*kept, measured_layers()], prior()), strict=False):
        parts = own * found.coefficients
        seconds = parts.sum(axis=1)
        ratios.append(each.runs.seconds / seconds)
        deviations.append(spread_of(parts / seconds[:, None], found))
    return np.concatenate(ratios)[region], np.concatenate(deviations)[region]


def _fixed(terms: Floats) -> TermsAt:
    return lambda _: terms


def calibrations_of(fitted: Fitted, errors: Floats) -> list[Calibration]:
    """
    The calibration of a campaign, once for each device that it prices, with errors of unseen runs.

    Its samples are all runs of these machines in this precision, which tell of their kernels and links, waits or not;
    ``errors`` are those of all of them.
    """
    campaign, rows = fitted.campaign, [run.row for run in fitted.campaign.runs]
    every = [*rows, *(run.row for run in campaign.beside)]
    gpus = campaign.gpus or dict.fromkeys(row.gpu for row in every)
    devices, several = [find_device(gpu) for gpu in gpus], bool(campaign.gpus) or len(gpus) > 1
    posterior = fitted.posterior
    triangle = [row[: k + 1].tolist() for k, row in enumerate(posterior.covariance)]
    name = campaign.about["name"]
    return [
        Calibration.model_validate(
            {
                **campaign.about,
                "name": f"{name}-{device.name.split('-')[0]}" if several else name,
                "device": device.name,
                "experts": True,
                "nodes": "any",
                "gather_slowdown": gather_slowdown_of(rows),
                "launch_us": campaign.launch_us,
                "coefficients": dict(zip(EXPERT_TERMS, posterior.coefficients.tolist(), strict=True)),
                "covariance": triangle,
                "noise": posterior.noise,
                "samples": len(every),
                "mape": float(np.abs(errors).mean()),
                "residuals": {str(q): outer_quantile(errors, q) for q in QUANTILES},
                "seen": seen_of([*every, *(run.row for run in campaign.checked)]),
                "release": RELEASE,
                "features": [*campaign.features],
            }
        )
        for device in devices
    ]


def runs_of(campaign: ExpertCampaign) -> CampaignRuns:
    """Runs of a campaign as a fit takes them."""
    rows = [run.row for run in campaign.runs]
    older = {release: number for number, release in enumerate(sorted({run.older for run in campaign.runs}))}
    return CampaignRuns(
        campaign.generation,
        np.array([row.measured_s for row in rows], dtype=float),
        _terms_at([_priced(row, campaign) for row in rows]),
        np.array([older[run.older] if run.older else 0 for run in campaign.runs]),
        campaign.about["name"],
    )


def _priced(row: ConfigurationRow, campaign: ExpertCampaign) -> tuple[ConfigurationRow, Setting]:
    """A row with what prices it but the coefficients."""
    kept = {name: campaign.about[name] for name in (*KEPT, "fused_experts") if name in campaign.about}
    said = {**kept, "launch_us": campaign.launch_us, "experts": True}
    return row, setting_of(row, Given(calibration=uncalibrated(find_device(row.gpu)).model_copy(update=said)))


def seconds_at(row: ConfigurationRow, setting: Setting) -> Callable[[Floats], float]:
    """Seconds of a step as a function of a calibration's coefficients, in the order of ``EXPERT_TERMS``."""
    problem = _problem(row, setting)
    strategy = _strategy(row, problem, division_of(row))
    devices = rank_order(strategy.candidate)

    def seconds(coefficients: Floats) -> float:
        known = {**setting.calibration.model_dump(), "coefficients": dict(zip(EXPERT_TERMS, coefficients, strict=True))}
        calibration = Calibration.model_validate(known)
        if problem.overlap_grad_reduce:
            calibration = not_hidden_twice(calibration)
        costs = _costs(row, setting, problem.model, problem.space, calibration)
        priced = PlanningProblem(
            problem.model,
            problem.cluster,
            costs,
            problem.memory,
            problem.space,
            "step",
            calibration,
            problem.overlap_grad_reduce,
        )
        return float(step_time(priced, strategy, devices).total)

    return seconds


def _terms_at(priced: list[tuple[ConfigurationRow, Setting]]) -> TermsAt:
    functions = [seconds_at(row, setting) for row, setting in priced]

    @lru_cache
    def terms(coefficients: tuple[float, ...]) -> Floats:
        return np.array([_slopes(each, np.array(coefficients)) for each in functions]).reshape(-1, len(coefficients))

    return lambda coefficients: terms(tuple(coefficients.tolist()))


def _slopes(seconds: Any, coefficients: Floats) -> Floats:
    at, steps = seconds(coefficients), STEP * np.maximum(coefficients, STEP)
    found = np.array([seconds(coefficients + each) - at for each in np.diag(steps)]) / steps
    # Passes at the floors of their kernels have no slope; they are products' for the most part.
    found[0] += (at - found @ coefficients) / coefficients[0]
    return np.asarray(found)


def expert_terms(row: ConfigurationRow, given: Given | None = None) -> dict[str, float]:
    """Seconds that each term adds to the predicted step of a row with experts, (1)."""
    setting = setting_of(row, given or Given())
    coefficients = np.array([setting.calibration[term] for term in EXPERT_TERMS])
    parts = _slopes(seconds_at(row, setting), coefficients) * coefficients
    return dict(zip(EXPERT_TERMS, parts.tolist(), strict=True))
