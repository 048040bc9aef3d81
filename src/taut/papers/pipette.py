r"""
Pipette's four settings: speed-ups and configuration times as published, beside ours under one bound.

The paper compares the plans of Pipette with those of AMP, of Varuna (pipelines and replicas alone) and of Megatron-LM
as it is tuned by hand (tensor groups that fill nodes), on clusters whose links reach different shares of their nominal
rate. For every setting ours are: each method by its paper (``taut.solver.methods.baselines``) on the same prices, with
Megatron-LM's pipelines and micro-batches tuned beside tensor groups that are as large as heads and nodes let them; the
branch and bound; and the distance of every plan of J seconds from its lower bound L, J / L - 1.

Stated in the paper: clusters and models (tables I and II), batches from 128 to 512, the published figures of 300,000
steps (table II) and the mean speed-ups (section VII-B). Assumed: a global batch of 512; the shape of the models, which
have the published size; 32 and 80 GB devices; analytic costs; memory by the analytic model. The rates that were
measured are not published: here a pair of nodes reaches :math:`\min(1, e^{N(-0.2, 0.2)})` of the nominal rate, drawn by
a seed.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from taut.data.cluster import ClusterSpec, MatrixSpec
from taut.data.load import load_cluster
from taut.formulations.problem import PlanningProblem
from taut.papers.compared import Compared, legend, places_with, rows_until_interrupted, times, with_bound
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.methods.baselines.trials import plain_candidates, tried
from taut.solver.methods.named import Outcome, method_of
from taut.solver.result import Limits
from taut.solver.simple_plans import simple_plan
from taut.words import text_table

GLOBAL_BATCH = 512
MEAN, SPREAD = -0.2, 0.2
"""Of the logarithm of the share of the nominal rate that a pair of nodes reaches."""
BASELINES = ("varuna", "amp", "pipette")


@dataclass(frozen=True, slots=True)
class Setting:
    """A column of table II: cluster, nodes, model, days of 300,000 steps, and minutes of configuration."""

    cluster: str
    nodes: int
    model: str
    amp_days: float
    pipette_days: float
    minutes: float


SETTINGS = (
    Setting("pipette-mid-range", 8, "gpt-1.1b", 30.10, 29.13, 10.71),
    Setting("pipette-mid-range", 16, "gpt-3.1b", 37.74, 35.42, 13.23),
    Setting("pipette-high-end", 8, "gpt-8.1b", 36.86, 31.61, 10.71),
    Setting("pipette-high-end", 16, "gpt-11.1b", 34.85, 23.89, 16.85),
)
SPEED_UPS = {
    "pipette-mid-range": {"megatron": 1.07, "amp": 1.12},
    "pipette-high-end": {"megatron": 1.26, "amp": 1.46},
}
"""Of Pipette over other methods on 16 nodes (figure 6); over Varuna, without its placement, 1.36 and 1.56."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Compared):
    """A setting and what every method finds."""

    setting: Setting


@dataclass(frozen=True, slots=True)
class Table:
    """All settings."""

    rows: tuple[Row, ...]
    whole_step: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        rows = [
            {**asdict(row), "speed_up": _speed_ups(row), "distance": row.distances, "gap": row.gap} for row in self.rows
        ]
        return {"global_batch": GLOBAL_BATCH, "rows": rows}

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.rows``); none by the whole step, which the paper does not price."""
        if self.whole_step:
            return {}
        found = {}
        for row in self.rows:
            cluster = row.setting.cluster.removeprefix("pipette-")
            if row.setting.nodes == 16:
                found[f"figure 6: over Megatron-LM, {cluster}"] = row.speed_cell("megatron", "pipette")
                found[f"figure 6: over AMP, {cluster}"] = row.speed_cell("amp", "pipette")
            else:
                found[f"table II: over AMP, 8 nodes of {cluster}"] = row.speed_cell("amp", "pipette")
            if row.setting.model == "gpt-11.1b":
                found["table II: annealing, 16 nodes of high-end"] = f"{row.wall_s['pipette']:.2f} s"
        return found

    def __str__(self) -> str:
        """Speed-ups, then distances, then seconds of the searches."""
        speeds: list[tuple[str, ...]] = [("setting", "AMP", "ours", "Megatron-LM", "ours", "Varuna", "ours")]
        speeds += [_speed_cells(row) for row in self.rows]
        methods = list(self.rows[0].step_s)
        distances: list[tuple[str, ...]] = [("setting", *methods, "gap")]
        distances += [(_name(row.setting), *row.distance_cells) for row in self.rows]
        walls: list[tuple[str, ...]] = [("setting", "published", *methods)]
        walls += [(_name(row.setting), f"{60 * row.setting.minutes:.0f} s", *row.wall_cells) for row in self.rows]
        return "\n\n".join(
            [
                "speed-up of Pipette's plan over other methods', published and here\n" + text_table(speeds),
                "distance of every method's plan from the lower bound\n" + text_table(distances),
                "time of the search\n" + text_table(walls),
                *legend(row.cut_off for row in self.rows),
            ]
        )


def _name(setting: Setting) -> str:
    return f"{setting.model}, {setting.nodes} nodes of {setting.cluster}"


def _speed_ups(row: Row) -> dict[str, float | None]:
    """Of Pipette's plan over every method's."""
    return {name: row.speed_up(name, "pipette") for name in row.step_s}


def _speed_cells(row: Row) -> tuple[str, ...]:
    setting = row.setting
    published = SPEED_UPS[setting.cluster] if setting.nodes == 16 else {}
    over_amp = f"{setting.amp_days / setting.pipette_days:.2f}x"
    megatron = times(published.get("megatron"))
    ours = {name: row.speed_cell(name, "pipette") for name in row.step_s}
    return _name(setting), over_amp, ours["amp"], megatron, ours["megatron"], "-", ours["varuna"]


def reproduce_pipette(
    limits: Limits | None = None,
    *,
    whole_step: bool = False,
    seed: int = 0,
    only: str = "",
    told: Callable[[str], None] | None = None,
) -> Table:
    """
    Plan every setting by every method.

    ``limits``: of each method; by default a minute; ``whole_step``: whether prices are of the whole step, not the
    paper's own; ``seed``: of the links that are drawn; ``only``: part of the names of the settings that are planned,
    such as ``gpt-8.1b``; ``told``: called with how far one is. Raises ``FieldError`` if no setting has it.
    """
    limits, names = limits or Limits(time_limit=60.0), [_name(setting) for setting in SETTINGS]
    chosen = [SETTINGS[place] for place in places_with(only, names)]
    rows = rows_until_interrupted(chosen, lambda setting: _row(setting, limits, seed, whole_step=whole_step), told)
    return Table(rows, whole_step)


def _row(setting: Setting, limits: Limits, seed: int, *, whole_step: bool) -> Row:
    request = PlanRequest(
        setting.model,
        drawn(setting, seed),
        global_batch=GLOBAL_BATCH,
        latency_model="step" if whole_step else "pipette",
        stack="any",
        schedules=["1f1b"],
    )
    problem = planning_problem(request)
    found = {"megatron": _by_hand(problem, limits)}
    found |= {name: method_of(name)(problem, limits, None) for name in BASELINES}
    return Row(setting=setting, **with_bound(problem, found, limits))


def _by_hand(problem: PlanningProblem, limits: Limits) -> Outcome:
    """Megatron-LM as the paper tunes it: the largest tensor groups in nodes, the best pipeline and micro-batch."""
    within = [each for each in plain_candidates(problem) if each.tp <= problem.links.gpus_per_node.max()]
    filled = [each for each in within if each.tp == max(other.tp for other in within)]
    return tried("megatron", (simple_plan(problem, each) for each in filled), len(filled), limits)


def drawn(setting: Setting, seed: int) -> ClusterSpec:
    """
    A setting's nodes with a rate for every pair of them.

    ``setting``: cluster and number of nodes; ``seed``: of the shares that pairs of nodes reach.
    """
    nominal = load_cluster(setting.cluster)
    of_count = [nominal.nodes[0].model_copy(update={"count": setting.nodes})]
    rng, nodes = np.random.default_rng(seed), setting.nodes
    shares = np.triu(np.minimum(np.exp(rng.normal(MEAN, SPREAD, (nodes, nodes))), 1.0), 1)
    rates = np.round((shares + shares.T) * (nominal.network.bandwidth_gbps or 0.0), 3)
    matrix = MatrixSpec(rows=rates.tolist(), unit="Gb/s")
    return nominal.model_copy(update={"nodes": of_count, "bandwidth_matrix": matrix})
