"""
Plans that Aceso's search found, beside the proven optimum of its own formula.

``aceso_plans.csv`` has the plans (``taut.papers.aceso.plans``), one for each number of stages; beside it, or in a
folder of it, ``profiled-time-mist-all-GPU`` have the operators that the search was given. Of every device and model the
plan with the least predicted step is Aceso's choice. It is priced anew by the formula, with what Aceso's rule
recomputes, and its distance J / L - 1 is from the lower bound L of all plans of the space that was searched, by the
same formula. The formula leaves reductions of gradients and the optimizer out, so its optimum is not that of a run.
"""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from taut.data.units import MIB
from taut.errors import DataError
from taut.papers.aceso.formula import kinds_of
from taut.papers.aceso.operators import read_operator_profile
from taut.papers.aceso.plans import OperatorPlan, read_operator_plans
from taut.papers.aceso.price import AcesoPrice, price
from taut.papers.aceso.problem import AcesoProblem, AcesoStage
from taut.papers.aceso.rule import recomputed_by_rule
from taut.papers.aceso.search import AcesoResult, best_plan
from taut.papers.searches.aceso_at_our_prices import OurPrices, at_our_prices, memory_bytes
from taut.papers.searches.places import places_of
from taut.words import percent, text_table

PLANS, PROFILES = "aceso_plans.csv", "profiled-time-mist-all-"
SHARE = 7, 8
"""Share of the memory that the driver states which the search was given."""
GPUS_PER_NODE = 8
SLACK = 1e-6
"""Predictions are printed with two decimals of a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcesoRow:
    """
    A search: its choice in words with seconds of the formula, of a run and of the search; the optimum and its bound.

    ``ours`` has the choice at taut's prices, None where it does not map or has no costs.
    """

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
    def command(self) -> str:
        """What prints the row alone."""
        return shlex.join(
            ["taut", "reproduce", "searches", "--data", "DIR", "--only", f"{name_of(self.gpu, self.model)}"]
        )


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
        head = (*job, "best plan", "its formula", "bound", "found in", "distance", "taut's prices", "bound", "distance")
        lines = [head, *(_cells(row) for row in self.rows)]
        return text_table(lines)


def _cells(row: AcesoRow) -> tuple[str, ...]:
    measured = "-" if row.measured_s is None else f"{row.measured_s:.2f} s"
    job = row.gpu, row.model, str(row.gpus), str(row.global_batch), measured
    theirs = row.choice, f"{row.predicted_s:.2f} s", f"{row.search_s:.0f} s"
    ours = row.best, f"{row.best_s:.2f} s", f"{row.lower_bound_s:.2f} s", f"{row.wall_s:.0f} s"
    return *job, *theirs, *ours, percent(row.distance, places=2), *_our_cells(row.ours)


def _our_cells(ours: OurPrices | None) -> tuple[str, str, str]:
    if ours is None:
        return "not priced", "-", "-"
    theirs, bound = ("-" if value is None else f"{value:.2f} s" for value in (ours.theirs_s, ours.lower_bound_s))
    return theirs, bound, percent(ours.distance, places=2)


def name_of(gpu: str, model: str) -> str:
    """The name of a search, of which ``only`` is a part."""
    return f"Aceso on {gpu}, {model}"


def table_of_plans(folder: Path) -> Path | None:
    """The table of plans in a folder or up to two levels below it, if there is one."""
    found = places_of(folder, PLANS)
    return found[0] if found else None


def has_profiles(folder: Path) -> bool:
    """Whether a folder has operator profiles of some device, itself or up to two levels below it."""
    return bool(places_of(folder, f"{PROFILES}*"))


def reproduce_aceso(
    folder: Path, *, time_limit: float = 60.0, only: str = "", told: Callable[[str], None] | None = None
) -> AcesoTable:
    """
    Search every setting of a table of Aceso's plans.

    ``folder``: holds the table and the operator profiles, or folders with them; ``time_limit``: seconds of each search,
    without those of its tables; ``only``: part of the name of a search, such as ``Aceso on l4, gpt-13b``; ``told``:
    called with its name before each. Raises ``DataError`` if there is no table, profiles are missing, or a line is
    wrong.
    """
    table = table_of_plans(folder)
    if table is None:
        raise DataError(f"{folder}: no file {PLANS}")
    rows = []
    for plans in _settings(read_operator_plans(table)):
        name = name_of(plans[0].gpu, _model(plans[0]))
        if only.lower() in name.lower():
            if told is not None:
                told(name)
            rows.append(_row(folder, plans, time_limit))
    return AcesoTable(tuple(rows))


def _settings(plans: list[OperatorPlan]) -> Iterator[list[OperatorPlan]]:
    by_setting = defaultdict(list)
    for plan in plans:
        by_setting[plan.gpu, plan.gpus, plan.size].append(plan)
    return iter([by_setting[key] for key in sorted(by_setting)])


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
        best=_best_words(found),
        best_s=min(found.seconds, theirs),
        lower_bound_s=min(found.lower_bound, theirs),
        wall_s=wall,
        ours=at_our_prices(profiles_of(folder, choice), problem, choice, time_limit),
    )


def _best_words(found: AcesoResult) -> str:
    return _words(found.micro_batch, [(stage.tp, stage.dp) for stage in found.stages]) if found.stages else "the same"


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
    """
    A plan by the formula, recomputing what Aceso's rule does.

    Raises ``DataError`` if its stages do not hold all operators, degrees were not profiled, or the rule recomputes
    another number.
    """
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
    counts: dict[str, int] = defaultdict(int)
    for tp, dp in degrees:
        counts[f"tp {tp}" + (f" dp {dp}" if dp > 1 else "")] += 1
    return ", ".join([f"mb {micro_batch}", *(f"{count} x {words}" for words, count in sorted(counts.items()))])
