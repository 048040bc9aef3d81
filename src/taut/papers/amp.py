r"""
AMP's real trials, priced by our evaluator beside AMP's own predictions.

A trial ran (tmp, dp, pp, micro-batch) with AMP's split of the layers under DeepSpeed, in Megatron-LM's order: tensor
ranks, then replicas, then stages, over nodes of G devices. With :math:`m` micro-batches a step takes

(1) :math:`T = (m - 1) \max_x t_x + \sum_x t_x + T_{PP} + T_{DP} + T_{tied} + T_{opt}`: 1F1B, then blocking
    all-reduces and the optimizer. All but the last two terms are the evaluator's (``taut.formulations.latency``),
    latency model ``amp``;
(2) :math:`t_x`, a stage on its own device type, from AMP's profile at the trial's micro-batch, (11) to (14). It
    includes the all-reduces of tensor groups, so they are not priced again;
(3) :math:`T_{PP}`: one trip there and back in fp16. The :math:`\min(G, tmp \cdot dp)` workers of a stage that leave a
    node send at once and share its rate;
(4) :math:`T_{DP}`: a ring in fp32 (DeepSpeed's ``fp32_allreduce``) over the slowest link, the longest over all stages.
    The :math:`\min(G, tmp)` rings that leave a node share its rate;
(5) :math:`T_{tied}`: first and last stage exchange the fp16 gradient of the embedding, of which both have a copy, and
    the workers of a stage share the node's rate as in (3). The evaluator has no such term;
(6) :math:`T_{opt}`: 30 bytes of memory traffic a parameter for Adam and, where there are replicas, 28 around the
    all-reduce, at the device's stated efficiency; the slowest stage's. AMP's model has no such term.

No figure is fitted to trials. Source: AMP (Li et al., arXiv 2210.07297), and the configuration files of its code.

Trials are rows of a CSV file. The columns are those of AMP's logs:
``mbs,tmp,dp,pp,ds_partition,amp_predicted_s,measured_s`` (others are left alone). ``ds_partition`` holds the cuts
between stages, from 0 to the number of entries, parted by spaces. Seconds that are blank, ``nan`` or ``inf`` were not
recorded: out of memory, a hang and a crash are not told apart.

Agreement says how well predicted seconds order and match measured ones. For trials with measured seconds :math:`y_i >
0` and predictions :math:`p_i`:

(7) Spearman's rho: the correlation of the ranks of p and y, equal values sharing their mean rank;
(8) Kendall's tau-b: pairs in the same order less pairs in opposite order, over the geometric mean of the pairs that p
    and that y tell apart;
(9) regret after k choices: :math:`\min y` over the k trials with the least p, relative to :math:`\min y`, less 1;
(10) mean absolute error: mean of :math:`|p_i / y_i - 1|`.

AMP's profile has the seconds of every layer, forward, at micro-batch 1.

The file has a row for each layer of each series, ``file,layer,seconds``; a series is a model, an AWS instance (G4 is
g4dn with T4, P3 is p3 with V100) and a tensor degree, such as ``gpt2_G4_2``. One process waited for its device after
each layer; the all-reduces of the tensor group are inside. For a layer with :math:`t` seconds at degree :math:`n`,
:math:`M` bytes of output of one sequence and bandwidth :math:`B` inside a node,

(11) equal layers have one cost, their mean: the series of one T4 rises by a fifth over 24 equal layers;
(12) :math:`w`, what grows with the micro-batch b (``taut.data.analytic.micro_batch_scaling``, (1) and (2)), is the
    analytic work of one sequence with an unfused attention core, plus the two all-reduces,
    :math:`2 \cdot 2 (n - 1)/n \cdot M / (0.8 B)`, as NCCL's rings reach 0.76 to 0.89 of nominal link rates (vTrain's
    public tables for A100 and V100); the rest of t is launches, :math:`l = t - w`;
(13) forward :math:`l + b w`, backward :math:`l + 2 b w`, half of it each gradient's. What grows is done twice, as AMP
    assumes; launches are done once: where a layer takes no longer than its launches, backward passes were measured to
    take 0.8 to 1.2 times as long as forward ones (Sailor's profiles of OPT-350M on four A100 and on four GH200);
(14) the loss is not in the series. Unfused, it passes over the fp32 logits: bytes over the device's memory bandwidth at
    its stated efficiency, in the head's seconds.

GPT-2's series have 30 entries: embedding and a transposition, 24 blocks, then another, final norm, head, and the logits
made fp32. TransGAN's have 56, of which 24 are blocks; what upsamples between the two widths is priced with the last
wide block. Source: known_cost of its code.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from taut.data.analytic.device_rates import ELEMENT_BYTES
from taut.data.analytic.layer_costs import OPTIMIZER_TRAFFIC_BYTES, analytic_costs
from taut.data.analytic.micro_batch_scaling import LAW, growing, sequence_seconds
from taut.data.arrays import Floats, Ints
from taut.data.calibration import RING_EFFICIENCY, Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostRow, CostTable, Key
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.load import load_cluster, load_model
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.read import positive_number, read_text, rows_of
from taut.data.suggest import one_of
from taut.data.units import GIGABIT
from taut.errors import DataError, FieldError
from taut.formulations.degrees import divisors
from taut.formulations.gradient_reductions import by_device
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.strategy import Division, Strategy

PROFILE_COLUMNS = ("file", "layer", "seconds")
INSTANCES = {"t4-16gb": "G4", "v100-16gb": "P3"}
PRECISION: Precision = "fp16"
"""Number format of the runs."""
DEGREES = (1, 2, 4)
LOSS_BYTES = (32, 8)
"""Per fp32 logit. Forward: maximum, difference, exponential, sum and quotient read it, and all but maximum and sum
write it; backward: it is scaled in place."""


@dataclass(frozen=True, slots=True)
class AmpLayers:
    """
    Which entries of a model's series are which layers, in order: (kind, first, end, layers), end exclusive.

    As many equal ``layers`` share the entries; where they are fewer, the first entries are the layers, and what follows
    is priced with them.
    """

    length: int
    parts: tuple[tuple[str, int, int, int], ...]

    def blocks_before(self, entry: int) -> int:
        """Blocks among the entries before ``entry``."""
        blocks = [(first, layers) for kind, first, _, layers in self.parts if kind not in (EMBEDDING, HEAD)]
        return sum(min(max(entry - first, 0), layers) for first, layers in blocks)

    @property
    def alike(self) -> set[str]:
        """Kinds of blocks that nothing else is priced with."""
        return {kind for kind, first, end, layers in self.parts if end - first == layers}


AMP_LAYERS = {
    "gpt2": AmpLayers(30, ((EMBEDDING, 0, 2, 1), ("block", 2, 26, 24), (HEAD, 26, 30, 1))),
    "transgan": AmpLayers(56, (("wide", 3, 14, 11), ("upsampling", 14, 41, 1), ("narrow", 41, 53, 12))),
}


def read_amp_profile(path: Path) -> dict[str, list[float]]:
    """Seconds of every layer in order, by series such as ``gpt2_G4_2``."""
    _, lines = rows_of(read_text(path, "AMP's profile"), path, "AMP's profile")
    series: dict[str, list[float]] = {}
    for number, line in enumerate(lines, start=1):
        name, layer, seconds = (line.get(column) for column in PROFILE_COLUMNS)
        if name is None or layer is None or seconds is None:
            raise DataError(f"{path} row {number}: lacks a cell, expected the columns {','.join(PROFILE_COLUMNS)}")
        found = series.setdefault(name, [])
        if layer.strip() != str(len(found)):
            raise DataError(f"{path} row {number}: layer of {name} is {layer!r}, expected {len(found)}")
        found.append(positive_number(seconds, f"{path} row {number}: seconds"))
    if not series:
        raise DataError(f"{path}: has no rows, expected the columns {','.join(PROFILE_COLUMNS)}")
    return series


def amp_costs(
    path: Path,
    name: str,
    model: ModelSpec,
    cluster: ClusterSpec,
    *,
    micro_batches: Iterable[int] = (1,),
    devices: Mapping[str, DeviceSpec] | None = None,
) -> CostTable:
    """Cost table from AMP's profile with all-reduces of tensor groups, (11) to (14); ``devices`` state other rates."""
    series, batches = read_amp_profile(path), sorted(set(micro_batches))
    specs = {**cluster.devices, **(devices or {})}
    rates = {group.device.name: RING_EFFICIENCY * group.intra_bandwidth_gbps * GIGABIT for group in cluster.nodes}
    measured = {key: seconds for device in specs for key, seconds in _measured(series, name, model, device, path)}
    degrees = [tp for tp in DEGREES if all(any(k.tp == tp and k.device == d for k in measured) for d in specs)]
    if not degrees:
        raise DataError(f"{path}: has no tensor degree of {name} on all of {', '.join(specs)}, expected one")
    added = sequence_seconds(model, specs.values(), precision=PRECISION, tensor_degrees=degrees, fused_attention=False)
    kept = analytic_costs(
        model, specs.values(), precision=PRECISION, tensor_degrees=degrees, micro_batches=batches, fused_attention=False
    )
    rows = []
    for row in kept.rows:
        if row.recompute == "none":
            key = row.key._replace(micro_batch=1)
            work = added[key].forward + _reductions(model, key) / rates[key.device]
            growth = growing(measured[key], work, _least(measured, model, key, AMP_LAYERS[name]))
            loss = _loss(model, specs[key.device], key)
            rows.append(_cost_row(row, measured[key] - growth, growth, loss))
    basis = f"AMP's profile {path.name}, {name}, with the all-reduces of tensor groups; {LAW}"
    return CostTable(name=path.stem, basis=basis, rows=rows)


def _measured(
    series: Mapping[str, list[float]], name: str, model: ModelSpec, device: str, path: Path
) -> Iterator[tuple[Key, float]]:
    """Seconds of every kind on a device, by key, (11)."""
    layers = AMP_LAYERS[name]
    seq = {EMBEDDING: model.blocks[0].seq, HEAD: model.blocks[-1].seq, **{k: s.seq for k, s in model.kinds.items()}}
    for tp in DEGREES:
        entries = series.get(f"{name}_{INSTANCES.get(device, device)}_{tp}")
        if entries is None:
            continue
        if len(entries) != layers.length:
            raise DataError(f"{path}: {name} on {device} has {len(entries)} layers, expected {layers.length}")
        for kind, first, end, equal in layers.parts:
            yield Key(device, kind, tp, 1, seq[kind], "none"), sum(entries[first:end]) / equal


def _reductions(model: ModelSpec, key: Key) -> float:
    """Bytes that the two forward all-reduces of one sequence put on each link, (12)."""
    if key.kind not in model.kinds or key.tp == 1:
        return 0.0
    message = ELEMENT_BYTES[PRECISION] * model.kinds[key.kind].output_elements
    return 2 * 2 * (key.tp - 1) / key.tp * message


def _least(measured: Mapping[Key, float], model: ModelSpec, key: Key, layers: AmpLayers) -> float:
    """The least seconds of a block on the same device at the same degree; a layer's own unless it is a block alone."""
    if key.kind not in layers.alike:
        return measured[key]
    return min(measured[key._replace(kind=kind, seq=model.kinds[kind].seq)] for kind in layers.alike)


def _loss(model: ModelSpec, device: DeviceSpec, key: Key) -> tuple[float, float]:
    """Seconds of the loss of one sequence, forward and backward, (14); none but the head's."""
    if key.kind != HEAD:
        return 0.0, 0.0
    logits = key.seq * model.padded_vocab(key.tp) / key.tp
    rate = device.memory_efficiency * device.memory_bandwidth
    forward, backward = LOSS_BYTES
    return forward * logits / rate, backward * logits / rate


def _cost_row(row: CostRow, launches: float, growth: float, loss: tuple[float, float]) -> CostRow:
    """The row's seconds, (13) and (14)."""
    b, (forward, backward) = row.micro_batch, loss
    seconds = {
        "forward_s": launches + b * (growth + forward),
        "input_grad_s": launches / 2 + b * (growth + backward),
        "weight_grad_s": launches / 2 + b * growth,
    }
    return row.model_copy(update=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Rank correlations, None where one side does not tell the trials apart; the rest in shares."""

    spearman: float | None
    kendall: float | None
    regret: float
    regret_top3: float
    regret_top5: float
    mape: float


def agreement(predicted: Floats, measured: Floats) -> Agreement:
    """Agreement of predicted with measured seconds of the same trials (n,), (7) to (10)."""
    both = predicted, measured
    ranks = (rank - rank.mean() for rank in map(_ranks, both))
    signs = (np.sign(np.subtract.outer(seconds, seconds)) for seconds in both)
    return Agreement(
        spearman=_cosine(*ranks),
        kendall=_cosine(*signs),
        regret=_regret(predicted, measured, 1),
        regret_top3=_regret(predicted, measured, 3),
        regret_top5=_regret(predicted, measured, 5),
        mape=float(np.abs(predicted / measured - 1).mean()),
    )


def _ranks(values: Floats) -> Floats:
    ordered = np.sort(values)
    return np.asarray(np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2


def _cosine(a: Floats, b: Floats) -> float | None:
    """Both correlations are cosines: of centred ranks (n,), and of the signs of all differences (n, n)."""
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale > 0 else None


def _regret(predicted: Floats, measured: Floats, choices: int) -> float:
    chosen = np.argsort(predicted, kind="stable")[:choices]
    return float(measured[chosen].min() / measured.min() - 1)


COLUMNS = ("mbs", "tmp", "dp", "pp", "ds_partition", "amp_predicted_s", "measured_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: micro-batch, degrees, cuts of AMP's layers; seconds are infinite where none were recorded."""

    micro_batch: int
    tp: int
    dp: int
    pp: int
    cuts: tuple[int, ...]
    amp_s: float
    measured_s: float


def read_trials(path: Path) -> list[Trial]:
    """Read trials; a ``DataError`` if the file lacks a column, or a row is no trial."""
    try:
        text = read_text(path, "AMP's trials").splitlines()
        lines = csv.DictReader(line for line in text if not line.startswith("#"))
        for column in COLUMNS:
            if column not in (lines.fieldnames or []):
                raise DataError(f"{path}: column {column} is missing, expected {','.join(COLUMNS)}")
        trials = [_trial(cells, f"{path} row {number}") for number, cells in enumerate(lines, start=1)]
    except csv.Error as error:
        raise DataError(f"{path}: {error}, expected AMP's trials") from None
    if not trials:
        raise DataError(f"{path}: has no rows, expected the columns {','.join(COLUMNS)}")
    return trials


def _trial(cells: dict[str, str | None], where: str) -> Trial:
    known = {column: (cells[column] or "").strip() for column in COLUMNS}
    micro_batch, tp, dp, pp = (_count(known[column], f"{where}: {column}") for column in COLUMNS[:4])
    return Trial(
        micro_batch=micro_batch,
        tp=tp,
        dp=dp,
        pp=pp,
        cuts=_cuts(known["ds_partition"], pp, f"{where}: ds_partition"),
        amp_s=_seconds(known["amp_predicted_s"], f"{where}: amp_predicted_s"),
        measured_s=_seconds(known["measured_s"], f"{where}: measured_s"),
    )


def _count(text: str, where: str) -> int:
    if not (re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0):
        raise DataError(f"{where} is {text!r}, expected a whole number above 0")
    return int(text)


def _cuts(text: str, pp: int, where: str) -> tuple[int, ...]:
    cuts = tuple(map(int, re.findall(r"\d{1,6}", text)))
    rising = all(before < after for before, after in pairwise(cuts))
    if not re.fullmatch(r"[\d\s,;\[\]]*", text) or len(cuts) != pp + 1 or cuts[0] != 0 or not rising:
        raise DataError(f"{where} is {text!r}, expected {pp + 1} rising cuts from 0")
    return cuts


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(text or "inf")
    except ValueError:
        raise DataError(f"{where} is {text!r}, expected seconds, inf or nothing") from None
    if seconds <= 0:
        raise DataError(f"{where} is {text!r}, expected seconds above 0")
    return seconds if math.isfinite(seconds) else math.inf


MEMORY = MemoryModel(precision="fp16")
REDUCED = MemoryModel(precision="fp32")
"""What is all-reduced: gradients in fp32."""
CAST_BYTES = 28
"""
A parameter's traffic around an all-reduce in fp32 (DeepSpeed, ``allreduce_bucket`` of its engine): gradients flattened
(2 read, 2 written), made fp32 (2, 4), divided by the replicas (4, 4), made fp16 (4, 2) and copied back (2, 2).
"""
SUSTAINED = {"t4-16gb": 0.6 * 585 / 1590}
"""Share of the peak rate in long runs. A T4's peak is stated at its boost clock, 1590 MHz; within its 70 W only the
base clock, 585 MHz, is sure, and of its rate the T4 is taken to reach the share that the catalog states of a V100."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One of AMP's experiments: cluster and model of our catalog, the model's name in AMP's profile, global batch."""

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
class Reproduction:
    """Trials with our seconds (None: cannot be said), agreements over those that finished and both sides predict."""

    setting: str
    trials: list[Trial]
    ours_s: list[float | None]
    compared: int
    ours: Agreement | None
    amp: Agreement | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values; seconds that were not recorded are None."""
        pairs = zip(self.trials, self.ours_s, strict=True)
        return {
            "setting": self.setting,
            "trials": len(self.trials),
            "compared": self.compared,
            "ours": asdict(self.ours) if self.ours else None,
            "amp": asdict(self.amp) if self.amp else None,
            "rows": [{**_plain(trial), "ours_s": ours} for trial, ours in pairs],
        }

    def __str__(self) -> str:
        """The two predictions, line by line."""
        head = f"amp {self.setting}: {self.compared} of {len(self.trials)} trials finished and are predicted by both"
        names = ("", "Spearman", "Kendall", "regret", "of best 3", "of best 5", "mean error")
        lines = [names, *(_words(*side) for side in (("taut", self.ours), ("AMP", self.amp)))]
        return "\n".join([head, *("  ".join(f"{cell:>10}" for cell in line).rstrip() for line in lines)])


def _plain(trial: Trial) -> dict[str, Any]:
    finite = {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in asdict(trial).items()}
    return {**finite, "cuts": list(trial.cuts)}


def _words(name: str, found: Agreement | None) -> tuple[str, ...]:
    if found is None:
        return (name, *("-",) * 6)
    correlations = ("-" if value is None else f"{value:.3f}" for value in (found.spearman, found.kendall))
    shares = (found.regret, found.regret_top3, found.regret_top5, found.mape)
    return (name, *correlations, *(f"{100 * share:.1f} %" for share in shares))


@dataclass(frozen=True)
class AmpExperiment:
    """A setting with its specs and layer costs; it prices trials."""

    setting: Setting
    model: ModelSpec
    cluster: ClusterSpec
    costs: CostTable
    _problems: dict[tuple[int, str], PlanningProblem] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, name: str, profile: Path) -> "AmpExperiment":
        """The experiment of a name, with costs from AMP's profile."""
        if name not in SETTINGS:
            raise FieldError("setting", name, f"expected {one_of(name, SETTINGS)}")
        setting = SETTINGS[name]
        cluster, model = load_cluster(setting.cluster), load_model(setting.model)
        batches, devices = divisors(setting.global_batch), _sustained(cluster)
        costs = amp_costs(profile, setting.profile, model, cluster, micro_batches=batches, devices=devices)
        return cls(setting, model, cluster, costs)

    def problem(self) -> PlanningProblem:
        """What AMP searches at its own profile: 53 or 65 strategies by its own model, transfers in fp32."""
        space = StrategySpace(
            global_batch=self.setting.global_batch,
            max_tp=self.gpus_per_node,
            zero=[0],
            recompute=["none"],
            sequence_parallel=[False],
            schedules=["1f1b"],
        )
        terms = _coefficients().coefficients | {"pipeline": 1.0}
        return PlanningProblem(
            self.model, self.cluster, self.costs, REDUCED, space, "amp", Calibration(name="amp", coefficients=terms)
        )

    @property
    def gpus_per_node(self) -> int:
        """Devices of a node; AMP's nodes are of one size."""
        return self.cluster.nodes[0].gpus_per_node

    def seconds(self, trial: Trial) -> float | None:
        """Seconds of a trial's step, (1); None where a stage has no block."""
        strategy = self._strategy(trial)
        if any(first == end for first, end in strategy.stages):
            return None
        devices = np.arange(self.cluster.num_devices).reshape(trial.pp, trial.dp, trial.tp)
        hops = step_time(self._problem(self._senders(trial), MEMORY), strategy, devices)
        reduced = self._problem(min(self.gpus_per_node, trial.tp), REDUCED)
        rings = step_time(reduced, strategy, devices)
        model = float(hops.total - hops.data_parallel + rings.data_parallel)
        return model + self._tied(trial) + _update(reduced, strategy, devices)

    def check(self, trial: Trial, where: str) -> None:
        """Refuse a trial of another experiment in one line that begins with ``where``."""
        devices, batch = self.cluster.num_devices, self.setting.global_batch
        length, degrees = AMP_LAYERS[self.setting.profile].length, sorted({row.tp for row in self.costs.rows})
        if trial.pp * trial.dp * trial.tp != devices:
            raise DataError(f"{where}: pp*dp*tmp is {trial.pp * trial.dp * trial.tp}, expected the {devices} devices")
        if batch % (trial.dp * trial.micro_batch):
            raise DataError(
                f"{where}: dp*mbs is {trial.dp * trial.micro_batch}, expected a divisor of the batch {batch}"
            )
        if trial.tp not in degrees:
            raise DataError(f"{where}: tmp is {trial.tp}, expected a degree that the profile has, one of {degrees}")
        if trial.cuts[-1] != length:
            raise DataError(f"{where}: ds_partition ends at {trial.cuts[-1]}, expected the model's {length} layers")

    def _strategy(self, trial: Trial) -> Strategy:
        layers = AMP_LAYERS[self.setting.profile]
        ends = [layers.blocks_before(cut) for cut in trial.cuts]
        m = self.setting.global_batch // trial.dp // trial.micro_batch
        candidate = Candidate(trial.pp, trial.tp, trial.dp, 1, trial.micro_batch, m, "1f1b", 0, False)
        stages = tuple(pairwise(ends))
        return Strategy(candidate=candidate, division=Division(stages, ("none",) * trial.pp))

    def _senders(self, trial: Trial) -> int:
        """Workers of a stage on one node."""
        return min(self.gpus_per_node, trial.tp * trial.dp)

    def _tied(self, trial: Trial) -> float:
        """T_tied, (5)."""
        if trial.pp == 1 or not self.model.tied_embedding:
            return 0.0
        gradient = ELEMENT_BYTES[MEMORY.precision] * self.model.embedding_parameters(trial.tp)
        return gradient * self._senders(trial) / ((self.cluster.network.bandwidth_gbps or math.inf) * GIGABIT)

    def _problem(self, sharing: int, memory: MemoryModel) -> PlanningProblem:
        """The planning problem where so many transfers, of this precision, share the rate between two nodes."""
        key = (sharing, memory.precision)
        if key not in self._problems:
            rate = (self.cluster.network.bandwidth_gbps or math.inf) / sharing
            network = self.cluster.network.model_copy(update={"bandwidth_gbps": rate})
            cluster = self.cluster.model_copy(update={"network": network})
            space = StrategySpace(global_batch=self.setting.global_batch, max_tp=self.gpus_per_node)
            self._problems[key] = PlanningProblem(
                self.model, cluster, self.costs, memory, space, "amp", _coefficients()
            )
        return self._problems[key]


def _update(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> float:
    """T_opt, (6)."""
    specs = [problem.cluster.devices[name] for name in problem.device_types]
    passes = np.array([1 / (spec.memory_bandwidth * spec.memory_efficiency) for spec in specs])
    slowest = passes[problem.type_of_node[problem.links.node_of[devices]]].max(axis=(-1, -2))
    moved = OPTIMIZER_TRAFFIC_BYTES + (CAST_BYTES if strategy.candidate.dp > 1 else 0)
    return float((moved * by_device(strategy, problem.tables(strategy.candidate).parameters) * slowest).max())


def _sustained(cluster: ClusterSpec) -> dict[str, DeviceSpec]:
    """The cluster's devices that cannot hold the clock of their peak, at the share that they hold."""
    return {
        name: device.model_copy(update={"gemm_efficiency": SUSTAINED[name]})
        for name, device in cluster.devices.items()
        if name in SUSTAINED
    }


def _coefficients() -> Calibration:
    """Trips there and back, and no all-reduces of tensor groups beside the profile's, (2) and (4)."""
    terms = dict.fromkeys(("gemm", "attention", "memory", "launch", "data_parallel", "optimizer"), 1.0)
    terms |= {"tensor_parallel": 0.0, "pipeline": 2.0, "constant": 0.0}
    return Calibration(name="amp", coefficients=terms)


def reproduce_amp(setting: str, profile: Path, trials: Path) -> Reproduction:
    """Price the trials of one of ``SETTINGS``, and compare both predictions with the measured seconds."""
    experiment = AmpExperiment.of(setting, profile)
    rows = read_trials(trials)
    for number, trial in enumerate(rows, start=1):
        experiment.check(trial, f"{trials} row {number}")
    ours = [experiment.seconds(trial) for trial in rows]
    known = [math.inf if seconds is None else seconds for seconds in ours]
    table = np.array([known, [row.amp_s for row in rows], [row.measured_s for row in rows]])
    taut, amp, measured = table[:, np.isfinite(table).all(axis=0)]
    some = len(measured) > 0
    return Reproduction(
        setting=setting,
        trials=rows,
        ours_s=ours,
        compared=len(measured),
        ours=agreement(taut, measured) if some else None,
        amp=agreement(amp, measured) if some else None,
    )
