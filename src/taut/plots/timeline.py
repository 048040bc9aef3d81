"""
Timeline of a simulated step: what every device computes, what it exchanges, and what it holds.

A device is a row, the first pipeline rank on top: a lane of computation, under it a thinner lane of communication, and
the memory that fills a strip up to the device's capacity, as in ``taut.plots.schedule``. Tasks are bars from start to
end; of streams that run at once in the thin lane messages lie on top. One replica is drawn, the first of those that are
simulated. matplotlib is the extra ``plot``, imported on the first drawing.
"""

from typing import TYPE_CHECKING

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import GIB
from taut.formulations.schedules.recurrence import FORWARD, WEIGHT_GRADIENT
from taut.formulations.simulation.passes import KINDS, STREAMS
from taut.plots.plan import HOP, new_axes
from taut.plots.schedule import (
    BLUE,
    GREEN,
    HELD,
    HELD_LINE,
    IDLE,
    LANE,
    ORANGE,
    draw_boxes,
    draw_lanes,
    draw_limit,
    draw_memory,
    mixed,
    name_bars,
    name_lanes,
    number_bars,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from taut.simulation import Simulation

THIN, STRIP, BETWEEN = 0.34, 0.56, 0.3
"""Heights of the lane of communication, of the memory strip, and of the room under both."""
ROW = LANE + THIN + STRIP + BETWEEN
COMPUTING = {
    "forward": BLUE,
    "recompute": "#80b9d9",
    "input gradient": ORANGE,
    "backward": ORANGE,
    "weight gradient": GREEN,
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

    The axes are seconds against devices. Parameters, result and errors as for ``taut.plot_placement``.

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
    exposed, problem = sum(found.exposed_s.values()) / step, found.problem
    words = f"step {step:.4g} s, bubble {found.bubble:.1%}, exposed communication {exposed:.1%}"
    title, lanes = f"{problem.model.name} on {problem.cluster.name}: {words}", _low(np.arange(ranks))
    name_lanes(
        ax,
        title,
        str(found.strategy.candidate),
        "time (s)",
        {f"stage {x}": low for x, low in enumerate(lanes.tolist())},
    )
    draw_lanes(ax, step, lanes)
    spans, low, batches, faces = _passes(found)
    # Pale: what shows between the bars of a pass is communication.
    draw_boxes(ax, spans, low, LANE, [mixed(face, PALE) for face in faces], 1)
    for names, edge, height in ((COMPUTING, 0.0, LANE), (EXCHANGING, -THIN, THIN - 0.04)):
        for kind, colour in names.items():
            _draw_kind(ax, found, kind, colour, edge, height)
    _draw_memory(ax, found)
    _draw_legend(ax, found)
    number_bars(ax, spans, low, batches, faces)
    return ax


def figure_size(found: "Simulation") -> tuple[float, float]:
    """Width and height in inches that suit the number of passes and devices."""
    most = int(np.diff(found.graph.order.first).max())
    height = 0.38 * ROW if found.graph.ranks <= 8 else 0.2 * ROW
    return float(np.clip(0.2 * most + 2.0, 10.0, 16.0)), 1.6 + height * found.graph.ranks


def _low(rank: Ints) -> Floats:
    """Heights of the lower edges of ranks' lanes of computation."""
    return np.asarray(-ROW * rank, dtype=np.float64)


def _mine(found: "Simulation", kind: str) -> Flags:
    """Tasks of a kind that last, of the first simulated pipeline."""
    graph = found.graph
    first = (graph.stream < graph.ranks * len(STREAMS)) | (graph.stream >= graph.devices * len(STREAMS))
    return np.asarray(first & (graph.kind == KINDS.index(kind)) & (graph.seconds > 0))


def _draw_kind(ax: "Axes", found: "Simulation", kind: str, colour: str, low: float, height: float) -> None:
    """All tasks of a kind; a later chunk of a device is lighter."""
    graph, of = found.graph, np.flatnonzero(_mine(found, kind))
    rank = graph.stream[of] // len(STREAMS)
    if kind == "reduce tied embedding":
        of, rank = np.repeat(of, 2), np.tile((0, graph.ranks - 1), len(of))
    white, chunks = _shades(found), graph.chunk[of].tolist()
    faces = [mixed(colour, float(white[c]) if kind in COMPUTING and c >= 0 else 0.0) for c in chunks]
    if len(of):
        draw_boxes(ax, (found.start[of], found.end[of]), low + _low(rank), height, faces, 2)


def _passes(found: "Simulation") -> tuple[tuple[Floats, Floats], Floats, Ints, list[str]]:
    """Start and end of every pass, the lower edge of its lane, its micro-batch and its colour, (passes,) each."""
    graph, (passes, first, _) = found.graph, found.graph.order
    low, white = _low(np.repeat(np.arange(graph.ranks), np.diff(first))), _shades(found)
    faces = [mixed(_of_pass(kind), float(white[chunk])) for kind, chunk, _ in passes.tolist()]
    return (found.start[graph.row[0, :-1]], found.end[graph.last[0]]), low, passes[:, 2], faces


def _of_pass(kind: int) -> str:
    """Colour of a pass."""
    return COMPUTING[{FORWARD: "forward", WEIGHT_GRADIENT: "weight gradient"}.get(kind, "backward")]


def _shades(found: "Simulation") -> Floats:
    """Share of white of every chunk: the later on its device, the lighter."""
    device = found.graph.order.device
    rank = np.array([np.count_nonzero(device[:c] == d) for c, d in enumerate(device)])
    return np.asarray(LIGHTEST * rank / max(int(rank.max()), 1))


def _draw_memory(ax: "Axes", found: "Simulation") -> None:
    """What one device of every rank holds, as a share of the largest capacity."""
    scale = STRIP / float(max(*found.capacity_bytes, *found.memory_bytes))
    for rank, curve in enumerate(found.memory):
        low = -rank * ROW - THIN - STRIP
        draw_memory(ax, curve, found.step_time_s, low, scale, f"{found.memory_bytes[rank] / GIB:.3g} GiB")
        draw_limit(ax, found.step_time_s, low + scale * found.capacity_bytes[rank])


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
    name_bars(ax, [*handles, limit], words, min(len(words), 6))
