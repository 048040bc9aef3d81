"""
Two plans as one picture: what their devices do over time, where the time of a step differs, memory against capacity.

(1) Both timelines have one axis, up to the longer step. A line marks the end of each step: reductions of gradients and
    the optimizer lie between the last pass and this line. Passes are those of the slowest replica.
(2) The seconds of a step are sums over the same parts, so the difference of the steps is the sum of the differences by
    part. Passes of meshes include tensor traffic. Beside a plan of meshes, computation and tensor traffic are one part.
(3) Memory bars of both have one scale, up to the largest capacity.
"""

from typing import TYPE_CHECKING

from taut.errors import TautError
from taut.formulations.schedules.schedule import timetable
from taut.planning.summary import MESH_PARTS, PARTS
from taut.plots.plan import HOP, RING
from taut.plots.schedule import bars_of
from taut.reports.page.figures import (
    BARS,
    BESIDE,
    HATCH,
    LEFT,
    MEMORY_NOTE,
    PASSES,
    PITCH,
    WIDTH,
    drawn_until,
    lanes,
    memory_bars,
    time_labels,
)
from taut.reports.page.markup import box, complete, document, drawing, label, line, section, table, text, wide
from taut.reports.plan_details import slowest_words
from taut.schedules.reading import planned

if TYPE_CHECKING:
    from taut.planning.plan import Plan

TITLE = 20.0
"""Height of the line above the lanes or bars of a plan."""


def pair_page(one: "Plan", other: "Plan", names: tuple[str, str], rows: list[tuple[str, str, str]]) -> str:
    """
    HTML of two plans: timelines on one axis, the difference by part, memory against capacity, and all figures.

    ``names``: what the plans are called; ``rows``: their figures side by side (``taut.compare_plans``). A ``DataError``
    refuses a plan that lacks or contradicts a figure.
    """
    plans = one, other
    with complete(f"{one.source} and {other.source}"):
        sections = {
            "What the devices do": _timelines(plans, names),
            "Where the time differs": _difference(plans, names),
            "Memory of every device": _memory(plans, names),
            "Both plans": table(("", *names), rows, numbers_from=9),
        }
    body = "".join(section(title, content) for title, content in sections.items())
    title = " and ".join(names)
    return document(title, f'<h1>{text(title)}</h1><p class="lead">{text(_sentence(plans, names))}</p>{body}', "")


def _sentence(plans: "tuple[Plan, Plan]", names: tuple[str, str]) -> str:
    (fast, quick), (slow, long) = sorted(zip(names, (plan.step_time_s for plan in plans), strict=True), key=_seconds)
    if quick == long:
        return f"Both take {quick:.4g} s a step."
    return f"{fast} takes {quick:.4g} s a step, {slow} {long:.4g} s: {(long / quick - 1):.1%} more."


def _seconds(named: tuple[str, float]) -> float:
    return named[1]


def _moved(shapes: list[str], y: float) -> str:
    return f'<g transform="translate(0 {y:.6g})">{"".join(shapes)}</g>'


def _timelines(plans: "tuple[Plan, Plan]", names: tuple[str, str]) -> str:
    """The lanes of both, (1), or why they cannot be drawn."""
    try:
        found = [planned(plan.document, plan.source) for plan in plans]
    except TautError as error:
        return f"<p>The schedules cannot be drawn: {text(error)}.</p>"
    drawn = [
        (placed.problem, bars_of(placed.problem, schedule, times), times)
        for placed, schedule, _ in found
        for times in [timetable(placed.problem, schedule)]
    ]
    cut = [until for _, bars, times in drawn if (until := drawn_until(bars, times)) < times.makespan]
    end = min(cut) if cut else max(plan.step_time_s for plan in plans)
    scale, y, shapes = (WIDTH - LEFT - BESIDE) / end, 0.0, list[str]()
    for plan, name, (_, schedule, replica), (problem, bars, times) in zip(plans, names, found, drawn, strict=True):
        height = PITCH * problem.num_devices
        words = f"{name}: {plan.step_time_s:.4g} s, {schedule.kind}, {slowest_words(plan, replica)}"
        shapes.append(label(LEFT, y + 14, words, 'class="on"'))
        shapes.append(_moved(lanes(problem, bars, times, end), y + TITLE))
        if plan.step_time_s <= end:
            x = LEFT + plan.step_time_s * scale
            shapes.append(line(x, y + TITLE - 4, x, y + TITLE + height - 2, 'class="bound"'))
        y += TITLE + height + 8
    note = f"The first {end:.4g} s are drawn. " if cut else ""
    note += (
        "Dashed: the end of the step. Reductions of gradients and the optimizer lie before it. At the right the most "
    )
    note += "bytes of activations that a device holds."
    shapes += time_labels(end, y)
    return f'{wide(drawing(WIDTH, y + 18, shapes, "timelines of both plans"))}{PASSES}<p class="note">{text(note)}</p>'


def differences(one: "Plan", other: "Plan") -> dict[str, float]:
    """Seconds of a step by part in words that the second plan takes more, (2)."""
    meshed = bool(one.meshes or other.meshes)
    named = MESH_PARTS if meshed else PARTS
    sides = []
    for plan in (one, other):
        parts = dict(plan.sections.predicted.breakdown_s)
        if meshed and not plan.meshes:
            parts["passes"] = parts["compute"] + parts["tensor_parallel"]
        sides.append(parts)
    return {words: sides[1][part] - sides[0][part] for part, words in named.items()}


def _difference(plans: "tuple[Plan, Plan]", names: tuple[str, str]) -> str:
    """A bar a part, to the right where the second plan takes longer."""
    found = differences(*plans)
    found["the step"] = plans[1].step_time_s - plans[0].step_time_s
    most, middle, pitch = max(abs(value) for value in found.values()) or 1.0, 430.0, 24.0
    scale, shapes = (BARS - middle - 70) / most, list[str]()
    for row, (words, seconds) in enumerate(found.items()):
        y, wide, whole = pitch * row, abs(seconds) * scale, ' class="on"' if words == "the step" else ""
        beside, anchor = (middle + wide + 6, "start") if seconds >= 0 else (middle - wide - 6, "end")
        shade = HOP if seconds >= 0 else RING
        shapes += [
            label(205, y + 14, words, f'text-anchor="end"{whole}'),
            box(middle if seconds >= 0 else middle - wide, y, wide, 18, shade, f"{words}: {seconds:+.4g} s"),
            label(beside, y + 14, f"{seconds:+.3g} s", f'text-anchor="{anchor}"{whole}'),
        ]
    height = pitch * len(found)
    shapes.append(line(middle, 0, middle, height))
    note = f"Seconds of a step that {names[1]} takes more (right) or less (left) than {names[0]}."
    return f'{drawing(BARS, height, shapes, "difference by part")}<p class="note">{text(note)}</p>'


def _memory(plans: "tuple[Plan, Plan]", names: tuple[str, str]) -> str:
    """The bars of both, (3)."""
    most = max(stage["capacity_bytes"] for plan in plans for stage in plan.stages)
    y, shapes = 0.0, [HATCH]
    for plan, name in zip(plans, names, strict=True):
        shapes += [label(LEFT, y + 14, name, 'class="on"'), _moved(memory_bars(plan.stages, most), y + TITLE)]
        y += TITLE + 24.0 * len(plan.stages) + 8
    return drawing(BARS, y, shapes, "memory of both plans' devices") + MEMORY_NOTE
