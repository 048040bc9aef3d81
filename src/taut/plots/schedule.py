"""
Pictures of a schedule and of a simulated step: one row per device, its passes coloured, and the memory that it holds.

Idle time is the grey of the lane. Micro-batches are numbered where a bar has room. matplotlib is the extra ``plot``,
imported on the first drawing.

(1) A pass is a bar from its start to its end; the whole backward pass B is the bar of its I, b seconds long, and right
    after it that of its W.
(2) Device d holds, after time t, the sum of the changes of memory at or before t, (7) of
    ``taut.formulations.schedules.schedule``.
(3) Devices are rows, the first on top: a lane of bars, and under it a strip that the memory curve fills up to the
    largest peak or finite limit of all devices.

The row of a simulated step has a lane of computation, under it a thinner lane of communication, and the memory up to
the device's capacity. Tasks are bars from start to end; of streams that run at once in the thin lane messages lie on
top. One replica is drawn, the first of those that are simulated.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import GIB
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, Timetable
from taut.formulations.simulation.passes import KINDS, STREAMS
from taut.plots.plan import HOP, new_axes
from taut.schedules.found import chunk_words, head_line, proof_line, time_axis

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from taut.schedules.found import FoundSchedule
    from taut.simulation import Simulation


LANE, STRIP, BETWEEN = 1.0, 0.62, 0.34
"""Heights of a lane, of its memory strip, and of the room under both, (3)."""
ROW = LANE + STRIP + BETWEEN

BLUE, ORANGE, GREEN = "#0072b2", "#e69f00", "#009e73"
"""Of Okabe and Ito's palette, which people with any kind of colour vision tell apart."""
COLOURS = {FORWARD: BLUE, INPUT_GRADIENT: ORANGE, WEIGHT_GRADIENT: GREEN}
NAMES = {FORWARD: "forward", INPUT_GRADIENT: "gradient by the input", WEIGHT_GRADIENT: "gradient by the weights"}
IDLE, HELD, HELD_LINE = "#eeeeee", "#c9cdd3", "#5f6670"
"""Of a lane without passes, of the memory held, and of the line above it."""
LIGHTEST = 0.62
"""Share of white in the shade of a device's last chunk."""
INSTANT = 1e-9
"""Share of the whole below which two moments differ by rounding alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bars:
    """Bars, (1): device, kind (F, I or W), chunk and micro-batch of each (n,), and its seconds (n,)."""

    device: Ints
    kind: Ints
    chunk: Ints
    micro_batch: Ints
    start: Floats
    end: Floats


def bars_of(problem: ScheduleProblem, schedule: Schedule, times: Timetable) -> Bars:
    """Bars of a schedule."""
    passes, first = schedule.flat
    device = np.repeat(np.arange(len(schedule.orders)), np.diff(first))
    start, end = np.concatenate(times.start), np.concatenate(times.end)
    kind, chunk, micro_batch = passes.T
    whole = kind == BACKWARD
    seam = start + problem.input_gradient[chunk]

    def both(values: Ints) -> Ints:
        return np.concatenate((values, values[whole]))

    return Bars(
        device=both(device),
        kind=np.concatenate((np.where(whole, INPUT_GRADIENT, kind), np.full(whole.sum(), WEIGHT_GRADIENT))),
        chunk=both(chunk),
        micro_batch=both(micro_batch),
        start=np.concatenate((start, seam[whole])),
        end=np.concatenate((np.where(whole, seam, end), end[whole])),
    )


def memory_curve(problem: ScheduleProblem, order: Ints, start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Seconds from which on a device holds so many units, of its passes (n, 3) and their start and end (n,), (2)."""
    kind, chunk, _ = order.T
    held, kept = problem.activation[chunk], problem.kept_for_weight[chunk]
    change = np.choose(kind, (held, kept - held, -kept, -held))
    moment = np.where(kind == FORWARD, start, end)
    moment, level = np.concatenate(([0.0], moment)), np.concatenate(([0.0], np.cumsum(change)))
    # Where one pass ends as the next one starts, the level between them is held for no time.
    stays = np.append(np.diff(moment) > INSTANT * moment[-1], True)
    return moment[stays], level[stays]


def fullest(problem: ScheduleProblem, times: Timetable) -> float:
    """Units that the memory strip reaches up to, (3)."""
    limits = problem.memory_limit[np.isfinite(problem.memory_limit)]
    return max(float(times.peak_memory.max()), float(limits.max()) if limits.size else 0.0) or 1.0


def lane_bottom(device: int) -> float:
    """Height of the lower edge of a device's lane, (3)."""
    return -device * ROW


def strip_bottom(device: int) -> float:
    """Height at which a device holds nothing, (3)."""
    return -device * ROW - STRIP - 0.08


def shades(problem: ScheduleProblem) -> dict[int, float]:
    """Share of white of every chunk: the later on its device, the lighter."""
    shares: dict[int, float] = {}
    for d in range(problem.num_devices):
        chunks = np.flatnonzero(problem.device == d).tolist()
        steps = max(len(chunks) - 1, 1)
        shares |= {chunk: LIGHTEST * rank / steps for rank, chunk in enumerate(chunks)}
    return shares


def colour(kind: int, white: float) -> str:
    """Colour of a kind of pass, mixed with a share of white, as ``#rrggbb``."""
    return mixed(COLOURS[kind], white)


def mixed(shade: str, white: float) -> str:
    """A colour mixed with a share of white."""
    parts = (int(shade[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + white * (255 - part)):02x}" for part in parts)


def is_dark(shade: str) -> bool:
    """Whether white text reads better on a colour than black text, by its relative luminance."""
    red, green, blue = (int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return bool(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.3)


SMALLEST, LARGEST = 4.5, 9.0
"""Font sizes in points between which micro-batches are numbered."""
DIGIT = 0.62
"""Width of a digit, as a share of the font size."""


def plot_schedule(found: "FoundSchedule", ax: "Axes | None" = None) -> "Axes":
    """
    Draw a schedule.

    The axes are time against devices. Parameters, result and errors as for ``taut.plot_placement``.

    Examples
    --------
    >>> import taut
    >>> stages = taut.Stages(stages=2, micro_batches=4, forward=[1.0], backward=[1.0], weight=[1.0])
    >>> found = taut.published_schedule(stages, "1f1b", taut.ScheduleSearch(time_limit=1))
    >>> taut.plot_schedule(found).get_xlabel()
    'time (in the unit of the given times)'
    """
    ax = ax or new_axes(*figure_size(found))
    bars = bars_of(found.problem, found.schedule, found.times)
    ax.set_xlim(0.0, found.makespan)
    ax.set_ylim(strip_bottom(found.problem.num_devices - 1) - 0.12, LANE + 0.12)
    devices = range(found.problem.num_devices)
    name_lanes(
        ax, head_line(found), proof_line(found), time_axis(found), {f"device {d}": lane_bottom(d) for d in devices}
    )
    white = shades(found.problem)
    faces = [colour(kind, white[c]) for kind, c in zip(bars.kind.tolist(), bars.chunk.tolist(), strict=True)]
    draw_lanes(ax, found.makespan, np.array([lane_bottom(d) for d in devices]))
    low = np.asarray(-ROW * bars.device, dtype=np.float64)
    _draw_bars(ax, bars, low, faces)
    _draw_strips(ax, found)
    _draw_bound(ax, found)
    _draw_legend(ax, found)
    number_bars(ax, (bars.start, bars.end), low, bars.micro_batch, faces)
    return ax


def figure_size(found: "FoundSchedule") -> tuple[float, float]:
    """Width and height in inches that suit the number of passes and devices."""
    most = max(len(order) for order in found.schedule.orders)
    height = 0.42 * ROW if found.problem.num_devices <= 8 else 0.24 * ROW
    return float(np.clip(0.16 * most + 2.0, 10.0, 16.0)), 1.5 + height * found.problem.num_devices


def draw_boxes(
    ax: "Axes",
    spans: tuple[Floats, Floats],
    low: Floats,
    height: float,
    faces: list[str],
    depth: int,
    edge: float = 0.0,
) -> None:
    """Boxes from start to end (n,) with their lower edges (n,), height and colours, outlined in white."""
    from matplotlib.collections import PolyCollection

    (start, end), corners = spans, np.empty((len(low), 4, 2))
    corners[:, (0, 3), 0], corners[:, (1, 2), 0] = start[:, None], end[:, None]
    corners[:, :2, 1], corners[:, 2:, 1] = low[:, None], low[:, None] + height
    ax.add_collection(
        PolyCollection(list(corners), facecolors=faces, edgecolors="white", linewidths=edge, zorder=depth)
    )


def draw_lanes(ax: "Axes", end: float, low: Floats) -> None:
    """Idle time, as the ground that the bars stand on."""
    draw_boxes(ax, (np.zeros(len(low)), np.full(len(low), end)), low, LANE, [IDLE] * len(low), 0)


def _draw_bars(ax: "Axes", bars: Bars, low: Floats, faces: list[str]) -> None:
    """Every pass in the colour of its kind and the shade of its chunk, outlined in white where that is not too much."""
    room = points_per_second(ax) * float(np.median(bars.end - bars.start))
    draw_boxes(ax, (bars.start, bars.end), low, LANE, faces, 2, 0.5 if room > 4 else 0.0)


def points_per_second(ax: "Axes") -> float:
    """How wide a second is drawn."""
    box = ax.get_window_extent()
    left, right = ax.get_xlim()
    return float(box.width / ax.figure.dpi * 72 / (right - left)) if right > left else 0.0


def draw_memory(ax: "Axes", curve: tuple[Floats, Floats], end: float, low: float, scale: float, words: str) -> None:
    """What a device holds over time up to the end, from ``low`` on at so much height a unit, and its peak in words."""
    moment, height = np.append(curve[0], end), low + scale * np.append(curve[1], curve[1][-1])
    ax.fill_between(moment, low, height, step="post", color=HELD, lw=0, zorder=1)
    ax.step(moment, height, where="post", color=HELD_LINE, lw=0.7, zorder=2)
    side: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    ax.annotate(words, (1.0, low), (4, 0), fontsize=7.5, va="bottom", color=HELD_LINE, **side)


def draw_limit(ax: "Axes", end: float, height: float) -> None:
    """The memory that a device has."""
    ax.hlines(height, 0.0, end, color=HOP, lw=0.9, ls=(0, (4, 2)), zorder=3)


def _draw_strips(ax: "Axes", found: "FoundSchedule") -> None:
    """What every device holds over time, and its limit, as a share of the most that any holds or may hold."""
    problem, scale = found.problem, STRIP / fullest(found.problem, found.times)
    most = found.times.peak_memory / found.reference_memory
    for d, order in enumerate(found.schedule.orders):
        low, curve = strip_bottom(d), memory_curve(problem, order, found.times.start[d], found.times.end[d])
        draw_memory(ax, curve, found.makespan, low, scale, f"{most[d]:.3g}")
        if math.isfinite(problem.memory_limit[d]):
            draw_limit(ax, found.makespan, low + scale * problem.memory_limit[d])


def _draw_bound(ax: "Axes", found: "FoundSchedule") -> None:
    """The time before which no order of this placement ends, where it is not the end itself."""
    if found.lower_bound is not None and 0 < found.lower_bound < found.makespan * (1 - 1e-9):
        ax.axvline(found.lower_bound, color="black", lw=1.2, ls=(0, (1, 1.5)), zorder=4)


def _draw_legend(ax: "Axes", found: "FoundSchedule") -> None:
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shares = sorted(set(shades(found.problem).values()))
    handles: list[Artist | tuple[Artist, ...]] = [
        tuple(Patch(color=colour(kind, white)) for white in shares)
        for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
    ]
    words = [f"{name}{chunk_words(len(shares))}" if kind == FORWARD else name for kind, name in NAMES.items()]
    handles += [Patch(facecolor=IDLE), Patch(facecolor=HELD, edgecolor=HELD_LINE)]
    words += ["idle", "activation memory (right: its peak, as a multiple of 1F1B's)"]
    if np.isfinite(found.problem.memory_limit).any():
        handles.append(Line2D([], [], color=HOP, lw=0.9, ls=(0, (4, 2))))
        words.append("memory limit")
    if found.lower_bound is not None and found.lower_bound < found.makespan * (1 - 1e-9):
        handles.append(Line2D([], [], color="black", lw=1.2, ls=(0, (1, 1.5))))
        words.append("lower bound")
    pairs = {"handler_map": {tuple: HandlerTuple(ndivide=None, pad=0.0)}}
    name_bars(ax, handles, words, _columns(ax, words), **pairs)


def name_bars(ax: "Axes", handles: Any, words: list[str], columns: int, **more: Any) -> None:
    """The legend under the time axis."""
    inches = ax.get_window_extent().height / ax.figure.dpi
    style = {"frameon": False, "fontsize": 8, "columnspacing": 1.4, "handlelength": 2.2, **more}
    ax.legend(handles, words, loc="upper center", bbox_to_anchor=(0.5, -0.48 / inches), ncols=columns, **style)


def _columns(ax: "Axes", words: list[str]) -> int:
    """Entries of a legend that stand side by side within the figure."""
    needed = sum(0.075 * len(word) + 0.65 for word in words)
    rows = math.ceil(needed / float(ax.figure.get_figure(root=True).get_size_inches()[0]))
    return math.ceil(len(words) / rows)


def name_lanes(ax: "Axes", title: str, note: str, time: str, lanes: dict[str, float]) -> None:
    """Title, a note below it, the time axis, and the lanes by the height of their lower edges."""
    ax.set_title(title, loc="left", fontsize=11, pad=22)
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    ax.annotate(note, (0.0, 1.0), (0, 7), fontsize=8.5, color=HELD_LINE, **above)
    ax.set_xlabel(time, fontsize=9)
    ax.set_yticks([low + LANE / 2 for low in lanes.values()], list(lanes), fontsize=8.5)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8.5)
    ax.spines[["top", "left", "right"]].set_visible(False)


def number_bars(ax: "Axes", spans: tuple[Floats, Floats], low: Floats, numbers: Ints, faces: list[str]) -> None:
    """Write its micro-batch on every bar that is wide enough for the number of a typical one."""
    (start, end), digits = spans, len(str(int(numbers.max())))
    ax.figure.canvas.figure.draw_without_rendering()
    widths = points_per_second(ax) * (end - start)
    lane = ax.get_window_extent().height / ax.figure.dpi * 72 * LANE / float(np.diff(ax.get_ylim())[0])
    size = min(LARGEST, 0.62 * lane, 0.86 * float(np.quantile(widths, 0.3)) / (DIGIT * digits))
    if size < SMALLEST:
        return
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "clip_on": True, "zorder": 5}
    for r in np.flatnonzero(widths >= DIGIT * size * digits).tolist():
        middle = float(start[r] + end[r]) / 2, float(low[r]) + 0.47 * LANE
        ax.text(*middle, str(numbers[r]), color="white" if is_dark(faces[r]) else "black", **style)


THIN, STEP_STRIP, STEP_BETWEEN = 0.34, 0.56, 0.3
"""Heights of the lane of communication, of the memory strip, and of the room under both."""
STEP_ROW = LANE + THIN + STEP_STRIP + STEP_BETWEEN
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
LIGHTEST_OF_STEP = 0.45
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
    ax = ax or new_axes(*timeline_size(found))
    ranks, step = found.graph.ranks, found.step_time_s
    ax.set_xlim(0.0, step)
    ax.set_ylim(-ranks * STEP_ROW + LANE + STEP_BETWEEN / 2, LANE + 0.12)
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
    _draw_held(ax, found)
    _name_colours(ax, found)
    number_bars(ax, spans, low, batches, faces)
    return ax


def timeline_size(found: "Simulation") -> tuple[float, float]:
    """Width and height in inches that suit the number of passes and devices."""
    most = int(np.diff(found.graph.order.first).max())
    height = 0.38 * STEP_ROW if found.graph.ranks <= 8 else 0.2 * STEP_ROW
    return float(np.clip(0.2 * most + 2.0, 10.0, 16.0)), 1.6 + height * found.graph.ranks


def _low(rank: Ints) -> Floats:
    """Heights of the lower edges of ranks' lanes of computation."""
    return np.asarray(-STEP_ROW * rank, dtype=np.float64)


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
    return np.asarray(LIGHTEST_OF_STEP * rank / max(int(rank.max()), 1))


def _draw_held(ax: "Axes", found: "Simulation") -> None:
    """What one device of every rank holds, as a share of the largest capacity."""
    scale = STEP_STRIP / float(max(*found.capacity_bytes, *found.memory_bytes))
    for rank, curve in enumerate(found.memory):
        low = -rank * STEP_ROW - THIN - STEP_STRIP
        draw_memory(ax, curve, found.step_time_s, low, scale, f"{found.memory_bytes[rank] / GIB:.3g} GiB")
        draw_limit(ax, found.step_time_s, low + scale * found.capacity_bytes[rank])


def _name_colours(ax: "Axes", found: "Simulation") -> None:
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
