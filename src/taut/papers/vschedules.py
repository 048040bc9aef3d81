r"""
Which schedules train a 98.5B model at sequence 16384 on 40 GPUs: the published grid search beside ours.

Qi et al. (Pipeline Parallelism with Controllable Memory, NeurIPS 2024, author response) search all data, tensor and
pipeline degrees on 40 A100 for every method, at a global batch of 160. They report the best model FLOP utilisation of
those that run: 1F1B with recomputation, V-Half and V-Min; 1F1B, ZB-1P and V-ZB run out of memory everywhere.

Here every method is priced over the same degrees and micro-batches by our costs and memory, twice: with even stages, as
the published systems have them (embedding and head count as a layer each), devices in order; and as ``taut plan`` would
have it, with stages, recompute and placement free to choose and a bound on all of them. ZB-H1 stands for ZB-1P and ZB-V
for V-ZB, which hold as much.

Stated in the source: the model's size, sequence, batch, number and type of devices. Assumed: 78 layers of 10240 with 80
heads and a tied vocabulary of 32000, which make 98.5B parameters; five nodes of eight A100-80GB with the catalog's
network; bf16 with fp32 optimizer states, 18 bytes a parameter; sequence parallelism wherever it helps; fused attention;
analytic costs, which lose nothing between kernels; 2 GiB of overhead and no margin.

Memory against bubble, as one picture: stages are even, and the forward pass, the gradient of the input and that of the
weights take f, b and w seconds. With p stages and m = 2 p micro-batches the bubble of a schedule of makespan T, as a
share of that of 1F1B, is

(1) :math:`(T - m (f + b + w)) / ((p - 1) (f + b + w))`.

V-Min, V-Half and V-ZB stand at the memory of their blocks, and the adaptive search at ``LIMITS`` of 1F1B's memory, each
with (1) of a lower bound on every order on the V within as much memory. Qi et al. state 1/3 of the bubble at 2/3 of the
memory (author response), without p, m, f, b and w.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.suggest import one_of
from taut.data.units import GIB
from taut.errors import FieldError
from taut.formulations.latency import step_time, violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.stages import Stages
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.papers.compared import (
    CUT_OFF,
    SharedTime,
    gap_cell,
    is_cut_off,
    legend,
    posed,
    rows_so_far,
    rows_until_interrupted,
)
from taut.schedules.portfolio import build_kind
from taut.solver.certificate.write import predicted
from taut.solver.result import Incumbent, Limits
from taut.solver.schedules.lower_bound import lower_bound
from taut.solver.search.search import search
from taut.words import percent, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ADAPTIVE = "adaptive"
KINDS = {"V-Min": "v-min", "V-Half": "v-half", "V-ZB": "zb-v"}
LIMITS = (0.5, 2 / 3)
STAGES, RATIOS = (4, 8, 16, 32), ((6.0, 6.0, 6.0), (6.0, 8.0, 4.0), (6.0, 10.0, 2.0))
"""Pipelines, and f, b and w: equal, and with more and more of the work in attention, which has no weights."""
STATED = 2 / 3, 1 / 3
"""Memory and bubble that the authors state."""
WORK = 20_000_000
"""Values of labels that a bound extends at most: five times as many close one of 60 gaps more, in a third more time."""
SIZE = (12.0, 4.2)
"""Inches of the picture."""
MARKS = {"V-Min": "v", "V-Half": "s", "V-ZB": "^", ADAPTIVE: "o"}
COLOURS = dict(zip(STAGES, ("#9ecae1", "#6baed6", "#3182bd", "#08519c"), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """
    A schedule: seconds of its passes, its memory relative to 1F1B's, its bubble (1), and (1) of the bound.

    ``is_cut_off``: whether the time limit ended the search for the schedule or for its bound.
    """

    ratio: tuple[float, float, float]
    stages: int
    name: str
    memory: float
    bubble: float
    least: float
    is_cut_off: bool = False

    @property
    def gap(self) -> float:
        """Gap of the makespan, whose 2 p micro-batches take 2 p / (p - 1) in units of (1)."""
        work = 2 * self.stages / (self.stages - 1)
        return (self.bubble - self.least) / (self.bubble + work)

    @property
    def passes(self) -> str:
        """F:B:W in words."""
        return ":".join(f"{seconds:g}" for seconds in self.ratio)


CHOICES = [*((name, kind, math.inf) for name, kind in KINDS.items()), *((ADAPTIVE, "blocks", x) for x in LIMITS)]
"""Name, kind and memory limit of the schedules of each pipeline."""
POINTS = tuple(product(RATIOS, STAGES, CHOICES))


def memory_frontier(shared: SharedTime, told: Callable[[str], None] | None = None) -> tuple[Point, ...]:
    """Schedules of every ratio and every pipeline, those before a signal."""

    def made(at: tuple[int, tuple[tuple[float, float, float], int, tuple[str, str, float]]]) -> Point:
        ratio, stages, choice = at[1]
        return _point(stages, ratio, *choice, shared.of_next(1).time_limit)

    return rows_so_far(enumerate(POINTS, start=1), made, lambda at: f"schedule {at[0]} of {len(POINTS)}", told)


def _point(
    stages: int, ratio: tuple[float, float, float], name: str, kind: str, limit: float, seconds: float | None
) -> Point:
    """A schedule of one kind on the V with m = 2 p, so that it has a steady phase, searched for so many seconds."""
    ends = time.monotonic() + (math.inf if seconds is None else seconds)

    def stop() -> bool:
        return time.monotonic() > ends

    count, (forward, backward, weight) = 2 * stages, ([seconds] for seconds in ratio)
    placed = Stages(
        stages=stages, micro_batches=count, memory_limit=[limit], forward=forward, backward=backward, weight=weight
    ).place("v", 2)
    built = build_kind(placed, kind, stop)
    held = np.full_like(built.times.peak_memory, built.times.peak_memory.max())
    within = placed.problem if limit < math.inf else replace(placed.problem, memory_limit=held)
    bound = lower_bound(within, incumbent=built.times.makespan, work_limit=WORK, stop=stop).lower_bound
    both = (built.times.makespan, bound)
    bubble, least = (float((each - sum(ratio) * count) / (sum(ratio) * (stages - 1))) for each in both)
    memory = float(held.max() / placed.reference_memory)
    stopped = stop() and least < bubble
    return Point(ratio=ratio, stages=stages, name=name, memory=memory, bubble=bubble, least=least, is_cut_off=stopped)


def at_two_thirds(points: Sequence[Point]) -> Point | None:
    """The best schedule with equal passes of the longest pipeline within 2/3 of the memory, if there is one."""
    found = [each for each in points if each.ratio == RATIOS[0] and each.memory <= STATED[0] + 1e-9]
    return min(found, key=lambda each: (-each.stages, each.bubble), default=None)


def frontier_table(points: Sequence[Point]) -> str:
    """The points as text, one a line."""
    lines: list[tuple[str, ...]] = [("F:B:W", "stages", "schedule", "memory", "bubble", "at least", "gap")]
    for each in points:
        shares = (f"{share:.4f}" for share in (each.memory, each.bubble, each.least))
        gap = percent(each.gap, places=2) + CUT_OFF * each.is_cut_off
        lines.append((each.passes, f"{each.stages}", each.name, *shares, gap))
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
            stopped = [(point.memory, point.least) for point in own if point.is_cut_off]
            if stopped:
                axis.plot(*zip(*stopped, strict=True), "k*", ms=6)
        axis.plot(*STATED, "*", color="#d95f02", ms=11, label="stated by the authors")
        axis.set(title=f"F:B:W = {':'.join(f'{s:g}' for s in ratio)}", xlabel="memory, of 1F1B's")
    for name, mark in MARKS.items():
        axes[0].plot([], [], mark, color="#555555", label=name)
    axes[0].plot([], [], "_", color="#555555", ms=12, label="bound on every order")
    if any(point.is_cut_off for point in points):
        axes[0].plot([], [], "k*", ms=6, label="bound of a search that a limit ended")
    axes[0].set_ylabel("bubble, of 1F1B's")
    axes[0].set_ylim(bottom=0.0)
    axes[0].legend(fontsize=7, loc="upper right")


MODEL = {
    "name": "gpt-98.5b",
    "layers": 78,
    "hidden": 10240,
    "heads": 80,
    "seq": 16384,
    "vocab": 32000,
    "tied_embedding": True,
    "source": "size and sequence of Qi et al. 2024; shape assumed",
}
CLUSTER, GLOBAL_BATCH = "dgx-a100:5", 160


@dataclass(frozen=True, slots=True)
class Method:
    """A published method: our schedule and recompute, and its best utilisation, None where it ran out of memory."""

    name: str
    schedule: str
    recompute: str
    mfu: float | None
    degrees: str = ""


METHODS = (
    Method("1F1B", "1f1b", "none", None),
    Method("1F1B-R", "1f1b", "full", 0.4205, "dp=1 tp=4 pp=10"),
    Method("ZB-1P", "zb-h1", "none", None),
    Method("V-Half", "v-half", "none", 0.5785, "dp=1 tp=8 pp=5"),
    Method("V-Min", "v-min", "none", 0.4858, "dp=1 tp=8 pp=5"),
    Method("V-ZB", "zb-v", "none", None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best choice that fits: utilisation, degrees, seconds of a step and GiB of the fullest device."""

    mfu: float
    degrees: str
    step_time_s: float
    memory_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """
    A method: what was published, ours with even and with free stages (None where nothing fits), and the bound.

    ``is_cut_off``: whether a limit ended the search for free stages.
    """

    method: Method
    even: Best | None
    free: Best | None
    mfu_at_most: float | None
    is_cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """All methods, and the frontier of memory against bubble."""

    rows: tuple[Row, ...]
    points: tuple[Point, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rows": [asdict(row) for row in self.rows],
            "same_methods_fit": self.same_methods_fit,
            "order_published": self.order(lambda row: row.method.mfu),
            "order_even": self.order(lambda row: row.even.mfu if row.even else None),
            "order_free": self.order(lambda row: row.free.mfu if row.free else None),
            "frontier": [asdict(point) for point in self.points],
        }

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.published_rows``)."""
        found = {f"grid search: {row.method.name}": f"{row.even.mfu:.2%}" for row in self.rows if row.even}
        even = {row.method.name: row.even.mfu for row in self.rows if row.even}
        if {"V-Half", "1F1B-R"} <= set(even):
            found["grid search: V-Half over 1F1B-R"] = f"{even['V-Half'] / even['1F1B-R']:.2f}x"
        lost = ", ".join(row.method.name for row in self.rows if row.even is None)
        if (within := at_two_thirds(self.points)) is not None:
            longest = [each for each in self.points if (each.ratio, each.stages) == (within.ratio, within.stages)]
            bubbles = [each.bubble for each in longest]
            mark = CUT_OFF * within.is_cut_off
            found["rebuttal: bubble at 2/3 of the memory, of 1F1B's"] = f"{within.bubble:.4f}{mark}"
            found["figures 9-10: memory against bubble"] = f"{max(bubbles):.4f} to {min(bubbles):.4f}"
            found |= {f"table 1: memory of {each.name}, of 1F1B's": f"{each.memory:.4f}" for each in longest}
        if not self.rows:
            return found
        return found | {"grid search: out of memory": lost}

    @property
    def same_methods_fit(self) -> bool:
        """Whether with even stages the same methods fit."""
        return all((row.even is None) == (row.method.mfu is None) for row in self.rows)

    def order(self, mfu: Callable[[Row], float | None]) -> list[str]:
        """Names of those that fit, the fastest first."""
        found = [(value, row.method.name) for row in self.rows if (value := mfu(row)) is not None]
        return [name for _, name in sorted(found, reverse=True)]

    def __str__(self) -> str:
        """One line for each method, then the orders, then the frontier."""
        parts = ["\n".join(self._grid())] if self.rows else []
        parts += [frontier_table(self.points)] if self.points else []
        marked = [row.is_cut_off for row in self.rows] + [point.is_cut_off for point in self.points]
        return "\n\n".join([*parts, *legend(marked)])

    def _grid(self) -> list[str]:
        """The grid search."""
        title = f"{MODEL['name']} at sequence {MODEL['seq']}, {CLUSTER}, global batch {GLOBAL_BATCH}: utilisation"
        head = ("method", "published", "even stages", "", "free stages", "", "at most", "gap")
        lines: list[tuple[str, ...]] = [head]
        lines += [_cells(row) for row in self.rows]
        plain, names = self.as_dict(), ("published", "even", "free")
        orders = [f"fastest first, {name}: {' > '.join(plain['order_' + name])}" for name in names]
        same = "the same" if self.same_methods_fit else "not the same"
        return [title, "", text_table(lines), "", f"with even stages {same} methods fit as published", *orders]


def _cells(row: Row) -> tuple[str, ...]:
    published = "out of memory" if row.method.mfu is None else f"{row.method.mfu:.2%} {row.method.degrees}"
    if row.free is None or row.mfu_at_most is None:
        free = (f"none so far{CUT_OFF}", "") if row.is_cut_off else _said(None)
        return row.method.name, published, *_said(row.even), *free, "", ""
    gap = gap_cell(row.mfu_at_most, row.free.mfu, row.is_cut_off)
    return row.method.name, published, *_said(row.even), *_said(row.free), f"{row.mfu_at_most:.2%}", gap


def _said(best: Best | None) -> tuple[str, str]:
    if best is None:
        return "out of memory", ""
    return f"{best.mfu:.2%} {best.degrees}", f"{best.memory_gib:.1f} GiB"


PARTS = ("grid", "frontier")


def reproduce_vschedules(
    gap: float = 0.0,
    only: str | None = None,
    time_limit: float | None = None,
    told: Callable[[str], None] | None = None,
) -> Table:
    """
    Price every method, or one of ``PARTS`` alone, in searches that share ``time_limit`` seconds.

    The search for free stages stops at a gap that is good enough.
    """
    if only not in (None, *PARTS):
        raise FieldError("only", str(only), f"expected {one_of(str(only), PARTS)}")
    methods = () if only == "frontier" else METHODS
    searches = len(methods) + (0 if only == "grid" else len(POINTS))
    shared = SharedTime(limits=Limits(workers=1, gap=gap), within=time_limit, searches=searches)
    rows = rows_until_interrupted(methods, lambda method: _row(method, shared.of_next(1)), told) if methods else ()
    return Table(rows, () if only == "grid" else memory_frontier(shared, told))


def _row(method: Method, limits: Limits) -> Row:
    problem = _problem(method)
    result = search(problem, limits)
    free = None if result.incumbent is None else _best(problem, result.incumbent)
    most = None if free is None else free.mfu * free.step_time_s / result.lower_bound
    stopped = is_cut_off(result)
    return Row(method=method, even=_even(method, problem), free=free, mfu_at_most=most, is_cut_off=stopped)


def _problem(method: Method) -> PlanningProblem:
    """The grid of a method: its schedule and recompute, every degree and micro-batch; pp = 1 has no schedule."""
    model = ModelSpec.parse(MODEL, str(MODEL["name"]))
    asked: dict[str, Any] = {"memory_model": MemoryModel(margin=0.0), "fix": {"schedule": method.schedule}}
    whole = posed(model, CLUSTER, "pipette", global_batch=GLOBAL_BATCH, **asked)
    return replace(whole, space=whole.space.model_copy(update={"recompute": [method.recompute]}))


def _even(method: Method, problem: PlanningProblem) -> Best | None:
    """The best candidate with even stages that fits, devices in order."""
    found = [best for choice in problem.candidates if (best := _even_best(method, problem, choice)) is not None]
    return max(found, key=lambda best: best.mfu, default=None)


def _even_best(method: Method, problem: PlanningProblem, choice: Candidate) -> Best | None:
    layers, chunks = len(problem.model.blocks), choice.pp * choice.vpp
    if (layers + 2) % chunks or (layers + 2) // chunks < 2:
        return None
    each = (layers + 2) // chunks
    ends = [min(each * (c + 1) - 1, layers) for c in range(chunks)]
    stages = tuple(zip([0, *ends[:-1]], ends, strict=True))
    strategy = Strategy(candidate=choice, division=Division(stages, (method.recompute,) * chunks))
    devices = np.arange(choice.pp * choice.dp * choice.tp).reshape(choice.pp, choice.dp, choice.tp)
    if violations(problem, strategy, devices):
        return None
    seconds = float(step_time(problem, strategy, devices).total)
    return _best(problem, Incumbent(strategy=strategy, devices=devices, seconds=seconds))


def _best(problem: PlanningProblem, found: Incumbent) -> Best:
    figures = predicted(problem, found.strategy, found, step_time(problem, found.strategy, found.devices))
    choice = found.strategy.candidate
    return Best(
        mfu=figures["mfu"],
        degrees=f"dp={choice.dp} tp={choice.tp} pp={choice.pp}",
        step_time_s=found.seconds,
        memory_gib=max(figures["memory_bytes"]) / GIB,
    )
