r"""
The pipeline schedule that a plan runs, as a problem of its own.

With the times of a plan's slowest replica (``taut.formulations.order_times`` (1), (2)) in seconds and, for
chunk c under its recompute, the bytes :math:`a_c` that a forward pass keeps until the end of the backward pass, the
order of the plan holds :math:`\text{peak}_d` bytes of activations on device d. What the device has for them is

.. math:: M_d = \max(0, \text{peak}_d + \text{budget}_d - \text{need}_d), \tag{1}

budget and need being those of the plan, the budget of the smallest device of the pipeline rank.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.latency import memory_bytes
from taut.formulations.order_times import candidate_order, replica_seconds
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import CLOSED_FORM, as_schedule, device_of_chunk
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.memory import kept_coefficients


class PlannedSchedule(NamedTuple):
    """Pipeline and orders of a plan's slowest replica, and which one it is."""

    pipeline: ScheduleProblem
    schedule: Schedule
    replica: int


def planned_schedule(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> PlannedSchedule:
    """Pipeline and orders of a plan's slowest replica, with memory limits (1), of devices (pp, dp, tp)."""
    candidate = strategy.candidate
    passes, transfers = replica_seconds(problem, strategy, devices)
    counts = np.broadcast_to(strategy.batches, len(passes)).tolist()
    pipelines = [_pipeline(problem, strategy, *each) for each in zip(passes, transfers, counts, strict=True)]
    orders = {pipeline.num_micro_batches: pipeline for pipeline in pipelines}
    schedules = {count: _order(candidate, pipeline) for count, pipeline in orders.items()}
    times = [timetable(pipeline, schedules[pipeline.num_micro_batches]) for pipeline in pipelines]
    slowest = int(np.argmax([each.makespan for each in times]))
    pipeline, peak = pipelines[slowest], times[slowest].peak_memory
    limit = np.maximum(peak + _left(problem, strategy, devices), 0.0)
    return PlannedSchedule(replace(pipeline, memory_limit=limit), schedules[pipeline.num_micro_batches], slowest)


def _pipeline(
    problem: PlanningProblem, strategy: Strategy, passes: Floats, transfer: Floats, count: int
) -> ScheduleProblem:
    """The pipeline of one replica with so many micro-batches, without memory limits."""
    candidate, tables = strategy.candidate, problem.tables(strategy.candidate)
    weights = kept_coefficients(problem.memory)[strategy.division.recompute_index]
    activation = np.asarray(weights * tables.activation[strategy.ranges], dtype=np.float64)
    return ScheduleProblem(
        device=device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp),
        forward=passes[0],
        input_gradient=passes[1],
        weight_gradient=passes[2],
        transfer=transfer,
        num_micro_batches=count,
        activation=activation,
        kept_for_weight=activation,
        memory_limit=np.full(candidate.pp, np.inf),
    )


def _order(candidate: Candidate, pipeline: ScheduleProblem) -> Schedule:
    if candidate.schedule in CLOSED_FORM:
        return CLOSED_FORM[candidate.schedule](pipeline)
    return as_schedule(candidate.schedule, candidate_order(candidate))


def _left(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Floats:
    """Bytes of the budget that the plan leaves free on every pipeline rank, (1)."""
    if not problem.memory.is_sum_of_terms:
        return np.full(strategy.candidate.pp, np.inf)
    budget = problem.stage_memory(strategy.candidate).budget
    types = problem.type_of_node[problem.links.node_of[devices]].reshape(strategy.candidate.pp, -1)
    return np.asarray(budget[types].min(axis=1) - np.array(memory_bytes(problem, strategy)), dtype=np.float64)
