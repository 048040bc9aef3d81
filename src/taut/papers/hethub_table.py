r"""
HETHUB's clusters and models of every size: stages of even length, its rule, the best plan of its space and the bound.

The clusters have 96, 192, 384 and 768 devices, AMD and A as 1 to 5, and the models 7 to 140 billion parameters (table
1 of the paper). Stated there: 12 stages (24 for 140 billion parameters, as the largest setting), no tensor parallelism,
and a global batch of 2048 for every six nodes. With t the seconds of a step, each row has

(1) t of the best plan with even stages, of HETHUB's rule of load balance and of the search, the search's lower bound b
    and its gap (t - b) / t;
(2) the communication gap, (t - b) / (t - c), c being what every placement of the plan pays for computation.

The paper has no step times that agree with its throughput (``taut.papers.hethub``), so none stand beside these.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.papers.compared import CUT_OFF, is_cut_off, legend, places_with
from taut.papers.hethub import quickest_even
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.certificate.document import communication_gap
from taut.solver.certificate.write import paid
from taut.solver.methods.baselines.hethub import hethub
from taut.solver.result import Limits, SearchResult
from taut.solver.search.search import search
from taut.words import text_table

CLUSTERS = {"hethub-12n96d": 12, "hethub-24n192d": 24, "hethub-48n384d": 48, "hethub-96n768d": 96}
"""Nodes of every cluster of the catalog."""
STAGES = {"llama2-7b": 12, "llama2-13b": 12, "llama2-35b": 12, "llama2-70b": 12, "llama2-140b": 24}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Seconds of a step (1), None where nothing fits, both gaps, and the seconds of the search."""

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
class Table:
    """Clusters and models."""

    rows: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"rows": [asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        """One line for each cluster and model."""
        names = (
            "cluster",
            "model",
            "uniform",
            "HETHUB's rule",
            "best plan",
            "bound",
            "gap",
            "of communication",
            "took",
        )
        table = text_table([names, *(_cells(row) for row in self.rows)])
        return "\n\n".join([table, *legend(row.is_cut_off for row in self.rows)])


def _cells(row: Row) -> tuple[str, ...]:
    steps = (row.even_s, row.rule_s, row.best_s, row.lower_bound_s)
    gaps = (row.gap, row.communication_gap)
    mark = CUT_OFF if row.is_cut_off else ""
    return (
        row.cluster,
        row.model,
        *("-" if seconds is None else f"{seconds:.2f} s" for seconds in steps),
        *("-" if gap is None else f"{gap:.2%}{mark}" for gap in gaps),
        f"{row.wall_s:.0f} s",
    )


def reproduce_hethub_table(
    limits: Limits | None = None, *, only: str = "", told: Callable[[str], None] = lambda words: None
) -> Table:
    """
    Plan every model on every cluster.

    ``limits``: of each search; by default a minute; ``only``: part of the names, "cluster model", of those that are
    planned; ``told``: called with the name of each before it is planned. Raises ``FieldError`` if none has it.
    """
    limits, every = limits or Limits(time_limit=60.0), [(cluster, model) for cluster in CLUSTERS for model in STAGES]
    chosen = [every[place] for place in places_with(only, [" ".join(pair) for pair in every])]
    return Table(tuple(_rows(chosen, limits, told)))


def _rows(chosen: Sequence[tuple[str, str]], limits: Limits, told: Callable[[str], None]) -> list[Row]:
    rows = []
    for cluster, model in chosen:
        told(f"{model} on {cluster}")
        rows.append(_row(cluster, model, limits))
    return rows


def _row(cluster: str, model: str, limits: Limits) -> Row:
    problem = _problem(cluster, model)
    start = perf_counter()
    found = search(problem, limits)
    took = perf_counter() - start
    plans = quickest_even(problem), hethub(problem, limits).incumbent, found.incumbent
    even, rule, best = (None if plan is None else plan.seconds for plan in plans)
    return Row(
        cluster=cluster,
        model=model,
        even_s=even,
        rule_s=rule,
        best_s=best,
        lower_bound_s=found.lower_bound,
        gap=found.gap,
        communication_gap=_of_communication(problem, found),
        wall_s=took,
        is_cut_off=is_cut_off(found),
    )


def _of_communication(problem: PlanningProblem, found: SearchResult) -> float | None:
    """The gap (2); None without a plan."""
    if found.incumbent is None:
        return None
    priced = step_time(problem, found.incumbent.strategy, found.incumbent.devices)
    return communication_gap(float(priced.total), paid(priced), found.lower_bound)


def _problem(cluster: str, model: str) -> PlanningProblem:
    """The space of the paper: 1F1B without tensor parallelism, in so many stages."""
    fixed: dict[str, int | str | bool] = {"pp": STAGES[model], "tp": 1, "schedule": "1f1b"}
    batch = 2048 * CLUSTERS[cluster] // 6
    return planning_problem(
        PlanRequest(
            model, cluster, global_batch=batch, precision="fp16", stack="any", fix=fixed, schedules="1f1b,gpipe"
        )
    )
