r"""
How far predictions are off where no run has been, and what a choice by them costs.

Run ``python -m benchmarks.regions DATA``. DATA is a folder with the campaigns' files (``benchmarks/campaigns.py``,
``benchmarks/expert_rows.py``); none is part of the project.

The first table leaves out a region of a campaign's runs, such as all with micro-batches above 1, fits the rest, and
predicts the region. Its band is the fit's own, once as it is and once widened as ``taut predict`` and ``taut plan``
widen it: by a deviation :math:`s_k` for each kind k of fields in which a run is like none of the others
(``taut.data.seen``). Models, scales and releases are left out one after another, and their errors stand
together. Runs with experts are fitted as posteriors, of all campaigns together; a region is left out of all of them.

The deviations are variance components. Let run i of region r have the logarithmic error :math:`e_i`, the fit's own
deviation :math:`\sigma_i` on the side of the error, and the distance :math:`d_{ik}` beyond the other runs in kind k.
Non-negative least squares solve

(1) :math:`\sum_k s_k^2 \sum_{i \in r} d_{ik} / |r| = Q_{0.8}(e_i^2 / z^2 - \sigma_i^2)^+` for all regions r,

with z = 1.28, and :math:`s_k = \sigma_0` for every kind, counted as :math:`\nu` regions (``benchmarks.posterior``). A
region counts once, as its runs err together. The band of a campaign takes deviations from all other campaigns. The
third table has the deviations from all of them, which ``taut.data.seen.DEVIATIONS`` states.

The second table chooses. Where a job ran with several plans, the fit without this job's runs picks the plan that it
predicts to be fastest. Surprise is how much slower the picked plan ran than predicted, regret how much slower it ran
than the best of the job's plans.

The fourth table asks what a gain beyond the runs comes to. A fit without a region picks the region's plan of a job that
it predicts to be fastest. The gain is the seconds of the job's fastest run outside the region over those of the plan,
less 1: promised with the predicted seconds, shown with the measured ones. Jobs without a promised gain do not count.

``--chunks`` prints another table alone: interleaved runs with one layer a chunk, predicted by fits without them.

``--devices`` prints one more table alone: runs of a device and number format, predicted at the losses of the same
framework's nearest runs on another chip (``taut.data.stack.borrowed``). The root mean square of the mean errors is
``taut.data.seen.DEVICE_DEVIATION``.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.accuracy import as_table, pulled_to
from benchmarks.blackwell import LIKE, PRECISIONS, samples_together, unseen_errors
from benchmarks.campaigns import campaigns, megatron_bridge_blackwell
from benchmarks.expert_fitting import fit_experts, unseen_runs
from benchmarks.expert_rows import ExpertCampaign, expert_runs
from benchmarks.expert_rows import campaigns as expert_campaigns
from benchmarks.posterior import COUNTED, PRIOR_NOISE
from benchmarks.runs import Campaign
from taut.data.arrays import Flags, Floats, Ints
from taut.data.calibration import BAND_WIDTH, HIGH, LOW, TERMS
from taut.data.catalog.builtin import catalog_calibrations
from taut.data.device import HALF, usual_precision
from taut.data.samples import ConfigurationRow
from taut.data.seen import ANY, DEVIATIONS, distances_by_kind
from taut.data.stack import borrowed, distance
from taut.prediction.fitting import samples_of, seen_of
from taut.prediction.rows import predict_rows
from taut.prediction.settings import Given, find_device
from taut.solver.calibration.latency import (
    FEWEST,
    Samples,
    cross_validate,
    drawn,
    factors_above,
    fit_coefficients,
    predicted_seconds,
    stack_of,
)

FEWEST_LEFT_OUT = 3
KIND_NAMES = tuple(DEVIATIONS)


class Unseen(NamedTuple):
    """Logarithms of measured over predicted seconds of unseen runs, and the ends of their 80 % band, all (runs,)."""

    errors: Floats
    low: Floats
    high: Floats

    def widened(self, deviations: Floats) -> "Unseen":
        """With a band as of steps that are beyond all runs by so much, (runs,)."""
        more = BAND_WIDTH * deviations
        return self._replace(low=-np.hypot(self.low, more), high=np.hypot(self.high, more))

    @property
    def excess(self) -> float:
        """Square of the deviation that the band lacks to hold 80 % of the runs, the right side of (1)."""
        own = np.where(self.errors < 0, self.low, self.high)
        return max(float(np.quantile(self.errors**2 - own**2, HIGH - LOW)), 0.0) / BAND_WIDTH**2

    @property
    def covered(self) -> float:
        """Share of runs inside the band."""
        return float(np.mean((self.low <= self.errors) & (self.errors <= self.high)))


Predict = Callable[[Flags], Unseen]
"""What a fit without some runs, (runs,), says of them."""


class Study(NamedTuple):
    """A campaign's rows, models, older releases, which runs one calibration has seen, and fits without some of them."""

    name: str
    rows: list[ConfigurationRow]
    models: list[str]
    releases: list[str]
    together: list[str]
    without: Predict

    def kinds_beyond(self, region: Flags) -> Floats:
        """How far each run of a region is beyond the other runs of its calibration in each kind, (runs, kinds)."""
        kept: dict[str, list[ConfigurationRow]] = defaultdict(list)
        for place in np.flatnonzero(~region):
            kept[self.together[place]].append(self.rows[place])
        every = [row for rows in kept.values() for row in rows]
        seen = {name: seen_of(rows) for name, rows in kept.items()}
        usual = usual_precision([find_device(every[0].gpu)])
        places = np.flatnonzero(region)
        known = [seen.get(self.together[place]) or seen_of(every) for place in places]
        fields = [one.fields_beyond(self.rows[k], usual) for one, k in zip(known, places, strict=True)]
        return np.array([kinds_of(each) for each in fields])


def kinds_of(fields: Mapping[str, float]) -> Floats:
    """Distances of fields by the kinds of ``DEVIATIONS``, (kinds,): any other field is one by itself."""
    found = np.zeros(len(KIND_NAMES))
    for kind, far in distances_by_kind(fields).items():
        found[KIND_NAMES.index(kind if kind in DEVIATIONS else ANY)] += far
    return found


def dense(campaign: Campaign) -> Study:
    """A campaign that is fitted by least squares, with a band of errors of ten folds."""
    known = catalog_calibrations()
    shipped, device = known[campaign.name], find_device(campaign.rows[0].gpu)
    like = pulled_to(campaign, known.values())
    runs = samples_of(campaign.rows, device, campaign.about, stack_of(shipped))
    runs, stated = drawn(runs, device, like, campaign.towards)

    def without(region: Flags) -> Unseen:
        kept, count = runs.take(np.flatnonzero(~region)), int(region.sum())
        ends = -np.log1p(np.quantile(cross_validate(kept, stated, plans=True), (HIGH, LOW)))
        errors = np.log(runs.seconds / _predicted(runs, kept, stated, bool(shipped.layer_factors)))[region]
        return Unseen(errors, np.full(count, min(ends[0], 0.0)), np.full(count, max(ends[1], 0.0)))

    models = [f"{row.layers} x {row.hidden}" for row in campaign.rows]
    alone = [""] * len(models)
    return Study(campaign.name, campaign.rows, models, alone, alone, without)


def _predicted(runs: Samples, kept: Samples, stated: Floats, factors: bool) -> Floats:
    coefficients = fit_coefficients(kept, stated)
    return predicted_seconds(runs, coefficients, factors_above(kept, coefficients) if factors else None)


def with_experts(every: Sequence[ExpertCampaign]) -> Study:
    """All campaigns with experts, fitted as posteriors together."""
    fitted, runs = fit_experts(every), [run for campaign in every for run in campaign.runs]

    def without(region: Flags) -> Unseen:
        ratios, deviations = unseen_runs(fitted, region)
        return Unseen(np.log(ratios), -BAND_WIDTH * deviations, BAND_WIDTH * deviations)

    models, releases = [run.model for run in runs], [run.older or "newest" for run in runs]
    together = [each.about["name"].replace("eager", "hgx") for each in every for _ in each.runs]
    return Study("with experts", [run.row for run in runs], models, releases, together, without)


def regions(study: Study) -> Iterator[tuple[str, list[Flags]]]:
    """Regions of a study by name, each of parts that are left out one after another."""
    rows = study.rows
    yield "micro-batch above 1", [np.array([row.micro_batch > 1 for row in rows])]
    yield "full recompute", [np.array([row.recompute == "full" for row in rows])]
    yield "ZeRO-2 or 3", [np.array([row.zero >= 2 for row in rows])]
    yield "no shards", [np.array([row.zero < 2 for row in rows])]
    yield "pipelines", [np.array([row.pp > 1 for row in rows])]
    yield "each model", [np.array(study.models) == model for model in sorted(set(study.models))]
    sizes = np.array([row.n_gpus for row in rows])
    yield "larger scale", [sizes > np.median(sizes)]
    yield "smaller scale", [sizes < np.median(sizes)]
    yield "each release", [np.array(study.releases) == one for one in sorted(set(study.releases))]


class Region(NamedTuple):
    """
    A region of a campaign, with what fits without it say of its runs.

    ``kinds`` (runs, kinds) are the runs' kinds beyond, ``gains`` (jobs, 2) logarithms of 1 + gain, promised and shown.
    """

    campaign: str
    left_out: str
    unseen: Unseen
    kinds: Floats
    gains: Floats


def regions_of(study: Study) -> Iterator[Region]:
    """Each region that leaves enough runs, and some out."""
    for name, parts in regions(study):
        parts = [part for part in parts if part.any() and (~part).sum() >= FEWEST]
        if sum(part.sum() for part in parts) < FEWEST_LEFT_OUT or (name.startswith("each") and len(parts) < 2):
            continue
        each = [study.without(part) for part in parts]
        found = Unseen(*(np.concatenate(column) for column in zip(*each, strict=True)))
        kinds = np.concatenate([study.kinds_beyond(part) for part in parts])
        gains = [gains_of(study, part, own.errors) for part, own in zip(parts, each, strict=True)]
        yield Region(study.name, name, found, kinds, np.concatenate(gains))


def gains_of(study: Study, part: Flags, errors: Floats) -> Floats:
    """Logarithms of 1 + gain, (jobs, 2), of a part of a region over the fastest run of each job outside it."""
    seconds = np.log(np.array([row.measured_s for row in study.rows], dtype=float))
    predicted = seconds.copy()
    predicted[part] -= errors
    found = []
    for places in jobs_of(study):
        inside, outside = places[part[places]], places[~part[places]]
        if len(inside) and len(outside):
            picked, fastest = inside[np.argmin(predicted[inside])], seconds[outside].min()
            found.append((fastest - predicted[picked], fastest - seconds[picked]))
    return np.array([each for each in found if each[0] > 0]).reshape(-1, 2)


def gain_lines(every: Sequence[Region]) -> Iterator[dict[str, Any]]:
    """A line for each region with gains, and one of the mean region."""
    some = [region for region in every if len(region.gains)]
    means = [region.gains.mean(axis=0) for region in some]
    lines = [(one.campaign, one.left_out, len(one.gains), mean) for one, mean in zip(some, means, strict=True)]
    lines.append(("mean of the regions", "-", sum(len(one.gains) for one in some), np.mean(means, axis=0)))
    for campaign, left_out, jobs, mean in lines:
        line = {"campaign": campaign, "left out": left_out, "jobs": jobs}
        yield line | dict(zip(("promised gain %", "shown gain %"), 100 * np.expm1(mean), strict=True))


def deviations_by(every: Sequence[Region]) -> Floats:
    """Deviation of each kind of ``DEVIATIONS`` by regions, (1), (kinds,)."""
    shares = [region.kinds.mean(axis=0) for region in every] + [*COUNTED**0.5 * np.eye(len(KIND_NAMES))]
    squares = [region.unseen.excess for region in every] + [COUNTED**0.5 * PRIOR_NOISE**2] * len(KIND_NAMES)
    return np.asarray(np.sqrt(nnls(np.array(shares), np.array(squares))[0]))


def region_line(region: Region, every: Sequence[Region]) -> dict[str, Any]:
    """A line of the first table, with the band by the other campaigns of all regions."""
    others = [other for other in every if other.campaign != region.campaign]
    deviations = np.sqrt(region.kinds @ deviations_by(others) ** 2)
    errors = np.exp(-region.unseen.errors) - 1
    return {
        "campaign": region.campaign,
        "left out": region.left_out,
        "runs": len(errors),
        "mean error %": 100 * errors.mean(),
        "MAPE %": 100 * np.abs(errors).mean(),
        "in the band %": 100 * region.unseen.covered,
        "in the widened band %": 100 * region.unseen.widened(deviations).covered,
    }


def jobs_of(study: Study) -> list[Ints]:
    """Places of the runs of every job that ran with several plans."""
    jobs: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for place, row in enumerate(study.rows):
        shape = row.hidden, row.layers, row.attention_heads, row.seq, row.num_experts
        jobs[row.gpu, row.n_gpus, row.global_batch, row.precision, *shape].append(place)
    return [np.array(places) for places in jobs.values() if len(places) > 1]


def choice_line(study: Study) -> dict[str, Any] | None:
    """Surprise and regret of a study's choices; None where no job ran with several plans."""
    jobs = jobs_of(study)
    if not jobs:
        return None
    surprise, regret = [], []
    seconds = np.array([row.measured_s for row in study.rows], dtype=float)
    for places in jobs:
        region = np.zeros(len(seconds), dtype=bool)
        region[places] = True
        if (~region).sum() < FEWEST:
            continue
        errors = study.without(region).errors
        picked = int(np.argmin(seconds[places] / np.exp(errors)))
        surprise.append(np.exp(errors[picked]) - 1)
        regret.append(seconds[places][picked] / seconds[places].min() - 1)
    return {
        "campaign": study.name,
        "jobs": len(surprise),
        "plans": int(sum(map(len, jobs))),
        "mean surprise %": 100 * float(np.mean(surprise)),
        "largest surprise %": 100 * float(np.max(surprise)),
        "mean regret %": 100 * float(np.mean(regret)),
        "largest regret %": 100 * float(np.max(regret)),
    }


def studies(folder: Path, only: str = "") -> Iterator[Study]:
    """All campaigns whose names have these words."""
    if only in "with experts":
        yield with_experts(expert_campaigns(expert_runs(folder)))
    for campaign in campaigns(folder):
        if len(campaign.rows) >= 2 * FEWEST and only in campaign.name:
            yield dense(campaign)


def chunk_lines(every: Iterable[Study]) -> Iterator[dict[str, Any]]:
    """A line of each study with interleaved runs of at most one layer a chunk and enough others."""
    for study in every:
        part = np.array([row.vpp > 1 and row.layers <= row.pp * row.vpp for row in study.rows])
        if part.sum() >= FEWEST_LEFT_OUT and (~part).sum() >= FEWEST:
            errors = 100 * np.expm1(-study.without(part).errors)
            line = {"campaign": study.name, "runs": len(errors), "others": int((~part).sum())}
            chunks = {each.vpp for each, one in zip(study.rows, part, strict=True) if one}
            line |= {"chunks a device": f"{min(chunks)} to {max(chunks)}"}
            yield line | {"mean error %": errors.mean(), "MAPE %": np.abs(errors).mean()}


FRAMEWORKS = {"nemo": "megatron", "megatron-bridge": "megatron", "torchtitan": "torchtitan", "llm-foundry": "llm"}
"""Frameworks by how the names of their campaigns begin."""


def device_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """A line for every device and number format whose framework ran on another chip, and their root mean square."""
    means = []
    for lender, campaign, rows, errors in [*lent(folder), *left_out_devices(folder)]:
        means.append(float(errors.mean()))
        yield {
            "device": rows[0].gpu.upper(),
            "precision": rows[0].precision,
            "campaign": campaign,
            "runs": len(rows),
        } | {
            "at the losses of": lender,
            "mean error %": 100 * means[-1],
            "deviation %": 100 * float(errors.std()),
        }
    words = {"device": "root mean square", "precision": "", "campaign": "", "runs": "", "at the losses of": ""}
    yield words | {"mean error %": 100 * float(np.sqrt(np.mean(np.square(means)))), "deviation %": ""}


Lent = tuple[str, str, list[ConfigurationRow], Floats]
"""Whose losses, and of what campaign which runs they price, with the logarithms of predicted over measured seconds."""


def lent(folder: Path) -> Iterator[Lent]:
    """Runs at the losses of the same framework's nearest runs on another chip, as a plan without runs is priced."""
    known = [one for one in catalog_calibrations().values() if not one.experts and "no" not in one.source.split()]
    for campaign in campaigns(folder):
        framework = framework_of(campaign.name)
        if not framework:
            continue
        for gpu, precision in dict.fromkeys((row.gpu, row.precision) for row in campaign.rows):
            device, alike = find_device(gpu), HALF if precision in HALF else (precision,)
            others = [one for one in known if framework_of(one.name) == framework]
            others = [one for one in others if chip_of(one.device) != chip_of(gpu) and one.precision in (None, *alike)]
            if not others:
                continue
            nearest = min(others, key=lambda one: distance(one.device, {device.name: device}))
            rows = [row for row in campaign.rows if (row.gpu, row.precision) == (gpu, precision)]
            found = predict_rows(rows, Given(calibration=borrowed(nearest, [device], precision)))
            seconds = np.array([one.step_time_s for one in found], dtype=float)
            yield nearest.name, campaign.name, rows, np.log(seconds / [row.measured_s or np.nan for row in rows])


def left_out_devices(folder: Path) -> Iterator[Lent]:
    """Runs on Blackwell, whose devices share coefficients, under fits without their device's runs."""
    campaign, like = (
        megatron_bridge_blackwell(folder / "megatron_bridge_h100_b200_gb200.csv"),
        catalog_calibrations()[LIKE],
    )
    for precision in PRECISIONS:
        rows = [row for row in campaign.rows if row.precision == precision]
        runs = samples_together(rows, {**campaign.about, "cluster": ""}, like)
        errors = np.log1p(unseen_errors(runs, [row.gpu for row in rows], np.array([like[term] for term in TERMS])))
        for gpu in dict.fromkeys(row.gpu for row in rows):
            mine = np.array([row.gpu == gpu for row in rows])
            own = [row for row in rows if row.gpu == gpu]
            yield "the other devices", campaign.name, own, errors[mine]


def framework_of(name: str) -> str:
    """The framework of a campaign or calibration, empty for one of a single device."""
    return next((framework for start, framework in FRAMEWORKS.items() if name.startswith(start)), "")


def chip_of(device: str) -> str:
    """The chip of a card: B200 of GB200."""
    return device.partition("-")[0].removeprefix("g")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="", help="words of campaigns' names")
    parser.add_argument("--devices", action="store_true", help="devices without runs alone")
    parser.add_argument("--chunks", action="store_true", help="runs with one layer a chunk alone")
    options = parser.parse_args()
    if options.chunks:
        print(as_table([*chunk_lines(studies(options.data, options.only))]))
        return
    if options.devices:
        print(as_table([*device_lines(options.data)]))
        return
    every = [*studies(options.data, options.only)]
    found = [region for study in every for region in regions_of(study)]
    lines = [region_line(region, found) for region in found]
    choices = [line for line in map(choice_line, every) if line is not None]
    print(as_table(lines))
    if choices:
        print("\n" + as_table(choices))
    kinds = zip(KIND_NAMES, deviations_by(found).tolist(), strict=True)
    print("\n" + as_table([{"beyond all runs in": name, "deviation %": 100 * each} for name, each in kinds]))
    if any(len(region.gains) for region in found):
        print("\n" + as_table([*gain_lines(found)]))


if __name__ == "__main__":
    main()
