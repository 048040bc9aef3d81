r"""
HETHUB's heterogeneous clusters: its efficiencies beside ours, and beside the best that its space could have.

With types i of device, :math:`n_i` of each, :math:`r_i` the throughput of a device in a cluster of its type alone, and
r the throughput of a device in the mixed cluster, the paper reports

(1) :math:`e = r \sum_i n_i / \sum_i n_i r_i`,

the share of the throughput that the types have apart. Ours are priced as follows. A device of type i is so fast that
the paper's plan for ten nodes of its type alone, ten even stages without tensor parallelism, has the published
throughput. In the mixed cluster, with the paper's number of stages, are set side by side: even stages; stages by
HETHUB's rule of load balance (``taut.solver.methods.baselines``); the best plan of the space; and (1) of its
lower bound. It may be above one, since the best plan need not be as even as those of the types alone.

Figure 6 a is of Llama 2 7B: (2) tokens a second of a device by HETHUB's rule with 12 stages on one node of AMD and five
of A, and (3) their ratio to those of even stages on six nodes of A alone with 6 stages.

Stated in the paper: Llama 2 70B, 80 layers; AMD and A as 1 to 5 with 12 stages, no tensor parallelism and a global
batch of 2048 for every six nodes; AMD and C on 120 nodes; two mixed nodes of Nvidia and A, and of AMD and B; the
throughput or utilisation of every type alone; links and what they reach; layers of the stages for AMD and C. Assumed:
the types' speed with 70 billion parameters for 7 billion too; sequence 4096, fp16; PCIe inside a node; 64 GiB a device;
equal peaks where utilisations are given, since their plain mean is called the ideal. Two nodes cannot hold 70B
parameters in any memory of the time, so memory is left out there, with 16 stages and a batch of 680.

Of table 1 there are clusters of 96, 192, 384 and 768 devices, AMD and A as 1 to 5, and models of 7 to 140 billion
parameters, with 12 stages (24 for 140 billion parameters, as the largest setting). With t the seconds of a step, each
row has

(4) t of the best plan with even stages, of HETHUB's rule and of the search, the search's lower bound b and its gap
    (t - b) / t;
(5) the communication gap, (t - b) / (t - c), c being what every placement of the plan pays for computation.

The paper has no step times that agree with its throughput, so none stand beside these.
"""

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Unpack

from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec
from taut.data.units import TERA
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.papers.compared import CUT_OFF, Asked, go_on, is_cut_off, legend, posed, rows_of, rows_so_far
from taut.solver.certificate.document import communication_gap
from taut.solver.certificate.write import paid
from taut.solver.methods.baselines import arranged, hethub, plain_candidates, quickest
from taut.solver.result import Incumbent, Limits, SearchResult
from taut.solver.search.search import search
from taut.solver.simple_plans import simple_plan
from taut.words import percent, text_table

MODEL, SEQ, BATCH_OF_NODE, GPUS = "llama2-70b", 4096, 2048 / 6, 8
PEAK = 241.0
"""TFLOP/s of every type whose utilisation alone is given; AMD's, by its throughput and its utilisation."""
NODES_ALONE, STAGES_ALONE, BATCH_ALONE = 10, 10, 2048
"""The least cluster of one type (table 1 f)."""
INSIDE = {"gpus_per_node": GPUS, "intra_bandwidth_gbps": 256, "intra_latency_us": 10, "nic_bandwidth_gbps": 170}
INFINIBAND = {"bandwidth_gbps": 170, "latency_us": 5}
NO_MEMORY = 10_000.0
"""GiB of a device where memory is left out."""
TRIALS = 16
"""Bisections of a peak rate: below 1e-4 of the throughput."""
FASTEST = 4.0
"""Largest peak as a multiple of the throughput: a utilisation of a quarter is below any that is published."""


@dataclass(frozen=True, slots=True)
class DeviceType:
    """A type of device: nodes of it, and the published TFLOP/s of one device in a cluster of its type alone."""

    name: str
    nodes: int
    tflops: float


@dataclass(frozen=True, slots=True)
class Setting:
    """A mixed cluster with the published shares (1), of uniform stages if stated, and layers where published."""

    name: str
    types: tuple[DeviceType, DeviceType]
    stages: int
    published: float
    uniform: float | None = None
    memory_gib: float = 64.0
    layers: tuple[int, ...] = ()

    @property
    def num_nodes(self) -> int:
        """Nodes of all types."""
        return sum(kind.nodes for kind in self.types)

    @property
    def apart_tflops(self) -> float:
        """Mean TFLOP/s of a device in clusters of its type alone."""
        return sum(kind.nodes * kind.tflops for kind in self.types) / self.num_nodes

    @property
    def global_batch(self) -> int:
        """Sequences of a step: a multiple of every number of replicas that the setting has."""
        return round(BATCH_OF_NODE * self.num_nodes / 40) * 40 if self.num_nodes % 6 else 2048 * self.num_nodes // 6


def _of(
    names: str, nodes: tuple[int, int], tflops: tuple[float, float], stages: int, published: float, over: float = 0.0
) -> Setting:
    """A setting by both types, their nodes and TFLOP/s; ``over``: what the rule gains over uniform stages."""
    first, second = map(DeviceType, names.split(" and "), nodes, tflops)
    name = f"{GPUS * sum(nodes)} devices, {names} as 1 to {nodes[1] // nodes[0]}"
    return Setting(name, (first, second), stages, published, published / over if over else None)


AMD_A, OF_70B = "AMD and A", (93.81, 48.08)
"""Types, and TFLOP/s of a device for Llama 2 70B (section 4.4.1)."""
SETTINGS = (
    _of(AMD_A, (2, 10), OF_70B, 12, 0.9175),
    _of(AMD_A, (16, 80), OF_70B, 12, 0.9175),
    replace(_of("Nvidia and A", (1, 1), (0.564 * PEAK, 0.453 * PEAK), 16, 0.9754, 1.094), memory_gib=NO_MEMORY),
    replace(_of("AMD and B", (1, 1), (0.389 * PEAK, 0.288 * PEAK), 16, 0.9305, 1.103), memory_gib=NO_MEMORY),
    replace(
        _of("AMD and C", (20, 100), (0.389 * PEAK, 0.353 * PEAK), 12, 0.9749, 1.098),
        layers=(7, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7),
    ),
)
SMALL = _of(AMD_A, (1, 5), OF_70B, 12, 0.9175)
SMALL_MODEL, SMALL_STAGES, SMALL_TOKENS_S, SMALL_GAIN = "llama2-7b", 6, 920.84, 1.025
"""Of figure 6 a: model, stages of A alone, published (2) and (3)."""


LARGEST = "768 devices"
"""Of the settings of figure 6."""
PARTS = {"Nvidia and A": "a", "AMD and B": "b", "AMD and C": "c"}
"""Part of figure 7 by the types of device."""


@dataclass(frozen=True, slots=True)
class Row:
    """Shares (1) of even stages and HETHUB's rule (None: nothing fits), the best plan and the bound, with layers."""

    setting: Setting
    even: float | None
    rule: float | None
    best: float | None
    at_most: float
    gap: float | None
    layers: tuple[tuple[int, ...], ...]
    is_cut_off: bool = False

    @property
    def of_alone(self) -> list[tuple[str, float | None]]:
        """Throughput of a device by HETHUB's rule over that of each type alone."""
        apart = self.setting.apart_tflops
        return [
            (kind.name, None if self.rule is None else self.rule * apart / kind.tflops) for kind in self.setting.types
        ]


@dataclass(frozen=True, slots=True)
class Table:
    """All settings, and of figure 6 a (2) and the tokens a second of A alone, None if not asked for."""

    rows: tuple[Row, ...]
    small: tuple[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        small = (
            None if self.small is None else dict(zip(("tokens_per_s", "alone_tokens_per_s"), self.small, strict=True))
        )
        return {"model": MODEL, "rows": [asdict(row) for row in self.rows], "figure_6a": small}

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.published_rows``)."""
        found = {}
        if self.small is not None:
            mixed, alone = self.small
            found["figure 6 a: tokens a second of a device, 7 billion"] = f"{mixed:.2f}"
            found["figure 6 a: over A alone with 6 stages"] = f"{mixed / alone:.3f}x"
        for row in self.rows:
            devices, types = row.setting.name.split(" as ")[0].split(", ")
            if row.setting.uniform is None:
                found[f"figure 6: of the theory, {devices}"] = _share(row.rule)
                if devices == LARGEST:
                    found |= {f"figure 6: of {name} alone, {devices}": _share(each) for name, each in row.of_alone}
                    shorter = None if row.even is None or row.rule is None else 1 - row.even / row.rule
                    found[f"figure 8: shorter than with uniform stages, {devices}"] = percent(shorter, places=2)
                continue
            part = PARTS[types]
            found[f"figure 7 {part}: HETHUB, {types}"] = _share(row.rule)
            found[f"figure 7 {part}: uniform, {types}"] = _share(row.even)
            if row.setting.layers:
                found[f"figure 7 {part}: layers of the largest stage"] = str(max(row.layers[1], default="-"))
        return found

    def __str__(self) -> str:
        """Shares and layers, one line for each setting, then figure 6 a."""
        head = f"{MODEL}: share of the throughput that the types of device have apart"
        names = ("", "published", "", "taut's prices", "", "", "", "")
        below = ("setting", "uniform", "HETHUB", "uniform", "HETHUB's rule", "best plan", "at most", "gap")
        lines = [names, below, *(_cells(row) for row in self.rows)]
        split: list[tuple[str, ...]] = [("layers of every stage", "published", "uniform", "HETHUB's rule", "best plan")]
        split += [(row.setting.name, *map(_layers, (row.setting.layers, *row.layers))) for row in self.rows]
        over: list[tuple[str, ...]] = [("HETHUB's rule over one type alone", "", "")]
        over += [(row.setting.name, *(f"{name} {_share(each)}" for name, each in row.of_alone)) for row in self.rows]
        parts = [head, text_table(lines), text_table(split), text_table(over)]
        if self.small is not None:
            mixed, alone = self.small
            figures = [
                ("figure 6 a, llama2-7b", "published", "ours"),
                (f"tokens a second of a device, {SMALL.name}", f"{SMALL_TOKENS_S}", f"{mixed:.2f}"),
                (f"over A alone with {SMALL_STAGES} stages", f"{SMALL_GAIN}x", f"{mixed / alone:.3f}x"),
            ]
            parts.append(text_table(figures))
        return "\n\n".join([*parts, *legend(row.is_cut_off for row in self.rows)])


def _cells(row: Row) -> tuple[str, ...]:
    figures = (row.setting.uniform, row.setting.published, row.even, row.rule, row.best, row.at_most)
    mark = CUT_OFF if row.is_cut_off else ""
    return row.setting.name, *map(_share, figures), percent(row.gap, places=2) + mark


def _layers(layers: tuple[int, ...]) -> str:
    return " ".join(map(str, layers)) or "-"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"


def reproduce_hethub(limits: Limits | None = None, **asked: Unpack[Asked]) -> Table:
    """Price every setting that is asked for, within ``limits`` of each search."""
    rows = rows_of({setting.name: setting for setting in SETTINGS}, _row, 2, limits, asked)
    small = rows_so_far([SMALL] if len(rows) == len(SETTINGS) else (), small_tokens)
    return Table(rows, small[0] if small else None)


def small_tokens(setting: Setting) -> tuple[float, float] | None:
    """Tokens a second of a device of Llama 2 7B by (2), and of A alone; None where one of them fits no memory."""
    devices = _devices(setting)
    mixed = _problem(_mixed(setting, devices), setting.global_batch, setting.stages, SMALL_MODEL)
    alone = _problem(_cluster(devices[1], setting.num_nodes), setting.global_batch, SMALL_STAGES, SMALL_MODEL)
    one, other = hethub(mixed, Limits()).incumbent, quickest_even(alone)
    go_on()
    tokens = SEQ * setting.global_batch / (GPUS * setting.num_nodes)
    return None if one is None or other is None else (tokens / one.seconds, tokens / other.seconds)


def _devices(setting: Setting) -> list[DeviceSpec]:
    return [_fitted(kind.name, kind.tflops, setting.memory_gib) for kind in setting.types]


def _row(setting: Setting, limits: Limits) -> Row:
    devices = _devices(setting)
    apart = setting.apart_tflops
    problem = _problem(_mixed(setting, devices), setting.global_batch, setting.stages)
    *simple, found = searched(problem, limits)
    plans = *simple, found.incumbent
    even, rule, best = (None if plan is None else _tflops(problem, plan.seconds) / apart for plan in plans)
    layers = [() if plan is None else tuple(end - first for first, end in plan.strategy.stages) for plan in plans]
    most = _tflops(problem, found.lower_bound) / apart
    return Row(setting, even, rule, best, most, found.gap, tuple(layers), is_cut_off(found))


def searched(problem: PlanningProblem, limits: Limits) -> tuple[Incumbent | None, Incumbent | None, SearchResult]:
    """The quickest plan with even stages and the one by HETHUB's rule, and a search that begins with the better one."""
    even, rule = quickest_even(problem), hethub(problem, limits).incumbent
    known = min(filter(None, (even, rule)), key=lambda plan: plan.seconds, default=None)
    return even, rule, search(problem, limits, incumbent=known)


def quickest_even(problem: PlanningProblem) -> Incumbent | None:
    """The quickest plan with stages of as many layers as each other; None where none fits."""
    return quickest(plan for each in plain_candidates(problem) for plan in arranged(problem, each, even=True))


def _tflops(problem: PlanningProblem, seconds: float) -> float:
    """TFLOP/s of a device."""
    flops = problem.model.training_flops() * problem.space.global_batch
    return flops / seconds / problem.cluster.num_devices / TERA


@cache
def _fitted(name: str, tflops: float, memory_gib: float) -> DeviceSpec:
    """A device that has the published throughput in a cluster of its type alone."""
    low, high = tflops, FASTEST * tflops
    for _ in range(TRIALS):
        middle = (low + high) / 2
        found = _alone(_device(name, middle, memory_gib))
        low, high = (middle, high) if found < tflops else (low, middle)
    return _device(name, (low + high) / 2, memory_gib)


def _device(name: str, peak: float, memory_gib: float) -> DeviceSpec:
    """A device with this peak rate."""
    rates = {"fp16": peak, "fp32": peak / 8}
    memory = {"memory_gib": memory_gib, "memory_bandwidth_gbytes": 1600}
    return DeviceSpec.parse({"name": name, "peak_tflops": rates, **memory}, name)


def _alone(device: DeviceSpec) -> float:
    """TFLOP/s of a device by the paper's plan for its type alone; zero where that fits no memory."""
    problem = _problem(_cluster(device, NODES_ALONE), BATCH_ALONE, STAGES_ALONE)
    found = quickest(simple_plan(problem, each) for each in plain_candidates(problem))
    return 0.0 if found is None else _tflops(problem, found.seconds)


def _cluster(device: DeviceSpec, count: int) -> ClusterSpec:
    """Nodes of one type."""
    nodes = [{"count": count, "device": device, **INSIDE}]
    return ClusterSpec.parse({"name": device.name, "nodes": nodes, "network": INFINIBAND}, device.name)


def _mixed(setting: Setting, devices: list[DeviceSpec]) -> ClusterSpec:
    """Nodes of both types: InfiniBand among like ones, and between types the hosts' Ethernet with two copies."""
    counts = [kind.nodes for kind in setting.types]
    nodes = [{"count": count, "device": device, **INSIDE} for count, device in zip(counts, devices, strict=True)]
    first = list(range(counts[0]))
    racks = [{"nodes": first, **INFINIBAND}, {"nodes": list(range(counts[0], sum(counts))), **INFINIBAND}]
    network = {"bandwidth_gbps": 16.5, "latency_us": 30, "racks": racks}
    return ClusterSpec.parse({"name": setting.name, "nodes": nodes, "network": network}, setting.name)


def _problem(cluster: ClusterSpec | str, batch: int, stages: int, model: str = MODEL) -> PlanningProblem:
    """The space of the paper: 1F1B without tensor parallelism, in so many stages."""
    fixed: dict[str, int | str | bool] = {"pp": stages, "tp": 1, "schedule": "1f1b"}
    given: dict[str, Any] = {"precision": "fp16", "fix": fixed, "max_tp": 1, "schedules": "1f1b,gpipe"}
    return posed(model, cluster, "step", global_batch=batch, **given)


CLUSTERS = {"hethub-12n96d": 12, "hethub-24n192d": 24, "hethub-48n384d": 48, "hethub-96n768d": 96}
"""Nodes of every cluster of the catalog."""
STAGES = {"llama2-7b": 12, "llama2-13b": 12, "llama2-35b": 12, "llama2-70b": 12, "llama2-140b": 24}


@dataclass(frozen=True, slots=True)
class SizeRow:
    """Seconds of a step (4), None where nothing fits, both gaps, and the seconds of the search."""

    cluster: str
    model: str
    even_s: float | None
    rule_s: float | None
    best_s: float | None
    lower_bound_s: float
    gap: float | None
    communication_gap: float | None
    wall_s: float
    is_cut_off: bool = False


@dataclass(frozen=True, slots=True)
class SizeTable:
    """Clusters and models."""

    rows: tuple[SizeRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"rows": [asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        """One line for each cluster and model."""
        plans, gaps = ("uniform", "HETHUB's rule", "best plan", "bound"), ("gap", "of communication")
        table = text_table([("cluster", "model", *plans, *gaps, "took"), *map(_size_cells, self.rows)])
        return "\n\n".join([table, *legend(row.is_cut_off for row in self.rows)])


def _size_cells(row: SizeRow) -> tuple[str, ...]:
    steps = (row.even_s, row.rule_s, row.best_s, row.lower_bound_s)
    gaps = (row.gap, row.communication_gap)
    mark = CUT_OFF if row.is_cut_off else ""
    seconds = ("-" if step is None else f"{step:.2f} s" for step in steps)
    shares = ("-" if gap is None else f"{gap:.2%}{mark}" for gap in gaps)
    return row.cluster, row.model, *seconds, *shares, f"{row.wall_s:.0f} s"


def reproduce_hethub_table(limits: Limits | None = None, **asked: Unpack[Asked]) -> SizeTable:
    """Plan every "cluster model" that is asked for, within ``limits`` of each search."""
    every = {f"{cluster} {model}": (cluster, model) for cluster in CLUSTERS for model in STAGES}
    return SizeTable(rows_of(every, _size_row, 2, limits, asked))


def _size_row(named: tuple[str, str], limits: Limits) -> SizeRow:
    cluster, model = named
    problem = _problem(cluster, 2048 * CLUSTERS[cluster] // 6, STAGES[model], model)
    *simple, found = searched(problem, limits)
    even, rule, best = (None if plan is None else plan.seconds for plan in (*simple, found.incumbent))
    proven = found.lower_bound, found.gap, _of_communication(problem, found), found.wall_s, is_cut_off(found)
    return SizeRow(cluster, model, even, rule, best, *proven)


def _of_communication(problem: PlanningProblem, found: SearchResult) -> float | None:
    """The gap (5); None without a plan."""
    if found.incumbent is None:
        return None
    priced = step_time(problem, found.incumbent.strategy, found.incumbent.devices)
    return communication_gap(float(priced.total), paid(priced), found.lower_bound)
