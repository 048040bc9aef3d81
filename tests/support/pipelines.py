"""A pipeline of two devices and two micro-batches, small enough to schedule by hand."""

import math

import numpy as np

from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import PlacedProblem, Schedule, ScheduleProblem, timetable
from taut.schedules.found import FoundSchedule

F, G, W, B = FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD
Orders = tuple[list[tuple[int, int, int]], ...]

WHOLE: Orders = (
    [(F, 0, 0), (F, 0, 1), (B, 0, 0), (B, 0, 1)],
    [(F, 1, 0), (B, 1, 0), (F, 1, 1), (B, 1, 1)],
)
"""1F1B. Device 1: F 1.5-2.5, B 2.5-4.5, F 4.5-5.5, B 5.5-7.5; device 0: F 0-1 and 1-2, B 5-7 and 8-10."""
SPLIT: Orders = (
    [(F, 0, 0), (F, 0, 1), (G, 0, 0), (W, 0, 0), (G, 0, 1), (W, 0, 1)],
    [(F, 1, 0), (G, 1, 0), (W, 1, 0), (F, 1, 1), (G, 1, 1), (W, 1, 1)],
)
"""The same in parts: device 1 as before; device 0: I 4-5, W 5-6, I 7-8, W 8-9."""


def schedule(orders: Orders, kind: str = "1f1b") -> Schedule:
    """A schedule of plain lists."""
    return Schedule(kind, tuple(np.array(order) for order in orders))


def placed(limit: float = math.inf) -> PlacedProblem:
    """Two stages whose passes take 1 each and transfers 0.5; 1F1B holds 2 activations."""
    ones = np.ones(2)
    problem = ScheduleProblem(
        device=np.arange(2),
        forward=ones,
        input_gradient=ones,
        weight_gradient=ones,
        transfer=np.array([0.5]),
        num_micro_batches=2,
        activation=ones,
        kept_for_weight=ones,
        memory_limit=np.full(2, limit),
    )
    return PlacedProblem(placement="sequential", problem=problem, reference_memory=2.0)


def found(orders: Orders = WHOLE, bound: float | None = 9.0, limit: float = math.inf) -> FoundSchedule:
    """A schedule of that pipeline with a bound."""
    pipeline, made = placed(limit), schedule(orders)
    return FoundSchedule(
        placed=pipeline, schedule=made, times=timetable(pipeline.problem, made), lower_bound=bound, source="work"
    )
