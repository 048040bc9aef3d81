"""
Plans that Galvatron's search wrote, beside the proven optimum of its own formula and at taut's prices.

``gpt_configs`` has a plan (``taut.data.readers.galvatron.profile``) beside the profiles of its model, and
``hardware_configs`` next to it those of the node. The plan is priced by the formula of Galvatron's search, and its
distance J / L - 1 is from the lower bound L of all plans of the space that was searched. At taut's prices, with the
same times and measured activations, its degrees are fixed and the best plan is searched for, which may recompute the
first layers of every stage, as many in each. Layers over different ways are no plan.
The device is not stated; an A100 with the memory that the search was given is taken, of which it keeps a fifth free.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from taut.data.catalog.devices import device_named
from taut.data.cluster import ClusterSpec
from taut.data.load import load_model
from taut.data.model import ModelSpec
from taut.data.readers.galvatron.costs import read_galvatron
from taut.data.readers.galvatron.profile import (
    GalvatronPlan,
    GalvatronProfile,
    Split,
    read_galvatron_plan,
    read_galvatron_profile,
)
from taut.data.units import GIGABIT
from taut.errors import DataError
from taut.papers.compared import OurPrices, command_of, gap_cell, legend, plan_or_none, rows_so_far
from taut.papers.galvatron import RESERVED, GalvatronProblem, Setting, best_galvatron_plan, price
from taut.papers.searches.published_plans import places_of
from taut.planning.plan import Plan
from taut.solver.result import OPTIMALITY_GAP
from taut.words import percent, text_table

PLANS = "gpt_configs/galvatron_config_*.json"
DEVICE = "a100-40gb"
SLACK = 1e-9
"""Share by which sums of the same figures may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronRow:
    """
    A plan in words with seconds of the formula; the optimum and its bound; ``ours``: at taut's prices.

    ``alike_bound_s`` is the bound of plans whose layers are all spread over the same ways. Where layers have different
    degrees, the plan has no seconds at taut's prices.
    """

    model: str
    gpus: int
    global_batch: int
    choice: str
    predicted_s: float
    best: str
    best_s: float
    lower_bound_s: float
    alike_bound_s: float
    wall_s: float
    ours: OurPrices

    @property
    def distance(self) -> float:
        """Distance of the plan from the bound by the formula."""
        return self.predicted_s / self.lower_bound_s - 1

    @property
    def alike_distance(self) -> float:
        """Distance of the plan from the bound of plans whose layers are all spread over the same ways."""
        return self.predicted_s / self.alike_bound_s - 1

    @property
    def command(self) -> str:
        """What prints the row alone."""
        return command_of(f"Galvatron {self.model}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        values, ours = asdict(self), self.ours
        del values["ours"]
        values |= {"ours_s": ours.theirs_s, "our_bound_s": ours.lower_bound_s, "our_best_s": ours.best_s}
        values |= {"is_cut_off": ours.is_cut_off, "distance": self.distance, "alike_distance": self.alike_distance}
        return values | {"our_distance": ours.distance, "command": self.command}


@dataclass(frozen=True, slots=True)
class GalvatronTable:
    """All plans."""

    rows: tuple[GalvatronRow, ...]

    def as_dict(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [row.as_dict() for row in self.rows]

    def __str__(self) -> str:
        """One line for each plan."""
        head = ("Galvatron's", "GPUs", "batch", "its plan", "its formula", "best plan", "its formula", "bound", "gap")
        lines = [
            (*head, "found in", "distance", "layers alike", "taut's prices", "bound", "gap", "distance"),
            *map(_cells, self.rows),
        ]
        return "\n\n".join([text_table(lines), *legend(row.ours.is_cut_off for row in self.rows)])


def _cells(row: GalvatronRow) -> tuple[str, ...]:
    theirs = row.model, str(row.gpus), str(row.global_batch), row.choice, f"{row.predicted_s:.4f} s"
    gap = gap_cell(row.best_s, row.lower_bound_s, is_cut_off=False)
    best = row.best, f"{row.best_s:.4f} s", f"{row.lower_bound_s:.4f} s", gap, f"{row.wall_s:.0f} s"
    distances = (percent(each, places=2) for each in (row.distance, row.alike_distance))
    return *theirs, *best, *distances, *row.ours.cells(places=4)


def reproduce_galvatron(
    folder: Path, *, time_limit: float = 60.0, only: str = "", told: Callable[[str], None] | None = None
) -> GalvatronTable:
    """Price all plans of a folder with ``only`` in their names; ``time_limit``: of both searches at taut's prices."""
    every = ((path, read_galvatron_plan(path)) for path in places_of(folder, PLANS))
    chosen = (each for each in every if only.lower() in _name(each).lower())
    return GalvatronTable(rows_so_far(chosen, lambda each: _row(*each, time_limit), _name, told))


def _name(plan: tuple[Path, GalvatronPlan]) -> str:
    """The name of a plan, of which ``only`` is a part."""
    return f"Galvatron {plan[1].model}"


def _row(path: Path, given: GalvatronPlan, time_limit: float) -> GalvatronRow:
    problem = problem_of(path, given)
    theirs = seconds_of(path, problem, given)
    begun = perf_counter()
    found = best_galvatron_plan(problem, theirs * (1 + SLACK))
    wall = perf_counter() - begun
    ours = (_at_our_prices(path, problem.profile, given, fixed, time_limit) for fixed in (_degrees(given), {}))
    return GalvatronRow(
        model=given.model,
        gpus=problem.gpus,
        global_batch=given.global_batch,
        choice=plan_words(Setting(given.chunks, len(given.division)), given.layers, given.vocabulary),
        predicted_s=theirs,
        best=plan_words(found.setting, found.layers, found.ends) if found.layers else "the same",
        best_s=min(found.seconds, theirs),
        lower_bound_s=min(found.lower_bound, theirs),
        alike_bound_s=min(best_galvatron_plan(problem, theirs * (1 + SLACK), alike=True).lower_bound, theirs),
        wall_s=wall,
        ours=OurPrices.of(*ours),
    )


def problem_of(path: Path, given: GalvatronPlan) -> GalvatronProblem:
    """What the search was given for a plan that lies beside the profiles of its model."""
    nodes, size, blocks = given.nodes, given.gpus_per_node, load_model(given.model).blocks
    if len(given.layers) != len(blocks):
        raise DataError(f"{path}: has {len(given.layers)} layers, expected {len(blocks)}, those of {given.model}")
    profile = read_galvatron_profile(
        path.parents[1], given.model, precision=given.precision, nodes=nodes, gpus_per_node=size
    )
    return GalvatronProblem(
        profile=profile,
        layers=len(given.layers),
        hidden=blocks[0].hidden,
        gpus=nodes * size,
        global_batch=given.global_batch,
        memory_mib=given.memory_gib * 1024,
        default=given.default,
    )


def seconds_of(path: Path, problem: GalvatronProblem, given: GalvatronPlan) -> float:
    """Seconds of a plan by the formula; a ``DataError`` if it is not of the space, or exceeds the memory."""
    setting = Setting(given.chunks, len(given.division))
    if setting not in problem.settings() or list(given.division) != problem.division(setting.pp):
        raise DataError(f"{path}: stages of {given.division} layers are none that the search takes")
    if not set(given.layers) <= set(problem.splits(setting)) or given.vocabulary not in problem.ends(setting):
        raise DataError(f"{path}: a layer, or embedding and head, are spread in a way that the search does not take")
    found = price(problem, setting, given.layers, given.vocabulary)
    if max(found.mib) > problem.capacity:
        raise DataError(f"{path}: takes {max(found.mib)} MiB of a device, expected {problem.capacity} at most")
    return found.seconds


def _degrees(given: GalvatronPlan) -> dict[str, int] | None:
    """The plan's degrees, or None where layers differ in them."""
    kinds = {split._replace(recompute=False) for split in given.layers}
    if len(kinds) > 1 or given.layers[0].sequence:
        return None
    (kind,), pp = kinds, len(given.division)
    dp = given.nodes * given.gpus_per_node // pp // kind.ways
    zero = 3 if kind.sharded else 2 if given.default == "zero2" else 0
    return {"pp": pp, "tp": kind.tp, "dp": dp, "micro_batch": given.global_batch // given.chunks // dp, "zero": zero}


def _at_our_prices(
    path: Path, profile: GalvatronProfile, given: GalvatronPlan, fixed: dict[str, int] | None, time_limit: float
) -> Plan | None:
    if fixed is None:
        return None
    model = ModelSpec.parse({**load_model(given.model).model_dump(exclude_unset=True), "seq": profile.seq}, given.model)
    cluster = _cluster(profile, given)
    times = path.with_name(f"computation_profiling_{given.precision}_{given.model}_all.json")
    memory = path.with_name(f"memory_profiling_{given.precision}_{given.model}_all.json")
    return plan_or_none(
        model,
        cluster,
        global_batch=given.global_batch,
        profile=read_galvatron(times, model, cluster.nodes[0].device, memory=memory),
        precision=given.precision,
        memory_model={"overhead_gib": 1.0, "margin": RESERVED, "grad_precision": "bf16"},
        fix=fixed or None,
        block_recompute=True,
        schedules="1f1b",
        time_limit=time_limit,
        gap=OPTIMALITY_GAP,
    )


def _cluster(profile: GalvatronProfile, given: GalvatronPlan) -> ClusterSpec:
    """Nodes whose rings run at the rate of the measured all-reduce of their devices."""
    device = device_named(DEVICE, "gpu").model_copy(update={"memory_gib": float(given.memory_gib)})
    gpus = given.nodes * given.gpus_per_node
    inside = profile.rates[min(given.gpus_per_node, gpus), True] / GIGABIT
    node = {"count": given.nodes, "device": device, "gpus_per_node": given.gpus_per_node}
    spec: dict[str, Any] = {"name": "galvatron", "nodes": [{**node, "intra_bandwidth_gbps": inside}]}
    if given.nodes > 1:
        spec["network"] = {"bandwidth_gbps": profile.rates[gpus, True] / GIGABIT}
    return ClusterSpec.parse(spec, "a plan of Galvatron")


def plan_words(setting: Setting, layers: tuple[Split, ...], ends: Split) -> str:
    """A plan, as ``20 x ZeRO-3 recomputed, 12 x ZeRO-3; ends sp 2 ZeRO-3``."""
    counts = Counter(_kind(split) for split in layers)
    pipeline = [f"pp {setting.pp}"] if setting.pp > 1 else []
    batches = [f"{setting.chunks} micro-batches"] if setting.chunks > 1 else []
    return ", ".join([*pipeline, *batches, *(f"{n} x {kind}" for kind, n in counts.items())]) + f"; ends {_kind(ends)}"


def _kind(split: Split) -> str:
    ways = [f"{'sp' if split.sequence else 'tp'} {split.ways}"] if split.ways > 1 else []
    return (
        " ".join([*ways, *(["ZeRO-3"] if split.sharded else []), *(["recomputed"] if split.recompute else [])]) or "dp"
    )
