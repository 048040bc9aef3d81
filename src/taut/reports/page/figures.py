"""
Figures of a plan: where the time goes, how the gap closed, memory against capacity, and the schedule over time.

(1) The bar of the step time is as long as the sum of its parts; the lower bound is a line at its own seconds.
(2) Gap over time: plan and bound as steps over the seconds of the search, up to its end, where the certificate's own
    figures stand. A moment without a plan or bound draws nothing of it.
(3) Every stage has one bar, GiB of its fullest device, as wide as the largest capacity; the margin lies below the
    capacity.
(4) The timeline has what every pipeline rank of the slowest replica does, micro-batch by micro-batch, with the bars of
    ``taut.plots.schedule_bars``: a pass from its start to its end, in the colour of its kind, lighter for later chunks.
    All bars of a colour are one path. Of a schedule with more than ``MOST_BARS`` bars the beginning is drawn, up to the
    moment at which as many have begun.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.units import GIB
from taut.errors import TautError
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, Timetable, timetable
from taut.plots.plan import HOP, RING, SHADES
from taut.plots.schedule_bars import IDLE, NAMES, Bars, bars_of, colour, shades
from taut.reports.page.markup import box, boxes, drawing, label, legend, line, text
from taut.reports.plan_details import slowest_words
from taut.schedules.reading import planned
from taut.words import percent

if TYPE_CHECKING:
    from taut.planning.plan import Plan

WIDTH = 960.0
LEFT, RIGHT = 64.0, 150.0
MOST_BARS = 20_000
"""Bars that a browser still draws at once without a pause, some 700 kB of markup."""
PITCH, HEIGHT, BESIDE = 26.0, 20.0, 90.0
Moments = list[tuple[float, float | None, float | None]]


def parts_figure(total: float, parts: Mapping[str, float], bound: float | None) -> str:
    """Bar of the step's seconds by part, named in words, with the bound, (1), and the parts as a legend."""
    scale = (WIDTH - 2) / (max(total, sum(parts.values())) or 1.0)
    shapes, at, shown = [], 0.0, []
    for shade, (words, seconds) in zip(SHADES, parts.items(), strict=False):
        hint = f"{words}: {seconds:.4g} s" + (f", {seconds / total:.1%}" if total else "")
        shapes.append(box(1 + at * scale, 18, seconds * scale, 40, shade, hint))
        at += seconds
        if seconds > 0:
            shown.append((hint, shade))
    if bound is not None:
        x = 1 + bound * scale
        shapes.append(line(x, 8, x, 68, 'class="bound"'))
        shapes.append(label(x - 4, 14, f"lower bound {bound:.4g} s", 'text-anchor="end"'))
    return drawing(WIDTH, 74, shapes, "seconds of a step by part") + legend(shown)


def moments_of(plan: "Plan") -> Moments:
    """Seconds, plan and bound while the search ran, (2); none where the file does not say."""
    provenance = plan.typed.provenance
    history, wall = provenance.get("history"), _number(provenance.get("wall_s"))
    if not isinstance(history, list) or wall is None:
        return []
    moments: Moments = []
    for moment in history:
        if not isinstance(moment, dict) or (seconds := _number(moment.get("wall_s"))) is None:
            return []
        moments.append((seconds, _number(moment.get("objective_s")), _number(moment.get("lower_bound_s"))))
    last = max([wall, *(seconds for seconds, _, _ in moments)])
    return [*moments, (last, plan.certificate.objective_s, plan.lower_bound_s)]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def gap_figure(plan: "Plan") -> str:
    """Plan and bound over the time of the search, (2)."""
    moments = moments_of(plan)
    values = [value for _, *both in moments for value in both if value is not None]
    if len(moments) < 2 or not values or moments[-1][0] <= 0:
        return "<p>The file does not say how the gap closed: it is of an older version, or of another method.</p>"
    low, high, end = min(values), max(values), moments[-1][0]
    room = 0.08 * (high - low) or 0.01 * abs(high) or 1.0
    low, high, height = low - room, high + room, 240.0

    def place(seconds: float, value: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * seconds / end
        return across, 10 + (height - 40) * (high - value) / (high - low)

    shapes = [_axes(low, high, end, height)]
    for index, name, shade in ((1, "plan", HOP), (2, "lower bound", RING)):
        known = [(moment[0], value) for moment in moments if (value := moment[index]) is not None]
        shapes.append(_steps([place(*point) for point in known], shade))
        if known:
            x, y = place(end, known[-1][1])
            # Names that would lie on each other go to both sides of their lines.
            lower = 14 if index == 2 else -4
            shapes.append(label(x + 6, y + lower, f"{name} {known[-1][1]:.5g} s", f'style="fill:{shade}"'))
    words = f"plan and lower bound over {end:.3g} s of search, gap {percent(plan.gap)} at the end"
    return drawing(WIDTH, height, shapes, words)


def _axes(low: float, high: float, end: float, height: float) -> str:
    """Frame with four seconds of a step on the left, and the seconds of the search below."""
    shapes, right = [], WIDTH - RIGHT
    for k in range(5):
        y = 10 + (height - 40) * k / 4
        shapes.append(line(LEFT, y, right, y, 'class="grid"'))
        shapes.append(label(LEFT - 6, y + 4, f"{high - (high - low) * k / 4:.4g} s", 'text-anchor="end"'))
        x = LEFT + (right - LEFT) * k / 4
        shapes.append(label(x, height - 14, f"{end * k / 4:.3g}", 'text-anchor="middle"'))
    shapes.append(label((LEFT + right) / 2, height - 1, "seconds of the search", 'text-anchor="middle"'))
    return "".join(shapes)


def _steps(points: list[tuple[float, float]], colour: str) -> str:
    """A line that goes right before it goes up or down."""
    if not points:
        return ""
    moves = f"M{points[0][0]:.5g} {points[0][1]:.5g}" + "".join(f"H{x:.5g}V{y:.5g}" for x, y in points[1:])
    return f'<path d="{moves}" fill="none" stroke="{colour}" stroke-width="2"/>'


def memory_figure(stages: Sequence[Mapping[str, Any]]) -> str:
    """One bar a stage, of its record: predicted bytes, the margin, the capacity, (3)."""
    most = max(stage["capacity_bytes"] for stage in stages) or 1
    scale, pitch, shapes = (WIDTH - LEFT - RIGHT) / most, 24.0, []
    for stage in stages:
        y = pitch * stage["stage"] + 2
        used, margin, capacity = (stage[f"{name}_bytes"] for name in ("memory", "margin", "capacity"))
        hint = f"stage {stage['stage']}: {used / GIB:.2f} GiB used, {margin / GIB:.2f} kept free, {capacity / GIB:.2f}"
        shapes += [
            label(LEFT - 6, y + 14, f"stage {stage['stage']}", 'text-anchor="end"'),
            box(LEFT, y, capacity * scale, 18, "var(--pale)", hint),
            box(LEFT + (capacity - margin) * scale, y, margin * scale, 18, "url(#margin)", hint),
            box(LEFT, y, used * scale, 18, SHADES[0] if used <= capacity else HOP, hint),
            label(LEFT + capacity * scale + 6, y + 14, f"{used / GIB:.1f} of {capacity / GIB:.0f} GiB"),
        ]
    hatch = (
        '<defs><pattern id="margin" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line x1="0" y1="0" x2="0" y2="6" stroke="#888" stroke-width="2"/></pattern></defs>'
    )
    height = pitch * len(stages) + 4
    named = legend([("used by each device of the stage", SHADES[0]), ("free", "var(--pale)")])
    words = '<p class="note">Hatched: the margin that the memory model keeps free.</p>'
    return drawing(WIDTH, height, [hatch, *shapes], "memory of each stage's devices") + named + words


def timeline_figure(plan: "Plan") -> str:
    """The schedule over time, or why it cannot be drawn."""
    try:
        placed, schedule, replica = planned(plan.document, plan.source)
    except TautError as error:
        return f"<p>The schedule cannot be drawn: {text(error)}.</p>"
    return schedule_figure(placed.problem, schedule, timetable(placed.problem, schedule), slowest_words(plan, replica))


def schedule_figure(problem: ScheduleProblem, schedule: Schedule, times: Timetable, which: str) -> str:
    """The passes of a pipeline over time, of the one that ``which`` says in words."""
    bars, end, words = bars_of(problem, schedule, times), times.makespan, ""
    if len(bars.start) > MOST_BARS:
        end = float(np.partition(bars.start, MOST_BARS)[MOST_BARS])
        words = f" Of {times.makespan:.4g} s the first {end:.4g} s are drawn."
    scale, white = (WIDTH - LEFT - BESIDE) / (end or 1.0), shades(problem)
    lanes = [box(LEFT, PITCH * d, end * scale, HEIGHT, IDLE) for d in range(problem.num_devices)]
    named = [label(LEFT - 6, PITCH * d + 14, f"stage {d}", 'text-anchor="end"') for d in range(problem.num_devices)]
    held = [
        label(LEFT + end * scale + 6, PITCH * d + 14, f"{peak / GIB:.3g} GiB", f'data-held="{d}"')
        for d, peak in enumerate(times.peak_memory.tolist())
    ]
    paths = [
        _path(bars, kind, chunk, end, scale, colour(kind, share)) for kind in NAMES for chunk, share in white.items()
    ]
    height = PITCH * problem.num_devices
    axis = [
        label(LEFT + end * scale * k / 4, height + 12, f"{end * k / 4:.4g} s", 'text-anchor="middle"') for k in range(5)
    ]
    drawn = drawing(WIDTH, height + 18, [*lanes, *paths, *named, *held, *axis], "timeline of the schedule")
    m = problem.num_micro_batches
    note = (
        f"{schedule.kind}, {which}, {m} micro-batch{'es' if m > 1 else ''}; at the right the most bytes "
        f"of activations that a device holds. Reductions of gradients and the optimizer follow.{words}"
    )
    names = [(name, colour(kind, 0.0)) for kind, name in NAMES.items()] + [("idle", IDLE)]
    return f'{drawn}{legend(names)}<p class="note">{text(note)}</p>'


def _path(bars: Bars, kind: int, chunk: int, end: float, scale: float, shade: str) -> str:
    """Bars of one kind and chunk that begin before the end, a thin gap between neighbours."""
    rows = np.flatnonzero((bars.kind == kind) & (bars.chunk == chunk) & (bars.start < end))
    start, stop = bars.start[rows], np.minimum(bars.end[rows], end)
    wide = np.maximum((stop - start) * scale, 0.0)
    gap = np.minimum(0.6, 0.2 * wide)
    corners = zip(LEFT + start * scale, PITCH * bars.device[rows], wide - gap, np.full(len(rows), HEIGHT), strict=True)
    return boxes(corners, shade)
