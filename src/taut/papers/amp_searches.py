r"""
AMP's three searches: what it searches, its method and other baselines, and how far each is from the lower bound.

The paper searches all degrees with :math:`pp \cdot tp \cdot dp = 16`, tensor groups within nodes, and every
micro-batch: 53, 53 and 65 strategies, each with the layers split by its dynamic program. Here each method
(``taut.solver.methods.baselines``) and the branch and bound search the same strategies by AMP's latency model, under
1F1B, without recompute and sharding, which the paper does not vary. The distance of a plan of J seconds from the lower
bound L is J / L - 1.

AMP's plan is taken apart as in table 5: its degrees and micro-batch with as many layers in every stage, and with as
many parameters (``balanced_ends``). Figure 3 varies the seconds of the narrow layers of the mixed model at tp 1, pp 4
and dp 4: the gain of AMP's split over both. ``dominoes`` is AMP's annealing alone (section 6.3).

Stated in the paper: clusters, models, batches; the measured steps (tables 3 to 11); seconds of its search by size of
the cluster (table 2) and for TransGAN (section 4.6). Assumed: analytic costs in 16 bits, or with ``profile`` AMP's own
profile and its transfers in 32 bits (``taut.papers.amp``); latencies of links.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from time import perf_counter
from typing import Any, Unpack

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.cluster import ClusterSpec
from taut.data.load import load_cluster
from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Division
from taut.papers.amp import SETTINGS, AmpExperiment
from taut.papers.compared import (
    Asked,
    Compared,
    go_on,
    legend,
    outcomes,
    posed,
    rows_of,
    rows_so_far,
    times,
    with_bound,
)
from taut.solver.methods.baselines import (
    TRIALS,
    amp_strategies,
    amp_trials,
    configuration,
    dominoes,
    plain_candidates,
)
from taut.solver.methods.named import method_of
from taut.solver.result import Incumbent, Limits
from taut.solver.signals import was_interrupted
from taut.solver.simple_plans import even_strategy, priced, simple_plan
from taut.words import text_table

BASELINES = ("megatron", "amp", "pipette", "hethub", "random")
TABLES = {"homogeneous": "table 3", "het_cluster": "table 4", "het_model": "table 5"}
BEST_TABLES = {"homogeneous": "tables 6-7", "het_cluster": "tables 8-9", "het_model": "tables 10-11"}
WORDS = {"homogeneous": "homogeneous", "het_cluster": "mixed cluster", "het_model": "mixed model"}
MEASURED_S = {"homogeneous": (1.32, 1.20), "het_cluster": (1.97, 1.28), "het_model": (1.89, 1.07)}
"""Measured seconds of the best step of Megatron-LM's heuristic and of AMP (tables 3 to 5)."""
SPEED_UPS = {"homogeneous": 1.32 / 1.20, "het_cluster": 1.54, "het_model": 1.89 / 1.07}
"""Of AMP's best plan over that of Megatron-LM's heuristic, measured (tables 3 to 5, section 4.4)."""
SEARCH_S = {"homogeneous": 325.6, "het_cluster": 325.6, "het_model": 235.6}
"""Seconds of AMP's search (table 2 for GPT-2 on 4 x 4 GPUs, section 4.6 for TransGAN)."""
SIDES = {2: 58.0, 4: 325.6, 8: 890.3, 16: 1627.4}
"""Seconds of AMP's search on n nodes of n GPUs (table 2)."""
FIVE_BEST = {
    "homogeneous": ((1, 1, 2, 1.28), (1, 1, 4, 1.20), (1, 1, 8, 1.23), (2, 1, 2, 1.38), (1, 1, 16, 1.55)),
    "het_cluster": ((1, 1, 4, 1.47), (1, 1, 8, 1.28), (1, 1, 16, 1.52), (2, 1, 4, 1.52), (2, 1, 8, 1.54)),
    "het_model": ((1, 1, 4, 1.07), (2, 1, 4, 1.08), (2, 1, 16, 1.13), (1, 1, 16, 1.30), (2, 1, 8, 1.39)),
}
"""AMP's five best: micro-batch, tp, pp and measured seconds (tables 7, 9 and 11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A strategy of AMP's five best here: degrees, layers of every stage, predicted seconds."""

    micro_batch: int
    tp: int
    pp: int
    layers: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Compared):
    """A setting, its number of strategies, and what every method finds; None where AMP's plan does not fit."""

    setting: str
    strategies: int
    uniform_s: float | None = None
    balanced_s: float | None = None
    annealed_s: float | None = None
    five_best: tuple[Ranked, ...] = ()

    def over_amp(self, seconds: float | None) -> float | None:
        """How much slower a plan is than AMP's."""
        amp = self.step_s["amp"]
        return None if seconds is None or amp is None else seconds / amp


@dataclass(frozen=True, slots=True)
class Table:
    """All settings; seconds of AMP's search by size of the cluster; gains of its split, both empty if not asked for."""

    rows: tuple[Row, ...]
    search_s: tuple[tuple[int, float], ...] = ()
    gains: tuple[tuple[float, float, float], ...] = ()
    has_profile: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rows": [_plain(row) for row in self.rows],
            "search_s": [
                {"side": side, "ours_s": seconds, "published_s": SIDES[side]} for side, seconds in self.search_s
            ],
            "figure_3": [
                dict(zip(("ratio", "over_uniform", "over_balanced"), gain, strict=True)) for gain in self.gains
            ],
        }

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.published_rows``)."""
        found = {f"table 2: search on {side} x {side} GPUs": f"{seconds:.2f} s" for side, seconds in self.search_s}
        for row in self.rows:
            table, name = TABLES[row.setting], WORDS[row.setting]
            found[f"algorithm 1: strategies, {name}"] = str(row.strategies)
            found[f"{table}: AMP over Megatron-LM, {name}"] = row.speed_cell("megatron", "amp")
            found[f"{table}: annealing over AMP"] = times(row.over_amp(row.annealed_s))
            found[f"{table}: random over AMP"] = row.speed_cell("random", "amp")
            found[f"{table}: uniform layers over AMP"] = times(row.over_amp(row.uniform_s))
            found[f"{table}: balanced parameters over AMP"] = times(row.over_amp(row.balanced_s))
            found[f"{BEST_TABLES[row.setting]}: five best in common, {name}"] = str(shared_with_paper(row))
        if self.gains:
            found["figure 3: gain over uniform layers"] = f"{self.gains[0][1]:.2f}x to {self.gains[-1][1]:.2f}x"
        return found

    def __str__(self) -> str:
        """Speed-ups, then seconds, then distances, then what AMP's plan is made of, then seconds of the searches."""
        methods = list(self.rows[0].step_s)
        speeds = [
            (*_name(row), f"{SPEED_UPS[row.setting]:.2f}x", row.speed_cell("megatron", "amp")) for row in self.rows
        ]
        shares = [(*_name(row), *row.distance_cells) for row in self.rows]
        walls = [(*_name(row), f"{SEARCH_S[row.setting]:.0f} s", *row.wall_cells) for row in self.rows]
        named = ("setting", "strategies")
        costs = "AMP's own profile" if self.has_profile else "analytic costs"
        head = ("setting", "Megatron-LM measured", "predicted", "AMP measured", "predicted")
        apart = ("uniform layers", "balanced parameters", "annealing alone")
        parts = [
            "speed-up of AMP's plan over Megatron-LM's\n" + text_table([(*named, "published", "ours"), *speeds]),
            f"seconds of a step by {costs}\n" + text_table([(*head, *apart), *map(_seconds, self.rows)]),
            "distance of every method's plan from the lower bound\n" + text_table([(*named, *methods, "gap"), *shares]),
            "AMP's five best\n"
            + text_table([("setting", "mbs", "tmp", "pp", "layers", "predicted", "measured"), *_best(self.rows)]),
            "time of the search\n" + text_table([(*named, "published", *methods), *walls]),
        ]
        if self.search_s:
            sides = [
                (f"{side} x {side}", f"{SIDES[side]:.1f} s", f"{seconds:.2f} s") for side, seconds in self.search_s
            ]
            parts.append("AMP's search on n nodes of n GPUs\n" + text_table([("GPUs", "published", "ours"), *sides]))
        if self.gains:
            cells = [(f"{ratio:g}", f"{one:.2f}x", f"{two:.2f}x") for ratio, one, two in self.gains]
            heads = ("narrow over wide", "over uniform layers", "over balanced parameters")
            parts.append("gain of AMP's split by seconds of narrow layers\n" + text_table([heads, *cells]))
        return "\n\n".join([*parts, *legend(row.cut_off for row in self.rows)])


def _name(row: Row) -> tuple[str, str]:
    return row.setting, str(row.strategies)


def _seconds(row: Row) -> tuple[str, ...]:
    megatron, amp = MEASURED_S[row.setting]
    ours = (row.step_s["megatron"], row.step_s["amp"], row.uniform_s, row.balanced_s, row.annealed_s)
    cells = ["-" if seconds is None else f"{seconds:.3f} s" for seconds in ours]
    return row.setting, f"{megatron:.2f} s", cells[0], f"{amp:.2f} s", *cells[1:]


def _best(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """The five best of every setting, with the measured seconds of those that the paper has too."""
    lines: list[tuple[str, ...]] = []
    for row in rows:
        ran = {(mbs, tp, pp): seconds for mbs, tp, pp, seconds in FIVE_BEST[row.setting]}
        for each in row.five_best:
            measured = ran.get((each.micro_batch, each.tp, each.pp))
            degrees = (str(each.micro_batch), str(each.tp), str(each.pp))
            layers = " ".join(map(str, each.layers))
            seconds = "-" if measured is None else f"{measured:.2f} s"
            lines.append((row.setting, *degrees, layers, f"{each.seconds:.3f} s", seconds))
    return lines


def shared_with_paper(row: Row) -> int:
    """How many of the five best of the paper are among the five best here."""
    ours = {(each.micro_batch, each.tp, each.pp) for each in row.five_best}
    return len(ours & {degrees[:3] for degrees in FIVE_BEST[row.setting]})


def _plain(row: Row) -> dict[str, Any]:
    published = {"speed_up": SPEED_UPS[row.setting], "search_s": SEARCH_S[row.setting]}
    return {
        **asdict(row),
        "distance": row.distances,
        "gap": row.gap,
        "speed_up": row.speed_up("megatron", "amp"),
        "published": published,
    }


def reproduce_amp_searches(
    setting: str | None = None, limits: Limits | None = None, profile: Path | None = None, **asked: Unpack[Asked]
) -> Table:
    """Search AMP's strategies, of a ``setting`` or all, by every method, within ``limits`` each."""
    if setting is not None and setting not in SETTINGS:
        raise FieldError("setting", setting, f"expected {one_of(setting, SETTINGS)}")
    names = {name: name for name in ([setting] if setting else SETTINGS)}
    rows = rows_of(names, lambda name, limits: _row(name, limits, profile), len(BASELINES) + 2, limits, asked)
    if setting or len(rows) < len(names) or was_interrupted():
        return Table(rows, has_profile=profile is not None)
    seconds = rows_so_far(SIDES, search_seconds)
    gains = rows_so_far(["het_model"], lambda name: split_gains(_problem(name, profile)))
    return Table(rows, seconds, gains[0] if gains else (), profile is not None)


def _problem(name: str, profile: Path | None = None, cluster: ClusterSpec | None = None) -> PlanningProblem:
    """The strategies of a setting at AMP's profile or at analytic costs."""
    if profile is not None:
        return AmpExperiment.of(name, profile).problem()
    setting = SETTINGS[name]
    fixed = {"zero": 0, "recompute": "none", "sequence_parallel": False}
    options: dict[str, Any] = {"schedules": ["1f1b"], "max_tp": 4, "fix": fixed}
    return posed(setting.model, cluster or setting.cluster, "amp", global_batch=setting.global_batch, **options)


def _row(name: str, limits: Limits, profile: Path | None) -> Row:
    problem = _problem(name, profile)
    found = outcomes({each: partial(method_of(each), problem, limits, None) for each in BASELINES})
    amp, walked = found["amp"].incumbent, dominoes(problem, limits).incumbent
    return Row(
        setting=name,
        strategies=len(problem.candidates),
        uniform_s=None if amp is None else _with_ends(problem, amp, uniform_ends(problem, amp)),
        balanced_s=None if amp is None else _with_ends(problem, amp, balanced_ends(problem, amp)),
        annealed_s=None if walked is None else walked.seconds,
        five_best=_five_best(problem, limits.seed),
        **with_bound(problem, found, limits),
    )


def _five_best(problem: PlanningProblem, seed: int) -> tuple[Ranked, ...]:
    """The quickest of AMP's trials and of its ten best without annealing, one for each configuration."""
    ranked = sorted(amp_strategies(problem), key=lambda each: each.cost)[:TRIALS]
    tried = chain(amp_trials(problem, seed), (priced(problem, each.strategy, each.devices) for each in ranked))
    plans = [plan for plan in tried if plan is not None]
    first: dict[Any, Ranked] = {}
    for plan in sorted(plans, key=lambda plan: plan.seconds):
        chosen, layers = plan.strategy.candidate, tuple(end - begin for begin, end in plan.strategy.stages)
        found = Ranked(micro_batch=chosen.micro_batch, tp=chosen.tp, pp=chosen.pp, layers=layers, seconds=plan.seconds)
        first.setdefault(configuration(chosen), found)
    return tuple(first.values())[:5]


def uniform_ends(problem: PlanningProblem, plan: Incumbent) -> Ints:
    """Ends of the stages with as many layers each."""
    return np.array([end for _, end in even_strategy(problem, plan.strategy.candidate, "none").stages])


def balanced_ends(problem: PlanningProblem, plan: Incumbent) -> Ints:
    """Ends of the stages with as many parameters each, as near as whole layers allow, one layer at least."""
    pp = plan.strategy.candidate.pp
    share = np.cumsum([block.parameters() for block in problem.model.blocks], dtype=float)
    ends = np.searchsorted(share, share[-1] * np.arange(1, pp + 1) / pp * (1 - 1e-12)) + 1
    most = len(share) - np.arange(pp)[::-1]
    return np.minimum(np.maximum.accumulate(np.maximum(ends, np.arange(1, pp + 1))), most)


def _with_ends(problem: PlanningProblem, plan: Incumbent, ends: Ints) -> float | None:
    """Seconds of a plan with other ends of its stages."""
    division = Division.of_ends(ends, np.zeros(len(ends), dtype=np.int64))
    changed = priced(problem, replace(plan.strategy, division=division), plan.devices)
    return None if changed is None else changed.seconds


def search_seconds(side: int) -> tuple[int, float]:
    """Seconds of AMP's method on n nodes of n GPUs, (n, seconds)."""
    cluster = load_cluster(SETTINGS["homogeneous"].cluster)
    nodes = [cluster.nodes[0].model_copy(update={"count": side, "gpus_per_node": side})]
    problem = _problem("homogeneous", cluster=cluster.model_copy(update={"nodes": nodes}))
    begun = perf_counter()
    method_of("amp")(problem, Limits(), None)
    go_on()
    return side, perf_counter() - begun


RATIOS = (1.0, 2.0, 3.0, 4.0)
"""Seconds of a narrow layer over those of a wide one (equation 9)."""


def split_gains(problem: PlanningProblem) -> tuple[tuple[float, float, float], ...]:
    """Gain of the best split over even layers and over even parameters, by the ratio of narrow to wide, figure 3."""
    candidate = next(
        each for each in plain_candidates(problem) if (each.pp, each.tp, each.dp, each.micro_batch) == (4, 1, 4, 1)
    )
    even = simple_plan(problem, candidate)
    if even is None:
        return ()
    narrow = np.array([block.kind == "narrow" for block in problem.model.blocks])
    uniform, balanced, count = uniform_ends(problem, even), balanced_ends(problem, even), candidate.num_micro_batches
    gains: list[tuple[float, float, float]] = []
    for ratio in RATIOS:
        seconds = np.where(narrow, ratio, 1.0)
        best = _pipelined(seconds, _least_ends(seconds, candidate.pp, count), count)
        gains.append((ratio, _pipelined(seconds, uniform, count) / best, _pipelined(seconds, balanced, count) / best))
    return tuple(gains)


def _pipelined(seconds: Floats, ends: Ints, micro_batches: int) -> float:
    """Seconds of a pipeline without transfers: all layers once, and the longest stage for every other micro-batch."""
    stages = np.diff(np.concatenate([[0.0], np.cumsum(seconds)[ends - 1]]))
    return float(seconds.sum() + (micro_batches - 1) * stages.max())


def _least_ends(seconds: Floats, pp: int, micro_batches: int) -> Ints:
    """Ends of the stages of the quickest pipeline without transfers."""
    layers = len(seconds)
    cuts = (np.array([*each, layers]) for each in combinations(range(1, layers), pp - 1))
    return min(cuts, key=lambda ends: _pipelined(seconds, ends, micro_batches))
