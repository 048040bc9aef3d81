"""
Picture of a schedule of jobs: who holds how many GPUs when (a Gantt chart), and how many are in use.

(1) Every job is a line, in order of first starts; a segment is a bar, the darker the more GPUs it has. A triangle is
    the job's arrival, a short vertical line its deadline, red where it is missed.
(2) Below, the GPUs in use over time, with those that the cluster has.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from taut.sharing.instance import HOUR
from taut.sharing.result import JobsSchedule

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
