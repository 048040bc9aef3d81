"""
Published plans beside the best plan of the same space, and their distance from its lower bound.

For every plan of ``taut.reproduce.published_plans`` two plans are made at the same prices, those of the default stack's
calibration for H100, of whose losses other devices have a copy: one with the published degrees and the best division of
the layers, and the best one that the search finds in the time (1F1B and interleaved 1F1B, context and expert ranks
included). With the seconds J of the first and the lower bound L of the second its distance is J / L - 1, which says
what the published choice of degrees can lose at most, at these prices. Calibrations were fitted on NVIDIA's runs among
others, of dense models alone, and on MLPerf's not. Searches whose costs are published are priced by those
(``taut.reproduce.aceso``).
"""

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taut.errors import InfeasibleError, NothingFoundError
from taut.planning.plan import Plan
from taut.planning.solve import plan
from taut.reports.text_table import text_table
from taut.reproduce.aceso import AcesoTable, reproduce_aceso, table_of_plans
from taut.reproduce.published import PublishedPlan
from taut.reproduce.published_plans import has_plans, published_plans

SCHEDULES = ["1f1b", "interleaved-1f1b"]
GPUS_PER_NODE = 8
MEMORY = {"overhead_gib": 2.0, "margin": 0.05, "grad_precision": "bf16"}
"""The analytic memory model with gradients in bf16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published plan with its predicted seconds (None where it fits no memory here), the best plan and the bound."""

    published: PublishedPlan
    predicted_s: float | None
    best: str
    best_s: float | None
    lower_bound_s: float | None
    differs: str

    @property
    def distance(self) -> float | None:
        """Distance of the published degrees from the bound."""
        if self.predicted_s is None or not self.lower_bound_s:
            return None
        return self.predicted_s / self.lower_bound_s - 1

    @property
    def command(self) -> str:
        """What prints the published degrees' figures alone."""
        given = self.published
        fixed = ",".join(f"{name}={str(value).lower()}" for name, value in given.fixed.items())
        words = ["taut", "plan", given.model, _cluster(given), "--global-batch", str(given.global_batch)]
        words += ["--seq", str(given.seq), "--precision", given.precision, "--grad-precision", "bf16", "--fix", fixed]
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Table:
    """Plans that ran, at taut's prices, and searches with published costs, at their own."""

    rows: tuple[Row, ...]
    aceso: AcesoTable | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        rows = [{**asdict(row), "distance": row.distance, "command": row.command} for row in self.rows]
        return {"rows": rows} | ({} if self.aceso is None else {"aceso": self.aceso.as_dict()})

    def __str__(self) -> str:
        """One line for each plan."""
        if self.aceso is not None and not self.rows:
            return str(self.aceso)
        return self._plans() if self.aceso is None else f"{self._plans()}\n\n{self.aceso}"

    def _plans(self) -> str:
        head = ("plan of", "model", "GPUs", "batch", "measured", "its degrees", "predicted", "best plan", "predicted")
        lines = [(*head, "bound", "distance", "differs most in"), *(_cells(row) for row in self.rows)]
        return text_table(lines)


def _cells(row: Row) -> tuple[str, ...]:
    given = row.published
    distance = "-" if row.distance is None else f"{100 * row.distance:.1f} %"
    job = given.who, given.model, str(given.gpus), str(given.global_batch), _seconds(given.measured_s)
    plans = degrees(given.fixed), _seconds(row.predicted_s), row.best, _seconds(row.best_s)
    return *job, *plans, _seconds(row.lower_bound_s), distance, row.differs


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def degrees(chosen: dict[str, Any]) -> str:
    """Degrees in words, those of 1 left out."""
    said = [f"{name} {chosen[name]}" for name in ("tp", "cp", "pp", "vpp", "ep", "dp") if chosen.get(name, 1) > 1]
    return " ".join([*said, f"mb {chosen['micro_batch']}", f"ZeRO-{chosen['zero']}"])


def reproduce_searches(
    folder: Path, *, time_limit: float = 60.0, only: str = "", told: Callable[[str], None] | None = None
) -> Table:
    """
    Price the published plans of a folder.

    Parameters
    ----------
    folder
        Holds tables of ``taut.reproduce.published_plans`` or of ``taut.reproduce.aceso``, or some of both.
    time_limit
        Seconds of each of the two searches of a plan.
    only
        Part of the name of who published a plan, or of its model.
    told
        Called with the job of a plan before it is priced.

    Raises
    ------
    DataError
        If the folder has none of the tables, or a line of them is wrong.
    """
    rows = []
    aceso = None
    if table_of_plans(folder) is not None:
        aceso = reproduce_aceso(folder, time_limit=time_limit, only=only, told=told)
    for given in published_plans(folder) if aceso is None or has_plans(folder) else ():
        if only.lower() in f"{given.who} {given.model}".lower():
            if told is not None:
                told(f"{given.who}: {given.model} on {given.gpus} GPUs")
            rows.append(_row(given, time_limit))
    return Table(tuple(rows), aceso)


def _row(given: PublishedPlan, time_limit: float) -> Row:
    theirs = _plan(given, time_limit, fix=given.fixed)
    best = _plan(given, time_limit, schedules=SCHEDULES)
    return Row(
        published=given,
        predicted_s=None if theirs is None else theirs.step_time_s,
        best="-" if best is None else degrees(_of(best)),
        best_s=None if best is None else best.step_time_s,
        lower_bound_s=None if best is None else best.lower_bound_s,
        differs="-" if theirs is None or best is None else _difference(theirs, best),
    )


def _of(found: Plan) -> dict[str, Any]:
    names = ("tp", "cp", "pp", "vpp", "ep", "dp", "micro_batch", "zero")
    return {name: getattr(found.strategy, name) for name in names}


def _plan(given: PublishedPlan, time_limit: float, **options: Any) -> Plan | None:
    """The plan at the prices of all rows, or None where nothing fits or nothing is found in the time."""
    try:
        return plan(
            given.model,
            _cluster(given),
            global_batch=given.global_batch,
            seq=given.seq,
            precision=given.precision,
            memory_model=MEMORY,
            time_limit=time_limit,
            **options,
        )
    except (InfeasibleError, NothingFoundError):
        return None


def _cluster(given: PublishedPlan) -> str:
    if given.cluster:
        return given.cluster
    nodes = given.gpus // GPUS_PER_NODE
    return f"dgx-h100:{nodes}" if nodes > 1 else "dgx-h100"


def _difference(theirs: Plan, best: Plan) -> str:
    """The part of the step in which two plans differ most."""
    one, other = theirs.predicted.breakdown_s, best.predicted.breakdown_s
    part = max(one, key=lambda name: abs(one[name] - other[name]))
    return f"{part.replace('_', ' ')} {other[part] - one[part]:+.2f} s"
