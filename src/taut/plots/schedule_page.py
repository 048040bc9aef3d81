"""
Page of a schedule: the picture of ``taut.plots.schedule`` to zoom into and to point at, in one HTML file.

Geometry and colours are those of ``taut.plots.schedule_bars``. The file holds plotly's script, so it needs no network.
plotly is the extra ``plot``, imported on the first drawing.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.formulations.schedules.schedule import LETTERS
from taut.plots.schedule_bars import (
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
from taut.reports.schedule import head_line, proof_line

if TYPE_CHECKING:
    from taut.schedules.found import FoundSchedule

LIMIT = "#d55e00"


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
    figure.add_traces(list(_bar_traces(found, bars)))
    figure.add_traces(list(_memory_traces(found)))
    page = figure.to_html(include_plotlyjs=True, full_html=True, config={"displaylogo": False, "responsive": True})
    return str(page).replace("<head>", f"<head><title>{found.schedule.kind}</title>", 1)


def _layout(found: "FoundSchedule") -> dict[str, Any]:
    """Axes, titles, and what is drawn behind the passes."""
    devices = range(found.problem.num_devices)
    lanes = [
        _shape("rect", 0.0, found.makespan, lane_bottom(d), lane_bottom(d) + LANE, fillcolor=IDLE, line_width=0)
        for d in devices
    ]
    return {
        "title": {"text": f"{head_line(found)}<br><sup>{proof_line(found)}</sup>", "x": 0.02, "font_size": 17},
        "template": "plotly_white",
        "barmode": "overlay",
        "bargap": 0,
        "height": 170 + (80 if len(devices) <= 8 else 52) * len(devices),
        "shapes": [*lanes, *_limits(found)],
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0.01,
            "yanchor": "bottom",
            "groupclick": "togglegroup",
        },
        "margin": {"l": 80, "r": 20, "t": 80, "b": 90},
        "uniformtext": {"minsize": 7, "mode": "hide"},
        "xaxis": {"range": [0, found.makespan], "title": "time, in the unit of the passes", "showgrid": False},
        "yaxis": {
            "range": [strip_bottom(len(devices) - 1) - 0.12, LANE + 0.12],
            "tickvals": [lane_bottom(d) + LANE / 2 for d in devices],
            "ticktext": [f"device {d} " for d in devices],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
    }


def _shape(kind: str, left: float, right: float, bottom: float, top: float, **style: object) -> dict[str, Any]:
    return {"type": kind, "x0": left, "x1": right, "y0": bottom, "y1": top, "layer": "below", **style}


def _limits(found: "FoundSchedule") -> list[dict[str, Any]]:
    """A line for every memory limit, and one for the bound where it is not the end itself."""
    problem, top = found.problem, fullest(found.problem, found.times)
    heights = [
        strip_bottom(d) + STRIP * limit / top
        for d, limit in enumerate(problem.memory_limit.tolist())
        if math.isfinite(limit)
    ]
    lines = [
        _shape("line", 0.0, found.makespan, height, height, line={"color": LIMIT, "width": 1.2, "dash": "dash"})
        for height in heights
    ]
    if found.lower_bound is not None and 0 < found.lower_bound < found.makespan * (1 - 1e-9):
        low, style = strip_bottom(problem.num_devices - 1), {"color": "black", "width": 1.5, "dash": "dot"}
        bound = _shape("line", found.lower_bound, found.lower_bound, low, LANE, line=style)
        lines.append(bound | {"layer": "above"})
    return lines


def _bar_traces(found: "FoundSchedule", bars: Bars) -> Any:
    """One trace for each kind of pass and chunk, so that each can be switched off in the legend."""
    from plotly.graph_objects import Bar

    white = shades(found.problem)
    for kind, words in NAMES.items():
        for chunk in range(found.problem.num_chunks):
            rows = np.flatnonzero((bars.kind == kind) & (bars.chunk == chunk))
            shade = colour(kind, white[chunk])
            yield Bar(
                base=bars.start[rows],
                x=(bars.end - bars.start)[rows],
                y=[lane_bottom(d) + LANE / 2 for d in bars.device[rows].tolist()],
                width=LANE,
                orientation="h",
                marker={"color": shade, "line": {"color": "white", "width": 0.5}},
                text=bars.micro_batch[rows],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                insidetextfont={"color": "white" if is_dark(shade) else "black"},
                customdata=np.stack((bars.end[rows], bars.device[rows]), axis=1),
                hovertemplate=(
                    f"{LETTERS[kind]}: {words}<br>chunk {chunk}, micro-batch %{{text}}<br>"
                    "device %{customdata[1]}, %{base:.6~g} to %{customdata[0]:.6~g}<extra></extra>"
                ),
                name=words,
                legendgroup=words,
                showlegend=chunk == 0,
            )


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
            name="memory",
            legendgroup="memory",
            showlegend=d == 0,
        )
