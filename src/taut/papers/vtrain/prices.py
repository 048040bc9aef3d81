"""
Seconds and memory of vTrain's plans by a calibration of measured runs.

MT-NLG was trained with Megatron-DeepSpeed on A100 of 80 GB. Its plans are priced by the calibration of BLOOM's runs,
the same stack and device, on 1 to 48 nodes; none of MT-NLG's runs is among them. The models of table III are vTrain's,
and are priced by the calibration of vTrain's own runs on 2 to 64 nodes. Links are those of the cluster of the runs, at
which the coefficients were fitted. Memory is by the model fitted on BLOOM's runs, without ZeRO and with ZeRO-1; vTrain
has none.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from taut.data.cluster import ClusterSpec
from taut.data.load import load_calibration, load_cluster, load_memory_model
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB
from taut.errors import ExtrapolationWarning
from taut.papers.vtrain.step import NODE_SIZE, SEQ, Plan, Shape
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
    return Priced(
        seconds,
        low,
        high,
        (plain.memory_bytes or 0) / GIB,
        bool(plain.fits),
        (shared.memory_bytes or 0) / GIB,
        bool(shared.fits),
    )
