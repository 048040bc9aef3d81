"""
Figures of a plan's numbers: where the time goes, how the gap closed, and memory against capacity.

(1) The bar of the step time is as long as the sum of its parts; the lower bound is a line at its own seconds.
(2) Gap over time: plan and bound as steps over the seconds of the search, up to its end, where the certificate's own
    figures stand. A moment without a plan or bound draws nothing of it.
(3) Every stage has one bar, GiB of its fullest device, as wide as the largest capacity; the margin lies below the
    capacity.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taut.data.units import GIB
from taut.plots.plan import HOP, RING, SHADES
from taut.reports.page.markup import box, drawing, label, legend, line
from taut.words import percent

if TYPE_CHECKING:
    from taut.planning.plan import Plan

WIDTH = 960.0
LEFT, RIGHT = 64.0, 150.0
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
    for index, name, colour in ((1, "plan", HOP), (2, "lower bound", RING)):
        known = [(moment[0], value) for moment in moments if (value := moment[index]) is not None]
        shapes.append(_steps([place(*point) for point in known], colour))
        if known:
            x, y = place(end, known[-1][1])
            # Names that would lie on each other go to both sides of their lines.
            lower = 14 if index == 2 else -4
            shapes.append(label(x + 6, y + lower, f"{name} {known[-1][1]:.5g} s", f'style="fill:{colour}"'))
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
