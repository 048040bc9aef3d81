r"""
Figures of a plan: where the time goes, how the gap closed, memory against capacity, and the schedule over time.

(1) The bar of the step time is as long as the sum of its parts; the lower bound is a line at its own seconds.
(2) Gap over time: plan and bound as steps over the seconds of the search, up to its end, where the certificate's own
    figures stand. A moment without a plan or bound draws nothing of it.
(3) Every stage has one bar, GiB of its fullest device, as wide as the largest capacity; the margin lies below the
    capacity.
(4) The timeline has what every pipeline rank of the slowest replica does, micro-batch by micro-batch, with the bars of
    ``taut.plots.schedule``: a pass from its start to its end, in the colour of its kind, lighter for later chunks.
    All bars of a colour are one path. Of a schedule with more than ``MOST_BARS`` bars the beginning is drawn, up to the
    moment at which as many have begun.

The placement over the links shows bandwidth from every sender (row) to every receiver (column), in the order of the
stages. Sites are those of ``taut.plots.plan``, nodes where the cluster is described by node. Of more than
``MOST_SITES`` sites, those next to each other are drawn as one, with the slowest link between them, so

(5) :math:`r_{AB} = \min_{a \in A, b \in B} r_{ab}`, in eight shades between the extremes outside a node.

Frames are neighbouring sites with the same stages; discs are hops to the next stage, small squares stage 0's
all-reduce.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.units import GIB
from taut.errors import TautError
from taut.formulations.plainer import FASTEST
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, Timetable, timetable
from taut.planning.plan import Plan
from taut.planning.proof import figure_of
from taut.planning.tables import device_ranges
from taut.plots.plan import HOP, INSIDE, RING, SHADES, Grid, grid_of
from taut.plots.schedule import IDLE, NAMES, Bars, bars_of, colour, shades
from taut.quoting import html_text as text
from taut.reports.page.markup import box, boxes, drawing, label, legend, line
from taut.reports.plan_details import slowest_words
from taut.schedules.reading import planned
from taut.solver.result import relative_gap
from taut.words import percent

WIDTH = 960.0
LEFT, RIGHT = 64.0, 150.0
BARS = 640.0
"""Width of a figure of bars."""
MOST_BARS = 20_000
"""Bars that a browser still draws at once without a pause, some 700 kB of markup."""
PITCH, HEIGHT, BESIDE = 26.0, 20.0, 90.0
Moments = list[tuple[float, float | None, float | None]]
Points = list[tuple[float, float]]


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
        shown.append((f"dashed: lower bound {bound:.4g} s", "none"))
    return drawing(WIDTH, 74, shapes, "seconds of a step by part") + legend(shown)


def moments_of(plan: Plan) -> Moments:
    """Seconds, plan and bound while the search ran, (2); none where the file does not say."""
    provenance = plan.typed.provenance
    history, wall = provenance.get("history"), figure_of(provenance.get("wall_s"))
    if not isinstance(history, list) or wall is None:
        return []
    moments: Moments = []
    for moment in history:
        if not isinstance(moment, dict) or (seconds := figure_of(moment.get("wall_s"))) is None:
            return []
        moments.append((seconds, figure_of(moment.get("objective_s")), figure_of(moment.get("lower_bound_s"))))
    last = max([wall, *(seconds for seconds, _, _ in moments)])
    # Where a plainer plan has taken its place, the search ended with the fastest.
    fastest = [tie.step_time_s for tie in plan.plainer if tie.restriction == FASTEST]
    return [*moments, (last, min([plan.certificate.objective_s, *fastest]), plan.lower_bound_s)]


def gap_figure(moments: Moments) -> str:
    """Plan and bound over the time of the search, (2)."""
    values = [value for _, *both in moments for value in both if value is not None]
    if len(moments) < 2 or not values or moments[-1][0] <= 0:
        return "<p>The file does not say how the gap closed: it is of an older version, or of another method.</p>"
    curves = {
        name: (shade, [(moment[0], value) for moment in moments if (value := moment[index]) is not None])
        for index, name, shade in ((1, "plan", HOP), (2, "lower bound", RING))
    }
    end, plan, bound = moments[-1]
    gap = None if plan is None or bound is None else relative_gap(plan, bound)
    words = f"plan and lower bound over {end:.3g} s of search, gap {percent(gap)} at the end"
    return steps_figure(curves, end, words, " s")


def steps_figure(curves: Mapping[str, tuple[str, Points]], end: float, words: str, unit: str = "") -> str:
    """Values over the seconds of a search, each with its name, colour, and points by time; counts have no unit."""
    values = [value for _, points in curves.values() for _, value in points]
    low, high, height = min(values) if unit else 0.0, max(values), 240.0
    room = 0.08 * (high - low) or 0.01 * abs(high) or 1.0
    low, high = low - room if unit else 0.0, high + room

    def place(seconds: float, value: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * seconds / end
        return across, 10 + (height - 40) * (high - value) / (high - low)

    shapes = [_axes(low, high, end, height, unit)]
    for index, (name, (shade, points)) in enumerate(curves.items()):
        if points:
            value = points[-1][1]
            shapes.append(_steps([place(*point) for point in [*points, (end, value)]], shade))
            x, y = place(end, value)
            # Names that would lie on each other go to both sides of their lines.
            lower = 14 if index == 1 else -4
            shapes.append(label(x + 6, y + lower, f"{name} {_number_words(value, unit, 5)}", f'style="fill:{shade}"'))
    return drawing(WIDTH, height, shapes, words)


def _axes(low: float, high: float, end: float, height: float, unit: str) -> str:
    """Frame with five values on the left, and the seconds of the search below."""
    shapes, right = [], WIDTH - RIGHT
    for k in range(5):
        y = 10 + (height - 40) * k / 4
        shapes.append(line(LEFT, y, right, y, 'class="grid"'))
        words = _number_words(high - (high - low) * k / 4, unit, 4)
        shapes.append(label(LEFT - 6, y + 4, words, 'text-anchor="end"'))
        x = LEFT + (right - LEFT) * k / 4
        shapes.append(label(x, height - 14, f"{end * k / 4:.3g}", 'text-anchor="middle"'))
    shapes.append(label((LEFT + right) / 2, height - 1, "seconds of the search", 'text-anchor="middle"'))
    return "".join(shapes)


def _number_words(value: float, unit: str, digits: int) -> str:
    """A figure with its unit, or a count."""
    return f"{value:.{digits}g}{unit}" if unit else f"{value:,.0f}"


def _steps(points: list[tuple[float, float]], colour: str) -> str:
    """A line that goes right before it goes up or down."""
    if not points:
        return ""
    moves = f"M{points[0][0]:.5g} {points[0][1]:.5g}" + "".join(f"H{x:.5g}V{y:.5g}" for x, y in points[1:])
    return f'<path d="{moves}" fill="none" stroke="{colour}" stroke-width="2"/>'


def memory_figure(stages: Sequence[Mapping[str, Any]]) -> str:
    """One bar a stage, of its record: predicted bytes, the margin, the capacity, (3)."""
    shapes = memory_bars(stages, max(stage["capacity_bytes"] for stage in stages))
    return drawing(BARS, 24.0 * len(stages) + 4, [HATCH, *shapes], "memory of each stage's devices") + MEMORY_NOTE


HATCH = (
    '<defs><pattern id="margin" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line x1="0" y1="0" x2="0" y2="6" stroke="#888" stroke-width="2"/></pattern></defs>'
)
MEMORY_NOTE = (
    legend([("used by each device of the stage", SHADES[0]), ("free", "var(--pale)")])
    + '<p class="note">Hatched: the margin that the memory model keeps free.</p>'
)


def memory_bars(stages: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """A bar a stage, on the scale of the largest capacity."""
    scale, pitch, shapes = (BARS - LEFT - RIGHT) / (most or 1), 24.0, []
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
    return shapes


def timeline_figure(plan: Plan) -> str:
    """The schedule over time, or why it cannot be drawn."""
    try:
        placed, schedule, replica = planned(plan.document, plan.source)
    except TautError as error:
        return f"<p>The schedule cannot be drawn: {text(error)}.</p>"
    return schedule_figure(placed.problem, schedule, timetable(placed.problem, schedule), slowest_words(plan, replica))


def schedule_figure(problem: ScheduleProblem, schedule: Schedule, times: Timetable, which: str) -> str:
    """The passes of a pipeline over time, of the one that ``which`` says in words."""
    bars, words = bars_of(problem, schedule, times), ""
    end = drawn_until(bars, times)
    if end < times.makespan:
        words = f" Of {times.makespan:.4g} s the first {end:.4g} s are drawn."
    shapes, height = lanes(problem, bars, times, end), PITCH * problem.num_devices
    drawn = drawing(WIDTH, height + 18, [*shapes, *time_labels(end, height)], "timeline of the schedule")
    m = problem.num_micro_batches
    note = (
        f"{schedule.kind}, {which}, {m} micro-batch{'es' if m > 1 else ''}; at the right the most bytes "
        f"of activations that a device holds. Reductions of gradients and the optimizer follow.{words}"
    )
    return f'{drawn}{PASSES}<p class="note">{text(note)}</p>'


PASSES = legend([*((name, colour(kind, 0.0)) for kind, name in NAMES.items()), ("idle", IDLE)])


def drawn_until(bars: Bars, times: Timetable) -> float:
    """Seconds up to which a schedule is drawn, (4)."""
    return float(np.partition(bars.start, MOST_BARS)[MOST_BARS]) if len(bars.start) > MOST_BARS else times.makespan


def lanes(problem: ScheduleProblem, bars: Bars, times: Timetable, end: float) -> list[str]:
    """Lanes of passes, one under the other, of a drawing that is ``end`` seconds wide."""
    scale, white, own = (WIDTH - LEFT - BESIDE) / (end or 1.0), shades(problem), min(times.makespan, end)
    every = range(problem.num_devices)
    return [
        *(box(LEFT, PITCH * d, own * scale, HEIGHT, IDLE) for d in every),
        *(_path(bars, kind, c, end, scale, colour(kind, share)) for kind in NAMES for c, share in white.items()),
        *(label(LEFT - 6, PITCH * d + 14, f"stage {d}", 'text-anchor="end"') for d in every),
        *(
            label(LEFT + end * scale + 6, PITCH * d + 14, f"{peak / GIB:.3g} GiB", f'data-held="{d}"')
            for d, peak in enumerate(times.peak_memory.tolist())
        ),
    ]


def time_labels(end: float, height: float) -> list[str]:
    """Five moments of a drawing that is ``end`` seconds wide, at their places under lanes of a height."""
    wide = WIDTH - LEFT - BESIDE
    return [label(LEFT + wide * k / 4, height + 12, f"{end * k / 4:.4g} s", 'text-anchor="middle"') for k in range(5)]


def _path(bars: Bars, kind: int, chunk: int, end: float, scale: float, shade: str) -> str:
    """Bars of one kind and chunk that begin before the end, a thin gap between neighbours."""
    rows = np.flatnonzero((bars.kind == kind) & (bars.chunk == chunk) & (bars.start < end))
    start, stop = bars.start[rows], np.minimum(bars.end[rows], end)
    wide = np.maximum((stop - start) * scale, 0.0)
    gap = np.minimum(0.6, 0.2 * wide)
    corners = zip(LEFT + start * scale, PITCH * bars.device[rows], wide - gap, np.full(len(rows), HEIGHT), strict=True)
    return boxes(corners, shade)


MOST_SITES = 96
"""Rows that are told apart on a screen, at some six pixels each."""
SIDE, BAND, EDGE = 600.0, 18.0, 60.0
GREYS = tuple(f"#{level:02x}{level:02x}{level:02x}" for level in range(70, 246, 25))


def placement_figure(plan: Plan) -> str:
    """Matrix of the links with the stages' frames, the hops and the all-reduce."""
    grid = grid_of(plan)
    count = len(grid.site)
    block = np.arange(count) // -(-count // MOST_SITES)
    rate, cell = _blocks(grid.rate, block), SIDE / (block[-1] + 1)
    least, most, scale = _levels(grid)
    place, shaded = EDGE + BAND, _shaded(rate, least, most)
    parts = [_row_runs(shaded, place, cell), *_bands(grid, block, cell), *_frames(grid, block, cell)]
    hops = {(int(block[a]), int(block[b])) for a, b in grid.hops}
    ring = {(int(block[a]), int(block[b])) for a, b in grid.ring if a != b}
    inset = [(place + b * cell + 0.38 * cell, place + a * cell + 0.38 * cell, *(0.24 * cell,) * 2) for a, b in ring]
    parts.append(boxes(sorted(inset), RING))
    radius = max(0.3 * cell, 1.5)
    for a, b in sorted(hops):
        x, y = place + (b + 0.5) * cell, place + (a + 0.5) * cell
        parts.append(f'<circle cx="{x:.5g}" cy="{y:.5g}" r="{min(radius, 12.0):.3g}" fill="{HOP}"/>')
    parts += _names(grid, block, cell)
    merged = (
        f" {-(-count // MOST_SITES)} neighbours are drawn as one, by their slowest link." if count > MOST_SITES else ""
    )
    what = "node" if np.array_equal(grid.site, grid.node) else "device"
    drawn = drawing(SIDE + place + 4, SIDE + place + 4, parts, "bandwidth between sites in the order of the plan")
    shades = [(f"{slowest:.4g} Gb/s and more", shade) for shade, slowest in scale]
    marks = [("to the next stage", HOP), ("all-reduce of stage 0", RING)]
    note = f"Rows send, columns receive; one row a {what}. Frames: neighbouring {what}s with the same stages.{merged}"
    return f'{drawn}{legend([*marks, *shades])}<p class="note">{note}</p>'


def _blocks(rate: Floats, block: Ints) -> Floats:
    """Slowest link between blocks of sites, (5); NaN where there is none."""
    first = np.flatnonzero(np.diff(block, prepend=-1))
    filled = np.where(np.isnan(rate), np.inf, rate)
    least = np.minimum.reduceat(np.minimum.reduceat(filled, first, axis=0), first, axis=1)
    return np.where(np.isinf(least), np.nan, least)


def _levels(grid: Grid) -> tuple[float, float, list[tuple[str, float]]]:
    """Rates between which shades differ, and the least rate of every shade that occurs."""
    between = grid.rate[grid.node[:, None] != grid.node[None, :]]
    known = grid.rate[np.isfinite(grid.rate)]
    scaled = between if between.size else known
    least, most = float(scaled.min(initial=np.inf)), float(scaled.max(initial=0.0))
    if not least < most:
        least = most
    inside = [(INSIDE, float(known[known > most].min()))] if (known > most).any() else []
    if least == most:
        return least, most, [(GREYS[-1], most), *inside]
    return least, most, [(GREYS[k], least + (most - least) * k / len(GREYS)) for k in (0, 3, 7)] + inside


def _shaded(rate: Floats, least: float, most: float) -> list[list[str]]:
    """Colours of rates between a least and a most; above it a colour of its own, white where there is no link."""
    share = np.ones_like(rate) if most <= least else (rate - least) / (most - least)
    index = np.clip((np.nan_to_num(share, nan=0.0) * len(GREYS)).astype(int), 0, len(GREYS) - 1)
    index = np.where(np.isnan(rate), len(GREYS) + 1, np.where(rate > most, len(GREYS), index))
    shades: list[list[str]] = np.array([*GREYS, INSIDE, "#ffffff"])[index].tolist()
    return shades


def _row_runs(shades: list[list[str]], place: float, cell: float) -> str:
    """Cells as one path for each shade, neighbours of one shade as one box."""
    runs: dict[str, list[tuple[float, float, float, float]]] = {}
    for a, row in enumerate(shades):
        at = 0
        for shade, cells in groupby(row):
            wide = len(list(cells))
            # A trace more than a cell, so that no seam of the page shows between rows.
            runs.setdefault(shade, []).append((place + at * cell, place + a * cell, wide * cell, cell + 0.3))
            at += wide
    return "".join(boxes(corners, shade) for shade, corners in runs.items())


def _spans(grid: Grid, block: Ints) -> list[tuple[list[int], int, int]]:
    """Stages, first and last block of every run of neighbouring sites that hold the same stages."""
    stages = [sorted({stage for stage, _ in groups}) for groups in grid.groups]
    found: list[tuple[list[int], int, int]] = []
    for held, run in groupby(range(len(stages)), key=lambda a: stages[a]):
        sites = list(run)
        found.append((held, int(block[sites[0]]), int(block[sites[-1]])))
    return found


def _bands(grid: Grid, block: Ints, cell: float) -> list[str]:
    """Stages along both sides."""
    parts = []
    for held, first, last in _spans(grid, block):
        at, long = EDGE + BAND + first * cell, (last - first + 1) * cell
        shade, hint = SHADES[held[0] % len(SHADES)] if held else GREYS[0], f"stages {device_ranges(held)}"
        parts += [box(EDGE, at, BAND - 3, long, shade, hint), box(at, EDGE, long, BAND - 3, shade, hint)]
    return parts


def _frames(grid: Grid, block: Ints, cell: float) -> list[str]:
    """A frame around the links within each stage."""
    place, frame = EDGE + BAND, 'stroke="#b00040" stroke-width="1.6"'
    spans = _spans(grid, block)
    return [
        box(place + first * cell, place + first * cell, *((last - first + 1) * cell,) * 2, "none", "", frame)
        for _, first, last in spans
    ]


def _names(grid: Grid, block: Ints, cell: float) -> list[str]:
    """Stages at their bands, where there is room for their number, and the sites' numbers where they are few."""
    parts = [label(EDGE, EDGE - 26, "receives"), label(2, EDGE + BAND - 4, "sends")]
    for held, first, last in _spans(grid, block):
        stage = device_ranges(held)
        middle = EDGE + BAND + (first + last + 1) / 2 * cell
        if (last - first + 1) * cell >= 12 and len(stage) <= 2 + (last - first + 1) * cell / 12:
            parts.append(label(EDGE + 7, middle + 4, stage, 'text-anchor="middle" class="on"'))
            parts.append(label(middle, EDGE + 12, stage, 'text-anchor="middle" class="on"'))
    if cell >= 11:
        for a, site in enumerate(grid.site.tolist()):
            middle = EDGE + BAND + (a + 0.5) * cell
            parts.append(label(EDGE - 5, middle + 4, site, 'text-anchor="end"'))
            parts.append(label(middle, EDGE - 5, site, 'text-anchor="middle"'))
    return parts
