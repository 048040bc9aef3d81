"""
Picture of a schedule: one row per device, its passes coloured, and the memory that it holds under them.

Geometry and colours are those of ``taut.plots.schedule_bars``. Idle time is the grey of the lane. Micro-batches are
numbered where a bar has room. matplotlib is the extra ``plot``, imported on the first drawing.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.plots.plan import HOP, new_axes
from taut.plots.schedule_bars import (
    HELD,
    HELD_LINE,
    IDLE,
    LANE,
    NAMES,
    ROW,
    STRIP,
    Bars,
    bars_of,
    colour,
    fullest,
    is_dark,
    lane_bottom,
    memory_curve,
    shades,
    strip_bottom,
)
from taut.schedules.found import chunk_words, head_line, proof_line, time_axis

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from taut.schedules.found import FoundSchedule

SMALLEST, LARGEST = 4.5, 9.0
"""Font sizes in points between which micro-batches are numbered."""
DIGIT = 0.62
"""Width of a digit, as a share of the font size."""


def plot_schedule(found: "FoundSchedule", ax: "Axes | None" = None) -> "Axes":
    """
    Draw a schedule.

    Parameters
    ----------
    found
        The schedule with its pipeline and bound.
    ax
        Axes to draw on; a new figure without them.

    Returns
    -------
    Axes
        What was drawn on: time against devices.

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import taut
    >>> stages = taut.Stages(stages=2, micro_batches=4, forward=[1.0], backward=[1.0], weight=[1.0])
    >>> found = taut.published_schedule(stages, "1f1b", taut.ScheduleSearch(time_limit=1))
    >>> taut.plot_schedule(found).get_xlabel()
    'time (in the unit of the given times)'
    """
    ax = ax or new_axes(*figure_size(found))
    bars = bars_of(found.problem, found.schedule, found.times)
    ax.set_xlim(0.0, found.makespan)
    ax.set_ylim(strip_bottom(found.problem.num_devices - 1) - 0.12, LANE + 0.12)
    _name_axes(ax, found)
    _draw_lanes(ax, found)
    _draw_bars(ax, found, bars)
    _draw_memory(ax, found)
    _draw_bound(ax, found)
    _draw_legend(ax, found)
    _number(ax, found, bars)
    return ax


def figure_size(found: "FoundSchedule") -> tuple[float, float]:
    """Width and height in inches that suit the number of passes and devices."""
    most = max(len(order) for order in found.schedule.orders)
    height = 0.42 * ROW if found.problem.num_devices <= 8 else 0.24 * ROW
    return float(np.clip(0.16 * most + 2.0, 10.0, 16.0)), 1.5 + height * found.problem.num_devices


def _draw_lanes(ax: "Axes", found: "FoundSchedule") -> None:
    """Idle time, as the ground that the bars stand on."""
    from matplotlib.collections import PolyCollection

    lanes = [_box(0.0, found.makespan, lane_bottom(d), lane_bottom(d) + LANE) for d in range(found.problem.num_devices)]
    ax.add_collection(PolyCollection(lanes, facecolors=IDLE, edgecolors="none", zorder=0))


def _box(left: float, right: float, bottom: float, top: float) -> list[tuple[float, float]]:
    return [(left, bottom), (right, bottom), (right, top), (left, top)]


def _draw_bars(ax: "Axes", found: "FoundSchedule", bars: Bars) -> None:
    """Every pass in the colour of its kind and the shade of its chunk, outlined in white where that is not too much."""
    from matplotlib.collections import PolyCollection

    white, low = shades(found.problem), [lane_bottom(d) for d in bars.device.tolist()]
    corners = np.empty((len(low), 4, 2))
    corners[:, (0, 3), 0], corners[:, (1, 2), 0] = bars.start[:, None], bars.end[:, None]
    corners[:, :2, 1], corners[:, 2:, 1] = np.array(low)[:, None], np.array(low)[:, None] + LANE
    faces = [colour(kind, white[c]) for kind, c in zip(bars.kind.tolist(), bars.chunk.tolist(), strict=True)]
    room = points_per_second(ax) * float(np.median(bars.end - bars.start))
    width = 0.5 if room > 4 else 0.0
    ax.add_collection(PolyCollection(list(corners), facecolors=faces, edgecolors="white", linewidths=width, zorder=2))


def points_per_second(ax: "Axes") -> float:
    """How wide a second is drawn."""
    box = ax.get_window_extent()
    left, right = ax.get_xlim()
    return float(box.width / ax.figure.dpi * 72 / (right - left)) if right > left else 0.0


def _draw_memory(ax: "Axes", found: "FoundSchedule") -> None:
    """What every device holds over time, and its limit, as a share of the most that any holds or may hold."""
    problem, top = found.problem, fullest(found.problem, found.times)
    most = found.times.peak_memory / found.reference_memory
    for d, order in enumerate(found.schedule.orders):
        low = strip_bottom(d)
        moment, held = memory_curve(problem, order, found.times.start[d], found.times.end[d])
        moment, height = np.append(moment, found.makespan), low + STRIP / top * np.append(held, held[-1])
        ax.fill_between(moment, low, height, step="post", color=HELD, lw=0, zorder=1)
        ax.step(moment, height, where="post", color=HELD_LINE, lw=0.7, zorder=2)
        if math.isfinite(problem.memory_limit[d]):
            limit = low + STRIP / top * problem.memory_limit[d]
            ax.hlines(limit, 0.0, found.makespan, color=HOP, lw=0.9, ls=(0, (4, 2)), zorder=3)
        ax.annotate(
            f"{most[d]:.3g}", (1.0, low), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            fontsize=7.5, va="bottom", color=HELD_LINE,
        )  # fmt: skip


def _draw_bound(ax: "Axes", found: "FoundSchedule") -> None:
    """The time before which no order of this placement ends, where it is not the end itself."""
    if found.lower_bound is not None and 0 < found.lower_bound < found.makespan * (1 - 1e-9):
        ax.axvline(found.lower_bound, color="black", lw=1.2, ls=(0, (1, 1.5)), zorder=4)


def _draw_legend(ax: "Axes", found: "FoundSchedule") -> None:
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shares = sorted(set(shades(found.problem).values()))
    handles: list[Artist | tuple[Artist, ...]] = [
        tuple(Patch(color=colour(kind, white)) for white in shares)
        for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
    ]
    words = [f"{name}{chunk_words(len(shares))}" if kind == FORWARD else name for kind, name in NAMES.items()]
    handles += [Patch(facecolor=IDLE), Patch(facecolor=HELD, edgecolor=HELD_LINE)]
    words += ["idle", "activation memory (right: its peak, as a multiple of 1F1B's)"]
    if np.isfinite(found.problem.memory_limit).any():
        handles.append(Line2D([], [], color=HOP, lw=0.9, ls=(0, (4, 2))))
        words.append("memory limit")
    if found.lower_bound is not None and found.lower_bound < found.makespan * (1 - 1e-9):
        handles.append(Line2D([], [], color="black", lw=1.2, ls=(0, (1, 1.5))))
        words.append("lower bound")
    ax.legend(
        handles, words, loc="upper center", bbox_to_anchor=(0.5, _below(ax)), ncols=_columns(ax, words), frameon=False,
        fontsize=8, handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)}, columnspacing=1.4, handlelength=2.2,
    )  # fmt: skip


def _columns(ax: "Axes", words: list[str]) -> int:
    """Entries of a legend that stand side by side within the figure."""
    needed = sum(0.075 * len(word) + 0.65 for word in words)
    rows = math.ceil(needed / float(ax.figure.get_figure(root=True).get_size_inches()[0]))
    return math.ceil(len(words) / rows)


def _below(ax: "Axes") -> float:
    """Height of the legend's upper edge under the time axis, as a share of the axes' height."""
    inches = ax.get_window_extent().height / ax.figure.dpi
    return -0.48 / inches


def _name_axes(ax: "Axes", found: "FoundSchedule") -> None:
    ax.set_title(head_line(found), loc="left", fontsize=11, pad=22)
    ax.annotate(
        proof_line(found), (0.0, 1.0), (0, 7), xycoords="axes fraction", textcoords="offset points", fontsize=8.5,
        color=HELD_LINE,
    )  # fmt: skip
    ax.set_xlabel(time_axis(found), fontsize=9)
    devices = range(found.problem.num_devices)
    ax.set_yticks([lane_bottom(d) + LANE / 2 for d in devices], [f"device {d}" for d in devices], fontsize=8.5)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8.5)
    for side in ("top", "left", "right"):
        ax.spines[side].set_visible(False)


def _number(ax: "Axes", found: "FoundSchedule", bars: Bars) -> None:
    """Write its micro-batch on every bar that is wide enough for the number of a typical one."""
    digits = len(str(found.problem.num_micro_batches - 1))
    ax.figure.canvas.figure.draw_without_rendering()
    scale = points_per_second(ax)
    lane = ax.get_window_extent().height / ax.figure.dpi * 72 * LANE / float(np.diff(ax.get_ylim())[0])
    widths = scale * (bars.end - bars.start)
    size = min(LARGEST, 0.62 * lane, 0.86 * float(np.quantile(widths, 0.3)) / (DIGIT * digits))
    if size < SMALLEST:
        return
    white = shades(found.problem)
    for r in np.flatnonzero(widths >= DIGIT * size * digits):
        dark = is_dark(colour(int(bars.kind[r]), white[int(bars.chunk[r])]))
        middle = (float(bars.start[r] + bars.end[r]) / 2, lane_bottom(int(bars.device[r])) + 0.47 * LANE)
        ax.text(
            *middle, str(bars.micro_batch[r]), ha="center", va="center", fontsize=size, clip_on=True, zorder=5,
            color="white" if dark else "black",
        )  # fmt: skip
