"""
Picture of a frontier: step time over the memory limit of a device, and what is proven of it.

Data: the two step functions of ``taut.frontier.frontier``, lower(M) <= T(M) <= upper(M). Three regions follow:

(1) below lower(M) no plan is as fast, and left of the least limit no plan fits at all: proven;
(2) between lower and upper it is not known whether a plan exists;
(3) from upper on the plans found are.

A disc stands at the limit that a plan needs, a thick line where it is proven optimal, from there to the largest limit
it was searched at; where (2) is empty the whole curve is proven. Plans are named by their strategy, the longest line
first, where the name has room.

A front of GPUs, dollars (or GPU seconds of a step) and memory is drawn as cost over GPUs, a line for each memory limit:
a disc is a plan, filled where the point is on the front, hollow elsewhere, and a short line below it the bound on every
plan on so many GPUs within the limit. Seconds of a step, or days of the training, stand beside the discs of the largest
limit.
"""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from taut.frontier.frontier import Frontier, FrontierPoint, rounded_down, rounded_up
from taut.frontier.resources import ResourceFront, ResourcePoint
from taut.plots.plan import HOP, RING, new_axes
from taut.solver.result import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PROVEN, UNKNOWN = "#d9d9d9", "#f5c08a"
SECONDS_ABOVE, SECONDS_BELOW = 0.12, 0.1
"""Room above and below the curve, as shares of its range."""


def plot_frontier(frontier: Frontier, ax: "Axes | None" = None) -> "Axes":
    """
    Draw step time over memory limit.

    The frontier has at least one plan. Axes are GiB against seconds, and tokens per second on the right. Parameters,
    result and errors as for ``taut.plot_placement``.

    Examples
    --------
    >>> import taut
    >>> found = taut.pareto("gpt2-345m", "dgx-a100", global_batch=32, limits=[10, 80], fix={"pp": 1, "tp": 1})
    >>> taut.plot_frontier(found).get_title()
    'gpt2-345m on dgx-a100, global batch 32'
    """
    ax = ax or new_axes(9.0, 5.4)
    limits = sorted({frontier.least_gib, *frontier.steps(frontier.least_gib, frontier.points[-1].limit_gib)})
    lower, upper = (list(figures) for figures in zip(*(frontier.at(limit) for limit in limits), strict=True))
    least, most = min(lower), max(value for value in upper if math.isfinite(value))
    room = max(most - least, 0.02 * most)
    ax.set_ylim(least - SECONDS_BELOW * room, most + SECONDS_ABOVE * room)
    width = limits[-1] - frontier.least_gib or 1.0
    first = min(frontier.least_gib - 0.07 * width, frontier.points[0].limit_gib)
    ax.set_xlim(max(first, 0.0), limits[-1] + 0.03 * width)
    _draw_regions(ax, frontier, limits, lower, upper)
    _draw_plans(ax, frontier)
    _name_axes(ax, frontier)
    _name_plans(ax, frontier)
    return ax


def _draw_regions(ax: "Axes", frontier: Frontier, limits: list[float], lower: list[float], upper: list[float]) -> None:
    """Shade what is proven not to exist and what is not known, (1) and (2)."""
    bottom, top = ax.get_ylim()
    ax.fill_between(limits, bottom, lower, color=PROVEN, lw=0, label="no plan is this fast (proven)")
    left = ax.get_xlim()[0]
    ax.axvspan(left, frontier.least_gib, facecolor="white", edgecolor="grey", hatch="////", lw=0)
    ax.text(
        (left + frontier.least_gib) / 2,
        (bottom + top) / 2,
        f"no plan fits below {rounded_up(frontier.least_gib)} GiB (proven)",
        rotation=90,
        ha="center",
        va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )
    shown = [min(value, top) for value in upper]
    if any(high > low for high, low in zip(shown, lower, strict=True)):
        ax.fill_between(limits, lower, shown, color=UNKNOWN, lw=0, label="between bound and plan")
        ax.plot(limits, lower, color=HOP, lw=1.2, label="lower bound")


def _runs(frontier: Frontier) -> list[tuple[FrontierPoint, float, float]]:
    """Each plan once with its first and last limit, the leanest first."""
    runs = {(point.needs_gib or 0.0, point.step_time_s): point for point in frontier.planned}
    return [(point, start, point.limit_gib) for (start, _), point in runs.items()]


def _draw_plans(ax: "Axes", frontier: Frontier) -> None:
    """The steps, a disc where each plan begins to fit, and a thick line where it is proven optimal, (3)."""
    runs = _runs(frontier)
    seconds = [point.step_time_s or 0.0 for point, _, _ in runs]
    starts, most = [start for _, start, _ in runs], frontier.points[-1].limit_gib
    ax.step([*starts, most], [*seconds, seconds[-1]], where="post", color=RING, lw=1.0)
    ax.plot(starts, seconds, "o", color=RING, ms=5, mec="white", mew=0.8, label="plan, at the limit that it needs")
    optimal = [(point.step_time_s, start, end) for point, start, end in runs if point.status is Status.OPTIMAL]
    if optimal:
        ax.hlines(*zip(*optimal, strict=True), color=RING, lw=3.0, label="plan proven optimal")


def _name_plans(ax: "Axes", frontier: Frontier) -> None:
    """Name the plans above their lines, the longest first, within the axes, where the name overlaps nothing."""
    figure, legend = ax.figure.canvas.figure, ax.get_legend()
    figure.draw_without_rendering()
    right = ax.get_window_extent().x1
    taken: list[Any] = [] if legend is None else [legend.get_window_extent()]
    for point, start, _ in sorted(_runs(frontier), key=lambda run: run[1] - run[2]):
        place = (start, point.step_time_s or 0.0)
        text = ax.annotate(_name(point), place, (5, 4), textcoords="offset points", fontsize=9, va="bottom")
        beyond = max(0.0, text.get_window_extent().x1 - right)
        text.set_x(5 - beyond * 72 / figure.dpi)
        box = text.get_window_extent()
        if any(box.overlaps(other) for other in taken):
            text.remove()
        else:
            taken.append(box)


def _name(point: FrontierPoint) -> str:
    """Degrees, and how many stages recompute."""
    strategy = point.strategy
    if strategy is None:
        return ""
    contexts = f", cp {strategy.cp}" if strategy.cp > 1 else ""
    degrees = f"pp {strategy.pp}, tp {strategy.tp}{contexts}, dp {strategy.dp}"
    counts = Counter(strategy.recompute)
    kinds = [f"{kind} recompute {counts[kind]}/{strategy.pp}" for kind in ("selective", "full") if counts[kind]]
    return "; ".join([degrees, *kinds])


def _name_axes(ax: "Axes", frontier: Frontier) -> None:
    ax.set_title(f"{frontier.model} on {frontier.cluster}, global batch {frontier.global_batch}")
    ax.set(xlabel="memory limit of a device (GiB)", ylabel="step time (s)")
    _add_rates(ax, frontier.tokens_per_step)
    ax.spines["top"].set_visible(False)
    ax.legend(loc="upper right", frameon=False)


def _add_rates(ax: "Axes", tokens: int) -> None:
    """Round figures of tokens per second on the right, each at its step time."""
    from matplotlib.ticker import MaxNLocator

    bottom, top = ax.get_ylim()
    rates = [rate for rate in MaxNLocator(7).tick_values(tokens / top, tokens / bottom) if rate > 0]
    shown = [rate for rate in rates if bottom <= tokens / rate <= top]
    right = ax.twinx()
    right.set_ylim(bottom, top)
    right.set_yticks([tokens / rate for rate in shown], [f"{rate:,.6g}" for rate in shown])
    right.set_ylabel("throughput (tokens/s)")
    right.spines["top"].set_visible(False)


ROOM_BELOW, ROOM_ABOVE = 0.6, 0.1
"""Room below and above the points, as shares of their range; the legend stands in that below."""


def plot_resources(found: ResourceFront, ax: "Axes | None" = None) -> "Axes":
    """
    Draw cost over GPUs, by memory limit.

    The front has at least one plan. Parameters, result and errors as for ``taut.plot_placement``.

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
                beside = f"{point.at.step_time_s:.3g} s" if point.days is None else f"{point.days:.3g} days"
                ax.annotate(beside, (point.gpus, _cost(point)), (4, -12), textcoords="offset points", size=8)
    _name_resource_axes(ax, found)
    return ax


def _cost(point: ResourcePoint) -> float:
    return (point.gpu_seconds if point.dollars is None else point.dollars) or 0.0


def _least(point: ResourcePoint) -> float:
    """The bound on what is drawn."""
    if point.dollars is None:
        return point.gpus * (point.at.lower_bound_s or 0.0)
    return point.least_dollars or 0.0


def _name_resource_axes(ax: "Axes", found: ResourceFront) -> None:
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
