"""
Published plans beside the best plan of the same space, and their distance from its lower bound.

For every plan of ``published_plans`` two plans are made at the same prices, those of the default stack's calibration
for H100, of whose losses other devices have a copy: one with the published degrees and the best division of the layers,
and the best one of the default space that the search finds in the time, to the default gap (where the published plan
keeps a share of the activations on hosts, with that share or none). With
the seconds J of the first and the lower bound L of the second its distance is J / L - 1, which says what the published
choice of degrees can lose at most, at these prices. Calibrations were fitted on NVIDIA's runs among others, of dense
models alone, and on MLPerf's not. Runs that Sailor measured are priced by the profiles that it planned
with, searches whose costs are published by their own formulas first (``aceso``, ``galvatron``).
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.errors import DataError, NothingFoundError
from taut.papers.compared import (
    CUT_OFF,
    Made,
    SharedTime,
    command_of,
    gap_cell,
    is_cut_off,
    legend,
    plan_or_none,
    rows_so_far,
)
from taut.papers.searches.aceso import PLANS as ACESO
from taut.papers.searches.aceso import PROFILES, AcesoTable, reproduce_aceso
from taut.papers.searches.galvatron import PLANS as GALVATRON
from taut.papers.searches.galvatron import GalvatronTable, reproduce_galvatron
from taut.papers.searches.published_plans import (
    BRIDGE,
    MLPERF,
    NVIDIA,
    PROFILE,
    RECIPES,
    RUNS,
    PublishedPlan,
    degrees_of,
    has_plans,
    places_of,
    published_plans,
    sailor_runs,
)
from taut.planning.plan import Plan
from taut.solver.result import Limits
from taut.solver.signals import was_interrupted
from taut.words import text_table

TABLES = NVIDIA, MLPERF, BRIDGE, RECIPES, RUNS, ACESO, GALVATRON
GPUS_PER_NODE = 8
MEMORY = {"overhead_gib": 2.0, "margin": 0.05, "grad_precision": "bf16"}
"""The analytic memory model with gradients in bf16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """
    A published plan with its predicted seconds (None where it fits no memory here), the best plan and the bound.

    ``cut_off``: whether limits ended the searches for the published degrees and for the best plan.
    """

    published: PublishedPlan
    predicted_s: float | None
    best: str
    best_s: float | None
    lower_bound_s: float | None
    differs: str
    cut_off: tuple[bool, bool] = (False, False)

    @property
    def distance(self) -> float | None:
        """Distance of the published degrees from the bound."""
        if self.predicted_s is None or not self.lower_bound_s:
            return None
        return self.predicted_s / self.lower_bound_s - 1

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "published": self.published.as_dict(), "distance": self.distance, "command": self.command}

    @property
    def command(self) -> str:
        """What prints the published degrees' figures, alone where prices are the stack's own."""
        given = self.published
        if given.priced:
            return command_of(f"{given.who} {given.model} on {given.gpus}")
        fixed = ",".join(f"{name}={str(value).lower()}" for name, value in given.fixed.items())
        words = ["taut", "plan", given.model, str(_cluster(given)), "--global-batch", str(given.global_batch)]
        words += ["--seq", str(given.seq), "--precision", given.precision, "--grad-precision", "bf16", "--fix", fixed]
        return shlex.join([*words, *given.flags])


@dataclass(frozen=True, slots=True)
class Table:
    """Plans that ran, at taut's prices, and searches with published costs, at their own."""

    rows: tuple[Row, ...]
    aceso: AcesoTable | None = None
    galvatron: GalvatronTable | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        found: dict[str, Any] = {"rows": [row.as_dict() for row in self.rows]}
        others = {"aceso": self.aceso, "galvatron": self.galvatron}
        return found | {name: table.as_dict() for name, table in others.items() if table is not None}

    def __str__(self) -> str:
        """One line for each plan, searches with costs of their own in tables of their own."""
        others = [table for table in (self.aceso, self.galvatron) if table is not None and table.rows]
        return "\n\n".join([*([self._plans()] if self.rows or not others else []), *map(str, others)])

    def _plans(self) -> str:
        head = ("plan of", "model", "GPUs", "batch", "measured", "its degrees", "predicted", "best plan", "predicted")
        lines = [(*head, "bound", "gap", "distance", "differs most in"), *(_cells(row) for row in self.rows)]
        return "\n\n".join([text_table(lines), *legend(any(row.cut_off) for row in self.rows)])


def _cells(row: Row) -> tuple[str, ...]:
    given = row.published
    distance = "-" if row.distance is None else f"{100 * row.distance:.1f} %"
    job = given.who, given.model, str(given.gpus), str(given.global_batch), _seconds(given.measured_s)
    theirs, best = row.cut_off
    plans = given.degrees, _seconds(row.predicted_s) + CUT_OFF * theirs, row.best, _seconds(row.best_s)
    bound = _seconds(row.lower_bound_s), gap_cell(row.best_s, row.lower_bound_s, best)
    return *job, *plans, *bound, distance, row.differs


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def reproduce_searches(
    folder: Path,
    *,
    time_limit: float = 60.0,
    only: str = "",
    within: float | None = None,
    told: Callable[[str], None] | None = None,
) -> Table:
    """Price the published plans of a folder, ``only`` by name; each search within ``time_limit``, all ``within``."""
    if not any(places_of(folder, table) for table in TABLES):
        raise DataError(f"{folder}: no file that is known, expected {', '.join([*TABLES][:-1])} or {TABLES[-1]}")
    priced = _priced_sources(folder, only, told)
    every = [*published_plans(folder), *(sailor_runs(folder, only) if RUNS in priced else ())]
    chosen = [each for each in every if only.lower() in f"{each.who} {each.model} on {each.gpus} GPUs".lower()]
    others = {ACESO: ACESO in priced, GALVATRON: bool(places_of(folder, GALVATRON))}
    searches = 2 * (len(chosen) + sum(others.values()))
    shared = SharedTime(limits=Limits(time_limit=time_limit), within=within, searches=searches)
    rows = rows_so_far(
        chosen,
        lambda given: _row(given, shared.of_next(2).time_limit),
        lambda given: f"{given.who}: {given.model} on {given.gpus} GPUs",
        told,
    )

    def priced_by_itself(table: str, reproduce: Callable[..., Made]) -> Made | None:
        if not others[table] or shared.is_over or was_interrupted():
            return None
        return reproduce(folder, time_limit=shared.of_next(2).time_limit or 0.0, only=only, told=told)

    aceso = priced_by_itself(ACESO, reproduce_aceso)
    galvatron = priced_by_itself(GALVATRON, reproduce_galvatron)
    if was_interrupted() and not (rows or (aceso and aceso.rows) or (galvatron and galvatron.rows)):
        raise NothingFoundError("interrupted before the first plan was done")
    return Table(rows, aceso, galvatron)


def _priced_sources(folder: Path, only: str, told: Callable[[str], None] | None) -> list[str]:
    """Tables of a folder with prices of their own; those whose prices are missing only where nothing else is asked."""
    found = []
    for table, prices in ((RUNS, PROFILE), (ACESO, f"{PROFILES}*")):
        if not places_of(folder, table):
            continue
        if places_of(folder, prices) or only or not has_plans(folder):
            found.append(table)
        elif told is not None:
            told(f"{table}: left out, there is no {prices.replace('*', '...')} below {folder}")
    return found


def _row(given: PublishedPlan, time_limit: float | None) -> Row:
    theirs = _plan(given, time_limit, fix=given.fixed, **given.options(also_without=False))
    best = _plan(given, time_limit, **given.options(also_without=True))
    bound = None if best is None else best.lower_bound_s
    cut_off = tuple(each is not None and is_cut_off(each) for each in (theirs, best))
    if theirs is not None and best is not None and theirs.step_time_s < best.step_time_s:
        best = theirs
    return Row(
        published=given,
        predicted_s=None if theirs is None else theirs.step_time_s,
        best="-" if best is None else "the same" if best is theirs else degrees_of(best.strategy),
        best_s=None if best is None else best.step_time_s,
        lower_bound_s=bound,
        differs="-" if theirs is None or best is None else _difference(theirs, best),
        cut_off=(cut_off[0], cut_off[1]),
    )


def _plan(given: PublishedPlan, time_limit: float | None, **options: Any) -> Plan | None:
    """The plan at the prices of all rows, or None where nothing fits or nothing is found in the time."""
    return plan_or_none(
        given.model,
        _cluster(given),
        global_batch=given.global_batch,
        seq=given.seq,
        precision=given.precision,
        time_limit=time_limit,
        **({"memory_model": MEMORY} | dict(given.priced) | options),
    )


def _cluster(given: PublishedPlan) -> str | ClusterSpec:
    if given.cluster:
        return given.cluster
    nodes = given.gpus // GPUS_PER_NODE
    return f"dgx-h100:{nodes}" if nodes > 1 else "dgx-h100"


def _difference(theirs: Plan, best: Plan) -> str:
    """The part of the step in which two plans differ most."""
    one, other = theirs.predicted.breakdown_s, best.predicted.breakdown_s
    part = max(one, key=lambda name: abs(one[name] - other[name]))
    return f"{part.replace('_', ' ')} {other[part] - one[part]:+.2f} s"
