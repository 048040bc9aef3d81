"""
Timeline of a plan's schedule: what every pipeline rank of the slowest replica does, micro-batch by micro-batch.

Bars are those of ``taut.plots.schedule_bars``: a pass from its start to its end, in the colour of its kind, lighter for
later chunks. All bars of a colour are one path. Of a schedule with more than ``MOST`` bars the beginning is drawn, up
to the moment at which as many have begun.
"""

from typing import TYPE_CHECKING

import numpy as np

from taut.data.units import GIB
from taut.errors import TautError
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, Timetable, timetable
from taut.plots.schedule_bars import IDLE, NAMES, Bars, bars_of, colour, shades
from taut.reports.page.figures import LEFT, WIDTH
from taut.reports.page.markup import box, boxes, drawing, label, legend, text
from taut.reports.plan_details import slowest_words
from taut.schedules.reading import planned

if TYPE_CHECKING:
    from taut.planning.plan import Plan

MOST = 20_000
"""Bars that a browser still draws at once without a pause, some 700 kB of markup."""
PITCH, HEIGHT = 26.0, 20.0
RIGHT = 90.0


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
    if len(bars.start) > MOST:
        end = float(np.partition(bars.start, MOST)[MOST])
        words = f" Of {times.makespan:.4g} s the first {end:.4g} s are drawn."
    scale, white = (WIDTH - LEFT - RIGHT) / (end or 1.0), shades(problem)
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
