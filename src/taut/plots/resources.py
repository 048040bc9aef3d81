"""
Picture of a front of GPUs, dollars (or GPU seconds of a step) and memory.

Cost over GPUs, a line for each memory limit: a disc is a plan, filled where the point is on the front, hollow
elsewhere, and a short line below it the bound on every plan on so many GPUs within the limit. Seconds of a step, or
days of the training, stand beside the discs of the largest limit.
"""

from typing import TYPE_CHECKING

from taut.frontier.frontier import rounded_down
from taut.frontier.resources import ResourceFront, ResourcePoint
from taut.plots.plan import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOM_BELOW, ROOM_ABOVE = 0.6, 0.1
"""Room below and above the points, as shares of their range; the legend stands in that below."""


def plot_resources(found: ResourceFront, ax: "Axes | None" = None) -> "Axes":
    """
    Draw cost over GPUs, by memory limit.

    Parameters
    ----------
    found
        Points with at least one plan.
    ax
        Axes to draw on; a new figure without them.

    Returns
    -------
    Axes
        What was drawn on.

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import taut
    >>> fix = {"tp": 1, "pp": 1, "micro_batch": 1}
    >>> found = taut.resource_front("gpt2-345m", "dgx-a100:2", global_batch=64, fix=fix)
    >>> taut.plot_resources(found).get_ylabel()
    'GPU seconds of a step'
    """
    from matplotlib import colormaps

    ax = ax or new_axes(9.0, 5.4)
    limits = sorted({point.at.limit_gib for point in found.points}, reverse=True)
    shades = colormaps["viridis"]
    for number, limit in enumerate(limits):
        colour = shades(0.85 * number / max(len(limits) - 1, 1))
        mine = [point for point in found.points if point.at.limit_gib == limit and point.at.step_time_s is not None]
        xs, ys = [point.gpus for point in mine], [_cost(point) for point in mine]
        ax.plot(xs, ys, color=colour, lw=1.2, label=f"at most {rounded_down(limit)} GiB a device")
        faces = [colour if point.on_front else "white" for point in mine]
        ax.scatter(xs, ys, 36, c=faces, edgecolors=[colour], linewidths=1.2, zorder=3)
        ax.scatter(xs, [_least(point) for point in mine], 90, marker="_", color=colour, zorder=2)
        if number == 0:
            for point in mine:
                ax.annotate(_beside(point), (point.gpus, _cost(point)), (4, -12), textcoords="offset points", size=8)
    _name_axes(ax, found)
    return ax


def _cost(point: ResourcePoint) -> float:
    return (point.gpu_seconds if point.dollars is None else point.dollars) or 0.0


def _least(point: ResourcePoint) -> float:
    """The bound on what is drawn."""
    if point.dollars is None:
        return point.gpus * (point.at.lower_bound_s or 0.0)
    return point.least_dollars or 0.0


def _beside(point: ResourcePoint) -> str:
    return f"{point.at.step_time_s:.3g} s" if point.days is None else f"{point.days:.3g} days"


def _name_axes(ax: "Axes", found: ResourceFront) -> None:
    dollars = found.goal.dollars(1, 1.0) is not None
    ax.set_title(f"{found.model} on up to {found.cluster}, global batch {found.global_batch}")
    ax.set_xscale("log", base=2)
    gpus = sorted({point.gpus for point in found.points})
    ax.set_xticks(gpus, [str(each) for each in gpus])
    planned = [point for point in found.points if point.at.step_time_s is not None]
    least, most = min(map(_least, planned)), max(map(_cost, planned))
    room = max(most - least, 0.05 * most)
    ax.set_ylim(max(least - ROOM_BELOW * room, 0.0), most + ROOM_ABOVE * room)
    ax.set(xlabel="GPUs", ylabel="dollars of the training" if dollars else "GPU seconds of a step")
    ax.spines[["top", "right"]].set_visible(False)
    ax.scatter([], [], 36, c="white", edgecolors="grey", label="hollow: another point is as good in all")
    ax.scatter([], [], 90, marker="_", color="grey", label="no plan is below (proven)")
    ax.legend(loc="lower left", frameon=False, ncols=2, fontsize=8)
