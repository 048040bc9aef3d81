r"""
What a picture of a schedule is made of: bars of time and a curve of memory for every device.

(1) A pass is a bar from its start to its end; the whole backward pass B is the bar of its I, b seconds long, and right
    after it that of its W.
(2) Device d holds, after time t, the sum of the changes of memory at or before t, (7) of
    ``taut.formulations.schedules.schedule``.
(3) Devices are rows, the first on top: a lane of bars, and under it a strip that the memory curve fills up to the
    largest peak or finite limit of all devices.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, Timetable

LANE, STRIP, BETWEEN = 1.0, 0.62, 0.34
"""Heights of a lane, of its memory strip, and of the room under both, (3)."""
ROW = LANE + STRIP + BETWEEN

BLUE, ORANGE, GREEN = (0, 114, 178), (230, 159, 0), (0, 158, 115)
"""Of Okabe and Ito's palette, which people with any kind of colour vision tell apart; red, green, blue to 255."""
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
    mixed = [round(part + white * (255 - part)) for part in COLOURS[kind]]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def is_dark(shade: str) -> bool:
    """Whether white text reads better on a colour than black text, by its relative luminance."""
    red, green, blue = (int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return bool(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.3)
