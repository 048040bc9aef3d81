"""
Page of a schedule of jobs: the Gantt chart of ``taut.plots.jobs`` to zoom into and to point at, in one HTML file.

Every bar names its job, GPUs, hours and plan. The file holds plotly's script, some 5 MB, so that it opens without a
network. plotly is the extra ``plot``, imported on the first drawing.
"""

from typing import Any

from taut.sharing.instance import HOUR
from taut.sharing.result import JobsSchedule

PIXELS_A_JOB, LEAST_PIXELS, USAGE_PIXELS = 16, 240, 220


def jobs_page(found: JobsSchedule) -> str:
    """
    The page of a schedule of jobs.

    ``found``: what ``taut.jobs`` returned. Returns HTML. Raises ``ImportError`` if plotly is not installed.
    """
    from plotly.subplots import make_subplots

    height = max(PIXELS_A_JOB * len(found.jobs), LEAST_PIXELS)
    shares = [height / (height + USAGE_PIXELS), USAGE_PIXELS / (height + USAGE_PIXELS)]
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.03, row_heights=shares)
    figure.add_trace(_bars(found), row=1, col=1)
    figure.add_trace(_deadlines(found), row=1, col=1)
    moments, used = found.usage()
    step: dict[str, Any] = {"shape": "hv"}
    usage = {"x": moments / HOUR, "y": used, "mode": "lines", "line": step, "fill": "tozeroy", "name": "GPUs in use"}
    figure.add_scatter(**usage, row=2, col=1)
    figure.update_yaxes(autorange="reversed", row=1, col=1)
    figure.update_yaxes(title="GPUs", range=[0, 1.05 * float(found.instance.problem.capacity.sum())], row=2, col=1)
    figure.update_xaxes(title="hours", row=2, col=1)
    title = str(found).splitlines()
    figure.update_layout(
        height=height + USAGE_PIXELS, title=f"{title[0]}<br>{title[1]}", barmode="overlay", showlegend=False
    )
    return str(figure.to_html(include_plotlyjs=True, full_html=True))


def _bars(found: JobsSchedule) -> Any:
    """One bar a segment, coloured by its GPUs."""
    from plotly.graph_objects import Bar

    parts = [(job["name"], each) for job in found.jobs for each in job["segments"]]
    sizes = [each["gpus"] for _, each in parts]
    words = [
        f"{name}<br>{each['gpus']} {each['device']}<br>{each['start_s'] / HOUR:.2f} to {each['end_s'] / HOUR:.2f} h"
        f"<br>{each['plan']}"
        for name, each in parts
    ]
    return Bar(
        y=[name for name, _ in parts],
        base=[each["start_s"] / HOUR for _, each in parts],
        x=[(each["end_s"] - each["start_s"]) / HOUR for _, each in parts],
        orientation="h",
        marker={"color": sizes, "colorscale": "YlGnBu", "colorbar": {"title": "GPUs"}},
        hovertext=words,
        hoverinfo="text",
        name="segments",
    )


def _deadlines(found: JobsSchedule) -> Any:
    """A mark for every deadline, red where it is missed."""
    from plotly.graph_objects import Scatter

    due = [job for job in found.jobs if job["deadline_s"] is not None]
    colours = ["#2c3e50" if job["met"] else "#c0392b" for job in due]
    return Scatter(
        x=[job["deadline_s"] / HOUR for job in due],
        y=[job["name"] for job in due],
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 10, "color": colours},
        name="deadlines",
    )
