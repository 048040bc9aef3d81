"""
Plans that Aceso's search found, beside the proven optimum of its own formula.

``aceso_plans.csv`` has the plans, one for each number of stages; beside it, or in a folder of it,
``profiled-time-mist-all-GPU`` have the operators that the search was given. Of every device and model the
plan with the least predicted step is Aceso's choice. It is priced anew by the formula, with what Aceso's rule
recomputes, and its distance J / L - 1 is from the lower bound L of all plans of the space that was searched, by the
same formula. The formula leaves reductions of gradients and the optimizer out, so its optimum is not that of a run.

Columns of the table: ``gpu``, ``system``, ``size``, ``n_gpus``, ``num_layers``, ``hidden``, ``heads``, ``seq``,
``gbs``, ``mbs``; by stage and separated by blanks ``ops_per_stage``, ``recomputed_ops_by_stage`` and
``predicted_memory_mb`` (MiB), by stage and separated by ``|`` ``tp_by_stage`` and ``dp_by_stage`` in the form ``2x131``
(degree 2 of 131 operators); ``predicted_step_ms``, ``search_cost_s`` and ``measured_step_ms``, empty where the plan was
not run. Other columns, and lines of other systems, are left out. The runs are those of Mist's artifact (EuroSys 2025).

Plans of Aceso's search have taut's prices as well, where they map. Layer costs are the same operators, added up to
layers without the all-reduces of tensor groups; inside a node rings run at the rate of the measured all-reduce of its
GPUs, between nodes messages at the measured one. Memory is what the driver states, with nothing held back. A plan maps
if all its stages have one tensor degree and one number of replicas: its degrees and its micro-batch are fixed, while
layers and recomputation are chosen, as Aceso cuts inside of layers and recomputes single operators, which taut's plans
do not. So the step may be above Aceso's own: the bound is of taut's space. Where operators were measured faster than
the device can be, their degree has no costs, and plans of it no price.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic import ConfigDict, Field

from taut.data.catalog.devices import device_named
from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec
from taut.data.model import ModelSpec
from taut.data.read import read_text, rows_of
from taut.data.spec import Positive, Spec
from taut.data.units import GIB, GIGABIT, GIGABYTE, MIB, MILLISECOND
from taut.errors import DataError
from taut.papers.aceso.formula import AcesoPrice, AcesoProblem, AcesoStage, kinds_of, price
from taut.papers.aceso.operators import (
    MIB_IN_GIGABYTE,
    OperatorProfile,
    read_all_reduces,
    read_operator_costs,
    read_operator_profile,
)
from taut.papers.aceso.search import best_plan
from taut.papers.aceso.stage_table import recomputed_by_rule
from taut.papers.compared import OurPrices, command_of, gap_cell, legend, plan_or_none, rows_so_far
from taut.papers.searches.published_plans import places_of
from taut.planning.plan import Plan
from taut.solver.result import OPTIMALITY_GAP, relative_gap
from taut.words import percent, text_table


@dataclass(frozen=True, slots=True)
class OperatorStage:
    """A stage: its operators, of which ``recomputed`` are recomputed, and its degrees."""

    operators: int
    tp: int
    dp: int
    recomputed: int
    predicted_bytes: float


class OperatorPlan(Spec):
    """A plan as it stands in the table, with the seconds that Aceso predicts, and those of the run if there was one."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    gpu: str
    size: str
    gpus: int = Field(alias="n_gpus")
    layers: int = Field(alias="num_layers")
    hidden: int
    heads: int
    seq: int
    global_batch: int = Field(alias="gbs")
    micro_batch: int = Field(alias="mbs")
    ops_per_stage: str
    tp_by_stage: str
    dp_by_stage: str
    recomputed_ops_by_stage: str
    predicted_memory_mb: str
    predicted_step_ms: Positive
    search_s: Positive = Field(alias="search_cost_s")
    measured_step_ms: Positive | None = None

    @property
    def predicted_s(self) -> float:
        """Seconds of a step that Aceso predicts."""
        return self.predicted_step_ms * MILLISECOND

    @property
    def measured_s(self) -> float | None:
        """Seconds of a step of the run."""
        return None if self.measured_step_ms is None else self.measured_step_ms * MILLISECOND

    @cached_property
    def stages(self) -> tuple[OperatorStage, ...]:
        """The stages; ``ValueError`` where lists by stage do not agree."""
        lists = (
            [int(word) for word in self.ops_per_stage.split()],
            [_degree(word) for word in self.tp_by_stage.split("|")],
            [_degree(word) for word in self.dp_by_stage.split("|")],
            [int(word) for word in self.recomputed_ops_by_stage.split()],
            [float(word) * MIB for word in self.predicted_memory_mb.split()],
        )
        return tuple(OperatorStage(*values) for values in zip(*lists, strict=True))


def read_operator_plans(path: Path) -> list[OperatorPlan]:
    """Plans of Aceso's search in the order of a table; a wrong line is a ``DataError``."""
    expected, found = "a table of Aceso's plans", list[OperatorPlan]()
    _, rows = rows_of(read_text(path, expected), path, expected)
    for number, row in enumerate(rows, start=1):
        if row.get("system", "aceso") == "aceso":
            found.append(_read_plan(row, f"{path} row {number}"))
    return found


def _read_plan(row: dict[str, str], where: str) -> OperatorPlan:
    plan = OperatorPlan.parse_cells({name: text for name, text in row.items() if text != ""}, where)
    with suppress(ValueError):
        if plan.stages:
            return plan
    expected = "expected operators, tp, dp, recomputed operators and MiB of every stage"
    raise DataError(f"{where}: lists by stage do not agree, {expected}")


def _degree(word: str) -> int:
    """The degree in ``2x131``; a stage whose operators have different ones is refused by the blanks between them."""
    degree, _, operators = word.strip().partition("x")
    int(operators)
    return int(degree)


MEMORY_MIB = {"l4": 23034, "a10g": 23028, "a100-sxm4-40gb": 40960}
"""Memory as the driver states it, by the beginning of a device's name."""
DEVICES = {"l4": ("l4-24gb", 100), "a10g": ("a10g-24gb", 100), "a100-sxm4-40gb": ("a100-40gb", 400)}
"""Catalog device, and Gb/s of a node's cards, by the beginning of a device's name."""
VOCABULARY = 51200


def at_our_prices(profiles: Path, problem: AcesoProblem, given: OperatorPlan, time_limit: float) -> OurPrices | None:
    """Price a plan by two searches of so many seconds each, or None where it does not map."""
    first = given.stages[0]
    if any((stage.tp, stage.dp) != (first.tp, first.dp) for stage in given.stages):
        return None
    costs = read_operator_costs(profiles, given.size, _model_of(given), _device(given)[0])
    if not any(row.tp == first.tp for row in costs.rows):
        return None
    fixed = {"tp": first.tp, "pp": len(given.stages), "dp": first.dp, "micro_batch": given.micro_batch // first.dp}

    def found(chosen: dict[str, int]) -> Plan | None:
        return plan_or_none(
            _model_of(given),
            _cluster(profiles, problem, given),
            global_batch=given.global_batch,
            profile=costs,
            precision="fp16",
            memory_model={"overhead_gib": 0.0, "margin": 0.0, "grad_precision": "bf16"},
            fix=chosen or None,
            schedules="1f1b",
            time_limit=time_limit,
            gap=OPTIMALITY_GAP,
        )

    return OurPrices.of(found(fixed), found({}))


def memory_bytes(gpu: str) -> int:
    """Memory of a device as the driver states it."""
    memory = next((size for name, size in MEMORY_MIB.items() if gpu.startswith(name)), None)
    if memory is None:
        raise DataError(f"unknown device {gpu}, expected {', '.join(MEMORY_MIB)}")
    return memory * MIB


def _model_of(given: OperatorPlan) -> ModelSpec:
    shape = {"layers": given.layers, "hidden": given.hidden, "heads": given.heads, "seq": given.seq}
    values = {"name": f"gpt-{given.size}", **shape, "vocab": VOCABULARY, "tied_embedding": True}
    return ModelSpec.parse(values, "a plan of Aceso")


def _cluster(profiles: Path, problem: AcesoProblem, given: OperatorPlan) -> ClusterSpec:
    device, cards = _device(given)
    node: dict[str, Any] = {
        "count": given.gpus // problem.gpus_per_node,
        "device": device,
        "gpus_per_node": problem.gpus_per_node,
        "intra_bandwidth_gbps": _ring_rate(profiles, given.size, problem.gpus_per_node) / GIGABIT,
        "nic_bandwidth_gbps": cards,
    }
    network = {"bandwidth_gbps": _rate(problem.profile) / GIGABIT}
    return ClusterSpec.parse({"name": given.gpu, "nodes": [node], "network": network}, "a plan of Aceso")


def _device(given: OperatorPlan) -> tuple[DeviceSpec, float]:
    name, cards = next(found for start, found in DEVICES.items() if given.gpu.startswith(start))
    device = device_named(name, "gpu")
    return device.model_copy(update={"memory_gib": memory_bytes(given.gpu) / GIB}), cards


def _ring_rate(profiles: Path, size: str, gpus: int) -> float:
    """Bytes a second of a ring's hop, by the largest all-reduce of a node."""
    sizes, seconds = read_all_reduces(profiles, size, gpus)
    return float(2 * (gpus - 1) / gpus * sizes[-1] / seconds[-1])


def _rate(profile: OperatorProfile) -> float:
    """Bytes a second between nodes, of the largest message, in gigabytes of 1e9 bytes as the file states them."""
    return float(profile.between_nodes[-1] / (MIB_IN_GIGABYTE * MIB) * GIGABYTE)


PLANS, PROFILES = "aceso_plans.csv", "profiled-time-mist-all-"
SHARE = 7, 8
"""Share of the memory that the driver states which the search was given."""
GPUS_PER_NODE = 8
SLACK = 1e-6
"""Predictions are printed with two decimals of a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcesoRow:
    """A search in words with seconds; the optimum and its bound; ``ours``: at taut's prices, None without."""

    gpu: str
    model: str
    gpus: int
    global_batch: int
    choice: str
    predicted_s: float
    measured_s: float | None
    search_s: float
    best: str
    best_s: float
    lower_bound_s: float
    wall_s: float
    ours: OurPrices | None = None

    @property
    def distance(self) -> float:
        """Distance of Aceso's choice from the bound."""
        return self.predicted_s / self.lower_bound_s - 1

    @property
    def is_cut_off(self) -> bool:
        """Whether a limit ended the search by the formula, which is exact, or one at taut's prices."""
        gap = relative_gap(self.best_s, self.lower_bound_s) or 0.0
        return gap > OPTIMALITY_GAP or (self.ours is not None and self.ours.is_cut_off)

    @property
    def command(self) -> str:
        """What prints the row alone."""
        return command_of(name_of(self.gpu, self.model))


@dataclass(frozen=True, slots=True)
class AcesoTable:
    """All searches."""

    rows: tuple[AcesoRow, ...]

    def as_dict(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [{**asdict(row), "distance": row.distance, "command": row.command} for row in self.rows]

    def __str__(self) -> str:
        """One line for each search."""
        job = ("Aceso on", "model", "GPUs", "batch", "measured", "its plan", "its formula", "found in")
        head = (*job, "best plan", "its formula", "bound", "gap", "found in", "distance")
        lines = [(*head, "taut's prices", "bound", "gap", "distance"), *(_cells(row) for row in self.rows)]
        return "\n\n".join([text_table(lines), *legend(row.is_cut_off for row in self.rows)])


def _cells(row: AcesoRow) -> tuple[str, ...]:
    measured = "-" if row.measured_s is None else f"{row.measured_s:.2f} s"
    job = row.gpu, row.model, str(row.gpus), str(row.global_batch), measured
    theirs = row.choice, f"{row.predicted_s:.2f} s", f"{row.search_s:.0f} s"
    gap = gap_cell(row.best_s, row.lower_bound_s)
    best = row.best, f"{row.best_s:.2f} s", f"{row.lower_bound_s:.2f} s", gap, f"{row.wall_s:.0f} s"
    ours = ("not priced", "-", "-", "-") if row.ours is None else row.ours.cells(places=2)
    return *job, *theirs, *best, percent(row.distance, places=2), *ours


def name_of(gpu: str, model: str) -> str:
    """The name of a search, of which ``only`` is a part."""
    return f"Aceso on {gpu}, {model}"


def table_of_plans(folder: Path) -> Path | None:
    """The table of plans in a folder or up to two levels below it, if there is one."""
    found = places_of(folder, PLANS)
    return found[0] if found else None


def reproduce_aceso(
    folder: Path, *, time_limit: float = 60.0, only: str = "", told: Callable[[str], None] | None = None
) -> AcesoTable:
    """Search every setting, ``only`` in its name, of a folder's table of plans, each for ``time_limit`` seconds."""
    table = table_of_plans(folder)
    if table is None:
        raise DataError(f"{folder}: no file {PLANS}")
    settings = ([*plans] for _, plans in groupby(sorted(read_operator_plans(table), key=_setting), _setting))
    chosen = (plans for plans in settings if only.lower() in _name(plans).lower())
    return AcesoTable(rows_so_far(chosen, lambda plans: _row(folder, plans, time_limit), _name, told))


def _name(plans: list[OperatorPlan]) -> str:
    """The name of the search that found these plans."""
    return name_of(plans[0].gpu, _model(plans[0]))


def _setting(plan: OperatorPlan) -> tuple[str, int, str]:
    """What a search was run for: device, number of devices and size of the model."""
    return plan.gpu, plan.gpus, plan.size


def _row(folder: Path, plans: list[OperatorPlan], time_limit: float) -> AcesoRow:
    problem = problem_of(folder, plans[0])
    fits = [each for each in plans if all(stage.predicted_bytes <= problem.memory_limit for stage in each.stages)]
    choice = min(fits or plans, key=lambda each: each.predicted_s)
    theirs = price_of_plan(problem, choice).step
    begun = perf_counter()
    found = best_plan(problem, theirs * (1 + SLACK), time_limit)
    wall = perf_counter() - begun
    return AcesoRow(
        gpu=choice.gpu,
        model=_model(choice),
        gpus=choice.gpus,
        global_batch=choice.global_batch,
        choice=_words(choice.micro_batch, [(stage.tp, stage.dp) for stage in choice.stages]),
        predicted_s=theirs,
        measured_s=choice.measured_s,
        search_s=choice.search_s,
        best=_words(found.micro_batch, [(each.tp, each.dp) for each in found.stages]) if found.stages else "the same",
        best_s=min(found.seconds, theirs),
        lower_bound_s=min(found.lower_bound, theirs),
        wall_s=wall,
        ours=at_our_prices(profiles_of(folder, choice), problem, choice, time_limit),
    )


def problem_of(folder: Path, plan: OperatorPlan) -> AcesoProblem:
    """What Aceso's search was given for a plan: profiles, devices and the memory limit."""
    share, whole = SHARE
    memory = memory_bytes(plan.gpu) // MIB * share // whole
    return AcesoProblem(
        profile=read_operator_profile(profiles_of(folder, plan), plan.size),
        layers=plan.layers,
        gpus=plan.gpus,
        gpus_per_node=min(GPUS_PER_NODE, plan.gpus),
        global_batch=plan.global_batch,
        memory_limit=memory * MIB,
    )


def profiles_of(folder: Path, plan: OperatorPlan) -> Path:
    """The folder of a device's profiles, in a folder or one up to two levels below it."""
    places = places_of(folder, f"{PROFILES}{plan.gpu}")
    if not places:
        raise DataError(f"{folder}: no folder {PROFILES}{plan.gpu}")
    return places[0]


def price_of_plan(problem: AcesoProblem, plan: OperatorPlan) -> AcesoPrice:
    """A plan by the formula, recomputing what Aceso's rule does; a ``DataError`` if it contradicts the profiles."""
    stages, flags, first = [], [], 0
    where = f"plan of {len(plan.stages)} stages on {plan.gpu}"
    held = sum(stage.operators for stage in plan.stages)
    operators = next(iter(problem.profile.operators.values()))
    if held != len(kinds_of(operators, problem.layers)):
        raise DataError(f"{where}: holds {held} operators, expected {len(kinds_of(operators, problem.layers))}")
    for number, stage in enumerate(plan.stages):
        samples = plan.micro_batch // stage.dp
        if (samples, stage.tp) not in problem.profile.operators:
            raise DataError(f"{where}: tensor degree {stage.tp} was not profiled at {samples} samples")
        operators, end = problem.profile.operators[samples, stage.tp], first + stage.operators
        kinds = kinds_of(operators, problem.layers)[first:end]
        flags.append(recomputed_by_rule(operators, kinds, len(plan.stages) - 1 - number, problem.memory_limit))
        count = int(flags[-1].sum())
        if count != stage.recomputed:
            raise DataError(f"{where}: stage {number} recomputes {count} operators, expected {stage.recomputed}")
        stages.append(AcesoStage(first, end, stage.tp, stage.dp))
        first = end
    return price(problem, plan.micro_batch, stages, flags)


def _model(plan: OperatorPlan) -> str:
    return f"gpt-{plan.size.replace('_', '.').lower()}"


def _words(micro_batch: int, degrees: list[tuple[int, int]]) -> str:
    """Stages by degrees, as ``mb 1, 14 x tp 1, 1 x tp 2``."""
    counts = Counter(f"tp {tp}" + (f" dp {dp}" if dp > 1 else "") for tp, dp in degrees)
    return ", ".join([f"mb {micro_batch}", *(f"{count} x {words}" for words, count in sorted(counts.items()))])
