"""
Pictures of a plan: its memory against the devices', its time against the bound, its placement over the links.

(1) memory, in GiB, of a device of every stage: predicted + margin <= capacity;
(2) time, in seconds of a step: lower bound <= step time, the step time being the sum of the parts in
    ``predicted.breakdown_s``, and the gap (step time - lower bound) / step time.

Every function draws on the given axes or on a new figure and returns the axes; nothing is shown. matplotlib is the
extra ``plot``, imported on the first drawing.

A placement has sets: sites a, b, ordered by the first stage on their node; a site is a device where links were measured
device by device or where there is one node, and a node otherwise. Data: link bandwidth in Gb/s, row a sends to column
b. The placement marks the cells it uses:

(3) activations of replica z go from stage x to x + 1 through (a, b), gradients return through (b, a);
(4) stage 0's data-parallel all-reduce of a tensor rank runs over all pairs of its replicas' sites; the slowest counts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.units import GIB, GIGABIT
from taut.formulations.links import links
from taut.words import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PatchCollection

    from taut.assignment import SpanPlacement
    from taut.planning.plan import Plan


HOP = "#d55e00"
RING = "#0072b2"
SHADES = ("#56b4e9", "#009e73", HOP, RING, "#cc79a7", "#e69f00")
MOST_STAGES = 16


def plot_memory(plan: "Plan", ax: "Axes | None" = None) -> "Axes":
    """
    Draw the predicted memory of each stage against what its devices have.

    Bars are GiB on the fullest device of the stage, the line is the capacity, and the hatched part below it the
    margin, (1). Parameters, result and errors as for ``taut.plot_placement``.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> taut.plot_memory(plan).get_title()
    'Memory of gpt2-345m on dgx-a100'
    """
    predicted = plan.predicted
    parts = (predicted.memory_bytes, predicted.margin_bytes, predicted.capacity_bytes)
    used, margin, capacity = (np.array(part) / GIB for part in parts)
    stages = np.arange(len(used))
    ax = ax or new_axes(float(np.clip(0.75 * len(used) + 1.5, 5.0, 13.0)), 4.0)
    ax.hlines(capacity, stages - 0.5, stages + 0.5, color="black", label="capacity")
    ax.bar(stages, margin, 1.0, capacity - margin, color="none", edgecolor="grey", hatch="///", lw=0, label="margin")
    ax.bar(stages, used, color=SHADES[0], label="predicted")
    if len(used) <= MOST_STAGES:
        _name_stages(ax, used.tolist(), plan.stages)
    ax.set(xlabel="stage", ylabel="memory of one device (GiB)", title=f"Memory of {name_of(plan)}")
    ax.set_ylim(0, 1.25 * capacity.max())
    ax.legend(loc="upper center", ncols=3, frameon=False)
    return ax


def plot_time(plan: "Plan", ax: "Axes | None" = None) -> "Axes":
    """
    Draw where the step's time goes, and the time that no plan can beat.

    One bar of seconds, split as in (2); the line is the certificate's lower bound, absent where nothing was proven.
    Parameters, result and errors as for ``taut.plot_placement``.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> taut.plot_time(plan).get_title()
    'Step time of gpt2-345m on dgx-a100: 0.1622 s'
    """
    # Words of a report come with the document's classes; importing this module loads neither.
    from taut.planning.summary import PARTS

    breakdown, ends = plan.predicted.breakdown_s, 0.0
    ax = ax or new_axes(9.0, 3.0)
    for shade, (part, words) in zip(SHADES, PARTS.items(), strict=True):
        seconds = breakdown[part]
        if part == "constant" and seconds == 0.0:
            continue
        ax.barh(0, seconds, left=ends, color=shade, label=f"{words}: {seconds:.3g} s")
        ends += seconds
    if plan.lower_bound_s is not None:
        words = f"lower bound of every plan: {plan.lower_bound_s:.4g} s (gap {percent(plan.gap)})"
        ax.vlines(plan.lower_bound_s, -0.5, 0.6, color="black", linestyle="--", label=words)
    ax.set(xlabel="step time (s)", yticks=[], title=f"Step time of {name_of(plan)}: {plan.step_time_s:.4g} s")
    ax.set_ylim(-0.5, 1.8)
    ax.legend(loc="upper center", ncols=2, frameon=False)
    return ax


def _name_stages(ax: "Axes", used: list[float], stages: list[dict[str, Any]]) -> None:
    """Write GiB over each bar, and layers of all its chunks and recompute under it."""
    names, paper = [], {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    for stage, (height, record) in enumerate(zip(used, stages, strict=True)):
        ax.annotate(f"{height:.1f}", (stage, height), (0, 3), textcoords="offset points", ha="center", bbox=paper)
        layers, recompute = record["num_layers"], record["recompute"]
        kept = "" if recompute == "none" else f"\n{recompute}\nrecompute"
        names.append(f"{stage}\n{layers} layer{'s' if layers != 1 else ''}{kept}")
    ax.set_xticks(range(len(used)), names, fontsize=9)


def name_of(plan: "Plan") -> str:
    """Model and cluster of a plan, for titles."""
    return f"{plan.model} on {plan.cluster}"


def new_axes(width: float, height: float) -> "Axes":
    """Axes of a new figure, sizes in inches."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'taut[plot]'") from None
    _, ax = pyplot.subplots(figsize=(width, height), layout="compressed")
    return ax


@dataclass(frozen=True)
class Grid:
    """Sites in drawing order with their nodes, rates in Gb/s (NaN to itself), and places of workers (pp, dp, tp cp)."""

    site: Ints
    node: Ints
    rate: Floats
    shared: Floats
    at: Ints
    tp: int

    @cached_property
    def groups(self) -> list[list[tuple[int, int]]]:
        """Stage and replica of every block on each site."""
        found: list[set[tuple[int, int]]] = [set() for _ in self.site]
        for (x, z, _), place in np.ndenumerate(self.at):
            found[place].add((x, z))
        return [sorted(groups) for groups in found]

    @cached_property
    def hops(self) -> Counter[tuple[int, int]]:
        """How many hops between stages use each cell, (3); the ranks of a block count once."""
        pairs = np.stack([self.at[:-1], self.at[1:]], axis=-1).reshape(-1, self.at.shape[-1], 2).tolist()
        return Counter(cell for group in pairs for cell in {(a, b) for a, b in group})

    @cached_property
    def ring(self) -> list[tuple[int, int]]:
        """Cells of stage 0's all-reduce, (4)."""
        ranks = [Counter(rank) for rank in self.at[0].reshape(-1, self.tp).T.tolist()]
        return sorted({(a, b) for rank in ranks for a in rank for b in rank if a != b or rank[a] > 1})

    @property
    def slowest(self) -> list[tuple[int, int]]:
        """Cells that the all-reduce waits for, with the network cards shared; none where all are equal."""
        rates = {(a, b): self.shared[a, b] for a, b in self.ring if a != b}
        least, most = min(rates.values(), default=0.0), max(rates.values(), default=0.0)
        return [cell for cell, rate in rates.items() if rate == least < most]

    @property
    def square(self) -> float:
        """Width of one square of the bands, in cells."""
        return max(0.55, 0.03 * len(self.site))

    @property
    def margin(self) -> float:
        """Width that the bands take, in cells."""
        return self.square * (0.8 + max(len(groups) for groups in self.groups))


def grid_of(plan: "Plan") -> Grid:
    """The links of a plan's cluster in drawing order: nodes by their first worker, devices by node and worker."""
    net = links(plan.cluster_spec)
    devices = np.array(plan.devices, dtype=np.int64)
    worker = np.argsort(devices.ravel())
    first = np.full(net.num_nodes, devices.size)
    np.minimum.at(first, net.node_of, worker)
    if net.by_node and net.num_nodes > 1:
        order = np.argsort(first)
        cells, at = np.ix_(order, order), np.argsort(order)[net.node_of[devices]]
        return Grid(order, order, net.rate[cells] / GIGABIT, net.data_rate[cells] / GIGABIT, at, plan.strategy.tp)
    order = np.lexsort((worker, first[net.node_of]))
    cells = np.ix_(net.site_of[order], net.site_of[order])
    rate = np.where(np.eye(len(order), dtype=bool), np.nan, net.rate[cells] / GIGABIT)
    at = np.argsort(order)[devices]
    return Grid(order, net.node_of[order], rate, net.data_rate[cells] / GIGABIT, at, plan.strategy.tp)


INSIDE = "#fbe9b7"
MOST_LABELS = 32
LEAST_POINTS = 4.0
"""Text smaller than this is left out, as nobody can read it."""


def plot_placement(plan: "Plan", ax: "Axes | None" = None) -> "Axes":
    """
    Draw a placement over the bandwidth of the links that it uses.

    Rows send and columns receive, in Gb/s. The squares next to the axes are the tensor groups of a site: the colour is
    the stage, the number the replica. Discs are pipeline hops (with their number if there are several), and dots the
    gradients' way back. Frames are the data-parallel all-reduce of stage 0, thick at its slowest link.

    Parameters
    ----------
    plan
        A plan.
    ax
        Axes to draw on; a new figure without them.

    Returns
    -------
    Axes
        What was drawn on; its colour bars are further axes of the same figure.

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> print(taut.plot_placement(plan).get_title())
    gpt2-345m on dgx-a100: who sits where, and which links are used
    pipeline 2, tensor 1, data 4
    """
    grid = grid_of(plan)
    side = float(np.clip(0.42 * (len(grid.site) + grid.margin), 5.5, 9.0))
    ax = ax or new_axes(side + 1.0, side + 1.6)
    pp, dp, width = grid.at.shape
    contexts = f", context {width // grid.tp}" if width > grid.tp else ""
    degrees = f"pipeline {pp}, tensor {grid.tp}{contexts}, data {dp}"
    ax.set_title(f"{name_of(plan)}: who sits where, and which links are used\n{degrees}")
    _draw_links(ax, grid)
    _name_sites(ax, grid)
    _draw_bands(ax, grid)
    unit = _cell_points(ax, grid)
    _draw_marks(ax, grid, unit)
    _write_numbers(ax, grid, unit)
    return ax


def _draw_links(ax: "Axes", grid: Grid) -> None:
    """Heat map over the range of the links between nodes, or of all where there is one node."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    between = grid.rate[grid.node[:, None] != grid.node[None, :]]
    scaled = between if between.size else grid.rate[np.isfinite(grid.rate)]
    least, most = scaled.min(initial=np.inf), scaled.max(initial=0.0)
    greys = ListedColormap(colormaps["Greys_r"](np.linspace(0.3, 0.93, 64)))
    shades = greys.with_extremes(over=INSIDE, bad="white")
    image = ax.imshow(grid.rate, cmap=shades, vmin=least if least < 0.95 * most else 0.0, vmax=most or 1.0)
    beyond = np.nanmax(grid.rate, initial=0.0) > most
    label = f"bandwidth (Gb/s){', pale: inside a node' if beyond else ''}"
    ax.figure.colorbar(image, ax=ax, extend="max" if beyond else "neither", shrink=0.8, label=label)


def _name_sites(ax: "Axes", grid: Grid) -> None:
    """Number the sites, or only the nodes where there are too many devices."""
    places, numbers, by_node = np.arange(len(grid.site)), grid.site, np.array_equal(grid.site, grid.node)
    if not by_node and len(places) > MOST_LABELS:
        starts = np.flatnonzero(np.diff(grid.node, prepend=-1))
        places, numbers, by_node = starts + np.diff(starts, append=len(places)) // 2, grid.node[starts], True
    step = -(-len(places) // MOST_LABELS)
    ax.set_xticks(places[::step], numbers[::step])
    ax.set_yticks(places[::step], numbers[::step])
    ax.tick_params(length=0, top=True, labeltop=True, labelbottom=False)
    ax.xaxis.set_label_position("top")
    ax.spines[:].set_visible(False)
    what = "node" if by_node else "device"
    ax.set(xlabel=f"receiving {what}", ylabel=f"sending {what}")


def _draw_bands(ax: "Axes", grid: Grid) -> None:
    """One square per tensor group left of its row and above its column, coloured by stage."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    squares, stages, outer, size = [], [], 0.5 + grid.margin, grid.square
    for place, groups in enumerate(grid.groups):
        for index, (stage, _) in enumerate(groups):
            away = index * size - outer
            squares += [Rectangle((away, place - 0.5), size, 1), Rectangle((place - 0.5, away), 1, size)]
            stages += [stage, stage]
    bands = PatchCollection(squares, alpha=0.6, edgecolor="white", linewidth=0.4)
    bands.set_array(np.array(stages))
    ax.add_collection(bands, autolim=False)
    ax.set(xlim=(-outer, len(grid.site) - 0.5), ylim=(len(grid.site) - 0.5, -outer))
    _add_stages(ax, bands, len(grid.at))


def _add_stages(ax: "Axes", bands: "PatchCollection", stages: int) -> None:
    """Colour bar of the stages."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm

    shades = colormaps["rainbow"].resampled(stages)
    bands.set(cmap=shades, norm=BoundaryNorm(np.arange(stages + 1) - 0.5, stages))
    bar = ax.figure.colorbar(bands, ax=ax, location="bottom", shrink=0.6, aspect=30)
    bar.set_label("squares: stage (colour) and replica (number)")
    bar.set_ticks(list(range(0, stages, -(-stages // MOST_LABELS))))


def _cell_points(ax: "Axes", grid: Grid) -> float:
    """Width of a cell in points, once everything around the axes is laid out."""
    ax.figure.canvas.figure.draw_without_rendering()
    return float(72 * ax.get_window_extent().width / ax.figure.dpi / (len(grid.site) + grid.margin))


def _draw_marks(ax: "Axes", grid: Grid, unit: float) -> None:
    """Hops, gradients' way back and the data-parallel all-reduce, (3) and (4), with their legend."""

    def mark(label: str, marker: str, size: float, cells: Sequence[tuple[float, float]], **style: Any) -> None:
        if cells:
            y, x = zip(*cells, strict=True)
            ax.scatter(x, y, size**2, marker=marker, label=label, **style)

    # In the corner of their cell, as another stage's activations may go the same way.
    returns = [(b + 0.36, a + 0.36) for a, b in grid.hops if a != b]
    frame, width, disc = {"facecolor": "none", "edgecolor": RING}, min(1.5, 0.12 * unit), max(unit, 7.0)
    mark("data-parallel all-reduce of stage 0", "s", 0.8 * unit, grid.ring, lw=width, **frame)
    mark("its slowest link", "s", 0.8 * unit, grid.slowest, lw=2.2 * width, **frame)
    mark("activations to the next stage (number: hops)", "o", 0.62 * disc, list(grid.hops), color=HOP, lw=0)
    mark("their gradients, back", "o", 0.2 * disc, returns, facecolor="white", edgecolor=HOP, lw=width)
    if grid.ring or grid.hops:
        style = {"ncols": 2, "frameon": False, "fontsize": 9, "markerscale": 12 / disc}
        ax.legend(loc="upper center", bbox_to_anchor=(0.45, 0), **style)


def _write_numbers(ax: "Axes", grid: Grid, unit: float) -> None:
    """Replicas in their squares and numbers of hops in their discs, where they are large enough to be read."""
    points = min(0.42 * unit, 9.0)
    if points < LEAST_POINTS:
        return
    style: dict[str, Any] = {"fontsize": points, "ha": "center", "va": "center"}
    for place, groups in enumerate(grid.groups):
        for index, (_, replica) in enumerate(groups):
            away = (index + 0.5) * grid.square - 0.5 - grid.margin
            ax.text(away, place, str(replica), **style)
            ax.text(place, away, str(replica), **style)
    for (a, b), count in grid.hops.items():
        if count > 1:
            ax.text(b, a, str(count), color="white", weight="bold", **style)


def plot_spans(found: Sequence["SpanPlacement"], ax: "Axes") -> None:
    """Draw step time over the leaves that the replicas of a stage span, for placements of one plan, and the plan's."""
    slowest_first = sorted(found, key=lambda each: -each.step_s)
    quickest = {(each.spans.replicas, each.spans.stages): each.step_s for each in slowest_first}
    for (replicas, stages), seconds in quickest.items():
        ax.plot(replicas, seconds, "o", color=RING, ms=7)
        ax.annotate(f"pipelines {stages}", (replicas, seconds), (0, 7), textcoords="offset points", ha="center", size=8)
    own = found[0]
    ax.plot(own.known[0], own.known_s, "*", color=HOP, ms=11, label=f"the plan, pipelines {own.known[1]}")
    ax.set(xlabel="leaf switches of a stage's replicas, at most", ylabel="seconds of a step")
    ax.margins(x=0.2, y=0.2)
    ax.legend(fontsize=7, loc="lower right")
