r"""
Table I: MT-NLG's training plans and the cheaper ones that vTrain found.

With t seconds a step, n GPUs, I = 68,000 steps (270 billion tokens in steps of 1,920 sequences of 2,048) and q dollars
an hour of a GPU,

(1) days = t I / 86,400, dollars = q n t I / 3,600;
(2) utilisation = F / (n P t), with :math:`F = 72 B s L h^2 (1 + s / 6h + V / 12Lh)` floating-point operations a step
    and P = 312 TFLOP/s, which gives the published column.

Kernels are scaled by one number. For every plan it is fitted on the other five alone: the mean of the scalars at which
each of these takes the published time.

Seconds and memory are those of a calibration of measured runs. MT-NLG was trained with Megatron-DeepSpeed on
A100 of 80 GB. Its plans are priced by the calibration of BLOOM's runs, the same stack and device, on 1 to 48 nodes;
none of MT-NLG's runs is among them. The models of table III are vTrain's, and are priced by the calibration of vTrain's
own runs on 2 to 64 nodes. Links are those of the cluster of the runs, at which the coefficients were fitted. Memory is
by the model fitted on BLOOM's runs, without ZeRO and with ZeRO-1; vTrain has none.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from taut.data.cluster import ClusterSpec
from taut.data.load import load_calibration, load_cluster, load_memory_model
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB
from taut.errors import ExtrapolationWarning
from taut.papers.vtrain.step import NODE_SIZE, SEQ, VOCABULARY, Plan, Shape, step_seconds
from taut.prediction.rows import Prediction, predict_rows
from taut.prediction.settings import Given

STACK, MEMORY = "megatron-deepspeed", "megatron-deepspeed-bloom"
PADDED_VOCABULARY = 51200


@dataclass(frozen=True, slots=True)
class Runs:
    """Measured runs that speak for a plan: their calibration and cluster."""

    calibration: str
    cluster: str

    def cluster_of(self, devices: int) -> ClusterSpec:
        """So many GPUs in nodes and at links of the runs."""
        known = load_cluster(self.cluster)
        group = known.nodes[0].model_copy(update={"count": devices // NODE_SIZE})
        return known.model_copy(update={"name": f"{self.cluster} with {devices} GPUs", "nodes": [group]})


BLOOM = Runs("megatron-deepspeed-bloom", "jean-zay")
VTRAIN = Runs("megatron-deepspeed-a100-many", "vtrain-multi-node")


@dataclass(frozen=True, slots=True)
class Priced:
    """Seconds of a step with their 80 % band, and GiB of the fullest device with the states whole and shared."""

    step_s: float
    low_s: float
    high_s: float
    memory_gib: float
    fits: bool
    zero1_gib: float
    zero1_fits: bool


def priced(runs: Runs, jobs: Sequence[tuple[Shape, Plan]], global_batch: int) -> list[Priced]:
    """Plans of models at micro-batch 1 with full recompute, as vTrain runs them."""
    given = Given(calibration=load_calibration(runs.calibration), memory_model=load_memory_model(MEMORY))
    rows = [_row(runs, shape, plan, global_batch, zero) for zero in (0, 1) for shape, plan in jobs]
    with warnings.catch_warnings():
        # MT-NLG is larger than the runs that the memory model was fitted on, which the page of results says once.
        warnings.simplefilter("ignore", ExtrapolationWarning)
        found = predict_rows(rows, given)
    return [_priced(plain, shared) for plain, shared in zip(found[: len(jobs)], found[len(jobs) :], strict=True)]


def _row(runs: Runs, shape: Shape, plan: Plan, global_batch: int, zero: int) -> ConfigurationRow:
    tensor, data, stages = plan
    return ConfigurationRow(
        gpu="A100",
        n_gpus=tensor * data * stages,
        gpus_per_node=NODE_SIZE,
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        seq=SEQ,
        vocab=PADDED_VOCABULARY,
        tied_embedding=True,
        tp=tensor,
        pp=stages,
        dp=data,
        global_batch=global_batch,
        recompute="full",
        zero=zero,
        precision="fp16",
        stack=STACK,
        cluster=runs.cluster,
    )


def _priced(plain: Prediction, shared: Prediction) -> Priced:
    seconds, (low, high) = plain.step_time_s or 0.0, plain.band or (0.0, 0.0)
    whole, parts = (((each.memory_bytes or 0) / GIB, bool(each.fits)) for each in (plain, shared))
    return Priced(seconds, low, high, *whole, *parts)


MT_NLG, GLOBAL_BATCH, STEPS = Shape(105, 20480, 128), 1920, 68_000
PRICE = 5.0
"""Dollars an hour of a GPU: the published 11,200 an hour of 2,240 GPUs."""
PEAK_FLOPS = 312e12
BASELINE, FOUND = "MT-NLG", "vTrain"


@dataclass(frozen=True, slots=True)
class Published:
    """A line of table I, and the seconds that MT-NLG's own paper measured (arXiv 2201.11990, section 5)."""

    whose: str
    plan: Plan
    step_s: float
    days: float
    utilisation: float
    dollars: float
    measured_s: float | None = None


TABLE = (
    Published(BASELINE, (8, 8, 35), 45.40, 35.73, 0.4003, 9.60e6, 60.1),
    Published(BASELINE, (8, 10, 35), 37.23, 29.30, 0.3905, 9.84e6, 50.2),
    Published(BASELINE, (8, 12, 35), 31.78, 25.01, 0.3813, 10.08e6, 44.4),
    Published(FOUND, (8, 12, 21), 48.37, 38.07, 0.4175, 9.21e6),
    Published(FOUND, (8, 15, 21), 39.55, 31.13, 0.4084, 9.41e6),
    Published(FOUND, (8, 24, 15), 34.61, 27.24, 0.4084, 9.41e6),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A plan: as published, by vTrain's rules with a scalar of the other plans, and by our calibration."""

    published: Published
    scalar: float
    rules_s: float
    ours: Priced
    price: float

    @property
    def gpus(self) -> int:
        """GPUs of the plan."""
        return gpus(self.published.plan)

    @property
    def rules_error(self) -> float:
        """Error of vTrain's rules here against the published prediction."""
        return self.rules_s / self.published.step_s - 1

    @property
    def measured_error(self) -> float | None:
        """Error of our calibration against the measured run, where there is one."""
        measured = self.published.measured_s
        return None if measured is None else self.ours.step_s / measured - 1

    def days(self, step_s: float) -> float:
        """Days of the training, (1)."""
        return step_s * STEPS / 86_400

    def dollars(self, step_s: float) -> float:
        """Dollars of the training, (1)."""
        return self.price * self.gpus * step_s * STEPS / 3_600

    def utilisation(self, step_s: float) -> float:
        """Share of the GPUs' peak, (2)."""
        return step_flops(MT_NLG, GLOBAL_BATCH) / (self.gpus * PEAK_FLOPS * step_s)


def gpus(plan: Plan) -> int:
    """GPUs of a plan."""
    return plan[0] * plan[1] * plan[2]


def step_flops(shape: Shape, global_batch: int) -> float:
    """Floating-point operations of a step, F of (2)."""
    layers, hidden = shape.layers, shape.hidden
    rest = SEQ / (6 * hidden) + VOCABULARY / (12 * layers * hidden)
    return 72.0 * global_batch * SEQ * layers * hidden**2 * (1 + rest)


GPT_3, GPT_3_TOKENS, GPT_3_GPUS = Shape(96, 12288, 96), 300e9, 1024
"""Of figure 1. The paper states no tokens; GPT-3 was trained on these."""


def gpt3_days(utilisation: float) -> float:
    """Days of GPT-3 175B at a share of the GPUs' peak, figure 1."""
    return step_flops(GPT_3, 1) / SEQ * GPT_3_TOKENS / (GPT_3_GPUS * PEAK_FLOPS * utilisation) / 86_400


def fitted(lines: Sequence[Published]) -> float:
    """The mean of the scalars at which each line takes its published time."""
    return sum(_scalar(line) for line in lines) / len(lines)


def _scalar(line: Published) -> float:
    """The scalar of one line by the secant rule; seconds are nearly linear in it."""
    low, high = 1.0, 1.2
    seconds = [step_seconds(MT_NLG, line.plan, GLOBAL_BATCH, each) for each in (low, high)]
    for _ in range(8):
        slope = (seconds[1] - seconds[0]) / (high - low)
        low, high = high, high + (line.step_s - seconds[1]) / slope
        seconds = [seconds[1], step_seconds(MT_NLG, line.plan, GLOBAL_BATCH, high)]
        if abs(high - low) < 1e-9:
            break
    return high


def table_one(price: float = PRICE) -> list[Row]:
    """All lines of table I."""
    ours = priced(BLOOM, [(MT_NLG, line.plan) for line in TABLE], GLOBAL_BATCH)
    scalars = [fitted([other for other in TABLE if other is not line]) for line in TABLE]
    return [
        Row(line, scalar, step_seconds(MT_NLG, line.plan, GLOBAL_BATCH, scalar), found, price)
        for line, scalar, found in zip(TABLE, scalars, ours, strict=True)
    ]
