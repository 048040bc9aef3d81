"""
Every method of ``taut plan --method`` on the same problems, under one bound: seconds a step, distance, time.

Run ``python -m benchmarks.methods [--case NAME ...] [--out rows.csv] [--plot methods.png]``; ``--rows rows.csv`` prints
and draws a run that was written. A row is what ``taut plan MODEL CLUSTER --global-batch N --latency-model L --method
METHOD --time-limit 60`` plans. The bound is that of the branch and bound, which runs once for each problem; what CP-SAT
and CBC claim by themselves stands beside it. The distance of a plan of J seconds from the bound L is J / L - 1.
Compiled loops are loaded before the clock starts. ``--alone`` prints a table of problems whose links differ instead:
the bound of the search, of the program without cuts, and of CP-SAT's method.
"""

import argparse
import csv
import math
import platform
import sys
import time
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import taut
from taut.formulations.problem import PlanningProblem
from taut.plots.plan import SHADES
from taut.solver.ladder.ladder import Ladder
from taut.solver.methods.named import BASELINES, MESHES, NAMES, PROGRAMS, SEARCH, SIMULATED, method_of
from taut.solver.methods.strategy_choice import StrategyPool, best_strategy
from taut.solver.program.cp_sat import solve_cpsat
from taut.solver.result import Incumbent, Limits
from taut.solver.search.search import search

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIMIT = 60.0
"""Seconds for every method, and for the search."""
DOCUMENTED = "documentation"
CASES: dict[str, tuple[str, str, str, int, str]] = {
    "gpt2": (DOCUMENTED, "gpt2-345m", "dgx-a100", 32, "step"),
    "gpt-1.1b": (DOCUMENTED, "gpt-1.1b", "dgx-a100:2", 64, "step"),
    "gpt3-2.7b": (DOCUMENTED, "gpt3-2.7b", "dgx-a100", 64, "step"),
    "llama3-8b": (DOCUMENTED, "llama3-8b", "dgx-h100", 64, "step"),
    "llama3-70b": (DOCUMENTED, "llama3-70b", "dgx-h100:8", 512, "step"),
    "gpt3-175b": (DOCUMENTED, "gpt3-175b", "dgx-a100:16", 512, "step"),
    "amp-homogeneous": ("AMP", "gpt2-345m", "amp-homogeneous", 32, "amp"),
    "amp-cluster": ("AMP", "gpt2-345m", "amp-heterogeneous", 32, "amp"),
    "amp-model": ("AMP", "transgan-generator", "amp-unlike-layers", 64, "amp"),
    "pipette-mid": ("Pipette", "gpt-3.1b", "pipette-mid-range", 512, "pipette"),
    "pipette-high": ("Pipette", "gpt-11.1b", "pipette-high-end", 512, "pipette"),
    "hethub-96": ("HETHUB", "llama2-70b", "hethub-12n96d", 512, "step"),
}
"""By name: whose setting, model, cluster, global batch, latency model."""
FIGURES = ("step_s", "bound_s", "distance", "own_s", "seconds")
ORDER = (SEARCH, *PROGRAMS, *BASELINES)


@dataclass(frozen=True, slots=True)
class Row:
    """One method on one problem; NaN where it found nothing or claims nothing."""

    case: str
    method: str
    step_s: float
    bound_s: float
    distance: float
    own_s: float
    seconds: float
    strategy: str


def problem_of(case: str) -> PlanningProblem:
    """The problem of a name."""
    return _posed(*CASES[case][1:])


def _posed(model: str, cluster: str, batch: int, latency_model: str) -> PlanningProblem:
    """The problem of a training, under ``step`` without interleaving."""
    schedules = "1f1b" if latency_model == "step" else None
    request = taut.PlanRequest(model, cluster, global_batch=batch, latency_model=latency_model, schedules=schedules)
    return taut.planning_problem(request)


def rows_of(case: str) -> list[Row]:
    """Every method on one problem."""
    limits, given = Limits(time_limit=LIMIT), problem_of(case)
    found = search(given, limits)
    rows = [_row(case, SEARCH, found.incumbent, found.lower_bound, found.lower_bound, found.wall_s)]
    for name in ORDER[1:]:
        started = time.perf_counter()
        outcome = method_of(name)(given, limits, None)
        own = outcome.lower_bound if name in PROGRAMS else math.nan
        row = _row(case, name, outcome.incumbent, found.lower_bound, own, time.perf_counter() - started)
        rows.append(row if outcome.candidates else replace(row, strategy="none in this space"))
    return rows


def _row(case: str, method: str, plan: Incumbent | None, bound: float, own: float, seconds: float) -> Row:
    if plan is None:
        return Row(case, method, math.nan, bound, math.nan, own, seconds, "none that fits")
    chosen = str(plan.strategy.candidate)
    return Row(case, method, plan.seconds, bound, plan.seconds / bound - 1, own, seconds, chosen)


UNLIKE: dict[str, tuple[str, str, int, str]] = {
    **{name: CASES[name][1:] for name in ("amp-homogeneous", "amp-cluster", "amp-model")},
    "amp-cluster, step": ("gpt2-345m", "amp-heterogeneous", 32, "step"),
    "pipette-mid": CASES["pipette-mid"][1:],
    "pipette-high": CASES["pipette-high"][1:],
    "hethub-96": CASES["hethub-96"][1:],
    "hethub-96, 7b": ("llama2-7b", "hethub-12n96d", 2048, "step"),
    "two GB200 racks": ("llama3-70b", "gb200-nvl72:2", 288, "step"),
    "jean-zay": ("gpt3-175b", "jean-zay", 1536, "step"),
}
"""Problems whose links differ by name: model, cluster, global batch, latency model."""


def alone() -> list[str]:
    """What the program without cuts and CP-SAT's method claim beside the search, as a table in Markdown."""
    lines = ["| problem | search: bound s | program alone | below | CP-SAT: bound s | below | plan above | in s |"]
    lines.append(f"| :-- |{' --: |' * 7}")
    limits = Limits(time_limit=LIMIT)
    for name, (model, cluster, batch, latency_model) in UNLIKE.items():
        given = _posed(model, cluster, batch, latency_model)
        found = search(given, limits)
        pool = StrategyPool(Ladder(given), given.closed_forms)
        least = math.inf if found.incumbent is None else found.incumbent.seconds
        program = best_strategy(pool, solve_cpsat, below=least, time_limit=LIMIT).lower_bound
        outcome = method_of("cp-sat")(given, limits, None)
        plan = math.nan if outcome.incumbent is None else outcome.incumbent.seconds / found.lower_bound - 1
        bounds = (program, outcome.lower_bound)
        cells = [f"{bound:.5g} | {_percent(1 - bound / found.lower_bound)}" for bound in bounds]
        row = f"| {name} | {found.lower_bound:.5g} | {' | '.join(cells)} | {_percent(plan)} | {outcome.wall_s:.1f} |"
        print(row, file=sys.stderr, flush=True)
        lines.append(row)
    return lines


def told(row: Row) -> str:
    """A row as a line of progress."""
    figures = f"{row.step_s:.5g} s, bound {row.bound_s:.5g} s, {_percent(row.distance)}, in {row.seconds:.2f} s"
    return f"{row.case} {row.method}: {figures}, {row.strategy}"


def distances(rows: list[Row]) -> list[str]:
    """The distance of every method on every problem, as a table in Markdown."""
    found = {(row.case, row.method): row for row in rows}
    lines = [f"| problem | {' | '.join(ORDER)} |", f"| :-- |{' --: |' * len(ORDER)}"]
    for case in dict.fromkeys(row.case for row in rows):
        lines.append(f"| {case} | {' | '.join(_percent(found[case, name].distance) for name in ORDER)} |")
    return lines


def programs(rows: list[Row]) -> list[str]:
    """Objective, own bound and seconds of the branch and bound and of the integer programs, as a table in Markdown."""
    found, names = {(row.case, row.method): row for row in rows}, (SEARCH, *PROGRAMS)
    heads = [f"{name}: s | bound | in s" for name in names]
    lines = [f"| problem | {' | '.join(heads)} |", f"| :-- |{' --: |' * (3 * len(names))}"]
    for case in dict.fromkeys(row.case for row in rows):
        each = [found[case, name] for name in names]
        cells = [f"{row.step_s:.5g} | {row.own_s:.5g} | {row.seconds:.1f}" for row in each]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return lines


def problems(cases: list[str]) -> list[str]:
    """What the names of problems stand for, as a table in Markdown."""
    lines = ["| problem | of | command, with --method METHOD |", "| :-- | :-- | :-- |"]
    for case in cases:
        whose, model, cluster, batch, latency_model = CASES[case]
        model_flag = "" if latency_model == "step" else f" --latency-model {latency_model}"
        lines.append(f"| {case} | {whose} | `taut plan {model} {cluster} --global-batch {batch}{model_flag}` |")
    return lines


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * max(share, 0.0):.2f} %"


def read_rows(path: Path) -> list[Row]:
    """Rows of a run that was written."""
    with path.open(encoding="utf-8") as file:
        return [_read(line) for line in csv.DictReader(file)]


def _read(line: dict[str, str]) -> Row:
    step, bound, distance, own, seconds = (float(line[name]) for name in FIGURES)
    return Row(line["case"], line["method"], step, bound, distance, own, seconds, line["strategy"])


def plot_rows(rows: list[Row], path: Path) -> None:
    """Draw the distances, a panel for each problem."""
    from matplotlib import pyplot

    names = list(dict.fromkeys(row.case for row in rows))
    columns = min(len(names), 4)
    lines = -(-len(names) // columns)
    figure, axes = pyplot.subplots(
        lines,
        columns,
        figsize=(3.4 * columns, 2.6 * lines),
        layout="constrained",
        squeeze=False,
        sharey=True,
        sharex=True,
    )
    for panel in axes.ravel()[len(names) :]:
        panel.set_visible(False)
    for name, panel in zip(names, axes.ravel(), strict=False):
        _panel(panel, [row for row in rows if row.case == name])
    figure.supxlabel("step time above the proven bound, %")
    figure.savefig(path, dpi=110)


def _panel(axes: "Axes", rows: list[Row]) -> None:
    """Bars of one problem on an axis that is logarithmic beyond a tenth of a per cent."""
    shares = [100 * row.distance for row in rows]
    places = range(len(rows))
    colours = [SHADES[0] if row.method not in BASELINES else SHADES[1] for row in rows]
    axes.barh(places, [0.0 if math.isnan(share) else max(share, 0.0) for share in shares], color=colours)
    for place, share in zip(places, shares, strict=True):
        text = "no plan" if math.isnan(share) else f"{share:.0f}" if share >= 10 else f"{max(share, 0.0):.2g}"
        at = 0.0 if math.isnan(share) else max(share, 0.0)
        axes.annotate(text, (at, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlim(0, 2000)
    axes.set_yticks(list(places), [row.method for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(rows[0].case, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Print the table, and write or draw it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    if options.alone:
        search(problem_of("gpt2"), Limits())
        print("\n".join(alone()))
        return
    # What is scored by simulation has another objective.
    assert set(ORDER) == set(NAMES) - {SIMULATED, MESHES}
    rows: list[Row] = read_rows(options.rows) if options.rows else []
    if not options.rows:
        search(problem_of("gpt2"), Limits())
        print(f"taut {taut.__version__}, {platform.platform()}", file=sys.stderr)
        for case in options.case:
            for row in rows_of(case):
                rows.append(row)
                print(told(row), file=sys.stderr, flush=True)
    for table in (problems(list(dict.fromkeys(row.case for row in rows))), distances(rows), programs(rows)):
        print("\n".join(table), end="\n\n")
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[field.name for field in fields(Row)], *map(astuple, rows)])
    if options.plot:
        plot_rows(rows, options.plot)


if __name__ == "__main__":
    main()
