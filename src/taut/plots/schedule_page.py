"""
Page of a schedule: the picture of ``taut.plots.schedule`` to zoom into and to point at, in one HTML file.

Geometry and colours are those of ``taut.plots.schedule``. The file holds plotly's script, some 5 MB, so that it
opens without a network. Everything drawn has an entry in the legend, which switches it off and on.
plotly is the extra ``plot``, imported on the first drawing.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.schedule import LETTERS
from taut.plots.schedule import (
    HELD,
    HELD_LINE,
    IDLE,
    LANE,
    NAMES,
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
from taut.quoting import html_text
from taut.schedules.found import head_line, proof_line, time_axis

if TYPE_CHECKING:
    from taut.schedules.found import FoundSchedule

LIMIT = "#d55e00"
SCREEN = 1300.0
"""Pixels across the time axis of a common screen; the page itself is as wide as its window."""
SMALLEST, LARGEST = 6.0, 12.0
"""Font sizes in pixels between which micro-batches are numbered."""
DIGIT = 0.6
"""Width of a digit, as a share of the font size."""
Point = tuple[float, float]


def schedule_page(found: "FoundSchedule") -> str:
    """
    HTML of a schedule.

    Parameters
    ----------
    found
        The schedule with its pipeline and bound.

    Raises
    ------
    ImportError
        If plotly is not installed.

    Examples
    --------
    >>> import taut
    >>> stages = taut.Stages(stages=2, micro_batches=4, forward=[1.0], backward=[1.0], weight=[1.0])
    >>> found = taut.published_schedule(stages, "1f1b", taut.ScheduleSearch(time_limit=1))
    >>> taut.schedule_page(found).endswith("</html>")
    True
    """
    try:
        from plotly.graph_objects import Figure
    except ImportError:
        raise ImportError("pages need plotly: pip install 'taut[plot]'") from None
    figure = Figure(layout=_layout(found))
    bars = bars_of(found.problem, found.schedule, found.times)
    figure.add_trace(_idle_trace(found))
    figure.add_traces([*_bar_traces(found, bars), *_memory_traces(found), *_line_traces(found)])
    page = figure.to_html(include_plotlyjs=True, full_html=True, config={"displaylogo": False, "responsive": True})
    return str(page).replace("<head>", f"<head><title>{html_text(found.schedule.kind)}</title>", 1)


def _layout(found: "FoundSchedule") -> dict[str, Any]:
    """Axes and titles."""
    devices = range(found.problem.num_devices)
    return {
        "title": {"text": f"{head_line(found)}<br><sup>{proof_line(found)}</sup>", "x": 0.02, "font_size": 17},
        "template": "plotly_white",
        "barmode": "overlay",
        "bargap": 0,
        "height": 190 + (80 if len(devices) <= 8 else 52) * len(devices),
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0.01,
            "yanchor": "bottom",
            "groupclick": "togglegroup",
            "traceorder": "normal",
        },
        "margin": {"l": 80, "r": 20, "t": 80, "b": 110},
        "uniformtext": {"minsize": 7, "mode": "hide"},
        "xaxis": {"range": [0, found.makespan], "title": time_axis(found), "showgrid": False},
        "yaxis": {
            "range": [strip_bottom(len(devices) - 1) - 0.12, LANE + 0.12],
            "tickvals": [lane_bottom(d) + LANE / 2 for d in devices],
            "ticktext": [f"device {d} " for d in devices],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
    }


def _idle_trace(found: "FoundSchedule") -> Any:
    """The lanes that the passes lie on."""
    from plotly.graph_objects import Bar

    devices = range(found.problem.num_devices)
    return Bar(
        x=[found.makespan] * len(devices),
        y=[lane_bottom(d) + LANE / 2 for d in devices],
        width=LANE,
        orientation="h",
        marker={"color": IDLE, "line": {"width": 0}},
        hoverinfo="skip",
        name="idle",
    )


def _bar_traces(found: "FoundSchedule", bars: Bars) -> Any:
    """Bars and numbers of each kind of pass and chunk; the legend has the first and last chunk of a device."""
    white = shades(found.problem)
    lightest = max(white.values())
    ends = {0.0: ", first chunk of a device", lightest: ", last chunk of a device"} if lightest else {0.0: ""}
    size = _font_size(found, bars)
    for kind, words in NAMES.items():
        shown: set[float] = set()
        for chunk in range(found.problem.num_chunks):
            rows = np.flatnonzero((bars.kind == kind) & (bars.chunk == chunk))
            listed = white[chunk] in ends and white[chunk] not in shown
            shown.add(white[chunk])
            name = f"{words}{ends.get(white[chunk], '')}"
            style = {"name": name, "legendgroup": words, "showlegend": listed}
            yield _bar_trace(bars, rows, colour(kind, white[chunk]), f"{LETTERS[kind]}: {words}", size is None, style)
            if size is not None:
                yield _number_trace(bars, rows, colour(kind, white[chunk]), size, words)


def _font_size(found: "FoundSchedule", bars: Bars) -> float | None:
    """Points at which the number of a typical bar fits into it on a common screen; None if that is too small."""
    digits = len(str(found.problem.num_micro_batches - 1))
    pixels = SCREEN * float(np.quantile(bars.end - bars.start, 0.3)) / found.makespan
    size = min(LARGEST, 0.9 * pixels / (DIGIT * digits))
    return size if size >= SMALLEST else None


def _bar_trace(bars: Bars, rows: Ints, shade: str, words: str, is_numbered: bool, style: dict[str, Any]) -> Any:
    """Bars of one kind and chunk. Numbers in the bars themselves appear when one zooms in until they fit."""
    from plotly.graph_objects import Bar

    chunk = int(bars.chunk[rows[0]]) if len(rows) else 0
    return Bar(
        base=bars.start[rows],
        x=(bars.end - bars.start)[rows],
        y=[lane_bottom(d) + LANE / 2 for d in bars.device[rows].tolist()],
        width=LANE,
        orientation="h",
        marker={"color": shade, "line": {"color": "white", "width": 0.5}},
        text=[str(i) for i in bars.micro_batch[rows].tolist()],
        textposition="inside" if is_numbered else "none",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": "white" if is_dark(shade) else "black"},
        customdata=np.stack((bars.end[rows], bars.device[rows]), axis=1),
        hovertemplate=(
            f"{words}<br>chunk {chunk}, micro-batch %{{text}}<br>"
            "device %{customdata[1]}, %{base:.6~g} to %{customdata[0]:.6~g}<extra></extra>"
        ),
        **style,
    )


def _number_trace(bars: Bars, rows: Ints, shade: str, size: float, group: str) -> Any:
    """Micro-batches in the middle of their bars, as points: plotly drops texts of bars for the margin that it keeps."""
    from plotly.graph_objects import Scatter

    return Scatter(
        x=(bars.start + bars.end)[rows] / 2,
        y=[lane_bottom(d) + LANE / 2 for d in bars.device[rows].tolist()],
        text=[str(i) for i in bars.micro_batch[rows].tolist()],
        mode="text",
        textfont={"size": size, "color": "white" if is_dark(shade) else "black"},
        hoverinfo="skip",
        legendgroup=group,
        showlegend=False,
    )


def _line_traces(found: "FoundSchedule") -> Any:
    """A line for every memory limit, and one for the bound where it is not the end itself."""
    problem, top = found.problem, fullest(found.problem, found.times)
    limits = [(d, limit) for d, limit in enumerate(problem.memory_limit.tolist()) if math.isfinite(limit)]
    if limits:
        heights = [strip_bottom(d) + STRIP * limit / top for d, limit in limits]
        # None parts the lines.
        across = [(0.0, height) for height in heights], [(found.makespan, height) for height in heights]
        yield _line("memory limit", zip(*across, strict=True), {"color": LIMIT, "width": 1.2, "dash": "dash"})
    if found.lower_bound is not None and 0 < found.lower_bound < found.makespan * (1 - 1e-9):
        ends = (found.lower_bound, strip_bottom(problem.num_devices - 1)), (found.lower_bound, LANE)
        yield _line("lower bound", [ends], {"color": "black", "width": 1.5, "dash": "dot"})


def _line(name: str, pieces: Iterable[tuple[Point, Point]], style: dict[str, Any]) -> Any:
    """Straight lines as one trace."""
    from plotly.graph_objects import Scatter

    corners = [corner for piece in pieces for corner in (*piece, (None, None))]
    x, y = zip(*corners, strict=True)
    return Scatter(x=x, y=y, mode="lines", line=style, hoverinfo="skip", name=name)


def _memory_traces(found: "FoundSchedule") -> Any:
    """What every device holds over time, relative to 1F1B."""
    from plotly.graph_objects import Scatter

    problem, top = found.problem, fullest(found.problem, found.times)
    for d, order in enumerate(found.schedule.orders):
        moment, held = memory_curve(problem, order, found.times.start[d], found.times.end[d])
        # Down to nothing at both ends, so that the curve encloses what it fills.
        held = np.concatenate(([0.0], held, [held[-1], 0.0]))
        moment = np.concatenate(([0.0], moment, [found.makespan, found.makespan]))
        yield Scatter(
            x=moment,
            y=strip_bottom(d) + STRIP / top * held,
            line={"shape": "hv", "color": HELD_LINE, "width": 1},
            mode="lines",
            fill="toself",
            fillcolor=HELD,
            hoveron="points",
            customdata=held / found.reference_memory,
            hovertemplate=f"device {d} holds %{{customdata:.3~g}} of 1F1B's peak from %{{x:.6~g}} on<extra></extra>",
            name="activation memory",
            legendgroup="memory",
            showlegend=d == 0,
        )
