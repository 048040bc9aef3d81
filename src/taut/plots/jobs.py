"""
Picture of a schedule of jobs: who holds how many GPUs when (a Gantt chart), and how many are in use.

(1) Every job is a line, in order of first starts; a segment is a bar, the darker the more GPUs it has. A triangle is
    the job's arrival, a short vertical line its deadline, red where it is missed.
(2) Below, the GPUs in use over time, with those that the cluster has.

As a page it is a chart to zoom into and to point at, in one HTML file. Every bar names its job, GPUs, hours and plan.
The file holds plotly's script, some 5 MB, so that it opens without a network.
plotly is the extra ``plot``, imported on the first drawing.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from taut.quoting import html_text
from taut.sharing.instance import HOUR
from taut.sharing.jobs import JobsSchedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATE, ON_TIME, USED = "#c0392b", "#2c3e50", "#4c72b0"
MOST_NAMED = 40
"""Lines that have room for a name."""
INCHES_A_JOB, LEAST_INCHES, MOST_INCHES = 0.16, 2.5, 11.0


def plot_jobs(found: JobsSchedule, figure: "Figure | None" = None) -> "Figure":
    """
    Draw a schedule of jobs.

    Parameters
    ----------
    found
        What ``taut.jobs`` returned.
    figure
        Figure to draw on; a new one without it.

    Returns
    -------
    Figure
        With two axes that share hours: jobs, and GPUs in use.

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import taut
    >>> trace = {"jobs": [{"name": "a", "steps": 3600, "rates": {8: 1.0}}]}
    >>> found = taut.jobs(trace, "dgx-a100", objective="makespan", policy="first-come")
    >>> taut.plot_jobs(found).axes[0].get_title()
    '1 job on dgx-a100, makespan: first-come, gap 0.0 %'
    """
    from matplotlib.figure import Figure

    count = len(found.jobs)
    height = min(max(INCHES_A_JOB * count, LEAST_INCHES), MOST_INCHES)
    figure = figure or Figure(figsize=(11.0, height + 2.6), layout="compressed")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[height, 1.6])
    _draw_jobs(found, upper)
    _draw_usage(found, lower)
    objective = f"{found.objective}: {found.policy}"
    gap = "" if found.gap is None else f", gap {100 * found.gap:.1f} %"
    upper.set_title(f"{count} job{'s' * (count != 1)} on {found.instance.cluster.name}, {objective}{gap}", fontsize=11)
    return figure


def _draw_jobs(found: JobsSchedule, ax: Any) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    records = sorted(found.jobs, key=lambda job: (job["start_s"] is None, job["start_s"] or job["arrival_s"]))
    sizes = [each["gpus"] for job in records for each in job["segments"]] or [1]
    norm = LogNorm(min(sizes) / 2, max(sizes) * 1.2)
    for line, job in enumerate(records):
        spans = [(each["start_s"] / HOUR, (each["end_s"] - each["start_s"]) / HOUR) for each in job["segments"]]
        colours = [_colours()(norm(each["gpus"])) for each in job["segments"]]
        ax.broken_barh(spans, (line - 0.4, 0.8), facecolors=colours, edgecolor="white", linewidth=0.3)
        ax.plot(job["arrival_s"] / HOUR, line, ">", ms=3, color="#888888", mec="none")
        if job["deadline_s"] is not None:
            colour = ON_TIME if job["met"] else LATE
            ax.plot([job["deadline_s"] / HOUR] * 2, [line - 0.45, line + 0.45], color=colour, lw=1.2)
    ax.set_ylim(len(records) - 0.4, -0.6)
    if len(records) <= MOST_NAMED:
        ax.set_yticks(range(len(records)), [job["name"] for job in records], fontsize=7)
    ax.set_ylabel("job" if len(records) <= MOST_NAMED else "jobs in order of start")
    ax.spines[["top", "right"]].set_visible(False)
    shades = ax.figure.colorbar(ScalarMappable(norm, _colours()), ax=ax, pad=0.01, aspect=40)
    ticks = sorted(set(sizes))
    shades.set_ticks(ticks, labels=[str(size) for size in ticks])
    shades.minorticks_off()
    shades.set_label("GPUs")


def _colours() -> Any:
    from matplotlib import colormaps

    return colormaps["YlGnBu"]


def _draw_usage(found: JobsSchedule, ax: Any) -> None:
    moments, used = found.usage()
    total = float(found.instance.problem.capacity.sum())
    if len(moments):
        ax.fill_between(moments / HOUR, used, step="post", color=USED, alpha=0.35, lw=0)
        ax.step(moments / HOUR, used, where="post", color=USED, lw=0.8)
    ax.axhline(total, color="black", lw=0.8, ls="--")
    ax.set_ylim(0, 1.12 * total)
    ax.set_yticks(np.linspace(0, total, 3))
    ax.set(xlabel="hours", ylabel="GPUs in use")
    ax.spines[["top", "right"]].set_visible(False)


PIXELS_A_JOB, LEAST_PIXELS, USAGE_PIXELS = 16, 240, 220


def jobs_page(found: JobsSchedule) -> str:
    """The page of a schedule of jobs."""
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
        f"{html_text(name)}<br>{each['gpus']} {html_text(each['device'])}"
        f"<br>{each['start_s'] / HOUR:.2f} to {each['end_s'] / HOUR:.2f} h"
        f"<br>{html_text(each['plan'])}"
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
