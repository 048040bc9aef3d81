"""
Picture of the placement benchmark: what is proven of our plans, and how much slower others place them.

One row of panels for every latency model and tensor degree, against nodes, a colour for every kind of cluster:

(1) the certified gap of the step time; what is proven optimal stands on the line at the foot of its logarithmic axis;
(2) to the right how much slower a step is in identity order, by scipy, and by Pipette's annealing, logarithmic beyond
    a tenth of a per cent; below zero a peer is faster than the plan.

Discs are medians over seeds and whiskers reach to the worst (in (2) also to the best) seed; of several pipeline
degrees the one with the largest median is shown.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.placement_clusters import KINDS
from benchmarks.placement_rows import PEERS, Measure, Row, median
from taut.data.arrays import Floats
from taut.plots.plan import SHADES

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = dict(zip(KINDS, (*SHADES, "#666666"), strict=True))
BAND = "#ededed"
FOOT, OPTIMAL = 3e-3, 1e-4
"""Per cent at which the gap's axis ends, and up to which a plan counts as proven optimal."""
LINEAR = 0.1
TITLES = ("certified gap", "slower in identity order", "slower by scipy", "slower by Pipette's annealing")
WIDTH, HEIGHT = 13.5, 3.7


def plot_rows(rows: Sequence[Row], path: Path) -> None:
    """
    Draw the rows and write the figure.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    from matplotlib import pyplot

    pairs = sorted({(row.tp, row.model) for row in rows}, key=lambda pair: (-pair[0], pair[1]))
    figure, axes = pyplot.subplots(
        len(pairs),
        4,
        figsize=(WIDTH, HEIGHT * len(pairs) + 0.7),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="col",
    )
    for (tp, model), line in zip(pairs, axes, strict=True):
        shown = [row for row in rows if (row.tp, row.model) == (tp, model)]
        line[0].set_ylim(0.6 * FOOT, max(10.0, 160 * max(row.gap for row in rows)))
        _draw_gaps(line[0], shown)
        for ax in line[1:]:
            ax.set_ylim(*_limits(rows))
        _draw_peers(line[1:], shown)
        line[0].set_ylabel(f"{model}, tp {tp}", fontsize=11)
    for ax, title in zip(axes[0], TITLES, strict=True):
        ax.set_title(title, fontsize=11)
    for ax in axes[-1]:
        ax.set_xlabel("nodes of 8 GPUs")
    _add_legend(figure, rows)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    """Per cent between which every peer's excess lies."""
    shown = [100 * value for peer in PEERS.values() for value in map(peer, rows) if not math.isnan(value)]
    return 1.2 * min([-LINEAR / 4, *shown]), 1.6 * max([1.0, *shown])


def _draw_gaps(ax: "Axes", rows: list[Row]) -> None:
    """Gaps on a logarithmic axis that ends in what is proven optimal, (1)."""
    ax.set_yscale("log")
    ax.axhspan(0.6 * FOOT, 1.6 * FOOT, color=BAND, lw=0, zorder=0)
    _draw_kinds(ax, rows, lambda row: row.gap, lambda value: FOOT if value <= OPTIMAL else max(value, 1.8 * FOOT))
    ticks = [value for value in (0.01, 0.1, 1.0, 10.0) if value <= ax.get_ylim()[1]]
    ax.set_yticks([FOOT, *ticks], ["optimal", *(f"{value:g} %" for value in ticks)])
    ax.yaxis.set_minor_formatter(lambda _value, _position: "")
    _finish(ax, rows)


def _draw_peers(axes: "Sequence[Axes]", rows: list[Row]) -> None:
    """Excess of every peer on one scale, (2)."""
    identity, quadratic, short, long = PEERS.values()
    for ax, peers in zip(axes, ([identity], [quadratic], [short, long]), strict=True):
        ax.set_yscale("symlog", linthresh=LINEAR, linscale=0.6)
        ax.axhline(0.0, color="black", lw=0.8, zorder=1)
        for number, peer in enumerate(peers):
            last = number == len(peers) - 1
            _draw_kinds(ax, rows, peer, lambda value: value, filled=last, both=True)
        ax.yaxis.set_major_formatter(lambda value, _position: f"{value:g} %")
        _finish(ax, rows)


def _draw_kinds(
    ax: "Axes",
    rows: list[Row],
    measure: Measure,
    placed: Callable[[float], float],
    *,
    filled: bool = True,
    both: bool = False,
) -> None:
    """A line for every kind of cluster, side by side so that whiskers are told apart."""
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    for number, kind in enumerate(kinds):
        points = []
        for nodes in sorted({row.nodes for row in rows if row.kind == kind}):
            least, middle, most = _spread([r for r in rows if (r.kind, r.nodes) == (kind, nodes)], measure)
            if not math.isnan(middle):
                x = math.log2(nodes) + 0.085 * (number - (len(kinds) - 1) / 2)
                points.append((x, *(placed(100 * value) for value in (least, middle, most))))
        if points:
            _draw_line(ax, np.array(points), COLOURS[kind], filled=filled, both=both)


def _spread(rows: list[Row], measure: Measure) -> tuple[float, float, float]:
    """Least, median and most over seeds, at the pipeline degree with the largest median."""
    by_stages = [[measure(row) for row in rows if row.stages == stages] for stages in {row.stages for row in rows}]
    values = max(by_stages, key=lambda values: (not math.isnan(median(values)), median(values)))
    return min(values), median(values), max(values)


def _draw_line(ax: "Axes", points: Floats, colour: str, *, filled: bool, both: bool) -> None:
    x, least, middle, most = points.T
    face, style = (colour, "-") if filled else ("white", ":")
    ax.plot(x, middle, style, color=colour, lw=1.1, alpha=0.55, zorder=2)
    ax.vlines(x, least if both else middle, most, color=colour, lw=1.3, zorder=3)
    ax.plot(x, middle, "o", ms=5.0, mfc=face, mec=colour if not filled else "white", mew=0.9, zorder=4)


def _finish(ax: "Axes", rows: list[Row]) -> None:
    sizes = sorted({row.nodes for row in rows})
    ax.set_xticks([math.log2(nodes) for nodes in sizes], [str(nodes) for nodes in sizes])
    ax.grid(axis="y", color="#eeeeee", lw=0.8, zorder=0)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _add_legend(figure: "Figure", rows: Sequence[Row]) -> None:
    """Kinds of cluster, and the lengths of annealing that were run."""
    from matplotlib.lines import Line2D

    shown = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    marks: list[Artist] = [Line2D([], [], marker="o", color=COLOURS[kind], mec="white", label=kind) for kind in shown]
    for face, style, length, unit in (
        ("white", ":", rows[0].pipette_limit_s, "s"),
        ("grey", "-", rows[0].times_own, "times our time"),
    ):
        if length > 0:
            label = f"annealing, {length:g} {unit}"
            marks.append(Line2D([], [], marker="o", color="grey", ls=style, mfc=face, label=label))
    figure.legend(handles=marks, loc="outside upper center", ncols=len(marks), frameon=False, fontsize=10)
