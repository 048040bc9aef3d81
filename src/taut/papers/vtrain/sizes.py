r"""
Table III: the compute-optimal model of 3,360 A100.

With C the operations of the devices at their peak in 30 days, Chinchilla's law in the paper's units is

(1) :math:`N = \alpha \sqrt C, \; T = \beta \sqrt C` with :math:`\alpha = 0.089, \beta = 1.875`.

The rows of the table have T = 20 N; the constants themselves have T = 21.1 N, and N = 146.7 billion where the paper
says 145.61, which is the nearest shape. Days are steps of B sequences over T tokens times the seconds of a step. The
paper states no B: it is taken as the multiple of 420, which all its data degrees divide, at which the first row takes
the published days, 840. ``(70, 6, 1)`` of the last row stands for (8, 70, 6), the plan of 3,360 GPUs with these
numbers.
"""

import math
import warnings
from dataclasses import dataclass
from itertools import count

from taut.errors import ExtrapolationWarning
from taut.papers.compared import SharedTime, plan_or_none, rows_so_far
from taut.papers.vtrain.plans import PADDED_VOCABULARY, PEAK_FLOPS, VTRAIN, Priced, priced
from taut.papers.vtrain.space import GAP, REQUEST
from taut.papers.vtrain.step import SEQ, Plan, Shape, step_seconds
from taut.sweeping.sweep import Told

ALPHA, BETA, TOKENS_A_PARAMETER = 0.089, 1.875, 20.0
GPUS, BUDGET_DAYS, GLOBAL_BATCH = 3360, 30, 840
CHANNELS_OF_A_HEAD = 128
WORK = 40
"""Refinements of each search, some five seconds: at 15 gaps are still over ten per cent."""


@dataclass(frozen=True, slots=True)
class Published:
    """A row of table III: shape, billions of parameters and tokens, plan and days."""

    hidden: int
    layers: int
    parameters: float
    tokens: float
    plan: Plan
    days: float

    @property
    def shape(self) -> Shape:
        """The model."""
        return Shape(self.layers, self.hidden, self.hidden // CHANNELS_OF_A_HEAD)


TABLE = (
    Published(12288, 80, 145.61, 2912, (8, 42, 10), 95),
    Published(12288, 70, 127.49, 2550, (8, 60, 7), 72),
    Published(12288, 60, 109.37, 2187, (8, 70, 6), 53),
    Published(10240, 80, 101.21, 2024, (8, 42, 10), 50),
    Published(10240, 70, 88.62, 1772, (8, 84, 5), 37),
    Published(10240, 60, 76.04, 1521, (8, 105, 4), 27),
    Published(9216, 80, 82.03, 1641, (8, 84, 5), 34),
    Published(9216, 70, 71.83, 1437, (8, 84, 5), 26),
    Published(9216, 60, 61.64, 1233, (8, 105, 4), 19),
    Published(8192, 70, 56.81, 1136, (8, 84, 5), 18),
    Published(8192, 60, 48.75, 975, (8, 70, 6), 13),
)


@dataclass(frozen=True, slots=True)
class Best:
    """The best plan of the same space by our prices, with its bound."""

    plan: Plan
    step_s: float
    lower_bound_s: float

    @property
    def gap(self) -> float:
        """Relative distance of the plan from the bound."""
        return 1 - self.lower_bound_s / self.step_s


@dataclass(frozen=True, slots=True)
class Row:
    """A size: as published, days by vTrain's rules and by our calibration, and the best plan if one was found."""

    published: Published
    rules_s: float
    ours: Priced
    best: Best | None

    @property
    def parameters(self) -> float:
        """Billions of parameters."""
        return self.published.shape.parameters / 1e9

    @property
    def tokens(self) -> float:
        """Billions of tokens, T = 20 N."""
        return TOKENS_A_PARAMETER * self.parameters

    @property
    def gap(self) -> float | None:
        """Gap of the best plan."""
        return None if self.best is None else self.best.gap

    @property
    def is_cut_off(self) -> bool:
        """Whether a limit ended the search for the best plan, whose gap is not small enough; the published one fits."""
        return self.gap is None or self.gap > GAP

    def days(self, step_s: float) -> float:
        """Days of the training at some seconds a step."""
        return step_s * self.tokens * 1e9 / (GLOBAL_BATCH * SEQ) / 86_400


def chinchilla() -> tuple[float, float]:
    """Billions of parameters and tokens of (1) at the peak of the budget's devices."""
    root = math.sqrt(GPUS * PEAK_FLOPS * BUDGET_DAYS * 86_400)
    return ALPHA * root / 1e9, BETA * root / 1e9


def table_three(
    scalar: float, shared: SharedTime, *, work_limit: int = WORK, progress: Told | None = None
) -> list[Row]:
    """Rows of table III until a signal; the search of each best plan has limits of work and of time."""
    ours = priced(VTRAIN, [(row.shape, row.plan) for row in TABLE], GLOBAL_BATCH)

    def made(of: tuple[int, Published, Priced]) -> Row:
        if progress is not None:
            progress(of[0], len(TABLE), None)
        row, found = of[1:]
        by_rules = step_seconds(row.shape, row.plan, GLOBAL_BATCH, scalar)
        return Row(row, by_rules, found, best_plan(row.shape, work_limit, shared.of_next(1).time_limit))

    return list(rows_so_far(zip(count(), TABLE, ours), made))


def largest(rows: list[Row]) -> Row | None:
    """The largest model whose best plan ends in time."""
    in_time = [row for row in rows if row.best is not None and row.days(row.best.step_s) <= BUDGET_DAYS]
    return max(in_time, key=lambda row: row.parameters, default=None)


def largest_is_cut_off(rows: list[Row]) -> bool:
    """Whether a limit ended a search on which the largest model in time depends: its own, or one of a larger model."""
    found = largest(rows)
    return any(row.is_cut_off for row in rows if found is None or row.parameters >= found.parameters)


def best_plan(shape: Shape, work_limit: int, time_limit: float | None = None) -> Best | None:
    """The best plan of a model on the budget's GPUs, None where none was found."""
    model = {
        "name": f"gpt-{shape.hidden}x{shape.layers}",
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "seq": SEQ,
        "vocab": PADDED_VOCABULARY,
        "tied_embedding": True,
    }
    asked = REQUEST | {"cluster": VTRAIN.cluster_of(GPUS), "calibration": VTRAIN.calibration, "model": model}
    asked |= {"global_batch": GLOBAL_BATCH, "work_limit": work_limit, "time_limit": time_limit, "gap": GAP}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        found = plan_or_none(**asked, workers=1)
    if found is None:
        return None
    chosen = found.strategy
    return Best((chosen.tp, chosen.dp, chosen.pp), found.step_time_s, found.lower_bound_s or 0.0)
