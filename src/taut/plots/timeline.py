"""
Timeline of a simulated step: what every device computes, what it exchanges, and what it holds.

A device is a row, the first pipeline rank on top: a lane of computation, under it a thinner lane of communication, and
the memory that fills a strip up to the device's capacity, as in ``taut.plots.schedule``. Tasks are bars from start to
end; of streams that run at once in the thin lane messages lie on top. One replica is drawn, the first of those that are
simulated. matplotlib is the extra ``plot``, imported on the first drawing.
"""

from typing import TYPE_CHECKING

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.data.units import GIB
from taut.formulations.schedules.recurrence import FORWARD, WEIGHT_GRADIENT
from taut.formulations.simulation.operators import KINDS, STREAMS
from taut.plots.plan import HOP, new_axes
from taut.plots.schedule import (
    BLUE,
    DIGIT,
    GREEN,
    HELD,
    HELD_LINE,
    IDLE,
    LANE,
    LARGEST,
    ORANGE,
    SMALLEST,
    is_dark,
    points_per_second,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from taut.simulation.result import Simulation

THIN, STRIP, BETWEEN = 0.34, 0.56, 0.3
"""Heights of the lane of communication, of the memory strip, and of the room under both."""
ROW = LANE + THIN + STRIP + BETWEEN
COMPUTING = {
    "forward": "#{:02x}{:02x}{:02x}".format(*BLUE),
    "recompute": "#80b9d9",
    "input gradient": "#{:02x}{:02x}{:02x}".format(*ORANGE),
    "backward": "#{:02x}{:02x}{:02x}".format(*ORANGE),
    "weight gradient": "#{:02x}{:02x}{:02x}".format(*GREEN),
    "optimizer": "#4d4d4d",
}
EXCHANGING = {
    "tensor-parallel": "#56b4e9",
    "context-parallel": "#5a4fcf",
    "exchange tokens": "#999933",
    "gather weights": "#a6761d",
    "scatter gradients": "#d9b38c",
    "reduce gradients": "#cc79a7",
    "reduce tied embedding": "#882255",
    "send activations": HOP,
    "send gradients": HOP,
}
WORDS = {
    "backward": "backward",
    "send activations": "messages",
    "send gradients": "messages",
    "tensor-parallel": "tensor groups",
    "context-parallel": "context rings",
    "exchange tokens": "expert ranks",
}
"""Names of the legend where they differ from the kind's."""
LIGHTEST = 0.45
"""Share of white in the passes of a device's last chunk."""
PALE = 0.35
"""Share of white behind the bars of a pass."""


def plot_timeline(found: "Simulation", ax: "Axes | None" = None) -> "Axes":
    """
    Draw a simulated step.

    Parameters
    ----------
    found
        The step.
    ax
        Axes to draw on; a new figure without them.

    Returns
    -------
    Axes
        What was drawn on: seconds against devices.

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import taut
    >>> found = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> taut.plot_timeline(found).get_xlabel()
    'time (s)'
    """
    ax = ax or new_axes(*figure_size(found))
    ranks, step = found.graph.ranks, found.step_time_s
    ax.set_xlim(0.0, step)
    ax.set_ylim(-ranks * ROW + LANE + BETWEEN / 2, LANE + 0.12)
    _name_axes(ax, found)
    _draw(ax, [(0.0, step, _lane(rank), LANE, IDLE) for rank in range(ranks)], 0, 0.0)
    _draw_passes(ax, found)
    for names, low, height, depth in ((COMPUTING, 0.0, LANE, 2), (EXCHANGING, -THIN, THIN - 0.04, 2)):
        for kind, colour in names.items():
            _draw_kind(ax, found, kind, colour, low, height, depth)
    _draw_memory(ax, found)
    _draw_legend(ax, found)
    _number(ax, found)
    return ax


def figure_size(found: "Simulation") -> tuple[float, float]:
    """Width and height in inches that suit the number of passes and devices."""
    most = int(np.diff(found.graph.order.first).max())
    height = 0.38 * ROW if found.graph.ranks <= 8 else 0.2 * ROW
    return float(np.clip(0.2 * most + 2.0, 10.0, 16.0)), 1.6 + height * found.graph.ranks


def _lane(rank: int) -> float:
    """Height of the lower edge of a rank's lane of computation."""
    return -rank * ROW


def _draw(ax: "Axes", boxes: list[tuple[float, float, float, float, str]], depth: int, edge: float) -> None:
    """Boxes by left, right, lower edge, height and colour."""
    from matplotlib.collections import PolyCollection

    corners = [[(x, y), (r, y), (r, y + h), (x, y + h)] for x, r, y, h, _ in boxes]
    colours = [colour for *_, colour in boxes]
    ax.add_collection(PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=edge, zorder=depth))


def _mine(found: "Simulation", kind: str) -> Flags:
    """Tasks of a kind that last, of the first simulated pipeline."""
    graph = found.graph
    first = (graph.stream < graph.ranks * len(STREAMS)) | (graph.stream >= graph.devices * len(STREAMS))
    return np.asarray(first & (graph.kind == KINDS.index(kind)) & (graph.seconds > 0))


def _draw_kind(ax: "Axes", found: "Simulation", kind: str, colour: str, low: float, height: float, depth: int) -> None:
    """All tasks of a kind; a later chunk of a device is lighter."""
    graph = found.graph
    of = np.flatnonzero(_mine(found, kind))
    if kind == "reduce tied embedding":
        rows = [(task, rank) for task in of.tolist() for rank in (0, graph.ranks - 1)]
    else:
        rows = [(task, int(graph.stream[task]) // len(STREAMS)) for task in of.tolist()]
    white = _shades(found)
    boxes = [
        (
            float(found.start[task]),
            float(found.end[task]),
            _lane(rank) + low,
            height,
            _mixed(colour, white[graph.chunk[task]] if kind in COMPUTING and graph.chunk[task] >= 0 else 0.0),
        )
        for task, rank in rows
    ]
    if boxes:
        _draw(ax, boxes, depth, 0.0)


def _draw_passes(ax: "Axes", found: "Simulation") -> None:
    """Every pass from its start to its end, pale: what shows between its bars is communication."""
    graph, (passes, first, _) = found.graph, found.graph.order
    rank, white = np.repeat(np.arange(graph.ranks), np.diff(first)), _shades(found)
    begin, end = found.start[graph.row[0, :-1]].tolist(), found.end[graph.last[0]].tolist()
    boxes = []
    for r, (kind, chunk, _) in enumerate(passes.tolist()):
        pale = _mixed(_mixed(_of_pass(kind), float(white[chunk])), PALE)
        boxes.append((begin[r], end[r], _lane(int(rank[r])), LANE, pale))
    _draw(ax, boxes, 1, 0.0)


def _of_pass(kind: int) -> str:
    """Colour of a pass."""
    return COMPUTING[{FORWARD: "forward", WEIGHT_GRADIENT: "weight gradient"}.get(kind, "backward")]


def _shades(found: "Simulation") -> Floats:
    """Share of white of every chunk: the later on its device, the lighter."""
    device = found.graph.order.device
    rank = np.array([np.count_nonzero(device[:c] == d) for c, d in enumerate(device)])
    return np.asarray(LIGHTEST * rank / max(int(rank.max()), 1))


def _mixed(colour: str, white: float) -> str:
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + white * (255 - part)):02x}" for part in parts)


def _draw_memory(ax: "Axes", found: "Simulation") -> None:
    """What one device of every rank holds, as a share of the largest capacity."""
    top = float(max(*found.capacity_bytes, *found.memory_bytes))
    for rank, (moment, held) in enumerate(found.memory):
        low = _lane(rank) - THIN - STRIP
        time, height = np.append(moment, found.step_time_s), low + STRIP / top * np.append(held, held[-1])
        ax.fill_between(time, low, height, step="post", color=HELD, lw=0, zorder=1)
        ax.step(time, height, where="post", color=HELD_LINE, lw=0.7, zorder=2)
        limit = low + STRIP / top * found.capacity_bytes[rank]
        ax.hlines(limit, 0.0, found.step_time_s, color=HOP, lw=0.9, ls=(0, (4, 2)), zorder=3)
        ax.annotate(
            f"{found.memory_bytes[rank] / GIB:.3g} GiB", (1.0, low), (4, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", fontsize=7.5, va="bottom", color=HELD_LINE,
        )  # fmt: skip


def _draw_legend(ax: "Axes", found: "Simulation") -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown: dict[str, str] = {}
    for kind, colour in (COMPUTING | EXCHANGING).items():
        if _mine(found, kind).any():
            shown.setdefault(WORDS.get(kind, kind), colour)
    handles = [Patch(color=colour) for colour in shown.values()]
    handles += [Patch(facecolor=IDLE), Patch(facecolor=HELD, edgecolor=HELD_LINE)]
    words = [*shown, "idle", "memory (right: its peak)", "capacity"]
    limit = Line2D([], [], color=HOP, lw=0.9, ls=(0, (4, 2)))
    inches = ax.get_window_extent().height / ax.figure.dpi
    ax.legend(
        [*handles, limit], words, loc="upper center", bbox_to_anchor=(0.5, -0.48 / inches), ncols=min(len(words), 6),
        frameon=False, fontsize=8, columnspacing=1.4, handlelength=2.2,
    )  # fmt: skip


def _name_axes(ax: "Axes", found: "Simulation") -> None:
    problem, step = found.problem, found.step_time_s
    exposed = sum(found.exposed_s.values()) / step
    words = f"step {step:.4g} s, bubble {found.bubble:.1%}, exposed communication {exposed:.1%}"
    ax.set_title(f"{problem.model.name} on {problem.cluster.name}: {words}", loc="left", fontsize=11, pad=22)
    ax.annotate(
        str(found.strategy.candidate), (0.0, 1.0), (0, 7), xycoords="axes fraction", textcoords="offset points",
        fontsize=8.5, color=HELD_LINE,
    )  # fmt: skip
    ax.set_xlabel("time (s)", fontsize=9)
    ranks = range(found.graph.ranks)
    ax.set_yticks([_lane(rank) + LANE / 2 for rank in ranks], [f"stage {rank}" for rank in ranks], fontsize=8.5)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8.5)
    for side in ("top", "left", "right"):
        ax.spines[side].set_visible(False)


def _number(ax: "Axes", found: "Simulation") -> None:
    """Write its micro-batch on every pass that is wide enough for the number of a typical one."""
    graph, (passes, first, _) = found.graph, found.graph.order
    begin, end = found.start[graph.row[0, :-1]], found.end[graph.last[0]]
    digits = len(str(int(passes[:, 2].max())))
    ax.figure.canvas.figure.draw_without_rendering()
    widths = points_per_second(ax) * (end - begin)
    lane = ax.get_window_extent().height / ax.figure.dpi * 72 * LANE / float(np.diff(ax.get_ylim())[0])
    size = min(LARGEST, 0.62 * lane, 0.86 * float(np.quantile(widths, 0.3)) / (DIGIT * digits))
    if size < SMALLEST:
        return
    rank = np.repeat(np.arange(graph.ranks), np.diff(first))
    white = _shades(found)
    for r in np.flatnonzero(widths >= DIGIT * size * digits).tolist():
        dark = is_dark(_mixed(_of_pass(int(passes[r, 0])), float(white[passes[r, 1]])))
        ax.text(
            float(begin[r] + end[r]) / 2, _lane(int(rank[r])) + 0.47 * LANE, str(passes[r, 2]), ha="center",
            va="center", fontsize=size, clip_on=True, zorder=5, color="white" if dark else "black",
        )  # fmt: skip
