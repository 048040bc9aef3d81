r"""
The first and third case study together: tables as text and plain values, and which parts are wanted.

Figure 9 and equation 1 set vTrain's rules beside the runs that its authors measured and published with their program.
With t the seconds of a run by the rules, kernels times the scalar of table I, and s the measured ones, the error is the
mean of :math:`|t / s - 1|` over the runs of a file: 720 on one node, 55 on 8 to 64 nodes. Equation 1 sweeps the share
:math:`\alpha` of the bandwidth between nodes that a step reaches, and takes the one of least error on many nodes. The
paper has 1,440 and 116 runs, and its own kernel traces.

The picture is vTrain's design space of MT-NLG (figure 10 of arXiv 2312.12391), by our prices. Left, seconds of a step
over GPUs: every plan that fits with ZeRO-1 (those that do not are hollow), the Pareto front of the plans, and below the
grey line what is proven: no plan of the searched space is as fast on so many GPUs. Where a limit ended a search, a
dotted line is its gap. Right, the utilisation of the same plans. MT-NLG's own plans, its measured runs and vTrain's
findings are marked.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from taut.data.suggest import one_of
from taut.errors import DataError, FieldError
from taut.papers.compared import CUT_OFF, SharedTime, legend
from taut.papers.vtrain import plans, sizes, space
from taut.papers.vtrain.plans import GLOBAL_BATCH, MT_NLG, PEAK_FLOPS, TABLE, gpus, step_flops
from taut.papers.vtrain.space import TENSOR
from taut.papers.vtrain.step import Plan, Shape, step_seconds
from taut.plots.plan import SHADES
from taut.processes import cores
from taut.solver.result import Limits
from taut.solver.signals import was_interrupted
from taut.sweeping.sweep import Told
from taut.words import percent, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILES = ("vtrain_single.csv", "vtrain_multi.csv")
ERRORS = (0.1966, 0.1488)
"""Of figure 9 a and b."""
ALPHAS = tuple(tenth / 10 for tenth in range(1, 11))
BEST_ALPHA = 1.0


class Run(NamedTuple):
    """A measured run."""

    shape: Shape
    plan: Plan
    global_batch: int
    micro_batch: int
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Runs and errors of both parts of figure 9, and the errors of the second one by share of the bandwidth."""

    runs: tuple[int, int]
    errors: tuple[float, float]
    by_alpha: dict[float, float]

    @property
    def best_alpha(self) -> float:
        """The share of least error."""
        return min(self.by_alpha, key=lambda alpha: self.by_alpha[alpha])

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.published_rows``)."""
        return {
            "figure 9 a: error on one node, vTrain's kernels": percent(self.errors[0], places=2),
            "figure 9 b: error on many nodes, vTrain's kernels": percent(self.errors[1], places=2),
            "equation 1: best alpha of the bandwidth": f"{self.best_alpha:.1f}",
        }

    def __str__(self) -> str:
        """Both errors, then the sweep."""
        named = zip(("one node", "many nodes"), self.runs, ERRORS, self.errors, strict=True)
        lines = [(name, f"{runs}", *(percent(each, places=2) for each in both)) for name, runs, *both in named]
        sweep = [(f"{alpha:.1f}", percent(error, places=2)) for alpha, error in self.by_alpha.items()]
        words = f"best share of the bandwidth: published {BEST_ALPHA:.1f}, by its rules {self.best_alpha:.1f}"
        head = "figure 9: mean error of vTrain's rules against its measured runs"
        errors = text_table([("", "runs", "published", "by its rules"), *lines])
        return "\n\n".join([head, errors, text_table([("alpha", "error on many nodes"), *sweep]), words])


def read_runs(path: Path) -> list[Run]:
    """VTrain's measured runs; a ``DataError`` if the file lacks a column."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_run(line) for line in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: expected a CSV file with the columns of vTrain's ground truth") from None


def _run(line: dict[str, str]) -> Run:
    layers, hidden, heads, seq = (
        int(line[name]) for name in ("# layers", "hidden size", "attention heads", "sequence length")
    )
    tensor, data, stages = (int(line[f"{name} parallelism"]) for name in ("tensor", "data", "pipeline"))
    seconds = float(line["iteration time (ms)"]) / 1e3
    batches = int(line["global batch"]), int(line["micro batch"])
    return Run(Shape(layers, hidden, heads, seq), (tensor, data, stages), *batches, seconds)


def validate(folder: Path, scalar: float) -> Validation:
    """Price the runs of both files with kernels times the scalar."""
    single, multi = (read_runs(folder / name) for name in FILES)
    by_alpha = {alpha: mean_error(multi, scalar, alpha) for alpha in ALPHAS}
    errors = mean_error(single, scalar, BEST_ALPHA), by_alpha[BEST_ALPHA]
    return Validation(runs=(len(single), len(multi)), errors=errors, by_alpha=by_alpha)


def mean_error(runs: Sequence[Run], scalar: float, alpha: float) -> float:
    """The error of some runs at a share of the bandwidth between nodes."""
    priced = [
        step_seconds(run.shape, run.plan, run.global_batch, scalar, micro_batch=run.micro_batch, alpha=alpha)
        for run in runs
    ]
    return sum(abs(t / run.measured_s - 1) for t, run in zip(priced, runs, strict=True)) / len(runs)


FIGURES = ("days", "utilised", "M $")
PARTS = ("table-1", "table-3", "figure-9", "figure-10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Figure 10: all points, the Pareto front, and the best plan for each number of GPUs."""

    points: tuple[space.Point, ...]
    front: tuple[space.Point, ...]
    best: tuple[space.Best, ...]


@dataclass(frozen=True, slots=True)
class Study:
    """What was asked for; a part that was not is empty or None."""

    scalar: float
    price: float
    table_one: tuple[plans.Row, ...] = ()
    table_three: tuple[sizes.Row, ...] = ()
    validation: Validation | None = None
    space: Space | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        one = [asdict(row) | _derived(row) for row in self.table_one]
        three = [asdict(row) | _days(row) for row in self.table_three]
        found: dict[str, Any] = {"scalar": self.scalar, "price": self.price, "table_1": one, "table_3": three}
        found |= {} if self.validation is None else {"figure_9": asdict(self.validation)}
        return found | ({} if self.space is None else {"figure_10": asdict(self.space)})

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.published_rows``)."""
        plans_of = {}
        for row in self.table_one:
            name = f"{row.published.whose} {degrees(row.published.plan)}"
            plans_of[f"table I: {name}"] = f"{row.rules_s:.2f} s"
            if row.published.measured_s is not None:
                plans_of[f"table I: {name}, measured"] = f"{row.ours.step_s:.2f} s"
        slow, fast = (plans.gpt3_days(share) for share in (0.3, 0.6))
        plans_of["figure 1: days of GPT-3 at 30 to 60 %"] = f"{slow:.1f} to {fast:.1f} days"
        if self.table_three:
            most = sizes.largest(list(self.table_three))
            for size in self.table_three:
                name = f"table III: by its rules, {size.published.parameters} billion"
                plans_of[name] = f"{size.days(size.rules_s):.1f} days"
            parameters, tokens = sizes.chinchilla()
            plans_of["section V-C: naive N of Chinchilla"] = f"{parameters:.1f} billion"
            plans_of["section V-C: naive T of Chinchilla"] = f"{tokens:,.0f} billion"
            if most is not None:
                mark = CUT_OFF * sizes.largest_is_cut_off(list(self.table_three))
                plans_of["table III: largest model in 30 days"] = f"{most.parameters:.2f} billion{mark}"
        if self.validation is not None:
            plans_of |= self.validation.figures
        if self.space is not None:
            plans_of["figures 10-11: plans of the design space"] = f"{len(self.space.points)} plans"
        return plans_of

    def __str__(self) -> str:
        """Tables, with what they show."""
        parts = [_one(self)] if self.table_one else []
        parts += [_three(self.table_three)] if self.table_three else []
        parts += [str(self.validation)] if self.validation else []
        parts += [_space(self.space)] if self.space else []
        return "\n\n".join(parts)


def reproduce_vtrain(
    *,
    price: float = plans.PRICE,
    only: str | None = None,
    data: Path | None = None,
    work_limit: int | None = None,
    time_limit: float | None = None,
    jobs: int | None = None,
    progress: Told | None = None,
) -> Study:
    """
    Price vTrain's studies, or ``only`` one; figure 9 needs the ``data`` of measured runs, figure 10 has ``jobs``.

    All searches share ``time_limit`` seconds; those of figure 10 as many at a time as there are processes.
    """
    if only is not None and only not in PARTS:
        raise FieldError("only", only, f"expected {one_of(only, PARTS)}")
    if only == "figure-9" and data is None:
        raise FieldError("data", None, "expected the folder of vTrain's measured runs with figure-9")
    scalar = plans.fitted(plans.TABLE)
    wanted = PARTS if only is None else (only,)
    one = plans.table_one(price) if "table-1" in wanted else []
    rounds, work = math.ceil(len(space.COUNTS) / (jobs or cores())), work_limit or sizes.WORK
    searches = len(sizes.TABLE) * ("table-3" in wanted) + rounds * ("figure-10" in wanted)
    shared = SharedTime(limits=Limits(), within=time_limit, searches=searches)
    three = sizes.table_three(scalar, shared, work_limit=work, progress=progress) if "table-3" in wanted else []
    nine = validate(data, scalar) if data is not None and "figure-9" in wanted else None
    figure = None
    if "figure-10" in wanted and not (three and was_interrupted()):
        points, work = space.points(scalar), work_limit or space.WORK
        best = space.best_plans(work_limit=work, time_limit=shared.left_s, jobs=jobs, progress=progress)
        figure = Space(points=tuple(points), front=tuple(space.front(points)), best=tuple(best))
    return Study(scalar, price, tuple(one), tuple(three), nine, figure)


def _derived(row: plans.Row) -> dict[str, Any]:
    each = {"rules": row.rules_s, "ours": row.ours.step_s}
    figures = {f"{who}_days": row.days(step_s) for who, step_s in each.items()}
    figures |= {f"{who}_utilisation": row.utilisation(step_s) for who, step_s in each.items()}
    figures |= {f"{who}_dollars": row.dollars(step_s) for who, step_s in each.items()}
    return {"gpus": row.gpus, "rules_error": row.rules_error, "measured_error": row.measured_error, **figures}


def _days(row: sizes.Row) -> dict[str, Any]:
    best = None if row.best is None else row.days(row.best.step_s)
    return {"rules_days": row.days(row.rules_s), "ours_days": row.days(row.ours.step_s), "best_days": best}


def degrees(plan: Plan) -> str:
    """A plan as the paper writes it."""
    return f"({', '.join(map(str, plan))})"


def _one(study: Study) -> str:
    head = f"table I, MT-NLG 530B: seconds of a step and the whole training at $ {study.price:g} an hour of a GPU"
    columns = ("plan (t, d, p)", "GPUs", "published", *FIGURES, "by its rules", *FIGURES, "off")
    lines: list[Sequence[str]] = [columns]
    for row in study.table_one:
        line = row.published
        published = _words(line.step_s, line.days, line.utilisation, line.dollars)
        rules = (*_figures(row, row.rules_s), f"{100 * row.rules_error:+.3f} %")
        lines.append((f"{line.whose} {degrees(line.plan)}", f"{row.gpus:,}", *published, *rules))
    measured: list[Sequence[str]] = [
        ("plan (t, d, p)", "measured", "calibrated", *FIGURES, "80 % band", "off", "GiB", "GiB with ZeRO-1")
    ]
    for row in study.table_one:
        line, ours = row.published, row.ours
        ran = "-" if line.measured_s is None else f"{line.measured_s:.1f} s"
        off = "-" if row.measured_error is None else f"{100 * row.measured_error:+.1f} %"
        band = f"{ours.low_s:.1f} to {ours.high_s:.1f} s"
        memory = (_memory(ours.memory_gib, ours.fits), _memory(ours.zero1_gib, ours.zero1_fits))
        plan = f"{line.whose} {degrees(line.plan)}"
        measured.append((plan, ran, *_figures(row, ours.step_s), band, off, *memory))
    words = f"by its rules: kernels times {study.scalar:.4f}, each plan with the scalar of the other five"
    return "\n".join([head, "", text_table(lines), "", text_table(measured), "", words])


def _figures(row: plans.Row, step_s: float) -> tuple[str, str, str, str]:
    return _words(step_s, row.days(step_s), row.utilisation(step_s), row.dollars(step_s))


def _words(step_s: float, days: float, utilisation: float, dollars: float) -> tuple[str, str, str, str]:
    return f"{step_s:.2f} s", f"{days:.2f}", percent(utilisation, places=2), f"{dollars / 1e6:.2f}"


def _memory(gib: float, fits: bool) -> str:
    return f"{gib:.1f}" if fits else f"{gib:.1f} too much"


def _three(rows: Sequence[sizes.Row]) -> str:
    parameters, tokens = sizes.chinchilla()
    head = f"table III: days on {sizes.GPUS:,} A100 of models with 20 tokens a parameter, batch {sizes.GLOBAL_BATCH}"
    columns = ("h", "L", "N billion", "T billion", "plan (t, d, p)", "published", "by its rules", "calibrated")
    lines: list[Sequence[str]] = [(*columns, "GiB with ZeRO-1", "best plan", "days", "gap")]
    for row in rows:
        line, best = row.published, row.best
        size = (str(line.hidden), str(line.layers), f"{row.parameters:.2f}", f"{row.tokens:,.0f}")
        days = (f"{line.days:.0f}", f"{row.days(row.rules_s):.1f}", f"{row.days(row.ours.step_s):.1f}")
        found = ("-", "-") if best is None else (degrees(best.plan), f"{row.days(best.step_s):.1f}")
        memory = _memory(row.ours.zero1_gib, row.ours.zero1_fits)
        lines.append((*size, degrees(line.plan), *days, memory, *found, _gap(row)))
    law = f"Chinchilla's law at the peak for {sizes.BUDGET_DAYS} days: N = {parameters:.1f}, T = {tokens:,.0f} billion"
    published = max(line.parameters for line in sizes.TABLE if line.days <= sizes.BUDGET_DAYS)
    ours = sizes.largest(list(rows))
    words = f"largest model in {sizes.BUDGET_DAYS} days: published {published:g} billion, "
    mark = CUT_OFF * sizes.largest_is_cut_off(list(rows))
    words += f"none by our prices{mark}" if ours is None else f"by our prices {ours.parameters:.2f} billion{mark}, gap "
    words += "" if ours is None else _gap(ours)
    return "\n".join([head, "", text_table(lines), "", law, words, *legend(row.is_cut_off for row in rows)])


def _gap(found: sizes.Row | space.Best) -> str:
    """The gap of a best plan, with a mark where a limit ended its search."""
    return percent(found.gap, places=2) + CUT_OFF * found.is_cut_off


def _space(found: Space) -> str:
    fit, shared = (sum(getattr(each.ours, name) for each in found.points) for name in ("fits", "zero1_fits"))
    head = f"figure 10, MT-NLG 530B: {len(found.points)} plans, {fit} fit 80 GB, {shared} with ZeRO-1"
    lines: list[Sequence[str]] = [("on the front", "GPUs", "calibrated", "by vTrain's rules", "utilised")]
    flops = plans.step_flops(plans.MT_NLG, plans.GLOBAL_BATCH)
    for point in found.front:
        share = flops / (point.gpus * plans.PEAK_FLOPS * point.ours.step_s)
        seconds = (f"{point.ours.step_s:.2f} s", f"{point.rules_s:.2f} s")
        lines.append((degrees(point.plan), f"{point.gpus:,}", *seconds, percent(share, places=2)))
    best: list[Sequence[str]] = [("GPUs", "best plan", "seconds", "bound", "gap")]
    for each in found.best:
        plan = "-" if each.plan is None else degrees(each.plan)
        figures = ["-" if value is None else f"{value:.2f} s" for value in (each.step_s, each.lower_bound_s)]
        why_not = each.why_not + CUT_OFF * each.is_cut_off
        best.append((f"{each.gpus:,}", plan, *figures, _gap(each) if each.plan else why_not))
    marks = legend(each.is_cut_off for each in found.best)
    return "\n".join([head, "", text_table(lines), "", text_table(best), *marks])


SIZE = (13.0, 5.6)
PROVEN = "#d9d9d9"
MARKS = {"MT-NLG": ("s", "black"), "vTrain": ("D", "#b2182b")}


def plot_design_space(found: Space, axes: "tuple[Axes, Axes]") -> None:
    """Draw seconds and utilisation over GPUs on two axes."""
    seconds, shares = axes
    _draw_proven(seconds, found)
    for ax, of in ((seconds, _seconds), (shares, _share)):
        for tensor, colour in zip(TENSOR, SHADES, strict=False):
            chosen = [point for point in found.points if point.plan[0] == tensor]
            for fits in (True, False):
                each = [point for point in chosen if point.ours.zero1_fits == fits]
                face = colour if fits else "none"
                label = f"t = {tensor}" + ("" if fits else ", too large")
                xs, ys = [point.gpus for point in each], [of(point.gpus, point.ours.step_s) for point in each]
                ax.scatter(xs, ys, 14, facecolors=face, edgecolors=colour, linewidths=0.8, label=label, zorder=3)
        line = [(point.gpus, of(point.gpus, point.ours.step_s)) for point in found.front]
        ax.plot(*zip(*line, strict=True), color="black", lw=0.9, zorder=2, label="Pareto front of the plans")
        _mark(ax, of, found)
    seconds.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="seconds of a step", title="Step time")
    shares.set(xscale="log", xlabel="GPUs", ylabel="utilisation (%)", title="Model FLOP utilisation")
    # A few plans across nodes take hours a step; the picture ends where the others do.
    seconds.set_ylim(8, 3e3)
    shares.set_ylim(0, 55)
    shares.legend(*seconds.get_legend_handles_labels(), loc=(0.02, 0.13), fontsize=8, frameon=False)


def _draw_proven(ax: "Axes", found: Space) -> None:
    """The region that no plan of the searched space reaches."""
    proven = [(each.gpus, each.lower_bound_s) for each in found.best if each.lower_bound_s]
    if proven:
        xs, ys = zip(*proven, strict=True)
        ax.fill_between(xs, 1e-3, ys, color=PROVEN, lw=0, label="proven: no plan", zorder=1)
    stopped = [(each.gpus, each.lower_bound_s) for each in found.best if each.lower_bound_s and each.is_cut_off]
    if stopped:
        ax.plot(*zip(*stopped, strict=True), "k*", ms=8, label="bound of a search that a limit ended", zorder=4)
        for each in found.best:
            if each.is_cut_off and each.step_s and each.lower_bound_s:
                ax.plot([each.gpus] * 2, [each.lower_bound_s, each.step_s], "k:", lw=0.8, zorder=4)


def _mark(ax: "Axes", of: Any, found: Space) -> None:
    """The plans of table I, and MT-NLG's measured runs."""
    by_plan = {point.plan: point for point in found.points}
    for whose, (mark, colour) in MARKS.items():
        chosen = [by_plan[line.plan] for line in TABLE if line.whose == whose]
        xs, ys = [point.gpus for point in chosen], [of(point.gpus, point.ours.step_s) for point in chosen]
        ax.scatter(xs, ys, 46, marker=mark, facecolors="none", edgecolors=colour, label=f"{whose}'s plans", zorder=4)
    runs = [(gpus(line.plan), of(gpus(line.plan), line.measured_s)) for line in TABLE if line.measured_s]
    xs, ys = [count for count, _ in runs], [value for _, value in runs]
    ax.scatter(xs, ys, 46, marker="x", color="black", label="MT-NLG measured", zorder=4)


def _seconds(devices: int, step_s: float) -> float:
    return step_s


def _share(devices: int, step_s: float) -> float:
    return 100.0 * step_flops(MT_NLG, GLOBAL_BATCH) / (devices * PEAK_FLOPS * step_s)
