r"""
Orders that are given rather than found, and the CSV of ``torch.distributed.pipelining``, read and written.

Our JSON and a plan hold the pipeline that they are for, PyTorch's CSV does not.

The CSV has one row per device, its cells the passes in execution order: ``<stage><letter><micro-batch>``, where
PyTorch's stage is our chunk. An empty cell is idle; ``(3F1;4B0)OVERLAP_F_B`` is a pair that PyTorch may overlap, read
as one after the other. Cells of communication are skipped on reading: what is sent follows from the passes. PyTorch
takes the device of every stage from the rows themselves, so any map can be written.

Where W follows its own I on a device, and the gradient is awaited no earlier than the end of W, both are written as
one B: PyTorch runs it faster than its halves, and no pass starts later than before, (3) of
``taut.formulations.schedules.schedule``.

The pipeline schedule that a plan runs is a problem of its own. With the times of a plan's slowest replica
(``taut.formulations.order_division`` (3), (4)) in seconds and, for chunk c under its recompute, the bytes :math:`a_c`
that a forward pass keeps until the end of the backward pass, the order of the plan holds :math:`\text{peak}_d` bytes of
activations on device d. What the device has for them is

.. math:: M_d = \max(0, \text{peak}_d + \text{budget}_d - \text{need}_d), \tag{1}

budget and need being those of the plan, the budget of the smallest device of the pipeline rank.
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.read import read_json, read_text
from taut.data.spec import shorten
from taut.errors import DataError
from taut.formulations.latency import memory_bytes, violations
from taut.formulations.meshes.step_time import mesh_timeline
from taut.formulations.order_division import candidate_order, replica_seconds
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import CLOSED_FORM, ON_V, as_schedule, device_of_chunk
from taut.formulations.schedules.recurrence import BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import LETTERS, PlacedProblem, Schedule, ScheduleProblem, timetable
from taut.formulations.schedules.stages import CHUNKS, Stages, device_map
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.memory import kept_coefficients, stage_memory
from taut.schedules.found import checked, load_schedule
from taut.schedules.portfolio import Built
from taut.solver.certificate.document import FORMAT as PLAN_FORMAT
from taut.solver.certificate.document import MeshDocument, devices_of, mesh_plan_of, parse_plan, problem_of, strategy_of
from taut.words import csv_text

_PASS = re.compile(r"(\d+)([FIWB])(\d+)")
_OVERLAP = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
_COMMUNICATION = re.compile(r"\d+(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)\d*")


def torch_csv(problem: ScheduleProblem, schedule: Schedule) -> str:
    """Text that PyTorch's runtime loads in its format ``compute_only``, I and W as one B where that costs nothing."""
    return orders_csv(fused(problem, schedule).orders)


def orders_csv(orders: Iterable[Ints]) -> str:
    """The same text of passes as they are: kind, chunk and micro-batch (n, 3) of each device."""
    return csv_text([f"{chunk}{LETTERS[kind]}{i}" for kind, chunk, i in order.tolist()] for order in orders)


def fused(problem: ScheduleProblem, schedule: Schedule) -> Schedule:
    """Make one B of every I that its own W follows, unless its gradient is awaited before the end of W."""
    times = timetable(problem, schedule)
    awaited = _awaited(problem, schedule, times.start)
    orders = zip(schedule.orders, times.end, strict=True)
    return Schedule(schedule.kind, tuple(_fused_order(order, end, awaited) for order, end in orders))


def _awaited(problem: ScheduleProblem, schedule: Schedule, starts: tuple[Floats, ...]) -> Floats:
    """When the gradient of chunk and micro-batch must have left its device (chunks, m); infinite before chunk 0."""
    needed = np.full((problem.num_chunks, problem.num_micro_batches), np.inf)
    for order, start in zip(schedule.orders, starts, strict=True):
        takes = ((order[:, 0] == INPUT_GRADIENT) | (order[:, 0] == BACKWARD)) & (order[:, 1] < problem.num_chunks - 1)
        _, chunk, i = order[takes].T
        needed[chunk + 1, i] = start[takes] - problem.transfer[chunk]
    return needed


def _fused_order(order: Ints, end: Floats, awaited: Floats) -> Ints:
    kind, chunk, i = order.T
    pairs = (
        (kind[:-1] == INPUT_GRADIENT) & (kind[1:] == WEIGHT_GRADIENT) & (order[:-1, 1:] == order[1:, 1:]).all(axis=1)
    )
    pairs &= end[1:] <= awaited[chunk[:-1], i[:-1]]
    joined = order.copy()
    joined[:-1][pairs, 0] = BACKWARD
    return joined[np.concatenate(([True], ~pairs))]


def read_torch_csv(path: Path) -> Schedule:
    """Read the orders of a CSV that PyTorch or ``torch_csv`` wrote; whether they suit a pipeline is not checked."""
    rows = csv.reader(StringIO(read_text(path, "a CSV file of passes, one row for each device")))
    try:
        orders = tuple(_read_row(f"{path} row {number}", row) for number, row in enumerate(rows, 1))
    except csv.Error as error:
        raise DataError(f"{path}: {error}, expected a CSV file of passes") from None
    if not orders:
        raise DataError(f"{path}: is empty, expected one row for each device")
    return Schedule("torch-csv", orders)


def _read_row(source: str, row: list[str]) -> Ints:
    cells = [part.strip() for cell in row for part in _OVERLAP.sub(r"\1", cell.strip()).split(";")]
    passes = [_read_cell(source, cell) for cell in cells if cell and not _COMMUNICATION.fullmatch(cell)]
    return np.array(passes, dtype=np.int64).reshape(-1, 3)


def _read_cell(source: str, cell: str) -> tuple[int, int, int]:
    found = _PASS.fullmatch(cell)
    if found is None or max(len(found[1]), len(found[3])) > 9:
        raise DataError(f"{source}: cell {shorten(cell)}, expected <stage>F, I, W or B<micro-batch>, such as 3F0")
    return LETTERS.index(found[2]), int(found[1]), int(found[3])


def given_json(path: Path) -> Built:
    """Read a schedule document with its pipeline, or the one that a plan runs."""
    values = read_json(path, "a schedule or plan")
    if values.get("format") == PLAN_FORMAT:
        placed, schedule, _ = planned(values, str(path))
    else:
        placed, schedule = load_schedule(path)
    return Built(placed=placed, schedule=schedule, times=timetable(placed.problem, schedule))


def planned(values: object, source: str) -> tuple[PlacedProblem, Schedule, int]:
    """Pipeline and orders of a plan's slowest replica (of meshes, pipeline), in seconds and bytes, and which it is."""
    document = parse_plan(values, source)
    if isinstance(document, MeshDocument):
        given = problem_of(document, source)
        timeline = mesh_timeline(given, mesh_plan_of(document, given, source))
        slowest = timeline.pipelines[timeline.slowest]
        reference = _reference(slowest)
        placed = PlacedProblem(placement="sequential", problem=slowest, reference_memory=reference, unit="s")
        return placed, timeline.schedule, timeline.slowest
    problem, strategy = problem_of(document, source), strategy_of(document.strategy, source)
    devices = devices_of(document, source)
    if strategy.candidate not in problem.candidates:
        raise DataError(f"{source}: strategy: {strategy.candidate}, expected a candidate of certificate.space")
    if faults := violations(problem, strategy, devices):
        raise DataError(f"{source}: {faults[0]}, expected a plan that fits")
    pipeline, schedule, replica = planned_schedule(problem, strategy, devices)
    choice = strategy.candidate
    names = {count: name for name, count in CHUNKS.items()}
    placement = "v" if choice.schedule in ON_V else names[min(choice.vpp, 2)]
    placed = PlacedProblem(placement=placement, problem=pipeline, reference_memory=_reference(pipeline), unit="s")
    return placed, schedule, replica


def _reference(pipeline: ScheduleProblem) -> float:
    """What 1F1B holds on its fullest device with the same chunks in the order of the layers, one share a device."""
    stages = pipeline.num_devices
    shares = pipeline.activation.reshape(stages, -1).sum(axis=1)
    return float((np.minimum(stages - np.arange(stages), pipeline.num_micro_batches) * shares).max())


def given_csv(path: Path, stages: Stages) -> Built:
    """Read PyTorch's CSV, and place the chunks of a pipeline as its rows say."""
    schedule = read_torch_csv(path)
    placed = _placed(path, schedule, stages)
    checked(placed.problem, schedule, str(path))
    return Built(placed=placed, schedule=schedule, times=timetable(placed.problem, schedule))


def _placed(path: Path, schedule: Schedule, stages: Stages) -> PlacedProblem:
    if len(schedule.orders) != stages.stages:
        raise DataError(f"{path}: {len(schedule.orders)} rows, expected {stages.stages}, one for each of --stages")
    device = _device(path, schedule)
    chunks = len(device) // stages.stages
    known = [name for name, count in CHUNKS.items() if count == chunks] or ["round-robin"]
    same = [name for name in known if np.array_equal(device, device_map(name, stages.stages, chunks))]
    return stages.place_on(device, same[0] if same else "other")


def _device(path: Path, schedule: Schedule) -> Ints:
    """Device of every chunk, from the rows that its passes stand in."""
    hosts = [(int(c), d) for d, order in enumerate(schedule.orders) for c in np.unique(order[:, 1])]
    chunks = sorted(c for c, _ in hosts)
    devices = len(schedule.orders)
    if chunks != list(range(len(chunks))) or not chunks or len(chunks) % devices:
        expected = f"every stage from 0 on in one row, as many in all as a multiple of the {devices} rows"
        raise DataError(f"{path}: stages {_short(chunks)}, expected {expected}")
    return np.array([d for _, d in sorted(hosts)], dtype=np.int64)


def _short(chunks: list[int]) -> str:
    shown = " ".join(map(str, chunks[:12]))
    return shown + (" ..." if len(chunks) > 12 else "") if chunks else "none"


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
    budget = stage_memory(problem, strategy.candidate).budget
    types = problem.type_of_node[problem.links.node_of[devices]].reshape(strategy.candidate.pp, -1)
    return np.asarray(budget[types].min(axis=1) - np.array(memory_bytes(problem, strategy)), dtype=np.float64)
