r"""
Pipette's four settings: speed-ups and configuration times as published, beside ours under one bound.

The paper compares the plans of Pipette with those of AMP, of Varuna (pipelines and replicas alone) and of Megatron-LM
as it is tuned by hand (tensor groups that fill nodes), on clusters whose links reach different shares of their nominal
rate. For every setting ours are: each method on the same prices; the branch and bound; and the distance of every plan
of J seconds from its lower bound L, J / L - 1. As the paper has them, Megatron-LM's pipelines and micro-batches are
tuned beside tensor groups that are as large as heads and nodes let them; AMP ranks by its own model at nominal rates
without memory, and the first of its strategies that fits is taken; PPT-L is the best configuration of Pipette with
workers in the order of the devices.

Figure 5: (1) the mean of :math:`|t / s - 1|` over even plans in the order of the devices that fit, t by a latency model
and s simulated at the drawn rates, where AMP's model has nominal rates; (2) how many of the ten cheapest strategies
exceed the memory: AMP's, and Varuna's pipelines and replicas with full recompute, by (1) of the paper, which is AMP's
model.

Stated in the paper: clusters and models (tables I and II), batches from 128 to 512, micro-batches to 8, the published
figures of 300,000 steps (table II) and the mean speed-ups (section VII-B). Assumed: a global batch of 512; the shape of
the models, which have the published size; 32 and 80 GB devices; analytic costs; memory by the analytic model. The rates
that were measured are not published: here a pair of nodes reaches :math:`\min(1, e^{N(-0.2, 0.2)})` of the nominal
rate, drawn by a seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.cluster import ClusterSpec, MatrixSpec
from taut.data.load import load_cluster
from taut.formulations.latency import step_time, violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.papers.compared import Asked, Compared, go_on, legend, outcomes, posed, rows_of, times, with_bound
from taut.solver.bounds.simulated import simulated_seconds
from taut.solver.methods.baselines import amp_strategies, configurations, plain_candidates, tried
from taut.solver.methods.named import Outcome, method_of
from taut.solver.result import Limits
from taut.solver.simple_plans import even_strategy, priced, rank_order, simple_plan
from taut.words import percent, text_table

GLOBAL_BATCH = 512
MEAN, SPREAD = -0.2, 0.2
"""Of the logarithm of the share of the nominal rate that a pair of nodes reaches."""
STEPS = 300_000
LARGEST_MICRO_BATCH, BEST = 8, 10
"""Of figure 5."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A column of table II: cluster, nodes, model, days of 300,000 steps, and minutes of configuration."""

    cluster: str
    nodes: int
    model: str
    amp_days: float
    pipette_days: float
    minutes: float

    @property
    def saved(self) -> float:
        """Days that Pipette's plan saves over AMP's."""
        return self.amp_days - self.pipette_days


SETTINGS = (
    Setting("pipette-mid-range", 8, "gpt-1.1b", 30.10, 29.13, 10.71),
    Setting("pipette-mid-range", 16, "gpt-3.1b", 37.74, 35.42, 13.23),
    Setting("pipette-high-end", 8, "gpt-8.1b", 36.86, 31.61, 10.71),
    Setting("pipette-high-end", 16, "gpt-11.1b", 34.85, 23.89, 16.85),
)
PAIRS = (("pipette", "megatron"), ("pipette", "amp"), ("ppt-l", "varuna"), ("ppt-l", "amp"))
SPEED_UPS = {
    "pipette-mid-range": dict(zip(PAIRS, (1.07, 1.12, 1.36, 1.06), strict=True)),
    "pipette-high-end": dict(zip(PAIRS, (1.26, 1.46, 1.56, 1.35), strict=True)),
}
"""Of one method's plan over another's on 16 nodes (figure 6)."""
WORDS = {"pipette": "", "ppt-l": "PPT-L ", "megatron": "Megatron-LM", "amp": "AMP", "varuna": "Varuna"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Compared):
    """
    A setting and what every method finds.

    ``plans``: how many figure 5 a is of; ``amp_error``, ``pipette_error``: of both latency models, (1);
    ``out_of_memory``: of AMP's and of Varuna's ten best, (2).
    """

    setting: Setting
    plans: int
    amp_error: float
    pipette_error: float
    out_of_memory: tuple[int, int]

    @property
    def days_saved(self) -> float | None:
        """Days of 300,000 steps that Pipette's plan saves over AMP's."""
        pipette, amp = self.step_s["pipette"], self.step_s["amp"]
        return None if pipette is None or amp is None else STEPS * (amp - pipette) / 86_400


@dataclass(frozen=True, slots=True)
class Table:
    """All settings."""

    rows: tuple[Row, ...]
    whole_step: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        rows = [
            {
                **asdict(row),
                "speed_up": {name: row.speed_up(name, "pipette") for name in row.step_s},
                "days_saved": row.days_saved,
                "distance": row.distances,
                "gap": row.gap,
            }
            for row in self.rows
        ]
        return {"global_batch": GLOBAL_BATCH, "rows": rows}

    @property
    def mean_errors(self) -> tuple[float, float]:
        """Mean errors of AMP's and Pipette's latency models over the plans of all settings, (1)."""
        plans = [row.plans for row in self.rows]
        amp, pipette = (float(np.average(each, weights=plans)) for each in zip(*map(_errors, self.rows), strict=True))
        return amp, pipette

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.published_rows``); none by the whole step, which it leaves out."""
        if self.whole_step:
            return {}
        amp, pipette = self.mean_errors
        found = {
            "figure 5 a: error of AMP's model": percent(amp, places=2),
            "figure 5 a: error of Pipette's model": percent(pipette, places=2),
        }
        for row in self.rows:
            cluster = row.setting.cluster.removeprefix("pipette-")
            where = f"{row.setting.nodes} nodes of {cluster}"
            found[f"table II: days saved of 300,000 steps, {where}"] = _days(row.days_saved)
            found[f"table II: annealing, {where}"] = f"{row.wall_s['pipette']:.2f} s"
            if row.setting.nodes < 16:
                found[f"table II: over AMP, {where}"] = row.speed_cell("amp", "pipette")
                continue
            for of, over in SPEED_UPS[row.setting.cluster]:
                found[f"figure 6: {WORDS[of]}over {WORDS[over]}, {cluster}"] = row.speed_cell(over, of)
            if cluster == "mid-range":
                for name, count in zip(("AMP", "Varuna"), row.out_of_memory, strict=True):
                    found[f"figure 5 b: of {name}'s ten best, out of memory"] = str(count)
        return found

    def __str__(self) -> str:
        """Speed-ups, then distances, then figure 5, then seconds of the searches."""
        pairs = [f"{WORDS[of]}over {WORDS[over]}" for of, over in SPEED_UPS[self.rows[0].setting.cluster]]
        speeds: list[tuple[str, ...]] = [("setting", *(cell for pair in pairs for cell in (pair, "ours")))]
        speeds += [_speed_cells(row) for row in self.rows]
        methods = list(self.rows[0].step_s)
        distances: list[tuple[str, ...]] = [("setting", *methods, "gap")]
        distances += [(_name(row.setting), *row.distance_cells) for row in self.rows]
        models: list[tuple[str, ...]] = [("setting", "plans", "AMP's", "Pipette's", "AMP", "Varuna")]
        models += [
            (_name(row.setting), str(row.plans), *map(_percent, _errors(row)), *map(str, row.out_of_memory))
            for row in self.rows
        ]
        models.append(("all", str(sum(row.plans for row in self.rows)), *map(_percent, self.mean_errors), "", ""))
        saved: list[tuple[str, ...]] = [("setting", "published", "ours")]
        saved += [(_name(row.setting), *map(_days, (row.setting.saved, row.days_saved))) for row in self.rows]
        walls: list[tuple[str, ...]] = [("setting", "published", *methods)]
        walls += [(_name(row.setting), f"{60 * row.setting.minutes:.0f} s", *row.wall_cells) for row in self.rows]
        return "\n\n".join(
            [
                "speed-up of the plans of Pipette and of PPT-L, published and here\n" + text_table(speeds),
                "distance of every method's plan from the lower bound\n" + text_table(distances),
                "mean error of latency models against simulation, and how many of the ten best do not fit\n"
                + text_table(models),
                "saved by Pipette's plan over AMP's in 300,000 steps\n" + text_table(saved),
                "time of the search\n" + text_table(walls),
                *legend(row.cut_off for row in self.rows),
            ]
        )


def _name(setting: Setting) -> str:
    return f"{setting.model}, {setting.nodes} nodes of {setting.cluster}"


def _speed_cells(row: Row) -> tuple[str, ...]:
    """Speed-ups of every pair, published and ours; over AMP the published one is of this setting's days."""
    setting, cells = row.setting, list[str]()
    for (of, over), mean in SPEED_UPS[setting.cluster].items():
        published = mean if setting.nodes == 16 else None
        if (of, over) == ("pipette", "amp"):
            published = setting.amp_days / setting.pipette_days
        cells += [times(published), row.speed_cell(over, of)]
    return _name(setting), *cells


def _errors(row: Row) -> tuple[float, float]:
    return row.amp_error, row.pipette_error


def _percent(error: float) -> str:
    return percent(error, places=2)


def _days(days: float | None) -> str:
    return "-" if days is None else f"{days:.2f} days"


def reproduce_pipette(
    limits: Limits | None = None, *, whole_step: bool = False, seed: int = 0, **asked: Unpack[Asked]
) -> Table:
    """Plan every setting that is asked for by every method, within ``limits`` each."""
    settings = {_name(setting): setting for setting in SETTINGS}
    row = partial(_row, seed=seed, whole_step=whole_step)
    return Table(rows_of(settings, row, METHODS, limits, asked), whole_step)


METHODS = 6
"""Searches of a setting."""


def _row(setting: Setting, limits: Limits, *, seed: int, whole_step: bool) -> Row:
    cluster = drawn(setting, seed)
    problem = _problem(setting, cluster, "step" if whole_step else "pipette")
    nominal = _problem(setting, cluster.model_copy(update={"bandwidth_matrix": None}), "amp")
    ranked = sorted(amp_strategies(nominal), key=lambda each: each.cost)
    runs = (priced(problem, each.strategy, each.devices) for each in ranked)
    plain = plain_candidates(problem)
    methods: dict[str, Callable[[], Outcome]] = {
        "megatron": lambda: _by_hand(problem, limits),
        "varuna": lambda: method_of("varuna")(problem, limits, None),
        "amp": lambda: tried("amp", runs, len(ranked), limits, enough=lambda plan: True),
        "ppt-l": lambda: tried("ppt-l", (simple_plan(problem, each) for each in plain), len(plain), limits),
        "pipette": lambda: method_of("pipette")(problem, limits, None),
    }
    found = outcomes(methods)
    errors = _latency_errors(problem.priced_by("pipette"), nominal)
    amp_best = [(each.strategy, each.devices) for each in ranked[:BEST]]
    return Row(
        setting=setting,
        plans=len(errors),
        amp_error=float(errors[:, 0].mean()),
        pipette_error=float(errors[:, 1].mean()),
        out_of_memory=(_too_large(problem, amp_best), _too_large(problem, _varuna_best(problem, nominal))),
        **with_bound(problem, found, limits),
    )


def _problem(setting: Setting, cluster: ClusterSpec, prices: str) -> PlanningProblem:
    return posed(setting.model, cluster, prices, global_batch=GLOBAL_BATCH, schedules=["1f1b"])


def _latency_errors(problem: PlanningProblem, nominal: PlanningProblem) -> Floats:
    """Errors of AMP's model and of Pipette's against the simulated step of every plan of (1), (plans, 2)."""
    rows = []
    for (*_, micro_batch), group in configurations(plain_candidates(problem)):
        go_on()
        plan = simple_plan(problem, group[0]) if micro_batch <= LARGEST_MICRO_BATCH else None
        if plan is not None:
            simulated = simulated_seconds(problem, plan.strategy, plan.devices)
            amp = float(step_time(nominal, plan.strategy, plan.devices).total)
            rows.append((abs(amp / simulated - 1), abs(plan.seconds / simulated - 1)))
    return np.array(rows)


def _varuna_best(problem: PlanningProblem, nominal: PlanningProblem) -> list[tuple[Strategy, Ints]]:
    """Varuna's ten best, (2), with their devices."""
    chosen = [each for each in plain_candidates(problem) if each.tp == 1 and each.zero == 0]
    plans = [(even_strategy(problem, each, "full"), rank_order(each)) for each in chosen]
    return sorted(plans, key=lambda plan: float(step_time(nominal, *plan).total))[:BEST]


def _too_large(problem: PlanningProblem, plans: Sequence[tuple[Strategy, Ints]]) -> int:
    """How many of the plans break a rule, which are those of memory."""
    return sum(bool(violations(problem, *plan)) for plan in plans)


def _by_hand(problem: PlanningProblem, limits: Limits) -> Outcome:
    """Megatron-LM as the paper tunes it: the largest tensor groups in nodes, the best pipeline and micro-batch."""
    within = [each for each in plain_candidates(problem) if each.tp <= problem.links.gpus_per_node.max()]
    filled = [each for each in within if each.tp == max(other.tp for other in within)]
    return tried("megatron", (simple_plan(problem, each) for each in filled), len(filled), limits)


def drawn(setting: Setting, seed: int) -> ClusterSpec:
    """A setting's nodes with a rate for every pair of them, drawn by the seed."""
    nominal = load_cluster(setting.cluster)
    of_count = [nominal.nodes[0].model_copy(update={"count": setting.nodes})]
    rng, nodes = np.random.default_rng(seed), setting.nodes
    shares = np.triu(np.minimum(np.exp(rng.normal(MEAN, SPREAD, (nodes, nodes))), 1.0), 1)
    rates = np.round((shares + shares.T) * (nominal.network.bandwidth_gbps or 0.0), 3)
    matrix = MatrixSpec(rows=rates.tolist(), unit="Gb/s")
    return nominal.model_copy(update={"nodes": of_count, "bandwidth_matrix": matrix})
