r"""
AMP's real trials, priced by our evaluator beside AMP's own cost model.

A trial ran (tmp, dp, pp, micro-batch b) with AMP's split of the layers under DeepSpeed, in Megatron-LM's order: tensor
ranks, then replicas, then stages, over nodes of G devices. With :math:`m` micro-batches, its step takes

(1) :math:`T = (m - 1) \max_x t_x + \sum_x t_x + T_{PP} + T_{DP} + T_{tied}`: 1F1B, and blocking all-reduces after the
    last backward pass. The evaluator prices all but the last with latency model ``amp``;
(2) :math:`t_x` of a stage's own device type from AMP's profile (``taut.data.ampcost``): forward at micro-batch 1,
    extended to b by the affine law of ``taut.data.microbatch``. The profile includes the all-reduces of tensor groups,
    so they are not priced again;
(3) :math:`T_{PP}`: one trip there and back in fp16. All :math:`\min(G, tmp \cdot dp)` workers that leave a node send
    at once, and share its rate;
(4) :math:`T_{DP}`: one ring in fp32 (``fp32_allreduce``) over the slowest link, the longest over all stages. The
    :math:`\min(G, tmp)` rings that leave a node share its rate;
(5) :math:`T_{tied}`: first and last stage, each with a copy of the embedding, exchange its fp16 gradient, and the
    workers of a node share its rate. The evaluator has no such term.

Nothing is fitted to the trials. Of each prediction the report gives, over the trials that finished, the rank
correlations with the measured seconds, how much slower the first choice (and the best of the first 3 and 5) is than the
best trial, and the mean absolute relative error.

Source: AMP (Li et al., arXiv 2210.07297) and the configuration files of its public code.
"""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut.data.ampcost import AMP_LAYERS, amp_costs
from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.device import DeviceSpec
from taut.data.load import load_cluster, load_model
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.read import read_text
from taut.data.units import GIGABIT
from taut.data.work import ELEMENT_BYTES
from taut.errors import DataError
from taut.formulations.latency import Strategy, step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate, StrategySpace, divisors

Floats = NDArray[np.float64]
MEMORY = MemoryModel(precision="fp16")
REDUCED_BYTES = 4
"""Bytes of a gradient in the all-reduce, fp32."""
SUSTAINED = {"t4-16gb": 0.7 * 585 / 1590}
"""Share of the peak rate in long runs. A T4's peak is stated at its boost clock, 1590 MHz; within its 70 W it is sure of
the base clock alone, 585 MHz, of which it is taken to reach what ``DeviceSpec`` assumes of any peak."""
COLUMNS = ("mbs", "tmp", "dp", "pp", "ds_partition", "amp_predicted_s", "measured_s")


@dataclass(frozen=True, slots=True)
class Setting:
    """One of AMP's three experiments: cluster and model of the catalog, the model's name in the profile."""

    cluster: str
    model: str
    profile: str
    global_batch: int


SETTINGS = {
    "homogeneous": Setting("amp-homogeneous", "gpt2-345m", "gpt2", 32),
    "het_cluster": Setting("amp-heterogeneous", "gpt2-345m", "gpt2", 32),
    "het_model": Setting("amp-unlike-layers", "transgan-generator", "transgan", 64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One row: degrees, micro-batch, cuts of AMP's layers; seconds are infinite where none were recorded."""

    micro_batch: int
    tp: int
    dp: int
    pp: int
    cuts: tuple[int, ...]
    amp_s: float
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How a prediction agrees with measured seconds; None where too few trials say."""

    spearman: float | None
    kendall: float | None
    regret: float
    regret_top3: float
    regret_top5: float
    mape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """Trials with our seconds, and both agreements over the trials that finished and that both predict."""

    setting: str
    trials: list[Trial]
    ours_s: list[float]
    compared: int
    ours: Agreement | None
    amp: Agreement | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values; seconds that are not finite are None."""
        rows = [
            {**asdict(trial), "cuts": list(trial.cuts), "ours_s": ours}
            for trial, ours in zip(self.trials, self.ours_s, strict=True)
        ]
        finite = [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows
        ]
        return {
            "setting": self.setting,
            "trials": len(self.trials),
            "compared": self.compared,
            "ours": asdict(self.ours) if self.ours else None,
            "amp": asdict(self.amp) if self.amp else None,
            "rows": finite,
        }


class AmpCluster:
    """
    Prices of trials of one setting.

    Parameters
    ----------
    setting
        Name of the setting.
    profile
        AMP's profile.
    """

    def __init__(self, setting: str, profile: Path) -> None:
        if setting not in SETTINGS:
            raise DataError(f"--setting {setting}: expected one of {', '.join(SETTINGS)}")
        self.setting = SETTINGS[setting]
        self.cluster, self.model = load_cluster(self.setting.cluster), load_model(self.setting.model)
        self.costs = amp_costs(
            profile,
            self.setting.profile,
            self.model,
            self.cluster,
            micro_batches=divisors(self.setting.global_batch),
            devices=_sustained(self.cluster),
        )
        self._problems: dict[int, PlanningProblem] = {}

    @cached_property
    def degrees(self) -> set[int]:
        """Tensor degrees that the profile prices."""
        return {row.tp for row in self.costs.rows}

    def problem(self, sharing: int) -> PlanningProblem:
        """The planning problem where so many transfers share the rate between two nodes."""
        if sharing not in self._problems:
            self._problems[sharing] = _problem(self.setting, self.model, self.cluster, self.costs, sharing)
        return self._problems[sharing]

    def seconds(self, trial: Trial) -> float:
        """Seconds of a trial's step, (1); not a number where a stage has no block, which our layers cannot say."""
        strategy = self._strategy(trial)
        if any(first == end for first, end in strategy.stages):
            return math.nan
        devices = np.arange(self.cluster.num_devices).reshape(trial.pp, trial.dp, trial.tp)
        gpus = self.cluster.nodes[0].gpus_per_node
        hops = step_time(self.problem(min(gpus, trial.tp * trial.dp)), strategy, devices)
        rings = step_time(self.problem(min(gpus, trial.tp)), strategy, devices)
        return float(hops.total - hops.data_parallel + rings.data_parallel) + self._tied(trial)

    def _strategy(self, trial: Trial) -> Strategy:
        layers = AMP_LAYERS[self.setting.profile]
        ends = [layers.blocks_before(cut) for cut in trial.cuts]
        m = self.setting.global_batch // trial.dp // trial.micro_batch
        candidate = Candidate(trial.pp, trial.tp, trial.dp, 1, trial.micro_batch, m, "1f1b", 0, False)
        stages = tuple(zip(ends[:-1], ends[1:], strict=True))
        return Strategy(candidate=candidate, stages=stages, recompute=("none",) * trial.pp)

    def _tied(self, trial: Trial) -> float:
        """T_tied, (5)."""
        if trial.pp == 1 or not self.model.tied_embedding:
            return 0.0
        gradient = ELEMENT_BYTES[MEMORY.precision] * self.model.embedding_parameters(trial.tp)
        sharing = min(self.cluster.nodes[0].gpus_per_node, trial.tp * trial.dp)
        return gradient * sharing / ((self.cluster.network.bandwidth_gbps or math.inf) * GIGABIT)


def _sustained(cluster: ClusterSpec) -> dict[str, DeviceSpec]:
    """The cluster's devices that cannot hold the clock of their peak, at the share they hold."""
    return {
        name: device.model_copy(update={"gemm_efficiency": SUSTAINED[name]})
        for name, device in cluster.devices.items()
        if name in SUSTAINED
    }


def _problem(
    setting: Setting, model: ModelSpec, cluster: ClusterSpec, costs: CostTable, sharing: int
) -> PlanningProblem:
    between = cluster.network.bandwidth_gbps
    rate = None if between is None else between / sharing
    network = cluster.network.model_copy(update={"bandwidth_gbps": rate})
    shared = cluster.model_copy(update={"network": network})
    space = StrategySpace(global_batch=setting.global_batch, max_tp=cluster.nodes[0].gpus_per_node)
    return PlanningProblem(model, shared, costs, MEMORY, space, "amp", _coefficients())


def _coefficients() -> Calibration:
    """Trips there and back, rings in fp32, no tensor-parallel all-reduces beside the profile's: (2) to (4)."""
    terms = dict.fromkeys(("gemm", "attention", "memory", "launch", "optimizer"), 1.0)
    terms |= {"tensor_parallel": 0.0, "pipeline": 2.0, "constant": 0.0}
    terms["data_parallel"] = REDUCED_BYTES / MEMORY.parameter_bytes.gradient
    return Calibration(name="amp", coefficients=terms)
