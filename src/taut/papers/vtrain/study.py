"""The first and third case study together: tables as text and plain values, and which parts are wanted."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.papers.compared import CUT_OFF, legend
from taut.papers.vtrain import plans, sizes, space
from taut.papers.vtrain.step import Plan
from taut.papers.vtrain.validation import Validation, validate
from taut.sweeping.sweep import Told
from taut.words import percent, text_table

FIGURES = ("days", "utilised", "M $")
PARTS = ("table-1", "table-3", "figure-9", "figure-10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Figure 10: all points, the Pareto front, and the best plan for each number of GPUs."""

    points: tuple[space.Point, ...]
    front: tuple[space.Point, ...]
    best: tuple[space.Best, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Ours by row of the paper (``taut.papers.rows``)."""
        plans_of = {
            f"table I: {row.published.whose} {degrees(row.published.plan)}": f"{row.rules_s:.2f} s"
            for row in self.table_one
        }
        slow, fast = (plans.gpt3_days(share) for share in (0.3, 0.6))
        plans_of["figure 1: days of GPT-3 at 30 to 60 %"] = f"{slow:.1f} to {fast:.1f} days"
        if self.table_three:
            first, most = self.table_three[0], sizes.largest(list(self.table_three))
            plans_of["table III: by its rules, 145.61 billion"] = f"{first.days(first.rules_s):.1f} days"
            plans_of["section V-C: naive N of Chinchilla"] = f"{sizes.chinchilla()[0]:.1f}"
            if most is not None:
                marked = f"{most.parameters:.2f} billion" + (CUT_OFF if most.best and most.best.is_cut_off else "")
                plans_of["table III: largest model in 30 days"] = marked
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
    jobs: int | None = None,
    progress: Told | None = None,
) -> Study:
    """
    Price vTrain's studies.

    ``price``: dollars an hour of a GPU; ``only``: one of the parts; all without it; ``data``: folder of vTrain's
    measured runs (``taut.papers.vtrain.validation``), without which figure 9 is left out; ``work_limit``: refinements
    of each search for a best plan; by default 60 for figure 10 and 40 for table III; ``jobs``: processes that search;
    by default one a core; ``progress``: called as by ``taut.sweep`` while the best plans are searched. Raises
    ``FieldError`` if there is no such part, or no folder for figure 9.
    """
    if only is not None and only not in PARTS:
        raise FieldError("only", only, f"expected {one_of(only, PARTS)}")
    if only == "figure-9" and data is None:
        raise FieldError("data", None, "expected the folder of vTrain's measured runs with figure-9")
    scalar = plans.fitted(plans.TABLE)
    wanted = PARTS if only is None else (only,)
    one = plans.table_one(price) if "table-1" in wanted else []
    three = sizes.table_three(scalar, work_limit=work_limit or sizes.WORK) if "table-3" in wanted else []
    nine = validate(data, scalar) if data is not None and "figure-9" in wanted else None
    figure = None
    if "figure-10" in wanted:
        points, work = space.points(scalar), work_limit or space.WORK
        best = space.best_plans(work_limit=work, jobs=jobs, progress=progress)
        figure = Space(points=tuple(points), front=tuple(space.front(points)), best=tuple(best))
    return Study(
        scalar=scalar,
        price=price,
        table_one=tuple(one),
        table_three=tuple(three),
        validation=nine,
        space=figure,
    )


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
        published = (
            f"{line.step_s:.2f} s",
            f"{line.days:.2f}",
            percent(line.utilisation, places=2),
            f"{line.dollars / 1e6:.2f}",
        )
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
        lines_of = (plan, ran, *_figures(row, ours.step_s), band, off, *memory)
        measured.append(lines_of)
    words = f"by its rules: kernels times {study.scalar:.4f}, each plan with the scalar of the other five"
    return "\n".join([head, "", text_table(lines), "", text_table(measured), "", words])


def _figures(row: plans.Row, step_s: float) -> tuple[str, str, str, str]:
    days, dollars = row.days(step_s), row.dollars(step_s) / 1e6
    return f"{step_s:.2f} s", f"{days:.2f}", percent(row.utilisation(step_s), places=2), f"{dollars:.2f}"


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
        found = ("-", "-", "-")
        if best is not None:
            found = (degrees(best.plan), f"{row.days(best.step_s):.1f}", _gap(best))
        lines.append((*size, degrees(line.plan), *days, _memory(row.ours.zero1_gib, row.ours.zero1_fits), *found))
    law = f"Chinchilla's law at the peak for {sizes.BUDGET_DAYS} days: N = {parameters:.1f}, T = {tokens:,.0f} billion"
    published = max(line.parameters for line in sizes.TABLE if line.days <= sizes.BUDGET_DAYS)
    ours = sizes.largest(list(rows))
    words = f"largest model in {sizes.BUDGET_DAYS} days: published {published:g} billion, "
    words += (
        "none by our prices" if ours is None else f"by our prices {ours.parameters:.2f} billion, gap {_gap(ours.best)}"
    )
    bests = [row.best for row in rows if row.best is not None]
    return "\n".join([head, "", text_table(lines), "", law, words, *legend(best.is_cut_off for best in bests)])


def _gap(best: sizes.Best | space.Best | None) -> str:
    """The gap of a best plan, with a mark where a limit ended its search."""
    return "-" if best is None else percent(best.gap, places=2) + (CUT_OFF if best.is_cut_off else "")


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
        best.append((f"{each.gpus:,}", plan, *figures, _gap(each) if each.plan else each.why_not[:60]))
    marks = legend(each.is_cut_off for each in found.best)
    return "\n".join([head, "", text_table(lines), "", text_table(best), *marks])
