"""
Memory against bubble: V-Min, V-Half, V-ZB and the adaptive search on the V, with bounds, as one picture.

Stages are even. The forward pass, the gradient of the input and that of the weights take f, b and w seconds. With p
stages and m = 2 p micro-batches the bubble of a schedule of makespan T, as a share of that of 1F1B, is

(1) :math:`(T - m (f + b + w)) / ((p - 1) (f + b + w))`.

V-Min, V-Half and V-ZB stand at the memory of their blocks, and the adaptive search at ``LIMITS`` of 1F1B's memory, each
with (1) of a lower bound on every order on the V within as much memory. Qi et al. state 1/3 of the bubble at 2/3 of the
memory (author response), without p, m, f, b and w.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from taut.formulations.schedules.stages import Stages
from taut.schedules.portfolio import build_kind
from taut.solver.schedules.lower_bound import lower_bound
from taut.words import text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ADAPTIVE = "adaptive"
KINDS = {"V-Min": "v-min", "V-Half": "v-half", "V-ZB": "zb-v"}
LIMITS = (0.5, 2 / 3)
STAGES, RATIOS = (4, 8, 16, 32), ((6.0, 6.0, 6.0), (6.0, 8.0, 4.0), (6.0, 10.0, 2.0))
"""Pipelines, and f, b and w: equal, and with more and more of the work in attention, which has no weights."""
STATED = 2 / 3, 1 / 3
"""Memory and bubble that the authors state."""
WORK = 2_000_000
"""Values of labels that a bound extends at most."""
SIZE = (12.0, 4.2)
"""Inches of the picture."""
MARKS = {"V-Min": "v", "V-Half": "s", "V-ZB": "^", ADAPTIVE: "o"}
COLOURS = dict(zip(STAGES, ("#9ecae1", "#6baed6", "#3182bd", "#08519c"), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A schedule: seconds of its passes, its memory relative to 1F1B's, its bubble (1), and (1) of the bound."""

    ratio: tuple[float, float, float]
    stages: int
    name: str
    memory: float
    bubble: float
    least: float

    @property
    def passes(self) -> str:
        """F:B:W in words."""
        return ":".join(f"{seconds:g}" for seconds in self.ratio)


def memory_frontier() -> tuple[Point, ...]:
    """Schedules of every ratio and every pipeline."""
    return tuple(point for ratio in RATIOS for stages in STAGES for point in _points(stages, ratio))


def _points(stages: int, ratio: tuple[float, float, float]) -> Iterator[Point]:
    for name, kind in KINDS.items():
        yield _point(stages, ratio, name, kind, math.inf)
    for limit in LIMITS:
        yield _point(stages, ratio, ADAPTIVE, "blocks", limit)


def _point(stages: int, ratio: tuple[float, float, float], name: str, kind: str, limit: float) -> Point:
    """A schedule of one kind on the V with m = 2 p, so that it has a steady phase."""
    count, (forward, backward, weight) = 2 * stages, ([seconds] for seconds in ratio)
    placed = Stages(
        stages=stages, micro_batches=count, memory_limit=[limit], forward=forward, backward=backward, weight=weight
    ).place("v", 2)
    built = build_kind(placed, kind)
    held = np.full_like(built.times.peak_memory, built.times.peak_memory.max())
    within = placed.problem if limit < math.inf else replace(placed.problem, memory_limit=held)
    bound = lower_bound(within, incumbent=built.times.makespan, work_limit=WORK).lower_bound
    both = (built.times.makespan, bound)
    bubble, least = (float((each - sum(ratio) * count) / (sum(ratio) * (stages - 1))) for each in both)
    memory = float(held.max() / placed.reference_memory)
    return Point(ratio=ratio, stages=stages, name=name, memory=memory, bubble=bubble, least=least)


def at_two_thirds(points: Sequence[Point]) -> Point | None:
    """The best schedule with equal passes of the longest pipeline within 2/3 of the memory, if there is one."""
    found = [each for each in points if each.ratio == RATIOS[0] and each.memory <= STATED[0] + 1e-9]
    return min(found, key=lambda each: (-each.stages, each.bubble), default=None)


def frontier_table(points: Sequence[Point]) -> str:
    """The points as text, one a line."""
    lines: list[tuple[str, ...]] = [("F:B:W", "stages", "schedule", "memory", "bubble", "at least")]
    for each in points:
        shares = (f"{share:.4f}" for share in (each.memory, each.bubble, each.least))
        lines.append((each.passes, f"{each.stages}", each.name, *shares))
    return "\n".join(["memory and bubble relative to 1F1B's", text_table(lines)])


def plot_memory_frontier(points: Sequence[Point], axes: "Sequence[Axes]") -> None:
    """Draw bubble over memory, a panel for each ratio: marks are schedules, short lines below them their bounds."""
    for axis, ratio in zip(axes, RATIOS, strict=True):
        for stages, colour in COLOURS.items():
            own = sorted((p for p in points if p.ratio == ratio and p.stages == stages), key=lambda p: p.memory)
            axis.plot([p.memory for p in own], [p.bubble for p in own], color=colour, lw=1.0, label=f"{stages} stages")
            for point in own:
                axis.plot(point.memory, point.bubble, MARKS[point.name], color=colour, ms=6)
                axis.plot(point.memory, point.least, "_", color=colour, ms=12, mew=1.5)
                axis.plot([point.memory] * 2, [point.least, point.bubble], ":", color=colour, lw=0.8)
        axis.plot(*STATED, "*", color="#d95f02", ms=11, label="stated by the authors")
        axis.set(title=f"F:B:W = {':'.join(f'{s:g}' for s in ratio)}", xlabel="memory, of 1F1B's")
    for name, mark in MARKS.items():
        axes[0].plot([], [], mark, color="#555555", label=name)
    axes[0].plot([], [], "_", color="#555555", ms=12, label="bound on every order")
    axes[0].set_ylabel("bubble, of 1F1B's")
    axes[0].set_ylim(bottom=0.0)
    axes[0].legend(fontsize=7, loc="upper right")
